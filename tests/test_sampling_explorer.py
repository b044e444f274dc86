"""The sampling explorer, moved by its traits as a notebook's page moves it; what it shows is computed afresh here."""

import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lmhead_course import (
    ORDERS,
    DrawsExplorer,
    GenerationExplorer,
    LossExplorer,
    PipelineExplorer,
    SamplingExplorer,
    SamplingParams,
    SoftmaxExplorer,
    process_logits,
)
from lmhead_course.explorers.context import WINDOW, Context
from lmhead_course.explorers.sampling_view import view_of_processed, view_of_reranked, view_of_settings
from lmhead_course.explorers.token_table import percent
from tests import oracle
from tests.strategies import batches, quick, sampling_params
from tests.tiny_lm import TinyLM, letters
from tests.typecheck import refused

TOY = (2.3, 1.5, 3.8, 0.5, 1.2)
WORDS = ("很", "好", "不错", "真", "差")


class ByteLM(TinyLM):
    """A model whose tokens are the 256 bytes, so that it reads any text, and an end of text."""

    END = 256

    def __init__(self, **settings):
        super().__init__([bytes([i]) for i in range(256)] + [b""], eos_ids=[self.END], **settings)

    def step(self, ids, *args, **settings):
        if ids.shape[1] == 0:
            raise ValueError("text is empty, and this model has no BOS token to start from")
        return super().step(ids, *args, **settings)


@pytest.fixture
def toy():
    return SamplingExplorer(logits=TOY, labels=WORDS)


@pytest.fixture
def live():
    return SamplingExplorer(letters(context_length=2048), prompt="abc")


def final(explorer):
    return {row["token_id"]: row["final"] for row in explorer.table.rows}


def assert_shows(explorer, logits, params, prompt=(), generated=()):
    """Compare every figure on show with the readable definition, computed from nothing but logits and settings."""
    processed = process_logits(logits, params, prompt=list(prompt), generated=list(generated))
    raw, chances = logits.double().softmax(-1), processed.double().softmax(-1)
    kept = ~processed.isneginf()
    for row in explorer.table.rows:
        token = row["token_id"]
        assert row["raw"] == pytest.approx(float(raw[token]), rel=1e-4, abs=1e-7)
        assert row["final"] == pytest.approx(float(chances[token]), rel=1e-4, abs=1e-7)
        assert row["kept"] == bool(kept[token])
        assert row["final_text"] == (percent(row["final"]) if row["kept"] else "✕ dropped")
    view = explorer.view
    assert [row["final"] for row in explorer.table.rows] == [row.final for row in view.rows]
    assert (view.params, view.kept) == (params, int(kept.sum()))
    assert view.kept_mass == pytest.approx(float(raw[kept].sum()), abs=1e-5)
    shown = sum(float(chances[row["token_id"]]) for row in explorer.table.rows)
    assert view.hidden_mass == pytest.approx(1 - shown, abs=1e-5)
    assert view.bits_before == pytest.approx(float(torch.special.entr(raw).sum()) / np.log(2), abs=1e-4)
    assert view.bits_after == pytest.approx(float(torch.special.entr(chances).sum()) / np.log(2), abs=1e-4)


def test_the_toy_shows_the_figures_of_the_syllabus(toy):
    toy.temperature.value = 0.5
    assert [row["final_text"] for row in toy.table.rows] == [
        "93.75 %",
        "4.67 %",
        "0.94 %",
        "0.52 %",
        "0.13 %",
    ]
    toy.temperature.value = 1.0
    toy.top_p.value = 0.9
    assert [row["label"] for row in toy.table.rows if row["kept"]] == ["不错", "很", "好"]
    assert [row["final_text"] for row in toy.table.rows][:4] == ["75.56 %", "16.86 %", "7.58 %", "✕ dropped"]
    assert "3 of 5 tokens" in toy.sentence
    assert "92.25 %" in toy.sentence


@quick
@given(sampling_params())
def test_whatever_the_settings_the_table_shows_a_fresh_computation(params):
    explorer = SamplingExplorer(logits=TOY)
    explorer.params = params
    assert explorer.error == ""
    assert_shows(explorer, torch.tensor(TOY), params)


