"""The pipeline explorer, moved by its traits as its page moves it; what it shows is computed afresh here."""

from dataclasses import FrozenInstanceError, dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course import ORDERS, PipelineExplorer, SamplingParams, ban_tokens, process_logits, toy
from lmhead_course.explorers.token_table import percent
from tests.strategies import quick
from tests.tiny_lm import letters
from tests.typecheck import refused

FOUR = ("temperature", "top_k", "top_p", "min_p")
SETTINGS = SamplingParams(temperature=1.5, top_k=50, top_p=0.9, min_p=0.05)


def wide_logits(d_vocab: int = 200) -> torch.Tensor:
    return 3 * torch.randn(d_vocab, generator=torch.Generator().manual_seed(4))


@pytest.fixture
def wide():
    return PipelineExplorer(logits=wide_logits(), params=SETTINGS)


def kept(logits, params) -> set[int]:
    return set(process_logits(logits, params).isfinite().nonzero().flatten().tolist())


def texts(explorer) -> list[str]:
    return [explorer.cards.shown[name]["text"] for name in explorer.order]


# ---- the numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_p", "counts"), [(0.0, (37, 37, 22)), (0.05, (28, 21, 5))], ids=["without min-p", "min-p 0.05"]
)
def test_three_libraries_keep_what_the_syllabus_says_on_the_live_model(lm, min_p, counts):
    explorer = PipelineExplorer(lm)
    explorer.min_p.value = min_p
    shown = []
    for name in ("hf", "vllm", "llama.cpp"):
        explorer.preset.value = name
        shown.append(explorer.view.kept)
    assert tuple(shown) == counts


def test_the_sentence_says_what_the_order_does_on_the_live_model(lm):
    explorer = PipelineExplorer(lm)
    explorer.preset.value = "llama.cpp"
    assert explorer.sentence.startswith("hf keeps 28 tokens, your order keeps 5: 23 tokens change their fate")


@quick
@given(st.permutations(FOUR), st.sampled_from(sorted(ORDERS)))
def test_any_order_shows_what_process_logits_makes_of_it(order, other):
    explorer = PipelineExplorer(logits=wide_logits(), params=SETTINGS)
    explorer.compare.value = other
    explorer.order = order
    here = kept(wide_logits(), SamplingParams(1.5, 50, 0.9, 0.05, order=tuple(order)))
    there = kept(wide_logits(), SamplingParams(1.5, 50, 0.9, 0.05, order=other))
    view = explorer.view
    assert (view.kept, view.other_kept) == (len(here), len(there))
    assert (view.gained, view.lost) == (len(here - there), len(there - here))


def test_each_stage_is_judged_by_what_came_into_it(wide):
    wide.order = ("top_k", "top_p", "min_p", "temperature")
    first, second, *_ = wide.view.stages
    logits = wide_logits()
    best = logits.sort(descending=True).indices[:50]
    assert first.kept_mass == pytest.approx(float(logits.softmax(-1)[best].sum()), abs=1e-5)
    assert second.came == first.kept
    assert second.kept_mass >= 0.9


def test_the_last_stage_leaves_what_the_whole_pipeline_leaves(wide):
    assert wide.view.stages[-1].kept == wide.view.kept == len(kept(wide_logits(), SETTINGS))


def test_a_stage_that_is_off_says_so(wide):
    wide.top_k.value = 0
    assert "off: all 200 tokens go on" in texts(wide)
    assert wide.cards.shown["top_k"]["off"]


def test_temperature_keeps_all_and_says_what_becomes_of_the_best(wide):
    before, after = wide_logits().softmax(-1).max(), (wide_logits() / 1.5).softmax(-1).max()
    assert (
        texts(wide)[0]
        == f"keeps all 200 tokens; the best: {percent(float(before))} → {percent(float(after))}"
    )


def test_temperature_zero_leaves_one_token_and_is_no_error(wide):
    wide.temperature.value = 0.0
    assert (wide.error, wide.view.kept) == ("", 1)
    assert wide.cards.end == "One token is left: nothing is random"


def test_compute_changes_nothing_on_show(wide):
    shown = wide.view
    other = wide.compute(SamplingParams(top_k=3))
    assert other.kept == 3
    assert wide.view is shown
    with pytest.raises(FrozenInstanceError):
        other.kept = 4


# ---- the table of fates ---------------------------------------------------------------------------------


def test_a_token_with_another_fate_is_marked_in_words(wide):
    wide.preset.value = "llama.cpp"
    marked = [row for row in wide.table.rows if row["fate"]]
    assert marked
    for row in marked:
        assert (row["here"], row["there"][0]) == ("✕ dropped", "✔")
        assert row["fate"] == "dropped by your order, kept by hf"


def test_equal_orders_mark_nothing(wide):
    assert wide.sentence.endswith("keeps the same: no token changes its fate.")
    assert not any(row["fate"] for row in wide.table.rows)


