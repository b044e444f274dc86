"""Explorers moved at random: no exception, no stale picture, nothing that no message could carry, no growing memory.

``pytest tests/test_fuzz.py --moves 10000`` is the full form: so many moves of the sampling explorer's controls, and a
tenth of that for each explorer that draws plots. Without the option a few hundred.
"""

import dataclasses
import gc
import json
import math
import random
import resource

import comm.base_comm
import ipywidgets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmhead_course import SamplingExplorer, process_logits
from lmhead_course.explorers import (
    CostExplorer,
    DrawsExplorer,
    GenerationExplorer,
    LensExplorer,
    LossExplorer,
    PipelineExplorer,
    ProjectionExplorer,
    SoftmaxExplorer,
    TyingExplorer,
)
from lmhead_course.explorers.controls import LinkedSlider
from lmhead_course.explorers.softmax_bars import LIMIT, SoftmaxBars
from lmhead_course.explorers.stage_cards import StageCards
from lmhead_course.explorers.token_plane import TokenPlane
from lmhead_course.explorers.token_tree import TokenTree
from lmhead_course.twins import RowGradients
from tests.strategies import sampling_params
from tests.test_sampling_explorer import ByteLM

LONGEST = 20_000  # characters
AWKWARD = "aZ 9\n\t\x00\x7f\u200b\u202e\u2028\ufeff\ud83d\udc00🙂今é\u0301<&$\\\"'{%"


class LayeredByteLM(ByteLM):
    """A model that reads any text and has layers to look into."""

    def hidden_states(self, text):
        embedded = self.embedding[self.encode(text)]
        if len(embedded) == 0:
            raise ValueError("text is empty, and this model has no BOS token to start from")
        return torch.stack([embedded, embedded.cumsum(0), embedded.cumsum(0).tanh()])

    def final_norm(self, hidden):
        return hidden / hidden.norm(dim=-1, keepdim=True).clamp(min=1e-6)

    def label(self, token_id):
        return bytes([token_id]).decode("latin-1") if token_id < 256 else "<end>"


def lm():
    return LayeredByteLM(sharpness=1.0, context_length=LONGEST * 4)


def tying():
    counts = torch.arange(40)
    norms = torch.rand(40, generator=torch.Generator().manual_seed(0))
    records = [RowGradients(step, 5.0, counts % 3, norms, norms, norms) for step in (0, 5, 50)]
    return TyingExplorer(records, records, counts=counts, labels=[f"<{i}>" for i in range(40)])


EXPLORERS = {
    "sampling": lambda: SamplingExplorer(lm(), prompt="abc"),
    "given logits": lambda: SamplingExplorer(logits=torch.randn(300)),
    "softmax": lambda: SoftmaxExplorer(torch.linspace(-5, 5, 50)),
    "generation": lambda: GenerationExplorer(lm(), prompt="abc"),
    "draws": lambda: DrawsExplorer(lm(), prompt="abc"),
    "pipeline": lambda: PipelineExplorer(lm(), prompt="abc", stages=["repetition_penalty"]),
    "cost": CostExplorer,
    "lens": lambda: LensExplorer(lm(), prompt="abc", word="a"),
    "loss": lambda: LossExplorer(torch.linspace(-5, 5, 50)),
    "projection": lambda: ProjectionExplorer(lm(), prompt="abc", tokens="abc", axes=("a", "b")),
    "tying": tying,
}
PLOTTED = {"draws", "cost", "lens", "loss", "tying", "projection", "pipeline"}  # a move takes up to 50 ms


# What a learner may do -------------------------------------------------------------------------------------------


