"""The projection explorer in a real JupyterLab: its tip dragged, its words typed, its table read."""

import pytest

from tests.browser.written import expect_sentence, opened, sentence

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(server, browser):
    cell = "course.ProjectionExplorer(course.load_model(), tokens=('Paris', 'London', 'the', '#5'))"
    with opened(server, browser, "projection_explorer", cell) as lab:
        lab.page.locator(".lmhead-plane .tip").wait_for(timeout=60_000)
        lab.page.locator(".lmhead-projection").scroll_into_view_if_needed()
        yield lab


@pytest.fixture
def page(lab):
    yield lab.page
    lab.page.get_by_role("button", name="reset", exact=True).click()
    expect_sentence(lab.page, "layer 30. Its shadow")


def rows(page):
    lines = page.locator(".lmhead-plane tbody tr")
    return lines.evaluate_all("all => all.map(line => [...line.children].map(cell => cell.innerText))")


def text_box(page, name):
    return page.locator(".lmhead-projection .widget-text", has_text=name).locator("input")


def test_the_table_begins_with_the_models_own_answer(page):
    assert rows(page)[0][:2] == ["␣Paris", "17.37"]
    assert [cells[0] for cells in rows(page)][-1] == "<file_sep>"


def test_no_name_covers_the_tip_of_an_arrow(page):
    box = text_box(page, "tokens")
    box.fill("Paris, London, Rome, Berlin, the, France, dog")  # Rome and France end side by side
    box.press("Enter")
    page.locator(".lmhead-plane svg .name", has_text="␣France").wait_for()
    covered = page.locator(".lmhead-plane svg").evaluate("""svg => {
        const names = [...svg.querySelectorAll(".name:not(.hidden-name)")].map(name => name.getBBox());
        const tips = [...svg.querySelectorAll("line.token")].map(({ x2, y2 }) => [x2.baseVal.value, y2.baseVal.value]);
        const over = (box, [x, y]) =>
            box.x < x + 2 && x - 2 < box.x + box.width && box.y < y + 2 && y - 2 < box.y + box.height;
        return tips.filter(tip => names.some(box => over(box, tip))).length;
    }""")
    assert covered == 0


def test_dragging_the_tip_to_the_left_makes_london_win(page):
    box = page.locator(".lmhead-plane .tip").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 140, y, steps=20)
    page.mouse.up()
    expect_sentence(page, "“␣London”")
    assert "moved from there" in sentence(page)
    assert rows(page)[0][0] == "␣London"


def test_the_arrow_keys_move_the_tip_and_not_the_notebook(page):
    tip = page.locator(".lmhead-plane .tip")
    tip.focus()
    for _ in range(5):
        page.keyboard.press("ArrowUp")
    expect_sentence(page, "moved from there by (0.00, 0.5")
    assert tip.evaluate("tip => tip === document.activeElement")


def test_a_layer_typed_in_its_box_moves_the_tip_along_its_way(page):
    box = page.get_by_label("after layer", exact=True)
    box.fill("0")
    box.press("Enter")
    expect_sentence(page, "the embedding")
    assert (
        page.locator(".lmhead-plane .tip.away").count() == 1
    )  # far below the picture, drawn hollow at its edge


def test_an_axis_that_is_no_token_is_an_error_in_words_and_text_only(page):
    box = text_box(page, "axis across")
    box.fill("<img src=x onerror=alert(1)>")
    box.press("Enter")
    error = page.locator(".lmhead-projection .error")
    error.get_by_text("is not one token").wait_for()
    assert page.locator(".lmhead-projection img").count() == 0
    assert page.locator(".lmhead-plane.stale").count() == 1


def test_a_token_is_found_and_shown(page):
    text_box(page, "search").fill("queen")
    show = page.get_by_role("button", name="show this token")
    page.wait_for_function(
        "() => document.querySelectorAll('.lmhead-projection select option').length > 0", timeout=20_000
    )
    show.click()
    page.locator(".lmhead-plane tbody .label", has_text="␣queen").wait_for()
    page.locator(".lmhead-plane svg .name", has_text="␣queen").wait_for()


def test_every_slider_handle_has_a_name(page):
    handles = page.locator(".lmhead-projection .noUi-handle")
    names = handles.evaluate_all("all => all.map(handle => handle.getAttribute('aria-label'))")
    assert names == ["after layer slider", "across slider", "up slider"]


def test_the_page_asks_nobody_else_and_logs_no_error(lab):
    assert lab.strangers == []
    assert lab.errors == []