def test_equal_tokens_with_other_probabilities_are_told():
    explorer = PipelineExplorer(
        logits=toy.toy_logits(),
        params=SamplingParams(temperature=2.0, presence_penalty=1.0),
        generated=[2],
    )
    explorer.move("presence_penalty", to=4)
    assert "the same: no token changes its fate, but" in explorer.sentence


def test_changes_below_the_rows_are_counted_in_the_caption():
    explorer = PipelineExplorer(logits=wide_logits(), params=SETTINGS, top=3)
    explorer.preset.value = "llama.cpp"
    unseen = explorer.view.changed - sum(bool(row["fate"]) for row in explorer.table.rows)
    assert unseen > 0
    assert f"({unseen} more not shown)" in explorer.table.caption


def test_rows_begin_near_the_first_change_when_it_is_far_down():
    # Flat on purpose: the fates differ only from about rank 50 on.
    params = SamplingParams(temperature=2.0, top_k=150, top_p=0.5)
    explorer = PipelineExplorer(logits=torch.linspace(2, 0, 200), params=params, top=10)
    explorer.preset.value = "llama.cpp"
    first = next(index for index, row in enumerate(explorer.table.rows) if row["fate"])
    assert (explorer.table.rows[0]["rank"] > 10, first) == (True, 5)


def test_labels_reach_the_page_as_they_are():
    labels = ["<b>x</b>", "$x$", "{0}", "a", "b"]
    rows = PipelineExplorer(logits=toy.toy_logits(), labels=labels).table.rows
    assert {row["label"] for row in rows} == set(labels)


# ---- moving ---------------------------------------------------------------------------------------------


def test_move_puts_a_stage_at_a_place(wide):
    wide.move("temperature", to=3)
    assert wide.order == ("top_k", "top_p", "min_p", "temperature")


def test_an_order_that_is_a_librarys_shows_its_name(wide):
    wide.move("temperature", to=3)
    assert wide.preset.value == "llama.cpp"


def test_any_other_order_is_the_learners_own(wide):
    wide.move("min_p", to=0)
    assert wide.preset.value == "your own order"


def test_choosing_the_own_order_moves_nothing(wide):
    wide.preset.value = "your own order"
    assert wide.order == FOUR


def test_an_order_from_the_page_is_shown(wide):
    wide.cards.order = ["top_p", "top_k", "min_p", "temperature"]
    assert [stage.name for stage in wide.view.stages] == ["top_p", "top_k", "min_p", "temperature"]


def test_the_previous_order_is_the_one_before_the_last_move(wide):
    wide.compare.value = "the previous order"
    wide.move("temperature", to=3)
    before = kept(wide_logits(), SETTINGS)
    assert wide.sentence.startswith(f"the previous order keeps {len(before)} tokens")


@pytest.mark.parametrize("names", [("temperature",), (*FOUR, "top_k"), ("a", "b", "c", "d")])
def test_an_order_of_other_stages_is_refused(wide, names):
    with refused("order must name each of", list(names)):
        wide.order = names


@pytest.mark.parametrize("place", [-1, 4])
def test_a_place_outside_the_list_is_refused(wide, place):
    with refused("to must be a place from 0 to 3", place):
        wide.move("top_k", to=place)


def test_an_unknown_stage_is_refused(wide):
    with refused("name must be one of", "typical_p"):
        wide.move("typical_p", to=0)


# ---- settings -------------------------------------------------------------------------------------------


def test_a_value_set_from_the_next_cell_is_shown(wide):
    wide.top_k.value = 4
    assert wide.params.top_k == 4
    assert max(stage.kept for stage in wide.view.stages if stage.name == "top_k") == 4


def test_a_value_out_of_range_is_shown_as_an_error_and_the_last_picture_stays(wide):
    shown = wide.view
    wide.top_p.value = 1.5
    assert "top_p must be a number in [0, 1]" in wide.error
    assert wide.view is shown
    assert wide.table.stale


def test_the_next_good_value_clears_the_error(wide):
    wide.top_p.value = 1.5
    wide.top_p.value = 0.5
    assert (wide.error, wide.table.stale) == ("", False)


def test_a_setting_starts_where_params_say():
    explorer = PipelineExplorer(logits=wide_logits(), params=SamplingParams(top_k=7, order="vllm"))
    assert (explorer.top_k.value, explorer.preset.value) == (7, "vllm")


# ---- more stages ----------------------------------------------------------------------------------------


def test_a_penalty_that_is_set_has_a_card():
    explorer = PipelineExplorer(logits=toy.toy_logits(), params=SamplingParams(repetition_penalty=1.5))
    assert explorer.order[0] == "repetition_penalty"


def test_a_mask_has_a_card_and_stands_first_in_every_library():
    explorer = PipelineExplorer(logits=toy.toy_logits(), stages=[ban_tokens([2])])
    for name in ORDERS:
        explorer.preset.value = name
        assert explorer.order[0] == "ban_tokens"
    assert explorer.cards.cards["ban_tokens"]["note"] == "Forbids 1 token."


