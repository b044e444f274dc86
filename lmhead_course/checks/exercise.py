"""What every exercise is made of: a checker that says in words what is wrong, a hint, and a worked solution."""

import sys
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from inspect import isfunction
from pathlib import Path
from textwrap import dedent
from typing import Any

from ..escaping import NO_TEX, as_html_lines, visible_lines
from ..progress import record


@dataclass(frozen=True)
class Note:
    """A text that a notebook shows as it stands."""

    text: str

    def __repr__(self) -> str:
        return self.text


_MARKS = {True: "✔ Right.", False: "✘ Not yet.", None: "… Not attempted yet."}


@dataclass(frozen=True)
class Verdict:
    """What a checker says: ``passed`` is True, False, or None for an exercise not yet attempted.

    A notebook shows it with the exercise's hint and solution folded away below. ``remark`` is about the learner's
    file of progress, and empty as long as that is well.
    """

    passed: bool | None
    message: str
    exercise: "Exercise"
    remark: str = ""

    def __repr__(self) -> str:
        remark = f"\n({self.remark})" if self.remark else ""
        return f"{_MARKS[self.passed]} {visible_lines(self.message + remark)}"

    def _repr_html_(self) -> str:
        folded = [("Hint", self.exercise.hint())]
        if self.exercise.has_solution:
            folded.append(("Solution", self.exercise.solution()))
        details = "".join(
            f"<details><summary>{name}</summary><pre>{as_html_lines(note.text)}</pre></details>"
            for name, note in folded
        )
        said = f"<strong>{_MARKS[self.passed]}</strong> {as_html_lines(self.message)}"
        remark = f"<br><em>({as_html_lines(self.remark)})</em>" if self.remark else ""
        return f'<p class="{NO_TEX}">{said}{remark}</p>{details}'


class Exercise:
    """One exercise. ``diagnose(answer)`` returns what is wrong, in words for the learner, or None for a right answer.

    ``praise`` is what a right answer is told (why it is right, or where it leads). The learner's answer may be a
    value or a function; a stub (``...``, or a function that returns ``...`` or None) counts as not attempted.
    """

    def __init__(self, diagnose: Callable[[Any], str | None], *, praise: str, hint: str, solution: str):
        self._diagnose = diagnose
        self._praise = praise
        self._hint = Note(dedent(hint).strip())
        self._solution = Note(dedent(solution).strip())

    @property
    def name(self) -> str | None:
        """What the learner's progress calls it, such as "softmax.ratio"; None for one that the course does not have."""
        package, _, short = getattr(self._diagnose, "__module__", "").rpartition(".")
        home = vars(sys.modules[f"{package}.{short}"]) if package == __package__ else {}
        return next((f"{short}.{name}" for name, value in home.items() if value is self), None)

    def check(self, answer: Any) -> Verdict:
        """Return a verdict on the answer, and add the exercise to the learner's progress if it is right.

        Never raises: an exception in the learner's code becomes part of the verdict.
        """
        verdict = self._judge(answer)
        return replace(verdict, remark=_keep(self.name)) if verdict.passed and self.name else verdict

    def _judge(self, answer: Any) -> Verdict:
        if answer is ... or answer is None:
            return Verdict(None, "Replace the ... with your answer and run the cell again.", self)
        answered = []
        try:
            problem = self._diagnose(_noting(answer, answered) if isfunction(answer) else answer)
        except NotAttempted:
            if answered:
                words = "For some input your function returns nothing: a path through it has no return."
                return Verdict(False, words, self)
            return Verdict(
                None, "Your function returns nothing yet: replace the ... in it, run both cells.", self
            )
        except Exception as error:
            return Verdict(False, f"Your code raised {describe_error(error)}", self)
        return Verdict(True, self._praise, self) if problem is None else Verdict(False, problem, self)

    def hint(self) -> Note:
        """Return a nudge in the right direction."""
        return self._hint

    def solution(self) -> Note:
        """Return one right answer, worked out; others may be as good."""
        return self._solution if self.has_solution else Note("This copy of the course holds no solutions.")

    @property
    def has_solution(self) -> bool:
        """Whether there is a solution to show: the edition for a class that is marked has none."""
        return bool(self._solution.text)


def _keep(name: str) -> str:
    """Add a solved exercise to the progress, and return "" or what was wrong with that, in words."""
    try:
        return record([name])
    except Exception as error:  # whatever is wrong with a file, the answer is still right
        return f"Your progress could not be kept: {error}"


# Lines in these folders are nobody's exercise: the package, the standard library, and what pip installed.
_NOT_THEIRS = (
    "<frozen",
    str(Path(__file__).parents[1]),
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
)


class NotAttempted(Exception):
    """The learner's function returned nothing, or its ``...``."""


def _noting(function: Callable, answered: list) -> Callable:
    """Return the function, with a note of each call that gave an answer."""

    @wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is not None and result is not ...:
            answered.append(True)
        return result

    return noted


def call(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Return what the learner's function returns; a stub's ``...`` or None raises ``NotAttempted``."""
    result = function(*args, **kwargs)
    if result is ... or result is None:
        raise NotAttempted
    return result


def learners_line(error: BaseException) -> traceback.FrameSummary | None:
    """Return the deepest line of an exception's way that stands in the learner's own code, None if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)]
    return theirs[-1] if theirs else None


def describe_error(error: BaseException) -> str:
    """Return an exception in one line: its type, where in the learner's code it came from, and what Python says."""
    line = learners_line(error)
    where = f" in line {line.lineno} of {line.name} ({line.line})" if line else ""
    return f"{type(error).__name__}{where}: {error}"
