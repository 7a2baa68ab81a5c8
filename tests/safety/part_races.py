"""Two runs into one folder at the same time: exactly one goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.safety.kept import Kept, Trial
from tests.safety.results import QUICK, find_broken, prepare
from tests.safety.rows import Row
from tests.safety.runs import Ended, Runs

ORDER = 26
NUMBER = 20
REFUSED = {4: "another run is writing to", 2: "holds the results of an earlier run"}
"""Exit codes of the run that does not go on: it came while the other ran, or behind it."""


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    with Runs() as one, Runs() as two, tempfile.TemporaryDirectory(prefix="arachne-races-") as name:
        folder = Path(name)
        prepare(one, folder)
        trials = [partial(_trial, one, two, folder, number) for number in range(NUMBER)]
        made = kept.trials("races", {str(number): trial for number, trial in enumerate(trials)})
    codes = [code for trial in made for code in trial.seen["codes"]]
    held = sum(not trial.wrong for trial in made)
    told = f"exactly one went on {held} times; the other was told so, {codes.count(4)} times while both ran and "
    failures = tuple(wrong for trial in made for wrong in trial.wrong)
    yield Row("two runs, one folder", len(made), f"{told}{codes.count(2)} times behind", failures)


def _trial(one: Runs, two: Runs, folder: Path, number: int) -> Trial:
    codes, wrong = race(one, two, folder, number)
    return Trial(tuple(f"race {number}: {what}" for what in wrong), {"codes": codes})


def race(one: Runs, two: Runs, folder: Path, number: int) -> tuple[list[int], list[str]]:
    """Start two runs at once; their exit codes, and what is wrong."""
    name = f"fix{number}"

    def start(runs: Runs, seed: int) -> Ended:
        return runs.run(["repair", "net.onnx", *QUICK, "--seed", str(seed), "-o", name], folder, every_step=False)

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(start, (one, two), (1, 2)))
    codes = sorted(each.code for each in ended)
    wrong = find_broken(folder / name) if (folder / name).is_dir() else ["there is no result"]
    if codes[0] != 0 or codes[1] not in REFUSED:
        wrong.append(f"the runs ended with {codes}: " + " / ".join(each.err.strip()[-200:] for each in ended))
    else:
        loser = max(ended, key=lambda each: each.code)
        wrong += [] if REFUSED[loser.code] in loser.err else [f"it was told: {loser.err.strip()[-200:]}"]
    left = sorted(path.name for path in folder.glob(".*"))
    return codes, wrong + ([f"left behind: {', '.join(left)}"] if left else [])
