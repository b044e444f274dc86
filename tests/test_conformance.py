"""Our processors beside transformers' own, over random settings.

Where the two differ on purpose: at ties ours keeps exactly k and the lowest ids, so the logits here have none.
transformers has no presence and no frequency penalty. It sums in float32, so p stays 1e-5 away from every sum.
"""

import pytest
import torch

from lmhead_course import SamplingParams, process_logits
from tests import oracle

BATCH, D_VOCAB, SETTINGS = 3, 400, 120
STAGES = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")


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


def random_settings(stages, generator: torch.Generator) -> SamplingParams:
    """A value for each of the stages, drawn evenly over what people use."""
    temperature, k, p, min_p, penalty = torch.rand(5, generator=generator).tolist()
    values = {
        "repetition_penalty": 0.7 + penalty,
        "temperature": 0.2 + 2.3 * temperature,
        "top_k": 1 + int(k * 1.2 * D_VOCAB),
        "top_p": p,
        "min_p": min_p**3,
    }
    return SamplingParams(**{stage: values[stage] for stage in stages})


def cases(stages, seed: int):
    """Yield logits, ids and settings whose cuts fall clearly between two tokens."""
    generator = torch.Generator().manual_seed(seed)
    found = 0
    while found < SETTINGS:
        params = random_settings(stages, generator)
        scale = 0.5 + 4 * torch.rand((), generator=generator)
        logits = scale * torch.randn(BATCH, D_VOCAB, generator=generator)
        ids = torch.randint(D_VOCAB, (BATCH, 60), generator=generator)
        outcomes = [
            oracle.process(row.numpy(), params, i.tolist()) for row, i in zip(logits, ids, strict=True)
        ]
        if min(outcome.margin for outcome in outcomes) > 1e-5:
            found += 1
            yield logits, ids, params


@pytest.mark.parametrize(
    "stages", [*((stage,) for stage in STAGES), STAGES], ids=[*STAGES, "all, in transformers' order"]
)
def test_the_same_tokens_are_kept_with_the_same_logits_as_in_transformers(hf, stages):
    for logits, ids, params in cases(stages, seed=len(stages[0])):
        theirs = peer(hf, params)(ids, logits.clone())
        ours = process_logits(logits, params, prompt=ids[:, :40], generated=ids[:, 40:])
        assert torch.equal(ours.isfinite(), theirs.isfinite()), params
        torch.testing.assert_close(ours, theirs, msg=lambda message, p=params: f"{p}\n{message}")


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
