"""The edition without solutions: nothing that answers an exercise is left, and everything else still works."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from lmhead_course.checks import Exercise
from tests import solving
from tools import without_solutions

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXERCISES = [one for module in solving.modules() for one in solving.exercises_of(module).values()]
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def edition(tmp_path_factory) -> Path:
    """Return the folder of an edition, made by the command that a teacher gives."""
    if not (ROOT / ".git").exists():
        pytest.skip("an edition is made from a git clone")
    folder = tmp_path_factory.mktemp("edition") / "course"
    without_solutions.main([str(folder)])
    return folder


def squeezed(text: str) -> str:
    """Return a text as it reads, whatever its indentation and markup."""
    return re.sub(r"\s+", "", html.unescape(re.sub(r"<br ?/?>", "\n", text)))


def texts_of(folder: Path) -> dict[str, str]:
    """Return all that a learner could read in a folder, by file: of notebooks the cells and their outputs."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".ipynb":
            notebook = nbformat.read(path, as_version=4)
            outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
            parts = [cell.source for cell in notebook.cells]
            parts += [
                part for out in outputs for part in out.get("data", {}).values() if isinstance(part, str)
            ]
            found[path.name] = squeezed("\n".join(parts))
        elif path.suffix in (".py", ".md"):
            found[path.name] = squeezed(path.read_text("utf-8"))
    return found


def given_away(folder: Path) -> list[tuple[str, str]]:
    """Return each solution that can be read in a folder, with the file where it stands."""
    texts = texts_of(folder)
    solutions = [exercise.solution().text for exercise in EXERCISES]
    return [(name, one) for one in solutions for name, text in texts.items() if squeezed(one) in text]


def test_no_solution_can_be_read_anywhere_in_the_edition(edition):
    assert given_away(edition) == []


def test_a_solution_left_in_a_notebook_would_be_seen(tmp_path):
    (tmp_path / "03.ipynb").write_bytes((ROOT / "notebooks" / "03_sampling.ipynb").read_bytes())
    assert len(given_away(tmp_path)) >= 8


@every_notebook
def test_every_code_cell_of_a_notebook_is_the_one_of_the_full_course(edition, path):
    def code(which):
        cells = nbformat.read(which, as_version=4).cells
        return [cell.source for cell in cells if cell.cell_type == "code"]

    assert code(edition / "notebooks" / path.name) == code(path)


@every_notebook
def test_the_questions_at_the_end_stay_and_their_answers_are_gone(edition, path):
    full, left = (
        nbformat.read(folder / path.name, as_version=4) for folder in (path.parent, edition / "notebooks")
    )
    for before, after in zip(full.cells, left.cells, strict=True):
        if before.source.startswith("Questions to answer aloud"):
            questions = re.findall(r"<summary>(.*?)</summary>", before.source)
            assert questions
            assert after.source == "Questions to answer aloud.\n\n" + "\n\n".join(f"- {q}" for q in questions)


@every_notebook
def test_nothing_promises_a_solution_that_is_not_there(edition, path):
    cells = nbformat.read(edition / "notebooks" / path.name, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert not re.search(r"solution (is|are) folded|<summary>Solution", prose)


def test_the_edition_has_no_tests_and_no_page_for_teachers_but_all_a_learner_needs(edition):
    kept = {path.relative_to(edition).as_posix() for path in edition.rglob("*") if path.is_file()}
    assert not [name for name in kept if name.startswith("tests/")]
    assert {"README.md", "LICENSE", "requirements.txt", "lmhead_course/checks/sampling.py"} <= kept
    assert "Marking" not in (edition / "docs" / "teaching.md").read_text("utf-8")


def test_an_exercise_of_the_edition_works_as_before_and_shows_its_hint_alone():
    exercise = Exercise(
        lambda answer: None if answer == 7 else "No.", praise="Yes.", hint="After six.", solution=""
    )
    assert exercise.check(7).passed
    page = exercise.check(6)._repr_html_()
    assert "After six." in page
    assert "Solution" not in page
    assert "no solutions" in exercise.solution().text


def only_exercises(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its setup, the stubs and the checks, all else left out to be quick."""
    notebook = nbformat.read(path, as_version=4)
    setup, *rest = [cell for cell in notebook.cells if cell.cell_type == "code"]
    asked = [
        cell
        for cell in rest
        if re.search(r"\bex\.\w+\.check\(|^def my_|^answer = ", cell.source, re.MULTILINE)
    ]
    notebook.cells = [setup, *asked]
    return notebook


def test_the_exercises_of_the_edition_show_what_its_stored_notebooks_show(edition):
    # Stored outputs and package must have lost the same words: nbval compares the two.
    notebook = only_exercises(edition / "notebooks" / "08_reading_logits.ipynb")
    assert sum("ex." in cell.source for cell in notebook.cells) >= 7
    nbformat.write(notebook, edition / "notebooks" / "exercises.ipynb")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "-p", "no:cacheprovider", "notebooks/exercises.ipynb"],
        cwd=edition,
        env=environment | {"PYTHONPATH": str(edition)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ('x = Exercise(f, hint="a", solution="b")\n', 'x = Exercise(f, hint="a", solution="")\n'),
        (
            'x = Exercise(\n    f,\n    solution="""\n    a\n    b\n    """,\n)\n',
            'x = Exercise(\n    f,\n    solution="",\n)\n',
        ),
        (
            'x = E(hint="θ→", solution="很"), E(solution=f"{1}")\n',
            'x = E(hint="θ→", solution=""), E(solution="")\n',
        ),
    ],
)
def test_solutions_are_cut_out_of_source_however_they_are_written(source, left):
    assert without_solutions.without_solutions(source) == left


def test_a_folder_that_exists_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(SystemExit, match="is there already"):
        without_solutions.main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_edition_that_can_not_be_finished_is_removed_and_can_be_tried_again(tmp_path, monkeypatch):
    def full(path, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(without_solutions, "copy", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            without_solutions.main([str(tmp_path / "edition")])
        assert list(tmp_path.iterdir()) == []
