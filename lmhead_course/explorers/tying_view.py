"""What the tying explorer shows for one step of training: numbers and words, no widgets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..twins import RowGradients
from .token_table import quoted

INPUT, OUTPUT, BOTH = "input path", "output path", "their sum"
TIED, UNTIED = "tied", "untied"
MOST_POINTS = 260
TABLE_RANKS = (1, 3, 10, 30, 100, 300, 1000, 2000)


@dataclass(frozen=True)
class TyingParams:
    """What the controls say: which twin, at which step, and the frequency rank (from 1) of the row to look at."""

    model: str
    step: int
    rank: int


@dataclass(frozen=True)
class Row:
    """One row of the matrix: its token, how often the batch held it, and its gradient norm by path."""

    rank: int
    label: str
    count: int
    input: float
    output: float
    total: float | None  # None where the two ends are two matrices

    @property
    def cells(self) -> list[str]:
        """The row as a line of the table."""
        seen = f"● {self.count} ×" if self.count else "○ not"
        total = "–" if self.total is None else norm(self.total)
        return [f"{self.rank:,}", self.label, seen, norm(self.input), norm(self.output), total]


@dataclass(frozen=True)
class TyingView:
    """Everything the explorer shows at one step.

    ``order`` (d_vocab,) are the token ids from the most frequent in the text to the rarest, ``labels`` their names.
    """

    params: TyingParams
    gradients: RowGradients
    order: Tensor
    labels: Sequence[str]

    @property
    def d_vocab(self) -> int:
        """Number of rows."""
        return len(self.order)

    @property
    def seen(self) -> int:
        """How many rows the batch looked up."""
        return int(self.gradients.seen.sum())

    @property
    def reached(self) -> dict[str, int]:
        """How many rows get a gradient above 0, by path."""
        g = self.gradients
        return {
            INPUT: int((g.input > 0).sum()),
            OUTPUT: int((g.output > 0).sum()),
            BOTH: int((g.total > 0).sum()),
        }

    @property
    def output_share(self) -> float:
        """The output path's part of the squared length of both gradients."""
        into, out = self.gradients.input.square().sum(), self.gradients.output.square().sum()
        return float(out / (into + out))

    def row(self, rank: int) -> Row:
        """Return the row of the token with this frequency rank."""
        token, g = int(self.order[rank - 1]), self.gradients
        total = float(g.total[token]) if self.params.model == TIED else None
        into, out = float(g.input[token]), float(g.output[token])
        return Row(rank, self.labels[token], int(g.counts[token]), into, out, total)

    @property
    def rows(self) -> list[Row]:
        """The rows of the table: some ranks from frequent to rare, and the one looked at."""
        ranks = {rank for rank in TABLE_RANKS if rank <= self.d_vocab} | {self.params.rank}
        return [self.row(rank) for rank in sorted(ranks)]

    @property
    def points(self) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """The picture: ranks, norms by path, and which of these rows the batch held; thinned to a few hundred rows."""
        ranks = np.unique(np.geomspace(1, self.d_vocab, MOST_POINTS).round().astype(int))
        ids, g = self.order[ranks - 1], self.gradients
        paths = {INPUT: g.input[ids].numpy(), OUTPUT: g.output[ids].numpy()}
        if self.params.model == TIED:
            paths[BOTH] = g.total[ids].numpy()
        return ranks, paths, g.seen[ids].numpy()

    @property
    def title(self) -> str:
        """The picture's title."""
        return f"{self.params.model.capitalize()}, step {self.gradients.step}: the gradient of every row"

    @property
    def readouts(self) -> list[list[str]]:
        """The figures above the picture, as pairs of name and value."""
        reached = self.reached
        named = [INPUT, OUTPUT] + [BOTH] * (self.params.model == TIED)
        return [
            ["loss", f"{self.gradients.loss:.2f} nats"],
            ["rows in the batch", f"{self.seen:,} of {self.d_vocab:,}"],
            *([f"{name} reaches", f"{reached[name]:,}"] for name in named),
            ["output path's share", f"{100 * self.output_share:.1f} %"],
        ]

    @property
    def sentence(self) -> str:
        """The picture in words."""
        reached, row = self.reached, self.row(self.params.rank)
        quiet = self.d_vocab - reached[INPUT]
        start = f"Step {self.gradients.step}: the batch holds {self.seen:,} of {self.d_vocab:,} tokens. "
        if self.params.model == TIED:
            middle = (
                f"By the input path {quiet:,} rows get exactly 0, by the output path {reached[OUTPUT]:,} rows get "
                f"something, and since both ends are one matrix, {reached[BOTH]:,} of its rows move. "
            )
        else:
            middle = (
                f"The embedding learns by the input path only: {quiet:,} of its rows get exactly 0. The head, a matrix "
                f"of its own, learns by the output path: {reached[OUTPUT]:,} of its rows get something. "
            )
        times = {0: "is not in the batch", 1: "comes once"}.get(row.count, f"comes {row.count} times")
        return (
            start
            + middle
            + (
                f"{quoted(row.label)}, number {row.rank:,} by frequency, {times}: input path "
                f"{norm(row.input)}, output path {norm(row.output)}."
            )
        )


def view_of_tying(
    params: TyingParams, records: Sequence[RowGradients], order: Tensor, labels: Sequence[str]
) -> TyingView:
    """Return the view of the recorded step nearest to the one asked for. Raises ``ValueError`` for a rank outside."""
    if not 1 <= params.rank <= len(order):
        raise ValueError(f"frequency rank must be in 1 … {len(order):,}, got {params.rank:,}")
    nearest = min(records, key=lambda record: abs(record.step - params.step))
    return TyingView(params, nearest, order, labels)


def norm(value: float) -> str:
    """Return a gradient's length with two digits; only 0 is "0"."""
    if value == 0:
        return "0"
    return f"{value:.2g}" if value >= 1e-3 else f"{value:.1e}".replace("e-0", "e-")
