"""The autoregressive loop: read, choose a token, append it, read again. One text or a batch, streamed step by step."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .protocol import CausalLM
from .sampling import RankedLogits, SamplingParams, sample
from .softmax import logsumexp
from .streaming import TextStream

Prompt = str | Sequence[int]

PADDING = -1


@dataclass(frozen=True, eq=False)
class Step:
    """One token of one text.

    ``token_id`` is the chosen token, ``text`` what it adds to the text that can be shown ("" while a character is
    unfinished or a stop string may have begun), ``log_prob`` the token's natural logarithm of probability under the
    model itself, before any processor. ``logits`` (d_vocab,), float32, are the model's own too.

    ``row`` is the prompt's place in the list that was given. ``finished`` is None while the text goes on; at its last
    step it is "eos" (an end-of-text token, which has no ``text`` of its own), "stop" (a stop string) or "length".
    """

    token_id: int
    text: str
    log_prob: float
    logits: Float[Tensor, " d_vocab"] = field(repr=False)
    row: int = 0
    finished: str | None = None

    def ranked(self) -> RankedLogits:
        """Return the model's logits at this step, sorted now: the candidates that were not chosen."""
        return RankedLogits(self.logits)


def generate(
    lm: CausalLM,
    prompt: Prompt | Sequence[Prompt],
    params: SamplingParams,
    *,
    max_new_tokens: int,
    stop: str | Sequence[str] = (),
    use_cache: bool = True,
    generator: torch.Generator | None = None,
) -> Iterator[Step]:
    """Continue a prompt and yield a ``Step`` for every new token, as soon as it is chosen.

    ``prompt`` is a text, or token ids (for a chat: ``lm.encode(lm.chat(messages), special=True)``); an empty one
    starts from the model's BOS token. A list of prompts runs as one batch, padded on the left: then each round yields
    one step for every text that is not finished, in the order of the list. The texts never affect each other, but
    they draw from one ``generator``. Joined, the ``text`` of a row's steps is the decoded continuation, cut before
    the first of the ``stop`` strings.

    A text ends with any of ``lm.eos_ids``, at a stop string, or after ``max_new_tokens``. Penalties count the prompt
    and the tokens so far as ``process_logits`` says. ``use_cache=False`` reads everything again for each token: the
    same tokens, slower. The same call with a generator of the same seed gives the same tokens on one device.

    A step holds its d_vocab logits (196 KB for 49,152 tokens): keep what you need of it, not all of them.

    Raises ``ValueError`` at the call for a wrong prompt or stop, a number outside its range, or a
    continuation that would not fit into ``lm.context_length``.
    """
    prompts = prompt_batch(lm, prompt)
    check_room(lm, prompts, max_new_tokens)
    stops = tuple(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,)
    if not all(isinstance(one, str) and one for one in stops):
        raise ValueError(f"stop must be a string, or a list of strings, none of them empty; got {stop!r}")
    # A function of its own: a body with a yield runs, and raises, only when the first step is asked for.
    return _steps(lm, TokenBatch(lm, prompts, use_cache), params, max_new_tokens, stops, generator)


def _steps(lm, batch, params, max_new_tokens, stops, generator) -> Iterator[Step]:
    streams = [TextStream(lm.decode, stops, ids) for ids in batch.prompt_lists()]
    rows = list(range(len(streams)))
    for left in reversed(range(max_new_tokens)):
        logits = batch.read()
        tokens = sample(logits, params, prompt=batch.prompt, generated=batch.generated, generator=generator)
        batch.append(tokens)
        log_probs = log_probs_of(logits, tokens)
        going_on = []
        for place, row in enumerate(rows):
            token_id = int(tokens[place])
            text, finished = _show(streams[row], token_id, token_id in lm.eos_ids, left == 0)
            # A tensor like any other, which a learner can change and differentiate; and one row by itself, since a
            # view would keep the logits of all rows for as long as one step is kept.
            own = logits[place].clone()
            yield Step(token_id, text, float(log_probs[place]), own, row, finished)
            if finished is None:
                going_on.append(place)
        if not going_on:
            return
        if len(going_on) < len(rows):
            batch.rows(going_on)
            rows = [rows[place] for place in going_on]


def _show(stream: TextStream, token_id: int, is_eos: bool, is_last: bool) -> tuple[str, str | None]:
    """Return the text that a token releases, and why its row ends, if it does."""
    text = "" if is_eos else stream.push(token_id)
    if stream.stopped:
        return text, "stop"
    if not (is_eos or is_last):
        return text, None
    text += stream.finish()
    # A stop string can be complete only now, behind bytes that were held back as a possible character.
    return text, "stop" if stream.stopped else "eos" if is_eos else "length"


