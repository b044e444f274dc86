"""What explorers have in common: their words, and one update after each change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets

from .turns import Turns, trouble_of


class Explorer(ipywidgets.VBox):
    """A box whose words say what it shows (``sentence``) and what went wrong (``error``)."""

    words: ipywidgets.DOMWidget  # ``Words`` or a ``TokenTable``: whatever shows a sentence and an error

    def __init__(self, children: list[ipywidgets.Widget]):
        super().__init__(children)
        self.add_class("lmhead")  # the style of what ipywidgets draws, controls.css

    @property
    def sentence(self) -> str:
        """What is shown, in words."""
        return self.words.sentence

    @property
    def error(self) -> str:
        """What went wrong, in words; empty if nothing did."""
        return self.words.error


class UpdatingExplorer(Explorer):
    """An explorer that shows everything anew after each change.

    A subclass has ``params``, what the controls say, a pure ``compute(params)`` that returns the view of them, and
    ``_show(view)``, which puts a view on the page. Its controls call ``_refresh``.
    """

    _moving = False  # while several controls move, none of them is listened to

    def __init__(self, children: list[ipywidgets.Widget]):
        self._turns = Turns(self._update)
        super().__init__(children)

    # Nothing may leave the callbacks below: what they print or raise lands in a log that no learner reads.

    def _refresh(self, _change: Any = None) -> None:
        if not self._moving:
            self._turns.add()

    def _update(self) -> None:
        # The settings are read here and not by whoever moved them: the last turn reads the last settings.
        self.words.error = trouble_of(lambda: self._show(self.compute(self.params)))

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Let several controls move; one update follows, also where one of them refuses its value."""
        self._moving = True
        try:
            yield
        finally:
            self._moving = False
            self._refresh()
