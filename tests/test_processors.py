import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course import (
    SamplingParams,
    apply_temperature,
    filter_min_p,
    filter_top_k,
    filter_top_p,
    penalize_frequency,
    penalize_presence,
    penalize_repetition,
    process_logits,
)
from lmhead_course.processors import pick_top_k
from tests.oracle import kept_ids
from tests.strategies import batches, quick
from tests.typecheck import refused

INF = math.inf
IDS = [0, 2, 2]

PROCESSORS = {
    "temperature": lambda logits: apply_temperature(logits, 0.625),
    "temperature 0": lambda logits: apply_temperature(logits, 0),
    "top-k": lambda logits: filter_top_k(logits, 2),
    "top-p": lambda logits: filter_top_p(logits, 0.8125),
    "min-p": lambda logits: filter_min_p(logits, 0.1875),
    "repetition": lambda logits: penalize_repetition(logits, 1.5, prompt=ids_like(logits)),
    "presence": lambda logits: penalize_presence(logits, 0.5, generated=ids_like(logits)),
    "frequency": lambda logits: penalize_frequency(logits, 0.5, generated=ids_like(logits)),
}
OFF = {
    "temperature": lambda logits: apply_temperature(logits, 1),
    "top-k 0": lambda logits: filter_top_k(logits, 0),
    "top-k V": lambda logits: filter_top_k(logits, logits.shape[-1]),
    "top-k above V": lambda logits: filter_top_k(logits, 10**9),
    "top-p": lambda logits: filter_top_p(logits, 1),
    "min-p": lambda logits: filter_min_p(logits, 0),
    "repetition": lambda logits: penalize_repetition(logits, 1, prompt=ids_like(logits)),
    "repetition of nothing": lambda logits: penalize_repetition(logits, 1.5),
    "presence": lambda logits: penalize_presence(logits, 0, generated=ids_like(logits)),
    "presence of nothing": lambda logits: penalize_presence(logits, 0.5),
    "frequency": lambda logits: penalize_frequency(logits, 0, generated=ids_like(logits)),
    "frequency of nothing": lambda logits: penalize_frequency(logits, 0.5),
}
each = pytest.mark.parametrize("process", PROCESSORS.values(), ids=PROCESSORS.keys())


def ids_like(logits: torch.Tensor) -> torch.Tensor:
    """The same few ids for every row."""
    if logits.ndim == 0:
        return torch.tensor([0])
    ids = torch.tensor([i for i in IDS if i < logits.shape[-1]], dtype=torch.int64)
    return ids.expand(*logits.shape[:-1], len(ids))


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities).log()


# ---- what all of them promise -------------------------------------------------------------------------------


@each
@quick
@given(batches())
def test_the_argument_is_not_changed_and_the_result_is_a_tensor_of_its_own(process, logits):
    before = logits.clone()
    process(logits).fill_(7)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("process", OFF.values(), ids=OFF.keys())
@quick
@given(batches())
def test_a_processor_that_is_off_returns_an_equal_copy(process, logits):
    result = process(logits)
    assert torch.equal(result, logits)
    assert result.data_ptr() != logits.data_ptr() or logits.numel() == 0


@pytest.mark.parametrize("process", OFF.values(), ids=OFF.keys())
def test_a_processor_that_is_off_keeps_tokens_that_are_too_rare_for_any_sum(process):
    logits = torch.tensor([[0.0, -50.0, -200.0, -3e38, -INF]])
    assert torch.equal(process(logits), logits)


@each
@quick
@given(batches())
def test_a_batch_is_its_rows(process, logits):
    assert torch.equal(process(logits), torch.stack([process(row) for row in logits]))


@each
def test_there_may_be_any_number_of_leading_axes_and_empty_ones(process):
    logits = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(process(logits), process(logits.reshape(6, 4)).reshape(2, 3, 4))
    assert process(torch.zeros(2, 0, 4)).shape == (2, 0, 4)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes_are_computed_in_float32(process, dtype):
    logits = torch.tensor([[3.0, 1.0, 2.0, -4.0], [2.0, 2.0, -1.0, 0.0]])
    result = process(logits.to(dtype))
    assert result.dtype == torch.float32
    assert torch.equal(result, process(logits))


@each
def test_float64_stays(process):
    logits = torch.tensor([0.1, 0.7, -0.3], dtype=torch.float64)
    assert process(logits).dtype == torch.float64


@each
def test_views_that_are_transposed_or_expanded_give_the_same(process):
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(process(logits.T), process(logits.T.contiguous()))
    expanded = logits[:, 0].expand(4, 5)
    assert torch.equal(process(expanded), process(expanded.contiguous()))


