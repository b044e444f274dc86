"""From logits to a loss: cross-entropy, and the same straight from hidden states without the whole logits matrix."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .softmax import log_softmax

IGNORE = -100
REDUCTIONS = ("mean", "sum", "none")
TILE = (1024, 2048)
"""Hidden states and tokens of the vocabulary in one tile of logits: 8 MiB in float32, which stays in a cache."""


def cross_entropy(
    logits: Float[Tensor, "*batch d_vocab"],
    targets: Int[Tensor, "*batch"],
    *,
    ignore_index: int = IGNORE,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """Return −Σ q ln p in nats, where p is the softmax of the logits and q = (1 − ε)·onehot(target) + ε/V.

    Shapes: ``logits`` (…, d_vocab), ``targets`` (…) of token ids. Positions whose target is ``ignore_index`` count
    for nothing. ``reduction``: "none" gives a loss a position (…), 0 where ignored; "sum" adds them up; "mean" divides
    that by the number of positions that count (NaN if none does, as in torch). ε is ``label_smoothing``.

    Raises ``ValueError`` for targets that are no integers or outside the vocabulary, an ε outside [0, 1], or an unknown
    reduction. This is the formula as it stands; ``linear_cross_entropy`` gives the same from hidden states, in little
    memory.
    """
    _check(label_smoothing, reduction)
    counted = _counted(targets, logits.shape[-1], ignore_index)
    log_p = log_softmax(logits)
    loss = -log_p.gather(-1, targets.long().masked_fill(~counted, 0).unsqueeze(-1)).squeeze(-1)
    if label_smoothing:  # a factor of 0 would make a NaN of a dropped token's −ln 0
        loss = (1 - label_smoothing) * loss - label_smoothing * log_p.mean(dim=-1)
    return _reduced(loss.masked_fill(~counted, 0.0), counted, reduction)


def linear_cross_entropy(
    hidden: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_vocab d_model"],
    targets: Int[Tensor, "*batch"],
    *,
    bias: Float[Tensor, " d_vocab"] | None = None,
    ignore_index: int = IGNORE,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Float[Tensor, "..."]:
    """Return the cross-entropy of ``hidden @ weight.T + bias`` in nats, without ever holding all logits at once.

    Same value and gradients as ``F.cross_entropy(F.linear(hidden, weight, bias), targets, …)``, where ``hidden`` may
    have any leading dimensions and ``targets`` has the same. Shapes: ``hidden`` (…, d_model), ``weight`` (d_vocab,
    d_model), ``targets`` (…), result (…) for "none" and () for "mean" and "sum". Half precision is computed in
    float32 and the loss is float32 then; each gradient has its input's dtype. Differentiable once.

    Why it is equal: for "mean" and "sum" a hidden state's gradient p − q is known as soon as its own logits are, but
    for one factor, so the gradients are formed in the forward pass, from a few hidden states' logits at a time. For
    "none", for half precision and without gradients, ln Σ exp is gathered tile by tile (``online_normaliser`` does
    the same), and the backward pass computes each tile again. Cost: 6 · d_model · d_vocab FLOPs a hidden state, as
    for the naive way, and 8 where tiles are computed again; memory beyond the gradients: a quarter of the weight, or
    one tile. A second backward pass through a kept graph forms the gradients anew.

    Raises as ``cross_entropy`` does, and for shapes that do not fit. Sources: Wijmans et al. 2024 (arXiv:2411.09009)
    for tiles computed twice, Hsu et al. 2024 (arXiv:2410.10989) for gradients in the forward pass.
    """
    _check(label_smoothing, reduction)
    _check_shapes(hidden, weight, targets, bias)
    counted = _counted(targets, len(weight), ignore_index)
    flat = targets.long().masked_fill(~counted, 0).flatten()
    rows = hidden.reshape(len(flat), hidden.shape[-1])  # a −1 is ambiguous where d_model is 0
    arguments = rows, weight, bias, flat, counted.flatten(), label_smoothing
    if reduction != "none" and _wants_full_gradients(rows, weight, bias):
        return _FusedCrossEntropy.apply(*arguments, reduction)
    loss = _TiledCrossEntropy.apply(*arguments)
    return _reduced(loss.view(targets.shape), counted, reduction)


def _wants_full_gradients(*inputs: Tensor | None) -> bool:
    """Return whether gradients will be asked for, and all in the dtype that is computed in."""
    given = [x for x in inputs if x is not None]
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    return wanted and all(x.dtype == _dtype(*given[:2]) for x in given)


class _FusedCrossEntropy(torch.autograd.Function):
    """The sum or mean of the losses, and its gradients, formed while the logits are at hand."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, counted, *how):
        """Return the loss, and keep the gradients."""
        inputs = hidden, weight, bias, targets, counted
        loss, ctx.grads = _loss_and_gradients(ctx.needs_input_grad, *inputs, *how)
        ctx.save_for_backward(*inputs)
        ctx.how = how
        return loss

    @staticmethod
    def backward(ctx, upstream):
        """Return the gradients, times ``upstream``."""
        _only_once()
        inputs, grads, ctx.grads = ctx.saved_tensors, ctx.grads, None
        if grads is None:  # the graph was kept, and its gradients were given away the first time
            _, grads = _loss_and_gradients(ctx.needs_input_grad, *inputs, *ctx.how)
        if upstream != 1:
            grads = [None if grad is None else grad.mul_(upstream) for grad in grads]
        return *grads, None, None, None, None


