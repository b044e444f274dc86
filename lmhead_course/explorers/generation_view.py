"""What the generation explorer knows and shows: a tree of tokens behind one text, numbers and words, no widgets."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ..generation import log_probs_of
from ..sampling import SamplingParams
from .context import Context
from .sampling_view import SamplingView, view_of_settings
from .token_table import percent, quoted

MOST_NODES = 150
"""How many tokens a tree may hold: each keeps its step's logits, 0.2 MB at 49,152 tokens, and no other step than the
one that is looked at keeps more."""

ROOT = 0
"""The node of the typed text."""


@dataclass(frozen=True)
class Node:
    """One token that was taken; ``parent`` is the place of the node before it, ``log_prob`` the model's own, in nats.

    ``context`` holds what follows this token; it is None where the token ends the text. The root, node 0, is the typed
    text: it has no token.
    """

    parent: int
    token_id: int
    label: str
    log_prob: float
    context: Context | None


@dataclass
class Tree:
    """All tokens that were taken, parents before their children, and the place that is looked at.

    ``at`` is the node whose next step is shown, and ``mark`` the child that was taken there, or None at an end.
    """

    nodes: list[Node] = field(default_factory=list)
    at: int = ROOT
    mark: int | None = None

    def children(self, node: int) -> list[int]:
        """Return the places of the nodes behind this one, in the order in which they were taken."""
        return [place for place, one in enumerate(self.nodes) if place != ROOT and one.parent == node]

    def path(self, node: int) -> list[int]:
        """Return the places from the first taken token to this node."""
        places = []
        while node != ROOT:
            places.append(node)
            node = self.nodes[node].parent
        return places[::-1]

    def joint(self, node: int) -> float:
        """Return the log-probability, in nats, of all tokens on the way to this node."""
        return math.fsum(self.nodes[place].log_prob for place in self.path(node))

    def child(self, token_id: int) -> int | None:
        """Return the node of a token behind the place that is looked at, if it was taken there before."""
        behind = self.children(self.at)
        return next((place for place in behind if self.nodes[place].token_id == token_id), None)

    def look(self, node: int) -> None:
        """Show the step at which a node's token was taken; for the root, the first step."""
        self._check(node)
        self._stand(*((ROOT, None) if node == ROOT else (self.nodes[node].parent, node)))

    def look_behind(self, node: int) -> None:
        """Show the step behind a node; raise ``ValueError`` where the text has ended."""
        self._check(node)
        if self.nodes[node].context is None:
            raise ValueError(f"{quoted(self.nodes[node].label)} ends the text: nothing follows it")
        self._stand(node, None)

    def check_room(self) -> None:
        """Raise ``ValueError`` if the tree can hold no more."""
        if len(self.nodes) > MOST_NODES:
            raise ValueError(f"the tree holds {MOST_NODES} tokens, as many as it can: press reset")

    def add(self, node: Node) -> None:
        """Add a node behind the place that is looked at, and go there (or mark it, where the text ends with it)."""
        self.check_room()
        self.nodes.append(node)
        self.go_to(len(self.nodes) - 1)

    def go_to(self, place: int) -> None:
        """Look at what follows a node; at the node itself where nothing does."""
        if self.nodes[place].context is None:
            self.look(place)
        else:
            self.look_behind(place)

    def _stand(self, at: int, mark: int | None) -> None:
        if at != self.at:
            self.nodes[self.at].context.forget()
        self.at, self.mark = at, mark

    def _check(self, node: int) -> None:
        if not 0 <= node < len(self.nodes):
            raise ValueError(f"node must be in 0 … {len(self.nodes) - 1}, got {node}")


def log_prob_of(context: Context, token_id: int) -> float:
    """Return ln of the probability that the model itself gives a token, in nats."""
    return float(log_probs_of(context.logits, torch.tensor(token_id)))


