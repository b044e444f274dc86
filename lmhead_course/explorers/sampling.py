"""The sampling explorer: how temperature, top-k, top-p, min-p and penalties change what comes next, live."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from threading import RLock, get_ident

import ipywidgets
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..protocol import CausalLM
from ..sampling import SamplingParams, process_logits
from ..tokens import clean
from .context import Context, check_top, given_context, labeller, read_on, read_text
from .controls import SamplingControls
from .explorer import Explorer
from .learner import run_process
from .prompt_box import PromptBox
from .sampling_view import Draw, SamplingView, draw_token, view_of_processed, view_of_settings
from .token_table import OLD_ROWS, TokenTable
from .turns import attempt

NOTHING_TO_COUNT = "Presence and frequency count drawn tokens, and none is drawn yet: press sample."


class SamplingExplorer(Explorer):
    """Sliders over the distribution of the next token; display it as the last line of a cell.

    ``SamplingExplorer(lm)`` follows the text of a prompt box through a language model; ``SamplingExplorer(logits=…,
    labels=…)`` shows given logits (d_vocab,), with one label for each. ``process`` takes the place of
    ``process_logits`` and is called as ``process(logits, params, prompt=…, generated=…)`` with logits (d_vocab,) and
    token ids (n,): a learner's own sampler then drives the sliders, and what is wrong with it is shown.

    Controls are attributes with a trait ``value`` (``explorer.temperature.value = 0.7``), named as the fields of
    ``SamplingParams``; ``prompt``, ``sample_button`` and ``reset_button`` are widgets too. ``view`` is what is shown.
    ``top`` rows are shown at most; draws repeat from ``seed`` on after a reset.

    Raises ``ValueError`` unless exactly one of ``lm`` and ``logits`` is given, for logits that have no softmax, and
    for labels that do not fit them.
    """

    def __init__(
        self,
        lm: CausalLM | None = None,
        *,
        prompt: str = "The capital of France is",
        logits: Tensor | np.ndarray | Sequence[float] | None = None,
        labels: Iterable | None = None,
        process: Callable | None = None,
        params: SamplingParams = SamplingParams(),
        top: int = 30,
        seed: int = 7,
    ):
        if (lm is None) == (logits is None):
            raise ValueError("SamplingExplorer needs a language model or logits, and not both")
        check_top(top)
        given = None if logits is None else given_context(logits)
        self._lm, self._process, self._top = lm, process, top
        d_vocab = len(lm.head.weight) if given is None else len(given.logits)
        self._label = lru_cache(maxsize=None)(labeller(labels if lm is None else lm.label, d_vocab))
        self._start_params, self._start_text, self._seed = params, clean(prompt), seed
        self._generator = torch.Generator().manual_seed(seed)
        # Callbacks come on the page's thread and on that of a running cell, also at once.
        self._lock, self._model_lock, self._ticket = RLock(), RLock(), 0
        self._context = self._start_context = given
        self._trouble = ""
        self._reading, self._marked, self.draw, self.view = False, None, None, None
        self._writer = None  # the thread that writes into the prompt box, for as long as it does
        self._build(d_vocab)
        self._listen()
        if lm is None:
            self._refresh()
        else:
            self._read(self._start_text)
            self._start_context = self._context

    @property
    def params(self) -> SamplingParams:
        """The current settings; set them to move every control at once."""
        return self.controls.params

    @params.setter
    def params(self, params: SamplingParams) -> None:
        self.controls.params = params

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: SamplingParams) -> SamplingView:
        """Return everything that the explorer shows for these settings, from the current logits; changes nothing."""
        context = self._context
        if context is None:
            raise ValueError(self._trouble)
        if self._process is None:
            return view_of_settings(context, params, self._label, self._top)
        processed, remark = self._processed(context, params)
        view = view_of_processed(context, processed, params, self._label, self._top)
        return replace(view, remark=remark)

    def _processed(self, context: Context, params: SamplingParams) -> tuple[Float[Tensor, " d_vocab"], str]:
        if self._process is None:
            return process_logits(context.logits, params, **context.ids), ""
        return run_process(self._process, context.logits, params, **context.ids)

    def _build(self, d_vocab: int) -> None:
        self.prompt = PromptBox(self._start_text)
        self.controls = SamplingControls(d_vocab, self._start_params)
        for field in fields(SamplingParams):
            setattr(self, field.name, getattr(self.controls, field.name))
        self.sample_button = ipywidgets.Button(description="sample", button_style="primary")
        self.sample_button.tooltip = "draw one token with these chances"
        self.reset_button = ipywidgets.Button(
            description="reset", tooltip="back to the first text and settings"
        )
        self.table = TokenTable()
        self.words = self.table.add_class("lmhead-table-widget")
        panel = ipywidgets.VBox([self.controls, ipywidgets.HBox([self.sample_button, self.reset_button])])
        body = ipywidgets.HBox([panel.add_class("lmhead-panel"), self.table]).add_class("lmhead-body")
        super().__init__([self.prompt, body] if self._lm is not None else [body])
        self.add_class("lmhead-explorer")
        self.layout.max_width = "1200px"

    def _listen(self) -> None:
        self.controls.observe(self._refresh, "params")
        self.controls.observe(self._refresh, "error")
        self.prompt.observe(self._typed, "value")
        self.sample_button.on_click(self._sample)
        self.reset_button.on_click(self._reset)

    # Nothing may leave the callbacks below: what they print or raise lands in a log that no learner reads.

    def _refresh(self, _change=None) -> None:
        with self._lock:
            self._ticket += 1
            ticket = self._ticket
        # Settings are read after the ticket is taken: whoever holds the last ticket has read the last settings.
        view, trouble = attempt(lambda: self.compute(self.params))
        with self._lock:
            if ticket == self._ticket:
                self._show(view, self.controls.error or trouble)

    def _typed(self, change) -> None:
        if self._writer == get_ident():
            return  # written by "sample" or "reset", which know the tokens
        with self._lock:
            self.draw = self._marked = None
        self._read(change.new)

    def _read(self, text: str) -> None:
        """Have the model read a typed text, and show what may follow."""
        with self._model_lock:
            if self.prompt.value != text:
                return  # it was typed on while this call waited, and another one follows
            with self._busy():
                self._context, self._trouble = attempt(lambda: read_text(self._lm, text))
        self._refresh()

    def _sample(self, _button=None) -> None:
        with self._model_lock:
            context = self._context
            draw, trouble = attempt(lambda: self._drawn(context, self.params))
            if draw is None:
                with self._lock:
                    self._show(None, trouble)
                return
            self.draw, self._marked = draw, draw.token_id
            if self._lm is None:
                self._context = context.with_draw(draw.token_id)
            self._refresh()  # the rows it was drawn from, with a mark
            if self._lm is not None and draw.token_id not in self._lm.eos_ids:
                self._append(context, draw.token_id)

    def _append(self, context: Context, token_id: int) -> None:
        with self._busy():
            longer, trouble = attempt(lambda: read_on(self._lm, context, token_id))
        if longer is None:  # the token is lost, the text stays
            self.draw = self._marked = None
            with self._lock:
                self._show(None, trouble)
            return
        self._context, self._marked = longer, None  # the next rows are those of another step
        if self.prompt.value == context.text:  # else it was typed on meanwhile
            self._write(longer.text)
        self._refresh()

    def _write(self, text: str) -> None:
        """Put a text that has been read into the prompt box; what a learner types meanwhile is still heard."""
        self._writer = get_ident()
        try:
            self.prompt.value = text
        finally:
            self._writer = None

    def _reset(self, _button=None) -> None:
        with self._model_lock:
            self._generator.manual_seed(self._seed)
            self.draw = self._marked = None
            self._context = self._start_context
            self._write(self._start_text)
            if self._context is None:
                self._read(self._start_text)
            self.params = self._start_params
        self._refresh()

    def _drawn(self, context: Context | None, params: SamplingParams) -> Draw:
        if context is None:
            raise ValueError(self._trouble)
        processed, _ = self._processed(context, params)
        return draw_token(processed, self._label, self._generator)

    @contextmanager
    def _busy(self):
        self._reading = True
        with self.table.hold_sync():
            self.table.busy, self.table.status = True, "The model is reading …"
        try:
            yield
        finally:
            self._reading = False

    def _show(self, view: SamplingView | None, trouble: str) -> None:
        table = self.table
        with table.hold_sync():  # one message, so that the page never shows a mixture
            if view is not None:
                self.view = view
                table.rows = [row.line(row.token_id == self._marked) for row in view.rows]
                table.scale, table.caption = view.scale, view.caption
                table.sentence, table.readouts = view.sentence, view.readouts
            elif self._context is None:
                table.rows, table.caption, table.sentence, table.readouts = [], "", "", []
            elif table.rows:
                table.caption = OLD_ROWS
            table.stale = view is None
            table.error = trouble or view.remark
            table.status = self._status()
            table.draw = self._draw_words()
            table.busy = self._reading

    def _status(self) -> str:
        if self._context is None:
            return ""
        if self._lm is not None:
            return self._context.status
        drawn = ", ".join(map(self._label, self._context.generated))
        return f"Drawn so far: {drawn or 'nothing'}"

    def _draw_words(self) -> str:
        if self.draw is None:
            idle = {"presence_penalty", "frequency_penalty"}.intersection(self.params.stages)
            return NOTHING_TO_COUNT if idle else "“sample” draws one token with these chances."
        words = [str(self.draw)]
        if self.draw.rank > self._top:
            words.append("It is below the rows shown.")
        if self._lm is not None and self.draw.token_id in self._lm.eos_ids:
            words.append("With it the model ends the text: nothing is appended.")
        return " ".join(words)
