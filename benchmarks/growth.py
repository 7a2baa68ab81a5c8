"""How time and memory of a default repair grow with inputs, classes and weights, beside torch training the last layer.

    python -m benchmarks.growth                 every point that has no result yet
    python -m benchmarks.growth --print         the table, and the picture for reports/scale.md

The network has one hidden layer of made-up weights and a last layer fitted to other inputs, of which every tenth class
was mostly filed as the next one. One of the three numbers grows, the others stay. Each point
runs in a process of its own with one thread: first the repair, then the rival, which trains the last layer by
cross-entropy on the same seen inputs, negatives weighted as much as all others together, until it would break more of
them than the same budget. A slope is that of a straight line through the logarithms: 1 means twice as much for twice as
many.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "growth.json"
PICTURE = Path(__file__).parents[1] / "reports" / "pictures" / "growth.svg"

BUDGET, STEPS, LOOK_EVERY = 0.005, 500, 10
"""The largest share of right inputs that a change may break, how long the rival trains at most, and how often it is
looked at."""

TRAINED, NOISE, FILED_WRONG = 6000, np.float32(1.5), 0.7
"""How many inputs the last layer is fitted to (a third where it is wide: that fit took longer than the repair), how far
they lie from the centre of their class, and what share of every tenth class is filed wrong."""


@dataclass(frozen=True)
class Size:
    """A network and its data: `features` numbers enter, `hidden` units, `classes` leave."""

    inputs: int = 4000
    classes: int = 10
    features: int = 128
    hidden: int = 700

    @property
    def number_fitted(self) -> int:
        """How many inputs the last layer is fitted to."""
        return TRAINED if self.hidden < TRAINED else TRAINED // 3

    @property
    def weights(self) -> int:
        """The number of weights without biases."""
        return self.hidden * (self.features + self.classes)


GROWING: dict[str, tuple[Size, ...]] = {
    "inputs": tuple(Size(inputs=n) for n in (1000, 4000, 16_000, 100_000)),
    "classes": tuple(Size(inputs=8000, classes=n) for n in (10, 100, 1000)),
    "weights": (Size(), Size(features=256, hidden=3700), Size(features=1024, hidden=9700)),
}
"""The points by what grows."""


def main() -> None:
    """Measure what is missing, print and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--print", action="store_true", dest="only_print", help="measure nothing")
    parser.add_argument("--one", help="measure one point here, and print it")
    parser.add_argument("--most", type=float, default=1200, metavar="SECONDS", help="stop a point after so long")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(Size(**json.loads(asked.one)))))
        return
    found: dict[str, Any] = json.loads(asked.results.read_text(encoding="utf-8")) if asked.results.exists() else {}
    sizes = {size for sizes in GROWING.values() for size in sizes}
    for size in [] if asked.only_print else sorted(sizes, key=lambda size: size.inputs * size.weights):
        key = json.dumps(asdict(size))
        if key in found:
            continue
        command = [sys.executable, "-m", "benchmarks.growth", "--one", key]
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=asked.most)
        except subprocess.TimeoutExpired:
            print(f"{key}: stopped after {asked.most:,.0f} s by the clock", file=sys.stderr)
            continue
        found[key] = json.loads(done.stdout.splitlines()[-1])
        print(key, found[key], file=sys.stderr, flush=True)
        asked.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    if asked.only_print:
        draw(found, asked.picture)


def measure(size: Size) -> dict[str, Any]:
    """Repair once and train once; return times, memory and outcomes."""
    import torch

    import arachne
    from arachne.data.labelled import LabelledData
    from arachne.errors import NothingWithinBudgetError
    from benchmarks.real_sizes.localising import memory, settle_memory
    from benchmarks.rows.__main__ import processor_seconds
    from benchmarks.subjects import fit_last

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    kinds = rng.integers(size.classes, size=size.inputs + size.number_fitted)
    centres = rng.standard_normal((size.classes, size.features), np.float32)
    made = centres[kinds] + NOISE * rng.standard_normal((len(kinds), size.features), np.float32)
    wrong = (kinds % 10 == 0) & (rng.random(len(kinds)) < FILED_WRONG)
    inputs, filed = made[: size.inputs], np.where(wrong, kinds + 1, kinds)[size.inputs :]
    network = torch.nn.Sequential(
        torch.nn.Linear(size.features, size.hidden), torch.nn.ReLU(), torch.nn.Linear(size.hidden, size.classes)
    ).requires_grad_(False)
    fit_last(network, made[size.inputs :], filed, classes=size.classes)
    data = LabelledData(inputs, kinds[: size.inputs])
    before, used = settle_memory(), processor_seconds()
    try:
        result = arachne.repair(network, data, "*:*", seed=0, max_break=BUDGET)
    except NothingWithinBudgetError as error:  # it has run to its end all the same
        result = error.result
    told, seconds = result.evidence.held_out, processor_seconds() - used
    ours = {"seconds": round(seconds, 2), "megabytes": round((memory("VmHWM") - before) / 1e6)}
    ours |= {"repaired": told.repaired, "broken": told.broken}
    split = (result.split.seen, result.split.held_out)
    before, used = settle_memory(), processor_seconds()
    outcome = train_last(network, *(part.data for part in split), *(part.right for part in split))
    rival = {"seconds": round(processor_seconds() - used, 2), **outcome}
    return {"ours": ours, "rival": rival, "negatives": told.negatives, "positives": told.positives}


