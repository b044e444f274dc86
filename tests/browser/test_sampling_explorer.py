"""The sampling notebook in a real JupyterLab, moved by a real mouse and a real keyboard."""

import re

import pytest

from lmhead_course import SamplingParams, process_logits
from lmhead_course.explorers.token_table import percent
from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

NOTEBOOK = "03_sampling.ipynb"
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def page(server, browser):
    """The notebook, run from top to bottom, with its first explorer in view; what it did is checked at the end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    lab = Lab(context.new_page(), server)
    lab.open(NOTEBOOK)
    lab.run_all()
    lab.page.locator(".lmhead-explorer").first.wait_for(timeout=60_000)
    yield ExplorerPage(lab)
    context.close()


class ExplorerPage:
    """The first sampling explorer of the open notebook, as a learner finds it on the page."""

    def __init__(self, lab):
        self.lab = lab
        self.page = lab.page
        self.root = lab.page.locator(".lmhead-explorer").first

    def show(self):
        """Scroll so that the explorer's top stands below the toolbar."""
        self.root.evaluate("element => element.scrollIntoView({block: 'start'})")
        self.page.wait_for_timeout(400)
        return self

    def reset(self):
        self.root.get_by_role("button", name="reset").click()
        self.expect_shown(SamplingParams())

    def handle(self, name):
        return self.root.get_by_role("slider", name=re.compile(re.escape(name)))

    def box(self, name):
        return self.root.locator(".lmhead-slider", has_text=name).locator("input")

    def number(self, name):
        return float(self.box(name).input_value())

    def type(self, name, text):
        self.box(name).fill(text)
        self.box(name).press("Enter")

    def drag(self, name, share):
        """Drag a slider's handle to a share of its track, in a few steps, as a hand does."""
        handle = self.handle(name)
        handle.scroll_into_view_if_needed()
        start, track = (
            handle.bounding_box(),
            handle.locator("xpath=ancestor::*[contains(@class, 'noUi-target')]"),
        )
        x, y = start["x"] + start["width"] / 2, start["y"] + start["height"] / 2
        line = track.bounding_box()
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(line["x"] + share * line["width"], y, steps=8)
        self.page.mouse.up()

    def rows(self):
        """Return what stands in the table, line by line."""
        return self.root.locator(".lmhead-tokens tbody tr").evaluate_all(
            "lines => lines.map(line => [...line.children].map(cell => cell.innerText.trim()))"
        )

    def expect_shown(self, params):
        """Wait until the page shows these settings' figures, computed here; fail with what it shows instead."""
        expected = expected_rows(self.lm, self.logits, params)
        for _ in range(100):
            if same(self.rows(), expected):
                return
            self.page.wait_for_timeout(100)
        assert self.rows() == expected


def same(shown, expected):
    """Compare two tables, with one unit in the last place left to rounding."""
    return len(shown) == len(expected) and all(
        cell == wanted
        or abs(figure(cell) - figure(wanted)) < 1.01 * 10 ** -len(wanted.partition(".")[2][:-2])
        for line, wanted_line in zip(shown, expected, strict=True)
        for cell, wanted in zip(line, wanted_line, strict=True)
    )


def figure(text):
    """Return the number of a percentage, NaN (which equals nothing) for any other text."""
    found = re.fullmatch(r"([\d.]+) %", text)
    return float(found[1]) if found else float("nan")


def expected_rows(lm, logits, params):
    """Return the table's lines, computed from nothing but the model's logits."""
    raw, processed = logits.softmax(-1), process_logits(logits, params)
    final = processed.softmax(-1)
    best = logits.sort(descending=True, stable=True).indices[:30].tolist()
    return [
        [
            str(rank),
            lm.label(token),
            percent(float(raw[token])),
            "✕ dropped" if processed[token].isneginf() else percent(float(final[token])),
        ]
        for rank, token in enumerate(best, start=1)
    ]


@pytest.fixture
def explorer(page, lm):
    """The explorer, in view and at its first settings."""
    page.lm, page.logits = lm, lm.logits(PROMPT)
    page.page.set_viewport_size({"width": 1280, "height": 900})
    page.show().reset()
    return page


def test_the_notebook_shows_the_live_distribution(explorer):
    rows = explorer.rows()
    assert len(rows) == 30
    assert rows[0] == ["1", "␣Paris", "77.25 %", "77.25 %"]


def test_dragging_the_temperature_with_the_mouse_changes_every_figure(explorer):
    explorer.drag("temperature", 0.8)
    explorer.page.wait_for_timeout(500)
    temperature = explorer.number("temperature")
    assert temperature == pytest.approx(1.6, abs=0.1)
    explorer.expect_shown(SamplingParams(temperature=temperature))


def test_dragging_top_p_with_the_mouse_drops_tokens(explorer):
    explorer.drag("top-p", 0.9)
    explorer.page.wait_for_timeout(500)
    top_p = explorer.number("top-p")
    assert top_p == pytest.approx(0.9, abs=0.05)
    explorer.expect_shown(SamplingParams(top_p=top_p))
    assert explorer.rows()[-1][-1] == "✕ dropped"


