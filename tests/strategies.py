"""Random rows, ids and settings for hypothesis. All numbers are eighths: ties are frequent, and exact in float16."""

import math

import torch
from hypothesis import settings
from hypothesis import strategies as st

from lmhead_course import ORDERS, SamplingParams

quick = settings(max_examples=25)
"""For a property that is asked of many functions: the examples add up."""


def eighths(low: float, high: float):
    return st.integers(round(8 * low), round(8 * high)).map(lambda n: n / 8)


@st.composite
def batches(draw, d_vocab: int | None = None, holes: bool = True, wide: float = 12) -> torch.Tensor:
    """Logits (batch, d_vocab), some at −inf where there may be holes, never a whole row."""
    batch, d_vocab = draw(st.integers(1, 3)), d_vocab or draw(st.integers(1, 10))
    logit = eighths(-wide, wide) | st.just(-math.inf) if holes else eighths(-wide, wide)
    row = st.lists(logit, min_size=d_vocab, max_size=d_vocab).filter(lambda row: max(row) > -math.inf)
    return torch.tensor([draw(row) for _ in range(batch)])


@st.composite
def ids_for(draw, logits: torch.Tensor) -> torch.Tensor:
    """Token ids (batch, n) for the rows of the logits, −1 among them as padding."""
    batch, d_vocab = logits.shape
    n = draw(st.integers(0, 5))
    row = st.lists(st.integers(-1, d_vocab - 1), min_size=n, max_size=n)
    return torch.tensor([draw(row) for _ in range(batch)], dtype=torch.int64).reshape(batch, n)


OFF = {
    "top_k": st.just(0),
    "top_p": st.just(1.0),
    "min_p": st.just(0.0),
    "repetition_penalty": st.just(1.0),
    "presence_penalty": st.just(0.0),
    "frequency_penalty": st.just(0.0),
}
FILTERS = {
    "top_k": st.integers(0, 12),
    "top_p": st.floats(0, 1),
    "min_p": st.floats(0, 0.9),
}
PENALTIES = {
    "repetition_penalty": eighths(0.5, 2),
    "presence_penalty": eighths(-2, 2),
    "frequency_penalty": eighths(-2, 2),
}


def sampling_params(penalties: bool = True):
    """SamplingParams in any order, named or, without penalties, of any other kind; each parameter on or off."""
    chosen = FILTERS | PENALTIES if penalties else FILTERS
    orders = st.sampled_from(sorted(ORDERS))
    if not penalties:
        orders |= st.permutations(["temperature", *FILTERS]).map(tuple)
    return st.builds(
        SamplingParams,
        temperature=st.just(1.0) | eighths(0.125, 3) | st.just(0.0),
        order=orders,
        **{name: OFF[name] | strategy for name, strategy in chosen.items()},
    )
