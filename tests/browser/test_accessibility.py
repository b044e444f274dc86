"""The course without a mouse, without colours, enlarged, and as a screen reader hears it; docs/accessibility.md."""

import pytest

import lmhead_course.explorers
from tests.browser.axe import grave_findings, show_all_cells
from tests.browser.gallery import EXPLORERS, Gallery
from tests.browser.lab import REPOSITORY, Lab
from tests.browser.written import opened

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted(path.name for path in (REPOSITORY / "notebooks").glob("*.ipynb"))
THEMES = ["light", "dark"]
each_explorer = pytest.mark.parametrize("name", EXPLORERS)


@pytest.fixture(scope="module")
def gallery(server, browser):
    with opened(server, browser, "gallery", *EXPLORERS.values()) as lab:
        lab.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
        show_all_cells(lab.page)
        lab.page.locator(".lmhead").nth(len(EXPLORERS) - 1).wait_for(timeout=60_000)
        lab.page.locator(".lmhead-plot .main-svg").last.wait_for(timeout=60_000)
        lab.page.wait_for_timeout(2000)
        yield Gallery(lab)


@pytest.fixture(scope="module")
def walks(gallery):
    """What the Tab key reaches in every explorer, each walked once."""
    return {name: gallery.walk(name) for name in EXPLORERS}


# The keyboard ---------------------------------------------------------------------------------------------------------


def test_the_gallery_holds_every_explorer():
    assert set(EXPLORERS) == {name for name in lmhead_course.explorers.__all__ if name.endswith("Explorer")}


@each_explorer
def test_the_tab_key_reaches_every_control(walks, name):
    controls, stops = walks[name]
    missed = [html for number, html in enumerate(controls) if number not in {stop.stop for stop in stops}]
    assert controls
    assert missed == []


@each_explorer
def test_every_control_shows_that_it_has_the_focus_and_is_in_view(walks, name):
    assert [stop.html for stop in walks[name][1] if not (stop.ring and stop.inside)] == []


@each_explorer
def test_every_control_has_a_role_and_a_name(walks, name):
    assert [stop for stop in walks[name][1] if not stop.name.strip() or stop.role in ("", "generic")] == []


@each_explorer
def test_no_two_controls_of_a_kind_have_the_same_name(walks, name):
    told = [(stop.role, stop.name) for stop in walks[name][1]]
    assert sorted(told) == sorted(set(told))


@each_explorer
def test_arrow_keys_move_every_slider_and_not_the_notebook(gallery, name):
    page, stuck = gallery.page, []
    handles = gallery.explorer(name).locator("[role=slider], input[type=range]")
    cell = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    for index in range(handles.count()):
        handle = handles.nth(index)
        if not handle.is_visible():
            continue
        value = "node => node.value ?? node.ariaValueText ?? node.ariaValueNow"
        handle.focus()
        before, active = handle.evaluate(value), page.evaluate(cell)
        moved = []
        for key in ("ArrowLeft", "ArrowRight"):  # one of them, at an end
            handle.press(key)
            page.wait_for_timeout(250)
            moved.append(handle.evaluate(value) != before)
        kept = handle.evaluate("node => node === document.activeElement") and page.evaluate(cell) == active
        if not (any(moved) and kept):
            stuck.append(handle.get_attribute("aria-label"))
    assert stuck == []


@each_explorer
def test_arrow_keys_move_every_number_box(gallery, name):
    stuck = []
    boxes = gallery.explorer(name).locator("input[type=number]")
    for index in range(boxes.count()):
        box = boxes.nth(index)
        if not box.is_visible():
            continue
        before, moved = box.input_value(), []
        for key in ("ArrowUp", "ArrowDown"):
            box.press(key)
            moved.append(box.input_value() != before)
        if not any(moved):
            stuck.append(box.evaluate("box => box.outerHTML"))
    assert stuck == []


def test_the_folded_penalties_open_with_the_keyboard(gallery):
    root = gallery.explorer("SamplingExplorer")
    title = root.locator(".jupyter-widget-Collapse-header")
    title.press("Enter")
    root.get_by_label("repetition", exact=True).wait_for(timeout=5000)
    title.press("Enter")
    root.get_by_label("repetition", exact=True).wait_for(state="hidden", timeout=5000)


