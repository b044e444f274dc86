"""The cost explorer, moved by its traits; what it shows is computed afresh here."""

import json

import pytest

from lmhead_course.catalog import Device, devices, models
from lmhead_course.cost import HeadShape, least_seconds
from lmhead_course.explorers.cost import NOBODY, OWN_RATES, CostExplorer
from lmhead_course.explorers.cost_view import FREE, CostParams, Side, count, duration, size, view_of_cost

GPU = Device("gpu", 1e12, 1e14)


@pytest.fixture
def explorer():
    return CostExplorer("GPT-2 small", "Llama-3-8B", machine=Device("this machine", 10e9, 100e9))


def drawn(explorer):
    """The figure as the page gets it."""
    return json.loads(explorer.plot.figure)


def row(explorer, name):
    return next(cells[1:] for cells in explorer.view.rows if cells[0] == name)


@pytest.mark.parametrize("name", models())
def test_a_model_as_it_stands_has_exactly_the_catalogs_total(name):
    assert Side.of(name).total == models()[name].total
    assert not Side.of(name).changed


def test_changed_layers_scale_the_body_and_leave_the_matrices():
    m = models()["LLaMA-7B"]
    half = Side("LLaMA-7B", m.d_model, m.d_vocab, m.layers // 2)
    assert half.total == 2 * m.one_matrix + round((m.total - 2 * m.one_matrix) / 2)
    free = Side(FREE, 100, 1000, 3)
    assert free.total == 100 * 1000 + 12 * 3 * 100**2


def test_the_table_shows_a_fresh_computation(explorer):
    explorer.batch.value, explorer.length.value, explorer.dtype.value = 4, 4096, "float32"
    m = models()["GPT-2 small"]
    head, device = HeadShape(m.d_model, m.d_vocab), Device("", 10e9, 100e9)
    assert row(explorer, "share of one matrix")[0] == "31.0 %"
    assert row(explorer, "logits of all positions")[0] == size(4 * 4096 * m.d_vocab * 4)
    seconds = least_seconds(device, head.flops(4), head.bytes_moved(4, "float32"))
    assert row(explorer, "one step, at best")[0].startswith(duration(seconds))


def test_picking_a_model_moves_its_sliders_and_moving_one_marks_it(explorer):
    explorer.a.model.value = "Gemma-3-270M"
    assert [s.value for s in explorer.a.sliders] == [640, 262_144, 18]
    assert "(changed)" not in explorer.sentence
    explorer.a.d_vocab.value = 32_000
    assert "A: Gemma-3-270M (changed)" in explorer.sentence
    assert row(explorer, "all parameters")[0].startswith("≈")


def test_every_slider_moves_what_is_shown(explorer):
    sliders = [*explorer.a.sliders, *explorer.b.sliders, explorer.batch, explorer.length]
    for slider in [*sliders, explorer.bandwidth, explorer.arithmetic]:
        before = explorer.view
        slider.value = slider.value * 3
        assert explorer.view is not before
        assert explorer.view.params == explorer.params
    explorer.dtype.value = "int4"
    assert explorer.view.params.dtype == "int4"
    assert explorer.error == ""


def test_picking_a_device_moves_the_rates_and_moving_a_rate_leaves_the_device(explorer):
    assert explorer.device.value == "this machine"
    explorer.device.value = "NVIDIA H100 (SXM)"
    assert explorer.view.params.device.bandwidth == pytest.approx(devices()["NVIDIA H100 (SXM)"].bandwidth)
    explorer.bandwidth.value = 500.0
    assert explorer.device.value == OWN_RATES
    assert explorer.view.params.device.bandwidth == 500e9
    assert explorer.view.params.device.flops == pytest.approx(989e12)


def test_one_model_alone_has_one_column_and_two_points(explorer):
    explorer.b.model.value = NOBODY
    assert all(len(cells) == 2 for cells in explorer.view.rows)
    assert [trace["name"] for trace in drawn(explorer)["data"]] == ["roof", "A, one step", "A, all positions"]
    explorer.b.model.value = "LLaMA-7B"
    assert len(drawn(explorer)["data"]) == 5


def test_points_lie_under_the_roof_and_bigger_batches_further_right(explorer):
    explorer.batch.value = 1
    near = explorer.view.step[0].point
    explorer.batch.value = 64
    far = explorer.view.step[0].point
    assert far[0] > 10 * near[0]
    device = explorer.view.params.device
    for x, y in explorer.view.points.values():
        assert y <= device.flops * 1.000001
        assert y <= device.bandwidth * x * 1.000001
    assert drawn(explorer)["data"][1]["x"] == [far[0]]


def test_a_size_of_nothing_is_said_and_the_last_good_view_stays(explorer):
    before = explorer.view
    explorer.batch.value = 0
    assert "batch must be at least 1" in explorer.error
    assert explorer.view is before
    explorer.batch.value = 2
    assert explorer.error == ""


def test_compute_changes_nothing(explorer):
    before = explorer.view
    view = explorer.compute(CostParams((Side.of("LLaMA-7B"),), 1, 1, "float32", GPU))
    assert view.rows[0][1] == "131 M"
    assert explorer.view is before


def test_names_are_shown_as_text(explorer):
    explorer.device.options = [*explorer.device.options, "<b>x</b>"]
    explorer.device.value = "<b>x</b>"
    assert "<b>" not in drawn(explorer)["layout"]["title"]["text"]
    assert "<b>" not in explorer.table.value


def test_the_sentence_says_what_limits_each_step(explorer):
    assert explorer.sentence.count("is bound by memory") == 2
    params = CostParams((Side.of("GPT-2 small"),), 10_000, 1, "bfloat16", GPU)
    assert "is bound by arithmetic" in view_of_cost(params).sentence


def test_the_roofline_has_titles_and_keeps_its_axes_when_a_device_changes(explorer):
    def axes():
        layout = drawn(explorer)["layout"]
        return layout["xaxis"]["range"], layout["yaxis"]["range"]

    before = axes()
    explorer.device.value = "NVIDIA A100 80GB (SXM)"
    assert axes() == before
    assert "FLOPs a byte" in drawn(explorer)["layout"]["xaxis"]["title"]["text"]
    assert drawn(explorer)["layout"]["title"]["text"] == "Roofline: NVIDIA A100 80GB (SXM)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (count(38_597_376), "38.6 M"), (count(999_600), "1 M"), (count(12), "12"), (size(113e6), "113 MB"),
        (size(4.19e9), "4.19 GB"), (duration(46.1e-6), "46.1 µs"), (duration(2.0), "2 s"), (duration(3e-9), "3 ns"),
        (duration(9.997e-4), "1 ms"), (duration(0.9997), "1 s"), (duration(999.7), "1,000 s"),
    ],
)  # fmt: skip
def test_numbers_are_written_with_three_figures_and_a_unit(text, expected):
    assert text == expected
