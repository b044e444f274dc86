"""Measured rows as a CSV file and back: how a long comparison is kept with the package."""

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import TypeVar

Record = TypeVar("Record")
"""A dataclass whose fields are of plain types: text, whole numbers, floats."""


def to_csv(rows: Sequence[Record], notes: Sequence[str]) -> str:
    """Return one or more rows of one kind as CSV, floats with six significant digits, below the notes as lines that
    begin with "# "."""
    out = io.StringIO()
    out.writelines(f"# {note}\n" for note in notes)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(rows[0]))
    writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in astuple(row)] for row in rows)
    return out.getvalue()


def from_csv(kind: type[Record], text: str) -> list[Record]:
    """Return the rows, of this kind, of a CSV that ``to_csv`` wrote."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    kinds = {field.name: field.type for field in fields(kind)}
    return [
        kind(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(lines)
    ]
