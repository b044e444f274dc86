"""Logits processors: pure functions that take logits and return new logits.

All share these rules. ``logits`` has shape (…, d_vocab), any number of rows; rows never affect each other, and the
argument is never changed. float16, bfloat16 and integers are computed and returned in float32, float64 stays. A
dropped token is at −inf. A setting outside its range raises ``ValueError`` that names it; so does a row that holds NaN
or +inf, or nothing above −inf.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

Logits = Num[Tensor, "*batch d_vocab"]
Processed = Float[Tensor, "*batch d_vocab"]
TokenIds = Int[Tensor, "*batch _"] | Sequence[int] | None


_ALLOWED = {
    "temperature": (Real, lambda x: 0 <= x < math.inf, "a finite number ≥ 0"),
    "top_k": (Integral, lambda x: x >= 0, "a whole number ≥ 0 (0 is off)"),
    "top_p": (Real, lambda x: 0 <= x <= 1, "a number in [0, 1] (1 is off)"),
    "min_p": (Real, lambda x: 0 <= x <= 1, "a number in [0, 1] (0 is off)"),
    "repetition_penalty": (Real, lambda x: 0 < x < math.inf, "a finite number > 0 (1 is off)"),
    "presence_penalty": (Real, math.isfinite, "a finite number (0 is off)"),
    "frequency_penalty": (Real, math.isfinite, "a finite number (0 is off)"),
}
STAGES = tuple(_ALLOWED)
"""The names of the processors below, which are those of their settings."""


def check_setting(name: str, value: Any) -> None:
    """Raise ``ValueError``, naming the setting and the value, for a value that a processor cannot work with."""
    kind, allowed, words = _ALLOWED[name]
    try:
        fits = isinstance(value, kind) and allowed(value if kind is Integral else float(value))
    except OverflowError:  # a whole number beyond every float
        fits = False
    if not fits:
        raise ValueError(f"{name} must be {words}, got {value!r}")


def check_logits(logits: Logits) -> Processed:
    """Return the logits in float32 (float64 stays), or raise ``ValueError`` for rows that have no softmax."""
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits must have shape (…, d_vocab) with d_vocab ≥ 1, got {tuple(logits.shape)}")
    logits = logits if logits.dtype == torch.float64 else logits.float()
    # One pass finds all three faults: a maximum is NaN, +inf or −inf exactly when its row is broken.
    broken = ~logits.amax(dim=-1).isfinite()
    if broken.any():
        rows = broken.nonzero().tolist() if logits.ndim > 1 else "the only one"
        raise ValueError(
            f"logits must be below +inf, not NaN, and not all −inf in a row; broken rows: {rows}"
        )
    return logits


def apply_temperature(logits: Logits, temperature: float) -> Processed:
    """Return logits / T: differences between logits grow for T < 1 and shrink for T > 1; the order never changes.

    ``temperature`` ≥ 0 and finite; 0 is a convention, the limit T → 0: only the largest logit stays, the lowest id
    among equals.
    """
    check_setting("temperature", temperature)
    logits = check_logits(logits)
    if temperature == 0:
        best = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, logits.argmax(-1, keepdim=True), True)
        return _keep(logits, best)
    # A divisor outside float32's range would turn into 0 or inf, and 0/0 and inf/inf are NaN.
    limits = torch.finfo(logits.dtype)
    divisor = min(max(temperature, limits.tiny), limits.max)
    scaled = logits / divisor
    overflow = ~scaled.amax(dim=-1, keepdim=True).isfinite()
    if overflow.any():
        # Where the quotient leaves the range, shift the row first: that changes no probability.
        shifted = (logits - logits.amax(dim=-1, keepdim=True)) / divisor
        scaled = torch.where(overflow, shifted, scaled)
    if divisor < 1:
        # Below the range a quotient is −inf, and that would read as a dropped token.
        scaled = torch.where(logits.isfinite(), scaled.clamp(min=limits.min), scaled)
    return scaled


def filter_top_k(logits: Logits, k: int) -> Processed:
    """Keep exactly the k largest logits of each row, the lowest ids among equals; k = 0 or k ≥ d_vocab keeps all.

    Source: Fan, Lewis and Dauphin 2018 (arXiv:1805.04833).
    """
    check_setting("top_k", k)
    logits = check_logits(logits)
    if k == 0 or k >= logits.shape[-1]:
        return logits.clone()
    # torch.topk picks any of the equal tokens, so it serves only for the k-th value; the rest is counting.
    threshold = logits.topk(k, dim=-1).values[..., -1:]
    above, equal = logits > threshold, logits == threshold
    room = k - above.sum(dim=-1, keepdim=True)
    return _keep(logits, above | (equal & (equal.cumsum(dim=-1) <= room)))


def filter_top_p(logits: Logits, p: float) -> Processed:
    """Keep each row's nucleus: the smallest set of most probable tokens whose mass reaches p, the lowest id first
    among equals, and at least one token. p = 1 keeps all, p = 0 the single best.

    The mass is that of the row as it comes in, so after a top-k it is the survivors' renormalised mass. A token stays
    while the tokens before it hold less than p: the one that crosses the line is kept, also on equality.

    Cost: one stable sort a row. Source: Holtzman et al. 2020 (arXiv:1904.09751).
    """
    check_setting("top_p", p)
    logits = check_logits(logits)
    if p == 1:
        return logits.clone()
    ranked, ids = logits.sort(dim=-1, descending=True, stable=True)
    weights = (ranked - ranked[..., :1]).exp()
    # float32 sums over a vocabulary drift by 1e-4 and would move the line.
    mass = weights.cumsum(dim=-1, dtype=exact_dtype(logits))
    before = mass.roll(1, dims=-1)
    before[..., 0] = -1  # nothing stands before the best token: it always stays
    kept = before < p * mass[..., -1:]
    return _keep(logits, torch.zeros_like(kept).scatter_(-1, ids, kept))


def filter_min_p(logits: Logits, min_p: float) -> Processed:
    """Keep tokens with probability ≥ min_p · (the largest probability); 0 keeps all, 1 only the best and its equals.

    Source: Nguyen et al. 2024 (arXiv:2407.01082).
    """
    check_setting("min_p", min_p)
    logits = check_logits(logits)
    if min_p == 0:
        return logits.clone()
    # p / p_max = exp(logit − largest logit): the normaliser cancels.
    return _keep(logits, (logits - logits.amax(dim=-1, keepdim=True)).exp() >= min_p)


def penalize_repetition(
    logits: Logits, penalty: float, *, prompt: TokenIds = None, generated: TokenIds = None
) -> Processed:
    """Divide positive logits by the penalty and multiply negative ones, once per distinct token of both texts.

    1 is off, above 1 discourages. The rule depends on the sign of a logit, so it is *not* shift invariant. ``prompt``
    and ``generated`` are token ids (…, n) with the rows of ``logits``; negative ids are padding.

    Source: Keskar et al. 2019 (arXiv:1909.05858), section 4.1, with the sign rule that libraries use.
    """
    check_setting("repetition_penalty", penalty)
    logits = check_logits(logits)
    # A factor outside the dtype's range would turn into inf, and 0 · inf is NaN.
    penalty = min(penalty, torch.finfo(logits.dtype).max)
    seen = (token_counts(logits, prompt, "prompt") + token_counts(logits, generated, "generated")) > 0
    return keep_finite(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def penalize_presence(logits: Logits, penalty: float, *, generated: TokenIds = None) -> Processed:
    """Subtract the penalty from every token generated so far, once however often it came; 0 is off."""
    check_setting("presence_penalty", penalty)
    logits = check_logits(logits)
    seen = token_counts(logits, generated, "generated") > 0
    return keep_finite(seen, logits - penalty, logits)


def penalize_frequency(logits: Logits, penalty: float, *, generated: TokenIds = None) -> Processed:
    """Subtract penalty · count from every token generated so far; 0 is off."""
    check_setting("frequency_penalty", penalty)
    logits = check_logits(logits)
    counts = token_counts(logits, generated, "generated")
    return keep_finite(counts > 0, logits - penalty * counts, logits)


def token_counts(logits: Processed, ids: TokenIds, name: str) -> Float[Tensor, "*batch d_vocab"]:
    """Return how often each token occurs in ``ids`` (…, n), row by row; negative ids are padding and not counted.

    Raises ``ValueError``, naming the argument ``name``, for ids of other rows, ids ≥ d_vocab, or no integers.
    """
    d_vocab = logits.shape[-1]
    counts = logits.new_zeros((*logits.shape[:-1], d_vocab + 1))
    if ids is None:
        return counts[..., :d_vocab]
    ids = torch.as_tensor(ids, device=logits.device)
    if ids.numel() == 0:
        return counts[..., :d_vocab]
    if ids.is_floating_point() or ids.shape[:-1] != logits.shape[:-1] or ids.ndim != logits.ndim:
        expected = (*logits.shape[:-1], "n")
        raise ValueError(
            f"{name} must be integer ids of shape {expected}, got {ids.dtype} {tuple(ids.shape)}"
        )
    if (ids >= d_vocab).any():
        raise ValueError(f"{name} holds token id {int(ids.max())}; ids must be below d_vocab = {d_vocab}")
    # Padding is counted in an extra last column that is then cut off.
    ids = torch.where(ids < 0, d_vocab, ids.long())
    return counts.scatter_add_(-1, ids, torch.ones_like(ids, dtype=counts.dtype))[..., :d_vocab]


def _keep(logits: Tensor, mask: Tensor) -> Tensor:
    return logits.masked_fill(~mask, -torch.inf)


def keep_finite(mask: Tensor, changed: Tensor, logits: Tensor) -> Tensor:
    """Take ``changed`` where the mask is set, held inside the dtype's range: a penalty never drops a token, nor
    brings one back."""
    limits = torch.finfo(logits.dtype)
    return torch.where(mask & logits.isfinite(), changed.clamp(limits.min, limits.max), logits)


def exact_dtype(where: Tensor | torch.device) -> torch.dtype:
    """Return the dtype for long sums on a device: float64 where it has that (Apple's GPUs do not)."""
    device = where.device if isinstance(where, Tensor) else where
    return torch.float32 if device.type == "mps" else torch.float64
