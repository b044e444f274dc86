import dataclasses
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lmhead_course import ORDERS, SamplingParams, process_logits, sample
from tests import oracle
from tests.oracle import kept_ids
from tests.strategies import batches, ids_for, quick, sampling_params
from tests.typecheck import refused

INF = math.inf
ALL = ORDERS["hf"]
TOY = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- the settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", INF),
        ("temperature", math.nan),
        ("temperature", "warm"),
        ("temperature", None),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_k", 50.0),
        ("top_p", -0.01),
        ("top_p", 1.01),
        ("top_p", 90),
        ("top_p", math.nan),
        ("top_p", "x"),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", INF),
        ("presence_penalty", INF),
        ("presence_penalty", math.nan),
        ("presence_penalty", "x"),
        ("presence_penalty", 10**400),
        ("temperature", 10**400),
        ("frequency_penalty", -INF),
        ("frequency_penalty", [1.0]),
        ("order", "openai"),
        ("order", 3),
        ("order", None),
    ],
)
def test_a_value_outside_its_range_is_refused_with_its_name_and_itself(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*got {value!r}".replace("[", r"\[")):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "limits",
    [
        {"temperature": 0},
        {"temperature": 5e-324},
        {"temperature": 1e300},
        {"top_k": 10**12},
        {"top_p": 0},
        {"top_p": 1},
        {"min_p": 0},
        {"min_p": 1},
        {"repetition_penalty": 1e-300},
        {"presence_penalty": -2},
        {"frequency_penalty": -2.5},
    ],
)
def test_the_ends_of_the_ranges_are_allowed(limits):
    ((name, value),) = limits.items()
    assert getattr(SamplingParams(**limits), name) == value


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = 2.0


def test_equal_settings_are_equal_and_can_be_keys():
    assert len({SamplingParams(top_k=3), SamplingParams(top_k=3), SamplingParams(top_k=4)}) == 2


def test_an_order_may_be_a_list_too():
    assert SamplingParams(order=["temperature"], temperature=2) == SamplingParams(
        order=("temperature",), temperature=2
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"order": ("temperature", "top_q")}, ("order", "top_q")),
        ({"order": ("temperature", 3)}, ("order", "3")),
        ({"order": (["top_k"],)}, ("order", "['top_k']")),
        ({"order": (*ALL, "top_k")}, ("order", "top_k", "at most once")),
        ({"order": ("temperature",), "top_k": 3}, ("top_k", "3", "order")),
        ({"order": (), "temperature": 0}, ("temperature", "0", "order")),
        ({"order": ("top_p",), "presence_penalty": 0.5}, ("presence_penalty", "0.5", "order")),
    ],
    ids=[
        "an unknown stage",
        "no stage at all",
        "a stage in a list of its own",
        "a stage twice",
        "top-k left out",
        "no stages",
        "a penalty left out",
    ],
)
def test_an_order_that_cannot_be_followed_is_refused(arguments, words):
    with refused(*words):
        SamplingParams(**arguments)


def test_an_order_may_leave_out_what_is_off():
    assert kept_ids(process_logits(TOY, SamplingParams(top_k=2, order=("top_k",)))) == {0, 2}


# ---- the pipeline -------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.data())
def test_every_order_is_the_plain_definitions_one_after_the_other(data):
    logits = data.draw(batches())
    prompt, generated = data.draw(ids_for(logits)), data.draw(ids_for(logits))
    params = data.draw(sampling_params())
    rows = zip(logits.tolist(), prompt.tolist(), generated.tolist(), strict=True)
    outcomes = [oracle.process(row, params, *ids) for row, *ids in rows]
    assume(min(outcome.margin for outcome in outcomes) > 1e-5)
    processed = process_logits(logits, params, prompt=prompt, generated=generated)
    for row, outcome in zip(processed, outcomes, strict=True):
        assert kept_ids(row) == outcome.kept
        assert row.softmax(-1).tolist() == pytest.approx(outcome.probabilities, abs=1e-5)


