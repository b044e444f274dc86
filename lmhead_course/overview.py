"""How far a learner is: solved exercises of each notebook, shown, taken along to another machine, and brought back."""

from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path

from . import checks, progress
from .checks import Exercise, Note
from .escaping import NO_TEX, as_html, visible_lines
from .progress import ProgressError

COURSE = {
    "00_start_here": "prerequisites",
    "01_projection": "projection",
    "02_softmax": "softmax",
    "03_sampling": "sampling",
    "04_weight_tying": "tying",
    "05_cost_analysis": "cost",
    "06_training_loss": "loss",
    "07_generation": "generation",
    "08_reading_logits": "lens",
}
"""Each notebook, and the module of ``checks`` that holds its exercises."""
EXPORT = "my_lmhead_course_progress.json"


@dataclass(frozen=True)
class Line:
    """One notebook: how many of its exercises are solved, out of how many."""

    notebook: str
    solved: int
    total: int

    def __str__(self) -> str:
        return f"{self.solved} of {self.total}"


@dataclass(frozen=True)
class Overview:
    """A bar for each notebook, as text or as a table on the page; ``problem`` says why the file could not be read."""

    lines: tuple[Line, ...]
    problem: str = ""

    def __repr__(self) -> str:
        bars = [
            f"{one.notebook:18} {'■' * one.solved}{'□' * (one.total - one.solved)} {one}"
            for one in self.lines
        ]
        return "\n".join([*([visible_lines(self.problem)] if self.problem else []), *bars])

    def _repr_html_(self) -> str:
        told = f'<p class="{NO_TEX}"><strong>{as_html(self.problem)}</strong></p>' if self.problem else ""
        head = "".join(f'<th scope="col">{name}</th>' for name in ("notebook", "exercises solved", ""))
        return f"{told}<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, self.lines))}</tbody></table>"


# The words beside it say all that the bar does. Frame and letters have the page's own colour, light or dark.
_FRAME = "display:inline-block;width:140px;height:11px;border:1px solid currentColor;border-radius:3px;overflow:hidden"


def _row(line: Line) -> str:
    filled = f"display:block;height:100%;width:{100 * line.solved / line.total:.0f}%;background:#0072B2"
    bar = f'<span aria-hidden="true" style="{_FRAME}"><span style="{filled}"></span></span>'
    done = " ✔" if line.solved == line.total else ""
    link = f'<a href="{line.notebook}.ipynb">{line.notebook.replace("_", " ")}</a>'
    return f'<tr><th scope="row" style="text-align:left">{link}</th><td>{line}{done}</td><td>{bar}</td></tr>'


def names_of(module: str) -> set[str]:
    """Return the names, as in a file of progress, of all exercises in one module of ``checks``."""
    values = vars(import_module(f"{checks.__name__}.{module}")).items()
    return {f"{module}.{name}" for name, value in values if isinstance(value, Exercise)}


def show_progress() -> Overview:
    """Return how many exercises of each notebook are solved by now; run it again to see what was added.

    Never raises for a file that is broken: the overview says so.
    """
    problem, solved = "", frozenset()
    try:
        solved = progress.solved()
    except ProgressError as error:
        problem = f"{error}. The next exercise that you solve begins a new file, and keeps this one under another name."
    names = {notebook: names_of(module) for notebook, module in COURSE.items()}
    return Overview(tuple(Line(one, len(own & solved), len(own)) for one, own in names.items()), problem)


def export_progress(path: str | PathLike = EXPORT) -> Note:
    """Write the names of the solved exercises to a file of your own, and return a sentence that says so.

    Raises ``ProgressError`` if it cannot be written, or something else stands there already.
    """
    path = Path(path).expanduser()
    if path.exists():
        progress.read(path)  # an older export may be replaced, another file may not
    solved = progress.solved()
    progress.write(path, solved)
    return Note(
        f"Solved exercises written to {path}: {len(solved)}. import_progress reads them on another machine."
    )


def import_progress(path: str | PathLike = EXPORT) -> Note:
    """Add the exercises in an exported file to those solved here, and return a sentence that says how many.

    The file may come from anywhere: it is read as a list of names, and refused with ``ProgressError`` if it is
    anything else. Names that this course does not have are left out.
    """
    found = progress.read(Path(path).expanduser())
    known = found & set().union(*map(names_of, COURSE.values()))
    told = progress.record(known)
    left_out = (
        f" Left out, because this course does not have them: {len(found - known)}." if found - known else ""
    )
    return Note(f"{told} Solved exercises read from {path}: {len(known)}.{left_out}".strip())
