import gc
import math
import weakref
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import psutil
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lmhead_course import ORDERS, RankedLogits, SamplingParams, process_logits, sampling
from tests import oracle
from tests.oracle import kept_ids
from tests.strategies import batches, eighths, sampling_params
from tests.typecheck import refused

INF = math.inf
TOY = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
CHANGES_ORDER = {
    "repetition_penalty": SamplingParams(repetition_penalty=1.5),
    "presence_penalty": SamplingParams(presence_penalty=0.5),
    "frequency_penalty": SamplingParams(frequency_penalty=-0.5),
    "my_stage": SamplingParams(order=(lambda logits, **_: logits, "top_k")),
}


def check_equal(ranked: RankedLogits, logits: torch.Tensor, params: SamplingParams, top: int) -> None:
    """Hold a distribution against process_logits and a softmax in float64 over the same row."""
    shown = ranked.distribution(params, top=top)
    before, after = logits.double().softmax(-1), process_logits(logits, params).double().softmax(-1)
    kept = kept_ids(process_logits(logits, params))
    assert shown.kept == len(kept)
    assert set(ranked.token_ids[: shown.kept].tolist()) == kept
    assert shown.kept_mass == pytest.approx(before[list(kept)].sum().item(), abs=1e-6)
    assert shown.entropy == pytest.approx([oracle.entropy(p.numpy()) for p in (before, after)], abs=2e-5)
    ids = oracle.ranking(logits.double().numpy()).tolist()[: min(top, int(logits.isfinite().sum()))]
    assert [row.token_id for row in shown.rows] == ids
    assert [row.raw for row in shown.rows] == pytest.approx(before[ids].tolist(), abs=1e-6)
    assert [row.final for row in shown.rows] == pytest.approx(after[ids].tolist(), abs=1e-6)


@settings(max_examples=200)
@given(batches(), sampling_params(penalties=False), st.integers(0, 12))
def test_a_distribution_is_that_of_process_logits_and_softmax(logits, params, top):
    row = logits[0]
    assume(oracle.process(row.tolist(), params).margin > 1e-6)
    check_equal(RankedLogits(row), row, params, top)


