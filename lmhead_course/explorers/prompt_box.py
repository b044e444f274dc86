"""The text area in which explorers take a prompt, and the line in which they take a word."""

import ipywidgets
import traitlets

from ..tokens import clean


class WordBox(ipywidgets.Text):
    """A line of text. Half a surrogate pair, which UTF-8 cannot carry, is replaced and never echoed to the page."""

    value = traitlets.Unicode().tag(sync=True, echo_update=False)

    @traitlets.validate("value")
    def _sendable(self, proposal) -> str:
        return clean(proposal.value)


class PromptBox(ipywidgets.Textarea):
    """A text area named "prompt" that any text survives.

    Its value changes with every letter typed, not only when the box is left. That needs no timer: while the kernel is
    busy the page keeps back all but the last change, so even a fast typist waits for two runs of the model at most.

    Half a surrogate pair, which UTF-8 cannot carry, is replaced on its way in and never echoed to the page.
    """

    value = traitlets.Unicode().tag(sync=True, echo_update=False)

    def __init__(self, text: str):
        super().__init__(text, description="prompt", rows=2, continuous_update=True)
        self.style.description_width = "initial"
        self.layout.width = "auto"

    @traitlets.validate("value")
    def _sendable(self, proposal) -> str:
        return clean(proposal.value)
