"""docs/gallery.md, from the committed results."""

from __future__ import annotations

import shlex
from typing import Any

from examples.gallery.exhibit import Exhibit

HEAD = """\
# Gallery: models people have installed

Each of these model files comes inside a package of a public registry. `python -m examples.gallery run NAME` makes the
inputs, repairs the mistake, and once more by shifting biases alone; `python -m examples.gallery report` writes this
page from the committed figures, all of held-out inputs. Nothing of these packages is part of Arachne.

Times are processor time of one thread, mostly passes through the model. More files open (`reports/opened-files.md`):
of nudenet 3.4.2's YOLOv8n, the class head is in reach without the boxes.

"""


def write_page(exhibits: dict[str, tuple[Exhibit, dict[str, Any]]]) -> str:
    """Return the page as Markdown."""
    return HEAD + "\n".join(section(exhibit, record) for exhibit, record in exhibits.values())


def openings(files: dict[str, Any]) -> str:
    """Return which files open."""
    lines = [
        "# Which model files of packages open",
        "",
        "`python -m examples.gallery run files` asks `arachne scan FILE --layers` of files in packages.",
        "",
        "| file | layers | weights in reach | out of reach |",
        "|---|---|---|---|",
    ]
    for file, found in files.items():
        name = f"`{file}`" + (f" with `--output {found['output']}`" if "output" in found else "")
        if "refused" in found:
            lines.append(row(name, f"refused: {found['refused']}", "", ""))
        else:
            lines.append(row(name, found["layers"], f"{found['in_reach']:,}", f"{found['out_of_reach']:,}"))
    return "\n".join([*lines, ""])


def section(exhibit: Exhibit, record: dict[str, Any]) -> str:
    """Return what one exhibit shows."""
    fix, bias = record["repair"], record["bias"]
    options = " ".join(shlex.quote(word) for word in (*exhibit.options, *exhibit.search_options))
    target = exhibit.target if exhibit.target.isascii() and not {*"* "} & {*exhibit.target} else f'"{exhibit.target}"'
    command = f"arachne repair {record['file']} --data data.npz --target {target} {options}".rstrip()
    lines = [
        f"## {exhibit.title}",
        "",
        f"`{record['file']}` of {record['package']} ({record['bytes'] / 1e6:.1f} MB). Inputs: {exhibit.inputs}; "
        f"{record['inputs']:,} in all.",
        "",
        "<!-- not run: needs a package of others -->",
        "```sh",
        f"{exhibit.install}",
        f"python -m examples.gallery run {exhibit.name}      # makes the inputs, then runs:",
        f"{command} -o fix",
        "```",
        "",
        "| held out | before | after the repair | after a bias shift |",
        "|---|---|---|---|",
        row("inputs that show the mistake", fix["negatives"], *(count_left(one) for one in (fix, bias))),
        row("right before, wrong now", "", *(count_broken(one) for one in (fix, bias))),
        row("accuracy", f"{fix['accuracy_before']:.1%}", *(accuracy_after(one) for one in (fix, bias))),
        row("weights changed", "", *(f"{one['weights']:,}" if "weights" in one else "" for one in (fix, bias))),
        row("verdict", "", *(one.get("verdict", one.get("refused")) for one in (fix, bias))),
        "",
        f"{fix['processor_seconds']} s.",
    ]
    return "\n".join([*lines, *(["", exhibit.remark] if exhibit.remark else []), ""])


def row(*cells: object) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(str(cell).replace("%", " %").replace("  %", " %") for cell in cells) + " |"


def count_left(figures: dict[str, Any]) -> str:
    """Return how many inputs still show the mistake."""
    return f"{figures['negatives'] - figures['repaired']}" if "negatives" in figures else ""


def count_broken(figures: dict[str, Any]) -> str:
    """Return how many right inputs are wrong now."""
    return f"{figures['broken']} of {figures['positives']:,}" if "broken" in figures else ""


def accuracy_after(figures: dict[str, Any]) -> str:
    """Return the accuracy after the repair."""
    return f"{figures['accuracy_after']:.1%}" if "accuracy_after" in figures else ""
