"""`report.html`: one file that needs nothing else, made from a page object with a Jinja2 template."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from arachne.errors import InputError
from arachne.evidence.grade import NOT_SHOWN, NOTHING_WITHIN, OVERRUN, REDUCED, REMOVED, TOO_FEW, WORSE
from arachne.report import charts, front_charts
from arachne.report.front_page import makers
from arachne.report.json import dumps
from arachne.report.page import PAGE_SCHEMA
from arachne.report.searcher_words import describe_searcher
from arachne.scoring.statistics import interval
from arachne.text import p_value, percent, printable

if TYPE_CHECKING:
    from jinja2 import Environment

PICTURE = re.compile(r"data:image/(?P<kind>png|jpeg);base64,(?P<content>[A-Za-z0-9+/]+={0,2})")
SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}
MAX_PICTURE_CHARACTERS = 2 << 20
"""Characters of a picture's address; pages draw pictures small, so a longer one is not ours."""

NO_BREAK_PERCENT = "\N{NO-BREAK SPACE}%"
"""No line begins with a per cent sign."""

MOST_LAYERS = 24
MOST_CLASSES = 200
"""Of more classes, the page shows those whose accuracy changed most."""

MOST_MOVES = 8
OLD_DAMAGE = "repaired with damage"
TONES = {
    REMOVED: "good",
    REDUCED: "warn",
    NOT_SHOWN: "bad",
    WORSE: "bad",
    TOO_FEW: "unsure",
    NOTHING_WITHIN: "bad",
    "repaired": "good",
    OLD_DAMAGE: "warn",
    "not repaired": "bad",
}
"""Tones of verdicts; the last three are words of results stored before verdicts were graded."""


def render(page: Mapping[str, Any]) -> str:
    """Render a page object as HTML; equal objects give equal bytes.

    Raises:
        InputError: Not a page object, or one of another version.
    """
    if page.get("schema") != PAGE_SCHEMA:
        raise InputError(f"expected a report of schema '{PAGE_SCHEMA}', got '{page.get('schema')}'")
    script, script_hash = script_and_hash("report.js")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            page={"model": None, "date": None, "next": [], **page},
            damaged=page["result"]["verdict"] in (OLD_DAMAGE, WORSE) or page["result"].get("limit_state") == OVERRUN,
            result=page["result"],
            held_out=page["result"]["held_out"],
            seen=page["result"].get("seen"),
            tone=TONES.get(page["result"]["verdict"], "unsure"),
            matrices=_matrices(page["confusion"]),
            moves=_moves(page["confusion"]),
            classes=sorted(page["result"]["held_out"]["classes"], key=_change, reverse=True)[:MOST_CLASSES],
            classes_left_out=max(0, len(page["result"]["held_out"]["classes"]) - MOST_CLASSES),
            runs=layer_runs(page["layers"]),
            front=page.get("front"),
            makers=makers(page["front"]) if page.get("front") else [],
            rises=_rises(page.get("search")),
            script=script,
            script_hash=script_hash,
        )
    )


def script_and_hash(name: str) -> tuple[str, str]:
    """A script of ours, and its hash for the page's security policy."""
    script = environment().get_template(name).render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return script, f"sha256-{digest}"


def render_scan(page: Mapping[str, Any]) -> str:
    """Render the object of `scan_page` as HTML; the page has no script."""
    return environment().get_template("scan.html.j2").render(page=page)


def layer_runs(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The layers to draw; in a deep network, a run of untouched ones becomes one box that counts them."""
    if len(layers) <= MOST_LAYERS:
        return [{"layer": layer} for layer in layers]
    runs: list[dict[str, Any]] = []
    for layer in layers:
        if layer["changed"]:
            runs.append({"layer": layer})
        elif runs and "names" in runs[-1]:
            runs[-1]["names"].append(layer["name"])
        else:
            runs.append({"names": [layer["name"]]})
    return runs


@cache
def environment() -> Environment:
    """The templates, with our filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("arachne.report"),
        autoescape=lambda name: name is not None and name.endswith(".j2"),
        undefined=StrictUndefined,
        finalize=_make_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        percent=_percent,
        p_value=lambda p: "-" if p is None else p_value(p),
        json=dumps,
        points=lambda change: f"{100 * change:+.1f}".replace("-", "\N{MINUS SIGN}") if change else "0",
        number=lambda value: f"{value:.6g}",
        printable=printable,
        short=_short,
        searcher=describe_searcher,
        picture=_picture,
    )
    made.globals.update(interval=interval, charts=charts, front_charts=front_charts)
    return made


