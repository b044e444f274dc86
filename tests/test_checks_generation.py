"""The checkers of notebook 07: right answers pass, plausible wrong ones are told what is wrong."""

import re

import pytest
import torch

from lmhead_course.checks import Exercise
from lmhead_course.checks import generation as ex

EXERCISES = {name: value for name, value in vars(ex).items() if isinstance(value, Exercise)}
FUNCTIONS = ["loop", "joint", "beam_step", "distinct", "residual"]


# ---- the loop, written in right and wrong ways ----------------------------------------------------------


def loop_for(next_logits, prompt, eos_ids, n):
    ids = list(prompt)
    for _ in range(n):
        ids.append(next_logits(torch.tensor(ids)).argmax().item())
        if ids[-1] in eos_ids:
            break
    return torch.tensor(ids[len(prompt) :])


def loop_without_end(next_logits, prompt, eos_ids, n):
    new = []
    for _ in range(n):
        new.append(int(next_logits(prompt + new).argmax()))
    return new


def loop_one_stop(next_logits, prompt, eos_ids, n):
    new = []
    while len(new) < n:
        new.append(int(next_logits(prompt + new).argmax()))
        if new[-1] == max(eos_ids, default=None):
            break
    return new


def loop_with_prompt(next_logits, prompt, eos_ids, n):
    return prompt + loop_for(next_logits, prompt, eos_ids, n).tolist()


def loop_in_place(next_logits, prompt, eos_ids, n):
    new = []
    while len(new) < n:
        prompt.append(int(next_logits(prompt).argmax()))
        new.append(prompt[-1])
        if new[-1] in eos_ids:
            break
    return new


def loop_last_token_only(next_logits, prompt, eos_ids, n):
    new = []
    while len(new) < n:
        new.append(int(next_logits((prompt + new)[-1:]).argmax()))
        if new[-1] in eos_ids:
            break
    return new


def loop_drops_the_end(next_logits, prompt, eos_ids, n):
    new = []
    while len(new) < n:
        token = int(next_logits(prompt + new).argmax())
        if token in eos_ids:
            break
        new.append(token)
    return new


def loop_one_too_many(next_logits, prompt, eos_ids, n):
    return loop_for(next_logits, prompt, eos_ids, n + 1)


def loop_looks_at_the_prompt(next_logits, prompt, eos_ids, n):
    ids = list(prompt)
    while len(ids) < len(prompt) + n and not set(ids) & set(eos_ids):
        ids.append(int(next_logits(ids).argmax()))
    return ids[len(prompt) :]


def joint_without_the_first(logits, ids):
    first = min(1, len(ids) - 1)
    return log_p(logits)[range(first, len(ids)), ids[first:]].sum()


# ---- beam steps -----------------------------------------------------------------------------------------


def best(scores, k):
    top = scores.flatten().topk(k)
    v = scores.shape[1]
    return [(i // v, i % v, s) for i, s in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


def log_p(logits):
    return torch.log_softmax(logits, dim=-1)


def beam_by_hand(joints, logits, k):
    scores = joints[:, None] + logits - logits.logsumexp(-1, keepdim=True)
    every = [(float(s), b, t) for b, row in enumerate(scores) for t, s in enumerate(row)]
    return [(b, t, s) for s, b, t in sorted(every, reverse=True)[:k]]


def beam_one_each(joints, logits, k):
    scores = joints[:, None] + log_p(logits)
    each = [(b, int(row.argmax()), float(row.max())) for b, row in enumerate(scores)]
    return sorted(each, key=lambda one: -one[2])[:k] if len(each) >= k else best(scores, k)


def beam_exchanged(joints, logits, k):
    return [(token, beam, score) for beam, token, score in best(joints[:, None] + log_p(logits), k)]


def beam_own_only(joints, logits, k):
    return [(b, t, float(log_p(logits)[b, t])) for b, t, _ in best(joints[:, None] + log_p(logits), k)]


def beam_worst_first(joints, logits, k):
    return best(joints[:, None] + log_p(logits), k)[::-1]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("loop", loop_for),
        ("joint", lambda z, ids: log_p(z)[range(len(ids)), ids].sum()),
        (
            "joint",
            lambda z, ids: -float(torch.nn.functional.cross_entropy(z, torch.tensor(ids), reduction="sum")),
        ),
        ("beam_step", beam_by_hand),
        ("length_penalty", 0.55),
        ("length_penalty", torch.tensor(0.5503)),
        (
            "distinct",
            lambda ids, n: (
                len(g := list(zip(*(ids[i:] for i in range(n)), strict=False))) and len(set(g)) / len(g)
            ),
        ),
        ("agreement", 0.7),
        ("residual", lambda p, q: [max(0, a - b) / sum((p - q).relu()) for a, b in zip(p, q, strict=True)]),
        ("residual", lambda p, q: torch.relu(p - q) / (1 - torch.minimum(p, q).sum())),
    ],
)
def test_other_right_answers_pass(name, answer):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is True, verdict


