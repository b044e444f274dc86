"""The bars of the softmax explorer: logits to drag, and the probabilities that follow."""

import math

import anywidget
import traitlets

from .words import shared_css, shared_js

LIMIT = 2000.0


class SoftmaxBars(anywidget.AnyWidget):
    """A table with a draggable bar, a number box and a mark "said" for each token, and its probabilities beside it.

    ``values`` (the logits) and ``said`` are moved by the learner or set from code, one entry a row. ``rows`` is a list
    of dicts ``{"label", "token_id", "exponent", "stable", "mark", "stable_text", "naive_text", "naive_ok"}``:
    ``stable`` and ``mark`` are lengths between 0 and 1, ``naive_ok`` says whether the naive form comes to the same,
    the rest are texts. The bars of ``values`` run from ``low`` to ``high``; a box takes any number up to ±2,000.
    Every text is shown as text, never as markup.
    """

    _esm = shared_js("softmax_bars.js")
    _css = shared_css("softmax_bars.css")

    # Not echoed: the page would be told what it said a moment ago, and a dragged bar would jump back.
    values = traitlets.List(traitlets.Float()).tag(sync=True, echo_update=False)
    said = traitlets.List(traitlets.Bool()).tag(sync=True, echo_update=False)
    rows = traitlets.List().tag(sync=True)
    low = traitlets.Float(-5.0).tag(sync=True)
    high = traitlets.Float(10.0).tag(sync=True)
    ticks = traitlets.List().tag(sync=True)  # two texts: the start and the end of a probability bar
    caption = traitlets.Unicode().tag(sync=True)

    @traitlets.validate("values")
    def _in_range(self, proposal) -> list[float]:
        for value in proposal.value:
            if not (math.isfinite(value) and abs(value) <= LIMIT):
                raise traitlets.TraitError(f"a logit must be in [{-LIMIT:g}, {LIMIT:g}], got {value!r}")
        return self._as_many(proposal.value, "values")

    @traitlets.validate("said")
    def _one_a_row(self, proposal) -> list[bool]:
        return self._as_many(proposal.value, "said")

    def _as_many(self, new: list, name: str) -> list:
        if self.rows and len(new) != len(self.rows):
            raise traitlets.TraitError(f"{name} must have {len(self.rows)} entries, got {len(new)}")
        return new
