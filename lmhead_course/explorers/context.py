"""What a next token follows: a text read by a language model, or logits that were given."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..processors import check_logits
from ..protocol import CausalLM
from ..sampling import RankedLogits
from ..softmax import softmax
from .token_table import printable

WINDOW = 512
"""How many tokens the explorer has a model read: a second or two on a small machine, and far more than it takes to
see what a text does to the next token."""


@dataclass(frozen=True)
class Context:
    """Logits (d_vocab,), float32 on the host, and what they belong to.

    ``prompt_ids`` are the tokens of the typed text and ``generated`` those drawn after it; ``text`` is both, as the
    prompt box shows it. The model has read the last ``window`` tokens at most.
    """

    logits: Float[Tensor, " d_vocab"]
    text: str = ""
    typed: str = ""
    prompt_ids: tuple[int, ...] = ()
    generated: tuple[int, ...] = ()
    window: int = WINDOW

    @cached_property
    def ranked(self) -> RankedLogits:
        """The logits, sorted once for every move of a slider."""
        return RankedLogits(self.logits)

    @cached_property
    def probabilities(self) -> Float[Tensor, " d_vocab"]:
        """The model's own probabilities."""
        return softmax(self.logits)

    @property
    def ids(self) -> dict[str, Int[Tensor, " n"]]:
        """The token ids that penalties count, as ``process_logits`` takes them: those the model has read."""
        generated = self.generated[-self.window :]
        room = self.window - len(generated)
        counted = {"prompt": self.prompt_ids[-room:] if room else (), "generated": generated}
        return {name: torch.tensor(ids, dtype=torch.long) for name, ids in counted.items()}

    @cached_property
    def counted(self) -> tuple[Int[Tensor, " n"], dict[str, Int[Tensor, " _"]]]:
        """The tokens that a penalty can change, each once and rising, and ``ids`` as places among these.

        The best token is one of them, so that there is always one, and one above −inf: else no row of logits.
        """
        ids = self.ids
        tokens = torch.cat([*ids.values(), torch.from_numpy(self.ranked.token_ids[:1])]).unique()
        return tokens, {name: torch.searchsorted(tokens, counted) for name, counted in ids.items()}

    def forget(self) -> None:
        """Drop what was computed from the logits and would be computed again: a dozen times their memory."""
        for name in ("ranked", "probabilities", "counted"):
            self.__dict__.pop(name, None)

    @property
    def status(self) -> str:
        """How much of the text the model has read, in words."""
        count = len(self.prompt_ids) + len(self.generated)
        if count == 0:
            return "No text: the model starts from the token that begins every text."
        if count > self.window:
            return f"The text has {count:,} tokens; only the last {self.window} are used."
        return f"The model has read {count} token{'' if count == 1 else 's'}."

    def with_draw(self, token_id: int) -> "Context":
        """Return the context after one more drawn token, the logits unchanged: for logits that were given."""
        return replace(self, generated=(*self.generated, token_id))


def read_text(lm: CausalLM, text: str) -> Context:
    """Return the context of a typed text. Raises what the model raises, such as for no text without a BOS token."""
    ids = tuple(lm.encode(text))
    return _read(lm, text=text, typed=text, prompt_ids=ids)


def read_on(lm: CausalLM, context: Context, token_id: int) -> Context:
    """Return the context after one more token.

    The tokens go on, not their text: a drawn piece of a character has no text of its own, and the text of two tokens
    can be one token when it is read again.
    """
    generated = (*context.generated, token_id)
    start = lm.decode(list(context.prompt_ids))
    whole = lm.decode([*context.prompt_ids, *generated])
    text = context.typed + whole[len(start) :]
    return _read(lm, text=text, typed=context.typed, prompt_ids=context.prompt_ids, generated=generated)


@torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
def _read(
    lm: CausalLM, *, prompt_ids: tuple[int, ...], generated: tuple[int, ...] = (), **texts: str
) -> Context:
    ids, window = prompt_ids + generated, min(WINDOW, lm.context_length)
    if ids:
        used = torch.tensor([ids[-window:]], device=lm.head.weight.device)
        logits = lm.step(used)[0][0]
    else:
        logits = lm.logits("")
    return Context(logits.float().cpu(), prompt_ids=prompt_ids, generated=generated, window=window, **texts)


def given_context(logits: Tensor | np.ndarray | Sequence[float]) -> Context:
    """Return a context of logits (d_vocab,) that were given; raise ``ValueError`` where they have no softmax."""
    logits = torch.as_tensor(logits).detach().clone()
    if logits.ndim != 1:
        raise ValueError(f"logits must have shape (d_vocab,), got {tuple(logits.shape)}")
    return Context(check_logits(logits).float().cpu())


def bounded_logits(logits: Tensor | Sequence[float], limit: float) -> Float[Tensor, " d_vocab"]:
    """Return logits (d_vocab,) that were given, for sliders that end somewhere.

    Raises ``ValueError`` where they have no softmax, or one is infinite or beyond ±``limit``.
    """
    found = given_context(logits).logits
    largest = float(found.abs().max())
    if not largest <= limit:
        raise ValueError(f"logits must be finite and in [{-limit:g}, {limit:g}], got one of ±{largest:g}")
    return found


def check_top(top: int) -> None:
    """Raise ``ValueError`` unless a number of rows to show is at least 1."""
    if not isinstance(top, Integral) or top < 1:
        raise ValueError(f"top must be a whole number ≥ 1, got {top!r}")


def labeller(labels: Iterable | Callable[[int], str] | None, d_vocab: int) -> Callable[[int], str]:
    """Return the function from token id to printable label; without labels a token is named by its id.

    Raises ``ValueError`` unless there is one label for each of ``d_vocab`` tokens.
    """
    if labels is None:
        return str
    if callable(labels):
        return lambda token_id: printable(labels(token_id))
    texts = [printable(str(label)) for label in labels]
    if len(texts) != d_vocab:
        raise ValueError(f"labels must be as many as the logits, {d_vocab}, got {len(texts)}")
    return texts.__getitem__
