"""Reading with the head: small models whose every logit can be written out, and the live one for the known values."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course.highlight import SHADES, TokenText
from lmhead_course.lens import LayeredLM, at_least_once, logit_lens, rank_of, read_along, settled_from
from lmhead_course.llama import RMSNorm
from lmhead_course.projection import LMHead
from tests.tiny_lm import LETTERS, letters

TEXT = "abcagfedcbabc."


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_norm(d_model):
    norm = RMSNorm(d_model, 1e-5)
    norm.weight.data = random(d_model, seed=9)
    return norm.requires_grad_(False)


def all_logits(lm, text):
    """Return the logits after each token, each from a run of its own over the text up to there."""
    ids = lm.encode(text)
    return torch.stack([lm.step(torch.tensor([ids[: i + 1]]))[0][0] for i in range(len(ids))])


# ---- the lens -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("normed", [True, False])
def test_a_lens_in_pieces_is_the_whole_product_read_at_once(rows, normed):
    hidden, head, norm = random(4, 3, 8), LMHead(random(20, 8, seed=1), random(20, seed=2)), some_norm(8)
    reading = logit_lens(hidden, head, norm if normed else None, watch=7, rows=rows)
    p = torch.softmax(head(norm(hidden) if normed else hidden), dim=-1)
    assert torch.equal(reading.top, p.argmax(dim=-1))
    torch.testing.assert_close(reading.probability, p.amax(dim=-1))
    torch.testing.assert_close(reading.share, p[..., 7])
    torch.testing.assert_close(reading.entropy, -(p * p.log2()).sum(dim=-1))
    assert torch.equal(reading.rank, 1 + (p > p[..., 7:8]).sum(dim=-1))


def test_no_more_rows_of_logits_exist_at_once_than_were_allowed():
    seen = []

    def head(states):
        seen.append(len(states))
        return states @ random(20, 8).T

    logit_lens(random(4, 5, 8), head, rows=6)
    assert max(seen) <= 6
    assert sum(seen) == 20


def test_without_a_watched_token_there_is_no_rank():
    reading = logit_lens(random(2, 3, 8), LMHead(random(5, 8)))
    assert reading.rank is None
    assert reading.share is None
    assert reading.top.shape == (2, 3)


def test_a_heads_bias_and_cap_count_in_the_lens():
    hidden = random(3, 2, 8)
    capped = LMHead(random(20, 8), random(20, seed=3), soft_cap=2.0)
    p = torch.softmax(capped(hidden), dim=-1)
    torch.testing.assert_close(logit_lens(hidden, capped).probability, p.amax(dim=-1))


@pytest.mark.parametrize("token", [-1, 20])
def test_a_watched_token_outside_the_vocabulary_is_refused(token):
    with pytest.raises(ValueError, match=r"watch must be a token id in 0 … 19, got"):
        logit_lens(random(2, 8), LMHead(random(20, 8)), watch=token)


@given(st.floats(0.01, 100))
def test_a_positive_factor_changes_no_rank(factor):
    hidden, head = random(5, 8).double(), LMHead(random(20, 8, seed=1).double())
    plain, scaled = logit_lens(hidden, head, watch=3), logit_lens(factor * hidden, head, watch=3)
    assert torch.equal(plain.top, scaled.top)
    assert torch.equal(plain.rank, scaled.rank)


# ---- rank -----------------------------------------------------------------------------------------------


def test_the_best_token_has_rank_one_and_the_worst_the_size_of_the_vocabulary():
    logits = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
    assert [int(rank_of(logits, i)) for i in range(5)] == [2, 3, 1, 5, 4]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_ranks_are_the_order_of_a_stable_sort_also_among_equals(values):
    logits = torch.tensor(values, dtype=torch.float32)
    order = logits.argsort(descending=True, stable=True).tolist()
    assert [int(rank_of(logits, i)) for i in range(len(values))] == [
        order.index(i) + 1 for i in range(len(values))
    ]


# ---- where an answer settles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("top", "layer"), [([5, 7, 7], 1), ([7, 5, 7, 7, 5, 7], 5), ([7, 7, 7], 0), ([1, 2, 3], 2), ([4], 0)]
)
def test_an_answer_settles_where_it_is_on_top_for_good(top, layer):
    assert settled_from(torch.tensor(top)) == layer


# ---- along a text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_reading_along_in_pieces_gives_what_a_run_for_every_prefix_gives(rows):
    lm = letters(eos_ids={6, 7})
    p = torch.softmax(all_logits(lm, TEXT), dim=-1)
    ids = torch.tensor(lm.encode(TEXT))
    own = p[:-1].gather(1, ids[1:, None])
    reading = read_along(lm, TEXT, watch=[2, 5], rows=rows)
    assert torch.equal(reading.ids, ids)
    torch.testing.assert_close(reading.surprise[1:], -own[:, 0].log2(), atol=1e-4, rtol=1e-4)
    assert torch.equal(reading.place[1:], 1 + (p[:-1] > own).sum(dim=1))
    torch.testing.assert_close(reading.entropy, -(p * p.log2()).sum(dim=1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(reading.end, p[:, 6] + p[:, 7])
    assert torch.equal(reading.top, p.argmax(dim=1))
    for token in (2, 5):
        torch.testing.assert_close(reading.watched[token][0], p[:, token])
        assert torch.equal(reading.watched[token][1], 1 + (p > p[:, token : token + 1]).sum(dim=1))


def test_the_first_token_has_nothing_before_it():
    reading = read_along(letters(), "a")
    assert reading.surprise.isnan().tolist() == [True]
    assert reading.place.tolist() == [0]
    assert reading.entropy.isfinite().all()


def test_a_model_without_an_end_never_ends():
    assert read_along(letters(), TEXT).end.eq(0).all()


def test_a_step_reads_only_as_many_tokens_as_were_allowed():
    lm = letters()
    read_along(lm, TEXT, rows=4)
    assert max(n for _, n in lm.calls) == 4
    assert sum(n for _, n in lm.calls) == len(TEXT)


def test_no_text_is_an_error_in_words():
    with pytest.raises(ValueError, match="text is empty"):
        read_along(letters(), "")


def test_watching_a_token_that_there_is_not_is_refused_before_the_model_reads():
    lm = letters()
    with pytest.raises(ValueError, match="watch must be a token id"):
        read_along(lm, TEXT, watch=[len(LETTERS)])
    assert lm.calls == []


# ---- at least once --------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_at_least_once_is_one_minus_the_chance_of_never(p):
    assert at_least_once(torch.tensor(p, dtype=torch.float64)) == pytest.approx(
        1 - math.prod(1 - x for x in p)
    )


def test_tiny_chances_add_up_instead_of_being_rounded_away():
    assert at_least_once(torch.full((1000,), 1e-9)) == pytest.approx(1e-6, rel=1e-4)


# ---- coloured text --------------------------------------------------------------------------------------


def test_a_text_shows_every_token_with_its_number_without_colours_too():
    shown = TokenText(["The", "␣cat"], [math.nan, 20.24], "surprise (bits)")
    assert repr(shown) == "surprise (bits): The(–) ␣cat(20.2)"
    assert "20.2" in shown._repr_html_()
    assert "surprise (bits)" in shown._repr_html_()


def test_a_token_is_never_markup():
    page = TokenText(["<script>", "&"], [1.0, 2.0], "<b>")._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page


def test_shades_go_in_even_steps_from_none_to_the_darkest():
    text = TokenText(["a"], [0.0], "x", low=0, high=6)
    assert [text.shade(x) for x in (-1, 0, 0.5, 1.5, 2.5, 5.9, 6, 99)] == [0, 0, 0, 1, 2, 5, 5, 5]
    assert text.shade(math.nan) == 0


def test_equal_values_everywhere_make_no_shade_wrong():
    assert TokenText(["a", "b"], [0.0, 0.0], "x").shade(0.0) == 0
    assert TokenText([], [], "x")._repr_html_()


@pytest.mark.parametrize(
    ("labels", "high", "words"), [(["a"], 1.0, "values must be one"), (["a", "b"], 0.0, "above low")]
)
def test_what_does_not_fit_is_refused(labels, high, words):
    with pytest.raises(ValueError, match=words):
        TokenText(labels, [0.5, 0.5], "x", high=high)


def brightness(colour):
    """Return the relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("background", "letters"), SHADES[1:])
