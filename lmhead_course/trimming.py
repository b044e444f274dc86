"""A smaller vocabulary for one domain: which tokens to keep, and how much probability goes with the others."""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def most_frequent(ids: Int[Tensor, " n"], size: int, d_vocab: int, *, always: Iterable[int] = ()) -> Tensor:
    """Return the ``size`` token ids to keep, ascending: those in ``always``, then the most frequent among ``ids``.

    Among equally frequent ones the lowest ids. Raises ``ValueError`` for a size that ``always`` does not fit in, or
    above ``d_vocab``.
    """
    always = torch.tensor(sorted(set(always)), dtype=torch.long)
    if not len(always) <= size <= d_vocab or size < 1:
        raise ValueError(f"size must be in [{max(len(always), 1)}, {d_vocab}], got {size}")
    counts = torch.bincount(ids.long(), minlength=d_vocab)
    counts[always] = len(ids) + 1  # above every count
    return counts.sort(descending=True, stable=True).indices[:size].sort().values


def trim(
    weight: Float[Tensor, "d_vocab d_model"], kept: Int[Tensor, " kept"]
) -> Float[Tensor, "kept d_model"]:
    """Return the rows of the tokens that are kept: the whole of a trimmed head. Row i is token ``kept[i]``."""
    return weight[kept]


def kept_mass(logits: Float[Tensor, "*batch d_vocab"], kept: Int[Tensor, " kept"]) -> Float[Tensor, "*batch"]:
    """Return the probability that each row of logits gives to the kept tokens, between 0 and 1.

    The trimmed softmax divides by it: every kept token's probability grows by 1 / mass, and the rest cannot be said.
    """
    return (logits[..., kept].logsumexp(dim=-1) - logits.logsumexp(dim=-1)).exp()


def coverage(ids: Int[Tensor, " n"], kept: Int[Tensor, " kept"]) -> float:
    """Return the share of a text's tokens that are among the kept. Raises ``ValueError`` for no tokens."""
    if len(ids) == 0:
        raise ValueError("ids must hold at least one token, got none")
    return torch.isin(ids, kept).double().mean().item()
