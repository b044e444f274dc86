"""The exercises of notebook 02: from logits to probabilities."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..softmax import perplexity, softmax
from ..statistics import chi_square
from ..toy import toy_logits
from .exercise import Exercise, call

INF = math.inf


# ---- what the checkers share ----------------------------------------------------------------------------


def _tensor(function: Callable, logits: Tensor, shape: tuple[int, ...]) -> Tensor | str:
    """Return what the learner's function makes of a copy of the logits, or what is wrong with it in form."""
    given = logits.clone()
    result = call(function, given)
    if not isinstance(result, Tensor):
        return f"Your function returned a {type(result).__name__}; it should return a tensor."
    if not torch.equal(given, logits):
        return "Your function changed the logits it was given. Others still need them: make a new tensor."
    if result.shape != shape:
        return f"For logits of shape {tuple(logits.shape)} your result has shape {tuple(result.shape)}, not {shape}."
    return result


def _say(values: Tensor, digits: int = 3) -> str:
    return "[" + ", ".join(f"{value:.{digits}f}" for value in values.flatten().tolist()) + "]"


# ---- 1. predict: a ratio of probabilities ---------------------------------------------------------------


def _ratio(answer: Iterable[float]) -> str | None:
    at_one, at_half = (float(value) for value in answer)
    right, squared = math.exp(1.5), math.exp(3.0)
    if not math.isclose(at_one, right, rel_tol=0.02):
        if math.isclose(at_one, 3.8 / 2.3, rel_tol=0.02):
            return (
                "That is the ratio of the logits. Probabilities have the ratio e^(difference of the logits)."
            )
        return f"At T = 1 the ratio is e to the power (3.8 − 2.3), got {at_one:g}."
    if not math.isclose(at_half, squared, rel_tol=0.02):
        if math.isclose(at_half, 2 * right, rel_tol=0.02):
            return "At T = 0.5 the *difference* doubles, not the ratio: what happens to e^1.5 then?"
        return (
            f"At T = 0.5 the difference of the logits is (3.8 − 2.3) / 0.5 = 3, got a ratio of {at_half:g}."
        )
    return None


ratio = Exercise(
    _ratio,
    praise="e^1.5 = 4.48 and e^3 = 20.09: halving T squares every ratio, whatever the other words do.",
    hint="p(不错) / p(很) = e^3.8 / e^2.3: the sum cancels. At T = 0.5 both logits double.",
    solution="answer = (torch.e**1.5, torch.e**3)",
)


# ---- 2. a temperature for a number of candidates --------------------------------------------------------


def _four_candidates(temperature: float) -> str | None:
    if not temperature > 0:
        return f"A temperature is a positive number, got {temperature!r}."
    count = perplexity(softmax(toy_logits() / temperature)).item()
    if abs(count - 4) > 0.01:
        needed = "higher" if count < 4 else "lower"
        return f"At T = {temperature} there are {count:.3f} effective candidates; for 4, T must be {needed}."
    return None


four_candidates = Exercise(
    _four_candidates,
    praise="The toy is then as open as a fair choice among four, though five words share it.",
    hint="perplexity(softmax(toy / T)) grows with T: 2.65 at T = 1, 5 at the end. Halve an interval until it fits.",
    solution="""
        low, high = 1.0, 10.0
        for _ in range(40):
            middle = (low + high) / 2
            count = perplexity(softmax(toy_logits() / middle))
            low, high = (middle, high) if count < 4 else (low, middle)
        answer = low    # about 1.796
    """,
)


# ---- 3. predict: where float16 overflows ----------------------------------------------------------------


def _overflow(answer: float) -> str | None:
    if answer != int(answer):
        return f"A whole number, please: got {answer!r}."
    if answer == 88:
        return "88 is float32's limit. float16's largest number is 65,504: what is its natural logarithm?"
    if answer == 16:
        return "2^16 is about 65,504, but the softmax uses e^x: you want the natural logarithm."
    if answer != 11:
        return f"e^{int(answer)} is {math.exp(min(answer, 500)):,.0f}; float16's largest number is 65,504."
    return None


predict_overflow = Exercise(
    _overflow,
    praise="ln 65,504 = 11.09: e^11 = 59,874 still fits, e^12 = 162,755 does not. Live logits reach 17 and more.",
    hint="The largest x with e^x ≤ 65,504: a natural logarithm, rounded down.",
    solution="answer = int(math.log(65_504))    # 11",
)


# ---- 4. the softmax, computed rightly -------------------------------------------------------------------

_SOFTMAX_CASES = (
    (toy_logits(), "the toy's logits"),
    (torch.tensor([1000.0, 999.0, 0.0]), "logits [1000, 999, 0]"),
    (torch.tensor([-1000.0, -1001.0]), "logits [−1000, −1001]"),
    (torch.tensor([0.0, -INF, 0.0]), "logits [0, −inf, 0], where one token was dropped"),
    (torch.tensor([[1.0, 2, 3], [3.0, 1, 2]]), "a batch of two rows"),
    (torch.tensor([[1000.0, 999], [0.0, 1.0], [-1000.0, -999]]), "rows near 1000, 0 and −1000 in one batch"),
)


