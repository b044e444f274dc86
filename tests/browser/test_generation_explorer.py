"""The generation explorer in a real JupyterLab: a tree grown by a real mouse and a real keyboard."""

import pytest

from tests.browser.written import opened

pytestmark = pytest.mark.browser

CELL = """
import sys
sys.path.insert(0, "REPOSITORY")
from tests.tiny_lm import TinyLM
lm = TinyLM(["<b>", "$x$", " a", " the", " sea", " incomprehensibilities", ".", "no"], context_length=500)
explorer = course.GenerationExplorer(lm, prompt=" the sea")
explorer
"""


@pytest.fixture(scope="module")
def lab(server, browser):
    from tests.browser.lab import REPOSITORY

    with opened(server, browser, "generation_explorer", CELL.replace("REPOSITORY", str(REPOSITORY))) as lab:
        lab.page.locator(".lmhead-tree .choice").first.wait_for(timeout=60_000)
        lab.page.locator(".lmhead-tree").evaluate("element => element.scrollIntoView({block: 'start'})")
        yield lab


@pytest.fixture
def page(lab):
    """The page, its tree empty again."""
    lab.page.get_by_role("button", name="reset", exact=True).click()
    expect_tokens(lab.page, 0)
    return lab.page


def tokens(page):
    return page.locator(".lmhead-tree .token .label").all_inner_texts()


def expect_tokens(page, count):
    for _ in range(80):
        if len(tokens(page)) == count:
            return
        page.wait_for_timeout(100)
    assert len(tokens(page)) == count


def test_a_click_on_a_candidate_takes_it(page):
    name = page.locator(".choice .label").nth(1).inner_text()
    page.locator(".choice").nth(1).click()
    expect_tokens(page, 1)
    assert tokens(page) == [name]


def test_a_click_on_a_token_shows_its_step_and_another_candidate_makes_a_branch(page):
    page.get_by_role("button", name="draw 10", exact=True).click()
    expect_tokens(page, 10)
    page.locator(".lmhead-tree .token").nth(2).click()
    page.locator(".lmhead-tree .token.marked").wait_for()
    assert page.locator(".lmhead-tokens tr.drawn").count() == 1
    page.locator(".choice", has_not_text="✓").first.click()
    expect_tokens(page, 11)
    assert page.locator(".lmhead-tree .line").count() == 3


def test_the_keyboard_alone_grows_a_tree_and_keeps_the_focus(page):
    page.locator(".choice").first.focus()
    for count in (1, 2, 3):
        page.keyboard.press("Enter")
        expect_tokens(page, count)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect_tokens(page, 4)
    assert page.evaluate("document.activeElement.dataset.key") == "choice-1"


def test_arrow_keys_walk_along_the_tree(page):
    page.get_by_role("button", name="draw 10", exact=True).click()
    expect_tokens(page, 10)
    page.locator(".lmhead-tree .token").nth(4).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.locator(".lmhead-tree .token.marked").wait_for()
    assert page.evaluate("document.activeElement.dataset.key") == "node-4"
    assert page.locator(".lmhead-tree .lines button[tabindex='0']").count() == 1


def test_tokens_are_text_and_never_markup(page):
    assert {"<b>", "$x$"} <= set(page.locator(".choice .label").all_inner_texts())
    assert page.locator(".lmhead-tree b").count() == 0


def test_a_long_candidate_stays_on_one_line(page):
    chips = """() => {
      const all = [...document.querySelectorAll(".lmhead-tree .choice .label")];
      return all.length === 8 && all.map(one => [one.innerText, one.getBoundingClientRect().height]);
    }"""  # in one look: a reset takes them away for a moment
    names, heights = zip(*page.wait_for_function(chips).json_value(), strict=True)
    assert "incomprehensibilities" in names
    assert len(set(heights)) == 1


def settled(page, expression: str) -> float:
    """Return a number of the page once it has stayed the same for half a second."""
    last = None
    for _ in range(20):
        last, before = page.evaluate(expression), last
        if last == before:
            break
        page.wait_for_timeout(500)
    return last


def test_nothing_below_the_tree_jumps_when_it_grows(page):
    top = "document.querySelector('.lmhead-panel').getBoundingClientRect().top + scrollY"
    before = settled(page, top)  # a busy machine still lays out the page when its first rows are there
    page.get_by_role("button", name="draw 10", exact=True).click()
    expect_tokens(page, 10)
    assert page.evaluate(top) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("width", [800, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_the_page_in_both_themes(lab, page, theme, width):
    page.set_viewport_size({"width": width, "height": 1000})
    lab.theme(theme)
    page.get_by_role("button", name="draw 10", exact=True).click()
    expect_tokens(page, 10)
    lab.screenshot(f"generation-{theme}-{width}")
    wide = "nodes => nodes.filter(n => n.getBoundingClientRect().right > innerWidth).length"
    assert page.locator(".lmhead-tree, .lmhead-tree button").evaluate_all(wide) == 0
    page.set_viewport_size({"width": 1280, "height": 1000})


def test_nothing_went_wrong_on_the_page(lab):
    assert (lab.errors, lab.strangers) == ([], [])
