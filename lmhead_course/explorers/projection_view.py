"""What the projection explorer shows: hidden states and token rows in a plane. Numbers and words, no widgets."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ..projection import LMHead
from ..protocol import CausalLM
from ..tokens import clean
from .token_table import percent, printable, quoted

MOST_TOKENS = 12
"""How many arrows can be told apart in one picture."""
_NICE = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


# ---- words to tokens ------------------------------------------------------------------------------------


def find_token(lm: CausalLM, word: str) -> int:
    """Return the id of the one token that a word means: with a space before it if there is such a token, else without.

    ``␣`` stands for a space that is meant as it is, ``#123`` for an id. Raises ``ValueError`` for a word of several
    tokens, naming them.
    """
    word = clean(word.strip())
    if re.fullmatch(r"#\d+", word):
        if int(word[1:]) >= lm.head.d_vocab:
            raise ValueError(f"#… must be an id in #0 … #{lm.head.d_vocab - 1}, got {word}")
        return int(word[1:])
    if not word:
        raise ValueError("a word is missing: write one between the commas, or on each side of the minus")
    spellings = [word.replace("␣", " ")] if "␣" in word else [f" {word}", word]
    for ids in map(lm.encode, spellings):
        if len(ids) == 1:
            return ids[0]
    pieces = " ".join(printable(lm.label(i)) for i in lm.encode(spellings[0]))
    raise ValueError(
        f"“{word}” is not one token but {len(lm.encode(spellings[0]))} ({pieces}). Choose a word that is one token, "
        "or give a token's id, as #123"
    )


def direction(lm: CausalLM, text: str) -> Float[Tensor, " d_model"]:
    """Return the row of a word's token, or for ``Paris − London`` the difference of two rows."""
    rows = [lm.head.weight[find_token(lm, word)].float().cpu() for word in re.split(r"\s[−–-]\s", text)]
    if len(rows) > 2:
        raise ValueError(f"an axis is one word, or one word − another, got {text!r}")
    return rows[0] if len(rows) == 1 else rows[0] - rows[1]


