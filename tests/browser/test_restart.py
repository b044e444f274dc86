"""A kernel that is restarted in the middle of a drag: the page stays whole, and a new run works."""

import pytest

from tests.browser.written import opened

pytestmark = pytest.mark.browser

CELL = "explorer = course.SamplingExplorer(logits=toy.toy_logits(), labels=toy.LABELS)\nexplorer"
RESTART = "() => { window.restarted = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"


@pytest.fixture(scope="module")
def lab(server, browser):
    with opened(server, browser, "restart", CELL) as lab:
        yield lab


def handle_of(lab):
    """Return where the middle of the temperature slider's handle is."""
    handle = lab.page.locator(".lmhead-explorer .lmhead-slider .noUi-handle").first
    handle.wait_for(timeout=60_000)
    box = handle.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(lab, restart=False):
    """Drag the temperature up in twenty moves, with a restart of the kernel after the tenth."""
    x, y = handle_of(lab)
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    for step in range(20):
        lab.page.mouse.move(x + 2 * step, y)
        if restart and step == 10:
            lab.page.evaluate(RESTART)
    lab.page.mouse.up()


def first_chance(lab):
    return lab.page.locator(".lmhead-tokens .final .figure").first.inner_text()


def test_a_restart_in_the_middle_of_a_drag_leaves_a_page_that_works_again_once_it_is_run(lab):
    before = first_chance(lab)
    drag(lab, restart=True)
    lab.page.evaluate("() => window.restarted")
    lab._wait_for_kernel()
    lab.run_all()
    assert first_chance(lab) == before
    drag(lab)
    for _ in range(50):
        if first_chance(lab) != before:
            break
        lab.page.wait_for_timeout(100)
    assert first_chance(lab) != before
    assert lab.page.locator(".lmhead-tokens .error").first.is_hidden()
    lab.screenshot("restart")


def test_nothing_else_went_wrong_on_the_page(lab):
    # JupyterLab itself says so when a message was on its way to a kernel that is gone.
    ours = [error for error in lab.errors if "Kernel" not in error and "Canceled" not in error]
    assert (ours, lab.strangers) == ([], [])
