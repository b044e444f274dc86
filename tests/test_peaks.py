"""Peak memory in processes of their own, and this machine's rates: ratios only, since times differ."""

import pytest
import torch

from lmhead_course import machine, peaks
from tests.typecheck import refused

N, V, D = 256, 16_384, 64


@pytest.fixture(scope="module")
def measured():
    return {way: peaks.measure(way, N, V, D) for way in ("naive", "ours")}


def test_ours_needs_little_more_than_the_gradients_and_naive_all_logits_more_than_once(measured):
    gradients, logits = 4 * D * (N + V), 4 * N * V
    assert measured["naive"].extra_bytes > 2 * logits
    assert measured["ours"].extra_bytes < gradients + logits


def test_both_ways_find_the_same_loss_and_gradients(measured):
    naive, ours = measured["naive"], measured["ours"]
    assert ours.loss == pytest.approx(naive.loss, rel=1e-6)
    assert ours.hidden_check == pytest.approx(naive.hidden_check, rel=1e-5)
    assert ours.weight_check == pytest.approx(naive.weight_check, rel=1e-5)


def test_an_unknown_way_is_refused_and_a_failing_process_says_why(monkeypatch):
    with refused("way", "naive", "magic"):
        peaks.measure("magic", 1, 2, 3)
    with pytest.raises(RuntimeError, match="failed"):
        peaks.measure("naive", 4, 0, 3)


def test_more_work_takes_longer_and_rates_are_positive():
    x = torch.randn(200_000)
    assert machine.seconds(lambda: x.sort()) > machine.seconds(lambda: x[:2000].sort())
    assert machine.copy_bandwidth(x) > 0
    assert machine.matrix_rate(64) > 0
