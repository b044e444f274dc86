"""Tables of notebooks."""

import pytest

from lmhead_course.tables import Table


def test_columns_line_up_also_with_chinese_characters():
    lines = repr(Table(["word", "x"], [("很", 1.0), ("不错", 22.5), ("a", 3.25)])).splitlines()
    assert lines == ["word      x", "  很   1.00", "不错  22.50", "   a   3.25"]


def test_numbers_have_the_places_asked_for():
    assert "3.142" in repr(Table(["x"], [(3.14159,)], digits=3))


def test_cells_are_text_and_never_markup():
    page = Table(["<b>"], [("<script>",)])._repr_html_()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="2 cells"):
        Table(["a", "b"], [(1,)])
