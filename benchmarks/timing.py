"""Time several ways of doing one thing, turn by turn, so that a busy moment hits all of them alike."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch


@dataclass(frozen=True)
class Timing:
    """Medians over all turns, in seconds a call: of the process's CPU time and of the clock on the wall."""

    cpu: float
    wall: float


@contextmanager
def threads_set(threads: int) -> Iterator[None]:
    """Let torch compute on so many threads, and on as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def paired(ways: Mapping[str, Callable[[], object]], turns: int, calls: int = 1) -> dict[str, Timing]:
    """Give every way ``turns`` turns of ``calls`` calls each, one way after the other; a first turn does not count."""
    taken = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(calls):
                way()
            spent = (time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls
            if turn > 0:
                taken[name].append(spent)
    return {name: Timing(*map(median, zip(*spent, strict=True))) for name, spent in taken.items()}
