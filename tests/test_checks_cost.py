"""The checkers of notebook 05: right answers pass, plausible wrong ones are told what is wrong."""

import math

import pytest
import torch
import torch.nn.functional as F

from lmhead_course.checks import cost as ex


def wrong(exercise, *cases):
    return [pytest.param(exercise, answer, words, id=words) for answer, words in cases]


def by_chunks(how):
    """Return a chunked loss that puts the losses of each chunk together in its own way."""

    def my_chunked_loss(hidden, weight, targets, chunk):
        parts = [
            F.cross_entropy(states @ weight.T, wanted, reduction="none")
            for states, wanted in zip(hidden.split(chunk), targets.split(chunk), strict=True)
        ]
        return how(parts, len(targets), chunk)

    return my_chunked_loss


def mean_of_means(parts, n, chunk):
    return torch.stack([part.mean() for part in parts]).mean()


def without_the_rest(parts, n, chunk):
    full = [part for part in parts if len(part) == chunk] or parts
    return torch.cat(full).mean()


def log_of_full_sums(m1, s1, m2, s2):
    return math.log(s1 * math.exp(m1) + s2 * math.exp(m2))


WRONG = [
    *wrong(
        ex.flops,
        (lambda d, v, n: d * v * n, "multiply-adds"),
        (lambda d, v, n: 2 * d * v, "Every token"),
        (lambda d, v, n: 6 * d * v * n, "forward and backward"),
        (lambda d, v, n: (2 * d - 1) * v * n, "d − 1 additions"),
        (lambda d, v, n: d + v, "dot product"),
        (lambda d, v, n: "many", "finite number"),
    ),
    *wrong(
        ex.gpt2_share,
        (23.7, "two matrices"),
        (26, "in print"),
        (47.4, "twice"),
        (5, "not 5.0 %"),
        (0.26, "in print, but"),
    ),
    *wrong(
        ex.logits_gb,
        (lambda b, n, v, e: b * n * v * e / 2**30, "GiB"),
        (lambda b, n, v, e: b * n * v * e, "Those are bytes"),
        (lambda b, n, v, e: b * v * e / 1e9, "every position"),
        (lambda b, n, v, e: b * n * v / 1e9, "bytes has one number"),
        (lambda b, n, v, e: n * v * e / 1e9, "Every sequence"),
    ),
    *wrong(
        ex.best_time,
        (lambda f, b, m: f / m.flops + b / m.bandwidth, "the longer one hides"),
        (lambda f, b, m: min(f / m.flops, b / m.bandwidth), "not the faster"),
        (lambda f, b, m: f / m.flops, "left out the memory"),
        (lambda f, b, m: b / m.bandwidth, "left out the arithmetic"),
        (lambda f, b, m: min(m.flops / f, m.bandwidth / b), "That is a rate"),
        (lambda f, b, m: f / m.bandwidth, "bytes / device.bandwidth the other"),
    ),
    *wrong(
        ex.ridge_batch,
        (1, "More."),
        (5000, "Fewer do."),
        (0, "at least 1"),
        ("a lot", "finite number"),
    ),
    *wrong(
        ex.chunked,
        (by_chunks(mean_of_means), "mean of the chunks' means"),
        (by_chunks(lambda parts, n, chunk: torch.cat(parts).sum()), "That is the sum"),
        (by_chunks(without_the_rest), "do not fill a chunk"),
        (by_chunks(lambda parts, n, chunk: sum(part.mean() for part in parts)), "added up means"),
        (lambda h, w, t, chunk: F.cross_entropy(h @ w.T, t), "rows of logits at once"),
    ),
    *wrong(
        ex.combine,
        (lambda m1, s1, m2, s2: max(m1, m2) + math.log(s1 + s2), "different maxima"),
        (lambda m1, s1, m2, s2: math.log(s1 + s2), "put it back"),
        (lambda m1, s1, m2, s2: m1 + math.log(s1) + m2 + math.log(s2), "multiplies the sums"),
        (log_of_full_sums, "subtract the larger maximum"),
        (lambda m1, s1, m2, s2: torch.tensor(math.nan), "subtract the larger maximum before"),
    ),
]


@pytest.mark.parametrize(("exercise", "answer", "words"), WRONG)
def test_a_wrong_answer_is_told_what_is_wrong(exercise, answer, words):
    verdict = exercise.check(answer)
    assert verdict.passed is False
    assert words in verdict.message


def test_a_right_loss_may_be_computed_in_another_way():
    def position_by_position(hidden, weight, targets, chunk):
        losses = [(weight @ h).logsumexp(0) - weight[t] @ h for h, t in zip(hidden, targets, strict=True)]
        return torch.stack(losses).mean().item()

    assert ex.chunked.check(position_by_position).passed is True


def test_a_right_combination_may_be_computed_in_another_way():
    def my_combine(m1, s1, m2, s2):
        return torch.logaddexp(torch.tensor(m1) + math.log(s1), torch.tensor(m2) + math.log(s2))

    assert ex.combine.check(my_combine).passed is True
    assert ex.gpt2_share.check(0.31).passed is True
