"""One head over several processes: each holds some rows of the vocabulary, and they exchange a few numbers a position.

``vocab_parallel`` starts real processes that talk through ``torch.distributed`` (gloo), as the devices of a large
model do, and returns what they found together. The functions that run in them stand here, since a new process can
import a package but not a notebook.

Source: Shoeybi et al. 2019, Megatron-LM (arXiv:1909.08053), section 3, for the loss without gathering the logits.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .memory import PROCESS_BYTES, require_memory

START_TIMEOUT = 90.0
"""Seconds that the processes get to start, import torch and find each other."""
GRACE = 3.0
"""Seconds that the others get to report, once one process has failed."""
FAULTS = ("dies", "hangs")


class PeerError(RuntimeError):
    """A process of the group died, hung or failed; ``reports`` maps its rank to what each one that could say said."""

    def __init__(self, message: str, reports: dict[int, str]):
        super().__init__(message)
        self.reports = reports


@dataclass(frozen=True)
class ShardedHead:
    """What the processes found: each tensor put together from their parts, and the bytes that each of them sent.

    ``probabilities`` (position, d_vocab), mean ``loss`` in nats, ``grad_hidden`` (position, d_model), ``grad_weight``
    (d_vocab, d_model), ``samples`` (position,) of token ids. ``sent`` maps what was sent to bytes per process.
    """

    probabilities: Float[Tensor, "position d_vocab"]
    loss: Float[Tensor, ""]
    grad_hidden: Float[Tensor, "position d_model"]
    grad_weight: Float[Tensor, "d_vocab d_model"]
    samples: Int[Tensor, " position"]
    sent: dict[str, int]


def vocab_parallel(
    hidden: Float[Tensor, "position d_model"],
    weight: Float[Tensor, "d_vocab d_model"],
    targets: Int[Tensor, " position"],
    *,
    processes: int = 2,
    generator: torch.Generator | None = None,
    timeout: float = 30.0,
    fault: str | None = None,
) -> ShardedHead:
    """Return softmax, loss, gradients and one drawn token a position, computed by processes that share the vocabulary.

    Shapes: ``hidden`` (position, d_model), ``weight`` (d_vocab, d_model), ``targets`` (position,). The draw is that of
    ``sample(logits, SamplingParams(), generator=…)``. Every exchange, and all work after the start, has to end within
    ``timeout`` seconds: a process that dies or hangs is a ``PeerError`` after at most START_TIMEOUT + timeout + GRACE
    seconds, usually at once, and no process is left behind. ``fault`` makes the last process die or hang on purpose.

    Raises ``ValueError`` for fewer tokens than processes, and for an unknown fault; ``MemoryError`` if there is no room
    for so many processes.
    """
    if not 1 <= processes <= len(weight):
        raise ValueError(f"processes must be in [1, {len(weight)}], one token each at least, got {processes}")
    if fault is not None and fault not in FAULTS:
        raise ValueError(f"fault must be one of {', '.join(FAULTS)}, or None, got {fault!r}")
    needed = (
        PROCESS_BYTES * processes + 3 * 4 * weight.numel()
    )  # as it is handed over, in the shards, and the gradient
    require_memory(needed, f"a head split over {processes} processes")
    points = torch.rand(len(hidden), 1, dtype=torch.float64, generator=generator)
    with TemporaryDirectory() as name:
        folder = Path(name)
        inputs = {"hidden": hidden, "weight": weight, "targets": targets, "points": points}
        torch.save({key: tensor.detach().cpu().contiguous() for key, tensor in inputs.items()}, folder / "in")
        orders = {"processes": processes, "timeout": timeout, "fault": fault}
        (folder / "orders").write_text(json.dumps(orders))
        with _started(folder, processes) as running:
            _supervise(folder, running, timeout)
        return _joined([torch.load(folder / f"out{rank}") for rank in range(processes)])


def _joined(parts: list[dict]) -> ShardedHead:
    first = parts[0]
    return ShardedHead(
        probabilities=torch.cat([part["probabilities"] for part in parts], dim=-1),
        loss=first["loss"],
        grad_hidden=first["grad_hidden"],
        grad_weight=torch.cat([part["grad_weight"] for part in parts]),
        samples=first["samples"],
        sent=first["sent"],
    )


# ---- in every process: one shard of the head ------------------------------------------------------------------


class Wire:
    """The exchanges between the processes, and how many bytes each process has sent, by what for."""

    def __init__(self, group):
        self._group = group
        self.sent: dict[str, int] = {}

    def gather(self, what: str, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, stacked in the order of their ranks."""
        self._count(what, tensor)
        parts = [torch.empty_like(tensor) for _ in range(self._group.size())]
        torch.distributed.all_gather(parts, tensor, group=self._group)
        return torch.stack(parts)

    def add(self, what: str, tensor: Tensor) -> Tensor:
        """Return the sum over all processes."""
        self._count(what, tensor)
        torch.distributed.all_reduce(tensor, group=self._group)
        return tensor

    def _count(self, what: str, tensor: Tensor) -> None:
        self.sent[what] = self.sent.get(what, 0) + tensor.numel() * tensor.element_size()


