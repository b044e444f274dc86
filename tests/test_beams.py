import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from lmhead_course import SamplingParams
from lmhead_course.beams import PROMPT, beam_search
from lmhead_course.generation import generate
from lmhead_course.projection import LMHead
from tests.test_generation import PROMPTS, peer  # noqa: F401, the fixture is used by its name
from tests.tiny_lm import letters
from tests.typecheck import refused, unchecked

WIDTHS = (2, 4)
PENALTIES = (0.0, 1.0, 2.0)


def joint_of(lm, prompt, ids):
    """Return the log-probability of ids behind a prompt, read in one go."""
    start = lm.encode(prompt)
    logits, _ = lm.step(torch.tensor([start + ids]), last_only=False)
    log_probs = logits[0, len(start) - 1 : -1].log_softmax(-1)
    return log_probs.gather(1, torch.tensor(ids)[:, None]).sum().item()


def transformers_beams(model, ids, **settings):
    """Return (ids, score) of each hypothesis of transformers, for each prompt of a left-padded batch."""
    longest = max(map(len, ids))
    out = model.generate(
        torch.tensor([[0] * (longest - len(one)) + one for one in ids]),
        attention_mask=torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in ids]),
        num_return_sequences=settings["num_beams"],
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        pad_token_id=1,  # 0 would count as "none given"
        **settings,
    )
    found = list(zip(out.sequences[:, longest:].tolist(), out.sequences_scores.tolist(), strict=True))
    width = settings["num_beams"]
    return [found[start : start + width] for start in range(0, len(found), width)]


def same(ours, theirs):
    """Whether the hypotheses are the same texts in the same order with the same scores."""
    cut = [(ids[: len(one.ids)], score) for one, (ids, score) in zip(ours, theirs, strict=True)]
    rest = [set(ids[len(one.ids) :]) for one, (ids, _) in zip(ours, theirs, strict=True)]
    assert [one.ids for one in ours] == [ids for ids, _ in cut]
    assert all(ids <= {1} for ids in rest), "behind a hypothesis stands padding only"
    assert [one.score for one in ours] == pytest.approx([score for _, score in cut], abs=1e-4)


