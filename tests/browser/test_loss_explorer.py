"""The loss explorer in a real JupyterLab: its sliders dragged and typed, its pictures followed."""

import pytest

from tests.browser.written import expect_sentence, opened, sentence

pytestmark = pytest.mark.browser

CELL = (
    "from lmhead_course.calibration import Predictions\n"
    "c = torch.linspace(0.05, 0.95, 500)\n"
    "explorer = course.LossExplorer(predictions=Predictions(c, c > 0.5, c, 50))\n"
    "explorer"
)


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "loss_explorer", CELL) as lab:
        lab.page.locator(".lmhead-loss .js-plotly-plot").nth(2).wait_for(timeout=60_000)
        lab.page.locator(".lmhead-loss").scroll_into_view_if_needed()
        yield lab


@pytest.fixture
def page(lab):
    yield lab.page
    lab.page.get_by_role("button", name="reset", exact=True).click()
    expect_sentence(lab.page, "69.71 %")


def gradients(page):
    texts = page.locator(".lmhead-loss .js-plotly-plot").nth(1).locator(".bartext")
    return [text.replace("−", "-") for text in texts.all_text_contents()]  # SVG has no inner text


def test_it_begins_with_the_toy(page):
    expect_sentence(page, "69.71 %")
    assert "-0.303" in gradients(page)


def test_dragging_the_logit_moves_loss_and_gradient(page):
    handle = page.locator(".lmhead-loss .noUi-handle").first
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 150, y, steps=15)
    page.mouse.up()
    for _ in range(100):
        if "-1.000" in gradients(page):
            break
        page.wait_for_timeout(100)
    assert "-1.000" in gradients(page)
    assert "raises its logit" in sentence(page)


def test_epsilon_typed_in_its_box_turns_the_push_around(page):
    for name, value in (("its logit", "10"), ("smoothing ε", "0.1")):
        box = page.get_by_label(name, exact=True)
        box.fill(value)
        box.press("Enter")
    expect_sentence(page, "lowers its logit")
    expect_sentence(page, "92.00 %")


def test_another_true_token_starts_from_its_own_logit(page):
    page.get_by_label("true token", exact=True).select_option("很 (very)")
    expect_sentence(page, "“很 (very)” came, the model gives it 15.55 %")


def test_nothing_was_written_to_the_console_and_nobody_was_asked(lab):
    assert lab.errors == []
    assert lab.strangers == []
