"""The one place where text of a file becomes text on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from arachne.text import printable

BAR_WIDTH = 20
NO_BREAK = "\N{NO-BREAK SPACE}"


class SafeConsole(Console):
    """A console on which text is text: no markup in it is obeyed, and no character of it steers the terminal."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **keywords)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments that rich prints, with harmless text; rich's own colours are not part of the text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, keep="\n"), style, control)


@dataclass(frozen=True)
class Ink:
    """Text as a terminal can show it: no control characters in names, and ASCII where nothing else comes through."""

    ascii_only: bool

    def text(self, value: str) -> Text:
        """A name as text, never as markup or an escape sequence."""
        safe = printable(value, keep="\n")
        if self.ascii_only:
            safe = safe.replace("→", "->").replace("–", "-").encode("ascii", "backslashreplace").decode("ascii")
        return Text(safe)

    def paragraph(self, value: str, width: int) -> Text:
        """Sentences as lines, none of which begins with a per cent sign."""
        together = value.replace(" %", f"{NO_BREAK}%")
        lines = textwrap.wrap(together, width, break_long_words=False, break_on_hyphens=False)
        return self.text("\n".join(lines).replace(NO_BREAK, " "))

    def bar(self, share: float) -> str:
        """A bar of at most `BAR_WIDTH` characters."""
        if self.ascii_only:
            return "#" * max(1, round(BAR_WIDTH * share))
        whole, part = divmod(max(1, round(8 * BAR_WIDTH * share)), 8)
        return "█" * whole + ("▏▎▍▌▋▊▉"[part - 1] if part else "")
