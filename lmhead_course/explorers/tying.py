"""The tying explorer: which rows of the two ends get a gradient, by which path, while a tiny model learns."""

from collections.abc import Mapping, Sequence

import ipywidgets
import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from ..escaping import as_html
from ..figures import row_gradients_chart
from ..twins import RowGradients
from .controls import SliderNames, StepSlider, k_stops
from .explorer import UpdatingExplorer
from .plot import Plot
from .token_table import printable
from .tying_view import BOTH, INPUT, OUTPUT, TIED, UNTIED, TyingParams, TyingView, view_of_tying
from .words import Words

HEADER = ("rank", "token", "in the batch", INPUT, OUTPUT, BOTH)


class TyingExplorer(UpdatingExplorer):
    """A picker and two sliders over recorded gradients; display it as the last line of a cell.

    ``tied`` and ``untied`` are lists of ``RowGradients``, one a recorded step, as ``Training.gradients`` keeps them
    (either may be left out). ``counts`` (d_vocab,) says how often each token occurs in the text, which ranks the rows;
    ``labels`` names the tokens.

    Controls are ``model`` ("tied" or "untied"), ``step`` and ``rank``, each with a trait ``value``. ``view`` is what is
    shown, ``sentence`` the same in words, ``error`` what is wrong with the settings. Raises ``ValueError`` without any
    record, or if counts, labels and records are not of one vocabulary.
    """

    def __init__(
        self,
        tied: Sequence[RowGradients] = (),
        untied: Sequence[RowGradients] = (),
        *,
        counts: Tensor,
        labels: Sequence[str],
    ):
        given = {TIED: list(tied), UNTIED: list(untied)}
        self._records = {name: records for name, records in given.items() if records}
        self._labels = [printable(label) for label in labels]
        self._order = torch.as_tensor(counts).argsort(descending=True, stable=True)
        _check(self._records, len(self._order), len(self._labels))
        self._decades = _decades(self._records)
        self._build()
        self.view = self.compute(self.params)
        self.plot = Plot(self._picture(self.view))
        self.children = [*self.children, self._side_by_side()]
        for control in (self.model, self.step, self.rank):
            control.observe(self._refresh, "value")
        self._refresh()

    @property
    def params(self) -> TyingParams:
        """What the controls say now."""
        return TyingParams(self.model.value, self.step.value, self.rank.value)

    def compute(self, params: TyingParams) -> TyingView:
        """Return everything that the explorer would show for these settings; changes nothing."""
        return view_of_tying(params, self._records[params.model], self._order, self._labels)

    @property
    def picture(self) -> go.Figure:
        """What is shown, as a figure that needs no kernel."""
        return self._picture(self.view)

    def _build(self) -> None:
        steps = sorted({record.step for records in self._records.values() for record in records})
        style, layout = {"description_width": "8.6em"}, ipywidgets.Layout(width="18em", max_width="100%")
        self.model = ipywidgets.Dropdown(
            options=list(self._records), description="model", style=style, layout=layout
        )
        self.step = StepSlider("step", steps[0], steps, limit=steps[-1])
        start = min(100, len(self._order))
        self.rank = StepSlider("frequency rank", start, k_stops(len(self._order)), limit=len(self._order))
        names = SliderNames(stops={one.box.description: one.texts for one in (self.step, self.rank)})
        controls = ipywidgets.VBox([self.model, self.step, self.rank, names]).add_class("lmhead-controls")
        self.words, self.table = Words(), ipywidgets.HTML()
        self.table.add_class("jp-RenderedHTMLCommon")
        super().__init__([controls, self.words])
        self.layout = ipywidgets.Layout(max_width="1100px", overflow="visible")

    def _side_by_side(self) -> ipywidgets.HBox:
        """Return picture and table in a row, or below each other where the page is too narrow for two."""
        boxes = [ipywidgets.VBox([part]) for part in (self.plot, self.table)]
        for box, flex in zip(boxes, ("1 1 480px", "0 1 430px"), strict=True):
            box.layout = ipywidgets.Layout(flex=flex, min_width="0", overflow="hidden")
        return ipywidgets.HBox(boxes, layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible"))

    # Nothing may leave the callback below: what it prints or raises lands in a log that no learner reads.

    def _show(self, view: TyingView) -> None:
        self.view = view
        self.plot.show(self._picture(view))
        self.table.value = _html(view)
        with self.words.hold_sync():
            self.words.sentence, self.words.readouts = view.sentence, view.readouts

    def _picture(self, view: TyingView) -> go.Figure:
        ranks, paths, seen = view.points
        total = paths.pop(BOTH, None)
        return row_gradients_chart(
            ranks, paths, seen, title=view.title, decades=self._decades, total=total, mark=view.params.rank
        )


def _decades(records: Mapping[str, Sequence[RowGradients]]) -> tuple[int, int]:
    """Return the powers of ten that all norms of all steps lie between, so that the axis rests."""
    norms = torch.cat([norms for part in records.values() for r in part for norms in (r.input, r.output)])
    positive = norms[norms > 0]
    high = int(np.ceil(np.log10(float(positive.max()))))
    low = int(np.floor(np.log10(float(positive.min()))))
    return low, max(high, low + 1)


def _check(records: Mapping[str, Sequence[RowGradients]], d_vocab: int, labels: int) -> None:
    if not records:
        raise ValueError("records must hold at least one step, for tied or untied; got none")
    sizes = {d_vocab, labels} | {len(record.counts) for part in records.values() for record in part}
    if len(sizes) > 1:
        raise ValueError(f"counts, labels and records must be of one vocabulary, got sizes {sorted(sizes)}")


def _html(view: TyingView) -> str:
    head = "".join(f'<th scope="col">{as_html(name)}</th>' for name in HEADER)
    body = "".join(_line(row.cells, row.rank == view.params.rank) for row in view.rows)
    caption = "<caption>Some rows: ● in the batch, ○ not</caption>"
    return f'<table style="width:100%">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _line(cells: Sequence[str], chosen: bool) -> str:
    mark = ' style="font-weight:bold"' if chosen else ""
    texts = [as_html(text) for text in cells]
    if chosen:
        texts[0] = f"▶&nbsp;{texts[0]}"  # in one line: a row of two would push the others down
    return f"<tr{mark}>" + "".join(f"<td>{text}</td>" for text in texts) + "</tr>"
