"""A plotly figure on the page that follows new numbers, drawn by the plotly.js that plotly brings along."""

import gzip
from functools import cache

import anywidget
import ipywidgets
import plotly.graph_objects as go
import traitlets
from ipywidgets import widget_serialization
from plotly.offline import get_plotlyjs

from .words import shared_css, shared_js


class PlotlyLibrary(anywidget.AnyWidget):
    """Nothing to see: plotly.js, packed, sent to the page once for all plots of a kernel.

    Packed because the server drops messages above 3 MB when a page is opened again beside a running kernel.
    """

    _esm = "export default {};"

    source = traitlets.Bytes().tag(sync=True)


class Plot(anywidget.AnyWidget):
    """A figure as ``figures`` makes it; ``show`` puts another one in its place, in one message.

    Not plotly's ``FigureWidget``: each of those brings the 5 MB of plotly.js along and has to start within two seconds,
    or stays blank; four of them in one notebook on a busy machine did not.
    """

    _esm = shared_js("plot.js")
    _css = shared_css("plot.css")

    figure = traitlets.Unicode().tag(sync=True)  # plotly's JSON
    library = traitlets.Instance(PlotlyLibrary).tag(sync=True, **widget_serialization)

    def __init__(self, figure: go.Figure):
        super().__init__(figure=figure.to_json(), library=_library())

    def show(self, figure: go.Figure) -> None:
        """Draw another figure; traces of equal kinds move, nothing flickers."""
        self.figure = figure.to_json()


def in_rows(*plots: Plot) -> ipywidgets.HBox:
    """Return the pictures in a row, or below each other where the page is too narrow for two."""
    boxes = [ipywidgets.VBox([plot]) for plot in plots]
    for box in boxes:
        box.layout = ipywidgets.Layout(flex="1 1 380px", min_width="0", overflow="hidden")
    row = ipywidgets.HBox(boxes)
    row.layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
    return row


@cache
def _library() -> PlotlyLibrary:
    return PlotlyLibrary(source=gzip.compress(get_plotlyjs().encode(), compresslevel=1))
