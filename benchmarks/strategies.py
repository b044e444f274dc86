"""Fill the table of strategies in ``lmhead_course/data/strategies.csv``: ten strategies, eight stories, four seeds.

Run ``python -m benchmarks.strategies``; it takes a few minutes on one thread. Texts and probabilities repeat on the
same kind of processor; the two columns of times do not, and nothing compares them.
"""

from pathlib import Path

import torch

import lmhead_course
from lmhead_course.records import to_csv
from lmhead_course.studies import STORIES, STRATEGIES, compare

SEEDS = (0, 1, 2, 3)
NEW_TOKENS = 48
TARGET = Path(lmhead_course.__file__).with_name("data") / "strategies.csv"


def main():
    """Measure every strategy, print the table and store it."""
    torch.set_num_threads(1)
    lm = lmhead_course.load_model(device="cpu")
    rows = compare(lm, STORIES, STRATEGIES, seeds=SEEDS, max_new_tokens=NEW_TOKENS)
    notes = (
        "Strategies of sampling, measured on the course's model (smollm2-135m) by: python -m benchmarks.strategies",
        f"{len(STORIES)} beginnings of stories, seeds {', '.join(map(str, SEEDS))} (greedy: one run), "
        f"up to {NEW_TOKENS} new tokens each; one torch thread on a CPU",
        "The columns are explained at lmhead_course.studies.Measured; times are CPU times",
    )
    table = to_csv(rows, notes)
    TARGET.write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
