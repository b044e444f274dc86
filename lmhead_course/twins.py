"""Tied and untied twins: the same tiny model trained twice, watched while it learns, and compared over seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .loss import cross_entropy
from .records import from_csv
from .tiny import Corpus, TinyLM
from .tying import path_gradients, touched_rows, unique_parameters

STEPS = 550
PEAK_RATE = 3e-3
WATCHED = (0, 1, 2, 5, 10, 20, 35, *range(50, STEPS, 50), STEPS - 1)
"""The steps at which ``Training`` keeps the gradient of every row, and the held-out loss."""


@dataclass(frozen=True)
class RowGradients:
    """The gradient of one step, row by row: its length (norm) by path, and what the batch held.

    ``counts`` (d_vocab,) says how often each token was an input of the batch. ``input`` and ``output`` (d_vocab,) are
    the norms of the two paths' gradients, ``total`` those of their sum, which is what a tied matrix gets. ``loss`` is
    the batch's, in nats; ``step`` counts from 0.
    """

    step: int
    loss: float
    counts: Int[Tensor, " d_vocab"]
    input: Float[Tensor, " d_vocab"]
    output: Float[Tensor, " d_vocab"]
    total: Float[Tensor, " d_vocab"]

    @property
    def seen(self) -> Tensor:
        """Which rows (d_vocab,) were looked up in this step."""
        return self.counts > 0


def row_gradients(model: TinyLM, ids: Tensor, targets: Tensor, step: int = 0) -> RowGradients:
    """Return the gradient norms of every row for one batch of ids and targets (batch, position); changes nothing."""
    paths = path_gradients(model.read, model.embedding.weight, model.head.weight, ids, targets)
    norms = (gradient.norm(dim=1) for gradient in (paths.input, paths.output, paths.total))
    return RowGradients(step, paths.loss, touched_rows(ids, model.head.d_vocab), *norms)


class Training:
    """One tiny model and all that trains it; call ``step()`` until it has learned enough.

    AdamW without decay, the rate rising over 50 steps to ``peak_rate`` and falling to a tenth of it along a cosine.
    Two trainings of one ``seed`` see the same batches. ``losses`` holds the loss of every step, in nats. At the steps
    in ``watched``, and before their update, ``gradients`` keeps the gradient norms of every row, and ``held_out`` a
    pair (step, loss on the text that was kept back).
    """

    def __init__(
        self,
        model: TinyLM,
        corpus: Corpus,
        *,
        steps: int = STEPS,
        peak_rate: float = PEAK_RATE,
        seed: int = 0,
        watched: Iterable[int] = (),
    ):
        self.model, self.corpus, self.steps, self.peak_rate = model, corpus, steps, peak_rate
        self._batches = corpus.batches(steps, context=model.context, seed=seed)
        self._optimiser = torch.optim.AdamW(
            model.parameters(), lr=peak_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._watched = set(watched)
        self.losses: list[float] = []
        self.gradients: list[RowGradients] = []
        self.held_out: list[tuple[int, float]] = []

    def step(self) -> float:
        """Learn from one batch and return its loss. Raises ``StopIteration`` after the last of ``steps``."""
        number, (ids, targets) = len(self.losses), next(self._batches)
        if number in self._watched:
            self.gradients.append(row_gradients(self.model, ids, targets, number))
            self.held_out.append((number, held_out_loss(self.model, self.corpus)))
        for group in self._optimiser.param_groups:
            group["lr"] = self.peak_rate * schedule(number, self.steps)
        # torch's own loss: ours keeps a second copy of the logits, and this runs a thousand times.
        logits = self.model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self.losses.append(loss.item())
        return self.losses[-1]

    def recent(self, n: int = 50, before: int | None = None) -> float:
        """Return the mean loss of the last n steps, or of the last n before a step, or of all there are."""
        end = len(self.losses) if before is None else before
        return fmean(self.losses[max(end - n, 0) : end])


def schedule(step: int, steps: int, warm_up: int = 50) -> float:
    """Return the share of the peak rate at a step: up in a straight line, then down along a cosine to a tenth."""
    rising = min(1.0, (step + 1) / warm_up)
    return rising * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))


@torch.no_grad()
def held_out_loss(model: TinyLM, corpus: Corpus) -> float:
    """Return the mean loss in nats a token of the text kept back, read in pieces of the model's context."""
    ids, context = corpus.held_out, model.context
    pieces = (len(ids) - 1) // context
    inputs = ids[: pieces * context].view(pieces, context)
    targets = ids[1 : pieces * context + 1].view(pieces, context)
    parts = [
        cross_entropy(model(x), y, reduction="sum")
        for x, y in zip(inputs.split(32), targets.split(32), strict=True)
    ]
    return sum(part.item() for part in parts) / targets.numel()


# ---- the stored comparison ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One training of the stored comparison, made by ``python -m benchmarks.tying``; losses in nats a token.

    ``train`` is the mean of the last 50 steps, ``held_out`` of the chapters that were kept back.
    """

    variant: str
    d_model: int
    parameters: int
    peak_rate: float
    seed: int
    train: float
    held_out: float


VARIANTS = {
    "tied": {"tied": True, "d_model": 64},
    "untied": {"tied": False, "d_model": 64},
    "tied, wider": {"tied": True, "d_model": 88},  # about as many parameters as untied
}


def run(variant: str, corpus: Corpus, seed: int, peak_rate: float, steps: int = STEPS) -> Run:
    """Train one of ``VARIANTS`` from the start and return what came out."""
    model = TinyLM(corpus.d_vocab, seed=seed, **VARIANTS[variant])
    training = Training(model, corpus, steps=steps, peak_rate=peak_rate, seed=seed)
    for _ in range(steps):
        training.step()
    size, d_model = unique_parameters(model), model.head.d_model
    return Run(variant, d_model, size, peak_rate, seed, training.recent(), held_out_loss(model, corpus))


def stored_runs() -> list[Run]:
    """Return the comparison that the package ships: every run of ``python -m benchmarks.tying``."""
    return from_csv(Run, (files(__package__) / "data" / "tying.csv").read_text(encoding="utf-8"))


def best_rate(runs: Sequence[Run], variant: str) -> list[Run]:
    """Return a variant's runs, one a seed, at the peak rate whose mean held-out loss is lowest."""
    by_rate: dict[float, list[Run]] = {}
    for one in runs:
        if one.variant == variant:
            by_rate.setdefault(one.peak_rate, []).append(one)
    if not by_rate:
        raise ValueError(f"variant must be one of {sorted({one.variant for one in runs})}, got {variant!r}")
    return min(by_rate.values(), key=lambda group: fmean(one.held_out for one in group))
