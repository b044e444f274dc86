import random

from hypothesis import given
from hypothesis import strategies as st

from lmhead_course.streaming import TextStream

BYTES = [bytes([i]) for i in range(256)]


def decode(ids):
    """A tokenizer with one token a byte."""
    return bytes(ids).decode("utf-8", "replace")


def released(ids, stop=(), before=()):
    """Return the pieces of text that come out, the last of them at the end, and whether it stopped."""
    stream, pieces = TextStream(decode, stop, before), []
    for token_id in ids:
        pieces.append(stream.push(token_id))
        if stream.stopped:
            return pieces, True
    return [*pieces, stream.finish()], stream.stopped


def cut(text, stop):
    """Return the text before the stop string that is complete first, read character by character."""
    for end in range(1, len(text) + 1):
        starts = [end - len(one) for one in stop if text[:end].endswith(one)]
        if starts:
            return text[: min(starts)]
    return text


def test_each_token_releases_its_own_text():
    assert released(b"cat")[0] == ["c", "a", "t", ""]


def test_a_character_appears_when_its_last_byte_has_come():
    assert released("a今!".encode())[0] == ["a", "", "", "今", "!", ""]


def test_bytes_that_never_become_a_character_come_out_at_the_end_as_replacement_characters():
    assert released(b"a" + "今".encode()[:2])[0] == ["a", "", "", "\ufffd"]


def test_text_that_may_begin_a_stop_string_is_held_back_and_released_when_it_does_not():
    assert released(b"a\n\n.", stop=["\n\nQ"])[0] == ["a", "", "", "\n\n.", ""]


def test_text_held_back_comes_out_at_the_end():
    assert released(b"ab", stop=["bc"])[0] == ["a", "", "b"]


def test_a_stop_string_over_several_tokens_is_cut_off():
    pieces, stopped = released(b"one STOP two", stop=["STOP"])
    assert stopped
    assert "".join(pieces) == "one "


def test_of_two_stop_strings_the_one_that_is_complete_first_counts():
    assert "".join(released(b"xabcd", stop=["abcd", "c"])[0]) == "xab"
    stream = TextStream(lambda ids: "xabcd" * len(ids), stop=["abcd", "c"])  # the same text as one token
    assert stream.push(0) == "xab"


def test_a_stop_string_behind_the_bytes_of_a_held_character_is_seen_at_the_end():
    assert "".join(released(b"a." + "今".encode()[:1], stop=["."])[0]) == "a"


def test_a_character_that_the_prompt_began_is_shown_by_the_token_that_completes_it():
    today = "今".encode()
    assert released(today[2:] + b"!", before=b"ab" + today[:2])[0] == ["今", "!", ""]


def test_the_first_token_keeps_the_space_that_a_tokenizer_drops_at_the_start_of_a_text():
    words = ["The", " cat", " sat"]

    def strips(ids):
        return "".join(words[i] for i in ids).lstrip()

    stream = TextStream(strips, before=[0])
    assert [stream.push(1), stream.push(2)] == [" cat", " sat"]


@given(st.binary(max_size=12), st.binary(max_size=4))
def test_the_pieces_join_to_the_decoded_text_for_any_bytes(raw, before):
    # In front stands whole text: what an unfinished character in front does is tested above.
    front = decode(before).encode()
    assert "".join(released(raw, before=front)[0]) == decode(raw)


@given(
    st.text("abc", max_size=12), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.integers()
)
def test_where_tokens_begin_and_end_does_not_matter_to_stop_strings(text, stop, seed):
    chance, tokens, rest = random.Random(seed), [], text
    while rest:
        size = chance.randint(1, 4)
        tokens, rest = [*tokens, rest[:size]], rest[size:]
    stream = TextStream(lambda ids: "".join(tokens[i] for i in ids), stop)
    shown = ""
    for number in range(len(tokens)):
        shown += stream.push(number)
        if stream.stopped:
            break
    shown += stream.finish()
    assert shown == cut(text, stop)


def test_the_live_tokenizer_streams_any_text_and_any_ids(lm):
    chance = random.Random(0)
    texts = ["Once upon a time 今天天气不错 🙂🏳️‍🌈 naïve\n\n", "e\u0301 \u200b\t  x"]
    drawn = [[chance.randrange(lm.head.d_vocab) for _ in range(40)] for _ in range(20)]
    for ids in [*map(lm.encode, texts), *drawn]:
        stream = TextStream(lm.decode, before=lm.encode("Say:"))
        assert "".join(stream.push(i) for i in ids) + stream.finish() == lm.decode(ids)
