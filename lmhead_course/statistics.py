"""Does a sampler draw what it says? Pearson's chi-square test of counts against probabilities."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class ChiSquare(NamedTuple):
    """A chi-square test: Σ (observed − expected)² / expected, its degrees of freedom, and the p-value.

    The p-value is the chance that a correct sampler is at least as far off. It is uniform between 0 and 1 for a
    correct one: below 0.001 is worth a look, 0.3 and 0.9 are equally good.
    """

    statistic: float
    degrees: int
    p_value: float


def chi_square(
    counts: Int[Tensor, " d_vocab"], probabilities: Float[Tensor, " d_vocab"], *, fewest: float = 5.0
) -> ChiSquare:
    """Return Pearson's test of how often each token was drawn against its probability.

    Tokens expected fewer than ``fewest`` times are counted together as one: the test is an approximation, and a poor
    one for rare cells. A drawn token of probability 0 gives a statistic of inf and a p-value of 0. With one cell left
    there is nothing to test: degrees 0, p-value 1. Raises ``ValueError`` for no draws at all.

    Source: Pearson 1900; the p-value is the upper regularised gamma function Q(degrees / 2, statistic / 2).
    """
    draws = int(counts.sum())
    if draws == 0:
        raise ValueError("counts must hold at least one draw, got none")
    if bool((counts[probabilities == 0] > 0).any()):
        return ChiSquare(torch.inf, int((probabilities > 0).sum()), 0.0)
    expected = draws * probabilities.double() / probabilities.double().sum()
    observed, expected = _pooled(counts.double(), expected, fewest)
    statistic = ((observed - expected).square() / expected).sum()
    degrees = len(expected) - 1
    if degrees == 0:
        return ChiSquare(float(statistic), 0, 1.0)
    p_value = torch.special.gammaincc(statistic.new_tensor(degrees / 2), statistic / 2)
    return ChiSquare(float(statistic), degrees, float(p_value))


def _pooled(observed: Tensor, expected: Tensor, fewest: float) -> tuple[Tensor, Tensor]:
    """Keep the cells that are expected often enough, and put all others into one more cell, if that is large enough."""
    often = expected >= fewest
    rest = expected[~often].sum()
    if not often.any():
        return observed.sum()[None], expected.sum()[None]
    cells = [(observed[often], expected[often])]
    tail = observed[~often].sum()
    if rest >= fewest:
        cells.append((tail[None], rest[None]))
    elif rest > 0:  # too small to stand alone: it goes to the smallest cell that stands
        smallest = expected[often].argmin()
        cells[0][0][smallest] += tail
        cells[0][1][smallest] += rest
    return torch.cat([c[0] for c in cells]), torch.cat([c[1] for c in cells])
