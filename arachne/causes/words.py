"""Find the word that a token stands for, where the data has the texts beside the tokens."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.text_columns import find_texts
from arachne.model.values import Array

WORD = re.compile(r"\w+|[^\w\s]")

MIN_AGREEMENT = 0.95
"""A word is the token's if the texts that have either have both in this share."""

MAX_TEXTS = 5000
"""The most texts looked at."""


def word_of(data: LabelledData, tokens: Array, token: int) -> str | None:
    """Return the word that texts have exactly where their tokens `(n, steps)` have a token; None if there is none."""
    texts = find_texts(data)
    if texts is None or tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        return None
    has = (np.asarray(tokens[:MAX_TEXTS]) == token).any(axis=1)
    if not has.any():
        return None
    words = [set(WORD.findall(str(text).lower())) for text in texts[:MAX_TEXTS]]
    inside = Counter(word for there, own in zip(has, words, strict=True) if there for word in own)
    everywhere = Counter(word for own in words for word in own if word in inside)
    total = int(has.sum())
    agreement = {word: count / (total + everywhere[word] - count) for word, count in inside.items()}
    best = sorted(agreement, key=lambda word: (-agreement[word], word))
    if agreement[best[0]] < MIN_AGREEMENT or (len(best) > 1 and agreement[best[1]] == agreement[best[0]]):
        return None
    return str(best[0])
