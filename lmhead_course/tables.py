"""Small tables for notebooks: readable as text, a real table on the page."""

import unicodedata
from collections.abc import Sequence
from typing import Any

from .escaping import NO_TEX, as_html, visible


class Table:
    """A table of a few rows. A float is shown with ``digits`` places; everything is shown as text, never as markup.

    Raises ``ValueError`` for a row whose length is not that of the header.
    """

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[Any]], *, digits: int = 2):
        for row in rows:
            if len(row) != len(header):
                raise ValueError(f"every row must have {len(header)} cells like the header, got {row!r}")
        self.header = [visible(str(name)) for name in header]
        self.rows = [[_cell(value, digits) for value in row] for row in rows]

    def __repr__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        padded = [[" " * (w - _width(c)) + c for c, w in zip(line, widths, strict=True)] for line in lines]
        return "\n".join("  ".join(line) for line in padded)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{as_html(name)}</th>' for name in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{as_html(cell)}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        return f'<table class="{NO_TEX}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: Any, digits: int) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, float) else visible(str(value))


def _width(text: str) -> int:
    """Columns that a text takes in a monospaced font: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