def test_the_presets_are_the_orders_of_the_three_libraries():
    penalties = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    expected = {
        "hf": (*penalties, "temperature", "top_k", "top_p", "min_p"),
        "vllm": (*penalties, "temperature", "min_p", "top_k", "top_p"),
        "llama.cpp": (*penalties, "top_k", "top_p", "min_p", "temperature"),
    }
    assert expected == ORDERS


def test_the_settings_that_are_off_leave_the_logits_alone():
    assert torch.equal(process_logits(TOY, SamplingParams()), TOY)


@pytest.mark.parametrize("setting", [{"top_k": 3}, {"top_p": 0.9}])
def test_three_of_the_toy_candidates_stay_with_their_printed_shares(setting):
    probabilities = process_logits(TOY, SamplingParams(**setting)).softmax(-1)
    assert (100 * probabilities).tolist() == pytest.approx([16.86, 7.58, 75.56, 0, 0], abs=0.005)


def test_top_p_after_top_k_counts_the_mass_that_top_k_left():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    assert kept_ids(process_logits(logits, SamplingParams(top_k=2, top_p=0.5))) == {3}
    assert kept_ids(process_logits(logits, SamplingParams(top_p=0.5, top_k=2, order=("top_p", "top_k")))) == {
        2,
        3,
    }


def test_a_hot_temperature_keeps_fewer_tokens_when_it_comes_last():
    kept = {
        order: len(kept_ids(process_logits(TOY, SamplingParams(2.0, top_p=0.8, order=order))))
        for order in ORDERS
    }
    assert kept == {"hf": 4, "vllm": 4, "llama.cpp": 2}


def test_min_p_before_top_p_shrinks_what_top_p_counts():
    logits = torch.tensor([0.4, 0.35, 0.25]).log()
    kept = {
        order: kept_ids(process_logits(logits, SamplingParams(top_p=0.7, min_p=0.7, order=order)))
        for order in ORDERS
    }
    assert kept == {"hf": {0, 1}, "vllm": {0, 1}, "llama.cpp": {0, 1}}
    hotter = SamplingParams(top_p=0.5, min_p=0.7, order="vllm")
    assert kept_ids(process_logits(logits, hotter)) == {0}
    assert kept_ids(process_logits(logits, dataclasses.replace(hotter, order="hf"))) == {0, 1}


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_temperature_zero_leaves_the_best_token_alone(order):
    params = SamplingParams(temperature=0, top_k=3, top_p=0.9, min_p=0.1, order=order)
    assert kept_ids(process_logits(TOY, params)) == {2}


@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("temperature", [1e-320, 1e-38, 1e-4, 1e300])
def test_extreme_temperatures_work_in_every_order(order, temperature):
    params = SamplingParams(temperature=temperature, top_k=4, top_p=0.99, min_p=0.01, order=order)
    probabilities = process_logits(TOY.half(), params).softmax(-1)
    assert probabilities.sum().item() == pytest.approx(1)
    if temperature < 1:
        assert probabilities[2] == 1
    else:
        left = probabilities[probabilities > 0]
        assert left.tolist() == pytest.approx([1 / len(left)] * len(left))


@quick
@given(st.data())
def test_a_batch_is_its_rows(data):
    logits = data.draw(batches())
    ids = data.draw(ids_for(logits))
    params = data.draw(sampling_params())
    together = process_logits(logits, params, prompt=ids, generated=ids)
    alone = [process_logits(row, params, prompt=i, generated=i) for row, i in zip(logits, ids, strict=True)]
    assert torch.equal(together, torch.stack(alone))


@quick
@given(batches(), sampling_params())
def test_the_callers_logits_are_not_changed_and_the_result_is_a_new_tensor(logits, params):
    before = logits.clone()
    process_logits(logits, params).fill_(7)
    assert torch.equal(logits, before)


