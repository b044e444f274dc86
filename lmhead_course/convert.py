"""Turn a GGUF file of a Llama into a folder that any tool of the field can load: float32 safetensors and JSON.

Run as a script in a process of its own, so that the gigabyte this takes is given back when it ends:
``python convert.py model.gguf folder`` prints ``done total`` after each tensor. It imports nothing of the package.
"""

import json
import sys
from pathlib import Path

# Where each tensor of a GGUF layer goes; "blk.3.attn_q" becomes "model.layers.3.self_attn.q_proj".
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3  # the GGUF token type of special tokens


def tensor_name(gguf_name: str) -> str:
    """Return the checkpoint name of a GGUF tensor; raise ``ValueError`` for one that a Llama does not have."""
    stem = gguf_name.removesuffix(".weight")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.weight"
    block, number, part = (*stem.split(".", 2), "", "")[:3]
    if block != "blk" or part not in LAYER_NAMES:
        raise ValueError(
            f"tensor {gguf_name!r} is no part of a Llama; known are {[*TOP_NAMES, *LAYER_NAMES]}"
        )
    return f"model.layers.{number}.{LAYER_NAMES[part]}.weight"


def unpermute(weight, n_heads: int):
    """Undo the row order that GGUF gives queries and keys.

    GGUF puts the two rows of a rotary pair side by side (0, d/2, 1, d/2 + 1, …); checkpoints keep all first rows of a
    head, then all second rows.
    """
    rows, columns = weight.shape
    return weight.reshape(n_heads, rows // n_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_tensors(reader, config: dict) -> dict:
    """Return every tensor as a float32 array under its checkpoint name, printing ``done total`` after each."""
    import gguf
    import numpy

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for tensor in reader.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32, copy=False)
        part = tensor.name.split(".")[-2]
        if part in heads:
            weight = unpermute(weight, heads[part])
        tensors[tensor_name(tensor.name)] = numpy.ascontiguousarray(weight)
        print(len(tensors), len(reader.tensors), flush=True)
    return tensors


def build_config(field, tied: bool) -> dict:
    """Return the model's ``config.json``; ``field(key)`` reads one entry of the GGUF header."""
    if field("general.architecture") != "llama":
        raise ValueError(f"general.architecture must be 'llama', got {field('general.architecture')!r}")
    tokens = field("tokenizer.ggml.tokens")
    end = field("tokenizer.ggml.eos_token_id")
    # Chat turns end with the file's own end token, plain documents with <|endoftext|>: both stop generation.
    ends = [end, *(i for i, token in enumerate(tokens[:32]) if token == "<|endoftext|>" and i != end)]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": field("llama.attention.head_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": field("llama.rope.dimension_count"),
        "hidden_act": "silu",
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"),
        "rope_parameters": {"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        "max_position_embeddings": field("llama.context_length"),
        "tie_word_embeddings": tied,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": ends,
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "dtype": "float32",
    }


def build_tokenizer(field):
    """Return a ``tokenizers.Tokenizer`` for the file's byte-level BPE.

    The file names its way of cutting text into words, "smollm": every digit stands alone, then GPT-2's pattern. So
    two line breaks before a digit are one token, as in the tokenizer the model was trained with; transformers' own
    reader of GGUF files knows no "smollm", falls back to GPT-2's pattern alone, and makes them two.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (field("tokenizer.ggml.model"), field("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"the tokenizer must be byte-level BPE of kind ('gpt2', 'smollm'), got {kind}")
    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, field("tokenizer.ggml.token_type"), strict=True)
    control = [AddedToken(token, special=True, normalized=False) for token, kind in kinds if kind == CONTROL]
    tokenizer.add_special_tokens(control)
    return tokenizer


def build_tokenizer_config(field) -> dict:
    """Return ``tokenizer_config.json``: special tokens by name, and the chat template."""
    tokens = field("tokenizer.ggml.tokens")
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {name: tokens[field(f"tokenizer.ggml.{key}_token_id")] for name, key in keys.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": field("llama.context_length"),
        "chat_template": field("tokenizer.chat_template"),
        **special,
    }


def convert(gguf_path: Path, folder: Path) -> None:
    """Write ``model.safetensors``, ``config.json``, ``tokenizer.json`` and ``tokenizer_config.json`` to ``folder``."""
    import gguf
    from safetensors.numpy import save_file

    reader = gguf.GGUFReader(gguf_path)

    def field(key: str):
        return reader.fields[key].contents()

    config = build_config(field, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    build_tokenizer(field).save(str(folder / "tokenizer.json"))
    for name, content in {"config": config, "tokenizer_config": build_tokenizer_config(field)}.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    save_file(read_tensors(reader, config), folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
