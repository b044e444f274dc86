import itertools
import math

import numpy as np
import pytest
import torch

from lmhead_course import SamplingParams
from lmhead_course.generation import TokenBatch, generate, log_probs_of
from lmhead_course.sampling import process_logits
from tests.tiny_lm import TinyLM, letters
from tests.typecheck import refused, unchecked

GREEDY = SamplingParams(temperature=0)

PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    "To be or not to be, that is the",
    "Water boils at",
    "def fibonacci(n):\n",
    "1, 2, 3, 4,",
    "My favourite thing about autumn is",
    "Q: What is the largest planet?\nA:",
    "The old man opened the door and saw",
    "今天天气",
]


def texts(steps, count=1):
    """Return each row's steps."""
    rows = [[] for _ in range(count)]
    for step in steps:
        rows[step.row].append(step)
    return rows


def ids_of(steps, count=1):
    return [[step.token_id for step in row] for row in texts(steps, count)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# One text


def test_greedy_takes_the_most_probable_token_again_and_again():
    lm, text = letters(), "ab"
    for step in generate(lm, text, GREEDY, max_new_tokens=10):
        assert step.token_id == lm.logits(text).argmax()
        text += step.text


def test_a_step_carries_the_models_own_logits_and_log_probability_not_the_processed_ones():
    lm, params = letters(), SamplingParams(temperature=0.3, top_k=2)
    text = "ab"
    for step in generate(lm, text, params, max_new_tokens=5, generator=seeded()):
        torch.testing.assert_close(step.logits, lm.logits(text))
        assert step.log_prob == pytest.approx(step.logits.log_softmax(-1)[step.token_id].item(), abs=1e-5)
        text += step.text


def test_a_step_ranks_its_candidates_on_request():
    (step,) = generate(letters(), "a", GREEDY, max_new_tokens=1)
    rows = step.ranked().distribution(SamplingParams(), top=3).rows
    assert [row.token_id for row in rows] == step.logits.sort(descending=True).indices[:3].tolist()


def test_steps_come_one_by_one_as_the_model_reads():
    lm = letters()
    steps = generate(lm, "ab", GREEDY, max_new_tokens=5)
    assert lm.calls == []
    next(steps)
    assert lm.calls == [(1, 2)]


def test_the_cache_changes_no_token_and_lets_every_token_be_read_once():
    with_cache, without = letters(), letters()
    first, second = (
        ids_of(generate(lm, "abc", SamplingParams(), max_new_tokens=6, use_cache=use, generator=seeded()))
        for lm, use in ((with_cache, True), (without, False))
    )
    assert first == second
    assert with_cache.calls == [(1, 3)] + [(1, 1)] * 5
    assert without.calls == [(1, 3 + n) for n in range(6)]


def test_one_seed_gives_one_text_and_another_seed_another():
    runs = [
        ids_of(
            generate(letters(sharpness=0.5), "a", SamplingParams(), max_new_tokens=20, generator=seeded(n))
        )
        for n in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_every_drawn_token_is_one_that_the_processors_kept():
    lm, params, ids = letters(sharpness=0.5), SamplingParams(temperature=1.5, top_k=3), lm_ids("ab")
    for step in generate(lm, ids, params, max_new_tokens=30, generator=seeded()):
        assert process_logits(step.logits, params)[step.token_id] > -math.inf


def lm_ids(text):
    return letters().encode(text)


def test_penalties_see_the_prompt_and_the_tokens_so_far():
    seen = []

    def spy(logits, *, prompt, generated):
        seen.append((prompt.tolist(), generated.tolist()))
        return logits

    lm = letters()
    (ids,) = ids_of(generate(lm, "abc", SamplingParams(order=(spy,)), max_new_tokens=3, generator=seeded()))
    assert seen == [([[0, 1, 2]], [ids[:n]]) for n in range(3)]


def test_a_repetition_penalty_changes_what_greedy_writes_as_worked_step_by_step():
    lm, params, so_far = letters(), SamplingParams(temperature=0, repetition_penalty=1.7), lm_ids("ab")
    for step in generate(lm, "ab", params, max_new_tokens=12):
        expected = step.logits.clone()
        for token in set(so_far):
            expected[token] *= 1.7 if expected[token] < 0 else 1 / 1.7
        assert step.token_id == expected.argmax()
        so_far.append(step.token_id)


def test_a_prompt_of_ids_continues_as_its_text_does():
    assert ids_of(generate(letters(), lm_ids("abc"), GREEDY, max_new_tokens=8)) == ids_of(
        generate(letters(), "abc", GREEDY, max_new_tokens=8)
    )


@pytest.mark.parametrize("whole", [np.int64, np.int8, torch.tensor, np.array])
def test_ids_may_be_whole_numbers_of_numpy_and_torch_alone_and_in_a_batch(whole):
    expected, ids = ids_of(generate(letters(), "abc", GREEDY, max_new_tokens=8)), list(map(whole, [0, 1, 2]))
    with unchecked():
        assert ids_of(generate(letters(), ids, GREEDY, max_new_tokens=8)) == expected
        assert ids_of(generate(letters(), [ids], GREEDY, max_new_tokens=8)) == expected


def test_a_batch_may_mix_texts_with_lists_and_tuples_of_ids():
    expected = ids_of(generate(letters(), ["ab", "c", "de"], GREEDY, max_new_tokens=6), 3)
    assert ids_of(generate(letters(), ("ab", [2], (3, 4)), GREEDY, max_new_tokens=6), 3) == expected


def test_stop_strings_may_be_any_collection():
    expected = ids_of(generate(letters(), "ab", GREEDY, max_new_tokens=8, stop=["xy"]))
    with unchecked():
        for stop in ((), {"xy"}, ("xy", "yx")):
            assert ids_of(generate(letters(), "ab", GREEDY, max_new_tokens=8, stop=stop)) == expected


def test_an_empty_prompt_starts_from_the_bos_token_where_there_is_one():
    from_bos = ids_of(generate(letters(bos_id=7), "", GREEDY, max_new_tokens=5))
    assert from_bos == ids_of(generate(letters(), ".", GREEDY, max_new_tokens=5))
    with pytest.raises(ValueError, match="prompt is empty"):
        generate(letters(), "", GREEDY, max_new_tokens=5)


def test_an_empty_list_is_one_prompt_without_ids():
    from_bos = ids_of(generate(letters(bos_id=7), [], GREEDY, max_new_tokens=5))
    assert from_bos == ids_of(generate(letters(bos_id=7), "", GREEDY, max_new_tokens=5))
    with pytest.raises(ValueError, match="prompt is empty"):
        generate(letters(), [], GREEDY, max_new_tokens=5)


# Where a text ends


def test_a_text_ends_with_any_of_the_eos_tokens_whose_text_is_not_shown():
    lm = letters()
    free = ids_of(generate(lm, "ab", GREEDY, max_new_tokens=12))[0]
    end = free[4]
    lm.eos_ids = {end, 1000}
    steps = list(generate(lm, "ab", GREEDY, max_new_tokens=12))
    assert [step.token_id for step in steps] == free[: free.index(end) + 1]
    assert steps[-1].finished == "eos"
    assert steps[-1].text == ""
    assert all(step.finished is None for step in steps[:-1])


def test_without_an_end_a_text_stops_after_max_new_tokens():
    steps = list(generate(letters(), "ab", GREEDY, max_new_tokens=4))
    assert [step.finished for step in steps] == [None, None, None, "length"]


def test_a_stop_string_over_two_tokens_is_not_shown_and_ends_the_text():
    lm = letters(seed=2, sharpness=0.5)
    full = "".join(
        step.text for step in generate(lm, "a", SamplingParams(), max_new_tokens=30, generator=seeded())
    )
    stop = full[10:12]
    steps = list(generate(lm, "a", SamplingParams(), max_new_tokens=30, stop=stop, generator=seeded()))
    assert "".join(step.text for step in steps) == full[: full.index(stop)]
    assert steps[-1].finished == "stop"


def test_the_shown_text_is_the_decoded_text_however_the_text_ends():
    pieces = [bytes([byte]) for byte in "今天 !".encode()]
    for seed in range(20):
        lm = TinyLM(pieces, seed=seed, eos_ids={7})
        steps = list(generate(lm, [0, 1, 2], SamplingParams(), max_new_tokens=9, generator=seeded()))
        ids = [step.token_id for step in steps if step.finished != "eos"]
        assert "".join(step.text for step in steps) == lm.decode(ids)


def test_the_context_can_be_filled_to_its_last_token_and_not_beyond():
    lm = letters(context_length=8)
    assert len(list(generate(lm, "abcd", GREEDY, max_new_tokens=5))) == 5
    assert sum(n for _, n in lm.calls) == 8  # the fifth new token is chosen, not read
    with pytest.raises(
        ValueError, match=r"max_new_tokens must be at most 5 behind a prompt of 4 tokens.*got 6"
    ):
        generate(lm, "abcd", GREEDY, max_new_tokens=6)
    with pytest.raises(ValueError, match="at most 0 behind a prompt of 9"):
        generate(lm, "abcdabcda", GREEDY, max_new_tokens=1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_new_tokens": 0}, ["max_new_tokens must be a whole number ≥ 1, got 0"]),
        ({"max_new_tokens": 2.5}, ["max_new_tokens must be a whole number ≥ 1, got 2.5"]),
        ({"stop": ["x", ""]}, ["stop must be", "['x', '']"]),
        ({"prompt": [0, 8]}, ["prompt must hold token ids in 0 … 7, got 8"]),
        ({"prompt": [[0], [-1]]}, ["prompt must hold token ids in 0 … 7, got -1"]),
        ({"prompt": [3, 4.9]}, ["prompt must hold token ids in 0 … 7, got 4.9"]),
        ({"prompt": [3, "a"]}, ["prompt must hold token ids in 0 … 7, got 'a'"]),
        ({"prompt": [[3], [torch.tensor([4])]]}, ["prompt must hold token ids in 0 … 7, got tensor([4])"]),
        ({"prompt": [3, torch.tensor(4.0)]}, ["prompt must hold token ids in 0 … 7, got tensor(4.)"]),
        ({"prompt": None}, ["prompt must be a text or a list of token ids", "got None"]),
        ({"prompt": 5}, ["prompt must be a text or a list of token ids", "got 5"]),
        ({"prompt": b"ab"}, ["prompt must be a text or a list of token ids", "got b'ab'"]),
        ({"prompt": {0: 1}}, ["prompt must be a text or a list of token ids", "got {0: 1}"]),
        ({"prompt": ["ab", 5]}, ["prompt must be a text or a list of token ids", "got 5"]),
        ({"prompt": [4.9, 3]}, ["prompt must be a text or a list of token ids", "got 4.9"]),
        ({"prompt": torch.tensor([0, 1])}, ["prompt must be a text or a list", "Tensor: give its tolist()"]),
        (
            {"prompt": torch.tensor([[0, 1]])},
            ["prompt must be a text or a list", "Tensor: give its tolist()"],
        ),
        ({"prompt": ["ab", torch.tensor([0])]}, ["prompt must be a text", "Tensor: give its tolist()"]),
        ({"prompt": np.array([0, 1])}, ["prompt must be a text or a list", "ndarray: give its tolist()"]),
        ({"stop": None}, ["stop must be a string, or a list of strings", "got None"]),
        ({"stop": 3}, ["stop must be a string, or a list of strings", "got 3"]),
        ({"stop": b"x"}, ["stop must be a string, or a list of strings", "got b'x'"]),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_at_the_call_before_any_step_is_asked_for(wrong, words):
    arguments = {"prompt": "ab", "max_new_tokens": 3} | wrong
    with refused(*words):
        generate(letters(), params=GREEDY, **arguments)


# A batch


BATCH = ["abcdefg", "a", "gfed", "bb"]


def test_a_batch_writes_what_each_prompt_writes_alone():
    alone = [ids_of(generate(letters(), one, GREEDY, max_new_tokens=12))[0] for one in BATCH]
    assert ids_of(generate(letters(), BATCH, GREEDY, max_new_tokens=12), 4) == alone


def test_rows_that_end_early_leave_the_others_as_they_were():
    lm = letters()
    alone = [ids_of(generate(lm, one, GREEDY, max_new_tokens=12))[0] for one in BATCH]
    lm.eos_ids = {alone[1][3], alone[2][5]}
    expected = [[*itertools.takewhile(lambda i: i not in lm.eos_ids, ids)] for ids in alone]
    rows = texts(generate(lm, BATCH, GREEDY, max_new_tokens=12), 4)
    assert len({len(row) for row in rows}) > 1, "the rows end at different steps, or this shows nothing"
    assert [[step.token_id for step in row if step.finished != "eos"] for row in rows] == expected
    assert all(row[-1].finished in {"eos", "length"} for row in rows)
    assert lm.calls[-1][0] < 4  # a finished row is not computed any more


@pytest.mark.parametrize("prompts", [["a"], BATCH])
def test_a_learner_can_change_and_differentiate_the_logits_of_a_step_while_the_text_goes_on(prompts):
    expected = ids_of(generate(letters(), prompts, GREEDY, max_new_tokens=3), len(prompts))
    found = [[] for _ in prompts]
    for step in generate(letters(), prompts, GREEDY, max_new_tokens=3):
        found[step.row].append(step.token_id)
        step.logits.mul_(0).requires_grad_().softmax(-1)[0].backward()
        assert step.logits.grad[0].item() == pytest.approx(1 / 8 - 1 / 64)
    assert found == expected


@pytest.mark.parametrize("prompts", [["a"], ["a", "b"], BATCH])
def test_a_step_that_is_kept_keeps_the_logits_of_its_own_text_and_of_no_other(prompts):
    # 8 rows of 49,152 tokens are 1.6 MB: a learner who keeps one step would keep them all.
    for step in generate(letters(), prompts, GREEDY, max_new_tokens=3):
        assert step.logits.untyped_storage().nbytes() == 8 * 4


def test_the_steps_of_a_round_come_in_the_order_of_the_prompts():
    steps = list(generate(letters(), BATCH, GREEDY, max_new_tokens=3))
    assert [step.row for step in steps] == [0, 1, 2, 3] * 3


def test_each_row_is_penalised_for_its_own_tokens_only():
    params = SamplingParams(temperature=0, repetition_penalty=3.0, frequency_penalty=1.0)
    alone = [ids_of(generate(letters(), one, params, max_new_tokens=10))[0] for one in BATCH]
    assert ids_of(generate(letters(), BATCH, params, max_new_tokens=10), 4) == alone


def test_padding_is_no_token_to_the_penalties():
    seen = []

    def spy(logits, *, prompt, generated):
        seen.append(prompt.tolist())
        return logits

    list(generate(letters(), ["abc", "g"], SamplingParams(order=(spy,)), max_new_tokens=1))
    assert seen == [[[0, 1, 2], [-1, -1, 6]]]


def test_stop_strings_end_each_row_for_itself():
    alone = ["".join(s.text for s in generate(letters(), one, GREEDY, max_new_tokens=12)) for one in BATCH]
    stop = alone[1][4:6]
    rows = texts(generate(letters(), BATCH, GREEDY, max_new_tokens=12, stop=[stop]), 4)
    assert ["".join(step.text for step in row) for row in rows] == [text.partition(stop)[0] for text in alone]


def test_log_probs_of_tokens_are_those_of_a_log_softmax():
    logits = torch.randn(3, 5, generator=seeded())
    tokens = torch.tensor([4, 0, 2])
    expected = logits.log_softmax(-1)[torch.arange(3), tokens]
    torch.testing.assert_close(log_probs_of(logits, tokens), expected)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 2, 3)])
