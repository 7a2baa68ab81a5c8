"""The figures asked of the study before it was run, beside those that came out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from examples.study.cells import verdict
from examples.study.questions import published
from examples.study.questions.columns import NAMES, three
from examples.study.questions.headline import Lines, first
from examples.study.questions.reading import EQUAL, of, outcome, pairs
from examples.study.questions.repairing import FAITHFUL
from examples.study.questions.tables import mean_over, rate_at, table


def wanted_table(lines: Lines) -> str:
    """The table."""
    return table(["what", "wanted", "measured", "came out"], list(_rows(lines)))


def _rows(lines: Lines) -> Iterator[list[str]]:
    for subject in ("fm-mlp", "c10-cnn"):
        own = of(lines["rq1"], subject, "ranks")
        if own:
            bl, gl = (float(np.mean([one.found["auc"][name] for one in own])) for name in ("bl", "gl"))
            least = published.WANTED_AUC
            yield [f"RQ1 {NAMES[subject]}: AUC of BL", f"≥ {least}", f"{bl:.4f}", verdict(bl >= least)]
            if subject == "fm-mlp":
                yield ["RQ1 FM: BL above GL", f"> {gl:.4f}", f"{bl:.4f}", verdict(bl > gl)]
    for subject, least in published.WANTED_FIRST.items():
        yield from _first(lines, subject, least)
    both = pairs(lines["rq5"])
    if both:
        for name, outcomes in zip(("faithful", "default, no more damage"), three(both)[:2], strict=True):
            found = mean_over(outcomes, lambda one: one.repair).value
            told = f"RQ5: mean RR_eval over {len(outcomes)} faults, {name}"
            yield [told, f"≥ {published.WANTED_RIVALS}", rate_at(outcomes), verdict(found >= published.WANTED_RIVALS)]


def _first(lines: Lines, subject: str, least: float) -> Iterator[list[str]]:
    """The most frequent confusion, with damage no larger than RQ4's figures."""
    both = first(lines["rq3"], subject)
    if not both:
        return
    target = both[0].faithful.found["target"]
    b = published.ALPHA[subject][10][1]
    for name, told in (
        (FAITHFUL, [outcome(pair.faithful) for pair in both]),
        ("default, no more damage", [pair.default_at(EQUAL) for pair in both]),
    ):
        found = float(np.mean([one.repair for one in told]))
        lost = float(np.mean([one.class_gain(1) for one in told]))
        what = f"RQ3 {NAMES[subject]} `{target}`, {name}: RR_eval"
        yield [what, f"≥ {least}", rate_at({"": told}), verdict(found >= least)]
        yield [f"… points that class {target.partition(':')[2]} loses", f"≥ {b}", f"{lost:+.1f}", verdict(lost >= b)]
