"""Their repaired weights, measured by our own evidence: loader and measure agree with their papers."""

from __future__ import annotations

from typing import Any

import numpy as np

import arachne
from arachne.evidence import PartEvidence
from arachne.evidence.measure_part import measure_part
from arachne.results.measure import part_of
from examples.arena import networks


def measure_rivals() -> dict[str, Any]:
    """Count repaired and broken test inputs of models that others repaired."""
    labels = networks.arrays("mnist_test")["y"].astype(np.int64)
    clean, foggy = networks.digits(), networks.digits("mnist_fog")
    found: dict[str, Any] = {}
    first = networks.lenet5(networks.arrays("fixingstudy_lenet5"))
    for by in ("arachne", "apricot"):
        for number in (1, 2, 3):
            after = networks.lenet5(networks.arrays(f"fixingstudy_lenet5_{by}_{number}"))
            held = _evidence(first, after, clean, labels)
            counts = {"repaired": held.repaired, "negatives": held.negatives}
            found[f"lenet5 {by} {number}"] = {**counts, "broken": held.broken, "inputs": held.inputs}
    weights = networks.arrays("eran_mnist_3_100")
    before, after = networks.eran_mlp(weights), networks.eran_mlp(weights, "aprnn.")
    for name, inputs, from_row in (("fog", foggy, 100), ("clear", clean, 0)):
        held = _evidence(before, after, inputs[from_row:], labels[from_row:])
        found[f"aprnn {name}"] = {"before": held.accuracy_before, "after": held.accuracy_after}
    return found


def _evidence(before: Any, after: Any, inputs: networks.Array, labels: networks.Array) -> PartEvidence:
    """Return the evidence of one model beside another, for every error of the first."""
    part = part_of(arachne.load(before), (inputs, labels), "*:*")
    return measure_part(part, arachne.load(after).forward(inputs))
