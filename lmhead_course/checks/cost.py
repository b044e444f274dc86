"""The exercises of notebook 05: what the head costs."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..catalog import Device, devices, model
from ..cost import head_of, least_seconds, ridge
from .exercise import Exercise, call

CLOSE = 1e-3  # relative: whoever rounds to three places is right


def _number(value: Any) -> float | str:
    """Return a number as a float, or what is wrong with it in form."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return f"The answer should be a finite number, got {value!r}."
    return float(value)


def _near(got: float, expected: float, tolerance: float = CLOSE) -> bool:
    return abs(got - expected) <= tolerance * abs(expected)


# ---- 1. FLOPs of a head ------------------------------------------------------------------------------------


def _flops(function: Callable) -> str | None:
    for d, v, tokens in ((4096, 32_000, 1), (576, 49_152, 1), (8, 10, 3)):
        got = _number(call(function, d, v, tokens))
        if isinstance(got, str):
            return got
        right = 2 * d * v * tokens
        if not _near(got, right, 1e-9):
            return f"For d = {d}, V = {v}, {tokens} token(s) yours is {got:,.0f}; right is {right:,}. " + (
                _flops_words(got, d, v, tokens)
            )
    return None


def _flops_words(got: float, d: int, v: int, tokens: int) -> str:
    if _near(got, d * v * tokens):
        return "You counted multiply-adds. Each is two operations, a multiply and an add."
    if _near(got, 2 * d * v) and tokens > 1:
        return "Every token needs all of it: multiply by their number."
    if _near(got, 6 * d * v * tokens):
        return "That is forward and backward together; the question is the forward pass."
    if _near(got, (2 * d - 1) * v * tokens):
        return "Exact, with d − 1 additions; the field counts d, as if adding to a zero first. Use 2·d·V."
    return "One logit is a dot product of d pairs; there are V logits for every token."


flops = Exercise(
    _flops,
    praise="2·d·V a token: a multiply and an add for every weight.",
    hint="How many multiplications make one logit, and how many additions? How many logits has a token?",
    solution="""
        def my_flops(d_model, d_vocab, tokens):
            return 2 * d_model * d_vocab * tokens
    """,
)


# ---- 2. predict: the share of GPT-2's head --------------------------------------------------------------------


def _gpt2_share(answer: Any) -> str | None:
    got = _number(answer)
    if isinstance(got, str):
        return got
    gpt2 = model("GPT-2 small")
    percent = 100 * got if got <= 1 else got
    untied = 100 * gpt2.one_matrix / (gpt2.total + gpt2.one_matrix)
    if abs(percent - 100 * gpt2.share) <= 0.2:
        return None
    if abs(percent - untied) <= 0.3:
        return (
            f"{percent:.1f} % would be right if there were two matrices. GPT-2 ties: the total has only one."
        )
    if abs(percent - 26) <= 0.5:
        return (
            "That number is in print, but which total would it belong to? Divide 50,257 · 768 by 124,439,808."
        )
    if abs(percent - 2 * untied) <= 0.5:
        return "You counted the matrix twice. GPT-2 has it once, for both ends."
    return f"The matrix has 50,257 · 768 numbers, the model 124,439,808 in all; that is not {percent:.1f} %."


gpt2_share = Exercise(
    _gpt2_share,
    praise="31.0 %: almost a third of GPT-2 small is one table of tokens.",
    hint="Rows times columns of the matrix, divided by all parameters. It is counted once, since GPT-2 ties.",
    solution="answer = 100 * 50257 * 768 / 124439808    # 31.0",
)


# ---- 3. memory of the logits ----------------------------------------------------------------------------------


def _logits_gb(function: Callable) -> str | None:
    for batch, length, v, each in ((4, 4096, 128_000, 2), (4, 4096, 128_000, 4), (1, 7, 1000, 4)):
        got = _number(call(function, batch, length, v, each))
        if isinstance(got, str):
            return got
        right = batch * length * v * each / 1e9
        if not _near(got, right, 1e-6):
            case = f"For ({batch}, {length}, {v}, {each}) yours is {got:.4g}; right is {right:.4g} GB. "
            return case + _logits_words(got, right, batch, length, each)
    return None


def _logits_words(got: float, right: float, batch: int, length: int, each: int) -> str:
    if _near(got, right * 1e9 / 2**30):
        return "You divided by 2^30: those are GiB. A GB is 10^9 bytes."
    if _near(got, right * 1e9):
        return "Those are bytes: divide by 10^9."
    if _near(got, right / length):
        return "Training has logits at every position, not only at the last."
    if _near(got, right / each) or _near(got, right / each * 8):
        return "How many bytes has one number? It is the last argument."
    if _near(got, right / batch):
        return "Every sequence of the batch has logits of its own."
    return "There are batch · length positions, V logits at each, and so many bytes a logit."