@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_same_over_a_whole_vocabulary(order, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(30_000, generator=generator)
    temperature, p, min_p = (torch.rand(3, generator=generator) * torch.tensor([2, 1, 0.1])).tolist()
    params = SamplingParams(0.1 + temperature, top_k=5000, top_p=p, min_p=min_p, order=order)
    check_equal(RankedLogits(logits), logits, params, top=30)


@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("temperature", [0, 5e-324, 1e-320, 1e-38, 1e-4, 1e300])
def test_extreme_temperatures_work_in_every_order(order, temperature):
    logits = torch.tensor([2.3, -INF, 1.5, 3.8, -3.5, 1.2])
    for filters in ({}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.3}):
        check_equal(RankedLogits(logits), logits, SamplingParams(temperature, order=order, **filters), top=9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_other_dtypes_are_ranked_too(dtype):
    logits = (10 * torch.randn(200, generator=torch.Generator().manual_seed(0))).to(dtype)
    check_equal(RankedLogits(logits), logits, SamplingParams(1.5, top_k=50, top_p=0.93), top=30)


def test_equal_logits_are_ranked_by_id():
    ranked = RankedLogits(torch.tensor([1, 2, 2, 2, 3]))
    assert [row.token_id for row in ranked.distribution(SamplingParams()).rows] == [4, 1, 2, 3, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_equal_logits_are_ranked_by_id_too(dtype):
    logits = torch.arange(1000).remainder(3).to(dtype)
    expected = [token for value in (2, 1, 0) for token in range(value, 1000, 3)]
    assert RankedLogits(logits).token_ids.tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_the_logits_that_replace_others_may_have_any_dtype(dtype):
    replaced = RankedLogits(TOY).replaced(torch.tensor([3, 2]), torch.tensor([9, 1], dtype=dtype))
    assert replaced.token_ids.tolist() == [3, 0, 1, 4, 2]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_the_ids_of_tokens_to_replace_may_have_any_integer_dtype(dtype):
    replaced = RankedLogits(TOY).replaced(torch.tensor([3, 2], dtype=dtype), torch.tensor([9.0, 1.0]))
    assert replaced.token_ids.tolist() == [3, 0, 1, 4, 2]


@pytest.mark.parametrize("ids", [[-1, 3], [3, -1], [3, 5]])
def test_an_id_outside_the_vocabulary_is_not_replaced_also_beside_one_inside(ids):
    with refused("ids", "0 … 4", min(ids), max(ids)):
        RankedLogits(TOY).replaced(torch.tensor(ids), torch.zeros(2))


def test_the_logits_that_replace_others_may_want_a_gradient():
    new = torch.tensor([9.0], requires_grad=True)
    assert RankedLogits(TOY).replaced(torch.tensor([3]), new).token_ids.tolist() == [3, 2, 0, 1, 4]


def test_the_nucleus_is_not_moved_by_the_rounding_of_long_sums():
    # Near 1 the steps of float32 are two of these tokens or more.
    logits = torch.full((100_000,), math.log(2.5e-8))
    logits[0] = 0
    weights, ranked = logits.double().exp(), RankedLogits(logits)
    for kept in range(50_001, 50_006):
        p = (weights[: kept - 1].sum() + weights[-1] / 2) / weights.sum()
        assert ranked.distribution(SamplingParams(top_p=p.item()), top=0).kept == kept


def test_the_rows_of_the_toy_hold_its_printed_percentages():
    rows = RankedLogits(TOY).distribution(SamplingParams(top_k=3)).rows
    assert [row.token_id for row in rows] == [2, 0, 1, 4, 3]
    assert [100 * row.raw for row in rows] == pytest.approx([69.71, 15.55, 6.99, 5.18, 2.57], abs=0.005)
    assert [100 * row.final for row in rows] == pytest.approx([75.56, 16.86, 7.58, 0, 0], abs=0.005)


def test_tokens_that_were_banned_beforehand_are_neither_kept_nor_shown():
    shown = RankedLogits(torch.tensor([0.0, -INF, 0.0, -INF])).distribution(SamplingParams())
    assert shown.kept == 2
    assert [row.token_id for row in shown.rows] == [0, 2]
    assert shown.kept_mass == pytest.approx(1)
    assert shown.entropy == pytest.approx((math.log(2), math.log(2)))


def test_one_certain_token_has_no_entropy():
    shown = RankedLogits(torch.tensor([1e4, 0.0, -1e4])).distribution(SamplingParams(0.5))
    assert shown.entropy == (0, 0)
    assert shown.rows[0].final == 1


@pytest.mark.parametrize("top", [0, 1, 5, 1000])
def test_there_are_as_many_rows_as_asked_for_and_tokens(top):
    assert len(RankedLogits(TOY).distribution(SamplingParams(), top=top).rows) == min(top, 5)


@pytest.mark.parametrize(("name", "params"), CHANGES_ORDER.items(), ids=CHANGES_ORDER.keys())
def test_settings_that_may_reorder_are_refused_by_name(name, params):
    with refused("<lambda>" if name == "my_stage" else name, "rank"):
        RankedLogits(TOY).distribution(params)


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        (torch.zeros(2, 5), ("(d_vocab,)", "(2, 5)")),
        (torch.tensor(1.0), ("(d_vocab,)", "()")),
        (torch.zeros(0), ("d_vocab ≥ 1",)),
        (torch.tensor([0.0, math.nan]), ("NaN",)),
        (torch.tensor([-INF, -INF]), ("all −inf",)),
    ],
)
def test_what_is_no_row_of_logits_is_refused(logits, words):
    with refused("logits", *words):
        RankedLogits(logits)


def test_the_callers_logits_are_neither_changed_nor_needed_any_more():
    logits = TOY.clone()
    ranked = RankedLogits(logits)
    before = ranked.distribution(SamplingParams(0.7, top_p=0.9))
    assert torch.equal(logits, TOY)
    logits.fill_(0)
    assert ranked.distribution(SamplingParams(0.7, top_p=0.9)) == before
    assert ranked.distribution(SamplingParams(0.8)).rows[0].token_id == 2


