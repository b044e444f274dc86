"""What the cost explorer shows for given sizes and a device: numbers and words, no widgets."""

from dataclasses import dataclass
from functools import cached_property

from ..catalog import Device, model
from ..cost import HeadShape, attainable, check_dtype, least_seconds

FREE = "your own sizes"


@dataclass(frozen=True)
class Side:
    """One of the two models: its name in the catalog (or ``FREE``) and its three sizes, as they stand or changed."""

    name: str
    d_model: int
    d_vocab: int
    layers: int

    @classmethod
    def of(cls, name: str) -> "Side":
        """Return a catalog model as it stands."""
        m = model(name)
        return cls(name, m.d_model, m.d_vocab, m.layers)

    @property
    def head(self) -> HeadShape:
        """The two sizes that decide."""
        return HeadShape(self.d_model, self.d_vocab)

    @property
    def changed(self) -> bool:
        """Whether a size is no longer the catalog's, so that the total is an estimate."""
        return self.name == FREE or self != Side.of(self.name)

    @property
    def tied(self) -> bool:
        """Whether one matrix serves both ends; own sizes are counted with one, "not stated" too."""
        return self.name == FREE or model(self.name).tied != "no"

    @property
    def total(self) -> int:
        """All parameters. Changed sizes change the body in proportion to layers · d²: most of a layer is d × d."""
        matrices = (1 if self.tied else 2) * self.head.parameters
        if self.name == FREE:
            return matrices + 12 * self.layers * self.d_model**2
        m = model(self.name)
        rest = m.total - (1 if self.tied else 2) * m.one_matrix
        return matrices + round(rest * (self.layers / m.layers) * (self.d_model / m.d_model) ** 2)

    @property
    def share(self) -> float:
        """The share of one V × d matrix in all parameters."""
        return self.head.parameters / self.total


@dataclass(frozen=True)
class CostParams:
    """Everything that the explorer's controls say. ``length`` is the number of positions of each sequence."""

    sides: tuple[Side, ...]
    batch: int
    length: int
    dtype: str
    device: Device


@dataclass(frozen=True)
class Work:
    """The head at work on so many hidden states at once, on one device, at best."""

    shape: HeadShape
    tokens: int
    dtype: str
    device: Device

    @property
    def flops(self) -> float:
        """FLOPs of all logits."""
        return self.shape.flops(self.tokens)

    @property
    def moved(self) -> float:
        """Bytes at least."""
        return self.shape.bytes_moved(self.tokens, self.dtype)

    @property
    def seconds(self) -> float:
        """The least time."""
        return least_seconds(self.device, self.flops, self.moved)

    @property
    def bound(self) -> str:
        """What the time goes into: "memory" or "arithmetic"."""
        arithmetic = self.flops / self.device.flops
        return "memory" if self.moved / self.device.bandwidth >= arithmetic else "arithmetic"

    @property
    def point(self) -> tuple[float, float]:
        """Where it lies on the roofline: FLOPs a byte, and FLOPs a second at best."""
        intensity = self.flops / self.moved
        return intensity, attainable(self.device, intensity)


