"""Train the variables with Keras' own training step and optimisers, and restore their values afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from arachne.errors import UsageError
from arachne.model.backend import Weights
from arachne.model.fitting import BETAS, EPSILON, MOMENTUM, OnStep, Plan, Step
from arachne.model.values import Array, Inputs, count, read, take
from arachne_keras.autodiff import stored_array
from arachne_keras.parameter_slice import ParameterSlice
from arachne_keras.running import Runner


def fit_weights(
    runner: Runner,
    slices: Mapping[tuple[str, str], ParameterSlice],
    inputs: Inputs,
    labels: Array,
    plan: Plan,
    on_step: OnStep,
) -> Weights:
    """Train and return the weights in the canonical layout; every batch has the same number of rows."""
    variables = list({id(stored.variable): stored.variable for stored in slices.values()}.values())
    wanted = [variable for variable in variables if variable.trainable]
    if not wanted:
        raise UsageError("every weight of the model is frozen (trainable=False), so there is nothing to train")
    plan = replace(plan, batch=min(plan.batch, runner.fixed or count(inputs)))
    kept = [stored_array(variable) for variable in variables]
    trainer = _trainer(runner, wanted, plan)
    try:
        with runner.faults():
            for number, rows in enumerate(plan.batches(count(inputs)), start=1):
                loss = trainer.step(inputs, labels, rows, runner.fixed or plan.batch)
                if on_step(Step(number, plan.steps(count(inputs)), loss)):
                    break
        return {key: stored.get() for key, stored in slices.items()}
    finally:
        for variable, values in zip(variables, kept, strict=True):
            variable.assign(values)


class Trainer(keras.Model):  # type: ignore[misc]  # Keras has no types
    """A separate model that computes the scores, so that the user's model keeps the optimiser it was compiled with.

    It runs the wrapped model's steps as `Runner` does, in inference mode, and trains only the given variables.
    """

    def __init__(self, runner: Runner, variables: Sequence[Any], optimiser: str) -> None:
        super().__init__()
        self.runner = runner
        self.wanted = list(variables)
        made = (
            keras.optimizers.SGD(momentum=MOMENTUM)
            if optimiser == "sgd"
            else keras.optimizers.Adam(beta_1=BETAS[0], beta_2=BETAS[1], epsilon=EPSILON)
        )
        self.compile(made, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        made.build(self.wanted)
        self.at_first = [stored_array(variable) for variable in made.variables]

    def call(self, tensors: Any) -> Any:
        """Class scores."""
        given = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        values = dict(zip(self.runner.graph.inputs, given, strict=True))
        return self.runner.scores_from(values, self.runner.graph.steps)

    def restart(self, rate: float) -> None:
        """Reset the optimiser."""
        for variable, values in zip(self.optimizer.variables, self.at_first, strict=True):
            variable.assign(values)
        self.optimizer.learning_rate = rate

    def step(self, inputs: Inputs, labels: Array, rows: Array, size: int) -> float:
        """Train on some rows, padded to `size` with rows of weight 0; return the loss before the step."""
        filled = np.resize(rows, size)
        counted = np.where(np.arange(size) < len(rows), size / len(rows), 0.0).astype(np.float32)
        tensors = list(self.runner.graph_inputs(read(take(inputs, filled))).values())
        given = tensors[0] if len(tensors) == 1 else tensors
        logs = self.train_on_batch(given, labels[filled], sample_weight=counted, return_dict=True)
        return float(logs["loss"])


def _trainer(runner: Runner, variables: Sequence[Any], plan: Plan) -> Trainer:
    """Return the trainer of an optimiser, made once: Keras compiles its step at the first call."""
    known = runner.trainers.get(plan.optimiser)
    if known is None or [id(one) for one in known.wanted] != [id(one) for one in variables]:
        known = runner.trainers[plan.optimiser] = Trainer(runner, variables, plan.optimiser)
    known.restart(plan.rate)
    return known
