"""The default model's body: its parts against their definitions, the whole against transformers' Llama."""

import pytest
import torch

from lmhead_course.fetch import fetch
from lmhead_course.llama import KVCache, LlamaBody, LlamaConfig, RMSNorm, positions_of, rotary_table, rotate

PROMPTS = [
    "The capital of France is",
    "To be or not to be, that is the",
    "Once upon a time",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "今天天气",
    "In 1905, Albert Einstein published 4 papers;  the third",
    "🙂🙃",
    "a",
    "   leading spaces\n\n\nand empty lines\t",
    "Repeat after me: " + "one two three " * 20,
]


@pytest.fixture(scope="module")
def peer():
    """Return transformers' Llama on the same weights: the converted folder is one it can read."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(fetch(), dtype=torch.float32, use_safetensors=True).eval()


@pytest.fixture(scope="module")
def batch(lm):
    """Return the three first prompts as one batch, left-padded: ids (3, n) and their mask."""
    rows = [lm.encode(prompt) for prompt in PROMPTS[:3]]
    n = max(map(len, rows))
    ids = torch.tensor([[2] * (n - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (n - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def assert_same(found, expected):
    """Compare to 1e-4 of the largest value: some residual coordinates of this model reach 20,000."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_hidden_states_of_every_layer_and_logits_equal_those_of_transformers(lm, peer, prompt):
    with torch.no_grad():
        expected = peer(input_ids=lm.prompt_ids(prompt), output_hidden_states=True)
    hidden = lm.hidden_states(prompt)
    assert len(hidden) == len(expected.hidden_states) == 31
    for ours, theirs in zip(hidden[:-1], expected.hidden_states[:-1], strict=True):
        assert_same(ours, theirs[0])
    assert_same(lm.final_norm(hidden[-1]), expected.hidden_states[-1][0])  # transformers norms its last row
    assert_same(lm.all_logits(prompt), expected.logits[0])


def test_a_left_padded_batch_equals_transformers_at_every_real_token(lm, peer, batch):
    ids, mask = batch
    with torch.no_grad():
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        expected = peer(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    logits, _ = lm.step(ids, mask=mask, last_only=False)
    assert_same(logits[mask.bool()], expected[mask.bool()])


def test_every_row_of_a_padded_batch_equals_its_text_alone(lm, batch):
    ids, mask = batch
    logits, _ = lm.step(ids, mask=mask)
    for row, prompt in zip(logits, PROMPTS, strict=False):
        assert_same(row, lm.logits(prompt))


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [3, 2], [1, 4], [2, 1, 2]], ids=str)
def test_reading_in_pieces_with_a_cache_equals_reading_at_once(lm, sizes):
    ids = lm.prompt_ids(PROMPTS[0])
    cache, pieces = None, []
    for piece in ids.split(sizes, dim=1):
        logits, cache = lm.step(piece, cache, last_only=False)
        pieces.append(logits)
    assert cache.length == 5
    assert_same(torch.cat(pieces, dim=1)[0], lm.all_logits(PROMPTS[0]))


def test_a_padded_batch_goes_on_from_its_cache_as_each_text_does_alone(lm, batch):
    ids, mask = batch
    more = torch.tensor([[504, 3575], [282, 4649], [314, 253]])
    _, cache = lm.step(ids, mask=mask)
    logits, _ = lm.step(more, cache, torch.cat([mask, torch.ones(3, 2, dtype=mask.dtype)], dim=1))
    for row, prompt, new in zip(logits, PROMPTS, more, strict=False):
        alone, _ = lm.step(torch.cat([lm.prompt_ids(prompt), new[None]], dim=1))
        assert_same(row, alone[0])


def test_a_step_leaves_the_cache_it_was_given_as_it_was(lm):
    _, cache = lm.step(lm.prompt_ids("Once upon a"))
    first, _ = lm.step(torch.tensor([[655]]), cache)
    assert cache.length == 3
    again, _ = lm.step(torch.tensor([[655]]), cache)
    assert torch.equal(first, again)


def test_rows_of_a_cache_can_be_repeated_and_reordered(lm, batch):
    ids, mask = batch
    _, cache = lm.step(ids, mask=mask)
    index = torch.tensor([2, 2, 0])
    grown = torch.cat([mask, torch.ones(3, 1, dtype=mask.dtype)], dim=1)
    new = torch.tensor([[504], [282], [314]])
    expected, _ = lm.step(new[index], cache.rows(index), grown[index])
    logits, _ = lm.step(new, cache, grown)
    assert_same(logits[index], expected)


