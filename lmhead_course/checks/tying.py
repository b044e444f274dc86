"""The exercises of notebook 04: one matrix for both ends."""

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from ..tying import neighbours, path_gradients
from .exercise import Exercise, call


class SmallModel(nn.Module):
    """What the exercises work on: ``embedding.weight`` and ``head.weight``, both (7, 4), not shared to begin with."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)


# ---- 1. what tying saves ------------------------------------------------------------------------------------------

_ONE, _TIED = 167_772_160, 268_098_176  # Gemma-3-270M, as in the catalog
_SAVED = _ONE / (_TIED + _ONE)


def _saving(answer: Any) -> str | None:
    if isinstance(answer, bool) or not isinstance(answer, Real):
        return f"A number is wanted, in percent or as a share, got {answer!r}."
    share = answer / 100 if answer > 1 else answer
    if abs(share - _SAVED) < 0.002:
        return None
    if abs(share - _ONE / _TIED) < 0.002:
        return "62.6 % is one matrix of the *tied* model. The saving is measured on the untied one, which has two."
    if abs(share - 2 * _ONE / (_TIED + _ONE)) < 0.002:
        return "That is both matrices' share of the untied model. Tying takes away one of them."
    return "Add a second matrix to the tied model: how large is the untied one, and which part of it is one matrix?"


saving = Exercise(
    _saving,
    praise="167,772,160 of 435,870,336 parameters: 38.5 %. With s the share in the tied model it is s / (1 + s).",
    hint="The untied model has 268,098,176 + 167,772,160 parameters. Tying takes away one matrix.",
    solution="answer = 100 * 167_772_160 / (268_098_176 + 167_772_160)    # 38.5 %",
)


# ---- 2. which rows an optimiser moves -----------------------------------------------------------------------------

FIRST_BATCH, SECOND_BATCH, ROWS = (0, 1), (1, 2), 6
_OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
}


def moved_rows(optimiser: str) -> set[int]:
    """Return the rows of a lookup table that change in the second step, after ``FIRST_BATCH``, with ``SECOND_BATCH``.

    ``optimiser`` is "SGD", "Adam" or "AdamW" (with weight decay); the table has six rows of ones.
    """
    table = nn.Embedding.from_pretrained(torch.ones(ROWS, 2), freeze=False)
    steps = _OPTIMISERS[optimiser](table.parameters())
    for batch in (FIRST_BATCH, SECOND_BATCH):
        before = table.weight.detach().clone()
        steps.zero_grad()
        table(torch.tensor(batch)).sum().backward()
        steps.step()
    return set((table.weight != before).any(dim=1).nonzero().flatten().tolist())


def _optimisers(answer: Mapping[str, Iterable[int]]) -> str | None:
    if not isinstance(answer, Mapping) or set(answer) != set(_OPTIMISERS):
        return f"Give a dict with the keys {list(_OPTIMISERS)}, each with a set of row numbers."
    for name in _OPTIMISERS:
        got, right = set(answer[name]), moved_rows(name)
        if got != right:
            return _optimiser_words(name, got, right)
    return None


def _optimiser_words(name: str, got: set, right: set[int]) -> str:
    if not got <= set(range(ROWS)):
        return f"{name}: the rows are numbered 0 to {ROWS - 1}."
    if name == "SGD":
        return "SGD subtracts the gradient and nothing else: which rows does the *second* batch give one?"
    if name == "Adam" and got == set(SECOND_BATCH):
        return (
            "Adam remembers: its running mean of gradients is not 0 for a row that had one in the first step."
        )
    if name == "Adam" and got > right:
        return "Adam without decay: a row that never had a gradient has a running mean of 0, and 0 moves nothing."
    if name == "AdamW":
        return "AdamW also shrinks every weight a little in each step, whether it has a gradient or not."
    return f"{name}: go through the six rows one by one; who has a gradient now, who had one before?"


optimisers = Exercise(
    _optimisers,
    praise="The gradient is one thing, the update another: momentum moves rows seen earlier, decay moves them all.",
    hint="For each row ask three things: a gradient now? a running mean left from before? a decay that works on all?",
    solution="""
        answer = {"SGD": {1, 2}, "Adam": {0, 1, 2}, "AdamW": {0, 1, 2, 3, 4, 5}}
    """,
)


# ---- 3. is it tied? -----------------------------------------------------------------------------------------------


def _with_head(weight: Callable[[SmallModel], nn.Parameter]) -> SmallModel:
    model = SmallModel()
    model.head.weight = weight(model)
    return model


def _tied_cases() -> list[tuple[SmallModel, bool, str]]:
    flagged = SmallModel()
    flagged.tie_word_embeddings = flagged.tied = True
    flagged.config = type("Config", (), {"tie_word_embeddings": True})()
    return [
        (_with_head(lambda m: m.embedding.weight), True, "a model whose head uses the embedding's parameter"),
        (SmallModel(), False, "a model with two matrices of different numbers"),
        (
            _with_head(lambda m: nn.Parameter(m.embedding.weight.detach().clone())),
            False,
            "a model whose head is a copy. Equal numbers are not one memory: after the next update they differ",
        ),
        (
            flagged,
            False,
            "an untied model with a flag that says it is tied. A flag says what somebody wanted",
        ),
        (
            _with_head(lambda m: nn.Parameter(m.embedding.weight.detach())),
            True,
            "a model with two parameter objects over one memory. Compare addresses (data_ptr), not objects",
        ),
    ]


def _is_tied(function: Callable) -> str | None:
    for model, right, words in _tied_cases():
        got = call(function, model)
        if isinstance(got, Tensor) and got.numel() == 1:
            got = bool(got)
        if not isinstance(got, bool):
            return f"Your function returned a {type(got).__name__}; True or False is wanted."
        if got != right:
            return f"Yours says {got} for {words}; right is {right}."
    return None


is_tied = Exercise(
    _is_tied,
    praise="Addresses do not lie: neither flags nor equal numbers nor other names for the same memory deceive it.",
    hint="tensor.data_ptr() is the address of its first number. Which two tensors do you ask?",
    solution="""
        def my_is_tied(model):
            return model.embedding.weight.data_ptr() == model.head.weight.data_ptr()
    """,
)


# ---- 4. tie it ----------------------------------------------------------------------------------------------------


def _tie(function: Callable) -> str | None:
    model = SmallModel()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    result = call(function, model)
    if not isinstance(result, nn.Module):
        return f"Your function returned a {type(result).__name__}; let it return the model."
    embedding, head = result.embedding.weight, result.head.weight
    if embedding.data_ptr() != head.data_ptr():
        if torch.equal(embedding, head):
            return (
                "The numbers are equal now, but in two places: after one step of training they differ again."
            )
        return (
            "Both ends still have numbers of their own. Make head.weight the very parameter of the embedding."
        )
    if torch.equal(embedding, before["head.weight"]):
        return "Tied, but to the head's numbers: what the embedding had learned is lost. Turn it around."
    if not torch.equal(embedding, before["embedding.weight"]):
        return "Tied, but the embedding's numbers changed on the way. Use its parameter as it is."
    if embedding is not head:
        return (
            "The memory is shared, but there are still two parameters: each gathers a gradient of its own, and an "
            "optimiser moves the same numbers twice. Assign the parameter itself."
        )
    return None


tie = Exercise(
    _tie,
    praise="One parameter, one gradient, one memory. An optimiser made from here on sees it once.",
    hint="Modules let you assign a parameter: module.weight = another_module.weight. Return the model.",
    solution="""
        def my_tie(model):
            model.head.weight = model.embedding.weight
            return model
    """,
)


# ---- 5. two paths, one gradient -----------------------------------------------------------------------------------


def _paths_case() -> tuple:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(9, 4, generator=generator).requires_grad_()
    mix = torch.randn(4, 4, generator=generator)
    ids = torch.tensor([[1, 3, 3, 0], [2, 1, 5, 3]])
    targets = torch.tensor([[3, 3, 0, 6], [1, 5, 3, 2]])
    return (lambda x: torch.tanh(x @ mix)), weight, ids, targets


def _paths(function: Callable) -> str | None:
    body, weight, ids, targets = _paths_case()
    right = path_gradients(body, weight, weight, ids, targets)
    given = weight.detach().clone().requires_grad_()
    result = call(function, body, given, ids, targets)
    if not isinstance(result, tuple | list) or len(result) != 2:
        return "Return two gradients: (by the input path, by the output path)."
    got = [None if one is None else one.detach() for one in result]
    for name, one in zip(("input", "output"), got, strict=True):
        if one is None:
            return f"The gradient of the {name} path is None: nothing of the loss depends on that leaf."
        if one.shape != weight.shape:
            return f"The gradient of the {name} path has shape {tuple(one.shape)}; it should be that of the weight."
    return _paths_words(got, [right.input, right.output], targets.numel())


def _paths_words(got: list[Tensor], right: list[Tensor], positions: int) -> str | None:
    def same(a: list[Tensor], b: list[Tensor]) -> bool:
        return all(torch.allclose(one, other, atol=1e-5) for one, other in zip(a, b, strict=True))

    total = right[0] + right[1]
    if same(got, right):
        return None
    if same(got, right[::-1]):
        return (
            "The two are swapped: the input path is the one that is 0 for tokens that are not in the batch."
        )
    if same(got, [total, total]):
        return (
            "Both are the whole gradient of the matrix. Use two leaves, weight.detach().requires_grad_(), "
            "one at each end."
        )
    if same(got, [positions * one for one in right]):
        return f"Each is {positions} times too large: take the *mean* loss over the {positions} positions."
    if same(got[:1], right[:1]):
        return "The input path is right, the output path is not: only the logits may use the second leaf."
    if same(got[1:], right[1:]):
        return "The output path is right, the input path is not: only the lookup may use the first leaf."
    return "Neither is right yet. One leaf looks the tokens up, the body follows, the other leaf makes the logits."


paths = Exercise(
    _paths,
    praise="Their sum is what a tied matrix gets. The input path is 0 wherever a token is not in the batch.",
    hint="""
        1. Two leaves: enter, leave = (weight.detach().requires_grad_() for _ in range(2)).
        2. hidden = body(enter[ids]); logits = hidden @ leave.T; the mean cross-entropy.
        3. torch.autograd.grad(loss, (enter, leave)) returns both.
    """,
    solution="""
        def my_paths(body, weight, ids, targets):
            enter, leave = (weight.detach().clone().requires_grad_() for _ in range(2))
            logits = body(enter[ids]) @ leave.T
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            return torch.autograd.grad(loss, (enter, leave))
    """,
)


# ---- 6. nearest rows ----------------------------------------------------------------------------------------------


def _nearest_case() -> Tensor:
    rows = torch.tensor(
        [[1.0, 0.0], [0.9, 0.3], [3.0, 4.0], [0.5, -0.05], [-1.0, 0.1], [0.8, -0.9], [0.0, 1.0]]
    )
    return rows


def _nearest(function: Callable) -> str | None:
    rows, token, n = _nearest_case(), 0, 3
    got = call(function, rows.clone(), token, n)
    got = [int(one) for one in (got.flatten() if isinstance(got, Tensor) else got)]
    right = [one for one, _ in neighbours(rows, rows[token], n, [token])]
    if got == right:
        return None
    if token in got:
        return f"Yours returns {got}: row {token} is its own nearest, with cosine 1, and is not asked for."
    if len(got) != n:
        return f"Yours returns {len(got)} ids for n = {n}."
    if got == _best(rows @ rows[token], token, n):
        return f"Yours returns {got}: the largest dot products. A long row has those without pointing the same way."
    if got == _best(-(rows - rows[token]).norm(dim=1), token, n):
        return f"Yours returns {got}: the smallest distances. The cosine asks for the direction only: right is {right}."
    if set(got) == set(right):
        return f"Yours returns {got}: the right ones, but the nearest should come first: {right}."
    return f"Yours returns {got}; right is {right}: the largest cosines, x · y / (|x| |y|)."


def _best(scores: Tensor, token: int, n: int) -> list[int]:
    scores = scores.clone()
    scores[token] = -torch.inf
    return scores.topk(n).indices.tolist()


nearest = Exercise(
    _nearest,
    praise="By direction and not by length, and without the token itself. Try it on lm.embedding.",
    hint="Divide every row by its length, multiply with the token's, set the token's own score to −inf, take topk(n).",
    solution="""
        def my_nearest(rows, token, n):
            unit = rows / rows.norm(dim=1, keepdim=True)
            cosines = unit @ unit[token]
            cosines[token] = -torch.inf
            return cosines.topk(n).indices.tolist()
    """,
)