@quick
@given(sampling_params(), st.integers(0, 4))
def test_penalties_count_the_prompt_and_what_was_drawn(params, draws):
    lm = letters(sharpness=1.0)
    explorer = SamplingExplorer(lm, prompt="abca")
    for _ in range(draws):
        explorer.sample_button.click()
    explorer.params = params
    ids = lm.encode(explorer.prompt.value)
    logits = lm.step(torch.tensor([ids]))[0][0]
    assert explorer.error == ""
    assert_shows(explorer, logits, params, prompt=ids[:4], generated=ids[4:])


@settings(max_examples=200)
@given(
    batches(wide=1), sampling_params(), st.data(), st.integers(0, 12)
)  # few logits: penalties make many equal
def test_moving_only_the_tokens_of_the_text_shows_what_the_whole_pipeline_shows(batch, params, data, top):
    row = batch[0]
    prompt, drawn = (tuple(data.draw(st.lists(st.integers(0, len(row) - 1), max_size=6))) for _ in range(2))
    context = Context(row, prompt_ids=prompt, generated=drawn)
    assume(oracle.process(row.tolist(), params, prompt, drawn).margin > 1e-6)
    same_view(context, params, top)


@pytest.mark.parametrize("first", [(), ("presence_penalty",)])
def test_a_stage_in_the_order_needs_no_hash(first):
    @dataclass
    class Ban:
        ids: list

        def __call__(self, logits, *, prompt, generated):
            return logits.index_fill(-1, torch.tensor(self.ids), -torch.inf)

    params = SamplingParams(presence_penalty=0.5 * len(first), order=(*first, Ban([2]), "temperature"))
    view = view_of_settings(Context(torch.tensor(TOY)), params, str, top=5)
    assert [row.token_id for row in view.rows if not row.kept] == [2]


@pytest.mark.parametrize("seed", range(6))
def test_so_it_does_over_a_whole_vocabulary(seed):
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(5, generator=generator).tolist()
    filters = {"top_k": (0, 20, 4000)[seed % 3], "top_p": 1 - 0.5 * draw[0], "min_p": 0.01 * draw[1]}
    penalties = {
        "repetition_penalty": 0.5 + 2 * draw[2],
        "presence_penalty": draw[3],
        "frequency_penalty": -0.3,
    }
    ids = torch.randint(30_000, (300,), generator=generator).tolist()
    context = Context(
        3 * torch.randn(30_000, generator=generator), prompt_ids=tuple(ids[:250]), generated=tuple(ids[200:])
    )
    for order in ORDERS:
        same_view(context, SamplingParams(0.5 + draw[4], **filters, **penalties, order=order), top=30)


@pytest.mark.parametrize(("top", "shown"), [(1, [1]), (2, [1, 0]), (3, [1, 0, 2])])
def test_tokens_that_a_penalty_makes_equal_are_shown_in_the_models_order(top, shown):
    context = Context(torch.tensor([1.0, 2.0, 0.0]), generated=(1,))
    view = view_of_reranked(context, SamplingParams(presence_penalty=1.0), str, top)
    assert [row.token_id for row in view.rows] == shown


def test_a_penalty_behind_a_cut_brings_no_other_token_in():
    context = Context(torch.tensor([3.0, 2.0, 1.0]), generated=(0,))
    params = SamplingParams(top_k=1, presence_penalty=5.0, order=("top_k", "presence_penalty"))
    view = view_of_settings(context, params, str, 3)
    assert [row.token_id for row in view.rows if row.kept] == [0]


def same_view(context, params, top):
    """Hold the quick view against that of all logits after every stage."""
    processed = process_logits(context.logits, params, **context.ids)
    expected = view_of_processed(context, processed, params, str, top)
    view = view_of_reranked(context, params, str, top)
    assert [row[:3] for row in view.rows] == [row[:3] for row in expected.rows]
    for quick_row, row in zip(view.rows, expected.rows, strict=True):
        assert quick_row.kept == row.kept
        assert (quick_row.raw, quick_row.final) == pytest.approx((row.raw, row.final), rel=1e-5, abs=1e-7)
    assert (view.params, view.d_vocab, view.kept) == (params, expected.d_vocab, expected.kept)
    for name in ("kept_mass", "hidden_mass", "bits_before", "bits_after"):
        assert getattr(view, name) == pytest.approx(getattr(expected, name), abs=2e-5)


