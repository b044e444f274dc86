"""What a head costs: against torch's own counting, hand-worked figures and the definition of the roofline."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from lmhead_course.catalog import Device, model
from lmhead_course.cost import HeadShape, adaptive_flops, attainable, head_of, least_seconds, ridge
from tests.strategies import quick
from tests.typecheck import refused

sizes = st.integers(1, 50)


@quick
@given(sizes, sizes, sizes)
def test_flops_are_those_that_torch_counts(d_model, d_vocab, tokens):
    hidden = torch.randn(tokens, d_model, requires_grad=True)
    head = torch.nn.Linear(d_model, d_vocab, bias=False)
    with FlopCounterMode(display=False) as forward:
        logits = head(hidden)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    shape = HeadShape(d_model, d_vocab)
    assert shape.flops(tokens) == forward.get_total_flops()
    assert shape.training_flops(tokens) == forward.get_total_flops() + backward.get_total_flops()
    assert shape.training_flops(tokens, recompute=True) == 8 * d_model * d_vocab * tokens
    assert shape.parameters == sum(p.numel() for p in head.parameters())


def test_a_multiply_add_counts_twice_llama_7b():
    assert head_of(model("LLaMA-7B")).flops() == 262_144_000


def test_logits_of_a_training_step_fill_gigabytes():
    shape = HeadShape(4096, 128_000)
    assert shape.logits_bytes(4 * 4096, "bfloat16") == pytest.approx(4.19e9, abs=0.005e9)
    assert shape.logits_bytes(4 * 4096, "float32") == pytest.approx(8.39e9, abs=0.005e9)


def test_bytes_moved_are_weights_states_and_logits_each_once():
    shape = HeadShape(3, 5, bias=True)
    assert shape.bytes_moved(2, "float32") == 4 * (3 * 5 + 5 + 2 * 3 + 2 * 5)
    # Quantised weights meet states and logits in 16 bits.
    assert shape.bytes_moved(2, "int8") == (3 * 5 + 5) + 2 * (2 * 3 + 2 * 5)
    assert shape.bytes_moved(2, "int4") == (3 * 5 + 5) / 2 + 2 * (2 * 3 + 2 * 5)


def test_at_batch_one_every_byte_of_weights_works_about_once():
    assert HeadShape(4096, 128_256).intensity(1, "bfloat16") == pytest.approx(1.0, rel=0.01)
    assert HeadShape(4096, 128_256).intensity(64, "bfloat16") == pytest.approx(64.0, rel=0.05)


@quick
@given(st.floats(1, 1e15), st.floats(1, 1e12), st.floats(1, 1e15), st.floats(1, 1e15))
def test_the_roofline_and_the_least_time_say_the_same(bandwidth, flops, work, moved):
    device = Device("x", bandwidth, flops)
    assert work / least_seconds(device, work, moved) == pytest.approx(attainable(device, work / moved))
    assert attainable(device, ridge(device)) == pytest.approx(flops)


def test_an_adaptive_softmax_of_one_cluster_costs_a_whole_head():
    assert adaptive_flops(64, [1000], [1.0]) == HeadShape(64, 1000).flops()


def test_an_adaptive_softmax_costs_what_torchs_modules_multiply():
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(64, 1000, cutoffs=[100, 300], div_value=4.0)
    head = 2 * module.head.weight.numel()
    tails = [2 * sum(p.numel() for p in tail.parameters()) for tail in module.tail]
    expected = head + 0.2 * tails[0] + 0.1 * tails[1]
    assert adaptive_flops(64, [100, 300, 1000], [0.7, 0.2, 0.1]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: HeadShape(0, 5), ("d_model", "at least 1", "0")),
        (lambda: HeadShape(5, -1), ("d_vocab", "at least 1", "-1")),
        (lambda: HeadShape(5, 5).weight_bytes("float8"), ("dtype", "bfloat16", "float8")),
        (lambda: adaptive_flops(4, [3, 6], [1.0]), ("cutoffs", "chances", "2", "1")),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(act, words):
    with refused(*words):
        act()
