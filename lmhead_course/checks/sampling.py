"""The exercises of notebook 03: from probabilities to a token."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..processors import filter_top_k, filter_top_p, penalize_repetition
from ..softmax import softmax
from ..toy import GLOSSES, LABELS, WORDS, toy_logits
from .exercise import Exercise, call

INF = math.inf


# ---- what the checkers share ----------------------------------------------------------------------------


def _processed(function: Callable, logits: Tensor, *args) -> Tensor | str:
    """Return what the learner's processor makes of a copy of the logits, or what is wrong with it in form."""
    given = logits.clone()
    result = call(function, given, *args)
    if not isinstance(result, Tensor):
        return f"Your function returned a {type(result).__name__}; it should return a tensor of logits."
    if not torch.equal(given, logits):
        return "Your function changed the logits it was given. Others still need them: make a new tensor."
    if result.shape != logits.shape:
        return f"For logits of shape {tuple(logits.shape)} your result has shape {tuple(result.shape)}; keep the shape."
    if result.isnan().any():
        return "Your result holds NaN. Is an −inf subtracted from an −inf, or a row left without any token?"
    if ((result >= 0) & (result <= 1)).all() and logits.shape[-1] > 1:
        return "Your result looks like probabilities. Return logits, with −inf where a token is dropped."
    return result


def _kept(row: Tensor) -> set[int]:
    return set(row.isfinite().nonzero().flatten().tolist())


def _say(ids: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted(ids))) + "}"


def _same_distribution(got: Tensor, expected: Tensor) -> bool:
    """Compare probabilities, not logits: a right answer may shift a row by a constant."""
    return torch.allclose(softmax(got.float()), softmax(expected.float()), atol=1e-5)


def _batch_problem(function: Callable, rows: Tensor, *args) -> str | None:
    """Return a complaint where a batch does not give what its rows give one by one."""
    try:
        together = _processed(function, rows, *args)
    except (IndexError, RuntimeError, ValueError, TypeError) as error:
        return (
            f"One row works, but a batch of shape {tuple(rows.shape)} raises {type(error).__name__}: {error}"
        )
    if isinstance(together, str):
        return together
    alone = torch.stack([function(row.clone(), *args) for row in rows])
    for index, (got, expected) in enumerate(zip(together, alone, strict=True)):
        if not _same_distribution(got, expected):
            return (
                f"In a batch of {len(rows)} rows, row {index} keeps {_say(_kept(got))}; alone it keeps "
                f"{_say(_kept(expected))}. Work along the last axis: rows must not affect each other."
            )
    return None


# ---- 1. predict: the nucleus of the toy -----------------------------------------------------------------


def _nucleus_of_the_toy(answer: Any) -> str | None:
    named = dict(zip((*WORDS, *GLOSSES, *LABELS), WORDS * 3, strict=True))
    if not isinstance(answer, Iterable):
        return f"Answer with words, such as {{'好', '差'}} or {{'good', 'poor'}}, got {answer!r}."
    given = [answer] if isinstance(answer, str) else [str(word) for word in answer]
    if unknown := [word for word in given if word.lower() not in named]:
        return (
            f"{unknown} is not among the five candidates {list(LABELS)}. Answer with single words, such as "
            "{'好', '差'} or {'good', 'poor'}."
        )
    words = {named[word.lower()] for word in given}
    if words == {"不错", "很"}:
        return "不错 and 很 together hold 85.26 %: not yet 90 %. The token that crosses the line stays."
    if words != {"不错", "很", "好"}:
        return "Add up probabilities from the largest down, and stop as soon as the sum is at least 90 %."
    return None


predict_nucleus = Exercise(
    _nucleus_of_the_toy,
    praise="69.71 + 15.55 + 6.99 = 92.25 %: 好 crosses the line of 90 %, and the token that crosses stays.",
    hint="Sort 69.71, 15.55, 6.99, 5.18, 2.57 and add from the left. Which sum is the first to reach 90?",
    solution='answer = {"不错", "很", "好"}',
)


# ---- 2. a temperature for a purpose ---------------------------------------------------------------------


def _temperature_for_half(temperature: Any) -> str | None:
    try:
        temperature = float(temperature)
    except (TypeError, ValueError):
        temperature = math.nan
    if not temperature > 0:
        return "A temperature is a positive number."
    share = softmax(toy_logits() / temperature)[2].item()
    if abs(share - 0.5) > 0.002:
        needed = "a higher" if share > 0.5 else "a lower"
        return f"At T = {temperature} the word 不错 has {share:.2%}; for 50 % you need {needed} temperature."
    return None