def train_last(
    network: Any, seen: Any, judged: Any, right: Any, was_right: Any, *, every: int = LOOK_EVERY
) -> dict[str, int]:
    """Train the last layer in plain torch until it breaks more of the seen inputs than it may; judge the others."""
    import torch

    def as_tensors(data: Any) -> tuple[Any, Any]:
        with torch.no_grad():
            return network[:-1](torch.from_numpy(data.inputs)), torch.from_numpy(data.labels)

    (x, y), (others, labels) = as_tensors(seen), as_tensors(judged)
    kept = torch.from_numpy(right)
    last = torch.nn.Linear(x.shape[1], network[-1].out_features)
    last.load_state_dict(network[-1].state_dict())
    best, most = {name: value.clone() for name, value in last.state_dict().items()}, 0
    share = torch.where(kept, 1 / kept.sum(), 1 / (~kept).sum().clamp(min=1))
    optimiser = torch.optim.Adam(last.parameters(), 1e-3)
    for step in range(STEPS):
        if step % every == 0:
            with torch.no_grad():
                now = last(x).argmax(1) == y
            if int((kept & ~now).sum()) > BUDGET * int(kept.sum()):
                break
            if int((~kept & now).sum()) > most:
                best, most = (
                    {name: value.clone() for name, value in last.state_dict().items()},
                    int((~kept & now).sum()),
                )
        rows = torch.multinomial(share, min(1000, len(x)))
        optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(last(x[rows]), y[rows]))
        optimiser.step()
    last.load_state_dict(best)
    with torch.no_grad():
        now = last(others).argmax(1) == labels
    before = torch.from_numpy(was_right)
    return {"repaired": int((~before & now).sum()), "broken": int((before & ~now).sum())}


def grown(found: dict[str, Any], name: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the measured points of what grows, with how much of it there is."""
    own = [(getattr(size, name), found.get(json.dumps(asdict(size)))) for size in GROWING[name]]
    return [(number, row) for number, row in own if row is not None]


def slope(points: list[tuple[int, float]]) -> float:
    """Return the slope of a line through the logarithms; not a number where there are fewer than two points."""
    if len(points) < 2:
        return float("nan")
    x, y = np.log(np.array(points, np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def table(found: dict[str, Any]) -> str:
    """Return the points as a table, and the slopes below."""
    lines = [
        "| grows | to | processor, s | memory, MB | repaired, broken | last layer in torch, s | repaired, broken |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in GROWING:
        for number, row in grown(found, name):
            ours, rival = row["ours"], row["rival"]
            lines.append(
                f"| {name} | {number:,} | {ours['seconds']:.1f} | {ours['megabytes']:,} "
                f"| {ours['repaired']} of {row['negatives']}, {ours['broken']} of {row['positives']:,} "
                f"| {rival['seconds']:.1f} | {rival['repaired']}, {rival['broken']} |"
            )
    lines.append("")
    for name in GROWING:
        own = grown(found, name)
        time, size = (slope([(n, max(0.1, row["ours"][what])) for n, row in own]) for what in ("seconds", "megabytes"))
        lines.append(f"- {name}: time grows with slope {time:.2f}, memory with {size:.2f}.")
    return "\n".join(lines)


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw time and memory over what grows into an svg file; the same results give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(GROWING)), GROWING, strict=True):
        own = grown(found, name)
        for what, colour, label in (("seconds", "#1f5a99", "processor, s"), ("megabytes", "#b35900", "memory, MB")):
            points = [(n, max(0.1, row["ours"][what])) for n, row in own]
            x, y = [n for n, _ in points], [value for _, value in points]
            axes.loglog(x, y, "o-", color=colour, label=f"{label}: slope {slope(points):.2f}")
        axes.set_xlabel(name)
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    with mpl.rc_context({"svg.hashsalt": "arachne", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