@quick
@given(sampling_params())
def test_compute_shows_nothing_and_changes_nothing(params):
    explorer = SamplingExplorer(logits=TOY)
    rows, view = explorer.table.rows, explorer.view
    computed = explorer.compute(params)
    assert computed.params == params
    assert explorer.table.rows is rows
    assert explorer.view is view
    assert explorer.params == SamplingParams()


def test_every_control_moves_the_table_by_its_trait(toy):
    moves = {
        "temperature": 2.0, "top_k": 2, "top_p": 0.5, "min_p": 0.3, "order": "llama.cpp",
        "repetition_penalty": 1.5, "presence_penalty": 1.0, "frequency_penalty": 0.5,
    }  # fmt: skip
    toy.sample_button.click()
    drawn = toy.draw.token_id
    for name, value in moves.items():
        getattr(toy, name).value = value
        assert toy.view.params == toy.params
        assert getattr(toy.view.params, name) == value
    assert_shows(toy, torch.tensor(TOY), SamplingParams(**moves), generated=[drawn])


def test_only_the_best_rows_are_shown_and_the_rest_is_told():
    explorer = SamplingExplorer(logits=torch.zeros(1000), top=30)
    assert len(explorer.table.rows) == 30
    assert explorer.view.hidden_mass == pytest.approx(0.97)
    assert ["mass not shown", "97.00 %"] in explorer.table.readouts


def test_the_bars_of_a_flat_distribution_stay_visible():
    explorer = SamplingExplorer(logits=torch.zeros(1000))
    assert explorer.table.scale == pytest.approx(0.001)
    assert "0.1 %" in explorer.table.caption


def test_a_single_candidate_is_said_to_be_certain(toy):
    toy.temperature.value = 0
    assert toy.view.kept == 1
    assert "certain" in toy.sentence
    assert ["entropy", "1.41 → 0.00 bits"] in toy.table.readouts


# The prompt ----------------------------------------------------------------------------------------------------------


def test_typing_runs_the_model_and_busy_is_seen_meanwhile(live):
    seen = []
    live.table.observe(lambda change: seen.append((change.new, live.table.status)), "busy")
    live.prompt.value = "abca"
    assert [busy for busy, _ in seen] == [True, False]
    assert live.table.status == "The model has read 4 tokens."
    ids = torch.tensor([live._lm.encode("abca")])
    assert_shows(live, live._lm.step(ids)[0][0], SamplingParams())


def test_of_a_long_text_the_last_512_tokens_are_used_and_it_says_so(live):
    live.prompt.value = "abc" * 1000
    assert live._lm.calls[-1] == (1, WINDOW)
    assert "3,000" in live.table.status
    assert "512" in live.table.status


def test_a_model_that_reads_less_is_given_less():
    explorer = SamplingExplorer(letters(context_length=8), prompt="abcdefgabcdefg")
    assert explorer._lm.calls[-1] == (1, 8)
    assert "last 8" in explorer.table.status


def test_an_empty_prompt_that_the_model_cannot_read_is_explained_and_can_be_mended():
    explorer = SamplingExplorer(ByteLM(), prompt="")
    assert "no BOS token" in explorer.error
    assert explorer.table.rows == []
    explorer.temperature.value = 0.5
    explorer.sample_button.click()
    assert "no BOS token" in explorer.error
    explorer.prompt.value = "a"
    assert explorer.error == ""
    assert len(explorer.table.rows) == 30
    explorer.reset_button.click()
    assert "no BOS token" in explorer.error


ODD = [
    "🙂" * 5,
    "<script>alert(1)</script>",
    "$x$",
    "\0",
    "\ud800",
    "a\udfffb",
    "\u202eabc",
    "\r\n\t",
    "שלום",
    "x" * 20_000,
]


@pytest.mark.parametrize("text", ODD, ids=[ascii(text[:12]) for text in ODD])
def test_odd_texts_are_read_like_any_other(text):
    explorer = SamplingExplorer(ByteLM(context_length=2048), prompt="a")
    explorer.prompt.value = text
    assert explorer.error == ""
    assert explorer.view.kept == 257
    explorer.prompt.value.encode("utf-8")


@quick
@given(st.text(st.characters(codec=None), max_size=30))
def test_any_text_is_read_or_explained(text):
    explorer = SamplingExplorer(ByteLM(), prompt=text)
    assert bool(explorer.error) == (explorer.table.rows == [])
    for words in (explorer.error, explorer.sentence, explorer.table.status, explorer.prompt.value):
        words.encode("utf-8")


