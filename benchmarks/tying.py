"""Train tied and untied tiny models over seeds and rates, for the table in ``lmhead_course/data/tying.csv``.

Run ``python -m benchmarks.tying``; 27 trainings, about ten minutes of one thread on an idle machine. A third variant is
tied and wider, with about as many parameters as the untied one. Losses repeat on the same kind of processor.
"""

import itertools
from pathlib import Path

import torch

import lmhead_course
from lmhead_course.records import to_csv
from lmhead_course.texts import TITLE, chapters
from lmhead_course.tiny import learn_tokens
from lmhead_course.twins import STEPS, VARIANTS, run

SEEDS = (0, 1, 2)
PEAK_RATES = (3e-3, 1.5e-3, 6e-3)
TARGET = Path(lmhead_course.__file__).with_name("data") / "tying.csv"


def main():
    """Train every variant at every rate from every seed, print each run and store the table."""
    torch.set_num_threads(1)
    corpus = learn_tokens(chapters())
    notes = (
        "Tied and untied tiny language models, trained by: python -m benchmarks.tying",
        f"Text: {TITLE}; the last two chapters are kept back",
        f"BPE {corpus.d_vocab}, 2 layers, context 32, batch 32, {STEPS} steps",
        "One torch thread on a CPU. The columns are explained at lmhead_course.twins.Run",
    )
    runs = []
    for rate, seed, variant in itertools.product(PEAK_RATES, SEEDS, VARIANTS):
        runs.append(run(variant, corpus, seed, rate))
        print(runs[-1], flush=True)
    TARGET.write_text(to_csv(runs, notes), encoding="utf-8")


if __name__ == "__main__":
    main()
