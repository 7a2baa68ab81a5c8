"""The layers to include or exclude bind every search, also one that chooses its own weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne import engine
from arachne.errors import NothingWithinBudgetError, UsageError
from arachne.localise.base import LayerFilter
from arachne.plugins.table import SEARCHERS
from arachne.results.result import RepairResult
from arachne.search import MarginFisher, Pool, Problem
from arachne.settings import Settings, make_localiser, make_searcher
from arachne.testing import ReferenceBackend
from tests.backends import golden

SHORT: dict[str, dict[str, Any]] = {
    "de": {"population": 12, "generations": 4},
    "front": {"population": 8, "generations": 2},
    "tune": {"steps": 32, "folds": 2},
    "margin@wide": {"wide_weights": 20},
    "low-rank": {"steps": 32, "folds": 2},
    "erase": {"strengths": 8, "folds": 2},
    "gates": {"steps": 32, "folds": 2},
}
NETWORKS = {"margin@conv": "cnn", "margin@embeddings": "words", "norms": "sick"}
"""Networks of searchers that need a kind of layer; the others repair a network of two dense layers."""

ALWAYS = {"apricot", "mode", "deepfault"}
"""Searchers that train the whole model, and are refused where a layer may not change."""

OF_TWO_LAYERS = {"gate", "gates"}
"""The searchers that change several layers or none."""

ONLY_IN = {
    "bias": "head",
    "last-layer": "head",
    "ridge": "head",
    "margin@hidden": "first",
    "margin@wide": "first",
    "margin@conv": "first",
    "margin@embeddings": "table",
}
"""Searchers that change one layer of these networks alone."""


def repair_with(name: str, **filters: Any) -> RepairResult:
    kind = NETWORKS.get(name, "mlp")
    searcher, data = make_searcher(name, **SHORT.get(name, {})), golden.data_for(kind)
    settings = Settings(searcher=searcher, localiser=make_localiser(searcher.LOCALISER, **filters))
    training = data.take(range(900)) if searcher.USES_TRAINING else None
    rest = data.take(range(900, len(data)))
    backend = ReferenceBackend(golden.network(kind))
    try:
        return engine.repair(backend, rest, "*:*" if kind == "sick" else "*:8", settings=settings, training=training)
    except NothingWithinBudgetError as nothing:
        found: RepairResult = nothing.result
        return found


@pytest.mark.parametrize("excluded", ["head", "other"])
@pytest.mark.parametrize("name", SEARCHERS.ours)
def test_no_search_changes_an_excluded_layer(name: str, excluded: str) -> None:
    other = {"words": "table", "sick": "norm1"}.get(NETWORKS.get(name, "mlp"), "first")
    layer = other if excluded == "other" else excluded
    if name in ALWAYS | OF_TWO_LAYERS or ONLY_IN.get(name) == layer:
        with pytest.raises(UsageError, match=r"leave out|left out"):
            repair_with(name, exclude=(layer,))
        return
    front = repair_with(name, exclude=(layer,)).search.front
    changed = {name for candidate in front for name in candidate.layers}
    assert changed == ({"norm1", "norm2"} if name == "norms" else {"head", other}) - {layer}


@pytest.mark.parametrize("name", ["auto", "bias", "erase", "low-rank", "margin@fisher", "tune"])
def test_a_search_changes_included_layers_alone(name: str) -> None:
    front = repair_with(name, include=("h*",)).search.front
    assert {name for candidate in front for name in candidate.layers} == {"head"}


def test_a_member_without_an_allowed_layer_is_left_out_and_the_reason_kept(problem: Problem) -> None:
    within = replace(problem, allowed=LayerFilter(exclude=("head",)))
    state = Pool(members=("bias", "margin@fisher", "margin@hidden")).begin(within, rng=np.random.default_rng(0))
    assert list(state.members) == ["bias", "margin@fisher", "margin@hidden"]
    assert state.members["bias"].stopped == (
        "left out: the layers to include or exclude leave out the last layer, 'head', and this search changes nothing "
        "else"
    )
    assert state.members["margin@hidden"].stopped is None


def test_biases_join_the_weights_a_search_chooses_where_the_user_says_so(problem: Problem) -> None:
    parameters = []
    for biases in (False, True):
        within = replace(problem, allowed=LayerFilter(biases=biases))
        chosen = MarginFisher().select_weights(within).suspects.addresses
        parameters.append({address.parameter for address in chosen})
    assert parameters == [{"weight"}, {"weight", "bias"}]
