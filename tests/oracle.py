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
