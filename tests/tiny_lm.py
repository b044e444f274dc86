"""A language model small enough to know everything about, for tests that need no weights."""

import torch

from lmhead_course.projection import LMHead


class TinyCache:
    """The states of the positions read so far: (batch, d_model) after the last, and how many there are."""

    def __init__(self, states, length):
        self.states, self.length = states, length

    def rows(self, index):
        return TinyCache(self.states[index], self.length)

    def crop(self, length):
        return TinyCache(self.states[:, :length], length)


class TinyLM:
    """A recurrent model with random weights: every token and its order matter, padding does not.

    Token i is written as ``pieces[i]``, bytes, and a text is read one byte-string at a time, the longest match first.
    """

    def __init__(
        self, pieces, *, seed=0, d_model=16, sharpness=3.0, eos_ids=(), context_length=64, bos_id=None
    ):
        random = torch.Generator().manual_seed(seed)
        self.pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self.embedding = torch.randn(len(pieces), d_model, generator=random)
        self.head = LMHead(sharpness * torch.randn(len(pieces), d_model, generator=random) / d_model**0.5)
        self.context_length = context_length
        self.eos_ids = set(eos_ids)
        self.bos_id = bos_id
        self.calls = []  # the shape of the ids of every step

    def encode(self, text, special=False):
        rest, ids = text.encode(), []
        while rest:
            fits = [i for i, piece in enumerate(self.pieces) if piece and rest.startswith(piece)]
            ids.append(max(fits, key=lambda i: len(self.pieces[i])))
            rest = rest[len(self.pieces[ids[-1]]) :]
        return ids

    def decode(self, ids):
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")

    def label(self, token_id):
        return self.pieces[token_id].decode("utf-8", "replace")

    def logits(self, text):
        return self.step(torch.tensor([self.encode(text)]))[0][0]

    def step(self, ids, cache=None, mask=None, last_only=True):
        self.calls.append(tuple(ids.shape))
        past = 0 if cache is None else cache.length
        if past + ids.shape[1] > self.context_length:
            raise ValueError("beyond the context")
        mask = torch.ones(len(ids), past + ids.shape[1]) if mask is None else mask
        state = torch.zeros(len(ids), self.head.d_model) if past == 0 else cache.states[:, -1]
        states = [] if past == 0 else [cache.states]
        for column, real in zip(ids.T, mask[:, past:].T, strict=True):
            grown = torch.tanh(0.7 * state + self.embedding[column])
            state = torch.where(real[:, None] > 0, grown, state)
            states.append(state[:, None])
        states = torch.cat(states, dim=1)
        hidden = states[:, -1] if last_only else states[:, past:]
        return self.head(hidden), TinyCache(states, past + ids.shape[1])


LETTERS = ("a", "b", "c", "d", "e", "f", "g", ".")


def letters(**settings):
    """Return a model whose tokens are seven letters and a full stop."""
    return TinyLM(LETTERS, **settings)
