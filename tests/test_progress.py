"""The learner's progress: kept, shown, taken along, and never in the way of a check."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from lmhead_course import export_progress, import_progress, progress, show_progress
from lmhead_course.checks import prerequisites as ex
from lmhead_course.overview import COURSE, Line, Overview, names_of
from lmhead_course.progress import ProgressError, progress_file
from tests import solving

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A new folder for the learner's progress; nothing is in it yet."""
    monkeypatch.setenv("LMHEAD_COURSE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def of(notebook: str) -> str:
    return next(str(line) for line in show_progress().lines if line.notebook == notebook)


def broken(text="{"):
    progress_file().parent.mkdir(exist_ok=True)
    progress_file().write_text(text)


# ---- what is kept ----------------------------------------------------------------------------------------


def test_a_solved_exercise_is_kept_for_the_next_kernel():
    ex.slices.check([1, 4])
    assert progress.solved() == {"prerequisites.slices"}


def test_a_wrong_answer_and_a_stub_add_nothing():
    ex.slices.check([9, 16])
    ex.slices.check(...)
    assert not progress_file().exists()


def test_an_exercise_that_is_solved_twice_counts_once():
    ex.slices.check([1, 4])
    ex.slices.check([1, 4])
    assert of("00_start_here") == "1 of 5"


def test_an_exercise_of_ones_own_is_not_counted():
    from lmhead_course.checks import Exercise

    mine = Exercise(lambda answer: None, praise="Yes.", hint="?", solution="answer = 1")
    assert mine.check(1).passed
    assert not progress_file().exists()


def test_the_folder_is_the_platforms_own_where_none_is_named(monkeypatch):
    import platformdirs

    monkeypatch.delenv("LMHEAD_COURSE_DATA")
    assert progress_file() == Path(platformdirs.user_data_dir("lmhead_course")) / "progress.json"


def test_several_kernels_at_once_lose_nothing(folder):
    code = "import sys; from lmhead_course.progress import record\nfor i in range(25): record([f'{sys.argv[1]}.e{i}'])"
    kernels = [subprocess.Popen([sys.executable, "-c", code, name], cwd=ROOT) for name in ("a", "b", "c")]
    assert [kernel.wait(timeout=60) for kernel in kernels] == [0, 0, 0]
    assert progress.solved() == {f"{name}.e{i}" for name in ("a", "b", "c") for i in range(25)}
    assert not list(folder.glob("*.part"))


# ---- a file that is broken, locked or read-only is told, and a check goes on ------------------------------


def test_a_broken_file_is_kept_under_another_name_and_the_check_says_so(folder):
    broken("half a fi")
    verdict = ex.slices.check([1, 4])
    assert verdict.passed
    assert "It is kept as progress-unreadable-1.json" in repr(verdict)
    assert (folder / "progress-unreadable-1.json").read_text() == "half a fi"
    assert progress.solved() == {"prerequisites.slices"}


def test_a_second_broken_file_does_not_replace_the_first(folder):
    for text in ("one", "two"):
        broken(text)
        ex.slices.check([1, 4])
    assert (folder / "progress-unreadable-1.json").read_text() == "one"
    assert (folder / "progress-unreadable-2.json").read_text() == "two"


def test_the_overview_of_a_broken_file_says_so_and_shows_the_course():
    broken()
    assert "is not the JSON that export_progress writes" in repr(show_progress())
    assert of("01_projection") == "0 of 7"


def test_where_nothing_can_be_written_a_right_answer_is_still_right(tmp_path, monkeypatch):
    (tmp_path / "file").touch()  # no folder can be made below it; root could write into a read-only one
    monkeypatch.setenv("LMHEAD_COURSE_DATA", str(tmp_path / "file" / "data"))
    verdict = ex.slices.check([1, 4])
    assert verdict.passed
    assert "Your progress could not be kept" in verdict._repr_html_()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes into every folder")
def test_a_read_only_folder_is_told(folder):
    folder.mkdir(mode=0o500)
    assert "cannot be written: Permission denied" in repr(ex.slices.check([1, 4]))


def test_a_program_that_keeps_the_file_locked_is_told_after_a_moment(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    with progress._alone(progress_file()):
        assert "another program keeps" in repr(ex.slices.check([1, 4]))


def test_a_write_that_fails_leaves_the_old_file_and_no_part(folder, monkeypatch):
    progress.record(["a.b"])
    monkeypatch.setattr(
        progress.os, "replace", lambda *names: (_ for _ in ()).throw(OSError(28, "disk full"))
    )
    assert "disk full" in repr(ex.slices.check([1, 4]))
    assert progress.solved() == {"a.b"}
    assert not list(folder.glob("*.part"))


# ---- taken along -----------------------------------------------------------------------------------------


def test_what_is_exported_is_read_on_another_machine_and_added_to_what_is_there(tmp_path, monkeypatch):
    ex.slices.check([1, 4])
    export_progress(tmp_path / "mine.json")
    monkeypatch.setenv("LMHEAD_COURSE_DATA", str(tmp_path / "other machine"))
    ex.row_sums.check((4, 1))
    assert "mine.json: 1." in repr(import_progress(tmp_path / "mine.json"))
    assert of("00_start_here") == "2 of 5"


def good(**changes):
    return {"format": progress.FORMAT, "version": 1, "solved": ["softmax.ratio"]} | changes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not the JSON"),
        ("\x00\xff", "is not the JSON"),
        ("[" * 50_000, "is not the JSON"),
        ("1" * 99_000, "is not the JSON"),
        ("x" * 200_000, "is larger than 100,000 bytes"),
        ("[]", "is no file of progress"),
        (json.dumps({"cells": []}), "is no file of progress"),
        (json.dumps(good(version=2)), "version that this course does not know"),
        (json.dumps(good(version="1")), "version that this course does not know"),
        (json.dumps(good(solved="softmax.ratio")), "no list of exercises"),
        (json.dumps(good(solved=[["softmax.ratio"]])), "no name of an exercise"),
        (json.dumps(good(solved=["<script>alert(1)</script>"])), "no name of an exercise"),
        (json.dumps(good(solved=["softmax.ratio\n"])), "no name of an exercise"),
        (json.dumps(good(solved=["../../etc.passwd"])), "no name of an exercise"),
        (json.dumps(good(solved=["a." + "b" * 90_000])), "no name of an exercise"),
    ],
)
def test_a_hostile_file_is_refused_in_words_and_changes_nothing(tmp_path, text, words):
    (tmp_path / "theirs.json").write_text(text, encoding="latin-1")
    with pytest.raises(ProgressError, match=words) as caught:
        import_progress(tmp_path / "theirs.json")
    assert len(str(caught.value)) < 400
    assert not progress_file().exists()


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_a_file_that_is_none_is_refused(tmp_path, name):
    with pytest.raises(ProgressError, match="is no file"):
        import_progress(tmp_path / name)


