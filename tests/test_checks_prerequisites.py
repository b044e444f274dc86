"""The self-test of notebook 00: right answers however they are written, and what each wrong one is told."""

import math
from fractions import Fraction

import pytest
import torch

from lmhead_course.checks import prerequisites as ex

RIGHT = [
    (ex.slices, [1, 4]),
    (ex.slices, [n * n for n in range(5)][1:3]),
    (ex.product_shape, (2, 5, 7)),
    (ex.product_shape, [2, 5, 7]),
    (ex.product_shape, (torch.zeros(2, 5, 3) @ torch.zeros(3, 7)).shape),
    (ex.row_sums, (4, 1)),
    (ex.row_sums, torch.zeros(4, 6).sum(dim=-1, keepdim=True).shape),
    (ex.log_product, -5),
    (ex.log_product, math.log(math.exp(-2) * math.exp(-3))),
    (ex.log_product, torch.tensor(-5.0)),
    (ex.both_draws, 9 / 64),
    (ex.both_draws, 0.14),
    (ex.both_draws, Fraction(9, 64)),
]
WRONG = [
    (ex.slices, (1, 4), "a slice of a list is a list"),
    (ex.slices, [9, 16], "begins with 0"),
    (ex.slices, [1, 2], "squares each number"),
    (ex.slices, [1, 4, 9], "*before* place 3"),
    (ex.slices, [0], "Write out"),
    (ex.product_shape, (2, 5, 3, 7), "is summed over, so it is gone"),
    (ex.product_shape, (5, 7), "once for each of its 2 entries"),
    (ex.product_shape, (2, 3, 7), "no 3 is left"),
    (ex.product_shape, (7, 5, 2), "Rows of the first meet columns"),
    (ex.product_shape, "(2, 5, 7)", "A shape is a tuple"),
    (ex.product_shape, 70, "A shape is a tuple"),
    (ex.row_sums, (4,), "without keepdim=True"),
    (ex.row_sums, (1, 6), "*last* axis"),
    (ex.row_sums, (4, 6), "one number for each row"),
    (ex.row_sums, (24,), "4 rows of 6 numbers"),
    (ex.log_product, 6, "a *sum* of logarithms"),
    (ex.log_product, math.exp(-5), "That is p · q itself"),
    (ex.log_product, 5, "the sign is not"),
    (ex.log_product, math.log(math.exp(-2) + math.exp(-3)), "log(p + q)"),
    (ex.log_product, 1.5, "adding their exponents"),
    (ex.log_product, "-5", "one number"),
    (ex.both_draws, 3 / 8, "of one draw"),
    (ex.both_draws, 9, "dividing by their sum"),
    (ex.both_draws, 0.75, "must both happen multiply"),
    (ex.both_draws, 14.06, "Right in percent"),
    (ex.both_draws, 2, "between 0 and 1"),
    (ex.both_draws, 0.2, "3 out of 8"),
    (ex.both_draws, math.nan, "between 0 and 1"),
    (ex.both_draws, True, "one number"),
]


@pytest.mark.parametrize(("exercise", "answer"), RIGHT)
def test_a_right_answer_is_right_however_it_is_written(exercise, answer):
    assert exercise.check(answer).passed, exercise.check(answer)


@pytest.mark.parametrize(("exercise", "answer", "words"), WRONG)
def test_a_wrong_answer_is_told_what_is_wrong_with_it(exercise, answer, words):
    verdict = exercise.check(answer)
    assert verdict.passed is False
    assert words in verdict.message
