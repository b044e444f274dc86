"""The checkers of notebook 02: right answers pass, plausible wrong ones are told what is wrong."""

import math
import re

import pytest
import torch

from lmhead_course.checks import Exercise
from lmhead_course.checks import softmax as ex

INF = math.inf
EXERCISES = {name: value for name, value in vars(ex).items() if isinstance(value, Exercise)}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("ratio", [4.48, 20.1]),
        ("four_candidates", 1.7959),
        ("predict_overflow", 11.0),
        ("stable_softmax", lambda z: torch.softmax(z, dim=-1)),
        ("stable_softmax", lambda z: (z - torch.logsumexp(z, -1, keepdim=True)).exp()),
        ("log_softmax", lambda z: torch.log_softmax(z, dim=-1)),
        ("log_softmax", lambda z: z - torch.logsumexp(z, dim=-1, keepdim=True)),
        (
            "merge",
            lambda a, b: torch.tensor(
                [
                    max(a[0], b[0]),
                    a[1] * math.exp(a[0] - max(a[0], b[0])) + b[1] * math.exp(b[0] - max(a[0], b[0])),
                ]
            ),
        ),
        ("gumbel", lambda z, u, T: ((z / T).softmax(-1) / -u.log()).argmax(-1)),
        ("not_invariant", {"repetition"}),
    ],
)
def test_other_right_answers_pass(name, answer):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is True, verdict


def naive(z):
    return z.exp() / z.exp().sum(dim=-1, keepdim=True)


def in_place(z):
    z -= z.amax(dim=-1, keepdim=True)
    return naive(z)


def log_naive(z):
    return z - z.exp().sum(dim=-1, keepdim=True).log()


def merged(rule):
    """Return a merge whose sum is ``rule(a, b, larger maximum)``."""
    return lambda a, b: (max(a[0], b[0]), rule(a, b, max(a[0], b[0])))


def noise(u):
    return -torch.log(-torch.log(u))


WRONG = [
    ("ratio", (3.8 / 2.3, 2 * 3.8 / 2.3), "ratio of the logits"),
    ("ratio", (4.48, 8.96), "difference.*doubles"),
    ("ratio", (1.5, 3), "e to the power"),
    ("ratio", (4.48, 4.48), "= 3"),
    ("four_candidates", 1.0, "must be higher"),
    ("four_candidates", 3.0, "must be lower"),
    ("four_candidates", -1, "positive"),
    ("predict_overflow", 88, "float32's limit"),
    ("predict_overflow", 16, "natural logarithm"),
    ("predict_overflow", 12, "162,755"),
    ("predict_overflow", 11.09, "whole number"),
    ("stable_softmax", naive, "maximum before exp"),
    ("stable_softmax", lambda z: (z - z.max()).exp() / (z - z.max()).exp().sum(-1, keepdim=True), "own"),
    ("stable_softmax", lambda z: torch.softmax(z, dim=0), "row"),
    ("stable_softmax", lambda z: (z - z.max()).exp() / (z - z.max()).exp().sum(), "row"),
    ("stable_softmax", in_place, "changed the logits"),
    ("stable_softmax", lambda z: z / z.sum(-1, keepdim=True), "ratios are wrong"),
    ("stable_softmax", lambda z: (z - z.amax(-1, keepdim=True)).exp(), "not to one"),
    ("stable_softmax", lambda z: z.softmax(-1).tolist(), "list"),
    ("stable_softmax", lambda z: z.softmax(-1).amax(-1), "shape"),
    ("log_softmax", lambda z: z.softmax(-1).log(), "rounded to 0"),
    ("log_softmax", log_naive, "range"),
    ("log_softmax", lambda z: z.softmax(-1), "look like probabilities"),
    ("log_softmax", lambda z: z - z.amax(-1, keepdim=True), "logsumexp"),
    ("log_softmax", lambda z: torch.log_softmax(z, -1) / math.log(2), "logsumexp"),
    ("merge", merged(lambda a, b, m: a[1] + b[1]), "different maxima"),
    ("merge", lambda a, b: (a[0], a[1] + b[1] * math.exp(b[0] - a[0])), "larger of the two"),
    ("merge", merged(lambda a, b, m: a[1] * math.exp(m - a[0]) + b[1] * math.exp(m - b[0])), "e\\^"),
    ("merge", lambda a, b: a[1] + b[1], "two numbers"),
    ("gumbel", lambda z, u, T: (z / T).argmax(-1), "Always the same"),
    ("gumbel", lambda z, u, T: ((z + noise(u)) / T).argmax(-1), "before"),
    ("gumbel", lambda z, u, T: (z.softmax(-1) + noise(u)).argmax(-1), "probabilities"),
    ("gumbel", lambda z, u, T: (noise(u) - z / T).argmax(-1), "sign"),
    ("gumbel", lambda z, u, T: (z / T - torch.log(u)).argmax(-1), "noise is"),
    ("gumbel", lambda z, u, T: (z / T + noise(u)).amax(-1), "token ids"),
    ("not_invariant", "temperature", "still one constant"),
    ("not_invariant", {"repetition", "presence"}, "compares or subtracts"),
    ("not_invariant", set(), "sign"),
    ("not_invariant", "top_k", "not among"),
]


@pytest.mark.parametrize(("name", "answer", "words"), WRONG)
def test_a_wrong_answer_is_told_what_is_wrong(name, answer, words):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is False
    assert re.search(words, verdict.message), verdict.message


@pytest.mark.parametrize("name", EXERCISES)
def test_every_exercise_has_seen_three_wrong_answers(name):
    assert sum(wrong == name for wrong, _, _ in WRONG) >= 3


def test_an_exception_in_the_learners_code_becomes_words():
    def failing(logits):
        raise IndexError("too far")

    verdict = ex.stable_softmax.check(failing)
    assert verdict.passed is False
    assert "IndexError" in verdict.message
