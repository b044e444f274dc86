"""Names of tokens that can be printed, and text that goes in and comes out of a tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course.tokens import BYTES, clean, show_bytes, show_text, show_token


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" Paris", "␣Paris"),
        ("    ", "␣␣␣␣"),
        ("\n\n", "⏎⏎"),
        ("\t", "⇥"),
        ("\r", "<U+000D>"),
        ("\x00", "<U+0000>"),
        ("\u200b", "<U+200B>"),  # zero-width space
        ("\u202e", "<U+202E>"),  # turns the rest of a line around
        ("\ufeff", "<U+FEFF>"),
        ("\u00a0", "<U+00A0>"),  # a space that is not the space
        ("\ufe0f", "<U+FE0F>"),  # variation selector
        ("\u3164", "<U+3164>"),  # a letter without ink
        ("\u0301", "◌\u0301"),  # an accent needs something to stand on
        ("e\u0301", "e\u0301"),
        ("<b>&amp;</b> $x$", "<b>&amp;</b>␣$x$"),
        ("今天🙂", "今天🙂"),
        ("", ""),
    ],
)
def test_text_is_shown_so_that_every_character_is_seen(text, shown):
    assert show_text(text) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\xe4\xbb", "<0xE4><0xBB>"),
        ("今".encode(), "今"),
        (b"\x8a" + "今".encode() + b"\xe5 a", "<0x8A>今<0xE5>␣a"),
        (b"\xff", "<0xFF>"),
        (b"", ""),
    ],
)
def test_bytes_that_are_no_whole_character_are_shown_one_by_one(raw, shown):
    assert show_bytes(raw) == shown


@given(st.binary())
def test_any_bytes_have_a_printable_name(raw):
    assert show_bytes(raw).isprintable()
    assert " " not in show_bytes(raw)


def test_the_byte_alphabet_names_each_byte_once_as_gpt2_does():
    assert sorted(BYTES.values()) == list(range(256))
    assert [BYTES[character] for character in "ĠĊA¡ÿ"] == [0x20, 0x0A, 0x41, 0xA1, 0xFF]


@pytest.mark.parametrize(
    ("token", "byte_level", "shown"),
    [
        ("ĠParis", True, "␣Paris"),
        ("<|im_end|>", True, "<|im_end|>"),
        ("<｜User｜>", True, "<｜User｜>"),  # an added token, not spelled in bytes
        ("▁Paris", False, "␣Paris"),
        ("<0xE4>", False, "<0xE4>"),
        ("##ing", False, "##ing"),
        (None, True, "<unused>"),
        ("", True, "<empty>"),
    ],
)
def test_a_token_is_named_by_the_spelling_of_its_vocabulary(token, byte_level, shown):
    assert show_token(token, byte_level) == shown


def test_every_token_of_the_live_model_has_a_printable_name_and_few_share_one(lm):
    names = [lm.label(token_id) for token_id in range(lm.d_vocab)]
    assert all(name and name.isprintable() and " " not in name for name in names)
    assert len(set(names)) == len(names)


def test_halves_of_surrogate_pairs_are_joined_or_replaced():
    assert clean("\ud83d\ude42 \ud83d a") == "🙂 \ufffd a"


@given(st.text())
def test_clean_leaves_ordinary_text_alone(text):
    assert clean(text) == text
