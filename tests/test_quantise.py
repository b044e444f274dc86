"""Quantised weights: the error is at most half a step, and the sizes are what they say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course.quantise import quantise
from tests.strategies import quick
from tests.typecheck import refused


@quick
@given(st.integers(2, 8), st.sampled_from([None, 1, 2, 4, 8]), st.integers(0, 1000))
def test_no_number_is_off_by_more_than_half_a_step(bits, group, seed):
    weight = torch.randn(5, 8, generator=torch.Generator().manual_seed(seed))
    q = quantise(weight, bits, group)
    step = q.scales.float().repeat_interleave(8 // q.scales.shape[1], dim=1)
    assert ((q.restore() - weight).abs() <= 0.5001 * step).all()
    assert q.codes.abs().max() <= 2 ** (bits - 1) - 1


def test_the_largest_of_a_row_sets_its_scale_and_a_group_has_its_own():
    weight = torch.tensor([[1.0, 0.01, 100.0, 1.0]])
    assert quantise(weight, 4).restore()[0, 1] == 0  # drowned by the 100 in its row
    assert quantise(weight, 4, group=2).restore()[0, 0] == pytest.approx(1.0, rel=0.01)


def test_bytes_are_packed_codes_and_half_precision_scales():
    weight = torch.randn(10, 64)
    assert quantise(weight, 8).nbytes == 10 * 64 + 10 * 2
    assert quantise(weight, 4, group=32).nbytes == 10 * 32 + 10 * 2 * 2


def test_a_row_of_zeros_stays_one():
    assert torch.equal(quantise(torch.zeros(2, 4), 8).restore(), torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("bits", "group", "words"),
    [(1, None, ("bits", "got 1")), (16, None, ("bits", "got 16")), (8, 3, ("group", "8 columns", "3"))],
)
def test_what_can_not_be_is_refused_by_name(bits, group, words):
    with refused(*words):
        quantise(torch.zeros(2, 8), bits, group)
