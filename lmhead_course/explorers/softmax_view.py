"""What the softmax explorer shows for given logits and settings: numbers and words, no widgets."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..processors import penalize_repetition
from ..softmax import entropy, softmax, softmax_naive, spacing
from .token_table import percent, quoted

FORMATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
NOTICED = 5e-6
"""A probability is "changed" beyond this: float32's own rounding stays below it."""
SEEN = 5e-5
"""A difference of two probabilities beyond this shows in a percentage with two decimals."""


@dataclass(frozen=True)
class SoftmaxParams:
    """What happens to the logits before and in the softmax.

    In this order: ``constant`` is added to all; ``penalty`` (above 0, 1 is off) is the repetition penalty of the
    token ids in ``said``; the result is divided by ``temperature`` (above 0); all in the number format ``dtype``,
    a name in ``FORMATS``. Raises ``ValueError``, naming the parameter and the value, for anything else.
    """

    temperature: float = 1.0
    constant: float = 0.0
    penalty: float = 1.0
    said: tuple[int, ...] = ()
    dtype: str = "float32"

    def __post_init__(self):
        for name in ("temperature", "penalty"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a finite number > 0, got {getattr(self, name)!r}")
        if not math.isfinite(self.constant):
            raise ValueError(f"constant must be finite, got {self.constant!r}")
        if self.dtype not in FORMATS:
            raise ValueError(f"dtype must be one of {list(FORMATS)}, got {self.dtype!r}")


@dataclass(frozen=True)
class SoftmaxRow:
    """One token: its logit, the number that goes into exp, and what two ways of computing give.

    ``without`` is the exact probability with the constant left out; ``tied``: another row has the same exponent.
    """

    token_id: int
    label: str
    logit: float
    exponent: float
    stable: float
    naive: float
    without: float
    said: bool
    tied: bool


@dataclass(frozen=True)
class SoftmaxView:
    """Everything the explorer shows for one setting; sums and errors are over all ``d_vocab`` tokens.

    ``weight`` is exp of the largest exponent, as the naive form computes it; ``distinct`` counts different exponents;
    ``step`` is the spacing of the format at the largest logit; ``error`` is the largest difference of a stable
    probability from float64's, ``moved`` the largest that the constant makes in float64 already; ``naive_error`` is
    the largest difference of a naive probability from the exact softmax of the same exponents (NaN where it fails).
    """

    params: SoftmaxParams
    rows: tuple[SoftmaxRow, ...]
    d_vocab: int
    distinct: int
    weight: float
    naive_total: float
    naive_sum: float
    stable_sum: float
    nats: float
    step: float
    error: float
    moved: float
    naive_error: float

    @property
    def bits(self) -> float:
        """The entropy of the stable softmax in bits."""
        return self.nats / math.log(2)

    @property
    def candidates(self) -> float:
        """The number of equally likely tokens that would be as uncertain."""
        return math.exp(self.nats)

    @property
    def naive_state(self) -> str:
        """How the naive form fares: "overflow", "underflow", "coarse" just before that, or "" where it works."""
        if self.naive_total == 0:
            return "underflow"
        if not math.isfinite(self.naive_total):
            return "overflow"
        # Numbers below the smallest normal one lose digit after digit: the last before 0 has a single bit.
        digits_lost = self.weight < torch.finfo(FORMATS[self.params.dtype]).smallest_normal
        return "coarse" if digits_lost and self.naive_error > SEEN else ""

    @property
    def readouts(self) -> list[list[str]]:
        """The figures above the bars, as pairs of name and value."""
        return [
            ["sum, stable", _plain(self.stable_sum)],
            ["sum, naive", _plain(self.naive_sum)],
            ["Σ exp, naive", _size(self.naive_total)],
            ["entropy", f"{self.bits:.3f} bits"],
            ["the same in nats", f"{self.nats:.3f}"],
            ["effective candidates", f"{self.candidates:,.2f}"],
            ["step at largest logit", f"{self.step:.3g}"],
            ["different logits", f"{self.distinct:,} of {self.d_vocab:,}"],
            ["largest error", f"{100 * self.error:.3f} points"],
        ]

    @property
    def sentence(self) -> str:
        """The picture in words."""
        if math.isnan(self.stable_sum):
            return f"A logit is beyond {self._limit}: it is inf before the softmax begins, and no form of it can help."
        best = max(self.rows, key=lambda row: row.stable)
        return " ".join(
            (
                f"{quoted(best.label)} has {percent(best.stable)}; the choice is as open as between "
                f"{self.candidates:,.1f} equally likely tokens.",
                self._about_naive(),
                self._about_constant(),
            )
        ).strip()

    @property
    def _limit(self) -> str:
        largest = torch.finfo(FORMATS[self.params.dtype]).max
        return f"{_size(largest)}, the largest number of {self.params.dtype}"

    def _about_naive(self) -> str:
        if self.naive_state == "overflow":
            return f"The naive form fails: its sum of exp is beyond {self._limit}."
        if self.naive_state == "underflow":
            return f"The naive form fails: every exp is rounded to 0 in {self.params.dtype}, and 0/0 is NaN."
        if self.naive_state == "coarse":
            return (
                f"The naive form is off by {100 * self.naive_error:.2f} points: so small an exp has few digits left "
                f"in {self.params.dtype}."
            )
        return "The naive form works here."

    def _about_constant(self) -> str:
        params = self.params
        if params.constant == 0:
            return ""
        constant = f"{params.constant:g}".replace("-", "−")
        if self.moved > NOTICED:
            return (
                f"Adding {constant} moves a probability by {100 * self.moved:.2f} points: the penalty depends on "
                "where zero is."
            )
        if self.error > 1e-4:
            return (
                f"Adding {constant} should change nothing; in {params.dtype} the logits are now rounded in steps of "
                f"{self.step:.3g}, and a probability is off by {100 * self.error:.2f} points."
            )
        return f"Adding {constant} changes nothing."


def view_of(
    logits: Tensor, params: SoftmaxParams, shown: Sequence[int], label: Callable[[int], str]
) -> SoftmaxView:
    """Return the view of logits (d_vocab,), float32, with the token ids ``shown`` as rows."""
    x = exponents(logits, params, FORMATS[params.dtype])
    stable, naive, weights = softmax(x).double(), softmax_naive(x).double(), x.exp()
    exact = softmax(exponents(logits, params, torch.float64))
    without = softmax(exponents(logits, params, torch.float64, constant=0.0))
    alike = Counter(x[list(shown)].tolist())
    rows = tuple(
        SoftmaxRow(
            token,
            label(token),
            *(float(values[token]) for values in (logits, x, stable, naive, without)),
            said=token in params.said,
            tied=alike[float(x[token])] > 1,
        )
        for token in shown
    )
    return SoftmaxView(
        params=params,
        rows=rows,
        d_vocab=len(logits),
        distinct=int((x.float().sort().values.diff() > 0).sum()) + 1,
        weight=float(weights.max()),
        naive_total=float(weights.sum()),
        naive_sum=float(naive.sum()),
        stable_sum=float(stable.sum()),
        nats=max(float(entropy(stable)), 0.0),
        step=float(spacing(x.max().double() * params.temperature, FORMATS[params.dtype])),
        error=float((stable - exact).abs().max()),
        moved=float((exact - without).abs().max()),
        naive_error=float((naive - softmax(x.double())).abs().max()),
    )


def exponents(
    logits: Tensor, params: SoftmaxParams, dtype: torch.dtype, constant: float | None = None
) -> Tensor:
    """Return what goes into exp, rounded to ``dtype`` after each step, as a model in that format would store it."""
    constant = params.constant if constant is None else constant
    x = (logits.double() + constant).to(dtype)
    if params.penalty != 1 and params.said and x.isfinite().all():
        x = penalize_repetition(x, params.penalty, generated=list(params.said)).to(dtype)
    return x / params.temperature


def _plain(number: float) -> str:
    return "NaN" if math.isnan(number) else f"{number:.4f}"


def _size(number: float) -> str:
    if not math.isfinite(number):
        return "inf"
    return f"{number:,.0f}" if 1000 <= number < 1e6 else f"{number:.3g}"
