"""Counting draws and judging them: what the draws explorer shows, as numbers and words, no widgets."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..processors import is_integer
from ..sampling import SamplingParams, process_logits, sample
from ..softmax import softmax
from ..statistics import ChiSquare, chi_square
from .context import Context
from .token_table import percent, quoted

CELLS = 1 << 16
"""How many logits a call of the sampler gets at once, in rows of a whole vocabulary (at least one row). Half a megabyte
in float64: with larger pieces the time goes into fresh memory pages (five times as much at d_vocab = 49,152)."""

_AS_IT_IS = SamplingParams()


class Tally:
    """Draws of one distribution, counted, with the error after about every fifth more of them.

    ``sampler`` takes the place of our ``sample`` and is called as it is, on rows (n, d_vocab) of equal logits. Ours
    needs each row's processing only once, since equal rows are processed equally: it gets the processed rows, and
    settings that leave them as they are.
    """

    def __init__(self, context: Context, params: SamplingParams, seed: int, sampler: Callable | None = None):
        self.context, self.params, self._sampler = context, params, sampler
        self._generator = torch.Generator().manual_seed(seed)
        self._processed = process_logits(context.logits, params, **context.ids)
        self.probabilities = softmax(self._processed.double())
        self.counts = torch.zeros(len(self.probabilities), dtype=torch.long)
        self.n = 0
        self.history: list[tuple[int, float]] = []

    def draw(self, n: int) -> Iterator[int]:
        """Draw n more tokens, a piece at a time; yields how many are still to come."""
        at_once = max(CELLS // len(self.counts), 1)
        while n > 0:
            stop = self._next_stop()
            piece = min(n, at_once, stop - self.n)
            ids = self._drawn(piece)
            self.counts.scatter_add_(0, ids, torch.ones_like(ids))
            self.n, n = self.n + piece, n - piece
            if self.n == stop:
                self.history.append((self.n, self.error))
            yield n

    def _next_stop(self) -> int:
        last = self.history[-1][0] if self.history else 0
        return max(last + 1, math.ceil(1.2 * last))

    def _drawn(self, n: int) -> Tensor:
        if self._sampler is None:
            return sample(self._processed.expand(n, -1), _AS_IT_IS, generator=self._generator)
        # Copies, since a learner's sampler may work in place.
        rows = {name: ids.repeat(n, 1) for name, ids in self.context.ids.items()}
        logits = self.context.logits.repeat(n, 1)
        ids = self._sampler(logits, self.params, **rows, generator=self._generator)
        return _checked_draws(ids, n, len(self.counts))

    @property
    def shares(self) -> Float[Tensor, " d_vocab"]:
        """The share of each token among the draws."""
        return self.counts.double() / max(self.n, 1)

    @property
    def error(self) -> float:
        """The largest difference between a token's share and its probability."""
        return float((self.shares - self.probabilities).abs().max())

    @property
    def deviation(self) -> float:
        """√(p(1 − p)) where it is largest; divided by √n, the standard error of that token's share among n draws."""
        return float((self.probabilities * (1 - self.probabilities)).max().sqrt())


def _checked_draws(ids: object, n: int, d_vocab: int) -> Tensor:
    if not isinstance(ids, Tensor) or ids.shape != (n,) or not is_integer(ids):
        got = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ValueError(
            f"The sampler must return integer ids of shape ({n},) for {n} rows of logits, got {got}."
        )
    ids = ids.long()  # d_vocab may be beyond a small dtype, in which torch would compare
    if ((ids < 0) | (ids >= d_vocab)).any():
        raise ValueError(
            f"The sampler returned ids from {int(ids.min())} to {int(ids.max())}; they must be 0 to {d_vocab - 1}."
        )
    return ids


