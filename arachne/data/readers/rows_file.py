"""Read row numbers from a file: one per line, or the column `row` of a csv."""

from __future__ import annotations

import csv
from pathlib import Path

from arachne.errors import DataError
from arachne.io.reading import parse_errors_as, read_text

MAX_FILE_BYTES = 256 << 20
"""The largest file of row numbers."""

MAX_DIGITS = 20
"""The most digits of a row number."""


def read_rows(path: Path, n: int) -> tuple[int, ...]:
    """Read the row numbers in a file, sorted and without duplicates.

    Args:
        path: A text file with one number per line, or a csv with a column `row`; a header is allowed.
        n: How many rows the data has; the first is 0.

    Raises:
        DataError: The file cannot be read, or holds no rows, something other than numbers, or rows outside the data.
    """
    text = read_text(path, "rows file", MAX_FILE_BYTES, DataError)
    with parse_errors_as(f"the rows file '{path}'", DataError):
        lines = list(csv.reader(text.splitlines()))
    numbered = [(number, cells) for number, cells in enumerate(lines, start=1) if any(cell.strip() for cell in cells)]
    if not numbered:
        raise DataError(f"the rows file '{path}' is empty")
    column = 0
    header = [cell.strip() for cell in numbered[0][1]]
    if "row" in header:
        column = header.index("row")
        numbered = numbered[1:]
    elif len(header) > 1:
        raise DataError(f"the rows file '{path}' has {len(header)} columns, but none named 'row'")
    elif not header[0].lstrip("-").isdecimal():
        numbered = numbered[1:]
    if not numbered:
        raise DataError(f"the rows file '{path}' has a header but no rows")
    return tuple(sorted({_row(path, number, cells, column, n) for number, cells in numbered}))


def _row(path: Path, number: int, cells: list[str], column: int, n: int) -> int:
    text = cells[column].strip() if column < len(cells) else ""
    if not (text.lstrip("-").isdecimal() and text.isascii()) or len(text) > MAX_DIGITS:
        raise DataError(f"line {number} of the rows file '{path}' has '{text[:40]}', expected a row number")
    row = int(text)
    if not 0 <= row < n:
        raise DataError(f"line {number} of the rows file '{path}' has row {row}, but the data has rows 0 to {n - 1}")
    return row
