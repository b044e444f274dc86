"""Beam search: follow the few most probable texts at once instead of one, and keep the tree of all that was tried."""

from dataclasses import dataclass
from numbers import Integral, Real

import torch
from jaxtyping import Float
from torch import Tensor

from .generation import Prompt, TokenBatch, check_room, prompt_ids
from .protocol import CausalLM
from .softmax import log_softmax

PROMPT = -1
"""The parent of the first new tokens."""

STEEPEST = 50
"""The largest length penalty, up or down: the length of any text to this power, 10⁶ too, is still a float."""


@dataclass(frozen=True)
class Node:
    """One token that beam search looked at.

    ``parent`` is the place of the node before it in ``BeamSearch.tree`` (``PROMPT``, −1, for the first), ``depth`` its
    number among the new tokens, from 1. ``log_prob`` is the token's own in nats, ``joint`` the sum from the prompt to
    here. ``fate`` is "kept" (searched on from), "finished" (a hypothesis ends here) or "dropped".
    """

    parent: int
    token_id: int
    depth: int
    log_prob: float
    joint: float
    fate: str


@dataclass(frozen=True)
class Hypothesis:
    """A text that beam search found: its new ``ids`` (with the EOS token it may end in) and their ``text`` (without).

    ``joint`` is the log-probability of all ids together, in nats; ``score`` is joint / len(ids) ** length_penalty;
    ``node`` is the place of its last token in ``BeamSearch.tree``.
    """

    ids: list[int]
    text: str
    joint: float
    score: float
    node: int


@dataclass(frozen=True)
class BeamSearch:
    """What was found, the best score first, and every candidate on the way: parents stand before their children."""

    hypotheses: list[Hypothesis]
    tree: list[Node]

    def path(self, node: int) -> list[int]:
        """Return the places of the nodes from the first new token to this one."""
        return _path(self.tree, node)


def beam_search(
    lm: CausalLM,
    prompt: Prompt,
    *,
    num_beams: int,
    max_new_tokens: int,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
) -> BeamSearch:
    """Return the ``num_beams`` best continuations that a search of that width finds, as transformers finds them.

    In each round every beam is continued by every token; of all these candidates the num_beams best by joint
    log-probability go on. Candidates among the first num_beams that end the text (one of ``lm.eos_ids``, or the
    ``max_new_tokens``-th token) become hypotheses, and num_beams of those are kept by score: joint log-probability
    / number of new tokens ** ``length_penalty``, from −50 to 50. (GNMT divides by ((5 + n) / 6) ** α.) With 1 beam this
    is greedy.

    ``early_stopping`` says when to stop once num_beams hypotheses are there: True at once; False when the best beam,
    scored at its present length, is no better than the worst of them; "never" does the same but grants a positive
    length penalty the full length, so that nothing is missed for that reason.

    ``prompt`` is a text or token ids. A wider search may end *below* a narrower one: it drops the beginning of what
    would have become best. Raises ``ValueError`` for an argument outside its range, as ``generate`` does.

    Source: Graves 2012 (arXiv:1211.3711) and Sutskever et al. 2014 (arXiv:1409.3215) for the search.
    """
    _check(num_beams, length_penalty, early_stopping)
    ids = prompt_ids(lm, prompt)
    check_room(lm, [ids], max_new_tokens)
    batch = TokenBatch(lm, [ids])
    search = _Search(num_beams, max_new_tokens, float(length_penalty), early_stopping, lm.eos_ids)
    while True:
        logits = batch.read()
        search.advance(logits.new_tensor(search.joints)[:, None] + log_softmax(logits))
        if search.is_over():
            return BeamSearch([_hypothesis(lm, search.tree, *found) for found in search.found], search.tree)
        batch.rows(search.parents)
        batch.append(
            torch.tensor([search.tree[node].token_id for node in search.beams], device=batch.ids.device)
        )


