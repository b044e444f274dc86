"""Words and figures beside a picture, and the style and script that all our widgets of text share."""

from pathlib import Path

import anywidget
import traitlets

from ..tokens import clean

_HERE = Path(__file__).parent


def shared_css(*names: str) -> str:
    """Return the style that all our widgets of text share, followed by the named files beside this one."""
    files = ("controls.css", "token_table.css", *names)
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in files)


def shared_js(name: str) -> str:
    """Return the script that all our widgets of text share, followed by the named file beside this one.

    Joined as text, because a widget's script is one module on its own, which has nowhere to import from.
    """
    return "\n".join((_HERE / part).read_text(encoding="utf-8") for part in ("shared.js", name))


class Words(anywidget.AnyWidget):
    """A sentence that a screen reader announces, figures with names, and an error; all shown as text."""

    _esm = shared_js("words.js")
    _css = shared_css()

    error = traitlets.Unicode().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)
    sentence = traitlets.Unicode().tag(sync=True)
    readouts = traitlets.List().tag(sync=True)  # pairs [name, figure]
    busy = traitlets.Bool(False).tag(sync=True)

    @traitlets.validate("error")
    def _sendable(self, proposal) -> str:
        # It may repeat what a learner's code said; half a surrogate pair in it would be carried by no message.
        return clean(proposal.value)
