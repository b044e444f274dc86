"""Scoring instead of sampling: how probable given continuations are, and which of several answers is the most so."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .generation import Prompt, log_probs_of, prompt_ids
from .protocol import CausalLM
from .sampling import SamplingParams, process_logits
from .streaming import shared_start

LOGITS_LIMIT = 1 << 28
"""Bytes of logits that are computed at once, at least those of one continuation."""


@dataclass(frozen=True)
class Score:
    """How probable one continuation is: its ``text``, the ``ids`` that were scored, and the log-probability of each,
    in nats, given all tokens before it."""

    text: str
    ids: list[int]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """Log-probability of the whole continuation; a longer one has more factors below 1."""
        return sum(self.log_probs)

    @property
    def per_token(self) -> float:
        """``total`` / number of tokens: depends on how the tokenizer cuts."""
        return self.total / len(self.ids)

    @property
    def per_byte(self) -> float:
        """``total`` / number of UTF-8 bytes of the text: does not depend on the tokenizer's cuts."""
        return self.total / len(self.text.encode())


def score_continuations(
    lm: CausalLM, prompt: Prompt, continuations: Sequence[Prompt], params: SamplingParams | None = None
) -> list[Score]:
    """Return the log-probabilities of each continuation behind the prompt, in their order.

    They are the model's own (raw), or with ``params`` those after the processors: then a dropped token has −inf, and
    penalties count the prompt and the continuation's earlier tokens.

    Where the prompt ends and the answer begins, tokens may not: "is " and "Paris" are written "is", " Paris", and the
    prompt's space is part of the answer's token. So a text is encoded together with its prompt, as the model has
    learned to read it, and the tokens behind those that *all* continuations share with the prompt are scored. All
    are then given the same beginning, and stay comparable, even if some ids hold the prompt's last characters.
    Token ids, as a prompt or as a continuation, are taken as they stand, so ``lm.encode(answer)`` in place of the
    answer scores the two texts encoded apart.

    Raises ``ValueError`` for an empty continuation, or for more tokens than ``lm.context_length``.
    """
    if isinstance(continuations, str) or not len(continuations):
        raise ValueError(f"continuations must be a list of at least one text, got {continuations!r}")
    context, answers = split(lm, prompt, continuations)
    longest = len(context) + max(map(len, answers))
    if longest > lm.context_length:
        raise ValueError(
            f"prompt and continuation are {longest} tokens long, the model reads {lm.context_length}"
        )
    shown = [one if isinstance(one, str) else lm.decode(list(one)) for one in continuations]
    rows = zip(shown, answers, _read(lm, context, answers), strict=True)
    return [Score(text, ids, _log_probs(logits, context, ids, params)) for text, ids, logits in rows]


def choose_answer(
    lm: CausalLM,
    prompt: Prompt,
    answers: Sequence[Prompt],
    *,
    by: str = "total",
    params: SamplingParams | None = None,
) -> Score:
    """Return the score of the most probable answer, the first among equals.

    ``by`` is "total" (which favours short answers), "per_token" or "per_byte" (see ``Score``). The arguments and
    errors are else those of ``score_continuations``. (``masks.choose_among`` makes a *sampler* choose.)
    """
    if by not in ("total", "per_token", "per_byte"):
        raise ValueError(f'by must be "total", "per_token" or "per_byte", got {by!r}')
    return max(score_continuations(lm, prompt, answers, params), key=lambda score: getattr(score, by))


def split(lm: CausalLM, prompt: Prompt, continuations: Sequence[Prompt]) -> tuple[list[int], list[list[int]]]:
    """Return the ids that stand before every continuation, and behind them the ids of each."""
    start = prompt_ids(lm, prompt)
    whole = [_joined(lm, prompt, start, one) for one in continuations]
    shared = min(shared_start(start, ids) for ids in whole)
    # Nothing in common: then only a BOS token can stand in front of the first scored token.
    context = start[:shared] or prompt_ids(lm, "")
    return context, [ids[shared:] for ids in whole]


def _joined(lm: CausalLM, prompt: Prompt, start: list[int], continuation: Prompt) -> list[int]:
    if not len(continuation):
        raise ValueError(f"continuations must not be empty, got {continuation!r}")
    if not isinstance(continuation, str):
        return start + prompt_ids(lm, continuation)
    if not isinstance(prompt, str):
        return start + _without_bos(lm, continuation)
    # An empty prompt is a BOS token, which the encoded text does not begin with.
    return lm.encode(prompt + continuation) if prompt else start + _without_bos(lm, continuation)


def _without_bos(lm: CausalLM, text: str) -> list[int]:
    """Return the ids of a text that does not stand at the beginning: some tokenizers add BOS to whatever they get."""
    ids = lm.encode(text)
    return ids[1:] if ids[0] == getattr(lm, "bos_id", None) else ids


@torch.no_grad()
def _read(lm: CausalLM, context: list[int], answers: list[list[int]]) -> Iterator[Float[Tensor, "n d_vocab"]]:
    """Yield for each answer the logits of every one of its tokens. The context is read once, for all of them."""
    device = lm.head.weight.device
    first, cache = lm.step(torch.tensor([context], device=device))
    longest = max(map(len, answers))
    at_once = max(1, LOGITS_LIMIT // (4 * lm.head.d_vocab * longest))
    for start in range(0, len(answers), at_once):
        some = answers[start : start + at_once]
        # Padded on the right: whatever stands there comes after the answer, and no token looks ahead.
        ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids in some], device=device)
        logits = first.expand(len(some), -1).unsqueeze(1)
        if longest > 1:
            same_cache = cache.rows(torch.zeros(len(some), dtype=torch.long, device=device))
            later, _ = lm.step(ids[:, :-1], same_cache, last_only=False)
            logits = torch.cat([logits, later], dim=1)
        yield from (row[: len(ids)] for row, ids in zip(logits, some, strict=True))


def _log_probs(
    logits: Tensor, context: list[int], ids: list[int], params: SamplingParams | None
) -> list[float]:
    tokens = torch.tensor(ids, device=logits.device)
    if params is not None:
        n = len(ids)
        # Row i has generated the i tokens before its own; −1 is padding.
        earlier = torch.where(torch.ones(n, n, device=logits.device).tril(-1) > 0, tokens, -1)
        prompt = torch.tensor([context], device=logits.device).expand(n, -1)
        logits = process_logits(logits, params, prompt=prompt, generated=earlier)
    return log_probs_of(logits, tokens).tolist()
