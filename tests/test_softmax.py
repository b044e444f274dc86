import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course import (
    chi_square,
    entropy,
    gumbel_max,
    log_softmax,
    logsumexp,
    online_normaliser,
    perplexity,
    softmax_naive,
    softmax_online,
    spacing,
)
from lmhead_course.softmax import softmax
from tests.strategies import batches, quick

STABLE = [softmax, softmax_online, lambda logits: log_softmax(logits).exp()]
stable = pytest.mark.parametrize("form", STABLE, ids=["softmax", "online", "exp of log_softmax"])

TOY = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
TOY_TABLE = {
    0.5: [4.67, 0.94, 93.75, 0.13, 0.52],
    1: [15.55, 6.99, 69.71, 2.57, 5.18],
    1.5: [19.66, 11.53, 53.44, 5.92, 9.44],
}


@stable
@pytest.mark.parametrize(("temperature", "percent"), TOY_TABLE.items())
def test_the_toy_table_comes_out_to_the_printed_digits(form, temperature, percent):
    assert (100 * form(TOY / temperature)).tolist() == pytest.approx(percent, abs=0.005)


@stable
@quick
@given(batches())
def test_rows_sum_to_one_and_are_those_of_pytorch(form, logits):
    probabilities = form(logits)
    torch.testing.assert_close(probabilities.sum(dim=-1), torch.ones(len(logits)))
    torch.testing.assert_close(probabilities, torch.softmax(logits, dim=-1))


@stable
@quick
@given(batches(), st.integers(-1000, 1000))
def test_adding_a_constant_changes_no_probability(form, logits, shift):
    torch.testing.assert_close(form(logits + shift), form(logits))


@stable
@quick
@given(batches())
def test_a_larger_logit_never_has_a_smaller_probability(form, logits):
    by_logit = logits.argsort(dim=-1)
    assert (form(logits).gather(-1, by_logit).diff(dim=-1) >= 0).all()


@stable
def test_logits_of_ten_thousand_either_way_are_no_trouble(form):
    logits = torch.tensor([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4 + 1]])
    expected = [[1, 0, 0], [1 / (2 + math.e), 1 / (2 + math.e), math.e / (2 + math.e)]]
    torch.testing.assert_close(form(logits), torch.tensor(expected))


@stable
def test_a_dropped_token_has_probability_zero_and_the_others_share_its_mass(form):
    logits = torch.tensor([0.0, -math.inf, 0.0])
    assert form(logits).tolist() == pytest.approx([0.5, 0.0, 0.5])
    assert form(logits)[1] == 0


@stable
def test_the_argument_is_not_changed(form):
    logits = TOY.clone()
    form(logits)
    assert torch.equal(logits, TOY)


@stable
def test_an_empty_batch_stays_empty(form):
    assert form(torch.zeros(2, 0, 7)).shape == (2, 0, 7)


@stable
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_stays(form, dtype):
    probabilities = form(TOY.to(dtype))
    assert probabilities.dtype == dtype
    torch.testing.assert_close(probabilities.float(), TOY.softmax(-1), rtol=0.02, atol=1e-3)


@stable
def test_a_view_that_is_not_contiguous_gives_the_same(form):
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(form(logits.T), form(logits.T.contiguous()))


def test_the_naive_form_agrees_while_exp_is_in_range():
    torch.testing.assert_close(softmax_naive(TOY), softmax(TOY))
    assert softmax_naive(torch.tensor([88.7, 0.0])).isfinite().all()


@pytest.mark.parametrize("logits", [[88.8, 0.0], [1000.0, 1000.0], [-200.0, -200.0]])
def test_the_naive_form_breaks_where_exp_leaves_the_range_and_the_right_one_does_not(logits):
    logits = torch.tensor(logits)
    assert softmax_naive(logits).isnan().any()
    torch.testing.assert_close(softmax(logits), torch.softmax(logits, dim=-1))


@pytest.mark.parametrize("chunk", [4096, 65_537, 2_000_000])
def test_one_pass_over_a_million_logits_equals_two(chunk):
    logits = 5 * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax_online(logits, chunk), softmax(logits), rtol=1e-5, atol=0)


@quick
@given(batches(), st.integers(1, 12))
def test_the_size_of_the_chunks_changes_nothing(logits, chunk):
    peak, total = online_normaliser(logits, chunk)
    assert torch.equal(peak, logits.amax(dim=-1))
    torch.testing.assert_close(peak + total.log(), torch.logsumexp(logits, dim=-1))


@pytest.mark.parametrize("logits", [[0.0, 50.0, 1000.0], [1000.0, 50.0, 0.0], [-math.inf, -math.inf, 1000.0]])
def test_the_running_sum_is_rescaled_when_a_larger_logit_comes(logits):
    peak, total = online_normaliser(torch.tensor(logits), chunk=1)
    assert (peak.item(), total.item()) == (1000, 1)


@quick
@given(batches())
def test_logsumexp_is_that_of_pytorch(logits):
    torch.testing.assert_close(logsumexp(logits), torch.logsumexp(logits, dim=-1))


@pytest.mark.parametrize("size", [1e4, -1e4, 3e38, -3e38])
def test_logsumexp_neither_overflows_nor_underflows(size):
    assert logsumexp(torch.tensor([size, size])).item() == pytest.approx(size + math.log(2))


def test_a_row_without_any_token_has_no_mass():
    nothing = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]])
    assert logsumexp(nothing).tolist() == [-math.inf, 0]
    peak, total = online_normaliser(nothing, chunk=1)
    assert peak.tolist() == [-math.inf, 0]
    assert total.tolist() == [0, 1]


