"""The generation explorer: a text grown token by token, and the tree of what could have come instead."""

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any

import ipywidgets
import torch

from ..processors import check_logits
from ..protocol import CausalLM
from ..sampling import SamplingParams, process_logits
from ..tokens import clean
from .context import check_top, labeller, read_on, read_text
from .controls import SamplingControls
from .explorer import Explorer
from .generation_view import ROOT, GenerationView, Node, Tree, lines_of, log_prob_of, view_of
from .prompt_box import PromptBox
from .sampling_view import TokenRow, draw_token
from .token_table import OLD_ROWS, TokenTable
from .token_tree import TokenTree
from .turns import Turns, trouble_of

CHOICES = 8
"""How many candidates are offered as buttons."""

MORE = 10
"""How many tokens the second button draws."""


class GenerationExplorer(Explorer):
    """A tree of tokens behind a prompt, grown by clicking; display it as the last line of a cell.

    Every token of the tree is a button that shows the step at which it was taken: the whole distribution, what the
    settings make of it, and the probability of the path. A candidate that is clicked becomes a branch.
    ``draw_button`` draws one token with the settings, ``more_button`` ten or until the text ends.

    Settings are attributes with a trait ``value``, named as the fields of ``SamplingParams``; ``prompt`` is a widget
    too. ``take(token_id)``, ``look(node)`` and ``look_behind(node)`` do what clicks do; node 0 is the prompt.
    ``view`` is what is shown, ``nodes`` the tree, ``sentence`` the step in words, ``error`` what is wrong. Draws repeat
    from ``seed`` on after a reset or a new prompt.
    """

    def __init__(
        self,
        lm: CausalLM,
        *,
        prompt: str = "Once upon a time",
        params: SamplingParams = SamplingParams(),
        top: int = 15,
        seed: int = 7,
    ):
        check_top(top)
        self._lm, self._top, self._seed = lm, top, seed
        self._label = lru_cache(maxsize=None)(labeller(lm.label, len(lm.head.weight)))
        self._start_text, self._start_params = clean(prompt), params
        self._generator = torch.Generator()
        self._turns = Turns(self._do)
        self._tree, self.view = Tree(), None
        self._fresh = False  # whether the table shows the tree's place with the settings of the controls
        self._build()
        self._listen()
        self._turns.add(lambda: self._read(self._start_text))

    # What is shown ---------------------------------------------------------------------------------------------------

    @property
    def params(self) -> SamplingParams:
        """The current settings; set them to move every control at once."""
        return self.controls.params

    @params.setter
    def params(self, params: SamplingParams) -> None:
        self.controls.params = params

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The tokens that were taken, behind node 0, the prompt."""
        return tuple(self._tree.nodes)

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: SamplingParams) -> GenerationView:
        """Return everything that the explorer shows for these settings and the current tree; changes nothing."""
        return view_of(self._tree, params, self._label, self._top)

    # What clicks do --------------------------------------------------------------------------------------------------

    def take(self, token_id: int) -> None:
        """Take this token at the step that is looked at: a new branch, or an old one that is gone along."""
        self._turns.add(lambda: self._take(int(token_id)))

    def look(self, node: int) -> None:
        """Show the step at which a node's token was taken."""
        self._turns.add(lambda: self._look(self._tree.look, node))

    def look_behind(self, node: int) -> None:
        """Show the step behind a node."""
        self._turns.add(lambda: self._look(self._tree.look_behind, node))

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.prompt = PromptBox(self._start_text)
        self.controls = SamplingControls(len(self._lm.head.weight), self._start_params)
        for one in fields(SamplingParams):
            setattr(self, one.name, getattr(self.controls, one.name))
        self.draw_button = _button("draw one", "draw the next token with these settings", "primary")
        self.more_button = _button(f"draw {MORE}", f"draw {MORE} tokens, or until the text ends")
        self.reset_button = _button("reset", "back to the first text and settings")
        self.tree, self.table = TokenTree(), TokenTable()
        self.words = self.table.add_class("lmhead-table-widget")
        buttons = ipywidgets.HBox([self.draw_button, self.more_button, self.reset_button])
        panel = ipywidgets.VBox([buttons, self.controls]).add_class("lmhead-panel")
        body = ipywidgets.HBox([panel, self.table]).add_class("lmhead-body")
        super().__init__([self.prompt, self.tree, body])
        self.add_class("lmhead-explorer")
        self.layout.max_width = "1200px"

    def _listen(self) -> None:
        self.controls.observe(lambda _change: self._turns.add(self._show), "params")
        self.controls.observe(lambda _change: self._turns.add(self._show), "error")
        self.prompt.observe(lambda change: self._turns.add(lambda: self._read(change.new)), "value")
        self.tree.observe(lambda change: self._turns.add(lambda: self._clicked(change.new)), "asked")
        self.draw_button.on_click(lambda _button: self._turns.add(lambda: self._draw(1)))
        self.more_button.on_click(lambda _button: self._turns.add(lambda: self._draw(MORE)))
        self.reset_button.on_click(lambda _button: self._turns.add(self._reset))

    # Callbacks: nothing may leave them. They come on the page's thread and on that of a running cell, also at once. One
    # thread works, the others leave their change in its queue and go; the last change is the last one made.

    def _do(self, change: Callable[[], Any]) -> None:
        if trouble := trouble_of(change):
            with self.table.hold_sync():
                self.table.error, self.table.busy, self.table.stale = trouble, False, not self._fresh
                self.table.status = self._context().status if self._tree.nodes else ""
                if self.table.rows and not self._fresh:
                    self.table.caption = OLD_ROWS
            self.tree.busy = False

    def _clicked(self, asked: list) -> None:
        what, place = asked[:2]
        if what == "take":
            self._take(place)
        else:
            self._look(self._tree.look if what == "look" else self._tree.look_behind, place)

    def _look(self, go: Callable[[int], None], node: int) -> None:
        go(node)
        self._show()

    def _read(self, text: str) -> None:
        """Start a new tree behind a typed text."""
        if text != self.prompt.value:
            return  # it was typed on while this call waited, and another one follows
        self._generator.manual_seed(self._seed)
        self._busy()
        self._tree, self._fresh = Tree(), False
        try:
            context = read_text(self._lm, text)
        finally:
            self._clear(text)
        self._tree = Tree([Node(-1, -1, "", 0.0, context)])
        self._show()

    def _take(self, token_id: int) -> None:
        context = self._context()
        known = self._tree.child(token_id)
        if known is not None:
            self._tree.go_to(known)
        else:
            if not 0 <= token_id < len(context.logits):
                raise ValueError(f"token_id must be in 0 … {len(context.logits) - 1}, got {token_id}")
            self._tree.check_room()
            self._busy()
            ends = token_id in self._lm.eos_ids
            behind = None if ends else read_on(self._lm, context, token_id)
            log_prob = log_prob_of(context, token_id)
            self._tree.add(Node(self._tree.at, token_id, self._label(token_id), log_prob, behind))
        self._show()

    def _draw(self, count: int, tree: Tree | None = None, at: int = ROOT) -> None:
        """Draw a token; from the second on only if the learner has not gone to another text or step meanwhile."""
        if tree is not None and (tree is not self._tree or at != tree.at):
            return
        context = self._context()
        processed = check_logits(process_logits(context.logits, self.params, **context.ids))
        draw = draw_token(processed, self._label, self._generator)
        self._take(draw.token_id)
        self.table.draw = str(draw)
        if count > 1 and draw.token_id not in self._lm.eos_ids:
            # Each token has its own turn, so that a slider moved meanwhile is heard between two of them.
            behind = self._tree, self._tree.at
            self._turns.add(lambda: self._draw(count - 1, *behind))

    def _context(self):
        if not self._tree.nodes:
            raise ValueError("there is no text to go on from: type one")
        return self._tree.nodes[self._tree.at].context

    def _reset(self) -> None:
        self._turns.clear()
        self.prompt.value, self.params = self._start_text, self._start_params
        self._turns.clear()
        self._read(self.prompt.value)  # another thread may have written there meanwhile

    def _busy(self) -> None:
        self.tree.busy = True
        with self.table.hold_sync():
            self.table.busy, self.table.status = True, "The model is reading …"

    def _clear(self, text: str) -> None:
        with self.tree.hold_sync():
            self.tree.text, self.tree.lines, self.tree.choices = text, [], []
        with self.table.hold_sync():
            self.table.rows, self.table.sentence, self.table.readouts = [], "", []
            self.table.caption = self.table.status = self.table.draw = ""

    def _show(self) -> None:
        if not self._tree.nodes:
            return
        self._fresh = False
        self.view = view = self.compute(self.params)
        context, step = self._context(), view.step
        with self.tree.hold_sync():
            self.tree.lines, self.tree.busy = lines_of(self._tree), False
            self.tree.choices = [self._choice(row) for row in step.rows[:CHOICES]]
        with self.table.hold_sync():  # one message, so that the page never shows a mixture
            self.table.rows = [row.line(row.token_id == view.marked_id) for row in step.rows]
            self.table.scale, self.table.caption = step.scale, step.caption
            self.table.sentence, self.table.readouts = view.sentence, view.readouts
            self.table.status, self.table.draw = context.status, ""
            self.table.error, self.table.busy, self.table.stale = self.controls.error, False, False
        self._fresh = True

    def _choice(self, row: TokenRow) -> dict:
        return {
            "token_id": row.token_id,
            "label": row.label,
            "chance": row.final_text,
            "kept": row.kept,
            "taken": self._tree.child(row.token_id) is not None,
        }


def _button(text: str, tooltip: str, style: str = "") -> ipywidgets.Button:
    button = ipywidgets.Button(description=text, tooltip=tooltip, button_style=style)
    button.layout.width = "7em"
    return button
