"""Settings are checked when they are made, and can be made from the words a user has."""

from __future__ import annotations

from typing import Any

import pytest

import arachne
from arachne.choose.budget import CHOOSE_SHARE, Budget
from arachne.errors import UsageError
from arachne.localise import MIN_WEIGHTS, Bidirectional, Contrast, GradientLoss, RandomChoice
from arachne.rivals import Retrain, Ridge
from arachne.search import DifferentialEvolution, Front, LastLayer, MarginSearch, Pool, Searcher
from arachne.settings import Settings, make_localiser, make_searcher, make_settings
from arachne.testing import ReferenceBackend, mlp


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 0}, r"^alpha must be above 0, got 0$"),
        ({"alpha": float("nan")}, "alpha must be above 0, got nan"),
        ({"seed": -1}, "a seed is 0 or more, got -1"),
        ({"localiser": Bidirectional}, r"expected a localiser such as arachne.Bidirectional\(\)"),
        ({"searcher": "de"}, r"expected a searcher such as arachne.DifferentialEvolution\(\), got 'de'"),
        ({"evaluator": "plane"}, r"^evaluator must be fast or plain, got 'plane'; did you mean 'plain'\?$"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sead": 3}, r"unknown setting 'sead'; did you mean 'seed'\?$"),
        ({"maxbreak": 0.01}, r"unknown setting 'maxbreak'; did you mean 'max_break'\?$"),
        ({"localizer": "gl"}, r"unknown setting 'localizer'; did you mean 'localiser'\?$"),
        ({"search": "de"}, r"unknown setting 'search'; did you mean 'searcher'\?$"),
        ({"xyz": 3}, "unknown setting 'xyz'; available: alpha, seed, localiser, .*, task, max_break, .*, max_drop$"),
        ({"generations": 3}, r"it is the searcher's: searcher=arachne.DifferentialEvolution\(generations=…\)"),
        ({"copies": False}, r"it is the searcher's: searcher=arachne.Pool\(copies=…\)"),
        ({"include": ["fc1"]}, r"it is the localiser's: localiser=arachne.Contrast\(include=…\)"),
        ({"include": ["fc1"], "searcher": "de"}, r"localiser=arachne.Bidirectional\(include=…\)"),
        ({"include": ["fc1"], "searcher": LastLayer()}, r"localiser=arachne.Contrast\(include=…\)"),
        ({"include": ["fc1"], "localiser": "gl"}, r"localiser=arachne.GradientLoss\(include=…\)"),
        ({"include": ["fc1"], "base": Settings(localiser=RandomChoice())}, r"=arachne.RandomChoice\(include=…\)"),
        ({"include": ["fc1"], "faithful": True}, r"localiser=arachne.Bidirectional.faithful\(include=…\)"),
        ({"min_weights": 9}, r"localiser=arachne.Bidirectional\(min_weights=…\)"),
        ({"localiser": "xl"}, "no localiser named 'xl'; available: all, bl, contrast, fisher, gl, rs"),
        ({"searcher": "ed"}, "no searcher named 'ed'; available: apricot, auto, bias, de"),
    ],
)
def test_keywords_that_are_no_settings_are_told_where_they_belong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_settings(**changes)


def test_a_localiser_by_its_name_widens_unless_faithful() -> None:
    ours, paper = make_settings(localiser="bl").localiser, make_settings(localiser="BL", faithful=True).localiser
    assert isinstance(ours, Bidirectional)
    assert isinstance(paper, Bidirectional)
    assert (ours.min_weights, paper.min_weights) == (MIN_WEIGHTS, 0)
    assert isinstance(make_localiser("rs", count=7), RandomChoice)
    assert isinstance(make_localiser("gl", count=7), GradientLoss)


def test_a_searcher_by_its_name_is_the_papers_when_faithful() -> None:
    assert make_settings(searcher="de").searcher == DifferentialEvolution()
    assert make_settings(searcher="DE", faithful=True).searcher == DifferentialEvolution.faithful()
    assert make_searcher("de", faithful=True, clip=True, population=7) == DifferentialEvolution(
        population=7, clip=True, start="gaussian", keep_original=False
    )
    with pytest.raises(UsageError, match="the searcher 'de' has no option 'size'"):
        make_searcher("de", size=3)