@each
@quick
@given(batches())
def test_a_dropped_token_stays_dropped_and_at_least_one_stays_kept(process, logits):
    result = process(logits)
    assert result[logits == -INF].eq(-INF).all()
    assert result.amax(dim=-1).isfinite().all()


@pytest.mark.parametrize("name", ["temperature", "top-k", "top-p", "min-p"])
@quick
@given(batches(), st.integers(-50, 50))
def test_adding_a_constant_changes_no_probability(name, logits, shift):
    moved, still = PROCESSORS[name](logits + shift), PROCESSORS[name](logits)
    torch.testing.assert_close(moved.softmax(-1), still.softmax(-1), rtol=1e-4, atol=1e-6)


@each
@pytest.mark.parametrize("size", [1e4, -1e4, 3e38, -3e38])
def test_huge_logits_give_no_nan(process, size):
    probabilities = process(torch.tensor([size, 0.0, size / 2, -size])).softmax(-1)
    assert probabilities.sum().item() == pytest.approx(1)


@each
@pytest.mark.parametrize(
    ("logits", "words"),
    [
        (torch.tensor([[0.0, 1.0], [-INF, -INF]]), ("all −inf", "[[1]]")),
        (torch.tensor([[0.0, INF], [0.0, 1.0]]), ("+inf", "[[0]]")),
        (torch.tensor([math.nan, 1.0]), ("NaN", "the only one")),
        (torch.tensor(1.0), ("logits", "()")),
        (torch.zeros(2, 0), ("d_vocab ≥ 1", "(2, 0)")),
    ],
    ids=["a row of -inf", "+inf", "NaN", "no axis", "no tokens"],
)
def test_logits_without_a_softmax_are_refused_and_the_rows_named(process, logits, words):
    with refused("logits", *words):
        process(logits)


# ---- temperature --------------------------------------------------------------------------------------------


def test_temperature_two_is_the_softmax_of_half_the_logits():
    logits = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
    torch.testing.assert_close(apply_temperature(logits, 2).softmax(-1), (logits / 2).softmax(-1))


@quick
@given(batches(holes=False), st.floats(1e-3, 1e3))
def test_temperature_keeps_the_order(logits, temperature):
    by_logit = logits.argsort(dim=-1)
    assert (apply_temperature(logits, temperature).gather(-1, by_logit).diff(dim=-1) >= 0).all()


def test_temperature_zero_keeps_the_largest_logit_and_the_lowest_id_among_equals():
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0], [-5.0, -INF, -5.0, -6.0]])
    expected = [[-INF, 3.0, -INF, -INF], [-5.0, -INF, -INF, -INF]]
    assert apply_temperature(logits, 0).tolist() == expected


def test_float16_logits_at_a_tiny_temperature_are_one_hot():
    logits = torch.tensor([11.06, 11.0, 3.0], dtype=torch.float16)
    assert apply_temperature(logits, 1e-4).softmax(-1).tolist() == [1, 0, 0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-38, 1e-4])
@pytest.mark.parametrize("shift", [0.0, 20.0, -20.0])
def test_a_tiny_temperature_is_greedy_but_drops_no_token(temperature, shift):
    scaled = apply_temperature(torch.tensor([1.0, 3.0, -INF, -2.0, 3.0]) + shift, temperature)
    assert scaled.softmax(-1).tolist() == [0, 0.5, 0, 0, 0.5]
    assert kept_ids(scaled) == {0, 1, 3, 4}


@pytest.mark.parametrize("temperature", [1e10, 1e38, 1e300])
def test_a_huge_temperature_is_even_among_the_tokens_that_are_left(temperature):
    scaled = apply_temperature(torch.tensor([1.0, 3.0, -INF, -2.0]), temperature)
    assert scaled.softmax(-1).tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


# ---- top-k --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "k", "kept"),
    [
        ([1, 2, 2, 2, 3], 2, {1, 4}),
        ([1, 2, 2, 2, 3], 3, {1, 2, 4}),
        ([5, 5, 5, 5], 1, {0}),
        ([5, 5, 5, 5], 3, {0, 1, 2}),
        ([-INF, 1, -INF, 0], 3, {1, 3}),
        ([0.1, 0.4, 0.2, 0.3], 1, {1}),
    ],
)
def test_top_k_keeps_exactly_k_and_the_lowest_ids_win_ties(logits, k, kept):
    assert kept_ids(filter_top_k(torch.tensor(logits), k)) == kept


def test_top_k_keeps_exactly_k_of_float16_logits_full_of_ties():
    logits = torch.randn(4, 50_000, generator=torch.Generator().manual_seed(0)).half()
    assert filter_top_k(logits, 50).isfinite().sum(dim=-1).tolist() == [50] * 4


