"""The folder for a room without network: complete for every patch of its Python, and used without looking elsewhere."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tools import offline, offline_install

ROOT = Path(__file__).resolve().parents[1]
LOCK = [
    "a==1 ; python_full_version < '3.11.5'",
    "a==2 ; python_full_version >= '3.11.5'",
    "b==1",
    "c==1 ; os_name == 'x'",
]


def test_a_pin_that_only_an_older_patch_of_this_python_takes_comes_along():
    # Else an install on 3.11.2 from a folder made on 3.11.7 fails, in a room where nothing can be fetched.
    assert offline.for_another_patch(LOCK, "3.11.7") == {"a==1": "3.11.0"}


def test_a_pin_that_only_a_newer_patch_takes_comes_along():
    assert offline.for_another_patch(LOCK, "3.11.2") == {"a==2": "3.11.5"}


def test_what_another_minor_version_or_system_takes_is_left_out():
    assert offline.for_another_patch(LOCK, "3.12.1") == {}


def test_the_wheels_include_all_pins_and_what_an_editable_install_builds_with():
    named = {line.split("==")[0].split(">=")[0] for line in [*offline.pins(), *offline.build_requirements()]}
    assert {"torch", "jupyterlab", "nbval", "hatchling", "editables"} <= named


@pytest.fixture
def stick(tmp_path, monkeypatch):
    """Return a folder like the one that is carried into the room, without wheels, and make it install.py's own."""
    folder = tmp_path / "a stick"
    (folder / "course").mkdir(parents=True)
    (folder / "made_for.json").write_text(json.dumps(offline.made_for()))
    monkeypatch.setattr(offline_install, "HERE", folder)
    return folder


def test_pip_looks_in_the_folder_and_nowhere_else(stick, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org/simple")
    environment = offline_install.environment()
    assert {key for key in environment if key.startswith("PIP_")} == {
        "PIP_NO_INDEX",
        "PIP_FIND_LINKS",
        "PIP_CONFIG_FILE",
    }
    assert environment["PIP_FIND_LINKS"].split() == [(stick / name).as_uri() for name in ("wheels", "model")]


def test_pip_finds_a_package_in_a_folder_whose_name_has_a_space(stick, tmp_path):
    wheel = "wheels/nothing_here-1-py3-none-any.whl"
    (stick / "wheels").mkdir()
    make_wheel(stick / wheel)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", f"--dest={tmp_path}", "nothing-here"]
    done = subprocess.run(
        command, env=offline_install.environment(), capture_output=True, text=True, check=False
    )
    if "No module named pip" in done.stderr:
        pytest.skip("this environment has no pip")
    assert done.returncode == 0, done.stderr


def make_wheel(path: Path) -> None:
    import zipfile

    info = "nothing_here-1.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nothing-here\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_a_computer_of_another_kind_is_told_how_it_differs(stick, tmp_path):
    (stick / "made_for.json").write_text(json.dumps(offline.made_for() | {"python": "2.7", "machine": "vax"}))
    with pytest.raises(
        SystemExit, match=rf"python is {sys.version_info.major}\..*must be 2\.7; machine is .*vax"
    ):
        offline_install.main([str(tmp_path / "course")])
    assert not (tmp_path / "course").exists()


def test_the_computer_that_made_the_folder_may_install_from_it():
    assert offline_install.differences(offline.made_for()) == []
    assert offline_install.differences({"system": platform.system() + "!"}) != []


def test_an_install_leaves_a_folder_that_is_there_alone(stick, tmp_path):
    target = tmp_path / "course"
    target.mkdir()
    with pytest.raises(SystemExit, match="is there already"):
        offline_install.main([str(target)])
    assert list(target.iterdir()) == []


def fails(error):
    def fail(*arguments, **options):
        raise error

    return fail


FAILURES = [
    subprocess.CalledProcessError(1, "pip"),
    OSError(28, "No space left on device"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_an_install_that_fails_leaves_nothing_and_can_be_tried_again(stick, tmp_path, monkeypatch, error):
    (stick / "course" / "README.md").write_text("x")
    monkeypatch.setattr(offline_install.subprocess, "run", fails(error))
    for _ in range(2):  # the second try met half a course, and refused it as something of the learner's
        with pytest.raises(type(error)):
            offline_install.main([str(tmp_path / "room" / "course")])
        assert list((tmp_path / "room").iterdir()) == []
    assert (stick / "course" / "README.md").exists()


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", ["download_packages", "download_model", "copy_course"])
def test_a_folder_that_can_not_be_finished_is_removed_and_can_be_tried_again(
    tmp_path, monkeypatch, step, error
):
    made = {name: lambda folder, *options: folder.mkdir() for name in ("download_packages", "download_model")}
    for name, does in (made | {step: fails(error)}).items():
        monkeypatch.setattr(offline, name, does)
    for _ in range(2):
        with pytest.raises(type(error)):
            offline.main([str(tmp_path / "usb" / "lmhead")])
        assert list((tmp_path / "usb").iterdir()) == []


def test_the_folder_can_not_be_made_inside_the_course():
    with pytest.raises(SystemExit, match="copied into itself"):
        offline.main([str(ROOT / "room")])
    assert not (ROOT / "room").exists()


def test_the_copy_of_the_course_leaves_out_what_was_installed_or_cached(tmp_path, monkeypatch):
    source = tmp_path / "source"
    for name in ("README.md", "notebooks/00.ipynb", ".venv/x", ".git/x", "a/__pycache__/x", ".ruff_cache/x"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    monkeypatch.setattr(offline, "ROOT", source)
    offline.copy_course(tmp_path / "copy")
    kept = {
        path.relative_to(tmp_path / "copy").as_posix()
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert kept == {"README.md", "notebooks/00.ipynb"}


def test_install_py_runs_without_anything_but_pythons_own_library(tmp_path):
    script = tmp_path / "install.py"
    script.write_bytes((ROOT / "tools" / "offline_install.py").read_bytes())
    (tmp_path / "made_for.json").write_text('{"system": "another"}')
    command = [sys.executable, "-S", "-I", str(script), str(tmp_path / "course")]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=False
    )
    assert "system is" in done.stderr, done.stderr
