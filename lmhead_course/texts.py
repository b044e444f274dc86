"""The text that the course ships: Jane Austen, Pride and Prejudice, volume I. Its source and licence lie beside it."""

from functools import lru_cache
from importlib.resources import files

TITLE = "Jane Austen, Pride and Prejudice (1813), chapters 1 to 23"


@lru_cache
def novel() -> str:
    """Return the whole text, about 231 kB of ASCII: one paragraph a line, a blank line between two."""
    return files(__package__).joinpath("data", "pride_and_prejudice.txt").read_text(encoding="ascii")


def chapters() -> list[str]:
    """Return the 23 chapters in order, without their headings, each ending in one line break."""
    parts = novel().split("Chapter ")[1:]  # the word does not occur elsewhere
    return [part.split("\n\n", 1)[1].rstrip() + "\n" for part in parts]
