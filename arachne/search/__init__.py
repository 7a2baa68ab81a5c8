"""Search: new values for the localised weights."""

from __future__ import annotations

from arachne.search.base import Generation, Problem, Searcher, SearchResult
from arachne.search.de import DifferentialEvolution

__all__ = ["DifferentialEvolution", "Generation", "Problem", "SearchResult", "Searcher"]
