"""Is a model right as often as it is sure? Confidence and accuracy, bin by bin."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .softmax import softmax


@dataclass(frozen=True)
class Predictions:
    """What a model said at n positions, and what was right: all that calibration needs of its logits.

    ``confidence`` (n,) is the probability of its best token, ``correct`` (n,) whether that came, ``p_true`` (n,) the
    probability of the token that came; ``d_vocab`` the size of its vocabulary.
    """

    confidence: Float[Tensor, " n"]
    correct: Bool[Tensor, " n"]
    p_true: Float[Tensor, " n"]
    d_vocab: int

    @property
    def loss(self) -> float:
        """The mean loss in nats."""
        return -self.p_true.log().mean().item()

    @property
    def accuracy(self) -> float:
        """How often the best token came, between 0 and 1."""
        return self.correct.double().mean().item()

    def smoothed(self, epsilon: float) -> "Predictions":
        """Return the predictions mixed with the uniform distribution: (1 − ε) · p + ε/V; the best token stays best.

        This is what training with label smoothing ε has as its goal wherever training without it has p: the
        cross-entropy of q = (1 − ε)·truth + ε/V is least at q itself. Raises ``ValueError`` for ε outside [0, 1).
        """
        if not 0 <= epsilon < 1:
            raise ValueError(f"epsilon must be in [0, 1), got {epsilon}")
        confidence, p_true = (
            (1 - epsilon) * p + epsilon / self.d_vocab for p in (self.confidence, self.p_true)
        )
        return Predictions(confidence, self.correct, p_true, self.d_vocab)


def predictions(logits: Float[Tensor, "n d_vocab"], targets: Int[Tensor, " n"]) -> Predictions:
    """Return the confidence, the correctness and the probability of the truth at each position.

    ``logits`` (n, d_vocab), ``targets`` (n,) the token ids that came.
    """
    p = softmax(logits)
    confidence, best = p.max(dim=-1)
    return Predictions(confidence, best == targets, p.gather(1, targets.unsqueeze(1)).squeeze(1), p.shape[1])


@dataclass(frozen=True)
class Calibration:
    """Predictions sorted into bins of equal width by their confidence.

    ``counts`` (bins,) predictions a bin, ``confidence`` and ``accuracy`` (bins,) their means, NaN where a bin is empty.
    """

    counts: Int[Tensor, " bins"]
    confidence: Float[Tensor, " bins"]
    accuracy: Float[Tensor, " bins"]

    @property
    def error(self) -> float:
        """The expected calibration error, Σ (share of the bin) · |accuracy − confidence|, between 0 and 1."""
        gap = (self.accuracy - self.confidence).abs().nan_to_num()
        return (gap * self.counts).sum().item() / self.counts.sum().item()

    @property
    def gap(self) -> float:
        """Mean confidence − accuracy over all predictions: above 0 the model is too sure, below 0 too modest."""
        filled = self.counts > 0
        difference = (self.confidence - self.accuracy)[filled] * self.counts[filled]
        return difference.sum().item() / self.counts.sum().item()


def calibrate(made: Predictions, bins: int = 10) -> Calibration:
    """Return the mean confidence and the accuracy of predictions in ``bins`` bins of confidence.

    Bin i holds confidences in [i/bins, (i + 1)/bins), the last one also 1. Raises ``ValueError`` for less than one bin.
    Source: Guo et al. 2017 (arXiv:1706.04599), equations 2 to 5.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    place = (made.confidence.double() * bins).long().clamp(max=bins - 1)
    counts = torch.bincount(place, minlength=bins)
    sums = (
        torch.bincount(place, weights=values.double(), minlength=bins)
        for values in (made.confidence, made.correct)
    )
    confidence, accuracy = (total / counts for total in sums)
    return Calibration(counts, confidence, accuracy)
