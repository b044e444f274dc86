"""The exercises of notebook 07: from one token to a text."""

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..softmax import log_softmax
from ..studies import distinct as share_of_distinct
from .exercise import Exercise, call

CLOSE = 1e-4


# ---- what the checkers share ----------------------------------------------------------------------------


def _number(value: Any) -> float | str:
    """Return the learner's number, or what is wrong with it in form."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool):
        return f"A number is wanted, got a {type(value).__name__}."
    return "Your number is NaN." if math.isnan(value) else float(value)


def _ids(value: Any) -> list[int] | str:
    if isinstance(value, Tensor):
        value = value.flatten().tolist()
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"A list of token ids is wanted, got a {type(value).__name__}."
    try:
        return [int(token_id) for token_id in value]
    except (TypeError, ValueError):
        return f"A list of token ids is wanted, got {value!r}."


def _near(got: float, expected: float) -> bool:
    return math.isclose(got, expected, rel_tol=CLOSE, abs_tol=CLOSE)


# ---- 1. the loop ----------------------------------------------------------------------------------------

_V = 7


class _Scripted:
    """Stands in for a model: the next token is the sum of all ids so far, modulo 7. It remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, ids: Any) -> Tensor:
        ids = [int(token_id) for token_id in ids]
        self.asked.append(ids)
        logits = torch.linspace(-1.0, -2.0, _V)
        logits[sum(ids) % _V] = 3.0
        return logits


def _written(prompt: list[int], eos_ids: set[int], n: int) -> list[int]:
    ids = list(prompt)
    while len(ids) < len(prompt) + n and not (set(ids[len(prompt) :]) & eos_ids):
        ids.append(sum(ids) % _V)
    return ids[len(prompt) :]


_LOOPS = (([1, 2], set(), 5), ([1, 2], {5}, 6), ([3, 1], {6, 4}, 6), ([2, 2], {0, 1}, 6), ([5, 1], {5}, 3))


def _loop(function: Callable) -> str | None:
    for prompt, eos_ids, n in _LOOPS:
        model, given = _Scripted(), list(prompt)
        got = _ids(call(function, model, given, set(eos_ids), n))
        if isinstance(got, str):
            return got
        if given != prompt:
            return "Your function changed the prompt's list. The caller still needs it: make a new list."
        expected = _written(prompt, eos_ids, n)
        if got != expected:
            return _loop_words(prompt, eos_ids, n, got, expected, model)
    return None


def _loop_words(prompt, eos_ids, n, got, expected, model) -> str:
    case = f"For the prompt {prompt}, stop tokens {eos_ids or '{}'} and n = {n} you return {got}; right is {expected}. "
    if got[: len(prompt)] == prompt and got[len(prompt) :] == expected:
        return case + "Return the new tokens only, without the prompt."
    if any(len(ids) < len(prompt) for ids in model.asked):
        return case + "Ask the model with the prompt *and* all tokens so far, not with a part of them."
    if got == expected[:-1] and expected[-1] in eos_ids:
        return case + "The stop token belongs to what was generated: append it, then stop."
    if len(got) > len(expected) and got[: len(expected)] == expected:
        if set(expected) & eos_ids:
            return case + f"The text ended with {expected[-1]}: *any* of the stop tokens ends it."
        return case + "That is more than n new tokens."
    if len(got) < len(expected) and got == expected[: len(got)]:
        return case + "It stops too early. A stop token in the *prompt* ends nothing."
    return case + "At each step append the id with the largest logit, and ask again."


loop = Exercise(
    _loop,
    praise="That is generate() without its comforts: a sampler in place of argmax, and a cache, are all it lacks.",
    hint="""
        Keep a list of new ids. In each round: logits of prompt + new, argmax, append;
        then leave the loop if the id is one of the stop tokens.
    """,
    solution="""
        def my_loop(next_logits, prompt, eos_ids, n):
            new = []
            while len(new) < n:
                new.append(int(next_logits(prompt + new).argmax()))
                if new[-1] in eos_ids:
                    break
            return new
    """,
)


# ---- 2. the log-probability of a text ---------------------------------------------------------------------