def _loss_and_gradients(wanted, hidden, weight, bias, targets, counted, smoothing, reduction):
    """Return the reduced loss, lse − (1 − ε) · target's logit − ε · mean logit over the rows that count, and the
    gradients that are ``wanted``, None for the others."""
    grads = _Grads(wanted, hidden, weight, bias)
    losses = hidden.new_zeros(len(hidden))
    factor = counted.sum().to(hidden.dtype).reciprocal() if reduction == "mean" else 1.0
    scale = torch.zeros_like(losses).masked_fill_(counted, factor)
    for tile in _tiles(hidden, weight, bias, _height(hidden, weight), len(weight)):
        rows, logits = tile.rows, tile.logits
        place, share = targets[rows, None], scale[rows, None]
        losses[rows] = -(1 - smoothing) * logits.gather(1, place)[:, 0]
        if smoothing:
            losses[rows] -= smoothing * logits.mean(dim=1)
        peak = logits.amax(dim=1)
        total = logits.sub_(peak[:, None]).exp_().sum(dim=1)
        losses[rows] += peak + total.log()
        error = logits.mul_(share / total[:, None]).scatter_add_(1, place, (smoothing - 1) * share)
        if smoothing:
            error -= smoothing / len(weight) * share
        grads.add(tile, error)
    return losses.masked_fill_(~counted, 0.0).sum() * factor, list(grads.result())


class _Tile(NamedTuple):
    """The logits of some hidden states (``rows``) for some tokens (``columns``), and the weights they came from."""

    rows: slice
    columns: slice
    hidden: Tensor
    weight: Tensor
    logits: Tensor


class _TiledCrossEntropy(torch.autograd.Function):
    """Loss a hidden state (n,), and its gradients. Each tile of logits is computed in both passes, kept in none."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, counted, smoothing):
        """Return the loss of each row: lse − (1 − ε) · target's logit − ε · mean logit; 0 where it does not count."""
        sums = _Sums(len(hidden), _dtype(hidden, weight), hidden.device)
        for tile in _tiles(hidden, weight, bias, *TILE):
            sums.add(tile, targets, smoothing)
        normaliser = sums.peak + sums.total.log()
        loss = normaliser - (1 - smoothing) * sums.target
        if smoothing:
            loss -= smoothing / len(weight) * sums.logits
        ctx.save_for_backward(hidden, weight, bias, targets, counted, normaliser)
        ctx.smoothing = smoothing
        return loss.masked_fill_(~counted, 0.0)

    @staticmethod
    def backward(ctx, upstream):
        """Return the gradients: with g = (p − q) · upstream, they are g @ weight, g.T @ hidden and Σ g."""
        _only_once()
        hidden, weight, bias, targets, counted, normaliser = ctx.saved_tensors
        upstream = upstream.masked_fill(~counted, 0.0)
        grads = _Grads(ctx.needs_input_grad, hidden, weight, bias)
        for tile in _tiles(hidden, weight, bias, *TILE):
            error = tile.logits.sub_(normaliser[tile.rows, None]).exp_()
            _subtract_targets(error, tile, targets, ctx.smoothing, len(weight))
            grads.add(tile, error.mul_(upstream[tile.rows, None]))
        return *grads.result(), None, None, None


class _Sums:
    """What the forward pass gathers for each row, tile by tile."""

    def __init__(self, n: int, dtype: torch.dtype, device: torch.device):
        self.peak = torch.full((n,), -math.inf, dtype=dtype, device=device)
        self.total, self.target, self.logits = (torch.zeros_like(self.peak) for _ in range(3))

    def add(self, tile: _Tile, targets: Tensor, smoothing: float) -> None:
        rows, logits = tile.rows, tile.logits
        inside, local = _targets_in(tile, targets)
        self.target[rows][inside] = logits[inside, local]
        if smoothing:
            self.logits[rows] += logits.sum(dim=-1)
        higher = torch.maximum(self.peak[rows], logits.amax(dim=-1))
        # Until something finite has been seen, −inf − (−inf) would be NaN.
        shift = higher.masked_fill(higher.isneginf(), 0.0)
        self.total[rows] *= (self.peak[rows] - shift).exp_()
        self.total[rows] += logits.sub_(shift[:, None]).exp_().sum(dim=-1)
        self.peak[rows] = higher


