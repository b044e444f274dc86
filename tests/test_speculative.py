import itertools
from collections import Counter

import pytest
import torch

from lmhead_course import SamplingParams
from lmhead_course.generation import generate
from lmhead_course.sampling import process_logits
from lmhead_course.speculative import ModelDraft, NGramDraft, Reader, follow, speculate, verify
from tests.tiny_lm import TinyCache, TinyLM, letters
from tests.typecheck import refused

GREEDY = SamplingParams(temperature=0)


def chi_square(counts, probabilities):
    """Return the statistic and the 99.9 % point of its distribution; cells with fewer than 5 expected go together."""
    n = sum(counts.values())
    cells = [(n * p, counts.get(key, 0)) for key, p in probabilities.items()]
    rest = [sum(column) for column in zip(*[cell for cell in cells if cell[0] < 5], strict=True)]
    cells = [cell for cell in cells if cell[0] >= 5] + ([rest] if rest and rest[0] >= 1 else [])
    statistic = sum((seen - expected) ** 2 / expected for expected, seen in cells)
    freedom = len(cells) - 1
    # Wilson and Hilferty 1931: the cube root of chi-square over its degrees of freedom is nearly normal.
    spread = 2 / (9 * freedom)
    return statistic, freedom * (1 - spread + 3.09 * spread**0.5) ** 3


def exact(lm, params, prompt, length):
    """Return the probability of every continuation of that many tokens."""
    texts = {(): 1.0}
    for place in range(length):
        grown = {}
        for ids, probability in texts.items():
            logits = lm.step(torch.tensor([prompt + list(ids)]))[0][0]
            row = process_logits(logits, params, prompt=prompt, generated=list(ids)).softmax(-1)
            grown |= {(*ids, token): probability * p for token, p in enumerate(row.tolist())}
        texts = grown
        assert len(texts) == 8 ** (place + 1)
    return texts


def test_what_verify_settles_is_distributed_as_the_models_own_draws():
    random = torch.Generator().manual_seed(0)
    p, q = (torch.randn(n, 5, generator=random).mul(1.5).softmax(-1).double() for n in (3, 2))
    pairs, shares = Counter(), []
    for _ in range(4_000):
        proposed = [int(torch.multinomial(row, 1, generator=random)) for row in q]
        accepted, following = verify(p, q, proposed, random)
        settled = [*proposed[:accepted], following]
        # Where the first was refused, the next round will draw the second: from p[1] in this made-up model.
        second = settled[1] if len(settled) > 1 else int(torch.multinomial(p[1], 1, generator=random))
        pairs[settled[0], second] += 1
        shares.append(accepted > 0)
    expected = {(i, j): float(p[0, i] * p[1, j]) for i, j in itertools.product(range(5), repeat=2)}
    statistic, limit = chi_square(pairs, expected)
    assert statistic < limit
    overlap = torch.minimum(p[0], q[0]).sum().item()
    assert sum(shares) / len(shares) == pytest.approx(overlap, abs=0.03)


def test_the_chi_square_here_would_see_a_draft_that_is_believed_too_readily():
    random = torch.Generator().manual_seed(0)
    p, q = (torch.randn(5, generator=random).softmax(-1) for _ in range(2))
    believed = Counter(torch.multinomial((p + q) / 2, 20_000, replacement=True, generator=random).tolist())
    statistic, limit = chi_square(believed, dict(enumerate(p.tolist())))
    assert statistic > limit


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("n-gram", SamplingParams(temperature=0.8)),
        ("model", SamplingParams(top_k=4, repetition_penalty=1.5, frequency_penalty=0.5)),
    ],
    ids=["n-gram", "model, with penalties"],
)
def test_texts_have_the_models_own_distribution_whatever_the_draft(kind, params):
    lm, random, prompt = letters(sharpness=0.7), torch.Generator().manual_seed(1), [0, 1, 0, 1, 0]
    drafts = {"model": ModelDraft(letters(seed=5), params), "n-gram": NGramDraft(8)}
    found = Counter()
    for _ in range(400):
        rounds = speculate(lm, drafts[kind], prompt, params, max_new_tokens=2, k=2, generator=random)
        found[tuple(token_id for one in rounds for token_id in one.token_ids)] += 1
    statistic, limit = chi_square(found, exact(lm, params, prompt, 2))
    assert statistic < limit


@pytest.mark.parametrize("k", [1, 3, 7])
def test_greedy_writes_the_same_tokens_as_without_a_draft(k):
    for seed, prompt in itertools.product(range(4), ("abab", "g")):
        lm = letters(seed=seed, eos_ids={7})
        expected = [step.token_id for step in generate(lm, prompt, GREEDY, max_new_tokens=20)]
        for draft in (
            NGramDraft(8),
            ModelDraft(letters(seed=9), GREEDY),
            ModelDraft(letters(seed=seed), GREEDY),
        ):
            rounds = list(speculate(lm, draft, prompt, GREEDY, max_new_tokens=20, k=k))
            assert [token_id for one in rounds for token_id in one.token_ids] == expected
            assert rounds[-1].finished == ("eos" if expected[-1] == 7 else "length")


def test_the_model_itself_as_a_draft_is_always_accepted():
    params, lm = SamplingParams(temperature=0.9, repetition_penalty=1.3), letters()
    rounds = list(
        speculate(
            lm,
            ModelDraft(letters(), params),
            "ab",
            params,
            max_new_tokens=15,
            k=4,
            generator=torch.Generator().manual_seed(0),
        )
    )
    assert [one.accepted for one in rounds] == [4, 4, 4]
    assert [len(one.token_ids) for one in rounds] == [5, 5, 5]
    assert all(agreement == pytest.approx(1, abs=1e-4) for one in rounds for agreement in one.agreement)