@pytest.mark.parametrize("k", [1, 2, 7, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.3, 2.5])
def test_a_quick_pick_of_the_largest_is_what_the_filter_keeps_behind_the_temperature(k, temperature):
    logits = torch.randperm(3 * 800, generator=torch.Generator().manual_seed(0)).view(3, 800) / 8
    values, ids = pick_top_k(logits, k, temperature)
    kept = filter_top_k(apply_temperature(logits, temperature), k)
    assert torch.equal(torch.full_like(logits, -INF).scatter(-1, ids, values), kept)
    assert torch.equal(ids, ids.sort(dim=-1).values)


def test_there_is_no_quick_pick_where_one_row_has_equals_on_both_sides_of_the_cut():
    logits = torch.arange(1600.0).view(2, 800)
    logits[1, [3, 700]] = 2000
    assert pick_top_k(logits, 1) is None
    assert pick_top_k(logits, 2)[1][1].tolist() == [3, 700]


def test_there_is_no_quick_pick_where_a_temperature_makes_the_logits_at_the_cut_equal():
    logits = torch.zeros(800)
    logits[[700, 3]] = torch.tensor([3e-45, 1.5e-45])  # the two smallest numbers: a fifth of each is 0
    assert pick_top_k(logits, 1)[1].tolist() == [700]
    assert pick_top_k(logits, 1, temperature=5.0) is None


@pytest.mark.parametrize(
    ("k", "temperature", "pays"),
    [(1, 1, True), (100, 1, True), (101, 1, False), (0, 1, False), (1, 0, False)],
)
def test_a_quick_pick_is_made_up_to_an_eighth_of_the_vocabulary_and_not_at_temperature_zero(
    k, temperature, pays
):
    logits = torch.randperm(800, generator=torch.Generator().manual_seed(0)).float()
    assert (pick_top_k(logits, k, temperature) is not None) is pays


# ---- top-p --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probabilities", "p", "kept"),
    [
        ([0.3, 0.1, 0.1, 0.5], 0.75, {0, 3}),
        ([0.1, 0.2, 0.3, 0.4], 0.65, {2, 3}),
        ([0.1, 0.2, 0.3, 0.4], 0.75, {1, 2, 3}),
        ([0.4, 0.3, 0.2, 0.1], 0.8, {0, 1, 2}),
        ([0.4, 0.3, 0.2, 0.1], 0.0, {0}),
        ([0.4, 0.3, 0.2, 0.1], 1.0, {0, 1, 2, 3}),
        ([0.4, 0.3, 0.2, 0.1], 0.399, {0}),
        ([0.4, 0.3, 0.2, 0.1], 0.401, {0, 1}),
    ],
)
def test_top_p_keeps_the_token_that_crosses_the_line(probabilities, p, kept):
    assert kept_ids(filter_top_p(logits_of(*probabilities), p)) == kept


@pytest.mark.parametrize(("p", "kept"), [(0.5, {0}), (0.75, {0, 1}), (0.875, {0, 1, 2})])
def test_top_p_stops_where_the_mass_is_exactly_p(p, kept):
    assert kept_ids(filter_top_p(logits_of(0.5, 0.25, 0.125, 0.125), p)) == kept


@pytest.mark.parametrize(("p", "kept"), [(0.0, {0}), (0.25, {0}), (0.26, {0, 1}), (0.75, {0, 1, 2})])
def test_top_p_takes_equal_tokens_from_the_lowest_id_up(p, kept):
    assert kept_ids(filter_top_p(torch.zeros(4), p)) == kept


def test_top_p_counts_the_mass_of_the_tokens_that_are_left():
    assert kept_ids(filter_top_p(logits_of(0.1, 0.2, 0.3, 0.4), 0.5)) == {2, 3}
    assert kept_ids(filter_top_p(logits_of(0.0, 0.0, 0.3, 0.4), 0.5)) == {3}


def test_top_p_is_not_moved_by_the_rounding_of_long_sums():
    # A sum in float32 cannot grow by tokens of 2.5e-8 one at a time: near 1 its steps are five of them.
    logits = torch.full((200_000,), math.log(2.5e-8))
    logits[0] = 0
    weights = logits.double().exp()
    for kept in range(100_001, 100_006):
        p = (weights[: kept - 1].sum() + weights[-1] / 2) / weights.sum()
        assert len(kept_ids(filter_top_p(logits, p.item()))) == kept


