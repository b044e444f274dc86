"""How well a model predicts a text: the loss of every token, perplexity, bits per byte."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .loss import cross_entropy
from .protocol import CausalLM

PIECE = 128
"""Positions read at once: their logits are 25 MB for 49,152 tokens, however long the text is."""


@dataclass(frozen=True)
class TextLoss:
    """The loss of a text: ``losses``, one float32 in nats for each predicted token, and ``n_bytes`` of UTF-8.

    ``n_bytes`` counts what the predicted tokens stand for: the first token of a text is read and not predicted.
    """

    losses: Float[Tensor, " n"]
    n_bytes: int

    @property
    def tokens(self) -> int:
        """How many tokens were predicted."""
        return len(self.losses)

    @property
    def nats(self) -> float:
        """The loss of the whole text, added up in float64."""
        return self.losses.double().sum().item()

    @property
    def mean(self) -> float:
        """The mean loss of a token, in nats: every token weighs the same."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp of the mean loss: among how many equally likely tokens the model chose, on (geometric) average."""
        return math.exp(self.mean)

    @property
    def bits_per_byte(self) -> float:
        """The loss of the whole text in bits, over its bytes: comparable between tokenizers."""
        return self.nats / math.log(2) / self.n_bytes


def text_loss(lm: CausalLM, text: str, *, window: int | None = None, stride: int | None = None) -> TextLoss:
    """Return the loss of a text under a model, read through windows of ``window`` tokens.

    The arguments and errors are those of ``token_losses``; the text's own tokens are counted, none is added. Source
    of bits per byte: Gao et al. 2020 (arXiv:2101.00027), section 3.1.
    """
    ids = lm.encode(text)
    losses = token_losses(lm, torch.tensor(ids), window=window, stride=stride)
    return TextLoss(losses, len(text.encode()) - len(lm.decode(ids[:1]).encode()))


@torch.no_grad()
def token_losses(
    lm: CausalLM, ids: Int[Tensor, " n"], *, window: int | None = None, stride: int | None = None
) -> Float[Tensor, " n_minus_one"]:
    """Return −ln p of every token but the first, in nats, float32 (n − 1,); each token is scored exactly once.

    A text longer than ``window`` tokens (the model's context length unless given) is read through overlapping
    windows, each ``stride`` tokens further (half a window unless given). A window scores only tokens that no earlier
    one has scored, so that from the second window on each has at least window − stride tokens of context; the last
    window is moved back until it is full. Where the text fits, one window reads it all and the stride is of no
    account. Cost: a smaller stride gives more context and reads the text window / stride times.

    Raises ``ValueError`` for fewer than two ids, a window below 2 or above the context length, or a stride outside
    [1, window − 1]: windows must overlap, or the first token of each would be predicted from nothing.
    """
    window, stride = _checked(lm, len(ids), window, stride)
    parts = [
        _window_losses(lm, ids[first:last])[new - last :]
        for first, last, new in windows(len(ids), window, stride)
    ]
    return torch.cat(parts)


def windows(n: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first, last, new) of each window over n tokens: it reads ids[first:last] and scores ids[new:last]."""
    last = min(window, n)
    yield 0, last, 1
    while last < n:
        new, last = last, min(last + stride, n)
        yield last - window, last, new


def _window_losses(lm: CausalLM, ids: Tensor) -> Tensor:
    """Return the losses (n − 1,) of one window, read in pieces, so that few logits exist at a time."""
    device, cache, parts = lm.head.weight.device, None, []
    for start in range(0, len(ids) - 1, PIECE):
        piece = ids[start : min(start + PIECE, len(ids) - 1)]
        logits, cache = lm.step(piece.unsqueeze(0).to(device), cache, last_only=False)
        targets = ids[start + 1 : start + 1 + len(piece)].to(device)
        parts.append(cross_entropy(logits[0], targets, reduction="none").float().cpu())
    return torch.cat(parts)


def _checked(lm: CausalLM, n: int, window: int | None, stride: int | None) -> tuple[int, int]:
    if n < 2:
        raise ValueError(f"ids must hold at least 2 tokens, one to read and one to predict, got {n}")
    window = min(n, lm.context_length) if window is None else window
    if not 2 <= window <= lm.context_length:
        raise ValueError(f"window must be in [2, {lm.context_length}], the model's context, got {window}")
    stride = max(window // 2, 1) if stride is None else stride
    if not 1 <= stride < window:
        raise ValueError(f"stride must be in [1, window − 1 = {window - 1}], got {stride}")
    return window, stride
