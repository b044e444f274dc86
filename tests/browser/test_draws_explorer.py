"""The draws explorer in a real JupyterLab: its buttons clicked, its pictures drawn by plotly on the page."""

import pytest

from tests.browser.written import opened

pytestmark = pytest.mark.browser

# Two of them: all plots of a page share one plotly.js.
CELLS = (
    "course.DrawsExplorer(logits=toy.toy_logits(), labels=['<b>bold</b>', '$x$', *toy.LABELS[2:]])",
    "course.DrawsExplorer(logits=torch.zeros(3000))",
)


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "draws_explorer", *CELLS) as lab:
        lab.page.locator(".js-plotly-plot .barlayer path").first.wait_for(state="attached", timeout=60_000)
        button(lab.page, "draw 1").scroll_into_view_if_needed()
        yield lab


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).first


def readouts(page):
    """Return the figures of the first explorer, by name."""
    pairs = page.locator(".lmhead-tokens .readouts").first.locator("div")
    return dict(
        pairs.evaluate_all("all => all.map(pair => [...pair.children].map(child => child.innerText))")
    )


def expect_draws(page, text):
    for _ in range(100):
        if readouts(page)["draws"] == text:
            return
        page.wait_for_timeout(100)
    assert readouts(page)["draws"] == text


def test_clicks_draw_and_reset_forgets(lab):
    page = lab.page
    expect_draws(page, "0")
    for name, total in (("draw 1", "1"), ("draw 100 more", "101"), ("draw 10,000 more", "10,101")):
        button(page, name).click()
        expect_draws(page, total)
    assert readouts(page)["chi-square"].endswith("(4 df)")
    button(page, "reset").click()
    expect_draws(page, "0")


def test_the_bars_follow_the_draws(lab):
    page = lab.page
    bars = "document.querySelector('.js-plotly-plot').calcdata[0].map(bar => bar.s)"
    button(page, "draw 100 more").click()
    expect_draws(page, "100")
    page.wait_for_timeout(500)
    assert sum(page.evaluate(bars)) == pytest.approx(100)
    button(page, "reset").click()
    expect_draws(page, "0")


def test_the_keyboard_reaches_the_buttons(lab):
    button(lab.page, "draw 1").focus()
    lab.page.keyboard.press("Space")
    expect_draws(lab.page, "1")
    button(lab.page, "reset").click()
    expect_draws(lab.page, "0")


def test_every_explorer_has_both_plots(lab):
    lab.page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 8")
    assert lab.page.locator(".js-plotly-plot").count() == 4


def test_labels_are_text_and_never_markup(lab):
    names = lab.page.locator(".js-plotly-plot").first.locator(".xtick text").all_text_contents()
    assert {"<b>bold</b>", "$x$"} <= set(names)


@pytest.mark.parametrize("width", [800, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_plots_fit_the_page_in_both_themes(lab, theme, width):
    page = lab.page
    page.set_viewport_size({"width": width, "height": 1000})
    lab.theme(theme)
    button(page, "draw 10,000 more").click()
    page.wait_for_timeout(1500)
    lab.screenshot(f"draws-{theme}-{width}")
    wide = "nodes => nodes.filter(n => n.getBoundingClientRect().right > innerWidth).length"
    assert page.locator(".js-plotly-plot .main-svg").evaluate_all(wide) == 0
    page.set_viewport_size({"width": 1280, "height": 1000})


def test_nothing_went_wrong_on_the_page(lab):
    assert (lab.errors, lab.strangers) == ([], [])
