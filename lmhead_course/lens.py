"""Reading with the head: what every layer's residual stream would say, and what the model expects along a text.

Nothing here ever holds logits of more than ``ROWS`` hidden states at once: layers × positions × vocabulary would be
9 GB for 1,500 tokens of the default model, and all that is kept of a row of logits is a handful of numbers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .protocol import CausalLM
from .softmax import entropy, log_softmax, logsumexp

ROWS = 64
"""Hidden states whose logits exist at the same time: 13 MB in float32 for a vocabulary of 49,152."""


@runtime_checkable
class LayeredLM(CausalLM, Protocol):
    """A ``CausalLM`` whose residual streams can be read; see ``LanguageModel`` for the contracts."""

    def hidden_states(self, text: str) -> Tensor:
        """Return the residual stream (layer + 1, position, d_model), before the final norm in every row."""

    def final_norm(self, hidden: Tensor) -> Tensor:
        """Return the normed residual stream, which the head reads."""


@dataclass(frozen=True)
class LensReading:
    """What the head says to each hidden state; every tensor is (layer, position), of the shape that was read.

    ``top`` is the id of the most probable token (the lowest id among equals) and ``probability`` its probability,
    ``entropy`` that of the whole distribution in bits. ``rank`` and ``share`` are rank (1 is the best; equals stand in
    the order of their ids) and probability of the token that was watched, or None if none was.
    """

    top: Int[Tensor, "*shape"]
    probability: Float[Tensor, "*shape"]
    entropy: Float[Tensor, "*shape"]
    rank: Int[Tensor, "*shape"] | None = None
    share: Float[Tensor, "*shape"] | None = None


@torch.no_grad()
def logit_lens(
    hidden: Float[Tensor, "*shape d_model"],
    head: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor] | None = None,
    *,
    watch: int | None = None,
    rows: int = ROWS,
) -> LensReading:
    """Return what ``head`` makes of residual streams that it was not meant to read yet.

    ``hidden`` (…, d_model) are streams *before* the final norm, such as ``lm.hidden_states(text)``; ``norm`` is the
    final norm, None leaves it out. ``head`` turns (n, d_model) into (n, d_vocab). Results have the shape (…), on the
    host. ``rows`` bounds the memory: so many rows of logits exist at once.

    Raises ``ValueError`` for a watched token outside the vocabulary. Source: nostalgebraist 2020, "interpreting GPT:
    the logit lens".
    """
    flat = hidden.reshape(-1, hidden.shape[-1])
    pieces = (head(part if norm is None else norm(part)) for part in flat.split(rows))
    parts = [_read_rows(logits, watch) for logits in pieces]
    columns = [torch.cat(column).reshape(hidden.shape[:-1]).cpu() for column in zip(*parts, strict=True)]
    return LensReading(*columns)


def _read_rows(logits: Float[Tensor, "n d_vocab"], watch: int | None) -> tuple[Tensor, ...]:
    log_p = log_softmax(logits.float())
    best = log_p.max(dim=-1)
    found = (best.indices, best.values.exp(), entropy(log_p.exp(), base=2))
    if watch is None:
        return found
    _check_token(watch, logits.shape[-1])
    return *found, rank_of(logits, watch), log_p[:, watch].exp()


def rank_of(logits: Float[Tensor, "*batch d_vocab"], token: int) -> Int[Tensor, "*batch"]:
    """Return the place of a token among all by its logit, 1 for the best; equals stand in the order of their ids."""
    own = logits[..., token : token + 1]
    ahead = (logits > own).sum(dim=-1)
    return 1 + ahead + (logits[..., :token] == own).sum(dim=-1)


def settled_from(top: Int[Tensor, " layers"]) -> int:
    """Return the first layer from which on the best token is already that of the last layer, and stays it."""
    differs = (top != top[-1]).nonzero()
    return 0 if len(differs) == 0 else int(differs[-1]) + 1


@dataclass(frozen=True)
class TextReading:
    """What a model expects along a text of n tokens; every tensor is (n,), on the host.

    Position i of ``surprise`` is −log2 p(token i | tokens before it) in bits, and of ``place`` the rank of token i in
    that distribution; both say something about a token that is there. The first token has nothing before it: its
    surprise is NaN, its place 0.

    Position i of ``entropy`` (bits), ``end`` (the probability that the text ends here: the sum over the model's EOS
    tokens), ``top`` and ``best`` (most probable token, its probability) is about what may come *after* token i. So is
    ``watched``: for each watched token id its probability and its rank after each token.
    """

    ids: Int[Tensor, " n"]
    surprise: Float[Tensor, " n"]
    place: Int[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    end: Float[Tensor, " n"]
    top: Int[Tensor, " n"]
    best: Float[Tensor, " n"]
    watched: dict[int, tuple[Float[Tensor, " n"], Int[Tensor, " n"]]]


@torch.no_grad()
def read_along(
    lm: CausalLM, text: str, *, special: bool = False, watch: Sequence[int] = (), rows: int = ROWS
) -> TextReading:
    """Return surprise, entropy, and the chance to end along a text, in one pass of the model over it.

    With ``special=True`` control tokens spelled out in the text count as such, as in what ``lm.chat`` returns.
    ``watch`` are token ids to follow. The model reads ``rows`` tokens a step, with its cache, so that memory does not
    grow with text × vocabulary. Raises ``ValueError`` for no text, one beyond the model's context, or a watched token
    outside the vocabulary.
    """
    ids = lm.encode(text, special)
    if not ids:
        raise ValueError("text is empty: there is nothing to read along")
    for token in watch:
        _check_token(token, lm.head.d_vocab)
    parts = [_read_piece(*piece, lm.eos_ids, watch) for piece in _pieces(lm, torch.tensor(ids), rows)]
    joined = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
    # What a row says about the next token belongs to that token: one place to the right.
    surprise = torch.cat([torch.tensor([math.nan]), joined.pop("surprise")])
    place = torch.cat([torch.tensor([0]), joined.pop("place")])
    watched = {token: (joined.pop(f"p{token}"), joined.pop(f"rank{token}")) for token in watch}
    return TextReading(torch.tensor(ids), surprise, place, watched=watched, **joined)


def _pieces(lm: CausalLM, ids: Tensor, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits after each token of a piece (n, d_vocab), and the tokens that come after them."""
    device, cache = lm.head.weight.device, None
    for start in range(0, len(ids), rows):
        logits, cache = lm.step(ids[None, start : start + rows].to(device), cache, last_only=False)
        yield logits[0].float(), ids[start + 1 : start + rows + 1].to(device)


