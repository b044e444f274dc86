import pytest
import torch
from torch import nn

from lmhead_course import LMHead, last_position, length_and_angle, unembed
from tests.typecheck import refused

D_MODEL, D_VOCAB = 5, 11


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def weight():
    return numbers(D_VOCAB, D_MODEL, seed=1)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (2, 1, 4)])
def test_a_head_gives_one_logit_a_token_for_hidden_states_of_any_shape(weight, shape):
    assert LMHead(weight)(numbers(*shape, D_MODEL)).shape == (*shape, D_VOCAB)


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_head_equals_the_linear_layer_it_was_taken_from(with_bias):
    layer = nn.Linear(D_MODEL, D_VOCAB, bias=with_bias)
    hidden = numbers(2, 3, D_MODEL)
    torch.testing.assert_close(LMHead(layer.weight, layer.bias)(hidden), layer(hidden))


def test_a_logit_is_the_dot_product_with_the_row_of_its_token(weight):
    hidden = numbers(D_MODEL)
    by_hand = sum(h * w for h, w in zip(hidden.tolist(), weight[7].tolist(), strict=True))
    assert unembed(hidden, weight)[7].item() == pytest.approx(by_hand, abs=1e-6)


def test_a_head_made_from_an_embedding_is_tied_to_it():
    embedding = nn.Embedding(D_VOCAB, D_MODEL)
    head = LMHead(embedding.weight)
    assert head.weight.data_ptr() == embedding.weight.data_ptr()
    with torch.no_grad():
        embedding.weight[3] = 1.0
    assert head(torch.ones(D_MODEL))[3].item() == pytest.approx(D_MODEL)


def test_training_through_a_tied_head_moves_the_embedding():
    embedding = nn.Embedding(D_VOCAB, D_MODEL)
    LMHead(embedding.weight)(numbers(2, D_MODEL)).logsumexp(-1).sum().backward()
    assert (embedding.weight.grad.abs().sum(dim=1) > 0).all()


def test_a_plain_tensor_becomes_a_weight_without_a_copy_and_without_a_gradient(weight):
    head = LMHead(weight)
    assert head.weight.data_ptr() == weight.data_ptr()
    assert not head.weight.requires_grad


def test_moving_a_head_to_another_dtype_takes_its_bias_along(weight):
    head = LMHead(weight, numbers(D_VOCAB)).to(torch.float64)
    assert head(numbers(D_MODEL).double()).dtype == torch.float64


def test_the_scale_multiplies_the_product_but_not_the_bias(weight):
    hidden, bias = numbers(3, D_MODEL), numbers(D_VOCAB, seed=2)
    expected = 0.25 * (hidden @ weight.T) + bias
    torch.testing.assert_close(LMHead(weight, bias, scale=0.25)(hidden), expected)


def test_a_soft_cap_holds_every_logit_inside_it_and_keeps_the_order(weight):
    hidden = 3 * numbers(4, D_MODEL)
    plain, capped = LMHead(weight)(hidden), LMHead(weight, soft_cap=5)(hidden)
    assert plain.abs().max() > 5
    assert capped.abs().max() < 5
    assert torch.equal(plain.argsort(dim=-1), capped.argsort(dim=-1))


def test_a_soft_cap_comes_last_and_is_c_times_the_tanh_of_the_logit_over_c(weight):
    hidden, bias = numbers(D_MODEL), numbers(D_VOCAB, seed=2)
    expected = 5 * torch.tanh((2 * (hidden @ weight.T) + bias) / 5)
    torch.testing.assert_close(unembed(hidden, weight, bias, scale=2, soft_cap=5), expected)


def test_a_soft_cap_far_above_the_logits_leaves_them_almost_alone(weight):
    hidden = numbers(D_MODEL)
    torch.testing.assert_close(unembed(hidden, weight, soft_cap=1e4), unembed(hidden, weight))