class TokenBatch:
    """Texts that grow together: their ids, and what the model has already read of them.

    ``prompt`` (row, n) is padded on the left with −1, ``generated`` (row, m) is what was appended. With a cache every
    token is read once; without, everything is read anew each time.
    """

    def __init__(self, lm: CausalLM, prompts: list[list[int]], use_cache: bool = True):
        longest = max(map(len, prompts))
        padded = [[PADDING] * (longest - len(ids)) + ids for ids in prompts]
        self.ids: Int[Tensor, "row n"] = torch.tensor(padded, device=lm.head.weight.device)
        self._lm = lm
        self._n_prompt = longest
        self._use_cache = use_cache
        self._cache: Any = None
        self._n_read = 0

    @property
    def prompt(self) -> Int[Tensor, "row n"]:
        """The prompts' ids, −1 where they are padded."""
        return self.ids[:, : self._n_prompt]

    @property
    def generated(self) -> Int[Tensor, "row m"]:
        """The ids that were appended."""
        return self.ids[:, self._n_prompt :]

    def prompt_lists(self) -> list[list[int]]:
        """Return the prompts' ids as lists, without padding."""
        return [[token_id for token_id in ids if token_id >= 0] for ids in self.prompt.tolist()]

    def read(self) -> Float[Tensor, "row d_vocab"]:
        """Return the logits of the token that follows each text, made in inference mode: clone what you hand out."""
        mask = (self.ids >= 0).long()
        unread = self.ids[:, self._n_read :].clamp(min=0)  # padding needs some valid id; the mask hides it
        # A step of one token is many small operations, and in this mode each is a little quicker.
        with torch.inference_mode():
            logits, cache = self._lm.step(unread, self._cache, None if mask.all() else mask)
        if self._use_cache:
            self._cache, self._n_read = cache, self.ids.shape[1]
        return logits

    def append(self, tokens: Int[Tensor, " row"]) -> None:
        """Add one token to each text."""
        self.ids = torch.cat([self.ids, tokens[:, None]], dim=1)

    def rows(self, places: list[int]) -> None:
        """Keep the texts at these places, in this order, repeats allowed; their cache goes with them."""
        index = torch.tensor(places, device=self.ids.device)
        self.ids = self.ids[index]
        if self._cache is not None:
            self._cache = self._cache.rows(index)


def log_probs_of(
    logits: Float[Tensor, "*batch d_vocab"], tokens: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return ln of each token's probability, in nats: its logit minus the row's logsumexp."""
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logsumexp(logits)


def prompt_batch(lm: CausalLM, prompt: Prompt | Sequence[Prompt]) -> list[list[int]]:
    """Return the ids of one prompt (a text or ids) or of a list of them; raise ``ValueError`` for anything else."""
    many = _is_list(prompt) and len(prompt) > 0 and _token_id(prompt[0]) is None
    return [prompt_ids(lm, one) for one in (prompt if many else [prompt])]


def prompt_ids(lm: CausalLM, prompt: Prompt) -> list[int]:
    """Return the ids that the model reads for a text or for ids: its BOS token alone for an empty prompt.

    Ids stand in a list or another sequence, not in a tensor or array: give its ``tolist()``. Raises ``ValueError`` for
    anything else, for ids outside the vocabulary, and for an empty prompt where the model has no BOS token.
    """
    if not isinstance(prompt, str) and not _is_list(prompt):
        kind = type(prompt).__name__
        found = f"{kind}: give its tolist()" if hasattr(prompt, "tolist") else f"{prompt!r:.60}"
        raise ValueError(f"prompt must be a text or a list of token ids, or a list of these; got {found}")
    ids = _whole_ids(lm.encode(prompt) if isinstance(prompt, str) else prompt, lm.head.d_vocab)
    bos_id = getattr(lm, "bos_id", None)
    if not ids and bos_id is None:
        raise ValueError("prompt is empty, and the model has no BOS token to start from: give it some text")
    return ids or [bos_id]


def _is_list(prompt: object) -> bool:
    return isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes)


def _whole_ids(prompt: Sequence[Any], d_vocab: int) -> list[int]:
    ids = []
    for one in prompt:
        token_id = _token_id(one)
        if token_id is None or not 0 <= token_id < d_vocab:
            raise ValueError(f"prompt must hold token ids in 0 … {d_vocab - 1}, got {one!r:.60}")
        ids.append(token_id)
    return ids


def _token_id(one: object) -> int | None:
    """Return one whole number, of Python, numpy or torch, as an int; None for anything else, and for any array."""
    if getattr(one, "ndim", 0):
        return None
    try:
        return operator.index(one)
    except TypeError:
        return None


def check_room(lm: CausalLM, prompts: list[list[int]], max_new_tokens: int) -> None:
    """Raise ``ValueError`` unless ``max_new_tokens`` ≥ 1 more tokens fit behind the longest prompt."""
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be a whole number ≥ 1, got {max_new_tokens!r}")
    longest = max(map(len, prompts))
    room = lm.context_length - longest + 1  # the last new token is never read
    if max_new_tokens > room:
        raise ValueError(
            f"max_new_tokens must be at most {max(room, 0)} behind a prompt of {longest} tokens, "
            f"since the model reads at most {lm.context_length}; got {max_new_tokens}"
        )
