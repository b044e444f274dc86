"""From logits to a token: settings, the pipeline of processors, the draw, and a ranked copy for sliders."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from .processors import (
    STAGES,
    Logits,
    Processed,
    TokenIds,
    check_logits,
    check_setting,
    filter_min_p,
    filter_top_k,
    is_integer,
    nucleus,
    penalize_frequency,
    penalize_presence,
    penalize_repetition,
    pick_top_k,
    scaled_by,
)
from .selection import by_rows, exact_dtype, first_reaching

Stage = str | Callable[..., Tensor]

PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")

ORDERS: dict[str, tuple[str, ...]] = {
    "hf": (*PENALTIES, "temperature", "top_k", "top_p", "min_p"),
    "vllm": (*PENALTIES, "temperature", "min_p", "top_k", "top_p"),
    "llama.cpp": (*PENALTIES, "top_k", "top_p", "min_p", "temperature"),
}
"""The order of the stages in three libraries: transformers' generate, vLLM, and llama.cpp's default chain."""


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; every default leaves the model's own distribution as it is.

    ``temperature`` ≥ 0 (0 is greedy); ``top_k`` ≥ 0 (0 is off, above d_vocab keeps all); ``top_p`` in [0, 1] (1 is
    off, 0 keeps the single best); ``min_p`` in [0, 1] (0 is off); ``repetition_penalty`` > 0 (1 is off);
    ``presence_penalty`` and ``frequency_penalty`` finite (0 is off). ``order`` is a name in ``ORDERS`` or a tuple of
    stages: the parameters' names, each at most once, and callables ``stage(logits, prompt=…, generated=…)``.

    Raises ``ValueError``, naming the parameter and the value, for anything else, and for an order that leaves out a
    stage whose parameter is set.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    order: str | tuple[Stage, ...] = "hf"

    def __post_init__(self):
        for name in STAGES:
            check_setting(name, getattr(self, name))
        if isinstance(self.order, list):
            object.__setattr__(self, "order", tuple(self.order))
        _check_order(self)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that do something, in the order they run: names of set parameters, and callables."""
        order = ORDERS[self.order] if isinstance(self.order, str) else self.order
        return tuple(stage for stage in order if callable(stage) or _is_set(self, stage))


_NEUTRAL = {field.name: field.default for field in fields(SamplingParams) if field.name != "order"}


def _is_set(params: SamplingParams, name: str) -> bool:
    return bool(getattr(params, name) != _NEUTRAL[name])


