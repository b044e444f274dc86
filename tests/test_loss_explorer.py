"""The loss explorer, moved by its traits: what the pictures say, and what each control does."""

import json
import math

import ipywidgets
import numpy as np
import pytest
import torch
from traitlets import TraitError

from lmhead_course import LossExplorer, figures
from lmhead_course.calibration import Predictions
from lmhead_course.explorers import LossParams
from lmhead_course.toy import LABELS, toy_logits
from tests.typecheck import refused, unchecked

TOY = toy_logits()
BEST, VERY = 2, 0  # 不错, 很


@pytest.fixture
def explorer():
    return LossExplorer()


@pytest.fixture
def made():
    random = torch.Generator().manual_seed(0)
    confidence = torch.rand(400, generator=random)
    return Predictions(confidence, torch.rand(400, generator=random) < confidence, confidence, 50)


def drawn(plot):
    return json.loads(plot.figure)


def everything_said(explorer):
    return [explorer.sentence, *(text for pair in explorer.words.readouts for text in pair)]


# ---- the first state ----------------------------------------------------------------------------------------


def test_it_begins_with_the_toy_and_its_best_word(explorer):
    assert explorer.view.loss == pytest.approx(0.361, abs=1e-3)
    assert explorer.view.true.gradient == pytest.approx(-0.303, abs=1e-3)
    assert [row.label for row in explorer.view.rows] == list(LABELS)
    assert "不错" in explorer.sentence
    assert explorer.error == ""


def test_the_slopes_are_those_of_autograd(explorer):
    explorer.params = LossParams(VERY, 1.0, 0.2)
    z = TOY.clone()
    z[VERY] = 1.0
    z.requires_grad_()
    torch.nn.functional.cross_entropy(z, torch.tensor(VERY), label_smoothing=0.2).backward()
    assert [row.gradient for row in explorer.view.rows] == pytest.approx(z.grad.tolist(), abs=1e-6)


def test_compute_changes_nothing(explorer):
    before = everything_said(explorer)
    assert explorer.compute(LossParams(VERY, 5.0, 0.3)).loss != explorer.view.loss
    assert everything_said(explorer) == before


# ---- the controls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logit", [-12.0, -3.0, 0.0, 9.9, 500.0])
def test_the_loss_follows_the_true_tokens_logit(explorer, logit):
    explorer.logit.value = logit
    z = TOY.double().clone()
    z[BEST] = logit
    assert explorer.view.loss == pytest.approx(-z.log_softmax(0)[BEST].item(), abs=1e-6)
    assert explorer.error == ""


def test_the_slope_never_exceeds_one(explorer):
    for logit in (-12.0, -1000.0, 1000.0):
        explorer.logit.value = logit
        assert abs(explorer.view.true.gradient) <= 1


def test_with_smoothing_a_logit_can_be_too_high(explorer):
    explorer.epsilon.value = 0.1
    explorer.logit.value = 10.0
    assert explorer.view.true.gradient > 0
    assert "lowers its logit" in explorer.sentence


def test_the_smoothed_loss_is_never_below_the_entropy_of_its_target(explorer):
    explorer.epsilon.value = 0.1
    assert explorer.view.floor == pytest.approx(-(0.92 * math.log(0.92) + 4 * 0.02 * math.log(0.02)))
    assert min(explorer.view.curve) >= explorer.view.floor


def test_another_true_token_starts_from_its_own_logit(explorer):
    explorer.logit.value = 9.0
    explorer.target.value = VERY
    assert explorer.logit.value == 2.3
    assert explorer.view.rows[BEST].p == pytest.approx(0.6971, abs=1e-4)


def test_reset_goes_back_to_the_first_settings(explorer):
    before = explorer.params, everything_said(explorer)
    explorer.params = LossParams(VERY, -5.0, 0.3)
    explorer.reset_button.click()
    assert (explorer.params, everything_said(explorer)) == before