WRONG = [
    ("loop", loop_without_end, "any* of the stop tokens"),
    ("loop", loop_one_stop, "any* of the stop tokens"),
    ("loop", loop_with_prompt, "without the prompt"),
    ("loop", loop_in_place, "changed the prompt"),
    ("loop", loop_last_token_only, "prompt *and* all tokens so far"),
    ("loop", loop_drops_the_end, "append it, then stop"),
    ("loop", loop_one_too_many, "more than n"),
    ("loop", loop_looks_at_the_prompt, "in the *prompt* ends nothing"),
    ("loop", lambda f, prompt, eos, n: "text", "list of token ids"),
    ("joint", lambda z, ids: z[range(len(ids)), ids].sum(), "add up logits"),
    ("joint", lambda z, ids: log_p(z)[range(len(ids)), ids].sum().exp(), "return the probability"),
    ("joint", lambda z, ids: log_p(z)[range(len(ids)), ids].mean(), "mean per token"),
    ("joint", lambda z, ids: -log_p(z)[range(len(ids)), ids].sum(), "sign"),
    ("joint", joint_without_the_first, "first token is missing"),
    ("joint", lambda z, ids: log_p(z), "A number is wanted"),
    ("predict_beams", "higher", "often said"),
    ("predict_beams", "equal", "next cell"),
    ("predict_beams", "no idea", "Answer"),
    ("beam_step", lambda j, z, k: best(j[:, None] + z, k), "cannot be compared"),
    ("beam_step", lambda j, z, k: best(log_p(z), k), "what its beam has so far"),
    ("beam_step", beam_one_each, "a beam may die"),
    ("beam_step", beam_exchanged, "exchanged"),
    ("beam_step", beam_own_only, "what its beam has so far"),
    ("beam_step", beam_worst_first, "best has to come first"),
    ("beam_step", lambda j, z, k: best(j[:, None] + log_p(z), 1), "exactly 2 go on"),
    ("beam_step", lambda j, z, k: (j[:, None] + log_p(z)).flatten().topk(k).indices, "Return a list of"),
    ("length_penalty", 1.0, "long text is clearly ahead"),
    ("length_penalty", 0.0, "short text is clearly ahead"),
    ("length_penalty", "0.5", "A number is wanted"),
    ("distinct", lambda ids, n: 1 - share_of_distinct(ids, n), "1 minus what is asked"),
    ("distinct", lambda ids, n: len(grams(ids, n)), "divide by the number"),
    ("distinct", lambda ids, n: len(grams(ids, n)) / len(ids), "number of tokens"),
    ("distinct", lambda ids, n: len(set(ids)) / len(ids), "distinct tokens"),
    (
        "distinct",
        lambda ids, n: len({tuple(ids[i : i + n]) for i in range(0, len(ids) - n + 1, n)})
        / len(range(0, len(ids) - n + 1, n)),
        "overlap",
    ),
    ("agreement", 0.29, "two separate draws"),
    ("agreement", 70, "share between 0 and 1"),
    ("agreement", 0.5, "Add up over the tokens"),
    ("residual", lambda p, q: p, "dealt out already"),
    ("residual", lambda p, q: p - q, "never negative"),
    ("residual", lambda p, q: (p - q).clamp(min=0), "divide by the sum"),
    ("residual", lambda p, q: (q - p).clamp(min=0) / (q - p).clamp(min=0).sum(), "other way round"),
    ("residual", lambda p, q: torch.minimum(p, q), "above q"),
    ("residual", lambda p, q: (p - q).clamp(min=0).sum(), "shape"),
]  # fmt: skip


def grams(ids, n):
    return {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}


def share_of_distinct(ids, n):
    return len(grams(ids, n)) / (len(ids) - n + 1)


@pytest.mark.parametrize(("name", "answer", "words"), WRONG)
def test_a_plausible_wrong_answer_is_told_what_is_wrong(name, answer, words):
    verdict = EXERCISES[name].check(answer)
    assert verdict.passed is False, verdict
    assert re.search(re.escape(words), verdict.message), verdict.message


@pytest.mark.parametrize("name", EXERCISES)
def test_at_least_three_wrong_answers_are_known_for_each_exercise(name):
    assert sum(wrong == name for wrong, _, _ in WRONG) >= 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_exception_becomes_words(name):
    verdict = EXERCISES[name].check(lambda *args: 1 / 0)
    assert verdict.passed is False
    assert "ZeroDivisionError" in verdict.message
