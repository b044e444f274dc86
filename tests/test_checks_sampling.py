"""The checkers of notebook 03: right answers pass, plausible wrong ones are told what is wrong."""

import pytest
import torch

from lmhead_course.checks import sampling as ex
from lmhead_course.softmax import softmax
from tests.solving import solved

# ---- functions with faults that learners make -------------------------------------------------------------


def nucleus(before_rule, *, renormalise=True):
    """Return a top-p that keeps a ranked token where ``before_rule(mass before, mass with it, p)``."""

    def my_top_p(logits, p):
        ranked, ids = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = softmax(ranked) if renormalise else ranked.exp()
        mass = probabilities.cumsum(dim=-1)
        stays = before_rule(mass - probabilities, mass, p)
        return logits.masked_fill(~torch.zeros_like(stays).scatter(-1, ids, stays), -torch.inf)

    return my_top_p


def first_always(stays):
    stays[..., 0] = True
    return stays


def top_p_with_all_ties(logits, p):
    probabilities = softmax(logits)
    ranked = probabilities.sort(dim=-1, descending=True).values
    stays = first_always(ranked.cumsum(-1) - ranked < p)
    least = torch.where(stays, ranked, torch.inf).amin(-1, keepdim=True)
    return logits.masked_fill(probabilities < least, -torch.inf)


def right_nucleus(before, mass, p):
    return first_always(before < p)


def top_p_in_place(logits, p):
    result = solved(ex.top_p, ex=ex)(logits.clone(), p)
    logits.copy_(result)
    return logits


def top_p_for_one_row_only(logits, p):
    ranked, ids = logits.reshape(-1, logits.shape[-1])[0].sort(descending=True, stable=True)
    probabilities = softmax(ranked.double())
    stays = first_always((probabilities.cumsum(-1) - probabilities < p) | (p == 1))
    return logits.masked_fill(~torch.zeros_like(stays).scatter(-1, ids, stays), -torch.inf)


def top_p_as_probabilities(logits, p):
    return softmax(solved(ex.top_p, ex=ex)(logits, p))


def top_p_ascending(logits, p):
    ranked, ids = logits.sort(dim=-1)
    probabilities = softmax(ranked)
    stays = first_always(probabilities.cumsum(-1) - probabilities < p)
    return logits.masked_fill(~torch.zeros_like(stays).scatter(-1, ids, stays), -torch.inf)


def top_p_without_ids(logits, p):
    ranked = logits.sort(dim=-1, descending=True).values
    probabilities = softmax(ranked)
    stays = first_always(probabilities.cumsum(-1) - probabilities < p)
    return logits.masked_fill(~stays, -torch.inf)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (nucleus(lambda before, mass, p: first_always(mass <= p)), "you dropped it"),
        (nucleus(lambda before, mass, p: first_always(before <= p)), "1 too many"),
        (nucleus(lambda before, mass, p: before < p), "At least one token"),
        (nucleus(right_nucleus, renormalise=False), "renormalise first"),
        (top_p_with_all_ties, "too many"),
        (nucleus(right_nucleus), "p = 1 must keep everything"),
        (top_p_in_place, "changed the logits it was given"),
        (top_p_for_one_row_only, "In a batch"),
        (top_p_as_probabilities, "looks like probabilities"),
        (top_p_ascending, "2 too many"),
        (top_p_without_ids, "carry the ranks back"),
        (lambda logits, p: logits.tolist(), "returned a list"),
        (lambda logits, p: logits * torch.nan, "NaN"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_top_p_is_told_what_is_wrong(wrong, words):
    verdict = ex.top_p.check(wrong)
    assert verdict.passed is False
    assert words in verdict.message


def top_k_by_threshold(logits, k):
    kth = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < kth, -torch.inf)


def top_k_smallest(logits, k):
    ids = logits.sort(dim=-1, stable=True).indices[..., :k]
    return torch.full_like(logits, -torch.inf).scatter(-1, ids, logits.gather(-1, ids))


def top_k_highest_ids(logits, k):
    ids = logits.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :k]
    ids = logits.shape[-1] - 1 - ids
    return torch.full_like(logits, -torch.inf).scatter(-1, ids, logits.gather(-1, ids))


def top_k_needs_k_below_v(logits, k):
    return top_k_by_threshold(logits, k) if k <= logits.shape[-1] else logits.topk(k).values


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (top_k_by_threshold, "keeps them all"),
        (lambda logits, k: top_k_by_threshold(logits, k).nan_to_num(neginf=0.0), "must be −inf"),
        (top_k_smallest, "the largest logits"),
        (top_k_highest_ids, "lowest ids"),
        (top_k_needs_k_below_v, "RuntimeError"),
        (lambda logits, k: solved(ex.top_k, ex=ex)(logits, max(1, k - 1)), "should keep"),
        (lambda logits, k: solved(ex.top_k, ex=ex)(logits, k) * 2, "changes their logits"),
    ],
)
def test_a_wrong_top_k_is_told_what_is_wrong(wrong, words):
    verdict = ex.top_k.check(wrong)
    assert verdict.passed is False
    assert words in verdict.message


