import math

import pytest
import torch

from lmhead_course.statistics import chi_square

TOY = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2]).softmax(-1)


def counts(*numbers):
    return torch.tensor(numbers)


def test_the_statistic_by_hand():
    test = chi_square(counts(30, 10, 20), torch.tensor([1 / 3, 1 / 3, 1 / 3]))
    assert test.statistic == pytest.approx(10.0)  # (10² + 10² + 0²) / 20
    assert test.degrees == 2
    assert test.p_value == pytest.approx(math.exp(-5), rel=1e-6)  # with 2 degrees Q(1, x/2) = e^(−x/2)


def test_counts_as_expected_have_the_p_value_one():
    assert chi_square(counts(50, 30, 20), torch.tensor([0.5, 0.3, 0.2])).p_value == pytest.approx(1)


def test_the_p_value_of_right_draws_is_uniform_between_zero_and_one():
    generator = torch.Generator().manual_seed(0)
    values = [
        chi_square(torch.bincount(TOY.multinomial(500, True, generator=generator), minlength=5), TOY).p_value
        for _ in range(400)
    ]
    for level in (0.1, 0.5, 0.9):
        share = sum(p < level for p in values) / len(values)
        assert share == pytest.approx(level, abs=0.1)


def test_draws_from_another_distribution_are_refused():
    drawn = TOY.sqrt().multinomial(5000, True, generator=torch.Generator().manual_seed(0))
    assert chi_square(torch.bincount(drawn, minlength=5), TOY).p_value < 1e-6


@pytest.mark.parametrize("size", [10, 1000])
def test_rare_tokens_are_counted_together(size):
    probabilities = torch.cat([torch.tensor([0.9]), torch.full((size,), 0.1 / size)])
    drawn = torch.cat([counts(90), torch.tensor([10]), torch.zeros(size - 1, dtype=torch.int64)])
    test = chi_square(drawn, probabilities)
    assert test.degrees == 1
    assert test.statistic == pytest.approx(0, abs=1e-6)


def test_a_rest_too_small_to_stand_alone_joins_the_smallest_cell():
    test = chi_square(counts(80, 19, 1), torch.tensor([0.8, 0.19, 0.01]))
    assert (test.degrees, test.statistic) == (1, pytest.approx(0, abs=1e-6))


def test_an_impossible_token_refutes_the_sampler():
    test = chi_square(counts(5, 1), torch.tensor([1.0, 0.0]))
    assert (test.statistic, test.p_value) == (math.inf, 0)


def test_a_single_cell_leaves_nothing_to_test():
    assert chi_square(counts(3, 1), torch.tensor([0.5, 0.5])).p_value == 1
    assert chi_square(counts(100, 0), torch.tensor([1.0, 0.0])).degrees == 0


def test_no_draws_are_refused():
    with pytest.raises(ValueError, match="at least one draw"):
        chi_square(counts(0, 0), torch.tensor([0.5, 0.5]))


def test_the_arguments_stay_as_they_are():
    drawn, probabilities = counts(80, 19, 1), torch.tensor([0.8, 0.19, 0.01])
    chi_square(drawn, probabilities)
    assert drawn.tolist() == [80, 19, 1]
    assert probabilities.tolist() == pytest.approx([0.8, 0.19, 0.01])
