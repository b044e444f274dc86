"""``sample`` and ``process_logits`` beside the same work done with transformers' processors, softmax and multinomial.

Both sides start from the same float32 logits. "tokens" ends with a drawn id a row, "logits" with processed logits.
Beside the times stands the least that any method takes here: the time to read the logits from memory once (and to write
the result, where there is one), at the rate at which this machine adds up a large tensor.

Run ``python -m benchmarks.samplers``; it exits with 1 if a ratio of CPU times on one thread misses its goal.
"""

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch

from benchmarks.timing import Timing, paired, threads_set
from lmhead_course import SamplingParams, process_logits, sample


class Case(NamedTuple):
    """Rows × d_vocab logits under some settings, and how many times as fast as the peer each function shall be."""

    rows: int
    d_vocab: int
    params: SamplingParams
    goals: dict[str, float]


NUCLEUS, USUAL = SamplingParams(top_p=0.9), SamplingParams(temperature=0.8, top_k=50, top_p=0.9)
CASES = (
    Case(64, 128_256, NUCLEUS, {"tokens": 10, "logits": 5}),
    Case(1, 49_152, USUAL, {"tokens": 5, "logits": 5}),
    Case(1, 262_144, USUAL, {"tokens": 5, "logits": 5}),
)


def made_up_logits(rows: int, d_vocab: int) -> torch.Tensor:
    """Return rows of normal logits, as wide as a small model's."""
    return 2.5 * torch.randn(rows, d_vocab, generator=torch.Generator().manual_seed(0))


def chain(params: SamplingParams):
    """Return the processors that transformers' ``generate`` builds for the same settings."""
    from transformers.generation import logits_process as hf

    made = hf.LogitsProcessorList()
    if params.temperature != 1:
        made.append(hf.TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        made.append(hf.TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        made.append(hf.TopPLogitsWarper(params.top_p))
    return made


def ways(case: Case, what: str) -> dict[str, Callable]:
    """Return our way and the peer's, by name."""
    logits, processors = made_up_logits(case.rows, case.d_vocab), chain(case.params)
    ids = torch.zeros(case.rows, 1, dtype=torch.long)
    if what == "logits":
        return {
            "ours": lambda: process_logits(logits, case.params),
            "theirs": lambda: processors(ids, logits),
        }
    return {
        "ours": lambda: sample(logits, case.params),
        "theirs": lambda: torch.multinomial(processors(ids, logits).softmax(dim=-1), 1),
    }


def measure(case: Case, what: str, turns: int = 11, threads: int = 1) -> tuple[Timing, Timing]:
    """Return the medians of our way and of the peer's, measured turn by turn."""
    with threads_set(threads), torch.inference_mode():
        timings = paired(ways(case, what), turns, calls=1 if case.rows > 1 else 10)
    return timings["ours"], timings["theirs"]


def bytes_a_second() -> float:
    """Return the rate at which one thread reads memory: the best of several sums over 256 MiB."""
    large = torch.zeros(2**26)
    spent = []
    for _ in range(5):
        start = time.process_time()
        large.sum()
        spent.append(time.process_time() - start)
    return large.nbytes / min(spent)


def least_seconds(case: Case, what: str, rate: float) -> float:
    """Return the time to move the bytes that any method must: the logits in, and for "logits" the result out."""
    return case.rows * case.d_vocab * 4 * (2 if what == "logits" else 1) / rate


def main() -> int:
    """Print a table in Markdown; return 1 if a goal is missed."""
    torch.set_num_threads(1)
    rate = median(bytes_a_second() for _ in range(3))
    print(
        f"One thread reads {rate / 1e9:.1f} GB/s. Medians of 11 turns in ms: CPU time, in brackets by the clock.\n"
    )
    print("| work | threads | lmhead_course | transformers | ratio | goal | reading memory once |")
    print("|---|---|---|---|---|---|---|")
    missed = False
    for case in CASES:
        p = case.params
        settings = f"T={p.temperature:g}, k={p.top_k or 'off'}, p={p.top_p:g}"
        for what, goal in case.goals.items():
            for threads in (1, 2):
                ours, theirs = measure(case, what, threads=threads)
                ratio = theirs.cpu / ours.cpu if threads == 1 else theirs.wall / ours.wall
                missed |= threads == 1 and ratio < goal
                cells = " | ".join(f"{1e3 * t.cpu:.2f} ({1e3 * t.wall:.2f})" for t in (ours, theirs))
                aim = f"{goal}×" if threads == 1 else ""
                least = f"{1e3 * least_seconds(case, what, rate):.2f}"
                name = f"{what}, B={case.rows}, V={case.d_vocab:,}, {settings}"
                print(f"| {name} | {threads} | {cells} | {ratio:.1f}× | {aim} | {least} |", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