@dataclass(frozen=True)
class CostView:
    """What is shown: for each side one step (the last position of every sequence) and all positions at once."""

    params: CostParams

    @cached_property
    def step(self) -> tuple[Work, ...]:
        """One new token for every sequence."""
        return self._work(self.params.batch)

    @cached_property
    def whole(self) -> tuple[Work, ...]:
        """Every position of every sequence, as in training."""
        return self._work(self.params.batch * self.params.length)

    def _work(self, tokens: int) -> tuple[Work, ...]:
        p = self.params
        return tuple(Work(side.head, tokens, p.dtype, p.device) for side in p.sides)

    @property
    def names(self) -> list[str]:
        """The sides' names, "A: …" and "B: …"."""
        named = zip("AB", self.params.sides, strict=False)
        return [f"{letter}: {side.name}{' (changed)' * changed(side)}" for letter, side in named]

    @property
    def rows(self) -> list[list[str]]:
        """The table, a name and a cell for each side in every row."""
        p = self.params
        logits = [side.head.logits_bytes(p.batch * p.length, p.dtype) for side in p.sides]
        return [
            ["one V × d matrix", *(count(side.head.parameters) for side in p.sides)],
            ["all parameters", *(("≈ " * side.changed) + count(side.total) for side in p.sides)],
            ["share of one matrix", *(f"{100 * side.share:.1f} %" for side in p.sides)],
            ["both ends", *("one matrix" if side.tied else "two matrices" for side in p.sides)],
            ["FLOPs a token, 2·d·V", *(count(side.head.flops()) for side in p.sides)],
            [f"weights, {p.dtype}", *(size(side.head.weight_bytes(p.dtype)) for side in p.sides)],
            ["one step: FLOPs/byte", *(plain(work.point[0]) for work in self.step)],
            ["one step, at best", *(f"{duration(work.seconds)} ({work.bound})" for work in self.step)],
            ["all positions: FLOPs/byte", *(plain(work.point[0]) for work in self.whole)],
            ["all positions, at best", *(f"{duration(work.seconds)} ({work.bound})" for work in self.whole)],
            ["logits of all positions", *(size(amount) for amount in logits)],
            ["… and their gradient", *(size(2 * amount) for amount in logits)],
        ]

    @property
    def points(self) -> dict[str, tuple[float, float]]:
        """The points under the roof, by name."""
        named = [
            (f"{letter}, {what}", work.point)
            for letter, step, whole in zip("AB", self.step, self.whole, strict=False)
            for what, work in (("one step", step), ("all positions", whole))
        ]
        return dict(named)

    @property
    def sentence(self) -> str:
        """The picture in words."""
        p, parts = self.params, []
        for name, step, whole in zip(self.names, self.step, self.whole, strict=True):
            parts.append(
                f"{name}: a step for {_sequences(p.batch)} reads {size(step.shape.weight_bytes(p.dtype))} of weights "
                f"and is bound by {step.bound}, {duration(step.seconds)} at best; all "
                f"{p.batch * p.length:,} positions at once are bound by {whole.bound}, {duration(whole.seconds)}."
            )
        return " ".join(parts)


def changed(side: Side) -> bool:
    """Return whether a catalog model's sizes were changed."""
    return side.changed and side.name != FREE


def view_of_cost(params: CostParams) -> CostView:
    """Return the view. Raises ``ValueError`` for a size, a batch or a length below 1, an unknown dtype, rates of 0."""
    check_dtype(params.dtype)
    for name in ("batch", "length"):
        if getattr(params, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(params, name)}")
    for name, rate in (("bandwidth", params.device.bandwidth), ("arithmetic", params.device.flops)):
        if not rate > 0:
            raise ValueError(f"{name} must be above 0, got {rate}")
    for side in params.sides:
        if side.layers < 0:
            raise ValueError(f"layers must be at least 0, got {side.layers}")
        _ = side.head  # says what is wrong with its sizes
    return CostView(params)


def _sequences(n: int) -> str:
    return "one sequence" if n == 1 else f"{n:,} sequences"


def count(n: float) -> str:
    """Return a number with a suffix: 38.6 M, 1.24 B, 2.1 T."""
    return _scaled(n, 1000, ["", " thousand", " M", " B", " T"])


def size(n: float) -> str:
    """Return bytes with their unit, powers of 1000: 113 MB."""
    return _scaled(n, 1000, [" B", " kB", " MB", " GB", " TB", " PB"])


def duration(seconds: float) -> str:
    """Return a time with its unit: 46.1 µs, 2.3 ms, 1.2 s."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 0.9995:  # 999.6 µs would be shown as 1e+03
            return f"{seconds * factor:.3g} {unit}" if seconds < 999.5 else f"{seconds:,.0f} s"
    return f"{seconds * 1e9:.3g} ns"


def plain(n: float) -> str:
    """Return a number with three figures, or all that stand before the point: 0.998, 57.5, 3,740."""
    return f"{n:,.0f}" if n >= 100 else f"{n:.3g}"


def _scaled(n: float, base: int, units: list[str]) -> str:
    for unit in units[:-1]:
        if n < base * 0.9995:  # 999.6 would be shown as 1e+03
            return f"{n:.3g}{unit}"
        n /= base
    return f"{n:,.3g}{units[-1]}"