def test_tokens_are_replaced_among_the_logits_that_were_ranked_whatever_became_of_the_callers_tensor():
    logits = TOY.clone()
    ranked = RankedLogits(logits)
    logits.fill_(0)
    assert ranked.replaced(torch.tensor([3]), torch.tensor([9.0])).token_ids.tolist() == [3, 2, 0, 1, 4]


def test_logits_that_want_a_gradient_or_come_from_inference_mode_can_be_ranked():
    expected = RankedLogits(TOY).distribution(SamplingParams(0.7, top_p=0.9))
    with torch.inference_mode():
        inferred = RankedLogits(TOY * 1)
    for ranked in (inferred, RankedLogits(TOY.clone().requires_grad_())):
        assert ranked.distribution(SamplingParams(0.7, top_p=0.9)) == expected


def test_threads_that_move_different_sliders_at_once_all_get_their_own_answer():
    logits = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    # More temperatures than are kept, so that the threads push each other's out.
    moves = [SamplingParams(0.5 + step % 13 / 8, top_p=0.5 + step % 7 / 16) for step in range(150)]
    alone = [RankedLogits(logits).distribution(params) for params in moves[:91]]
    shared = RankedLogits(logits)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(shared.distribution, moves))
    assert together == [alone[step % 91] for step in range(150)]


def test_the_sums_of_the_latest_eight_temperatures_are_kept_and_no_more(monkeypatch):
    added_up, add_up = [], sampling._cumulate

    def counted(ranked, temperature):
        added_up.append(temperature)
        return add_up(ranked, temperature)

    monkeypatch.setattr(sampling, "_cumulate", counted)
    ranked = RankedLogits(TOY)
    for temperature in [*range(1, 9), *range(1, 9), 9, 1]:
        ranked.after(SamplingParams(temperature))
    assert added_up == [*range(1, 9), 9, 1]


def test_however_many_temperatures_are_tried_memory_stays_bounded():
    d_vocab, process = 200_000, psutil.Process()
    ranked = RankedLogits(torch.randn(d_vocab, generator=torch.Generator().manual_seed(0)))
    for step in range(8):
        ranked.distribution(SamplingParams(0.5 + step / 64))
    before = process.memory_info().rss
    for step in range(8, 68):
        ranked.distribution(SamplingParams(0.5 + step / 64))
    # 20 bytes a token and temperature: all 60 would be 240 MB.
    assert process.memory_info().rss - before < 60 * 20 * d_vocab / 4


def test_a_ranking_that_is_no_longer_used_is_freed_at_once():
    ranked = RankedLogits(TOY)
    ranked.distribution(SamplingParams())
    gone = weakref.ref(ranked)
    gc.disable()
    try:
        del ranked
        assert gone() is None
    finally:
        gc.enable()


def test_a_negative_number_of_rows_is_refused():
    with pytest.raises(ValueError, match=r"^top must be .* got -1"):
        RankedLogits(TOY).distribution(SamplingParams(), top=-1)


@st.composite
def replacements(draw, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Some of a row's ids, none or all, in any order, and new logits for them, which leave one above −inf."""
    ids = draw(st.permutations(range(len(row))))[: draw(st.integers(0, len(row)))]
    logits = draw(st.lists(eighths(-12, 12) | st.just(-INF), min_size=len(ids), max_size=len(ids)))
    ids, logits = torch.tensor(ids, dtype=torch.long), torch.tensor(logits, dtype=row.dtype)
    assume(row.index_put((ids,), logits).isfinite().any())
    return ids, logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=150)
@given(batches(), sampling_params(penalties=False), st.data())
def test_a_ranking_with_replaced_logits_is_that_of_the_new_row(dtype, logits, params, data):
    row = logits[0].to(dtype)
    ranked = RankedLogits(row)
    for _ in range(2):  # a replaced ranking can be replaced in too
        ids, new = data.draw(replacements(row))
        row = row.index_put((ids,), new)
        ranked = ranked.replaced(ids, new)
        assert ranked.token_ids.tolist() == RankedLogits(row).token_ids.tolist()
        assert ranked.distribution(params) == RankedLogits(row).distribution(params)