temperature_for_half = Exercise(
    _temperature_for_half,
    praise="At that temperature 不错 is as likely as the four others together.",
    hint="Try T = 1.5 first (53.44 %). The share falls as T rises, so halving the interval finds it in a few steps.",
    solution="""
        low, high = 1.5, 3.0
        for _ in range(30):
            middle = (low + high) / 2
            share = softmax(toy_logits() / middle)[2]
            low, high = (middle, high) if share > 0.5 else (low, middle)
        answer = low    # about 1.659
    """,
)


# ---- 3. top-k with ties ---------------------------------------------------------------------------------


def _top_k(function: Callable) -> str | None:
    for logits, k in (
        (toy_logits(), 3),
        (toy_logits(), 1),
        (toy_logits(), 9),
        (torch.tensor([1.0, 2, 2, 2, 3]), 2),
        (torch.tensor([-4.0, -1, -3, -INF, -2]), 3),
    ):
        got = _processed(function, logits, k)
        if isinstance(got, str):
            return got
        expected = filter_top_k(logits, k)
        if not _same_distribution(got, expected):
            return _top_k_words(logits, k, _kept(got), _kept(expected))
    return _batch_problem(function, torch.tensor([[1.0, 5, 3, 2], [9.0, 1, 8, 7], [-1.0, -2, -3, -4]]), 2)


def _top_k_words(logits: Tensor, k: int, got: set[int], expected: set[int]) -> str:
    case = f"With k = {k} on {[round(x, 1) for x in logits.tolist()]} your function keeps {_say(got)}, "
    if got == expected:
        return case + "the right tokens, but it changes their logits: leave those that stay as they are."
    tied = k < len(logits) and logits.sort(descending=True).values[k - 1 : k + 1].unique().numel() == 1
    if len(got) > k and not tied:
        return case + (
            f"that is {len(got)} tokens; it should keep {_say(expected)}. A dropped token's logit must be −inf: 0 or a "
            "low number can still be drawn."
        )
    if len(got) > k:
        return case + (
            f"that is {len(got)} tokens. Equal logits at the k-th place: comparing with the k-th value keeps them all. "
            f"Ours keeps exactly k, the lowest ids first: {_say(expected)}."
        )
    if len(got) == len(expected):
        return case + f"ours keeps {_say(expected)}: the largest logits, and among equals the lowest ids."
    return case + f"it should keep {_say(expected)}. A k above the number of tokens keeps them all."


top_k = Exercise(
    _top_k,
    praise="Exactly k, the lowest ids among equals, and each row by itself.",
    hint="""
        logits.sort(descending=True, stable=True) gives values and ids, equal values in the order of their ids.
        Mark the first k places of the ranking, then carry the marks back to the ids with scatter.
    """,
    solution="""
        def my_top_k(logits, k):
            ids = logits.sort(dim=-1, descending=True, stable=True).indices[..., :k]
            kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, True)
            return logits.masked_fill(~kept, -torch.inf)
    """,
)


# ---- 4. top-p, which can drive the explorer --------------------------------------------------------------

_NUCLEUS_CASES = (
    ([0.3, 0.1, 0.1, 0.5], 0.75),
    ([0.1, 0.2, 0.3, 0.4], 0.65),
    ([0.5, 0.25, 0.125, 0.125], 0.75),
    ([0.25, 0.25, 0.25, 0.25], 0.5),
    ([0.4, 0.3, 0.2, 0.1], 1.0),
    ([0.4, 0.3, 0.2, 0.1], 0.0),
)


def _top_p(function: Callable) -> str | None:
    for probabilities, p in _NUCLEUS_CASES:
        logits = torch.tensor(probabilities).log()
        got = _processed(function, logits, p)
        if isinstance(got, str):
            return got
        if not _same_distribution(got, filter_top_p(logits, p)):
            return _top_p_words(probabilities, p, _kept(got), _kept(filter_top_p(logits, p)))
    return (
        _survivors_problem(function)
        or _everything_problem(function)
        or _shift_problem(function)
        or _batch_problem(function, torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]]).log(), 0.65)
    )


def _top_p_words(probabilities: list[float], p: float, got: set[int], expected: set[int]) -> str:
    case = f"With p = {p} on probabilities {probabilities} your function keeps {_say(got)}; right is {_say(expected)}. "
    if got == expected:
        return case + "The tokens are right, but their logits changed: leave those that stay as they are."
    if not got:
        return case + "At least one token must stay, or there is nothing to sample."
    if got < expected:
        return case + "The token whose probability crosses the line belongs to the nucleus: you dropped it."
    if got > expected:
        return case + (
            f"You keep {len(got - expected)} too many: the nucleus is the *smallest* set that reaches p, filled "
            "from the most probable token downwards, and reaching means at least p."
        )
    return case + "Go from the most probable token downwards, and carry the ranks back to the tokens' ids."


