"""Exercises, one file a notebook: every exercise is one object with ``check``, ``hint`` and ``solution``."""

from .exercise import Exercise, Note, Verdict

__all__ = ["Exercise", "Note", "Verdict"]
