"""The script of every widget of ours, taken by a browser as the module that it is."""

import anywidget
import pytest

import lmhead_course.explorers  # noqa: F401  (every widget of ours is then known)
from lmhead_course.explorers.plot import PlotlyLibrary

pytestmark = pytest.mark.browser

WIDGETS = [
    widget
    for widget in anywidget.AnyWidget.__subclasses__()
    if widget.__module__.startswith("lmhead_course") and widget is not PlotlyLibrary  # which is data alone
]
IMPORT = """async source => {
    const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
    return typeof (await import(url)).default.render;
}"""


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


@pytest.mark.parametrize("widget", WIDGETS, ids=lambda widget: widget.__name__)
def test_the_script_of_a_widget_is_a_module_that_draws(page, widget):
    assert page.evaluate(IMPORT, str(widget._esm)) == "function"


def test_a_script_that_is_no_module_is_seen(page):
    from playwright.sync_api import Error

    with pytest.raises(Error, match="SyntaxError"):
        page.evaluate(IMPORT, "export default { render: function ( }")
