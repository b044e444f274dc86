"""The checkers of notebook 08: right answers pass, plausible wrong ones are told what is wrong."""

import math
import re

import pytest
import torch

from lmhead_course.checks import Exercise
from lmhead_course.checks import lens as ex

EXERCISES = {name: value for name, value in vars(ex).items() if isinstance(value, Exercise)}
BITS = math.log(2)


def log_p(z):
    return torch.log_softmax(z, dim=-1)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("predict_scale", ["entropy", "probability"]),
        ("lens", lambda h, norm, w: torch.einsum("lpd,vd->lpv", norm(h), w).argmax(-1)),
        ("lens", lambda h, norm, w: torch.stack([torch.softmax(norm(x) @ w.T, -1).argmax(-1) for x in h])),
        ("settled", lambda top: max([i + 1 for i, t in enumerate(top) if t != top[-1]], default=0)),
        (
            "settled",
            lambda top: torch.tensor(max([i + 1 for i, t in enumerate(top) if t != top[-1]], default=0)),
        ),
        ("rank", lambda z, t: z.argsort(descending=True).tolist().index(t) + 1),
        ("rank", lambda z, t: int((z >= z[t]).sum())),
        ("surprise", lambda z, ids: -torch.log2(torch.softmax(z, -1)[:-1].gather(1, ids[1:, None])[:, 0])),
        (
            "surprise",
            lambda z, ids: torch.nn.functional.cross_entropy(z[:-1], ids[1:], reduction="none") / BITS,
        ),
        ("chance", lambda p: -math.expm1(sum(math.log1p(-x) if x < 1 else -math.inf for x in p.tolist()))),
        ("chance", lambda p: 1 - math.prod(1 - x for x in p.tolist())),
        ("changes_head", ["audio codebooks", "multi-token prediction", "classifier"]),
    ],
)
def test_other_right_answers_pass_too(name, answer):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is True, verdict


def once_and_last_plain(h, norm, w):
    return (torch.cat([norm(h[:-1]), h[-1:]]) @ w.T).argmax(-1)


def add_in_place(h, norm, w):
    h += 1
    return (norm(h - 1) @ w.T).argmax(-1)


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("predict_scale", {"top token", "probability"}, "change their order"),
        ("predict_scale", {"probability"}, "leave the entropy alone"),
        ("predict_scale", set(), "temperature"),
        ("predict_scale", {"logits"}, "is not among"),
        ("lens", lambda h, norm, w: (h @ w.T).argmax(-1), "*without* the final norm"),
        ("lens", lambda h, norm, w: (norm(norm(h)) @ w.T).argmax(-1), "norm twice"),
        ("lens", lambda h, norm, w: (norm(h[-1]) @ w.T).argmax(-1), "last layer only"),
        ("lens", lambda h, norm, w: norm(h) @ w.T, "still logits"),
        ("lens", lambda h, norm, w: (norm(h) @ w.T).amax(-1), "whole numbers"),
        ("lens", lambda h, norm, w: (norm(h) @ w.T).argmin(-1), "argmin"),
        ("lens", once_and_last_plain, "without the norm"),
        ("lens", add_in_place, "changed the hidden states"),
        ("lens", lambda h, norm, w: (norm(h) @ w).argmax(-1), "RuntimeError"),
        ("lens", lambda h, norm, w: [1], "should return a tensor"),
        ("settled", lambda top: top.tolist().index(top[-1]), "*first* on top"),
        ("settled", lambda top: max([i for i, t in enumerate(top) if t != top[-1]], default=0), "one later"),
        ("settled", lambda top: len(top) - 1, "right is 1"),
        (
            "settled",
            lambda top: len(top) - max([i + 1 for i, t in enumerate(top) if t != top[-1]], default=0),
            "how *many*",
        ),
        ("rank", lambda z, t: (z > z[t]).sum(), "rank 1, not 0"),
        ("rank", lambda z, t: (z <= z[t]).sum(), "from the worst"),
        ("rank", lambda z, t: z.argsort(descending=True)[t] + 1, "*which token*"),
        ("surprise", lambda z, ids: -log_p(z)[torch.arange(6), ids] / BITS, "Off by one"),
        ("surprise", lambda z, ids: -log_p(z)[torch.arange(6), ids][1:] / BITS, "Off by one"),
        ("surprise", lambda z, ids: -log_p(z[:-1])[torch.arange(5), ids[1:]], "in nats"),
        ("surprise", lambda z, ids: log_p(z[:-1])[torch.arange(5), ids[1:]] / BITS, "never negative"),
        ("surprise", lambda z, ids: log_p(z[:-1])[torch.arange(5), ids[1:]].exp(), "are probabilities"),
        (
            "surprise",
            lambda z, ids: -log_p(z[:-1])[torch.arange(5), ids[1:]].mean(),
            "one for each but the first",
        ),
        ("surprise", lambda z, ids: 3.0, "should return a tensor"),
        ("chance", lambda p: p.sum(), "can pass 1"),
        ("chance", lambda p: p.max(), "another chance"),
        ("chance", lambda p: p.prod(), "*every* time"),
        ("chance", lambda p: p.mean(), "right is 0.7500"),
        ("chance", lambda p: (1 - p).prod() ** 2, "right is 0.7500"),
        ("changes_head", {"mixture of experts", *ex.MODELS[2:]}, "inside the layers"),
        ("changes_head", {"vision-language", *ex.MODELS[2:]}, "at the *input*"),
        ("changes_head", {"classifier", "audio codebooks"}, "Several tokens"),
        ("changes_head", {"classifier"}, "vocabulary of its own"),
        ("changes_head", {"audio codebooks"}, "How many rows"),
        ("changes_head", "everything", "is not among"),
    ],
)
def test_a_wrong_answer_is_told_what_is_wrong(name, answer, words):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is False
    assert re.search(re.escape(words), verdict.message), verdict.message
