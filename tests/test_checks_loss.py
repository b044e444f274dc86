"""The checkers of notebook 06: right answers pass, plausible wrong ones are told what is wrong."""

import math
import re

import pytest
import torch
import torch.nn.functional as F

from lmhead_course.checks import Exercise
from lmhead_course.checks import loss as ex

EXERCISES = {name: value for name, value in vars(ex).items() if isinstance(value, Exercise)}


def q(logits, target, epsilon, spread=0):
    target_row = torch.full_like(logits, epsilon / (len(logits) - spread))
    target_row[target] = 1 - epsilon + (0 if spread else epsilon / len(logits))
    return target_row


def by_autograd(logits, target, epsilon):
    z = logits.clone().requires_grad_()
    F.cross_entropy(z, torch.tensor(target), label_smoothing=epsilon).backward()
    return z.grad


def keep(ids, first, last):
    return torch.tensor([x if first <= i < last else -100 for i, x in enumerate(ids.tolist())])


def in_place(ids, p, a):
    ids[:p], ids[p + a :] = -100, -100
    return ids


def plain_loss(z, ids):
    return F.cross_entropy(z[:-1], ids[1:])


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("first_loss", 10.8),
        ("first_loss", torch.tensor(50_257.0).log()),
        ("next_token_loss", plain_loss),
        ("next_token_loss", lambda z, ids: plain_loss(z, ids).item()),
        ("gradient", by_autograd),
        ("token_perplexity", lambda parts: math.exp(sum(map(torch.sum, parts)) / sum(map(len, parts)))),
        ("bits_per_byte", lambda nats, text: nats * math.log2(math.e) / len(bytes(text, "utf-8"))),
        ("labels", lambda ids, p, a: keep(ids, p, p + a)),
        ("micro_weights", lambda counts: torch.tensor(counts) / sum(counts)),
        ("smoothed_gap", 3.83),
    ],
)
def test_other_right_answers_pass(name, answer):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is True, verdict


WRONG = [
    ("first_loss", math.log2(50_257), "bits"),
    ("first_loss", math.log10(50_257), "log10"),
    ("first_loss", 50_257, "perplexity"),
    ("first_loss", 1.0, "1/50,257"),
    ("first_loss", "large", "one number"),
    ("next_token_loss", lambda z, ids: F.cross_entropy(z, ids), "its own token"),
    ("next_token_loss", lambda z, ids: F.cross_entropy(z[1:], ids[:-1]), "wrong way"),
    ("next_token_loss", lambda z, ids: F.cross_entropy(z[:-2], ids[2:]), "shifted twice"),
    ("next_token_loss", lambda z, ids: F.cross_entropy(z, ids.roll(-1)), "came round"),
    ("next_token_loss", lambda z, ids: plain_loss(z, ids) * (len(ids) - 1), "sum"),
    ("next_token_loss", lambda z, ids: plain_loss(z, ids) * (len(ids) - 1) / len(ids), "not by all"),
    ("next_token_loss", lambda z, ids: plain_loss(z, ids).exp(), "perplexity"),
    ("next_token_loss", lambda z, ids: -plain_loss(z, ids), "sign"),
    ("next_token_loss", lambda z, ids: F.cross_entropy(z[:-1].softmax(-1), ids[1:]), "twice"),
    ("next_token_loss", lambda z, ids: plain_loss(z, ids) / math.log(2), "bits"),
    (
        "next_token_loss",
        lambda z, ids: -z[:-1].flip(-1).softmax(-1).flip(-1).gather(1, ids[1:, None]).log().mean(),
        "rounded",
    ),
    ("next_token_loss", lambda z, ids: 0.0, "Position i"),
    ("gradient", lambda z, t, e: q(z, t, e) - z.softmax(0), "uphill"),
    ("gradient", lambda z, t, e: z.softmax(0), "p alone"),
    ("gradient", lambda z, t, e: by_autograd(z, t, 0.0), "without smoothing"),
    ("gradient", lambda z, t, e: z.softmax(0) - q(z, t, e, spread=1), "V − 1"),
    ("gradient", lambda z, t, e: by_autograd(z, t, 0.0) - e / len(z), "sum to one"),
    ("gradient", lambda z, t, e: z, "sum to 0"),
    ("gradient", lambda z, t, e: (z.softmax(0) - q(z, t, e)) / 2, "p − q"),
    ("gradient", lambda z, t, e: 0.3, "shape"),
    (
        "token_perplexity",
        lambda parts: torch.stack([p.mean().exp() for p in parts]).mean(),
        "averaged the perp",
    ),
    (
        "token_perplexity",
        lambda parts: torch.stack([p.mean() for p in parts]).mean().exp(),
        "one token weighed",
    ),
    ("token_perplexity", lambda parts: torch.cat(parts).exp().mean(), "token by token"),
    ("token_perplexity", lambda parts: torch.cat(parts).mean(), "exponential"),
    ("token_perplexity", lambda parts: 2 ** torch.cat(parts).mean(), "base is e"),
    ("token_perplexity", lambda parts: torch.cat(parts).sum().exp(), "exp of the sum"),
    ("bits_per_byte", lambda n, t: n / len(t.encode()), "nats per byte"),
    ("bits_per_byte", lambda n, t: n * math.log(2) / len(t.encode()), "multiplied"),
    ("bits_per_byte", lambda n, t: n / math.log(2) / len(t), "characters"),
    ("bits_per_byte", lambda n, t: n / math.log(2) / len(t.split()), "words"),
    ("bits_per_byte", lambda n, t: n / math.log(2), "whole text"),
    ("labels", lambda ids, p, a: ids.clone(), "Nothing is masked"),
    ("labels", lambda ids, p, a: ids.masked_fill(ids == 9, -100), "never learns to stop"),
    ("labels", lambda ids, p, a: keep(ids, p, p + a).masked_fill(ids == 9, -100), "never learns to stop"),
    ("labels", lambda ids, p, a: keep(ids, p, len(ids)), "padding"),
    ("labels", lambda ids, p, a: keep(ids, 0, p + a), "prompt is still there"),
    ("labels", lambda ids, p, a: keep(ids, p + 1, p + a), "first token is masked"),
    ("labels", lambda ids, p, a: keep(ids, p, p + a).clamp(min=0), "0 is a token"),
    ("labels", in_place, "changed the ids"),
    ("labels", lambda ids, p, a: ids[p : p + a], "shape"),
    ("micro_weights", lambda counts: [1 / len(counts)] * len(counts), "Equal weights"),
    ("micro_weights", lambda counts: counts, "sum over tokens"),
    ("micro_weights", lambda counts: [1.0] * len(counts), "sum to"),
    ("micro_weights", lambda counts: [0.5], "as many weights"),
    ("micro_weights", lambda counts: [c / sum(counts) for c in counts[::-1]], "sum again"),
    ("smoothed_gap", 46, "ratio"),
    ("smoothed_gap", math.log(0.9 / 0.02), "share of ε too"),
    ("smoothed_gap", math.log(0.9 / 0.025), "other four"),
    ("smoothed_gap", math.inf, "for ever"),
    ("smoothed_gap", 1.0, "p = q"),
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
    def failing(logits, ids):
        raise IndexError("too far")

    verdict = ex.next_token_loss.check(failing)
    assert verdict.passed is False
    assert "IndexError" in verdict.message
