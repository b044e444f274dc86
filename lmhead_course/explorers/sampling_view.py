"""What the sampling explorer shows for given logits and settings: numbers and words, no widgets."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..sampling import (
    PENALTIES,
    RankedLogits,
    SamplingParams,
    only_on_values,
    process_logits,
    run_on_tokens,
    sample,
)
from ..selection import largest
from ..softmax import entropy, softmax
from .context import Context
from .token_table import bar_scale, percent, quoted


class TokenRow(NamedTuple):
    """One line of the table: ``raw`` is the model's own probability, ``final`` the one after the settings."""

    rank: int
    token_id: int
    label: str
    raw: float
    final: float
    kept: bool

    def line(self, drawn: bool) -> dict:
        """The row as the page's table takes it; ``drawn`` rows are marked."""
        texts = {"raw_text": percent(self.raw), "final_text": self.final_text}
        return {**self._asdict(), **texts, "drawn": drawn}

    @property
    def final_text(self) -> str:
        """The chance after the settings, in words where there is none."""
        return percent(self.final) if self.kept else "✕ dropped"


@dataclass(frozen=True)
class SamplingView:
    """Everything the explorer shows for one setting.

    ``kept`` of ``d_vocab`` tokens can be drawn; ``kept_mass`` is their share of the model's own probability, and
    ``hidden_mass`` the final probability of all tokens without a row. Entropies are in bits; two to their power is
    the number of equally likely tokens that would be as uncertain.
    """

    params: SamplingParams
    rows: tuple[TokenRow, ...]
    d_vocab: int
    kept: int
    kept_mass: float
    hidden_mass: float
    bits_before: float
    bits_after: float
    remark: str = ""  # on the learner's function, if there is something to say

    @property
    def effective_before(self) -> float:
        """The number of equally likely tokens that would be as uncertain as the model's own distribution."""
        return 2.0**self.bits_before

    @property
    def effective_after(self) -> float:
        """The same after the settings."""
        return 2.0**self.bits_after

    @property
    def scale(self) -> float:
        """The probability of a full bar."""
        return bar_scale(max((max(row.raw, row.final) for row in self.rows), default=1.0))

    @property
    def readouts(self) -> list[list[str]]:
        """The figures above the table, as pairs of name and value."""
        return [
            ["tokens kept", f"{self.kept:,} of {self.d_vocab:,}"],
            ["mass kept", percent(self.kept_mass)],
            ["mass not shown", percent(self.hidden_mass)],
            ["entropy", f"{self.bits_before:.2f} → {self.bits_after:.2f} bits"],
            ["effective candidates", f"{_count(self.effective_before)} → {_count(self.effective_after)}"],
        ]

    @property
    def caption(self) -> str:
        """What the rows are, and how long a full bar is."""
        count = len(self.rows)
        which = (
            f"All {count} tokens"
            if count == self.d_vocab
            else f"The {count} most likely of {self.d_vocab:,} tokens"
        )
        return f"{which}; a full bar is {100 * self.scale:.4g} %."

    @property
    def sentence(self) -> str:
        """The picture in words."""
        best = max(self.rows, key=lambda row: row.final)
        if self.kept == 1:
            return (
                f"Only {quoted(best.label)} is left of {self.d_vocab:,} tokens: it comes for certain. "
                f"The model gave it {percent(best.raw)}."
            )
        most = f"The most likely, {quoted(best.label)}, has {self._best_words(best)}"
        return f"{self._kept_words} {most} {self._open_words}"

    @property
    def _kept_words(self) -> str:
        if self.kept == self.d_vocab:
            return f"All {self.d_vocab:,} tokens can be drawn."
        share = percent(self.kept_mass)
        return f"{self.kept:,} of {self.d_vocab:,} tokens can be drawn; the model gave them {share} of its probability."

    @staticmethod
    def _best_words(best: TokenRow) -> str:
        now, before = percent(best.final), percent(best.raw)
        return f"{now}." if now == before else f"{now} now; the model gave it {before}."

    @property
    def _open_words(self) -> str:
        now, before = _count(self.effective_after), _count(self.effective_before)
        words = f"The choice is as open as between {now} equally likely tokens"
        return f"{words}." if now == before else f"{words}; before it was {before}."