def _stable_softmax(function: Callable) -> str | None:
    for logits, words in _SOFTMAX_CASES:
        got = _tensor(function, logits, tuple(logits.shape))
        if isinstance(got, str):
            return got
        expected = torch.softmax(logits, dim=-1)
        # logits − logsumexp is right too, and coarser at 1000.
        if not torch.allclose(got.float(), expected, atol=2e-4):
            return _softmax_words(got, expected, words)
    return None


def _softmax_words(got: Tensor, expected: Tensor, words: str) -> str:
    case = f"For {words} your function gives {_say(got)}; right is {_say(expected)}. "
    if got.isnan().any():
        if "1000" in words and "one batch" not in words:
            return case + "NaN is inf/inf or 0/0: exp left the range. Subtract the row's maximum before exp."
        if "one batch" in words:
            return case + "Each row needs its *own* maximum: amax(dim=-1, keepdim=True), not one for all."
        return case + "Is an −inf subtracted from an −inf?"
    sums = got.sum(dim=-1)
    if not torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        if got.ndim == 2:
            return case + "In a batch each *row* must sum to one: sum over dim=-1, with keepdim=True."
        return case + f"Your probabilities sum to {float(sums):.3f}, not to one."
    return case + "They sum to one, but the ratios are wrong: p_i / p_j must be e^(z_i − z_j)."


stable_softmax = Exercise(
    _stable_softmax,
    praise="Any size of logit, any batch, dropped tokens at exactly 0.",
    hint="""
        m = logits.amax(dim=-1, keepdim=True) is each row's maximum.
        exp(logits − m) is at most 1; divide it by its sum over the last axis.
    """,
    solution="""
        def my_softmax(logits):
            weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()
            return weights / weights.sum(dim=-1, keepdim=True)
    """,
)


# ---- 5. its logarithm -----------------------------------------------------------------------------------


def _log_softmax(function: Callable) -> str | None:
    cases = (
        toy_logits(),
        torch.tensor([0.0, -200.0, -300.0]),
        torch.tensor([1000.0, 999.0, 0.0]),
        torch.tensor([0.0, -INF, 1.0]),
        torch.tensor([[1.0, 2, 3], [0.0, -200, 500]]),
    )
    for logits in cases:
        got = _tensor(function, logits, tuple(logits.shape))
        if isinstance(got, str):
            return got
        expected = torch.log_softmax(logits, dim=-1)
        if not torch.allclose(got.float(), expected, rtol=1e-4, atol=1e-4):
            return _log_words(logits, got, expected)
    return None


def _log_words(logits: Tensor, got: Tensor, expected: Tensor) -> str:
    case = f"For logits {logits.tolist()} your function gives {_say(got)}; right is {_say(expected)}. "
    best = got.gather(-1, expected.argmax(dim=-1, keepdim=True))
    if got.isnan().any() or best.isinf().any():
        return f"{case}exp left the range: take the row's maximum out before exp, and add it again after the log."
    if (got.isneginf() & expected.isfinite()).any():
        return f"{case}A probability was rounded to 0 before its logarithm: never go through probabilities."
    if ((got >= 0) & (got <= 1)).all():
        return case + "These look like probabilities; their logarithms are asked for, in nats."
    if torch.allclose(got.exp().sum(), torch.ones(()), atol=1e-3):
        return case + "They sum to one, but the differences between tokens must be those of the logits."
    return (
        case
        + "log p_i = z_i − ln Σ e^z: subtract one number, the row's logsumexp, from every logit of the row."
    )


log_softmax = Exercise(
    _log_softmax,
    praise="One number a row is subtracted: differences of log-probabilities are differences of logits.",
    hint="""
        Shift the row by its maximum first: s = logits − m. Then log p = s − ln Σ e^s, and Σ e^s lies between 1 and V.
    """,
    solution="""
        def my_log_softmax(logits):
            shifted = logits - logits.amax(dim=-1, keepdim=True)
            return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    """,
)


# ---- 6. two normalisers, merged -------------------------------------------------------------------------


def _merge(function: Callable) -> str | None:
    cases = (
        ((2.0, 3.0), (2.0, 1.5)),
        ((5.0, 2.0), (3.0, 4.0)),
        ((3.0, 4.0), (5.0, 2.0)),
        ((1000.0, 1.0), (0.0, 7.0)),
        ((-INF, 0.0), (1.0, 2.0)),
    )
    for a, b in cases:
        result = call(function, a, b)
        try:
            m, s = (float(value) for value in result)
        except (TypeError, ValueError):
            return f"Your function should return two numbers (m, s), got {result!r}."
        peak = max(a[0], b[0])
        right = a[1] * math.exp(a[0] - peak) + b[1] * math.exp(b[0] - peak)
        if m != peak or not math.isclose(s, right, rel_tol=1e-5):
            return _merge_words(a, b, (m, s), (peak, right))
    return None


