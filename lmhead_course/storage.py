"""What the course keeps on a machine: where, how large, and how to remove it."""

import os
import sys
from pathlib import Path

from .fetch import SMOLLM2, cache_dir, unfinished
from .progress import progress_file
from .tables import Table


def show_storage() -> Table:
    """Return a table of everything that the course has put on this machine. Removing what a row names removes it.

    The folders of cache and progress may hold a user's other things: what is listed in them is the course's own.
    JupyterLab and pip keep settings and caches of their own, which other programs use as well and are not listed.
    """
    return Table(
        ["what", "where", "size", "if you remove it"],
        [(what, _short(path), _size(path), then) for what, path, then in _places() if path.exists()],
    )


def _places() -> list[tuple[str, Path, str]]:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    model, progress = cache_dir() / SMOLLM2.folder, progress_file()
    unread = sorted(progress.parent.glob("progress-unreadable-*.json"))
    places = [
        ("the model", model, "load_model() fetches it again"),
        *(
            ("an unfinished download of the model", part, "nothing is lost, unless one is running")
            for part in sorted(unfinished(model))
        ),
        ("your progress", progress, "all exercises count as open again"),
        ("a lock for your progress", progress.with_suffix(".lock"), "it is made again"),
        *(("progress that could not be read", file, "nothing else needs it") for file in unread),
        (
            "other models that you loaded",
            Path(os.environ.get("HF_HUB_CACHE", home / "hub")),
            "they are fetched again",
        ),
    ]
    if sys.prefix != sys.base_prefix:
        places.append(("Python, JupyterLab, PyTorch", Path(sys.prefix), "the course is uninstalled"))
    return places


def _size(path: Path) -> str:
    """Return what a file, or all files under a folder, hold together. Links are not followed."""
    files = (
        [path] if path.is_file() else [Path(top, name) for top, _, names in os.walk(path) for name in names]
    )
    total = 0
    for file in files:
        try:
            total += file.lstat().st_size
        except OSError:  # gone meanwhile, or not ours to look at
            continue
    return (
        f"{total / 1e9:.1f} GB"
        if total >= 1e9
        else f"{total / 1e6:.1f} MB"
        if total >= 1e5
        else f"{total} bytes"
    )


def _short(path: Path) -> str:
    """Return a path with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)
