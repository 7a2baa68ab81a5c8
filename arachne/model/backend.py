"""The contract between the engine and a model: `ModelBackend`, and the `Cut`, `Trace` and `WeightFile` it hands out.

The engine never sees a tensor, a device or a graph; a backend never sees a fitness or a fault. NumPy arrays cross the
border, weights in the canonical layout of `arachne.model.values`.

A public operation validates its arguments, once for all backends, and calls the adapter's implementation: `_forward`
for `forward`. An implementation is only ever called with layers, parameters and shapes that fit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from arachne.decisions.decisions import decide
from arachne.decisions.losses import LossGradient
from arachne.errors import DataError, UsageError
from arachne.model.accumulate import ActivationAccumulator, Seeds, observe_traces, seeds_from
from arachne.model.cut import Cut, LazyCut, PlainCut, compute_gradient, restoring_weights
from arachne.model.fitting import OnStep, Plan
from arachne.model.inputs import READING_INPUTS, ModelInputs
from arachne.model.lazy import is_lazy
from arachne.model.passes import state_of, weights_in
from arachne.model.sharding import SHARD, add_in_place, join_rows, join_uses, offset_rows
from arachne.model.trace import PlainTrace, Trace
from arachne.model.values import Activation, Array, Inputs, Weights, check_real, check_rows, count, read, take
from arachne.model.weight_file import WeightFile

__all__ = [
    "ActivationAccumulator",
    "Cut",
    "LossGradient",
    "ModelBackend",
    "PlainCut",
    "Seeds",
    "Trace",
    "WeightFile",
    "Weights",
    "compute_gradient",
    "restoring_weights",
]


class ModelBackend(ModelInputs):
    """A trained model, whatever framework it lives in.

    Called once: `load`, `layers`. A few times per localisation: `trace` (or `activations` and `output_gradients`) and
    `weight_gradients`. Once per block of candidates, and therefore hot: what `cut` returns.

    Inputs are processed in shards of at most `SHARD` rows (`arachne.model.sharding`); adapters may use smaller batches.
    `trace` and `cut` get all inputs. Results depend only on the shard boundaries, so they are identical on any number
    of workers.

    `ModelInputs` says how operations go over inputs, `ModelWeights` has the layers and their parameters, `ModelFiles`
    what is no computing: names, files, descriptions.
    """

    SUPPORTS_GRADIENTS: ClassVar[bool] = True
    """Whether the gradient operations work; without them only random localisation does."""

    SUPPORTS_FIT: ClassVar[bool] = False
    """Whether `fit` works: the backend can train, with its framework's own gradients, training step and optimiser."""

    score_kind: str = "logits"
    """The kind of scores `forward` returns: `logits` where the model allows, else `log-probabilities`."""

    separate_outputs: bool = False
    """Whether the model ends in a sigmoid for each of several outputs, so that each is decided by itself."""

    only_scores: str | None = None
    """Why nothing of the model can be repaired: it has no layers, and gives scores alone. None where it has some."""

    def __init_subclass__(cls, *, reads_inputs: bool = False, **options: Any) -> None:
        """Refuse a subclass that replaces a final method of this class, perhaps by a helper of the same name.

        Args:
            reads_inputs: Whether the subclass says itself how operations go over inputs; else that is final too.
            **options: Those of other base classes.

        Raises:
            TypeError: It does.
        """
        super().__init_subclass__(**options)
        ours = () if reads_inputs else READING_INPUTS
        for name in vars(cls):
            if name in ours or getattr(getattr(ModelBackend, name, None), "__final__", False):
                instead = f"define '_{name}' instead" if hasattr(ModelBackend, f"_{name}") else "give it another name"
                raise TypeError(f"'{cls.__qualname__}' overrides the final method '{name}' of ModelBackend; {instead}")

    @final
    def forward(self, inputs: Inputs) -> Array:
        """Return raw outputs, float32 `(n, ...)`, of the kind `score_kind` says.

        A task reads them as decisions (`arachne.tasks`); of a classifier they are class scores `(n, classes)`.

        Raises:
            DataError: Inputs of a shape or dtype the model does not take.
        """
        self._check_arguments(inputs)
        return join_rows([self._forward(piece) for piece in self._iterate_pieces(inputs)])

    @abstractmethod
    def _forward(self, inputs: Inputs) -> Array:
        """Implementation of `forward`; gets one shard at a time."""

    @final
    def activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        """Return the inputs of a layer and its outputs before the non-linearity, one `Activation` per use."""
        self._check_arguments(inputs, [layer])
        return join_uses([self._activations(piece, layer) for piece in self._iterate_pieces(inputs)])

    @abstractmethod
    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        """Implementation of `activations`; the layer exists."""

    @final
    def forward_through(self, inputs: Inputs, layer: str) -> tuple[Array, tuple[Activation, ...]]:
        """Return raw outputs `(n, ...)` and a layer's activations, from one pass where the backend can."""
        self._check_arguments(inputs, [layer])
        found = [self._forward_through(piece, layer) for piece in self._iterate_pieces(inputs)]
        return join_rows([scores for scores, _ in found]), join_uses([uses for _, uses in found])

    def _forward_through(self, inputs: Inputs, layer: str) -> tuple[Array, tuple[Activation, ...]]:
        """Implementation of `forward_through`; the layer exists. Optional, for speed."""
        return self._forward(inputs), self._activations(inputs, layer)

    @final
    def weight_gradients(
        self, inputs: Inputs, loss: LossGradient, parameters: Iterable[tuple[str, str]] | None = None
    ) -> Weights:
        """Return gradients of a loss with respect to parameters, as fresh arrays.

        Called twice per localisation. The arrays belong to the caller, who may overwrite them.

        Args:
            inputs: `n` inputs.
            loss: The gradient of the loss with respect to the outputs.
            parameters: Which `(layer, parameter)` to differentiate by; None means all, in the order of `layers`.

        Raises:
            UnknownLayerError: The model has no such layer or parameter.
        """
        self._check_arguments(inputs)
        keys = self.resolve_parameters(parameters)
        done, state = self._begin_pass("weight_gradients", inputs, keys)
        shapes = [self.info(layer).parameters[name].shape for layer, name in keys] if done else []
        total: Weights = weights_in(state, keys, shapes)
        done = done if total else 0
        for number, (rows, piece) in enumerate(self._iterate_shards(inputs, done), done + 1):
            found = self._weight_gradients(piece, offset_rows(loss, rows.start), keys)
            total = found if number == 1 else add_in_place(total, found)
            self._keep_pass(number, partial(state_of, total, keys))
        return total

    @abstractmethod
    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        """Implementation of `weight_gradients`; the parameters exist, each is listed once."""

    @final
    def output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """Return the vector-Jacobian product of the scores with respect to a layer's outputs, one array per use.

        Args:
            inputs: `n` inputs.
            layer: The layer.
            seed: `(n, ...)` like the outputs; row by row the vector the Jacobian is multiplied with.

        Returns:
            One array per use, in the shape of what leaves the layer: `(n, out)` or `(n, channels, *positions)`.
        """
        self._check_arguments(inputs, [layer])
        check_rows(count(inputs), seed, "rows of the seed")
        found = [self._output_gradients(piece, layer, seed[rows]) for rows, piece in self._iterate_shards(inputs)]
        return tuple(join_rows(uses) for uses in zip(*found, strict=True))

    @abstractmethod
    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """Implementation of `output_gradients`; the layer exists, the seed has one row per input."""

    @final
    def input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        """Return the gradient of a loss with respect to the inputs: an array, or a mapping as `inputs` is.

        Raises:
            UsageError: The inputs are whole numbers, or the backend cannot differentiate by inputs.
        """
        check_real(inputs)
        self._check_arguments(inputs)
        found = [
            self._input_gradients(piece, offset_rows(loss, rows.start)) for rows, piece in self._iterate_shards(inputs)
        ]
        if isinstance(inputs, Mapping):
            return {name: join_rows([part[name] for part in found]) for name in inputs}
        return join_rows(found)  # type: ignore[arg-type]  # arrays, as the inputs are

    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        """Implementation of `input_gradients`; the inputs are no whole numbers. Optional."""
        raise UsageError(f"backend '{self.NAME}' gives no gradients with respect to the inputs")

    @final
    def fit(self, inputs: Inputs, labels: Array, plan: Plan, *, on_step: OnStep | None = None) -> Weights:
        """Train every parameter of every layer with the framework's own optimiser and return the new weights.

        Called by searchers that retrain a model. Training starts from the weights the model has, which it keeps,
        however training ends. It runs as in `forward`: nothing is dropped out, and batch normalisation uses and keeps
        the statistics it has. What is no layer's parameter stays as it is, as do parameters that the model's author has
        frozen. The loss is the mean cross-entropy of the scores. The same plan gives the same weights on the same
        machine.

        Args:
            inputs: `n` inputs; lazy ones are read batch by batch.
            labels: Their classes, whole numbers `(n,)`.
            plan: How to train.
            on_step: Called after each step; True ends the training, with the weights reached by then.

        Raises:
            UsageError: The backend cannot train.
            DataError: There are no inputs, or labels that are no classes of the model.
        """
        if not self.SUPPORTS_FIT:
            raise UsageError(
                f"backend '{self.NAME}' has no training loop; open the model in the framework it was trained with"
            )
        self._check_arguments(inputs)
        check_rows(count(inputs), labels, "labels")
        if not len(labels):
            raise DataError("a model is trained on inputs, got none")
        classes = self._forward(read(take(inputs, slice(0, 1)))).shape[1]
        if classes == 1:
            raise UsageError("training takes class scores, and this model gives one number for each input")
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
            raise DataError(
                f"labels to train on are whole numbers between 0 and {classes - 1}, got {labels.dtype} from "
                f"{labels.min()} to {labels.max()}"
            )
        return self._fit(inputs, labels.astype(np.int64), plan, on_step or (lambda step: None))

    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        """Implementation of `fit`; labels are validated. Required when `SUPPORTS_FIT` is true."""
        raise NotImplementedError(f"'{type(self).__name__}' sets SUPPORTS_FIT and does not define _fit")

    @final
    def trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """Return activations and gradients of several layers from one pass.

        Weights set on the model afterwards do not reach the trace. Lazy inputs are read into memory, all at once.
        """
        self._check_arguments(inputs, layers)
        return self._trace(self._read_all(inputs), layers)

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """Implementation of `trace`; the layers exist. Optional, for speed."""
        return PlainTrace(self, inputs, layers)

    @final
    def observe(
        self, inputs: Inputs, layers: Sequence[str], observer: ActivationAccumulator, seeds: Seeds | None = None
    ) -> None:
        """Show an accumulator what flows through several layers; nothing is stored.

        Called twice per localisation, with the negatives and with the positives.

        Args:
            inputs: `n` inputs; every one is shown once.
            layers: The layers.
            observer: Is shown the activations of each batch, and the gradients for each seed. Of several shards, each
                is shown to an accumulator that it `split` off, which is then merged.
            seeds: From the rows of a batch to the seeds of its vector-Jacobian products; no gradients when None.
        """
        self._check_arguments(inputs, layers)
        several = self._has_several_shards(inputs)
        done, state = self._begin_pass("observe", inputs, layers)
        done = done if observer.restore(state) else 0
        for number, (rows, piece) in enumerate(self._iterate_shards(inputs, done), done + 1):
            own = observer.split() if several else None
            self._observe(piece, layers, own or observer, None if seeds is None else seeds_from(seeds, rows.start))
            if own is not None:
                observer.merge(own)
            self._keep_pass(number, observer.state)

    def _observe(
        self, inputs: Inputs, layers: Sequence[str], observer: ActivationAccumulator, seeds: Seeds | None
    ) -> None:
        """Implementation of `observe`; the layers exist. Optional, for speed and memory."""
        observe_traces(lambda rows: self._trace(take(inputs, rows), layers), count(inputs), observer, seeds)

    @final
    def cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        """Hold the model open at the earliest use of these layers.

        Called once per search; the inputs are kept. Lazy inputs of several shards are cut shard by shard, when needed,
        and so are those whose activations take more than `memory`. Weights set on the model afterwards do not reach the
        cut.
        """
        self._check_arguments(inputs, layers)
        if not layers:
            raise UsageError("a model is cut at its layers, got none")
        if self._has_several_shards(inputs):
            open_shards = self._count_open_shards(inputs, layers)
            if is_lazy(inputs) or open_shards * SHARD < count(inputs):
                return LazyCut(self, inputs, layers, open_shards)
        found = self._cut(self._read_all(inputs), layers)
        found.n = count(inputs)
        return found

    @final
    def _count_open_shards(self, inputs: Inputs, layers: Sequence[str]) -> int:
        """Return how many shards of what enters the earliest of some layers fit into `memory`, at least one."""
        first = next(info.name for info in self.layers if info.name in layers)
        uses = self.activations(read(take(inputs, np.arange(1))), first)
        size = max((sum(array.nbytes for array in use.entering.values()) for use in uses), default=0)
        return max(1, self.memory // max(1, SHARD * size))

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        """Implementation of `cut`; there is a layer, and all exist. Optional, for speed."""
        return PlainCut(self, inputs, layers)

    def halve_batches(self) -> int | None:
        """Halve the batch size and return it; None if it is already minimal.

        Called when memory does not suffice. Cuts and traces that were made before are not touched.
        """
        return None

    @final
    def predict(self, inputs: Inputs) -> Array:
        """Return the predicted class of every input, `(n,)`; the first of several equal scores wins."""
        return decide(self.forward(inputs))