# ---- the plane ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plane:
    """Two directions (d_model,) of length 1, at right angles."""

    across: Tensor
    up: Tensor

    def shadow(self, vectors: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch 2"]:
        """Return the coordinates of vectors in the plane: where their shadow falls."""
        return vectors @ torch.stack([self.across, self.up], dim=1)

    def rest(self, vectors: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Return the part of vectors that the plane does not see: at right angles to it."""
        return vectors - self.shadow(vectors) @ torch.stack([self.across, self.up])


def plane_of(first: Float[Tensor, " d_model"], second: Float[Tensor, " d_model"]) -> Plane:
    """Return the plane of two directions: across along the first, up along what of the second is at right angles to it.

    Raises ``ValueError`` for directions that span no plane.
    """
    across = first / first.norm()
    up = second - (second @ across) * across
    # Not a number for a first direction of length 0: "not greater" refuses that too.
    if not up.norm() > 1e-4 * second.norm():
        raise ValueError("the two axes point the same way, or one has no length: choose other words")
    return Plane(across, up / up.norm())


# ---- what is shown --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProjectionParams:
    """Where the hidden state comes from (a layer, 0 is the embedding), and where its shadow has been dragged.

    ``rest`` keeps the part outside of the plane; without it only the drawn arrow is scored.
    """

    layer: int
    x: float
    y: float
    rest: bool = True


@dataclass(frozen=True)
class ProjectionRow:
    """One token: its logit, and what that is made of. ``logit = |hidden| · length · cos(angle)`` for a plain head.

    Ranks are among the whole vocabulary, 1 is the best; ``rank_by_angle`` is the place if all rows were equally long.
    ``in_plane`` is the part of the dot product that the picture shows, angles are in degrees.
    """

    token_id: int
    label: str
    logit: float
    rank: int
    rank_by_angle: int
    probability: float
    length: float
    angle: float
    in_plane: float


@dataclass(frozen=True)
class ProjectionView:
    """Everything the explorer shows for one place of the hidden state. ``length`` is that of the hidden state."""

    params: ProjectionParams
    rows: tuple[ProjectionRow, ...]
    d_vocab: int
    length: float
    outside: float
    moved: tuple[float, float]
    best: str
    best_logit: float
    best_probability: float

    @property
    def sentence(self) -> str:
        """The picture in words."""
        p, (dx, dy) = self.params, self.moved
        origin = "the embedding" if p.layer == 0 else f"layer {p.layer}"
        moved = (
            f", moved from there by ({signed(dx)}, {signed(dy)})" if max(abs(dx), abs(dy)) >= 0.005 else ""
        )
        rest = "" if p.rest else " The part outside of the plane is left out."
        return (
            f"The hidden state is that of {origin}{moved}. Its shadow in this plane is at ({signed(p.x)}, "
            f"{signed(p.y)}).{rest} Of {self.d_vocab:,} tokens the best is {quoted(self.best)}: logit "
            f"{signed(self.best_logit)}, probability {percent(self.best_probability)}."
        )

    @property
    def readouts(self) -> list[list[str]]:
        """Figures with their names."""
        return [
            ["hidden state's length", f"{self.length:.2f}"],
            ["of it in the plane", f"{(self.params.x**2 + self.params.y**2) ** 0.5:.2f}"],
            ["of it outside", f"{self.outside:.2f}"],
        ]


@dataclass(frozen=True)
class Scene:
    """A head, a text's hidden state after every layer (layers, d_model), normed as the head reads it, and a plane.

    Logits are linear in the hidden state, so two products with the whole matrix serve every place in the plane: a move
    costs no more than a sum of three columns of d_vocab numbers.
    """

    head: LMHead
    hidden: Tensor
    plane: Plane
    lengths: Tensor  # of the rows (d_vocab,), the same for every scene of a head

    @cached_property
    def walk(self) -> Tensor:
        """The shadow after each layer, (layers, 2)."""
        return self.plane.shadow(self.hidden)

    @cached_property
    def columns(self) -> Tensor:
        """The shadow of every token's row, (d_vocab, 2)."""
        return self.plane.shadow(self.head.weight.detach().float().cpu())

    @cached_property
    def _from_rest(self) -> dict[int, Tensor]:
        return {}

    def from_rest(self, layer: int) -> Tensor:
        """Return the dot products with what of a layer's hidden state lies outside of the plane, (d_vocab,)."""
        if layer not in self._from_rest:
            weight = self.head.weight.detach().float().cpu()
            self._from_rest[layer] = weight @ self.plane.rest(self.hidden[layer])
        return self._from_rest[layer]

    def products(self, params: ProjectionParams) -> Tensor:
        """Return the dot product of every row with the hidden state, (d_vocab,)."""
        shown = params.x * self.columns[:, 0] + params.y * self.columns[:, 1]
        return shown + self.from_rest(params.layer) if params.rest else shown

    def logits(self, products: Tensor) -> Tensor:
        """Return what the head makes of dot products: its scale, bias and cap."""
        head = self.head
        logits = products * head.scale
        if head.bias is not None:
            logits = logits + head.bias.detach().float().cpu()
        return logits if head.soft_cap is None else head.soft_cap * torch.tanh(logits / head.soft_cap)


@dataclass(frozen=True)
class _Scores:
    """What every token gets from one hidden state: four columns (d_vocab,), and the hidden state's length."""

    products: Tensor
    logits: Tensor
    per_length: Tensor
    chances: Tensor
    length: float


def view_of(
    scene: Scene, params: ProjectionParams, token_ids: list[int], label: Callable[[int], str]
) -> ProjectionView:
    """Return the view of a hidden state with its shadow at (x, y), the tokens with the largest logit first."""
    products = scene.products(params)
    logits = scene.logits(products)
    outside = float(scene.plane.rest(scene.hidden[params.layer]).norm()) if params.rest else 0.0
    length = (outside**2 + params.x**2 + params.y**2) ** 0.5
    scores = _Scores(products, logits, products / scene.lengths, logits.softmax(dim=-1), length)
    rows = [_row(token_id, label(token_id), scene, params, scores) for token_id in token_ids]
    best, (x, y) = int(logits.argmax()), scene.walk[params.layer].tolist()
    return ProjectionView(
        params=params,
        rows=tuple(sorted(rows, key=lambda row: row.rank)),
        d_vocab=len(logits),
        length=length,
        outside=outside,
        moved=(params.x - x, params.y - y),
        best=label(best),
        best_logit=float(logits[best]),
        best_probability=float(scores.chances[best]),
    )


def _row(token_id: int, label: str, scene: Scene, params: ProjectionParams, scores: _Scores) -> ProjectionRow:
    x, y = scene.columns[token_id].tolist()
    # The row's length is divided out; the hidden state's is still in.
    shared = float(scores.per_length[token_id])
    cosine = min(max(shared / scores.length, -1.0), 1.0) if scores.length else 0.0
    return ProjectionRow(
        token_id=token_id,
        label=label,
        logit=float(scores.logits[token_id]),
        rank=int((scores.logits > scores.logits[token_id]).sum()) + 1,
        rank_by_angle=int((scores.per_length > shared).sum()) + 1,
        probability=float(scores.chances[token_id]),
        length=float(scene.lengths[token_id]),
        angle=math.degrees(math.acos(cosine)),
        in_plane=params.x * x + params.y * y,
    )


# ---- the frame of the picture ---------------------------------------------------------------------------


def frame_of(scene: Scene, token_ids: list[int]) -> tuple[float, float]:
    """Return how far the axes reach, and how many times as long the tokens' arrows are drawn.

    The hidden state after every layer is in the frame; the embedding, layer 0, can lie far away and is not waited for.
    """
    far = float(scene.walk[1:].abs().max()) if len(scene.walk) > 1 else float(scene.walk.abs().max())
    longest = float(scene.columns[token_ids].norm(dim=1).max()) if token_ids else 1.0
    reach = _nice(1.15 * max(far, longest, 1e-3))
    return reach, _nice(0.85 * reach / max(longest, 1e-3), up=False)


def _nice(value: float, up: bool = True) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    steps = [round(power * n, 9) for n in _NICE]
    if up:
        return next(step for step in steps if step >= value - 1e-9 or step == steps[-1])
    return max((step for step in steps if step <= value + 1e-9), default=steps[0])


def signed(value: float) -> str:
    """Return a number with two places, and a real minus that is never in front of 0.00."""
    return "0.00" if abs(value) < 0.005 else f"{value:,.2f}".replace("-", "−")
