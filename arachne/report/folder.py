"""The files beside the patch that people read: the page, the card, the history."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arachne.errors import EnvironmentFaultError, InputError, ModelError, UsageError
from arachne.io.files import atomic_write
from arachne.io.folder import Identity, identity
from arachne.io.manifest import MANIFEST, Entries, read_manifest, update_manifest
from arachne.io.moving import put_file
from arachne.io.output_paths import allowed_mode, environment_faults
from arachne.io.readers import hash_file, read_object, read_own
from arachne.io.reading import error_text, parse_errors_as
from arachne.io.working_folder import CHECKPOINTS, COPY, working_folder
from arachne.model.values import Description
from arachne.report.card import model_card
from arachne.report.html import render
from arachne.report.hub import hub_card
from arachne.report.json import dumps
from arachne.report.records import history_csv

if TYPE_CHECKING:
    from arachne.patch import Patch
    from arachne.search.state import SearchResult

PAGE, PAGE_DATA, CARD, HISTORY = "report.html", "report.json", "MODEL_CARD.md", "history.csv"
NAMES = (PAGE, PAGE_DATA, CARD, HISTORY, MANIFEST, "patch.json", "patch.safetensors", "result.json", "front.npz")
"""Names of the files in a repair's folder, apart from the model."""

MAX_CARD_BYTES = 4 << 20
"""A longer model card is none that a repair has written, and is not read."""


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


@contextmanager
def going_on_without(what: str, tell: Callable[[str], object], hint: str = "") -> Iterator[None]:
    """Turn an error while a report is written into a note; the repair continues without that report.

    Args:
        what: What is made in the block, with what happens to it: `the page could not be drawn`.
        tell: Called with the note.
        hint: What to do about it.
    """
    try:
        yield
    except Exception as error:
        tell(f"{what}: {error_text(error)}{f'; {hint}' if hint else ''}")


def write_extras(
    folder: Path,
    result: Mapping[str, Any],
    patch: Patch,
    search: SearchResult,
    description: Description,
    *,
    command: str | None,
    tell: Callable[[str], object],
) -> None:
    """Write the history of the search and the model card, or say why one is not there."""
    with going_on_without(f"{HISTORY} could not be written", tell):
        atomic_write(folder / HISTORY, history_csv(search.history).encode())
    with going_on_without("the model card could not be written", tell):
        atomic_write(folder / CARD, model_card(result, patch, description, command=command).encode())


def write_page(folder: Path, page: Mapping[str, Any], *, named: Path, tell: Callable[[str], object]) -> None:
    """Write the page and its data; one that cannot be written becomes a note.

    Args:
        folder: Where to.
        page: What the page shows.
        named: What the folder is called once it is in its place.
        tell: Called with a note when something cannot be written.
    """
    with going_on_without(f"{PAGE_DATA} could not be written", tell):
        atomic_write(folder / PAGE_DATA, (dumps(page) + "\n").encode())
    with going_on_without("the page could not be drawn", tell, f"`arachne report {named}` tries again"):
        atomic_write(folder / PAGE, render(page).encode())


def read_page(folder: Path) -> dict[str, Any]:
    """The page's content from a repair's folder.

    Raises:
        InputError: The folder has none, or something else under its name.
    """
    return read_object(folder / PAGE_DATA, "report")


def page_again(folder: Path) -> str:
    """Make the page of a repair's folder again from its files, which are not trusted.

    Raises:
        InputError: The folder has no report, or something else under its name.
    """
    page = read_page(folder)
    with parse_errors_as(f"'{folder / PAGE_DATA}' as a report", InputError):
        return render(page)


def replace_page(folder: Path, html: bytes, *, read_from: Identity, force: bool) -> None:
    """Put a page into a repair's folder, and enter it in the manifest.

    Args:
        folder: Where the repair was saved.
        html: The page.
        read_from: Which folder the page was made from; another one that has its name by now is left alone.
        force: Whether a page that somebody has changed may be replaced.

    Raises:
        UsageError: What lies under the page's name is a link, or no page that a run has written.
        EnvironmentFaultError: The folder cannot be written, or a run is replacing it.
    """
    real = folder.resolve()
    with (
        environment_faults(folder / PAGE),
        working_folder(real, wait=True, kept=(CHECKPOINTS,)) as work,
        work.parent.enter(real.name) as held,
        work.make(COPY) as copy,
    ):
        if held.identity != read_from:
            raise EnvironmentFaultError(f"'{folder}' was replaced while its page was drawn; nothing was written")
        found = held.stat(PAGE)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise UsageError(f"'{folder / PAGE}' is a link or no ordinary file, and is not replaced; move it away")
        known = read_manifest(held.path)
        if found is not None and known is not None and not force:
            _check_page(folder / PAGE, hash_file(held, PAGE), known, html)
        copy.write_file(PAGE, html, allowed_mode([folder / PAGE_DATA]))
        put_file(copy, PAGE, held, PAGE, found=None if found is None else identity(found))
        held.sync()
        update_manifest(held.path, PAGE)


def _check_page(path: Path, digest: str, known: Entries, html: bytes) -> None:
    """Refuse to write over a page that somebody has changed since a run made it."""
    if digest not in (known.get(PAGE, {}).get("sha256"), hashlib.sha256(html).hexdigest()):
        raise UsageError(
            f"'{path}' is not the page that a run has written there; move it away, or replace it", argument="replace"
        )


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
    card = read_own(folder / CARD, "model card", MAX_CARD_BYTES)
    with parse_errors_as(f"'{folder / PAGE_DATA}' as a report", InputError):
        return hub_card(card.decode("utf-8"), page, entries)
