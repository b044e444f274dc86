"""Every processor, pipeline, ranking and draw beside the plain definition, and beside transformers' own processors.

    pytest tests/test_conformance.py                       the short form: a few thousand inputs
    pytest tests/test_conformance.py --conformance 20000   about so many, and a table of what was compared

An input is one tensor of logits, any number of rows, with one setting. ``oracle.py`` says what must come out, and
where rounding may decide; ``adversarial.py`` makes the inputs.

Where ours differs from transformers on purpose: among equal logits ours keeps exactly k, the lowest ids first, where
transformers' top-k keeps all that equal the k-th, and its top-p some of them (its sort is not stable). Half precision
is computed in float32, where transformers stays in the dtype. Near the end of a float's range ours neither drops a
token nor makes a NaN, where transformers' division and penalty overflow: logits above 1e37 are left out here. It has no
presence and no frequency penalty, refuses a top_p or a temperature of 0, and sums in float32: p stays 1e-5 away from
every sum here (1e-3 in long vocabularies).
"""

import dataclasses
import zlib
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from lmhead_course import (
    RankedLogits,
    SamplingParams,
    apply_temperature,
    filter_min_p,
    filter_top_k,
    filter_top_p,
    process_logits,
    sample,
)
from tests import adversarial, oracle
from tests.adversarial import KINDS, Dice
from tests.typecheck import unchecked

SHORT = 12
"""Inputs for each check and kind when no number is asked for: in all a few thousand."""
COUNTS: Counter = Counter()
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", autouse=True)
def annotations_off():
    """Compare what learners run: checking shapes at each call would take as long as the work."""
    with unchecked():
        yield


@pytest.fixture(scope="module", autouse=True)
def table(request):
    """Print what was compared, when a number was asked for."""
    yield
    if request.config.getoption("--conformance"):
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print("", *table_lines(COUNTS), sep="\n")


def table_lines(counts: Counter) -> list[str]:
    """A Markdown table: how much was compared for each check, then for each kind of logits."""
    lines = ["| compared | inputs | rows | rows left out |", "|---|--:|--:|--:|"]
    names = dict.fromkeys([*(check for check, _, _ in counts), *(kind for _, kind, _ in counts)])
    for name in [*names, "all"]:
        sums = [
            sum(n for key, n in counts.items() if key[2] == what and (name == "all" or name in key[:2]))
            for what in ("inputs", "rows", "undecided")
        ]
        lines.append(" | ".join([f"| {name}", *(f"{n:,}" for n in sums)]) + " |")
    return lines


def compare(request, check: str, kind: str, one_input, times: int = 1) -> None:
    """Call ``one_input(dice, logits)``, which returns how many rows rounding may decide, for as many as asked for."""
    asked = request.config.getoption("--conformance")
    n = max(1, round(asked / len(KINDS) / (len(CHECKS) + 2))) if asked else SHORT
    n *= times
    first = zlib.crc32(f"{check}, {kind}".encode())
    for seed in range(first, first + n):
        dice = Dice(seed)
        logits = KINDS[kind](dice, *dice.shape())
        with noted(f"{kind}, Dice({seed}), {logits.dtype} {tuple(logits.shape)}"):
            undecided = one_input(dice, logits)
        found = {"inputs": 1, "rows": logits[..., 0].numel(), "undecided": undecided}
        COUNTS.update({(check, kind, what): number for what, number in found.items()})


@contextmanager
def noted(where):
    """Say which input it was when a comparison fails."""
    try:
        yield
    except Exception as error:
        error.add_note(str(where))
        raise


def rows_of(*tensors: torch.Tensor):
    """The rows of tensors (…, n), side by side."""
    return zip(*(t.reshape(t.shape[:-1].numel(), t.shape[-1]) for t in tensors), strict=True)


def untouched(function, logits: torch.Tensor, *settings, **ids):
    """Call the function, and see that the logits stay as they were."""
    before = logits.clone()
    result = function(logits, *settings, **ids)
    assert torch.equal(logits, before)
    return result


def equal(got: torch.Tensor, expected: np.ndarray) -> None:
    """See that two rows are equal bit for bit, the signs of zeros included."""
    np.testing.assert_array_equal(got.numpy(), expected)
    np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(expected))


# ---- one processor ------------------------------------------------------------------------------------------------


def is_temperature(row, got, value) -> bool:
    assert value == 0 or (np.isfinite(row) == got.isfinite().numpy()).all(), "temperature drops no token"
    expected = oracle.exact_temperature(row, value)
    with np.errstate(all="ignore"):
        quotient = row / row.dtype.type(value)
    if value == 0 or np.isfinite(quotient[np.isfinite(row)]).all():
        equal(got, expected)
    else:  # beyond the range of floats there is no one answer, but the probabilities are what they are
        shares = oracle.weights(expected)
        np.testing.assert_allclose(oracle.weights(got.numpy()), shares, rtol=1e-5, atol=1e-30)
    return True


