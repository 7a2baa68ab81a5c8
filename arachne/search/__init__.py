"""Search: new values for the localised weights."""

from __future__ import annotations

from arachne.search.apricot import Apricot
from arachne.search.base import Problem, Searcher
from arachne.search.de import DifferentialEvolution
from arachne.search.deepfault import DeepFault
from arachne.search.front import Front
from arachne.search.keep import Keep, KeepDeep, KeepHidden, KeepSparing, KeepWide, KeepWords
from arachne.search.last_layer import BiasShift, LastLayer
from arachne.search.mode import Mode
from arachne.search.pool import Pool
from arachne.search.rivals import Retrain, Ridge, Tune
from arachne.search.state import Candidate, Generation, SearchResult, SearchState

__all__ = [
    "Apricot",
    "BiasShift",
    "Candidate",
    "DeepFault",
    "DifferentialEvolution",
    "Front",
    "Generation",
    "Keep",
    "KeepDeep",
    "KeepHidden",
    "KeepSparing",
    "KeepWide",
    "KeepWords",
    "LastLayer",
    "Mode",
    "Pool",
    "Problem",
    "Retrain",
    "Ridge",
    "SearchResult",
    "SearchState",
    "Searcher",
    "Tune",
]
