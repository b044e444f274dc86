"""The projection explorer: a hidden state among the rows of the head, in a plane that the learner chooses."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ipywidgets
import torch

from ..protocol import CausalLM
from ..tokens import clean
from .context import WINDOW, labeller
from .controls import LinearSlider, SliderNames, StepSlider
from .explorer import Explorer
from .projection_view import (
    MOST_TOKENS,
    ProjectionParams,
    ProjectionRow,
    ProjectionView,
    Scene,
    direction,
    find_token,
    frame_of,
    plane_of,
    signed,
    view_of,
)
from .prompt_box import PromptBox, WordBox
from .token_plane import TokenPlane
from .token_table import percent
from .turns import Turns, trouble_of
from .words import Words

TOKENS = ("Paris", "London", "Rome", "Berlin", "the", "France", "dog")
AXES = ("Paris − London", "Paris − the")
HEADER = [
    "token",
    "logit",
    "of it in the plane",
    "rank",
    "probability",
    "row's length",
    "angle",
    "rank by angle",
]
MOST_FOUND = 50
FAR = 1000.0


class ProjectionExplorer(Explorer):
    """Tokens as arrows in two directions of a head's space, and a hidden state that can be dragged among them.

    The hidden state is that of the last token of ``prompt`` after a layer, normed as the head reads it. Its shadow in
    the plane is moved by mouse, keyboard or the sliders; the rest of it stays. ``axes`` are two directions, each a word
    or a difference ``Paris − London``; the second is turned to a right angle with the first. ``tokens`` are the words
    to show.

    Controls are attributes with a trait ``value``: ``prompt``, ``layer``, ``x``, ``y``, ``rest``, ``axis_x``,
    ``axis_y``, ``tokens`` (words with commas between), ``search``. ``view`` is what is shown, ``sentence`` says it in
    words, ``error`` what is wrong. ``lm`` needs ``hidden_states`` and ``final_norm`` beside what ``CausalLM`` asks for.

    Raises ``ValueError`` for axes or tokens to start with that the model does not have.
    """

    def __init__(
        self,
        lm: CausalLM,
        *,
        prompt: str = "The capital of France is",
        tokens: Sequence[str] = TOKENS,
        axes: tuple[str, str] = AXES,
    ):
        self._lm, self._label = lm, lru_cache(maxsize=None)(labeller(lm.label, lm.head.d_vocab))
        self._turns = Turns(self._do)
        self._troubles: dict[str, str] = {}
        self._lengths = lm.head.weight.detach().float().cpu().norm(dim=1).clamp(min=1e-12)
        self._start = (clean(prompt), ", ".join(tokens), *axes)
        self.view: ProjectionView | None = None
        self.scene: Scene | None = None
        with torch.no_grad():
            self._hidden = self._read(self._start[0])
            self._plane = plane_of(*(direction(lm, axis) for axis in axes))
            self._ids = self._parse(self._start[1])
        self._build()
        self._listen()
        self._turns.add("move", lambda: self._new_scene(self.layer.value))

    # What is shown ---------------------------------------------------------------------------------------------------

    @property
    def params(self) -> ProjectionParams:
        """Where the hidden state is now."""
        layer = self.layer.value
        # Sliders go in steps. As long as nothing has been moved, the model's own numbers count in full.
        exact = self.scene.walk[layer].tolist()
        x, y = (
            full if shown == self._on_grid(full) else shown
            for full, shown in zip(exact, (self.x.value, self.y.value), strict=True)
        )
        return ProjectionParams(layer, x, y, self.rest.value)

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: ProjectionParams) -> ProjectionView:
        """Return everything that the explorer shows for a place of the hidden state; changes nothing."""
        if not 0 <= params.layer < len(self.scene.hidden):
            raise ValueError(f"layer must be in 0 … {len(self.scene.hidden) - 1}, got {params.layer}")
        return view_of(self.scene, params, self._ids, self._label)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        prompt, tokens, first, second = self._start
        last = len(self._hidden) - 1
        self.prompt = PromptBox(prompt)
        self.layer = StepSlider("after layer", last, list(range(last + 1)), limit=last)
        self.x = LinearSlider("across", 0.0, (-1.0, 1.0), 0.01, (-FAR, FAR))
        self.y = LinearSlider("up", 0.0, (-1.0, 1.0), 0.01, (-FAR, FAR))
        self.rest = ipywidgets.Checkbox(
            True, description="count the part outside of the plane too", indent=False
        )
        self.axis_x, self.axis_y = _text("axis across", first), _text("axis up", second)
        self.tokens = _text("tokens", tokens)
        self.search = _text("search", "", "a part of a token", continuous=True)
        self.found = ipywidgets.Select(options=[], rows=4, description="found")
        self.found.style.description_width = "6em"
        self.found.layout = ipywidgets.Layout(width="auto")
        self.show_button = ipywidgets.Button(description="show this token", disabled=True)
        self.back_button = ipywidgets.Button(description="back to the model's", tooltip="undo the dragging")
        self.back_button.layout.width = self.show_button.layout.width = "auto"
        self.reset_button = ipywidgets.Button(
            description="reset", tooltip="back to the first text, axes and tokens"
        )
        self.plane, self.words = TokenPlane(header=HEADER), Words()
        self._arrange()

    def _arrange(self) -> None:
        buttons = ipywidgets.HBox([self.back_button, self.reset_button])
        moves = ipywidgets.VBox([self.layer, self.x, self.y, self.rest, buttons, SliderNames()])
        moves.add_class("lmhead-controls").add_class("moves")
        choice = ipywidgets.VBox(
            [self.axis_x, self.axis_y, self.tokens, self.search, self.found, self.show_button]
        )
        choice.add_class("choice")
        self.words.add_class("words-area")
        self.plane.add_class("lmhead-plane-widget")
        body = ipywidgets.Box([moves, self.plane, self.words, choice])
        body.add_class("lmhead-projection-body")
        super().__init__([self.prompt, body])
        self.layout = ipywidgets.Layout(max_width="1100px", overflow="visible")
        self.add_class("lmhead-projection")

    def _listen(self) -> None:
        for control in (self.x, self.y, self.rest):
            control.observe(self._moved, "value")
        self.plane.observe(self._dragged, "point")
        self._on(self.layer, "move", self._go_to)
        self._on(self.prompt, "text", self._new_text)
        for axis in (self.axis_x, self.axis_y):
            self._on(axis, "axes", lambda _text: self._new_axes())
        self._on(self.tokens, "tokens", self._new_tokens)
        self._on(self.search, "search", self._look_up)
        self.found.observe(lambda change: setattr(self.show_button, "disabled", change.new is None), "value")
        self.show_button.on_click(lambda _button: self._turns.add("search", self._add_found))
        self.back_button.on_click(
            lambda _button: self._turns.add("move", lambda: self._go_to(self.layer.value))
        )
        self.reset_button.on_click(lambda _button: self._reset())

    def _on(self, control: ipywidgets.Widget, name: str, change: Callable[[Any], None]) -> None:
        control.observe(lambda event: self._turns.add(name, lambda: change(event.new)), "value")

    # Callbacks: nothing may leave them.

    def _do(self, name: str, change: Callable[[], Any]) -> None:
        self._troubles.pop(name, None)
        if trouble := trouble_of(change):
            self._troubles[name] = trouble
        self.words.error = "\n".join(self._troubles.values())
        self.plane.stale = bool(self._troubles.keys() - {"search"})

    def _moved(self, _change) -> None:
        if not self._turns.mine:  # else it is our own hand that moves the slider
            self._turns.add("move", self._show)

    def _dragged(self, change) -> None:
        if not self._turns.mine:
            self._turns.add("move", lambda: self._put(*change.new))

    def _put(self, x: float, y: float) -> None:
        self.x.value, self.y.value = float(x), float(y)
        self._show()

    def _on_grid(self, coordinate: float) -> float:
        """Return the nearest step of the sliders: between two the page would move them to one by itself."""
        step = self.x.grid
        return round(round(coordinate / step) * step, 6) + 0.0

    def _go_to(self, layer: int) -> None:
        self._put(*map(self._on_grid, self.scene.walk[layer].tolist()))

    def _new_text(self, text: str) -> None:
        self._hidden = self._read(text)
        self._new_scene(self.layer.value)

    def _new_axes(self) -> None:
        self._plane = plane_of(direction(self._lm, self.axis_x.value), direction(self._lm, self.axis_y.value))
        self._new_scene(self.layer.value)

    def _new_tokens(self, words: str) -> None:
        self._ids = self._parse(words)
        self._frame()
        self._show()

    def _new_scene(self, layer: int) -> None:
        self.scene = Scene(self._lm.head, self._hidden, self._plane, self._lengths)
        self._frame()
        self._go_to(layer)

    def _look_up(self, fragment: str) -> None:
        self.found.options = self._matches(fragment)
        self.found.value = self.found.options[0][1] if self.found.options else None
        if fragment and not self.found.options:
            raise ValueError(f"no token's name has “{fragment}” in it")

    def _add_found(self) -> None:
        if self.found.value is not None:
            self.tokens.value = f"{self.tokens.value}, {self._word(self.found.value)}".strip(", ")

    def _reset(self) -> None:
        self.rest.value, self.layer.value, self.search.value = True, len(self._hidden) - 1, ""
        self.prompt.value, self.tokens.value, self.axis_x.value, self.axis_y.value = self._start
        again = {
            "text": lambda: self._new_text(self.prompt.value),
            "axes": self._new_axes,
            "tokens": lambda: self._new_tokens(self.tokens.value),
        }
        for name in [name for name in again if name in self._troubles]:  # it was the first words that failed
            self._turns.add(name, again[name])
        self._turns.add("move", lambda: self._go_to(self.layer.value))

    # What the callbacks do -----------------------------------------------------------------------------------------

    def _read(self, text: str) -> torch.Tensor:
        """Return the hidden state of the last token after every layer, (layers, d_model), normed, on the host."""
        ids = self._lm.encode(text)
        read = self._lm.decode(ids[-WINDOW:]) if len(ids) > WINDOW else text
        return self._lm.final_norm(self._lm.hidden_states(read)[:, -1]).detach().float().cpu()

    def _parse(self, words: str) -> list[int]:
        ids = list(dict.fromkeys(find_token(self._lm, word) for word in words.split(",") if word.strip()))
        if not 0 < len(ids) <= MOST_TOKENS:
            raise ValueError(f"tokens must be 1 to {MOST_TOKENS} words with commas between, got {len(ids)}")
        return ids

    def _word(self, token_id: int) -> str:
        """Return what to write in the box of tokens for an id: its name if that leads back to it, else #id."""
        name = self._label(token_id)
        try:
            plain = "," not in name and find_token(self._lm, name) == token_id
        except ValueError:
            plain = False
        return name if plain else f"#{token_id}"

    def _matches(self, fragment: str) -> list[tuple[str, int]]:
        wanted = clean(fragment).replace(" ", "␣").casefold()
        if not wanted:
            return []
        hits = [i for i in range(self._lm.head.d_vocab) if wanted in self._label(i).casefold()]
        hits.sort(key=lambda i: _distance(self._label(i), wanted))  # the closest first
        return [(f"{self._label(i)}   #{i}", i) for i in hits[:MOST_FOUND]]

    def _frame(self) -> None:
        """Draw what does not move with the hidden state: axes, arrows, and the way through the layers."""
        reach, times = frame_of(self.scene, self._ids)
        tips = (times * self.scene.columns[self._ids]).tolist()
        for control in (self.x, self.y):
            control.span((-reach, reach), reach / 100)
        with self.plane.hold_sync():
            self.plane.reach, self.plane.walk = reach, self.scene.walk.tolist()
            self.plane.x_title = f"across: {self.axis_x.value}"
            self.plane.y_title = f"up: {self.axis_y.value}, at a right angle"
            names = map(self._label, self._ids)
            self.plane.arrows = [{"label": n, "x": x, "y": y} for n, (x, y) in zip(names, tips, strict=True)]
            longer = "" if times == 1 else f", drawn {times:g} times as long"
            self.plane.note = f"Blue: the tokens' rows{longer}. Dotted: the hidden state after each layer."

    def _show(self) -> None:
        self.view = view = self.compute(self.params)
        with self.plane.hold_sync(), self.words.hold_sync():
            self.plane.layer = view.params.layer
            self.plane.point = [self.x.value, self.y.value]
            self.plane.rows = [_line(row) for row in view.rows]
            self.words.sentence, self.words.readouts = view.sentence, view.readouts


def _distance(label: str, wanted: str) -> tuple:
    """Return a sorting key: the word itself first, with a space before it rather than without, then longer names."""
    return label.strip("␣").casefold() != wanted.strip("␣"), not label.startswith("␣"), len(label)


def _text(name: str, value: str, placeholder: str = "", continuous: bool = False) -> ipywidgets.Text:
    # Half a word is no token: the box is read when it is left, or at Enter.
    box = WordBox(value, description=name, placeholder=placeholder, continuous_update=continuous)
    box.style.description_width = "6em"
    box.layout = ipywidgets.Layout(width="auto")
    return box


def _line(row: ProjectionRow) -> list[str]:
    return [
        row.label,
        signed(row.logit),
        signed(row.in_plane),
        f"{row.rank:,}",
        percent(row.probability),
        f"{row.length:.2f}",
        f"{row.angle:.1f}°",
        f"{row.rank_by_angle:,}",
    ]
