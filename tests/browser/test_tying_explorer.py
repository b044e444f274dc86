"""The tying explorer in a real JupyterLab: its step dragged and typed, its twin picked, its table read."""

import pytest

from tests.browser.written import expect_sentence, opened

pytestmark = pytest.mark.browser

CELL = """
from lmhead_course.twins import RowGradients
counts = torch.arange(60, 0, -1)
def record(step):
    seen = (torch.arange(60) % 3 == step % 3).long()
    into, out = seen * 0.01, torch.full((60,), 1e-3 / (step + 1))
    return RowGradients(step, 4.0, seen, into, out, into + out)
records = [record(step) for step in (0, 5, 10)]
course.TyingExplorer(records, records, counts=counts, labels=["<b>x</b>"] * 60)
"""


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "tying_explorer", CELL) as lab:
        lab.page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=60_000)
        yield lab


@pytest.fixture
def page(lab):
    yield lab.page
    step(lab.page).fill("0")
    step(lab.page).press("Enter")
    expect_sentence(lab.page, "Step 0:")


def step(page):
    return page.get_by_label("step", exact=True)


def test_the_step_slider_follows_the_mouse(page):
    handle = page.locator(".lmhead-controls .noUi-handle").first
    box = handle.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 1200, box["y"] + box["height"] / 2, steps=10)
    page.mouse.up()
    expect_sentence(page, "Step 10:")
    page.locator(".js-plotly-plot .gtitle", has_text="step 10").wait_for(timeout=20_000)


def test_the_arrow_keys_move_the_step(page):
    page.locator(".lmhead-controls .noUi-handle").first.focus()
    page.keyboard.press("ArrowRight")
    expect_sentence(page, "Step 5:")


def test_the_untied_twin_has_two_matrices_and_no_sum(page):
    picker = page.locator(".lmhead-controls select")
    picker.select_option("untied")
    expect_sentence(page, "a matrix of its own")
    assert page.locator(".js-plotly-plot .legendtext", has_text="their sum").count() == 0
    picker.select_option("tied")
    expect_sentence(page, "both ends are one matrix")


def test_labels_are_text_in_the_table(page):
    cells = page.locator(".jp-OutputArea td", has_text="<b>x</b>")
    assert cells.count() > 3
    assert cells.locator("b").count() == 0


def test_every_slider_handle_has_a_name(page):
    handles = page.locator(".lmhead-controls .noUi-handle")
    names = handles.evaluate_all("all => all.map(handle => handle.getAttribute('aria-label'))")
    assert names == ["step slider", "frequency rank slider"]


def test_the_page_asks_nobody_else_and_logs_no_error(lab):
    assert lab.strangers == []
    assert lab.errors == []