def _joint(function: Callable) -> str | None:
    random = torch.Generator().manual_seed(0)
    for n in (1, 3, 6):
        logits = 2 * torch.randn(n, 5, generator=random) + 1
        ids = torch.randint(5, (n,), generator=random).tolist()
        got = _number(call(function, logits.clone(), list(ids)))
        if isinstance(got, str):
            return got
        rows = log_softmax(logits)
        terms = [rows[place, token_id].item() for place, token_id in enumerate(ids)]
        if not _near(got, sum(terms)):
            return _joint_words(got, n, logits, ids, terms)
    return None


def _joint_words(got: float, n: int, logits: Tensor, ids: list[int], terms: list[float]) -> str:
    case = f"For {n} tokens you return {got:.3f}; right is {sum(terms):.3f}. "
    picked = sum(logits[place, token_id].item() for place, token_id in enumerate(ids))
    if _near(got, picked):
        return case + "You add up logits. A log-probability is a logit minus its row's logsumexp."
    if _near(got, math.exp(sum(terms))):
        return case + "You return the probability; its logarithm is asked for."
    if _near(got, -sum(terms)):
        return case + "The sign is wrong: ln of a probability is negative."
    if _near(got, sum(terms) / n):
        return case + "You return the mean per token; the whole text has the sum."
    if n > 1 and _near(got, sum(terms[1:])):
        return case + "The first token is missing: row 0 is what the model said *before* it."
    return case + "Take log_softmax of each row, pick the row's own token, and add up."


joint = Exercise(
    _joint,
    praise="ln of a product is a sum of ln's. For long texts only the sum survives: the product underflows to 0.",
    hint="log_softmax(logits) has one row a token; row i at column ids[i] is that token's log-probability.",
    solution="""
        def my_joint(logits, ids):
            rows = torch.log_softmax(logits, dim=-1)
            return sum(rows[i, token].item() for i, token in enumerate(ids))
    """,
)


# ---- 3. predict: two beams or one -------------------------------------------------------------------------


def _predict_beams(answer: Any) -> str | None:
    if answer not in ("higher", "lower", "equal"):
        return f'Answer "higher", "lower" or "equal"; got {answer!r}.'
    if answer == "equal":
        return "It would be equal if the greedy beginning had stayed best all along. Look at the next cell."
    if answer == "higher":
        return "That is what one expects, and what is often said. Look at the next cell."
    return None


predict_beams = Exercise(
    _predict_beams,
    praise="−18.43 against −15.62: the beginning that would have become best was dropped on the way.",
    hint="Beam search promises nothing: it keeps two beginnings, and what it has dropped never comes back.",
    solution='answer = "lower"',
)


# ---- 4. one step of beam search ---------------------------------------------------------------------------

_BEAMS = (
    ([-1.0, -1.2], [[2.0, 1.9, -3.0, 0.0], [6.0, 0.0, 5.5, 0.0]], 2),
    ([0.0], [[1.0, 3.0, 2.0, -1.0]], 3),
    ([-2.0, -2.1, -9.0], [[5.0, 4.9, 4.8, 0.0], [0.0, 0.0, 0.0, 0.1], [9.0, 0.0, 0.0, 0.0]], 3),
)


def _best(scores: Tensor, k: int) -> list[tuple[int, int]]:
    flat = scores.flatten().topk(k).indices.tolist()
    return [divmod(place, scores.shape[1]) for place in flat]


def _beam_step(function: Callable) -> str | None:
    for joints, rows, k in _BEAMS:
        before, logits = torch.tensor(joints), torch.tensor(rows)
        result = call(function, before.clone(), logits.clone(), k)
        try:
            got = [(int(parent), int(token), float(total)) for parent, token, total in result]
        except (TypeError, ValueError):
            return "Return a list of (beam, token, joint log-probability), one for each beam that goes on."
        if len(got) != k:
            return f"You keep {len(got)} candidates; with k = {k} exactly {k} go on."
        scores = before[:, None] + log_softmax(logits)
        if problem := _beam_words(got, scores, before, logits, k):
            return problem
    return None


