"""The stages of the pipeline as cards that are dragged or moved by buttons, with each stage's setting in its card."""

from collections.abc import Mapping, Sequence

import anywidget
import traitlets

from ..sampling import Stage
from .controls import MIN_P_STOPS, MOST_K, SCALES, k_stops
from .pipeline_view import StageView
from .words import shared_css, shared_js

TITLES = {
    "temperature": "temperature",
    "top_k": "top-k (0 = off)",
    "top_p": "top-p (1 = off)",
    "min_p": "min-p (0 = off)",
    "repetition_penalty": "repetition (1 = off)",
    "presence_penalty": "presence (0 = off)",
    "frequency_penalty": "frequency (0 = off)",
}


class StageCards(anywidget.AnyWidget):
    """One card a stage. The page writes ``order`` (names of the cards, the first stage first) and ``values`` (settings
    by stage name); both can also be set from Python. Every text is shown as text, never as markup.

    ``cards`` says once how each card looks, by name: its ``title``, a ``note`` for a stage without a setting, and the
    scale of its slider. ``shown`` is what each stage does now: ``{name: {"text", "share", "off"}}``.
    """

    _esm = shared_js("stage_cards.js")
    _css = shared_css("stage_cards.css")

    cards = traitlets.Dict().tag(sync=True)
    order = traitlets.List(traitlets.Unicode()).tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)
    start = traitlets.Unicode().tag(sync=True)  # the line above the first card
    end = traitlets.Unicode().tag(sync=True)  # the line below the last one
    stale = traitlets.Bool(False).tag(sync=True)

    @traitlets.validate("order")
    def _permuted(self, proposal) -> list[str]:
        if sorted(proposal.value) != sorted(self.cards):
            raise traitlets.TraitError(
                f"order must name each of {list(self.cards)} once, got {list(proposal.value)}"
            )
        return list(proposal.value)

    def show(self, stages: Sequence[StageView], d_vocab: int, kept: int) -> None:
        """Show what the stages do, in one message."""
        with self.hold_sync():
            self.shown = {
                view.name: {"text": view.text, "share": view.kept_mass, "off": not view.active}
                for view in stages
            }
            self.start = f"The model's logits: {d_vocab:,} tokens"
            self.end = (
                f"One of {kept:,} tokens is drawn" if kept > 1 else "One token is left: nothing is random"
            )
            self.stale = False


def describe_cards(stages: Mapping[str, Stage], d_vocab: int) -> dict[str, dict]:
    """Return what ``StageCards.cards`` holds for these stages, by name."""
    return {name: _describe(name, stage, d_vocab) for name, stage in stages.items()}


def _describe(name: str, stage: Stage, d_vocab: int) -> dict:
    if callable(stage):
        first_line = (stage.__doc__ or "A stage of your own.").strip().splitlines()[0]
        return {"title": name, "note": first_line}
    if name == "top_k":
        scale = {"stops": k_stops(d_vocab), "off_at_end": True, "step": 1, "limits": [0, MOST_K]}
    elif name == "min_p":
        scale = {"stops": MIN_P_STOPS, "step": 0.01, "limits": [0.0, 1.0]}
    else:
        scale = dict(zip(("ends", "step", "limits"), SCALES[name], strict=True))
    return {"title": TITLES[name], **scale}