def test_each_round_is_one_pass_of_the_model_over_what_is_new():
    lm = letters()
    rounds = list(speculate(lm, ModelDraft(letters(), GREEDY), "abc", GREEDY, max_new_tokens=11, k=4))
    # "ab" once, then "c" and four proposals, then each time the model's own token and four proposals.
    assert lm.calls == [(1, 2), (1, 5), (1, 5), (1, 1)]
    assert [len(one.token_ids) for one in rounds] == [5, 5, 1]


def test_what_was_refused_leaves_nothing_behind_in_the_cache():
    lm = letters()
    reader = Reader(lm)
    for text in ("abc", "abcdef", "abcg", "abcgab", "gfe"):
        ids = lm.encode(text)
        for rows in (1, 2):
            anew, _ = lm.step(torch.tensor([ids]), last_only=False)
            torch.testing.assert_close(reader.read(ids, rows), anew[0, -rows:])


def test_a_cache_that_cannot_be_cut_back_is_built_anew(monkeypatch):
    def forgotten(cache, length):
        raise RuntimeError("the sliding window was already reached")

    expected = [step.token_id for step in generate(letters(), "abab", GREEDY, max_new_tokens=12)]
    monkeypatch.setattr(TinyCache, "crop", forgotten)
    rounds = speculate(letters(), NGramDraft(8), "abab", GREEDY, max_new_tokens=12)
    assert [token_id for one in rounds for token_id in one.token_ids] == expected


def test_no_more_than_max_new_tokens_are_written_and_they_fill_the_context():
    lm = letters(context_length=10)
    for k in (1, 3, 20):
        rounds = speculate(lm, ModelDraft(letters(), GREEDY), "abcd", GREEDY, max_new_tokens=7, k=k)
        assert sum(len(one.token_ids) for one in rounds) == 7


def test_one_seed_gives_one_text():
    def text(seed):
        random = torch.Generator().manual_seed(seed)
        rounds = speculate(
            letters(sharpness=0.5),
            NGramDraft(8),
            "abab",
            SamplingParams(),
            max_new_tokens=20,
            generator=random,
        )
        return "".join(one.text for one in rounds)

    assert text(1) == text(1) != text(2)


def test_a_character_over_several_tokens_is_shown_whole():
    lm = TinyLM([bytes([byte]) for byte in "今天 !".encode()], seed=1)
    rounds = list(speculate(lm, NGramDraft(8), [0, 1, 2], GREEDY, max_new_tokens=12))
    ids = [token_id for one in rounds for token_id in one.token_ids]
    assert "".join(one.text for one in rounds) == lm.decode(ids)


def test_the_n_gram_draft_proposes_what_followed_last_time():
    assert follow([1, 2, 3, 9, 1, 2, 3, 7, 8, 5, 2, 3], n=2, k=3) == [7, 8, 5]
    assert follow([1, 2, 3], n=2, k=3) == []
    tokens, q = NGramDraft(10, n=3).propose([4, 5, 6, 5], 2, 2)
    assert tokens == [6, 5]
    assert q.tolist() == torch.eye(10)[[6, 5]].tolist()
    tokens, q = NGramDraft(10).propose([4, 5, 6], 2, 2)
    assert (tokens, q.shape) == ([], (0, 10))


def test_k_is_checked_at_the_call():
    with refused("k must be a whole number ≥ 1", "0"):
        speculate(letters(), NGramDraft(8), "ab", GREEDY, max_new_tokens=3, k=0)


@pytest.mark.parametrize("n", [0, -1, 2.0, None])
def test_an_n_gram_of_no_token_is_refused_since_it_would_never_propose_any(n):
    with refused("n must be a whole number ≥ 1", f"got {n}"):
        NGramDraft(8, n=n)


@pytest.mark.parametrize(
    "draft", [NGramDraft(9), NGramDraft(7), ModelDraft(TinyLM("abcdefghij"), GREEDY)], ids=["9", "7", "model"]
)
def test_a_draft_of_another_vocabulary_is_refused_at_the_call(draft):
    with refused("draft must have the model's d_vocab, 8", f"got one of {draft.d_vocab}"):
        speculate(letters(), draft, "ab", GREEDY, max_new_tokens=3)


def test_a_draft_of_a_learners_own_need_not_say_its_vocabulary():
    class Always:
        def propose(self, ids, n_prompt, k, generator=None):
            return [0] * k, torch.eye(8)[[0] * k]

    rounds = list(speculate(letters(), Always(), "ab", GREEDY, max_new_tokens=5))
    steps = generate(letters(), "ab", GREEDY, max_new_tokens=5)
    assert [t for one in rounds for t in one.token_ids] == [step.token_id for step in steps]


def test_on_a_repetitive_text_the_live_model_accepts_most_of_an_n_gram_draft(lm):
    prompt = "one, two, three, one, two, three, one, two,"
    rounds = list(speculate(lm, NGramDraft(lm.head.d_vocab), prompt, GREEDY, max_new_tokens=24))
    steps = generate(lm, prompt, GREEDY, max_new_tokens=24)
    assert [t for one in rounds for t in one.token_ids] == [step.token_id for step in steps]
    assert sum(one.accepted for one in rounds) > 0.8 * sum(one.proposed for one in rounds)
    assert len(rounds) < 8