def _survivors_problem(function: Callable) -> str | None:
    """After a top-k, p is measured on what the survivors hold."""
    logits = torch.tensor([0.4, 0.3, 0.0, 0.0]).log()
    got = _processed(function, logits, 0.5)
    if isinstance(got, str):
        return got
    if _kept(got) != {0}:
        return (
            "After a top-k that left probabilities 0.4 and 0.3, p = 0.5 must keep only the first: among the survivors "
            f"it has 0.4/0.7 = 57 %. Yours keeps {_say(_kept(got))}: renormalise first (a softmax of the logits does)."
        )
    return None


def _everything_problem(function: Callable) -> str | None:
    """float32 sums over a vocabulary reach 1 before its end."""
    logits = -torch.arange(50_000.0) / 500
    got = _processed(function, logits, 1.0)
    if isinstance(got, str):
        return got
    if lost := len(logits) - len(_kept(got)):
        return (
            f"p = 1 must keep everything, but of {len(logits):,} tokens yours drops {lost:,}: a float32 cumsum over a "
            "vocabulary reaches 1 too early. Cumulate in float64, and let p = 1 keep all."
        )
    return None


def _shift_problem(function: Callable) -> str | None:
    """Logits are free up to a constant; a processor that takes exp(logits) for probabilities is caught here."""
    got = _processed(function, torch.tensor([0.4, 0.3, 0.2, 0.1]).log() + 7.0, 0.65)
    if isinstance(got, str):
        return got
    if _kept(got) != {0, 1}:
        return "Adding 7 to every logit changes your nucleus. Probabilities are softmax(logits), not exp(logits)."
    return None


top_p = Exercise(
    _top_p,
    praise="The smallest set that reaches p, for any batch. Run the explorer's cell below again to hand it over.",
    hint="""
        1. Sort the logits in descending order and keep the ids.
        2. Take the softmax of the sorted logits and cumsum it.
        3. A token stays while the mass *before* it (the cumsum minus its own probability) is below p.
        4. The first always stays. Carry the marks back to the ids with scatter.
    """,
    solution="""
        def my_top_p(logits, p):
            ranked, ids = logits.sort(dim=-1, descending=True, stable=True)
            probabilities = ranked.double().softmax(dim=-1)
            before = probabilities.cumsum(dim=-1) - probabilities
            stays = (before < p) | (p == 1)
            stays[..., 0] = True
            kept = torch.zeros_like(stays).scatter(-1, ids, stays)
            return logits.masked_fill(~kept, -torch.inf)
    """,
)


# ---- 5. the repetition penalty ----------------------------------------------------------------------------


def _repetition(function: Callable) -> str | None:
    logits = torch.tensor([4.0, -1.0, 2.0, -3.0, 0.5])
    for ids, theta in (([0], 1.5), ([1], 1.5), ([0, 0, 3], 2.0), ([], 1.5)):
        got = _processed(function, logits, ids, theta)
        if isinstance(got, str):
            return got
        expected = penalize_repetition(logits, theta, generated=ids)
        if not torch.allclose(got, expected):
            return _repetition_words(logits, ids, theta, got, expected)
    return None


def _repetition_words(logits: Tensor, ids: list[int], theta: float, got: Tensor, expected: Tensor) -> str:
    token = int((got - expected).abs().argmax())
    before, after, right = logits[token].item(), got[token].item(), expected[token].item()
    case = (
        f"ids {ids}, θ = {theta}: token {token} goes from {before:g} to {after:.3g}; right is {right:.3g}. "
    )
    if token not in ids:
        return case + "It was not in the text, so nothing should happen to it."
    if before < 0 and after > before:
        return case + "Dividing a negative logit *raises* it. The rule is: positive / θ, negative · θ."
    if ids.count(token) > 1:
        return case + "The penalty counts once per distinct token, however often it occurred."
    return case + "The rule is: positive / θ, negative · θ, for tokens that occurred."


repetition = Exercise(
    _repetition,
    praise="Positive logits are divided, negative ones multiplied, once per distinct token.",
    hint="torch.where(value > 0, value / theta, value * theta), at the distinct ids only: list(set(ids)).",
    solution="""
        def my_repetition(logits, ids, theta):
            seen = torch.zeros_like(logits, dtype=torch.bool)
            seen[list(set(ids))] = True
            return torch.where(seen, torch.where(logits > 0, logits / theta, logits * theta), logits)
    """,
)


