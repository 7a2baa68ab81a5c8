"""Running the model and leaving no trace: inputs to tensors, outputs to class scores, the user's module as it was."""

from __future__ import annotations

import contextlib
import copy
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from arachne.adapting.outputs import JOINED_BY, are_probabilities, unknown_output
from arachne.adapting.running import MAX_BATCH_ROWS, BatchRunner, translate_error
from arachne.adapting.side_by_side import allowed_threads, run_side_by_side
from arachne.errors import ArachneError, DataError, ModelError
from arachne.model.values import EVEN, Array, Inputs, count, take
from arachne_torch.as_found import as_found, plain_attention, random_state
from arachne_torch.batch_axis import BatchAxes, find_batch_axes
from arachne_torch.bounds import Bounded
from arachne_torch.derived import DerivedWeight, find_derived
from arachne_torch.layers import Layer
from arachne_torch.output_head import check_output_head, find_output_head, finish, join_outputs
from arachne_torch.program import Program
from arachne_torch.tensor_ids import TensorIds
from arachne_torch.threads import has_twins, in_a_thread, make_twin
from arachne_torch.unsupported import unreached_parameters
from arachne_torch.watch import Recorder, Watch

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_BATCH_BYTES = 64 * 2**20
"""The intermediate results of one batch may take this many bytes, or as many as the weights if that is more."""

MAX_PASSING_BYTES = 16 * 2**20
"""Without gradients a batch may take this many: larger results come from the system page by page and go back to it,
which takes about as long as to compute them."""

FIRST_LOOK_ROWS = 4
"""How many inputs the first run of a model takes."""


