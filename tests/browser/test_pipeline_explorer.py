"""The pipeline explorer in a real JupyterLab: cards dragged by a real mouse and moved by a real keyboard."""

import re

import pytest

from tests.browser.written import opened

pytestmark = pytest.mark.browser

CELL = """
labels = ["<b>bold</b>", "$x$", *map(str, range(2, 200))]
logits = 3 * torch.randn(200, generator=torch.Generator().manual_seed(4))
explorer = course.PipelineExplorer(logits=logits, labels=labels)
explorer
"""
HF = ["temperature", "top-k", "top-p", "min-p"]


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "pipeline_explorer", CELL) as lab:
        lab.page.locator(".lmhead-stages li").first.wait_for(timeout=60_000)
        lab.page.locator(".lmhead-stages").evaluate("element => element.scrollIntoView({block: 'center'})")
        yield lab


@pytest.fixture
def page(lab):
    """The page, back in the order of hf and with its first settings."""
    lab.page.locator(".jp-OutputArea select").first.select_option("llama.cpp")
    lab.page.locator(".jp-OutputArea select").first.select_option("hf")
    box(lab.page, "top-k").fill("50")
    expect_order(lab.page, HF)
    return lab.page


def order(page):
    titles = page.locator(".lmhead-stages .title").all_inner_texts()
    return [title.partition(" ")[0] for title in titles]


def expect_order(page, wanted):
    """Wait until the cards stand in an order and the sentence has followed."""
    for _ in range(50):
        if order(page) == wanted:
            return
        page.wait_for_timeout(100)
    assert order(page) == wanted


def box(page, name):
    return page.get_by_role("spinbutton", name=re.compile(f"^{name}"))


def sentence(page):
    page.wait_for_timeout(700)
    return page.locator(".lmhead-tokens .sentence").first.inner_text()


def drag(page, name, beside, offset):
    """Drag a card's title until the pointer is ``offset`` pixels from the top of another card."""
    cards = page.locator(".lmhead-stages li")
    handle = cards.filter(has_text=name).locator(".handle").bounding_box()
    goal = cards.filter(has_text=beside).bounding_box()
    page.mouse.move(handle["x"] + 30, handle["y"] + 8)
    page.mouse.down()
    page.mouse.move(handle["x"] + 35, goal["y"] + offset, steps=10)
    page.mouse.up()


def test_a_card_dragged_to_the_end_is_the_last_stage(page):
    assert sentence(page).endswith("no token changes its fate.")
    drag(page, "temperature", "min-p", 80)
    expect_order(page, ["top-k", "top-p", "min-p", "temperature"])
    assert "change their fate" in sentence(page)
    assert page.locator(".jp-OutputArea select").first.input_value() == "llama.cpp"


def test_a_card_dragged_to_the_top_is_the_first_stage(page):
    drag(page, "min-p", "temperature", 5)
    expect_order(page, ["min-p", "temperature", "top-k", "top-p"])


def test_escape_puts_a_dragged_card_back(page):
    cards = page.locator(".lmhead-stages li")
    handle = cards.first.locator(".handle").bounding_box()
    page.mouse.move(handle["x"] + 30, handle["y"] + 8)
    page.mouse.down()
    page.mouse.move(handle["x"] + 30, handle["y"] + 250, steps=8)
    assert order(page) != HF
    page.keyboard.press("Escape")
    page.mouse.up()
    expect_order(page, HF)


def test_the_keyboard_moves_a_card_and_keeps_the_focus_on_its_button(page):
    later = page.get_by_role("button", name="move temperature later")
    later.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    expect_order(page, ["top-k", "top-p", "temperature", "min-p"])
    assert later.evaluate("button => button === document.activeElement")


def test_a_move_is_told_to_screen_readers(page):
    page.get_by_role("button", name="move temperature later").click()
    expect_order(page, ["top-k", "temperature", "top-p", "min-p"])
    assert page.locator(".lmhead-stages [aria-live]").inner_text() == "temperature is now stage 2 of 4"


def test_a_number_typed_in_a_card_changes_what_it_keeps(page):
    box(page, "top-k").fill("3")
    page.wait_for_timeout(700)
    card = page.locator(".lmhead-stages li").filter(has_text="top-k")
    assert card.locator(".text").inner_text().startswith("keeps 3 of 200 tokens")


def test_the_arrow_keys_move_a_slider(page):
    slider = page.get_by_role("slider", name="temperature slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(500)
    assert box(page, "temperature").input_value() == "1.51"
    page.keyboard.press("ArrowLeft")


def test_labels_are_text_and_never_markup(page):
    shown = page.locator(".lmhead-fates .label").all_inner_texts()
    assert {"<b>bold</b>", "$x$"} & set(shown)
    assert page.locator(".lmhead-fates b, .lmhead-fates mjx-container").count() == 0


@pytest.mark.parametrize("width", [800, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_the_page_in_both_themes(lab, page, theme, width):
    page.set_viewport_size({"width": width, "height": 1000})
    lab.theme(theme)
    page.locator(".lmhead-stages").evaluate("element => element.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(500)
    lab.screenshot(f"pipeline-{theme}-{width}")
    wide = "nodes => nodes.filter(node => node.scrollWidth > node.clientWidth + 1).length"
    assert page.locator(".lmhead-stages, .lmhead-stages li, .lmhead-fates").evaluate_all(wide) == 0
    page.set_viewport_size({"width": 1280, "height": 1000})


def test_nothing_went_wrong_on_the_page(lab):
    assert (lab.errors, lab.strangers) == ([], [])