def test_log_softmax_still_tells_tokens_apart_whose_probability_is_zero_in_float32():
    logits = torch.tensor([0.0, -200.0, -300.0, -math.inf])
    assert softmax(logits).tolist() == [1, 0, 0, 0]
    assert log_softmax(logits).tolist() == [0, -200, -300, -math.inf]


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_an_even_distribution_has_the_logarithm_of_its_size_as_entropy(size):
    even = torch.full((size,), 1 / size)
    assert entropy(even).item() == pytest.approx(math.log(size), abs=1e-5)
    assert entropy(even, base=2).item() == pytest.approx(math.log2(size), abs=1e-5)
    assert perplexity(even).item() == pytest.approx(size, rel=1e-5)


def test_entropy_by_hand():
    halves = torch.tensor([0.5, 0.25, 0.25])
    assert entropy(halves, base=2).item() == pytest.approx(1.5)
    assert entropy(halves).item() == pytest.approx(1.5 * math.log(2))
    assert perplexity(halves).item() == pytest.approx(2**1.5)


def test_a_certain_token_has_no_entropy_and_the_zeros_beside_it_add_nothing():
    certain = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    assert entropy(certain, base=2).tolist() == pytest.approx([0, 1])
    assert perplexity(certain).tolist() == pytest.approx([1, 2])


@quick
@given(batches())
def test_the_effective_number_of_candidates_lies_between_one_and_all(logits):
    candidates = perplexity(softmax(logits))
    assert (candidates >= 1 - 1e-5).all()
    assert (candidates <= logits.isfinite().sum(dim=-1) * (1 + 1e-5)).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_argmax_of_logits_and_gumbel_noise_is_a_sample_of_the_softmax(temperature):
    logits = (TOY / temperature).expand(50_000, 5)
    drawn = gumbel_max(logits, torch.Generator().manual_seed(0))
    assert chi_square(torch.bincount(drawn, minlength=5), softmax(TOY / temperature)).p_value > 1e-3


def test_gumbel_max_draws_a_token_a_row_and_never_a_dropped_one():
    logits = torch.tensor([0.0, -math.inf, 0.0]).expand(4, 500, 3)
    drawn = gumbel_max(logits, torch.Generator().manual_seed(0))
    assert drawn.shape == (4, 500)
    assert set(drawn.flatten().tolist()) == {0, 2}


def test_gumbel_max_reaches_tokens_far_below_the_best():
    # float32's noise ends at 16.6: a token 18 below the best could win only when all others draw badly.
    logits = torch.cat([torch.tensor([18.0]), torch.zeros(200_000)])
    drawn = gumbel_max(logits.expand(300, -1), torch.Generator().manual_seed(0))
    expected = 300 * (1 - softmax(logits.double())[0].item())
    assert int((drawn > 0).sum()) == pytest.approx(expected, abs=1 + 4 * expected**0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [1.0, 1.5, 2.0, 17.37, -110.0, 1e-3])
def test_the_spacing_is_the_distance_to_the_next_number_of_the_format(dtype, value):
    there = torch.tensor(abs(value), dtype=dtype)
    step = spacing(torch.tensor([value]), dtype).item()
    assert (
        step == (torch.nextafter(there, torch.tensor(math.inf, dtype=dtype)).double() - there.double()).item()
    )


def test_the_spacing_of_float16_by_hand():
    sizes = torch.tensor([1.0, 17.0, 31.9, 32.0, 0.0])
    assert spacing(sizes, torch.float16).tolist() == [2**-10, 2**-6, 2**-6, 2**-5, 2**-24]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_vocabulary_of_equal_half_precision_logits_still_sums_to_one(dtype):
    probabilities = softmax(torch.zeros(262_144, dtype=dtype))
    assert probabilities.dtype == dtype
    assert probabilities.double().sum().item() == pytest.approx(1, abs=1e-3)


def test_logsumexp_of_many_equal_half_precision_logits_is_finite():
    assert logsumexp(torch.zeros(70_000, dtype=torch.float16)).item() == pytest.approx(math.log(70_000), 1e-3)


def test_the_naive_form_takes_each_row_by_itself():
    rows = torch.tensor([[0.0, 1.0, 2.0], [5.0, 1.0, -3.0]])
    torch.testing.assert_close(softmax_naive(rows), torch.softmax(rows, dim=-1))


@pytest.mark.parametrize(("below", "wins"), [(26.0, 1), (29.0, 0)])
def test_gumbel_noise_is_as_large_as_a_uniform_number_in_double_precision_makes_it(monkeypatch, below, wins):
    # −ln(−ln(1 − 10⁻¹²)) = 27.6; in float32 that number is 1, whose noise has no end.
    drawn = torch.tensor([math.exp(-1), 1 - 1e-12], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, **_: drawn.to(dtype))
    assert gumbel_max(torch.tensor([0.0, -below])).item() == wins


def test_gumbel_max_cannot_draw_a_dropped_token_even_when_the_random_number_is_zero(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, **_: torch.zeros(shape, dtype=dtype))
    assert gumbel_max(torch.tensor([-math.inf, 0.0])).item() == 1


def test_gumbel_max_draws_the_same_with_the_same_seed_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    first, again = (gumbel_max(TOY.expand(50, 5), torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_gumbel_noise_is_made_on_the_device_of_the_logits():
    assert gumbel_max(torch.zeros(4, 3, device="meta")).device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_spacing_is_given_in_double_precision_whatever_the_values_are_in(dtype):
    steps = spacing(torch.tensor([1.0, 3.0], dtype=dtype), torch.float32)
    assert steps.dtype == torch.float64
    assert steps.tolist() == [2**-23, 2**-22]


def test_the_spacing_is_never_below_the_smallest_subnormal_number():
    assert spacing(torch.tensor([1e-45, -3e-42, 2**-126]), torch.float32).tolist() == [2**-149] * 3
