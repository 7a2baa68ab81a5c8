"""Repairs of networks that others published, beside the figures they published.

    python -m examples.arena run                         # every cell that is not there yet; minutes each
    python -m examples.arena run --only lenet5 --contender auto --seeds 2
    python -m examples.arena report                      # writes reports/arena.md from the committed results
    python -m examples.arena --replay                    # prints the same page, needs neither models nor data

The models and inputs lie in the folder `arena` of the study's data (`ARACHNE_DATA`); the page says where they are from.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from examples.arena.page import page, write
from examples.arena.store import load, save

PAGE = Path(__file__).parents[2] / "reports" / "arena.md"


def main(words: list[str] | None = None) -> None:
    """Run, write or print, as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", nargs="?", choices=("run", "report"), help="measure what is missing, or write the page")
    parser.add_argument("--replay", action="store_true", help="print the page from the committed results")
    parser.add_argument("--only", help="one arena")
    parser.add_argument("--contender", help="one contender")
    parser.add_argument("--seeds", type=int, default=5, help="so many seeds")
    arguments = parser.parse_args(words)
    if arguments.do == "run":
        run(arguments.only, arguments.contender, arguments.seeds)
    if arguments.do == "report":
        write(PAGE)
    elif arguments.replay or arguments.do is None:
        sys.stdout.write(page())


def run(only: str | None, contender: str | None, seeds: int) -> None:
    """Measure every cell that is not there yet, one after the other; each is kept as soon as it is done."""
    from examples.arena.acas import ACAS, repair_acas
    from examples.arena.arenas import ARENAS
    from examples.arena.loaded import measure_rivals
    from examples.arena.reach import measure_reach

    for seed in range(seeds):
        for name, arena in ARENAS.items():
            for own, changes in arena.contenders.items():
                key = f"{own}/{seed}"
                if only not in (None, name) or contender not in (None, own) or seed >= arena.seeds or key in load(name):
                    continue
                print(name, key, file=sys.stderr, flush=True)
                save(name, key, arena.run(seed, changes))
    if only in (None, "acas"):
        for name in ACAS:
            if name not in load("acas"):
                save("acas", name, repair_acas(name))
    for file, measure in (("rivals", measure_rivals), ("reach", measure_reach)):
        if only in (None, file) and not load(file):
            for name, cell in measure().items():
                save(file, name, cell)


if __name__ == "__main__":
    main()
