"""From token ids to text, a token at a time: whole characters only, and never the beginning of a stop string."""

from collections.abc import Callable, Iterable, Sequence

BROKEN = "\ufffd"
"""What stands in decoded text for bytes that are no whole character."""

CONTEXT = 8
"""How many ids before the first new one are decoded with it: some tokenizers drop a space at the start of a text."""


class TextStream:
    """The text of a growing list of token ids, released as soon as later tokens can no longer change it.

    Two things are held back. Bytes that are no whole character yet: one character may be spread over several tokens.
    And text that a later token might complete to one of the ``stop`` strings: those are never shown, nor is anything
    after them. Of several stop strings the one that is complete first counts, so the result does not depend on where
    the tokens begin and end.

    ``decode`` turns ids into text; ``before`` are the ids in front, whose text is not repeated.
    """

    def __init__(
        self, decode: Callable[[list[int]], str], stop: Iterable[str] = (), before: Sequence[int] = ()
    ):
        self.stopped = False
        self._decode = decode
        self._stop = tuple(stop)
        self._context = list(before[-CONTEXT:])  # ids whose text is out already
        self._known = self._text_of(self._context)
        self._new: list[int] = []  # ids whose text is not out yet
        self._held = ""

    def push(self, token_id: int) -> str:
        """Add a token and return the text it releases, often its own and often none; sets ``stopped``."""
        self._new.append(token_id)
        text = self._text_of(self._context + self._new)
        return "" if text.endswith(BROKEN) else self._release(self._take(text))

    def finish(self) -> str:
        """Return what was held back, when no token follows; bytes that are no character come out as U+FFFD."""
        text = self._release(self._take(self._text_of(self._context + self._new)))
        held, self._held = self._held, ""
        return text + held

    def _text_of(self, ids: list[int]) -> str:
        return self._decode(ids) if ids else ""

    def _take(self, text: str) -> str:
        """Return the part of the decoded text that is new; its ids are the context of the next, since they begin
        and end with a whole character."""
        # Not just the text from len(known) on: an unfinished character at the end of a prompt of ids changes.
        new = text[shared_start(self._known, text) :]
        if self._new:
            self._context, self._new = self._new, []
            self._known = self._text_of(self._context)
        return new

    def _release(self, new: str) -> str:
        text = self._held + new
        ends = [(text.index(stop) + len(stop), text.index(stop)) for stop in self._stop if stop in text]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        start = len(text) - max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[start:]
        return text[:start]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that is a beginning of ``stop``."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((n for n in lengths if text.endswith(stop[:n])), 0)


def shared_start(one: Sequence, other: Sequence) -> int:
    """Return how many entries (characters, ids) the beginnings of two sequences share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
