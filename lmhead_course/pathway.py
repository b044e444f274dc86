"""The way from a text to its next token as one picture, drawn from a model's own sizes.

It is an ordered list of boxes, in HTML with a little style: the boxes follow each other and break into lines where the
page is narrow, a screen reader reads a list, and a viewer that drops the style still shows one. Colours and letters are
those of the page, so that it reads on light and dark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .escaping import NO_TEX, as_html, link_target, visible


@dataclass(frozen=True)
class Stage:
    """One station: its name, the shape of what leaves it, and what happens there, in a few words.

    ``head`` marks the stations that the course is about; ``notebook`` is a link's target, "" for none.
    Raises ``ValueError`` for a target that is neither a web page nor a file.
    """

    name: str
    shape: str
    what: str
    head: bool = False
    notebook: str = ""

    def __post_init__(self):
        link_target(self.notebook)  # refused here and not while a page is drawn


@dataclass(frozen=True)
class PathPicture:
    """The stations in their order; a notebook shows it as boxes with arrows, anything else as lines of text."""

    stages: tuple[Stage, ...]

    def __repr__(self) -> str:
        width = max(len(stage.name) for stage in self.stages)
        lines = [f"{stage.name:{width}} → {stage.shape}  ({visible(stage.what)})" for stage in self.stages]
        return "\n".join([*lines, f"{'':{width}} ↩ and again, with the text one token longer"])

    def _repr_html_(self) -> str:
        boxes = "".join(_box(stage, "→") for stage in self.stages[:-1]) + _box(self.stages[-1], "↩")
        again = "↩ and again, with the text one token longer"
        name = 'aria-label="the way from a text to its next token"'
        return f'<ol class="{NO_TEX}" {name} style="{_LIST}">{boxes}</ol><p>{again}</p>'


_LIST = "display:flex;flex-wrap:wrap;gap:10px 6px;list-style:none;margin:0 0 8px;padding:0;max-width:1000px"
_ITEM = "display:flex;align-items:stretch;gap:6px;margin:0"
_BOX = (
    "box-sizing:border-box;width:178px;min-height:118px;padding:7px 9px;border-radius:5px;line-height:1.35;"
    "font-size:13px;text-align:left;overflow-wrap:anywhere"
)
# What is not the head's has a thin grey frame; the head's own is thick and blue: width tells it without the colour.
_PLAIN, _MARKED = "border:1px solid rgba(128,128,128,.6)", "border:3px solid #0072B2"


def _box(stage: Stage, arrow: str) -> str:
    name = as_html(stage.name)
    if stage.notebook:
        name = f'<a href="{link_target(stage.notebook)}">{name}</a>'
    return (
        f'<li style="{_ITEM}"><div style="{_BOX};{_MARKED if stage.head else _PLAIN}"><strong>{name}</strong><br>'
        f"{as_html(stage.what)}<br><code>{as_html(stage.shape)}</code></div>"
        f'<span aria-hidden="true" style="align-self:center">{arrow}</span></li>'
    )


def draw_path(
    text: str,
    tokens: Sequence[str],
    *,
    d_model: int,
    d_vocab: int,
    n_layers: int,
    best: tuple[str, float],
    position: str = "rotated inside attention",
    links: Mapping[str, str] | None = None,
) -> PathPicture:
    """Return the picture of one step for a text that is ``tokens`` to the model.

    ``best`` is the most probable next token and its probability between 0 and 1, ``position`` how the model tells
    positions apart. ``links`` maps a station's name ("head", "softmax", "sampler", …) to the notebook that it links to.
    Raises ``ValueError`` for a link from a station that is not in the picture, or to neither a web page nor a file.
    """
    n, (label, probability) = len(tokens), best
    shown = " ".join(tokens) if n <= 8 else f"{' '.join(tokens[:3])} … {tokens[-1]}"
    stations = [
        ("text", f"{len(text)} characters", f"“{text if len(text) <= 40 else text[:39] + '…'}”"),
        ("token ids", f"(1, {n})", shown),
        ("embedding", f"(1, {n}, {d_model})", f"a row for each token; position: {position}"),
        ("layers", f"(1, {n}, {d_model})", f"{n_layers} times attention and MLP, each adds to the stream"),
        ("final norm", f"(1, {n}, {d_model})", "the hidden states, scaled"),
        ("last position", f"(1, {d_model})", f"the hidden state of token {n} alone"),
        ("head", f"(1, {d_vocab:,})", f"logits: {d_vocab:,} dot products of {d_model} numbers"),
        ("softmax", f"(1, {d_vocab:,})", "probabilities, which sum to 1"),
        ("sampler", "(1,)", f"one token id; the likeliest is {label}, {probability:.0%}"),
        ("token", f"{n + 1} tokens", "back to characters, and appended to the text"),
    ]
    links, known = dict(links or {}), {name for name, _, _ in stations}
    if unknown := sorted(links.keys() - known):
        raise ValueError(f"links must name stations of the picture, {sorted(known)}, got {unknown}")
    marked = ("head", "softmax", "sampler")
    return PathPicture(
        tuple(Stage(*station, station[0] in marked, links.get(station[0], "")) for station in stations)
    )
