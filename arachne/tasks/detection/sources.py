"""AnchorSources: which anchors of a detector's outputs the scores of each decision come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array
from arachne.tasks.detection.boxes import ANCHOR, ANY_CLASS, CLASS, REST
from arachne.tasks.detection.layout import Layout


@dataclass(frozen=True, eq=False)
class AnchorSources:
    """The anchors behind the decisions of some pictures.

    A decision about one anchor has the scores of that anchor. A decision about the rest of a picture has the highest
    score of each class among all of its anchors, so each class has an anchor of its own.

    Attributes:
        owners: The picture of each decision, int64 `(m,)`, ascending.
        labels: The class each decision should be for, int64 `(m,)`.
        inputs: The picture of each anchor that is looked at, int64 `(k,)`.
        anchors: Its number in that picture, int64 `(k,)`.
        decisions: The decision it is for, int64 `(k,)`.
        classes: The class it gives the score of, int64 `(k,)`; -1 for all of them.
    """

    owners: Array
    labels: Array
    inputs: Array
    anchors: Array
    decisions: Array
    classes: Array

    def collect(self, logits: Array) -> Array:
        """Return the class scores of decisions `(m, objects)` from those of anchors `(k, objects)`."""
        found = np.empty((len(self.owners), logits.shape[1]), logits.dtype)
        whole = self.classes < 0
        found[self.decisions[whole]] = logits[whole]
        parts = np.flatnonzero(~whole)
        found[self.decisions[parts], self.classes[parts]] = logits[parts, self.classes[parts]]
        return found

    def spread(self, gradient: Array) -> Array:
        """Return d loss / d logits of anchors `(k, objects)` from that of decisions `(m, objects)`: back `collect`."""
        found: Array = gradient[self.decisions]
        parts = self.classes >= 0
        found[parts] *= np.arange(gradient.shape[1]) == self.classes[parts, None]
        return found


def find_sources(layout: Layout, outputs: Array, labels: Array) -> AnchorSources:
    """Return the anchors of the decisions in label rows `(n, k, COLUMNS)`, given the outputs `(n, ...)`."""
    anchors, kinds = labels[..., ANCHOR].astype(np.int64), labels[..., CLASS].astype(np.int64)
    owners, rows = np.nonzero((anchors == REST) | ((anchors > 0) & (kinds >= 0)))
    of_rest = anchors[owners, rows] == REST
    alone, rest = np.flatnonzero(~of_rest), np.flatnonzero(of_rest)
    pictures = owners[rest]
    highest = layout.highest_anchors(outputs[pictures], _open_anchors(layout, outputs, anchors, kinds, pictures))
    objects = layout.n_objects(outputs)
    return AnchorSources(
        owners=owners,
        labels=kinds[owners, rows],
        inputs=np.concatenate([owners[alone], np.repeat(pictures, objects)]),
        anchors=np.concatenate([anchors[owners, rows][alone] - 1, highest.ravel()]),
        decisions=np.concatenate([alone, np.repeat(rest, objects)]),
        classes=np.concatenate([np.full(len(alone), -1), np.tile(np.arange(objects), len(rest))]),
    )


def _open_anchors(layout: Layout, outputs: Array, anchors: Array, kinds: Array, pictures: Array) -> Array:
    """Tell which anchors of pictures belong to the rest for each class, bool `(pictures, anchors, objects)`."""
    n_anchors, objects = layout.by_anchor(outputs).shape[1], layout.n_objects(outputs)
    found = np.ones((len(pictures), n_anchors, objects), bool)
    which, rows = np.nonzero(anchors[pictures] > 0)
    positions, own = anchors[pictures[which], rows] - 1, kinds[pictures[which], rows]
    taken = (own >= 0) | (own == ANY_CLASS)
    found[which[taken], positions[taken]] = False
    found[which[~taken], positions[~taken], -own[~taken] - 1] = False
    return found
