"""From logits to probabilities, and what a distribution's spread is called."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def logsumexp(logits: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "*batch"]:
    """Return ln Σ exp(logit) over the last axis, in nats, without overflow.

    The row's maximum is taken out first: ln Σ exp(z) = m + ln Σ exp(z − m), and no exponent is then above 0. A row
    of −inf gives −inf. Same dtype as ``logits``.
    """
    peak = logits.amax(dim=-1, keepdim=True)
    # A row of −inf would compute −inf − (−inf) = NaN: shift it by 0 instead.
    peak = torch.where(peak.isfinite(), peak, torch.zeros_like(peak))
    total = (logits - peak).exp().sum(dim=-1, keepdim=True, dtype=_at_least_float32(logits))
    return (peak + total.log()).squeeze(-1).to(logits.dtype)


def log_softmax(logits: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "*batch d_vocab"]:
    """Return ln of the softmax, in nats: logits − logsumexp(logits). A logit of −inf stays −inf.

    The row's maximum is taken out of both first: the difference of two large floats would be coarse.
    """
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted - logsumexp(shifted).unsqueeze(-1)


def softmax(logits: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "*batch d_vocab"]:
    """Return exp(logit) / Σ exp(logit) over the last axis, computed with the row's maximum taken out.

    Finite logits of any size give finite probabilities that sum to one; a logit of −inf gives exactly 0.
    """
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()
    return (weights / weights.sum(dim=-1, keepdim=True, dtype=_at_least_float32(logits))).to(logits.dtype)


def softmax_naive(logits: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "*batch d_vocab"]:
    """Return the softmax as its formula stands, for teaching: float32's exp is inf from 88.8 on, and inf/inf is NaN."""
    weights = logits.exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def online_normaliser(
    logits: Float[Tensor, "*batch d_vocab"], chunk: int = 4096
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Return each row's maximum m and Σ exp(logit − m), reading every logit once, ``chunk`` of them at a time.

    When a chunk brings a larger maximum, the sum so far is rescaled by exp(old m − new m).

    Source: Milakov and Gimelshein 2018 (arXiv:1805.02867), algorithm 3.
    """
    peak = logits.new_full(logits.shape[:-1], -math.inf)
    total = torch.zeros_like(peak)
    for part in logits.split(chunk, dim=-1):
        higher = torch.maximum(peak, part.amax(dim=-1))
        # Until something finite has been seen there is nothing to rescale, and −inf − (−inf) would be NaN.
        shift = torch.where(higher.isfinite(), higher, torch.zeros_like(higher))
        total = total * (peak - shift).exp() + (part - shift.unsqueeze(-1)).exp().sum(dim=-1)
        peak = higher
    return peak, total


def softmax_online(
    logits: Float[Tensor, "*batch d_vocab"], chunk: int = 4096
) -> Float[Tensor, "*batch d_vocab"]:
    """Return the softmax with the one-pass normaliser; the probabilities themselves need a second pass."""
    peak, total = online_normaliser(logits, chunk)
    return (logits - peak.unsqueeze(-1)).exp() / total.unsqueeze(-1)


def entropy(
    probabilities: Float[Tensor, "*batch d_vocab"], *, base: float = math.e
) -> Float[Tensor, "*batch"]:
    """Return −Σ p ln p over the last axis: in nats, or in bits with ``base=2``. A probability of 0 adds nothing."""
    return torch.special.entr(probabilities).sum(dim=-1) / math.log(base)


def perplexity(probabilities: Float[Tensor, "*batch d_vocab"]) -> Float[Tensor, "*batch"]:
    """Return exp(entropy): the number of equally likely candidates that would be just as uncertain."""
    return entropy(probabilities).exp()


def gumbel_max(
    logits: Float[Tensor, "*batch d_vocab"], generator: torch.Generator | None = None
) -> Int[Tensor, "*batch"]:
    """Return one draw a row from the softmax, without computing it: the argmax of logits + Gumbel noise.

    The noise is −ln(−ln u), u uniform in (0, 1), one number a logit. For a temperature divide the logits *before*.
    In float64 where the device has it: float32's largest u is 1 − 2⁻²⁴, whose noise is 16.6, and tokens further
    below the best one would come too rarely.

    Source: Gumbel 1954; Maddison, Tarlow and Minka 2014 (arXiv:1411.0030).
    """
    dtype = torch.float32 if logits.device.type == "mps" else torch.float64
    uniform = torch.rand(logits.shape, dtype=dtype, device=logits.device, generator=generator)
    # rand() may be 0, whose noise would be −inf.
    noise = -(-uniform.clamp(min=torch.finfo(dtype).tiny).log()).log()
    return (logits.to(dtype) + noise).argmax(dim=-1)


def spacing(values: Float[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Return the distance from |value| to the next larger number that ``dtype`` can hold; float64.

    It doubles at every power of two: eps · 2^e for 2^e ≤ |value| < 2^(e+1), and never below the smallest subnormal.
    """
    limits = torch.finfo(dtype)
    _, exponent = torch.frexp(values.double())  # |value| = mantissa · 2^exponent with mantissa in [0.5, 1)
    steps = torch.ldexp(torch.full_like(values, limits.eps, dtype=torch.float64), exponent - 1)
    subnormal = limits.smallest_normal * limits.eps
    return torch.where(values == 0, subnormal, steps.clamp(min=subnormal))


def _at_least_float32(logits: Tensor) -> torch.dtype:
    """float32 for half precision: 65,520 ones already add up to inf in float16."""
    return logits.dtype if logits.dtype == torch.float64 else torch.float32