# ---- min-p --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("min_p", "kept"),
    [(0.0, {0, 1, 2, 3}), (0.25, {0, 1, 2, 3}), (0.26, {0, 1}), (0.5, {0, 1}), (0.51, {0}), (1.0, {0})],
)
def test_min_p_keeps_what_is_at_least_that_share_of_the_best(min_p, kept):
    assert kept_ids(filter_min_p(logits_of(0.5, 0.25, 0.125, 0.125), min_p)) == kept


def test_min_p_one_keeps_the_best_and_its_equals():
    assert kept_ids(filter_min_p(torch.tensor([2.0, 1.0, 2.0]), 1)) == {0, 2}


def test_min_p_keeps_many_on_a_flat_row_and_few_on_a_peaked_one():
    rows = torch.tensor([[1.0, 0.9, 0.8, 0.7], [9.0, 1.0, 0.9, 0.8]])
    assert filter_min_p(rows, 0.1).isfinite().sum(dim=-1).tolist() == [4, 1]


# ---- penalties ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logit", "penalty", "expected"),
    [(-1.0, 1.5, -1.5), (4.0, 1.5, 4 / 1.5), (0.0, 1.5, 0.0), (4.0, 0.5, 8.0), (-4.0, 0.5, -2.0)],
)
def test_repetition_divides_positive_logits_and_multiplies_negative_ones(logit, penalty, expected):
    result = penalize_repetition(torch.tensor([logit, 1.0]), penalty, prompt=[0])
    assert result.tolist() == pytest.approx([expected, 1.0])


def test_repetition_counts_a_token_once_however_often_it_came_and_where():
    logits = torch.tensor([4.0, 4.0, 4.0])
    result = penalize_repetition(logits, 1.5, prompt=[0, 0], generated=[0, 1])
    assert result.tolist() == pytest.approx([2.667, 2.667, 4], abs=5e-4)


def test_presence_is_subtracted_once_from_a_token_that_was_generated():
    result = penalize_presence(torch.tensor([4.0, -1.0, 2.0]), 0.75, generated=[0, 0, 1])
    assert result.tolist() == [3.25, -1.75, 2]


def test_frequency_is_subtracted_as_often_as_a_token_was_generated():
    result = penalize_frequency(torch.tensor([4.0, -1.0, 2.0]), 0.75, generated=[0, 0, 1])
    assert result.tolist() == [2.5, -1.75, 2]


PENALTIES = {
    "repetition": lambda logits, ids, penalty=1.5: penalize_repetition(logits, penalty, generated=ids),
    "presence": lambda logits, ids, penalty=1.5: penalize_presence(logits, penalty, generated=ids),
    "frequency": lambda logits, ids, penalty=1.5: penalize_frequency(logits, penalty, generated=ids),
}
each_penalty = pytest.mark.parametrize("penalize", PENALTIES.values(), ids=PENALTIES.keys())


@each_penalty
def test_negative_ids_are_padding(penalize):
    logits = torch.tensor([[4.0, 1.0, -2.0], [4.0, 1.0, -2.0]])
    padded = torch.tensor([[-1, -1, 2], [2, -100, -1]])
    assert torch.equal(penalize(logits, padded), penalize(logits, torch.tensor([[2], [2]])))


@each_penalty
def test_the_ids_of_one_row_do_not_reach_another(penalize):
    result = penalize(torch.full((2, 3), 4.0), torch.tensor([[0], [1]]))
    assert (result != 4).tolist() == [[True, False, False], [False, True, False]]


@each_penalty
def test_ids_of_padding_only_or_none_at_all_count_nothing(penalize):
    logits = torch.tensor([[4.0, -1.0]])
    assert torch.equal(penalize(logits, torch.tensor([[-1, -1]])), logits)
    assert torch.equal(penalize(logits, torch.zeros(1, 0, dtype=torch.int64)), logits)
    assert torch.equal(penalize(logits[0], []), logits[0])


@each_penalty
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8])
@pytest.mark.parametrize("d_vocab", [101, 300, 49_152])
def test_ids_may_have_any_integer_dtype_also_one_too_small_to_count_the_vocabulary(penalize, d_vocab, dtype):
    logits, ids = torch.randn(d_vocab, generator=torch.Generator().manual_seed(0)), [2, 100, -1, 100]
    assert torch.equal(penalize(logits, torch.tensor(ids, dtype=dtype)), penalize(logits, ids))


@each_penalty
@pytest.mark.parametrize("penalty", [1e-320, 1e-38, 1e38, 1e300])
def test_an_extreme_penalty_neither_drops_a_token_nor_makes_nan(penalize, penalty):
    result = penalize(torch.tensor([4.0, 0.0, -4.0, 1.0, -INF]), [0, 0, 1, 2, 4], penalty)
    assert kept_ids(result) == {0, 1, 2, 3}
    assert result[3] == 1


