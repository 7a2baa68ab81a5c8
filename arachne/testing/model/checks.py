"""All checks of a model, by the operation of a backend they look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from arachne.testing.model import differentiating, holding, reading
from arachne.testing.model.subject import Subject

Check = Callable[[Subject], None]
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "layers": (reading.layers_are_listed,),
    "get_weights": (reading.weights_are_as_listed, reading.weights_are_copies),
    "set_weights": (reading.weights_come_back, reading.scores_follow_weights),
    "forward": (reading.scores_are_scores, reading.inputs_come_in_any_number, reading.wrong_inputs_are_refused),
    "activations": (reading.activations_fit_the_weights,),
    "weight_gradients": (
        differentiating.gradients_are_slopes,
        differentiating.chosen_gradients_are_those_among_all,
        differentiating.a_loss_sees_each_row_once,
    ),
    "output_gradients": (
        differentiating.output_gradients_are_slopes,
        differentiating.output_gradients_sum_to_those_of_a_bias,
    ),
    "input_gradients": (differentiating.input_gradients_are_slopes,),
    "fit": (differentiating.training_is_gradient_steps,),
    "trace": (differentiating.a_trace_is_the_single_operations,),
    "cut": (
        holding.a_cut_is_a_changed_model,
        holding.a_cut_keeps_its_weights,
        holding.gradients_behind_a_cut_are_the_models,
    ),
    "save": (holding.a_saved_model_is_the_model,),
    "weight_file": (holding.a_file_holds_the_weights,),
    "describe": (reading.a_model_tells_what_it_is,),
}
"""The checks by operation, in the order of the contract."""

STRONGER_IN_SUITE: frozenset[Check] = frozenset(
    {
        reading.scores_follow_weights,
        reading.wrong_inputs_are_refused,
        reading.activations_fit_the_weights,
        differentiating.gradients_are_slopes,
        differentiating.a_loss_sees_each_row_once,
        differentiating.output_gradients_are_slopes,
        differentiating.input_gradients_are_slopes,
        differentiating.training_is_gradient_steps,
        holding.gradients_behind_a_cut_are_the_models,
    }
)
"""Checks that the conformance suite asks in a stronger form: against a reference network, or under three losses."""
