"""Words and figures beside a picture: what it shows, and what went wrong."""

from pathlib import Path

import anywidget
import traitlets

_HERE = Path(__file__).parent


def shared_css(*names: str) -> str:
    """Return the style that all our widgets of text share, followed by the named files beside this one."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in ("token_table.css", *names))


class Words(anywidget.AnyWidget):
    """A sentence that a screen reader announces, figures with names, and an error; all shown as text."""

    _esm = _HERE / "words.js"
    _css = shared_css()

    error = traitlets.Unicode().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)
    sentence = traitlets.Unicode().tag(sync=True)
    readouts = traitlets.List().tag(sync=True)  # pairs [name, figure]
    busy = traitlets.Bool(False).tag(sync=True)
