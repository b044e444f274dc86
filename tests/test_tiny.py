"""The tiny model, the tokens it learns, and the training of its twins."""

import math

import pytest
import torch
from torch.nn import functional as F

from lmhead_course.records import from_csv, to_csv
from lmhead_course.texts import chapters
from lmhead_course.tiny import TinyLM, learn_tokens
from lmhead_course.twins import (
    STEPS,
    VARIANTS,
    WATCHED,
    Run,
    Training,
    best_rate,
    held_out_loss,
    row_gradients,
    schedule,
    stored_runs,
)
from lmhead_course.tying import is_tied, unique_parameters
from tests.typecheck import refused


@pytest.fixture(scope="module")
def corpus():
    return learn_tokens(chapters()[:4], d_vocab=400, held_out=1)


def small(corpus, tied=True, seed=0):
    return TinyLM(corpus.d_vocab, tied=tied, d_model=16, n_heads=2, context=8, seed=seed)


def trained(corpus, steps=30, **settings):
    training = Training(small(corpus, **settings), corpus, steps=steps, watched=(0, 5, 29))
    for _ in range(steps):
        training.step()
    return training


def test_tokens_are_learned_from_the_text_and_read_back(corpus):
    assert corpus.d_vocab == 400
    assert "␣Bennet" in corpus.labels
    assert corpus.tokenizer.decode(corpus.encode(chapters()[0])) == chapters()[0]
    assert corpus.tokenizer.decode(corpus.held_out.tolist()) == chapters()[3]


def test_the_same_text_gives_the_same_tokens(corpus):
    again = learn_tokens(chapters()[:4], d_vocab=400, held_out=1)
    assert again.labels == corpus.labels
    assert torch.equal(again.train, corpus.train)


@pytest.mark.parametrize("held_out", [0, 4])
def test_something_must_be_kept_back_and_something_left(held_out):
    with refused("held_out must be in 1 … 3", held_out):
        learn_tokens(chapters()[:4], d_vocab=300, held_out=held_out)


def test_more_tokens_than_the_text_has_are_refused():
    with refused("d_vocab must be at most", 5000):
        learn_tokens(["a few words", "more"], d_vocab=5000, held_out=1)


def test_targets_are_the_ids_one_further_on(corpus):
    for ids, targets in corpus.batches(3, batch=4, context=8):
        assert torch.equal(ids[:, 1:], targets[:, :-1])
        assert ids.shape == targets.shape == (4, 8)


def test_twins_of_one_seed_begin_with_the_same_body_and_embedding(corpus):
    tied, untied = small(corpus), small(corpus, tied=False)
    own = dict(untied.named_parameters())
    for name, parameter in tied.named_parameters():
        assert torch.equal(parameter, own[name]), name
    assert not torch.equal(untied.head.weight, untied.embedding.weight)
    assert unique_parameters(untied) - unique_parameters(tied) == 400 * 16
    assert (is_tied(tied), is_tied(untied)) == (True, False)


def test_no_position_sees_a_later_token(corpus):
    model = small(corpus)
    ids = torch.randint(400, (1, 8), generator=torch.Generator().manual_seed(0))
    other = ids.clone()
    other[0, 5:] = 7
    torch.testing.assert_close(model(ids)[:, :5], model(other)[:, :5])


def test_a_fresh_model_starts_near_ln_v(corpus):
    assert held_out_loss(small(corpus), corpus) == pytest.approx(math.log(400), abs=0.05)


def test_the_held_out_loss_is_the_mean_over_all_its_tokens(corpus):
    model = small(corpus)
    pieces = (len(corpus.held_out) - 1) // 8
    losses = [
        F.cross_entropy(model(corpus.held_out[i : i + 8][None])[0], corpus.held_out[i + 1 : i + 9])
        for i in range(0, 8 * pieces, 8)
    ]
    assert held_out_loss(model, corpus) == pytest.approx(torch.stack(losses).mean().item(), abs=1e-4)


