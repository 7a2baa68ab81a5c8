"""Words for what each searcher changes, for people who have not read how it works."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "bias": "biases of the last layer",
    "last-layer": "all of the last layer",
    "margin": "the localised weights",
    "margin@hidden": "hidden dense layers",
    "margin@fisher": "weights that right inputs need least",
    "margin@conv": "convolutions",
    "margin@embeddings": "vectors of words",
    "margin@wide": "many weights of wide layers",
    "erase": "one direction taken out of a layer",
    "gate": "a hidden unit that fires where the fault is",
    "gates": "hidden units that fire where the fault is",
    "low-rank": "a few directions of a layer",
    "norms": "normalisation statistics",
    "de": "differential evolution",
    "front": "evolution towards several goals",
    "apricot": "weights of models trained on parts of the data",
    "deepfault": "weights of suspicious neurons",
    "mode": "training on chosen inputs",
    "ridge": "the last layer by least squares",
    "rt": "training of the localised weights",
    "tune": "fine-tuning of all weights",
    "tune@anchored": "further training of all layers, near the original",
    "tune@training": "further training of all layers, with training data",
}


def describe_searcher(name: str) -> str:
    """Return the words for a searcher, with its name in brackets; `margin@fisher, then margin` has two."""
    parts = [part.strip() for part in name.split(", then ")]
    words = [WORDS.get(part) for part in parts]
    if None in words:
        return name
    return f"{', then '.join(map(str, words))} ({name})"
