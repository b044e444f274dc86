"""The characters model: what it is shown, that it learns, and what it does with an end it never saw."""

import pytest
import torch

from lmhead_course.characters import CharacterModel, alphabet_of, examples, sentences_of, train, write
from lmhead_course.loss import cross_entropy

TEXTS = ["abab abab.", "baba baba."] * 20
ALPHABET = alphabet_of(TEXTS)


@pytest.fixture(scope="module")
def trained():
    return train(CharacterModel(ALPHABET), *examples(TEXTS, ALPHABET), steps=100, batch=64)


def test_the_alphabet_begins_with_the_end():
    assert ALPHABET == "\n .ab"
    assert alphabet_of(["b\na"]) == "\nab"


def test_every_character_and_the_end_is_a_target_with_the_four_before_it():
    contexts, targets = examples(["ab"], ALPHABET)
    a, b = ALPHABET.index("a"), ALPHABET.index("b")
    assert contexts.tolist() == [[0, 0, 0, 0], [0, 0, 0, a], [0, 0, a, b]]
    assert targets.tolist() == [a, b, 0]


def test_a_window_one_place_too_far_ends_with_its_target():
    contexts, targets = examples(TEXTS[:2], ALPHABET, look=1)
    assert torch.equal(contexts[:, -1], targets)


def test_a_fresh_model_knows_nothing_and_a_trained_one_more(trained):
    contexts, targets = examples(TEXTS, ALPHABET)
    fresh = cross_entropy(CharacterModel(ALPHABET)(contexts), targets)
    assert abs(fresh - torch.tensor(len(ALPHABET)).log()) < 1
    assert cross_entropy(trained(contexts), targets) < 0.3


def test_equal_seeds_give_equal_models():
    few = examples(TEXTS[:2], ALPHABET)
    one, other = (train(CharacterModel(ALPHABET), *few, steps=5, batch=8) for _ in range(2))
    assert torch.equal(one.head, other.head)


def test_texts_end_where_the_end_is_drawn(trained):
    texts = write(trained, 20, longest=60)
    assert sum(len(text) < 60 for text in texts) > 15
    assert all("\n" not in text for text in texts)


def test_a_model_whose_ends_are_masked_out_hardly_stops(trained):
    endless = train(CharacterModel(ALPHABET), *examples(TEXTS, ALPHABET), steps=100, batch=64, ignore_index=0)
    ended = [sum(len(text) < 60 for text in write(model, 40, longest=60)) for model in (trained, endless)]
    assert ended[1] < ended[0] / 2


def test_sentences_are_cut_behind_their_ends():
    text = 'This is the first sentence. "And is this the second one?" No. And the third comes here!'
    assert sentences_of(text) == [
        "This is the first sentence.",
        '"And is this the second one?',
        "And the third comes here!",
    ]
