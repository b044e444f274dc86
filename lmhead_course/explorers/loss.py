"""The loss explorer: drag the true token's logit and ε, see the loss, its gradient, and what ε does to confidence."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import ipywidgets
import plotly.graph_objects as go
import torch
from torch import Tensor

from ..calibration import Predictions
from ..figures import gradient_bars, loss_curve, reliability_chart
from ..toy import LABELS, toy_logits
from .context import bounded_logits, check_top, labeller
from .controls import LinearSlider, SliderNames
from .explorer import UpdatingExplorer
from .loss_view import CURVE, LossParams, LossView, view_of_loss
from .plot import Plot, in_rows
from .words import Words

LIMIT = 1000.0
HIGHEST = 14.0
"""Nats at the top of the loss picture: the axis rests while the curve moves."""


class LossExplorer(UpdatingExplorer):
    """The loss of one prediction under your fingers; the last line of a cell shows it.

    ``logits`` (d_vocab,) are the toy's unless given, ``labels`` one text a token or a function of the token id such as
    ``lm.label``. The ``top`` largest and the true token are shown, all others count as one row. ``predictions``
    (from ``calibration.predictions``) add a reliability picture: what ε makes of the model's trust in itself.

    Controls are attributes with a trait ``value``: ``target`` (the id of the token that came), ``logit`` (its logit)
    and ``epsilon``. ``view`` is what is shown, ``sentence`` says it in words, ``error`` what went wrong.

    Raises ``ValueError`` for logits that have no softmax or are not finite, for labels that do not fit them, and for a
    target that is no token.
    """

    def __init__(
        self,
        logits: Tensor | Sequence[float] | None = None,
        labels: Sequence[str] | Callable[[int], str] | None = None,
        *,
        target: int | None = None,
        epsilon: float = 0.0,
        predictions: Predictions | None = None,
        top: int = 6,
    ):
        if logits is None:
            logits, labels = toy_logits(), labels if labels is not None else LABELS
        check_top(top)
        self._logits = bounded_logits(logits, LIMIT)
        d_vocab = len(self._logits)
        target = int(self._logits.argmax()) if target is None else target
        if not 0 <= target < d_vocab:
            raise ValueError(f"target must be in [0, {d_vocab}), got {target}")
        self._label = lru_cache(maxsize=None)(labeller(labels, d_vocab))
        self._shown, self._predictions = _shown(self._logits, target, top), predictions
        self._start = LossParams(target, self._own_logit(target), epsilon)
        self.view: LossView = self.compute(self._start)
        self._build()
        self._listen()
        self._refresh()

    # What is shown -------------------------------------------------------------------------------------------------

    @property
    def params(self) -> LossParams:
        """The current settings; set them to move every control at once."""
        return LossParams(self.target.value, self.logit.value, self.epsilon.value)

    @params.setter
    def params(self, params: LossParams) -> None:
        if params.target not in self._shown:
            raise ValueError(f"target must be one of the tokens shown, {self._shown}, got {params.target!r}")
        with self._together():
            self.target.value = params.target
            self.logit.put(params.logit)
            self.epsilon.put(params.epsilon)

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: LossParams) -> LossView:
        """Return everything that the explorer would show for these settings; changes nothing."""
        return view_of_loss(self._logits, params, self._shown, self._label, self._predictions)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        start = self._start
        self.target = ipywidgets.Dropdown(
            options=[(self._label(token), token) for token in self._shown],
            value=start.target,
            description="true token",
            style={"description_width": "8.6em"},
            layout=ipywidgets.Layout(width="20em", max_width="100%"),
        )
        self.logit = LinearSlider("its logit", start.logit, CURVE, 0.1, (-LIMIT, LIMIT))
        self.epsilon = LinearSlider("smoothing ε", start.epsilon, (0.0, 0.5), 0.01, (0.0, 0.99))
        self.reset_button = ipywidgets.Button(description="reset", tooltip="back to the first settings")
        self.reset_button.layout = ipywidgets.Layout(width="6em")
        first = ipywidgets.HBox([self.target, self.reset_button])
        first.layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
        panel = ipywidgets.VBox([first, self.logit, self.epsilon, SliderNames()])
        panel.layout = ipywidgets.Layout(max_width="640px", overflow="visible")
        panel.add_class("lmhead-controls")
        self.words = Words()
        pictures = _pictures(self.view)
        if self._predictions is not None:
            pictures.append(_reliability(self.view))
        self.plots = [Plot(figure) for figure in pictures]
        super().__init__([panel, self.words, in_rows(*self.plots)])
        self.add_class("lmhead-loss")
        self.layout = ipywidgets.Layout(max_width="1100px", overflow="visible")

    def _listen(self) -> None:
        self.target.observe(self._picked, "value")
        for control in (self.logit, self.epsilon):
            control.observe(self._refresh, "value")
        self.reset_button.on_click(self._reset)

    # Callbacks: nothing may leave them, since what they print or raise lands in a log that no learner reads -----------

    def _picked(self, change) -> None:
        """Another token came: its logit is the model's own again, and so is the former one's."""
        if not self._moving:
            self.params = LossParams(change.new, self._own_logit(change.new), self.epsilon.value)

    def _own_logit(self, token: int) -> float:
        # Rounded: a float32 shows as 1.2000000476837158 in the box.
        return round(self._logits[token].item(), 4)

    def _reset(self, _button=None) -> None:
        self.params = self._start

    def _show(self, view: LossView) -> None:
        former, self.view = self.view, view
        for plot, figure in zip(self.plots, _pictures(view), strict=False):
            plot.show(figure)
        if view.after is not None and former.params.epsilon != view.params.epsilon:
            self.plots[-1].show(_reliability(view))
        with self.words.hold_sync():
            self.words.sentence, self.words.readouts = view.sentence, view.readouts


def _pictures(view: LossView) -> list[go.Figure]:
    epsilon, (low, high) = view.params.epsilon, CURVE
    curves = {"−ln p": list(view.curve_plain)}
    if epsilon:
        curves = {f"against q, ε = {epsilon:g}": list(view.curve)} | curves
    point = min(max(view.params.logit, low), high), view.loss
    curve = loss_curve(
        list(view.curve_x), curves, point, view.true.gradient, title="Loss over the true token's logit"
    )
    curve.update_xaxes(range=[low, high])
    curve.update_yaxes(range=[-0.6, HIGHEST])
    curve.update_layout(height=400)
    labels = [row.label for row in view.rows]
    bars = gradient_bars(
        labels,
        [row.p for row in view.rows],
        [row.q for row in view.rows],
        title="What is, and what is asked for",
    )
    return [curve, bars]


def _reliability(view: LossView) -> go.Figure:
    parts = {"ε = 0": view.before}
    if view.params.epsilon:
        parts[f"ε = {view.params.epsilon:g}"] = view.after
    series = {name: (part.confidence, part.accuracy, part.counts) for name, part in parts.items()}
    return reliability_chart(series, title="Sure, and right? One point a bin of confidence")


def _shown(logits: Tensor, target: int, top: int) -> list[int]:
    order = logits.argsort(descending=True, stable=True)[:top].tolist()
    if target not in order:
        order = [*order[: top - 1], target]
    # A handful of words stays in its own order; of a vocabulary the best come first.
    return sorted(order) if len(logits) <= top else order