def _count(number: float) -> str:
    return f"{number:,.1f}" if number < 1000 else f"{number:,.0f}"


def view_of_settings(
    context: Context, params: SamplingParams, label: Callable[[int], str], top: int
) -> SamplingView:
    """Return the view of our own pipeline with these settings, by the quickest way that leads to it."""
    stages = params.stages
    # A temperature or a cut keeps the tokens in the model's order, so one ranking serves them all.
    if only_on_values(stages):
        return view_of_ranked(context, params, label, top)
    # A penalty moves the tokens of the text, and leaves all others in their order.
    if only_on_values(dropwhile(PENALTIES.__contains__, stages)):
        return view_of_reranked(context, params, label, top)
    processed = process_logits(context.logits, params, **context.ids)
    return view_of_processed(context, processed, params, label, top)


def view_of_ranked(
    context: Context, params: SamplingParams, label: Callable[[int], str], top: int
) -> SamplingView:
    """Return the view of settings that do not reorder the tokens: a few look-ups, fast enough for any slider."""
    d = context.ranked.distribution(params, top=top)
    rows = tuple(
        TokenRow(rank, row.token_id, label(row.token_id), row.raw, row.final, kept=rank <= d.kept)
        for rank, row in enumerate(d.rows, start=1)
    )
    return SamplingView(
        params=params,
        rows=rows,
        d_vocab=len(context.logits),
        kept=d.kept,
        kept_mass=d.kept_mass,
        hidden_mass=_rest(rows),
        bits_before=_bits(d.entropy.before),
        bits_after=_bits(d.entropy.after),
    )


def view_of_reranked(
    context: Context, params: SamplingParams, label: Callable[[int], str], top: int
) -> SamplingView:
    """Return the view of penalties, followed by settings that do not reorder the tokens.

    It is that of ``view_of_processed``, without a pass of every stage over the vocabulary: the tokens of the text are
    moved to their new places in the model's ranking.
    """
    counted, places = context.counted
    penalised, rest = run_on_tokens(context.logits[counted], params, **places)
    ranked = context.ranked.replaced(counted, penalised)
    kept, final, entropy_after = ranked.after(params, top, rest)
    ids = _kept_ids(context, ranked, len(final), kept)
    ids += _dropped_ids(context, set(ids), top)
    final += [0.0] * (len(ids) - len(final))
    raw = context.probabilities.numpy()[ids].tolist()
    rows = tuple(
        TokenRow(rank, token, label(token), before, chance, rank <= kept)
        for rank, (token, before, chance) in enumerate(zip(ids, raw, final, strict=True), start=1)
    )
    return SamplingView(
        params=params,
        rows=rows,
        d_vocab=ranked.d_vocab,
        kept=kept,
        kept_mass=_mass_of_first(context, ranked.token_ids, kept),
        hidden_mass=_rest(rows),
        bits_before=_bits(context.ranked.entropy),
        bits_after=_bits(entropy_after),
    )


def _kept_ids(context: Context, ranked: RankedLogits, count: int, kept: int) -> list[int]:
    """Return the first ``count`` of the kept tokens, those that the settings made equal in the model's order."""
    if count == 0:
        return []
    last = float(ranked.logits.numpy()[ranked.token_ids[count - 1]])
    ids = ranked.token_ids[: min(kept, ranked.at_least(last))]
    falling = [-logits.numpy()[ids] for logits in (context.logits, ranked.logits)]
    return ids[np.lexsort((ids, *falling))][:count].tolist()


