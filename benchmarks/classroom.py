"""A class on one machine, rehearsed: a JupyterHub, N learners at once, each with a server, a kernel and an explorer.

Run ``python -m benchmarks.classroom FOLDER [N …]``, on Linux, with npm installed. FOLDER is made the first time: an
environment with JupyterHub that sees the course's packages, the hub's proxy, a copy of the model. As root append
``--accounts``: each learner is then an account of the machine, made for the rehearsal and removed after it, and each
tries to read what is its neighbour's. The hub listens on this machine only.

The learners move sliders for a minute as a hand does. Every answer is compared with the definition. Exits with 1 if
anything went wrong, if one learner saw anything of another, or if a kernel needs more than 250 MB of its own.
"""

import argparse
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from .class_hub import TRANSPORTS, Hub, accounts, running_hub, set_up
from .class_learner import Answer, Learner
from .class_privacy import knock, pry

LIMIT_MB, LIMIT_MS = 250, 200


class NotAllCame(Exception):
    """A learner did not get to the explorer; nothing is measured then."""


@dataclass(frozen=True)
class Memory:
    """Memory of a process in MB (10⁶ bytes): its own, what it wrote to of that, shared, its fair share."""

    private: float
    dirty: float
    shared: float
    fair: float


@dataclass
class Rehearsal:
    """What was measured with so many learners: memory, cores used by all of it and by other programs, and faults."""

    learners: list[Learner]
    kernels: list[Memory]
    servers: list[Memory]
    whole_gb: float  # hub, proxy, servers and kernels, what they share counted once
    cores: float
    foreign_cores: float
    errors: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    @property
    def answers(self) -> list[Answer]:
        """The answers of all learners."""
        return [answer for learner in self.learners for answer in learner.hand.answers]


def memory_of(pid: int) -> Memory:
    """Return what a process holds, from Linux's own account of it."""
    return parsed_memory(Path(f"/proc/{pid}/smaps_rollup").read_text())


def parsed_memory(rollup: str) -> Memory:
    """Return the sums of a ``smaps_rollup``, which are in units of 1,024 bytes there."""
    mb = {name: int(number) * 1024 / 1e6 for name, number in re.findall(r"^(\w+): +(\d+) kB$", rollup, re.M)}
    dirty = mb["Private_Dirty"]
    shared = mb["Shared_Clean"] + mb["Shared_Dirty"]
    return Memory(mb["Private_Clean"] + dirty, dirty, shared, mb["Pss"])


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that at least so many percent of the values do not exceed."""
    return sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)]


def wrong_answers(learners: list[Learner]) -> Iterable[str]:
    """Compare every answer with the plain definition of what its learner's settings ask for."""
    import torch  # only here: while the learners are measured, this process shares nothing with their kernels

    from lmhead_course import load_model

    torch.set_num_threads(1)
    lm = load_model(device="cpu")
    for learner in learners:
        logits = lm.logits(learner.prompt)
        for answer in learner.hand.answers:
            if trouble := answer.error or trouble_with(answer, logits):
                yield f"{learner.name} at {answer.positions}: {trouble}"


def trouble_with(answer: Answer, logits) -> str:
    """Return what is wrong with an answer for logits (d_vocab,), in words, or ""."""
    from lmhead_course import process_logits

    raw, final = (
        logits.softmax(0),
        process_logits(logits, settings_of(answer.positions, len(logits))).softmax(0),
    )
    tokens = [row["token_id"] for row in answer.rows]
    if tokens != raw.argsort(descending=True, stable=True)[:30].tolist():
        return "these are not the most likely tokens of its text"
    for row in answer.rows:
        if abs(row["final"] - final[row["token_id"]]) > 1e-6 + 1e-4 * row["final"]:
            return (
                f"token {row['token_id']} has {row['final']:.6f} where {final[row['token_id']]:.6f} is right"
            )
    return ""


def settings_of(positions: dict[str, int], d_vocab: int):
    """Return the settings that sliders at these positions stand for."""
    from lmhead_course import SamplingParams
    from lmhead_course.explorers.controls import MIN_P_STOPS, k_stops

    return SamplingParams(
        temperature=round(positions["temperature"] / 100, 6),
        top_k=[*k_stops(d_vocab), 0][positions["top-k"]],
        top_p=round(positions["top-p"] / 100, 6),
        min_p=MIN_P_STOPS[positions["min-p"]],
    )


def together(learners: list[Learner], act: Callable[[Learner], object]) -> None:
    """Have all learners do something at once; what goes wrong is written down with the learner."""

    def attempt(learner: Learner) -> None:
        try:
            act(learner)
        except Exception as error:
            learner.problems.append(f"{learner.name}: {type(error).__name__}: {error}")

    with ThreadPoolExecutor(len(learners)) as pool:
        list(pool.map(attempt, learners))


