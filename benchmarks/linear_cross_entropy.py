"""Peak memory and time of a head's training step: ``linear_cross_entropy`` beside the naive route and torch's built-in.

Each way runs in a process of its own, since only there a peak is honest, and the ways take turns. Memory is what comes
on top of the inputs; the floor is the two gradients, which every way has to return. Times are CPU time of forward and
backward on one thread, the median of the turns.

Run ``python -m benchmarks.linear_cross_entropy``; ``--turns 1`` for a quick look.
"""

import argparse
from statistics import median

from lmhead_course.peaks import WAYS, Peak, measure

SHAPES = ((1024, 49_152, 576), (1024, 128_256, 512))
"""Positions, d_vocab, d_model: the live model's head, and one with the vocabulary of Llama 3."""


def floor_bytes(n: int, d_vocab: int, d_model: int) -> int:
    """Return the bytes of both gradients in float32."""
    return 4 * d_model * (n + d_vocab)


def turns_of(shape: tuple[int, int, int], ways: list[str], turns: int) -> dict[str, list[Peak]]:
    """Give every way so many turns, one way after the other."""
    taken: dict[str, list[Peak]] = {way: [] for way in ways}
    for _ in range(turns):
        for way in ways:
            taken[way].append(measure(way, *shape))
    return taken


def main(turns: int) -> None:
    """Print one table a shape."""
    for shape in SHAPES:
        n, d_vocab, d_model = shape
        print(f"N={n:,} V={d_vocab:,} D={d_model}: floor {floor_bytes(*shape) / 2**20:.0f} MiB")
        taken = turns_of(shape, list(WAYS), turns)
        naive = median(peak.cpu_seconds for peak in taken["naive"])
        for way, peaks in taken.items():
            seconds, memory = (
                median(getattr(p, name) for p in peaks) for name in ("cpu_seconds", "extra_bytes")
            )
            print(
                f"  {way:<22}{memory / 2**20:>6.0f} MiB {seconds:>7.2f} s {seconds / naive:>6.2f} × naive"
                f"   loss {peaks[0].loss:.6f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    main(parser.parse_args().turns)
