"""Time and memory from the start of a Python process to the first logits, ours beside transformers' Auto classes.

Both read the same converted weights from the cache, in fresh processes, one after the other in turn, on one thread.
What no program with torch can do without stands beside them: a process that imports torch and ends.

Run ``python -m benchmarks.startup [rounds]``; it exits with 1 if our median is more than 0.4 of theirs. It judges by
CPU time, which a busy machine leaves alone, and prints the time on the clock too.
"""

import json
import statistics
import subprocess
import sys
import time

from lmhead_course.fetch import fetch

LIMIT = 0.4
PROMPT = "The capital of France is"

OURS = """
import torch
torch.set_num_threads(1)
from lmhead_course import load_model
logits = load_model(device="cpu").logits(PROMPT)
"""

THEIRS = """
import torch
torch.set_num_threads(1)
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, use_safetensors=True)
with torch.inference_mode():
    logits = model(**tokenizer(PROMPT, return_tensors="pt"), logits_to_keep=1).logits[0, -1]
"""

TORCH = """
import torch
torch.set_num_threads(1)
logits = torch.zeros(2)
"""

# Dirty private pages are what each further process costs; the weights themselves are a map that all share.
REPORT = """
import json, pathlib, re, time
smaps = pathlib.Path("/proc/self/smaps_rollup")
private = int(re.search(r"Private_Dirty: +([0-9]+)", smaps.read_text())[1]) / 1000 if smaps.exists() else float("nan")
print(json.dumps({"p": logits.softmax(0).max().item(), "private_mb": private, "cpu": time.process_time()}))
"""


def measure(body: str, folder: str) -> dict:
    """Run a program in a process of its own; return its wall and CPU seconds, private memory, highest probability."""
    code = f"PROMPT, FOLDER = {PROMPT!r}, {folder!r}\n{body}{REPORT}"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"wall": time.perf_counter() - start, **json.loads(done.stdout)}


def compare(rounds: int = 5) -> dict:
    """Return the medians of all, and the ratio of CPU times, ours / theirs; a first round is not counted."""
    folder = str(fetch())
    runs = {"ours": [], "theirs": [], "torch": []}
    for turn in range(rounds + 1):
        for name, body in (("ours", OURS), ("theirs", THEIRS), ("torch", TORCH)):
            run = measure(body, folder)
            runs[name] += [run] if turn else []  # the first turn brings the files into memory
    found = {
        name: {key: statistics.median(run[key] for run in kept) for key in kept[0]}
        for name, kept in runs.items()
    }
    return {**found, "ratio": found["ours"]["cpu"] / found["theirs"]["cpu"]}


def main() -> int:
    """Print the comparison; return 1 if we are slower than the limit."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    result = compare(rounds)
    print(f"process start to first logits, cached, median of {rounds}:")
    for name in ("ours", "theirs"):
        one = result[name]
        times = f"{one['wall']:5.2f} s ({one['cpu']:5.2f} s CPU)"
        print(f"  {name:7} {times}, {one['private_mb']:3.0f} MB private, p(' Paris') = {one['p']:.3f}")
    wall = result["ours"]["wall"] / result["theirs"]["wall"]
    print(
        f"  torch   {result['torch']['wall']:5.2f} s ({result['torch']['cpu']:5.2f} s CPU) to import it alone"
    )
    print(f"  ratio   {result['ratio']:.2f} of CPU time (limit {LIMIT}), {wall:.2f} on the clock")
    return int(result["ratio"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
