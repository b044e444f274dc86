"""64 new tokens from the live model, greedy and sampled: ``generate`` beside transformers' own, on the same weights.

Both start from the same prompt, with a cache, and neither stops at an end-of-text token. A token of a small batch
cannot come faster than the weights can be read from memory once; beside the times stands how long that takes, and
what the ratio would be if nothing else took any time.

Run ``python -m benchmarks.generation [turns]``; it exits with 1 if a ratio of CPU times is below 1.
"""

import sys
import warnings

import torch
import torch.nn.functional as F

from benchmarks.timing import Timing, paired, threads_set
from lmhead_course import SamplingParams, generate, load_model
from lmhead_course.fetch import fetch

PROMPT, TOKENS = "The capital of France is", 64
SETTINGS = {
    "greedy": SamplingParams(temperature=0),
    "T=0.8, k=50, p=0.9": SamplingParams(temperature=0.8, top_k=50, top_p=0.9),
}


def peer(ids: torch.Tensor, params: SamplingParams):
    """Return a function that generates with transformers, and loads its model now."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(str(fetch()), dtype=torch.float32).eval()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    # Every parameter is set: with none given, this library samples with k = 50.
    chosen = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    if params.temperature:
        chosen = {"do_sample": True, **{k: getattr(params, k) for k in ("temperature", "top_k", "top_p")}}
    rest = {"attention_mask": torch.ones_like(ids), "max_new_tokens": TOKENS, "pad_token_id": 0}

    def run() -> list[int]:
        with torch.inference_mode():
            return model.generate(ids, **rest, **chosen)[0, ids.shape[1] :].tolist()

    return run


def measure(params: SamplingParams, turns: int, threads: int = 1) -> tuple[Timing, Timing]:
    """Return the medians of our way and of the peer's for all tokens, measured turn by turn."""
    lm = load_model(device="cpu")
    lm.eos_ids = frozenset()  # neither side shall stop early

    def ours() -> list[int]:
        return [step.token_id for step in generate(lm, PROMPT, params, max_new_tokens=TOKENS)]

    theirs = peer(torch.tensor([lm.encode(PROMPT)]), params)
    with threads_set(threads):
        timings = paired({"ours": ours, "theirs": theirs}, turns)
    return timings["ours"], timings["theirs"]


def least_seconds(threads: int = 1) -> float:
    """Return the time by the clock to read every matrix once a token, in the products that a token needs."""
    lm = load_model(device="cpu")
    matrices = {p.data_ptr(): p for module in (lm.body, lm.head) for p in module.parameters() if p.ndim == 2}
    vectors = {p.shape[1]: torch.ones(1, p.shape[1]) for p in matrices.values()}

    def read() -> None:
        for matrix in matrices.values():
            F.linear(vectors[matrix.shape[1]], matrix)

    with threads_set(threads), torch.inference_mode():
        return TOKENS * paired({"read": read}, 10)["read"].wall


def main() -> int:
    """Print a table in Markdown; return 1 where we are slower."""
    warnings.filterwarnings("ignore")
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print(f"{TOKENS} tokens, medians of {turns} turns in s: CPU time, in brackets by the clock.\n")
    print(
        "| settings | threads | lmhead_course | transformers | ratio | reading the weights | ratio at most |"
    )
    print("|---|---|---|---|---|---|---|")
    slower = False
    for name, params in SETTINGS.items():
        for threads in (1, 2):
            ours, theirs = measure(params, turns, threads)
            cells = " | ".join(f"{t.cpu:.2f} ({t.wall:.2f})" for t in (ours, theirs))
            ratio, least = theirs.cpu / ours.cpu, least_seconds(threads)
            bound = f"{least:.2f} | {theirs.wall / least:.2f}×"
            print(f"| {name} | {threads} | {cells} | {ratio:.2f}× | {bound} |", flush=True)
            slower |= theirs.cpu < ours.cpu
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