def test_a_mask_behind_the_filters_may_find_nothing_left_and_the_explorer_says_so():
    explorer = PipelineExplorer(
        logits=toy.toy_logits(), params=SamplingParams(top_k=1), stages=[ban_tokens([2])]
    )
    explorer.move("ban_tokens", to=4)
    assert "ban_tokens leaves no token" in explorer.error


def test_two_stages_of_one_name_have_two_cards():
    explorer = PipelineExplorer(logits=toy.toy_logits(), stages=[ban_tokens([1]), ban_tokens([2])])
    assert explorer.order[:2] == ("ban_tokens", "ban_tokens 2")


@dataclass
class Ban:
    """A stage that has no hash, and that can't be compared with another one either: tensors have no plain ==."""

    ids: torch.Tensor

    def __call__(self, logits, *, prompt, generated):
        return logits.index_fill(-1, self.ids, -torch.inf)


def test_a_stage_needs_no_hash_and_no_equality():
    first, second = Ban(torch.tensor([1, 2])), Ban(torch.tensor([1, 3]))
    params = SamplingParams(presence_penalty=0.5, order=("temperature", first, "presence_penalty"))
    explorer = PipelineExplorer(logits=toy.toy_logits(), params=params, stages=[second, first])
    assert [name for name in explorer.order if "Ban" in name] == ["Ban 2", "Ban"]
    explorer.move("Ban 2", to=5)
    assert explorer.error == ""
    assert explorer.compute(explorer.params).kept == 2


def test_a_stage_that_is_a_method_has_one_card_however_often_it_is_looked_up():
    ban = Ban(torch.tensor([1]))
    params = SamplingParams(order=(ban.__call__, "temperature"))
    explorer = PipelineExplorer(logits=toy.toy_logits(), params=params, stages=[ban.__call__])
    assert explorer.order.count("__call__") == 1
    assert len(explorer.order) == 5


def test_a_stage_in_the_given_order_keeps_its_place():
    stage = ban_tokens([2])
    params = SamplingParams(top_k=2, order=("top_k", stage))
    explorer = PipelineExplorer(logits=toy.toy_logits(), params=params)
    assert explorer.order[-2:] == ("top_k", "ban_tokens")


def test_an_exception_in_a_learners_stage_is_shown():
    def broken(logits, *, prompt=None, generated=None):
        return logits[99]

    explorer = PipelineExplorer(logits=toy.toy_logits(), stages=[broken])
    assert explorer.error.startswith("IndexError in line ")
    assert "(return logits[99])" in explorer.error


def test_penalties_count_the_generated_ids():
    params = SamplingParams(presence_penalty=2.0)
    explorer = PipelineExplorer(logits=toy.toy_logits(), params=params, generated=[2])
    raw = toy.toy_logits()
    raw[2] -= 2
    assert explorer.view.stages[0].best_after == pytest.approx(float(raw.softmax(-1).max()), abs=1e-6)


def test_a_stage_that_is_neither_a_penalty_nor_callable_is_refused():
    with refused("stages must hold callables or names from", "top_a"):
        PipelineExplorer(logits=toy.toy_logits(), stages=["top_a"])


# ---- a language model -----------------------------------------------------------------------------------


def test_a_new_prompt_is_read():
    lm = letters()
    explorer = PipelineExplorer(lm, prompt="abc")
    explorer.prompt.value = "cab"
    logits = lm.logits("cab")
    names = [row["token_id"] for row in explorer.table.rows]
    assert names == logits.argsort(descending=True, stable=True)[:30].tolist()
    assert explorer.words.status == "The model has read 3 tokens."


def test_a_prompt_that_cannot_be_read_is_an_error_on_show():
    explorer = PipelineExplorer(letters(), prompt="abc")
    explorer.prompt.value = "中"
    assert explorer.error
    explorer.prompt.value = "ab"
    assert explorer.error == ""


@pytest.mark.parametrize("given", [{}, {"lm": True, "logits": [1.0, 2.0]}])
def test_a_model_or_logits_are_needed_and_not_both(given):
    given = {name: letters() if name == "lm" else value for name, value in given.items()}
    with refused("PipelineExplorer needs a language model or logits, and not both"):
        PipelineExplorer(**given)


def test_nothing_is_printed(wide, capsys):
    wide.move("top_p", to=0)
    wide.top_p.value = 7
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("where", ["the model", "a stage"])
def test_an_interrupted_kernel_leaves_words_and_no_busy_sign(where):
    lm, interrupted = letters(), False

    def stage(logits, *, prompt, generated):
        if interrupted and where == "a stage":
            raise KeyboardInterrupt
        return logits

    explorer = PipelineExplorer(lm, prompt="abc", stages=[stage])
    step, interrupted = lm.step, True

    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    if where == "the model":
        lm.step = stopped
    explorer.prompt.value = "cab"
    assert "KeyboardInterrupt" in explorer.error
    assert not explorer.words.busy
    assert "is reading" not in explorer.words.status
    lm.step, interrupted = step, False
    explorer.prompt.value = "bac"
    assert explorer.error == ""
