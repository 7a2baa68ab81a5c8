"""README.md, docs/ and reports/ as tests see them: fenced blocks with the marks above them, links, and anchors.

A mark is a comment on the line above a block; readers do not see it:

    <!-- not run: reason -->     the block is left out, for one of the reasons in `REASONS`
    <!-- file: mynet.py -->      the block is not run but written to a file, which later blocks may use
    <!-- file: a.py, as in examples/a.py -->   the same; the block is that file of the repository, word for word
    <!-- needs: torch -->        at the top of a page: the page runs where this backend is installed
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "tests" / "thirteen_tasks.md",
    *sorted((ROOT / "reports").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

REASONS = {
    "installs packages": "what is tested is what is installed already",
    "needs a package of others": "`tests/test_gallery.py` checks what does not need it",
    "needs a detector": "`tests/backends/test_detection.py` runs the same commands on one of its own",
    "needs a model and clips of your own": "`tests/backends/test_tflite.py` runs the same on models of its own",
    "needs a server": "no test talks to the network",
    "needs the paper's data": "it is not shipped; the numbers beside it were copied from a run",
    "part of a file": "only the lines that matter are shown",
    "run on its page": "the page beside it makes the model; `tests/test_thirteen_tasks.py` looks that it is there",
}
"""Why a block is not run."""

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (not run|file): (.+?)(?:, as in (\S+))? -->\s*\Z")
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, line in the page, and the mark above it."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None
    file: str | None = None
    source: str | None = None
    """File of the repository that the block shows."""
    follows: bool = False
    """Whether nothing stands between it and the block before."""

    @property
    def place(self) -> str:
        """`docs/index.md:12`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page and what is in it."""

    path: Path
    text: str = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls(path, path.read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        """`docs/index.md`."""
        return str(self.path.relative_to(ROOT))

    @property
    def needs(self) -> list[str]:
        """The backends without which the page cannot run."""
        return NEEDS.findall(self.text)

    @property
    def blocks(self) -> list[Block]:
        """The fenced blocks in order."""
        found = []
        end = 0
        for match in FENCE.finditer(self.text):
            indent, language, text = match.groups()
            mark = MARK.search(self.text[: match.start()])
            kind, value, source = mark.groups() if mark else (None, None, None)
            plain = "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))
            line = self.text.count("\n", 0, match.start()) + 1
            marks = {"not_run": value if kind == "not run" else None, "file": value if kind == "file" else None}
            follows = not self.text[end : match.start()].strip()
            found.append(Block(self.path, line, language, plain, **marks, source=source, follows=follows))
            end = match.end()
        return found

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return FENCE.sub("", self.text)

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures that stay inside the repository."""
        targets = [one or other for one, other in LINK.findall(self.prose)]
        return [target for target in targets if not re.match(r"[a-z]+:", target)]

    @property
    def anchors(self) -> set[str]:
        """Anchors that a link may have behind its `#`."""
        return {slug(heading) for heading in HEADING.findall(self.prose)}


def slug(heading: str) -> str:
    """A heading's anchor, as both GitHub and mkdocs make it of plain words."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())


def commands(text: str) -> list[str]:
    """The commands in a shell block, one line each; comments stay at their ends."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.strip().removeprefix("$ ") for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]
