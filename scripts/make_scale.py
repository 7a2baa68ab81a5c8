"""Fill reports/scale.md with what `python -m benchmarks.real_sizes` measured.

python scripts/make_scale.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "reports" / "scale.md"
RESULTS = ROOT / "benchmarks" / "results" / "real_sizes.json"
TITLES = {
    "resnet50": "ResNet-50, 224²",
    "vit": "ViT-B/16, 224²",
    "bert": "BERT-base, 128 tokens",
    "lstm": "LSTM-256, 100 steps",
    "head": "1,000-class head, 4096-4096-1000",
    "fm-lstm": "LSTM-64, rows of Fashion-MNIST",
    "gtsrb-cnn": "GTSRB, 43 classes",
}


def fill_page(page: str, results: dict[str, Any]) -> str:
    """The page with a table of each kind of row between its marks."""
    for name, table in (("localise", localising), ("ranking", ranking), ("repair", repairing)):
        rows = [found for key, found in results.items() if key.startswith(f"{name} ")]
        start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}\n{table(rows)}\n{end}{after}"
    return page


def localising(rows: list[dict[str, Any]]) -> str:
    """Passes and memory, the networks in the order of `TITLES`."""
    lines = [
        "| network | million weights | localiser | looked at | inputs | pass, s | passes | memory | one input's pass |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, title in TITLES.items():
        for row in rows:
            if row["subject"] == name:
                lines.append(
                    f"| {title} | {row['weights'] / 1e6:.1f} | {row['localiser']} | {row['looked_at']:,} "
                    f"| {row['each']} + {row['each']} | {row['pass_seconds']:.3g} | {row['passes']:.1f} "
                    f"| {row['times_weights']:.1f} × | {multiple_text(row.get('pass_times_weights'))} |"
                )
    return "\n".join(lines)


def multiple_text(times: float | None) -> str:
    """A multiple of the weights, where it was measured."""
    return "" if times is None else f"{times:.1f} ×"


def ranking(rows: list[list[dict[str, Any]]]) -> str:
    """Rows of what is left of the ranking, few passes first."""
    lines = [
        "| fault | negatives | passes | classes | rank correlation | suspects kept | of the first 100 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted((row for some in rows for row in some), key=lambda row: (row["fault"], row["passes"])):
        way = {"few": "fault and most predicted", "turns": "fault, others in turn"}[row["way"]]
        lines.append(
            f"| {row['fault']} | {row['negatives']} | {row['passes']} | {way} | {row['rank_correlation']:.4f} "
            f"| {row['suspects_kept']} of {row['suspects']} | {row['top_100_kept']} |"
        )
    return "\n".join(lines)


def repairing(rows: list[dict[str, Any]]) -> str:
    """Seconds of the processor, by the clock too where there are threads, and the share of each step."""
    lines = [
        "| network | searcher | seen inputs | threads | processor, s | elapsed, s | steps |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: list(TITLES).index(row["subject"])):
        whole = sum(row["steps"].values())
        elapsed = f"{row['elapsed_seconds']:,.0f}" if row["threads"] > 1 else ""
        steps = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in row["steps"].items())
        lines.append(
            f"| {TITLES[row['subject']]} | {row['searcher']} | {row['seen']:,} | {row['threads']} "
            f"| {row['processor_seconds']:,.1f} | {elapsed} | {steps} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(
        fill_page(PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))), "utf-8"
    )
