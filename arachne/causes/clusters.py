"""Finder of clusters: errors whose hidden activations lie close together and apart from those of right inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster.vq import kmeans2

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.rule import Rule
from arachne.causes.rules import Activation
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.plugins.options import option

MIN_DEVIATION = 1e-6
"""Standard deviation below which a hidden unit is ignored."""

MIN_CLASS_SHARE = 0.5
"""A cluster gives a rule only if at least this share of its errors is read as one class."""

MOST_PAIRED = 2048
"""Values of an input of which all pairs are looked at together."""

OVERSAMPLED, POWERS = 10, 3
"""Directions beyond those wanted, and how often each is multiplied by the values, where components are drawn."""


@dataclass(frozen=True, kw_only=True)
class ClusterFinder(Finder):
    """Proposes clusters of hidden activations that hold far more of the errors than of the right inputs."""

    name = "clusters"
    components: int = option(20, "Principal components that are kept.", least=1)
    clusters: int = option(8, "Clusters that are looked for.", least=2)
    enrichment: float = option(10.0, "Share of the errors against that of the right inputs, at least.", least=1)

    def find(self, cases: Cases, *, rng: np.random.Generator) -> Proposals:
        """Propose one rule for each cluster that is full of errors."""
        layer = last_layer(cases.backend)
        if layer is None or cases.wrong.sum() < self.clusters or (~cases.wrong).sum() < self.clusters:
            return Proposals((), 0)
        hidden = cases.hidden_activations(layer)
        projected = project(residuals(hidden, cases), self.components)
        numbers = kmeans2(projected, self.clusters, minit="++", rng=rng, missing="warn")[1]
        rules: list[Rule] = []
        for number in range(self.clusters):
            inside = numbers == number
            errors, right = inside & cases.wrong, inside & ~cases.wrong
            share = errors.sum() / cases.wrong.sum()
            if errors.sum() < self.fewest or share < self.enrichment * right.sum() / (~cases.wrong).sum():
                continue
            read_as = int(np.bincount(cases.predictions[errors]).argmax())
            members = errors & (cases.predictions == read_as)
            if members.sum() >= max(self.fewest, MIN_CLASS_SHARE * errors.sum()):
                rules.append(fit_plane(layer, read_as, hidden, members, cases))
        return Proposals(tuple(rules), self.clusters)


def last_layer(backend: ModelBackend | None) -> str | None:
    """Return the last dense layer, whose inputs are the last hidden activations; None if there is none."""
    dense = [] if backend is None else [info.name for info in backend.layers if info.kind == "dense"]
    return dense[-1] if dense else None


def residuals(hidden: Array, cases: Cases) -> Array:
    """Subtract the mean of the true and predicted classes' centres, in standard deviations of right inputs `(n, w)`."""
    right = ~cases.wrong
    seen, at = np.unique(np.concatenate([cases.labels, cases.predictions]), return_inverse=True)  # few of many classes
    centres = np.repeat(hidden[right].mean(axis=0)[None], len(seen), axis=0)
    for label in np.unique(cases.labels[right]).tolist():
        centres[np.searchsorted(seen, label)] = hidden[right & (cases.labels == label)].mean(axis=0)
    labels, predictions = np.split(at, [len(cases.labels)])
    found = hidden - (centres[labels] + centres[predictions]) / 2
    deviation = found[right].std(axis=0)
    scaled: Array = found / np.where(deviation > MIN_DEVIATION, deviation, np.inf)
    return scaled


def project(values: Array, components: int) -> Array:
    """Project onto the first principal components, `(n, components)`."""
    centred = values - values.mean(axis=0)
    if centred.shape[1] > MOST_PAIRED:
        return project_at_random(centred, components)
    _, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    return np.asarray(centred @ vectors[:, ::-1][:, :components], dtype=np.float64)


def project_at_random(centred: Array, components: int) -> Array:
    """Project nearly onto the same components without a table of all pairs of values, after Halko et al. (2011)."""
    found = np.random.default_rng(0).normal(size=(centred.shape[1], components + OVERSAMPLED)).astype(centred.dtype)
    found = centred @ found
    for _ in range(POWERS):
        found = centred @ (centred.T @ np.linalg.qr(found)[0])
    basis = np.linalg.qr(found)[0]
    left, sizes, _ = np.linalg.svd(basis.T @ centred, full_matrices=False)
    return np.asarray((basis @ (left * sizes))[:, :components], dtype=np.float64)


def fit_plane(layer: str, read_as: int, hidden: Array, members: Array, cases: Cases) -> Activation:
    """Fit a plane between a cluster's errors (bool `(n,)`) and the right inputs that are read as the same class."""
    others = ~cases.wrong & (cases.predictions == read_as)
    if not others.any():
        others = ~cases.wrong
    one, other = hidden[members], hidden[others]
    spread = one.var(axis=0) + other.var(axis=0)
    direction = (one.mean(axis=0) - other.mean(axis=0)) / np.where(spread > MIN_DEVIATION, spread, np.inf)
    direction /= max(float(np.linalg.norm(direction)), MIN_DEVIATION)
    inside, outside = one @ direction, other @ direction
    bounds = np.unique(np.concatenate([inside, outside]))
    missed = np.searchsorted(np.sort(inside), bounds, "left") / len(inside)
    caught = 1 - np.searchsorted(np.sort(outside), bounds, "left") / len(outside)
    at = int(np.argmin(missed + caught))
    between = bounds[max(0, at - 1) : at + 1].mean()
    return Activation(layer, read_as, tuple(float(f"{one:.6g}") for one in direction.tolist()), float(between))
