"""LanguageModel and load_model: the live model, and small random models of other families saved to disk."""

import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch

from lmhead_course.models import LanguageModel, _quiet, load_model, pick_device
from lmhead_course.protocol import CausalLM
from tests.typecheck import unchecked

TEXTS = ["a small model of language", "the next word, and the next", "x"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
GROUPED = {**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 64}
GEMMA = {**GROUPED, "head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 0.5}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
NEOX = {**SIZES, "max_position_embeddings": 64, "tie_word_embeddings": False}

# name: (the class's stem in transformers, its settings, what its head has: tied, bias, scale, soft cap)
FAMILIES = {
    "gpt2": ("GPT2", GPT2, (True, False, 1.0, None)),
    "gpt2-untied": ("GPT2", {**GPT2, "tie_word_embeddings": False}, (False, False, 1.0, None)),
    "llama": ("Llama", {**GROUPED, "tie_word_embeddings": False}, (False, False, 1.0, None)),
    "llama-tied": ("Llama", {**GROUPED, "tie_word_embeddings": True}, (True, False, 1.0, None)),
    "gemma2": ("Gemma2", {**GEMMA, "tie_word_embeddings": True}, (True, False, 1.0, 0.5)),
    "gemma2-no-cap": ("Gemma2", {**GEMMA, "final_logit_softcapping": None}, (True, False, 1.0, None)),
    "gpt_neox": ("GPTNeoX", NEOX, (False, False, 1.0, None)),
    "gpt_neox-tied": ("GPTNeoX", {**NEOX, "tie_word_embeddings": True}, (True, False, 1.0, None)),
    "phi-bias": ("Phi", {**GROUPED, "tie_word_embeddings": False}, (False, True, 1.0, None)),
    "gptj-bias": ("GPTJ", {**GPT2, "rotary_dim": 4, "tie_word_embeddings": False}, (False, True, 1.0, None)),
    "cohere-scale": ("Cohere", {**GROUPED, "logit_scale": 0.25}, (True, False, 0.25, None)),
    "granite-divides": ("Granite", {**GROUPED, "logits_scaling": 4.0}, (False, False, 0.25, None)),
    "opt-decoder": (
        "OPT",
        {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
        (True, False, 1.0, None),
    ),
}


@pytest.fixture(scope="session")
def tokenizer():
    """Return a byte-level BPE tokenizer of 291 tokens, trained on a few lines."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXTS * 20, trainer)
    ends = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, additional_special_tokens=["<|im_end|>"], model_max_length=64, **ends
    )


def save_random_model(folder: Path, tokenizer, stem: str, settings: dict, **save) -> Path:
    """Save a small random decoder of a family, with every bias and norm away from its trivial start."""
    import transformers

    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = getattr(transformers, f"{stem}Config")(vocab_size=len(tokenizer), **settings, **ids)
    head = "LMHeadModel" if stem in {"GPT2", "Bert"} else "ForCausalLM"
    torch.manual_seed(1)
    model = getattr(transformers, f"{stem}{head}")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder, **save)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def family(tokenizer, tmp_path_factory):
    """Return a function that gives the folder of a family's random model, saved when first asked for."""
    made = {}

    def folder(name: str) -> Path:
        if name not in made:
            stem, settings, _ = FAMILIES[name]
            made[name] = save_random_model(tmp_path_factory.mktemp(name), tokenizer, stem, settings)
        return made[name]

    return folder


@pytest.fixture(scope="session")
def tiny(family):
    """Return the random GPT-2."""
    return load_model(family("gpt2"), device="cpu")


def reference(folder: Path, text: str):
    """Return ids, and what transformers computes for them: logits and hidden states."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return ids, model(input_ids=ids, output_hidden_states=True)


def test_the_capital_of_france_is_paris(lm):
    probabilities = lm.logits("The capital of France is").softmax(0)
    assert lm.label(int(probabilities.argmax())) == "␣Paris"
    assert probabilities.max().item() == pytest.approx(0.773, abs=5e-4)


def test_to_be_or_not_to_be_is_a_question_and_perhaps_eternal(lm):
    top = lm.logits("To be or not to be, that is the").softmax(0).topk(2)
    assert [lm.decode([token_id]) for token_id in top.indices.tolist()] == [" question", " eternal"]
    assert top.values.tolist() == pytest.approx([0.272, 0.218], abs=5e-4)


def test_the_live_model_has_the_published_sizes(lm):
    assert [lm.d_model, lm.d_vocab, lm.n_layers, lm.context_length] == [576, 49152, 30, 8192]
    assert lm.eos_ids == {lm.encode(end, special=True)[0] for end in ("<|im_end|>", "<|endoftext|>")}
    assert repr(lm) == "LanguageModel('smollm2-135m', d_model=576, d_vocab=49152, n_layers=30, device='cpu')"


def test_a_language_model_is_what_the_explorers_ask_for(lm):
    assert isinstance(lm, CausalLM)


def test_head_and_embedding_are_one_matrix_at_one_address(lm):
    assert lm.head.weight.data_ptr() == lm.embedding.data_ptr()
    assert lm.head.bias is None
    assert lm.head.scale == 1.0
    assert lm.head.soft_cap is None


def test_everything_is_float32(lm):
    assert lm.logits("a").dtype == lm.hidden_states("a").dtype == torch.float32
    assert {parameter.dtype for parameter in lm.body.parameters()} == {torch.float32}


def test_head_of_final_norm_of_the_last_row_equals_the_logits(lm):
    text = "The capital of France is"
    hidden = lm.hidden_states(text)
    assert hidden.shape == (31, 5, 576)
    torch.testing.assert_close(lm.head(lm.final_norm(hidden[-1])), lm.all_logits(text), rtol=0, atol=1e-4)
    torch.testing.assert_close(lm.head(lm.final_norm(hidden[-1, -1])), lm.logits(text), rtol=0, atol=1e-4)


def test_norming_twice_gives_another_token_with_another_probability(lm):
    hidden = lm.hidden_states("The capital of France is")[-1, -1]
    twice = lm.head(lm.final_norm(lm.final_norm(hidden))).softmax(0)
    assert lm.label(int(twice.argmax())) == "Paris"  # without the space
    assert twice.max().item() == pytest.approx(0.235, abs=1e-3)
    assert twice[lm.encode(" Paris")[0]].item() == pytest.approx(0.0055, abs=1e-4)


def test_results_can_be_changed_in_place_and_differentiated(lm):
    logits = lm.logits("a")
    assert not logits.requires_grad
    logits[3] = -torch.inf
    logits.requires_grad_().logsumexp(0).backward()
    assert logits.grad.sum().item() == pytest.approx(1.0, abs=1e-5)


def test_no_gradients_are_kept_on_a_thread_of_its_own(tiny):
    found = []
    thread = threading.Thread(target=lambda: found.append(tiny.logits("x").requires_grad))
    thread.start()
    thread.join()
    assert found == [False]


@pytest.mark.parametrize("positions", [[0], [4, 0], [-1], slice(1, 3), range(2), None], ids=str)
def test_all_logits_gives_the_positions_asked_for_in_that_order(lm, positions):
    every = lm.all_logits("The capital of France is")
    rows = list(range(5)) if positions is None else positions
    expected = every[rows] if isinstance(rows, slice) else every[list(rows)]
    found = lm.all_logits("The capital of France is", positions)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_all_logits_refuses_a_position_outside_the_text(lm):
    with pytest.raises(ValueError, match=r"positions must be in -2 … 1, got 2"):
        lm.all_logits("a b", [0, 2])


def test_all_logits_refuses_more_than_a_gibibyte_and_says_how_much_it_would_be(lm):
    with pytest.raises(ValueError, match=r"6000 positions × 49152 tokens take 1.10 GiB.*at most 5461"):
        lm.all_logits(" a" * 6000)


def test_a_long_text_is_no_trouble_when_few_positions_are_asked_for(lm, monkeypatch):
    monkeypatch.setattr("lmhead_course.models.ALL_LOGITS_LIMIT", 49152 * 4 * 2)
    assert lm.all_logits(" a" * 9, [-1, -2]).shape == (2, 49152)
    with pytest.raises(ValueError, match="at most 2 positions"):
        lm.all_logits(" a" * 9, [-1, -2, -3])


@pytest.mark.parametrize("call", ["logits", "all_logits", "hidden_states"])
def test_a_text_beyond_the_context_is_refused_with_both_numbers(tiny, call):
    with pytest.raises(ValueError, match=r"text is 65 tokens long, .* reads at most 64"):
        getattr(tiny, call)("x" * 65)


def test_a_step_beyond_the_context_is_refused_with_both_numbers(tiny):
    _, cache = tiny.step(torch.ones(1, 60, dtype=torch.long))
    with pytest.raises(ValueError, match=r"text is 65 tokens long, .* reads at most 64"):
        tiny.step(torch.ones(1, 5, dtype=torch.long), cache)


def test_step_gives_the_last_logits_or_all_of_them(tiny):
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    last, _ = tiny.step(ids)
    every, _ = tiny.step(ids, last_only=False)
    assert last.shape == (2, tiny.d_vocab)
    assert every.shape == (2, 3, tiny.d_vocab)
    torch.testing.assert_close(last, every[:, -1])


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (torch.tensor([[0, 300]]), None, r"ids must be in 0 … 290, got 0 … 300"),
        (torch.tensor([[-1]]), None, r"ids must be in 0 … 290, got -1 … -1"),
        (torch.zeros(1, 0, dtype=torch.long), None, "at least one token"),
        (torch.tensor([1, 2]), None, r"ids must be .* \(batch, n\), .*got torch.int64 of shape \(2,\)"),
        (torch.tensor(1), None, r"ids must be .* \(batch, n\), .*got torch.int64 of shape \(\)"),
        (torch.tensor([[[1]]]), None, r"ids must be .*got torch.int64 of shape \(1, 1, 1\)"),
        (torch.tensor([[1.0]]), None, r"ids must be a tensor of whole numbers .*got torch.float32 of shape"),
        (torch.tensor([[True]]), None, r"ids must be a tensor of whole numbers .*got torch.bool of shape"),
        ([[1, 2]], None, r"ids must be a tensor of whole numbers .*got \[\[1, 2\]\]"),
        (
            torch.zeros(2, 3, dtype=torch.long),
            torch.ones(2, 2),
            r"mask must have shape .* \(2, 3\), got \(2, 2\)",
        ),
    ],
)
def test_step_names_what_is_wrong_with_ids_and_mask(tiny, ids, mask, message):
    with unchecked(), pytest.raises(ValueError, match=message):
        tiny.step(ids, mask=mask)


@pytest.mark.parametrize("text", ["", "\x04", "\x04\x06\x13\x14\x16\x1d"])
def test_a_text_without_tokens_starts_from_the_bos_token(lm, text):
    assert lm.encode(text) == []
    assert lm.tokens(text) == []
    expected, _ = lm.step(torch.tensor([[lm.bos_id]]))
    torch.testing.assert_close(lm.logits(text), expected[0])
    assert lm.hidden_states(text).shape == (31, 1, 576)


def test_an_empty_text_is_refused_where_there_is_no_bos_token(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "bos_id", None)
    with pytest.raises(ValueError, match=r"text is empty, and .* has no BOS token"):
        tiny.logits("")


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "$x$", "a\x00b", "🙂" * 50, "\ud83d", "\u202eabc", "今天天气", "\n\n\t  "],
    ids=ascii,
)
def test_any_text_is_survived(lm, text):
    assert lm.logits(text).isfinite().all()
    assert all(label.isprintable() for label in lm.tokens(text))


@pytest.mark.parametrize("which", ["lm", "tiny"])
def test_a_typed_control_token_is_plain_text_unless_special(which, request):
    model = request.getfixturevalue(which)
    (control,) = model.encode("<|im_end|>", special=True)
    typed = model.encode("<|im_end|>")
    assert control not in typed
    assert len(typed) > 1
    assert model.decode(typed) == model.decode([control]) == "<|im_end|>"
    assert model.encode("<|im_end|>", special=True) == [control]  # the switch is no memory of the last call


@pytest.mark.parametrize("which", ["lm", "tiny"])
def test_text_comes_back_from_its_ids(which, request):
    model = request.getfixturevalue(which)
    for text in ["The capital of France is", "  two  spaces \n\n 12", "今天天气 🙂", "don't , stop !"]:
        assert model.decode(model.encode(text)) == text
        assert model.decode(torch.tensor(model.encode(text))) == text


def test_tokens_are_labels_in_reading_order(lm):
    assert lm.tokens("The capital\nof 12") == ["The", "␣capital", "⏎", "of", "␣", "1", "2"]


def test_chinese_falls_into_nine_fragments_of_characters(lm):
    labels = lm.tokens("今天天气")
    assert len(labels) == 9
    assert labels[:2] == ["<0xE4><0xBB>", "<0x8A>"]


@pytest.mark.parametrize("token_id", [-1, 49152])
def test_a_label_of_no_token_is_refused(lm, token_id):
    with pytest.raises(ValueError, match=rf"token_id must be in 0 … 49151, got {token_id}"):
        lm.label(token_id)


def test_chat_writes_the_models_own_format(lm):
    text = lm.chat([{"role": "user", "content": "hi"}])
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert lm.encode(text, special=True).count(lm.encode("<|im_start|>", special=True)[0]) == 3


def test_chat_is_refused_without_a_format(tiny):
    with pytest.raises(ValueError, match="no chat template"):
        tiny.chat([{"role": "user", "content": "hi"}])


def test_chat_names_a_message_that_is_none(lm):
    with pytest.raises(ValueError, match=r"'role' and 'content', got \{'role': 'user'\}"):
        lm.chat([{"role": "user"}])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's memory maps")
def test_weights_are_a_map_of_the_cache_file_that_processes_share(lm):
    lm.logits("a")
    entries = Path("/proc/self/smaps").read_text().split("VmFlags:")
    (entry,) = [entry for entry in entries if "smollm2" in entry and "model.safetensors" in entry]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in entry.splitlines() if line.endswith(" kB")}
    assert sizes["Rss"] > 400_000
    assert sizes["Private_Dirty"] == 0  # a private copy of anything would show here
    assert sizes["Anonymous"] == 0


def test_a_cached_model_loads_without_transformers_and_without_a_word(lm):
    code = (
        "import sys; from lmhead_course.models import load_model; load_model(device='cpu').logits('a');"
        "bad = {'transformers', 'gguf', 'jinja2.sandbox'} & set(sys.modules); assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_the_logits_and_streams_of_transformers(family, name):
    folder = family(name)
    model = load_model(str(folder), device="cpu")
    ids, expected = reference(folder, TEXTS[0])
    assert model.encode(TEXTS[0]) == ids[0].tolist()
    hidden = model.hidden_states(TEXTS[0])
    assert len(hidden) == len(expected.hidden_states) == 3
    for ours, theirs in zip(hidden[:-1], expected.hidden_states[:-1], strict=True):
        torch.testing.assert_close(ours, theirs[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        model.final_norm(hidden[-1]), expected.hidden_states[-1][0], rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(model.all_logits(TEXTS[0]), expected.logits[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.head(model.final_norm(hidden[-1, -1])), model.logits(TEXTS[0]))


def test_what_the_final_norm_was_given_is_not_kept(family):
    model = load_model(family("llama"), device="cpu")
    model.final_norm(hidden := torch.ones(1000, model.d_model))
    given = weakref.ref(hidden)
    del hidden
    assert given() is None


def test_a_reading_that_failed_keeps_nothing(family, monkeypatch):
    model, given = load_model(family("llama"), device="cpu"), []

    def fail(**arguments):
        hidden = torch.ones(1, 1, model.d_model)
        given.append(weakref.ref(hidden))
        model.final_norm(hidden)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.body.base, "forward", fail)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            model.logits("x")
        model.final_norm(hidden := torch.ones(1, model.d_model))
        given.append(weakref.ref(hidden))
        del hidden
    assert [one() for one in given] == [None] * 4


@pytest.mark.parametrize("hub_is_quiet", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_bars_of_downloads_are_while_loading_and_after_it_as_somebody_set_them(family, shown, hub_is_quiet):
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from transformers.utils import logging

    (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
    (disable_progress_bars if hub_is_quiet else enable_progress_bars)()
    try:
        with _quiet():
            assert not logging.is_progress_bar_enabled()
            assert are_progress_bars_disabled() == hub_is_quiet
        load_model(family("gpt2"), device="cpu")
        assert (logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == (shown, hub_is_quiet)
    finally:
        logging.enable_progress_bar()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_what_its_head_has(family, name):
    tied, bias, scale, soft_cap = FAMILIES[name][2]
    model = load_model(family(name), device="cpu")
    assert (model.head.weight.data_ptr() == model.embedding.data_ptr()) is tied
    assert (model.head.bias is not None) is bias
    assert (model.head.scale, model.head.soft_cap) == (scale, soft_cap)
    assert (model.context_length, model.eos_ids, model.bos_id) == (64, {0}, 0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "gpt_neox", "opt-decoder"])
def test_every_family_steps_with_a_cache_and_left_padding_as_each_text_does_alone(family, name):
    model = load_model(family(name), device="cpu")
    rows = [model.encode(text) for text in TEXTS[:2]]
    n = max(map(len, rows))
    ids = torch.tensor([[0] * (n - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (n - len(row)) + [1] * len(row) for row in rows])
    first, cache = model.step(ids[:, :-2], mask=mask[:, :-2])
    again, _ = model.step(ids[:, -2:-1], cache, mask[:, :-1])
    _, cache = model.step(ids[:, -2:-1], cache, mask[:, :-1])
    assert cache.length == n - 1
    last, _ = model.step(ids[[1, 0], -1:], cache.rows(torch.tensor([1, 0])), mask[[1, 0]])
    for row, text in zip(last.flip(0), TEXTS, strict=False):
        torch.testing.assert_close(row, model.logits(text), rtol=1e-4, atol=1e-5)
    assert first.shape == again.shape == (2, model.d_vocab)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "opt-decoder"])
def test_a_cropped_cache_has_forgotten_what_was_cut_off_and_the_whole_one_has_not(family, name):
    model = load_model(family(name), device="cpu")
    ids = torch.tensor([[5, 9, 3, 7]])
    _, cache = model.step(ids)
    cropped = cache.crop(2)
    assert (cropped.length, cache.length) == (2, 4)
    other = torch.tensor([[8, 1]])
    expected, _ = model.step(torch.cat([ids[:, :2], other], dim=1))
    torch.testing.assert_close(model.step(other, cropped)[0], expected, rtol=1e-4, atol=1e-5)
    expected, _ = model.step(torch.cat([ids, other], dim=1))
    torch.testing.assert_close(model.step(other, cache)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_sliding_window_that_has_forgotten_cannot_be_cropped(family):
    _, cache = load_model(family("gemma2"), device="cpu").step(torch.tensor([[5, 9, 3, 7]]))
    with pytest.raises(RuntimeError, match="sliding window"):
        cache.crop(2)


def test_a_models_bos_token_is_added_where_its_tokenizer_adds_it(family, tokenizer, tmp_path):
    from tokenizers.processors import TemplateProcessing

    folder = save_random_model(tmp_path, tokenizer, *FAMILIES["llama"][:2])
    file = json.loads((folder / "tokenizer.json").read_text())
    adds = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    file["post_processor"] = json.loads(adds.__getstate__())
    (folder / "tokenizer.json").write_text(json.dumps(file))
    model = load_model(folder, device="cpu")
    plain = load_model(family("llama"), device="cpu").encode("x a")
    assert model.encode("x a") == [0, *plain]
    assert model.encode("<|endoftext|>x a", special=True) == [0, *plain]  # not twice
    assert model.prompt_ids("").tolist() == [[0]]


def test_ids_without_a_token_are_named_unused(family, tokenizer, tmp_path):
    settings = {**FAMILIES["gpt2"][1]}
    folder = save_random_model(tmp_path, tokenizer, "GPT2", settings)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(320)
    model.save_pretrained(folder)
    assert load_model(folder, device="cpu").label(310) == "<unused>"


def test_pickled_weights_are_refused_by_the_name_of_the_folder(family, tokenizer, tmp_path):
    folder = save_random_model(tmp_path / "pickled", tokenizer, *FAMILIES["gpt2"][:2])
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"pickled' could not be loaded: (.|\n)*Pickled weights"):
        load_model(folder, device="cpu")


def test_a_config_that_points_to_pickled_weights_is_refused(tokenizer, tmp_path):
    folder = save_random_model(tmp_path, tokenizer, *FAMILIES["gpt2"][:2])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "transformers_weights": "adapter_model.bin"}))
    with pytest.raises(ValueError, match=r"its weights are 'adapter_model.bin'"):
        load_model(folder, device="cpu")


def test_code_that_comes_with_a_model_is_never_run(tokenizer, tmp_path):
    folder = save_random_model(tmp_path, tokenizer, *FAMILIES["gpt2"][:2])
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "unheard-of", "auto_map": {name: f"evil.{name}" for name in ("AutoConfig",)}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass AutoConfig: pass\n")
    with pytest.raises(ValueError, match="could not be loaded"):
        load_model(folder, device="cpu")
    assert not (tmp_path / "ran").exists()


def test_a_head_that_is_more_than_a_matrix_is_refused_by_its_class(tokenizer, tmp_path):
    settings = {**SIZES, "max_position_embeddings": 64, "is_decoder": True}
    folder = save_random_model(tmp_path, tokenizer, "Bert", settings)
    with pytest.raises(ValueError, match="BertLMHeadModel, which cannot be taken apart"):
        load_model(folder, device="cpu")


def test_a_head_whose_logits_differ_from_the_models_own_is_refused(family, monkeypatch):
    from transformers import CohereForCausalLM

    original = CohereForCausalLM.__init__

    def scaled_in_secret(self, config):
        original(self, config)
        self.logit_scale = 17.0

    monkeypatch.setattr(CohereForCausalLM, "__init__", scaled_in_secret)
    with pytest.raises(ValueError, match=r"CohereForCausalLM, which .* its logits are not those of its head"):
        load_model(family("cohere-scale"), device="cpu")


@pytest.mark.parametrize("name", ["/no/such/folder", __file__])
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(ValueError, match="there is no such folder"):
        load_model(name, device="cpu")


def test_an_unreachable_repository_is_named_with_what_is_allowed(monkeypatch):
    monkeypatch.setattr(
        "transformers.AutoConfig.from_pretrained", lambda *_, **__: raise_(OSError("no route"))
    )
    with pytest.raises(ValueError, match=r"'owner/name' could not be loaded: no route\n.*'smollm2-135m'"):
        load_model("owner/name", device="cpu")


def raise_(error: Exception):
    raise error


@pytest.mark.parametrize("device", ["gpu", "tpu:0", "cuda:99", "meta", ""])
def test_an_unknown_or_absent_device_is_refused_by_name(device):
    with pytest.raises(ValueError, match=rf"device must be one of \['auto'.*'cpu'\].*got '{device}'"):
        pick_device(device)


def test_auto_takes_the_best_device_there_is(monkeypatch):
    def with_devices(cuda: bool, mps: bool) -> str:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        return pick_device("auto").type

    assert with_devices(cuda=True, mps=True) == "cuda"
    assert with_devices(cuda=False, mps=True) == "mps"
    assert with_devices(cuda=False, mps=False) == "cpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_model_on_cuda_gives_the_same_logits_there(lm):
    on_cuda = load_model(device="cuda")
    logits = on_cuda.logits("The capital of France is")
    assert logits.device.type == "cuda"
    assert on_cuda.head.weight.data_ptr() == on_cuda.embedding.data_ptr()
    torch.testing.assert_close(logits.cpu(), lm.logits("The capital of France is"), rtol=1e-3, atol=1e-3)


def test_a_model_can_be_put_together_by_hand(tiny):
    again = LanguageModel(tiny.body, tiny.head, tiny.tokenizer, name="mine", context_length=8, eos_ids=[1, 1])
    assert again.eos_ids == {1}
    with pytest.raises(ValueError, match="mine reads at most 8"):
        again.logits("x" * 9)