def _dropped_ids(context: Context, kept: set[int], top: int) -> list[int]:
    """Return the dropped tokens that stand behind the kept ones, as many as fill up ``top`` rows."""
    # The model's first ``top`` tokens hold enough of them, for at most len(kept) of these are kept.
    dropped = [token for token in context.ranked.token_ids[:top].tolist() if token not in kept]
    return dropped[: top - len(kept)]


def _mass_of_first(context: Context, token_ids: np.ndarray, kept: int) -> float:
    """Return the model's own probability of the first of all tokens, added up over the fewer: these, or the rest."""
    few = kept <= len(token_ids) // 2
    part = token_ids[:kept] if few else token_ids[kept:]
    mass = float(context.probabilities.numpy()[part].sum(dtype=np.float64))
    return mass if few else 1.0 - mass


def view_of_processed(
    context: Context,
    processed: Float[Tensor, " d_vocab"],
    params: SamplingParams,
    label: Callable[[int], str],
    top: int,
) -> SamplingView:
    """Return the view of any processed logits (d_vocab,), whatever made them: penalties, or a learner's own function.

    The most probable tokens come first, and after the last one kept the dropped ones, in the model's order.
    """
    raw, final, kept = context.probabilities, softmax(processed), ~processed.isneginf()
    rows = tuple(
        TokenRow(rank, token, label(token), float(raw[token]), float(final[token]), bool(kept[token]))
        for rank, token in enumerate(_best(context, processed, top), start=1)
    )
    return SamplingView(
        params=params,
        rows=rows,
        d_vocab=len(processed),
        kept=int(kept.sum()),
        kept_mass=1.0 - float(raw[~kept].sum(dtype=torch.float64)),
        hidden_mass=_rest(rows),
        bits_before=max(float(entropy(raw, base=2)), 0.0),
        bits_after=max(float(entropy(final, base=2)), 0.0),
    )


def _best(context: Context, processed: Float[Tensor, " d_vocab"], top: int) -> list[int]:
    """Return the ``top`` first ids, sorting no more than these and their equals."""
    if top == 0:
        return []
    by_model = torch.from_numpy(context.ranked.token_ids)
    in_order = processed[by_model]
    last = largest(processed, min(top, len(processed)))[0][-1]
    if last.isfinite():
        wanted = in_order >= last
    else:  # fewer are kept than shown: behind them stand the first of the dropped
        wanted = in_order.isfinite()
        wanted[(~wanted).nonzero()[:top, 0]] = True
    places = wanted.nonzero()[:, 0]
    return by_model[places[in_order[places].argsort(descending=True, stable=True)[:top]]].tolist()


def _rest(rows: tuple[TokenRow, ...]) -> float:
    # Single precision leaves a remainder of about 1e-7 where there is none.
    rest = 1.0 - math.fsum(row.final for row in rows)
    return rest if rest > 1e-6 else 0.0


def _bits(nats: float) -> float:
    return max(nats / math.log(2), 0.0)


@dataclass(frozen=True)
class Draw:
    """A drawn token: where it stood among the ``kept`` (1 is the most probable), and its final probability."""

    token_id: int
    label: str
    rank: int
    kept: int
    probability: float

    def __str__(self) -> str:
        place = f"number {self.rank:,} of {self.kept:,}"
        return f"Drawn: {quoted(self.label)}, {place}, chance {percent(self.probability)}."


def draw_token(
    processed: Float[Tensor, " d_vocab"], label: Callable[[int], str], generator: torch.Generator
) -> Draw:
    """Draw one token from processed logits (d_vocab,)."""
    token = int(sample(processed, SamplingParams(), generator=generator))
    before = (processed > processed[token]).sum() + (processed[:token] == processed[token]).sum()
    return Draw(
        token_id=token,
        label=label(token),
        rank=int(before) + 1,
        kept=int((~processed.isneginf()).sum()),
        probability=float(softmax(processed)[token]),
    )