def test_a_cropped_cache_goes_on_as_if_the_rest_had_never_been_read(lm):
    ids = lm.prompt_ids("The capital of France is")
    _, cache = lm.step(ids)
    new = torch.tensor([[504, 282]])
    expected, _ = lm.step(torch.cat([ids[:, :3], new], dim=1))
    logits, _ = lm.step(new, cache.crop(3))
    assert_same(logits, expected)
    assert cache.length == ids.shape[1]


def test_later_tokens_do_not_change_earlier_logits(lm):
    short, long = lm.all_logits("The capital of"), lm.all_logits("The capital of France is")
    assert_same(long[: len(short)], short)


def small_llama(n_kv_heads: int):
    """Return our body and transformers' model, untied in all sizes, with the same random weights."""
    from transformers import LlamaConfig as PeerConfig
    from transformers import LlamaModel

    sizes = {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "vocab_size": 50,
        "head_dim": 8,
    }
    torch.manual_seed(0)
    heads = {"num_attention_heads": 6, "num_key_value_heads": n_kv_heads}
    rope = {"rope_type": "default", "rope_theta": 500.0}
    peer = LlamaModel(PeerConfig(**sizes, **heads, rms_norm_eps=1e-3, rope_parameters=rope)).eval()
    body = LlamaBody(LlamaConfig(24, 50, 40, 2, 6, n_kv_heads, 8, 500.0, 1e-3))
    body.load_state_dict(peer.state_dict())
    return body, peer


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_any_grouping_of_queries_equals_transformers(n_kv_heads):
    body, peer = small_llama(n_kv_heads)
    ids = torch.arange(20).reshape(2, 10)
    with torch.no_grad():
        streams, _ = body(ids)
        torch.testing.assert_close(body.norm(streams[-1]), peer(ids).last_hidden_state, rtol=1e-5, atol=1e-5)


def test_only_the_last_stream_is_kept_unless_all_are_asked_for():
    body, _ = small_llama(2)
    ids = torch.arange(4)[None]
    last, all_of_them = body(ids)[0], body(ids, all_layers=True)[0]
    assert [len(last), len(all_of_them)] == [1, 3]
    assert torch.equal(last[0], all_of_them[-1])
    assert torch.equal(all_of_them[0], body.embedding[ids])


def test_gradients_flow_through_the_body():
    body, _ = small_llama(2)
    body(torch.arange(4)[None])[0][-1].sum().backward()
    assert body.layers[0].self_attn.k_proj.weight.grad.abs().sum() > 0


def test_rms_norm_gives_root_mean_square_one_whatever_the_length():
    x = torch.randn(3, 5, 64) * torch.tensor([1e-2, 1.0, 1e3])[:, None, None]
    rms = RMSNorm(64, 1e-12)(x).square().mean(-1).sqrt()
    torch.testing.assert_close(rms, torch.ones(3, 5))


def test_rotated_query_and_key_agree_by_distance_only():
    query, key = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def dot(at_query: int, at_key: int) -> float:
        turned = [
            rotate(vector, *rotary_table(torch.tensor([[at]]), 16, 100.0))
            for vector, at in ((query, at_query), (key, at_key))
        ]
        return (turned[0] * turned[1]).sum().item()

    assert dot(7, 3) == pytest.approx(dot(104, 100), abs=1e-4)
    assert dot(7, 3) != pytest.approx(dot(7, 4), abs=1e-3)


def test_rotation_keeps_lengths_and_leaves_position_zero_alone():
    x = torch.randn(2, 3, 4, 16)
    turned = rotate(x, *rotary_table(torch.arange(4)[None], 16, 100.0))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])


def test_positions_are_counted_from_the_first_real_token():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    assert positions_of(2, 3, mask, mask.device).tolist() == [[1, 2], [3, 4]]
    assert positions_of(2, 3, None, mask.device).tolist() == [[3, 4]]


def test_a_cache_knows_its_length():
    assert KVCache([(torch.zeros(1, 2, 7, 4), torch.zeros(1, 2, 7, 4))]).length == 7


@pytest.mark.parametrize("steps", [[5], [1], [4, 1]], ids=str)
def test_a_cache_holds_its_keys_and_values_and_no_other_memory(steps):
    config = LlamaConfig(
        d_model=24,
        d_vocab=30,
        d_mlp=48,
        n_layers=2,
        n_heads=3,
        n_kv_heads=1,
        d_head=8,
        rope_base=1e4,
        norm_eps=1e-5,
    )
    body, cache = LlamaBody(config), None
    with torch.no_grad():
        for n in steps:
            _, cache = body(torch.ones(1, n, dtype=torch.long), cache)
    parts = [part for layer in cache.layers for part in layer]
    assert sum(part.untyped_storage().nbytes() for part in parts) == sum(part.nbytes for part in parts)
