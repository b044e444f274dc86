"""A model of characters that trains in a second or two, to see what a change of the loss does to what is learned."""

import re
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .loss import IGNORE, cross_entropy
from .softmax import softmax

END = "\n"
"""The character that ends a text: the model's EOS. It also stands before the first character, as padding."""
CONTEXT = 4


class CharacterModel(nn.Module):
    """Predicts a character from the few before it: embeddings side by side, one tanh layer, a head.

    ``alphabet`` is a string whose first character is ``END``; ids are places in it. All float64, so that a short
    training prints the same rounded numbers on every machine.
    """

    def __init__(self, alphabet: str, *, d_embedding: int = 12, d_model: int = 64, seed: int = 0):
        super().__init__()
        self.alphabet = alphabet
        random = torch.Generator().manual_seed(seed)
        sizes = (len(alphabet), d_embedding), (CONTEXT * d_embedding, d_model), (d_model, len(alphabet))
        self.embedding, self.inner, self.head = (
            nn.Parameter(torch.randn(*size, generator=random, dtype=torch.float64) / size[0] ** 0.5)
            for size in sizes
        )

    def forward(self, contexts: Int[Tensor, "n context"]) -> Float[Tensor, "n d_vocab"]:
        """Return the logits (n, d_vocab) of what follows each context (n, 4) of character ids."""
        return torch.tanh(self.embedding[contexts].flatten(1) @ self.inner) @ self.head


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text that have 20 to 300 characters, cut roughly: at the space after . ! or ?"""
    return [part for part in re.split(r"(?<=[.!?])[\"']?\s+", text) if 20 < len(part) < 300]


def alphabet_of(texts: Sequence[str]) -> str:
    """Return ``END`` and every other character of the texts, sorted."""
    return END + "".join(sorted(set().union(*texts) - {END}))


def examples(texts: Sequence[str], alphabet: str, *, look: int = 0) -> tuple[Tensor, Tensor]:
    """Return (contexts, targets): every character of the texts, and END after each, with the four before it.

    Shapes (n, 4) and (n,), int64. With ``look=1`` the window stands one place to the right and *contains* the
    target, as attention without a causal mask does.
    """
    ids = {character: i for i, character in enumerate(alphabet)}
    contexts, targets = [], []
    for text in texts:
        row = [0] * CONTEXT + [ids[character] for character in text] + [0]
        contexts += [row[i + look : i + look + CONTEXT] for i in range(len(row) - CONTEXT)]
        targets += row[CONTEXT:]
    return torch.tensor(contexts), torch.tensor(targets)


def train(
    model: CharacterModel,
    contexts: Int[Tensor, "n context"],
    targets: Int[Tensor, " n"],
    *,
    steps: int = 300,
    batch: int = 512,
    rate: float = 0.01,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORE,
    seed: int = 0,
) -> CharacterModel:
    """Train a model in place on examples drawn at random, by Adam on the mean cross-entropy, and return it."""
    random = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        some = torch.randint(len(targets), (batch,), generator=random)
        loss = cross_entropy(
            model(contexts[some]), targets[some], ignore_index=ignore_index, label_smoothing=label_smoothing
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@torch.no_grad()
def write(model: CharacterModel, n: int, *, longest: int = 200, seed: int = 0) -> list[str]:
    """Return n texts sampled from the model, each up to its END, which is left out, or ``longest`` characters."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.zeros(n, CONTEXT, dtype=torch.long)
    for _ in range(longest):
        p = softmax(model(rows[:, -CONTEXT:]))
        rows = torch.cat([rows, torch.multinomial(p, 1, generator=random)], dim=1)
    texts = ["".join(model.alphabet[i] for i in row) for row in rows[:, CONTEXT:].tolist()]
    return [text.split(END)[0] for text in texts]
