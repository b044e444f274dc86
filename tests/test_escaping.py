"""Foreign text is shown as it stands: one function makes it safe, and every picture goes through it."""

import ast
import inspect
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

import lmhead_course
from lmhead_course import TokenText, draw_path, figures
from lmhead_course.checks.exercise import Exercise, Verdict
from lmhead_course.escaping import NO_TEX, as_html, as_html_lines, as_plotly, link_target, visible
from lmhead_course.overview import Line, Overview
from lmhead_course.pathway import Stage
from lmhead_course.tables import Table
from tests.foreign import ALL, SHOWN, TEXTS

PACKAGE = Path(lmhead_course.__file__).parent
ANYTHING = st.text(st.characters(codec=None), max_size=30)

# The function ----------------------------------------------------------------------------------------------------


@given(ANYTHING)
def test_any_text_becomes_one_printable_line_that_a_message_can_carry(text):
    shown = visible(text)
    assert shown.isprintable()
    shown.encode("utf-8")


@given(ANYTHING)
def test_what_is_visible_is_not_changed_again(text):
    assert visible(visible(text)) == visible(text)


@given(st.text(st.sampled_from("ab <>&;\"'$%{}\\"), max_size=30))
def test_markup_stays_as_typed_until_something_reads_markup(text):
    assert visible(text) == text
    assert unescape(as_html(text)) == unescape(as_plotly(text)) == text


@given(ANYTHING)
def test_no_text_leaves_a_tag_an_entity_or_a_formula_of_its_own(text):
    assert not {"<", ">", '"', "'"} & set(as_html(text))
    assert not {"<", ">", "$"} & set(as_plotly(text))
    assert unescape(as_html(text)) == unescape(as_plotly(text)) == visible(text)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_direction_marks_and_halves_of_characters_are_named(text):
    assert visible(text) == SHOWN[text]


def test_lines_stay_lines_where_several_are_meant():
    assert as_html_lines("a<\n\u202eb") == "a&lt;\n&lt;U+202E&gt;b"
    assert as_html("a\n\tb") == "a⏎⇥b"


@pytest.mark.parametrize(
    "target", ["03_sampling.ipynb", "../a/b.md#part-2", "https://example.org/a?b=c&d=%20", ""]
)
def test_a_link_may_lead_to_a_file_or_to_a_web_page(target):
    assert unescape(link_target(target)) == target


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java\nscript:alert(1)",
        "\x01javascript:alert(1)",
        " javascript:alert(1)",
        "data:text/html,<script>",
        "vbscript:x",
        'a" onclick="alert(1)',
        "https://example.org/\n",
    ],
    ids=ascii,
)
def test_a_link_that_could_run_code_is_refused(target):
    with pytest.raises(ValueError, match="a link must lead to"):
        link_target(target)
    with pytest.raises(ValueError, match="a link must lead to"):
        Stage("name", "(1,)", "what", notebook=target)


def test_nothing_but_the_one_module_escapes_or_makes_markup_of_its_own():
    found = {
        (path.name, name)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _escapes(node)
    }
    assert found == {("escaping.py", "html.escape")}


def _escapes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module in ("html", "xml.sax.saxutils", "markupsafe"):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module == "IPython.display":
        return [alias.name for alias in node.names if alias.name in ("HTML", "Markdown", "Latex", "Math")]
    # Of ipywidgets, these read formulas or markup in a description.
    names = {"HTMLMath", "Label", "description_allow_html", "description_html"}
    found = {getattr(node, "attr", None), getattr(node, "arg", None)} & names
    return sorted(found)


# Every figure ----------------------------------------------------------------------------------------------------

LABELS = list(TEXTS)
SIX = list(TEXTS[:6])
FIGURES = {
    "probability_bars": lambda: figures.probability_bars(
        LABELS, {ALL: [0.1] * 10}, title=ALL, dropped=[True] * 10, x_title=ALL
    ),
    "line_chart": lambda: figures.line_chart(
        [1, 2], {text: [1, 2] for text in SIX}, title=ALL, x_title=ALL, y_title=ALL, reference={ALL: 1.5}
    ),
    "draws_chart": lambda: figures.draws_chart(LABELS, [0.1] * 10, [0.1] * 10, draws=10),
    "labelled_points": lambda: figures.labelled_points(
        range(10), range(10), names=LABELS, title=ALL, x_title=ALL, y_title=ALL
    ),
    "arrow_chart": lambda: figures.arrow_chart(
        {text: (1.0, place) for place, text in enumerate(TEXTS)}, title=ALL, x_title=ALL, y_title=ALL
    ),
    "roofline_chart": lambda: figures.roofline_chart(
        1e11, 1e12, points=dict.fromkeys(SIX, (1.0, 10000000000.0)), title=ALL
    ),
    "lens_heatmap": lambda: figures.lens_heatmap(
        [LABELS] * 2, torch.ones(2, 10), LABELS, title=ALL, unit=ALL, hover=[LABELS] * 2, shown=99
    ),
    "loss_curve": lambda: figures.loss_curve(
        [1, 2], losses={text: [1, 2] for text in SIX}, point=(1.0, 1.0), slope=1.0, title=ALL
    ),
    "gradient_bars": lambda: figures.gradient_bars(LABELS, [0.1] * 10, [0.1] * 10, title=ALL),
    "reliability_chart": lambda: figures.reliability_chart(
        series={text: ([0.5], [0.5], [9]) for text in SIX}, title=ALL
    ),
    "row_gradients_chart": lambda: figures.row_gradients_chart(
        [1, 2], paths={text: [1, 2] for text in TEXTS[:2]}, seen=[0, 1], title=ALL, decades=(0, 1)
    ),
    "token_tree": lambda: figures.token_tree(
        LABELS, [-1] * 10, title=ALL, root=ALL, paths={ALL: [0]}, notes={0: ALL}, shown=99
    ),
    "styled": lambda: figures.styled(figures.go.Figure(), ALL, ALL, ALL),
}


