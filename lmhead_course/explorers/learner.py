"""A learner's own ``process`` function, run so that whatever it does becomes words and never a traceback."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..checks.exercise import learners_line
from ..sampling import SamplingParams

CALL = "process(logits, params, prompt=…, generated=…)"


class LearnerError(ValueError):
    """What is wrong with the learner's function, in words for the learner."""


def run_process(
    process: Callable,
    logits: Float[Tensor, " d_vocab"],
    params: SamplingParams,
    *,
    prompt: Int[Tensor, " n"],
    generated: Int[Tensor, " m"],
) -> tuple[Float[Tensor, " d_vocab"], str]:
    """Return the learner's logits (d_vocab,) in float32, and a remark on them ("" for none).

    Raises ``LearnerError`` for an exception in the function, with its line, and for a result that has no softmax.
    """
    given = logits.clone()
    try:
        result = process(given, params, prompt=prompt, generated=generated)
    except (Exception, KeyboardInterrupt) as error:  # an endless loop is ended by interrupting the kernel
        raise LearnerError(describe(error)) from error
    result = _checked(result, logits)
    if not torch.equal(given, logits):
        return result, "Your function changes the logits it is given; return a new tensor instead."
    if bool((result >= 0).all()) and abs(float(result.sum()) - 1) < 1e-4:
        return result, "What your function returns sums to 1: are these probabilities? Logits are expected."
    return result, ""


def describe(error: BaseException) -> str:
    """Return an exception in words: the deepest line of it that the learner wrote, and what Python says."""
    line, kind = learners_line(error), type(error).__name__
    if line is None:
        return f"{kind}: {error}\nYour function is called as {CALL}."
    return f"{kind} in line {line.lineno} of {line.name}:\n    {line.line}\n{error}"


def _checked(result: object, logits: Float[Tensor, " d_vocab"]) -> Float[Tensor, " d_vocab"]:
    wanted = f"a tensor of logits of shape {tuple(logits.shape)}"
    if result is None or result is ...:
        raise LearnerError(f"Your function returns {result}; it should return {wanted}.")
    if not isinstance(result, Tensor):
        raise LearnerError(f"Your function returns a {type(result).__name__}; it should return {wanted}.")
    if result.shape != logits.shape:
        raise LearnerError(
            f"Your function returns the shape {tuple(result.shape)}; it should return {wanted}."
        )
    if result.is_complex() or result.dtype == torch.bool:
        raise LearnerError(f"Your function returns {result.dtype}; it should return {wanted}.")
    result = result.detach().float().cpu()
    for name, wrong in (("NaN", result.isnan()), ("+inf", result.isposinf())):
        if wrong.any():
            count, first = int(wrong.sum()), int(wrong.nonzero()[0])
            raise LearnerError(
                f"Your function returns {name} for {count:,} tokens, the first with id {first}."
            )
    if not result.isfinite().any():
        raise LearnerError(
            "Your function drops every token: all its logits are -inf. At least one has to stay."
        )
    return result
