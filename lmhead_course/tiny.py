"""A language model small enough to train while one watches, and the text that it learns from.

It is a GPT in the small: embedding plus learned positions, layers that read a normed stream and add to it, a final
norm, and the course's ``LMHead``, on a matrix of its own or on the embedding's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from .projection import LMHead
from .tokens import show_token


class Block(nn.Module):
    """One layer: attention to what stands before, then an MLP, each reading a normed copy and adding to the stream."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: Float[Tensor, "batch position d_model"]) -> Float[Tensor, "batch position d_model"]:
        """Return the stream after this layer."""
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # (batch, head, position, d_head) each
        fetched = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(fetched.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class TinyLM(nn.Module):
    """A tiny GPT. ``embedding.weight`` and ``head.weight`` are (d_vocab, d_model): one parameter if ``tied``, else two.

    All matrices start normal with standard deviation ``std``, all biases at 0, as GPT-2's. ``seed`` fixes them; tied
    and untied twins of one seed begin with the same embedding and the same body. A sequence has at most ``context``
    tokens.
    """

    def __init__(
        self,
        d_vocab: int,
        *,
        tied: bool,
        d_model: int = 64,
        n_layers: int = 2,
        n_heads: int = 4,
        context: int = 32,
        std: float = 0.02,
        seed: int = 0,
    ):
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(d_vocab, d_model)
        self.positions = nn.Parameter(torch.empty(context, d_model))
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        _start(self, std, torch.Generator().manual_seed(seed))
        weight = self.embedding.weight
        if not tied:  # drawn last, so that all the rest is the same in both twins
            own = torch.Generator().manual_seed(seed + 1_000_003)
            weight = nn.Parameter(torch.empty_like(weight).normal_(0, std, generator=own))
        self.head = LMHead(weight)

    def read(
        self, embedded: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch position d_model"]:
        """Return the hidden states that the head reads, from embedded tokens: positions, layers, final norm."""
        x = embedded + self.positions[: embedded.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, ids: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position d_vocab"]:
        """Return the logits of every position."""
        return self.head(self.read(self.embedding(ids)))


def _start(model: nn.Module, std: float, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=std, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


@dataclass(frozen=True)
class Corpus:
    """A text in tokens of its own: ids to learn from (n,) and ids kept back (m,), and the name of each token.

    ``counts`` (d_vocab,) says how often each token occurs among the ids to learn from.
    """

    train: Int[Tensor, " n"]
    held_out: Int[Tensor, " m"]
    labels: tuple[str, ...]
    tokenizer: object

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.labels)

    @property
    def counts(self) -> Int[Tensor, " d_vocab"]:
        """Occurrences of each token in the ids to learn from."""
        return torch.bincount(self.train, minlength=self.d_vocab)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self.tokenizer.encode(text).ids

    def batches(
        self, steps: int, *, batch: int = 32, context: int = 32, seed: int = 0
    ) -> Iterator[tuple[Int[Tensor, "batch context"], Int[Tensor, "batch context"]]]:
        """Yield ``steps`` batches of ids and of targets, which are the same one further on, from random places."""
        generator = torch.Generator().manual_seed(seed)
        window = torch.arange(context + 1)
        for _ in range(steps):
            starts = torch.randint(len(self.train) - context, (batch, 1), generator=generator)
            rows = self.train[starts + window]
            yield rows[:, :-1], rows[:, 1:]


def learn_tokens(chapters: Sequence[str], d_vocab: int = 2048, held_out: int = 2) -> Corpus:
    """Return a corpus from chapters of a text, the last ``held_out`` of them kept back.

    Its tokens are byte-level BPE of ``d_vocab`` pieces, learned from the rest in about a second. Raises ``ValueError``
    unless there are more chapters than are kept back, or if the text is too short for so many pieces.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if not 0 < held_out < len(chapters):
        raise ValueError(f"held_out must be in 1 … {len(chapters) - 1}, got {held_out}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=d_vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(chapters[:-held_out], trainer)
    if tokenizer.get_vocab_size() != d_vocab:
        raise ValueError(
            f"d_vocab must be at most {tokenizer.get_vocab_size()} for so short a text, got {d_vocab}"
        )
    train, kept = (
        torch.tensor([i for chapter in part for i in tokenizer.encode(chapter).ids])
        for part in (chapters[:-held_out], chapters[-held_out:])
    )
    labels = tuple(show_token(tokenizer.id_to_token(i), True) for i in range(d_vocab))
    return Corpus(train, kept, labels, tokenizer)
