"""The table of candidates that follows the sliders: a real HTML table, drawn by a small script of our own."""

import anywidget
import traitlets

from ..escaping import visible
from ..tokens import clean
from .words import shared_css, shared_js

OLD_ROWS = "These rows are from the last time that all worked."


class TokenTable(anywidget.AnyWidget):
    """Rows of tokens with their probability before and after the settings, and the words around them.

    ``rows`` is a list of dicts ``{"rank", "token_id", "label", "raw", "final", "raw_text", "final_text", "kept",
    "drawn"}``: probabilities as numbers, which give the bars their length, and as the text that stands beside them.
    ``scale`` is the probability of a full bar. Every text is shown as text, never as markup.

    Set several traits inside ``with table.hold_sync():`` and one message carries them, so that the page never shows
    new rows beside old words.
    """

    _esm = shared_js("token_table.js")
    _css = shared_css()

    rows = traitlets.List().tag(sync=True)
    scale = traitlets.Float(1.0).tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    sentence = traitlets.Unicode().tag(
        sync=True
    )  # what the rows show, in words; read aloud when it has settled
    readouts = traitlets.List().tag(sync=True)  # pairs [name, figure]
    status = traitlets.Unicode().tag(sync=True)  # what the rows are about
    draw = traitlets.Unicode().tag(sync=True)  # the last draw, in words
    error = traitlets.Unicode().tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)  # the rows are older than the error

    @traitlets.validate("error")
    def _sendable(self, proposal) -> str:
        # It may repeat what a learner's code said; half a surrogate pair in it would be carried by no message.
        return clean(proposal.value)


def percent(probability: float) -> str:
    """Return a probability as a percentage that never rounds to a lie: only 1 is "100.00 %", only 0 is "0 %"."""
    if probability == 0:
        return "0 %"
    if probability < 1e-6:
        return "< 0.0001 %"
    if probability < 0.001:
        return f"{probability:.4%}".replace("%", " %")
    if 0.99995 <= probability < 1:
        return "> 99.99 %"
    return f"{probability:.2%}".replace("%", " %")


def quoted(label: str) -> str:
    """Return a label in quotation marks, or in brackets if it has such marks itself: “"” says nothing."""
    return f"[{label}]" if set(label) & set('“”"') else f"“{label}”"


def bar_scale(largest: float) -> float:
    """Return the probability of a full bar: the next of 1, 2, 5, 10, 20, 50 … that the largest one fits in.

    Steps, because a scale that followed the largest bar exactly would move every other bar with it.
    """
    for exponent in range(-12, 1):
        for mantissa in (1, 2, 5):
            scale = mantissa * 10.0**exponent
            if scale >= min(largest, 1.0):
                return min(scale, 1.0)
    return 1.0


def printable(label: str) -> str:
    """Return a label of which every character can be seen, as ``escaping.visible`` makes it, and never an empty one."""
    return visible(label) or "''"
