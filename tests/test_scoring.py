import math

import pytest
import torch

from lmhead_course import SamplingParams, scoring
from lmhead_course.generation import generate
from lmhead_course.sampling import process_logits
from lmhead_course.scoring import choose_answer, score_continuations, split
from tests.tiny_lm import TinyLM, letters
from tests.typecheck import refused


def token_by_token(lm, context, ids, params=None):
    """The plain definition: read everything anew before each token."""
    log_probs = []
    for place, token_id in enumerate(ids):
        logits = lm.step(torch.tensor([context + ids[:place]]))[0][0]
        if params is not None:
            logits = process_logits(logits, params, prompt=context, generated=ids[:place])
        log_probs.append(logits.log_softmax(-1)[token_id].item())
    return log_probs


ANSWERS = ["c", "de", "gfedcba", "aa"]


def test_each_token_is_scored_given_all_before_it():
    lm = letters()
    for answer, score in zip(ANSWERS, score_continuations(lm, "ab", ANSWERS), strict=True):
        assert score.ids == lm.encode(answer)
        assert score.log_probs == pytest.approx(token_by_token(lm, [0, 1], score.ids), abs=1e-5)
        assert score.total == pytest.approx(sum(score.log_probs))
        assert score.per_token == pytest.approx(score.total / len(score.ids))


def test_the_prompt_is_read_once_for_all_answers():
    lm = letters()
    score_continuations(lm, "abc", ANSWERS)
    assert lm.calls == [(1, 3), (4, 6)]


def test_many_answers_are_read_in_portions_with_the_same_result(monkeypatch):
    whole = score_continuations(letters(), "ab", ANSWERS)
    monkeypatch.setattr(scoring, "LOGITS_LIMIT", 1)
    lm = letters()
    for one, other in zip(score_continuations(lm, "ab", ANSWERS), whole, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    assert len(lm.calls) == 1 + len(ANSWERS)


def test_all_answers_of_one_length_share_a_probability_of_one():
    scores = score_continuations(letters(), "ab", [[i, j] for i in range(8) for j in range(8)])
    assert sum(math.exp(score.total) for score in scores) == pytest.approx(1, abs=1e-5)


def test_processed_scores_follow_the_pipeline_with_the_answers_earlier_tokens_as_generated():
    lm = letters()
    params = SamplingParams(
        temperature=0.7, repetition_penalty=1.4, frequency_penalty=0.5, presence_penalty=0.2
    )
    for score in score_continuations(lm, "abba", ["gaggag", "cc"], params):
        expected = token_by_token(lm, lm.encode("abba"), score.ids, params)
        assert score.log_probs == pytest.approx(expected, abs=1e-5)


def test_a_token_that_the_processors_drop_has_no_probability():
    lm = letters()
    best = lm.logits("ab").argmax().item()
    scores = score_continuations(lm, "ab", [[best], [(best + 1) % 8]], SamplingParams(top_k=1))
    assert [score.total for score in scores] == [0.0, -math.inf]


def test_raw_scores_are_the_log_probabilities_that_generate_reports():
    steps = list(generate(letters(), "ab", SamplingParams(temperature=0), max_new_tokens=6))
    (score,) = score_continuations(letters(), "ab", ["".join(step.text for step in steps)])
    assert score.log_probs == pytest.approx([step.log_prob for step in steps], abs=1e-5)


# The boundary between prompt and answer


WORDS = TinyLM([" ", "is", "Paris", " Paris", "Rome", "R", "ome", "!"], bos_id=7)


def test_a_space_that_belongs_to_the_answers_token_is_scored_with_the_answer():
    context, (ids,) = split(WORDS, "is ", ["Paris"])
    assert context == WORDS.encode("is")
    assert ids == WORDS.encode(" Paris")


def test_all_answers_are_scored_behind_the_same_tokens_even_where_only_one_of_them_merges():
    context, answers = split(WORDS, "is ", ["Paris", "Rome"])
    assert context == WORDS.encode("is")
    assert answers == [WORDS.encode(" Paris"), WORDS.encode(" Rome")]


def test_a_boundary_between_two_tokens_stays_where_it_is():
    assert split(WORDS, "is", [" Paris"]) == (WORDS.encode("is"), [WORDS.encode(" Paris")])


def test_ids_are_taken_as_they_stand_so_that_texts_can_be_encoded_apart():
    context, answers = split(WORDS, "is ", [WORDS.encode("Paris")])
    assert (context, answers) == (WORDS.encode("is") + WORDS.encode(" "), [WORDS.encode("Paris")])
    assert split(WORDS, WORDS.encode("is "), ["Paris"]) == (context, answers)


def test_where_even_the_first_token_merges_the_bos_token_stands_in_front():
    assert split(WORDS, " ", ["Paris"]) == ([7], [WORDS.encode(" Paris")])
    assert split(WORDS, "", ["Paris"]) == ([7], [WORDS.encode("Paris")])


def test_a_bos_token_that_the_tokenizer_always_adds_is_not_scored():
    class AddsBos(TinyLM):
        def encode(self, text, special=False):
            return [7, *super().encode(text)] if text else []

    lm = AddsBos(["a", "b", "c", "d", "e", "f", "g", "<s>"], bos_id=7)
    assert split(lm, "ab", ["cd"]) == ([7, 0, 1], [[2, 3]])
    assert split(lm, "", ["cd"]) == ([7], [[2, 3]])
    assert split(lm, [7, 0], ["cd"]) == ([7, 0], [[2, 3]])


# Choosing


def test_the_most_probable_answer_is_chosen_by_the_measure_asked_for():
    scores = score_continuations(letters(), "ab", ANSWERS)
    for by in ("total", "per_token", "per_byte"):
        best = max(range(4), key=lambda place: getattr(scores[place], by))
        assert choose_answer(letters(), "ab", ANSWERS, by=by).text == ANSWERS[best]


@pytest.mark.parametrize(
    ("prompt", "answers", "words"),
    [
        ("ab", [], ["continuations must be a list of at least one text", "[]"]),
        ("ab", "cd", ["continuations must be a list", "'cd'"]),
        ("ab", ["c", ""], ["continuations must not be empty", "''"]),
        ("ab", [[9]], ["token ids in 0 … 7", "9"]),
        ("a" * 60, ["bcdef"], ["65 tokens", "64"]),
    ],
)
def test_what_cannot_be_scored_is_named(prompt, answers, words):
    with refused(*words):
        score_continuations(letters(), prompt, answers)


def test_an_unknown_measure_is_named():
    with refused("by must be", "'length'"):
        choose_answer(letters(), "ab", ["c"], by="length")


# The live model


def test_the_live_model_scores_the_capital_with_and_without_the_prompts_last_space(lm):
    answers = ["Paris", "London", "the moon"]
    spaced = score_continuations(lm, "The capital of France is", [" " + answer for answer in answers])
    moved = score_continuations(lm, "The capital of France is ", answers)
    assert spaced[0].total == pytest.approx(math.log(0.773), abs=0.002)
    for one, other in zip(moved, spaced, strict=True):
        assert one.ids == other.ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-3)


def test_encoded_apart_a_space_before_the_answer_makes_the_right_one_improbable(lm):
    prompt = "The capital of France is "
    (joint,) = score_continuations(lm, prompt, ["Paris"])
    (apart,) = score_continuations(lm, prompt, [lm.encode("Paris")])
    assert joint.total > -1 > -3 > apart.total


def test_the_live_model_chooses_the_right_answer(lm):
    answers = [" planets", " cheese", " the colour blue"]
    assert choose_answer(lm, "Mercury, Venus, Earth and Mars are", answers).text == " planets"
