"""Peak memory and time of one training step of a head, each way in a fresh process: only there a peak is honest.

A process never gives its largest size back, so that a second measurement in the same one would show the first.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .loss import linear_cross_entropy
from .memory import PROCESS_BYTES, require_memory


@dataclass(frozen=True)
class Peak:
    """One way, measured: bytes above the inputs at the highest point, seconds by the clock and of CPU time, results.

    ``loss`` in nats; ``hidden_check`` and ``weight_check`` are Σ gradient · input of each gradient, numbers that
    differ if the gradients do.
    """

    way: str
    extra_bytes: int
    seconds: float
    cpu_seconds: float
    loss: float
    hidden_check: float
    weight_check: float


def naive(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss through a full matrix of logits."""
    return F.cross_entropy(F.linear(hidden, weight), targets)


def built_in(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss through torch's function as it is called at first: it makes all logits too."""
    return F.linear_cross_entropy(hidden, weight, targets)


def built_in_chunked(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss through torch's function with its options, all at "auto"."""
    return F.linear_cross_entropy(hidden, weight, targets, options=torch.nn.LinearCrossEntropyOptions())


def built_in_tuned(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss through torch's function with options that were fast on the machine this was tried on."""
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=256, acc_policy="compact")
    return F.linear_cross_entropy(hidden, weight, targets, options=options)


WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "naive": naive,
    "torch, as it is": built_in,
    "torch, options()": built_in_chunked,
    "torch, chunks of 256": built_in_tuned,
    "ours": linear_cross_entropy,
}


def inputs(n: int, d_vocab: int, d_model: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden states (n, d_model), weight (d_vocab, d_model) and targets (n,), always the same random ones."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, d_model, generator=generator)
    weight = torch.randn(d_vocab, d_model, generator=generator).mul_(0.05)
    targets = torch.randint(d_vocab, (n,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def measure(way: str, n: int, d_vocab: int, d_model: int, *, timeout: float = 300.0) -> Peak:
    """Run one way in a process of its own, on one thread, and return what it took.

    Raises ``ValueError`` for an unknown way, ``MemoryError`` if there is no room for it and ``RuntimeError`` with what
    the process said if it failed.
    """
    if way not in WAYS:
        raise ValueError(f"way must be one of {', '.join(WAYS)}, got {way!r}")
    require_memory(_needed(way, n, d_vocab, d_model), f"measuring {way!r}")
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", __name__, way, str(n), str(d_vocab), str(d_model)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way} failed (exit code {done.returncode}): {done.stderr.strip()[-500:]}")
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def _needed(way: str, n: int, d_vocab: int, d_model: int) -> int:
    """Return about how many bytes the process takes: Python with torch, the weight, its gradient, and all logits."""
    logits = (
        10 * n * d_vocab if WAYS[way] in (naive, built_in) else 0
    )  # 2.5 float32 numbers a logit, as measured
    return PROCESS_BYTES + 8 * d_vocab * d_model + logits


def _measured(way: str, n: int, d_vocab: int, d_model: int) -> Peak:
    torch.set_num_threads(1)
    function = WAYS[way]
    function(*inputs(8, 64, 8)).backward()  # what libraries load and set up at first use is not the way's own
    tensors = inputs(n, d_vocab, d_model)
    before = _forget_peak()
    start, cpu = time.perf_counter(), time.process_time()
    loss = function(*tensors)
    loss.backward()
    taken = time.perf_counter() - start, time.process_time() - cpu
    peak = _peak()
    checks = [float((tensor.grad * tensor.detach()).sum(dtype=torch.float64)) for tensor in tensors[:2]]
    return Peak(way, peak - before, *taken, float(loss.detach()), *checks)


def _forget_peak() -> int:
    """Return the process's size in bytes, and let its peak begin there where the system can do that (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return _peak()


def _peak() -> int:
    """Return the largest size that this process has had, in bytes."""
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    try:
        import resource
    except ImportError:  # Windows
        import psutil  # every Jupyter kernel has it

        return psutil.Process().memory_info().peak_wset
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], *map(int, sys.argv[2:])).__dict__))
