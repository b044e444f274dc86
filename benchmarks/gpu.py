"""What a GPU makes of the samplers, the loss and an explorer, beside the CPU of the same machine: under five minutes.

It checks that both give the same tokens and losses, and prints the times, by the clock, of either. This has not been
run on a GPU yet: none was at hand. The tests run every part of it on the CPU.

Run ``python -m benchmarks.gpu [device]`` (cuda unless told).
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import torch

from lmhead_course import SamplingParams, linear_cross_entropy, load_model, process_logits, sample
from lmhead_course.explorers import SamplingExplorer

PARAMS = SamplingParams(temperature=0.8, top_k=50, top_p=0.9)


def seconds(work: Callable, device: torch.device, turns: int) -> float:
    """Return the median time of one call by the clock, after a first that does not count."""
    spent = []
    for _ in range(turns + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # a call only queues the work
        spent.append(time.perf_counter() - start)
    return median(spent[1:])


def works(device: torch.device, rows: int, d_vocab: int) -> dict[str, Callable]:
    """Return what is timed, by name, on made-up numbers."""
    generator = torch.Generator("cpu").manual_seed(0)
    logits = (2.5 * torch.randn(rows, d_vocab, generator=generator, device="cpu")).to(device)
    hidden = torch.randn(256, 576, generator=generator, device="cpu").to(device).requires_grad_()
    weight = (0.05 * torch.randn(d_vocab, 576, generator=generator, device="cpu")).to(device).requires_grad_()
    targets = torch.arange(256, device=device) % d_vocab

    def loss() -> torch.Tensor:
        hidden.grad = weight.grad = None
        value = linear_cross_entropy(hidden, weight, targets)
        value.backward()
        return value.detach()

    seeded = torch.Generator("cpu").manual_seed
    return {
        "process_logits": lambda: process_logits(logits, PARAMS).isfinite(),
        "sample": lambda: sample(logits, PARAMS, generator=seeded(1)),
        "sample, top-p alone": lambda: sample(logits, SamplingParams(top_p=0.9), generator=seeded(1)),
        "linear_cross_entropy, both passes": loss,
    }


def drag(explorer: SamplingExplorer, moves: int) -> None:
    """Move the temperature and top-p as a hand does."""
    for move in range(moves):
        explorer.temperature.value = round(0.5 + move % 20 / 20, 2)
        explorer.top_p.value = round(0.8 + move % 10 / 100, 2)


def report(
    device: torch.device, lm, rows: int = 64, d_vocab: int = 128_256, moves: int = 100, turns: int = 10
):
    """Print the table, and stop where the two devices disagree."""
    cpu = torch.device("cpu")
    print(f"{'work':<36}{'CPU, ms':>10}{str(device) + ', ms':>14}")
    here, there = works(cpu, rows, d_vocab), works(device, rows, d_vocab)
    for name, work in here.items():
        torch.testing.assert_close(there[name]().cpu(), work(), rtol=1e-4, atol=1e-4)
        times = seconds(work, cpu, turns), seconds(there[name], device, turns)
        print(f"{name:<36}{1e3 * times[0]:>10.2f}{1e3 * times[1]:>14.2f}", flush=True)
    explorer = SamplingExplorer(lm)
    spent = seconds(lambda: drag(explorer, moves), lm.device, 1) / (2 * moves)
    print(f"{'one move of a slider':<36}{'':>10}{1e3 * spent:>14.2f}")


if __name__ == "__main__":
    chosen = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    report(chosen, load_model(device=chosen))
