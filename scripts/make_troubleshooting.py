"""Fill docs/troubleshooting.md with every message of the code, by the exit code it comes with.

python scripts/make_troubleshooting.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from arachne import errors

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "troubleshooting.md"
FOLDERS = ("arachne", "backends")
START, END = "<!-- messages: start -->", "<!-- messages: end -->"
ANYTHING = "…"
"""A sign that stands for a part of a message that depends on the case."""


def messages() -> dict[int, list[str]]:
    """The messages of all errors by exit code, sorted; what depends on the case is `ANYTHING`."""
    found: dict[int, set[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for code, text in in_source(path.read_text(encoding="utf-8")):
                found.setdefault(code, set()).add(text)
    return {code: sorted(found[code]) for code in sorted(found)}


def in_source(source: str) -> Iterator[tuple[int, str]]:
    """Exit code and text of each error that a file makes."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        error = getattr(errors, name, None)
        if isinstance(error, type) and issubclass(error, errors.ArachneError):
            text = re.sub(f"{ANYTHING}(?:{ANYTHING})+", ANYTHING, template(node.args[0]))
            if len(re.sub(r"\W", "", text)) > 8:  # nothing but a part of the case otherwise
                yield error.exit_code, " ".join(text.split())


def template(node: ast.expr) -> str:
    """A message as it stands in the code, with `ANYTHING` for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return ANYTHING


def fill_page(page: str) -> str:
    """The page with all messages between its marks."""
    parts = []
    for code, texts in messages().items():
        parts += [f"### Exit code {code}", "", *(f"- {escape_markdown(text)}" for text in texts), ""]
    head, _, rest = page.partition(START)
    _, _, tail = rest.partition(END)
    return f"{head}{START}\n\n" + "\n".join(parts) + f"\n{END}{tail}"


def escape_markdown(text: str) -> str:
    """A message as Markdown shows it: a name in code stays text."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)
