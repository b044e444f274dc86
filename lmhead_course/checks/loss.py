"""The exercises of notebook 06: what trains the head."""

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ..loss import IGNORE, cross_entropy
from ..softmax import log_softmax, softmax
from .exercise import Exercise, call

# ---- what the checkers share ----------------------------------------------------------------------------


def _number(value: Any) -> float | str:
    """Return a number as a float, or what is wrong with it in form."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return f"The answer should be one number, got {type(value).__name__} {value!r}."
    return float(value)


def _near(got: float, expected: float, tolerance: float = 2e-3) -> bool:
    """Compare relatively, so that whoever rounds to three places is right."""
    return abs(got - expected) <= tolerance * abs(expected)


def _random(*shape: int, seed: int, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- 1. predict: the first loss -------------------------------------------------------------------------


def _first_loss(answer: Any) -> str | None:
    got = _number(answer)
    if isinstance(got, str):
        return got
    right = math.log(50_257)
    if _near(got, right, 0.01):
        return None
    if _near(got, right / math.log(2), 0.01):
        return "That is in bits (log2). A loss is given in nats: use the natural logarithm."
    if _near(got, math.log10(50_257), 0.01):
        return "That is log10. A loss is given in nats: use the natural logarithm."
    if _near(got, 50_257, 0.01):
        return "That is the perplexity: as if choosing among all tokens. The loss is its logarithm."
    return f"A model that knows nothing gives each of 50,257 tokens 1/50,257. −ln of that is not {got:g}."


first_loss = Exercise(
    _first_loss,
    praise="ln 50,257 = 10.825: a first loss far from ln V says that something is wrong before training begins.",
    hint="All tokens equally likely: p = 1/V for the true one, too. The loss is −ln p.",
    solution="answer = math.log(50_257)    # 10.825",
)


# ---- 2. the loss of the next token ----------------------------------------------------------------------


def _next_token_loss(function: Callable) -> str | None:
    for n, d_vocab, seed in ((6, 5, 0), (9, 4, 1)):
        logits, ids = _random(n, d_vocab, seed=seed), torch.arange(n) * 7 % d_vocab
        got = _number(call(function, logits.clone(), ids.clone()))
        if isinstance(got, str):
            return got
        right = float(cross_entropy(logits[:-1], ids[1:]))
        if not _near(got, right):
            return (
                f"For {n} positions yours is {got:.4f}; right is {right:.4f}. {_next_words(got, logits, ids)}"
            )
    far = torch.tensor([[0.0, 200.0], [0.0, 0.0]])
    got = _number(call(function, far, torch.tensor([1, 0])))
    if isinstance(got, str) or not _near(got, 200.0):
        return f"For logits [0, 200] and true token 0 yours is {got}; right is 200. Never take the log of a rounded p."
    return None


def _next_words(got: float, logits: Tensor, ids: Tensor) -> str:
    log_p, n = log_softmax(logits), len(ids)
    total = -float(log_p[:-1].gather(1, ids[1:, None]).sum())
    mean = total / (n - 1)
    twice = float(cross_entropy(softmax(logits[:-1]), ids[1:]))
    known = (
        (
            cross_entropy(logits, ids),
            "You compared each position with its own token. Its target is the *next* one.",
        ),
        (
            cross_entropy(logits[1:], ids[:-1]),
            "You shifted the wrong way: drop the last position's logits and the first id.",
        ),
        (
            cross_entropy(logits[:-2], ids[2:]),
            "You shifted twice: position i predicts token i + 1, not i + 2.",
        ),
        (
            cross_entropy(logits, ids.roll(-1)),
            "The last position has no next token: the first one came round as its target.",
        ),
        (total, f"That is the sum over {n - 1} tokens; the mean is asked for."),
        (total / n, f"Divide by the {n - 1} predicted tokens, not by all {n}."),
        (math.exp(mean), "That is the perplexity. The loss is its logarithm."),
        (-mean, "The sign: a loss is −ln p, which is positive."),
        (twice, "A softmax was applied twice: cross_entropy takes logits, not probabilities."),
        (mean / math.log(2), "That is in bits; nats are asked for."),
    )
    otherwise = "Position i predicts token i + 1: the mean of −ln p of ids[1:] under logits[:-1]."
    return next((words for value, words in known if _near(got, float(value))), otherwise)


next_token_loss = Exercise(
    _next_token_loss,
    praise="Shifted by one, from logits, the mean over the n − 1 tokens that were predicted.",
    hint="The logits of the first n − 1 positions belong to the last n − 1 ids. log_softmax, then gather.",
    solution="""
        def my_loss(logits, ids):
            log_p = torch.log_softmax(logits[:-1], dim=-1)
            return -log_p.gather(1, ids[1:].unsqueeze(1)).mean()
    """,
)


# ---- 3. the gradient at the logits ----------------------------------------------------------------------


def _gradient(function: Callable) -> str | None:
    for d_vocab, target, epsilon in ((5, 2, 0.0), (5, 0, 0.1), (9, 3, 0.3)):
        logits = _random(d_vocab, seed=d_vocab + target)
        got = call(function, logits.clone(), target, epsilon)
        if not isinstance(got, Tensor) or got.shape != logits.shape:
            return f"Your function should return a tensor of shape {tuple(logits.shape)}, one slope a logit."
        p = softmax(logits)
        right = p - _q(d_vocab, target, epsilon)
        if not torch.allclose(got.float(), right, atol=2e-4):
            return f"For V = {d_vocab}, ε = {epsilon:g}: {_gradient_words(got.float(), p, right, target, epsilon)}"
    return None


def _q(d_vocab: int, target: int, epsilon: float, spread: int | None = None) -> Tensor:
    q = torch.full((d_vocab,), epsilon / (spread or d_vocab))
    q[target] += 1 - epsilon
    return q


def _gradient_words(got: Tensor, p: Tensor, right: Tensor, target: int, epsilon: float) -> str:
    d_vocab = len(p)
    others = _q(d_vocab, target, epsilon, d_vocab - 1)
    others[target] = 1 - epsilon
    if torch.allclose(got, -right, atol=2e-4):
        return "That is q − p, the direction of a step of training. The gradient points uphill: p − q."
    if torch.allclose(got, p, atol=2e-4):
        return "That is p alone: where has the target gone?"
    if torch.allclose(got, p - _q(d_vocab, target, 0.0), atol=2e-4):
        return "That is the gradient without smoothing: the target is q, not the onehot."
    if torch.allclose(got, p - others, atol=2e-4):
        return (
            "You spread ε over the V − 1 wrong tokens. Some code does; PyTorch and we spread it over all V."
        )
    if torch.allclose(got, p - torch.full_like(p, epsilon / d_vocab) - _q(d_vocab, target, 0.0), atol=2e-4):
        return "q must sum to one: the true token's share shrinks to 1 − ε + ε/V."
    total = float(got.sum())
    if abs(total) > 1e-3:
        return f"Your slopes sum to {total:.3f}. Two distributions are subtracted, so they must sum to 0."
    return f"right would be [{', '.join(f'{value:.3f}' for value in right.tolist())}]. It is p − q."


gradient = Exercise(
    _gradient,
    praise="p − q: what the model says minus what is asked for. It sums to 0 and never exceeds 1.",
    hint="p is a softmax; q is ε/V everywhere, and 1 − ε more at the target.",
    solution="""
        def my_gradient(logits, target, epsilon):
            q = torch.full_like(logits, epsilon / len(logits))
            q[target] += 1 - epsilon
            return torch.softmax(logits, dim=-1) - q
    """,
)


# ---- 4. perplexity over texts of unequal length -----------------------------------------------------------


def _perplexity(function: Callable) -> str | None:
    for parts in (([1.0, 1.0, 1.0, 1.0], [3.0]), ([0.5], [2.0, 4.0, 3.0], [1.0, 1.0])):
        losses = [torch.tensor(part) for part in parts]
        got = _number(call(function, [part.clone() for part in losses]))
        if isinstance(got, str):
            return got
        right = math.exp(float(torch.cat(losses).mean()))
        if not _near(got, right):
            return f"For losses {list(parts)} yours is {got:.3f}; right is {right:.3f}. {_ppl_words(got, losses)}"
    return None


def _ppl_words(got: float, losses: list[Tensor]) -> str:
    means = torch.stack([part.mean() for part in losses])
    every = torch.cat(losses)
    if _near(got, float(means.exp().mean())):
        return "You averaged the perplexities of the texts. Average losses, over tokens, and take exp once, at the end."
    if _near(got, math.exp(float(means.mean()))):
        return "You averaged the texts' mean losses: a text of one token weighed as much as a long one."
    if _near(got, float(every.exp().mean())):
        return "You averaged e^loss, token by token. exp comes after the mean."
    if _near(got, float(every.mean())):
        return "That is the mean loss; perplexity is its exponential."
    if _near(got, 2 ** float(every.mean())):
        return "These losses are in nats, so the base is e: exp, not a power of 2."
    if _near(got, math.exp(float(every.sum()))):
        return "You took exp of the sum. Divide by the number of tokens first."
    return "It is exp(sum of all losses / number of all tokens)."


token_perplexity = Exercise(
    _perplexity,
    praise="Every token has one vote, whichever text it stands in; exp comes last.",
    hint="torch.cat puts the texts' losses in one row.",
    solution="""
        def my_perplexity(losses):
            return torch.cat(losses).mean().exp()
    """,
)


# ---- 5. bits per byte -----------------------------------------------------------------------------------


def _bits_per_byte(function: Callable) -> str | None:
    for nats, text in ((20.0, "plain words"), (33.0, "schöne Grüße"), (50.0, "今天天气")):
        got = _number(call(function, nats, text))
        if isinstance(got, str):
            return got
        right = nats / math.log(2) / len(text.encode())
        if not _near(got, right):
            return (
                f"For {nats:g} nats over “{text}” yours is {got:.4f}; right is {right:.4f}. "
                + _byte_words(got, nats, text)
            )
    return None


def _byte_words(got: float, nats: float, text: str) -> str:
    n_bytes = len(text.encode())
    if _near(got, nats / n_bytes):
        return "That is nats per byte. A bit is ln 2 = 0.693 nats: divide by it."
    if _near(got, nats * math.log(2) / n_bytes):
        return "You multiplied by ln 2. A bit is smaller than a nat, so there are more of them: divide."
    if _near(got, nats / math.log(2) / len(text)):
        return "You divided by characters. This text has some of more than one byte: len(text.encode())."
    if _near(got, nats / math.log(2) / len(text.split())):
        return "You divided by words; bytes are asked for."
    if _near(got, nats / math.log(2)):
        return "Those are the bits of the whole text: divide by its bytes."
    return "Nats to bits: divide by ln 2. Then divide by the number of UTF-8 bytes."


bits_per_byte = Exercise(
    _bits_per_byte,
    praise="No token occurs in it, so models with different tokenizers can be compared.",
    hint="1 bit = ln 2 nats; text.encode() is the text as UTF-8 bytes.",
    solution="""
        def my_bits_per_byte(nats, text):
            return nats / math.log(2) / len(text.encode())
    """,
)


# ---- 6. labels for a conversation -------------------------------------------------------------------------

_EOS = 9
_ROWS = (
    ([5, 6, 7, 1, 2, _EOS, _EOS, _EOS], 3, 3),
    ([5, 6, 3, 4, 4, 2, 1, _EOS], 2, 6),
    ([5, _EOS, 4, _EOS, _EOS], 2, 2),
)


def _labels(function: Callable) -> str | None:
    for ids, prompt, answer in _ROWS:
        given = torch.tensor(ids)
        got = call(function, given, prompt, answer)
        if given.tolist() != ids:
            return (
                "Your function changed the ids it was given. The model still has to read them: make a copy."
            )
        if not isinstance(got, Tensor) or got.shape != given.shape:
            return f"Your function should return a tensor of shape {tuple(given.shape)}, like the ids."
        right = [token if prompt <= i < prompt + answer else IGNORE for i, token in enumerate(ids)]
        if got.tolist() != right:
            case = (
                f"For ids {ids}, {prompt} of the prompt and {answer} of the answer, yours is {got.tolist()}. "
            )
            return case + _label_words(got.tolist(), ids, prompt, answer)
    return None


def _label_words(got: list[int], ids: list[int], prompt: int, answer: int) -> str:
    end = prompt + answer
    if got == ids:
        return "Nothing is masked: neither the prompt nor the padding should be trained."
    if {label for i, label in enumerate(got) if not prompt <= i < end} == {0}:
        return "0 is a token. The mark for “does not count” is −100."
    if got[end - 1] == IGNORE:
        return "The answer's own end (id 9) is masked, so the model never learns to stop. Only what follows is padding."
    if any(label != IGNORE for label in got[end:]):
        return "The padding after the answer is still there: a model would learn to write ends for ever."
    if any(label != IGNORE for label in got[:prompt]):
        return "The prompt is still there: mask its tokens with −100."
    if got[prompt] == IGNORE:
        return "The answer's first token is masked: it is the first that the model has to write itself."
    if got[:-1] == [token if prompt <= i < end else IGNORE for i, token in enumerate(ids)][1:]:
        return "Don't shift here: the loss does, once."
    return "Keep the ids of the answer, its end included, in their places; −100 everywhere else."


labels = Exercise(
    _labels,
    praise="The prompt and the padding count for nothing, and the one end that the model must learn stays.",
    hint="Start from a row of −100 and copy the answer's part of the ids into it. Go by position, never by id.",
    solution="""
        def my_labels(ids, n_prompt, n_answer):
            labels = torch.full_like(ids, -100)
            labels[n_prompt : n_prompt + n_answer] = ids[n_prompt : n_prompt + n_answer]
            return labels
    """,
)


# ---- 7. weights of unequal micro-batches ------------------------------------------------------------------


def _weights(function: Callable) -> str | None:
    for counts in ([9, 1], [4, 4, 4], [100, 20, 0, 30]):
        got = call(function, list(counts))
        values = got.tolist() if isinstance(got, Tensor) else list(got)
        right = [count / sum(counts) for count in counts]
        if len(values) != len(right):
            return f"For {len(counts)} micro-batches there should be as many weights, got {len(values)}."
        if any(abs(a - b) > 2e-3 for a, b in zip(values, right, strict=True)):
            return f"For counts {counts} yours are {_say(values)}; right are {_say(right)}. " + _weight_words(
                values, counts
            )
    return None


def _say(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


def _weight_words(got: Sequence[float], counts: Sequence[int]) -> str:
    if all(_near(value, 1 / len(counts)) for value in got):
        return "Equal weights: then a token in a small micro-batch counts for more than one in a large one."
    if list(got) == list(counts):
        return "These add the micro-batches up to a sum over tokens; divide by the number of all tokens for their mean."
    if abs(sum(got) - 1) > 1e-3:
        return f"Your weights sum to {sum(got):.3f}; a mean's weights sum to one."
    return "Each mean times its count is a sum again; divide the sum of these by the number of all tokens."


micro_weights = Exercise(
    _weights,
    praise="Mean times count is the sum again: Σ weight · mean is then the mean over all tokens.",
    hint="If a mean over 9 tokens and a mean over 1 token are put together, how many tokens are in the whole?",
    solution="""
        def my_weights(counts):
            return [count / sum(counts) for count in counts]
    """,
)


# ---- 8. predict: how large a gap label smoothing asks for -----------------------------------------------


def _gap(answer: Any) -> str | None:
    got = _number(answer)
    if isinstance(got, str):
        return got
    epsilon, d_vocab = 0.1, 5
    other, true = epsilon / d_vocab, 1 - epsilon + epsilon / d_vocab
    if _near(got, math.log(true / other), 3e-3):
        return None
    if _near(got, true / other, 0.01):
        return "That is the ratio of the two probabilities. A difference of logits is its logarithm."
    if _near(got, math.log((1 - epsilon) / other), 0.01):
        return "The true word has its share of ε too: q is 1 − ε + ε/V there, 0.92."
    if _near(got, math.log((1 - epsilon) / (epsilon / (d_vocab - 1))), 0.01):
        return "You spread ε over the other four words; here, as in PyTorch, all five get ε/5."
    if math.isinf(got):
        return "Without smoothing, yes: the loss would fall for ever. With ε = 0.1 there is a best gap."
    return f"At the least loss p = q = (0.92, 0.02, …). Logits differ by ln(p_true / p_other), which is not {got:g}."


smoothed_gap = Exercise(
    _gap,
    praise="ln(0.92 / 0.02) = 3.829, and no more: with smoothing logits have nothing to gain from growing for ever.",
    hint="The loss is least where p = q. Then z_true − z_other = ln(q_true / q_other).",
    solution="answer = math.log((0.9 + 0.1 / 5) / (0.1 / 5))    # 3.829",
)