class _Grads:
    """The three gradients, each formed only where it is asked for."""

    def __init__(self, wanted, hidden: Tensor, weight: Tensor, bias: Tensor | None):
        self._like, dtype = (hidden, weight, bias), _dtype(hidden, weight)
        self._hidden = torch.zeros_like(hidden, dtype=dtype) if wanted[0] else None
        self._weight = torch.zeros_like(weight) if wanted[1] else None
        self._bias = torch.zeros_like(bias, dtype=dtype) if wanted[2] else None
        self._part = None  # of the weight's gradient, for half precision, in full precision

    def add(self, tile: _Tile, error: Tensor) -> None:
        if self._hidden is not None:
            self._hidden[tile.rows].addmm_(error, tile.weight)
        if self._weight is not None:
            self._add_to_weight(tile, error)
        if self._bias is not None:
            self._bias[tile.columns] += error.sum(dim=0)

    def _add_to_weight(self, tile: _Tile, error: Tensor) -> None:
        target = self._weight[tile.columns]
        if target.dtype == error.dtype:
            target.addmm_(error.T, tile.hidden)
            return
        # All tiles of some columns follow each other: add them up in full precision, round once.
        if tile.rows.start == 0:
            self._part = torch.zeros(target.shape, dtype=error.dtype, device=target.device)
        target.copy_(self._part.addmm_(error.T, tile.hidden))

    def result(self) -> Iterator[Tensor | None]:
        found = (self._hidden, self._weight, self._bias)
        return (
            None if grad is None else grad.to(like.dtype)
            for grad, like in zip(found, self._like, strict=True)
        )


def _height(hidden: Tensor, weight: Tensor) -> int:
    """Return how many hidden states to take at a time, in equal parts: their logits take a quarter of the weight's
    memory at most, but for a floor below which what is done once a part would show."""
    (d_vocab, d_model), n = weight.shape, len(hidden)
    most = max(min(512, d_model // 4), math.prod(TILE) // d_vocab, 1)
    return math.ceil(n / math.ceil(n / most)) if n else 1


def _tiles(hidden: Tensor, weight: Tensor, bias: Tensor | None, height: int, width: int) -> Iterator[_Tile]:
    """Yield every tile of logits; all tiles of the same columns come one after the other."""
    dtype = _dtype(hidden, weight)
    # One piece of memory for all tiles: fresh pages cost more than what is computed in them.
    room = torch.empty(min(height, len(hidden)) * min(width, len(weight)), dtype=dtype, device=hidden.device)
    with torch.autocast(hidden.device.type, enabled=False):  # it would round the products
        for left in range(0, len(weight), width):
            columns = slice(left, min(left + width, len(weight)))
            part = weight[columns].to(dtype)
            for top in range(0, len(hidden), height):
                rows = slice(top, min(top + height, len(hidden)))
                states = hidden[rows].to(dtype)
                # Tokens by states, and the states in rows of their own: so the products are a little faster.
                shape = len(part), len(states)
                logits = torch.mm(part, states.T.contiguous(), out=room[: math.prod(shape)].view(shape)).T
                if bias is not None:
                    logits += bias[columns]
                yield _Tile(rows, columns, states, part, logits)


def _targets_in(tile: _Tile, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows of a tile (indices) have their target among its columns, and in which column of it."""
    local = targets[tile.rows] - tile.columns.start
    inside = ((local >= 0) & (local < tile.logits.shape[1])).nonzero().squeeze(1)
    return inside, local[inside]


def _subtract_targets(p: Tensor, tile: _Tile, targets: Tensor, smoothing: float, d_vocab: int) -> None:
    """Make p − q of p, in place."""
    inside, local = _targets_in(tile, targets)
    p[inside, local] -= 1 - smoothing
    if smoothing:
        p -= smoothing / d_vocab


def _only_once() -> None:
    if torch.is_grad_enabled():  # torch's once_differentiable would let some second derivatives pass, as 0
        raise RuntimeError("linear_cross_entropy can be differentiated only once: no create_graph=True")


def _dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """Return the dtype to compute in: float32 at least."""
    return torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), torch.float32)


def _reduced(loss: Tensor, counted: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / counted.sum()


def _counted(targets: Tensor, d_vocab: int, ignore_index: int) -> Tensor:
    """Return which targets count, after checking that these are tokens."""
    if targets.dtype == torch.bool or targets.is_floating_point() or targets.is_complex():
        raise ValueError(f"targets must be token ids of an integer dtype, got {targets.dtype}")
    targets = targets.long()  # d_vocab may be beyond a small dtype, in which torch would compare
    counted = targets != ignore_index
    wrong = targets[counted & ((targets < 0) | (targets >= d_vocab))]
    if len(wrong):
        raise ValueError(
            f"targets must be token ids in [0, {d_vocab}) or ignore_index={ignore_index}, got {int(wrong[0])}"
        )
    return counted


def _check(label_smoothing: float, reduction: str) -> None:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def _check_shapes(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None) -> None:
    if weight.ndim != 2 or hidden.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"hidden must be (…, d_model) and weight (d_vocab, d_model), got {tuple(hidden.shape)} "
            f"and {tuple(weight.shape)}"
        )
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"targets must have the shape {tuple(hidden.shape[:-1])} of the hidden states without d_model, "
            f"got {tuple(targets.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({len(weight)},), got {tuple(bias.shape)}")
