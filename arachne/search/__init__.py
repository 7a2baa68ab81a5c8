"""Search: new values for the localised weights."""

from __future__ import annotations

from arachne.search.base import Problem, Searcher
from arachne.search.de import DifferentialEvolution
from arachne.search.state import Candidate, Generation, SearchResult, SearchState

__all__ = [
    "Candidate",
    "DifferentialEvolution",
    "Generation",
    "Problem",
    "SearchResult",
    "SearchState",
    "Searcher",
]
