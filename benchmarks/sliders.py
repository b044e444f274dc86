"""One move of a slider: ``RankedLogits.distribution`` beside transformers' own processors, on the same logits.

Both sides start from one row of float32 logits and end with the 30 most probable tokens as Python numbers. The
peer's side is the chain that transformers' ``generate`` builds for the same settings, a softmax and a top-30; ours
returns the probabilities before and after, the kept count and mass, and both entropies as well. A penalty changes the
order of tokens; there the peer is the same view with everything sorted anew, by a stable sort of torch.

What bounds a move: nothing that grows with V where p moves alone, so Python's own calls; an exponential and two running
sums of V numbers at a new temperature; sorting V numbers for a new prompt; two copies of the ranking and the same sums
after a penalty. What these steps take alone is printed below the table.

Run ``python -m benchmarks.sliders``.
"""

from collections.abc import Callable
from itertools import count

import numpy as np
import torch

from benchmarks.timing import Timing, paired, threads_set
from lmhead_course import RankedLogits, SamplingParams, process_logits
from lmhead_course.explorers.context import Context
from lmhead_course.explorers.sampling_view import view_of_settings

GOALS = {49_152: 50, 262_144: 100}
"""How many times faster a move of a slider at T = 1, p = 0.9 shall be, by the number of tokens."""

DRAG = "p dragged, 10 moves in a row"
ALONE = "p moved once, caches cold"
NEW_TEMPERATURE = "a temperature not seen before"
NEW_PROMPT = "a new prompt: rank, then show"
PENALTY = "a penalty moved: sorted anew?"
MOVES = {DRAG: 10, ALONE: 1, NEW_TEMPERATURE: 10, NEW_PROMPT: 1, PENALTY: 10}
"""How many moves each side makes before it is the other's turn. After the other's turn the processor's caches hold
the other's data and code, which costs a side that is done in microseconds more than the work itself."""

TOP, P = 30, 0.9


def made_up_logits(d_vocab: int) -> torch.Tensor:
    """Return one row of normal logits, as wide as a small model's."""
    return 2.5 * torch.randn(d_vocab, generator=torch.Generator().manual_seed(0))


def peer(logits: torch.Tensor, temperature: float = 1.0, p: float = P) -> list:
    """Return the 30 most probable tokens through transformers' processors."""
    from transformers.generation import logits_process as hf

    chain = hf.LogitsProcessorList()
    if temperature != 1:
        chain.append(hf.TemperatureLogitsWarper(temperature))
    chain.append(hf.TopPLogitsWarper(p))
    scores = chain(torch.zeros(1, 1, dtype=torch.long), logits[None])
    values, ids = scores.softmax(dim=-1)[0].topk(TOP)
    return list(zip(ids.tolist(), values.tolist(), strict=True))


def sorted_anew(context: Context, params: SamplingParams) -> tuple:
    """Return what a slider shows for a penalty and top-p, with the whole row penalised, sorted and summed up."""
    penalty = SamplingParams(repetition_penalty=params.repetition_penalty)
    ranked, ids = process_logits(context.logits, penalty, **context.ids).sort(descending=True, stable=True)
    exponents = ranked - ranked[0]
    weights = exponents.exp()
    mass, moment = (x.cumsum(0, dtype=torch.float64) for x in (weights, weights * exponents))
    kept = int(torch.searchsorted(mass, params.top_p * mass[-1])) + 1
    raw, entropy = context.probabilities, mass[kept - 1].log() - moment[kept - 1] / mass[kept - 1]
    columns = ids[:TOP], raw[ids[:TOP]], weights[:TOP] / mass[kept - 1]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return kept, float(raw[ids[:kept]].sum(dtype=torch.float64)), float(entropy), rows


def penalty_moves(logits: torch.Tensor) -> tuple[Callable, Callable]:
    """Return our way and sorting anew for a penalty that moves, behind a text of 20 tokens."""
    context = Context(logits, prompt_ids=tuple(range(1000, 1020)), generated=(5, 7, 9))
    mine, theirs = ((1 + (step % 64 + 1) / 128 for step in count(1)) for _ in range(2))

    def params(penalty: float) -> SamplingParams:
        return SamplingParams(repetition_penalty=penalty, top_p=P)

    return (
        lambda: view_of_settings(context, params(next(mine)), str, TOP),
        lambda: sorted_anew(context, params(next(theirs))),
    )


def cases(logits: torch.Tensor) -> dict[str, tuple[Callable, Callable]]:
    """Return, by the row's name, our way and the peer's."""
    ranked = RankedLogits(logits)
    # Temperatures that no side has seen, and values of p around 0.9; each side counts for itself, so both get the same.
    mine, theirs = ((0.5 + step / 1024 for step in count(1)) for _ in range(2))
    my_p, their_p = ((P + (step % 64 - 32) / 1024 for step in count(1)) for _ in range(2))

    def move(source: RankedLogits, temperature: float = 1.0, p: float = P):
        return source.distribution(SamplingParams(temperature=temperature, top_p=p), top=TOP)

    dragged = (lambda: move(ranked, p=next(my_p)), lambda: peer(logits, p=next(their_p)))
    return {
        DRAG: dragged,
        ALONE: dragged,
        NEW_TEMPERATURE: (lambda: move(ranked, next(mine)), lambda: peer(logits, next(theirs))),
        NEW_PROMPT: (lambda: move(RankedLogits(logits)), lambda: peer(logits)),
        PENALTY: penalty_moves(logits),
    }


def measure(d_vocab: int, row: str, turns: int = 11) -> tuple[Timing, Timing]:
    """Return the medians of our way and of the peer's for one move, measured turn by turn on one thread."""
    with threads_set(1), torch.inference_mode():
        ours, theirs = cases(made_up_logits(d_vocab))[row]
        timings = paired({"ours": ours, "theirs": theirs}, turns, calls=MOVES[row])
    return timings["ours"], timings["theirs"]


def steps(d_vocab: int) -> dict[str, float]:
    """Return the CPU time in s of the steps that a move cannot do without, by name, each alone and as fast as here."""
    row = made_up_logits(d_vocab)
    keys = row.sort().values.double().numpy()
    ways = {
        "exponential": lambda: row.exp(),
        "running sum": lambda: row.cumsum(0, dtype=torch.float64),
        "sort": lambda: np.sort(row.numpy()),
        "copy of a ranking": lambda: keys.copy(),
    }
    with threads_set(1):
        return {name: timing.cpu for name, timing in paired(ways, 11, calls=10).items()}


def main():
    """Print every row at every vocabulary size."""
    print(f"One slider update: the top {TOP} of V tokens at p around {P}; T = 1 unless said; one thread.")
    print("Medians for one move in ms: CPU time (wall time); the ratio is of CPU times.\n")
    print(f"{'V':>8}  {'what changed':<31}{'lmhead_course':>18}{'the peer':>18}{'ratio':>8}  goal")
    for d_vocab, goal in GOALS.items():
        for row in MOVES:
            ours, theirs = measure(d_vocab, row)
            cells = "".join(f"{f'{1e3 * t.cpu:.3f} ({1e3 * t.wall:.3f})':>18}" for t in (ours, theirs))
            aim = {DRAG: f"  {goal}×", PENALTY: "  5×"}.get(row, "")
            print(f"{d_vocab:>8,}  {row:<31}{cells}{theirs.cpu / ours.cpu:>7.1f}×{aim}", flush=True)
    print()
    for d_vocab in GOALS:
        words = ", ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in steps(d_vocab).items())
        print(f"{d_vocab:>8,}  alone: {words}")


if __name__ == "__main__":
    main()