@pytest.mark.parametrize(("name", "field"), [("temperature", "temperature"), ("top-p", "top_p")])
def test_the_arrow_keys_move_a_slider_by_one_step_each(explorer, name, field):
    explorer.handle(name).focus()
    for presses in range(1, 6):
        explorer.page.keyboard.press("ArrowLeft")
        explorer.expect_shown(SamplingParams(**{field: round(1 - presses / 100, 2)}))
    assert explorer.number(name) == 0.95
    assert explorer.handle(name).get_attribute("aria-valuetext") == "0.95"


def test_top_k_is_off_at_its_end_and_walks_down_from_the_whole_vocabulary(explorer):
    explorer.handle("top-k").focus()
    assert explorer.handle("top-k").get_attribute("aria-valuetext") == "off"
    explorer.page.keyboard.press("Home")
    explorer.expect_shown(SamplingParams(top_k=1))
    for _ in range(3):
        explorer.page.keyboard.press("ArrowRight")
    explorer.expect_shown(SamplingParams(top_k=4))
    assert explorer.number("top-k") == 4


def test_a_number_typed_in_a_box_reaches_beyond_the_slider(explorer):
    explorer.type("temperature", "3.5")
    explorer.expect_shown(SamplingParams(temperature=3.5))
    explorer.page.wait_for_timeout(300)
    assert explorer.number("temperature") == 3.5


def test_a_typed_prompt_is_read_and_its_markup_stays_text(explorer):
    prompt = explorer.root.locator("textarea").first
    prompt.fill("<script>alert(1)</script> $x$ <b>")
    status = explorer.root.locator(".status")
    explorer.page.wait_for_function(
        "node => /read 1\\d tokens/.test(node.innerText)", arg=status.element_handle()
    )
    assert (
        explorer.root.locator(".lmhead-tokens script, .lmhead-tokens b, .lmhead-tokens mjx-container").count()
        == 0
    )
    assert explorer.root.locator(".error").is_hidden()


def test_sampling_appends_the_token_and_marks_where_it_fell(explorer):
    explorer.type("top-k", "5")
    explorer.expect_shown(SamplingParams(top_k=5))
    explorer.root.get_by_role("button", name="sample").click()
    explorer.root.locator("tr.drawn").wait_for(timeout=5000)
    explorer.root.locator("tr.drawn").wait_for(state="detached", timeout=10_000)
    assert explorer.root.locator(".draw").inner_text().startswith("Drawn: “")
    prompt = explorer.root.locator("textarea").first.input_value()
    assert prompt.startswith(PROMPT)
    assert len(prompt) > len(PROMPT)


def test_the_table_is_a_table_and_the_sentence_is_announced_when_it_settles(explorer):
    table = explorer.root.locator("table")
    assert table.locator("caption").inner_text().startswith("The 30 most likely of 49,152 tokens")
    assert table.locator("thead th[scope=col]").count() == 4
    assert table.locator("tbody th[scope=row]").count() == 30
    explorer.handle("temperature").press("ArrowLeft")
    sentence = explorer.root.locator(".sentence[aria-live=polite]")
    explorer.page.wait_for_function("node => node.ariaBusy === 'false'", arg=sentence.element_handle())
    assert "tokens can be drawn" in sentence.inner_text()


def test_nothing_moves_but_bars_and_figures_while_a_slider_is_dragged(explorer):
    parts = ["table", ".readouts", ".status", ".noUi-target", "button"]
    before = [explorer.root.locator(part).first.bounding_box() for part in parts]
    for share in (0.02, 0.3, 0.7, 0.99):
        explorer.drag("temperature", share)
        explorer.drag("top-p", 1.02 - share)
        explorer.page.wait_for_timeout(400)
        assert [explorer.root.locator(part).first.bounding_box() for part in parts] == before


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off_in_either_theme_at_either_width(explorer, theme, width):
    explorer.lab.theme(theme)
    explorer.page.set_viewport_size({"width": width, "height": 900})
    explorer.drag("temperature", 0.65)
    explorer.drag("top-p", 0.6)
    explorer.show()
    explorer.page.wait_for_timeout(500)
    explorer.lab.screenshot(f"sampling-{theme}-{width}")
    explorer.root.locator("table").evaluate("element => element.scrollIntoView({block: 'end'})")
    explorer.page.wait_for_timeout(300)
    explorer.lab.screenshot(f"sampling-{theme}-{width}-table")
    explorer.lab.theme("light")
    cut = explorer.root.evaluate(
        """root => [...root.querySelectorAll('label, button, th, td, .figure, dt, dd, p, caption')]
            .filter(node => node.offsetParent && !node.matches('th.token') && node.scrollWidth > node.clientWidth + 1)
            .map(node => node.innerText)"""
    )
    assert cut == []
    box = explorer.root.bounding_box()
    assert explorer.root.evaluate("root => root.scrollWidth <= root.clientWidth + 1")
    assert box["x"] + box["width"] <= width


def test_the_page_had_no_errors_and_asked_no_other_machine(page):
    assert page.lab.errors == []
    assert page.lab.strangers == []