def _check_order(params: SamplingParams) -> None:
    order = params.order
    if isinstance(order, str):
        if order not in ORDERS:
            raise ValueError(f"order must be one of {sorted(ORDERS)} or a tuple of stages, got {order!r}")
        return
    if not isinstance(order, tuple):
        raise ValueError(f"order must be one of {sorted(ORDERS)} or a tuple of stages, got {order!r}")
    names = [stage for stage in order if not callable(stage)]
    for name in names:
        if not isinstance(name, str) or name not in STAGES:
            raise ValueError(f"order must hold callables or names from {list(STAGES)}, got {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"order must hold each stage at most once, got {name!r} twice in {order!r}")
    for name in STAGES:
        if name not in names and _is_set(params, name):
            raise ValueError(
                f"{name} is set to {getattr(params, name)!r}, but order leaves it out: {order!r}"
            )


def process_logits(
    logits: Logits, params: SamplingParams, *, prompt: TokenIds = None, generated: TokenIds = None
) -> Processed:
    """Return the logits after every stage of ``params``, in its order; dropped tokens are at −inf.

    ``logits`` (…, d_vocab); ``prompt`` and ``generated`` are token ids (…, n) with the same rows, negative ids are
    padding, None means nothing to count. The result is a new float32 tensor (float64 stays float64). At temperature
    0 one token a row is left.

    Raises ``ValueError`` for a row with NaN, +inf or nothing above −inf, on entry or after a stage, and for ids that
    do not fit the logits.
    """
    values, rest = run_on_tokens(logits, params, prompt, generated)
    values, ids = _run_on_values(values, params, rest)
    if ids is not None:
        return values.new_full(logits.shape, -torch.inf).scatter_(-1, ids, values)
    return values.clone() if values is logits else values


_ON_VALUES = ("temperature", "top_k", "top_p", "min_p")


def only_on_values(stages: Iterable[Stage]) -> bool:
    """Return whether all stages look at nothing but a row's logits, and not at which token has which."""
    return all(stage in _ON_VALUES for stage in stages)


def run_on_tokens(
    logits: Logits, params: SamplingParams, prompt: TokenIds, generated: TokenIds
) -> tuple[Processed, tuple[str, ...]]:
    """Run the stages up to the last that looks at tokens; return the logits and the names of the rest.

    The arguments and errors are those of ``process_logits``; without such a stage the argument itself may come back.
    """
    stages, values = params.stages, check_logits(logits)
    while not only_on_values(stages):
        stage, *stages = stages
        if callable(stage):
            values = _run_callable(stage, values, prompt, generated)
        else:
            values = _run_named(stage, values, params, prompt, generated)
    return values, tuple(stages)


def _run_on_values(
    values: Processed, params: SamplingParams, stages: tuple[str, ...]
) -> tuple[Float[Tensor, "*batch k"], Int[Tensor, "*batch k"] | None]:
    """Run the rest; return the logits and the ids that they belong to, rising, where None stands for every id.

    After a top-k the other stages need only see k tokens: in the order of their ids, all rules are the same for them.
    """
    ids = None
    k, t = int(params.top_k), float(params.temperature)
    for first, temperature in ((("top_k",), 1.0), (("temperature", "top_k"), t)):
        n = len(first)
        if stages[:n] == first and (picked := pick_top_k(values, k, temperature)) is not None:
            (values, ids), stages = picked, stages[n:]
    for stage in stages:
        values = _run_named(stage, values, params)
    return values, ids


def _number(params: SamplingParams, name: str) -> float:
    # Any real number passes the check of settings, and not each can be multiplied with a tensor.
    return (int if name == "top_k" else float)(getattr(params, name))


def _run_named(
    name: str, logits: Tensor, params: SamplingParams, prompt: TokenIds = None, generated: TokenIds = None
) -> Tensor:
    value = _number(params, name)
    match name:
        case "temperature":
            return scaled_by(logits, value)
        case "top_k":
            return filter_top_k(logits, value)
        case "top_p":
            return nucleus(logits, value)
        case "min_p":
            return filter_min_p(logits, value)
        case "repetition_penalty":
            return penalize_repetition(logits, value, prompt=prompt, generated=generated)
        case "presence_penalty":
            return penalize_presence(logits, value, generated=generated)
        case "frequency_penalty":
            return penalize_frequency(logits, value, generated=generated)


def _run_callable(stage: Callable, logits: Tensor, prompt: TokenIds, generated: TokenIds) -> Tensor:
    name = getattr(stage, "__name__", repr(stage))
    # A copy, since a stage that works in place must not reach the caller's logits.
    result = stage(logits.clone(), prompt=prompt, generated=generated)
    if not isinstance(result, Tensor) or result.shape != logits.shape:
        got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"stage {name} must return a tensor of shape {tuple(logits.shape)}, got {got}")
    try:
        return check_logits(result.clone())  # the stage may keep its tensor, and change it later
    except ValueError as error:
        raise ValueError(f"stage {name} returned what has no softmax: {error}") from None


