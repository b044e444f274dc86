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

from .selection import by_rows, descending, drop_below, first_reaching, largest

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
    fine = logits.amax(dim=-1).abs() < torch.inf
    if not fine.all():
        rows = (~fine).nonzero().tolist() if logits.ndim > 1 else "the only one"
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
    return scaled_by(check_logits(logits), temperature)


def scaled_by(logits: Processed, temperature: float) -> Processed:
    """``apply_temperature`` for logits and a temperature that have been checked."""
    if temperature == 0:
        best = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, logits.argmax(-1, keepdim=True), True)
        return logits.masked_fill(~best, -torch.inf)
    # A divisor outside float32's range would turn into 0 or inf, and 0/0 and inf/inf are NaN.
    limits = torch.finfo(logits.dtype)
    divisor = min(max(temperature, limits.tiny), limits.max)
    scaled = logits / divisor
    if divisor >= 1:
        return scaled
    if (scaled.amax(dim=-1) - scaled.amin(dim=-1) < torch.inf).all():
        return scaled
    # Where a quotient leaves the range upwards, shift the row first: that changes no probability. Downwards it is
    # −inf, and would read as a dropped token.
    highest = logits.amax(dim=-1, keepdim=True)
    scaled = torch.where((highest / divisor).isfinite(), scaled, (logits - highest) / divisor)
    return torch.where(logits.isfinite(), scaled.clamp(min=limits.min), scaled)


def filter_top_k(logits: Logits, k: int) -> Processed:
    """Keep exactly the k largest logits of each row, the lowest ids among equals; k = 0 or k ≥ d_vocab keeps all.

    Source: Fan, Lewis and Dauphin 2018 (arXiv:1805.04833).
    """
    check_setting("top_k", k)
    logits = check_logits(logits)
    if k == 0 or k >= logits.shape[-1]:
        return logits.clone()
    # It picks any of equal tokens, so only its values serve: the last that stays, and the one after it.
    last, following = largest(logits, k + 1)[0][..., -2:].split(1, dim=-1)
    return _keep_largest(logits, torch.full_like(last, k, dtype=torch.long), last, following)


def pick_top_k(
    logits: Processed, k: int, temperature: float = 1.0
) -> tuple[Float[Tensor, "*batch k"], Int[Tensor, "*batch k"]] | None:
    """Return what ``filter_top_k`` keeps of logits / temperature, and the ids, rising.

    None where picking it out would not pay: k above an eighth of the vocabulary, or equals on both sides of the cut;
    and at temperature 0, which takes the lowest of equal ids, where ``largest`` may find any.
    """
    if temperature == 0 or not 0 < k <= logits.shape[-1] // 8:
        return None
    values, ids = largest(logits, k + 1)
    # A temperature keeps the order, so that only what was picked need be divided by it.
    values = scaled_by(values, temperature)
    if (values[..., -2] == values[..., -1]).any():
        return None
    ids, order = ids[..., :-1].sort(dim=-1)
    return values.gather(-1, order), ids


def filter_top_p(logits: Logits, p: float) -> Processed:
    """Keep each row's nucleus: the smallest set of most probable tokens whose mass reaches p, the lowest id first
    among equals, and at least one token. p = 1 keeps all, p = 0 the single best.

    The mass is that of the row as it comes in, so after a top-k it is the survivors' renormalised mass. A token stays
    while the tokens before it hold less than p: the one that crosses the line is kept, also on equality.

    Only values are sorted, since the nucleus is all that is above its last value, and ids matter only among tokens
    equal to that. Cost: one sort of the values a row. Source: Holtzman et al. 2020 (arXiv:1904.09751).
    """
    check_setting("top_p", p)
    return nucleus(check_logits(logits), p)


def nucleus(logits: Processed, p: float) -> Processed:
    """``filter_top_p`` for logits and a mass that have been checked."""
    if p == 1 or logits.numel() == 0:
        return logits.clone()
    count, last, following = by_rows(lambda rows: _nucleus_edge(rows, p), logits.detach())
    return _keep_largest(logits, count, last, following)


def _nucleus_edge(
    logits: Float[Tensor, "*batch d_vocab"], p: float
) -> tuple[Int[Tensor, "*batch 1"], Float[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """Return how many tokens the nucleus holds, its smallest logit, and the logit after that (−inf if none is)."""
    ranked = descending(logits)
    count = first_reaching((ranked - ranked[..., :1]).exp_(), p) + 1
    n = ranked.shape[-1]
    following = ranked.gather(-1, count.clamp(max=n - 1)).masked_fill(count == n, -torch.inf)
    return count, ranked.gather(-1, count - 1), following


def filter_min_p(logits: Logits, min_p: float) -> Processed:
    """Keep tokens with probability ≥ min_p · (the largest probability); 0 keeps all, 1 only the best and its equals.

    Source: Nguyen et al. 2024 (arXiv:2407.01082).
    """
    check_setting("min_p", min_p)
    logits = check_logits(logits)
    if min_p == 0:
        return logits.clone()
    # p / p_max = exp(logit − largest logit): the normaliser cancels.
    dropped = (logits - logits.amax(dim=-1, keepdim=True)).exp() < min_p
    return logits.masked_fill(dropped, -torch.inf)


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
    if not is_integer(ids) or ids.shape[:-1] != logits.shape[:-1] or ids.ndim != logits.ndim:
        expected = (*logits.shape[:-1], "n")
        raise ValueError(
            f"{name} must be integer ids of shape {expected}, got {ids.dtype} {tuple(ids.shape)}"
        )
    ids = ids.long()  # d_vocab may be beyond a small dtype, in which torch would compare
    if (ids >= d_vocab).any():
        raise ValueError(f"{name} holds token id {int(ids.max())}; ids must be below d_vocab = {d_vocab}")
    # Padding is counted in an extra last column that is then cut off.
    ids = torch.where(ids < 0, d_vocab, ids)
    return counts.scatter_add_(-1, ids, torch.ones_like(ids, dtype=counts.dtype))[..., :d_vocab]


def is_integer(values: Tensor) -> bool:
    """Return whether a tensor holds integers, of whatever size; truth values are none."""
    return not (values.dtype == torch.bool or values.is_floating_point() or values.is_complex())


def _keep_largest(logits: Tensor, count: Tensor, last: Tensor, following: Tensor) -> Tensor:
    """Keep the ``count`` largest logits of each row, the lowest ids among equals; ``last`` is the smallest of them and
    ``following`` the one after it."""
    kept = drop_below(logits, last)
    tied = (last == following).squeeze(-1)
    if tied.any():
        rows, edge = kept[tied], last[tied]
        equal = rows == edge
        room = count.expand(last.shape)[tied] - (rows > edge).sum(dim=-1, keepdim=True)
        kept[tied] = rows.masked_fill(equal & (equal.cumsum(dim=-1) > room), -torch.inf)
    return kept


def keep_finite(mask: Tensor, changed: Tensor, logits: Tensor) -> Tensor:
    """Take ``changed`` where the mask is set, held inside the dtype's range: a penalty never drops a token, nor
    brings one back."""
    limits = torch.finfo(logits.dtype)
    return torch.where(mask & logits.isfinite(), changed.clamp(limits.min, limits.max), logits)
