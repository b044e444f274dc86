"""Peak memory and time of a head's training step: ``linear_cross_entropy`` beside the naive route and torch's built-in.

Memory is what comes on top of the inputs, each way in a process of its own, since only there a peak is honest; some
1 MiB of it is the libraries' own, code and buffers of matrix products. The floor is the two gradients, which every way
has to return. Times are of forward and backward in one process, the ways in turn. Three products of N × V × D cannot be
avoided; beside the times stands what these take at the rate at which this machine multiplies large matrices.

Run ``python -m benchmarks.linear_cross_entropy [turns]``; it exits with 1 if on one thread we are above 1.05 × naive or
behind the built-in, or in memory above 1.25 × the floor.
"""

import sys
import time

import torch

from benchmarks.timing import Timing, paired, threads_set
from lmhead_course.peaks import WAYS, inputs, measure

SHAPES = ((1024, 49_152, 576), (1024, 128_256, 512))
"""Positions, d_vocab, d_model: the live model's head, and one with the vocabulary of Llama 3."""
NAIVE, BEST, OURS = "naive", "torch, chunks of 256", "ours"
TIMED = (NAIVE, BEST, OURS)
"""The built-in's other ways are slower than naive, or as large."""
TIME_GOAL, MEMORY_GOAL = 1.05, 1.25


def floor_bytes(n: int, d_vocab: int, d_model: int) -> int:
    """Return the bytes of both gradients in float32."""
    return 4 * d_model * (n + d_vocab)


def timed(shape: tuple[int, int, int], threads: int, turns: int) -> dict[str, Timing]:
    """Return the medians of one training step, by the way it is taken."""
    tensors = inputs(*shape)

    def step(way: str) -> None:
        tensors[0].grad = tensors[1].grad = None
        WAYS[way](*tensors).backward()

    with threads_set(threads):
        return paired({way: lambda way=way: step(way) for way in TIMED}, turns)


def flops_a_second() -> float:
    """Return the rate at which torch's threads multiply large matrices, by the clock: the best of several products."""
    square = torch.randn(2048, 2048)
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        square @ square
        spent.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(spent)


def least_seconds(shape: tuple[int, int, int], threads: int) -> float:
    """Return the time of the three products alone."""
    n, d_vocab, d_model = shape
    with threads_set(threads):
        return 6 * n * d_vocab * d_model / flops_a_second()


def main() -> int:
    """Print two tables a shape; return 1 if a goal is missed."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    missed = False
    for shape in SHAPES:
        n, d_vocab, d_model = shape
        floor = floor_bytes(*shape)
        print(f"N={n:,} V={d_vocab:,} D={d_model}: floor {floor / 2**20:.1f} MiB")
        for way in WAYS:
            peak = measure(way, *shape)
            ratio, size = peak.extra_bytes / floor, peak.extra_bytes / 2**20
            print(f"  {way:<22}{size:>8.1f} MiB {ratio:>6.2f} × floor   loss {peak.loss:.6f}", flush=True)
            missed |= way == OURS and round(ratio, 2) > MEMORY_GOAL
        for threads in (1, 2):
            least = least_seconds(shape, threads)
            print(f"  {threads} thread{'s'[: threads - 1]}, the products alone {least:.2f} s by the clock:")
            found = timed(shape, threads, turns)
            for way, one in found.items():
                ratio, cpu_ratio = one.wall / found[NAIVE].wall, one.cpu / found[NAIVE].cpu
                times = f"{one.cpu:>8.2f} s CPU {one.wall:>6.2f} s by the clock"
                print(f"    {way:<22}{times} {cpu_ratio:>6.2f} (clock {ratio:.2f}) × naive", flush=True)
            limit = min(TIME_GOAL * found[NAIVE].cpu, found[BEST].cpu)
            missed |= threads == 1 and found[OURS].cpu > limit
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
