"""The exercises of notebook 01: from a hidden state to logits."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ..projection import last_position, length_and_angle, unembed
from ..toy import LABELS, WORDS, toy_rows
from .exercise import Exercise, call


def _tensor(result: object, wanted: str) -> Tensor | str:
    if not isinstance(result, Tensor):
        return f"Your function returned a {type(result).__name__}; it should return {wanted}."
    return result.detach()


def _numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- 1. predict: the word that can never win --------------------------------------------------------------


def _never_wins(answer: str | int) -> str | None:
    named = {**{word: i for i, word in enumerate(WORDS)}, **{label: i for i, label in enumerate(LABELS)}}
    token = answer if isinstance(answer, int) else named.get(str(answer).strip())
    if token is None or not 0 <= token < len(WORDS):
        return f"{answer!r} is not among the five words {list(WORDS)}."
    angles = torch.arange(360.0).deg2rad()
    hidden = torch.stack([angles.cos(), angles.sin()], dim=1)
    wins = (unembed(hidden, toy_rows()).argmax(dim=1) == token).nonzero().flatten()
    if len(wins) == 0:
        return None
    angle = int(wins[len(wins) // 2])
    return (
        f"{WORDS[token]} wins with a hidden state at {angle}°, for example, in {len(wins)} of 360 directions. "
        "Look for a tip that the other tips surround."
    )


never_wins = Exercise(
    _never_wins,
    praise="Its row lies among the other tips: whichever way the hidden state points, another row reaches further.",
    hint="Turn a ruler around the picture, at right angles to the hidden state, and push it outwards. Which tip is "
    "never the last that it touches?",
    solution='answer = "很"    # its tip (0.9, 0.5) lies inside the shape that the other four span',
)


# ---- 2. the head itself -----------------------------------------------------------------------------------


def _logits(function: Callable) -> str | None:
    weight, bias = _numbers(7, 4, seed=1), _numbers(7, seed=2)
    cases = (((4,), None), ((4,), bias), ((3, 4), bias), ((2, 3, 4), None), ((7, 4), None))
    for shape, b in cases:
        hidden = _numbers(*shape, seed=3)
        case = f"For hidden {shape}, weight (7, 4), {'no bias' if b is None else 'bias (7,)'}: "
        try:
            got = _tensor(call(function, hidden.clone(), weight.clone(), b), "a tensor of logits")
        except (RuntimeError, IndexError, TypeError) as error:
            return f"{case}{type(error).__name__}: {error}. The weight is stored (d_vocab, d_model)."
        if isinstance(got, str):
            return got
        if problem := _logits_words(got, hidden, weight, b):
            return case + problem
    return None


def _logits_words(got: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> str | None:
    expected = unembed(hidden, weight, bias)
    if got.shape != expected.shape:
        return f"your result has shape {tuple(got.shape)}; the last axis becomes d_vocab: {tuple(expected.shape)}."
    if torch.allclose(got, expected, atol=1e-5):
        return None
    if bias is not None and torch.allclose(got, expected - bias, atol=1e-5):
        return "the bias is missing: one number a token, added at the end."
    if torch.allclose(got.sum(-1), torch.ones(got.shape[:-1]), atol=1e-4) and (got >= 0).all():
        return "these are probabilities. Logits come before the softmax."
    return "the shape is right and the numbers are not. Logit i is the dot product of the hidden state with row i."


logits = Exercise(
    _logits,
    praise="One line, any number of axes in front: the whole head.",
    hint="hidden @ weight.T multiplies along the last axis, whatever stands before it. Add the bias unless it is None.",
    solution="""
        def my_logits(hidden, weight, bias=None):
            logits = hidden @ weight.T
            return logits if bias is None else logits + bias
    """,
)


# ---- 3. the best by angle ---------------------------------------------------------------------------------

_HIDDEN = torch.tensor([2.0, 1.0])
_ROWS = (
    # Each mistake picks another row: dot product 1, length 2, distance 3, opposite direction 4.
    torch.tensor([[0.4, 0.25], [3.0, 0.0], [2.2, -4.0], [1.6, 1.6], [-4.0, -2.05]]),
    torch.tensor([[5.0, 9.0], [1.0, 0.6], [4.0, -1.0], [-2.0, -1.0]]),
    torch.tensor([[1.8, 1.6], [20.0, 9.0], [0.1, 0.04], [0.0, -1.0]]),
)


def _by_angle(function: Callable) -> str | None:
    for rows in (*_ROWS, toy_rows().roll(2, 0)):
        got = int(call(function, _HIDDEN.clone(), rows.clone()))
        lengths, angles = length_and_angle(_HIDDEN, rows)
        right = int(angles.argmin())
        if got != right:
            return _by_angle_words(got, right, rows, lengths, angles)
    return None


def _by_angle_words(got: int, right: int, rows: Tensor, lengths: Tensor, angles: Tensor) -> str:
    numbers = [[round(x, 2) for x in row] for row in rows.tolist()]
    case = (
        f"hidden [2, 1], rows {numbers}: yours is row {got}, right is row {right}, at {angles[right]:.1f}°. "
    )
    if not 0 <= got < len(rows):
        return case + f"There are {len(rows)} rows."
    case += f"Row {got} is at {angles[got]:.1f}°. "
    if angles[got] > 90:
        return case + "It points away: a cosine near −1 is the opposite, so take no absolute value."
    if got == int((rows @ _HIDDEN).argmax()):
        return case + "It has the largest dot product, because it is long. Divide its length out."
    if got == int(lengths.argmax()):
        return case + "It is the longest, which says nothing about its direction."
    if got == int((rows - _HIDDEN).norm(dim=1).argmin()):
        return case + "Its tip is the nearest. A distance mixes length and angle: compare cosines."
    return case + "The angle is the smallest where (row · hidden) / (|row| |hidden|) is the largest."


by_angle = Exercise(
    _by_angle,
    praise="The best by angle alone: often, but not always, the token with the largest logit.",
    hint="Divide every dot product by the length of its row. The hidden state's length is the same for all.",
    solution="""
        def my_best_by_angle(hidden, weight):
            return int((weight @ hidden / weight.norm(dim=1)).argmax())
    """,
)


# ---- 4. predict: four ranks -------------------------------------------------------------------------------


def _ranks(answer: Sequence[int]) -> str | None:
    ranks = [int(number) for number in answer]
    if len(ranks) != 4:
        return f"Four numbers are wanted, in this order: plain, with a bias, log-softmax, soft cap; got {len(ranks)}."
    plain, bias, log_softmax, cap = ranks
    if plain != 2:
        return f"Plain: every row of logits is x · (column 1) + y · (column 2). That is not rank {plain}."
    if bias != 3:
        return f"With a bias: one more vector is added to every row, and the two columns don't make it. Not {bias}."
    if log_softmax != 3:
        return (
            f"Log-softmax: it subtracts one number, log Σ exp, from all five logits of a row. Those rows are multiples "
            f"of (1, 1, 1, 1, 1): a third direction. Not {log_softmax}."
        )
    if cap != 5:
        return f"Soft cap: tanh bends each logit by itself: nothing holds the rows in a plane any longer. Not {cap}."
    return None


predict_ranks = Exercise(
    _ranks,
    praise="Two columns; one more for a bias or for log-softmax's constants; no limit but V after tanh.",
    hint="The rank is the number of fixed vectors of length 5 out of which every row of logits can be added up.",
    solution="answer = (2, 3, 3, 5)",
)


# ---- 5. the last real position ----------------------------------------------------------------------------

_MASKS = (
    ("no padding", [[1, 1, 1, 1], [1, 1, 1, 1]]),
    ("padding on the right", [[1, 1, 0, 0], [1, 1, 1, 1]]),
    ("padding on the left", [[0, 0, 1, 1], [1, 1, 1, 1]]),
    ("both", [[0, 1, 1, 0], [1, 0, 0, 0]]),
)


def _last(function: Callable) -> str | None:
    hidden = torch.arange(2 * 4 * 3.0).reshape(2, 4, 3)
    for name, rows in _MASKS:
        mask = torch.tensor(rows)
        got = _tensor(call(function, hidden.clone(), mask.clone()), "a tensor (batch, d_model)")
        if isinstance(got, str):
            return got
        expected = last_position(hidden, mask)
        if got.shape != expected.shape:
            return (
                f"{name}: your result has shape {tuple(got.shape)}, it should be (batch, d_model) = (2, 3)."
            )
        if not torch.equal(got.float(), expected):
            return _last_words(name, rows, got, hidden)
    return None


def _last_words(name: str, rows: list[list[int]], got: Tensor, hidden: Tensor) -> str:
    for row, (mask, state) in enumerate(zip(rows, got, strict=True)):
        found = [p for p in range(4) if torch.equal(hidden[row, p], state)]
        right = max(p for p in range(4) if mask[p])
        if found == [right]:
            continue
        where = f"position {found[0]}" if found else "no position of that row"
        case = f"{name}: for mask {mask} you took {where}, the last real token is at {right}. "
        if found == [sum(mask) - 1]:
            return case + "Counting the ones finds it only if the padding is on the right."
        if found == [3]:
            return (
                case + "The last column is the last token only without padding, or with padding on the left."
            )
        return case + "You want the largest index at which the mask is 1, row by row."
    raise AssertionError("a wrong answer has a wrong row")


last = Exercise(
    _last,
    praise="Right wherever the padding stands.",
    hint="""
        Number the positions, 0 to T − 1. Where the mask is 0, a number does not count: multiply. The largest that is
        left is the index you want, one for each row.
    """,
    solution="""
        def my_last(hidden, mask):
            numbers = torch.arange(mask.shape[1]) * mask
            return hidden[torch.arange(len(hidden)), numbers.argmax(dim=1)]
    """,
)


# ---- 6. rows that are copies of each other ------------------------------------------------------------------


def _ids(result: object) -> set[int]:
    values = result.flatten().tolist() if isinstance(result, Tensor) else list(result)
    return {int(value) for value in values}


def _twins(function: Callable) -> str | None:
    base = _numbers(8, seed=4)
    others = _numbers(3, 8, seed=5)
    long_one = 9 * (base + 2 * others[2])  # large dot product, another direction
    weight = torch.stack([others[0], base, others[1], 1.0004 * base, 3 * base, -base, long_one, 0.05 * base])
    got = _ids(call(function, weight.clone(), 1))
    if got == {1, 3, 4, 7}:
        # The live head is large: all pairs at once would need 9.7 GB.
        return None
    case = (
        f"Rows 1, 3, 4 and 7 point the same way, row 5 the opposite way; for row 1 you find {sorted(got)}. "
    )
    if got == {3, 4, 7}:
        return case + "The row itself belongs to the answer: its cosine with itself is 1."
    if 5 in got:
        return case + "A cosine of −1 is as different as can be: take no absolute value."
    if got == {1, 3}:
        return case + "Rows of another length can have the same direction: compare cosines, not distances."
    if not got >= {1, 3, 4, 7}:
        return case + "Divide every row by its length first; then dot products are cosines."
    return case + "Only cosines *above* the limit count. Are the lengths divided out?"


twins = Exercise(
    _twins,
    praise="49,152 dot products find all copies of one row; all pairs would be 2.4 thousand million.",
    hint="torch.nn.functional.normalize(weight, dim=1) gives rows of length 1. Then one matrix-vector product.",
    solution="""
        def my_twins(weight, row, least=0.999):
            unit = torch.nn.functional.normalize(weight, dim=1)
            return (unit @ unit[row] > least).nonzero().flatten().tolist()
    """,
)


# ---- 7. characters that do not come back --------------------------------------------------------------------


def _silent(text: str) -> list[int]:
    return [ord(character) for character in text if ord(character) not in (4, 0x1D)]


def _with_unknown(text: str) -> list[int]:
    return [ord(character) if ord(character) < 0x3000 else 0xFFFD for character in text]


def _spell(ids: Iterable[int]) -> str:
    return "".join(map(chr, ids))


def _lost(function: Callable) -> str | None:
    cases = (
        ("one that drops U+0004 and U+001D", _silent, "a\x04b\x1d\x04c", "\x04\x1d"),
        ("one that writes [UNK] for Chinese", _with_unknown, "a今天a", "今天"),
        ("one that keeps everything", _spell_ids, "", ""),
        ("one that keeps everything", _spell_ids, "今天 a", ""),
    )
    for name, encode, text, right in cases:
        got = call(function, text, encode, _spell)
        wrong = _lost_words(set(got), set(right))
        if wrong:
            return f"With a tokenizer, {name}, and the text {text!r}: you found {list(got)}. {wrong}"
    return None


def _spell_ids(text: str) -> list[int]:
    return [ord(character) for character in text]


def _lost_words(got: set[str], right: set[str]) -> str | None:
    if got == right:
        return None
    if any(len(piece) != 1 for piece in got):
        return "Characters one by one are wanted, not whole texts."
    if missed := right - got:
        return (
            f"{sorted(missed)} does not come back: it may give no token, or one that stands for something else. "
            "Compare what is decoded with what went in."
        )
    return f"{sorted(got - right)} does come back as it was."


lost = Exercise(
    _lost,
    praise="Try it on the live tokenizer: six of the first 128 characters are lost.",
    hint="Send each character of the text through encode and decode by itself. Does the same character come back?",
    solution="""
        def my_lost(text, encode, decode):
            return [character for character in dict.fromkeys(text) if decode(encode(character)) != character]
    """,
)
