"""The softmax explorer: logits as bars to drag, and what two ways of computing make of them."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import ipywidgets
import torch
from torch import Tensor

from ..toy import LABELS, toy_logits
from .context import bounded_logits, check_top, labeller
from .controls import LinearSlider, SliderNames
from .explorer import UpdatingExplorer
from .softmax_bars import LIMIT, SoftmaxBars
from .softmax_view import FORMATS, SoftmaxParams, SoftmaxRow, SoftmaxView, view_of
from .token_table import percent
from .words import Words

DEFAULTS = SoftmaxParams()
DECADES = 8
"""The logarithmic scale begins at 10 to the power −8."""


class SoftmaxExplorer(UpdatingExplorer):
    """Draggable logits, and their softmax: naive and stable, in three number formats; the last line of a cell shows it.

    ``logits`` (d_vocab,) are the toy's unless given; the ``top`` largest become bars, all others stay as they are and
    count in every sum. ``labels`` is one text a token, or a function of the token id such as ``lm.label``.

    Controls are attributes with a trait ``value``: ``temperature``, ``constant`` (added to every logit), ``penalty``
    (the repetition penalty of the tokens marked as said), ``dtype`` ("float32", "float16", "bfloat16") and ``scale``
    ("linear" or "log"). ``bars.values`` and ``bars.said`` are the logits and the marks, one a row. ``view`` is what is
    shown, ``sentence`` says it in words.

    Raises ``ValueError`` for logits that have no softmax, or labels that do not fit them.
    """

    def __init__(
        self,
        logits: Tensor | Sequence[float] | None = None,
        labels: Sequence[str] | Callable[[int], str] | None = None,
        *,
        params: SoftmaxParams = DEFAULTS,
        top: int = 10,
    ):
        if logits is None:
            logits, labels = toy_logits(), labels if labels is not None else LABELS
        check_top(top)
        self._logits = bounded_logits(logits, LIMIT)
        self._label = lru_cache(maxsize=None)(labeller(labels, len(self._logits)))
        order = self._logits.argsort(descending=True, stable=True)[:top].tolist()
        # A handful of words stays in its own order; of a vocabulary the best come first.
        self._shown = sorted(order) if len(self._logits) <= top else order
        self._start = (params, self._logits[self._shown].tolist(), [i in params.said for i in self._shown])
        self.view: SoftmaxView | None = None
        self._build(params)
        self._listen()
        self._refresh()

    # What is shown -------------------------------------------------------------------------------------------------

    @property
    def params(self) -> SoftmaxParams:
        """The current settings; set them to move every control at once."""
        said = tuple(token for token, mark in zip(self._shown, self.bars.said, strict=True) if mark)
        values = {name: getattr(self, name).value for name in ("temperature", "constant", "penalty", "dtype")}
        return SoftmaxParams(**values, said=said)

    @params.setter
    def params(self, params: SoftmaxParams) -> None:
        with self._together():
            self._set(params)

    def _set(self, params: SoftmaxParams) -> None:
        for name in ("temperature", "constant", "penalty"):
            getattr(self, name).put(getattr(params, name))
        self.dtype.value = params.dtype
        self.bars.said = [token in params.said for token in self._shown]

    @property
    def logits(self) -> Tensor:
        """The logits (d_vocab,) with the bars where they stand now, float32."""
        logits = self._logits.clone()
        logits[self._shown] = torch.tensor(self.bars.values)
        return logits

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: SoftmaxParams) -> SoftmaxView:
        """Return everything that the explorer shows for these settings and the current logits; changes nothing."""
        return view_of(self.logits, params, self._shown, self._label)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self, params: SoftmaxParams) -> None:
        self.temperature = LinearSlider("temperature T", params.temperature, (0.1, 5.0), 0.05, (0.01, 1000.0))
        self.constant = LinearSlider("add to all: c", params.constant, (-120.0, 120.0), 1.0, (-LIMIT, LIMIT))
        self.penalty = LinearSlider("penalty θ", params.penalty, (0.5, 2.0), 0.05, (0.01, 100.0))
        self.dtype = _choice("number format", list(FORMATS), params.dtype)
        self.scale = _choice("bars", ["linear", "log"], "linear")
        self.reset_button = ipywidgets.Button(
            description="reset", tooltip="back to the first logits and settings"
        )
        self.reset_button.layout = ipywidgets.Layout(width="6em")
        _, values, said = self._start
        self.bars = SoftmaxBars(values=values, said=said)
        self.bars.low, self.bars.high = _ends(values)
        self.words = Words()
        sliders = [self.temperature, self.constant, self.penalty]
        for slider in sliders:
            slider.layout.flex, slider.layout.min_width = "1 1 330px", "0"
        choices = ipywidgets.HBox([self.dtype, self.scale, self.reset_button])
        choices.layout = ipywidgets.Layout(flex="1 1 330px", flex_flow="row wrap", overflow="visible")
        panel = ipywidgets.HBox([*sliders, choices, SliderNames()])
        panel.layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
        panel.add_class("lmhead-controls")
        super().__init__([panel, self.bars, self.words])
        self.layout = ipywidgets.Layout(max_width="1000px", overflow="visible")

    def _listen(self) -> None:
        for control in (self.temperature, self.constant, self.penalty, self.dtype, self.scale):
            control.observe(self._refresh, "value")
        self.bars.observe(self._refresh, ["values", "said"])
        self.reset_button.on_click(self._reset)

    # Callbacks: nothing may leave them, since what they print or raise lands in a log that no learner reads -----------

    def _reset(self, _button=None) -> None:
        params, values, _ = self._start
        with self._together():
            self.bars.values = list(values)
            self._set(params)

    def _show(self, view: SoftmaxView) -> None:
        self.view = view
        log = self.scale.value == "log"
        with self.bars.hold_sync():  # one message, so that the page never shows a mixture
            self.bars.rows = [_line(row, log) for row in view.rows]
            self.bars.ticks = ["10⁻⁸", "1"] if log else ["0", "100 %"]
            self.bars.caption = self._caption(log)
        with self.words.hold_sync():
            self.words.sentence, self.words.readouts = view.sentence, view.readouts

    def _caption(self, log: bool) -> str:
        count, d_vocab = len(self._shown), len(self._logits)
        who = f"All {count} tokens" if count == d_vocab else f"The {count} largest of {d_vocab:,} logits"
        how = "logarithmic" if log else "linear"
        stroke = "The upright stroke in a bar: where it ends without c."
        return f"{who}; probability bars {how}. {stroke} Said: the penalty counts it."


def _choice(name: str, options: list[str], value: str) -> ipywidgets.Dropdown:
    width = 6.2 + 0.62 * len(name)
    return ipywidgets.Dropdown(
        options=options,
        value=value,
        description=name,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width=f"{width:.1f}em"),
    )


def _ends(values: list[float]) -> tuple[float, float]:
    """Return where the bars begin and end: room on both sides, and always zero."""
    low, high = min(values), max(values)
    room = max(4.0, 0.4 * (high - low))
    return float(math.floor(min(low - room, -2.0))), float(math.ceil(max(high + room, 2.0)))


def _line(row: SoftmaxRow, log: bool) -> dict:
    return {
        "label": row.label,
        "token_id": row.token_id,
        "exponent": f"{'= ' if row.tied else ''}{_number(row.exponent)}",
        "stable": _length(row.stable, log),
        "mark": _length(row.without, log),
        "stable_text": _share(row.stable),
        "naive_text": _share(row.naive),
        "naive_ok": math.isfinite(row.naive) and math.isclose(row.naive, row.stable, rel_tol=0.05),
    }


def _length(probability: float, log: bool) -> float:
    if not probability > 0:  # NaN too
        return 0.0
    length = 1 + math.log10(probability) / DECADES if log else probability
    return min(max(length, 0.0), 1.0)


def _share(probability: float) -> str:
    return percent(probability) if math.isfinite(probability) else _number(probability)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if not math.isfinite(value):
        return "inf" if value > 0 else "−inf"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.2f}"
