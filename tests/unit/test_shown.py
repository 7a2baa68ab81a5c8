"""Text of a file becomes text on a terminal, in JSON and on a page: shown, never obeyed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.table import Table

from arachne.data.read import read_data
from arachne.errors import InputError
from arachne.report.console import SafeConsole
from arachne.report.html import environment
from arachne.report.json import dumps
from arachne.report.pictures import NOT_SHOWN, draw_frame, show_inputs


def print_to_terminal(text: str) -> str:
    stream = io.StringIO()
    table = Table("name", box=None)
    table.add_row(text)
    console = SafeConsole(file=stream, width=200, color_system=None)
    console.print(table)
    console.print(text)
    return stream.getvalue()


@given(st.text())
def test_console_prints_nothing_that_steers_a_terminal(text: str) -> None:
    assert all(one.isprintable() or one == "\n" for one in print_to_terminal(text))


def test_markup_of_a_file_is_shown_and_not_obeyed() -> None:
    text = "[bold]a[/bold] [link=http://127.0.0.1]b[/link] :smile: [/]"
    assert print_to_terminal(text).count(text) == 2


@given(st.text())
def test_json_for_a_terminal_is_printable_and_means_the_same(text: str) -> None:
    told = dumps({"name": text})
    assert all(one.isprintable() or one == "\n" for one in told)
    assert json.loads(told.encode())["name"] == text


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1/a.png", "data:image/svg+xml;base64,AA", 'data:image/png;base64,"', 5]
)
def test_page_holds_no_picture_from_elsewhere(address: object) -> None:
    template = environment().from_string("{{ src|picture }}")
    with pytest.raises(InputError, match="shows only what a repair has drawn"):
        template.render(src=address)


def test_pictures_that_a_table_or_a_link_leads_to_are_read_and_not_shown(tmp_path: Path) -> None:
    inside, outside = tmp_path / "data", tmp_path / "private.png"
    inside.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16)).astype(np.uint8)
    for path in (inside / "a.png", outside):
        Image.fromarray(pixels).resize((32, 32)).save(path)
    (inside / "link.png").symlink_to(outside)
    (inside / "same.png").symlink_to("a.png")
    rows = ["a.png", str(outside), "../private.png", "link.png", "same.png", "../data/a.png"]
    (inside / "a.csv").write_text("path,label\n" + "".join(f"{row},0\n" for row in rows))
    data = read_data(inside / "a.csv")
    shown = show_inputs(data, range(6))
    hidden = [card.get("text") == NOT_SHOWN for card in shown]
    assert hidden == [False, True, True, True, False, False]


def test_a_frame_is_drawn_where_it_is() -> None:
    image = Image.new("L", (40, 20), 100)
    drawn = np.asarray(draw_frame(image, np.array([0.25, 0.0, 0.75, 2.0])))
    changed = (drawn != 100).any(axis=2)
    rows, columns = np.nonzero(changed)
    assert (rows.min(), rows.max()) == (0, 19)  # cut off at the edge
    assert (columns.min(), columns.max()) == (10, 30)
    assert not changed[5:15, 15:25].any()
