"""The draws explorer: does the sampler draw what its distribution says, and how fast does the error shrink?"""

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import RLock

import ipywidgets
import plotly.graph_objects as go
import torch
from torch import Tensor

from ..escaping import visible
from ..figures import draws_chart, line_chart
from ..protocol import CausalLM
from ..sampling import SamplingParams
from .context import check_top, given_context, labeller, read_text
from .draws_view import DrawsView, Tally, draws_text, view_of_draws
from .explorer import Explorer
from .plot import Plot, in_rows
from .token_table import bar_scale
from .turns import trouble_of
from .words import Words

REPAINT_S = 0.3  # how often a long run of draws is shown while it goes on
_ROOM = {"margin_t": 90, "height": 380}  # above the plot: a narrow one has its legend in two lines
AMOUNTS = (1, 100, 10_000)
DRAWN, GUIDE = "drawn", "one standard error ∝ 1/√n"


class DrawsExplorer(Explorer):
    """Buttons that draw tokens, and pictures of what came: bars beside the exact distribution, and the error over n.

    ``DrawsExplorer(lm, prompt=…)`` draws what follows a text, ``DrawsExplorer(logits=…, labels=…)`` from given logits
    (d_vocab,). ``params`` are the settings; set ``explorer.params`` to begin again with others. ``sampler`` takes the
    place of our ``sample`` and is called as ``sampler(logits, params, prompt=…, generated=…, generator=…)`` on rows
    (n, d_vocab), to return ids (n,): a learner's own, or one that is wrong on purpose. Bars are drawn for the ``top``
    most probable tokens and one for all others. Equal seeds give equal draws.

    From the next cell: ``explorer.draw(1000)``, ``explorer.reset()``. ``view`` is what is shown, ``sentence`` the same
    in words, ``error`` what went wrong.

    Raises ``ValueError`` unless exactly one of ``lm`` and ``logits`` is given, for logits that have no softmax, and for
    labels that do not fit them.
    """

    def __init__(
        self,
        lm: CausalLM | None = None,
        *,
        prompt: str = "To be or not to be, that is the",
        logits: Tensor | Sequence[float] | None = None,
        labels: Sequence[str] | None = None,
        params: SamplingParams = SamplingParams(),
        sampler: Callable | None = None,
        top: int = 10,
        seed: int = 0,
    ):
        if (lm is None) == (logits is None):
            raise ValueError("DrawsExplorer needs a language model or logits, and not both")
        check_top(top)
        self._context = read_text(lm, prompt) if lm is not None else given_context(logits)
        self._label = lru_cache(maxsize=None)(
            labeller(lm.label if lm is not None else labels, len(self._context.logits))
        )
        self._params, self._sampler, self._top, self._seed = params, sampler, top, seed
        # Callbacks come on the page's thread and on that of a running cell, also at once.
        self._lock = RLock()
        self._tally = self._new_tally(params)
        self.view = view_of_draws(self._tally, self._label, top)
        self._build()
        self._show()

    # What is shown -------------------------------------------------------------------------------------------------

    @property
    def params(self) -> SamplingParams:
        """The settings; set them to begin again with others."""
        return self._params

    @params.setter
    def params(self, params: SamplingParams) -> None:
        with self._lock:
            self._tally, self._params = self._new_tally(params), params
            self._show()

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: SamplingParams, draws: int = 1000) -> DrawsView:
        """Return what the explorer would show after so many draws from the start; changes nothing."""
        tally = self._new_tally(params)
        for _ in tally.draw(draws):
            pass
        return view_of_draws(tally, self._label, self._top)

    def draw(self, n: int = 1) -> None:
        """Draw n more tokens, and show them while they come. A learner's sampler that raises is shown, not raised."""
        with self._lock:
            self._busy(True)
            try:
                self._show(trouble_of(lambda: self._run(n)))
            finally:  # an interrupt can come here too
                self._busy(False)

    def reset(self) -> None:
        """Forget all draws and begin again with the same seed."""
        self.params = self._params

    def _run(self, n: int) -> None:
        painted = time.monotonic()
        for _left in self._tally.draw(n):
            if time.monotonic() - painted > REPAINT_S:
                self._show()
                painted = time.monotonic()

    @torch.no_grad()
    def _new_tally(self, params: SamplingParams) -> Tally:
        return Tally(self._context, params, self._seed, self._sampler)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.buttons = {n: _button(f"draw {n:,}{' more' if n > 1 else ''}") for n in AMOUNTS}
        for n, button in self.buttons.items():
            button.on_click(lambda _button, n=n: self.draw(n))
        self.reset_button = _button("reset")
        self.reset_button.on_click(lambda _button: self.reset())
        self.words = Words()
        self.histogram = Plot(_histogram(self.view))
        self.curve = Plot(_curve(self.view))
        row = ipywidgets.HBox([*self.buttons.values(), self.reset_button])
        row.layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
        super().__init__([row, self.words, in_rows(self.histogram, self.curve)])
        self.layout = ipywidgets.Layout(max_width="1100px", overflow="visible")

    def _busy(self, busy: bool) -> None:
        self.words.busy = busy
        for button in (*self.buttons.values(), self.reset_button):
            button.disabled = busy

    def _show(self, trouble: str = "") -> None:
        view = self.view = view_of_draws(self._tally, self._label, self._top)
        self.histogram.show(_histogram(view))
        self.curve.show(_curve(view))
        with self.words.hold_sync():
            self.words.error, self.words.sentence, self.words.readouts = trouble, view.sentence, view.readouts


