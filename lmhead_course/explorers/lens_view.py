"""What the lens explorer shows: the head applied to every layer's residual stream. Numbers and words, no widgets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from .. import figures
from ..lens import LayeredLM, LensReading, logit_lens, rank_of, settled_from
from ..softmax import entropy, softmax
from ..tokens import clean
from .context import WINDOW
from .token_table import percent, quoted

COLUMNS = 12
"""How many positions are drawn: the labels of more would not fit a page of 800 pixels."""
CANDIDATES = 8
NAME = 11
"""How many characters of a token's name fit into a column of figures."""
QUANTITIES = ("probability of the top token", "rank of the word", "entropy (bits)")


@dataclass(frozen=True)
class LensParams:
    """What is shown: one of ``QUANTITIES``, with or without the final norm, for the token ``word``, and which cell.

    ``layer`` is 0 for the embedding; ``position`` counts from the last token, which is 0, to the left, −1, −2 and on.
    """

    quantity: str = QUANTITIES[0]
    norm: bool = True
    word: int = 0
    layer: int = 0
    position: int = 0


@dataclass(frozen=True)
class LensView:
    """Everything on the page: the reading of all cells, and the chosen one in words and figures."""

    params: LensParams
    reading: LensReading
    tokens: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    candidates: tuple[tuple[str, float], ...]
    sentence: str
    readouts: list[list[str]]


class LensScene:
    """A text as a model reads it: the residual streams of its last ``COLUMNS`` tokens, and what the head says to them.

    Readings of the whole picture are kept: with and without the norm, for the words that were asked last.
    """

    def __init__(self, lm: LayeredLM, text: str, label: Callable[[int], str]):
        ids = lm.encode(text)
        if len(ids) > WINDOW:
            text = lm.decode(ids[-WINDOW:])
            ids = lm.encode(text)
        self.lm, self.label = lm, label
        self.hidden: Float[Tensor, "layers position d_model"] = lm.hidden_states(clean(text))[:, -COLUMNS:]
        self.n_tokens = len(ids)
        self.tokens = tuple(map(label, ids[-COLUMNS:])) or ("(begin)",)
        self.reading = lru_cache(maxsize=4)(self._reading)

    @property
    def status(self) -> str:
        """How much of the text is in the picture, in words."""
        if self.n_tokens <= COLUMNS:
            return (
                f"All {self.n_tokens} tokens are drawn."
                if self.n_tokens
                else "Drawn: the token that begins a text."
            )
        return f"The text has {self.n_tokens:,} tokens; the last {COLUMNS} are drawn."

    def norm(self, used: bool) -> Callable[[Tensor], Tensor] | None:
        """Return the final norm, or None for a picture without it."""
        return self.lm.final_norm if used else None

    def _reading(self, used: bool, word: int) -> LensReading:
        return logit_lens(self.hidden, self.lm.head, self.norm(used), watch=word)


def view_of(scene: LensScene, params: LensParams) -> LensView:
    """Return what the explorer shows; raise ``ValueError`` for a layer or a quantity that there is not."""
    layers = len(scene.hidden)
    if not 0 <= params.layer < layers:
        raise ValueError(f"layer must be in 0 … {layers - 1}, got {params.layer}")
    if params.quantity not in QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(QUANTITIES)}, got {params.quantity!r}")
    reading = scene.reading(params.norm, params.word)
    column = column_of(scene, params)
    state = scene.hidden[params.layer, column]
    logits = scene.lm.head(scene.lm.final_norm(state) if params.norm else state).float().cpu()
    p = softmax(logits)
    best = p.topk(min(CANDIDATES, len(p)))
    candidates = tuple(
        (scene.label(i), x) for i, x in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
    labels = tuple(tuple(map(scene.label, line)) for line in reading.top.tolist())
    word = (scene.label(params.word), int(rank_of(logits, params.word)), p[params.word].item())
    sentence = _sentence(scene, params, reading, column, candidates[0], word)
    # Cut, so that a token of 30 spaces does not push everything below it down.
    readouts = [[f"{place} · {name[:NAME]}", percent(x)] for place, (name, x) in enumerate(candidates, 1)]
    readouts += [
        ["entropy", f"{entropy(p, base=2).item():.2f} bits"],
        [f"rank of {word[0][:NAME]}", f"{word[1]:,}"],
        [f"p of {word[0][:NAME]}", percent(word[2])],
        ["length of the stream", f"{state.norm().item():.1f}"],
    ]
    return LensView(params, reading, scene.tokens, labels, candidates, sentence, readouts)


def column_of(scene: LensScene, params: LensParams) -> int:
    """Return the column of the chosen position; one left of the picture is its first."""
    return max(len(scene.tokens) - 1 + min(params.position, 0), 0)


def figure_of(scene: LensScene, view: LensView) -> go.Figure:
    """Return the heat map of a view."""
    d_vocab, reading = scene.lm.head.d_vocab, view.reading
    values, unit, low, high, log = {
        QUANTITIES[0]: (reading.probability, "probability", 0.0, 1.0, False),
        QUANTITIES[1]: (reading.rank, "rank (log scale)", 1.0, float(d_vocab), True),
        QUANTITIES[2]: (reading.entropy, "bits", 0.0, torch.tensor(d_vocab).log2().item(), False),
    }[view.params.quantity]
    what = view.params.quantity
    if what == QUANTITIES[1]:
        what = f"rank of {scene.label(view.params.word)}"
    how = "with" if view.params.norm else "without"
    return figures.lens_heatmap(
        view.labels,
        values.numpy(),
        view.tokens,
        title=f"{what}, {how} the norm",
        unit=unit,
        low=low,
        high=high,
        log=log,
        hover=_hovers(scene, view),
        chosen=(view.params.layer, column_of(scene, view.params)),
        shown=7 if len(view.tokens) <= 8 else 5,
    )


def _hovers(scene: LensScene, view: LensView) -> list[list[str]]:
    reading, word = view.reading, scene.label(view.params.word)

    def text(layer: int, column: int) -> str:
        at = (layer, column)
        return (
            f"layer {layer}, after {quoted(view.tokens[column])}: {quoted(view.labels[layer][column])} "
            f"{percent(reading.probability[at].item())}, {reading.entropy[at].item():.2f} bits; "
            f"{quoted(word)} has rank {int(reading.rank[at]):,}"
        )

    return [[text(layer, column) for column in range(len(view.tokens))] for layer in range(len(view.labels))]


def _sentence(
    scene: LensScene,
    params: LensParams,
    reading: LensReading,
    column: int,
    best: tuple[str, float],
    word: tuple[str, int, float],
) -> str:
    place = "At the embedding" if params.layer == 0 else f"After layer {params.layer}"
    settled = settled_from(reading.top[:, column])
    last = scene.label(int(reading.top[-1, column]))
    since = "from the embedding on" if settled == 0 else f"from layer {settled} on"
    return (
        f"{place}, {'with' if params.norm else 'without'} the final norm, the head reads the stream at "
        f"{quoted(scene.tokens[column])} as {quoted(best[0])} with {percent(best[1])}; {quoted(word[0])} has "
        f"rank {word[1]:,} of {scene.lm.head.d_vocab:,}. The last layer's top "
        f"token in this column, {quoted(last)}, is on top {since}."
    )
