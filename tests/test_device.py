"""The same numbers wherever the tensors are: what `pytest --device cuda` compares with the CPU."""

import pytest
import torch
from torch.testing import assert_close

from benchmarks import gpu
from lmhead_course import RankedLogits, SamplingParams, linear_cross_entropy, process_logits, sample
from tests.typecheck import unchecked

SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.8, top_k=50, top_p=0.9),
    SamplingParams(top_p=0.9, min_p=0.01, order="llama.cpp"),
    SamplingParams(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2, top_p=0.95),
]
IDS = {"prompt": torch.tensor([[1, 2], [3, 3]]), "generated": torch.tensor([[5, -1], [7, 8]])}


def made_up(*shape):
    return torch.randn(*shape, generator=torch.Generator("cpu").manual_seed(0), device="cpu")


def ids_on(device):
    return {name: ids.to(device) for name, ids in IDS.items()}


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_processed_logits_are_those_of_the_cpu(params, device):
    logits = 3 * made_up(2, 4000)
    expected = process_logits(logits, params, **ids_on("cpu"))
    processed = process_logits(logits.to(device), params, **ids_on(device))
    assert processed.device.type == device.type
    assert_close(processed.cpu(), expected)


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_the_same_seed_of_the_cpu_draws_the_same_tokens(params, device):
    logits = 3 * made_up(2, 4000)
    drawn = [
        sample(
            logits.to(where), params, **ids_on(where), generator=torch.Generator("cpu").manual_seed(1)
        ).cpu()
        for where in ("cpu", device)
    ]
    assert torch.equal(*drawn)


def test_a_ranking_is_that_of_the_cpu(device):
    logits, params = 3 * made_up(4000), SamplingParams(0.7, top_p=0.9)
    assert RankedLogits(logits.to(device)).distribution(params) == RankedLogits(logits).distribution(params)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_loss_and_gradients_are_those_of_the_cpu(reduction, device):
    def results(where):
        hidden, weight = (made_up(*shape).to(where).requires_grad_() for shape in ((20, 16), (300, 16)))
        loss = linear_cross_entropy(hidden, weight, torch.arange(20, device=where), reduction=reduction)
        loss.sum().backward()
        return [x.detach().cpu() for x in (loss, hidden.grad, weight.grad)]

    assert_close(results(device), results("cpu"), rtol=1e-4, atol=1e-5)


def test_the_script_for_a_gpu_runs_every_part_on_any_device(device, lm, capsys):
    with unchecked():
        gpu.report(device, lm, rows=4, d_vocab=3000, moves=5, turns=1)
    printed = capsys.readouterr().out
    assert all(part in printed for part in ("sample", "process_logits", "linear_cross_entropy", "slider"))