def test_labels_are_passed_on_as_text_and_never_as_markup():
    explorer = SamplingExplorer(logits=[1.0, 0.0], labels=["<script>alert(1)</script>", "$x$"])
    assert [row["label"] for row in explorer.table.rows] == ["<script>alert(1)</script>", "$x$"]


def test_labels_may_be_an_array_and_anything_that_has_a_text():
    explorer = SamplingExplorer(logits=np.array([1.0, 0.0]), labels=np.array([7, 8]))
    assert [row["label"] for row in explorer.table.rows] == ["7", "8"]


# Sample and reset ----------------------------------------------------------------------------------------------------


def test_sample_appends_the_drawn_token_and_says_where_it_fell(live):
    before = live.view
    live.sample_button.click()
    draw = live.draw
    row = before.rows[draw.rank - 1]
    assert (row.token_id, row.label) == (draw.token_id, draw.label)
    assert row.final == pytest.approx(draw.probability)
    assert live.prompt.value == "abc" + draw.label
    assert f"number {draw.rank} of 8, chance {percent(draw.probability)}" in live.table.draw
    ids = torch.tensor([live._lm.encode(live.prompt.value)])
    assert_shows(live, live._lm.step(ids)[0][0], SamplingParams())


def test_the_drawn_row_is_marked_before_the_next_step_is_shown(live):
    marked = []
    live.table.observe(
        lambda change: marked.append([row["label"] for row in change.new if row["drawn"]]), "rows"
    )
    live.sample_button.click()
    assert marked == [[live.draw.label], []]


def test_a_draw_below_the_rows_is_told_with_its_rank():
    explorer = SamplingExplorer(logits=torch.zeros(1000), seed=0)
    explorer.sample_button.click()
    assert explorer.draw.rank > 30
    assert f"number {explorer.draw.rank} of 1,000" in explorer.table.draw
    assert "below the rows" in explorer.table.draw


def test_with_given_logits_the_mark_stays_and_penalties_count_the_draws(toy):
    toy.params = SamplingParams(temperature=0)
    toy.sample_button.click()
    assert [row["label"] for row in toy.table.rows if row["drawn"]] == ["不错"]
    assert toy.table.status == "Drawn so far: 不错"
    toy.presence_penalty.value = 3.0
    toy.sample_button.click()
    assert toy.table.status == "Drawn so far: 不错, 很"


def test_tokens_and_not_texts_go_on_so_a_character_in_pieces_survives():
    lm = ByteLM(sharpness=0.0)
    explorer = SamplingExplorer(
        lm, prompt="a", process=lambda logits, params, prompt, generated: push(logits, generated)
    )
    smile = "🙂".encode()

    def push(logits, generated):
        result = torch.full_like(logits, -torch.inf)
        result[smile[len(generated) % 4]] = 0.0
        return result

    explorer.reset_button.click()
    for _ in range(3):
        explorer.sample_button.click()
    assert explorer.prompt.value == "a\ufffd"
    explorer.sample_button.click()
    assert explorer.prompt.value == "a🙂"
    assert lm.calls[-1] == (1, 5)


def test_the_end_of_the_text_is_told_and_appends_nothing():
    explorer = SamplingExplorer(
        ByteLM(), prompt="a", process=lambda logits, params, prompt, generated: only_end(logits)
    )

    def only_end(logits):
        result = torch.full_like(logits, -torch.inf)
        result[ByteLM.END] = 0.0
        return result

    explorer.reset_button.click()
    explorer.sample_button.click()
    assert explorer.prompt.value == "a"
    assert "ends the text" in explorer.table.draw
    assert [row["token_id"] for row in explorer.table.rows if row["drawn"]] == [ByteLM.END]


def test_typing_after_a_draw_makes_the_whole_text_the_prompt(live):
    live.sample_button.click()
    live.prompt.value += "a"
    live.presence_penalty.value = 2.0
    ids = live._lm.encode(live.prompt.value)
    params = SamplingParams(presence_penalty=2.0)
    assert_shows(live, live._lm.step(torch.tensor([ids]))[0][0], params, prompt=ids)
    assert live.draw is None