def test_settings_are_written_down_with_all_options_of_localiser_and_searcher() -> None:
    settings = Settings(
        localiser=Bidirectional(min_weights=3),
        searcher=DifferentialEvolution(population=9),
        group_by="patient",
        evaluator="plain",
        drop_overlap=True,
    )
    told = settings.to_json()
    assert (told["group_by"], told["evaluator"], told["drop_overlap"]) == ("patient", "plain", True)
    localiser, searcher = dict(told["localiser"]), dict(told["searcher"])
    assert localiser.pop("name") == "bl"
    assert Bidirectional(**localiser) == settings.localiser
    assert searcher.pop("name") == "de"
    assert DifferentialEvolution(**searcher) == settings.searcher


def test_a_searcher_of_no_package_is_written_down_with_its_class() -> None:
    class Mine(DifferentialEvolution):
        name = "mine"

    told = Settings(searcher=Mine(population=9)).to_json()["searcher"]
    assert (told["name"], told["population"]) == ("mine", 9)
    assert told["class"].endswith(
        "test_settings:test_a_searcher_of_no_package_is_written_down_with_its_class.<locals>.Mine"
    )


def test_faithful_keywords_make_faithful_settings() -> None:
    searcher = make_settings(faithful=True, seed=3).searcher
    assert isinstance(searcher, DifferentialEvolution)
    assert not searcher.clip


def test_keywords_change_the_settings_given_and_faithful_cannot() -> None:
    changed = make_settings(Settings(alpha=3, seed=1, searcher=DifferentialEvolution()), seed=2, localiser="rs")
    assert changed.localiser is not None
    assert (changed.alpha, changed.seed, changed.localiser.name) == (3, 2, "rs")
    with pytest.raises(UsageError, match="give settings or faithful, not both"):
        arachne.repair("model.onnx", "data.npz", "6:0", settings=Settings(), faithful=True)


@pytest.mark.parametrize(
    "searcher", [Pool(), Pool(members=("bias", "last-layer")), MarginSearch(), Front(), LastLayer()]
)
def test_an_alpha_is_refused_where_it_changes_nothing(searcher: Searcher) -> None:
    sentence = f"the search '{searcher.name}' finds the same patch with any alpha; .* apricot, de, .*rt or tune$"
    with pytest.raises(UsageError, match=sentence):
        Settings(alpha=3, searcher=searcher)
    with pytest.raises(UsageError, match=sentence):
        make_settings(alpha=10.0, searcher=searcher)
    with pytest.raises(UsageError, match="any alpha"):
        arachne.repair("model.onnx", "data.npz", "6:0", searcher=searcher, alpha=1)


@pytest.mark.parametrize("searcher", [DifferentialEvolution(), Retrain(), Ridge(), Pool(members=("bias", "ridge"))])
def test_an_alpha_is_taken_where_it_counts(searcher: Searcher) -> None:
    assert make_settings(alpha=3, searcher=searcher).alpha == 3


def test_the_localiser_goes_with_the_searcher_unless_it_is_named() -> None:
    class NoGradients(ReferenceBackend):
        SUPPORTS_GRADIENTS = False

    backend = ReferenceBackend(mlp([4, 3], seed=0))
    assert Settings().resolve_localiser(backend) == Contrast()
    assert Settings(searcher=DifferentialEvolution()).resolve_localiser(backend) == Bidirectional(
        min_weights=MIN_WEIGHTS
    )
    assert Settings(localiser=GradientLoss()).resolve_localiser(backend) == GradientLoss()
    assert Settings().resolve_localiser(NoGradients(mlp([4, 3], seed=0))) == RandomChoice()


def test_inputs_are_kept_for_choosing_where_candidates_are_not_judged_by_siblings() -> None:
    assert Settings().choose_share == 0
    assert Settings(searcher=Pool(members=("bias", "de"))).choose_share == CHOOSE_SHARE
    assert Settings(searcher=DifferentialEvolution()).choose_share == 0
    assert Settings(searcher=DifferentialEvolution(), budget=Budget()).choose_share == CHOOSE_SHARE
    assert Settings(budget=Budget(confidence=0.9)).choose_share == CHOOSE_SHARE
