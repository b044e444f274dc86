"""What the course keeps on a machine, listed."""

import pytest

from lmhead_course import progress, show_storage, storage
from lmhead_course.fetch import SMOLLM2, publish


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home folder with nothing in it, and no environment for Python."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LMHEAD_COURSE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(storage.sys, "prefix", storage.sys.base_prefix)
    return tmp_path


def fill(folder, size):
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"x" * size)


def test_what_is_not_there_is_not_listed():
    assert show_storage().rows == []


def test_the_model_is_listed_with_its_folder_and_its_size(home):
    fill(home / "cache" / SMOLLM2.folder, 2_340_000)
    ((what, where, size, _),) = show_storage().rows
    assert (what, where, size) == ("the model", f"~/cache/{SMOLLM2.folder}", "2.3 MB")


def test_the_progress_is_listed_by_its_file_and_its_lock(home):
    progress.record(["softmax.ratio"])
    assert [row[:2] for row in show_storage().rows] == [
        ["your progress", "~/data/progress.json"],
        ["a lock for your progress", "~/data/progress.lock"],
    ]


def test_what_a_killed_download_left_is_listed_too(home):
    fill(home / "cache" / f".{SMOLLM2.folder}-x1", 760_000_000 // 1000)
    ((what, where, size, _),) = show_storage().rows
    assert (what, where, size) == (
        "an unfinished download of the model",
        f"~/cache/.{SMOLLM2.folder}-x1",
        "0.8 MB",
    )


def test_in_folders_with_a_users_own_things_only_the_courses_are_listed_and_all_of_them(home, monkeypatch):
    # Else the table would advise to remove a folder of papers, since the variables may name any folder.
    mine = {home / "papers" / name for name in ("thesis.txt", "progress-report.json", "smollm2-notes")}
    fill(home / "papers", 1)
    for file in mine:
        file.write_text("mine")
    monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(home / "papers"))
    monkeypatch.setenv("LMHEAD_COURSE_DATA", str(home / "papers"))
    before = set((home / "papers").iterdir())
    fill(home / "ready", 10)
    publish(home / "ready", home / "papers" / SMOLLM2.folder)
    for broken in ("{", "["):
        progress.progress_file().write_text(broken)
        progress.record(["softmax.ratio"])
    listed = {home / row[1].removeprefix("~/") for row in show_storage().rows}
    assert listed == set((home / "papers").iterdir()) - before
    assert len(listed) == 5


def test_models_of_the_hub_are_listed_where_the_hub_keeps_them(home):
    fill(home / ".cache" / "huggingface" / "hub", 10)
    assert show_storage().rows[0][:3] == [
        "other models that you loaded",
        "~/.cache/huggingface/hub",
        "10 bytes",
    ]


def test_a_virtual_environment_is_listed_since_removing_it_uninstalls_the_course(home, monkeypatch):
    fill(home / ".venv", 10)
    monkeypatch.setattr(storage.sys, "prefix", str(home / ".venv"))
    assert show_storage().rows[0][-1] == "the course is uninstalled"


def test_links_are_not_followed(home):
    fill(home / "cache" / SMOLLM2.folder, 10)
    (home / "cache" / SMOLLM2.folder / "loop").symlink_to(home)
    size = show_storage().rows[0][2]
    assert size.endswith("bytes")
    assert int(size.split()[0]) < 10_000
