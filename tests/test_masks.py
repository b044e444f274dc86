"""Masks: what each stage does to the logits, alone, in a batch, in the pipeline, and over a whole answer."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmhead_course.masks import allow_tokens, ban_tokens, choose_among, logit_bias
from lmhead_course.sampling import SamplingParams, process_logits, sample
from lmhead_course.softmax import softmax

V = 6
END = 5


def row() -> torch.Tensor:
    return torch.tensor([2.0, 1.0, 0.5, -1.0, 3.0, 0.0])


def kept(logits: torch.Tensor) -> list[int]:
    return logits.isfinite().nonzero().flatten().tolist()


# ---- bias -----------------------------------------------------------------------------------------------


def test_a_bias_is_added_to_its_tokens_and_to_no_other():
    assert logit_bias({1: 2.5, 4: -3})(row()).tolist() == [2.0, 3.5, 0.5, -1.0, 0.0, 0.0]


def test_a_bias_multiplies_the_odds_by_its_exponential():
    before, after = softmax(row()), softmax(logit_bias({1: 1.0})(row()))
    assert float((after[1] / after[0]) / (before[1] / before[0])) == pytest.approx(math.e, rel=1e-5)


def test_a_bias_does_not_bring_back_a_dropped_token():
    logits = row()
    logits[1] = -math.inf
    assert logit_bias({1: 100.0})(logits)[1] == -math.inf


@pytest.mark.parametrize("bias", [1e308, -1e308])
def test_a_bias_beyond_float32_neither_overflows_nor_drops_its_token(bias):
    assert logit_bias({0: bias})(row() + 3e38).isfinite().all()


def test_a_bias_given_later_does_not_change_the_stage():
    biases = {0: 1.0}
    stage = logit_bias(biases)
    biases[0] = 5.0
    assert stage(row())[0] == 3.0


@pytest.mark.parametrize("bias", [math.inf, -math.inf, math.nan])
def test_a_bias_that_is_no_finite_number_is_named(bias):
    with pytest.raises(ValueError, match=rf"logit_bias must hold finite numbers, got {bias!r} for token 3"):
        logit_bias({3: bias})


# ---- ban and allow --------------------------------------------------------------------------------------


def test_a_banned_token_has_no_probability_and_the_others_keep_their_ratios():
    after = softmax(ban_tokens([4, 4])(row()))
    assert after[4] == 0
    assert float(after[0] / after[1]) == pytest.approx(math.e, rel=1e-5)


def test_only_allowed_tokens_stay():
    assert kept(allow_tokens([1, 3])(row())) == [1, 3]


def test_banning_is_allowing_the_rest():
    assert torch.equal(ban_tokens([0, 2])(row()), allow_tokens([1, 3, 4, 5])(row()))


def test_banning_nothing_changes_nothing():
    assert torch.equal(ban_tokens([])(row()), row())


def test_ids_may_come_as_a_tensor():
    assert kept(allow_tokens(torch.tensor([3, 1]))(row())) == [1, 3]


def test_a_ban_of_every_token_that_is_left_says_which_rows_are_empty():
    rows = torch.stack([row(), row()])
    rows[1, :4] = -math.inf
    with pytest.raises(ValueError, match=r"ban_tokens leaves no token in these rows: \[\[1\]\]"):
        ban_tokens([4, 5])(rows)


def test_a_mask_after_a_filter_that_dropped_its_tokens_says_where_to_put_it():
    params = SamplingParams(top_k=1, order=("top_k", allow_tokens([3])))
    with pytest.raises(ValueError, match="put the mask before it"):
        process_logits(row(), params)


def test_allowing_no_token_at_all_is_refused():
    with pytest.raises(ValueError, match="allow_tokens must be given at least one id"):
        allow_tokens([])


@pytest.mark.parametrize("build", [ban_tokens, allow_tokens, lambda ids: choose_among([[0]], end=ids)])
@pytest.mark.parametrize("wrong", [-1, 1.5, "7", True])
def test_an_id_that_is_no_token_id_is_named(build, wrong):
    with pytest.raises(ValueError, match=rf"whole numbers ≥ 0, got {wrong!r}"):
        build(iter([0, wrong]))  # an iterator, whose items the shape checker leaves to us


@pytest.mark.parametrize(
    "stage", [ban_tokens([V]), allow_tokens([V]), logit_bias({V: 1.0}), choose_among([[V]])]
)
def test_an_id_outside_the_vocabulary_is_named(stage):
    with pytest.raises(
        ValueError, match=rf"{stage.__name__} holds token id {V}; ids must be below d_vocab = {V}"
    ):
        stage(row())


# ---- what all stages share ------------------------------------------------------------------------------

STAGES = [
    logit_bias({0: 1.5}),
    ban_tokens([0, 1]),
    allow_tokens([2, 4]),
    choose_among([[1, 2], [4]], end=[END]),
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_the_argument_is_never_changed(stage):
    logits = row()
    stage(logits)
    assert torch.equal(logits, row())


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_batch_of_any_shape_gives_what_its_rows_give(stage):
    logits = torch.randn(2, 3, V, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([stage(one) for one in logits.reshape(-1, V)]).reshape(logits.shape)
    assert torch.equal(stage(logits), alone)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize(("given", "returned"), [("float16", "float32"), ("float64", "float64")])
def test_half_precision_is_computed_in_single_and_double_stays(stage, given, returned):
    assert stage(row().to(getattr(torch, given))).dtype == getattr(torch, returned)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_stage_says_what_it_does(stage):
    assert stage.__doc__.endswith(".")


@given(st.permutations(["temperature", "min_p", "mask"]))
def test_a_ban_may_stand_anywhere_in_the_pipeline(order):
    stages = tuple(ban_tokens([4]) if stage == "mask" else stage for stage in order)
    params = SamplingParams(temperature=2.0, min_p=0.01, order=stages)
    assert 4 not in kept(process_logits(row(), params))


# ---- one of a list of answers ---------------------------------------------------------------------------

ANSWERS = [[0, 1], [0, 1, 2], [3]]


def after(generated: list[int], answers=ANSWERS, end=(END,)) -> list[int]:
    return kept(choose_among(answers, end=end)(row(), generated=generated))


def test_the_first_token_of_every_answer_may_begin():
    assert after([]) == [0, 3]


def test_no_generated_ids_are_the_beginning():
    assert kept(choose_among(ANSWERS, end=[END])(row())) == [0, 3]


def test_only_what_goes_on_with_an_answer_may_follow():
    assert after([0]) == [1]


def test_a_complete_answer_that_begins_another_may_end_or_go_on():
    assert after([0, 1]) == [2, END]


def test_a_complete_answer_can_only_end():
    assert after([3]) == [END]


def test_any_of_several_end_tokens_may_end():
    assert after([3], end=(4, END)) == [4, END]


@pytest.mark.parametrize("padding", [[], [END], [0], [-1, END]])
def test_a_row_that_has_ended_gets_only_end_tokens(padding):
    assert after([3, END, *padding]) == [END]


def test_negative_ids_are_padding_on_either_side():
    assert after([-1, -1, 0, -1]) == [1]


def test_every_row_follows_its_own_answer():
    generated = torch.tensor([[0, 1], [3, END], [-1, 0]])
    result = choose_among(ANSWERS, end=[END])(row().expand(3, V), generated=generated)
    assert [kept(line) for line in result] == [[2, END], [END], [1]]


def test_what_begins_none_of_the_answers_is_named_with_its_row():
    with pytest.raises(ValueError, match=r"generated row 1 holds \[0, 3\], which begins none"):
        choose_among(ANSWERS, end=[END])(row().expand(2, V), generated=torch.tensor([[0, 1], [0, 3]]))


def test_an_answer_that_ends_too_early_begins_none_of_the_answers():
    with pytest.raises(ValueError, match="begins none of the answers"):
        after([0, END])


def test_without_end_tokens_a_complete_answer_must_be_the_last_step():
    with pytest.raises(ValueError, match=r"row 0 has completed the answer \[3\]; stop there"):
        after([3], [[3], [0]], end=())


def test_without_end_tokens_no_answer_may_begin_another():
    with pytest.raises(ValueError, match=r"answer \[0, 1\] begins another one; name the ids .* with end="):
        choose_among(ANSWERS)


def test_an_answer_that_holds_an_end_token_is_refused():
    with pytest.raises(ValueError, match=rf"answer \[0, {END}\] holds {END}, which end= says ends a text"):
        choose_among([[0, END]], end=[END])


@pytest.mark.parametrize("answers", [[], [[]], [[1], []]])
def test_an_empty_list_and_an_empty_answer_are_refused(answers):
    with pytest.raises(ValueError, match="answers of at least one token each"):
        choose_among(answers)


def test_generated_ids_of_other_rows_are_refused():
    with pytest.raises(ValueError, match=r"integer ids of shape \(2, 'n'\), got .* \(3,\)"):
        choose_among([[0]])(row().expand(2, V), generated=[0, 0, 0])


def test_sampling_step_by_step_gives_answers_from_the_list_and_nothing_else():
    stage = choose_among(ANSWERS, end=[END])
    params = SamplingParams(order=(stage,))
    generator = torch.Generator().manual_seed(3)
    logits, generated = torch.zeros(200, V), torch.zeros(200, 0, dtype=torch.long)
    for _ in range(4):
        drawn = sample(logits, params, generated=generated, generator=generator)
        generated = torch.cat([generated, drawn.unsqueeze(-1)], dim=-1)
    texts = {tuple(token for token in line if token != END) for line in generated.tolist()}
    assert texts == set(map(tuple, ANSWERS))


def test_an_answer_is_drawn_by_its_steps_and_not_by_its_joint_probability():
    # Token 0 is as likely as 3 at the first step, and what follows it never takes that back.
    chances = softmax(choose_among([[0, 1], [3]])(torch.tensor([1.0, -9.0, 0.0, 1.0, 0.0, 0.0])))
    assert float(chances[0]) == pytest.approx(0.5)
