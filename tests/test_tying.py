"""Whether two ends are one, what tying saves, and by which path a row gets its gradient."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from lmhead_course.catalog import models
from lmhead_course.projection import LMHead
from lmhead_course.tiny import TinyLM
from lmhead_course.tying import (
    both_ends,
    is_tied,
    neighbours,
    path_gradients,
    saving,
    tie,
    touched_rows,
    unique_parameters,
)
from tests.typecheck import refused


def tiny(tied=True, seed=0):
    return TinyLM(50, tied=tied, d_model=8, n_heads=2, context=6, seed=seed)


class Ends(nn.Module):
    """The smallest model with two ends."""

    def __init__(self, embedding, head):
        super().__init__()
        self.embedding, self.head = embedding, head


# ---- is it tied? --------------------------------------------------------------------------------------------------


def test_one_parameter_at_both_ends_is_tied_and_two_are_not():
    assert is_tied(tiny(tied=True))
    assert not is_tied(tiny(tied=False))


def test_equal_numbers_in_two_places_are_not_tied():
    model = tiny(tied=False)
    model.head.weight.data.copy_(model.embedding.weight)
    assert torch.equal(model.head.weight, model.embedding.weight)
    assert not is_tied(model)


def test_two_parameters_over_one_memory_are_tied():
    model = tiny(tied=False)
    model.head.weight = nn.Parameter(model.embedding.weight.data)
    assert is_tied(model)


def test_two_weights_in_one_storage_at_different_places_are_not_tied():
    both = torch.zeros(20, 4)
    embedding = nn.Embedding.from_pretrained(both[:10], freeze=False)
    assert not is_tied(Ends(embedding, LMHead(nn.Parameter(both[10:]))))


def test_a_head_over_part_of_the_vocabulary_is_not_the_same_matrix():
    embedding = nn.Embedding(10, 4)
    assert not is_tied(Ends(embedding, LMHead(embedding.weight.data[:8])))


def test_weights_without_memory_are_compared_as_objects():
    assert is_tied(tiny().to_empty(device="meta")) is False
    with torch.device("meta"):
        embedding = nn.Embedding(10, 4)
    assert is_tied(Ends(embedding, LMHead(embedding.weight)))


def test_the_live_model_is_tied(lm):
    assert is_tied(lm)
    assert both_ends(lm)[0].shape == both_ends(lm)[1].shape == (49_152, 576)
    assert unique_parameters(lm) == 134_515_008


@pytest.mark.parametrize("broken", [nn.Linear(2, 2), Ends(nn.Embedding(3, 2), None)])
def test_a_model_without_two_ends_is_refused(broken):
    with refused("model must have both ends", type(broken).__name__):
        is_tied(broken)


# ---- models of transformers, random and tiny ----------------------------------------------------------------------


def gpt2(tied):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
    return GPT2LMHeadModel(GPT2Config(**sizes, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0))


def llama(tied):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, tie_word_embeddings=tied))


def t5(tied):
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1, "num_heads": 4}
    model = T5ForConditionalGeneration(T5Config(**sizes, tie_word_embeddings=tied))
    if not tied:  # transformers builds every T5 tied; T5 1.1's checkpoints bring a head of their own
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


@pytest.mark.parametrize("build", [gpt2, llama, t5])
@pytest.mark.parametrize("tied", [True, False])
def test_a_transformers_model_is_judged_the_same_before_and_after_saving(build, tied, tmp_path):
    model = build(tied)
    assert is_tied(model) is tied
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert is_tied(loaded) is tied
    assert unique_parameters(loaded) == unique_parameters(model)


def test_the_flag_of_t5_1_1_says_tied_whatever_its_weights(tmp_path):
    t5(tied=False).save_pretrained(tmp_path)
    loaded = type(t5(tied=True)).from_pretrained(tmp_path)
    assert loaded.config.tie_word_embeddings is True
    assert not is_tied(loaded)


@pytest.mark.parametrize("build", [gpt2, llama])
def test_tying_a_transformers_model_survives_saving(build, tmp_path):
    model = build(tied=False)
    before = unique_parameters(model)
    tie(model)
    assert is_tied(model)
    assert before - unique_parameters(model) == 50 * 16
    model.save_pretrained(tmp_path)
    assert is_tied(type(model).from_pretrained(tmp_path))


# ---- tie, and what breaks it --------------------------------------------------------------------------------------


def test_tying_keeps_the_embeddings_numbers_and_gathers_one_gradient():
    model = tiny(tied=False)
    before = model.embedding.weight.detach().clone()
    tie(model)
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.embedding.weight, before)
    assert unique_parameters(model) == sum(one.numel() for one in model.parameters())


def test_tying_a_plain_tensor_shares_its_memory():
    model = Ends(nn.Embedding(6, 3), LMHead(nn.Parameter(torch.zeros(6, 3))))
    plain = torch.randn(6, 3)
    namespace = type("Model", (), {})()
    namespace.embedding, namespace.head = plain, model.head
    tie(namespace)
    assert is_tied(namespace)


def test_matrices_of_two_shapes_cannot_be_tied():
    with refused("one shape", "(6, 3)", "(5, 3)"):
        tie(Ends(nn.Embedding(6, 3), LMHead(nn.Parameter(torch.zeros(5, 3)))))


@pytest.mark.parametrize(
    "act",
    [
        copy.deepcopy,
        lambda m: m.to(torch.float64),
        lambda m: m.requires_grad_(False),
        lambda m: m.half().float(),
    ],
    ids=["deepcopy", "to float64", "frozen", "half and back"],
)
def test_what_is_done_to_the_whole_model_leaves_it_tied(act):
    assert is_tied(act(tiny()))


def test_loading_copies_into_the_shared_memory_and_assigning_parts_it():
    stored = {name: tensor.clone() for name, tensor in tiny(seed=1).state_dict().items()}
    model = tiny()
    model.load_state_dict(stored)
    assert is_tied(model)
    model.load_state_dict(stored, assign=True)
    assert not is_tied(model)


def test_assigning_a_shared_state_leaves_one_memory_under_two_parameters():
    model = tiny()
    model.load_state_dict(tiny(seed=1).state_dict(), assign=True)
    assert is_tied(model)
    assert model.head.weight is not model.embedding.weight
    assert sum(one.numel() for one in model.parameters()) - unique_parameters(model) == 50 * 8


def test_the_way_over_the_meta_device_parts_the_ends():
    assert not is_tied(tiny().to("meta").to_empty(device="cpu"))


def test_a_cast_of_one_end_parts_them_and_a_cast_that_changes_nothing_does_not():
    model = tiny()
    model.head.weight = nn.Parameter(model.head.weight.to(torch.float32))
    assert is_tied(model)
    model.head.weight = nn.Parameter(model.head.weight.to(torch.bfloat16))
    assert not is_tied(model)


def test_casting_the_head_in_place_casts_the_embedding_with_it():
    model = tiny()
    model.head.half()
    assert model.embedding.weight.dtype == torch.float16
    assert is_tied(model)


def test_initialising_the_head_after_tying_initialises_the_embedding():
    model = tiny()
    before = model.embedding.weight.detach().clone()
    nn.init.ones_(model.head.weight)
    assert not torch.equal(model.embedding.weight, before)


def test_an_optimiser_made_before_tying_holds_a_matrix_that_nobody_uses():
    model = tiny(tied=False)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    old = model.head.weight
    tie(model)
    held = optimiser.param_groups[0]["params"]
    assert any(one is old for one in held)
    assert not any(one is old for one in model.parameters())


# ---- what it saves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "percent"),
    [("GPT-2 small", 23.7), ("Qwen2.5-0.5B", 21.6), ("SmolLM2-135M", 17.4), ("Gemma-3-270M", 38.5)],
)
def test_the_saving_is_that_of_the_untied_model(name, percent):
    m = models()[name]
    assert 100 * saving(m.share) == pytest.approx(percent, abs=0.05)
    assert saving(m.share) == pytest.approx(m.one_matrix / (m.total + m.one_matrix))


@pytest.mark.parametrize("share", [-0.1, 1.2, float("nan")])
def test_a_share_outside_the_range_is_refused(share):
    with refused("share must be in [0, 1]"):
        saving(share)


# ---- paths --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**31))
def test_the_two_paths_add_up_to_the_gradient_of_a_tied_matrix(seed):
    model = tiny(seed=seed % 1000)
    ids = torch.randint(50, (3, 6), generator=torch.Generator().manual_seed(seed))
    targets = torch.randint(50, (3, 6), generator=torch.Generator().manual_seed(seed + 1))
    paths = path_gradients(model.read, model.embedding.weight, model.head.weight, ids, targets)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    loss.backward()
    assert paths.loss == pytest.approx(loss.item(), abs=1e-5)
    torch.testing.assert_close(paths.total, model.embedding.weight.grad, atol=1e-6, rtol=1e-4)


def test_untied_ends_get_one_path_each():
    model = tiny(tied=False)
    ids, targets = torch.tensor([[1, 2, 2, 7]]), torch.tensor([[2, 2, 7, 3]])
    paths = path_gradients(model.read, model.embedding.weight, model.head.weight, ids, targets)
    F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
    torch.testing.assert_close(paths.input, model.embedding.weight.grad)
    torch.testing.assert_close(paths.output, model.head.weight.grad)


def test_the_input_path_reaches_only_rows_in_the_batch_and_the_output_path_all():
    model = tiny()
    ids, targets = torch.tensor([[1, 2, 2, 7]]), torch.tensor([[2, 2, 7, 3]])
    paths = path_gradients(model.read, model.embedding.weight, model.head.weight, ids, targets)
    assert set(paths.input.any(dim=1).nonzero().flatten().tolist()) == {1, 2, 7}
    assert paths.output.any(dim=1).all()


def test_taking_paths_touches_no_grad_and_works_where_gradients_are_off():
    model = tiny()
    with torch.no_grad():
        path_gradients(
            model.read, model.embedding.weight, model.head.weight, torch.tensor([[1]]), torch.tensor([[2]])
        )
    assert all(one.grad is None for one in model.parameters())


def test_touched_rows_are_counted():
    assert touched_rows(torch.tensor([[3, 0], [3, 1]]), 5).tolist() == [1, 1, 0, 2, 0]
    assert touched_rows(torch.tensor([], dtype=torch.long), 3).tolist() == [0, 0, 0]
    with refused("ids must be in 0 … 4", 5):
        touched_rows(torch.tensor([5]), 5)


# ---- neighbours ---------------------------------------------------------------------------------------------------


def test_neighbours_are_those_of_a_plain_loop():
    rows = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    plain = sorted(
        ((i, float(rows[i] @ rows[3] / (rows[i].norm() * rows[3].norm()))) for i in range(30) if i != 3),
        key=lambda pair: -pair[1],
    )[:4]
    found = neighbours(rows, rows[3], 4, without=[3])
    assert [i for i, _ in found] == [i for i, _ in plain]
    assert [c for _, c in found] == pytest.approx([c for _, c in plain], abs=1e-6)


def test_a_row_of_length_nought_has_cosine_nought():
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert neighbours(rows, rows[1], 3) == [(1, pytest.approx(1.0)), (0, 0.0), (2, pytest.approx(-1.0))]


@pytest.mark.parametrize("n", [0, 3])
def test_as_many_neighbours_as_there_are_rows_at_most(n):
    with refused("n must be in 1 … 2", n):
        neighbours(torch.eye(3), torch.ones(3), n, without=[0])