def test_log_probs_of_tokens_may_have_any_leading_axes(shape):
    logits, tokens = torch.randn(*shape, 5, generator=seeded()), torch.randint(5, shape, generator=seeded(1))
    expected = (logits.log_softmax(-1) * torch.nn.functional.one_hot(tokens, 5)).sum(-1)
    torch.testing.assert_close(log_probs_of(logits, tokens), expected)


def test_a_list_of_one_text_is_a_batch_of_one_and_a_list_of_one_id_a_prompt():
    expected = ids_of(generate(letters(), "b", GREEDY, max_new_tokens=5))
    assert ids_of(generate(letters(), ["b"], GREEDY, max_new_tokens=5)) == expected
    assert ids_of(generate(letters(), [1], GREEDY, max_new_tokens=5)) == expected


def test_the_room_of_a_batch_is_what_is_left_behind_its_longest_prompt():
    lm = letters(context_length=8)
    assert len(list(generate(lm, ["a", "abcdef"], GREEDY, max_new_tokens=3))) == 6
    with pytest.raises(ValueError, match="at most 3 behind a prompt of 6"):
        generate(lm, ["a", "abcdef"], GREEDY, max_new_tokens=4)


def test_the_texts_of_a_batch_are_known_without_their_padding_and_with_token_zero():
    prompts = [[0, 1, 0], [3], [0]]
    assert TokenBatch(letters(), prompts).prompt_lists() == prompts