def test_a_head_tells_its_sizes_and_prints_them(weight):
    head = LMHead(weight, soft_cap=30.0)
    assert (head.d_vocab, head.d_model) == (D_VOCAB, D_MODEL)
    assert "d_model=5, d_vocab=11" in repr(head)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weight": torch.zeros(11)}, ("weight", "(11,)")),
        ({"weight": torch.zeros(2, 11, 5)}, ("weight", "(2, 11, 5)")),
        ({"weight": torch.zeros(11, 5), "bias": torch.zeros(5)}, ("bias", "(11,)", "(5,)")),
        ({"weight": torch.zeros(11, 5), "bias": torch.zeros(1, 11)}, ("bias", "(1, 11)")),
        ({"weight": torch.zeros(11, 5), "soft_cap": 0.0}, ("soft_cap", "0.0")),
        ({"weight": torch.zeros(11, 5), "soft_cap": -30.0}, ("soft_cap", "-30.0")),
        ({"weight": torch.zeros(11, 5), "soft_cap": float("nan")}, ("soft_cap", "nan")),
    ],
)
def test_a_head_that_cannot_be_is_refused_by_name(arguments, words):
    with refused(*words):
        LMHead(**arguments)


MASKS = {
    "no padding": ([1, 1, 1, 1], 3),
    "left": ([0, 0, 1, 1], 3),
    "right": ([1, 1, 0, 0], 1),
    "one token": ([1, 0, 0, 0], 0),
    "a hole": ([1, 0, 1, 0], 2),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_the_last_position_is_that_of_the_last_real_token_in_every_row(dtype):
    hidden = numbers(len(MASKS), 4, 3)
    mask = torch.tensor([mask for mask, _ in MASKS.values()]).to(dtype)
    expected = torch.stack([hidden[row, last] for row, (_, last) in enumerate(MASKS.values())])
    assert torch.equal(last_position(hidden, mask), expected)


def test_without_a_mask_the_last_position_is_the_end_of_every_row():
    hidden = numbers(2, 4, 3)
    assert torch.equal(last_position(hidden), hidden[:, 3])


def test_the_head_at_the_last_position_equals_the_last_row_of_the_head_everywhere(weight):
    hidden, head = numbers(2, 4, D_MODEL), LMHead(weight)
    torch.testing.assert_close(head(last_position(hidden)), head(hidden)[:, -1])


def test_an_empty_batch_has_no_last_positions():
    assert last_position(numbers(0, 4, 3), torch.ones(0, 4, dtype=torch.bool)).shape == (0, 3)


def test_a_row_of_padding_only_is_named():
    with refused("mask", "rows [1]"):
        last_position(numbers(3, 2, 4), torch.tensor([[1, 0], [0, 0], [1, 1]]))


def test_no_positions_have_no_last_one():
    with refused("hidden", "at least one position"):
        last_position(numbers(2, 0, 4))


def test_lengths_and_angles_of_rows_whose_place_is_known():
    lengths, angles = length_and_angle(
        torch.tensor([3.0, 0.0]), torch.tensor([[2.0, 0], [0, 5], [-1, 0], [1, 1]])
    )
    torch.testing.assert_close(lengths, torch.tensor([2.0, 5, 1, 2**0.5]))
    torch.testing.assert_close(angles, torch.tensor([0.0, 90, 180, 45]), atol=1e-3, rtol=0)


def test_length_length_and_cosine_multiply_to_the_logit(weight):
    hidden = numbers(D_MODEL)
    lengths, angles = length_and_angle(hidden, weight)
    product = hidden.norm() * lengths * torch.deg2rad(angles).cos()
    torch.testing.assert_close(product, unembed(hidden, weight), atol=1e-4, rtol=1e-4)


def test_a_row_or_a_hidden_state_of_no_length_stands_at_a_right_angle():
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    assert length_and_angle(torch.ones(2), rows)[1][0].item() == pytest.approx(90)
    assert length_and_angle(torch.zeros(2), rows)[1].tolist() == pytest.approx([90, 90])
