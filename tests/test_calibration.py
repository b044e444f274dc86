"""Calibration: bins by confidence, errors by hand, and what mixing with the uniform distribution does."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course.calibration import Predictions, calibrate, predictions
from tests.strategies import quick


def said(confidence, correct, d_vocab=100):
    p = torch.tensor(confidence)
    return Predictions(p, torch.tensor(correct), p, d_vocab)


def test_predictions_are_read_off_the_logits():
    logits = torch.tensor([[0.0, math.log(3)], [math.log(4), 0.0]])
    made = predictions(logits, torch.tensor([1, 1]))
    assert made.confidence.tolist() == pytest.approx([0.75, 0.8])
    assert made.correct.tolist() == [True, False]
    assert made.p_true.tolist() == pytest.approx([0.75, 0.2])
    assert made.accuracy == 0.5
    assert made.loss == pytest.approx(-(math.log(0.75) + math.log(0.2)) / 2)


def test_the_error_by_hand():
    made = said([0.65, 0.69, 0.95, 0.91], [True, False, True, True])
    found = calibrate(made)
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 2]
    assert found.error == pytest.approx((2 * (0.67 - 0.5) + 2 * (1 - 0.93)) / 4)
    assert found.gap == pytest.approx(0.8 - 0.75)


def test_a_model_that_is_right_as_often_as_it_is_sure_has_no_error():
    assert calibrate(said([0.75] * 4, [True, True, True, False])).error == pytest.approx(0)


def test_certainty_belongs_to_the_last_bin():
    assert calibrate(said([1.0], [True])).counts[-1] == 1


def test_empty_bins_are_nan_and_count_for_nothing():
    found = calibrate(said([0.95], [False]))
    assert found.accuracy[0].isnan()
    assert found.error == pytest.approx(0.95)


@quick
@given(st.lists(st.tuples(st.floats(0.01, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 20))
def test_the_gap_is_mean_confidence_minus_accuracy_and_bounds_the_error_from_below(pairs, bins):
    made = said([p for p, _ in pairs], [right for _, right in pairs])
    found = calibrate(made, bins)
    assert found.gap == pytest.approx(made.confidence.mean().item() - made.accuracy, abs=1e-5)
    assert abs(found.gap) - 1e-5 <= found.error <= 1 + 1e-6


def test_no_bins_are_refused():
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        calibrate(said([0.5], [True]), 0)


def test_smoothing_mixes_with_the_uniform_distribution():
    mixed = said([0.9, 0.5], [True, False], d_vocab=4).smoothed(0.2)
    assert mixed.confidence.tolist() == pytest.approx([0.8 * 0.9 + 0.05, 0.8 * 0.5 + 0.05])
    assert mixed.correct.tolist() == [True, False]


def test_no_smoothing_changes_nothing():
    made = said([0.9, 0.5], [True, False])
    assert torch.equal(made.smoothed(0.0).confidence, made.confidence)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, math.nan])
def test_an_epsilon_that_is_no_share_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be in"):
        said([0.9], [True]).smoothed(epsilon)


def test_the_mix_is_where_the_smoothed_loss_is_least():
    """The claim behind ``smoothed``: minimise the expected smoothed loss under a known truth, find the mix."""
    from lmhead_course.loss import cross_entropy

    truth, epsilon = torch.tensor([0.7, 0.2, 0.1]).double(), 0.3
    logits = torch.zeros(3).double().requires_grad_()
    optimiser = torch.optim.LBFGS([logits], max_iter=200)

    def expected():
        optimiser.zero_grad()
        rows, targets = logits.expand(3, -1), torch.arange(3)
        losses = cross_entropy(rows, targets, label_smoothing=epsilon, reduction="none")
        loss = (truth * losses).sum()
        loss.backward()
        return loss

    optimiser.step(expected)
    assert torch.allclose(logits.softmax(0), (1 - epsilon) * truth + epsilon / 3, atol=1e-4)