def strings(part) -> list[str]:
    """Return every text in a figure's JSON."""
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else []
    return [text for one in parts for text in strings(one)]


def test_every_figure_is_among_those_that_are_shown_foreign_text():
    made = {
        name
        for name, value in vars(figures).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__annotations__.get("return") is figures.go.Figure
    }
    assert made == set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_hands_plotly_markup_or_tex_that_is_not_our_own(name):
    figure = FIGURES[name]().to_plotly_json()
    figure["layout"].pop("template", None)
    texts = strings(figure)
    own = (
        "<i>",
        "</i>",
        "<sup>",
        "</sup>",
    )  # of the notes beside a tree, and of the powers of ten on an axis
    for text in texts:
        rest = text
        for tag in own:
            rest = rest.replace(tag, "", 1)
        assert "<" not in rest, text
        assert "$" not in text
        assert visible(text) == text


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_shows_the_whole_of_a_foreign_text(name):
    figure = FIGURES[name]().to_plotly_json()
    shown = " ".join(unescape(text) for text in strings(figure))
    takes_labels = {"labels", "names", "tokens"} & set(
        inspect.signature(getattr(figures, name)).parameters
    ) or name == "arrow_chart"
    for text in TEXTS if takes_labels else TEXTS[:2]:
        assert SHOWN[text] in shown


@pytest.mark.parametrize("name", FIGURES)
def test_every_parameter_that_takes_a_text_is_given_a_foreign_one(name, monkeypatch):
    parameters = inspect.signature(original := getattr(figures, name)).parameters
    given = {}

    def spy(*args, **kwargs):
        given.update(inspect.signature(original).bind(*args, **kwargs).arguments)
        return original(*args, **kwargs)

    monkeypatch.setattr(figures, name, spy)
    FIGURES[name]()
    numbers = (ArrayLike, ArrayLike | None)  # whose many kinds of array have texts among them
    texts = [
        key
        for key, one in parameters.items()
        if "str" in str(one.annotation) and one.annotation not in numbers
    ]
    assert texts
    assert [
        key
        for key in texts
        if not any(t in str(given.get(key)) or repr(t)[1:-1] in str(given.get(key)) for t in TEXTS)
    ] == []


# Every HTML of our own -------------------------------------------------------------------------------------------

EXERCISE = Exercise(lambda answer: ALL, praise=ALL, hint=ALL, solution=ALL)
PAGES = {
    "Table": lambda: Table([ALL, *TEXTS], [[ALL, *TEXTS]]),
    "TokenText": lambda: TokenText(TEXTS, range(len(TEXTS)), ALL),
    "PathPicture": lambda: draw_path(
        SHOWN_ALL[:40], TEXTS[:8], d_model=8, d_vocab=9, n_layers=1, best=(ALL, 0.5), position=ALL
    ),
    "Verdict": lambda: Verdict(False, ALL, EXERCISE, remark=ALL),
    "Overview": lambda: Overview((Line("03_sampling", 1, 2),), problem=ALL),
}
SHOWN_ALL = "".join(map(visible, TEXTS))
TAGS = {
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "div",
    "p",
    "span",
    "bdi",
    "code",
    "br",
    "small",
    "ol",
    "li",
}
TAGS |= {"strong", "details", "summary", "pre", "em", "a"}


class Page(HTMLParser):
    """The tags of some HTML, and its texts with whether TeX is left alone there."""

    def __init__(self, source: str):
        super().__init__()
        self.tags, self.attributes, self.texts, self._open = set(), set(), [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        link_target(dict(attributes).get("href", ""))
        if tag != "br":
            self._open.append(dict(attributes).get("class") == NO_TEX or tag in ("code", "pre"))

    def handle_endtag(self, tag):
        self._open.pop()

    def handle_data(self, data):
        self.texts.append((data, any(self._open)))


def test_every_class_that_draws_html_is_among_those_that_are_shown_foreign_text():
    found = set()
    for module in walk_packages(lmhead_course.__path__, "lmhead_course."):
        for name, value in vars(import_module(module.name)).items():
            if inspect.isclass(value) and value.__module__ == module.name and "_repr_html_" in vars(value):
                found.add(name)
    assert found == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_our_own_html_has_our_own_tags_and_attributes_only(name):
    page = Page(PAGES[name]()._repr_html_())
    assert page.tags <= TAGS
    assert page.attributes <= {"class", "style", "scope", "aria-label", "aria-hidden", "href"}


@pytest.mark.parametrize("name", PAGES)
def test_formulas_are_left_alone_wherever_our_html_shows_foreign_text(name):
    texts = Page(PAGES[name]()._repr_html_()).texts
    assert "".join(text for text, _ in texts).count(SHOWN[TEXTS[4]]) > 0
    assert [text for text, safe in texts if not safe and ("$" in text or "\\(" in text)] == []


@pytest.mark.parametrize("name", PAGES)
def test_with_a_page_or_without_every_character_can_be_seen_and_sent(name):
    for drawn in (repr(PAGES[name]()), PAGES[name]()._repr_html_()):
        assert all(map(str.isprintable, drawn.split("\n")))


def test_a_verdict_keeps_the_lines_of_its_message():
    assert "a&lt;\nb" in Verdict(False, "a<\nb", EXERCISE)._repr_html_()
