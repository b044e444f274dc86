"""What the pipeline explorer shows for given logits and an order of stages: numbers and words, no widgets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..sampling import ORDERS, SamplingParams, process_logits
from ..softmax import softmax
from .context import Context
from .token_table import percent

BEFORE_THE_FIRST_CHANGE = 5


@dataclass(frozen=True)
class StageView:
    """What one stage does at its place: of ``came`` tokens ``kept`` go on, with the share ``kept_mass`` of the
    probability that came in; the most probable token had the probability ``best_before`` and has ``best_after``."""

    name: str
    active: bool
    came: int
    kept: int
    kept_mass: float
    best_before: float
    best_after: float

    @property
    def text(self) -> str:
        """The same in words."""
        if not self.active:
            return f"off: all {self.came:,} tokens go on"
        if self.kept < self.came:
            return f"keeps {self.kept:,} of {self.came:,} tokens, {percent(self.kept_mass)} of the mass"
        moved = self.best_after != self.best_before
        best = f"; the best: {percent(self.best_before)} → {percent(self.best_after)}" if moved else ""
        return f"keeps all {self.came:,} tokens{best}"


@dataclass(frozen=True)
class Fate:
    """A token's final probability under the learner's order and under the other one; None where it is dropped."""

    rank: int
    token_id: int
    label: str
    raw: float
    here: float | None
    there: float | None

    @property
    def changed(self) -> bool:
        """True if one of the orders keeps the token and the other drops it."""
        return (self.here is None) != (self.there is None)


@dataclass(frozen=True)
class PipelineView:
    """Everything the explorer shows for one order of stages beside another one, called ``other``.

    ``gained`` tokens are kept by this order only, ``lost`` ones by the other only; ``moved`` is the probability that
    the two final distributions place differently (total variation, 0 to 1). ``fates`` are some rows of the ranking.
    """

    params: SamplingParams
    other: str
    stages: tuple[StageView, ...]
    fates: tuple[Fate, ...]
    d_vocab: int
    kept: int
    other_kept: int
    gained: int
    lost: int
    moved: float

    @property
    def changed(self) -> int:
        """How many tokens change their fate."""
        return self.gained + self.lost

    @property
    def sentence(self) -> str:
        """The picture in words."""
        keeps = f"{self.other} keeps {_tokens(self.other_kept)}, your order keeps"
        if not self.changed:
            same = f"{keeps} the same: no token changes its fate"
            # Equal orders may differ in the last digit of float32.
            return (
                f"{same}."
                if self.moved < 1e-5
                else f"{same}, but {percent(self.moved)} of the probability moves."
            )
        verb = "changes its" if self.changed == 1 else "change their"
        return (
            f"{keeps} {self.kept:,}: {_tokens(self.changed)} {verb} fate, and {percent(self.moved)} of the probability "
            "goes to other tokens."
        )

    @property
    def caption(self) -> str:
        """Which tokens the rows show, and how many that change their fate are not among them."""
        if not self.fates:
            return ""
        first, last = self.fates[0].rank, self.fates[-1].rank
        unseen = self.changed - sum(fate.changed for fate in self.fates)
        further = f" ({unseen:,} more not shown)" if unseen else ""
        return f"Ranks {first:,} to {last:,} of the model; ≠ marks another fate{further}"


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def library_order(name: str, stages: Mapping[str, Callable | str]) -> tuple[str, ...]:
    """Return the names of these stages in the order of a library; callables (masks, biases) come first there, as in
    vLLM and llama.cpp."""
    own = [key for key, stage in stages.items() if callable(stage)]
    return (*own, *(stage for stage in ORDERS[name] if stage in stages))


def view_of_pipeline(
    context: Context,
    params: SamplingParams,
    names: Sequence[str],
    other: tuple[str, SamplingParams],
    label: Callable[[int], str],
    top: int,
) -> PipelineView:
    """Return the view of a pipeline beside ``other``, the name and the settings of the order to compare with.

    ``params.order`` holds every stage to show, also those that are off; ``names`` are their names.
    """
    raw = softmax(context.logits)
    stages, final = _walk(context, params, names)
    *_, other_final = [context.logits, *_steps(context, other[1])]
    here, there = softmax(final), softmax(other_final)
    kept, other_kept = ~final.isneginf(), ~other_final.isneginf()
    ranking = context.ranked.token_ids
    rows = _window((kept != other_kept)[torch.as_tensor(ranking)], top)
    fates = [
        Fate(
            rank=rank + 1,
            token_id=(token := int(ranking[rank])),
            label=label(token),
            raw=float(raw[token]),
            here=float(here[token]) if kept[token] else None,
            there=float(there[token]) if other_kept[token] else None,
        )
        for rank in rows
    ]
    return PipelineView(
        params=params,
        other=other[0],
        stages=stages,
        fates=tuple(fates),
        d_vocab=len(raw),
        kept=int(kept.sum()),
        other_kept=int(other_kept.sum()),
        gained=int((kept & ~other_kept).sum()),
        lost=int((other_kept & ~kept).sum()),
        moved=float((here - there).abs().sum(dtype=torch.float64)) / 2,
    )


def _walk(
    context: Context, params: SamplingParams, names: Sequence[str]
) -> tuple[tuple[StageView, ...], Tensor]:
    """Return what each stage does, and the logits after the last one."""
    before, views = context.logits, []
    for name, stage, after in zip(names, params.order, _steps(context, params), strict=True):
        views.append(_stage_view(name, _alone(params, stage).stages != (), before, after))
        before = after
    return tuple(views), before


def _steps(context: Context, params: SamplingParams) -> Iterator[Tensor]:
    """Yield the logits after each stage, run by ``process_logits`` one at a time."""
    logits = context.logits
    for stage in params.order:
        logits = process_logits(logits, _alone(params, stage), **context.ids)
        yield logits


def _alone(params: SamplingParams, stage: str | Callable) -> SamplingParams:
    """Return the settings of one stage with nothing before and nothing behind it."""
    value = {} if callable(stage) else {stage: getattr(params, stage)}
    return SamplingParams(**value, order=(stage,))


def _stage_view(name: str, active: bool, before: Tensor, after: Tensor) -> StageView:
    probabilities = softmax(before)
    kept, came = ~after.isneginf(), int((~before.isneginf()).sum())
    dropped = int(kept.sum()) < came
    return StageView(
        name=name,
        active=active,
        came=came,
        kept=int(kept.sum()),
        # float32 sums over a vocabulary fall short of 1 by up to 1e-4.
        kept_mass=min(float(probabilities[kept].sum(dtype=torch.float64)), 1.0) if dropped else 1.0,
        best_before=float(probabilities.max()),
        best_after=float(softmax(after).max()),
    )


def _window(changed: Tensor, top: int) -> range:
    """Return the ranks to show: the first ``top``, unless all that changes comes later; then those around the first."""
    places = changed.nonzero().flatten().tolist()
    start = 0 if not places or places[0] < top else places[0] - BEFORE_THE_FIRST_CHANGE
    return range(start, min(start + top, len(changed)))
