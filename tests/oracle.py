"""The plain definitions, in numpy and float64, one row at a time: sort, cumulate, cut.

The notebooks explain these; the tests hold the package's fast versions against them.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from lmhead_course import ORDERS, SamplingParams


def kept_ids(logits: torch.Tensor) -> set[int]:
    """The tokens of one row (d_vocab,) that were not dropped."""
    (ids,) = logits.isfinite().nonzero(as_tuple=True)
    return set(ids.tolist())


def softmax(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def entropy(probabilities: np.ndarray) -> float:
    some = probabilities[probabilities > 0]
    return float(-(some * np.log(some)).sum())


def ranking(row: np.ndarray) -> np.ndarray:
    """Ids from the largest logit to the smallest, the lowest id first among equals."""
    return np.argsort(-row, kind="stable")


def keep(row: np.ndarray, ids) -> np.ndarray:
    kept = np.full_like(row, -np.inf)
    kept[ids] = row[ids]
    return kept


def temperature(row: np.ndarray, value: float) -> np.ndarray:
    return keep(row, ranking(row)[:1]) if value == 0 else row / value


def top_k(row: np.ndarray, value: int) -> np.ndarray:
    return keep(row, ranking(row)[: value or None])


def top_p(row: np.ndarray, value: float) -> np.ndarray:
    ids = ranking(row)
    mass = softmax(row)[ids].cumsum()
    crosses = int(np.argmax(mass >= value)) if value < 1 else len(row)
    return keep(row, ids[: crosses + 1])


def min_p(row: np.ndarray, value: float) -> np.ndarray:
    probabilities = softmax(row)
    return keep(row, probabilities >= value * probabilities.max())


def real(ids) -> list[int]:
    return [token for token in ids if token >= 0]


def repetition_penalty(row: np.ndarray, value: float, prompt=(), generated=()) -> np.ndarray:
    row = row.copy()
    for token in set(real(prompt)) | set(real(generated)):
        row[token] = row[token] / value if row[token] > 0 else row[token] * value
    return row


def presence_penalty(row: np.ndarray, value: float, prompt=(), generated=()) -> np.ndarray:
    row = row.copy()
    for token in set(real(generated)):
        row[token] -= value
    return row


def frequency_penalty(row: np.ndarray, value: float, prompt=(), generated=()) -> np.ndarray:
    row = row.copy()
    for token, count in Counter(real(generated)).items():
        row[token] -= value * count
    return row


FILTERS = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
PENALTIES = {
    "repetition_penalty": repetition_penalty,
    "presence_penalty": presence_penalty,
    "frequency_penalty": frequency_penalty,
}


@dataclass(frozen=True)
class Outcome:
    """One row after a pipeline; ``margin`` is how near any cut came to a token, where rounding decides."""

    logits: np.ndarray
    margin: float

    @property
    def probabilities(self) -> np.ndarray:
        return softmax(self.logits)

    @property
    def kept(self) -> set[int]:
        return set(np.flatnonzero(np.isfinite(self.logits)).tolist())


def process(row, params: SamplingParams, prompt=(), generated=()) -> Outcome:
    """Run every stage in order on one row (d_vocab,)."""
    row, margin = np.asarray(row, dtype=np.float64), np.inf
    for name in ORDERS[params.order] if isinstance(params.order, str) else params.order:
        value = getattr(params, name)
        margin = min(margin, _margin(name, row, value))
        row = FILTERS[name](row, value) if name in FILTERS else PENALTIES[name](row, value, prompt, generated)
    return Outcome(row, margin)


def _margin(name: str, row: np.ndarray, value: float) -> float:
    probabilities = softmax(row)
    if name == "top_p" and value < 1:
        return float(np.abs(np.sort(probabilities)[::-1].cumsum() - value).min())
    if name == "min_p" and value > 0:
        return float(np.abs(probabilities / probabilities.max() - value).min())
    return np.inf


# ---- the same cuts, as exact as sums in float64 ----------------------------------------------------------------

TOLERANCE = 1e-9
"""Of the whole mass. A sum of 262,144 float64 numbers depends on its order by 3e-11 at most, so two right programs may
differ where a cumulative sum is nearer to p than this, and nowhere else."""


@dataclass(frozen=True)
class Exact:
    """One row after a pipeline in its own dtype; undecided where a cut came within rounding of a token."""

    logits: np.ndarray
    decided: bool = True


def plain_row(logits: torch.Tensor) -> np.ndarray:
    """One row as the package computes with it: float32, or float64 where it was that."""
    return (logits if logits.dtype == torch.float64 else logits.float()).numpy()


def weights(row: np.ndarray) -> np.ndarray:
    """exp(logit − largest logit) in the row's dtype, as float64: what the package's masses are sums of."""
    with np.errstate(over="ignore"):
        shifted = row - row.max()
    return torch.from_numpy(shifted).exp().double().numpy()


def nucleus_sizes(row: np.ndarray, p: float) -> tuple[int, int]:
    """The least and the largest number of tokens that top-p may keep. They differ only within ``TOLERANCE`` of a sum,
    and never where every weight and p is a whole number of 2⁻²⁰: such sums are exact in any order."""
    finite = int(np.isfinite(row).sum())
    if p == 1:
        return finite, finite
    mass = weights(row)[ranking(row)]
    slack = 0.0 if _whole(mass) and _whole(np.array([p])) else TOLERANCE
    cumulated = mass.cumsum()
    before, line = np.concatenate([[0.0], cumulated[:-1]]), p * cumulated[-1]
    least, most = (int((before < line + side * slack * cumulated[-1]).sum()) for side in (-1, 1))
    return max(1, min(least, finite)), max(1, min(most, finite))


def _whole(numbers: np.ndarray) -> bool:
    return bool((np.mod(numbers * 2**20, 1) == 0).all())


def min_p_bounds(row: np.ndarray, value: float) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens min-p must keep, and which it may. They differ only where the row's dtype rounds ``value``."""
    share, in_dtype = weights(row), float(row.dtype.type(value))
    low, high = min(value, in_dtype), max(value, in_dtype)
    return np.isfinite(row) & (share >= high), np.isfinite(row) & (share >= low)