def is_top_k(row, got, value) -> bool:
    equal(got, oracle.top_k(row, value))
    return True


def is_top_p(row, got, value) -> bool:
    least, most = oracle.nucleus_sizes(row, value)
    kept = int(got.isfinite().sum())
    assert least <= kept <= most
    equal(got, oracle.keep(row, oracle.ranking(row)[:kept]))
    return least == most


def is_min_p(row, got, value) -> bool:
    must, may = oracle.min_p_bounds(row, value)
    kept = got.isfinite().numpy()
    assert (must <= kept).all()
    assert (kept <= may).all()
    equal(got, oracle.keep(row, kept))
    return bool((must == may).all())


ALONE = {
    "temperature": (apply_temperature, is_temperature),
    "top_k": (filter_top_k, is_top_k),
    "top_p": (filter_top_p, is_top_p),
    "min_p": (filter_min_p, is_min_p),
}


@each_kind
@pytest.mark.parametrize("name", ALONE)
def test_a_processor_alone_is_its_definition_and_keeps_the_logits_bit_for_bit(request, name, kind):
    process, is_right = ALONE[name]

    def one_input(dice, logits):
        value = adversarial.VALUES[name](dice, logits)
        with noted(f"{name}={value!r}"):
            result = untouched(process, logits, value)
            assert result.shape == logits.shape
            assert torch.equal(process_logits(logits, SamplingParams(**{name: value})), result)
            right = [is_right(oracle.plain_row(row), got, value) for row, got in rows_of(logits, result)]
        return right.count(False)

    compare(request, name, kind, one_input)


# ---- all together -------------------------------------------------------------------------------------------------


@each_kind
def test_a_pipeline_in_any_order_is_its_stages_one_after_the_other(request, kind):
    def one_input(dice, logits):
        names = tuple(adversarial.VALUES) if dice.random() < 0.5 else adversarial.FILTERS
        params = adversarial.mix(dice, logits, names)
        ids = {name: adversarial.ids(dice, logits) for name in ("prompt", "generated")}
        with noted(params):
            result = untouched(process_logits, logits, params, **ids)
            return sum(is_pipeline(params, *row) for row in rows_of(logits, result, *ids.values()))

    compare(request, "pipelines", kind, one_input, times=3)  # of these there are the most combinations


def is_pipeline(params, logits, got, prompt, generated) -> bool:
    """See that one row is right; return whether rounding may decide about it, so that nothing was compared."""
    expected = oracle.exact_process(oracle.plain_row(logits), params, prompt.tolist(), generated.tolist())
    if expected.decided:
        np.testing.assert_array_equal(got.isfinite().numpy(), np.isfinite(expected.logits))
        np.testing.assert_allclose(got.numpy(), expected.logits, rtol=2e-6)
    return not expected.decided


@each_kind
def test_ranked_logits_show_what_process_logits_and_a_softmax_give(request, kind):
    def one_input(dice, logits):
        if not logits.numel():
            return 0
        row = logits.reshape(-1, logits.shape[-1])[0]
        params = adversarial.mix(dice, row, adversarial.FILTERS)
        with noted(params):
            return not is_distribution(row, params, top=dice.choice([0, 1, 30]))

    compare(request, "RankedLogits", kind, one_input)


def is_distribution(row, params, top) -> bool:
    ranked, processed = RankedLogits(row), process_logits(row, params)
    shown = ranked.distribution(params, top=top)
    if not oracle.exact_process(oracle.plain_row(row), params).decided:
        return False
    ids = ranked.token_ids[: shown.kept]
    kept = processed.isfinite()
    assert shown.kept == kept.sum()
    if not kept[ids].all():  # of logits that division by T makes equal, processors keep the lowest id
        scaled = apply_temperature(row, params.temperature)
        assert torch.equal(scaled[ids].sort().values, scaled[kept].sort().values)
    before, after = plain_shares(row), plain_shares(processed)
    assert shown.kept_mass == pytest.approx(before[ids].sum(), abs=1e-6)
    assert shown.entropy == pytest.approx((oracle.entropy(before), oracle.entropy(after)), abs=3e-5)
    first = oracle.ranking(oracle.plain_row(row))[: min(top, int(row.isfinite().sum()))]
    assert [one.token_id for one in shown.rows] == first.tolist()
    assert [one.raw for one in shown.rows] == pytest.approx(before[first].tolist(), abs=1e-6)
    by_share = np.sort(after)[::-1][: len(first)]
    assert [one.final for one in shown.rows] == pytest.approx(by_share.tolist(), abs=1e-6)
    return True


def plain_shares(row: torch.Tensor) -> np.ndarray:
    return oracle.softmax(row.double().numpy())


