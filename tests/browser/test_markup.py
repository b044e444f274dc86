"""Every explorer, every figure and every HTML of ours in a real JupyterLab, with a vocabulary full of markup."""

import pytest

import lmhead_course.explorers
from tests.browser.written import opened
from tests.foreign import LABELS, SHOWN, TEXTS

pytestmark = pytest.mark.browser

EXPLORERS = sorted(name for name in lmhead_course.explorers.__all__ if name.endswith("Explorer"))
READ = [SHOWN[label] for label in LABELS if label != " "]
# What is to be read where not every label has room.
EXPECTED = {
    "CostExplorer": [TEXTS[0]],
    "LensExplorer": [TEXTS[0], *(text[:4] + "…" for text in READ if len(text) > 5)],
    "TyingExplorer": [READ[place] for place in (0, 2, 9)],
    "FIGURES": [SHOWN[text] for text in TEXTS],
    "PAGES": [SHOWN[text] for text in TEXTS],
}
START = """
import sys
sys.path.insert(0, "REPOSITORY")
from IPython.display import display
from tests.foreign import explorers
from tests.test_escaping import FIGURES, PAGES
shown = explorers()
"""
FIGURES = "for name, make in FIGURES.items():\n    print(name)\n    display(make())"
CONTROL = "from IPython.display import HTML\nHTML('<p>$x^2$</p><b>b</b><img src=x onerror=window.noticed=1>')"
PAGES = "for name, make in PAGES.items():\n    print(name)\n    display(make())"

# Elements that only a text read as markup could have brought in. ipywidgets and plotly make none of these.
STRANGERS = """outputs => outputs.flatMap(output => [
  ...output.querySelectorAll("script, img[src='x'], [onerror], b, i:not(.fa), sup, h1, mjx-container, .MathJax"),
  ...[...output.querySelectorAll("a")].filter(a => /script/i.test(a.outerHTML)),
].map(element => element.outerHTML.slice(0, 200)))"""
# A text of plotly's stands in several tspans; hidden titles and options of a list count as seen too.
SEEN = """(outputs, texts) => {
  const seen = outputs.map(output => output.textContent + [...output.querySelectorAll("[title]")].map(e => e.title));
  return texts.filter(text => !seen.some(one => one.includes(text)));
}"""


@pytest.fixture(scope="module")
def lab(server, browser):
    from tests.browser.lab import REPOSITORY

    cells = [START.replace("REPOSITORY", str(REPOSITORY)), *(f"shown[{name!r}]" for name in EXPLORERS)]
    with opened(server, browser, "markup", *cells, FIGURES, PAGES, CONTROL) as lab:
        yield lab


def output(lab, name):
    """Return the output of an explorer, or of FIGURES, PAGES or CONTROL, scrolled to and drawn."""
    place = [*EXPLORERS, "FIGURES", "PAGES", "CONTROL"].index(name) + 2
    cell = lab.page.locator(".jp-Cell").nth(place)
    cell.scroll_into_view_if_needed()
    found = cell.locator(".jp-OutputArea-output")
    found.first.wait_for(timeout=20_000)
    lab.page.wait_for_timeout(1500)  # plotly, and MathJax if it were to set anything, draw later
    return found


def test_the_explorers_that_are_shown_foreign_text_are_all_there_are():
    from tests.foreign import explorers

    assert sorted(explorers()) == EXPLORERS


@pytest.mark.parametrize("name", [*EXPLORERS, "FIGURES", "PAGES"])
def test_foreign_text_stands_on_the_page_as_it_is_and_makes_no_element(lab, name):
    shown = output(lab, name)
    lab.screenshot(f"markup-{name}")
    assert shown.evaluate_all(SEEN, EXPECTED.get(name, READ)) == []
    assert shown.evaluate_all(STRANGERS) == []
    assert lab.page.evaluate("window.hacked") is None


def test_a_page_that_did_read_markup_would_be_noticed(lab):
    shown = output(lab, "CONTROL")
    lab.page.locator("mjx-container").wait_for(state="attached", timeout=20_000)
    found = shown.evaluate_all(STRANGERS)
    assert [element[:4] for element in found] == ["<mjx", "<b>b", "<img"]
    assert lab.page.evaluate("window.noticed") == 1
    assert shown.evaluate_all(SEEN, ["never written"]) == ["never written"]


def test_nothing_went_wrong_on_the_page(lab):
    assert [error for error in lab.errors if "404" not in error] == []
    assert lab.strangers == []
