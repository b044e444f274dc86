"""Stages that change or forbid chosen tokens: bias, ban, allow, and one of a list of answers.

Each function here builds a stage for the pipeline, a callable ``stage(logits, prompt=…, generated=…) -> logits`` on
logits of shape (…, d_vocab), which may stand anywhere in ``SamplingParams.order``. All are the same mechanism: a number
is added to some logits, and −inf is the number that forbids. Rows never affect each other, the argument is never
changed, the result is float32 (float64 stays).

A mask belongs before top-k, top-p and min-p, which else may drop the very tokens that it allows. A stage that would
leave a row without any token raises ``ValueError``, as do ids outside the vocabulary.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real

import torch
from jaxtyping import Int
from torch import Tensor

from .processors import Logits, Processed, TokenIds, check_logits, keep_finite

Stage = Callable[..., Tensor]
Ids = Iterable[int] | Int[Tensor, " n"]
Prefix = tuple[int, ...]


def logit_bias(biases: Mapping[int, float]) -> Stage:
    """Return a stage that adds a number to the logits of some tokens: ``{token id: bias}``, finite, in logit units.

    A bias b multiplies a token's odds by exp(b): 1 makes it 2.7 times as likely against any other token, 100 leaves it
    practically alone. A token that is dropped already stays so. To forbid a token, use ``ban_tokens``.
    """
    biases = dict(biases)  # a copy: the caller's may change later
    ids = _checked_ids(biases, "logit_bias")
    for token, bias in biases.items():
        if not isinstance(bias, Real) or not math.isfinite(bias):
            raise ValueError(f"logit_bias must hold finite numbers, got {bias!r} for token {token}")

    def stage(logits: Logits, *, prompt: TokenIds = None, generated: TokenIds = None) -> Processed:
        logits = check_logits(logits)
        limits = torch.finfo(logits.dtype)
        held = [min(max(biases[token], limits.min), limits.max) for token in ids]
        added = logits.new_zeros(logits.shape[-1])
        added[_columns(ids, logits, "logit_bias")] = logits.new_tensor(held)
        return keep_finite(added != 0, logits + added, logits)

    return _named(stage, "logit_bias", f"Adds to the logits of {_tokens(ids)}.")


def ban_tokens(ids: Ids) -> Stage:
    """Return a stage that forbids the tokens with these ids: their logits become −inf."""
    banned = _checked_ids(ids, "ban_tokens")

    def stage(logits: Logits, *, prompt: TokenIds = None, generated: TokenIds = None) -> Processed:
        logits = check_logits(logits)
        keep = torch.ones_like(logits, dtype=torch.bool)
        keep[..., _columns(banned, logits, "ban_tokens")] = False
        return _keep_some(logits, keep, "ban_tokens")

    return _named(stage, "ban_tokens", f"Forbids {_tokens(banned)}.")


def allow_tokens(ids: Ids) -> Stage:
    """Return a stage that forbids all tokens but those with these ids, of which there must be one at least."""
    allowed = _checked_ids(ids, "allow_tokens")
    if not allowed:
        raise ValueError("allow_tokens must be given at least one id, got none")

    def stage(logits: Logits, *, prompt: TokenIds = None, generated: TokenIds = None) -> Processed:
        logits = check_logits(logits)
        keep = torch.zeros_like(logits, dtype=torch.bool)
        keep[..., _columns(allowed, logits, "allow_tokens")] = True
        return _keep_some(logits, keep, "allow_tokens")

    return _named(stage, "allow_tokens", f"Forbids all but {_tokens(allowed)}.")


def choose_among(answers: Iterable[Ids], *, end: Ids = ()) -> Stage:
    """Return a stage that lets only one of the ``answers`` (each a sequence of token ids) be generated.

    At every step the tokens stay with which some answer goes on after what that row's ``generated`` ids hold, so
    ``generated`` must begin where the answer begins. ``end`` are the ids that end a text (a model's ``eos_ids``), and
    no answer may hold one: they alone may follow a complete answer, or stand beside the next token of a longer one. A
    row that has ended gets nothing else, so that a batch can wait for its last row. Without ``end``, stop as soon as an
    answer is complete: another call raises ``ValueError``; and no answer may then be the beginning of another.

    Every step is renormalised on its own, so an answer's probability is *not* its share of the joint probabilities: a
    likely first token can lead into an answer that goes on unlikely. To compare whole answers, score them instead.
    """
    ends = set(_checked_ids(end, "end"))
    continuations = _continuations(answers, ends)

    def stage(logits: Logits, *, prompt: TokenIds = None, generated: TokenIds = None) -> Processed:
        logits = check_logits(logits)
        keep = torch.zeros_like(logits, dtype=torch.bool)
        rows = keep.view(-1, logits.shape[-1])
        for index, prefix in enumerate(_prefixes(generated, logits)):
            allowed = _allowed_after(prefix, continuations, ends, index)
            rows[index, _columns(allowed, logits, "choose_among")] = True
        return _keep_some(logits, keep, "choose_among")

    complete = sum(1 for followers in continuations.values() if None in followers)
    return _named(stage, "choose_among", f"Lets one of {complete} answers be generated.")


def _continuations(answers: Iterable[Ids], ends: set[int]) -> dict[Prefix, set[int | None]]:
    """Return what may follow each beginning of an answer; None stands for the end of one."""
    complete = [_checked_ids(answer, "choose_among", in_order=True) for answer in answers]
    if not complete or not all(complete):
        raise ValueError(f"choose_among must be given answers of at least one token each, got {complete}")
    for answer in complete:
        if inside := ends.intersection(answer):
            raise ValueError(
                f"choose_among: answer {list(answer)} holds {min(inside)}, which end= says ends a text"
            )
    followers: dict[Prefix, set[int | None]] = {}
    for answer in complete:
        for length, token in enumerate((*answer, None)):
            followers.setdefault(answer[:length], set()).add(token)
    for prefix, tokens in followers.items():
        if None in tokens and len(tokens) > 1 and not ends:
            raise ValueError(
                f"choose_among: answer {list(prefix)} begins another one; name the ids that end a text with end="
            )
    return followers


def _allowed_after(prefix: Prefix, continuations: dict, ends: set[int], row: int) -> list[int]:
    """Return the ids that may follow a row's generated ids."""
    ended = next((n for n, token in enumerate(prefix) if token in ends), None)
    if ended is not None and None in continuations.get(prefix[:ended], ()):
        return sorted(ends)  # what follows the first end token is a row that waits for the others
    tokens = continuations.get(prefix)
    if tokens is None:
        raise ValueError(
            f"choose_among: generated row {row} holds {list(prefix)}, which begins none of the answers"
        )
    if tokens == {None} and not ends:
        raise ValueError(
            f"choose_among: generated row {row} has completed the answer {list(prefix)}; stop there, or name the ids "
            "that end a text with end="
        )
    return sorted({token for token in tokens if token is not None} | (ends if None in tokens else set()))


def _prefixes(generated: TokenIds, logits: Tensor) -> Iterator[Prefix]:
    """Yield each row's generated ids without padding, as many rows as the logits have."""
    count = logits.shape[:-1].numel()
    ids = (
        torch.empty((*logits.shape[:-1], 0), dtype=torch.long)
        if generated is None
        else torch.as_tensor(generated)
    )
    if ids.numel() and (ids.is_floating_point() or ids.shape[:-1] != logits.shape[:-1]):
        expected = (*logits.shape[:-1], "n")
        raise ValueError(
            f"generated must be integer ids of shape {expected}, got {ids.dtype} {tuple(ids.shape)}"
        )
    for row in ids.reshape(count, -1).tolist():
        yield tuple(token for token in row if token >= 0)


def _checked_ids(ids: Ids, name: str, *, in_order: bool = False) -> Prefix:
    """Return token ids as a tuple, without repetition unless their order matters."""
    ids = tuple(ids.tolist()) if isinstance(ids, Tensor) else tuple(ids)
    for token in ids:
        if not isinstance(token, Integral) or isinstance(token, bool) or token < 0:
            raise ValueError(f"{name} must hold token ids, whole numbers ≥ 0, got {token!r}")
    return tuple(map(int, ids)) if in_order else tuple(sorted({int(token) for token in ids}))


def _columns(ids: Sequence[int], logits: Tensor, name: str) -> Tensor:
    d_vocab = logits.shape[-1]
    if ids and max(ids) >= d_vocab:
        raise ValueError(f"{name} holds token id {max(ids)}; ids must be below d_vocab = {d_vocab}")
    return torch.tensor(ids, dtype=torch.long, device=logits.device)


def _keep_some(logits: Tensor, keep: Tensor, name: str) -> Tensor:
    masked = logits.masked_fill(~keep, -torch.inf)
    empty = masked.amax(dim=-1).isneginf()
    if empty.any():
        rows = empty.nonzero().tolist() if logits.ndim > 1 else "the only one"
        raise ValueError(
            f"{name} leaves no token in these rows: {rows}; if an earlier stage dropped the allowed ones, put the "
            "mask before it"
        )
    return masked


def _named(stage: Stage, name: str, doc: str) -> Stage:
    """Give a stage the name that errors and explorers show, and a line on what it does."""
    stage.__name__ = stage.__qualname__ = name
    stage.__doc__ = doc
    return stage


def _tokens(ids: Sequence[int]) -> str:
    return f"{len(ids):,} token" if len(ids) == 1 else f"{len(ids):,} tokens"