@dataclass(frozen=True)
class DrawsView:
    """Everything the explorer shows after ``n`` draws.

    ``labels`` are the most probable tokens, and one name for all others where there are more; ``expected`` and
    ``observed`` are their probabilities and their shares among the draws. ``error`` is the largest difference over the
    whole vocabulary, at the token ``worst`` (``worst_observed`` against ``worst_expected``); ``history`` is that error
    at earlier n, ``deviation`` / √n its yardstick.
    """

    params: SamplingParams
    n: int
    labels: tuple[str, ...]
    expected: tuple[float, ...]
    observed: tuple[float, ...]
    error: float
    worst: str
    worst_expected: float
    worst_observed: float
    history: tuple[tuple[int, float], ...]
    deviation: float
    fit: ChiSquare

    @property
    def readouts(self) -> list[list[str]]:
        """The figures beside the pictures, as pairs of name and value."""
        fit, tested = self.fit, self.n > 0 and self.fit.degrees > 0
        return [
            ["draws", f"{self.n:,}"],
            ["largest difference", percent(self.error) if self.n else "–"],
            ["one standard error", percent(self.deviation / math.sqrt(self.n)) if self.n else "–"],
            ["chi-square", f"{fit.statistic:,.2f} ({fit.degrees} df)" if tested else "–"],
            ["p-value", p_text(fit.p_value) if tested else "–"],
        ]

    @property
    def sentence(self) -> str:
        """The pictures in words."""
        if self.n == 0:
            return "Nothing is drawn yet: the marks show what should come, the bars will show what did."
        if self.deviation == self.error == 0:
            return "Only one token can come, so every draw is the same and there is nothing to test."
        if self.error == 0:
            return f"After {self.n:,} draws every share is exactly its probability."
        came, should = percent(self.worst_observed), percent(self.worst_expected)
        off = (
            f"After {draws_text(self.n)} the largest difference is at {quoted(self.worst)}: {came} came, "
            f"{should} should. "
            f"One standard error is {percent(self.deviation / math.sqrt(self.n))}."
        )
        return f"{off} {self._verdict}"

    @property
    def _verdict(self) -> str:
        fit = self.fit
        if fit.statistic == math.inf:
            return "A token came that has the probability 0: this sampler draws from another distribution."
        if fit.degrees == 0:
            return "Too few draws for a chi-square test: at least two tokens must expect 5 draws each."
        over_all = "Over all tokens together (chi-square), a correct sampler is"
        if fit.p_value < 0.001:
            return f"{over_all} this far off less than once in 1,000 such experiments: do not trust this one."
        return f"{over_all} at least this far off in {100 * fit.p_value:.1f} % of such experiments."


def p_text(p: float) -> str:
    """Return a p-value with three decimals, or that it is smaller."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def draws_text(n: int) -> str:
    """Return a number of draws in words."""
    return f"{n:,} draw{'' if n == 1 else 's'}"


def view_of_draws(tally: Tally, label: Callable[[int], str], top: int) -> DrawsView:
    """Return the view of what has been drawn so far."""
    likely = tally.probabilities.argsort(descending=True, stable=True)[:top]
    expected, observed = tally.probabilities[likely].tolist(), tally.shares[likely].tolist()
    labels = [label(token) for token in likely.tolist()]
    if others := len(tally.probabilities) - len(likely):
        labels.append(f"({others:,} others)")
        expected.append(max(1 - math.fsum(expected), 0.0))
        observed.append(max(1 - math.fsum(observed), 0.0) if tally.n else 0.0)
    worst = int((tally.shares - tally.probabilities).abs().argmax())
    return DrawsView(
        params=tally.params,
        n=tally.n,
        labels=tuple(labels),
        expected=tuple(expected),
        observed=tuple(observed),
        error=tally.error if tally.n else 0.0,
        worst=label(worst),
        worst_expected=float(tally.probabilities[worst]),
        worst_observed=float(tally.shares[worst]),
        history=tuple(tally.history),
        deviation=tally.deviation,
        # No draws, no test: the same as one cell.
        fit=chi_square(tally.counts, tally.probabilities) if tally.n else ChiSquare(0.0, 0, 1.0),
    )
