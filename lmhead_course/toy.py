"""The five-word toy that the course computes by hand: what may follow 今天天气 ("today's weather …")."""

import torch

CONTEXT = "今天天气"
WORDS = ("很", "好", "不错", "真", "差")
GLOSSES = ("very", "good", "not bad", "really", "poor")
LABELS = tuple(f"{word} ({gloss})" for word, gloss in zip(WORDS, GLOSSES, strict=True))


def toy_logits() -> torch.Tensor:
    """Return a fresh copy of the five logits, float32 of shape (5,), in the order of ``WORDS``."""
    return torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])


def toy_hidden() -> torch.Tensor:
    """Return a hidden state of two numbers, float32 (2,), that gives ``toy_logits`` with ``toy_rows``."""
    return torch.tensor([2.0, 1.0])


def toy_rows() -> torch.Tensor:
    """Return a head of the toy without bias, float32 (5, 2): one row for each of ``WORDS``."""
    return torch.tensor([[0.9, 0.5], [0.2, 1.1], [1.5, 0.8], [0.6, -0.7], [1.0, -0.8]])