def test_the_model_is_given_valid_ids_and_a_mask_of_whole_numbers_where_a_batch_is_padded():
    lm, seen = letters(), []
    step = lm.step

    def spy(ids, cache=None, mask=None, **options):
        seen.append((ids.tolist(), None if mask is None else mask.tolist()))
        return step(ids, cache, mask, **options)

    lm.step = spy
    list(generate(lm, ["abc", "g"], GREEDY, max_new_tokens=1))
    ((ids, mask),) = seen
    assert ids[0] == [0, 1, 2]
    assert ids[1][2] == 6
    assert all(0 <= token_id < 8 for token_id in ids[1])
    assert str(mask) == "[[1, 1, 1], [0, 0, 1]]"


# The live model


@pytest.fixture(scope="module")
def peer():
    """Return the same weights as a model of transformers."""
    from transformers import AutoModelForCausalLM

    from lmhead_course.fetch import fetch

    return AutoModelForCausalLM.from_pretrained(fetch(), dtype=torch.float32)


def peer_greedy(peer, lm, prompts, new_tokens):
    """Return what transformers' generate appends to each prompt, up to and with the end-of-text token."""
    encoded = [lm.encode(prompt) for prompt in prompts]
    longest = max(map(len, encoded))
    ids = torch.tensor([[0] * (longest - len(one)) + one for one in encoded])
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in encoded])
    out = peer.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=new_tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        eos_token_id=sorted(lm.eos_ids),
        pad_token_id=0,
    )
    return [cut_at_eos(row, lm.eos_ids) for row in out[:, longest:].tolist()]


