"""The cost explorer in a real JupyterLab: a model picked, a size dragged and typed, its table and picture read."""

import pytest

from tests.browser.written import expect_sentence, opened

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "cost_explorer", "course.CostExplorer()") as lab:
        lab.page.locator(".lmhead-plot .main-svg").first.wait_for(timeout=60_000)
        yield lab


@pytest.fixture
def page(lab):
    yield lab.page
    for name, model in (("model A", "SmolLM2-135M"), ("model B", "Llama-3-8B")):
        picker = lab.page.get_by_label(name, exact=True)
        picker.select_option("your own sizes")  # a model that is picked again moves its sliders back
        picker.select_option(model)
    expect_sentence(lab.page, "B: Llama-3-8B: a step for one sequence reads 1.05 GB")


def cells(page, row):
    return page.locator(".lmhead tr", has_text=row).first.locator("td").all_inner_texts()


def test_it_begins_with_the_sizes_of_two_models(page):
    assert cells(page, "one V × d matrix") == ["28.3 M", "525 M"]


def test_a_picked_model_moves_its_sliders_and_its_column(page):
    page.get_by_label("model B", exact=True).select_option("SmolLM2-135M")
    expect_sentence(page, "B: SmolLM2-135M: a step")
    assert page.get_by_label("B: d_model", exact=True).input_value() == "576"
    assert cells(page, "one V × d matrix") == ["28.3 M", "28.3 M"]


def test_a_size_moved_with_the_arrow_keys_is_called_changed(page):
    page.get_by_role("slider", name="A: d_model slider").press("ArrowRight")
    expect_sentence(page, "A: SmolLM2-135M (changed)")
    assert page.get_by_label("A: d_model", exact=True).input_value() == "640"


def test_a_size_of_zero_is_an_error_in_words(page):
    box = page.get_by_label("A: d_model", exact=True)
    box.fill("0")
    box.press("Enter")
    page.locator(".lmhead .error", has_text="d_model").wait_for(timeout=20_000)


def test_the_points_of_the_picture_follow_the_batch(page):
    points = "document.querySelector('.js-plotly-plot').calcdata.map(trace => trace[0].x)"
    before = page.evaluate(points)
    box = page.get_by_label("batch", exact=True)
    box.fill("64")
    box.press("Enter")
    expect_sentence(page, "a step for 64 sequences")
    page.wait_for_timeout(500)
    assert page.evaluate(points)[1] > before[1]
    box.fill("1")
    box.press("Enter")


def test_the_page_asks_nobody_else_and_logs_no_error(lab):
    assert (lab.errors, lab.strangers) == ([], [])
