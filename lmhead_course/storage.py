"""What the course keeps on a machine: where, how large, and how to remove it."""

import os
import sys
from pathlib import Path

from .fetch import cache_dir
from .progress import progress_file
from .tables import Table


def show_storage() -> Table:
    """Return a table of everything that the course has put on this machine. Removing a row's folder removes it.

    JupyterLab and pip keep settings and caches of their own, which other programs use as well and are not listed.
    """
    return Table(
        ["what", "where", "size", "if you remove it"],
        [(what, _short(path), _size(path), then) for what, path, then in _places() if path.exists()],
    )


def _places() -> list[tuple[str, Path, str]]:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    places = [
        ("the model", cache_dir(), "load_model() fetches it again"),
        ("your progress", progress_file(), "all exercises count as open again"),
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
