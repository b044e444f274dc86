"""The checkers of notebook 01: right answers pass, plausible wrong ones are told what is wrong."""

import pytest
import torch

from lmhead_course.checks import projection as ex
from lmhead_course.toy import LABELS, WORDS, toy_hidden, toy_logits, toy_rows

# ---- right answers written differently ----------------------------------------------------------------------


def logits_by_einsum(hidden, weight, bias=None):
    z = torch.einsum("...d,vd->...v", hidden, weight)
    return z + (0 if bias is None else bias)


def angle_by_acos(hidden, weight):
    return torch.nn.functional.cosine_similarity(weight, hidden[None], dim=1).acos().argmin()


def last_by_loop(hidden, mask):
    return torch.stack([states[row.nonzero().max()] for states, row in zip(hidden, mask, strict=True)])


def twins_as_a_set(weight, row, least=0.999):
    return {i for i in range(len(weight)) if torch.cosine_similarity(weight[i], weight[row], dim=0) > least}


def twins_as_a_tensor(weight, row, least=0.999):
    return (torch.cosine_similarity(weight, weight[row : row + 1]) > least).nonzero()


def lost_as_a_text(text, encode, decode):
    return "".join(c for c in text if c not in decode(encode(c)))


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        (ex.never_wins, LABELS[0]),
        (ex.never_wins, 0),
        (ex.logits, logits_by_einsum),
        (ex.by_angle, angle_by_acos),
        (ex.predict_ranks, [2, 3, 3, 5]),
        (ex.last, last_by_loop),
        (ex.twins, twins_as_a_set),
        (ex.twins, twins_as_a_tensor),
        (ex.lost, lost_as_a_text),
    ],
)
def test_another_right_answer_is_right(exercise, answer):
    verdict = exercise.check(answer)
    assert verdict.passed is True, verdict


# ---- wrong ones ---------------------------------------------------------------------------------------------


def logits_turned_around(hidden, weight, bias=None):
    return hidden @ weight


def logits_without_bias(hidden, weight, bias=None):
    return hidden @ weight.T


def logits_as_probabilities(hidden, weight, bias=None):
    return logits_by_einsum(hidden, weight, bias).softmax(-1)


def logits_for_one_state(hidden, weight, bias=None):
    return logits_by_einsum(hidden.reshape(-1, 4)[0], weight, bias)


def logits_by_rows(hidden, weight, bias=None):
    return logits_by_einsum(torch.nn.functional.normalize(hidden, dim=-1), weight, bias)


def lost_whole(text, encode, decode):
    return [] if decode(encode(text)) == text else [text]


def lost_if_no_token(text, encode, decode):
    return [c for c in text if not encode(c)]


WRONG = [
    *((ex.never_wins, word, "wins with a hidden state at") for word in WORDS[1:]),
    (ex.never_wins, "very", "is not among"),
    (ex.logits, logits_turned_around, "stored (d_vocab, d_model)"),
    (ex.logits, logits_without_bias, "bias is missing"),
    (ex.logits, logits_as_probabilities, "probabilities"),
    (ex.logits, logits_for_one_state, "the last axis becomes d_vocab"),
    (ex.logits, logits_by_rows, "dot product"),
    (ex.logits, lambda hidden, weight, bias: 3, "returned a int"),
    (ex.by_angle, lambda h, w: (w @ h).argmax(), "because it is long"),
    (ex.by_angle, lambda h, w: (w @ h / w.norm(dim=1)).abs().argmax(), "absolute value"),
    (ex.by_angle, lambda h, w: w.norm(dim=1).argmax(), "longest"),
    (ex.by_angle, lambda h, w: (w - h).norm(dim=1).argmin(), "distance"),
    (ex.by_angle, lambda h, w: (w @ h / w.norm(dim=1)).argmin(), "points away"),
    (ex.by_angle, lambda h, w: 9, "There are 5 rows"),
    (ex.predict_ranks, (5, 5, 5, 5), "Plain"),
    (ex.predict_ranks, (2, 2, 3, 5), "With a bias"),
    (ex.predict_ranks, (2, 3, 2, 5), "Log-softmax"),
    (ex.predict_ranks, (2, 3, 3, 2), "tanh"),
    (ex.predict_ranks, (2, 3), "Four numbers"),
    (ex.last, lambda h, m: h[:, -1], "The last column"),
    (ex.last, lambda h, m: h[torch.arange(len(h)), m.sum(1) - 1], "padding is on the right"),
    (ex.last, lambda h, m: h[:, 0], "largest index"),
    (ex.last, lambda h, m: h[0, -1], "(batch, d_model)"),
    (ex.last, lambda h, m: (h * m[..., None]).sum(1), "no position"),
    (ex.twins, lambda w, r, least=0.999: (w @ w[r] > least).nonzero().flatten(), "Divide every row"),
    (ex.twins, lambda w, r, least=0.999: twins_as_a_set(w, r) - {r}, "itself"),
    (
        ex.twins,
        lambda w, r, least=0.999: (torch.cosine_similarity(w, w[r][None]).abs() > least).nonzero(),
        "no absolute value",
    ),
    (ex.twins, lambda w, r, least=0.999: ((w - w[r]).norm(dim=1) < 0.1).nonzero(), "not distances"),
    (ex.lost, lost_whole, "one by one"),
    (ex.lost, lost_if_no_token, "does not come back"),
    (ex.lost, lambda text, encode, decode: [c for c in text if ord(c) > 127], "does"),
]


@pytest.mark.parametrize(("exercise", "answer", "words"), WRONG)
def test_a_wrong_answer_is_told_what_is_wrong(exercise, answer, words):
    verdict = exercise.check(answer)
    assert verdict.passed is False
    assert words in verdict.message


def test_the_word_that_never_wins_really_never_does():
    # A finer circle than the checker's. The hidden state's length does not matter: it scales all logits alike.
    angles = torch.linspace(0, 2 * torch.pi, 100_000, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert set((circle @ toy_rows().double().T).argmax(dim=1).tolist()) == {1, 2, 3, 4}


def test_the_toys_head_gives_the_toys_logits():
    torch.testing.assert_close(toy_rows() @ toy_hidden(), toy_logits())