def shard(wire: Wire, rank: int, first: int, hidden, weight, targets, points) -> dict[str, Tensor]:
    """Return this process's part of the answer, for the rows ``first`` onwards of the vocabulary, ``weight``."""
    logits = hidden @ weight.T
    local = targets - first
    mine = (local >= 0) & (local < len(weight))
    place = local.clamp(0, len(weight) - 1).unsqueeze(1)
    # A maximum and a sum of every position, and its target's logit from the shard that has it.
    peak = logits.amax(dim=1)
    total = (logits - peak[:, None]).exp().sum(dim=1)
    at_target = logits.gather(1, place).squeeze(1).masked_fill(~mine, 0.0)
    peaks, totals, at_targets = wire.gather(
        "maximum, sum, target's logit", torch.stack([peak, total, at_target])
    ).unbind(1)
    highest = peaks.amax(dim=0)
    normaliser = highest + (totals * (peaks - highest).exp()).sum(dim=0).log()
    probabilities = (logits - normaliser[:, None]).exp()
    # p − onehot of the mean loss needs nothing from the others; the hidden gradient is a sum over the vocabulary.
    error = probabilities.scatter_add(1, place, -mine[:, None].to(logits.dtype)) / len(hidden)
    return {
        "probabilities": probabilities,
        "loss": (normaliser - at_targets.sum(dim=0)).mean(),
        "grad_hidden": wire.add("gradient of the hidden states", error @ weight),
        "grad_weight": error.T @ hidden,
        "samples": _draw(wire, rank, first, logits - highest[:, None], points),
    }


def _draw(wire: Wire, rank: int, first: int, shifted: Tensor, points: Tensor) -> Tensor:
    """Return one token a position: all shards lie on one line, and the shard on which the point falls names it."""
    line = shifted.exp().cumsum(dim=1, dtype=torch.float64)
    masses = wire.gather("sampling: mass of the shard", line[:, -1:].contiguous())
    total = masses.sum(dim=0)
    # As in `sample`: the point is below the end of the line, rounding or not.
    point = torch.minimum(points * total, torch.nextafter(total, torch.zeros_like(total)))
    point = point - masses[:rank].sum(dim=0)
    last = rank == len(masses) - 1
    inside = (point >= 0) & ((point < masses[rank]) | last)
    found = torch.searchsorted(line, point, right=True).clamp(max=line.shape[1] - 1)
    return wire.add("sampling: the token", torch.where(inside, first + found, 0)).squeeze(1)