def _beam_words(got, scores, before, logits, k) -> str | None:
    pairs, expected = [(parent, token) for parent, token, _ in got], _best(scores, k)
    case = f"With joints {[round(x, 2) for x in before.tolist()]} you keep (beam, token) {pairs}; right is {expected}. "
    if sorted(pairs) != sorted(expected):
        if sorted(pairs) == sorted(_best(before[:, None] + logits, k)):
            return case + "Logits of two beams cannot be compared: take log_softmax of each row first."
        if sorted(pairs) == sorted(_best(log_softmax(logits), k)):
            return case + "You forget what the beams have cost so far: add their joint log-probabilities."
        if len({parent for parent, _ in pairs}) == len(before) == k:
            return (
                case
                + "You take one candidate from each beam. All candidates compete with all: a beam may die."
            )
        if sorted((token, parent) for parent, token in pairs) == sorted(expected):
            return case + "Beam and token are exchanged."
        return (
            case + "A flat index is beam · V + token: divide by V for the beam, the remainder is the token."
        )
    if pairs != expected:
        return case + "The right ones, but the best has to come first."
    for parent, token, total in got:
        if not _near(total, scores[parent, token].item()):
            return (
                f"(beam {parent}, token {token}) has joint log-probability {scores[parent, token]:.3f}, you say "
                f"{total:.3f}: add the token's log-probability to what its beam has so far."
            )
    return None


beam_step = Exercise(
    _beam_step,
    praise="Note what can happen: both places may go to one beam, and the other is gone for good.",
    hint="""
        scores = joints[:, None] + log_softmax(logits): one number for each beam and token, (B, V).
        flatten() and topk(k) find the best; divmod(place, V) gives back beam and token.
    """,
    solution="""
        def my_beam_step(joints, logits, k):
            scores = joints[:, None] + torch.log_softmax(logits, dim=-1)
            best = scores.flatten().topk(k)
            V = logits.shape[1]
            return [(i // V, i % V, s) for i, s in zip(best.indices.tolist(), best.values.tolist())]
    """,
)


# ---- 5. a length penalty ----------------------------------------------------------------------------------

SHORT, LONG = (-6.0, 4), (-7.5, 6)
"""Two finished texts: joint log-probability and number of tokens."""


def _length_penalty(alpha: Any) -> str | None:
    alpha = _number(alpha)
    if isinstance(alpha, str):
        return alpha
    short, long = (score / n**alpha for score, n in (SHORT, LONG))
    if abs(short - long) > 0.02:
        winner, other = ("short", "higher") if short > long else ("long", "lower")
        return (
            f"At α = {alpha:g} the scores are {short:.3f} and {long:.3f}: the {winner} text is clearly ahead. "
            f"Try a {other} α."
        )
    return None


length_penalty = Exercise(
    _length_penalty,
    praise="(6/4)^α = 7.5/6, so α = ln 1.25 / ln 1.5 = 0.550. Below it the short text wins, above it the long one.",
    hint="Write −6 / 4^α = −7.5 / 6^α, bring the powers to one side, and take logarithms.",
    solution="answer = math.log(7.5 / 6) / math.log(6 / 4)    # 0.550",
)


# ---- 6. repetition ----------------------------------------------------------------------------------------

_TEXTS = (([1, 2, 3, 4, 1, 2, 3, 1], 2), ([5, 5, 5, 5], 1), ([1, 2, 3, 4], 2), ([1, 2, 1, 2, 1], 3))


def _distinct(function: Callable) -> str | None:
    for ids, n in _TEXTS:
        got = _number(call(function, list(ids), n))
        if isinstance(got, str):
            return got
        expected = share_of_distinct(ids, n)
        if not _near(got, expected):
            return _distinct_words(got, ids, n, expected)
    return None


def _distinct_words(got: float, ids: list[int], n: int, expected: float) -> str:
    case = f"For {ids} and n = {n} you return {got:.3f}; right is {expected:.3f}. "
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    if _near(got, 1 - expected):
        return case + "That is the share of repeated ones: 1 minus what is asked."
    if _near(got, len(set(grams))):
        return case + "That is their number; divide by the number of all n-grams."
    if _near(got, len(set(grams)) / len(ids)):
        return case + f"You divide by the number of tokens; there are only {len(grams)} n-grams."
    if _near(got, len(set(ids)) / len(ids)):
        return case + "You count distinct tokens, not distinct runs of n tokens."
    apart = [tuple(ids[i : i + n]) for i in range(0, len(ids) - n + 1, n)]
    if apart and _near(got, len(set(apart)) / len(apart)):
        return case + "Your n-grams stand side by side; they overlap: one begins at every token."
    return case + f"The n-grams are {grams}."