def test_letters_stand_out_on_every_shade(background, letters):
    low, high = sorted(map(brightness, (background, letters)))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_shades_get_darker_step_by_step_so_that_lightness_alone_tells_them_apart():
    shades = [brightness(background) for background, _ in SHADES[1:]]
    assert shades == sorted(shades, reverse=True)


# ---- the live model -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def streams(lm):
    return lm.hidden_states("The capital of France is")


def test_the_live_model_is_a_layered_one(lm):
    assert isinstance(lm, LayeredLM)


def test_the_lens_at_the_last_layer_is_the_model_itself(lm, streams):
    paris = lm.encode(" Paris")[0]
    reading = logit_lens(streams, lm.head, lm.final_norm, watch=paris)
    assert lm.label(int(reading.top[-1, -1])) == "␣Paris"
    assert reading.share[-1, -1].item() == pytest.approx(0.773, abs=1e-3)
    assert torch.equal(reading.top[-1], lm.all_logits("The capital of France is").argmax(dim=-1))


def test_a_second_norm_gives_another_token_without_the_space(lm, streams):
    paris = lm.encode(" Paris")[0]
    twice = logit_lens(lm.final_norm(streams[-1, -1]), lm.head, lm.final_norm, watch=paris)
    assert lm.label(int(twice.top)) == "Paris"
    assert twice.probability.item() == pytest.approx(0.235, abs=1e-3)
    assert twice.share.item() == pytest.approx(0.0055, abs=1e-4)


def test_reading_along_a_chat_finds_the_ends_of_its_turns(lm):
    chat = lm.chat([{"role": "user", "content": "Name the capital of France."}])
    reading = read_along(lm, chat + "The capital of France is Paris.", special=True)
    assert reading.end[-1] > 0.8
    assert reading.end[-8:-1].max() < 0.01