logits_gb = Exercise(
    _logits_gb,
    praise="4.19 GB in 16 bits, 8.39 GB in 32, and the gradient again.",
    hint="How many positions are there in all? How many logits at each?",
    solution="""
        def my_logits_gb(batch, length, d_vocab, bytes_a_number):
            return batch * length * d_vocab * bytes_a_number / 1e9
    """,
)


# ---- 4. the roofline --------------------------------------------------------------------------------------------


_WORK = (
    (1000.0, 500.0),
    (5000.0, 100.0),
    (1000.0, 100.0),
)  # FLOPs and bytes; memory, then arithmetic, decides
_WRONG_TIMES = (
    (lambda a, m: a + m, "At best the two happen at the same time: the longer one hides the other."),
    (min, "The slower of the two decides, not the faster one."),
    (lambda a, m: a, "You left out the memory."),
    (lambda a, m: m, "You left out the arithmetic."),
    (lambda a, m: 1 / max(a, m), "That is a rate; a time is an amount divided by a rate."),
)


def _best_time(function: Callable) -> str | None:
    device = Device("made up", bandwidth=100.0, flops=1000.0)
    got = [_number(call(function, work, moved, device)) for work, moved in _WORK]
    if words := [value for value in got if isinstance(value, str)]:
        return words[0]
    right = [least_seconds(device, work, moved) for work, moved in _WORK]
    if all(map(_near, got, right)):
        return None
    times = [(work / device.flops, moved / device.bandwidth) for work, moved in _WORK]
    for formula, words in _WRONG_TIMES:
        if all(_near(value, formula(*pair)) for value, pair in zip(got, times, strict=True)):
            return words
    i = next(i for i in range(len(got)) if not _near(got[i], right[i]))
    return (
        f"{_WORK[i][0]:g} FLOPs at 1000 a second and {_WORK[i][1]:g} bytes at 100 a second: yours is {got[i]:.3g} s, "
        f"right is {right[i]:.3g} s. FLOPs / device.flops is one time, bytes / device.bandwidth the other."
    )


best_time = Exercise(
    _best_time,
    praise="max(arithmetic, memory): the roofline, read as a time.",
    hint="Compute both times. If they overlap perfectly, how long do they take together?",
    solution="""
        def my_best_time(flops, moved, device):
            return max(flops / device.flops, moved / device.bandwidth)
    """,
)


# ---- 5. predict: from which batch on is arithmetic the limit? ----------------------------------------------------

RIDGE_MODEL, RIDGE_DEVICE = "Llama-3-8B", "NVIDIA H100 (SXM)"


def _ridge_batch(answer: Any) -> str | None:
    got = _number(answer)
    if isinstance(got, str):
        return got
    device, head = devices()[RIDGE_DEVICE], head_of(model(RIDGE_MODEL))
    limit = ridge(device)
    if got < 1:
        return "A batch is at least 1."
    intensity = head.intensity(round(got), "bfloat16")
    if intensity < 0.8 * limit:
        return f"Batch {got:g} gives {intensity:.3g} FLOPs a byte; this device has its ridge at {limit:.3g}. More."
    if intensity > 1.3 * limit:
        return (
            f"Batch {got:g} gives {intensity:.3g} FLOPs a byte, well past the ridge at {limit:.3g}. Fewer do."
        )
    return None


ridge_batch = Exercise(
    _ridge_batch,
    praise="About 300: below, every sequence more is almost free, since the weights are read anyway.",
    hint="""
        In 16 bits a weight is 2 bytes and works 2 FLOPs for each sequence: about one FLOP a byte for every sequence
        of the batch. The ridge is at device.flops / device.bandwidth.
    """,
    solution="answer = 989e12 / 3.35e12    # about 295; with hidden states and logits counted, 319",
)


# ---- 6. the loss, a few positions at a time ----------------------------------------------------------------------


class _Spy(torch.overrides.TorchFunctionMode):
    """Remember the largest number of rows that any result as wide as the vocabulary had."""

    def __init__(self, d_vocab: int):
        super().__init__()
        self.d_vocab, self.rows = d_vocab, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.ndim == 2 and result.shape[1] == self.d_vocab:
            self.rows = max(self.rows, result.shape[0])
        return result


