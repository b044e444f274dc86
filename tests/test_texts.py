"""The text that the package ships is the one that its note describes."""

import hashlib
import re
from pathlib import Path

import lmhead_course
from lmhead_course.texts import chapters, novel

NOTE = Path(lmhead_course.__file__).with_name("data") / "pride_and_prejudice.md"


def test_the_text_is_the_one_whose_hash_and_size_the_note_gives():
    note, data = NOTE.read_text(), novel().encode("ascii")
    assert hashlib.sha256(data).hexdigest() in note
    assert f"{len(data):,} bytes" in note


def test_it_begins_as_everybody_knows_and_has_one_paragraph_a_line():
    assert chapters()[0].startswith("It is a truth universally acknowledged")
    assert not re.search(r"[^\n]\n[^\n]|  |_", novel())


def test_its_chapters_are_the_whole_novel_without_the_headings():
    headed = [f"Chapter {number}\n\n{text}" for number, text in enumerate(chapters(), 1)]
    assert len(headed) == 23
    assert "\n".join(headed) == novel()
