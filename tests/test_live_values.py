"""What the live model must say, through the numbers of this package."""

import pytest
import torch

from lmhead_course import RankedLogits, SamplingParams, process_logits, sample
from lmhead_course.softmax import softmax
from tests.oracle import kept_ids

FRANCE = "The capital of France is"
HAMLET = "To be or not to be, that is the"


@pytest.fixture(scope="module")
def hamlet(lm):
    return lm.logits(HAMLET)


@pytest.mark.parametrize(
    ("text", "word", "probability"),
    [(FRANCE, " Paris", 0.773), (HAMLET, " question", 0.272), (HAMLET, " eternal", 0.218)],
)
def test_the_next_word_has_the_probability_the_course_prints(lm, text, word, probability):
    (token,) = lm.encode(word)
    assert softmax(lm.logits(text))[token].item() == pytest.approx(probability, abs=5e-4)


def test_the_two_most_probable_words_after_hamlets_line_are_question_and_eternal(lm, hamlet):
    rows = RankedLogits(hamlet).distribution(SamplingParams(), top=2).rows
    assert [lm.decode([row.token_id]) for row in rows] == [" question", " eternal"]


@pytest.mark.parametrize(
    ("order", "min_p", "kept"),
    [
        ("hf", 0, 37),
        ("vllm", 0, 37),
        ("llama.cpp", 0, 22),
        ("hf", 0.05, 28),
        ("vllm", 0.05, 21),
        ("llama.cpp", 0.05, 5),
    ],
)
def test_the_order_of_the_stages_decides_how_many_words_stay(hamlet, order, min_p, kept):
    params = SamplingParams(temperature=1.5, top_k=50, top_p=0.9, min_p=min_p, order=order)
    assert len(kept_ids(process_logits(hamlet, params))) == kept
    assert RankedLogits(hamlet).distribution(params).kept == kept


def test_greedy_decoding_of_the_capital_of_france_is_paris(lm):
    assert lm.decode([sample(lm.logits(FRANCE), SamplingParams(temperature=0)).item()]) == " Paris"


def test_drawing_from_the_live_distribution_gives_question_about_27_times_in_100(lm, hamlet):
    (token,) = lm.encode(" question")
    drawn = sample(hamlet.expand(400, -1), SamplingParams(), generator=torch.Generator().manual_seed(0))
    assert (drawn == token).float().mean().item() == pytest.approx(0.272, abs=0.07)
