"""Two collision-avoidance networks repaired by a rule, without a single label (ACAS Xu N2,9 and N1,9).

The networks advise an aircraft: clear of conflict (0), weak left or right (1, 2), strong left or right (3, 4). In some
states a safety property forbids advice: phi 8 of N2,9 forbids 2, 3 and 4, phi 7 of N1,9 forbids 3 and 4. Others have
repaired them with labels made up for those states. Here the property is the target, and states in which nothing may
change are given as they are; test states play no part in the repair:

    arachne repair model.pt2 --data states.npz --target "rule:not 2,3,4" --keep-as-is keep.npz --max-break 0 -o fix
    arachne evaluate model.pt2 --patch fix/patch.json --data states_test.npz --keep-as-is keep_test.npz
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import arachne
from examples.arena import networks

ACAS = {"N29": "rule:not 2,3,4", "N19": "rule:not 3,4"}
"""The rule of each network."""


def repair_acas(name: str) -> dict[str, Any]:
    """Repair one network on CARE's states, and count on its test states."""
    stored = networks.arrays(f"acas_{name}")
    model = networks.acas_mlp(stored)
    states, keep, test, keep_test = (
        np.unique(stored[f"data.{part}"], axis=0)
        for part in ("counterexample", "drawndown", "counterexample_test", "drawndown_test")
    )
    start = time.process_time()
    found = arachne.repair(model, states, ACAS[name], keep_as_is=keep, max_break=0.0)
    seconds = time.process_time() - start
    measured = arachne.measure(model, test, patch=found.patch, keep_as_is=keep_test)
    held_out = measured.held_out
    kept = held_out.kept
    return {
        "rule": ACAS[name],
        "basis": measured.basis,
        "verdict": measured.verdict.word,
        "test_states": held_out.negatives,
        "keep_rule_now": held_out.repaired,
        "kept": 0 if kept is None else kept.total,
        "changed": 0 if kept is None else kept.count,
        "weights": len(found.patch),
        "seconds": seconds,
    }
