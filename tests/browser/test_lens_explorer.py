"""The lens explorer in a real JupyterLab: its cell moved by keyboard and mouse, its words typed, its picture read."""

import pytest

from tests.browser.written import expect_sentence, opened, sentence

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(server, browser):
    cell = "course.LensExplorer(course.load_model(), prompt='The capital of France is', word='Paris')"
    with opened(server, browser, "lens_explorer", cell) as lab:
        lab.page.locator(".lmhead-lens .js-plotly-plot .heatmaplayer").wait_for(timeout=60_000)
        lab.page.locator(".lmhead-lens").scroll_into_view_if_needed()
        yield lab


@pytest.fixture
def page(lab):
    yield lab.page
    lab.page.get_by_role("button", name="reset", exact=True).click()
    expect_sentence(lab.page, "After layer 30, with the final norm, the head reads the stream at “␣is”")


def drawn(page):
    """Return the texts that stand in the cells of the heat map."""
    return page.locator(".lmhead-lens .js-plotly-plot .heatmap-label").all_text_contents()


def test_every_layer_and_position_has_its_top_token(page):
    assert len(drawn(page)) == 31 * 5
    assert "␣Paris" in drawn(page)
    assert "“␣Paris” with 77.25 %" in sentence(page)


def test_the_arrow_keys_move_the_layer_and_not_the_notebook(page):
    handle = page.get_by_role("slider", name="layer slider")
    handle.focus()
    page.keyboard.press("ArrowLeft")
    expect_sentence(page, "After layer 29")
    assert "“␣capital”" in sentence(page)
    assert handle.evaluate("handle => handle === document.activeElement")


def test_the_mouse_moves_the_position(page):
    box = page.get_by_role("slider", name="position (0: last) slider").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 400, y, steps=10)
    page.mouse.up()
    expect_sentence(page, "the stream at “The”")


def test_without_the_norm_another_token_is_on_top(page):
    page.get_by_label("final norm before the head").uncheck()
    expect_sentence(page, "“reponame”")
    assert "without the final norm" in sentence(page)


def test_typed_markup_is_an_error_in_words_and_text_only(page):
    box = page.locator(".lmhead-lens .widget-text", has_text="word").locator("input")
    box.fill("<img src=x onerror=alert(1)>")
    box.press("Enter")
    page.locator(".lmhead-lens .error").get_by_text("is not one token").wait_for()
    page.locator(".lmhead-lens textarea").fill("a <b>bold</b> $x$")
    page.locator(".lmhead-lens .status").get_by_text("tokens are drawn").wait_for()
    expect_sentence(page, "the stream at “$”")
    assert page.locator(".lmhead-lens img, .lmhead-lens b").count() == 0


def test_nothing_went_wrong_on_the_page_and_nobody_else_was_asked(lab):
    assert lab.errors == []
    assert lab.strangers == []