def test_training_lowers_the_loss_and_repeats_exactly(corpus):
    one, two = trained(corpus), trained(corpus)
    assert one.losses == two.losses
    assert one.losses[-1] < one.losses[0] - 0.1
    assert one.recent(2) == pytest.approx((one.losses[-1] + one.losses[-2]) / 2)
    assert one.recent(5, before=1) == one.losses[0]


def test_watching_does_not_change_the_training(corpus):
    watched = trained(corpus)
    blind = Training(small(corpus), corpus, steps=30)
    for _ in range(30):
        blind.step()
    assert blind.losses == watched.losses
    assert [record.step for record in watched.gradients] == [0, 5, 29]
    assert [step for step, _ in watched.held_out] == [0, 5, 29]
    assert blind.gradients == []


def test_a_tied_model_stays_tied_while_it_learns(corpus):
    assert is_tied(trained(corpus).model)


def test_rows_that_never_occur_stay_as_they_were_in_an_untied_embedding(corpus):
    training = trained(corpus, tied=False)
    never = corpus.counts == 0
    fresh = small(corpus, tied=False)
    assert never.any()
    assert torch.equal(training.model.embedding.weight[never], fresh.embedding.weight[never])
    assert (training.model.head.weight[never] != fresh.head.weight[never]).any(dim=1).all()


def test_the_recorded_norms_are_those_of_the_gradient(corpus):
    model = small(corpus)
    ids, targets = next(corpus.batches(1, batch=4, context=8))
    record = row_gradients(model, ids, targets, step=3)
    F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
    torch.testing.assert_close(record.total, model.embedding.weight.grad.norm(dim=1), atol=1e-6, rtol=1e-4)
    assert torch.equal(record.seen, record.input > 0)
    assert record.step == 3
    assert record.counts.sum() == 32


def test_a_training_ends_after_its_steps(corpus):
    training = Training(small(corpus), corpus, steps=1)
    training.step()
    with pytest.raises(StopIteration):
        training.step()


def test_the_rate_rises_then_falls_to_a_tenth():
    rates = [schedule(step, 550) for step in range(550)]
    assert rates[0] == pytest.approx(1 / 50)
    assert max(rates) > 0.97
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)
    assert max(range(550), key=rates.__getitem__) == 49


def test_watched_steps_are_in_order_and_in_range():
    assert list(WATCHED) == sorted(set(WATCHED))
    assert WATCHED[0] == 0
    assert WATCHED[-1] == STEPS - 1


# ---- the stored comparison ----------------------------------------------------------------------------------------


def test_the_stored_runs_cover_every_variant_at_every_rate_from_three_seeds():
    runs = stored_runs()
    rates = {one.peak_rate for one in runs}
    assert {(one.variant, one.peak_rate, one.seed) for one in runs} == {
        (variant, rate, seed) for variant in VARIANTS for rate in rates for seed in (0, 1, 2)
    }
    assert len(runs) == 9 * len(rates)


def test_the_stored_sizes_are_those_of_the_models():
    for name, settings in VARIANTS.items():
        sizes = {one.parameters for one in stored_runs() if one.variant == name}
        assert sizes == {unique_parameters(TinyLM(2048, **settings))}


def test_the_notebooks_claim_is_what_was_measured():
    best = {name: [one.held_out for one in best_rate(stored_runs(), name)] for name in VARIANTS}
    assert max(best["untied"]) < min(best["tied, wider"])
    assert max(best["untied"]) < min(best["tied"])


def test_runs_are_written_and_read_back():
    runs = [Run("tied", 64, 1000, 0.003, 1, 4.25, 4.5), Run("tied, wider", 88, 2000, 0.003, 2, 4.125, 4.0)]
    text = to_csv(runs, ["made by hand"])
    assert text.startswith("# made by hand\n")
    assert from_csv(Run, text) == runs


def test_the_best_rate_is_the_one_with_the_lowest_mean():
    runs = [
        Run("tied", 64, 1, rate, seed, 0.0, loss)
        for rate, seed, loss in ((1, 0, 4.0), (1, 1, 5.0), (2, 0, 4.4))
    ]
    assert [one.peak_rate for one in best_rate(runs, "tied")] == [2]
    with refused("variant must be one of", "untied"):
        best_rate(runs, "untied")
