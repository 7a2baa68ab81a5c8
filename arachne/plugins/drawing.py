"""Which function of `arachne.report` draws a value, as plain text or as HTML for a notebook.

A value that people look at derives from `Drawable` and knows nothing of drawing. The functions are named here and
imported when a value is shown.
"""

from __future__ import annotations

from importlib import import_module

from arachne.text import Brief

HTML = {
    "Cause": "arachne.report.notebook:cause_html",
    "Evidence": "arachne.report.notebook:result_html",
    "Flips": "arachne.report.notebook:flips_html",
    "LabelledData": "arachne.report.notebook:data_html",
    "Localisation": "arachne.report.notebook:localisation_html",
    "Patch": "arachne.report.patch_text:as_html",
    "Scan": "arachne.report.notebook:scan_html",
    "Survival": "arachne.report.notebook:survival_html",
}
TEXT = {
    "Patch": "arachne.report.patch_text:as_text",
    "Scan": "arachne.report.terminal:scan_text",
}


class Drawable(Brief):
    """A value that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return draw(self, HTML)


def draw(value: object, table: dict[str, str]) -> str:
    """Draw a value with the function that a table names for its class."""
    module, _, name = table[type(value).__name__].partition(":")
    return str(getattr(import_module(module), name)(value))