@each_penalty
def test_a_strong_penalty_sends_a_token_to_the_end_of_the_ranking(penalize):
    assert penalize(torch.tensor([4.0, 0.5, 1.0, -0.25]), [0, 3, 3], 1e30).argsort().tolist()[-1] == 2


BAD_IDS = {
    "too large": (torch.tensor([[0], [3]]), ("3", "d_vocab = 3")),
    "a row too many": (torch.zeros(3, 1, dtype=torch.int64), ("(2, 'n')", "(3, 1)")),
    "one row for all": (torch.zeros(1, 1, dtype=torch.int64), ("(2, 'n')", "(1, 1)")),
    "no rows": ([0, 1], ("(2, 'n')", "(2,)")),
    "an axis too many": (torch.zeros(2, 2, 1, dtype=torch.int64), ("(2, 'n')", "(2, 2, 1)")),
    "no integers": (torch.zeros(2, 1), ("integer", "float32")),
    "truth values": (torch.zeros(2, 1, dtype=torch.bool), ("integer", "bool")),
    "complex numbers": (torch.zeros(2, 1, dtype=torch.complex64), ("integer", "complex64")),
}


@each_penalty
@pytest.mark.parametrize(("ids", "words"), BAD_IDS.values(), ids=BAD_IDS.keys())
def test_ids_that_do_not_fit_are_refused_by_the_name_of_the_argument(penalize, ids, words):
    with refused("generated", *words):
        penalize(torch.zeros(2, 3), ids)


@each_penalty
def test_ids_of_other_rows_are_refused_with_every_axis_of_the_shape_that_is_wanted(penalize):
    with refused("generated", "(2, 3, 'n')", "(2, 1, 5)"):
        penalize(torch.zeros(2, 3, 4), torch.zeros(2, 1, 5, dtype=torch.int64))


def test_prompt_ids_that_do_not_fit_are_called_prompt():
    with refused("prompt", "7", "d_vocab = 3"):
        penalize_repetition(torch.zeros(3), 1.5, prompt=[7], generated=[0])


@pytest.mark.parametrize(
    ("processor", "value", "name"),
    [
        (apply_temperature, -1, "temperature"),
        (apply_temperature, math.nan, "temperature"),
        (filter_top_k, -1, "top_k"),
        (filter_top_k, 2.5, "top_k"),
        (filter_top_p, -0.5, "top_p"),
        (filter_top_p, 1.5, "top_p"),
        (filter_top_p, math.nan, "top_p"),
        (filter_min_p, 1.5, "min_p"),
        (filter_min_p, math.nan, "min_p"),
        (penalize_repetition, 0, "repetition_penalty"),
        (penalize_repetition, -1.0, "repetition_penalty"),
        (penalize_presence, math.inf, "presence_penalty"),
        (penalize_frequency, math.nan, "frequency_penalty"),
    ],
)
def test_a_processor_alone_refuses_what_the_settings_refuse(processor, value, name):
    with refused(name, repr(value)):
        processor(torch.tensor([1.0, 2.0]), value)


# ---- gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["top-k", "top-p", "min-p"])
def test_a_filter_passes_gradients_through_the_tokens_that_it_keeps_and_no_others(name):
    logits = torch.tensor([[2.0, 1.0, 1.0, -3.0], [0.5, 0.0, -INF, 4.0]], requires_grad=True)
    result = PROCESSORS[name](logits)
    result.masked_fill(result == -INF, 0.0).sum().backward()
    assert torch.equal(logits.grad, result.isfinite().float())


@each
def test_logits_made_in_inference_mode_are_processed_like_any_other(process):
    logits = torch.tensor([[2.0, 1.0, 1.0, -3.0], [0.5, 0.0, -INF, 4.0]])
    with torch.inference_mode():
        inferred = process(logits * 1)
    assert torch.equal(inferred, process(logits))


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int64])
def test_a_k_of_any_integer_type_counts_as_far_as_it_goes(kind):
    k = min(np.iinfo(kind).max, 300)
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    assert process_logits(logits, SamplingParams(top_k=kind(k))).isfinite().sum() == k


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty"])
def test_a_setting_may_be_any_real_number_a_fraction_too(name):
    logits, ids = torch.randn(50, generator=torch.Generator().manual_seed(0)), torch.tensor([1, 2])
    exact, same = (SamplingParams(**{name: value}) for value in (Fraction(1, 2), 0.5))
    assert torch.equal(
        process_logits(logits, exact, generated=ids), process_logits(logits, same, generated=ids)
    )
