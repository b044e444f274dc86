"""A plane with token rows as arrows and a hidden state that can be dragged, and the table of what they score."""

import anywidget
import traitlets

from .words import shared_css, shared_js


class TokenPlane(anywidget.AnyWidget):
    """A picture of a plane and a table below it; the trait ``point`` is where the hidden state's tip stands.

    The page writes ``point`` while the tip is dragged, or moved with the arrow keys. ``arrows`` is a list of dicts
    ``{"label", "x", "y"}`` in the picture's own units, ``walk`` a list of points with the one of ``layer`` marked,
    ``reach`` how far both axes go. ``rows`` is a list of lists of texts below ``header``; all text is shown as text,
    never as markup.
    """

    _esm = shared_js("token_plane.js")
    _css = shared_css("token_plane.css")

    point = traitlets.List([0.0, 0.0]).tag(sync=True, echo_update=False)
    arrows = traitlets.List().tag(sync=True)
    walk = traitlets.List().tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    reach = traitlets.Float(1.0).tag(sync=True)
    x_title = traitlets.Unicode().tag(sync=True)
    y_title = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)  # the scale of the arrows, in words
    header = traitlets.List().tag(sync=True)
    rows = traitlets.List().tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)  # picture and table are older than the error beside them