# What a screen reader hears -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=THEMES)
def theme(gallery, request):
    gallery.lab.theme(request.param)
    gallery.page.wait_for_timeout(500)
    yield request.param
    gallery.lab.theme("light")


def test_axe_finds_nothing_grave_in_any_explorer(gallery, theme):
    assert grave_findings(gallery.page, [[".jp-OutputArea-output"]]) == []


OPEN = """async path => {
    const widget = await window.jupyterapp.commands.execute("docmanager:open", { path });
    await widget.context.ready;
    await widget.revealed;
}"""
CLOSE = """async () => {
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.sessionContext.shutdown();
    widget.dispose();
}"""


@pytest.fixture(scope="module")
def reader(server, browser):
    """One page for all notebooks: a page of its own for each would take three times as long."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(f"{server.url}/lab?reset&token={server.token}")
    page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=60_000)
    yield Lab(page, server)
    context.close()


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_axe_finds_nothing_grave_in_the_prose_and_outputs_of_a_notebook(reader, notebook):
    reader.page.evaluate(OPEN, notebook)
    show_all_cells(reader.page)
    assert reader.page.locator(".jp-MarkdownOutput").count() > 10
    found = []
    for theme in THEMES:
        reader.theme(theme)
        found += grave_findings(reader.page)
    reader.page.evaluate(CLOSE)
    assert found == []


def test_axe_sees_a_control_without_a_name_and_words_too_faint_to_read(gallery):
    gallery.page.evaluate(
        """() => document.querySelector(".lmhead").insertAdjacentHTML("beforeend",
            "<div class=bad><input><p style='color: #999; background: #fff'>faint</p></div>")"""
    )
    found = grave_findings(gallery.page, [[".bad"]])
    gallery.page.evaluate("document.querySelector('.bad').remove()")
    assert {line.partition(":")[0] for line in found} >= {"label", "color-contrast"}


CONTRASTS = """root => {
    const numbers = (colour) => [...colour.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
    const share = (part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = ([red, green, blue]) => 0.2126 * share(red) + 0.7152 * share(green) + 0.0722 * share(blue);
    // A legend has a ground of its own, which is drawn and so no ancestor of its words.
    const below = (node) => {
        const drawn = node.closest(".legend")?.querySelector("rect.bg");
        const seen = drawn && Number(getComputedStyle(drawn).fillOpacity) > 0;
        return seen ? numbers(getComputedStyle(drawn).fill) : ground(node.closest("svg").parentElement);
    };
    const ground = (node) => {
        const colour = numbers(getComputedStyle(node).backgroundColor);
        return colour[3] === 1 || !node.parentElement ? colour : ground(node.parentElement);
    };
    return [...root.querySelectorAll("svg text")]
        .filter(node => node.textContent.trim() && !node.closest(".heatmap-label, .hoverlayer"))
        .map(node => {
            const [ink, paper] = [numbers(getComputedStyle(node).fill), below(node)];
            const seen = ink.slice(0, 3).map((part, index) => part * ink[3] + paper[index] * (1 - ink[3]));
            const [low, high] = [luminance(seen), luminance(paper)].sort((a, b) => a - b);
            return [node.textContent, (high + 0.05) / (low + 0.05)];
        });
}"""


@pytest.mark.parametrize(
    "name", ["DrawsExplorer", "ProjectionExplorer", "CostExplorer", "LossExplorer", "LensExplorer"]
)
def test_the_words_in_pictures_stand_out_in_both_themes(gallery, theme, name):
    found = gallery.explorer(name).evaluate(CONTRASTS)
    assert len(found) > 10
    assert [(text, contrast) for text, contrast in found if contrast < 4.5] == []


def test_the_words_on_coloured_cells_stay_dark_in_both_themes(gallery, theme):
    words = gallery.explorer("LensExplorer").locator(".heatmap-label text, text.heatmap-label")
    inks = words.evaluate_all("all => all.map(node => getComputedStyle(node).fill)")
    assert set(inks) == {"rgb(17, 17, 17)"}


def test_the_numbers_of_a_plot_are_a_table_that_follows_it(gallery):
    root = gallery.explorer("LossExplorer")
    details = root.locator("details").nth(1)
    details.locator("summary").press("Enter")
    cells = details.locator("td")
    cells.first.wait_for(timeout=5000)
    assert cells.all_inner_texts()[:3] == ["model p", "很 (very)", "0.1555"]
    root.get_by_label("its logit", exact=True).fill("18")
    root.get_by_label("its logit", exact=True).press("Enter")
    details.locator("tr", has_text="model p").nth(2).get_by_text("1", exact=True).wait_for(timeout=10_000)
    details.locator("summary").press("Enter")
    root.get_by_role("button", name="reset").click()


@pytest.mark.parametrize(
    ("name", "box", "typed", "words"),
    [
        ("SamplingExplorer", "temperature", "5000", "temperature goes from 0 to 1000: 5000 became 1000."),
        ("LensExplorer", "layer", "99", "layer goes from 0 to 30: 99 became 30."),
        (
            "SoftmaxExplorer",
            "logit of 好 (good), number",
            "-3000",
            "goes from -2000 to 2000: -3000 became -2000.",
        ),
        ("PipelineExplorer", "top-p (1 = off)", "7", "top-p (1 = off) goes from 0 to 1; 7 is not used."),
        (
            "PipelineExplorer",
            "top-k (0 = off)",
            "2.5",
            "top-k (0 = off) takes whole numbers; 2.5 is not used.",
        ),
    ],
)
def test_a_number_typed_beyond_its_box_is_told(gallery, name, box, typed, words):
    root = gallery.explorer(name)
    field = root.get_by_label(box, exact=True)
    before = field.input_value()
    field.fill(typed)
    field.press("Tab")
    note = root.locator(".lmhead-note[role=status]", has_text=words)
    note.wait_for(timeout=5000)
    field.fill(before)
    field.press("Tab")
    note.wait_for(state="detached", timeout=5000)


# Enlarged -------------------------------------------------------------------------------------------------------------

CUT = """root => [...root.querySelectorAll(
        "label, button, th, td, .figure, dt, dd, p, caption, summary, select, h3, .label")]
    .filter(node => node.checkVisibility() && node.clientWidth)
    .filter(node => !node.closest(".lines, .room")) // the two places that scroll, by keyboard too
    .filter(node => node.scrollWidth > node.clientWidth + 1 || node.getBoundingClientRect().right > innerWidth)
    .map(node => `${node.tagName} ${node.className}: ${node.innerText}`)"""


@pytest.fixture
def resized(gallery):
    yield gallery
    gallery.page.set_viewport_size({"width": 1280, "height": 1000})
    gallery.page.wait_for_timeout(500)


# A window of 1280 at 200 % has 640 of the page's own pixels.
@pytest.mark.parametrize("width", [800, 640])
@each_explorer
def test_nothing_is_cut_off_and_nothing_scrolls_sideways_in_a_narrow_or_enlarged_page(resized, name, width):
    resized.page.set_viewport_size({"width": width, "height": 900})
    resized.page.wait_for_timeout(700)
    root = resized.explorer(name)
    assert root.evaluate(CUT) == []
    sideways = """root => [root, ...root.querySelectorAll('*')]
        .filter(node => ['auto', 'scroll'].includes(getComputedStyle(node).overflowX))
        .filter(node => node.clientWidth && node.scrollWidth > node.clientWidth + 1).map(node => node.className)"""
    assert root.evaluate(sideways) == []


def test_readouts_stand_above_the_rows_in_a_narrow_page(resized):
    resized.page.set_viewport_size({"width": 800, "height": 900})
    resized.page.wait_for_timeout(500)
    root = resized.explorer("SamplingExplorer")
    figures, rows = (root.locator(part).bounding_box() for part in (".figures", ".rows"))
    assert figures["y"] + figures["height"] <= rows["y"] + 1


def test_nothing_was_written_to_the_console_and_nobody_was_asked(gallery):
    assert gallery.lab.errors == []
    assert gallery.lab.strangers == []