@dataclass(frozen=True)
class GenerationView:
    """Everything the explorer shows: the ``step`` that is looked at, and the path to it.

    ``tokens`` are the labels of the path, with the marked one as its last; ``joint`` is its log-probability under the
    model itself, in nats. ``marked`` is the token taken at this step, or None at an end; ``branches`` how many ways
    the tree has. ``chance`` is the marked token's probability under the model.
    """

    params: SamplingParams
    step: SamplingView
    tokens: tuple[str, ...]
    joint: float
    marked: str | None
    marked_id: int | None
    chance: float | None
    branches: int

    @property
    def number(self) -> int:
        """The number of the step that is looked at, from 1."""
        return len(self.tokens) + (self.marked is None)

    @property
    def sentence(self) -> str:
        """The step in words."""
        return f"Step {self.number}. {self._taken}{self.step.sentence}"

    @property
    def _taken(self) -> str:
        if self.marked is None:
            return ""
        return f"{quoted(self.marked)} was taken here; the model gives it {percent(self.chance)}. "

    @property
    def readouts(self) -> list[list[str]]:
        """The figures beside the table, as pairs of name and value."""
        n = len(self.tokens)
        per_token = percent(math.exp(self.joint / n)) if n else "—"
        path = [
            ["path probability", power(self.joint) if n else "—"],
            ["its logarithm", f"{self.joint:.2f} nats".replace("-", "−") if n else "—"],
            ["tokens on the path", str(n)],
            ["mean per token", per_token],
            ["ends in the tree", str(self.branches)],
        ]
        return path + [pair for pair in self.step.readouts if pair[0] in ("tokens kept", "entropy")]


def view_of(tree: Tree, params: SamplingParams, label: Callable[[int], str], top: int) -> GenerationView:
    """Return what is shown of a tree under these settings."""
    step = view_of_settings(tree.nodes[tree.at].context, params, label, top)
    end = tree.at if tree.mark is None else tree.mark
    marked = None if tree.mark is None else tree.nodes[tree.mark]
    leaves = sum(not tree.children(place) for place in range(len(tree.nodes)))
    return GenerationView(
        params=params,
        step=step,
        tokens=tuple(tree.nodes[place].label for place in tree.path(end)),
        joint=tree.joint(end),
        marked=marked and marked.label,
        marked_id=marked and marked.token_id,
        chance=marked and math.exp(marked.log_prob),
        branches=leaves,
    )


def lines_of(tree: Tree) -> list[dict]:
    """Return the tree as lines for the page: a line runs on until the ways part, and each way is a line below it.

    A line is ``{"depth", "items", "end", "joint", "here"}``: items are ``{"node", "label", "title", "on_path",
    "marked"}``; ``end`` is the node at whose end more can be grown, −1 where the ways part or the text has ended.
    """
    end = tree.at if tree.mark is None else tree.mark
    on_path = {ROOT, *tree.path(end)}
    lines, waiting = [], [(ROOT, 0)]
    while waiting:
        first, depth = waiting.pop()
        run, behind = [first], tree.children(first)
        while len(behind) == 1:
            run.append(behind[0])
            behind = tree.children(behind[0])
        lines.append(_line(tree, run, depth, bool(behind), on_path))
        waiting += [(child, depth + 1) for child in reversed(behind)]
    return lines


def _line(tree: Tree, run: list[int], depth: int, parts: bool, on_path: set[int]) -> dict:
    last = run[-1]
    goes_on = not parts and tree.nodes[last].context is not None
    items = [
        {
            "node": place,
            "label": tree.nodes[place].label,
            "title": _title(tree, place),
            "on_path": place in on_path,
            "marked": place == tree.mark,
        }
        for place in run
        if place != ROOT
    ]
    return {
        "depth": depth,
        "items": items,
        "end": last if goes_on else -1,
        "here": tree.mark is None and tree.at == last,
        "joint": "" if parts or last == ROOT else power(tree.joint(last)),
    }


def _title(tree: Tree, place: int) -> str:
    node, number = tree.nodes[place], len(tree.path(place))
    ends = "; it ends the text" if node.context is None else ""
    return f"{node.label}, step {number}, {percent(math.exp(node.log_prob))}{ends}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(log_prob: float) -> str:
    """Return a probability, given its natural logarithm, as "77.25 %" or, below 0.01 %, as "1.65 × 10⁻⁷"."""
    tens = log_prob / math.log(10)
    if tens >= -4:
        return percent(math.exp(log_prob))
    exponent = math.floor(tens)
    digits = f"{10 ** (tens - exponent):.2f}"
    if digits == "10.00":
        digits, exponent = "1.00", exponent + 1
    return f"{digits} × 10{str(exponent).translate(_RAISED)}"
