"""The lens explorer: what the head would say after every layer, as a heat map of layers × positions."""

from collections.abc import Callable
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import ipywidgets
import torch

from ..lens import LayeredLM
from ..tokens import clean
from .context import labeller
from .controls import LinearSlider, SliderNames, StepSlider
from .explorer import Explorer
from .lens_view import COLUMNS, QUANTITIES, LensParams, LensScene, LensView, figure_of, view_of
from .plot import Plot
from .projection_view import find_token
from .prompt_box import PromptBox, WordBox
from .turns import Turns, trouble_of
from .words import Words


class LensExplorer(Explorer):
    """The top token after every layer at every position of a text; the last line of a cell shows it.

    Controls are attributes with a trait ``value``: ``prompt``; ``quantity``, what the colours mean, one of
    ``QUANTITIES``; ``word``, whose rank is asked, one token; ``norm``, whether the final norm comes before the head;
    ``layer`` and ``position`` choose the cell that is spelled out below, position 0 being the last token and −1 the one
    before it. ``view`` is what is shown, ``sentence`` says it in words, ``error`` what is wrong.

    Raises ``ValueError`` for a word to start with that is not one token of the model.
    """

    def __init__(
        self,
        lm: LayeredLM,
        *,
        prompt: str = "The capital of France is",
        word: str = "Paris",
        quantity: str = QUANTITIES[0],
        norm: bool = True,
    ):
        self._lm, self._label = lm, lru_cache(maxsize=None)(labeller(lm.label, lm.head.d_vocab))
        self._turns = Turns(self._do)
        self._troubles: dict[str, str] = {}
        self._start = {"prompt": clean(prompt), "word": word, "quantity": quantity, "norm": norm}
        self.view: LensView | None = None
        with torch.no_grad():
            self._word = find_token(lm, word)
            self.scene = LensScene(lm, self._start["prompt"], self._label)
        self._build()
        self._listen()
        self._turns.add("cell", self._show)

    # What is shown ---------------------------------------------------------------------------------------------------

    @property
    def params(self) -> LensParams:
        """The current settings."""
        return LensParams(
            self.quantity.value, self.norm.value, self._word, self.layer.value, round(self.position.value)
        )

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: LensParams) -> LensView:
        """Return everything that the explorer shows for these settings and the current text; changes nothing."""
        return view_of(self.scene, params)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        start, last = self._start, len(self.scene.hidden) - 1
        self.prompt = PromptBox(start["prompt"])
        self.quantity = ipywidgets.Dropdown(
            options=QUANTITIES, value=start["quantity"], description="colour shows"
        )
        self.quantity.style.description_width = "initial"
        # Half a word is no token: the box is read when it is left, or at Enter.
        self.word = WordBox(start["word"], description="word", continuous_update=False)
        self.word.style.description_width = "initial"
        self.word.layout.width = "14em"
        self.norm = ipywidgets.Checkbox(start["norm"], description="final norm before the head", indent=False)
        self.norm.layout.width = "auto"
        self.layer = StepSlider("layer", last, list(range(last + 1)), limit=last)
        self.position = LinearSlider("position (0: last)", 0, (1.0 - COLUMNS, 0.0), 1.0)
        self.reset_button = ipywidgets.Button(
            description="reset", tooltip="back to the first text and settings"
        )
        self.reset_button.layout.width = "6em"
        self.words = Words()
        self.plot = Plot(figure_of(self.scene, self.compute(self.params)))
        self._arrange()

    def _arrange(self) -> None:
        for slider in (self.layer, self.position):
            slider.layout.flex, slider.layout.min_width = "1 1 330px", "0"
        wrapped = ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
        choices = ipywidgets.HBox([self.quantity, self.word, self.norm, self.reset_button], layout=wrapped)
        cell = ipywidgets.HBox([self.layer, self.position, SliderNames()], layout=wrapped)
        panel = ipywidgets.VBox([choices, cell])
        panel.layout.overflow = "visible"
        panel.add_class("lmhead-controls")
        super().__init__([self.prompt, panel, self.words, self.plot])
        self.layout = ipywidgets.Layout(max_width="1000px", overflow="visible")
        self.add_class("lmhead-lens")

    def _listen(self) -> None:
        for control in (self.quantity, self.norm, self.layer, self.position):
            control.observe(self._moved, "value")
        self.prompt.observe(lambda change: self._turns.add("text", lambda: self._read(change.new)), "value")
        self.word.observe(lambda change: self._turns.add("word", lambda: self._ask(change.new)), "value")
        self.reset_button.on_click(lambda _button: self._reset())

    # Callbacks: nothing may leave them.

    def _do(self, name: str, change: Callable[[], Any]) -> None:
        self._troubles.pop(name, None)
        if trouble := trouble_of(change):
            self._troubles[name] = trouble
        note = ["Words and picture are from the last settings that worked."] if self._troubles else []
        self.words.error = "\n".join([*self._troubles.values(), *note])

    def _moved(self, _change) -> None:
        if not self._turns.mine:  # else it is our own hand that moves the control
            self._turns.add("cell", self._show)

    def _read(self, text: str) -> None:
        if text != self.prompt.value:
            return  # it was typed on while this call waited, and another one follows
        with self._busy():
            self.scene = LensScene(self._lm, text, self._label)
            self._show()

    def _ask(self, word: str) -> None:
        self._word = find_token(self._lm, word)
        self._show()

    def _reset(self) -> None:
        def back() -> None:
            self.layer.value, self.position.value = len(self.scene.hidden) - 1, 0.0
            for name in ("quantity", "norm"):
                getattr(self, name).value = self._start[name]
            self._show()

        self.word.value, self.prompt.value = self._start["word"], self._start["prompt"]
        if "text" in self._troubles:  # it was the first text that could not be read
            self._turns.add("text", lambda: self._read(self._start["prompt"]))
        self._turns.add("cell", back)

    @contextmanager
    def _busy(self):
        with self.words.hold_sync():
            self.words.busy, self.words.status = True, "The model is reading …"
        try:
            yield
        finally:
            with self.words.hold_sync():
                self.words.busy, self.words.status = False, self.scene.status

    def _show(self) -> None:
        with self._busy():
            self.view = view = self.compute(self.params)
            self.plot.show(figure_of(self.scene, view))
            with self.words.hold_sync():
                self.words.sentence, self.words.readouts = view.sentence, view.readouts
