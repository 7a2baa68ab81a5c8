from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.decisions.losses import cross_entropy
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise import Bidirectional, GradientLoss, Localiser, RandomChoice
from arachne.localise.base import sample_positives
from arachne.localise.bidirectional import scored_classes
from arachne.localise.impact import ScoredClasses
from arachne.model.backend import ModelBackend
from arachne.model.values import Address, Array
from arachne.plugins.table import LOCALISERS
from arachne.testing import Network, ReferenceBackend, convnet, mlp, random_inputs, residual, shared_layer


def part_of(backend: ModelBackend, network: Network, n: int = 60, seed: int = 1) -> Part:
    """Random inputs, labelled by the model itself except for some that show the fault 0 read as 1."""
    inputs = random_inputs(network, n, seed=seed)
    scores = backend.forward(inputs)
    predictions = scores.argmax(axis=1)
    labels = predictions.copy()
    ones = np.flatnonzero(predictions == 1)
    assert len(ones) >= 4
    labels[ones[: len(ones) // 2]] = 0
    return Part(LabelledData(inputs, labels), np.arange(n), scores, (Target("0:1", label=0, prediction=1),))


@pytest.fixture
def small() -> tuple[ReferenceBackend, Part]:
    network = mlp([4, 6, 3], seed=3)
    backend = ReferenceBackend(network)
    return backend, part_of(backend, network)


def slow_scores(backend: ModelBackend, part: Part, positives: Array) -> dict[Address, tuple[float, float]]:
    """Both scores of dense layers by the paper's formula, one weight at a time."""
    found: dict[Address, tuple[float, float]] = {}
    sides = []
    for rows in (part.negatives, positives):
        inputs = np.asarray(part.data.inputs)[rows]
        gradients = backend.weight_gradients(inputs, cross_entropy(part.data.labels[rows]))
        impacts = {}
        for info in backend.layers:
            weight = backend.get_weights(info.name)["weight"]
            entering = np.abs(backend.activations(inputs, info.name)[0].entering["weight"].mean(axis=0))
            slopes = np.zeros(len(weight))
            for label in range(3):
                seed = np.zeros((len(rows), 3), np.float32)
                seed[:, label] = 1
                slopes += np.abs(backend.output_gradients(inputs, info.name, seed)[0]).mean(axis=0)
            for j, i in np.ndindex(*weight.shape):
                share = abs(entering[i] * weight[j, i]) / np.abs(entering * weight[j]).sum()
                impacts[Address(info.name, "weight", (j, i))] = share * slopes[j]
        sides.append((gradients, impacts))
    for address, impact in sides[0][1].items():
        losses = [abs(float(side[0][address.layer, "weight"][address.index])) for side in sides]
        found[address] = losses[0] / (1 + losses[1]), impact / (1 + sides[1][1][address])
    return found


def test_both_scores_follow_the_paper_weight_by_weight(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    localisation = Bidirectional().localise(backend, part, rng=np.random.default_rng(0))
    positives = sample_positives(part, rng=np.random.default_rng(0))
    expected = slow_scores(backend, part, positives)
    assert localisation.n_candidates == len(expected) == 4 * 6 + 6 * 3
    for address, scores in expected.items():
        np.testing.assert_allclose(localisation.score(address), scores, rtol=1e-4, atol=1e-7)


def test_suspects_are_the_weights_no_other_weight_beats_in_both_scores(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    localisation = Bidirectional().localise(backend, part, rng=np.random.default_rng(0))
    suspects = {localisation.score(address) for address in localisation.suspects.addresses}
    for row in range(localisation.n_candidates):
        loss, impact = localisation.score(localisation.address_of(row))
        assert any(a >= loss and b >= impact for a, b in suspects)
    assert not any(a > c and b > d for a, b in suspects for c, d in suspects)


def test_the_front_leads_the_ranking_and_a_wider_choice_follows_it(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    narrow = Bidirectional().localise(backend, part, rng=np.random.default_rng(0))
    wide = Bidirectional(min_weights=15).localise(backend, part, rng=np.random.default_rng(0))
    ranked = [narrow.address_of(int(row)) for row in narrow.ranking]
    assert set(narrow.suspects.addresses) == set(ranked[: narrow.front])
    assert set(wide.suspects.addresses) == set(ranked[:15])
    assert (wide.front, wide.beyond_front) == (narrow.front, 15 - narrow.front)
    assert len(set(ranked)) == narrow.n_candidates


def test_gradient_loss_takes_the_largest_gradient_losses(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    localisation = GradientLoss(count=5).localise(backend, part, rng=np.random.default_rng(0))
    chosen = {localisation.score(address)[0] for address in localisation.suspects.addresses}
    assert chosen == set(np.sort(localisation.points[:, 0].astype(float))[-5:].tolist())


@pytest.mark.parametrize("kind", [GradientLoss, RandomChoice])
def test_baselines_take_as_many_weights_as_the_front_has(
    small: tuple[ReferenceBackend, Part], kind: type[Localiser]
) -> None:
    backend, part = small
    front = Bidirectional().localise(backend, part, rng=np.random.default_rng(0)).front
    assert len(kind().localise(backend, part, rng=np.random.default_rng(0)).suspects) == front


def test_random_choice_draws_distinct_weights_of_all_layers(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    localisation = RandomChoice(count=42).localise(backend, part, rng=np.random.default_rng(0))
    assert len(set(localisation.suspects.addresses)) == 4 * 6 + 6 * 3


@pytest.mark.parametrize("network", [convnet(seed=2), residual(seed=2), shared_layer(seed=2)])
def test_every_kind_of_network_is_localised_and_left_as_it_was(network: Network) -> None:
    backend = ReferenceBackend(network)
    before = {info.name: backend.get_weights(info.name) for info in backend.layers}
    localisation = Bidirectional().localise(backend, part_of(backend, network, 200), rng=np.random.default_rng(0))
    assert localisation.front >= 1
    assert all(np.isfinite(part.forward_impact).all() for part in localisation.scores)
    assert sum(float(part.forward_impact.sum()) for part in localisation.scores) > 0
    for name, weights in before.items():
        for parameter, values in weights.items():
            np.testing.assert_array_equal(backend.get_weights(name)[parameter], values)


def test_include_and_exclude_choose_layers_and_biases_come_on_request(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    rng = np.random.default_rng(0)
    layers = {s.layer for s in Bidirectional(include=["fc2"]).localise(backend, part, rng=rng).scores}
    assert layers == {"fc2"}
    layers = {s.layer for s in Bidirectional(exclude=["*2"]).localise(backend, part, rng=rng).scores}
    assert layers == {"fc1"}
    parameters = {s.parameter for s in Bidirectional(biases=True).localise(backend, part, rng=rng).scores}
    assert parameters == {"weight", "bias"}


def test_an_unknown_layer_is_named_with_its_likely_meaning(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    with pytest.raises(UsageError, match="no layer 'fcc1'; did you mean 'fc1'"):
        Bidirectional(include=["fcc1"]).localise(backend, part, rng=np.random.default_rng(0))


def test_a_part_without_negatives_is_refused(small: tuple[ReferenceBackend, Part]) -> None:
    backend, part = small
    clean = replace(part, data=LabelledData(part.data.inputs, part.predictions))
    with pytest.raises(NothingToRepairError, match="no negative inputs"):
        Bidirectional().localise(backend, clean, rng=np.random.default_rng(0))


def test_positives_are_sampled_down_to_the_number_of_negatives(small: tuple[ReferenceBackend, Part]) -> None:
    _, part = small
    rows = sample_positives(part, rng=np.random.default_rng(0))
    assert len(rows) == len(set(rows.tolist())) == len(part.negatives)
    assert set(rows.tolist()) <= set(part.positives.tolist())


def many_classes() -> Part:
    """A hundred classes, of which the fault concerns two."""
    predictions = np.concatenate([np.full(30, 7), np.full(20, 90), [3]])
    labels = np.concatenate([np.full(30, 7), np.full(20, 90), [66]])
    data = LabelledData(np.zeros((51, 2), np.float32), labels)
    return Part(data, np.arange(51), np.eye(100)[predictions], (Target("66:3", label=66, prediction=3),))


def test_with_very_many_classes_those_of_the_fault_are_always_looked_at_and_the_others_in_turn() -> None:
    classes = scored_classes(many_classes())
    assert classes.always == (3, 66)
    assert sorted([*classes.always, *classes.others]) == list(range(100))
    assert classes.passes == 12


def test_as_in_the_paper_every_class_is_looked_at_however_many_there_are() -> None:
    classes = Bidirectional.faithful().classes(many_classes())
    assert classes.always == tuple(range(100))
    assert classes.others == ()


def test_seeds_of_classes_in_turn_add_up_to_all_classes() -> None:
    classes = ScoredClasses(10, (2, 5), (0, 1, 3, 4, 6, 7, 8, 9), turns=3)
    seeds = list(classes.seeds(slice(0, 8)))
    assert len(seeds) == classes.passes == 5
    np.testing.assert_allclose(np.sum(seeds, axis=(0, 1)) / 8, np.ones(10))
    later = list(classes.seeds(slice(3, 8)))
    for whole, some in zip(seeds, later, strict=True):
        np.testing.assert_array_equal(whole[3:], some)


def test_localisers_are_known_by_the_papers_names() -> None:
    assert [LOCALISERS.get(name) for name in ("bl", "GL", "rs")] == [Bidirectional, GradientLoss, RandomChoice]
    with pytest.raises(UsageError, match="no localiser named 'pareto'"):
        LOCALISERS.get("pareto")


def test_both_orders_of_gradient_loss_and_forward_impact_give_the_same_scores(
    small: tuple[ReferenceBackend, Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, part = small
    usual = Bidirectional().scores(backend, part, rng=np.random.default_rng(0))
    monkeypatch.setattr("arachne.localise.bidirectional.MAX_AVERAGES_BYTES", 0)
    halved = Bidirectional().scores(backend, part, rng=np.random.default_rng(0))
    for ours, theirs in zip(halved, usual, strict=True):
        np.testing.assert_array_equal(ours.gradient_loss, theirs.gradient_loss)
        np.testing.assert_array_equal(ours.forward_impact, theirs.forward_impact)