def repetition_always_divides(logits, ids, theta):
    result = logits.clone()
    result[list(set(ids))] /= theta
    return result


def repetition_once_an_occurrence(logits, ids, theta):
    result = logits.clone()
    for token in ids:
        result[token] = result[token] / theta if result[token] > 0 else result[token] * theta
    return result


def repetition_for_all(logits, ids, theta):
    return torch.where(logits > 0, logits / theta, logits * theta)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (repetition_always_divides, "*raises* it"),
        (repetition_once_an_occurrence, "once per distinct token"),
        (repetition_for_all, "was not in the text"),
    ],
)
def test_a_wrong_repetition_penalty_is_told_what_is_wrong(wrong, words):
    verdict = ex.repetition.check(wrong)
    assert verdict.passed is False
    assert words in verdict.message


def allow_by_a_large_negative_number(logits, prompt=None, generated=None):
    result = logits - 1e4
    result[..., list(ex.ALLOWED_IDS)] += 1e4
    return result


def allow_inverted(logits, prompt=None, generated=None):
    result = logits.clone()
    result[..., list(ex.ALLOWED_IDS)] = -torch.inf
    return result


def allow_for_one_row(logits, prompt=None, generated=None):
    result = torch.full_like(logits, -torch.inf)
    result[list(ex.ALLOWED_IDS)] = logits[list(ex.ALLOWED_IDS)]
    return result


def allow_all_alike(logits, prompt=None, generated=None):
    result = torch.full_like(logits, -torch.inf)
    result[..., list(ex.ALLOWED_IDS)] = 2.0
    return result


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (allow_by_a_large_negative_number, "must be −inf"),
        (allow_inverted, "is allowed, but"),
        (allow_for_one_row, "One row works, but a batch"),
        (lambda logits: logits, "unexpected keyword argument"),
        (allow_all_alike, "leaves the others' odds"),
    ],
)
def test_a_wrong_mask_is_told_what_is_wrong(wrong, words):
    verdict = ex.allow_only.check(wrong)
    assert verdict.passed is False
    assert words in verdict.message


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda p, u: int((p.cumsum(-1) < u).sum()), "probability 0"),
        (lambda p, u: int(p.argmax()), "owns the stretch"),
        (lambda p, u: int(p.sort(descending=True).values.cumsum(-1).le(u).sum()), "must never be drawn"),
        (lambda p, u: int((p.cumsum(-1) <= u).sum()), "sum to 1 only roughly"),
    ],
    ids=["ends counted below u", "greedy", "ranked first", "rounding"],
)
def test_a_wrong_draw_is_told_what_is_wrong(wrong, words):
    verdict = ex.draw.check(wrong)
    assert verdict.passed is False
    assert words in verdict.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"不错", "很"}, "crosses the line stays"),
        ({"不错", "很", "好", "差"}, "stop as soon as"),
        ({"不错", "bad"}, "not among"),
        (3, "Answer with words"),
    ],
)
def test_a_wrong_nucleus_of_the_toy_is_told_what_is_wrong(answer, words):
    verdict = ex.predict_nucleus.check(answer)
    assert verdict.passed is False
    assert words in verdict.message


@pytest.mark.parametrize(
    "answer",
    [["不错", "很", "好"], {"Very", "good", "not bad"}, ("不错 (not bad)", "好 (good)", "很 (very)")],
)
def test_the_nucleus_of_the_toy_may_be_named_in_any_of_the_ways_it_is_printed(answer):
    assert ex.predict_nucleus.check(answer).passed is True


@pytest.mark.parametrize("answer", ["llama.cpp", "llama_cpp", ["llama.cpp"], "Llama-cpp"])
def test_the_library_may_be_spelled_in_several_ways(answer):
    assert ex.predict_order.check(answer).passed is True


def test_a_draw_by_a_loop_that_falls_off_the_end_is_told_why():
    def my_draw(probabilities, u):
        total = 0.0
        for token, probability in enumerate(probabilities):
            total += probability
            if u < total:
                return token

    assert "gives None" in ex.draw.check(my_draw).message


def test_a_temperature_may_be_a_tensor():
    assert ex.temperature_for_half.check(torch.tensor(1.659)).passed is True


@pytest.mark.parametrize(
    ("answer", "words"), [(1.5, "a higher"), (2.0, "a lower"), (0, "positive"), ("warm", "positive number")]
)
def test_a_wrong_temperature_is_told_in_which_direction_to_go(answer, words):
    verdict = ex.temperature_for_half.check(answer)
    assert verdict.passed is False
    assert words in verdict.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [("hf", "before it measures"), ("vLLM", "before it measures"), ("all", "Answer with")],
)
def test_a_wrong_library_is_told_why_it_keeps_more(answer, words):
    verdict = ex.predict_order.check(answer)
    assert verdict.passed is False
    assert words in verdict.message