def _read_piece(logits: Tensor, following: Tensor, eos_ids: set[int], watch: Sequence[int]) -> dict[str, Any]:
    log_p = log_softmax(logits)
    best, known = log_p.max(dim=-1), log_p[: len(following)]  # nothing follows the text's last token
    own = known.gather(1, following[:, None])
    ends = sorted(eos_ids)
    found = {
        "surprise": -own[:, 0] / math.log(2),
        "place": 1 + (known > own).sum(dim=-1),
        "entropy": entropy(log_p.exp(), base=2),
        "end": logsumexp(log_p[:, ends]).exp() if ends else torch.zeros(len(log_p)),
        "top": best.indices,
        "best": best.values.exp(),
    }
    for token in watch:
        found |= {f"p{token}": log_p[:, token].exp(), f"rank{token}": rank_of(logits, token)}
    return found


def at_least_once(probabilities: Float[Tensor, " n"]) -> float:
    """Return 1 − Π(1 − p): the chance that at least one of n draws, one from each distribution, is the token.

    The distributions are those along one text, so it is the chance that the token would have been drawn somewhere
    beside this text. In float64, by logarithms, so that a thousand tiny p add up to what they are.
    """
    return -math.expm1(torch.log1p(-probabilities.double()).sum().item())


def _check_token(token: int, d_vocab: int) -> None:
    if not 0 <= token < d_vocab:
        raise ValueError(f"watch must be a token id in 0 … {d_vocab - 1}, got {token}")
