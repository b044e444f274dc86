"""Foreign text, such as tokens, prompts and names of models, made safe to show: the one place where that is done.

A vocabulary holds whatever its training data held. ``visible`` makes every character of it seen, whoever draws it;
``as_html`` and ``as_plotly`` then keep the two that read markup from reading any. Our own widgets need only the
first, since their scripts set all text by ``textContent``.
"""

import re
from html import escape

REPLACED = {"\n": "⏎", "\t": "⇥"}
# Letters and marks that draw nothing, although Unicode does not call them unprintable.
INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")

NO_TEX = "tex2jax_ignore mathjax_ignore"
"""The class of an element in which Jupyter's MathJax sets no formulas: it looks for dollar signs after HTML is read, so
that no spelling of them in HTML would help."""


def visible(text: str) -> str:
    """Return text as one line in which every character can be seen and none moves the others.

    A line break becomes ⏎, a tab ⇥; other characters that draw nothing (controls, zero-width, direction marks, private
    use, halves of surrogate pairs, which no message can carry) become ``<U+200B>``. Spaces and markup stay.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_visible_character, text))


def visible_lines(text: str) -> str:
    """Return a text of several lines, each of them ``visible``."""
    return "\n".join(map(visible, text.split("\n")))


def as_html(text: str) -> str:
    """Return the HTML that shows a text as it stands. Formulas need ``NO_TEX`` around it as well."""
    return escape(visible(text))


def as_html_lines(text: str) -> str:
    """Return the same for a text of several lines."""
    return escape(visible_lines(text))


def as_plotly(text: str) -> str:
    """Return what plotly shows as the text given: it reads a small HTML, and TeX between dollar signs."""
    return escape(visible(text), quote=False).replace("$", "&#36;")


def link_target(target: str) -> str:
    """Return the HTML of a link's target: a web page or a file beside this one.

    Raises ``ValueError`` for anything else, such as ``javascript:``, which a browser would run.
    """
    if not re.fullmatch(r"(https?://)?[\w./#?=&%~+-]*", target, re.ASCII):
        raise ValueError(f"a link must lead to https://… or to a file by its relative path, got {target!r}")
    return escape(target)


def _visible_character(character: str) -> str:
    if character in REPLACED:
        return REPLACED[character]
    if not character.isprintable() or INVISIBLE.match(character):
        return f"<U+{ord(character):04X}>"
    return character