distinct = Exercise(
    _distinct,
    praise="1 means that nothing comes twice. Compare texts of one length only: longer ones repeat more.",
    hint="An n-gram begins at every place from 0 to len(ids) − n. Put them, as tuples, into a set.",
    solution="""
        def my_distinct(ids, n):
            grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
            return len(set(grams)) / len(grams)
    """,
)


# ---- 7. predict: how often a draft is accepted ------------------------------------------------------------

TARGET, DRAFT = (0.5, 0.3, 0.2), (0.2, 0.3, 0.5)
"""What a model and its draft say about three tokens."""


def _agreement(answer: Any) -> str | None:
    share = _number(answer)
    if isinstance(share, str):
        return share
    if 1 < share <= 100:
        return "Give it as a share between 0 and 1."
    if _near(share, sum(p * q for p, q in zip(TARGET, DRAFT, strict=True))):
        return "That is the chance that two separate draws are equal; the rule accepts more often than that."
    if abs(share - 0.7) > 0.005:
        return (
            "Add up over the tokens: drawn with q, then accepted with min(1, p/q). Together q · min(1, p/q)."
        )
    return None


agreement = Exercise(
    _agreement,
    praise="0.2 · 1 + 0.3 · 1 + 0.5 · 0.4 = 0.7, that is Σ min(p, q): the overlap of the two distributions.",
    hint="Token 0 is drawn with chance 0.2 and always accepted, since p > q. Token 2 is drawn with chance 0.5 and …",
    solution="answer = sum(min(p, q) for p, q in zip(ex.TARGET, ex.DRAFT))    # 0.7",
)


# ---- 8. what is drawn after a refusal ---------------------------------------------------------------------

_PAIRS = ((TARGET, DRAFT), ((0.1, 0.6, 0.1, 0.2), (0.4, 0.1, 0.4, 0.1)), ((0.7, 0.3), (0.0, 1.0)))


def _residual(function: Callable) -> str | None:
    for target, draft in _PAIRS:
        p, q = torch.tensor(target), torch.tensor(draft)
        result = call(function, p.clone(), q.clone())
        got = torch.as_tensor(result, dtype=torch.float32)
        if got.shape != p.shape:
            return f"For {len(p)} tokens your result has shape {tuple(got.shape)}; one probability a token is wanted."
        missing = (p - q).clamp(min=0)
        if not torch.allclose(got, missing / missing.sum(), atol=CLOSE):
            return _residual_words(got, p, q, missing)
    return None


def _residual_words(got: Tensor, p: Tensor, q: Tensor, missing: Tensor) -> str:
    shown, right = ([round(x, 3) for x in one.tolist()] for one in (got, missing / missing.sum()))
    given = " and ".join(
        f"{name} = {[round(x, 2) for x in one.tolist()]}" for name, one in (("p", p), ("q", q))
    )
    case = f"For {given} you return {shown}; right is {right}. "
    if torch.allclose(got, p, atol=CLOSE):
        return (
            case
            + "Drawing from p again favours what the draft proposes too: that share was dealt out already."
        )
    if (got < 0).any():
        return (
            case
            + "A probability is never negative: where the draft says more than the model, nothing is missing."
        )
    if torch.allclose(got, missing, atol=CLOSE):
        return case + f"It sums to {got.sum():.3f}: divide by the sum."
    more = (q - p).clamp(min=0)
    if torch.allclose(got, more, atol=CLOSE) or torch.allclose(got, more / more.sum(), atol=CLOSE):
        return case + "The other way round: what the *model* gives and the draft does not."
    return case + "It is what p has above q, and nothing else, made to sum to 1."


residual = Exercise(
    _residual,
    praise="Accepted proposals deal out min(p, q), refusals what p has above it. Together: exactly p.",
    hint="Accepted proposals give each token min(p, q). How much of p is then still to be given, and to whom?",
    solution="""
        def my_residual(p, q):
            missing = (p - q).clamp(min=0)
            return missing / missing.sum()
    """,
)
