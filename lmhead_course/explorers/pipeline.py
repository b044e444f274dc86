"""The pipeline explorer: stages that are dragged into another order, and the tokens whose fate depends on it."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from threading import RLock

import ipywidgets
import torch
from torch import Tensor

from ..protocol import CausalLM
from ..sampling import ORDERS, SamplingParams, Stage
from ..tokens import clean
from .context import Context, check_top, given_context, labeller, read_text
from .explorer import Explorer
from .fate_table import FateTable
from .pipeline_view import PipelineView, library_order, view_of_pipeline
from .prompt_box import PromptBox
from .stage_cards import TITLES, StageCards, describe_cards
from .turns import attempt
from .words import Words

OWN = "your own order"
PREVIOUS = "the previous order"
_ALWAYS = ("temperature", "top_k", "top_p", "min_p")


class StageValue:
    """The setting of one stage: ``explorer.top_k.value`` can be read and set, as a control's."""

    def __init__(self, cards: StageCards, name: str):
        self._cards, self._name = cards, name

    @property
    def value(self) -> float:
        """The number in the stage's card."""
        return self._cards.values[self._name]

    @value.setter
    def value(self, value: float) -> None:
        self._cards.values = {**self._cards.values, self._name: value}


class PipelineExplorer(Explorer):
    """The stages of the sampling pipeline as cards that can be reordered; display it as the last line of a cell.

    ``PipelineExplorer(lm)`` follows a prompt through a language model, ``PipelineExplorer(logits=…, labels=…)`` shows
    given logits (d_vocab,). There is a card for temperature, top-k, top-p and min-p, for penalties that ``params``
    sets, and for every stage in ``stages``: more penalties by name, or callables such as a mask. ``generated`` are
    token ids that penalties and masks take as already generated; for a model, let the prompt end with their text.

    From the next cell: ``explorer.move("temperature", to=3)`` (places count from 0), ``explorer.order = […]``,
    ``explorer.top_k.value = 20``, ``explorer.preset.value = "llama.cpp"``, ``explorer.compare.value = "vllm"``.
    ``view`` is what is shown, ``sentence`` the same in words, ``error`` what went wrong.

    Raises ``ValueError`` unless exactly one of ``lm`` and ``logits`` is given, for logits that have no softmax, for
    labels that do not fit them, and for a stage that is neither a penalty's name nor callable.
    """

    def __init__(
        self,
        lm: CausalLM | None = None,
        *,
        prompt: str = "To be or not to be, that is the",
        logits: Tensor | Sequence[float] | None = None,
        labels: Sequence[str] | None = None,
        params: SamplingParams = SamplingParams(temperature=1.5, top_k=50, top_p=0.9, min_p=0.05),
        stages: Sequence[Stage] = (),
        generated: Sequence[int] = (),
        top: int = 30,
    ):
        if (lm is None) == (logits is None):
            raise ValueError("PipelineExplorer needs a language model or logits, and not both")
        check_top(top)
        self._lm, self._top, self._generated = lm, top, tuple(generated)
        # Callbacks come on the page's thread and on that of a running cell, also at once.
        self._lock, self._trouble = RLock(), ""
        self._context = None if logits is None else self._with_generated(given_context(logits))
        d_vocab = len(lm.head.weight) if lm is not None else len(self._context.logits)
        self._label = lru_cache(maxsize=None)(labeller(labels if lm is None else lm.label, d_vocab))
        self._stages = _named_stages(params, stages)
        self.view: PipelineView | None = None
        self._build(clean(prompt), d_vocab, params)
        self._before = self.order
        self._listen()
        if lm is None:
            self._refresh()
        else:
            self._read()

    # What is shown -------------------------------------------------------------------------------------------------

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the stages, the first one first; set it to a list of the same names in another order."""
        return tuple(self.cards.order)

    @order.setter
    def order(self, names: Sequence[str]) -> None:
        if sorted(names) != sorted(self._stages):
            raise ValueError(f"order must name each of {list(self._stages)} once, got {list(names)}")
        self.cards.order = list(names)

    @property
    def params(self) -> SamplingParams:
        """The settings in the cards, with every stage in its order."""
        return SamplingParams(**self.cards.values, order=self._stages_of(self.order))

    def move(self, name: str, *, to: int) -> None:
        """Move a stage to a place, counted from 0 for the first."""
        if name not in self._stages:
            raise ValueError(f"name must be one of {list(self._stages)}, got {name!r}")
        if not 0 <= to < len(self._stages):
            raise ValueError(f"to must be a place from 0 to {len(self._stages) - 1}, got {to!r}")
        others = [other for other in self.order if other != name]
        self.order = [*others[:to], name, *others[to:]]

    @torch.no_grad()  # grad mode belongs to the thread, and a callback may run on any
    def compute(self, params: SamplingParams) -> PipelineView:
        """Return everything the explorer shows for these settings beside the order chosen in ``compare``; changes
        nothing. ``params.order`` holds the stages of the cards, in any order."""
        if self._context is None:
            raise ValueError(self._trouble)
        names = self._names_of(params.order)
        other = self._before if self.compare.value == PREVIOUS else self._library(self.compare.value)
        params, beside = (replace(params, order=self._stages_of(order)) for order in (names, other))
        return view_of_pipeline(
            self._context, params, names, (self.compare.value, beside), self._label, self._top
        )

    def _names_of(self, order: str | tuple[Stage, ...]) -> tuple[str, ...]:
        if isinstance(order, str):
            return self._library(order)
        names = {_key(stage): name for name, stage in self._stages.items()}
        if unknown := [stage for stage in order if _key(stage) not in names]:
            raise ValueError(
                f"order must hold stages that have a card, {list(self._stages)}, got {unknown[0]!r}"
            )
        return tuple(names[_key(stage)] for stage in order)

    def _stages_of(self, names: Sequence[str]) -> tuple[Stage, ...]:
        return tuple(self._stages[name] for name in names)

    def _library(self, name: str) -> tuple[str, ...]:
        return library_order(name, self._stages)

    def _with_generated(self, context: Context) -> Context:
        return replace(context, generated=self._generated)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _build(self, prompt: str, d_vocab: int, params: SamplingParams) -> None:
        values = {name: getattr(params, name) for name in self._stages if name in TITLES}
        self.cards = StageCards(cards=describe_cards(self._stages, d_vocab), values=values)
        self.cards.order = list(_start_order(params, self._stages))
        for name in values:
            setattr(self, name, StageValue(self.cards, name))
        self.prompt = PromptBox(prompt)
        self.preset = _dropdown("order", [*ORDERS, OWN], self._preset_of(self.order))
        self.compare = _dropdown("compare with", [*ORDERS, PREVIOUS], "hf")
        self.words, self.table = Words(), FateTable()
        left, right = ipywidgets.VBox([self.cards]), ipywidgets.VBox([self.words, self.table])
        left.layout = ipywidgets.Layout(
            flex="1 1 355px", min_width="0", max_width="560px", overflow="visible"
        )
        right.layout = ipywidgets.Layout(flex="1 1 420px", min_width="0", overflow="visible")
        body = ipywidgets.HBox([left, right])
        body.layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible", grid_gap="0 16px")
        choices = ipywidgets.HBox([self.preset, self.compare])
        choices.layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible", grid_gap="0 16px")
        super().__init__([*([self.prompt] if self._lm is not None else []), choices, body])
        self.layout = ipywidgets.Layout(max_width="1100px", overflow="visible")

    def _listen(self) -> None:
        self.cards.observe(self._moved, "order")
        self.cards.observe(self._refresh, "values")
        self.preset.observe(self._chosen, "value")
        self.compare.observe(self._refresh, "value")
        self.prompt.observe(self._read, "value")

    def _preset_of(self, order: tuple[str, ...]) -> str:
        return next((name for name in ORDERS if self._library(name) == order), OWN)

    # Callbacks: nothing may leave them, since what they print or raise lands in a log that no learner reads -----------

    def _moved(self, change) -> None:
        with self._lock:
            self._before = tuple(change.old)
            self.preset.value = self._preset_of(self.order)
            self._refresh()

    def _chosen(self, change) -> None:
        # "your own order" is where the list stands after a move; choosing it moves nothing.
        if change.new in ORDERS and self._library(change.new) != self.order:
            self.order = self._library(change.new)

    def _read(self, _change=None) -> None:
        """Have the model read the prompt, and show what may follow."""
        with self._lock:
            self.words.busy, self.words.status = True, "The model is reading …"
            self._context, self._trouble = attempt(self._context_of_prompt)
            self.words.busy = False
            self.words.status = "" if self._context is None else self._context.status
            self._refresh()

    def _context_of_prompt(self) -> Context:
        return self._with_generated(read_text(self._lm, self.prompt.value))

    def _refresh(self, _change=None) -> None:
        with self._lock:  # whoever comes last reads the last settings
            view, trouble = attempt(lambda: self.compute(self.params))
            if view is None:  # a stage may be the learner's own
                self.words.error = trouble
                self.cards.stale = self.table.stale = True
                return
            self.view = view
            self.cards.show(view.stages, view.d_vocab, view.kept)
            self.table.show(view)
            with self.words.hold_sync():
                self.words.error, self.words.sentence = "", view.sentence


def _dropdown(name: str, options: list[str], value: str) -> ipywidgets.Dropdown:
    box = ipywidgets.Dropdown(options=options, value=value, description=name)
    box.style.description_width = "initial"
    box.layout.width = "auto"
    return box


def _named_stages(params: SamplingParams, extra: Sequence[Stage]) -> dict[str, Stage]:
    """Return all stages with a card, by the names of their cards."""
    given = () if isinstance(params.order, str) else params.order
    penalties = [name for name in ORDERS["hf"] if name not in _ALWAYS]
    for stage in extra:
        if not callable(stage) and stage not in penalties:
            raise ValueError(f"stages must hold callables or names from {penalties}, got {stage!r}")
    set_ones = [name for name in penalties if name in (*params.stages, *extra)]
    callables = [stage for stage in (*given, *extra) if callable(stage)]
    stages: dict[str, Stage] = {}
    for stage in {_key(stage): stage for stage in callables}.values():
        stages[_free_name(getattr(stage, "__name__", type(stage).__name__), stages)] = stage
    return {**stages, **{name: name for name in (*set_ones, *_ALWAYS)}}


def _key(stage: Stage) -> Hashable:
    """Return what tells a stage from others: itself, and where it has no hash, which object it is."""
    try:
        hash(stage)
    except TypeError:
        return id(stage)
    return stage


def _free_name(name: str, taken: Mapping[str, Stage]) -> str:
    name = clean(name) if name not in TITLES else f"{name} (own)"
    numbered = (f"{name} {number}" for number in range(2, len(taken) + 2))
    return name if name not in taken else next(free for free in numbered if free not in taken)


def _start_order(params: SamplingParams, stages: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the names in the order of the settings; stages that it leaves out stand where hf has them."""
    if isinstance(params.order, str):
        return library_order(params.order, stages)
    names = {_key(stage): name for name, stage in stages.items()}
    given = [names[_key(stage)] for stage in params.order if _key(stage) in names]
    return (*(name for name in library_order("hf", stages) if name not in given), *given)
