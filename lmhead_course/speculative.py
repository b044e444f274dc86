"""Speculative decoding: a cheap draft proposes some tokens, the model checks them all with one pass of its head.

The model reads k proposed tokens at once and so gets k + 1 rows of logits for about the price of one: on most machines
a step costs the reading of the weights, not the arithmetic. What is accepted, and what is drawn where a proposal is
refused, is arranged so that the text has exactly the distribution of the model's own sampling.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from .generation import Prompt, check_room, prompt_ids
from .protocol import CausalLM
from .sampling import SamplingParams, process_logits, sample
from .softmax import softmax
from .streaming import TextStream, shared_start

Proposal = tuple[list[int], Float[Tensor, "n d_vocab"]]


@runtime_checkable
class Draft(Protocol):
    """Something that guesses how a text goes on."""

    def propose(
        self, ids: list[int], n_prompt: int, k: int, generator: torch.Generator | None = None
    ) -> Proposal:
        """Return up to k tokens behind ``ids``, and the distribution (n, d_vocab) that each was drawn from.

        The first ``n_prompt`` ids are the prompt. If the distribution is told truly, a bad guess only costs time.
        """


class NGramDraft:
    """Proposes what followed when the text's last tokens occurred before: no model at all, and always certain.

    It looks for the last ``n`` tokens, then the last n − 1, down to one, and takes the latest place where they stand.
    Good where a text repeats itself (lists, code, quotations). Raises ``ValueError`` unless n is a whole number ≥ 1.
    Source: "prompt lookup decoding", as in transformers.
    """

    def __init__(self, d_vocab: int, n: int = 3):
        if not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n must be a whole number ≥ 1, got {n!r}")
        self.d_vocab, self.n = d_vocab, n

    def propose(
        self, ids: list[int], n_prompt: int, k: int, generator: torch.Generator | None = None
    ) -> Proposal:
        """Return up to k tokens, each with probability 1."""
        tokens = next((found for n in range(self.n, 0, -1) if (found := follow(ids, n, k))), [])
        return tokens, one_hot(torch.tensor(tokens, dtype=torch.long), self.d_vocab).float()


def follow(ids: list[int], n: int, k: int) -> list[int]:
    """Return up to k tokens that followed the latest earlier occurrence of the last n ids; none if there is none."""
    last = ids[-n:]
    for start in range(len(ids) - n - 1, -1, -1):
        if ids[start : start + n] == last:
            return ids[start + n : start + n + k]
    return []


class ModelDraft:
    """Proposes what another, smaller model with the same tokenizer draws under the same settings."""

    def __init__(self, lm: CausalLM, params: SamplingParams):
        self.params = params
        self.d_vocab = lm.head.d_vocab
        self._lm = lm
        self._reader = Reader(lm)

    def propose(
        self, ids: list[int], n_prompt: int, k: int, generator: torch.Generator | None = None
    ) -> Proposal:
        """Return k tokens and what the smaller model drew them from."""
        tokens, rows = [], [self._lm.head.weight.new_empty(0, self._lm.head.d_vocab)]
        for _ in range(k):
            so_far = ids + tokens
            p = distributions(self._reader.read(so_far, 1), so_far, n_prompt, self.params)
            rows.append(p)
            tokens.append(draw(p[0], generator))
        return tokens, torch.cat(rows)


@dataclass(frozen=True)
class Round:
    """One pass of the model: the ``token_ids`` it settled, of which the first ``accepted`` were among the
    ``proposed`` ones, and the last is the model's own (an EOS token ends the list earlier).

    ``text`` and ``finished`` are those of ``generation.Step``. ``agreement`` has for each proposal the probability
    Σ min(p, q) with which it is accepted, before it is known which token was drawn.
    """

    token_ids: list[int]
    text: str
    proposed: int
    accepted: int
    agreement: list[float]
    finished: str | None = None


def speculate(
    lm: CausalLM,
    draft: Draft,
    prompt: Prompt,
    params: SamplingParams,
    *,
    max_new_tokens: int,
    k: int = 4,
    generator: torch.Generator | None = None,
) -> Iterator[Round]:
    """Continue a prompt as ``generate`` does, k proposals of the draft at a time, and yield a ``Round`` for each pass.

    The tokens have the distribution of ``generate``'s, at every setting of ``params``; at temperature 0 they are the
    same tokens. The draws differ, so one seed gives another text here than there. Arguments and errors else are those
    of ``generate``; ``k`` ≥ 1. A draft with another ``d_vocab`` than the model's is refused.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), algorithm 1.
    """
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k must be a whole number ≥ 1, got {k!r}")
    d_vocab = getattr(draft, "d_vocab", lm.head.d_vocab)  # a draft need not say
    if d_vocab != lm.head.d_vocab:
        raise ValueError(f"draft must have the model's d_vocab, {lm.head.d_vocab}, got one of {d_vocab}")
    start = prompt_ids(lm, prompt)
    check_room(lm, [start], max_new_tokens)
    return _rounds(lm, draft, start, params, max_new_tokens, k, generator)


def _rounds(lm, draft, start, params, max_new_tokens, k, generator) -> Iterator[Round]:
    reader, stream = Reader(lm), TextStream(lm.decode, before=start)
    ids, end = list(start), len(start) + max_new_tokens
    while True:
        # Each round settles one token more than it accepts, so the last token needs no proposal.
        proposed, q = draft.propose(ids, len(start), min(k, end - len(ids) - 1), generator)
        logits = reader.read(ids + proposed, len(proposed) + 1)
        p = distributions(logits, ids + proposed, len(start), params)
        accepted, following = verify(p, q.to(p), proposed, generator)
        settled = _up_to_eos([*proposed[:accepted], following], lm.eos_ids)
        ids += settled
        is_eos = settled[-1] in lm.eos_ids
        finished = "eos" if is_eos else "length" if len(ids) == end else None
        text = "".join(map(stream.push, settled[:-1] if is_eos else settled))
        agreement = torch.minimum(p[: len(proposed)], q.to(p)).sum(dim=-1).tolist()
        text += stream.finish() if finished else ""
        yield Round(settled, text, len(proposed), min(accepted, len(settled)), agreement, finished)
        if finished:
            return


def verify(
    p: Float[Tensor, "n_plus_1 d_vocab"],
    q: Float[Tensor, "n d_vocab"],
    proposed: list[int],
    generator: torch.Generator | None = None,
) -> tuple[int, int]:
    """Return how many of the n proposed tokens are accepted, and the token that follows them.

    Proposal i, drawn from ``q[i]``, is accepted with probability min(1, p/q) at that token, ``p[i]`` being the model's
    distribution. At the first refusal the token is drawn from max(0, p − q), renormalised: just what the accepted
    proposals lack to be distributed as p. If all are accepted, ``p[n]`` gives one more token for nothing.
    """
    chances = torch.rand(len(proposed), dtype=p.dtype, generator=generator, device=p.device)
    for place, token_id in enumerate(proposed):
        if chances[place] * q[place, token_id] >= p[place, token_id]:
            missing = (p[place] - q[place]).clamp(min=0)
            # Where p equals q but for rounding there is nothing missing to draw from.
            return place, draw(missing if missing.sum() > 0 else p[place], generator)
    return len(proposed), draw(p[-1], generator)


def distributions(
    logits: Float[Tensor, "n d_vocab"], ids: list[int], n_prompt: int, params: SamplingParams
) -> Float[Tensor, "n d_vocab"]:
    """Return the processed probabilities behind each of the last n ids; penalties count what stands before."""
    n, all_ids = len(logits), torch.tensor(ids, device=logits.device)
    prompt = all_ids[:n_prompt].expand(n, -1)
    generated = all_ids[n_prompt:].expand(n, -1)
    # Row i ends n − 1 − i ids before the end: what comes later is padding to it.
    seen = torch.ones_like(generated).tril(generated.shape[1] - n) > 0
    processed = process_logits(logits, params, prompt=prompt, generated=torch.where(seen, generated, -1))
    return softmax(processed.double() if processed.device.type != "mps" else processed)


def draw(weights: Float[Tensor, " d_vocab"], generator: torch.Generator | None) -> int:
    """Return a token id drawn in proportion to its weight."""
    return int(sample(weights.log(), SamplingParams(), generator=generator))


def _up_to_eos(ids: list[int], eos_ids: set[int]) -> list[int]:
    ends = [place for place, token_id in enumerate(ids) if token_id in eos_ids]
    return ids[: ends[0] + 1] if ends else ids


class Reader:
    """Reads a text that grows at its end and is sometimes cut back: the cache is kept as far as the text stays."""

    def __init__(self, lm: CausalLM):
        self._lm = lm
        self._ids: list[int] = []
        self._cache: Any = None

    @torch.no_grad()
    def read(self, ids: list[int], rows: int) -> Float[Tensor, "rows d_vocab"]:
        """Return the logits behind each of the last ``rows`` ids."""
        known, cache = self._cut_back(min(shared_start(self._ids, ids), len(ids) - rows))
        if known < len(ids) - rows:  # a new prompt: its own logits are not wanted
            _, cache = self._step(ids[known:-rows], cache, last_only=True)
        logits, self._cache = self._step(ids[-rows:], cache, last_only=False)
        self._ids = list(ids)
        return logits[0]

    def _cut_back(self, known: int) -> tuple[int, Any]:
        """Return how much of the text need not be read again, and the cache of that much."""
        try:
            return known, self._cache.crop(known) if known else None
        except (
            RuntimeError
        ):  # a sliding window has forgotten what would be needed again: read everything anew
            return 0, None

    def _step(self, ids: list[int], cache: Any, last_only: bool) -> tuple[Tensor, Any]:
        batch = torch.tensor([ids], device=self._lm.head.weight.device)
        return self._lm.step(batch, cache, last_only=last_only)
