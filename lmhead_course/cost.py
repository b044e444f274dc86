"""What a head costs: parameters, FLOPs, bytes, and the time that a machine needs for them at best.

A multiply and an add are two FLOPs. Bytes are those of numbers read or written once, the least that memory must move.

Source for the roofline: Williams, Waterman and Patterson 2009, Roofline: an insightful visual performance model.
"""

from dataclasses import dataclass

from .catalog import Device, Model

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "int4": 0.5}
"""Bytes a number. For int8 and int4 the scales, a few per cent more, are left out."""


@dataclass(frozen=True)
class HeadShape:
    """The two sizes that decide what a head costs, and whether it has a bias.

    Raises ``ValueError`` for a size below 1.
    """

    d_model: int
    d_vocab: int
    bias: bool = False

    def __post_init__(self):
        for name in ("d_model", "d_vocab"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def parameters(self) -> int:
        """Numbers in the weight (d_vocab, d_model) and the bias (d_vocab,)."""
        return self.d_vocab * (self.d_model + self.bias)

    def flops(self, tokens: int = 1) -> int:
        """FLOPs of the logits of so many hidden states: 2 · d_model · d_vocab each, and an add for a bias."""
        return tokens * self.d_vocab * (2 * self.d_model + self.bias)

    def training_flops(self, tokens: int = 1, *, recompute: bool = False) -> int:
        """FLOPs of forward and backward: logits, gradient of the hidden states, gradient of the weight; 6 · d · V.

        With ``recompute`` the logits are computed twice, as ``linear_cross_entropy`` does: 8 · d · V.
        """
        return (4 if recompute else 3) * self.flops(tokens)

    def weight_bytes(self, dtype: str = "float32") -> float:
        """Bytes of the weight and bias."""
        return self.parameters * BYTES[check_dtype(dtype)]

    def logits_bytes(self, tokens: int = 1, dtype: str = "float32") -> float:
        """Bytes of the logits of so many hidden states; their gradient takes as many again."""
        return tokens * self.d_vocab * _activation_bytes(dtype)

    def bytes_moved(self, tokens: int = 1, dtype: str = "float32") -> float:
        """Bytes that the logits of so many hidden states need at least: weights and states read, logits written.

        ``dtype`` is that of the weights; states and logits are in 16 bits at least.
        """
        states = tokens * self.d_model * _activation_bytes(dtype)
        return self.weight_bytes(dtype) + states + self.logits_bytes(tokens, dtype)

    def intensity(self, tokens: int = 1, dtype: str = "float32") -> float:
        """Arithmetic intensity: FLOPs for each byte moved."""
        return self.flops(tokens) / self.bytes_moved(tokens, dtype)


def head_of(model: Model) -> HeadShape:
    """Return the shape of a catalog model's head."""
    return HeadShape(model.d_model, model.d_vocab, bias=model.family == "bert")


def check_dtype(dtype: str) -> str:
    """Return the dtype. Raises ``ValueError`` for one that is not in ``BYTES``."""
    if dtype not in BYTES:
        raise ValueError(f"dtype must be one of {', '.join(BYTES)}, got {dtype!r}")
    return dtype


def _activation_bytes(dtype: str) -> float:
    return max(BYTES[check_dtype(dtype)], 2.0)


# ---- the roofline ---------------------------------------------------------------------------------------------


def ridge(device: Device) -> float:
    """Return the intensity, in FLOPs a byte, from which on a device is bound by arithmetic and not by memory."""
    return device.flops / device.bandwidth


def attainable(device: Device, intensity: float) -> float:
    """Return the FLOPs a second that a device can reach at best: min(peak, bandwidth · intensity)."""
    return min(device.flops, device.bandwidth * intensity)


def least_seconds(device: Device, flops: float, moved: float) -> float:
    """Return the time that the slower of arithmetic and memory needs, if the other is hidden behind it entirely."""
    return max(flops / device.flops, moved / device.bandwidth)


# ---- the softmax in two steps ---------------------------------------------------------------------------------


def adaptive_flops(d_model: int, cutoffs: list[int], chances: list[float], div_value: float = 4.0) -> float:
    """Return the expected FLOPs of one target's log-probability under an adaptive softmax.

    ``cutoffs`` are the ends of the clusters, in ranks, the last being d_vocab; ``chances`` the share of targets in
    each. The first cluster is always computed, with one more row for each other cluster; cluster i only for its
    targets, after a projection to d_model / div_value ** i. Source: Grave et al. 2017 (arXiv:1609.04309).
    """
    if len(cutoffs) != len(chances):
        raise ValueError(
            f"cutoffs and chances must be as many, got {len(cutoffs)} cutoffs and {len(chances)} chances"
        )
    total = 2.0 * d_model * (cutoffs[0] + len(cutoffs) - 1)
    for i in range(1, len(cutoffs)):
        narrow = max(int(d_model // div_value**i), 1)
        total += chances[i] * 2.0 * narrow * (d_model + cutoffs[i] - cutoffs[i - 1])
    return total
