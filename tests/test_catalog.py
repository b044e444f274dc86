"""The catalog: what follows from a shape is what is in print, and what transformers builds."""

import importlib
from dataclasses import replace

import pytest
import torch

from lmhead_course.catalog import devices, model, models
from tests.typecheck import refused

MODELS = models()

# Copied from the syllabus's table, not from the catalog: (d_model, d_vocab, one matrix, share in %).
TABLE = {
    "GPT-2 small": (768, 50_257, 38_597_376, 31.0),
    "BERT-base": (768, 30_522, 23_440_896, 21.4),
    "GPT-3 175B": (12_288, 50_257, 617_558_016, 0.35),
    "T5-base 1.0": (768, 32_128, 24_674_304, 11.1),
    "T5-base 1.1": (768, 32_128, 24_674_304, 10.0),
    "LLaMA-7B": (4096, 32_000, 131_072_000, 1.9),
    "LLaMA-65B": (8192, 32_000, 262_144_000, 0.4),
    "Llama-3-8B": (4096, 128_256, 525_336_576, 6.5),
    "Llama-3.2-1B": (2048, 128_256, 262_668_288, 21.3),
    "Qwen2.5-0.5B": (896, 151_936, 136_134_656, 27.6),
    "Qwen2.5-7B": (3584, 152_064, 544_997_376, 7.2),
    "Gemma-2-2B": (2304, 256_000, 589_824_000, 22.6),
    "Gemma-3-270M": (640, 262_144, 167_772_160, 62.6),
    "PaLM-540B": (18_432, 256_000, 4_718_592_000, 0.9),
    "DeepSeek-V3": (7168, 129_280, 926_679_040, 0.14),
    "SmolLM2-135M": (576, 49_152, 28_311_552, 21.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_total_computed_from_the_shape_is_the_one_in_print(name):
    assert MODELS[name].agrees, f"{MODELS[name].total:,} against {MODELS[name].stated}"


def test_a_total_that_is_off_in_its_last_printed_digit_would_be_seen():
    assert not replace(model("PaLM-540B"), layers=119).agrees
    assert not replace(model("GPT-2 small"), d_vocab=50_258).agrees
    assert not replace(model("T5-base 1.1"), tied="yes").agrees


@pytest.mark.parametrize("name", TABLE)
def test_sizes_and_shares_are_those_of_the_syllabus(name):
    m, (d_model, d_vocab, matrix, share) = model(name), TABLE[name]
    assert (m.d_model, m.d_vocab, m.one_matrix) == (d_model, d_vocab, matrix)
    step = 0.01 if share < 0.36 else 0.1  # half up or to even: the last digit may differ by one
    assert 100 * m.share == pytest.approx(share, abs=0.51 * step + 1e-9)


def test_every_row_has_its_source_and_one_of_three_words_for_tied():
    assert all(m.source for m in MODELS.values())
    assert {m.tied for m in MODELS.values()} == {"yes", "no", "not stated"}


def test_the_hidden_size_is_smaller_than_the_vocabulary_in_every_model():
    assert all(m.d_model < m.d_vocab for m in MODELS.values())


def test_the_small_gpt3_fits_one_matrix_and_not_two():
    small = model("GPT-3 Small")
    assert round(small.total / 1e6, 1) == 125.2
    assert round(replace(small, tied="no").total / 1e6, 1) == 163.8
    # The large one does not decide: both give 175 B.
    assert model("GPT-3 175B").agrees
    assert replace(model("GPT-3 175B"), tied="no").agrees


def test_berts_pooler_instead_of_its_head_gives_the_other_number_in_print():
    m = model("BERT-base")
    d = m.d_model
    body_with_pooler = m.parts["body"] + m.parts["embedding"] + d * d + d
    assert body_with_pooler == 109_482_240


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    with refused("name", "GPT-5", "GPT-2 small"):
        model("GPT-5")


def test_devices_have_positive_rates_and_sources():
    assert all(d.bandwidth > 0 and d.flops > 0 and d.source for d in devices().values())


# transformers builds these shapes on the meta device, without weights.

BUILT = {
    "GPT-2 small": ("gpt2", "GPT2Config", "GPT2LMHeadModel", {}),
    "SmolLM2-135M": (
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "tie_word_embeddings": True,
        },
    ),
    "T5-base 1.1": (
        "t5",
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "vocab_size": 32128,
            "d_model": 768,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 12,
            "num_heads": 12,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_transformers_builds_as_many_parameters(name):
    module, config, architecture, settings = BUILT[name]
    library = importlib.import_module(f"transformers.models.{module}")
    with torch.device("meta"):
        built = getattr(library, architecture)(getattr(library, config)(**settings))
    if MODELS[name].tied == "yes":
        built.tie_weights()
    count = sum(p.numel() for p in {id(p): p for p in built.parameters()}.values())
    # This version of transformers ties T5 1.1 whatever its config says, so its matrices are counted by the config.
    tied_anyway = name == "T5-base 1.1" and count < MODELS[name].total
    assert count + tied_anyway * MODELS[name].one_matrix == MODELS[name].total
