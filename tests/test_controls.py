"""Sliders and boxes move together, whoever moves one of them, and settings never leave their range."""

from dataclasses import dataclass

import pytest
import traitlets
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course import SamplingParams
from lmhead_course.explorers import LinearSlider, SamplingControls, StepSlider
from lmhead_course.explorers.controls import MIN_P_STOPS, k_stops
from tests.strategies import quick, sampling_params

FIELDS = tuple(SamplingParams.__dataclass_fields__)


@pytest.fixture
def temperature():
    return LinearSlider("temperature", 1.0, (0.0, 2.0), 0.01, (0.0, 1000.0))


@pytest.fixture
def top_k():
    return StepSlider("top-k", 0, k_stops(1000), limit=10**9, off_at_end=True)


def heard(control):
    values = []
    control.observe(lambda change: values.append(change.new), "value")
    return values


def test_the_slider_moves_the_value_and_the_box(temperature):
    values = heard(temperature)
    temperature.slider.value = 70
    assert (temperature.value, temperature.box.value, values) == (0.7, 0.7, [0.7])


def test_the_box_moves_the_value_and_the_slider(temperature):
    values = heard(temperature)
    temperature.box.value = 0.3
    assert (temperature.value, temperature.slider.value, values) == (0.3, 30, [0.3])


def test_the_value_moves_both(temperature):
    values = heard(temperature)
    temperature.value = 1.5
    assert (temperature.box.value, temperature.slider.value, values) == (1.5, 150, [1.5])


def test_a_value_beyond_the_slider_leaves_it_at_its_end_and_is_not_pulled_back(temperature):
    values = heard(temperature)
    temperature.box.value = 3.5
    assert (temperature.value, temperature.slider.value, values) == (3.5, 200, [3.5])
    temperature.slider.value = 199
    assert (temperature.value, temperature.box.value) == (1.99, 1.99)


@pytest.mark.parametrize("value", [-0.1, 1000.1, float("nan"), float("inf"), "hot"])
def test_a_value_outside_the_range_is_refused_by_name(temperature, value):
    with pytest.raises(traitlets.TraitError, match="temperature"):
        temperature.value = value
    assert (temperature.value, temperature.box.value, temperature.slider.value) == (1.0, 1.0, 100)


def test_top_k_is_off_at_the_end_of_its_slider(top_k):
    assert top_k.slider.value == top_k.slider.max == len(top_k.stops)
    top_k.slider.value -= 1
    assert top_k.value == 1000
    top_k.slider.value = 0
    assert top_k.value == 1
    top_k.slider.value = top_k.slider.max
    assert top_k.value == 0


def test_a_k_between_two_stops_is_kept_exactly_and_the_slider_stands_near(top_k):
    top_k.box.value = 44
    assert top_k.value == 44
    assert top_k.stops[top_k.slider.value] == 40


def test_a_k_above_the_vocabulary_is_allowed_as_everywhere(top_k):
    top_k.value = 10**6
    assert top_k.box.value == 10**6
    assert top_k.stops[top_k.slider.value] == 1000


def test_k_is_a_whole_number(top_k):
    with pytest.raises(traitlets.TraitError, match="whole"):
        top_k.value = 2.5


@given(st.integers(1, 300_000))
def test_the_stops_of_k_rise_from_one_to_the_vocabulary(d_vocab):
    stops = k_stops(d_vocab)
    assert (stops[0], stops[-1]) == (1, d_vocab)
    assert stops == sorted(set(stops))


def test_the_stops_of_min_p_rise_from_off_to_one():
    assert (MIN_P_STOPS[0], MIN_P_STOPS[-1]) == (0.0, 1.0)
    assert sorted(set(MIN_P_STOPS)) == MIN_P_STOPS


@quick
@given(sampling_params())
def test_settings_move_every_control_and_are_told_once(params):
    controls, told = SamplingControls(12), []
    before = controls.params
    controls.observe(lambda change: told.append(change.new), "params")
    controls.params = params
    assert told == ([params] if params != before else [])
    assert {name: getattr(controls, name).value for name in FIELDS} == vars(params)


@quick
@given(sampling_params())
def test_a_control_moved_alone_changes_that_field_alone(params):
    controls = SamplingControls(12, params)
    controls.temperature.value = 0.55
    assert controls.params == SamplingParams(**{**vars(params), "temperature": 0.55})


def test_an_order_of_ones_own_can_be_chosen_and_what_it_leaves_out_is_said():
    controls = SamplingControls(12, SamplingParams(temperature=2.0, order=("temperature",)))
    assert controls.order.value == ("temperature",)
    controls.top_k.value = 3
    assert "top_k" in controls.error
    assert controls.params.top_k == 0
    controls.order.value = "hf"
    assert controls.error == ""
    assert controls.params == SamplingParams(temperature=2.0, top_k=3)


def test_the_folded_penalties_say_which_values_are_off_and_not_that_they_are_off():
    controls, off = SamplingControls(1000, SamplingParams(repetition_penalty=1.5)), SamplingParams()
    (folded,) = [child for child in controls.children if hasattr(child, "titles")]
    values = f"{off.repetition_penalty:g}, {off.presence_penalty:g}, {off.frequency_penalty:g}"
    assert folded.titles == (f"Penalties ({values} = off)",)


def test_every_box_has_a_name_and_every_slider_follows_while_it_moves():
    controls = SamplingControls(12)
    for name in FIELDS[:-1]:
        control = getattr(controls, name)
        assert control.box.description
        assert control.slider.continuous_update


@pytest.mark.parametrize("value", [0.7, 0.705, 1.2345, 2.0, 57.0])
def test_a_page_that_repeats_what_it_was_told_moves_nothing(temperature, value):
    temperature.value = value
    values = heard(temperature)
    temperature.slider.value = int(temperature.slider.value)
    assert (temperature.value, values) == (value, [])


def test_a_track_laid_over_other_values_keeps_the_value(temperature):
    values = heard(temperature)
    temperature.span((-4.0, 4.0), 0.04)
    assert (temperature.value, temperature.slider.value, values) == (1.0, 125, [])
    temperature.slider.value = 200
    assert temperature.value == 4.0


def test_an_order_may_hold_a_stage_that_has_no_hash():
    @dataclass
    class Shift:
        by: list

        def __call__(self, logits, *, prompt, generated):
            return logits + self.by[0]

    order = (Shift([1.0]), "temperature")
    controls = SamplingControls(100, SamplingParams(order=order))
    assert controls.params.order == order
    controls.temperature.value = 0.5
    assert controls.params == SamplingParams(temperature=0.5, order=order)