@pytest.fixture(scope="module")
def tiny_peer():
    """Return a random model of transformers with 40 tokens, and the same as the course's LanguageModel."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


class OfTransformers:
    """A transformers model with the members that beam search asks for."""

    def __init__(self, model, eos_ids):
        self.model, self.eos_ids = model, set(eos_ids)
        self.known = {}  # logits by the ids before them: the same beginnings come up again and again
        self.head, self.context_length = LMHead(model.lm_head.weight), 64

    def step(self, ids, cache=None, mask=None, last_only=True):
        """Read everything anew: the cache is the ids, so that its rows must be the right ones."""
        ids = ids if cache is None else torch.cat([cache.ids, ids], dim=1)
        rows = [tuple(row) for row in ids.tolist()]
        if new := [row for row in rows if row not in self.known]:
            self.known |= dict(zip(new, self.model(torch.tensor(new)).logits[:, -1], strict=True))
        return torch.stack([self.known[row] for row in rows]), IdsAsCache(ids)

    def encode(self, text, special=False):
        return [int(number) for number in text.split()]

    def decode(self, ids):
        return " ".join(map(str, ids))

    def label(self, token_id):
        return str(token_id)

    def logits(self, text):
        return self.step(torch.tensor([self.encode(text)]))[0][0]


class IdsAsCache:
    def __init__(self, ids):
        self.ids = ids

    def rows(self, index):
        return IdsAsCache(self.ids[index])


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("eos_ids", [(5,), (5, 9, 11)])
def test_every_setting_finds_what_transformers_finds_on_a_random_model(tiny_peer, eos_ids, early_stopping):
    lm, endings = OfTransformers(tiny_peer, eos_ids), set()
    prompts = [[first, 3] for first in range(10)]
    for width, penalty in itertools.product(WIDTHS, (*PENALTIES, -1.0)):
        settings = {"num_beams": width, "length_penalty": penalty, "early_stopping": early_stopping}
        peers = transformers_beams(
            tiny_peer, prompts, max_new_tokens=9, eos_token_id=list(eos_ids), **settings
        )
        for prompt, theirs in zip(prompts, peers, strict=True):
            ours = beam_search(lm, prompt, max_new_tokens=9, **settings).hypotheses
            same(ours, theirs)
            endings |= {one.ids[-1] in lm.eos_ids for one in ours}
    assert endings == {True, False}, "some texts end early and some do not, or this shows too little"


# A model small enough to follow by hand


def test_one_beam_is_greedy():
    for prompt in ("ab", "gfe", "c"):
        (found,) = beam_search(letters(), prompt, num_beams=1, max_new_tokens=8).hypotheses
        steps = list(generate(letters(), prompt, SamplingParams(temperature=0), max_new_tokens=8))
        assert found.ids == [step.token_id for step in steps]
        assert found.joint == pytest.approx(sum(step.log_prob for step in steps), abs=1e-4)


def test_as_many_beams_as_there_are_texts_find_the_best_text_of_all():
    lm = letters(sharpness=1.0)
    every = {ids: joint_of(lm, "ab", list(ids)) for ids in itertools.product(range(8), repeat=3)}
    found = beam_search(lm, "ab", num_beams=8**2, max_new_tokens=3, length_penalty=0.0).hypotheses
    ranked = sorted(every.items(), key=lambda one: -one[1])[: 8**2]
    assert [tuple(one.ids) for one in found[:20]] == [ids for ids, _ in ranked[:20]]
    assert [one.score for one in found] == pytest.approx([joint for _, joint in ranked], abs=1e-4)


def test_a_joint_log_probability_is_that_of_the_whole_text_read_in_one_go():
    lm = letters(eos_ids={7})
    for one in beam_search(lm, "ab", num_beams=4, max_new_tokens=8).hypotheses:
        assert one.joint == pytest.approx(joint_of(lm, "ab", one.ids), abs=1e-4)
        assert one.score == pytest.approx(one.joint / len(one.ids), abs=1e-6)
        assert one.text == lm.decode([token_id for token_id in one.ids if token_id != 7])


def test_the_tree_holds_every_candidate_below_its_own_parent():
    search = beam_search(letters(sharpness=1.0, eos_ids={7}), "ab", num_beams=3, max_new_tokens=6)
    assert {node.fate for node in search.tree} == {"kept", "dropped", "finished"}
    for place, node in enumerate(search.tree):
        assert node.parent < place
        parent = None if node.parent == PROMPT else search.tree[node.parent]
        assert node.depth == (parent.depth + 1 if parent else 1)
        assert node.joint == pytest.approx((parent.joint if parent else 0) + node.log_prob, abs=1e-4)
        assert parent is None or parent.fate == "kept", "only what was kept goes on"
        assert node.log_prob <= 0


def test_the_tokens_on_a_path_of_the_tree_have_the_probabilities_that_the_model_gives_them():
    lm = letters(sharpness=1.0)
    search = beam_search(lm, "ab", num_beams=3, max_new_tokens=5)
    for place in range(len(search.tree)):
        ids = [search.tree[node].token_id for node in search.path(place)]
        assert search.tree[place].joint == pytest.approx(joint_of(lm, "ab", ids), abs=1e-4)


def test_a_hypothesis_is_the_path_to_its_node():
    search = beam_search(letters(eos_ids={7}), "ab", num_beams=4, max_new_tokens=8)
    for one in search.hypotheses:
        assert [search.tree[node].token_id for node in search.path(one.node)] == one.ids
        assert search.tree[one.node].fate == "finished"


def test_however_many_candidates_end_as_many_beams_go_on():
    lm = letters(eos_ids=range(6))
    likely_to_end = torch.tensor([9.0] * 6 + [0.0] * 2)
    lm.head = LMHead(lm.head.weight, likely_to_end)
    search = beam_search(lm, "ab", num_beams=2, max_new_tokens=3)
    assert [node.token_id for node in search.tree if node.depth == 1 and node.fate == "kept"] in (
        [6, 7],
        [7, 6],
    )


def test_the_search_ends_when_every_beam_ends():
    lm = letters(eos_ids=set(range(8)))
    search = beam_search(lm, "ab", num_beams=2, max_new_tokens=8)
    assert [len(one.ids) for one in search.hypotheses] == [1, 1]
    assert lm.calls == [(1, 2)]


def test_a_cache_row_goes_with_its_beam_and_every_token_is_read_once():
    lm = letters()
    beam_search(lm, "abc", num_beams=3, max_new_tokens=5)
    assert lm.calls == [(1, 3)] + [(3, 1)] * 4


@pytest.mark.parametrize("early_stopping", [False, "never"])
@pytest.mark.parametrize("penalty", [50, -50.0, np.int64(50), np.float16(-50), Fraction(1, 2)], ids=repr)
def test_any_length_penalty_in_the_range_scores_by_a_power_of_the_length(penalty, early_stopping):
    settings = {"length_penalty": penalty, "early_stopping": early_stopping}
    with unchecked():
        found = beam_search(letters(), "ab", num_beams=2, max_new_tokens=60, **settings).hypotheses
    exact = [one.joint / float(len(one.ids)) ** float(penalty) for one in found]
    assert [one.score for one in found] == pytest.approx(exact)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_beams": 0}, ["num_beams must be a whole number ≥ 1, got 0"]),
        ({"num_beams": 2.0}, ["num_beams", "2.0"]),
        ({"length_penalty": float("nan")}, ["length_penalty must be a number in [-50, 50]", "nan"]),
        ({"length_penalty": 50.1}, ["length_penalty must be a number in [-50, 50]", "50.1"]),
        ({"length_penalty": -2000.0}, ["length_penalty must be a number in [-50, 50]", "-2000.0"]),
        ({"length_penalty": 10**400}, ["length_penalty must be a number in [-50, 50]", "1000"]),
        ({"length_penalty": "1"}, ["length_penalty must be a number in [-50, 50]", "'1'"]),
        ({"early_stopping": "sometimes"}, ["early_stopping must be True, False or", "'sometimes'"]),
        ({"early_stopping": 1}, ["early_stopping must be True, False or", "got 1"]),
        ({"early_stopping": 0}, ["early_stopping must be True, False or", "got 0"]),
        ({"early_stopping": 1.0}, ["early_stopping must be True, False or", "got 1.0"]),
        ({"early_stopping": None}, ["early_stopping must be True, False or", "got None"]),
        ({"max_new_tokens": 64}, ["max_new_tokens must be at most 63", "got 64"]),
    ],
)
def test_a_wrong_argument_is_named(wrong, words):
    with refused(*words):
        beam_search(letters(), "ab", **({"num_beams": 2, "max_new_tokens": 3} | wrong))


# The live model


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_live_model_finds_what_transformers_finds_on_ten_prompts(lm, peer, width, penalty):  # noqa: F811
    # Raw prompts seldom reach an end of text: let a full stop and a comma end one, so that the penalty has a say.
    ending = copy.copy(lm)
    ending.eos_ids = {*lm.encode("."), *lm.encode(",")}
    settings = {"num_beams": width, "max_new_tokens": 5, "length_penalty": penalty, "early_stopping": False}
    ids = [lm.encode(prompt) for prompt in PROMPTS]
    peers = transformers_beams(peer, ids, eos_token_id=sorted(ending.eos_ids), **settings)
    lengths = set()
    for prompt, theirs in zip(PROMPTS, peers, strict=True):
        ours = beam_search(ending, prompt, **settings).hypotheses
        same(ours, theirs)
        lengths |= {len(one.ids) for one in ours}
    assert len(lengths) > 1


def test_two_beams_can_end_below_greedy(lm):
    greedy = generate(lm, "Once upon a time", SamplingParams(temperature=0), max_new_tokens=15)
    assert sum(step.log_prob for step in greedy) == pytest.approx(-15.62, abs=0.01)
    two = beam_search(lm, "Once upon a time", num_beams=2, max_new_tokens=15).hypotheses
    assert two[0].joint == pytest.approx(-18.43, abs=0.01)