def test_draws_are_repeatable_by_their_seed_and_after_a_reset():
    def five(explorer):
        drawn = []
        for _ in range(5):
            explorer.sample_button.click()
            drawn.append(explorer.draw.token_id)
        return drawn

    explorer = SamplingExplorer(letters(sharpness=0.5), prompt="a", seed=7)
    first = five(explorer)
    assert five(SamplingExplorer(letters(sharpness=0.5), prompt="a", seed=7)) == first
    explorer.reset_button.click()
    assert five(explorer) == first


def test_reset_brings_back_the_first_text_and_settings():
    start = SamplingParams(temperature=0.7, top_k=5)
    explorer = SamplingExplorer(letters(), prompt="abc", params=start)
    rows = explorer.table.rows
    explorer.sample_button.click()
    explorer.params = SamplingParams(temperature=2.0, presence_penalty=1.0, order="vllm")
    explorer.reset_button.click()
    assert (explorer.prompt.value, explorer.params, explorer.table.rows) == ("abc", start, rows)
    assert (explorer.draw, explorer.error) == (None, "")


# The learner's own function ------------------------------------------------------------------------------------------


def explorer_with(process, **settings):
    return SamplingExplorer(logits=TOY, labels=WORDS, process=process, **settings)


def test_a_learners_function_drives_the_sliders():
    def my_process(logits, params, *, prompt, generated):
        return torch.where(logits >= logits.topk(params.top_k or 5).values[-1], logits, -torch.inf)

    explorer = explorer_with(my_process)
    explorer.top_k.value = 2
    assert explorer.error == ""
    assert [row["label"] for row in explorer.table.rows if row["kept"]] == ["不错", "很"]
    assert_shows(explorer, torch.tensor(TOY), SamplingParams(top_k=2))


@quick
@given(sampling_params())
def test_our_own_function_passed_as_the_learners_shows_the_same(params):
    ours, theirs = SamplingExplorer(logits=TOY), SamplingExplorer(logits=TOY, process=process_logits)
    ours.params = theirs.params = params
    assert theirs.error == ""
    assert final(theirs) == pytest.approx(final(ours), rel=1e-4, abs=1e-7)
    assert theirs.view.kept == ours.view.kept


def test_a_learners_function_gets_the_token_ids_of_prompt_and_draws():
    calls = []

    def my_process(logits, params, prompt, generated):
        calls.append((prompt.tolist(), generated.tolist(), tuple(logits.shape)))
        return logits

    explorer = SamplingExplorer(letters(), prompt="abc", process=my_process)
    explorer.sample_button.click()
    assert calls[-1] == ([0, 1, 2], [explorer.draw.token_id], (8,))


def test_an_exception_in_a_learners_function_is_shown_with_its_line():
    def my_process(logits, params, prompt, generated):
        wrong = params.heat
        return logits / wrong

    line = my_process.__code__.co_firstlineno + 1
    error = explorer_with(my_process).error
    assert f"line {line} of my_process" in error
    assert "wrong = params.heat" in error
    assert "'SamplingParams' object has no attribute 'heat'" in error


def test_a_mistake_in_a_helper_is_shown_where_it_is():
    def helper(logits):
        return logits @ torch.ones(3)

    error = explorer_with(lambda logits, params, prompt, generated: helper(logits)).error
    assert "of helper" in error
    assert "torch.ones(3)" in error


def test_a_function_with_other_arguments_is_told_how_it_is_called():
    assert "process(logits, params, prompt=…, generated=…)" in explorer_with(lambda logits: logits).error


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "returns None"),
        (..., "returns Ellipsis"),
        ([1.0] * 5, "returns a list"),
        (torch.ones(1, 5), r"shape (1, 5)"),
        (torch.ones(5, dtype=torch.bool), "torch.bool"),
        (torch.full((5,), torch.nan), "NaN for 5 tokens"),
        (torch.tensor([0, 0, torch.inf, 0, 0]), "the first with id 2"),
        (torch.full((5,), -torch.inf), "drops every token"),
    ],
)
def test_a_result_that_has_no_softmax_is_explained(result, words):
    assert words in explorer_with(lambda logits, params, prompt, generated: result).error


def test_probabilities_returned_for_logits_are_noticed():
    explorer = explorer_with(lambda logits, params, prompt, generated: logits.softmax(-1))
    assert "sums to 1" in explorer.error
    assert explorer.view is not None


