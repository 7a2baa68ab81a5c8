"""TaskConformance: the checks that every task must pass, for pytest to run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.decisions.decisions import Array
from arachne.errors import UsageError
from arachne.tasks import Task

STEP = 1e-5
"""The step of finite differences."""

Example = tuple[Task, Array, Array]
"""A task, raw outputs `(n, ...)` and the labels `(n, ...)` of as many inputs; some do not count, where that can be."""


class TaskConformance:
    """Checks of a task: subclass it and define `examples`; pytest runs the rest."""

    def examples(self) -> Sequence[Example]:
        """Return the task with raw outputs, float64, and labels that fit them."""
        raise NotImplementedError("define examples: a task, outputs and labels")

    def test_gradients_go_back_as_finite_differences_say(self) -> None:
        """Carry random gradients back, and compare them with the slope at every output."""
        for task, outputs, labels in self.examples():
            seed = np.random.default_rng(0).normal(size=task.read(outputs, labels).scores.shape)
            found = task.pull_back(seed, outputs, labels)
            assert found.shape == outputs.shape
            for index in np.ndindex(outputs.shape):
                step = np.zeros_like(outputs)
                step[index] = STEP
                up, down = (float((task.read(outputs + s * step, labels).scores * seed).sum()) for s in (1, -1))
                np.testing.assert_allclose(found[index], (up - down) / (2 * STEP), atol=1e-6)

    def test_decisions_come_input_after_input_and_depend_on_labels_alone(self) -> None:
        """Read inputs one by one and together, and with other outputs: the decisions are the same ones."""
        for task, outputs, labels in self.examples():
            whole = task.read(outputs, labels)
            assert (np.diff(whole.inputs) >= 0).all()
            alone = [task.read(outputs[i : i + 1], labels[i : i + 1]) for i in range(len(outputs))]
            np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), whole.scores)
            np.testing.assert_array_equal(np.concatenate([one.labels for one in alone]), whole.labels)
            np.testing.assert_array_equal(task.read(outputs[::-1] * 7, labels).inputs, whole.inputs)
            assert not len(task.read(outputs[:0], labels[:0]))

    def test_classes_are_as_many_as_are_named(self) -> None:
        """Compare the columns of the scores with the classes that the task names."""
        for task, outputs, labels in self.examples():
            task.check(outputs, labels)
            found = task.read(outputs, labels)
            names = task.name_classes(None, task.n_names(outputs))
            first = np.zeros(1, np.int64) if found.first is None else found.first
            assert 0 <= found.labels.min(initial=0) <= found.labels.max(initial=0) < task.n_classes(outputs)
            assert found.scores.shape[1] == task.n_classes(outputs)
            assert len(set(names)) == len(names) >= first.max(initial=0) + found.scores.shape[1]
            absent = task.absent_classes(len(names))
            assert all(0 <= one < len(names) for pair in absent.items() for one in pair)

    def test_a_decision_that_is_no_number_is_never_right(self) -> None:
        """Read outputs that are NaN."""
        for task, outputs, labels in self.examples():
            broken = task.read(np.full_like(outputs, np.nan), labels)
            assert not task.correct(broken.scores, broken.labels).any()

    def test_own_decisions_are_right(self) -> None:
        """Label inputs by the model's own decisions, where the task can: all of them are right."""
        for task, outputs, _ in self.examples():
            try:
                labels = task.label_as_decided(outputs)
            except UsageError:
                continue
            found = task.read(outputs, labels)
            assert task.correct(found.scores, found.labels).all()

    def test_options_make_the_task_again(self) -> None:
        """Write the options down as provenance does, and make the task from them."""
        for task, _, _ in self.examples():
            assert type(task)(**task.to_json()).to_json() == task.to_json()
