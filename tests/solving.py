"""Exercises as their checkers' tests see them: all of a module, and the solution that a learner is shown, run."""

import importlib
import math
import pkgutil
from types import ModuleType

import torch
import torch.nn.functional as F

from lmhead_course import checks, toy
from lmhead_course.checks import Exercise
from lmhead_course.softmax import entropy, perplexity, softmax

NOTEBOOK = {
    **{"torch": torch, "math": math, "F": F},
    **{"softmax": softmax, "entropy": entropy, "perplexity": perplexity},
    **{name: value for name, value in vars(toy).items() if not name.startswith("_")},
}
"""What a solution may use: names that every notebook has, or imports in the cell where the exercise stands."""


def modules() -> list[ModuleType]:
    """Return every module of exercises."""
    names = [found.name for found in pkgutil.iter_modules(checks.__path__) if found.name != "exercise"]
    return [importlib.import_module(f"{checks.__name__}.{name}") for name in names]


def exercises_of(module: ModuleType) -> dict[str, Exercise]:
    """Return a module's exercises by their names."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Exercise)}


def solved(exercise: Exercise, **more: object):
    """Run an exercise's own solution, as a learner would paste it, and return its answer."""
    namespace = {**NOTEBOOK, **more}
    exec(exercise.solution().text, namespace)
    functions = [value for name, value in namespace.items() if name.startswith("my_")]
    return functions[0] if functions else namespace["answer"]
