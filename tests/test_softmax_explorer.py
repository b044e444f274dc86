"""The softmax explorer, moved by its traits: what the bars say, and what each control does."""

import math
import re

import ipywidgets
import numpy as np
import pytest
import torch
from traitlets import TraitError

from lmhead_course import SoftmaxExplorer
from lmhead_course.explorers import SoftmaxParams
from lmhead_course.softmax import perplexity, softmax
from lmhead_course.toy import toy_logits
from tests.typecheck import refused, unchecked

TOY = toy_logits()
BEST = 2  # 不错
FORMATS = ["float32", "float16", "bfloat16"]


@pytest.fixture
def explorer():
    return SoftmaxExplorer()


def stable(explorer) -> list[float]:
    return [row.stable for row in explorer.view.rows]


def wide(d_vocab=300):
    return torch.arange(d_vocab, dtype=torch.float32) / 20


# ---- the first state ------------------------------------------------------------------------------------


def test_it_begins_with_the_toy(explorer):
    assert [f"{100 * p:.2f}" for p in stable(explorer)] == ["15.55", "6.99", "69.71", "2.57", "5.18"]
    assert explorer.bars.rows[BEST]["stable_text"] == "69.71 %"
    assert explorer.bars.rows[BEST]["naive_text"] == "69.71 %"
    assert "不错" in explorer.sentence
    assert explorer.error == ""


def test_the_readouts_are_those_of_the_distribution(explorer):
    p = softmax(TOY)
    assert explorer.view.candidates == pytest.approx(perplexity(p).item(), rel=1e-5)
    assert explorer.view.bits == pytest.approx(explorer.view.nats / math.log(2))
    assert ["effective candidates", "2.65"] in explorer.words.readouts


def test_a_vocabulary_shows_the_best_and_counts_them_all():
    explorer = SoftmaxExplorer(wide(), str, top=4)
    assert [row.token_id for row in explorer.view.rows] == [299, 298, 297, 296]
    assert explorer.view.stable_sum == pytest.approx(1, abs=1e-5)
    assert stable(explorer) == pytest.approx(softmax(wide())[[299, 298, 297, 296]].tolist(), rel=1e-5)
    assert "4 largest of 300" in explorer.bars.caption


# ---- the bars -----------------------------------------------------------------------------------------------


def test_a_dragged_bar_moves_every_probability(explorer):
    explorer.bars.values = [2.3, 1.5, 3.8, 3.8, 1.2]
    assert stable(explorer) == pytest.approx(softmax(torch.tensor([2.3, 1.5, 3.8, 3.8, 1.2])).tolist())
    assert stable(explorer)[2] == stable(explorer)[3]
    assert explorer.bars.rows[3]["exponent"] == "= 3.800"


def test_a_dragged_bar_of_a_vocabulary_leaves_the_hidden_logits_alone():
    explorer = SoftmaxExplorer(wide(), top=3)
    explorer.bars.values = [0.0, 0.0, 0.0]
    assert explorer.logits[:297].tolist() == wide()[:297].tolist()
    assert explorer.view.stable_sum == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("values", [[1.0], [1.0] * 6, [math.nan, 0, 0, 0, 0], [0, 0, 0, 0, 1e9]])
def test_logits_that_do_not_fit_are_refused(explorer, values):
    before = list(explorer.bars.values)
    with pytest.raises(TraitError):
        explorer.bars.values = values
    assert explorer.bars.values == before


def test_the_bars_reach_zero_and_leave_room_on_both_sides():
    for logits in ([2.3, 1.5], [-80.0, -90.0], [50.0, 60.0]):
        bars = SoftmaxExplorer(logits).bars
        assert bars.low < min(0, *logits)
        assert bars.high > max(0, *logits)


# ---- temperature, scale, constant, penalty ------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.5, 5.0, 100.0])
def test_the_temperature_divides_the_logits(explorer, temperature):
    explorer.temperature.value = temperature
    assert stable(explorer) == pytest.approx(softmax(TOY / temperature).tolist(), abs=1e-6)


def test_the_scale_changes_lengths_only(explorer):
    linear = [dict(row) for row in explorer.bars.rows]
    explorer.scale.value = "log"
    log = explorer.bars.rows
    assert [row["stable_text"] for row in log] == [row["stable_text"] for row in linear]
    assert linear[0]["stable"] == pytest.approx(0.15554, abs=1e-4)
    assert log[0]["stable"] == pytest.approx(1 + math.log10(0.15554) / 8, abs=1e-4)
    assert explorer.bars.ticks == ["10⁻⁸", "1"]


@pytest.mark.parametrize("constant", [-110.0, -3.0, 50.0, 90.0, 1000.0])
def test_a_constant_changes_nothing_in_float32(explorer, constant):
    before = stable(explorer)
    explorer.constant.value = constant
    assert stable(explorer) == pytest.approx(before, abs=2e-4)
    assert explorer.view.moved < 1e-12