def exact_temperature(row: np.ndarray, value: float) -> np.ndarray:
    """logits / T in the row's dtype; from where that leaves the range, the row less its maximum, divided in float64
    and held inside the range."""
    if value == 0:
        return keep(row, ranking(row)[:1])
    limits = np.finfo(row.dtype)
    divisor = row.dtype.type(min(max(value, float(limits.tiny)), float(limits.max)))
    with np.errstate(over="ignore"):
        scaled = row / divisor
        if not np.isfinite(scaled.max()):
            scaled = ((row.astype(np.longdouble) - row.max()) / divisor).astype(row.dtype)
    return np.where(np.isfinite(row), np.maximum(scaled, limits.min), row)


def exact_penalty(name: str, row: np.ndarray, value: float, prompt=(), generated=()) -> np.ndarray:
    """A penalty in the row's dtype, held inside its range; dropped tokens stay dropped."""
    limits, kind = np.finfo(row.dtype), row.dtype.type
    value = min(value, float(limits.max)) if name == "repetition_penalty" else value
    with np.errstate(over="ignore", invalid="ignore"):  # of dropped tokens, which stay as they are
        value = kind(value)
        counts = Counter(real(generated))
        if name == "repetition_penalty":
            changed = {t: row[t] / value if row[t] > 0 else row[t] * value for t in {*counts, *real(prompt)}}
        elif name == "presence_penalty":
            changed = {t: row[t] - value for t in counts}
        else:
            changed = {t: row[t] - value * kind(count) for t, count in counts.items()}
    result = row.copy()
    for token, logit in changed.items():
        if np.isfinite(row[token]):
            result[token] = min(max(logit, limits.min), limits.max)
    return result


def exact_process(row: np.ndarray, params: SamplingParams, prompt=(), generated=()) -> Exact:
    """Run every stage in order on one row, in its own dtype, with sums in float64."""
    decided = True
    for name in ORDERS[params.order] if isinstance(params.order, str) else params.order:
        value = getattr(params, name)
        match name:
            case "temperature":
                row = exact_temperature(row, value)
            case "top_k":
                row = top_k(row, value)
            case "top_p":
                least, most = nucleus_sizes(row, value)
                decided &= least == most
                row = keep(row, ranking(row)[:most])
            case "min_p":
                must, may = min_p_bounds(row, value)
                decided &= bool((must == may).all())
                row = keep(row, may)
            case _:
                row = exact_penalty(name, row, value, prompt, generated)
    return Exact(row, decided)
