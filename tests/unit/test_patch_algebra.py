"""Patches stack, conflicts are named, and one can be taken out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arachne.errors import PatchError, UsageError
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.patch.algebra import conflicts
from arachne.patch.recorded import recorded_faults
from arachne.report.patch_text import as_text
from arachne.testing import ReferenceBackend, mlp

PLACES = [Address("fc1", "bias", (i,)) for i in range(3)] + [
    Address("fc2", "weight", (i, j)) for i in range(2) for j in range(3)
]


def fresh() -> ReferenceBackend:
    return ReferenceBackend(mlp([4, 8, 3]))


def snapshot(backend: ReferenceBackend) -> dict[str, bytes]:
    return {
        f"{info.name}.{parameter}": values.tobytes()
        for info in backend.layers
        for parameter, values in backend.get_weights(info.name).items()
    }


def after(*patches: Patch) -> dict[str, bytes]:
    backend = fresh()
    for patch in patches:
        Patch.from_json(patch.to_json()).apply(backend)
    return snapshot(backend)


def make_patch(places: Sequence[int], values: Sequence[float], *before: Patch) -> Patch:
    backend = fresh()
    for patch in before:
        patch.apply(backend)
    return Patch.between(backend, [PLACES[place] for place in places], values, provenance={"target": str(places)})


def test_patches_side_by_side_do_together_what_each_does() -> None:
    first, second = make_patch([0, 3], [0.5, 1.0]), make_patch([3, 4], [1.0, 2.0])
    both = first.compose(second)
    assert [(str(e.address), e.new) for e in both.entries] == [
        ("fc1.bias[0]", 0.5),
        ("fc2.weight[0, 0]", 1.0),
        ("fc2.weight[0, 1]", 2.0),
    ]
    assert after(both) == after(make_patch([0, 3, 4], [0.5, 1.0, 2.0]))
    assert after(second.compose(first)) == after(both)


def test_stack_remembers_what_it_is_made_of() -> None:
    first, second, third = make_patch([0], [0.5]), make_patch([3], [1.0]), make_patch([4], [2.0])
    stack = first.compose(second).compose(third)
    assert [part["digest"] for part in stack.provenance["stack"]] == [p.digest for p in (first, second, third)]
    assert stack.provenance["stack"][1]["provenance"] == {"target": "[3]"}
    assert as_text(stack).startswith("stacked  3 patches\n")
    left = stack.minus(second)
    assert [part["digest"] for part in left.provenance["stack"]] == [first.digest, third.digest]
    assert after(left) == after(first.compose(third))


def test_a_stack_was_made_for_the_faults_of_all_its_patches() -> None:
    rule: dict[str, Any] = {"target": ["cause:1"], "causes": {"cause:1": {"kind": "pixel", "at": 1}}}
    parts = [{"provenance": one} for one in ({"target": "*:7"}, {}, rule, rule)]
    assert recorded_faults({"stack": [*parts, {"without": "0"}]}) == (["*:7", "cause:1"], rule["causes"])
    assert recorded_faults({"target": ["6:0", "8:*"]}) == (["6:0", "8:*"], {})
    with pytest.raises(UsageError, match="patches of the stack mean different causes by 'cause:1'"):
        recorded_faults({"stack": [*parts, {"provenance": {**rule, "causes": {"cause:1": {"kind": "frame"}}}}]})
    with pytest.raises(UsageError, match="a target is a text such as '6:0', got 5"):
        recorded_faults({"target": 5})


def test_conflicts_are_named_with_both_values() -> None:
    first, second = make_patch([0, 3], [0.5, 1.0]), make_patch([3, 4], [0.7, 2.0])
    assert [(c.address, c.first, c.second) for c in conflicts(first.changes, second.changes)] == [(PLACES[3], 1.0, 0.7)]
    with pytest.raises(PatchError, match=r"they give different values to 1 weight: fc2.weight\[0, 0\] \(1.0 or 0.7\)"):
        first.compose(second)


def test_patch_made_on_the_result_of_another_runs_after_it() -> None:
    first = make_patch([0, 3], [0.5, 1.0])
    second = make_patch([3, 4], [0.7, 2.0], first)
    both = first.compose(second)
    assert after(both) == after(first, second)
    assert after(both.minus(second)) == after(first)
    with pytest.raises(PatchError, match="take out the later one first"):
        both.minus(first)


def test_weights_put_back_by_a_later_patch_vanish_from_the_stack() -> None:
    first = make_patch([0, 3], [0.5, 1.0])
    assert first.compose(first.inverse()).entries == ()
    assert first.compose(first.inverse()).base.tensors == ()


def test_inverse_takes_back_and_its_inverse_is_the_patch() -> None:
    first = make_patch([0, 3, 4], [0.5, 1.0, -3.0])
    assert after(first, first.inverse()) == after()
    assert first.inverse().inverse().entries == first.entries
    twice = first.inverse().inverse().base.tensors
    assert [(t.sha256, t.patched_sha256) for t in twice] == [(t.sha256, t.patched_sha256) for t in first.base.tensors]
    for tensor, original in zip(twice, first.base.tensors, strict=True):
        for mark, expected in zip(tensor.fingerprints, original.fingerprints, strict=True):
            assert mark.projections == pytest.approx(expected.projections, abs=1e-8)
            assert mark.norm == pytest.approx(expected.norm, abs=1e-8)


def test_inverse_carries_the_fingerprints_of_the_patched_rows() -> None:
    first = make_patch([3, 4], [0.5, -3.0])
    backend = fresh()
    first.apply(backend)
    expected = Patch.between(backend, PLACES[3:4], [9.0]).base.tensors[0].fingerprints[0]
    found = first.inverse().base.tensors[0].fingerprints[0]
    assert (found.norm, *found.projections) == pytest.approx((expected.norm, *expected.projections), abs=1e-7)


def test_inverse_of_patches_side_by_side_is_checked_by_what_it_leads_to() -> None:
    both = make_patch([3], [0.5]).compose(make_patch([4], [2.0]))
    assert [(t.sha256 is None, t.patched_sha256 is None) for t in both.inverse().base.tensors] == [(True, False)]
    assert after(both, both.inverse()) == after()
    assert both.compose(both.inverse()).entries == ()


def test_patches_for_different_models_do_not_stack() -> None:
    other = ReferenceBackend(mlp([4, 8, 3], seed=1))
    foreign = Patch.between(other, [PLACES[4]], [0.5])
    with pytest.raises(PatchError, match=r"different models: 'fc2.weight'"):
        make_patch([3], [0.5]).compose(foreign)
    with pytest.raises(PatchError, match="shape or dtype"):
        make_patch([3], [0.5]).compose(Patch.between(ReferenceBackend(mlp([4, 9, 3])), [PLACES[4]], [0.5]))


def test_patches_for_different_models_do_not_stack_where_they_share_no_tensor() -> None:
    first = make_patch([0], [0.5])
    later = make_patch([3], [1.0], first)
    assert first.base.patched_content == later.base.content
    assert len(first.compose(later)) == 2
    assert first.inverse().base.content == later.base.content
    foreign = Patch.between(ReferenceBackend(mlp([4, 8, 3], seed=1)), [PLACES[3]], [0.5])
    with pytest.raises(PatchError, match="different models: 'the second model' is neither 'the first model' nor what"):
        first.compose(Patch.from_json(foreign.to_json()))


def test_what_is_not_in_a_stack_cannot_be_taken_out() -> None:
    with pytest.raises(PatchError, match=r"changes 'fc1.bias', which the other does not"):
        make_patch([3], [0.5]).minus(make_patch([0], [1.0]))
    with pytest.raises(PatchError, match=r"sets fc2.weight\[0, 1\] to 1.0, which is not what the other leaves"):
        make_patch([3], [0.5]).minus(make_patch([4], [1.0]))


@settings(max_examples=40)
@given(data=st.data())
def test_taking_out_the_last_of_any_stack_leaves_the_rest(data: st.DataObject) -> None:
    patches: list[Patch] = []
    for _ in range(data.draw(st.integers(2, 4))):
        places = data.draw(st.lists(st.integers(0, len(PLACES) - 1), min_size=1, max_size=4, unique=True))
        values = data.draw(st.lists(st.integers(-4, 4).map(float), min_size=len(places), max_size=len(places)))
        patches.append(make_patch(places, values, *patches))
    stack = patches[0]
    for patch in patches[1:-1]:
        stack = stack.compose(patch)
    whole = stack.compose(patches[-1])
    assert after(whole) == after(*patches)
    kept = {entry.address for entry in whole.entries}
    assume(all(entry.address in kept for entry in patches[-1].entries))  # a weight put back has left the stack
    assert after(whole.minus(patches[-1])) == after(*patches[:-1])
