"""What this machine can do, measured: how long a piece of work takes, memory bandwidth, and matrix products."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from .memory import require_memory


def seconds(work: Callable[[], object], *, repeats: int = 7, at_least: float = 0.01) -> float:
    """Return the time of a piece of work in seconds: the fastest of ``repeats`` runs of ``at_least`` seconds each.

    The fastest, since other programs can only make a run slower. Work that is done sooner is called several times a
    run. A first run, which is not counted, warms up.
    """
    start = time.perf_counter()
    work()
    calls = max(1, round(at_least / max(time.perf_counter() - start, 1e-9)))
    return min(_run(work, min(calls, 10_000)) for _ in range(repeats))


def _run(work: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls


def copy_bandwidth(like: Tensor) -> float:
    """Return bytes a second, read and written together, of copying a tensor as large as ``like``.

    The size matters: what fits in a cache is copied faster than what does not.
    """
    require_memory(2 * like.numel() * like.element_size(), "measuring the memory's speed")
    source, target = torch.ones_like(like), torch.empty_like(like)
    return 2 * source.numel() * source.element_size() / seconds(lambda: target.copy_(source))


def matrix_rate(n: int = 1024, dtype: torch.dtype = torch.float32) -> float:
    """Return FLOPs a second of an n × n matrix product, two a multiply-add, on torch's current number of threads."""
    a, b = torch.ones(n, n, dtype=dtype), torch.ones(n, n, dtype=dtype)
    out = torch.empty(n, n, dtype=dtype)
    return 2 * n**3 / seconds(lambda: torch.mm(a, b, out=out))
