"""The course's pictures: what is drawn, and that nothing in a label is interpreted."""

import numpy as np
import pytest

from lmhead_course import figures


@pytest.fixture
def bars():
    return figures.probability_bars(
        ["<b>a</b>", "$x$"], {"model": [0.75, 0.25], "after": [1.0, 0.0]}, title="t", dropped=[False, True]
    )


def test_bars_are_drawn_in_percent(bars):
    assert list(bars.data[0].x) == [75, 25]


def test_a_dropped_token_is_marked_by_a_sign_as_well_as_by_its_bar(bars):
    assert [label.startswith("✕") for label in bars.layout.yaxis.ticktext] == [False, True]


def test_labels_with_markup_or_tex_are_escaped(bars):
    assert list(bars.layout.yaxis.ticktext) == ["&lt;b&gt;a&lt;/b&gt;", "✕ &#36;x&#36;"]


def test_two_tokens_with_the_same_label_have_two_rows():
    figure = figures.probability_bars(["a", "a"], {"model": [0.5, 0.5]}, title="t")
    assert len(set(figure.data[0].y)) == 2


def test_lines_are_told_apart_by_dash_as_well_as_by_colour():
    figure = figures.line_chart([1, 2], {"a": [1, 2], "b": [2, 1]}, title="t", x_title="x", y_title="y")
    assert figure.data[0].line.color != figure.data[1].line.color
    assert figure.data[0].line.dash != figure.data[1].line.dash


def test_error_bars_of_draws_are_two_standard_errors_long():
    figure = figures.draws_chart(["a", "b"], [0.5, 0.5], [0.4, 0.6], draws=100)
    assert np.allclose(figure.data[1].error_y.array, 100 * 2 * np.sqrt(0.25 / 100))


@pytest.mark.parametrize(
    "figure",
    [
        figures.probability_bars(["a"], {"model": [1.0]}, title="t"),
        figures.line_chart([1], {"a": [1]}, title="t", x_title="x", y_title="y"),
        figures.draws_chart(["a"], [1.0], [1.0], draws=1),
        figures.labelled_points([1], [1], ["a"], title="t", x_title="x", y_title="y"),
    ],
    ids=["bars", "lines", "draws", "points"],
)
def test_every_figure_has_a_title_axis_titles_and_fixed_margins(figure):
    layout = figure.layout
    assert layout.title.text
    assert layout.xaxis.title.text
    assert layout.template.layout.margin.l
    assert layout.template.layout.xaxis.automargin is False


