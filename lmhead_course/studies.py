"""Strategies of sampling, compared over many texts: how varied, how repetitive, how probable, at what cost."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from statistics import fmean, median, median_low, stdev

import torch

from .generation import Step, generate, prompt_ids
from .protocol import CausalLM
from .records import from_csv
from .sampling import SamplingParams, process_logits

STRATEGIES: dict[str, SamplingParams] = {
    "greedy": SamplingParams(temperature=0),
    "greedy, repetition 1.2": SamplingParams(temperature=0, repetition_penalty=1.2),
    "T 0.7": SamplingParams(temperature=0.7),
    "T 1": SamplingParams(),
    "T 1.5": SamplingParams(temperature=1.5),
    "top-k 50": SamplingParams(top_k=50),
    "top-p 0.9": SamplingParams(top_p=0.9),
    "min-p 0.1": SamplingParams(min_p=0.1),
    "T 0.8, top-p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
    "T 0.8, top-p 0.95, repetition 1.1": SamplingParams(temperature=0.8, top_p=0.95, repetition_penalty=1.1),
}
"""The strategies that the course compares, by the name they have in its table."""

STORIES = (
    "Once upon a time, in a village by the sea,",
    "The old man opened the door and saw",
    "It had been raining for three days when the letter",
    "Nobody in the town believed her until the night",
    "The train stopped in the middle of the forest, and",
    "My grandmother used to say that every house",
    "When the last light went out, the captain",
    "On the first morning of the holidays, the twins",
)
"""Beginnings of stories, read as they stand and not in the chat format."""


@dataclass(frozen=True)
class Measured:
    """One strategy over many texts.

    ``distinct_2`` and ``repetition`` are means over texts, in [0, 1]; ``perplexity`` is exp of the mean of −ln p over
    all tokens, p being the model's own probability before any processor. Each ``_se`` is a standard error over
    prompts (texts with the same prompt are not independent), NaN for a single prompt. ``kept`` is the median
    number of tokens that stay possible. ``process_ms`` and ``step_ms`` are medians of the CPU time, in milliseconds, of
    the processors on one row of logits and of one cached step of the model on one text, where the study ran.
    """

    strategy: str
    texts: int
    tokens: int
    distinct_2: float
    distinct_2_se: float
    repetition: float
    repetition_se: float
    perplexity: float
    perplexity_se: float
    kept: int
    process_ms: float
    step_ms: float


def strategies() -> list[Measured]:
    """Return the stored table: every strategy measured on the course's model by ``python -m benchmarks.strategies``."""
    return from_csv(Measured, (files(__package__) / "data" / "strategies.csv").read_text(encoding="utf-8"))


def distinct(ids: Sequence[int], n: int) -> float:
    """Return the share of a text's n-grams that are different ones, in (0, 1]; NaN for fewer than n tokens.

    1 means that no n-gram occurs twice. Longer texts score lower: compare texts of one length. Source: Li et al. 2016
    (arXiv:1510.03055), who divide by the number of tokens instead.
    """
    grams = ngrams(ids, n)
    return len(set(grams)) / len(grams) if grams else math.nan


def repetition(ids: Sequence[int], n: int = 4) -> float:
    """Return the share of a text's n-grams that the text has held before: 1 − distinct(ids, n)."""
    return 1 - distinct(ids, n)


def ngrams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """Return every run of n consecutive tokens."""
    return [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]


@dataclass
class Text:
    """One continuation and what its steps cost; one entry a token in each list."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    process_ms: list[float] = field(default_factory=list)

    def add(self, step: Step, prompt: list[int], params: SamplingParams) -> None:
        """Take a step's figures; its processors run once more, alone, to be timed and counted."""
        start = time.process_time()
        processed = process_logits(step.logits, params, prompt=prompt, generated=self.ids)
        self.process_ms.append(1e3 * (time.process_time() - start))
        self.kept.append(int((processed > -math.inf).sum()))
        self.ids.append(step.token_id)
        self.log_probs.append(step.log_prob)


def compare(
    lm: CausalLM,
    prompts: Sequence[str] = STORIES,
    params: Mapping[str, SamplingParams] = STRATEGIES,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3),
    max_new_tokens: int = 48,
) -> list[Measured]:
    """Return a row for each strategy: all prompts once for every seed, or once in all for a greedy strategy.

    A continuation of fewer than four tokens has no 4-gram and is left out of ``repetition``; likewise ``distinct_2``.
    """
    step_ms = time_step(lm, prompts[0])
    rows = []
    for name, one in params.items():
        needed = seeds[:1] if one.temperature == 0 else seeds
        runs = [continue_all(lm, prompts, one, seed, max_new_tokens) for seed in needed]
        by_prompt = [list(texts) for texts in zip(*runs, strict=True)]
        rows.append(summarise(name, by_prompt, step_ms))
    return rows


def continue_all(
    lm: CausalLM, prompts: Sequence[str], params: SamplingParams, seed: int, max_new_tokens: int
) -> list[Text]:
    """Return every prompt's continuation; they run as one batch from one seed."""
    generator = torch.Generator(lm.head.weight.device).manual_seed(seed)
    ids = [prompt_ids(lm, prompt) for prompt in prompts]
    texts = [Text() for _ in prompts]
    for step in generate(lm, ids, params, max_new_tokens=max_new_tokens, generator=generator):
        texts[step.row].add(step, ids[step.row], params)
    return texts


def summarise(name: str, by_prompt: list[list[Text]], step_ms: float) -> Measured:
    """Return the figures of one strategy from its texts, grouped by prompt."""
    texts = [text for group in by_prompt for text in group]
    per_prompt = {
        "distinct_2": [fmean_known(distinct(text.ids, 2) for text in group) for group in by_prompt],
        "repetition": [fmean_known(repetition(text.ids) for text in group) for group in by_prompt],
        "surprise": [-fmean(p for text in group for p in text.log_probs) for group in by_prompt],
    }
    se = {key: standard_error(values) for key, values in per_prompt.items()}
    perplexity = math.exp(-fmean(p for text in texts for p in text.log_probs))
    return Measured(
        strategy=name,
        texts=len(texts),
        tokens=sum(len(text.ids) for text in texts),
        distinct_2=fmean_known(per_prompt["distinct_2"]),
        distinct_2_se=se["distinct_2"],
        repetition=fmean_known(per_prompt["repetition"]),
        repetition_se=se["repetition"],
        perplexity=perplexity,
        perplexity_se=perplexity * se["surprise"],  # exp(x ± s) ≈ exp(x) · (1 ± s)
        kept=median_low(count for text in texts for count in text.kept),
        process_ms=median(ms for text in texts for ms in text.process_ms),
        step_ms=step_ms,
    )


def fmean_known(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean: s / √n, with n − 1 in s; NaN for fewer than two values."""
    known = [value for value in values if not math.isnan(value)]
    return stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan


def time_step(lm: CausalLM, prompt: str, steps: int = 15) -> float:
    """Return the median CPU time, in milliseconds, in which the model reads one more token of one text."""
    ids = torch.tensor([prompt_ids(lm, prompt)], device=lm.head.weight.device)
    _, cache = lm.step(ids)
    taken = []
    for _ in range(steps):
        start = time.process_time()
        _, cache = lm.step(ids[:, -1:], cache)
        taken.append(1e3 * (time.process_time() - start))
    return median(taken)