def test_a_function_that_works_in_place_is_told_so_and_harms_nothing():
    def my_process(logits, params, prompt, generated):
        return logits.div_(max(params.temperature, 0.1))

    explorer = explorer_with(my_process)
    for temperature in (0.5, 2.0, 0.5):
        explorer.temperature.value = temperature
        assert "changes the logits" in explorer.error
        assert [row["raw"] for row in explorer.table.rows] == pytest.approx(
            sorted(torch.tensor(TOY).softmax(-1).tolist(), reverse=True)
        )


def test_after_an_error_the_rows_are_marked_as_old_until_the_function_works_again():
    def my_process(logits, params, prompt, generated):
        if params.top_k:
            raise RuntimeError("not yet")
        return logits

    explorer = explorer_with(my_process)
    rows = explorer.table.rows
    explorer.top_k.value = 3
    assert (explorer.table.rows, explorer.table.stale) == (rows, True)
    assert "last time that all worked" in explorer.table.caption
    explorer.sample_button.click()
    assert "not yet" in explorer.error
    explorer.top_k.value = 0
    assert (explorer.error, explorer.table.stale) == ("", False)


def test_an_interrupted_endless_loop_is_an_error_like_any_other():
    def my_process(logits, params, prompt, generated):
        raise KeyboardInterrupt

    assert "KeyboardInterrupt" in explorer_with(my_process).error


def test_nothing_is_printed_and_nothing_raised_by_any_callback(capsys):
    def my_process(logits, params, prompt, generated):
        raise RuntimeError("broken")

    explorer = SamplingExplorer(letters(), prompt="abc", process=my_process)
    explorer.temperature.value = 0.5
    explorer.prompt.value = "unreadable: ü"
    explorer.sample_button.click()
    explorer.reset_button.click()
    assert capsys.readouterr() == ("", "")


# Threads -------------------------------------------------------------------------------------------------------------


def test_when_two_moves_overlap_the_last_value_is_shown():
    begun, go_on = threading.Event(), threading.Event()

    def my_process(logits, params, prompt, generated):
        if params.temperature == 0.5 and not begun.is_set():
            begun.set()
            go_on.wait(10)
        return logits / params.temperature

    explorer = explorer_with(my_process)
    slow = threading.Thread(target=lambda: setattr(explorer.temperature, "value", 0.5))
    slow.start()
    assert begun.wait(10)
    explorer.top_k.value = 3
    explorer.controls.params = SamplingParams(temperature=2.0)
    go_on.set()
    slow.join(10)
    assert explorer.view.params == explorer.params == SamplingParams(temperature=2.0)
    assert explorer.table.rows[0]["final"] == pytest.approx(float((torch.tensor(TOY) / 2).softmax(-1).max()))