def _histogram(view: DrawsView) -> go.Figure:
    figure = draws_chart(view.labels, list(view.expected), list(view.observed), view.n)
    if view.n == 0:
        figure.update_traces(error_y_array=[0] * len(view.labels), selector={"type": "scatter"})
    figure.update_layout(title_text=f"Share of each token after {draws_text(view.n)}", **_ROOM)
    figure.update_traces(hoverinfo="y")
    figure.update_xaxes(tickangle=-35, ticklabeloverflow="allow")
    # Slanted labels reach down, a long token's further than others: room for them above the axis's title.
    below = max(80, 45 + 5 * max(len(visible(label)) for label in view.labels))
    figure.update_layout(margin_b=below, height=_ROOM["height"] + below - 80)
    # Steps, so that the axis rests while the bars move.
    full = bar_scale(1.1 * max(*view.expected, *view.observed))
    figure.update_yaxes(range=[0, 100 * full])
    return figure


def _curve(view: DrawsView) -> go.Figure:
    points = [*view.history, *([(view.n, view.error)] if view.n else [])]
    last = max(4, math.ceil(math.log10(max(view.n, 1))))  # the axis grows by whole powers of ten
    x = [1.0, *(n for n, _ in points), 10.0**last]
    guide = [100 * view.deviation / math.sqrt(n) for n in x]
    # A logarithmic axis has no place for an error of 0.
    errors = [100 * error if error > 0 else math.nan for _, error in points]
    figure = line_chart(
        x,
        {DRAWN: [math.nan, *errors, math.nan], GUIDE: guide},
        title="Largest difference from the exact share",
        x_title="draws n",
        y_title="difference (% of the draws)",
        log_x=True,
        log_y=True,
        markers=True,
    )
    figure.update_layout(**_ROOM)
    figure.update_traces(mode="lines", selector={"name": GUIDE})
    figure.update_xaxes(range=[-0.06, last], dtick=1)
    figure.update_yaxes(range=[math.log10(max(guide[-1], 1e-6)) - 0.7, 2.1], dtick=1)
    return figure


def _button(name: str) -> ipywidgets.Button:
    button = ipywidgets.Button(description=name)
    button.layout.width = "auto"
    return button