def cut_at_eos(ids, eos_ids):
    ends = [place for place, token_id in enumerate(ids) if token_id in eos_ids]
    return ids[: ends[0] + 1] if ends else ids


def test_greedy_is_transformers_greedy_token_for_token_in_a_batch_and_one_by_one(lm, peer):
    expected = peer_greedy(peer, lm, PROMPTS, 64)
    assert ids_of(generate(lm, PROMPTS, GREEDY, max_new_tokens=64), len(PROMPTS)) == expected
    for prompt, ids in zip(PROMPTS, expected, strict=True):
        assert ids_of(generate(lm, prompt, GREEDY, max_new_tokens=12)) == [ids[:12]]


def test_without_the_cache_the_live_model_writes_the_same(lm):
    for prompt in PROMPTS[:3]:
        cached, anew = (
            ids_of(generate(lm, prompt, GREEDY, max_new_tokens=10, use_cache=use)) for use in (True, False)
        )
        assert cached == anew


def test_an_answer_in_the_chat_format_ends_with_the_end_of_its_turn(lm):
    chat = lm.encode(lm.chat([{"role": "user", "content": "Say hello in one word."}]), special=True)
    steps = list(generate(lm, chat, GREEDY, max_new_tokens=40))
    assert steps[-1].finished == "eos"
    assert "<|im_end|>" not in "".join(step.text for step in steps)


def test_characters_of_several_tokens_arrive_whole(lm):
    forced = lm.encode("今天天气不错 🙂")

    def write(logits, *, prompt, generated):
        only = torch.full_like(logits, -math.inf)
        only[:, forced[generated.shape[1]]] = 0
        return only

    params = SamplingParams(order=(write,))
    pieces = [step.text for step in generate(lm, "Weather:", params, max_new_tokens=len(forced))]
    assert "".join(pieces) == "今天天气不错 🙂"
    assert "\ufffd" not in "".join(pieces)
    assert "" in pieces