def parts(widget):
    """Yield a widget and everything in it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def any_text(luck: random.Random) -> str:
    kind = luck.random()
    if kind < 0.3:
        return "".join(luck.choice("abc #12,−␣") for _ in range(luck.randrange(12)))
    if kind < 0.98:
        return "".join(luck.choice(AWKWARD) for _ in range(luck.randrange(30)))
    piece = "".join(chr(luck.randrange(0x110000)) for _ in range(20))
    return piece * (LONGEST // len(piece))


def slide(luck, control):
    """Move a slider, its box, or the value of both."""
    box, slider = control.box, control.slider
    kind = luck.random()
    if kind < 0.6:
        slider.value = luck.randint(slider.min, slider.max)
        return
    low, high = max(box.min, -(10**6)), min(box.max, 10**6)
    ends = [box.min, box.max, 0 if box.min <= 0 <= box.max else box.min]
    value = luck.choice(ends) if luck.random() < 0.3 else luck.uniform(low, high)
    (box if kind < 0.8 else control).value = int(value) if isinstance(box.value, int) else float(value)


def move_bars(luck, bars):
    if luck.random() < 0.3:
        bars.said = [luck.random() < 0.5 for _ in bars.said]
    else:
        bars.values = [luck.choice([0.0, LIMIT, -LIMIT, luck.uniform(-9, 9)]) for _ in bars.values]


def move_cards(luck, cards):
    if luck.random() < 0.5:
        cards.order = luck.sample(cards.order, len(cards.order))
    else:
        name = luck.choice(list(cards.values))
        low, high = cards.cards[name]["limits"]
        whole = isinstance(cards.values[name], int)
        value = luck.choice([low, high, luck.uniform(low, min(high, 50))])
        cards.values = {**cards.values, name: round(value) if whole else float(value)}


def pick(luck, chooser):
    if chooser.options:
        option = luck.choice(chooser.options)
        chooser.value = option[1] if isinstance(option, tuple) else option


def set_to(trait, make):
    return lambda luck, widget: setattr(widget, trait, make(luck))


ACTS = {
    LinkedSlider: slide,
    SoftmaxBars: move_bars,
    StageCards: move_cards,
    TokenPlane: set_to("point", lambda luck: [luck.uniform(-9, 9), luck.uniform(-9, 9)]),
    TokenTree: set_to(
        "asked",
        lambda luck: [luck.choice(["take", "look", "behind"]), luck.randint(-1, 300), luck.random()],
    ),
    ipywidgets.Dropdown: pick,
    ipywidgets.Select: pick,
    ipywidgets.Checkbox: set_to("value", lambda luck: luck.random() < 0.5),
    ipywidgets.Text: set_to("value", any_text),
    ipywidgets.Textarea: set_to("value", any_text),
    ipywidgets.Button: lambda luck, button: button.click(),
}


def moves_of(explorer):
    """Return a function for everything in an explorer that can be moved."""
    inside = {
        part for slider in parts(explorer) if isinstance(slider, LinkedSlider) for part in slider.children
    }
    return [
        lambda luck, act=act, part=part: act(luck, part)
        for part in parts(explorer)
        if part not in inside
        for kind, act in ACTS.items()
        if isinstance(part, kind)
    ]


# What must hold after every move ---------------------------------------------------------------------------------


def plain(thing):
    """Return anything as lists and numbers that can be compared, NaN with NaN."""
    if dataclasses.is_dataclass(thing):
        return [plain(getattr(thing, field.name)) for field in dataclasses.fields(thing)]
    if isinstance(thing, torch.Tensor | np.ndarray):
        return thing.tolist()
    if isinstance(thing, list | tuple):
        return [plain(one) for one in thing]
    return thing


def assert_fresh(explorer):
    """Compare what is shown with what the settings and the text give when they are computed again."""
    view = explorer.view
    if explorer.error or view is None:
        return  # it says that its picture is from before
    words = explorer.words
    assert explorer.sentence == view.sentence
    if getattr(view, "readouts", None) and words.readouts:
        assert words.readouts == view.readouts
    if not isinstance(explorer, DrawsExplorer):  # whose picture depends on every draw there was
        assert repr(plain(view)) == repr(plain(explorer.compute(explorer.params)))


def assert_rows(explorer):
    """Compare the sampling explorer's rows with the settings applied to the logits, without anything of its own."""
    if explorer.error or not explorer.table.rows:
        return
    context = explorer._context
    processed = process_logits(context.logits, explorer.params, **context.ids)
    kept, chances = ~processed.isneginf(), processed.double().softmax(-1)
    for row in explorer.table.rows:
        token = row["token_id"]
        assert row["kept"] == bool(kept[token])
        assert math.isclose(row["final"], float(chances[token]), rel_tol=1e-4, abs_tol=1e-7)