def luminance(colour):
    """Relative luminance of a colour like "#1a2b3c", as the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def test_the_words_of_every_figure_stand_out_on_its_own_ground():
    layout = figures.TEMPLATE.layout
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast(layout.font.color, layout.paper_bgcolor) >= 4.5


def test_the_names_at_arrows_have_the_colour_of_all_words():
    figure = figures.arrow_chart({"a": [1, 2]}, hidden=[3, -1], title="t", x_title="x", y_title="y")
    assert [trace.textfont.color for trace in figure.data] == [None, None]


def test_bars_differ_without_their_colours():
    series = {"one": [0.5], "two": [0.5], "three": [0.5]}
    bars = figures.probability_bars(["a"], series, title="t").data
    assert len({bar.marker.pattern.shape for bar in bars}) == 3
    bars = figures.gradient_bars(["a"], [0.5], [1.0], title="t").data
    assert len({bar.marker.pattern.shape for bar in bars}) == 3


def test_arrows_start_at_the_origin_and_end_at_their_tips_the_named_ones_scaled():
    figure = figures.arrow_chart(
        {"<b>": [1.0, 2.0]},
        hidden=[3.0, -1.0],
        walk=[[0, 0], [3, -1]],
        scale=2,
        title="t",
        x_title="x",
        y_title="y",
    )
    walk, token, hidden = figure.data
    assert (list(walk.x), list(walk.y)) == ([0, 3], [0, -1])
    assert (list(token.x), list(token.y)) == ([0, 2], [0, 4])
    assert (list(hidden.x), list(hidden.y)) == ([0, 3], [0, -1])
    assert token.text[1] == "&lt;b&gt;"
    assert figure.layout.yaxis.scaleanchor == "x"


def test_the_names_of_two_arrows_that_nearly_coincide_stand_on_their_two_sides():
    figure = figures.arrow_chart(
        {"left": [1.0, 0.1], "right": [1.0, 0.0]}, title="t", x_title="x", y_title="y"
    )
    assert [arrow.textposition for arrow in figure.data] == ["top left", "bottom right"]


def test_points_are_numbered_and_the_numbers_named_below():
    figure = figures.labelled_points(
        [0, 1, 1.001], [1, 2, 2.001], ["far", "<b>", "other"], title="t", x_title="x", y_title="y"
    )
    assert [trace.text[0] for trace in figure.data] == ["1", "2", "3"]
    assert [trace.name for trace in figure.data] == ["1  far", "2  &lt;b&gt;", "3  other"]
    assert figure.layout.legend.yanchor == "top"


@pytest.mark.parametrize(("y", "log_y"), [([0, 5, 5.3, 10], False), ([1, 100, 120, 10_000], True)])
def test_a_number_does_not_stand_on_the_point_above_its_own(y, log_y):
    names = ["low", "under another", "over another", "high"]
    figure = figures.labelled_points(
        [0, 0.5, 0.5, 1], y, names, title="t", x_title="x", y_title="y", log_y=log_y
    )
    assert [trace.textposition.split()[0] for trace in figure.data] == ["top", "bottom", "top", "top"]


@pytest.mark.parametrize(
    ("last", "marked_in_full"), [(4, False), (20, True), (1000, True), (5000, False)], ids=str
)
def test_a_logarithmic_axis_over_few_powers_of_ten_writes_20_and_not_2(last, marked_in_full):
    x, titles = [0.0, 1.0, last], {"title": "t", "x_title": "x", "y_title": "y"}
    chart = figures.line_chart(x, {"a": [1, 1, 1], "b": x}, log_x=True, log_y=True, **titles)
    points = figures.labelled_points([1, 2], [1, last], ["a", "b"], log_y=True, **titles)
    for axis in (chart.layout.xaxis, chart.layout.yaxis, points.layout.yaxis):
        assert (axis.type, axis.dtick == "D2", axis.tickformat == ",~f") == ("log", *2 * [marked_in_full])
        assert (axis.dtick == 1) == (last > 1000), "over many, the powers alone"


def test_a_linear_axis_keeps_plotlys_own_marks():
    figure = figures.line_chart([1, 100], {"a": [1, 100]}, title="t", x_title="x", y_title="y")
    assert (figure.layout.xaxis.type, figure.layout.xaxis.dtick) == ("linear", None)


def test_more_series_than_can_be_told_apart_are_refused_and_not_dropped():
    series = {str(i): [1, 2] for i in range(9)}
    with pytest.raises(ValueError, match=r"at most 7.* got 9"):
        figures.line_chart([1, 2], series, title="t", x_title="x", y_title="y")


def test_a_tensor_may_be_drawn_from_any_device():
    class OnADevice:
        def cpu(self):
            return np.array([1.0, 2.0])

        def __array__(self, *_args, **_kwargs):
            raise TypeError("it must come to the host first")

    figure = figures.line_chart(OnADevice(), {"a": OnADevice()}, title="t", x_title="x", y_title="y")
    assert list(figure.data[0].y) == [1, 2]


def test_a_title_is_text_and_never_markup():
    figure = figures.line_chart([1], {"a": [1]}, title="<script>", x_title="x", y_title="y")
    assert figure.layout.title.text == "&lt;script&gt;"


def test_a_tree_has_a_row_for_each_end_and_a_column_for_each_token():
    labels, parents = ["a", "b", "<c>", "d"], [-1, 0, 0, 1]
    figure = figures.token_tree(
        labels, parents, title="T", root="text", paths={"best": [0, 1, 3]}, notes={2: "$2$"}
    )
    texts = {one.text: (one.x, one.y) for one in figure.layout.annotations}
    assert texts == {
        "text": (0, 0),
        "a": (1, 0),
        "b": (2, 0),
        "d": (3, 0),
        "&lt;c&gt;  <i>&#36;2&#36;</i>": (2, 1),
    }
    every, best = figure.data
    assert [x for x in best.x if x is not None] == [0, 1, 1, 2, 2, 3]
    assert (every.line.width, best.line.width) == (1, 3.5)


def test_norms_over_many_powers_of_ten_get_no_more_ticks_than_can_be_read():
    norms, seen = np.array([1e-21, 1e-9, 1e-3, 0.0]), np.array([True, False, True, False])
    paths = {"input": norms, "output": 10 * norms}
    chart = figures.row_gradients_chart(np.arange(1, 5), paths, seen, title="norms", decades=(-21, 0))
    words = chart.layout.yaxis.ticktext
    assert words[0] == "exactly 0"
    assert 5 <= len(words) <= 14
