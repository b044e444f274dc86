"""What the loss explorer shows for a true token, its logit and ε: numbers and words, no widgets."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..calibration import Calibration, Predictions, calibrate
from ..loss import cross_entropy
from ..softmax import softmax
from .token_table import percent, quoted

CURVE = (-12.0, 18.0)
"""The range of the true token's logit over which the loss is drawn."""


@dataclass(frozen=True)
class LossParams:
    """The token id that came, its logit, and ε of the label smoothing, in [0, 1).

    Raises ``ValueError``, naming the parameter and the value, for anything else.
    """

    target: int
    logit: float
    epsilon: float = 0.0

    def __post_init__(self):
        if not math.isfinite(self.logit):
            raise ValueError(f"logit must be finite, got {self.logit!r}")
        if not 0 <= self.epsilon < 1:
            raise ValueError(f"epsilon must be in [0, 1), got {self.epsilon!r}")


@dataclass(frozen=True)
class LossRow:
    """One token, or all that are not shown: the model's probability p, the target's q, and the gradient p − q."""

    label: str
    p: float
    q: float

    @property
    def gradient(self) -> float:
        """The slope of the loss over this token's logit."""
        return self.p - self.q


@dataclass(frozen=True)
class LossView:
    """Everything the explorer shows for one setting; losses in nats.

    ``loss`` is against q and ``plain`` against the true token alone; ``floor`` is the least that ``loss`` can be, the
    entropy of q. ``curve_x`` and the two curves are for the picture; ``before`` and ``after`` are the reliability of
    given predictions at ε = 0 and at ε, None without predictions.
    """

    params: LossParams
    label: str
    rows: tuple[LossRow, ...]
    true: LossRow
    loss: float
    plain: float
    floor: float
    curve_x: tuple[float, ...]
    curve: tuple[float, ...]
    curve_plain: tuple[float, ...]
    made: Predictions | None = None
    before: Calibration | None = None
    after: Calibration | None = None

    @property
    def readouts(self) -> list[list[str]]:
        """The figures above the pictures, as pairs of name and value."""
        found = [
            ["loss", f"{self.loss:.3f} nats"],
            ["least possible", f"{self.floor:.3f} nats"],
            ["−ln p of the truth", f"{self.plain:.3f} nats"],
            ["p of the truth", percent(self.true.p)],
            ["q of the truth", percent(self.true.q)],
            ["its gradient p − q", f"{self.true.gradient:+.3f}".replace("-", "−")],
        ]
        if self.after is not None:
            found += [
                ["mean confidence", percent(self.made.confidence.mean().item())],
                ["accuracy", percent(self.made.accuracy)],
                ["calibration error", f"{100 * self.after.error:.1f} points"],
                ["perplexity", f"{math.exp(self.made.loss):,.2f}"],
            ]
        return found

    @property
    def sentence(self) -> str:
        """The pictures in words."""
        return " ".join(part for part in (self._about_loss(), self._about_trust()) if part)

    def _about_loss(self) -> str:
        asked = f"is asked for {percent(self.true.q)}" if self.params.epsilon else "came"
        given = f"the model gives it {percent(self.true.p)}: a loss of {self.loss:.3f} nats."
        start = f"{quoted(self.label)} {asked}, {given}"
        slope = self.true.gradient
        if abs(slope) < 0.002:
            return f"{start} The gradient is almost 0: nothing is left to learn here."
        if slope > 0:
            return f"{start} That is more than is asked: a step of training lowers its logit and raises the others."
        return (
            f"{start} A step of training raises its logit, and lowers those that have more than their share."
        )

    def _about_trust(self) -> str:
        if self.after is None:
            return ""
        gap, n, right = self.after.gap, len(self.made.confidence), self.made.accuracy
        chance = abs(gap) < 2 * math.sqrt(right * (1 - right) / n)  # two standard errors of an accuracy
        how = "as sure as it is right, within chance" if chance else ("too sure" if gap > 0 else "too modest")
        side = "above" if gap > 0 else "below"
        return (
            f"Over {n:,} predictions the model is {how}: its confidence is {100 * abs(gap):.1f} points {side} its "
            "accuracy."
        )


def view_of_loss(
    logits: Tensor,
    params: LossParams,
    shown: Sequence[int],
    label: Callable[[int], str],
    made: Predictions | None = None,
) -> LossView:
    """Return the view of logits (d_vocab,) whose true token is moved to ``params.logit``, ``shown`` ids as rows.

    All other tokens are one row together.
    """
    target, epsilon = torch.tensor(params.target), params.epsilon
    moved = logits.double().clone()
    moved[target] = params.logit
    p, q = softmax(moved), torch.full_like(moved, epsilon / len(logits))
    q[target] += 1 - epsilon
    rows = [LossRow(label(token), float(p[token]), float(q[token])) for token in shown]
    if len(shown) < len(logits):
        rest = (float(1 - values[list(shown)].sum()) for values in (p, q))
        rows.append(LossRow(f"all {len(logits) - len(shown):,} others", *rest))
    x = torch.linspace(*CURVE, 121, dtype=torch.float64)
    line = logits.double().expand(len(x), -1).clone()
    line[:, target] = x
    targets = target.expand(len(x))
    smoothed = None if made is None else made.smoothed(epsilon)
    return LossView(
        params=params,
        label=label(params.target),
        rows=tuple(rows),
        true=LossRow(label(params.target), float(p[target]), float(q[target])),
        loss=float(cross_entropy(moved, target, label_smoothing=epsilon)),
        plain=float(cross_entropy(moved, target)),
        floor=float(torch.special.entr(q).sum()),
        curve_x=tuple(x.tolist()),
        curve=tuple(cross_entropy(line, targets, label_smoothing=epsilon, reduction="none").tolist()),
        curve_plain=tuple(cross_entropy(line, targets, reduction="none").tolist()),
        made=smoothed,
        before=None if made is None else calibrate(made),
        after=None if smoothed is None else calibrate(smoothed),
    )
