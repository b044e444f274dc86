"""A trimmed vocabulary: the same logits for what is kept, and an honest account of what is lost."""

import pytest
import torch

from lmhead_course.trimming import coverage, kept_mass, most_frequent, trim
from tests.typecheck import refused


def test_the_most_frequent_are_kept_the_lowest_ids_among_equals():
    ids = torch.tensor([5, 5, 5, 3, 3, 1, 2])
    assert most_frequent(ids, 3, 8).tolist() == [1, 3, 5]


def test_some_are_kept_in_any_case():
    ids = torch.tensor([5, 5, 5, 3, 3])
    assert most_frequent(ids, 2, 8, always=[7]).tolist() == [5, 7]


def test_a_trimmed_head_gives_the_same_logits_for_its_tokens():
    weight, hidden, kept = torch.randn(9, 4), torch.randn(3, 4), torch.tensor([0, 4, 8])
    assert torch.allclose(hidden @ trim(weight, kept).T, (hidden @ weight.T)[:, kept])


def test_kept_mass_is_the_sum_of_the_kept_probabilities_and_the_trimmed_softmax_divides_by_it():
    logits, kept = torch.randn(3, 9, dtype=torch.float64), torch.tensor([0, 4, 8])
    mass = kept_mass(logits, kept)
    assert torch.allclose(mass, logits.softmax(-1)[:, kept].sum(-1))
    assert torch.allclose(logits[:, kept].softmax(-1), logits.softmax(-1)[:, kept] / mass[:, None])


def test_coverage_is_the_share_of_tokens_that_can_still_be_written():
    assert coverage(torch.tensor([1, 1, 2, 3]), torch.tensor([1, 3])) == 0.75


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_size_that_can_not_be_is_refused(size):
    with refused("size", "[2, 8]", size):
        most_frequent(torch.tensor([1]), size, 8, always=[0, 1])


def test_no_tokens_have_no_coverage():
    with refused("ids", "none"):
        coverage(torch.tensor([], dtype=torch.long), torch.tensor([1]))