@pytest.fixture(autouse=True)
def carried(monkeypatch):
    """Have every message to the page written as the kernel writes it: strict JSON in UTF-8."""

    def publish(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        json.dumps({**(data or {}), **keys}, allow_nan=False).encode().decode()
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8")

    monkeypatch.setattr(comm.DummyComm, "publish_msg", publish)


def count_of(request, name) -> int:
    moves = request.config.getoption("--moves")
    return max(moves // 10, 25) if name in PLOTTED else moves


@pytest.mark.parametrize("name", EXPLORERS)
def test_after_any_moves_in_any_order_the_picture_is_that_of_the_controls(request, name):
    luck = random.Random(name)
    explorer = EXPLORERS[name]()
    moves = moves_of(explorer)
    assert len(moves) > 2
    for _ in range(count_of(request, name)):
        luck.choice(moves)(luck)
        assert_fresh(explorer)
        if isinstance(explorer, SamplingExplorer):
            assert_rows(explorer)


@pytest.mark.parametrize("name", EXPLORERS)
def test_memory_does_not_grow_with_the_number_of_moves(request, name):
    luck = random.Random(name)
    explorer = EXPLORERS[name]()
    moves = moves_of(explorer)
    third = max(count_of(request, name) // 3, 1)

    def go() -> tuple[int, float]:
        for _ in range(third):
            luck.choice(moves)(luck)
        if hasattr(explorer, "reset_button"):
            explorer.reset_button.click()  # a tree of tokens, or draws, are kept for as long as they are wanted
        gc.collect()
        return len(gc.get_objects()), _resident()

    go()  # caches fill: labels, a few rankings
    objects, resident = go()
    more_objects, more_resident = go()
    assert more_objects - objects < 0.02 * objects + third
    assert more_resident - resident < 40e6


def _resident() -> float:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except FileNotFoundError:
        return 0.0


# Any text --------------------------------------------------------------------------------------------------------

ANY_TEXT = st.builds(
    lambda piece, times: (piece * times)[:LONGEST],
    st.text(st.characters(codec=None), max_size=40),
    st.sampled_from([1, 1, 1, 50, LONGEST]),
)
WITH_PROMPT = ["sampling", "generation", "pipeline", "lens", "projection"]


@pytest.mark.parametrize("name", WITH_PROMPT)
@settings(max_examples=12)
@given(text=ANY_TEXT, params=sampling_params())
def test_any_prompt_and_any_settings_end_in_a_picture_or_in_words(name, text, params):
    explorer = EXPLORERS[name]()
    explorer.prompt.value = text
    if name in ("sampling", "generation"):
        explorer.params = params
    assert_fresh(explorer)
    assert (explorer.error == "") == (text != "")


@settings(max_examples=3)
@given(text=ANY_TEXT, params=sampling_params())
def test_the_live_model_reads_any_prompt(lm, text, params):
    explorer = SamplingExplorer(lm, prompt=text, params=params)
    assert explorer.error == ""
    assert_fresh(explorer)
    assert_rows(explorer)


def test_the_live_models_rows_follow_any_moves(request, lm):
    luck = random.Random(0)
    explorer = SamplingExplorer(lm)
    sliders = [part for part in parts(explorer) if isinstance(part, LinkedSlider)]
    for _ in range(request.config.getoption("--moves")):
        slide(luck, luck.choice(sliders))
        assert explorer.error == ""
        assert_rows(explorer)
    assert_fresh(explorer)


# The checks themselves, and what the moves above cannot reach ----------------------------------------------------


def test_a_stale_picture_and_a_message_that_no_kernel_can_send_would_be_noticed():
    explorer = EXPLORERS["given logits"]()
    old = explorer.table.rows
    explorer.temperature.value = 0.5
    assert_rows(explorer)
    explorer.table.rows = old
    with pytest.raises(AssertionError):
        assert_rows(explorer)
    before = explorer.view
    explorer.temperature.value = 2.0
    explorer.view = before
    with pytest.raises(AssertionError):
        assert_fresh(explorer)
    with pytest.raises(UnicodeEncodeError):
        explorer.table.caption = "\ud83d"


def test_half_a_character_in_what_a_learners_code_says_is_shown_and_stops_nothing():
    def broken(logits, params, **_):
        raise ValueError("half: \ud83d")

    explorer = SamplingExplorer(logits=[1.0, 2.0], process=broken)
    assert "half: \ufffd" in explorer.error
