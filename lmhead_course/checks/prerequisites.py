"""The self-test of notebook 00: what the course assumes, asked in five short questions."""

import math
from collections.abc import Sequence
from typing import Any

from .exercise import Exercise

LISTS = "docs.python.org/3/tutorial/introduction.html#lists"
COMPREHENSIONS = "docs.python.org/3/tutorial/datastructures.html#list-comprehensions"
TENSORS = "docs.pytorch.org/tutorials/beginner/basics/tensorqs_tutorial.html"
MATMUL = "docs.pytorch.org/docs/stable/generated/torch.matmul.html"
LOGARITHMS = "en.wikipedia.org/wiki/Logarithm#Product,_quotient,_power,_and_root"
PROBABILITY = "en.wikipedia.org/wiki/Independence_(probability_theory)"


def _shape(answer: Any) -> tuple[int, ...] | str:
    """Return a shape as a tuple of whole numbers, or what is wrong with its form."""
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        return f"A shape is a tuple of whole numbers, such as (2, 5), got {answer!r}."
    return tuple(answer)


def _number(answer: Any) -> float | str:
    """Return a number, or what is wrong with its form."""
    try:
        return float(
            "no" if isinstance(answer, bool | str) else answer
        )  # a tensor or a Fraction is a number, too
    except (TypeError, ValueError, RuntimeError):
        return f"The answer is one number, got {answer!r}."


# ---- 1. Python: a comprehension and a slice ---------------------------------------------------------------


def _slices(answer: Any) -> str | None:
    if not isinstance(answer, list):
        return (
            f"A list comprehension makes a list, and a slice of a list is a list, got {answer!r}. See {LISTS}"
        )
    if answer == [9, 16]:
        return f"Almost: range(5) begins with 0, so the list is [0, 1, 4, 9, 16]. See {COMPREHENSIONS}"
    if answer == [1, 2]:
        return f"Those are places 1 and 2 of range(5) itself: n * n squares each number. See {COMPREHENSIONS}"
    if answer in ([1, 4, 9], [0, 1], [0, 1, 4]):
        return f"The list is right, the slice is not: [1:3] begins at place 1 and ends *before* place 3. See {LISTS}"
    if answer != [1, 4]:
        return (
            f"Write out [n * n for n in range(5)] first, then take places 1 and 2 of it. See {COMPREHENSIONS}"
        )
    return None


slices = Exercise(
    _slices,
    praise="Places count from 0, and a slice stops before its end. Notebook 01 reads h[-1] in the same way.",
    hint="range(5) is 0, 1, 2, 3, 4. Square each; then count places from 0.",
    solution="answer = [1, 4]  # of [0, 1, 4, 9, 16]",
)


# ---- 2. the shape of a matrix product ---------------------------------------------------------------------


def _product_shape(answer: Any) -> str | None:
    shape = _shape(answer)
    if isinstance(shape, str) or shape == (2, 5, 7):
        return shape if isinstance(shape, str) else None
    if len(shape) == 4:
        return f"The axis of length 3 is summed over, so it is gone from the result. See {MATMUL}"
    if len(shape) == 2:
        return f"The leading axis stays: the product is taken once for each of its 2 entries. See {MATMUL}"
    if 3 in shape:
        return f"The two inner axes, both of length 3, meet and are summed over: no 3 is left. See {MATMUL}"
    return f"Rows of the first meet columns of the second: (2, 5, 3) @ (3, 7) keeps 2, 5 and 7. See {MATMUL}"


product_shape = Exercise(
    _product_shape,
    praise="The inner axes meet and vanish, all others stay. With 576 in place of 3 and 49,152 of 7 it is the head.",
    hint="(rows, inner) @ (inner, columns) is (rows, columns); axes further left are carried along.",
    solution="answer = (2, 5, 7)",
)


# ---- 3. a sum over the last axis, and what broadcasting makes of it ----------------------------------------


def _row_sums(answer: Any) -> str | None:
    shape = _shape(answer)
    if isinstance(shape, str) or shape == (4, 1):
        return shape if isinstance(shape, str) else None
    if shape == (4,):
        return (
            f"That is without keepdim=True, which leaves an axis of length 1 where the sum was. See {TENSORS}"
        )
    if shape in ((1, 6), (6,)):
        return (
            f"dim=-1 is the *last* axis, of length 6: that one is summed over, the 4 rows stay. See {TENSORS}"
        )
    if shape == (4, 6):
        return f"The sum has one number for each row, not one for each entry. See {TENSORS}"
    return f"x has 4 rows of 6 numbers, and each row is added up. See {TENSORS}"


row_sums = Exercise(
    _row_sums,
    praise="So x / x.sum(dim=-1, keepdim=True) divides each row by its own sum: (4, 1) is stretched to (4, 6).",
    hint="dim=-1 names the last axis. keepdim=True keeps it, with length 1.",
    solution="answer = (4, 1)",
)


# ---- 4. exponentials and logarithms -------------------------------------------------------------------------


def _log_product(answer: Any) -> str | None:
    value = _number(answer)
    if isinstance(value, str) or math.isclose(value, -5, rel_tol=1e-3):
        return value if isinstance(value, str) else None
    if math.isclose(value, 6, rel_tol=1e-3):
        return (
            f"That multiplies the logarithms; a product of numbers is a *sum* of logarithms. See {LOGARITHMS}"
        )
    if math.isclose(value, math.exp(-5), rel_tol=0.02):
        return "That is p · q itself. Asked is its logarithm."
    if math.isclose(value, 5, rel_tol=1e-3):
        return "The size is right, the sign is not: a probability is below 1, so its logarithm is below 0."
    if math.isclose(value, math.log(math.exp(-2) + math.exp(-3)), rel_tol=0.01):
        return f"That is log(p + q), for which there is no short cut. For a product there is one. See {LOGARITHMS}"
    return f"p is e^(−2) and q is e^(−3); multiply powers of e by adding their exponents. See {LOGARITHMS}"


log_product = Exercise(
    _log_product,
    praise="log(p · q) = log p + log q: this is why the log-probability of a text is a sum over its tokens.",
    hint="p = e^(−2) and q = e^(−3). What is e^a · e^b?",
    solution="answer = -2 + -3",
)


# ---- 5. probability -----------------------------------------------------------------------------------------


def _both_draws(answer: Any) -> str | None:
    value = _number(answer)
    if isinstance(value, str) or math.isclose(value, 9 / 64, rel_tol=0.01):
        return value if isinstance(value, str) else None
    if math.isclose(value, 3 / 8, rel_tol=0.01):
        return f"That is the probability of one draw; asked is the same word twice. See {PROBABILITY}"
    if math.isclose(value, 9, rel_tol=0.01):
        return "Weights become probabilities by dividing by their sum, 1 + 3 + 4 = 8."
    if math.isclose(value, 6 / 8, rel_tol=0.01):
        return (
            f"Two draws that must both happen multiply; adding would soon give more than 1. See {PROBABILITY}"
        )
    if math.isclose(value, 100 * 9 / 64, rel_tol=0.01):
        return "Right in percent; a probability is a number between 0 and 1, so divide by 100."
    if not 0 <= value <= 1:
        return f"A probability lies between 0 and 1, got {value:g}."
    return f"One draw gives the second word with 3 out of 8. Independent draws multiply. See {PROBABILITY}"


both_draws = Exercise(
    _both_draws,
    praise="Dividing weights by their sum is the last step of softmax, and a draw from the result is a sampler.",
    hint="First the probability of one draw: a weight divided by the sum of all. Then both draws.",
    solution="answer = (3 / 8) ** 2",
)
