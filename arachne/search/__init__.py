"""Search: new values for the localised weights."""

from __future__ import annotations

from arachne.search.base import Searcher
from arachne.search.de import DifferentialEvolution
from arachne.search.erase import Erase
from arachne.search.front import Front
from arachne.search.gate import Gate
from arachne.search.gates import Gates
from arachne.search.last_layer import LastLayer
from arachne.search.low_rank import LowRank
from arachne.search.margin import (
    BiasShift,
    MarginConv,
    MarginEmbeddings,
    MarginFisher,
    MarginHidden,
    MarginSearch,
    MarginWide,
)
from arachne.search.norms import Norms
from arachne.search.pool import Pool
from arachne.search.problem import Problem
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.search.train_on import TuneAnchored, TuneTraining

__all__ = [
    "BiasShift",
    "Candidate",
    "DifferentialEvolution",
    "Erase",
    "Front",
    "Gate",
    "Gates",
    "Generation",
    "LastLayer",
    "LowRank",
    "MarginConv",
    "MarginEmbeddings",
    "MarginFisher",
    "MarginHidden",
    "MarginSearch",
    "MarginWide",
    "Norms",
    "Pool",
    "Problem",
    "SearchResult",
    "SearchState",
    "Searcher",
    "TuneAnchored",
    "TuneTraining",
]
