"""A broken notebook is put back, and what the learner had is kept."""

import subprocess
import sys

import pytest

from lmhead_course import restore, restore_notebook

ORIGINAL = b'{"cells": ["as it was"]}\n'
MINE = b'{"cells": ["half an answ'


def git(folder, *arguments):
    own = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *own, *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """A copy of one notebook, as installing the package puts it somewhere."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "03_sampling.ipynb").write_bytes(ORIGINAL)
    monkeypatch.setattr(restore, "INSTALLED", folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.fixture
def folder(tmp_path):
    """The learner's folder, with a notebook that they broke, and another."""
    folder = tmp_path / "course" / "notebooks"
    folder.mkdir(parents=True)
    (folder / "03_sampling.ipynb").write_bytes(MINE)
    (folder / "04_weight_tying.ipynb").write_bytes(b"{}")
    return folder


def test_a_broken_notebook_is_as_it_was_and_the_learners_stands_beside_it(folder, capsys):
    restore_notebook("03", folder)
    assert (folder / "03_sampling.ipynb").read_bytes() == ORIGINAL
    assert (folder / "03_sampling.mine-1.ipynb").read_bytes() == MINE
    assert "What you had is now 03_sampling.mine-1.ipynb." in capsys.readouterr().out


def test_a_second_time_the_first_is_kept_as_well(folder):
    restore_notebook("03", folder)
    (folder / "03_sampling.ipynb").write_bytes(b"again")
    restore_notebook("03", folder)
    assert (folder / "03_sampling.mine-1.ipynb").read_bytes() == MINE
    assert (folder / "03_sampling.mine-2.ipynb").read_bytes() == b"again"


def test_a_notebook_that_is_as_it_was_is_left_alone(folder, capsys):
    (folder / "03_sampling.ipynb").write_bytes(ORIGINAL)
    restore_notebook("03", folder)
    assert "nothing to restore" in capsys.readouterr().out
    assert not list(folder.glob("*.mine-*"))


def test_a_notebook_that_was_deleted_comes_back(folder):
    (folder / "03_sampling.ipynb").unlink()
    restore_notebook("03", folder)
    assert (folder / "03_sampling.ipynb").read_bytes() == ORIGINAL


def test_where_there_is_git_its_last_commit_is_the_original(folder):
    (folder / "03_sampling.ipynb").write_bytes(b"newer than what was installed")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "course")
    (folder / "03_sampling.ipynb").write_bytes(MINE)
    restore_notebook("03", folder)
    assert (folder / "03_sampling.ipynb").read_bytes() == b"newer than what was installed"


def test_a_folder_in_a_repository_that_does_not_hold_the_notebook_takes_the_installed_one(folder):
    git(folder, "init")
    restore_notebook("03", folder)
    assert (folder / "03_sampling.ipynb").read_bytes() == ORIGINAL


def test_without_git_on_the_machine_the_installed_one_is_taken(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    restore_notebook("03", folder)
    assert (folder / "03_sampling.ipynb").read_bytes() == ORIGINAL


@pytest.mark.parametrize("name", [3, "3", "03", "03_samp", "03_sampling.ipynb"])
def test_a_notebook_is_named_by_its_number_or_the_beginning_of_its_name(folder, name):
    restore_notebook(name, folder.parent)  # the folder above that of the notebooks does as well
    assert (folder / "03_sampling.ipynb").read_bytes() == ORIGINAL


@pytest.mark.parametrize("name", ["", "9", "0", "../03_sampling", "*", "sampling"])
def test_a_name_that_fits_none_or_several_is_refused_with_those_there_are(folder, name):
    with pytest.raises(ValueError, match=r"name must fit one of .*03_sampling"):
        restore_notebook(name, folder)
    assert (folder / "03_sampling.ipynb").read_bytes() == MINE


@pytest.mark.parametrize("name", ["", " "])
def test_no_name_is_not_the_number_of_the_first_notebook(folder, name):
    (folder / "00_start_here.ipynb").write_bytes(MINE)
    (folder.parents[1] / "installed" / "00_start_here.ipynb").write_bytes(ORIGINAL)
    with pytest.raises(ValueError, match=rf"name must fit one of .*00_start.*got '{name}'"):
        restore_notebook(name, folder)
    assert (folder / "00_start_here.ipynb").read_bytes() == MINE


FULL = """
import resource, signal, sys
from lmhead_course import restore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
restore.INSTALLED = restore.Path(sys.argv[1])
restore.restore_notebook("03")
"""


def test_on_a_full_disk_the_learners_notebook_stays_where_it_is_and_nothing_else_is_left(folder, installed):
    # A limit on a file's size fails as a full disk does: when the text is written, not when the file is opened.
    pytest.importorskip("resource")
    before = sorted(folder.iterdir())
    command = [sys.executable, "-c", FULL, str(installed)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert "OSError" in done.stderr
    assert sorted(folder.iterdir()) == before
    assert (folder / "03_sampling.ipynb").read_bytes() == MINE


def refuse(path, target):
    raise PermissionError(target)


def test_a_folder_that_takes_no_new_name_is_left_as_it_was(folder, monkeypatch):
    before = sorted(folder.iterdir())
    monkeypatch.setattr(restore.Path, "rename", refuse)
    with pytest.raises(PermissionError):
        restore_notebook("03", folder)
    assert sorted(folder.iterdir()) == before


def test_without_any_original_nothing_is_changed_and_it_says_where_to_get_one(folder):
    with pytest.raises(RuntimeError, match="there is no original of 04_weight_tying"):
        restore_notebook("04", folder)
    assert (folder / "04_weight_tying.ipynb").read_bytes() == b"{}"


def test_a_terminal_does_the_same_and_says_in_one_line_what_was_wrong(folder):
    command = [sys.executable, "-m", "lmhead_course.restore", "99"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("name must fit one of")
    assert len(done.stderr.splitlines()) == 1