@each_kind
def test_a_draw_is_one_kept_token_a_row(request, kind):
    def one_input(dice, logits):
        params = adversarial.mix(dice, logits, adversarial.FILTERS)
        processed = process_logits(logits, params)
        with noted(params):
            for _ in range(3):
                drawn = untouched(sample, logits, params, generator=dice.torch)
                assert (drawn.dtype, drawn.shape) == (torch.int64, logits.shape[:-1])
                assert processed.gather(-1, drawn.unsqueeze(-1)).isfinite().all()
            if params.temperature == 0:
                assert torch.equal(drawn, processed.argmax(dim=-1))
        return 0

    compare(request, "sample", kind, one_input)


# ---- transformers -------------------------------------------------------------------------------------------------

PEER_STAGES = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")


@pytest.fixture(scope="module")
def hf():
    from transformers.generation import logits_process

    return logits_process


def peer(hf, params: SamplingParams):
    """The list of processors that transformers' generate builds for these settings, in its order."""
    processors = {
        "repetition_penalty": lambda: hf.RepetitionPenaltyLogitsProcessor(params.repetition_penalty),
        "temperature": lambda: hf.TemperatureLogitsWarper(params.temperature),
        "top_k": lambda: hf.TopKLogitsWarper(params.top_k),
        "top_p": lambda: hf.TopPLogitsWarper(params.top_p),
        "min_p": lambda: hf.MinPLogitsWarper(params.min_p),
    }
    return hf.LogitsProcessorList(processors[stage]() for stage in params.stages)


def peer_settings(dice: Dice, d_vocab: int) -> SamplingParams:
    """One stage or all, with a value drawn evenly over what people use."""
    values = {
        "repetition_penalty": dice.uniform(0.7, 1.7),
        "temperature": dice.uniform(0.2, 2.5),
        "top_k": 1 + int(dice.random() * 1.2 * d_vocab),
        "top_p": dice.uniform(1e-3, 1),
        "min_p": dice.random() ** 3,
    }
    stages = PEER_STAGES if dice.random() < 0.3 else [dice.choice(PEER_STAGES)]
    return SamplingParams(**{stage: values[stage] for stage in stages})


@each_kind
def test_the_same_tokens_are_kept_with_the_same_logits_as_in_transformers(request, hf, kind):
    def one_input(dice, logits):
        rows = (
            logits.reshape(-1, logits.shape[-1]).float() if logits.numel() else logits.new_zeros(1, 3).float()
        )
        params = peer_settings(dice, rows.shape[-1])
        ids = dice.whole(rows.shape[-1], len(rows), 8)
        theirs = peer(hf, params)(ids, rows.clone())
        ours = process_logits(rows, params, prompt=ids[:, :5], generated=ids[:, 5:])
        with noted(params):
            return sum(
                not as_in_transformers(params, *row) for row in zip(rows, ids, ours, theirs, strict=True)
            )

    compare(request, "transformers", kind, one_input)


def as_in_transformers(params, row, ids, ours, theirs) -> bool:
    """See that one row agrees; return False where the two may differ, and nothing was compared."""
    if row[row.isfinite()].abs().amax() > 1e37:
        return False
    nearest = 1e-5 if len(row) < 5000 else 1e-3
    if oracle.process(row.numpy(), params, ids.tolist()).margin < nearest:
        return False
    uncut = dataclasses.replace(params, top_k=0, top_p=1.0, min_p=0.0)
    tied = adversarial.has_ties(
        process_logits(row, uncut, prompt=ids)
    )  # a division may make equal what was not
    if tied and len(params.stages) > 1:  # after the first cut through a tie each goes its own way
        return False
    if tied and params.stages == ("top_k",):
        assert (
            theirs.isfinite().sum() >= ours.isfinite().sum() == min(params.top_k, int(row.isfinite().sum()))
        )
        assert torch.equal(theirs, row.masked_fill(row < ours[ours.isfinite()].amin(), -torch.inf))
        return True
    if tied and params.stages == ("top_p",):
        ours, theirs = ours.sort().values, theirs.sort().values
    torch.testing.assert_close(ours, theirs)
    return True


CHECKS = (*ALONE, "pipelines", "RankedLogits", "sample", "transformers")


def test_at_ties_transformers_keeps_more_than_k_tokens_and_ours_exactly_k(hf):
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 3.0]])
    params = SamplingParams(top_k=2)
    assert peer(hf, params)(None, logits).isfinite().tolist() == [[False, True, True, True, True]]
    assert process_logits(logits, params).isfinite().tolist() == [[False, True, False, False, True]]


def test_float16_makes_ties_of_different_logits_so_transformers_keeps_more_than_fifty(hf):
    logits = torch.linspace(12, 8, 4000)
    assert logits.unique().numel() == 4000
    params = SamplingParams(top_k=50)
    assert peer(hf, params)(None, logits.half()[None]).isfinite().sum() > 50
    assert process_logits(logits.half(), params).isfinite().sum() == 50


@pytest.mark.parametrize("p", [0.5, 0.75])
def test_at_exact_sums_both_stop_at_the_token_that_reaches_p(hf, p):
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    params = SamplingParams(top_p=p)
    assert torch.equal(process_logits(logits, params), peer(hf, params)(None, logits))