@pytest.mark.parametrize(("constant", "state"), [(0, ""), (80, ""), (90, "overflow"), (-110, "underflow")])
def test_the_naive_form_fails_at_both_ends(explorer, constant, state):
    explorer.constant.value = constant
    assert explorer.view.naive_state == state
    assert math.isnan(explorer.view.rows[BEST].naive) == bool(state)
    assert ("fails" in explorer.sentence) == bool(state)
    assert explorer.bars.rows[BEST]["naive_ok"] == (not state)


@pytest.mark.parametrize(("constant", "naive"), [(-105, 2 / 3), (-106, 3 / 4), (-107, 1)])
def test_a_naive_form_that_is_about_to_underflow_is_not_said_to_work(explorer, constant, naive):
    # 8, 3 and 1 times the smallest number of float32 are all that is left of 不错's exp.
    explorer.constant.value = constant
    assert explorer.view.rows[BEST].naive == pytest.approx(naive)
    off = 100 * max(abs(row.naive - row.stable) for row in explorer.view.rows)
    assert f"The naive form is off by {off:.2f} points" in explorer.sentence


def test_a_naive_sum_that_overflows_alone_gives_zeros_and_is_marked():
    # Two of e^11 fit into float16, their sum with a third does not: finite / inf = 0, not NaN.
    explorer = SoftmaxExplorer([10.9, 10.9])
    explorer.dtype.value = "float16"
    assert [row.naive for row in explorer.view.rows] == [0, 0]
    assert explorer.view.naive_state == "overflow"
    assert not explorer.bars.rows[0]["naive_ok"]


def test_the_penalty_counts_the_marked_tokens_and_depends_on_the_constant(explorer):
    explorer.bars.said = [False, False, True, False, False]
    assert stable(explorer)[BEST] == pytest.approx(0.6971, abs=1e-4)  # θ is still 1
    explorer.penalty.value = 1.5
    assert stable(explorer)[BEST] == pytest.approx(
        softmax(torch.tensor([2.3, 1.5, 3.8 / 1.5, 0.5, 1.2]))[2].item()
    )
    explorer.constant.value = -5
    shifted = torch.tensor([-2.7, -3.5, -1.2 * 1.5, -4.5, -3.8])
    assert stable(explorer)[BEST] == pytest.approx(softmax(shifted)[2].item(), abs=1e-5)
    assert "the penalty depends on where zero is" in explorer.sentence


def test_the_mark_stays_where_the_bar_was_without_the_constant(explorer):
    explorer.params = SoftmaxParams(penalty=1.5, said=(BEST,))
    mark = explorer.bars.rows[BEST]["mark"]
    explorer.constant.value = -5
    assert explorer.bars.rows[BEST]["mark"] == pytest.approx(mark)
    assert explorer.bars.rows[BEST]["stable"] > mark + 0.1


# ---- number formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_the_exponents_are_numbers_of_the_format(explorer, name):
    explorer.dtype.value = name
    explorer.constant.value = 100
    exponents = torch.tensor([row.exponent for row in explorer.view.rows])
    assert torch.equal(exponents.to(getattr(torch, name)).float(), exponents)


def test_coarse_formats_make_ties_and_errors_that_are_named():
    explorer = SoftmaxExplorer([9.30, 9.31, 9.0])
    assert explorer.view.distinct == 3
    explorer.dtype.value = "bfloat16"
    assert explorer.view.distinct == 2
    assert explorer.bars.rows[0]["exponent"] == "= 9.312"
    assert explorer.view.error > 1e-3


def test_a_constant_does_change_something_in_bfloat16_and_the_sentence_says_why(explorer):
    explorer.dtype.value = "bfloat16"
    explorer.constant.value = 100
    assert "steps of 0.5" in explorer.sentence
    assert explorer.view.error > 0.01
    assert explorer.view.moved < 1e-12


def test_a_logit_beyond_the_format_breaks_the_stable_form_too_and_is_no_error(explorer):
    explorer.dtype.value = "float16"
    explorer.bars.values = [2000.0, 1.5, 3.8, 0.5, 1.2]
    explorer.temperature.value = 0.01
    assert explorer.error == ""
    assert "inf before the softmax begins" in explorer.sentence
    assert explorer.bars.rows[0]["stable_text"] == "NaN"
    assert explorer.bars.rows[0]["stable"] == 0


# ---- around it ------------------------------------------------------------------------------------------------


def test_reset_brings_back_the_first_state_with_one_update(explorer):
    first = explorer.view
    explorer.params = SoftmaxParams(temperature=2.0, constant=50.0, penalty=1.3, said=(0,), dtype="bfloat16")
    explorer.bars.values = [1.0, 2.0, 3.0, 4.0, 5.0]
    explorer.scale.value = "log"
    messages = []
    explorer.bars.observe(messages.append, "rows")
    explorer.reset_button.click()
    assert explorer.view == first
    assert explorer.params == SoftmaxParams()
    assert len(messages) == 1


