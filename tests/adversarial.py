"""Logits that a sampler gets wrong: one function a kind, at every size, batch shape and layout; and settings to match.

Everything comes from one ``Dice``, so that an input is found again from its seed.
"""

import math
import random
from collections.abc import Callable

import torch

from lmhead_course import ORDERS, SamplingParams

INF = math.inf
SHAPES = [(), (), (1,), (3,), (3,), (2, 3), (5, 1), (4, 1, 2), (64,), (300,), (0,), (2, 0)]
SIZES = [1, 2, 3, 5, 17, 64, 100, 1000, 1024, 4097, 32_768, 50_257, 262_144]
MOST, RARELY = 300_000, 1_300_000
"""Logits in one input: few inputs are larger, more than the package works on at a time."""


class Dice(random.Random):
    """Random numbers, and torch's generator from the same seed."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.torch)

    def whole(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=self.torch)

    def shape(self) -> tuple[int, ...]:
        """A shape (…, d_vocab). What is large comes seldom: it takes most of the time."""
        most = RARELY if self.random() < 0.02 else MOST
        while True:
            d_vocab = self.choice(SIZES[-3:] if self.random() < 0.07 else SIZES[:-3])
            batch = self.choice(SHAPES)
            if math.prod(batch) * d_vocab <= most:
                return (*batch, d_vocab)


def normal(dice, *shape):
    return dice.choice([0.1, 1, 3, 10]) * dice.normal(*shape)


def mostly_dropped(dice, *shape):
    return with_one(dice, normal(dice, *shape).masked_fill(dice.whole(100, *shape) > 0, -INF))


def few_left(dice, *shape):
    """Two tokens of a thousand: top-k finds fewer than it may keep."""
    return with_one(dice, normal(dice, *shape).masked_fill(dice.whole(500, *shape) > 0, -INF))


def with_one(dice, logits, least=-1.0):
    """No row may be without any token."""
    place = dice.whole(logits.shape[-1], *logits.shape[:-1], 1)
    return logits.scatter(-1, place, logits.gather(-1, place).clamp(min=least))


def ties_of_a_thousand(dice, *shape):
    return 0.7 * dice.whole(max(2, shape[-1] // 1000), *shape)


def two_values(dice, *shape):
    return -dice.choice([1e-7, 0.5, 20.0]) * dice.whole(2, *shape)


def all_equal(dice, *shape):
    return torch.full(shape, dice.choice([0.0, -7.25, 1e4]))


def signed_zeros(dice, *shape):
    """0.0 and −0.0 are equal, and a sort must not tell them apart."""
    return torch.tensor([0.0, -0.0, -1.0])[dice.whole(3, *shape)]


def one_hot(dice, *shape):
    base = torch.full(shape, dice.choice([-INF, 0.0, -30.0]))
    return base.scatter(-1, dice.whole(shape[-1], *shape[:-1], 1), dice.choice([1.0, 12.0, 30.0]))


def ascending(dice, *shape):
    return normal(dice, *shape).sort(dim=-1).values


def descending(dice, *shape):
    return normal(dice, *shape).sort(dim=-1, descending=True).values


def largest_floats(dice, *shape):
    return torch.tensor([3e38, -3e38, 0.0, 1e38, -1e38, 3.4e38])[dice.whole(6, *shape)]


def denormals(dice, *shape):
    return 1e-45 * (dice.whole(200, *shape) - 100)


def whole_weights(dice, *shape):
    """Equal logits and dropped tokens: every weight is 1 or 0, so every sum is exact."""
    return with_one(dice, torch.where(dice.whole(3, *shape) > 0, 0.0, -INF), least=0.0)


def halves(dice, *shape):
    """ln of 1/2, 1/4, 1/8, …, shuffled, many of them equal."""
    return -math.log(2) * dice.whole(min(20, shape[-1]), *shape)


def steep(dice, *shape):
    """Most weights underflow to 0, and their tokens are there all the same."""
    return -torch.linspace(0, 1e4, shape[-1]).expand(shape)[
        ..., torch.randperm(shape[-1], generator=dice.torch)
    ]


def neighbours(dice, *shape):
    """Floats next to each other, which a division makes equal."""
    return 8 + 2**-20 * dice.whole(16, *shape)


def a_peak_over_a_plateau(dice, *shape):
    """The cut falls inside a tie of nearly the whole vocabulary."""
    height = dice.choice([1.0, 5.0, math.log(shape[-1]) + 1])
    return torch.zeros(shape).scatter(-1, dice.whole(shape[-1], *shape[:-1], 1), height)


def zipf(dice, *shape):
    ranks = torch.arange(1.0, shape[-1] + 1)[torch.randperm(shape[-1], generator=dice.torch)]
    return (-dice.choice([0.8, 1.1, 2.0]) * ranks.log()).expand(shape).clone()


def rows_of_different_kinds(dice, *shape):
    rows = math.prod(shape[:-1])
    some = [dice.choice(ROWS)(dice, shape[-1]).float() for _ in range(rows)]
    return torch.stack(some).view(shape) if rows else torch.zeros(shape)


def transposed(dice, *shape):
    return normal(dice, *reversed(shape)).permute(*reversed(range(len(shape))))


def every_second(dice, *shape):
    return normal(dice, *shape[:-1], 2 * shape[-1])[..., ::2]


def expanded(dice, *shape):
    return normal(dice, shape[-1]).expand(shape)


def float16(dice, *shape):
    return normal(dice, *shape).half()


def bfloat16(dice, *shape):
    return normal(dice, *shape).bfloat16()


def float64(dice, *shape):
    return normal(dice, *shape).double() + 1e-12 * dice.normal(*shape).double()


def integers(dice, *shape):
    return dice.whole(30, *shape) - 15


ROWS: list[Callable[..., torch.Tensor]] = [
    normal, mostly_dropped, few_left, ties_of_a_thousand, two_values, all_equal, signed_zeros, one_hot,
    ascending, descending, largest_floats, denormals, whole_weights, halves, steep, neighbours,
    a_peak_over_a_plateau, zipf,
]  # fmt: skip
LAYOUTS = [
    rows_of_different_kinds, transposed, every_second, expanded, float16, bfloat16, float64, integers,
]  # fmt: skip
KINDS = {kind.__name__.replace("_", " "): kind for kind in [*ROWS, *LAYOUTS]}


# ---- settings -----------------------------------------------------------------------------------------------------

TEMPERATURES = [0, 5e-324, 1e-320, 1e-38, 1e-4, 0.1, 0.5, 0.7, 1, 1.3, 2, 10, 1e4, 1e10, 1e38, 1e300]
P = [0, 1e-12, 1e-7, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.999, 1 - 1e-7, 1 - 2**-53, 1]
MIN_P = [0, 1e-30, 1e-12, 1e-3, 0.05, 0.1, 0.25, 0.5, 1 - 1e-7, 1]


def temperature(dice: Dice, logits: torch.Tensor) -> float:
    if dice.random() < 0.1:
        return 0
    return dice.choice(TEMPERATURES) if dice.random() < 0.7 else dice.uniform(0.05, 3)


def top_k(dice: Dice, logits: torch.Tensor) -> int:
    d_vocab = logits.shape[-1]
    finite = int(logits.isfinite().sum(dim=-1).amax()) if logits.numel() else 1
    some = [0, 1, 1, 2, 3, 50, d_vocab // 8, d_vocab - 1, d_vocab, d_vocab + 1, finite, finite + 1, 10**9]
    return dice.choice([*some, dice.randint(1, d_vocab), dice.randint(1, d_vocab)])


def top_p(dice: Dice, logits: torch.Tensor) -> float:
    """An end of the range, any number, or one that is as near to a cumulative sum of the first row as floats get."""
    which = dice.random()
    if which < 0.4 or not logits.numel():
        return dice.choice(P)
    if which < 0.6:
        return dice.random()
    if which < 0.8:
        return dice.randint(0, 1024) / 1024
    row = logits.reshape(-1, logits.shape[-1])[0].double()
    sums = row.sort(descending=True).values.softmax(-1).cumsum(-1)
    near = float(sums[dice.randrange(len(sums))])
    return min(1.0, max(0.0, near * (1 + dice.choice([-1e-6, -1e-8, -2e-16, 0, 2e-16, 1e-8, 1e-6]))))


def min_p(dice: Dice, logits: torch.Tensor) -> float:
    return dice.choice(MIN_P) if dice.random() < 0.7 else dice.random() ** 3


def penalty(dice: Dice, logits: torch.Tensor) -> float:
    return dice.choice([1e-38, 0.5, 1.0, 1.3, 2.0, 1e38, 1e300])


def addend(dice: Dice, logits: torch.Tensor) -> float:
    return dice.choice([-1e38, -0.5, 0.0, 0.3, 2.0, 1e30, 3e38])


VALUES = {
    "repetition_penalty": penalty,
    "presence_penalty": addend,
    "frequency_penalty": addend,
    "temperature": temperature,
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
}
FILTERS = ("temperature", "top_k", "top_p", "min_p")


def any_order(dice: Dice, names: tuple[str, ...]) -> str | tuple[str, ...]:
    return dice.choice([*sorted(ORDERS), tuple(dice.sample(names, len(names)))])


def mix(dice: Dice, logits: torch.Tensor, names: tuple[str, ...]) -> SamplingParams:
    """Two to all of the stages, in any order; half the time a temperature and a top-k are among them."""
    chosen = {*dice.sample(names, dice.randint(2, len(names))), *dice.choice([(), ("temperature", "top_k")])}
    values = {name: VALUES[name](dice, logits) for name in sorted(chosen)}
    if dice.random() < 0.15:  # greedy among a few: the lowest of equal ids must come through every stage
        values |= {"temperature": 0, "top_k": dice.choice([1, 2, 3])}
    return SamplingParams(**values, order=any_order(dice, names))


def ids(dice: Dice, logits: torch.Tensor) -> torch.Tensor:
    """Token ids (…, n) for the rows of the logits, −1 among them as padding."""
    shape = (*logits.shape[:-1], dice.choice([0, 1, 5, 30]))
    return torch.randint(-1, logits.shape[-1], shape, generator=dice.torch)


def has_ties(row: torch.Tensor) -> bool:
    return bool((row[row.isfinite()].sort().values.diff() == 0).any())