@quick
@given(batches(holes=False), sampling_params())
def test_half_precision_is_float32_of_the_same_values(logits, params):
    assert torch.equal(process_logits(logits.half(), params), process_logits(logits, params))
    assert torch.equal(
        process_logits(logits.bfloat16(), params), process_logits(logits.bfloat16().float(), params)
    )


@quick
@given(batches(wide=100), sampling_params(penalties=False), st.integers(-50, 50))
def test_without_penalties_a_constant_changes_nothing(logits, params, shift):
    assume(min(oracle.process(row, params).margin for row in logits.tolist()) > 1e-3)
    moved, still = process_logits(logits + shift, params), process_logits(logits, params)
    torch.testing.assert_close(moved.softmax(-1), still.softmax(-1), rtol=1e-3, atol=1e-5)


def test_with_a_repetition_penalty_a_constant_changes_the_probabilities():
    params = SamplingParams(repetition_penalty=1.5)
    still, moved = (process_logits(TOY + shift, params, prompt=[2]).softmax(-1) for shift in (0, -10))
    assert (still - moved).abs().max() > 0.1


def test_repetition_sees_the_prompt_and_the_other_penalties_do_not():
    for name, prompt_counts in [
        ("repetition_penalty", True),
        ("presence_penalty", False),
        ("frequency_penalty", False),
    ]:
        processed = process_logits(TOY, SamplingParams(**{name: 1.5}), prompt=[0])
        assert (processed[0] != TOY[0]).item() is prompt_counts


def test_penalties_come_one_after_the_other():
    params = SamplingParams(repetition_penalty=2, presence_penalty=0.5, frequency_penalty=0.25)
    processed = process_logits(torch.tensor([4.0, 1.0]), params, prompt=[0], generated=[0, 0])
    assert processed.tolist() == [4 / 2 - 0.5 - 2 * 0.25, 1]


@pytest.mark.parametrize("name", ["prompt", "generated"])
def test_ids_that_do_not_fit_the_logits_are_refused_by_name(name):
    params = SamplingParams(repetition_penalty=1.5, presence_penalty=0.5)
    with refused(name, "5", "d_vocab = 5"):
        process_logits(TOY, params, **{name: [5]})
    with refused(name, "(3, 'n')"):
        sample(TOY.expand(3, 5), params, **{name: torch.zeros(2, 1, dtype=torch.int64)})


@pytest.mark.parametrize("function", [process_logits, sample])
@pytest.mark.parametrize("row", [[0.0, math.nan], [0.0, INF], [-INF, -INF]])
def test_broken_rows_are_refused_even_if_nothing_is_set(function, row):
    with refused("logits", "[[1]]"):
        function(torch.tensor([[0.0, 1.0], row]), SamplingParams())


# ---- stages of one's own ------------------------------------------------------------------------------------


def ban_best(logits, prompt=None, generated=None):
    return logits.scatter(-1, logits.argmax(-1, keepdim=True), -INF)


def test_a_stage_of_ones_own_runs_where_the_order_puts_it():
    first, last = ((ban_best, *ALL), (*ALL, ban_best))
    assert kept_ids(process_logits(TOY, SamplingParams(top_k=2, order=first))) == {0, 1}
    assert kept_ids(process_logits(TOY, SamplingParams(top_k=2, order=last))) == {0}


def test_a_stage_of_ones_own_is_given_both_texts():
    seen = {}

    def note(logits, prompt, generated):
        seen.update(prompt=prompt, generated=generated)
        return logits

    process_logits(TOY, SamplingParams(order=(note,)), prompt=[1, 2], generated=[3])
    assert seen == {"prompt": [1, 2], "generated": [3]}