def _chunked(function: Callable) -> str | None:
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(10, 3, generator=g), torch.randn(29, 3, generator=g)
    targets = torch.randint(29, (10,), generator=g)
    exact = F.cross_entropy(hidden @ weight.T, targets).item()
    for chunk in (5, 4, 64):
        with _Spy(29) as spy:
            got = _number(call(function, hidden.clone(), weight.clone(), targets.clone(), chunk))
        if isinstance(got, str):
            return got
        if not _near(got, exact, 1e-5):
            return (
                f"With 10 positions and chunk {chunk} yours is {got:.4f}; right is {exact:.4f}. "
                + _chunk_words(got, exact, hidden, weight, targets, chunk)
            )
        if spy.rows > chunk:
            return (
                f"Right, but with chunk = {chunk} there were {spy.rows} rows of logits at once: avoid that."
            )
    return None


def _chunk_words(got, exact, hidden, weight, targets, chunk) -> str:
    losses = F.cross_entropy(hidden @ weight.T, targets, reduction="none")
    parts = losses.split(chunk)
    if _near(got, torch.stack([part.mean() for part in parts]).mean().item(), 1e-4):
        return "The mean of the chunks' means: a short last chunk weighs too much. Add up sums, divide once by all."
    if _near(got, losses.sum().item(), 1e-4):
        return "That is the sum: divide by the number of positions."
    whole = losses[: len(losses) // chunk * chunk] if chunk <= len(losses) else losses[:0]
    if len(whole) and (
        _near(got, whole.mean().item(), 1e-4) or _near(got, whole.sum().item() / len(losses), 1e-4)
    ):
        return "The last positions, which do not fill a chunk, are missing."
    if _near(got, sum(part.mean().item() for part in parts), 1e-4):
        return "You added up means of chunks: add sums, then divide by the number of positions."
    return "For each chunk: logits = states @ weight.T, their cross-entropy with reduction='sum'; divide at the end."


chunked = Exercise(
    _chunked,
    praise="The same loss, and never more than a chunk of logits. Its backward pass needs one more idea: recompute.",
    hint="""
        hidden.split(chunk) and targets.split(chunk) go together. F.cross_entropy(…, reduction="sum") gives sums that
        may be added.
    """,
    solution="""
        def my_chunked_loss(hidden, weight, targets, chunk):
            total = 0.0
            for states, wanted in zip(hidden.split(chunk), targets.split(chunk)):
                total += torch.nn.functional.cross_entropy(states @ weight.T, wanted, reduction="sum")
            return total / len(targets)
    """,
)


# ---- 7. two shards, one normaliser --------------------------------------------------------------------------------


def _combine(function: Callable) -> str | None:
    for left, right in (([2.0, 1.0], [3.0, 0.0]), ([5.0], [-4.0, 1.0, 2.0]), ([900.0, 899.0], [901.0])):
        (m1, s1), (m2, s2) = (_max_and_sum(torch.tensor(part, dtype=torch.float64)) for part in (left, right))
        exact = torch.tensor(left + right, dtype=torch.float64).logsumexp(0).item()
        try:
            value = call(function, m1, s1, m2, s2)
        except OverflowError:
            return (
                f"With maxima {m1:g} and {m2:g} exp overflows: subtract the larger maximum before every exp."
            )
        got = value.item() if isinstance(value, Tensor) else value
        if got in (math.inf, -math.inf) or got != got:
            return (
                f"With maxima {m1:g} and {m2:g} yours is {got}: subtract the larger maximum before every exp."
            )
        got = _number(got)
        if isinstance(got, str):
            return got
        if not _near(got, exact, 1e-6):
            return f"Shards {left} and {right}: yours is {got:.4f}, right is {exact:.4f}. " + _combine_words(
                got, m1, s1, m2, s2
            )
    return None


def _max_and_sum(logits: Tensor) -> tuple[float, float]:
    peak = logits.max()
    return peak.item(), (logits - peak).exp().sum().item()


def _combine_words(got: float, m1: float, s1: float, m2: float, s2: float) -> str:
    if _near(got, max(m1, m2) + math.log(s1 + s2), 1e-6):
        return "The two sums stand on different maxima: rescale each by exp(its own − the larger one) before adding."
    if _near(got, math.log(s1 + s2), 1e-6):
        return "The sums were taken with the maximum removed: put it back."
    if _near(got, m1 + math.log(s1) + m2 + math.log(s2), 1e-6):
        return "Adding two log-sums multiplies the sums. Add the sums, then take one log."
    return "A shard's own sum is s · exp(m). Add both, relative to the larger maximum, and take the log."


combine = Exercise(
    _combine,
    praise="Two numbers a position from each device, whatever the size of the vocabulary.",
    hint="m = max(m1, m2). A sum that stands on m1 becomes one that stands on m by the factor exp(m1 − m).",
    solution="""
        def my_combine(m1, s1, m2, s2):
            m = max(m1, m2)
            return m + math.log(s1 * math.exp(m1 - m) + s2 * math.exp(m2 - m))
    """,
)
