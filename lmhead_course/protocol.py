"""What the course asks of a language model, so that explorers and generation run without any weights."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from .projection import LMHead


@runtime_checkable
class CausalLM(Protocol):
    """A causal language model as ``load_model`` returns it; see ``LanguageModel`` for every member's contract."""

    head: LMHead
    context_length: int
    eos_ids: set[int]

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids."""

    def label(self, token_id: int) -> str:
        """Return a printable name of one token."""

    def step(
        self, ids: Tensor, cache: Any = None, mask: Tensor | None = None, last_only: bool = True
    ) -> tuple:
        """Return ``(logits, cache)`` for ids of shape (batch, n)."""

    def logits(self, text: str) -> Tensor:
        """Return the logits (d_vocab,) of the token that follows the text."""