def bounds(d_vocab: int, processes: int) -> list[tuple[int, int]]:
    """Return the first row and the row after the last of each shard; sizes differ by one at most."""
    edges = [d_vocab * rank // processes for rank in range(processes + 1)]
    return list(pairwise(edges))


def _work(folder: Path, rank: int) -> None:
    orders = json.loads((folder / "orders").read_text())
    processes, timeout = orders["processes"], orders["timeout"]
    torch.set_num_threads(1)
    given = torch.load(folder / "in", mmap=True)
    torch.distributed.init_process_group(
        "gloo",
        init_method=(folder / "meet").as_uri(),
        rank=rank,
        world_size=processes,
        timeout=timedelta(seconds=START_TIMEOUT),
    )
    wire = Wire(torch.distributed.new_group(timeout=timedelta(seconds=timeout)))
    (folder / f"ready{rank}").touch()
    if orders["fault"] and rank == processes - 1:
        _fail(orders["fault"], timeout)
    first, after = bounds(len(given["weight"]), processes)[rank]
    given["weight"] = given["weight"][first:after]
    found = shard(wire, rank, first, **given)
    part = folder / f"part{rank}"
    torch.save({**found, "sent": wire.sent}, part)
    part.rename(folder / f"out{rank}")  # at once: it is whole when it is there
    # Who leaves while another still reads closes the line under it.
    end = time.monotonic() + timeout
    while _without(folder, "out", processes) and time.monotonic() < end:
        time.sleep(0.02)
    torch.distributed.destroy_process_group()


def _fail(fault: str, timeout: float) -> None:
    if fault == "dies":
        os._exit(9)
    time.sleep(START_TIMEOUT + 2 * timeout + GRACE)  # not for ever, should nobody end it
    os._exit(9)


# ---- in the calling process: start them, watch them, end them ----------------------------------------------------


@contextmanager
def _started(folder: Path, processes: int) -> Iterator[list[subprocess.Popen]]:
    """Start the processes; when the block ends, however it does, none of them is left."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        # Only this machine is meant; without it gloo looks up the machine's own name, which may not be known.
        "GLOO_SOCKET_IFNAME": os.environ.get(
            "GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo"
        ),
    }
    if sys.platform == "win32":
        del environment["GLOO_SOCKET_IFNAME"]
    running: list[subprocess.Popen] = []
    try:
        for rank in range(processes):
            command = [sys.executable, "-m", __name__, str(folder), str(rank)]
            with (folder / f"said{rank}").open("wb") as said:
                running.append(
                    subprocess.Popen(
                        command, env=environment, stdout=said, stderr=said, stdin=subprocess.DEVNULL
                    )
                )
        yield running
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def _supervise(folder: Path, running: list[subprocess.Popen], timeout: float) -> None:
    """Return when every process has answered. Raises ``PeerError`` when one has ended without, or is late."""
    _wait(folder, running, "ready", START_TIMEOUT)
    _wait(folder, running, "out", timeout)


def _wait(folder: Path, running: list[subprocess.Popen], stage: str, seconds: float) -> None:
    """Wait until each process has left its file of this stage."""
    end = time.monotonic() + seconds
    while late := _without(folder, stage, len(running)):
        ended = [rank for rank in late if running[rank].poll() is not None]
        # One that has just ended may have left its file a moment before: look again.
        ended = [rank for rank in ended if rank in _without(folder, stage, len(running))]
        if ended or time.monotonic() > end:
            raise _peer_error(folder, running, late, seconds)
        time.sleep(0.02)


def _without(folder: Path, stage: str, processes: int) -> list[int]:
    return [rank for rank in range(processes) if not (folder / f"{stage}{rank}").exists()]


def _peer_error(folder: Path, running: list[subprocess.Popen], late: list[int], seconds: float) -> PeerError:
    """Give the others a moment to end by themselves, and say who failed and how."""
    stop = time.monotonic() + GRACE
    while time.monotonic() < stop and any(running[rank].poll() is None for rank in late):
        time.sleep(0.02)
    reports = {}
    for rank in range(len(running)):
        said = (folder / f"said{rank}").read_text(errors="replace").strip()
        if said:
            reports[rank] = said.splitlines()[-1]
    # Who ended without a word died, also one that had left its file of this stage; who reports an error only noticed;
    # who still runs hangs.
    ended = [rank for rank, process in enumerate(running) if process.poll() is not None]
    dead = [rank for rank in ended if rank not in reports and (rank in late or running[rank].returncode)]
    hung = [rank for rank in late if running[rank].poll() is None]
    if dead:
        what = f"process {dead[0]} of {len(running)} died (exit code {running[dead[0]].returncode})"
    elif hung:
        what = f"process {hung[0]} of {len(running)} did not answer within {seconds:g} s"
    else:
        # The one whose error is its own, and not what gloo told it about another.
        rank = min(late, key=lambda rank: "gloo" in reports.get(rank, ""))
        what = f"process {rank} of {len(running)} failed: {reports.get(rank, 'no report')}"
    return PeerError(what, reports)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), int(sys.argv[2]))