def test_params_set_from_code_move_every_control_with_one_update(explorer):
    messages = []
    explorer.bars.observe(messages.append, "rows")
    params = SoftmaxParams(temperature=2.0, constant=-5.0, penalty=1.5, said=(0, 3), dtype="float16")
    explorer.params = params
    assert explorer.params == explorer.view.params == params
    assert explorer.bars.said == [True, False, False, True, False]
    assert len(messages) == 1


def test_compute_changes_nothing(explorer):
    before = explorer.view
    other = explorer.compute(SoftmaxParams(temperature=2.0))
    assert other != before
    assert explorer.view == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0.0},
        {"temperature": math.inf},
        {"penalty": -1.0},
        {"constant": math.nan},
        {"dtype": "int8"},
    ],
)
def test_settings_outside_their_range_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SoftmaxParams(**wrong)


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (torch.zeros(2, 3), None, "shape"),
        ([1.0, math.nan], None, "NaN"),
        ([1.0, -math.inf], None, "finite"),
        ([1.0, 2.0], ["one"], "as many as the logits, 2"),
    ],
)
def test_what_can_not_be_shown_is_refused(logits, labels, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        SoftmaxExplorer(logits, labels)


def test_the_logits_given_are_not_changed():
    logits = toy_logits()
    explorer = SoftmaxExplorer(logits)
    explorer.bars.values = [0.0] * 5
    assert torch.equal(logits, TOY)


def test_labels_for_the_toy_may_be_an_array_and_must_be_as_many_as_its_logits():
    with unchecked():
        explorer = SoftmaxExplorer(labels=np.array(list("abcde")))
    assert [row.label for row in explorer.view.rows] == list("abcde")
    with refused("labels must be as many as the logits, 5, got 0"):
        SoftmaxExplorer(labels=[])


def test_labels_are_sent_as_text_and_unprintable_ones_escaped():
    explorer = SoftmaxExplorer([1.0, 2.0], ["<b>bold</b>", "\u202eback"])
    assert [row["label"] for row in explorer.bars.rows] == ["<b>bold</b>", "<U+202E>back"]


def test_an_error_shows_in_the_explorer_and_the_last_picture_stays(explorer, monkeypatch):
    before = explorer.bars.rows
    monkeypatch.setattr(explorer, "compute", lambda params: 1 / 0)
    explorer.temperature.value = 2
    assert "ZeroDivisionError" in explorer.error
    assert explorer.bars.rows == before


def test_nothing_is_printed_by_a_move(explorer, capsys):
    explorer.temperature.value = 0.5
    explorer.bars.values = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert capsys.readouterr() == ("", "")


def test_gradients_are_off_whatever_the_thread_says():
    logits = TOY.clone().requires_grad_()
    with torch.enable_grad():
        explorer = SoftmaxExplorer(logits)
        explorer.temperature.value = 2
    assert explorer.error == ""


def test_every_control_has_a_name(explorer):
    for control in (explorer.temperature, explorer.constant, explorer.penalty):
        assert control.box.description
    assert explorer.dtype.description == "number format"
    assert isinstance(explorer.scale, ipywidgets.Dropdown)


@pytest.mark.parametrize("value", [0.1, 1.0, 2.35, 5.0, 0.333, 300.0])
def test_a_slider_counts_whole_steps_so_that_no_page_can_round_it_and_send_it_back(explorer, value):
    control = explorer.temperature
    control.value = value
    position = control.slider.value
    assert isinstance(position, int)
    control.slider.value = position  # the page repeats what it was told
    assert control.value == value


def test_a_moved_slider_lands_on_its_grid(explorer):
    explorer.constant.slider.value = 170
    assert explorer.constant.value == 50.0
    assert explorer.constant.box.value == 50.0
    explorer.temperature.slider.value = 18
    assert explorer.temperature.value == 1.0


def test_settings_made_in_code_reach_beyond_the_boxes(explorer):
    params = SoftmaxParams(temperature=2000.0, constant=3000.0, penalty=0.001)
    explorer.params = params
    assert (explorer.params, explorer.view.params, explorer.error) == (params, params, "")


def test_a_logit_beyond_the_bars_is_refused_with_its_size():
    with refused("logits", "[-2000, 2000]", "2500"):
        SoftmaxExplorer(torch.tensor([1.0, -2500.0]))


def test_what_is_shown_is_what_the_controls_say_also_where_one_of_them_refuses_a_value(explorer):
    with unchecked(), pytest.raises(TraitError):
        explorer.params = SoftmaxParams(temperature=3.0, penalty=torch.tensor(2.0))
    assert explorer.view.params == explorer.params
