"""The table's figures and texts, and that its script never treats a text as markup."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmhead_course.explorers
from lmhead_course.explorers import TokenTable
from lmhead_course.explorers.token_table import bar_scale, percent, printable, quoted

SOURCES = Path(lmhead_course.explorers.__file__).parent


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        (0, "0 %"),
        (1, "100.00 %"),
        (0.7725, "77.25 %"),
        (0.0987, "9.87 %"),
        (0.000987, "0.0987 %"),
        (0.000002, "0.0002 %"),
        (1e-9, "< 0.0001 %"),
        (0.99999, "> 99.99 %"),
    ],
)
def test_a_percentage_shows_what_can_be_told_from_it(probability, text):
    assert percent(probability) == text


@pytest.mark.parametrize(
    ("label", "text"), [("␣Paris", "“␣Paris”"), ("’s", "“’s”"), ('"', '["]'), ("”,", "[”,]"), ("[", "“[”")]
)
def test_a_label_that_is_a_quotation_mark_can_be_told_from_the_marks_around_it(label, text):
    assert quoted(label) == text


@given(st.floats(0, 1))
def test_only_zero_reads_as_nothing_and_only_one_as_everything(probability):
    assert (percent(probability) == "0 %") == (probability == 0)
    assert (percent(probability) == "100.00 %") == (probability == 1)


@given(st.floats(1e-9, 1))
def test_the_longest_bar_fills_at_least_two_fifths_and_never_overflows(largest):
    assert largest <= bar_scale(largest) * (1 + 1e-9) <= 2.5 * largest * (1 + 1e-6)


def test_the_scale_of_the_bars_stays_while_the_largest_changes_a_little():
    assert bar_scale(0.21) == bar_scale(0.3) == bar_scale(0.49) == 0.5


@given(st.text(st.characters(codec=None), max_size=20))
def test_any_label_becomes_one_line_that_a_message_can_carry(label):
    shown = printable(label)
    assert shown
    assert shown.isprintable()
    shown.encode("utf-8")


def test_printable_text_and_markup_stay_as_they_are():
    for label in ("␣Paris", "不错", "<script>alert(1)</script>", "$x$", "🙂"):
        assert printable(label) == label


def test_what_the_page_gets_is_plain_json_with_finite_numbers():
    table = TokenTable(rows=[{"label": "a", "raw": 0.5}], scale=0.5, sentence="words")
    json.dumps(table.get_state(), allow_nan=False).encode("utf-8")


class Recorder:
    """Stands in for the connection to a page."""

    kernel = comm_id = "a page"

    def __init__(self):
        self.sent = []

    def send(self, data, buffers=None):
        self.sent.append(data["state"])

    def on_msg(self, handler):
        pass

    def close(self, *args, **kwargs):
        pass


def test_traits_set_together_travel_in_one_message():
    table = TokenTable()
    table.comm = page = Recorder()
    with table.hold_sync():
        table.rows, table.sentence, table.error = [{"label": "a"}], "words", "trouble"
    assert page.sent == [{"rows": [{"label": "a"}], "sentence": "words", "error": "trouble"}]


@pytest.mark.parametrize("script", sorted(path.name for path in SOURCES.glob("*.js")))
def test_no_script_can_turn_a_text_into_markup(script):
    code = re.sub(r"//.*", "", (SOURCES / script).read_text(encoding="utf-8"))
    for door in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval",
        "Function(",
        "DOMParser",
    ):
        assert door not in code
    assert set(re.findall(r"\w+://[^\"'`/]*", code)) <= {
        "http://www.w3.org"
    }  # the name of SVG, not an address
