"""A tree of tokens that is grown by clicking: its lines, and the candidates for the next token, as buttons."""

import anywidget
import traitlets

from .words import shared_css, shared_js


class TokenTree(anywidget.AnyWidget):
    """Tokens as buttons, one line a way; ``lines`` as ``generation_view.lines_of`` makes them.

    ``choices`` are the candidates of the step that is looked at, ``[{"token_id", "label", "chance", "kept",
    "taken"}]``. The page writes ``asked`` for each click: ``[what, id, number of the click]`` with what being "look"
    (a token's own step), "behind" (the step after a node) or "take" (a candidate). Texts are never markup.
    """

    _esm = shared_js("token_tree.js")
    _css = shared_css("token_tree.css")

    text = traitlets.Unicode().tag(sync=True)  # what stands before the first token
    lines = traitlets.List().tag(sync=True)
    choices = traitlets.List().tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    asked = traitlets.List().tag(sync=True)
