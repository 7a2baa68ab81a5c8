"""The texts among the metadata of some data, by the names that data sets give such columns."""

from __future__ import annotations

from arachne.data.labelled import LabelledData
from arachne.model.values import Array

TEXT_COLUMNS = ("text", "sentence", "tweet", "review", "title", "question")


def find_texts(data: LabelledData) -> Array | None:
    """Return the text of each input `(n,)`; None if the data has none."""
    return next((data.columns[column] for column in TEXT_COLUMNS if column in data.columns), None)
