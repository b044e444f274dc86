"""Changes from several threads, made one at a time: callbacks come on the page's thread and on a running cell's."""

from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from typing import Any, TypeVar

import torch

from ..checks.exercise import describe_error

Result = TypeVar("Result")


class Turns:
    """One thread works, the others leave their change in its queue and go.

    None waits, so none can wait for ever, and the last change is the last one made. ``perform`` is called with what
    was given to ``add``, and must let nothing out.
    """

    def __init__(self, perform: Callable[..., None]):
        self._perform = perform
        self._work, self._waiting, self._worker = Lock(), deque(), None

    def add(self, *change: Any) -> None:
        """Make a change, or leave it to the thread that works; what the worker itself adds gets its turn later."""
        self._waiting.append(change)
        while self._waiting and self._work.acquire(blocking=False):
            self._worker = get_ident()
            try:
                while self._waiting:
                    self._perform(*self._waiting.popleft())
            finally:
                self._worker = None
                self._work.release()

    def clear(self) -> None:
        """Forget the changes that wait."""
        self._waiting.clear()

    @property
    def mine(self) -> bool:
        """Whether this thread is making a change: it is then the explorer's own hand that moves a control."""
        return self._worker == get_ident()


def attempt(act: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return what a function returns without gradients and "", or None and what went wrong, in words."""
    try:
        with torch.no_grad():  # grad mode belongs to the thread, and a callback may run on any
            return act(), ""
    except ValueError as error:  # ours: they say what is wrong and what is allowed
        return None, str(error)
    except (Exception, KeyboardInterrupt) as error:  # code of a learner's that never ends is interrupted
        return None, describe_error(error)


def trouble_of(change: Callable[[], Any]) -> str:
    """Make a change without gradients, and return what went wrong, in words; empty if nothing did."""
    return attempt(change)[1]
