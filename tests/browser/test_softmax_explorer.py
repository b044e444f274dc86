"""The softmax explorer in a real JupyterLab: its bars dragged and typed, its two forms of softmax read."""

import pytest

from tests.browser.written import expect_sentence, opened

pytestmark = pytest.mark.browser

CELL = "course.SoftmaxExplorer(torch.tensor([1.0, 2.0, 3.0]), labels=['<b>bold</b>', '$x$', 'c'])"


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "softmax_explorer", CELL) as lab:
        lab.page.locator(".lmhead-softmax .range").first.wait_for(timeout=60_000)
        yield lab


@pytest.fixture
def page(lab):
    yield lab.page
    lab.page.get_by_role("button", name="reset", exact=True).click()
    expect_sentence(lab.page, "“c” has 66.52 %")


def column(page, name):
    return page.locator(f".lmhead-softmax td.{name}").all_inner_texts()


def test_dragging_a_bar_with_the_mouse_moves_every_probability(page):
    before = column(page, "stable")
    box = page.get_by_label("logit of c", exact=True).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2, steps=10)
    page.mouse.up()
    expect_sentence(page, "“$x$” has")
    assert all(new != old for new, old in zip(column(page, "stable"), before, strict=True))


def test_an_arrow_key_moves_a_logit_by_one_step(page):
    page.get_by_label("logit of c", exact=True).press("ArrowRight")
    expect_sentence(page, "“c” has 67.63 %")
    assert page.get_by_label("logit of c, number", exact=True).input_value() == "3.05"


def test_a_logit_of_three_decimals_is_read_in_full_in_its_box(page):
    box = page.get_by_label("logit of c, number", exact=True)
    box.fill("-110.125")
    box.press("Enter")
    expect_sentence(page, "“$x$” has")
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") == 0


def test_a_constant_that_overflows_float16_breaks_the_naive_form_alone(page):
    page.get_by_label("number format", exact=True).select_option("float16")
    box = page.get_by_label("add to all: c", exact=True)
    box.fill("20")
    box.press("Enter")
    page.locator(".lmhead-softmax td.broken").nth(2).wait_for(timeout=20_000)
    assert column(page, "stable")[2].startswith("66.5")
    page.get_by_label("number format", exact=True).select_option("float32")


def test_a_marked_token_is_penalised(page):
    penalty = page.get_by_label("penalty θ", exact=True)
    penalty.fill("2")
    penalty.press("Enter")
    page.get_by_label("c has been said", exact=True).check()
    expect_sentence(page, "“$x$” has")


def test_labels_are_text_and_never_markup(page):
    assert page.locator(".lmhead-softmax .label").all_inner_texts() == ["<b>bold</b>", "$x$", "c"]
    assert page.locator(".lmhead-softmax b").count() == 0


def test_the_page_asks_nobody_else_and_logs_no_error(lab):
    assert (lab.errors, lab.strangers) == ([], [])
