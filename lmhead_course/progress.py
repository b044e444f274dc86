"""Which exercises a learner has solved, kept in one small file of their own.

``LMHEAD_COURSE_DATA`` names the folder; without it, it is the platform's own place for a user's data. The file holds
names of exercises and nothing else. It is only ever replaced as a whole, and one process at a time changes it, so that
several notebooks at once lose nothing.
"""

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

FORMAT = "lmhead_course progress"
LARGEST = 100_000  # bytes; the whole course is a few thousand
PATIENCE = 2.0  # seconds to wait for another process that is writing
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}\.[a-z][a-z0-9_]{0,60}")


class ProgressError(Exception):
    """A file of progress cannot be read or written; the message says which, why, and what to do."""


def progress_file() -> Path:
    """Return where the progress is kept; the file may not exist yet."""
    chosen = os.environ.get("LMHEAD_COURSE_DATA")
    if chosen:
        return Path(chosen).expanduser() / "progress.json"
    import platformdirs

    return Path(platformdirs.user_data_dir("lmhead_course")) / "progress.json"


def solved() -> frozenset[str]:
    """Return the names of the exercises that were solved, such as "softmax.ratio"; ``ProgressError`` if unreadable."""
    path = progress_file()
    return frozenset(read(path)) if path.exists() else frozenset()


def read(path: Path) -> set[str]:
    """Return the names in a file of progress; raise ``ProgressError`` for anything else than such a file.

    Nothing in the file is run or shown: it must be small, and a list of names that look like names.
    """
    try:
        if not path.is_file():
            raise ProgressError(f"{path} is no file")
        with path.open("rb") as handle:
            text = handle.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ProgressError(f"{path} is larger than {LARGEST:,} bytes, which no file of progress is")
        content = json.loads(text)
    except OSError as error:
        raise ProgressError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ProgressError(f"{path} is not the JSON that export_progress writes") from error
    return _names(path, content)


def _names(path: Path, content: object) -> set[str]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ProgressError(f'{path} is no file of progress: it does not say "format": "{FORMAT}"')
    if content.get("version") != 1:
        raise ProgressError(f"{path} has a version that this course does not know; version 1 is known")
    names = content.get("solved")
    if not isinstance(names, list):
        raise ProgressError(f'{path} has no list of exercises at "solved"')
    wrong = [name for name in names if not (isinstance(name, str) and NAME.fullmatch(name))]
    if wrong:
        raise ProgressError(f"{path} lists {wrong[0]!r:.60}, which is no name of an exercise")
    return set(names)


def write(path: Path, names: Iterable[str]) -> None:
    """Write a file of progress at once: a reader sees the old one or the new one. ``ProgressError`` if that fails."""
    content = {"format": FORMAT, "version": 1, "solved": sorted(names)}
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as handle:
            part = Path(handle.name)
            json.dump(content, handle, indent=1)
        os.replace(part, path)
    except OSError as error:
        raise ProgressError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def record(names: Iterable[str]) -> str:
    """Add exercises to those solved, and return "" or, in words, what was wrong with the file on the way.

    A file that cannot be read is kept under another name, and a new one begun. Raises ``ProgressError`` if nothing
    could be written.
    """
    path, names = progress_file(), set(names)
    with contextlib.suppress(ProgressError):
        if names <= solved():
            return ""  # nothing new: most checks end here, without a lock
    with _alone(path):
        try:
            before, told = solved(), ""
        except ProgressError as error:
            before, told = (
                frozenset(),
                f"{error}. It is kept as {_set_aside(path).name}, and a new one begun.",
            )
        write(path, before | names)
    return told


def _set_aside(path: Path) -> Path:
    """Give a file that cannot be read another name, one that is free, and return it."""
    number = 1
    while (kept := path.with_name(f"progress-unreadable-{number}.json")).exists():
        number += 1
    try:
        path.rename(kept)
    except OSError as error:
        raise ProgressError(f"{path} can be neither read nor replaced: {error.strerror or error}") from error
    return kept


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from changing the file while the block runs; ``ProgressError`` if one does not let go."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.with_suffix(".lock").open("a")
    except OSError as error:
        raise ProgressError(f"{path} cannot be written: {error.strerror or error}") from error
    with handle:
        end = time.monotonic() + PATIENCE
        while not _lock(handle):
            if time.monotonic() > end:
                raise ProgressError(f"another program keeps {path} locked")
            time.sleep(0.02)
        yield  # closing the file unlocks it, as does the end of the process


def _lock(handle) -> bool:
    """Lock an open file for this process alone and return whether that worked."""
    try:
        if os.name == "nt":
            import msvcrt

            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