def test_replaced_logits_rank_like_a_new_row_over_a_whole_vocabulary():
    generator = torch.Generator().manual_seed(0)
    row = 3 * torch.randn(30_000, generator=generator)
    ids = torch.randperm(30_000, generator=generator)[:500]
    new = row[ids] - 2
    check_equal(
        RankedLogits(row).replaced(ids, new), row.index_put((ids,), new), SamplingParams(0.8, top_p=0.9), 30
    )


def test_replacing_leaves_the_ranking_it_starts_from_as_it_was():
    ranked = RankedLogits(TOY)
    before = ranked.distribution(SamplingParams())
    ranked.replaced(torch.tensor([2, 0]), torch.tensor([-1.0, -INF]))
    assert ranked.distribution(SamplingParams()) == before
    assert torch.equal(ranked.logits, TOY)
    assert (
        ranked.replaced(torch.tensor([], dtype=torch.long), torch.tensor([])).distribution(SamplingParams())
        == before
    )


@pytest.mark.parametrize(
    ("name", "ids", "logits", "words"),
    [
        ("ids", [1, 1], [0.0, 0.0], ("twice",)),
        ("ids", [0, 1, 2, 1], [0.0, 0.0, 0.0, 0.0], ("twice",)),
        ("ids", [-1], [0.0], ("0 … 4", "-1")),
        ("ids", [0, 5], [0.0, 0.0], ("0 … 4", "5")),
        ("ids", [0.0], [0.0], ("integers", "float32")),
        ("ids", [True], [0.0], ("integers", "bool")),
        ("ids", [[0]], [[0.0]], ("(n,)", "(1, 1)")),
        ("logits", [0, 1], [0.0], ("(2,)", "(1,)")),
        ("logits", [0], [math.nan], ("NaN",)),
        ("logits", [0, 1, 2, 3, 4], [-INF] * 5, ("all −inf",)),
    ],
)
def test_what_cannot_be_replaced_is_refused(name, ids, logits, words):
    with refused(name, *words):
        RankedLogits(TOY).replaced(torch.tensor(ids), torch.tensor(logits))


@pytest.mark.parametrize(("logit", "count"), [(4.0, 0), (3.8, 1), (1.5, 3), (1.4, 3), (-9.0, 5)])
def test_tokens_with_at_least_a_logit_are_counted(logit, count):
    assert RankedLogits(torch.cat([TOY, torch.tensor([-INF])])).at_least(logit) == count


def test_stages_that_ran_before_the_ranking_are_not_run_again():
    params = SamplingParams(temperature=0.5, top_k=4, repetition_penalty=1.5)
    ranked = RankedLogits(process_logits(TOY, SamplingParams(repetition_penalty=1.5), prompt=[2]))
    kept, final, entropy = ranked.after(params, 30, ("temperature", "top_k"))
    expected = process_logits(TOY, params, prompt=[2]).softmax(dim=-1)
    assert kept == 4
    assert final == pytest.approx(expected.sort(descending=True).values[:4].tolist())
    assert entropy == pytest.approx(float(torch.special.entr(expected).sum()))


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 10**20},
        {"temperature": Fraction(1, 2)},
        {"temperature": Fraction(1, 10**400)},  # 0 as a float
        {"top_k": np.uint8(200)},
        {"top_p": Fraction(1, 2)},
        {"top_p": Fraction(10**20 - 1, 10**20)},  # 1 as a float
        {"min_p": Fraction(1, 2)},
    ],
)
def test_a_setting_may_be_any_real_number_that_process_logits_takes(setting):
    logits = torch.randn(300, generator=torch.Generator().manual_seed(0))
    logits[7] = -60.0  # too rare for any sum
    check_equal(RankedLogits(logits), logits, SamplingParams(**setting), top=10)


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p", "min_p"])
def test_a_stage_that_is_named_and_off_changes_nothing(name):
    ranked = RankedLogits(
        torch.tensor([0.0, -60.0, -60.0])
    )  # a cut at all of the mass would find it in one token
    assert ranked.after(SamplingParams(), 30, (name,)) == ranked.after(SamplingParams(), 30)
    assert ranked.after(SamplingParams(), 30, (name,))[0] == 3
