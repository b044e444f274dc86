"""The tying explorer, moved by its traits, on gradients made up by hand."""

import json

import pytest
import torch

from lmhead_course.explorers import TyingExplorer, TyingParams
from lmhead_course.explorers.tying_view import norm
from lmhead_course.twins import RowGradients
from tests.typecheck import refused

V = 12
COUNTS = torch.tensor([5, 50, 0, 7, 1, 1, 0, 30, 2, 2, 9, 3])
LABELS = [f"<b>{i}</b>" for i in range(V)]


def record(step, seen):
    counts = torch.zeros(V, dtype=torch.long)
    counts[list(seen)] = 2
    into = (counts > 0) * 0.01 * (step + 1)
    out = torch.full((V,), 1e-4) * (step + 1)
    return RowGradients(step, 7.0 - step / 10, counts, into, out, into + out)


def explorer(**given):
    records = {"tied": [record(0, {1, 7}), record(5, {1, 3, 4})], "untied": [record(0, {1, 7})]}
    return TyingExplorer(**{**records, "counts": COUNTS, "labels": LABELS, **given})


def test_the_step_slider_shows_the_record_of_that_step():
    shown = explorer()
    assert shown.view.gradients.step == 0
    assert shown.view.seen == 2
    shown.step.value = 5
    assert shown.view.gradients.step == 5
    assert shown.view.reached == {"input path": 3, "output path": 12, "their sum": 12}
    assert "the batch holds 3 of 12 tokens" in shown.sentence


def test_a_step_between_two_records_shows_the_nearer_one():
    shown = explorer()
    shown.step.value = 4
    assert shown.view.gradients.step == 5


def test_rows_are_ranked_by_their_frequency_in_the_text():
    shown = explorer()
    assert [shown.view.row(rank).label for rank in (1, 2, 3)] == [LABELS[1], LABELS[7], LABELS[10]]
    shown.rank.value = 2
    assert f"“{LABELS[7]}”, number 2 by frequency, comes 2 times" in shown.sentence


def test_the_untied_twin_has_no_sum():
    shown = explorer()
    assert any("their sum" in name for name, _ in shown.words.readouts)
    shown.model.value = "untied"
    assert not any("their sum" in name for name, _ in shown.words.readouts)
    assert "a matrix of its own" in shown.sentence
    assert not any("their sum" in trace["name"] for trace in json.loads(shown.plot.figure)["data"])
    assert {row.cells[-1] for row in shown.view.rows} == {"–"}


def test_the_mark_of_the_chosen_row_stays_on_the_line_of_its_rank():
    shown = explorer()
    shown.rank.value = 3
    assert "▶&nbsp;3<" in shown.table.value
    assert shown.table.value.count("▶") == 1


def test_rows_in_the_batch_differ_by_sign_and_not_by_colour_alone():
    data = json.loads(explorer().plot.figure)["data"]
    signs = {trace["name"]: trace["marker"]["symbol"] for trace in data}
    assert signs["input path, row in the batch"] == "circle"
    assert signs["input path, row not in it"] == "circle-open"
    table = explorer().table.value
    assert "● 2 ×" in table
    assert "○ not" in table


def test_the_axis_rests_while_the_step_moves():
    shown = explorer()
    axis = json.loads(shown.plot.figure)["layout"]["yaxis"]
    shown.step.value = 5
    assert json.loads(shown.plot.figure)["layout"]["yaxis"] == axis


def test_labels_reach_the_page_escaped():
    shown = explorer()
    assert "<b>1</b>" not in shown.table.value
    assert "&lt;b&gt;1&lt;/b&gt;" in shown.table.value


def test_every_control_moves_what_is_shown_and_params_say_so():
    shown = explorer()
    for control, value in ((shown.model, "untied"), (shown.model, "tied"), (shown.step, 5), (shown.rank, 3)):
        before = shown.view
        control.value = value
        assert shown.view is not before
        assert shown.view.params == shown.params
    assert shown.error == ""


def test_a_rank_outside_is_an_error_in_words_and_the_picture_stays():
    shown = explorer()
    before = shown.view
    shown.rank.value = 0
    assert "frequency rank must be in 1 … 12, got 0" in shown.error
    assert shown.view is before
    shown.rank.value = 2
    assert shown.error == ""


def test_compute_changes_nothing_on_show():
    shown = explorer()
    view = shown.compute(TyingParams("tied", 5, 1))
    assert view.gradients.step == 5
    assert shown.view.gradients.step == 0


def test_one_twin_alone_is_enough_and_none_is_refused():
    assert list(explorer(untied=()).model.options) == ["tied"]
    with refused("at least one step"):
        explorer(tied=(), untied=())


def test_counts_labels_and_records_must_fit():
    with refused("one vocabulary", 12, 11):
        explorer(labels=LABELS[:-1])


def test_a_large_vocabulary_is_thinned_for_the_picture_only():
    counts = torch.arange(3000)
    big = RowGradients(
        0, 1.0, (counts > 2900).long(), (counts > 2900) * 0.1, counts * 1e-6 + 1e-6, counts * 1e-6 + 0.1
    )
    view = TyingExplorer([big], counts=counts, labels=[str(i) for i in range(3000)]).view
    ranks, paths, seen = view.points
    assert len(ranks) == len(seen) == len(paths["input path"]) <= 260
    assert (ranks[0], view.seen) == (1, 99)


def test_nothing_is_printed(capsys):
    shown = explorer()
    shown.step.value = 5
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.0123, "0.012"), (0.00045, "4.5e-4"), (3.3e-6, "3.3e-6"), (1.0, "1")]
)
def test_a_norm_is_written_with_two_digits_and_only_nought_is_0(value, text):
    assert norm(value) == text
