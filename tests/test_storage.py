"""What the course keeps on a machine, listed."""

import pytest

from lmhead_course import progress, show_storage, storage


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
    fill(home / "cache" / "smollm2", 2_340_000)
    ((what, where, size, _),) = show_storage().rows
    assert (what, where, size) == ("the model", "~/cache", "2.3 MB")


def test_the_progress_is_listed_by_its_file(home):
    progress.record(["softmax.ratio"])
    assert [row[:2] for row in show_storage().rows] == [["your progress", "~/data/progress.json"]]


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
    fill(home / "cache", 10)
    (home / "cache" / "loop").symlink_to(home)
    size = show_storage().rows[0][2]
    assert size.endswith("bytes")
    assert int(size.split()[0]) < 10_000