@pytest.mark.parametrize(
    "order", [lambda stage: (stage,), lambda stage: (*ALL, stage)], ids=["first", "last"]
)
def test_a_stage_that_works_in_place_does_not_reach_the_callers_logits(order):
    def wipe(logits, prompt, generated):
        logits[..., 1:] = -INF
        return logits

    logits = TOY.clone()
    assert kept_ids(process_logits(logits, SamplingParams(order=order(wipe)))) == {0}
    assert torch.equal(logits, TOY)


def test_a_stage_that_hands_back_the_callers_tensor_does_not_expose_it():
    logits = TOY.clone()
    process_logits(logits, SamplingParams(order=(lambda *_, **__: logits,))).fill_(7)
    assert torch.equal(logits, TOY)


def test_the_same_stage_of_ones_own_may_stand_twice():
    assert kept_ids(process_logits(TOY, SamplingParams(order=(ban_best, ban_best)))) == {1, 3, 4}


@dataclasses.dataclass
class Ban:
    """A stage as a learner may write it: data classes that can change have no hash."""

    ids: list

    def __call__(self, logits, *, prompt, generated):
        return logits.index_fill(-1, torch.tensor(self.ids), -INF)


@pytest.mark.parametrize("place", range(3))
def test_a_stage_of_ones_own_needs_no_hash(place):
    def order(stage):
        names = ["temperature", "top_k"]
        return (*names[:place], stage, *names[place:])

    ours, same = (
        SamplingParams(0.5, 2, order=order(stage)) for stage in (Ban([1]), lambda x, **_: Ban([1])(x, **_))
    )
    assert torch.equal(process_logits(TOY, ours), process_logits(TOY, same))
    assert sample(TOY, ours, generator=seeded()) == sample(TOY, same, generator=seeded())


def shorter(logits, prompt, generated):
    return logits[..., 1:]


def nothing(logits, prompt, generated):
    pass


def broken(logits, prompt, generated):
    return logits * math.nan


def empty(logits, prompt, generated):
    return torch.full_like(logits, -INF)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (shorter, ("shorter", "(5,)", "(4,)")),
        (nothing, ("nothing", "(5,)", "NoneType")),
        (broken, ("broken", "NaN")),
        (empty, ("empty", "all −inf")),
    ],
)
def test_a_stage_that_returns_nonsense_is_named(stage, words):
    with refused(*words):
        process_logits(TOY, SamplingParams(order=(*ALL, stage)))


def test_an_error_inside_a_stage_comes_out_as_it_is():
    def fails(logits, prompt, generated):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sample(TOY, SamplingParams(order=(fails,)))


# ---- the draw -----------------------------------------------------------------------------------------------

SETTINGS = {
    "as the model says": SamplingParams(),
    "cool": SamplingParams(temperature=0.6),
    "top-k": SamplingParams(temperature=1.5, top_k=6),
    "top-p": SamplingParams(temperature=2.0, top_p=0.9),
    "min-p, llama.cpp": SamplingParams(temperature=2.5, min_p=0.1, order="llama.cpp"),
    "penalties": SamplingParams(repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25),
}
ROWS = torch.tensor(
    [
        [1.0, 2.0, 0.0, -1.0, 1.5, 0.5, 2.5, 0.25],
        [-3.0, -2.0, -2.0, -4.0, -2.5, -3.5, -2.25, -5.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ]
)
DRAWS = 20_000


def chi_square(counts: list[int], probabilities) -> float:
    """Σ (observed − expected)² / expected over the tokens that can come; its mean is about their number."""
    expected = [p * sum(counts) for p in probabilities]
    assert all(n == 0 for n, e in zip(counts, expected, strict=True) if e == 0), "a dropped token was drawn"
    return sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True) if e > 0)


