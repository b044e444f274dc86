"""Ratios with slack, both sides measured in the same run; a lone time says nothing on a busy machine."""

import math

import pytest
import torch

from benchmarks import __main__ as page
from benchmarks import generation, linear_cross_entropy, samplers, sliders, startup, timing
from tests.typecheck import unchecked


@pytest.mark.parametrize(("d_vocab", "goal"), sliders.GOALS.items())
def test_a_slider_move_is_many_times_faster_than_the_chain_in_transformers(d_vocab, goal):
    with unchecked():
        ours, theirs = sliders.measure(d_vocab, sliders.DRAG, turns=3)
    assert theirs.cpu / ours.cpu > goal / 2


def test_both_sides_of_the_benchmark_show_the_same_tokens_and_probabilities():
    logits = sliders.made_up_logits(5000)
    for name, (ours, theirs) in sliders.cases(logits).items():
        if name == sliders.PENALTY:
            continue
        shown, expected = ours(), theirs()
        rows = {row.token_id: row.final for row in shown.rows if row.final > 0}
        assert rows == pytest.approx({token: p for token, p in expected if p > 0}, rel=1e-4)


def test_a_view_after_a_penalty_is_the_same_as_with_everything_sorted_anew():
    ours, theirs = sliders.penalty_moves(sliders.made_up_logits(5000))
    view, (kept, mass, nats, rows) = ours(), theirs()
    assert (view.kept, view.kept_mass) == (kept, pytest.approx(mass, abs=1e-6))
    assert view.bits_after == pytest.approx(nats / math.log(2), abs=1e-5)
    for row, (token, raw, final) in zip(view.rows, rows, strict=True):
        assert (row.token_id, row.raw, row.final) == (token, pytest.approx(raw), pytest.approx(final))


def test_every_way_gets_the_same_number_of_turns_and_the_first_does_not_count():
    calls = []
    ways = {name: lambda name=name: calls.append(name) for name in "ab"}
    timings = timing.paired(ways, turns=2, calls=3)
    assert calls == ["a"] * 3 + ["b"] * 3 + ["a"] * 3 + ["b"] * 3 + ["a"] * 3 + ["b"] * 3
    assert timings.keys() == {"a", "b"}


def test_a_kernel_reaches_its_first_logits_in_well_under_the_time_of_the_auto_classes(lm):
    # CPU time, which a busy machine leaves alone; the goal is 0.4, measured 0.35 to 0.4. `lm` is asked for so that the
    # cache is filled before anything is timed.
    assert startup.compare(rounds=1)["ratio"] < 0.65


@pytest.mark.parametrize("case", samplers.CASES, ids=lambda case: f"{case.rows}x{case.d_vocab}")
@pytest.mark.parametrize("what", ["tokens", "logits"])
def test_a_sampler_is_several_times_faster_than_the_chain_in_transformers(case, what):
    with unchecked():
        ours, theirs = samplers.measure(case, what, turns=3)
    assert theirs.cpu / ours.cpu > case.goals[what] / 2


@pytest.mark.parametrize("case", samplers.CASES[1:], ids=lambda case: str(case.d_vocab))
def test_both_sides_of_the_samplers_benchmark_keep_the_same_tokens(case):
    ways = samplers.ways(case, "logits")
    assert torch.equal(ways["ours"]().isfinite(), ways["theirs"]().isfinite())


def test_generating_is_no_slower_than_in_transformers(lm):
    with unchecked():
        ours, theirs = generation.measure(generation.SETTINGS["greedy"], turns=1)
    assert theirs.cpu / ours.cpu > 0.8


def test_the_page_keeps_what_it_has_of_benchmarks_that_did_not_run():
    first = page.written("", {name: page.section(name, 0, f"{name} 1") for name in ("startup", "sliders")})
    second = page.written(first, {"startup": page.section("startup", 1, "startup 2")})
    assert "sliders 1" in second
    assert "startup 2" in second
    assert "startup 1" not in second
    assert second.index("## sliders") < second.index("## startup")
    assert "A goal was missed." in second
    assert page.written(second, {}) == second


def test_the_ways_of_the_loss_take_turns_in_one_process_and_give_the_threads_back():
    before = torch.get_num_threads()
    with unchecked():
        found = linear_cross_entropy.timed((8, 50, 4), threads=before + 1, turns=1)
    assert tuple(found) == linear_cross_entropy.TIMED
    assert all(timing.wall > 0 for timing in found.values())
    assert torch.get_num_threads() == before


def test_the_steps_that_bound_a_slider_take_less_time_than_sorting_everything_anew():
    with unchecked():
        steps, (_, anew) = sliders.steps(49_152), sliders.measure(49_152, sliders.PENALTY, turns=1)
    assert max(steps.values()) < anew.cpu


def test_reading_the_weights_takes_less_time_than_generating(lm):
    with unchecked():
        least = generation.least_seconds()
        ours, _ = generation.measure(generation.SETTINGS["greedy"], turns=1)
    assert 0 < least < 1.5 * ours.wall
