"""The checkers of notebook 04: right answers pass, plausible wrong ones are told what is wrong."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lmhead_course.checks import Exercise
from lmhead_course.checks import tying as ex
from lmhead_course.tying import is_tied, neighbours, path_gradients
from tests.solving import solved

EXERCISES = {name: value for name, value in vars(ex).items() if isinstance(value, Exercise)}


@pytest.mark.parametrize("name", EXERCISES)
def test_an_unattempted_stub_is_neither_right_nor_wrong(name):
    assert EXERCISES[name].check(...).passed is None
    if callable(solved(EXERCISES[name], ex=ex)):
        assert EXERCISES[name].check(lambda *args: ...).passed is None


def tie_the_other_way(model):
    model.embedding.weight = model.head.weight
    return model


def tie_by_copying(model):
    model.head.weight.data.copy_(model.embedding.weight)
    return model


def tie_memory_only(model):
    model.head.weight.data = model.embedding.weight.data
    return model


def tie_to_new_numbers(model):
    model.head.weight = model.embedding.weight = nn.Parameter(torch.zeros(7, 4))
    return model


def paths_of(choose, *, reduction="mean"):
    """Return an answer to exercise 5 that gives whatever ``choose`` makes of the right (input, output)."""

    def my_paths(body, weight, ids, targets):
        right = path_gradients(body, weight, weight, ids, targets)
        factor = targets.numel() if reduction == "sum" else 1
        return choose(factor * right.input, factor * right.output)

    return my_paths


def nearest_by(score):
    def my_nearest(rows, token, n):
        scores = score(rows, rows[token])
        scores[token] = -torch.inf
        return scores.topk(n).indices.tolist()

    return my_nearest


def cosine(rows, vector):
    return F.cosine_similarity(rows, vector[None])


def nearest_with_itself(rows, token, n):
    return cosine(rows, rows[token]).topk(n).indices


def sgd_only(sets):
    return {"SGD": {1, 2}, "Adam": {0, 1, 2}, "AdamW": set(range(6)), **sets}


WRONG = [
    ("saving", 62.6, "62.6 %"),
    ("saving", 77.0, "one of them"),
    ("saving", 50, "second matrix"),
    ("saving", "half", "A number"),
    ("optimisers", {"SGD": {1, 2}}, "with the keys"),
    ("optimisers", sgd_only({"SGD": {0, 1, 2}}), "nothing else"),
    ("optimisers", sgd_only({"Adam": {1, 2}}), "Adam remembers"),
    ("optimisers", sgd_only({"Adam": set(range(6))}), "never had a gradient"),
    ("optimisers", sgd_only({"Adam": {0, 3}}), "one by one"),
    ("optimisers", sgd_only({"AdamW": {0, 1, 2}}), "shrinks every weight"),
    ("optimisers", sgd_only({"SGD": {6}}), "numbered 0 to 5"),
    ("is_tied", lambda m: torch.equal(m.embedding.weight, m.head.weight), "is a copy"),
    ("is_tied", lambda m: m.embedding.weight is m.head.weight, "not objects"),
    (
        "is_tied",
        lambda m: m.embedding.weight.shape == m.head.weight.shape,
        "two matrices of different numbers",
    ),
    ("is_tied", lambda m: getattr(m, "tied", False) or is_tied(m), "A flag says"),
    ("is_tied", lambda m: "yes", "a str"),
    ("is_tied", lambda m: m.weight, "AttributeError"),
    ("tie", tie_by_copying, "in two places"),
    ("tie", tie_the_other_way, "Turn it around"),
    ("tie", tie_memory_only, "still two parameters"),
    ("tie", tie_to_new_numbers, "numbers changed"),
    ("tie", lambda model: model, "numbers of their own"),
    ("tie", lambda model: True, "let it return the model"),
    ("paths", paths_of(lambda i, o: (o, i)), "swapped"),
    ("paths", paths_of(lambda i, o: (i + o, i + o)), "whole gradient"),
    ("paths", paths_of(lambda i, o: (i, o), reduction="sum"), "8 times too large"),
    ("paths", paths_of(lambda i, o: (i, i + o)), "output path is not"),
    ("paths", paths_of(lambda i, o: (i + o, o)), "input path is not"),
    ("paths", paths_of(lambda i, o: (i * 0, o * 0)), "Neither"),
    ("paths", paths_of(lambda i, o: (None, o)), "is None"),
    ("paths", paths_of(lambda i, o: (i.T, o)), "has shape"),
    ("paths", paths_of(lambda i, o: i), "Return two gradients"),
    ("nearest", nearest_with_itself, "its own nearest"),
    ("nearest", nearest_by(lambda rows, v: rows @ v), "largest dot products"),
    ("nearest", nearest_by(lambda rows, v: -(rows - v).norm(dim=1)), "smallest distances"),
    ("nearest", nearest_by(lambda rows, v: -cosine(rows, v)), "the largest cosines"),
    ("nearest", lambda rows, token, n: solved(ex.nearest, ex=ex)(rows, token, n)[::-1], "come first"),
    ("nearest", lambda rows, token, n: solved(ex.nearest, ex=ex)(rows, token, 2), "2 ids for n = 3"),
]


@pytest.mark.parametrize(
    ("name", "wrong", "words"), WRONG, ids=[f"{name}-{words}" for name, _, words in WRONG]
)
def test_a_wrong_answer_is_told_what_is_wrong(name, wrong, words):
    verdict = EXERCISES[name].check(wrong)
    assert verdict.passed is False
    assert words in verdict.message


def test_other_right_answers_pass():
    def by_storage(model):
        return (
            model.embedding.weight.untyped_storage().data_ptr()
            == model.head.weight.untyped_storage().data_ptr()
        )

    def by_normalise(rows, token, n):
        return torch.tensor([i for i, _ in neighbours(rows, rows[token], n, [token])])

    assert ex.is_tied.check(by_storage).passed
    assert ex.nearest.check(by_normalise).passed
    assert ex.paths.check(paths_of(lambda i, o: [i, o])).passed
    assert ex.saving.check(0.385).passed
    assert ex.saving.check(38.5).passed


def test_the_optimisers_are_those_of_torch():
    assert {name: ex.moved_rows(name) for name in ("SGD", "Adam", "AdamW")} == {
        "SGD": {1, 2},
        "Adam": {0, 1, 2},
        "AdamW": {0, 1, 2, 3, 4, 5},
    }