def sample(
    logits: Logits,
    params: SamplingParams,
    *,
    prompt: TokenIds = None,
    generated: TokenIds = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch"]:
    """Draw one token id for every row: int64 of shape (…,) for logits (…, d_vocab).

    The arguments and errors are those of ``process_logits``; ``generator`` makes the draw reproducible on one
    device. Temperature 0 draws nothing: it takes the largest logit that the other stages leave.
    """
    values, rest = run_on_tokens(logits, params, prompt, generated)
    if params.temperature == 0:
        return by_rows(lambda rows: _choose(rows, params, rest), values).squeeze(-1)
    # The number comes from the generator's own device, so that a seed works, and means the same, wherever logits are.
    source = values.device if generator is None else generator.device
    shape = (*values.shape[:-1], 1)
    uniform = torch.rand(shape, dtype=exact_dtype(source), device=source, generator=generator)
    return by_rows(lambda rows, share: _choose(rows, params, rest, share), values, uniform).squeeze(-1)


def _choose(
    values: Processed,
    params: SamplingParams,
    stages: tuple[str, ...],
    share: Float[Tensor, "*batch 1"] | None = None,
) -> Int[Tensor, "*batch 1"]:
    """Run the rest of the stages, and return the token that then stands at ``share`` of the line of all probabilities,
    in the order of ids; without a share, the best."""
    kept, ids = _run_on_values(values, params, stages)
    chosen = kept.argmax(dim=-1, keepdim=True) if share is None else _at(kept, share).to(kept.device)
    return chosen if ids is None else ids.gather(-1, chosen)


def _at(logits: Processed, share: Float[Tensor, "*batch 1"]) -> Int[Tensor, "*batch 1"]:
    """Invert the cumulative distribution.

    In exact sums a token of probability 1e-12 still has its share of the line; noise added to logits in float32 would
    round it away.
    """
    # The softmax is torch's own, which knows −inf, where exp is slow. What its sum loses in float32 falls out again.
    probabilities = logits.softmax(dim=-1)
    if exact_dtype(logits) != torch.float64:
        probabilities = probabilities.cpu()
    return first_reaching(probabilities, share.to(probabilities.device, torch.float64))


class BeforeAfter(NamedTuple):
    """A figure of the model's own distribution, and the same after the settings."""

    before: float
    after: float


class Row(NamedTuple):
    """One token: its id, its probability under the model, and its probability after the settings (0 if dropped)."""

    token_id: int
    raw: float
    final: float


@dataclass(frozen=True)
class Distribution:
    """What a slider shows: how many tokens are ``kept``, the share of the model's own probability they hold
    (``kept_mass``), the ``entropy`` in nats before and after, and the first ``rows``, the most probable first."""

    kept: int
    kept_mass: float
    entropy: BeforeAfter
    rows: list[Row]


@dataclass(frozen=True)
class _Cumulated:
    """Sums over the ranked tokens at one temperature; entry n − 1 holds the sum over the first n."""

    weights: np.ndarray  # exp(logit/T − largest logit/T), float32 as the processors compute it
    mass: np.ndarray  # Σ weight, float64
    moment: np.ndarray  # Σ weight · ln weight, float64

    def nucleus(self, kept: int, p: float) -> int:
        return int(np.searchsorted(self.mass[: kept - 1], p * self.mass[kept - 1])) + 1

    def at_least(self, kept: int, min_p: float) -> int:
        # The weights fall, searchsorted wants them to rise.
        rising = self.weights[:kept][::-1]
        return kept - int(np.searchsorted(rising, rising.dtype.type(min_p)))

    def entropy(self, kept: int) -> float:
        """−Σ p ln p over the first tokens, with p = weight / mass: ln mass − (Σ weight · ln weight) / mass."""
        mass = float(self.mass[kept - 1])
        return math.log(mass) - float(self.moment[kept - 1]) / mass


class RankedLogits:
    """One row of logits, sorted once, so that a slider's move costs a few look-ups, no pass over the vocabulary.

    Temperature never changes the order of tokens, so top-k, top-p and min-p each keep a *prefix* of one ranking,
    and all that a move needs is how long the prefix is: three binary searches in cumulated sums. The sums of a
    temperature cost one pass over the vocabulary and are kept for the latest few temperatures. Equal to
    ``process_logits`` followed by a softmax, with one exception: of two different logits so close that dividing by T
    makes them the same float, this class still ranks the larger first, and ``process_logits`` the lower id.

    ``logits`` (d_vocab,), after penalties, which reorder: ``replaced`` ranks the penalised tokens anew and no other.
    The ranking is copied to the host once. Cost: a sort at the start; a move at a known temperature
    O(log d_vocab + top), at a new one O(d_vocab). Memory: 24 bytes · d_vocab, and 20 more for each of at most 8
    temperatures.
    """

    def __init__(self, logits: Num[Tensor, "..."]):
        if logits.ndim != 1:
            raise ValueError(f"logits must have shape (d_vocab,), got {tuple(logits.shape)}")
        values = check_logits(logits.detach()).cpu().clone()
        if values.dtype == torch.float32:
            keys = _sorted_keys(values.numpy(), np.arange(len(values)))
            self._hold(values, *_unpacked(keys), keys)
        else:
            ids = values.argsort(descending=True, stable=True)
            self._hold(values, ids.numpy(), values[ids])

    def _hold(
        self,
        logits: Float[Tensor, " d_vocab"],
        token_ids: np.ndarray,
        ranked: Float[Tensor, " d_vocab"],
        keys: np.ndarray | None = None,
    ) -> None:
        """Keep the logits, in the order of ids and ranked."""
        self.d_vocab, self.logits, self.token_ids, self._keys = len(logits), logits, token_ids, keys
        finite = self.d_vocab if float(ranked[-1]) > -math.inf else int(ranked.isfinite().sum())
        self._ranked = ranked[:finite]
        # Not a method of self: that would be a circle, and the arrays of old prompts would wait for the collector.
        self._at = lru_cache(maxsize=8)(partial(_cumulate, self._ranked))

    def replaced(self, ids: Int[Tensor, " n"], logits: Num[Tensor, " n"]) -> "RankedLogits":
        """Return the ranking in which the tokens ``ids`` have these ``logits``, and all others those they had.

        The others keep their order, so these few are sorted and merged in: two copies of the ranking, and no sort of
        it (float64 is sorted anew). Raises ``ValueError`` unless the ids are token ids, each at most once, with one
        logit each, and for logits that leave nothing with a softmax.
        """
        ids, values = _check_ids(ids, self.d_vocab), self.logits.clone()
        if logits.shape != ids.shape:
            raise ValueError(
                f"logits must have the shape of ids, {tuple(ids.shape)}, got {tuple(logits.shape)}"
            )
        values[ids] = logits.detach().to(values)
        check_logits(values)
        if self._keys is None:
            return RankedLogits(values)
        # numpy, whose calls are shorter: with so few numbers a call's own cost is what counts.
        places = ids.numpy()
        old, new = (_sorted_keys(row.numpy()[places], places) for row in (self.logits, values))
        keys = _merged(self._keys, old, new)
        ranking = object.__new__(RankedLogits)
        ranking._hold(values, *_unpacked(keys), keys)
        return ranking

    def at_least(self, logit: float) -> int:
        """Return how many tokens have this logit, a finite one, or a larger one."""
        # The ranked logits fall, searchsorted wants them to rise.
        rising = self._ranked.numpy()[::-1]
        return len(rising) - int(np.searchsorted(rising, rising.dtype.type(logit)))

    def distribution(self, params: SamplingParams, top: int = 30) -> Distribution:
        """Return the distribution under ``params``, with the ``top`` most probable tokens of the model as rows.

        Raises ``ValueError`` for params with a penalty or a callable stage, which may reorder the tokens.
        """
        kept, final, entropy = self.after(params, top)
        model = self._at(1.0)
        raw = model.weights[:top] / model.mass[-1]
        rows = map(Row, self.token_ids[:top].tolist(), raw.tolist(), final + [0.0] * (len(raw) - len(final)))
        return Distribution(
            kept=kept,
            kept_mass=float(model.mass[kept - 1] / model.mass[-1]),
            entropy=BeforeAfter(self.entropy, entropy),
            rows=list(rows),
        )

    @property
    def entropy(self) -> float:
        """The entropy of the model's own distribution in nats."""
        model = self._at(1.0)
        return model.entropy(len(model.mass))

    def after(
        self, params: SamplingParams, top: int = 30, stages: tuple[Stage, ...] | None = None
    ) -> tuple[int, list[float], float]:
        """Return how many tokens are kept, the probabilities of the first ``top`` of these, and the entropy in nats.

        ``stages`` are those of ``params`` that are to run, None for all of them: where some ran before the ranking.
        One that is off changes nothing. Raises what ``distribution`` raises.
        """
        if top < 0:
            raise ValueError(f"top must be a whole number ≥ 0, got {top}")
        kept, temperature = self._cut(params, params.stages if stages is None else stages)
        sums = self._at(temperature)
        final = sums.weights[: min(kept, top)] / sums.mass[kept - 1]
        return kept, final.tolist(), sums.entropy(kept)

    def _cut(self, params: SamplingParams, stages: tuple[Stage, ...]) -> tuple[int, float]:
        """Return how many tokens stay, and the temperature that their probabilities have."""
        kept, temperature = len(self._ranked), 1.0
        for stage in stages:
            if not only_on_values([stage]):
                name = getattr(stage, "__name__", stage)
                raise ValueError(
                    f"params must not set {name}: it may reorder the tokens; apply it first and rank the result"
                )
            value = _number(params, stage)
            if value == _NEUTRAL[stage]:  # top_k = 0 would keep nothing
                continue
            match stage:
                case "temperature" if value == 0:
                    kept = 1
                case "temperature":
                    temperature = value
                case "top_k":
                    kept = min(kept, value)
                case "top_p":
                    kept = self._at(temperature).nucleus(kept, value)
                case "min_p":
                    kept = self._at(temperature).at_least(kept, value)
        return kept, temperature


def _sorted_keys(logits: Float[np.ndarray, " n"], ids: Int[np.ndarray, " n"]) -> np.ndarray:
    """Return one whole number for each token, rising: first the largest logit, the lowest id first among equals.

    A float32 and an id fit into one int64, and numpy sorts these ten times as fast as torch sorts stably.
    """
    bits = (logits + 0.0).view(np.int32)  # −0.0 becomes 0.0, its equal
    keys = np.left_shift(~_rising(bits), 32, dtype=np.int64) | ids
    keys.sort()
    return keys


def _unpacked(keys: np.ndarray) -> tuple[np.ndarray, Float[Tensor, " n"]]:
    """Return the token ids that keys hold, and the logits."""
    bits = _rising(~(keys >> 32).astype(np.int32))
    return keys & 0xFFFFFFFF, torch.from_numpy(bits.view(np.float32))


def _rising(bits: np.ndarray) -> np.ndarray:
    """Return the bits of float32 numbers as int32 in the same order, or take them back: those of a negative float fall
    as it rises."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _merged(keys: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return rising keys without the old ones, which are among them, and with the new ones."""
    rest = np.delete(keys, np.searchsorted(keys, old))
    return np.insert(rest, np.searchsorted(rest, new), new)


def _check_ids(ids: Tensor, d_vocab: int) -> Int[Tensor, " n"]:
    """Return ids of tokens, each at most once, as int64 on the host, or raise ``ValueError``."""
    if ids.ndim != 1 or not is_integer(ids):
        raise ValueError(f"ids must be integers of shape (n,), got {ids.dtype} {tuple(ids.shape)}")
    ids = ids.long().cpu()
    rising = np.sort(ids.numpy())
    if len(rising) and not 0 <= rising[0] <= rising[-1] < d_vocab:
        raise ValueError(f"ids must be in 0 … {d_vocab - 1}, got {rising[0]} … {rising[-1]}")
    if (rising[1:] == rising[:-1]).any():
        raise ValueError("ids must hold each token at most once, got one twice")
    return ids


def _cumulate(ranked: Tensor, temperature: float) -> _Cumulated:
    scaled = ranked if temperature == 1 else scaled_by(ranked, temperature)
    exponents = scaled - scaled[0]
    weights = exponents.exp()
    # An exponent of −inf (a tiny T) has weight 0; clamped, their product is 0 and not NaN.
    products = exponents.clamp_(min=torch.finfo(exponents.dtype).min).mul_(weights)
    mass, moment = (x.cumsum(dim=0, dtype=torch.float64).numpy() for x in (weights, products))
    return _Cumulated(weights.numpy(), mass, moment)