def test_names_that_the_course_does_not_have_are_left_out_and_counted(tmp_path):
    (tmp_path / "theirs.json").write_text(json.dumps(good(solved=["softmax.ratio", "softmax.of_next_year"])))
    assert repr(import_progress(tmp_path / "theirs.json")).endswith("does not have them: 1.")
    assert progress.solved() == {"softmax.ratio"}


def test_an_export_never_replaces_another_file(tmp_path):
    (tmp_path / "notes.json").write_text('{"my": "notes"}')
    with pytest.raises(ProgressError, match="is no file of progress"):
        export_progress(tmp_path / "notes.json")
    assert (tmp_path / "notes.json").read_text() == '{"my": "notes"}'


def test_an_export_replaces_an_older_one(tmp_path):
    export_progress(tmp_path / "mine.json")
    ex.slices.check([1, 4])
    export_progress(tmp_path / "mine.json")
    assert progress.read(tmp_path / "mine.json") == {"prerequisites.slices"}


# ---- shown -----------------------------------------------------------------------------------------------


class Cells(HTMLParser):
    """The text of a table's cells, without what is hidden from a screen reader."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.hidden = [], 0
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag == "span":
            self.hidden += 1

    def handle_endtag(self, tag):
        if tag == "span":
            self.hidden -= 1

    def handle_data(self, text):
        if self.rows and not self.hidden:
            self.rows[-1].append(text)


def test_a_screen_reader_reads_the_numbers_and_not_the_bars():
    ex.slices.check([1, 4])
    rows = Cells(show_progress()._repr_html_()).rows
    assert rows[1] == ["00 start here", "1 of 5"]
    assert len(rows) == 1 + len(COURSE)


def test_a_finished_notebook_carries_a_sign_beside_its_colour():
    assert Cells(Overview((Line("01_projection", 7, 7),))._repr_html_()).rows[1][1] == "7 of 7 ✔"


def test_a_problem_is_shown_as_text_and_never_as_markup():
    assert "<script>" not in Overview((), "no <script> file")._repr_html_()


@pytest.mark.parametrize(("notebook", "module"), COURSE.items())
def test_every_exercise_that_is_counted_stands_in_its_notebook(notebook, module):
    cells = nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    source = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert [name for name in names_of(module) if f"ex.{name.split('.')[1]}.check(" not in source] == []


def test_every_notebook_and_every_exercise_is_counted():
    assert {
        path.stem for path in (ROOT / "notebooks").glob("0*_*.ipynb") if ".mine-" not in path.name
    } == set(COURSE)
    assert {module.__name__.rpartition(".")[2] for module in solving.modules()} == set(COURSE.values())


# ---- nobody's own file is touched by tests or by storing ----------------------------------------------------


def test_storing_a_notebook_neither_shows_nor_changes_ones_own_progress(tmp_path):
    from nbformat.v4 import new_code_cell, new_notebook

    from tools.store_notebooks import execute

    progress.record(["softmax.ratio"])
    before = progress_file().read_bytes()
    source = (
        "from lmhead_course import show_progress\nfrom lmhead_course.checks import prerequisites as ex\n"
        "print(repr(show_progress()).splitlines()[2]); ex.slices.check([1, 4]).remark"
    )
    (cell,) = execute(new_notebook(cells=[new_code_cell(source)]), tmp_path).cells
    assert "0 of 8" in cell.outputs[0].text
    assert cell.outputs[1].data["text/plain"] == "''"
    assert progress_file().read_bytes() == before


def test_running_the_notebooks_under_pytest_neither_reads_nor_changes_ones_own_progress(tmp_path):
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    from tools.store_notebooks import KERNEL, write

    source = "from lmhead_course import show_progress\nprint(show_progress().lines[2])\n"
    source += "from lmhead_course.checks import prerequisites as ex\nprint(ex.slices.check([1, 4]).remark)"
    shown = new_output("stream", text="0 of 8\n\n")
    cell = new_code_cell(source, execution_count=1, outputs=[shown])
    write(new_notebook(cells=[cell], metadata={"kernelspec": KERNEL}), tmp_path / "small.ipynb")
    (tmp_path / "conftest.py").write_text((ROOT / "notebooks" / "conftest.py").read_text())
    progress.record(["softmax.ratio"])
    before = progress_file().read_bytes()
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--nbval", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(tmp_path / "small.ipynb")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
    assert progress_file().read_bytes() == before
