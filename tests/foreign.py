"""Text that would do harm if anything read it: markup, scripts, links, TeX, plotly's own tags, direction marks."""

import torch

from lmhead_course.catalog import Device
from lmhead_course.explorers import (
    CostExplorer,
    DrawsExplorer,
    GenerationExplorer,
    LensExplorer,
    LossExplorer,
    PipelineExplorer,
    ProjectionExplorer,
    SamplingExplorer,
    SoftmaxExplorer,
    TyingExplorer,
)
from lmhead_course.explorers.lens_view import QUANTITIES
from lmhead_course.twins import RowGradients
from tests.tiny_lm import TinyLM

SCRIPT = "<script>window.hacked=1</script>"
IMAGE = "<img src=x onerror=window.hacked=1>"
LINK = '<a href="javascript:window.hacked=1">go</a>'
PLOTLY = "<b>b</b><i>i</i><br><sup>s</sup>&lt;"
TEX = "$\\frac{1}{2}$"
PARENTHESES = "\\(x^2\\)"
TEMPLATE = "%{x}{{x}}"
TURNED = "ab\u202ecd\u202c"
MARKDOWN = "[m](javascript:window.hacked=1)**m**`m`"
HALF = "\ud83d"

TEXTS = (SCRIPT, IMAGE, LINK, PLOTLY, TEX, PARENTHESES, TEMPLATE, TURNED, MARKDOWN, HALF)
"""One of each kind, to be labels."""

ALL = "".join(TEXTS)
"""All of them in one text."""

SHOWN = {text: text for text in TEXTS} | {TURNED: "ab<U+202E>cd<U+202C>", HALF: "<U+D83D>"}
SHOWN |= {"␣a": "␣a", "\u2067r\u2069": "<U+2067>r<U+2069>"}
"""What is to be read on the page for each."""

LABELS = (*TEXTS[:-1], "␣a", "\u2067r\u2069", " ")
"""Texts that UTF-8 can carry, so that a tokenizer can have them."""


class ForeignLM(TinyLM):
    """A model with layers to look into, whose vocabulary is ``LABELS``."""

    def __init__(self):
        super().__init__(LABELS, sharpness=0.5, context_length=500)

    def hidden_states(self, text):
        embedded = self.embedding[self.encode(text)]
        return torch.stack([embedded, embedded.cumsum(0), embedded.cumsum(0).tanh()])

    def final_norm(self, hidden):
        return hidden / hidden.norm(dim=-1, keepdim=True)


def explorers():
    """Return one of every explorer by name, with foreign text wherever it takes a text."""
    lm, prompt = ForeignLM(), "".join(LABELS)
    n = len(LABELS)
    logits = torch.linspace(1, 0, n)
    counts = torch.ones(n, dtype=torch.long)
    record = RowGradients(0, 1.0, counts, torch.ones(n), torch.ones(n), torch.ones(n))

    def stage(logits, **_):
        return logits

    stage.__name__, stage.__doc__ = SCRIPT, IMAGE
    return {
        "CostExplorer": CostExplorer(machine=Device(ALL, 1e11, 1e12, "")),
        "DrawsExplorer": DrawsExplorer(lm, prompt=prompt, top=n),
        "GenerationExplorer": GenerationExplorer(lm, prompt=prompt),
        "LensExplorer": LensExplorer(lm, prompt=prompt, word="#0", quantity=QUANTITIES[1]),
        "LossExplorer": LossExplorer(logits, LABELS, top=n),
        "PipelineExplorer": PipelineExplorer(lm, prompt=prompt, stages=[stage]),
        "ProjectionExplorer": ProjectionExplorer(
            lm, prompt=prompt, tokens=[f"#{i}" for i in range(n)], axes=(SCRIPT, f"{IMAGE} − {TURNED}")
        ),
        "SamplingExplorer": SamplingExplorer(lm, prompt=prompt),
        "SoftmaxExplorer": SoftmaxExplorer(logits, LABELS, top=n),
        "TyingExplorer": TyingExplorer([record], counts=counts, labels=LABELS),
    }