def test_a_move_by_code_shows_once(explorer, monkeypatch):
    shown = []
    monkeypatch.setattr(type(explorer), "_show", lambda self, view: shown.append(view.params))
    explorer.params = LossParams(VERY, 3.0, 0.2)
    assert shown == [LossParams(VERY, 3.0, 0.2)]


@pytest.mark.parametrize(("name", "value"), [("epsilon", 1.0), ("epsilon", -0.1), ("logit", math.nan)])
def test_values_out_of_range_are_refused_by_the_control(explorer, name, value):
    with pytest.raises(TraitError):
        getattr(explorer, name).value = value


@pytest.mark.parametrize(
    ("settings", "words"),
    [((0, math.inf, 0.0), "logit must be finite"), ((0, 0.0, 1.0), r"epsilon must be in \[0, 1\), got 1.0")],
)
def test_params_name_what_is_wrong(settings, words):
    with pytest.raises(ValueError, match=words):
        LossParams(*settings)


# ---- what it is given ---------------------------------------------------------------------------------------


def test_of_a_vocabulary_the_best_are_shown_and_the_rest_is_one_row():
    explorer = LossExplorer(torch.arange(100.0) / 10, str, target=3, top=4)
    assert [row.label for row in explorer.view.rows] == ["99", "98", "97", "3", "all 96 others"]
    assert sum(row.p for row in explorer.view.rows) == pytest.approx(1)
    assert sum(row.gradient for row in explorer.view.rows) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"logits": torch.zeros(1, 2)}, "shape"),
        ({"logits": [1.0, -math.inf]}, "finite"),
        ({"logits": [1.0, 2.0], "labels": ["a"]}, "as many as the logits, 2, got 1"),
        ({"target": 5}, r"target must be in \[0, 5\), got 5"),
    ],
)
def test_what_it_cannot_show_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        LossExplorer(**arguments)


def test_labels_for_the_toy_may_be_an_array_and_must_be_as_many_as_its_logits():
    with unchecked():
        explorer = LossExplorer(labels=np.array(list("abcde")))
    assert [row.label for row in explorer.view.rows] == list("abcde")
    with refused("labels must be as many as the logits, 5, got 0"):
        LossExplorer(labels=[])


def test_labels_are_escaped_in_the_pictures():
    explorer = LossExplorer([1.0, 2.0], ["<b>x</b>", "$y$\n"])
    assert drawn(explorer.plots[1])["layout"]["yaxis"]["ticktext"] == [
        "&lt;b&gt;x&lt;/b&gt;",
        "&#36;y&#36;⏎",
    ]


def test_an_error_is_shown_and_not_raised(explorer, monkeypatch, capsys):
    def failing(params):
        raise ValueError("no <b>way</b>")

    monkeypatch.setattr(explorer, "compute", failing)
    explorer.logit.value = 1.0
    assert explorer.error == "no <b>way</b>"
    assert capsys.readouterr() == ("", "")
    monkeypatch.undo()
    explorer.logit.value = 2.0
    assert explorer.error == ""


# ---- predictions --------------------------------------------------------------------------------------------


def test_without_predictions_there_is_no_picture_of_trust(explorer):
    assert len(explorer.plots) == 2
    assert "Over" not in explorer.sentence


def test_smoothing_lowers_confidence_and_leaves_accuracy(made):
    explorer = LossExplorer(predictions=made)
    before = dict(explorer.words.readouts)
    explorer.epsilon.value = 0.3
    after = dict(explorer.words.readouts)
    assert before["accuracy"] == after["accuracy"]
    assert float(after["mean confidence"].split()[0]) < float(before["mean confidence"].split()[0])
    assert "too modest" in explorer.sentence
    assert len(drawn(explorer.plots[2])["data"]) == 3