# ---- 6. predict: whose order keeps fewest? ----------------------------------------------------------------


def _fewest(answer: Any) -> str | None:
    name = str(answer).strip(" '\"[]").lower().replace("_", ".").replace("-", ".")
    if name in {"llama.cpp", "llamacpp", "llama"}:
        return None
    if name in {"hf", "vllm", "transformers", "hugging face"}:
        return (
            "That library applies T = 1.5 before it measures the nucleus. A flatter distribution needs more tokens to "
            "reach 90 %. Who measures before the temperature?"
        )
    return f"Answer with 'hf', 'vllm' or 'llama.cpp', got {answer!r}."


predict_order = Exercise(
    _fewest,
    praise="llama.cpp measures p on the model's own, sharper distribution, and flattens only what is left.",
    hint="Where does the temperature stand in each order? What does T = 1.5 do to the mass of the best tokens?",
    solution='answer = "llama.cpp"    # its temperature comes last',
)


# ---- 7. a mask of one's own -------------------------------------------------------------------------------

ALLOWED_IDS = (1, 4, 6)


def _allow(stage: Callable) -> str | None:
    logits = torch.tensor([5.0, 1.0, 4.0, 3.0, 2.0, 0.0, -1.0])
    # Called as the pipeline calls it.
    called = partial(stage, prompt=None, generated=None)
    got = _processed(called, logits)
    if isinstance(got, str):
        return got
    if missing := set(ALLOWED_IDS) - _kept(got):
        return f"Token {min(missing)} is allowed, but your stage drops it."
    if extra := _kept(got) - set(ALLOWED_IDS):
        return f"Token {min(extra)} is not allowed, but it can still be drawn: its logit must be −inf, not just low."
    if not torch.equal(got[list(ALLOWED_IDS)], logits[list(ALLOWED_IDS)]):
        return (
            "The allowed tokens' logits changed. A mask only drops; it leaves the others' odds as they are."
        )
    return _batch_problem(called, torch.stack([logits, logits.flip(0)]))


allow_only = Exercise(
    _allow,
    praise="Constrained decoding is a mask on the logits, then the same pipeline as ever.",
    hint="""
        Start from torch.full_like(logits, -torch.inf), then copy the allowed columns:
        result[..., ids] = logits[..., ids].
    """,
    solution="""
        def my_stage(logits, prompt=None, generated=None):
            ids = list(ex.ALLOWED_IDS)
            masked = torch.full_like(logits, -torch.inf)
            masked[..., ids] = logits[..., ids]
            return masked
    """,
)


# ---- 8. the draw itself -----------------------------------------------------------------------------------


def _draw(function: Callable) -> str | None:
    probabilities = torch.tensor([0.0, 0.125, 0.5, 0.25, 0.125])
    cases = ((0.0, 1), (0.1, 1), (0.125, 2), (0.3, 2), (0.624, 2), (0.625, 3), (0.9, 4), (0.999, 4))
    for u, expected in cases:
        got = int(call(function, probabilities.clone(), u))
        if got == expected:
            continue
        case = f"u = {u} on {probabilities.tolist()} gave token {got}; right is {expected}. "
        if 0 <= got < 5 and probabilities[got] == 0:
            return (
                case
                + "That token has probability 0: it must never be drawn, also where u falls exactly on a sum."
            )
        return (
            case
            + "Token i owns the stretch from the sum before it up to its own sum: [0.125, 0.625) is token 2's."
        )
    return _last_token_problem(function)


def _last_token_problem(function: Callable) -> str | None:
    """In float32 the probabilities of a vocabulary sum to 1 only roughly."""
    many = softmax(torch.linspace(0, -9, 49_152))
    got = function(many, 1 - 2**-53)
    if got is not None and int(got) == len(many) - 1:
        return None
    return (
        f"With {len(many):,} probabilities and the largest u below 1 your draw gives {got}; the last id is "
        f"{len(many) - 1:,}. In float32 they sum to 1 only roughly: cumulate in float64, scale u by the last sum."
    )


draw = Exercise(
    _draw,
    praise="One uniform number, one token: each owns a stretch of [0, 1) as long as its probability.",
    hint="torch.cumsum gives the ends of the stretches; you want the first end that is *above* u.",
    solution="""
        def my_draw(probabilities, u):
            ends = probabilities.double().cumsum(dim=-1)
            return int((ends <= u * ends[-1]).sum())
    """,
)