def family() -> list[psutil.Process]:
    """Return this process and all that it started: the learners' hands, the hub, its proxy, servers and kernels."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> tuple[float, float]:
    """Return the CPU time that the rehearsal has used up to now, and that of the whole machine."""
    ours = [process.cpu_times() for process in family()]
    machine = psutil.cpu_times()
    return sum(one.user + one.system for one in ours), sum(machine) - machine.idle - machine.iowait


def rehearse(hub: Hub, names: list[str], seconds: float, real: bool) -> Rehearsal:
    """Let the learners come, move their sliders for so long, and pry; return what was measured."""
    learners = [Learner(name, number, hub) for number, name in enumerate(names)]
    together(learners, Learner.arrive)
    if absent := [problem for learner in learners for problem in learner.problems]:
        raise NotAllCame("; ".join(absent))
    before = cpu_seconds()
    together(learners, lambda learner: learner.move(seconds))
    ours, machine = (after - then for after, then in zip(cpu_seconds(), before, strict=True))
    found = Rehearsal(
        learners,
        kernels=[memory_of(learner.kernel_pid) for learner in learners],
        servers=[memory_of(learner.server_pid) for learner in learners],
        whole_gb=sum(memory_of(process.pid).fair for process in family()[1:]) / 1000,
        cores=ours / seconds,
        foreign_cores=(machine - ours) / seconds,
    )
    if len(learners) > 1:
        found.seen += [line for i, one in enumerate(learners) for line in knock(one, learners[i - 1])]
    found.seen += pry(learners) if real else []
    for learner in learners:
        learner.line.close()
    return found


HEADINGS = (
    "learners",
    "kernel: own (written to) + shared, MB",
    "server: own + shared, MB",
    "all of it, GB",
    "explorer there after, s",
    "moves answered (overtaken)",
    "median, ms",
    "95 %, ms",
    "longest, ms",
    "errors",
    "seen",
    "cores",
    "others' cores",
)


def report(found: Rehearsal) -> str:
    """Return a row of the table for one number of learners."""
    times = [1000 * answer.seconds for answer in found.answers]
    arrivals = [learner.seconds["open_explorer"] for learner in found.learners]
    kernel, server = (
        {part: max(getattr(memory, part) for memory in some) for part in ("private", "dirty", "shared")}
        for some in (found.kernels, found.servers)
    )
    cells = [
        f"{len(found.learners)}",
        f"{kernel['private']:.0f} ({kernel['dirty']:.0f}) + {kernel['shared']:.0f}",
        f"{server['private']:.0f} + {server['shared']:.0f}",
        f"{found.whole_gb:.1f}",
        f"{min(arrivals):.0f} to {max(arrivals):.0f}",
        f"{len(times)} ({sum(learner.hand.overtaken for learner in found.learners)})",
        f"{statistics.median(times):.0f}",
        f"{percentile(times, 95):.0f}",
        f"{max(times):.0f}",
        f"{len(found.errors)}",
        f"{len(found.seen)}",
        f"{found.cores:.2f}",
        f"{found.foreign_cores:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def goals_missed(found: Rehearsal) -> list[str]:
    """Return what fails the rehearsal, in words."""
    count = len(found.learners)
    # Alone, a learner shares libraries and model with nobody, and all that is mapped counts as its own.
    own = max(memory.private if count > 1 else memory.dirty for memory in found.kernels)
    heavy = [f"{count} learners: a kernel has {own:.0f} MB of its own, more than {LIMIT_MB}"]
    return [*found.errors, *found.seen, *(heavy if own > LIMIT_MB else ())]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.classroom", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "folder", type=Path, help="where the hub's environment and the shared model are, or go"
    )
    parser.add_argument(
        "learners", type=int, nargs="*", default=[1, 4, 8, 16], help="how many, one run for each"
    )
    parser.add_argument("--seconds", type=float, default=60, help="how long sliders are moved")
    parser.add_argument(
        "--accounts", action="store_true", help="make an account of this machine for each; as root"
    )
    parser.add_argument("--transport", choices=TRANSPORTS, default="files", help="between server and kernel")
    own_python = str(Path(sys.base_prefix) / "bin" / "python3")
    parser.add_argument("--python", default=own_python, help="the Python of the hub's environment")
    options = parser.parse_args(words)
    if options.accounts != (os.geteuid() == 0):
        parser.error("--accounts needs root, and as root nothing else works: Jupyter does not serve root")
    return options


def main(words: list[str] | None = None) -> int:
    """Rehearse each number of learners, print a row for each, then what went wrong; return the exit status."""
    options = arguments(words)
    folder = options.folder.resolve()
    set_up(folder, options.python)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    missed = []
    for count in options.learners:
        names = [f"lmclass{number:02}" for number in range(1, count + 1)]
        try:
            with (
                accounts(folder, names, options.accounts),
                running_hub(folder, names, real=options.accounts, transport=options.transport) as hub,
            ):
                found = rehearse(hub, names, options.seconds, options.accounts)
        except NotAllCame as error:
            missed.append(f"{count} learners: {error}")
            continue
        found.errors += [problem for learner in found.learners for problem in learner.problems]
        found.errors += wrong_answers(found.learners)
        print(report(found), flush=True)
        slow = 1000 * percentile([answer.seconds for answer in found.answers], 95)
        if slow > LIMIT_MS:
            missed.append(f"{count} learners: the 95th percentile, {slow:.0f} ms, passes {LIMIT_MS} ms")
        missed += goals_missed(found)
    tried = "" if options.accounts else " over the hub; files and processes were not tried"
    print("\n".join(["", *(missed or [f"no errors, nothing of one learner seen by another{tried}"])]))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