def test_the_picture_of_trust_goes_back_with_epsilon(made):
    explorer = LossExplorer(predictions=made)
    first = explorer.plots[2].figure
    explorer.epsilon.value = 0.3
    explorer.logit.value = 1.0
    explorer.epsilon.value = 0.0
    assert explorer.plots[2].figure == first


# ---- the page -----------------------------------------------------------------------------------------------


def test_axes_rest_while_the_sliders_move(explorer):
    before = [drawn(plot)["layout"] for plot in explorer.plots]
    explorer.params = LossParams(VERY, -8.0, 0.4)
    for old, new in zip(before, (drawn(plot)["layout"] for plot in explorer.plots), strict=True):
        assert old["xaxis"]["range"] == new["xaxis"]["range"]
        assert old["yaxis"].get("range") == new["yaxis"].get("range")
        assert (old["margin"], old["height"]) == (new["margin"], new["height"])


def test_sliders_are_named_and_answer_while_dragged(explorer):
    for slider in (explorer.logit, explorer.epsilon):
        assert slider.box.description
        assert slider.slider.continuous_update
    assert isinstance(explorer.target, ipywidgets.Dropdown)


# ---- its figures --------------------------------------------------------------------------------------------


def test_the_tangent_has_the_slope_it_is_given():
    figure = figures.loss_curve([0, 1, 2], {"loss": [2, 1, 0.5]}, (1.0, 1.0), -0.5, title="t")
    (x0, x1), (y0, y1) = figure.data[1].x, figure.data[1].y
    assert (y1 - y0) / (x1 - x0) == pytest.approx(-0.5)


def test_gradients_are_written_beside_hatched_bars():
    figure = figures.gradient_bars(["a", "b"], [0.75, 0.25], [1, 0], title="t")
    assert list(figure.data[2].text) == ["−0.250", "+0.250"]
    assert figure.data[2].marker.pattern.shape == "/"


def test_a_gradient_of_one_has_room_for_its_number_on_either_side():
    left, right = figures.gradient_bars(["a", "b"], [0, 1], [1, 0], title="t").layout.xaxis.range
    assert left <= -1.3  # the number is about a seventh of the explorer's narrow picture
    assert right >= 1.3


def test_larger_bins_have_larger_markers_and_lines_differ_by_more_than_colour():
    bins = ([0.2, 0.8], [0.3, 0.7], [10, 90])
    figure = figures.reliability_chart({"a": bins, "b": bins}, title="t")
    assert figure.data[1].marker.size[0] < figure.data[1].marker.size[1]
    assert figure.data[1].line.dash != figure.data[2].line.dash
    assert figure.data[1].marker.symbol != figure.data[2].marker.symbol


@pytest.mark.parametrize(
    "figure",
    [
        figures.loss_curve([0, 1], {"loss": [1, 0]}, (0, 1), -1.0, title="t"),
        figures.gradient_bars(["a"], [1.0], [1.0], title="t"),
        figures.reliability_chart({"a": ([0.5], [0.5], [1])}, title="t"),
    ],
    ids=["loss", "gradient", "reliability"],
)
def test_every_figure_has_a_title_axis_titles_and_the_course_style(figure):
    assert figure.layout.title.text
    assert figure.layout.xaxis.title.text
    assert figure.layout.template.layout.paper_bgcolor == "#FFFFFF"


def test_settings_made_in_code_reach_beyond_the_boxes(explorer):
    params = LossParams(VERY, 5000.0, 0.995)
    explorer.params = params
    assert (explorer.params, explorer.view.params, explorer.error) == (params, params, "")


def test_a_target_that_is_not_shown_is_refused_before_anything_moves(explorer):
    before = explorer.params
    with refused("target", "[0, 1, 2, 3, 4]", "9"):
        explorer.params = LossParams(9, 1.0, 0.2)
    assert explorer.params == before


def test_a_logit_beyond_the_slider_is_refused_with_its_size():
    with refused("logits", "[-1000, 1000]", "1500"):
        LossExplorer(torch.tensor([1.0, 1500.0]))
