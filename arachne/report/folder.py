"""The files beside the patch that people read: the page, the card, the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arachne.errors import InputError, ModelError
from arachne.files import atomic_write, read_object
from arachne.manifest import MANIFEST
from arachne.reading import foreign
from arachne.report.card import model_card
from arachne.report.html import render
from arachne.report.hub import hub_card
from arachne.report.json import dumps
from arachne.report.records import history_csv
from arachne.values import Description

if TYPE_CHECKING:
    from arachne.patch import Patch
    from arachne.search.state import SearchResult

PAGE, PAGE_DATA, CARD, HISTORY = "report.html", "report.json", "MODEL_CARD.md", "history.csv"
NAMES = (PAGE, PAGE_DATA, CARD, HISTORY, MANIFEST, "patch.json", "patch.safetensors", "result.json", "front.npz")
"""What the files of a repair's folder are called, apart from the model."""


def check_names(described: Description, model: str) -> None:
    """Refuse a model whose other files would lie in a repair's folder under names that are taken.

    Args:
        described: The model.
        model: What its own file will be called there.

    Raises:
        ModelError: One of them has such a name.
    """
    taken = {name.casefold() for name in (*NAMES, model)}
    for name in described.beside:
        if Path(name).parts[0].casefold() in taken:
            raise ModelError(
                f"the model keeps weights in '{name}' beside it, the name of another file of a repair; give that file "
                "another name and save the model anew"
            )


def write_report(
    folder: Path, page: Mapping[str, Any], patch: Patch, search: SearchResult, description: Description
) -> None:
    """Write the page, what it is made from, the model card and the history of the search."""
    atomic_write(folder / PAGE_DATA, (dumps(page) + "\n").encode())
    atomic_write(folder / PAGE, render(page).encode())
    card = model_card(page["result"], patch, description, command=page["command"])
    atomic_write(folder / CARD, card.encode())
    atomic_write(folder / HISTORY, history_csv(search.history).encode())


def read_page(folder: Path) -> dict[str, Any]:
    """The page's content from a repair's folder.

    Raises:
        InputError: The folder has none, or something else under its name.
    """
    return read_object(folder / PAGE_DATA, "report")


def page_again(folder: Path) -> str:
    """The page of a repair's folder, made again from what lies there, which anybody may have written.

    Raises:
        InputError: The folder has no report, or something else under its name.
    """
    page = read_page(folder)
    with foreign(f"'{folder / PAGE_DATA}' as a report", InputError):
        return render(page)


def card_for_hub(folder: Path, entries: Sequence[str]) -> str:
    """The card of a repair's folder with the metadata that the Hugging Face Hub reads.

    Args:
        folder: Where the repair was saved.
        entries: Further metadata, each `KEY=VALUE`.

    Raises:
        InputError: The folder has no card or report, or something else under their names.
        UsageError: An entry of another form.
    """
    page = read_page(folder)
    if not (folder / CARD).is_file():
        raise InputError(f"'{folder}' has no {CARD}; expected a folder that a repair was saved to")
    with foreign(f"'{folder / PAGE_DATA}' as a report", InputError):
        return hub_card((folder / CARD).read_text(encoding="utf-8"), page, entries)