@pytest.mark.parametrize("params", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("together", [True, False], ids=["rows drawn in one batch", "a row at a time"])
def test_what_is_drawn_follows_the_distribution_it_should(params, together):
    prompt, generated = [1, 1, 7], [6, 6]
    logits = ROWS.expand(DRAWS, 3, 8)
    ids = {"prompt": torch.tensor(prompt), "generated": torch.tensor(generated)}
    generator = seeded()

    def draw(rows):
        texts = {name: text.expand(*rows.shape[:-1], len(text)) for name, text in ids.items()}
        return sample(rows, params, generator=generator, **texts)

    drawn = draw(logits) if together else torch.stack([draw(logits[:, row]) for row in range(3)], dim=1)
    for row in range(3):
        outcome = oracle.process(ROWS[row].tolist(), params, prompt, generated)
        counts = drawn[:, row].bincount(minlength=8).tolist()
        # Seven degrees of freedom at most: a right sampler is above 30 once in 10,000 seeds.
        assert chi_square(counts, outcome.probabilities) < 30


def test_the_chi_square_above_would_notice_a_temperature_that_is_a_tenth_off():
    counts = sample(ROWS[0].expand(DRAWS, 8), SamplingParams(temperature=1.1), generator=seeded())
    right, wrong = (
        oracle.process(ROWS[0].tolist(), SamplingParams(temperature=t)).probabilities for t in (1.1, 1)
    )
    counts = counts.bincount(minlength=8).tolist()
    assert chi_square(counts, right) < 30 < chi_square(counts, wrong)


def test_rows_of_a_batch_are_drawn_independently():
    drawn = sample(torch.zeros(DRAWS, 2, 2), SamplingParams(), generator=seeded())
    agree = (drawn[:, 0] == drawn[:, 1]).float().mean().item()
    assert agree == pytest.approx(0.5, abs=0.02)


def test_a_rare_token_comes_as_often_as_it_should():
    # 2,000,000 draws at a probability of 1e-5: 20 are expected, 2 to 45 are within 4 or more deviations.
    logits = torch.tensor([0.0, math.log(1e-5)]).expand(2_000_000, 2)
    assert 2 < sample(logits, SamplingParams(), generator=seeded()).sum().item() < 45


@pytest.mark.parametrize(
    ("place", "token"), [(0.0, 0), (1 - 3e-12, 0), (1 - 1.5e-12, 1), (1 - 0.5e-12, 2), (1 - 2**-53, 2)]
)
def test_a_token_of_probability_one_in_a_billion_billion_has_its_own_share_of_the_line(
    monkeypatch, place, token
):
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, **_: torch.full(shape, place, dtype=dtype))
    assert sample(torch.tensor([1.0, 1e-12, 1e-12]).log(), SamplingParams()).item() == token


@pytest.mark.parametrize("place", [0.0, 2**-53, 0.5, 1 - 2**-53], ids=["zero", "least", "half", "largest"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 40.0])
def test_no_random_number_can_draw_a_dropped_token(monkeypatch, place, scale):
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, **_: torch.full(shape, place, dtype=dtype))
    logits = scale * torch.randn(50, 9, generator=seeded())
    logits[:, [0, 1, 4, 7, 8]] = -INF
    assert set(sample(logits, SamplingParams()).tolist()) <= {2, 3, 5, 6}


@quick
@given(batches(), sampling_params(), st.integers(0, 2**31))
def test_a_dropped_token_is_never_drawn(logits, params, seed):
    kept = process_logits(logits, params).isfinite()
    drawn = sample(logits.expand(40, *logits.shape), params, generator=seeded(seed))
    assert kept.expand(40, *kept.shape).gather(-1, drawn.unsqueeze(-1)).all()


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (0,), (2, 0, 3)])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_one_id_is_drawn_for_every_row(shape, temperature):
    params = SamplingParams(temperature=temperature, top_k=3, top_p=0.9, min_p=0.05)
    drawn = sample(torch.zeros(*shape, 5), params)
    assert drawn.shape == shape
    assert drawn.dtype == torch.int64


