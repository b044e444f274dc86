"""One matrix for both ends of a language model: is it shared, what does sharing save, and how does it learn?

The *input end* is the token embedding, (d_vocab, d_model): a token's row goes in. The *output end* is the head's
weight, (d_vocab, d_model): a token's row is what the hidden state is compared with. A tied model has one matrix.

Source: Press and Wolf 2017 (arXiv:1608.05859); Inan, Khosravi and Socher 2017 (arXiv:1611.01462).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .loss import cross_entropy


def both_ends(model: Any) -> tuple[Tensor, Tensor]:
    """Return the model's token embedding and its head's weight, each (d_vocab, d_model), as they are, not copies.

    ``model`` is one of transformers' (it has ``get_input_embeddings``), a ``LanguageModel``, a ``TinyLM``, or anything
    with ``.embedding`` and ``.head``. Raises ``ValueError`` for a model without one of the two.
    """
    ends = [_weight(part) for part in _parts(model)]
    for name, weight in zip(("token embedding", "output head"), ends, strict=True):
        if weight is None:
            raise ValueError(f"model must have both ends; this {type(model).__name__} has no {name}")
    return ends[0], ends[1]


def is_tied(model: Any) -> bool:
    """Return whether both ends of the model read the same memory. Flags and values are not asked.

    A flag in a config says what was wanted (T5's says True whatever the weights), equal values may be copies that part
    at the next update. What counts is the address of the first number, and the shape. Weights without memory, on the
    meta device, are compared as objects. Models and errors as in ``both_ends``.
    """
    embedding, head = both_ends(model)
    if embedding.shape != head.shape or embedding.device != head.device:
        return False
    return _address(embedding) == _address(head)


def tie(model: Any) -> None:
    """Make the model's head use the embedding's own parameter, in place; a config's flag follows.

    The head's old weight is left to whoever still holds it: make the optimiser after this. Raises ``ValueError`` if the
    two shapes differ; models and errors otherwise as in ``both_ends``.
    """
    embedding, head = both_ends(model)
    if embedding.shape != head.shape:
        raise ValueError(
            f"both ends must have one shape, got an embedding {tuple(embedding.shape)} and a head {tuple(head.shape)}"
        )
    source, target = _parts(model)
    # A parameter of the embedding is used as it is, so that one gradient gathers both ends.
    target.weight = source.weight if hasattr(source, "weight") else _as_parameter(source)
    if hasattr(getattr(model, "config", None), "tie_word_embeddings"):
        model.config.tie_word_embeddings = True  # or saving and loading would part them again


def unique_parameters(model: Any) -> int:
    """Return the number of the model's parameters, those that share memory counted once.

    ``model`` is a module, or a ``LanguageModel``. ``model.parameters()`` by itself skips an object that it has met, but
    not a second ``nn.Parameter`` over the same memory.
    """
    modules = [model] if isinstance(model, nn.Module) else [model.body, model.head]
    largest: dict[Any, int] = {}
    for parameter in (one for module in modules for one in module.parameters()):
        address = _address(parameter)
        largest[address] = max(parameter.numel(), largest.get(address, 0))
    return sum(largest.values())


def saving(share: float) -> float:
    """Return which part of the untied model tying takes away, where one matrix is ``share`` of the *tied* model.

    The untied model is 1 + share times as large, so it is share / (1 + share). Raises ``ValueError`` outside [0, 1].
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1], got {share}")
    return share / (1 + share)


# ---- which rows learn ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PathGradients:
    """The gradient of a loss with respect to both ends, (d_vocab, d_model) each, taken apart; ``loss`` in nats.

    A tied matrix gets ``total``, the sum of the two. With untied ends, each matrix gets its own.
    """

    loss: float
    input: Float[Tensor, "d_vocab d_model"]
    output: Float[Tensor, "d_vocab d_model"]

    @property
    def total(self) -> Float[Tensor, "d_vocab d_model"]:
        """The gradient of a matrix that serves both ends."""
        return self.input + self.output


def path_gradients(
    body: Callable[[Tensor], Tensor],
    embedding: Float[Tensor, "d_vocab d_model"],
    head: Float[Tensor, "d_vocab d_model"],
    ids: Int[Tensor, "batch position"],
    targets: Int[Tensor, "batch position"],
) -> PathGradients:
    """Return the gradients of the mean cross-entropy by the path on which they come: input end and output end.

    ``body`` turns embedded tokens (batch, position, d_model) into the hidden states that the head reads, same shape.
    Both ends are used as two leaves of their own, also when they are one matrix; no ``.grad`` is touched.
    """
    with torch.enable_grad():
        entering, leaving = (weight.detach().requires_grad_() for weight in (embedding, head))
        hidden = body(nn.functional.embedding(ids, entering))
        loss = cross_entropy(nn.functional.linear(hidden, leaving), targets)
        by_input, by_output = torch.autograd.grad(loss, (entering, leaving))
    return PathGradients(loss.item(), by_input, by_output)


def touched_rows(ids: Int[Tensor, "..."], d_vocab: int) -> Int[Tensor, " d_vocab"]:
    """Return how often each token of the vocabulary occurs among the ids; the rows of an embedding they look up.

    Raises ``ValueError`` for an id outside the vocabulary.
    """
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < d_vocab:
        raise ValueError(f"ids must be in 0 … {d_vocab - 1}, got {int(ids.min())} … {int(ids.max())}")
    return torch.bincount(ids.flatten(), minlength=d_vocab)


# ---- what the rows mean -------------------------------------------------------------------------------------------


def neighbours(
    rows: Float[Tensor, "d_vocab d_model"],
    vector: Float[Tensor, " d_model"],
    n: int = 5,
    without: Iterable[int] = (),
) -> list[tuple[int, float]]:
    """Return the n rows with the largest cosine to a vector, as (token id, cosine), the nearest first.

    ``without`` are ids to leave out: a token's own row is always its nearest. A row of length 0 has cosine 0. Raises
    ``ValueError`` unless 1 ≤ n ≤ the number of rows that are left.
    """
    left_out = sorted(set(without))
    if not 1 <= n <= len(rows) - len(left_out):
        raise ValueError(f"n must be in 1 … {len(rows) - len(left_out)}, got {n}")
    cosines = nn.functional.cosine_similarity(rows.detach(), vector.detach(), dim=-1)
    cosines[left_out] = -torch.inf
    best = cosines.topk(n)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


# ---- parts --------------------------------------------------------------------------------------------------------


def _parts(model: Any) -> tuple[Any, Any]:
    """Return what holds the two weights: modules, or for a LanguageModel the embedding itself and the head."""
    if hasattr(model, "get_input_embeddings"):
        return model.get_input_embeddings(), model.get_output_embeddings()
    return getattr(model, "embedding", None), getattr(model, "head", None)


def _weight(part: Any) -> Tensor | None:
    return part if isinstance(part, Tensor) else getattr(part, "weight", None)


def _address(weight: Tensor) -> tuple:
    # Off the machine (meta) and for no numbers at all every address is 0.
    return (id(weight),) if weight.data_ptr() == 0 else (weight.device, weight.data_ptr())


def _as_parameter(weight: Tensor) -> nn.Parameter:
    return (
        weight
        if isinstance(weight, nn.Parameter)
        else nn.Parameter(weight, requires_grad=weight.requires_grad)
    )
