"""The table of tokens under two orders of the pipeline: a real HTML table, drawn by a small script of our own."""

from dataclasses import asdict

import anywidget
import traitlets

from .pipeline_view import Fate, PipelineView
from .token_table import percent
from .words import shared_css, shared_js


class FateTable(anywidget.AnyWidget):
    """Rows of tokens, kept or dropped by the learner's order and by another one; text is shown as text.

    ``rows`` is a list of dicts ``{"rank", "token_id", "label", "raw", "raw_text", "here", "there", "fate"}``; ``raw``
    is a number, ``here`` and ``there`` are the texts of the two columns, ``fate`` says in words who keeps the token, ""
    where both orders agree.
    """

    _esm = shared_js("fate_table.js")
    _css = shared_css("fate_table.css")

    rows = traitlets.List().tag(sync=True)
    other = traitlets.Unicode().tag(sync=True)  # the name of the other order
    caption = traitlets.Unicode().tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)  # an error stands in the way of new rows

    def show(self, view: PipelineView) -> None:
        """Show a view's rows, in one message."""
        with self.hold_sync():
            self.rows = [_row(fate, view.other) for fate in view.fates]
            self.other, self.caption, self.stale = view.other, view.caption, False


def _row(fate: Fate, other: str) -> dict:
    words = ""
    if fate.changed:
        words = (
            f"kept by your order, dropped by {other}"
            if fate.there is None
            else f"dropped by your order, kept by {other}"
        )
    texts = {"here": _column(fate.here), "there": _column(fate.there), "raw_text": percent(fate.raw)}
    return {**asdict(fate), **texts, "fate": words}


def _column(probability: float | None) -> str:
    return "✕ dropped" if probability is None else f"✔ {percent(probability)}"