def test_the_same_seed_draws_the_same_tokens_and_another_seed_others():
    first, again, other = (
        sample(TOY.expand(200, 5), SamplingParams(), generator=seeded(s)) for s in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_generator_of_ones_own_leaves_the_global_one_alone():
    before = torch.random.get_rng_state()
    sample(TOY, SamplingParams(), generator=seeded())
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_at_temperature_zero_the_lowest_id_among_the_best_is_taken_every_time(order):
    logits = torch.tensor([[1.0, 4.0, 4.0, 2.0], [7.0, 7.0, 7.0, 7.0]])
    for seed in range(5):
        drawn = sample(logits, SamplingParams(temperature=0, top_p=0.9, order=order), generator=seeded(seed))
        assert drawn.tolist() == [1, 0]


def test_at_temperature_zero_no_random_number_is_used():
    generator = seeded()
    before = generator.get_state()
    sample(TOY, SamplingParams(temperature=0), generator=generator)
    assert torch.equal(generator.get_state(), before)


def test_at_temperature_zero_penalties_still_count():
    params = SamplingParams(temperature=0, repetition_penalty=3.0)
    assert sample(TOY, params).item() == 2
    assert sample(TOY, params, prompt=[2]).item() == 0


def test_drawing_from_views_gives_no_warning_and_the_same_tokens(recwarn):
    logits = torch.randn(6, 40, generator=seeded()).T
    params = SamplingParams(top_p=0.9)
    drawn = sample(logits, params, generator=seeded(1))
    assert torch.equal(drawn, sample(logits.contiguous(), params, generator=seeded(1)))
    assert not recwarn.list


def test_the_random_number_comes_from_the_generators_own_device(monkeypatch):
    asked = []
    rand = torch.rand

    def watched(*size, **options):
        asked.append((options["device"], options["generator"].device))
        return rand(*size, **options)

    monkeypatch.setattr(torch, "rand", watched)
    sample(torch.zeros(3), SamplingParams(), generator=torch.Generator("cpu"))
    assert asked == [(torch.device("cpu"), torch.device("cpu"))]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_generator_of_the_host_draws_the_same_tokens_for_logits_on_a_gpu():
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    here, there = (
        sample(logits.to(device), SamplingParams(), generator=torch.Generator().manual_seed(1)).cpu()
        for device in ("cpu", "cuda")
    )
    assert (here == there).float().mean() > 0.95


@pytest.mark.parametrize("order", [*sorted(ORDERS), ("temperature", "top_k"), ("top_k", "temperature")])
@pytest.mark.parametrize("k", [1, 2, 50])
@pytest.mark.parametrize("d_vocab", [400, 5000])
def test_at_temperature_zero_the_lowest_of_many_best_ids_is_taken_behind_a_top_k_too(order, k, d_vocab):
    logits = torch.randint(5, (20, d_vocab), generator=seeded()).float()
    params = SamplingParams(temperature=0, top_k=k, order=order)
    best = (logits == logits.amax(dim=-1, keepdim=True)).int().argmax(dim=-1)
    assert torch.equal(sample(logits, params), best)
    assert torch.equal(process_logits(logits, params).isfinite().nonzero()[:, 1], best)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_behind_a_small_top_k_each_row_of_any_batch_draws_from_its_own_largest(shape, temperature):
    logits = torch.randn(*shape, 800, generator=seeded())
    drawn = sample(
        logits, SamplingParams(temperature=temperature, top_k=4, order="llama.cpp"), generator=seeded()
    )
    best = logits.topk(1 if temperature == 0 else 4).indices
    assert (best == drawn.unsqueeze(-1)).any(dim=-1).all()


def test_what_a_stage_of_ones_own_returns_is_copied_and_stays_its_own():
    kept = torch.zeros(5)
    processed = process_logits(TOY, SamplingParams(order=(lambda logits, **_: kept,)))
    processed.fill_(7)
    assert torch.equal(kept, torch.zeros(5))
