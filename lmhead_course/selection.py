"""The largest of many numbers, their order, and where their running sum reaches a line: exact, and fast over a
vocabulary. The processors and the sampler are built on these."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

_BLOCK = 64
_TILE = 2**19
"""How many numbers are worked on at a time: 2 MiB of float32, about the size of a processor core's own cache."""


def exact_dtype(where: Tensor | torch.device) -> torch.dtype:
    """Return the dtype for long sums on a device: float64 where it has that (Apple's GPUs do not)."""
    device = where.device if isinstance(where, Tensor) else where
    return torch.float32 if device.type == "mps" else torch.float64


def largest(
    logits: Float[Tensor, "*batch n"], k: int
) -> tuple[Float[Tensor, "*batch k"], Int[Tensor, "*batch k"]]:
    """Return the ``k`` ≤ n largest values of each row, falling, and their indices; any of equal ones may come, and
    where a value is −inf the index means nothing.

    The k largest are in the k blocks of 64 with the largest maxima, for outside of these nothing is above any of k
    maxima. So one pass for the maxima is nearly all the cost, where ``torch.topk`` alone takes several.
    """
    blocks = logits.shape[-1] // _BLOCK
    if k > blocks // 4:
        return logits.topk(k, dim=-1)
    tiles = _in_blocks(logits, -torch.inf)
    block = tiles.amax(dim=-1).topk(k, dim=-1).indices.unsqueeze(-1)
    ids = block * _BLOCK + torch.arange(_BLOCK, device=block.device)
    values, place = tiles.gather(-2, block.expand(ids.shape)).flatten(-2).topk(k, dim=-1)
    return values, ids.flatten(-2).gather(-1, place)


def descending(logits: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "*batch n"]:
    """Return each row's values, the largest first, as far as any row has one above −inf."""
    if logits.device.type == "cpu":
        # numpy sorts values some ten times as fast as torch (with the processor's vector instructions), upwards only.
        negated = logits.neg().numpy()
        negated.sort(axis=-1)
        ranked = torch.from_numpy(negated).neg_()
    else:
        ranked = logits.sort(dim=-1, descending=True).values
    if (ranked[..., -1] == -torch.inf).any():
        # exp takes thirty times as long for −inf as for a number, and a top-k leaves little else.
        ranked = ranked[..., : int(ranked.isfinite().sum(dim=-1).amax())]
    return ranked


def drop_below(
    logits: Float[Tensor, "*batch d_vocab"], last: Float[Tensor, "*batch 1"]
) -> Float[Tensor, "*batch d_vocab"]:
    """Return the logits with −inf in place of what is below ``last`` in its row."""
    if logits.requires_grad:
        return logits.masked_fill(logits < last, -torch.inf)
    # The same without branches, which take two to four times as long: 1/1 − 1 = 0 is taken from what stays, and
    # 1/0 − 1 = inf from the rest.
    return logits - logits.clone().ge_(last).reciprocal_().sub_(1)


def first_reaching(
    weights: Float[Tensor, "*batch n"], share: float | Float[Tensor, "*batch 1"]
) -> Int[Tensor, "*batch 1"]:
    """Return, row by row, the first index at which the running sum of ``weights`` reaches ``share`` of their total.

    ``weights`` ≥ 0, the largest of each row no denormal (a softmax's is at least 1/n); ``share`` in [0, 1], where 0
    means the first weight above 0. The index always has a weight above 0. Sums are in ``exact_dtype``, since float32
    sums over a vocabulary drift by 1e-4 and would move the line.

    Cost: one pass that adds up blocks of 64, then a search among the blocks and one inside a block: a running sum of
    every token would cost six times as much.
    """
    exact = exact_dtype(weights)
    if weights.shape[-1] <= 16 * _BLOCK:
        until = weights.cumsum(dim=-1, dtype=exact)
        return torch.searchsorted(until, _line(share, until))
    blocks = _in_blocks(weights, 0)
    until = blocks.sum(dim=-1, dtype=exact).cumsum(dim=-1)
    line = _line(share, until)
    block = torch.searchsorted(until, line)
    before = until.gather(-1, (block - 1).clamp(min=0)).where(block > 0, 0)
    inside = blocks.take_along_dim(block.unsqueeze(-1), dim=-2).squeeze(-2).cumsum(dim=-1, dtype=exact)
    # The block's own sum may have been rounded otherwise, and end a hair below the line.
    rest = torch.minimum(line - before, inside[..., -1:])
    return block * _BLOCK + torch.searchsorted(inside, rest)


def _in_blocks(rows: Float[Tensor, "*batch n"], filler: float) -> Float[Tensor, "*batch blocks 64"]:
    missing = -rows.shape[-1] % _BLOCK
    padded = torch.nn.functional.pad(rows, (0, missing), value=filler) if missing else rows
    return padded.unflatten(-1, (-1, _BLOCK))


def _line(share: float | Tensor, until: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch 1"]:
    # Not 0: a weight of 0 at the start would reach that.
    return (share * until[..., -1:]).clamp(min=torch.finfo(until.dtype).tiny)


def by_rows(f: Callable, *tensors: Float[Tensor, "*batch _"]) -> Tensor | tuple[Tensor, ...]:
    """Return ``f(*tensors)`` computed on a few rows at a time, so that what it makes on the way stays in the
    processor's cache: over a large batch that is twice as fast."""
    rows = max(1, _TILE // max(1, tensors[0].shape[-1]))
    batch = tensors[0].shape[:-1]
    if batch.numel() <= rows:
        return f(*tensors)
    parts = [f(*part) for part in zip(*(x.flatten(0, -2).split(rows) for x in tensors), strict=True)]
    if isinstance(parts[0], Tensor):
        return torch.cat(parts).unflatten(0, batch)
    return tuple(torch.cat(part).unflatten(0, batch) for part in zip(*parts, strict=True))
