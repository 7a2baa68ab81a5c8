"""The one place where text of a file becomes text on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from arachne.report.printable import printable


class SafeConsole(Console):
    """A console on which text is text: no markup in it is obeyed, and no character of it steers the terminal."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **keywords)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What rich prints, piece by piece; its own colours are not part of the text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, keep="\n"), style, control)