class Runner(BatchRunner):
    """One model, ready to be run on batches.

    Args:
        module: The model.
        output: Which of several outputs holds the class scores.
        program: What is known of the model if it is an exported program.

    Attributes:
        parameters: The floating-point parameters by name, a tied one under its first; a derived weight replaces the
            parameters it is computed from.
        derived: The weights that are computed from other parameters.
        output_head: `logits`, `softmax`, `sigmoid`, `sigmoids` (several) or `probabilities`; None before the first run.
        passing_rows: How many inputs go into one batch where nothing is kept for gradients.
        shape: The shape of one input's outputs, `(classes,)` for class scores.
        looked: Whether inputs have been seen.
        in_place: Whether some call of a pass changes a tensor it was given.
        draws: Whether a pass has drawn random numbers.
        batch_axes: The batch axes of the tensors of every use of every layer.
        turned: Whether the weight of each layer is stored transposed.
        unreached: Parameters that belong to no layer, with the reason.
    """

    def __init__(self, module: nn.Module, output: str | None = None, program: Program | None = None) -> None:
        self.module = module
        self.fixed = None if program is None else program.batch
        self._from_file = program is not None
        self._positional = () if program is None else program.positional
        self.derived = find_derived(module)
        self.parameters = _parameters(module, self.derived)
        self._derived_values = {name: self.parameters[name] for name in self.derived}
        if not self.parameters:
            raise ModelError("the model has no floating-point weights, so there is nothing to repair")
        first = next(iter(self.parameters.values()))
        self.device, self.dtype = first.device, first.dtype
        self.rows = self.passing_rows = self.fixed or MAX_BATCH_ROWS
        self.output_head: str | None = None
        self.shape: tuple[int, ...] = ()
        self.looked = False
        self.in_place = True
        self.draws = False
        self.batch_axes: dict[str, list[BatchAxes]] = {}
        self.turned: dict[str, bool] = {}
        self.unreached: dict[str, str] = {}
        self._output = output

    def tensor_ids(self, swapped: Mapping[str, Tensor] | None = None) -> TensorIds:
        """Return the model's tensors, or their replacements, by identity."""
        return TensorIds({**self.parameters, **(swapped or {})})

    def snapshot(self) -> dict[str, Tensor]:
        """Copy every parameter, by name."""
        return {name: tensor.detach().clone() for name, tensor in self.parameters.items()}

    def look(self, inputs: Inputs) -> dict[str, Layer]:
        """Run the model on a few inputs to find its layers in order of execution, its output head and its memory."""
        rows = min(count(inputs), self.fixed or FIRST_LOOK_ROWS, FIRST_LOOK_ROWS)
        recorder, output = self._record(inputs, _evenly_spaced_rows(inputs, rows))
        head, _ = find_output_head(recorder.calls, output)
        head = check_output_head(output, head, self.fixed or max(rows, 1))
        head = head or ("probabilities" if are_probabilities(to_array(output)) else "logits")
        self.looked = rows > 0
        self.in_place = any(call.mutates for call in recorder.calls)
        self.output_head, self.shape = head, (2,) if head == "sigmoid" else tuple(output.shape[1:])
        weights = sum(tensor.nbytes for tensor in self.parameters.values())
        self.fit_rows(recorder.size(), max(MAX_PASSING_BYTES, weights) * max(rows, 1))
        self.passing_rows = self.rows
        self.fit_rows(recorder.size(), max(MAX_BATCH_BYTES, weights) * max(rows, 1))
        layers = recorder.layers(self.parameters)
        mixed: set[str] = set()
        if rows:
            # A batch of another size shows what depends on the batch, unless there is no other size.
            fewer = self.fixed or (rows - 1 if rows > 1 else 2)
            other = (
                recorder
                if self.fixed
                else self._record(inputs, _evenly_spaced_rows(inputs, rows)[np.arange(fewer) % rows])[0]
            )
            self.batch_axes, mixed = find_batch_axes(recorder.calls, other.calls, (self.fixed or rows, fewer))
        self.turned = {
            name: next(iter(layer.stored.values())).transposed for name, layer in layers.items() if layer.stored
        }
        self.unreached = unreached_parameters(self.module, layers, recorder.calls, mixed, self.derived)
        return {name: layer for name, layer in layers.items() if name not in mixed}

    def _record(self, inputs: Inputs, rows: Array) -> tuple[Recorder, Tensor]:
        recorder, given = Recorder(self.tensor_ids()), self.tensors(take(inputs, rows))
        with torch.no_grad(), self._limit_memory(given), recorder:
            output = self.pick_output(self.call(given))
        return recorder, output

    def _limit_memory(self, given: Tensor | dict[str, Tensor]) -> contextlib.AbstractContextManager[object]:
        """Limit the results of a program, whose sizes come from its file; a module is the user's own code."""
        tensors = list(given.values()) if isinstance(given, dict) else [given]
        return Bounded([*tensors, *self.parameters.values()]) if self._from_file else contextlib.nullcontext()

    def scores(self, inputs: Inputs, watch: Watch | None = None) -> Tensor:
        """Raw outputs `(n, ...)` of one batch, as a tensor; `look` has been called before."""
        return self.score_tensors(self.tensors(inputs), count(inputs), watch)

    def score_tensors(self, tensors: Tensor | dict[str, Tensor], n: int, watch: Watch | None = None) -> Tensor:
        """Class scores of the first `n` rows of a batch that is already made of tensors."""
        hidden = self.output_head in ("softmax", "sigmoid", "sigmoids")
        watch = Watch() if hidden and watch is None else watch
        with watch or contextlib.nullcontext():
            output = self.pick_output(self.call(tensors))
        scores = self.finish(watch.behind(output) if watch is not None and hidden else output)
        if scores.shape != (self.padded_size(n), *self.shape):
            shape = _shapes(tensors)
            raise DataError(f"the model gives no class scores for inputs of shape {shape}, but {_shape(output)}")
        return scores[:n]

    def finish(self, output: Tensor) -> Tensor:
        """Turn the model's output, or the input of its last call, into class scores."""
        return finish(output, self.output_head, self.shape)

    def batches(self, inputs: Inputs, *, gradients: bool = False) -> Iterator[Inputs]:
        """Yield inputs in batches, smaller where results are kept for gradients; one empty batch for no inputs."""
        if self.fixed:
            return self.split_batches(inputs)
        most = self.rows // 4 if gradients else min(self.rows, max(EVEN, self.passing_rows))
        return self.split_batches(inputs, max(1, most))

    def run_all(self, work: Callable[[Runner, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Run some work with the model for each item and yield the results in order; slow work runs in several threads.

        A thread has a twin of the module, with the same tensors. A model that draws random numbers, computes its
        weights or cannot be copied runs in this thread alone.
        """
        with plain_attention():
            yield from run_side_by_side(partial(work, self), items, partial(self._run_beside, work))

    def run_steps(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Give what some work with recorded calls gives for each item, as `run_all` does; it needs no module."""
        return run_side_by_side(work, items, lambda: None if self._runs_alone else in_a_thread(work))

    @property
    def _runs_alone(self) -> bool:
        return self.draws or self.device.type != "cpu"

    def _run_beside(self, work: Callable[[Runner, Item], Result]) -> Callable[[Item], Result] | None:
        if self._runs_alone or self.derived or not has_twins(self.module):
            return None
        spare: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        for _ in range(allowed_threads()):
            twin = copy.copy(self)
            twin.module = make_twin(self.module)
            spare.put(twin)

        def run(item: Item) -> Result:
            twin = spare.get()
            try:
                return work(twin, item)
            finally:
                spare.put(twin)

        return in_a_thread(run)

    def tensors(self, inputs: Inputs) -> Tensor | dict[str, Tensor]:
        """Arrays as tensors on the model's device; floats and bytes in its dtype."""
        if isinstance(inputs, Mapping):
            return {name: self._tensor(array) for name, array in inputs.items()}
        return self._tensor(inputs)

    def _tensor(self, array: Array) -> Tensor:
        array = self.pad(np.asarray(array))
        tensor = as_tensor(array)
        if array.dtype.kind == "f" or array.dtype == np.uint8:
            return tensor.to(self.device, self.dtype)
        return tensor.to(self.device, torch.int64 if array.dtype.kind in "iu" else tensor.dtype)

    def call(self, inputs: Tensor | dict[str, Tensor]) -> Any:
        """Call the model; an error inside it is reported as a fault of the inputs."""
        try:
            with as_found(self.module, self.device), self.override_derived():
                before, named = random_state(), dict(inputs) if isinstance(inputs, dict) else {}
                ordered = [named.pop(name) for name in self._positional if name in named]
                found = self.module(*ordered, **named) if isinstance(inputs, dict) else self.module(inputs)
                self.draws = self.draws or random_state() != before
                return found
        except ArachneError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            raise translate_error(error, f"the model does not take inputs of shape {_shapes(inputs)}") from error

    def pick_output(self, answer: Any) -> Tensor:
        """The output that holds the class scores."""
        if isinstance(answer, Mapping):
            named = {str(name): value for name, value in answer.items()}
        elif isinstance(answer, tuple) and hasattr(answer, "_asdict"):
            named = answer._asdict()
        elif isinstance(answer, (tuple, list)):
            named = {str(position): value for position, value in enumerate(answer)}
        elif isinstance(answer, Tensor):
            named = {"": answer}
        else:
            fields = getattr(answer, "__dict__", {})
            named = {name: value for name, value in fields.items() if isinstance(value, Tensor)} or {"": answer}
        if self._output is not None and JOINED_BY in self._output and self._output not in named:
            return join_outputs(named, self._output)
        if self._output is not None:
            if self._output not in named:
                raise unknown_output(self._output, named)
            chosen = named[self._output]
        elif len(named) == 1:
            chosen = next(iter(named.values()))
        elif "logits" in named:
            chosen = named["logits"]
        else:
            raise ModelError(
                f"the model has {len(named)} outputs, name one with --output or output=: {', '.join(named)}"
            )
        if not isinstance(chosen, Tensor):
            raise ModelError(f"the model's output is a '{type(chosen).__name__}', expected a tensor of class scores")
        return chosen

    @contextlib.contextmanager
    def swap_parameters(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Replace the model's parameters for a while; the parameters themselves do not change."""
        names = {id(tensor): name for name, tensor in self.parameters.items()}
        kept = [
            (part, key, parameter)
            for part in self.module.modules()
            for key, parameter in part._parameters.items()
            if names.get(id(parameter)) in tensors
        ]
        try:
            for part, key, parameter in kept:
                part._parameters[key] = tensors[names[id(parameter)]]  # type: ignore[assignment]  # no Parameter needed
            self._derived_values |= {name: tensors[name] for name in self.derived if name in tensors}
            _refresh(self.module)
            yield
        finally:
            for part, key, parameter in kept:
                part._parameters[key] = parameter
            self._derived_values = {name: self.parameters[name] for name in self.derived}
            _refresh(self.module)

    @contextlib.contextmanager
    def override_derived(self) -> Iterator[None]:
        """Replace the weights that the module computes by our tensors for a while."""
        with contextlib.ExitStack() as stack:
            for name, derived in self.derived.items():
                stack.enter_context(derived.override(self._derived_values[name]))
            listing = {found.holder for found in self.derived.values() if isinstance(found.holder, nn.RNNBase)}
            kept = [(part, part._flat_weights) for part in listing]
            try:
                for part in listing:
                    part._flat_weights = [getattr(part, name, None) for name in part._flat_weights_names]
                yield
            finally:
                for part, flat in kept:
                    part._flat_weights = flat

    def put(self, name: str, change: Callable[[Tensor], object]) -> None:
        """Change one of the model's tensors in place; for a derived weight, change its originals."""
        tensor = self.parameters[name]
        with torch.no_grad():
            change(tensor)
            if name in self.derived:
                self.derived[name].put(tensor)
                tensor.copy_(self.derived[name].value())


def _parameters(module: nn.Module, derived: Mapping[str, DerivedWeight]) -> dict[str, Tensor]:
    """List the tensors that can be set: parameters, and derived weights in place of their originals."""
    made = {original: name for name, found in derived.items() for original in found.originals}
    tensors: dict[str, Tensor] = {}
    for name, tensor in module.named_parameters():
        if name in made:
            tensors.setdefault(made[name], derived[made[name]].value())
        elif tensor.is_floating_point():
            tensors[name] = tensor
    return tensors


def _refresh(module: nn.Module) -> None:
    """Recurrent modules keep a list of their parameters beside them."""
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            listed = zip(part._flat_weights_names, part._flat_weights, strict=True)
            part._flat_weights = [part._parameters.get(name, tensor) for name, tensor in listed]


def _evenly_spaced_rows(inputs: Inputs, n: int) -> Array:
    """Pick rows from all over the data, so that differences between inputs (lengths, masks) show."""
    return np.linspace(0, max(count(inputs) - 1, 0), n).astype(np.int64)


def as_tensor(array: Array) -> Tensor:
    """An array as a tensor on the CPU, sharing its memory where torch can."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def to_array(tensor: Tensor) -> Array:
    """A fresh array; bfloat16 and half precision become float32."""
    return np.array(as_view(tensor), order="C")


def as_view(tensor: Tensor) -> Array:
    """Return a tensor as an array that shares its memory if possible."""
    tensor = tensor.detach()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy())


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _shapes(inputs: Tensor | dict[str, Tensor]) -> str:
    given = inputs if isinstance(inputs, dict) else {"": inputs}
    return ", ".join(f"{name} {_shape(tensor)}".strip() for name, tensor in given.items())