def test_when_two_texts_overlap_the_last_one_is_shown_and_a_text_typed_over_is_not_read():
    class Slow(ByteLM):
        def step(self, ids, *args, **settings):
            time.sleep(0.05)
            return super().step(ids, *args, **settings)

    explorer = SamplingExplorer(Slow(), prompt="a")
    texts = ["ab" * n for n in range(1, 7)]
    threads = [threading.Thread(target=setattr, args=(explorer.prompt, "value", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    last = explorer.prompt.value
    assert last in texts
    assert explorer.table.status == f"The model has read {len(last)} tokens."
    assert_shows(explorer, explorer._lm.step(torch.tensor([list(last.encode())]))[0][0], SamplingParams())
    assert not explorer.table.busy


def test_callbacks_on_another_thread_build_no_graph():
    lm = letters()
    lm.head.weight.requires_grad_(True)
    explorer = SamplingExplorer(lm, prompt="abc")
    worker = threading.Thread(target=lambda: setattr(explorer.prompt, "value", "abca"))
    worker.start()
    worker.join(10)
    assert explorer.error == ""
    assert not explorer._context.logits.requires_grad


# What it is given ----------------------------------------------------------------------------------------------------


def test_exactly_one_of_model_and_logits_is_needed():
    for arguments in ({}, {"lm": letters(), "logits": TOY}):
        with refused("a language model or logits"):
            SamplingExplorer(**arguments)


def test_logits_and_labels_that_do_not_fit_are_refused_by_name():
    with refused("labels", 5, 4):
        SamplingExplorer(logits=TOY, labels=WORDS[:4])
    with refused("logits", "(1, 5)"):
        SamplingExplorer(logits=torch.ones(1, 5))
    with refused("NaN"):
        SamplingExplorer(logits=[1.0, float("nan")])


def test_the_callers_logits_are_neither_changed_nor_followed():
    logits = torch.tensor(TOY)
    explorer = SamplingExplorer(
        logits=logits, process=lambda logits, params, prompt, generated: logits.zero_()
    )
    assert logits.tolist() == pytest.approx(list(TOY))
    logits[0] = 100.0
    explorer.temperature.value = 0.5
    assert explorer.table.rows[0]["raw"] < 0.7


def test_a_text_typed_back_while_another_is_read_is_read_again():
    class Slow(ByteLM):
        def step(self, ids, *args, **kwargs):
            if ids.shape[1] == 2:
                started.set()
                go_on.wait(10)
            return super().step(ids, *args, **kwargs)

    started, go_on = threading.Event(), threading.Event()
    explorer = SamplingExplorer(Slow(), prompt="a")
    first = threading.Thread(target=setattr, args=(explorer.prompt, "value", "ab"))
    first.start()
    started.wait(10)
    second = threading.Thread(target=setattr, args=(explorer.prompt, "value", "a"))
    second.start()
    time.sleep(0.2)  # the second waits for the model
    go_on.set()
    first.join(10)
    second.join(10)
    assert explorer.prompt.value == "a"
    assert "read 1 token." in explorer.table.status


def test_penalties_that_have_nothing_to_count_say_so(toy):
    toy.presence_penalty.value = 1.0
    assert "none is drawn yet" in toy.table.draw
    toy.sample_button.click()
    assert "none is drawn yet" not in toy.table.draw


def test_the_window_of_what_was_read_bounds_what_penalties_count():
    context = Context(torch.zeros(3), prompt_ids=(0,) * 5, generated=(1,) * 3, window=4)
    assert {name: ids.tolist() for name, ids in context.ids.items()} == {
        "prompt": [0],
        "generated": [1, 1, 1],
    }


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.5, order=("temperature", "top_k")),
        SamplingParams(presence_penalty=500),
        SamplingParams(temperature=5000.0),
    ],
    ids=["an order of one's own", "beyond the box", "a high temperature"],
)
def test_any_valid_settings_can_be_set_from_code(toy, params):
    toy.params = params
    assert toy.params == params
    assert toy.order.value == params.order
    assert toy.presence_penalty.value == params.presence_penalty


@pytest.mark.parametrize("top", [0, -1, 2.5, None])
@pytest.mark.parametrize(
    "explorer",
    [SamplingExplorer, PipelineExplorer, DrawsExplorer, SoftmaxExplorer, LossExplorer, GenerationExplorer],
)
def test_a_number_of_rows_below_one_is_refused_by_every_explorer(explorer, top):
    given = {"lm": letters()} if explorer is GenerationExplorer else {"logits": torch.tensor([1.0, 2.0])}
    with refused("top", "≥ 1", repr(top)):
        explorer(**given, top=top)


def test_a_text_that_could_be_read_stays_where_its_next_token_cannot():
    lm = letters()
    explorer, step = SamplingExplorer(lm, prompt="abc"), lm.step

    def out_of_memory(*arguments, **settings):
        raise RuntimeError("no memory left")

    lm.step = out_of_memory
    explorer.sample_button.click()
    assert "no memory left" in explorer.error
    assert explorer.prompt.value == "abc"
    assert len(explorer.table.rows) > 0
    lm.step = step
    explorer.sample_button.click()
    assert explorer.error == ""
    assert len(explorer.prompt.value) == 4


@pytest.mark.parametrize("setting", ["temperature", "frequency_penalty", "presence_penalty"])
def test_the_largest_numbers_are_settings_like_any_other(setting):
    params = SamplingParams(**{setting: 1e308})
    explorer = SamplingExplorer(logits=torch.tensor([1.0, 2.0]))
    explorer.params = params
    assert (explorer.params, explorer.view.params, explorer.error) == (params, params, "")
    assert SamplingExplorer(logits=torch.tensor([1.0, 2.0]), params=params).error == ""
