"""The loss of a text: every token once, windows that overlap, perplexity by tokens, bits by bytes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course import evaluation as module
from lmhead_course.evaluation import TextLoss, text_loss, token_losses, windows
from tests.strategies import quick
from tests.tiny_lm import TinyLM

PIECES = ["a", "b", "cd", "e", "ü", " "]


@pytest.fixture
def tiny():
    return TinyLM(PIECES, context_length=40)


def by_hand(lm, ids, start=0):
    """Return −ln p of ids[start + 1:], read from ids[start:] token by token, in plain Python."""
    losses = []
    for i in range(start + 1, len(ids)):
        logits = lm.step(ids[None, start:i])[0][0].double()
        losses.append(torch.logsumexp(logits, 0) - logits[ids[i]])
    return torch.stack(losses)


def some_ids(n, seed=0):
    return torch.randint(len(PIECES), (n,), generator=torch.Generator().manual_seed(seed))


# ---- windows ------------------------------------------------------------------------------------------------


@quick
@given(st.integers(2, 60), st.integers(2, 20), st.data())
def test_every_token_but_the_first_is_scored_exactly_once(n, window, data):
    stride = data.draw(st.integers(1, window - 1))
    scored = [i for _, last, new in windows(n, window, stride) for i in range(new, last)]
    assert scored == list(range(1, n))


@quick
@given(st.integers(2, 60), st.integers(2, 20), st.data())
def test_no_window_is_longer_than_allowed_and_later_tokens_have_their_context(n, window, data):
    stride = data.draw(st.integers(1, window - 1))
    for first, last, new in windows(n, window, stride):
        assert 0 <= first < new <= last <= n
        assert last - first <= window
        assert first == 0 or new - first >= window - stride


def test_a_text_that_fits_is_one_window():
    assert list(windows(7, 10, 3)) == [(0, 7, 1)]


# ---- losses -------------------------------------------------------------------------------------------------


def test_a_text_that_fits_has_the_one_shot_losses_whatever_the_stride(tiny):
    ids = some_ids(30)
    for stride in (1, 7, 39):
        found = token_losses(tiny, ids, window=40, stride=stride)
        assert torch.allclose(found.double(), by_hand(tiny, ids), atol=1e-5)


def test_a_long_text_is_scored_window_by_window(tiny):
    ids = some_ids(17)
    found = token_losses(tiny, ids, window=8, stride=3).double()
    parts = [by_hand(tiny, ids[first:last])[new - last :] for first, last, new in windows(17, 8, 3)]
    assert torch.allclose(found, torch.cat(parts), atol=1e-5)


def test_reading_in_pieces_changes_nothing(tiny, monkeypatch):
    ids = some_ids(30)
    whole = token_losses(tiny, ids)
    monkeypatch.setattr(module, "PIECE", 4)
    assert torch.allclose(token_losses(tiny, ids), whole, atol=1e-5)


def test_no_step_reads_more_than_one_piece(tiny, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 5)
    token_losses(tiny, some_ids(23))
    assert max(n for _, n in tiny.calls) <= 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": 1}, r"window must be in \[2, 40\].*got 1"),
        ({"window": 41}, r"window must be in \[2, 40\].*got 41"),
        ({"window": 8, "stride": 8}, "stride must be in.*7.*got 8"),
        ({"window": 8, "stride": 0}, "stride must be in.*got 0"),
    ],
)
def test_windows_and_strides_that_cannot_be_are_refused(tiny, settings, words):
    with pytest.raises(ValueError, match=words):
        token_losses(tiny, some_ids(20), **settings)


@pytest.mark.parametrize("n", [0, 1])
def test_a_text_without_anything_to_predict_is_refused(tiny, n):
    with pytest.raises(ValueError, match=f"at least 2 tokens.*got {n}"):
        token_losses(tiny, some_ids(n))


def test_a_text_longer_than_the_context_is_read_through_windows(tiny):
    assert len(token_losses(tiny, some_ids(100))) == 99


# ---- one number for a text ----------------------------------------------------------------------------------


def test_perplexity_weighs_tokens_and_bits_weigh_bytes():
    found = TextLoss(torch.tensor([1.0, 2.0, 6.0]), n_bytes=10)
    assert found.tokens == 3
    assert found.mean == pytest.approx(3)
    assert found.perplexity == pytest.approx(math.exp(3))
    assert found.bits_per_byte == pytest.approx(9 / math.log(2) / 10)


def test_bytes_are_those_of_the_predicted_tokens_in_utf8(tiny):
    assert text_loss(tiny, "cdüa").n_bytes == 3  # ü is two bytes, a one; "cd" is read only


def test_two_tokenizers_that_cut_alike_in_all_but_names_give_equal_bits():
    one, other = TinyLM(PIECES), TinyLM(["x", "y", "zw", "v", "ö", "-"])
    found = text_loss(one, "abcdü e"), text_loss(other, "xyzwö-v")
    assert found[0].bits_per_byte == pytest.approx(found[1].bits_per_byte)


# ---- the live model -----------------------------------------------------------------------------------------


def test_the_live_model_agrees_with_torch_on_its_own_logits(lm):
    text = "It is a truth universally acknowledged, that a single man must be in want of a wife."
    ids = torch.tensor(lm.encode(text))
    expected = torch.nn.functional.cross_entropy(lm.all_logits(text)[:-1], ids[1:])
    assert text_loss(lm, text).mean == pytest.approx(expected.item(), abs=1e-4)


def test_less_context_makes_the_live_model_worse(lm):
    from lmhead_course.texts import chapters

    text = chapters()[-1][:600]
    whole, cut = text_loss(lm, text), text_loss(lm, text, window=16, stride=15)
    assert cut.tokens == whole.tokens
    assert cut.perplexity > whole.perplexity
