"""The five-word toy that the course computes by hand: what may follow 今天天气 ("today's weather …")."""

import torch

CONTEXT = "今天天气"
WORDS = ("很", "好", "不错", "真", "差")
GLOSSES = ("very", "good", "not bad", "really", "poor")
LABELS = tuple(f"{word} ({gloss})" for word, gloss in zip(WORDS, GLOSSES, strict=True))


def toy_logits() -> torch.Tensor:
    """Return a fresh copy of the five logits, float32 of shape (5,), in the order of ``WORDS``."""
    return torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
