"""The largest, the order, and the place where a running sum reaches a line: each beside its definition in one line."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course import selection
from lmhead_course.selection import by_rows, descending, drop_below, exact_dtype, first_reaching, largest
from tests.adversarial import KINDS, Dice
from tests.strategies import quick

INF = math.inf
LENGTHS = [1, 2, 63, 64, 65, 256, 700, 1024, 1025, 1088, 1100, 2048, 5000]
"""Less than a block of 64, whole blocks, and a part of one; up to 16 blocks there is one running sum, above two."""
SHAPES = [(), (3,), (2, 3), (2, 1, 2)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def logits_of_every_kind(d_vocab: int):
    """A batch (3, d_vocab) of every kind of ``adversarial.py``, in float32."""
    for kind, make in KINDS.items():
        yield kind, make(Dice(d_vocab), 3, d_vocab).float().contiguous()


# ---- the largest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("k", [0, 1, 2, 4, 5, 16, 17])
def test_the_largest_values_are_those_of_a_plain_sort_also_among_ties_and_dropped_tokens(n, k):
    for kind, logits in logits_of_every_kind(n):
        k = min(k, n)
        expected = logits.sort(dim=-1, descending=True).values[..., :k]
        assert torch.equal(largest(logits, k)[0], expected), kind


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [50, 700, 5000])
def test_the_indices_of_the_largest_are_where_they_stand_and_none_comes_twice(shape, n):
    logits = torch.randint(40, (*shape, n), generator=seeded()).float()
    values, ids = largest(logits, 9)
    assert torch.equal(logits.gather(-1, ids), values)
    assert (ids.sort(dim=-1).values.diff(dim=-1) > 0).all()


@pytest.mark.parametrize("n", [64 * 40, 64 * 40 - 1, 64 * 40 - 63])
@pytest.mark.parametrize("k", [1, 10])
def test_the_largest_are_found_when_they_stand_together_and_when_they_stand_far_apart(n, k):
    for start, step in ((0, 1), (n - k, 1), (60, 1), (0, n // k), (n - 1 - (k - 1) * 64, 64)):
        logits = torch.randn(n, generator=seeded(1))
        places = torch.arange(k) * step + start
        logits[places] = 100 + torch.arange(float(k))
        assert largest(logits, k)[1].tolist() == places.flip(0).tolist()


def test_all_may_be_asked_for():
    logits = torch.randn(2, 3000, generator=seeded())
    values, ids = largest(logits, 3000)
    assert torch.equal(values, logits.sort(dim=-1, descending=True).values)
    assert torch.equal(ids.sort(dim=-1).values, torch.arange(3000).expand(2, -1))


# ---- the order ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", LENGTHS)
def test_descending_is_a_sort_that_ends_with_the_longest_row_of_finite_values(n):
    for kind, logits in logits_of_every_kind(n):
        most = int(logits.isfinite().sum(dim=-1).max())
        expected = logits.sort(dim=-1, descending=True).values[..., :most]
        assert torch.equal(descending(logits), expected), kind


def test_descending_keeps_the_shape_of_the_batch():
    logits = torch.randn(2, 1, 3, 40, generator=seeded())
    assert torch.equal(descending(logits), logits.sort(dim=-1, descending=True).values)


def test_descending_takes_a_view_and_leaves_it_as_it_was():
    logits = torch.randn(50, 4, generator=seeded())
    before = logits.clone()
    assert torch.equal(descending(logits.T), before.T.sort(dim=-1, descending=True).values)
    assert torch.equal(logits, before)


# ---- what is below a line -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 65, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_below_the_line_is_dropped_and_the_rest_stays_bit_for_bit(n, dtype):
    for kind, logits in logits_of_every_kind(n):
        logits = logits.to(dtype)
        for rank in {0, n // 3, n - 1}:
            last = logits.sort(dim=-1, descending=True).values[..., rank : rank + 1]
            got, expected = drop_below(logits, last), logits.masked_fill(logits < last, -INF)
            assert torch.equal(got, expected), kind
            np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(expected.numpy()))


def test_each_row_has_a_line_of_its_own():
    logits = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    assert drop_below(logits, torch.tensor([[2.0], [3.0]])).tolist() == [[-INF, 2, 3], [-INF, -INF, 3]]


@pytest.mark.parametrize("gradients", [False, True])
def test_dropping_leaves_the_argument_as_it_was(gradients):
    logits = torch.randn(4, 70, generator=seeded(), requires_grad=gradients)
    before = logits.detach().clone()
    drop_below(logits, torch.zeros(4, 1))
    assert torch.equal(logits, before)


def test_with_gradients_the_values_are_the_same():
    logits = torch.randn(4, 70, generator=seeded())
    last = torch.tensor([[0.0], [-1.0], [-INF], [logits[3].max()]])
    assert torch.equal(drop_below(logits.clone().requires_grad_(), last), drop_below(logits, last))


def test_gradients_pass_through_what_is_kept_and_are_zero_elsewhere():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0]], requires_grad=True)
    slopes = torch.tensor([[5.0, 6.0, 7.0, 8.0]])
    drop_below(logits, torch.tensor([[2.0]])).backward(slopes)
    assert logits.grad.tolist() == [[0, 6, 7, 8]]


# ---- the running sum ----------------------------------------------------------------------------------------------


def plainly(weights: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """The definition: the first index whose running sum, in float64, is above 0 and reaches the share of the total."""
    until = weights.double().cumsum(dim=-1)
    reached = (until >= share * until[..., -1:]) & (until > 0)
    return reached.int().argmax(dim=-1, keepdim=True)


def whole_weights(shape, zeros: float = 0.0, seed: int = 0) -> torch.Tensor:
    """Whole numbers, whose sums are exact in any order: then nothing may differ, not by one index."""
    weights = torch.randint(1, 50, shape, generator=seeded(seed)).float()
    weights *= torch.rand(shape, generator=seeded(seed + 1)) >= zeros
    weights[..., shape[-1] // 2] = 1
    return weights


SHARES = [0.0, 1e-300, 2**-53, 1e-9, 0.125, 0.5, 0.75, 1 - 2**-20, 1 - 2**-53, 1.0]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.99, 1.0])
def test_the_place_is_that_of_the_plain_running_sum(n, zeros):
    weights = whole_weights((40, n), zeros)
    for share in SHARES:
        assert torch.equal(first_reaching(weights, share), plainly(weights, torch.tensor(share).double()))


@pytest.mark.parametrize("n", [1, 64, 1000, 1024, 1025, 3000])
def test_a_line_on_a_running_sum_is_reached_there_and_one_just_above_it_at_the_next(n):
    # The total is a power of two: then share · total is exact.
    weights = torch.ones(n)
    weights[n // 3] += 4096 - n
    until = weights.double().cumsum(0)
    for at in {0, 1, n // 3, 63, 64, 65, 127, 128, 1023, n - 2}:
        if not 0 <= at < n - 1:
            continue
        share = (until[at] / 4096).item()
        assert first_reaching(weights, share).item() == at
        assert first_reaching(weights, math.nextafter(share, 1)).item() == at + 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [20, 1500])
def test_each_row_may_have_a_share_of_its_own(shape, n):
    weights = whole_weights((*shape, n), 0.3)
    share = torch.rand((*shape, 1), dtype=torch.float64, generator=seeded(5))
    found = first_reaching(weights, share)
    assert found.shape == (*shape, 1)
    assert torch.equal(found, plainly(weights, share))


@pytest.mark.parametrize("n", [7, 1024, 1025, 5000])
def test_the_place_never_has_a_weight_of_zero(n):
    for kind, logits in logits_of_every_kind(n):
        weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()  # far below the best they are 0
        weights[:, : n // 4] = 0
        weights[:, -1 - n // 4] += 1e-3
        weights[:, n - n // 4 :] = 0
        for share in SHARES:
            found = first_reaching(weights, share)
            assert (weights.gather(-1, found) > 0).all(), (kind, share)


@quick
@given(st.integers(1, 3000), st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1))
def test_a_lone_weight_is_found_wherever_it_stands(n, seed, place, share):
    weights = torch.zeros(2, n)
    at = min(n - 1, int(place * n))
    weights[0, at], weights[1, seed % n] = 1e-30, 1.0
    assert first_reaching(weights, share).tolist() == [[at], [seed % n]]


@pytest.mark.parametrize("n", [1024, 1025, 20_000])
def test_weights_that_float32_would_lose_in_the_sum_count(n):
    # After a first weight of 1, float32 sums would stand still: 2⁻²⁶ is below half of its step there.
    weights = torch.full((n,), 2.0**-26)
    weights[0] = 1
    total = 1 + (n - 1) * 2.0**-26
    for at in (1, 62, 64, 700, n - 1):
        share = (1 + at * 2.0**-26 - 2.0**-27) / total
        assert first_reaching(weights, share).item() == at


@pytest.mark.parametrize("n", [2000, 50_257])
@pytest.mark.parametrize("seed", range(4))
def test_rounding_may_move_the_place_only_across_sums_that_it_can_move(n, seed):
    weights = torch.randn(20, n, generator=seeded(seed)).mul(4).softmax(-1)
    until = weights.double().cumsum(-1)
    share = until[:, seed * 300 + 5 :: n // 7] / until[:, -1:]  # a line on sums of the rows themselves
    for line in share.split(1, dim=-1):
        found, target = first_reaching(weights, line), line * until[:, -1:]
        assert (until.gather(-1, found) > target - 1e-12).all()
        assert (until.gather(-1, found) - weights.gather(-1, found) < target + 1e-12).all()
        assert (weights.gather(-1, found) > 0).all()


def test_the_full_share_of_many_rounded_sums_is_the_last_weight_above_zero_and_no_index_beyond():
    # A block's own sum and its running sum are rounded in different orders; the line may lie between the two.
    weights = torch.rand(400, 2000, generator=seeded(8)) ** 8
    weights[:, 1500:] = 0
    found = first_reaching(weights, 1.0)
    assert (found < 1500).all()
    assert (weights.double().cumsum(-1)[:, -1:] - weights.double().cumsum(-1).gather(-1, found) < 1e-12).all()


def test_float64_weights_are_searched_too():
    weights = torch.tensor([0.0, 1e-200, 1.0, 0.0], dtype=torch.float64)
    assert [first_reaching(weights, share).item() for share in (0.0, 1e-250, 0.5, 1.0)] == [1, 1, 2, 2]


def test_sums_are_exact_in_float64_where_a_device_has_it_and_in_float32_on_apples():
    assert exact_dtype(torch.zeros(1)) == exact_dtype(torch.device("cuda")) == torch.float64
    assert exact_dtype(torch.device("mps")) == torch.float32


# ---- a few rows at a time -----------------------------------------------------------------------------------------


@pytest.fixture
def tile_of_100(monkeypatch):
    """Work on 100 numbers at a time."""
    monkeypatch.setattr(selection, "_TILE", 100)


@pytest.mark.parametrize("batch", [(), (1,), (2,), (3,), (10,), (11,), (2, 3), (3, 1, 5), (0,), (2, 0)])
@pytest.mark.parametrize("n", [1, 10, 30, 99, 100, 101, 1000])
def test_by_rows_is_the_function_on_the_whole(tile_of_100, batch, n):
    rows = torch.randn(*batch, n, generator=seeded())
    assert torch.equal(by_rows(lambda x: x.sort(dim=-1).values, rows), rows.sort(dim=-1).values)


@pytest.mark.parametrize("batch", [(7,), (2, 3), (2, 1, 4)])
def test_by_rows_gives_every_result_of_a_function_that_has_several(tile_of_100, batch):
    rows = torch.randn(*batch, 40, generator=seeded())
    values, ids = by_rows(lambda x: tuple(x.sort(dim=-1)), rows)
    expected = rows.sort(dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(ids, expected.indices)


@pytest.mark.parametrize("batch", [(7,), (2, 3), (2, 1, 4)])
def test_by_rows_takes_the_rows_of_several_tensors_together(tile_of_100, batch):
    rows, share = torch.rand(*batch, 40, generator=seeded()), torch.rand(*batch, 1, generator=seeded(1))
    assert torch.equal(by_rows(torch.mul, rows, share), rows * share)


@pytest.mark.parametrize(
    ("batch", "n", "sizes"),
    [
        ((7,), 30, [3, 3, 1]),
        ((2, 3), 50, [2, 2, 2]),
        ((2, 2), 101, [1, 1, 1, 1]),
        ((4,), 25, [4]),
        ((5,), 25, [4, 1]),
        ((100,), 1, [100]),
        ((101,), 1, [100, 1]),
    ],
)
def test_as_many_rows_go_together_as_fit_into_a_tile_and_one_at_least(tile_of_100, batch, n, sizes):
    seen = []

    def note(rows):
        seen.append(rows.shape[:-1].numel())
        return rows

    by_rows(note, torch.zeros(*batch, n))
    assert seen == sizes
