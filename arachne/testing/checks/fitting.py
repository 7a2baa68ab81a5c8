"""Training: against plain gradient steps through `weight_gradients`, for backends that say they can."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.adapting.plain_fit import plain_fit
from arachne.errors import ArachneError, DataError, UsageError
from arachne.model.backend import ModelBackend
from arachne.model.fitting import Plan, Step
from arachne.testing.checks.suite import MakeBackend, Specimen, Suite, assert_close, assert_same_weights

PLAN = Plan(batch=3, rate=0.05, optimiser="sgd", seed=5)
"""Seven inputs in batches of three: the last batch has one input."""


class FitChecks(Suite):
    """`fit`."""

    def needs_fit(self, backend: ModelBackend) -> None:
        """Skip where the backend does not say that it can train."""
        if not backend.SUPPORTS_FIT:
            pytest.skip(f"backend '{backend.NAME}' declares SUPPORTS_FIT = False")

    def test_a_backend_that_cannot_train_says_so(self, make_backend: MakeBackend) -> None:
        """Without `SUPPORTS_FIT`, `fit` is refused in one sentence."""
        specimen = self.build(make_backend, "mlp")
        if specimen.backend.SUPPORTS_FIT:
            pytest.skip(f"backend '{specimen.backend.NAME}' can train")
        with pytest.raises(UsageError, match="no training loop"):
            specimen.backend.fit(specimen.inputs, specimen.labels, PLAN)

    def test_training_is_gradient_steps_on_every_parameter(self, specimen: Specimen) -> None:
        """Training goes through the inputs in the plan's order, and moves every parameter by the mean loss's slope."""
        self.needs_fit(specimen.backend)
        if specimen.classes == 1:
            with pytest.raises(UsageError, match="this model gives one number for each input"):
                specimen.backend.fit(specimen.inputs, specimen.labels, PLAN)
            return
        found = specimen.backend.fit(specimen.inputs, specimen.labels, PLAN)
        expected = plain_fit(specimen.backend, specimen.inputs, specimen.labels, PLAN)
        assert list(found) == specimen.backend.resolve_parameters(None)
        for key, values in expected.items():
            assert_close(found[key], values, str(key), rtol=1e-3, atol=1e-4)

    def test_both_optimisers_lower_the_loss(self, make_backend: MakeBackend) -> None:
        """Each optimiser of a plan trains, and every step tells its batch's loss before it."""
        specimen = self.build(make_backend, "mlp", n=24)
        self.needs_fit(specimen.backend)
        for plan in (Plan(epochs=20, batch=24, rate=0.05), Plan(epochs=20, batch=24, rate=0.1, optimiser="sgd")):
            steps: list[Step] = []
            specimen.backend.fit(specimen.inputs, specimen.labels, plan, on_step=steps.append)
            assert [step.number for step in steps] == list(range(1, 21))
            assert {step.steps for step in steps} == {20}
            assert steps[-1].loss < 0.9 * steps[0].loss

    @pytest.mark.parametrize("name", ["batch_norm", "convnet"])
    def test_training_twice_gives_the_same_and_leaves_the_model(self, make_backend: MakeBackend, name: str) -> None:
        """Training twice by one plan gives equal weights, bit for bit; the model keeps its own weights and scores."""
        specimen = self.build(make_backend, name)
        self.needs_fit(specimen.backend)
        before, scores = specimen.all_weights(), specimen.backend.forward(specimen.inputs)
        plan = Plan(epochs=1, batch=4, rate=0.01, seed=1)
        first = specimen.backend.fit(specimen.inputs, specimen.labels, plan)
        assert_same_weights(specimen.backend.fit(specimen.inputs, specimen.labels, plan), first)
        assert_same_weights(specimen.all_weights(), before)
        np.testing.assert_array_equal(specimen.backend.forward(specimen.inputs), scores)

    def test_training_can_be_ended(self, make_backend: MakeBackend) -> None:
        """A caller that is told of the steps can end the training, and however it ends, the model keeps its weights."""
        specimen = self.build(make_backend, "mlp")
        self.needs_fit(specimen.backend)
        before = specimen.all_weights()
        steps: list[Step] = []

        def enough(step: Step) -> bool:
            steps.append(step)
            return len(steps) == 2

        ended = specimen.backend.fit(specimen.inputs, specimen.labels, PLAN, on_step=enough)
        assert len(steps) == 2
        assert any(np.any(ended[key] != values) for key, values in before.items())

        def fail(step: Step) -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            specimen.backend.fit(specimen.inputs, specimen.labels, PLAN, on_step=fail)
        assert_same_weights(specimen.all_weights(), before)

    def test_labels_to_train_on_are_checked(self, make_backend: MakeBackend) -> None:
        """Labels that are not one per input, no classes of the model or no whole numbers are refused."""
        specimen = self.build(make_backend, "mlp")
        self.needs_fit(specimen.backend)
        for wrong in (specimen.labels * 0 + specimen.classes, specimen.labels - 9, specimen.labels.astype(np.float32)):
            with pytest.raises(DataError, match=f"between 0 and {specimen.classes - 1}"):
                specimen.backend.fit(specimen.inputs, wrong, PLAN)
        with pytest.raises(ArachneError):
            specimen.backend.fit(specimen.inputs, specimen.labels[:-1], PLAN)