def _merge_words(a: tuple, b: tuple, got: tuple, right: tuple) -> str:
    case = (
        f"Merging {a} and {b} gives {tuple(round(x, 4) for x in got)}; right is "
        f"{tuple(round(x, 4) for x in right)}. "
    )
    if got[0] != right[0]:
        return case + "The maximum of both pieces is the larger of the two maxima."
    if math.isclose(got[1], a[1] + b[1], rel_tol=1e-5):
        return case + (
            "You added sums that belong to different maxima. Bring each to the common one first: s · e^(its m − new m)."
        )
    if math.isnan(got[1]) or math.isinf(got[1]):
        return case + "Subtract the *new, larger* maximum, so that no exponent is above 0."
    return case + "Each sum is multiplied by e^(its own m − new m), which is at most 1."


merge = Exercise(
    _merge,
    praise="This is all that an online softmax, FlashAttention, or a head split over four devices has to know.",
    hint="(m, s) stands for s · e^m. With M = max(m_a, m_b): s_a · e^(m_a − M) + s_b · e^(m_b − M).",
    solution="""
        def my_merge(a, b):
            m = max(a[0], b[0])
            s = a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)
            return m, s
    """,
)


# ---- 7. a draw by noise ---------------------------------------------------------------------------------

DRAWS = 20_000


def _gumbel(function: Callable) -> str | None:
    for temperature in (1.0, 0.5, 2.0):
        generator = torch.Generator().manual_seed(7)
        uniform = torch.rand(DRAWS, 5, generator=generator, dtype=torch.float64).clamp(min=1e-300)
        ids = call(function, toy_logits().double().expand(DRAWS, 5), uniform, temperature)
        if not isinstance(ids, Tensor) or ids.shape != (DRAWS,) or ids.is_floating_point():
            got = (
                f"{ids.dtype} of shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
            )
            return f"For logits ({DRAWS}, 5) your function should return {DRAWS} token ids, one a row; got {got}."
        counts = torch.bincount(ids, minlength=5)
        expected = softmax(toy_logits() / temperature)
        if chi_square(counts, expected).p_value < 1e-6:
            return _gumbel_words(counts / DRAWS, expected, temperature)
    return None


def _gumbel_words(got: Tensor, expected: Tensor, temperature: float) -> str:
    case = f"At T = {temperature} your draws have shares {_say(got)}; the softmax is {_say(expected)}. "
    if got.max() == 1:
        return case + "Always the same token: is the noise added to the logits before the argmax?"
    if torch.allclose(got, softmax(toy_logits()), atol=0.02):
        return case + (
            "That is T = 1. Divide the logits *before* the noise is added: (z + g) / T has the same argmax at every T."
        )
    if (got.argsort() == expected.argsort().flip(0)).all():
        return case + "The least likely comes most often: is a sign wrong in −ln(−ln u)?"
    if got.max() < 0.35:
        return case + "Nearly uniform: was the noise added to the *probabilities*? It belongs on the logits."
    return case + "The noise is −ln(−ln u), one number for each logit, added to z / T; then take the argmax."


gumbel = Exercise(
    _gumbel,
    praise="No exponential of a logit, no sum, no division: the largest noisy logit is a softmax sample.",
    hint="g = −ln(−ln u) has the Gumbel distribution. Return (logits / T + g).argmax(dim=-1).",
    solution="""
        def my_gumbel(logits, u, temperature):
            noise = -torch.log(-torch.log(u))
            return (logits / temperature + noise).argmax(dim=-1)
    """,
)


# ---- 8. predict: what a constant changes ----------------------------------------------------------------

STAGES = ("temperature", "top-k", "top-p", "min-p", "repetition", "presence", "frequency")


def _not_invariant(answer: Iterable[str] | str) -> str | None:
    names = {answer} if isinstance(answer, str) else set(answer)
    if unknown := names - set(STAGES):
        return f"{sorted(unknown)} is not among {list(STAGES)}."
    if not names:
        return "One of them does depend on where zero is. Which one asks for the *sign* of a logit?"
    if "temperature" in names:
        return "(z + c) / T = z / T + c / T: still one constant for all. Temperature scales differences only."
    if extra := names - {"repetition"}:
        return f"{sorted(extra)[0]} compares or subtracts: it gives the same tokens whatever is added to all logits."
    return None


not_invariant = Exercise(
    _not_invariant,
    praise="It divides positive and multiplies negative logits, and a constant decides which is which.",
    hint="Go through the rules: which of them looks at the *sign* of a logit?",
    solution='answer = "repetition"',
)