def _make_printable(value: Any) -> Any:
    """Strip unprintable characters from text that a template prints; `Markup` is our own and stays."""
    from markupsafe import Markup

    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value, keep="\n").replace(" %", NO_BREAK_PERCENT)


def _picture(address: Any) -> str:
    """The address of a picture, if it is a PNG or JPEG that lies in the page itself.

    Raises:
        InputError: It leads elsewhere, is too large, or is no picture.
    """
    found = PICTURE.fullmatch(address) if isinstance(address, str) and len(address) <= MAX_PICTURE_CHARACTERS else None
    if found is None:
        raise InputError("a picture of the report is not in it; the page shows only what a repair has drawn")
    try:
        content = base64.b64decode(found["content"], validate=True)
    except ValueError as error:
        raise InputError("a picture of the report is damaged: it is no base64") from error
    if not content.startswith(SIGNATURES[found["kind"]]):
        raise InputError(f"a picture of the report is no {found['kind'].upper()}")
    return str(address)


def _rises(search: Mapping[str, Any] | None) -> bool:
    """Whether fitness never falls: where several searches run one after the other, a curve of it is a sawtooth."""
    fitness = [at["fitness"] for at in (search or {}).get("history", ())]
    return all(before <= after for before, after in pairwise(fitness))


def _percent(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _change(accuracy: Mapping[str, Any]) -> float:
    return abs(float(accuracy["accuracy_after"] or 0) - float(accuracy["accuracy_before"] or 0))


def _matrices(confusion: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Confusion before, after, and the difference, cell by cell: the text, the tone, and how dark it is."""
    before, after = confusion["before"], confusion["after"]
    change = [[new - old for old, new in zip(*rows, strict=True)] for rows in zip(before, after, strict=True)]
    most = max((count for row in (*before, *after) for count in row), default=1) or 1
    steepest = max((abs(count) for row in change for count in row), default=1) or 1
    views = (
        ("before", "Before", before, most, False),
        ("after", "After", after, most, False),
        ("difference", "Difference, after minus before", change, steepest, True),
    )
    return [
        {
            "name": name,
            "title": title,
            "rows": [
                (label, [_cell(count, number == column, top, signed) for column, count in enumerate(row)])
                for number, (label, row) in enumerate(zip(confusion["names"], rows, strict=True))
            ],
        }
        for name, title, rows, top, signed in views
    ]


def _moves(confusion: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The confusions that grew or shrank most, as `true class read as other class: before → after`."""
    names, before, after = confusion["names"], confusion["before"], confusion["after"]
    moves = [
        {"label": names[i], "prediction": names[j], "before": old, "after": new, "grew": new > old}
        for i, row in enumerate(before)
        for j, old in enumerate(row)
        if (new := after[i][j]) != old and i != j
    ]
    return sorted(moves, key=lambda move: -abs(move["after"] - move["before"]))[:MOST_MOVES]


def _cell(count: int, diagonal: bool, most: int, signed: bool) -> dict[str, Any]:
    """More on the diagonal is good, elsewhere bad. Shades keep small counts visible and text on the darkest legible."""
    tone = ("good" if (count > 0) == diagonal else "bad") if signed else ("right" if diagonal else "bad")
    shade = int(6 + 44 * (abs(count) / most) ** 0.5) if count else 0
    return {
        "text": (f"{count:+d}".replace("-", "\N{MINUS SIGN}") if signed else str(count)) if count else "·",
        "tone": tone,
        "by": shade,
    }


def _short(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"
