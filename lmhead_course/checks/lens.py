"""The exercises of notebook 08: reading logits."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..lens import rank_of
from ..softmax import log_softmax
from .exercise import Exercise, call

# ---- what the checkers share ----------------------------------------------------------------------------


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _number(value) -> float:
    return float(value.item() if isinstance(value, Tensor) else value)


def _say(values: Tensor, digits: int = 3) -> str:
    return "[" + ", ".join(f"{value:.{digits}f}" for value in values.flatten().tolist()) + "]"


# ---- 1. predict: what a scale changes -------------------------------------------------------------------

CHANGES = ("top token", "rank", "probability", "entropy")


def _names(answer: Iterable[str] | str, allowed: tuple[str, ...]) -> set[str] | str:
    names = {answer} if isinstance(answer, str) else set(answer)
    if unknown := names - set(allowed):
        return f"{sorted(map(str, unknown))} is not among {list(allowed)}."
    return names


def _scale(answer: Iterable[str] | str) -> str | None:
    names = _names(answer, CHANGES)
    if isinstance(names, str):
        return names
    if names & {"top token", "rank"}:
        return "A positive factor on the hidden state is the same factor on every logit. Can that change their order?"
    if missing := {"probability", "entropy"} - names:
        return (
            f"Think of a temperature: dividing all logits by T changes no order, but does it leave the {min(missing)} "
            "alone?"
        )
    return None


predict_scale = Exercise(
    _scale,
    praise="Dividing the stream by its length is a temperature for the lens: it changes how surely, never who wins.",
    hint="The head has no bias: head(c · h) = c · head(h). Which setting multiplies all logits by one number?",
    solution='answer = {"probability", "entropy"}',
)


# ---- 2. the lens itself ---------------------------------------------------------------------------------


def _rms_norm(weight: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def _lens(function: Callable) -> str | None:
    for seed in (0, 1):
        hidden, weight = _random(4, 3, 8, seed=seed), _random(20, 8, seed=seed + 10)
        norm = _rms_norm(_random(8, seed=seed + 20).exp())
        given = hidden.clone()
        got = call(function, given, norm, weight)
        right = (norm(hidden) @ weight.T).argmax(dim=-1)
        if not isinstance(got, Tensor):
            return f"Your function returned a {type(got).__name__}; it should return a tensor of token ids."
        if not torch.equal(given, hidden):
            return "Your function changed the hidden states it was given: make new tensors."
        if got.shape != right.shape:
            return _lens_shape(got, hidden, right)
        if got.is_floating_point():
            return "Token ids are whole numbers: return the argmax of the logits, not their values."
        if not torch.equal(got, right):
            return _lens_words(got, hidden, norm, weight)
    return None


def _lens_shape(got: Tensor, hidden: Tensor, right: Tensor) -> str:
    case = (
        f"For hidden states {tuple(hidden.shape)} = (layer, position, d_model) your result has shape "
        f"{tuple(got.shape)}; one token id for every layer and position is {tuple(right.shape)}. "
    )
    if got.shape == right.shape[1:]:
        return case + "Did you read the last layer only?"
    if got.ndim == 3:
        return case + "Are these still logits? Take the argmax over the vocabulary, dim=-1."
    return case + "Norm, multiply by weight.T, then argmax over the last axis."


def _lens_words(got: Tensor, hidden: Tensor, norm: Callable, weight: Tensor) -> str:
    def is_that(states: Tensor) -> bool:
        return torch.equal(got, (states @ weight.T).argmax(dim=-1))

    if is_that(hidden):
        return (
            "These are the tokens *without* the final norm. The head was trained to read normed streams only."
        )
    if is_that(norm(norm(hidden))):
        return "You norm twice. These hidden states are the stream before the final norm: once is right."
    if is_that(torch.cat([hidden[:-1], norm(hidden[-1:])])):
        return "You norm the last layer only; in a lens every layer's stream goes through the final norm."
    if is_that(torch.cat([norm(hidden[:-1]), hidden[-1:]])):
        return "Your last layer is read without the norm: here it is the plain stream like all others."
    if torch.equal(got, (norm(hidden) @ weight.T).argmin(dim=-1)):
        return "That is the *least* probable token: argmax, not argmin."
    return "Some tokens differ. For every layer: norm(stream) @ weight.T are the logits; their argmax is the token."


lens = Exercise(
    _lens,
    praise="Three operations, and every layer speaks. The package does the same a few rows at a time.",
    hint="norm works on the last axis, so it takes all layers at once. weight is (d_vocab, d_model).",
    solution="""
        def my_lens(hidden, norm, weight):
            return (norm(hidden) @ weight.T).argmax(dim=-1)
    """,
)


# ---- 3. where the answer settles ------------------------------------------------------------------------


def _settled(function: Callable) -> str | None:
    cases = ([5, 7, 7, 7], [7, 5, 7, 7, 5, 7], [7, 7, 7], [1, 2, 3], [4], [7, 3, 7, 3, 3])
    for case in cases:
        got = call(function, torch.tensor(case))
        right = next(i for i in range(len(case)) if all(token == case[-1] for token in case[i:]))
        if _number(got) != right:
            return _settled_words(case, int(_number(got)), right)
    return None


def _settled_words(case: list[int], got: int, right: int) -> str:
    words = f"For top tokens {case}, layer by layer, you say {got}; right is {right}. "
    if got == case.index(case[-1]):
        return (
            words + "That is where the last token is *first* on top; after that another one takes over again."
        )
    if got == right - 1:
        return words + "That is the last layer that still says something else: settled is one later."
    if got == len(case) - right:
        return words + "That is how *many* layers agree at the end; the number of the first one is asked."
    return words + "The first layer from which on every token is that of the last layer."


settled = Exercise(
    _settled,
    praise="Also for a column in which the answer shows early and is lost again, which is common.",
    hint="Compare with the last: differs = top != top[-1]. The last True among these, plus one; 0 if there is none.",
    solution="""
        def my_settled(top):
            differs = (top != top[-1]).nonzero().flatten().tolist()
            return differs[-1] + 1 if differs else 0
    """,
)


# ---- 4. the rank of a word ------------------------------------------------------------------------------


def _rank(function: Callable) -> str | None:
    toy = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
    for logits in (toy, _random(50, seed=3), -30 + _random(50, seed=4)):
        got = [_number(call(function, logits.clone(), token)) for token in range(5)]
        right = [int(rank_of(logits, token)) for token in range(5)]
        if got != right:
            return _rank_words(logits, got, right)
    return None


def _rank_words(logits: Tensor, got: list[float], right: list[int]) -> str:
    shown = f"logits {_say(logits, 1)}" if len(logits) == 5 else f"{len(logits)} random logits"
    shown_ranks = [int(place) if place == int(place) else place for place in got]
    words = f"For {shown} you give the tokens 0 to 4 the ranks {shown_ranks}; right is {right}. "
    order = logits.argsort(descending=True)[:5]
    if got == [place - 1 for place in right]:
        return words + "The best token has rank 1, not 0."
    if got in (order.tolist(), (order + 1).tolist()):
        return (
            words
            + "argsort(...)[token] says *which token* stands at that place, not where this token stands."
        )
    if got in ([len(logits) + 1 - place for place in right], [len(logits) - place for place in right]):
        return words + "You count from the worst: rank 1 is the *largest* logit."
    return words + "One more than the number of tokens with a larger logit."


rank = Exercise(
    _rank,
    praise="No softmax needed, and no sort: a comparison with every logit, and a count.",
    hint="How many logits are larger than logits[token]?",
    solution="""
        def my_rank(logits, token):
            return 1 + (logits > logits[token]).sum()
    """,
)


# ---- 5. the surprise of a text --------------------------------------------------------------------------


def _surprise(function: Callable) -> str | None:
    for seed in (0, 1):
        logits = 3 * _random(6, 9, seed=seed)
        ids = torch.tensor([4, 0, 8, 2, 2, 5])
        got = call(function, logits.clone(), ids.clone())
        if not isinstance(got, Tensor):
            return (
                f"Your function returned a {type(got).__name__}; it should return a tensor of n − 1 numbers."
            )
        right = -log_softmax(logits)[torch.arange(5), ids[1:]] / math.log(2)
        if got.shape == right.shape and torch.allclose(got.float(), right, atol=1e-4):
            continue
        return _surprise_words(got.float(), right, logits, ids)
    return None


def _surprise_words(got: Tensor, right: Tensor, logits: Tensor, ids: Tensor) -> str:
    same = -log_softmax(logits).gather(1, ids[:, None])[:, 0]
    for values in (same, same[1:], same[:-1]):
        if got.shape == values.shape and any(
            torch.allclose(got, values / unit, atol=1e-4) for unit in (1.0, math.log(2))
        ):
            return (
                "Off by one: logits[i] are about the token *after* token i. Score ids[1:] with logits[:-1]; "
                "the first token has nothing before it."
            )
    if got.shape != right.shape:
        return (
            f"A text of {len(ids)} tokens has {len(right)} surprises, one for each but the first; your result has "
            f"shape {tuple(got.shape)}."
        )
    if torch.allclose(got, right * math.log(2), atol=1e-4):
        return "That is in nats. In bits: divide by ln 2."
    if torch.allclose(got, -right, atol=1e-4):
        return "Those are log-probabilities. A surprise is −log2 p, never negative."
    if torch.allclose(got, 2**-right, atol=1e-4):
        return "Those are probabilities. A surprise is −log2 of them."
    return f"For one example you give {_say(got)}; right is {_say(right)}: −log2 of the softmax at the token that came."


surprise = Exercise(
    _surprise,
    praise="Its mean is the loss of notebook 06 in bits, and 2 to that power the perplexity.",
    hint="log-softmax of logits[:-1], then pick column ids[i + 1] in row i (gather), change the sign, divide by ln 2.",
    solution="""
        def my_surprise(logits, ids):
            log_p = torch.log_softmax(logits[:-1], dim=-1)
            return -log_p[torch.arange(len(ids) - 1), ids[1:]] / math.log(2)
    """,
)


# ---- 6. at least once -----------------------------------------------------------------------------------


def _chance(function: Callable) -> str | None:
    cases = ([0.5, 0.5], [0.1] * 20, [0.0, 0.3, 0.01], [0.001] * 1000, [1.0, 0.2], [0.25])
    for case in cases:
        got = _number(call(function, torch.tensor(case)))
        right = 1 - math.prod(1 - p for p in case)
        if not math.isclose(got, right, abs_tol=1e-4):
            return _chance_words(case, got, right)
    return None


def _chance_words(case: list[float], got: float, right: float) -> str:
    shown = case if len(case) < 5 else f"{len(case)} times {case[0]}"
    words = f"For probabilities {shown} you say {got:.4f}; right is {right:.4f}. "
    if math.isclose(got, sum(case), rel_tol=1e-3):
        return words + "The sum counts a text with the word in it twice as two texts, and can pass 1."
    if math.isclose(got, max(case), rel_tol=1e-3) and len(case) > 1:
        return words + "The largest one is not all: every draw is another chance."
    if math.isclose(got, math.prod(case), abs_tol=1e-6):
        return words + "The product is the chance that it comes *every* time."
    if math.isclose(got, 1 - right, abs_tol=1e-4):
        return words + "That is the chance that it never comes."
    if math.isclose(got, sum(case) / len(case), rel_tol=1e-3):
        return words + "The mean is the chance in one draw; there are as many draws as numbers."
    return words + "It never comes with the chance Π(1 − p)."


chance = Exercise(
    _chance,
    praise="One in a thousand at each of 1,000 tokens is 63 % for the whole text: small chances add up.",
    hint="What is the chance that it does *not* come in any of the draws? Chances of independent draws multiply.",
    solution="""
        def my_chance(p):
            return 1 - (1 - p).prod()
    """,
)


# ---- 7. what changes the head ---------------------------------------------------------------------------

MODELS = ("mixture of experts", "vision-language", "classifier", "multi-token prediction", "audio codebooks")


def _heads(answer: Iterable[str] | str) -> str | None:
    names = _names(answer, MODELS)
    if isinstance(names, str):
        return names
    if "mixture of experts" in names:
        return "Experts stand inside the layers: d_model numbers go in, d_model come out. What does the head see?"
    if "vision-language" in names:
        return "An image becomes vectors of d_model numbers at the *input*. What comes out is text: from which head?"
    missing = set(MODELS[2:]) - names
    if "classifier" in missing:
        return "A classifier answers with one of a few classes. How many rows does its matrix have?"
    if "audio codebooks" in missing:
        return "A step of audio is several codes, each with a vocabulary of its own. Does one row of V logits say that?"
    if missing:
        return "Several tokens from one position: do V logits suffice for the second one too?"
    return None


changes_head = Exercise(
    _heads,
    praise="Where d_model numbers come in and one token of a text goes out, the head is the one of this course.",
    hint="Ask of each: does one position still end in one distribution over one vocabulary?",
    solution='answer = {"classifier", "multi-token prediction", "audio codebooks"}',
)