class _Search:
    """The beams at the present depth, the best hypotheses so far, and the tree."""

    def __init__(self, num_beams, max_new_tokens, length_penalty, early_stopping, eos_ids):
        self.num_beams, self.max_new_tokens = num_beams, max_new_tokens
        self.length_penalty, self.early_stopping = length_penalty, early_stopping
        self.eos_ids = eos_ids
        self.depth = 0
        self.tree: list[Node] = []
        self.beams = [PROMPT]  # the node of each beam ...
        self.parents: list[int] = []  # ... and its parent's place among the beams before
        self.joints = [0.0]
        self.found: list[tuple[float, int]] = []  # score and node of each hypothesis, the best first

    def advance(self, joints: Float[Tensor, "beam d_vocab"]) -> None:
        """Go one token deeper, given the joint log-probability of every beam with every token behind it."""
        # Each beam can end once for every EOS token: so many candidates leave num_beams that go on.
        width = max(2, 1 + len(self.eos_ids)) * self.num_beams
        best, flat = joints.flatten().topk(min(width, joints.numel()))
        places, tokens = (flat // joints.shape[1]).tolist(), (flat % joints.shape[1]).tolist()
        before = self.beams, self.joints
        self.depth, self.beams, self.parents, self.joints = self.depth + 1, [], [], []
        for rank, (place, token_id, joint) in enumerate(zip(places, tokens, best.tolist(), strict=True)):
            fate = self._fate(token_id, rank)
            node = Node(before[0][place], token_id, self.depth, joint - before[1][place], joint, fate)
            self._take(node, place)

    def _fate(self, token_id: int, rank: int) -> str:
        if token_id in self.eos_ids or self.depth == self.max_new_tokens:
            # Later candidates only stand in for those that end; to end themselves they are not good enough.
            return "finished" if rank < self.num_beams else "dropped"
        return "kept" if len(self.beams) < self.num_beams else "dropped"

    def _take(self, node: Node, place: int) -> None:
        self.tree.append(node)
        if node.fate == "kept":
            self.beams.append(len(self.tree) - 1)
            self.parents.append(place)
            self.joints.append(node.joint)
        elif node.fate == "finished":
            self.found.append((node.joint / self.depth**self.length_penalty, len(self.tree) - 1))
            self.found = sorted(self.found, key=lambda one: -one[0])[: self.num_beams]

    def is_over(self) -> bool:
        """Whether nothing can go on, or nothing better can be expected."""
        if not self.beams:
            return True
        if len(self.found) < self.num_beams:
            return False
        hopes_for_length = self.early_stopping == "never" and self.length_penalty > 0
        length = self.max_new_tokens if hopes_for_length else self.depth
        return (
            self.early_stopping is True or self.joints[0] / length**self.length_penalty <= self.found[-1][0]
        )


def _hypothesis(lm: CausalLM, tree: list[Node], score: float, node: int) -> Hypothesis:
    ids = [tree[place].token_id for place in _path(tree, node)]
    shown = ids[:-1] if ids[-1] in lm.eos_ids else ids
    return Hypothesis(ids, lm.decode(shown), tree[node].joint, score, node)


def _path(tree: list[Node], node: int) -> list[int]:
    places = []
    while node != PROMPT:
        places.append(node)
        node = tree[node].parent
    return places[::-1]


def _check(num_beams: int, length_penalty: float, early_stopping: bool | str) -> None:
    if not isinstance(num_beams, Integral) or num_beams < 1:
        raise ValueError(f"num_beams must be a whole number ≥ 1, got {num_beams!r}")
    if not isinstance(length_penalty, Real) or not -STEEPEST <= length_penalty <= STEEPEST:
        raise ValueError(
            f"length_penalty must be a number in [-{STEEPEST}, {STEEPEST}] (0 is off), got {length_penalty!r}"
        )
    if not isinstance(early_stopping, bool) and early_stopping != "never":  # 1 equals True, but is not it
        raise ValueError(f'early_stopping must be True, False or "never", got {early_stopping!r}')
