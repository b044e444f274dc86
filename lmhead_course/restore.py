"""A notebook as it was, for a learner who broke it: ``restore_notebook("03")``.

Where a notebook no longer opens at all, a terminal does the same: ``python -m lmhead_course.restore 03``.
"""

import os
import site
import subprocess
import sys
import tempfile
from pathlib import Path

_PLACES = [Path(base, "share", "lmhead_course_notebooks") for base in (sys.prefix, site.getuserbase())]
INSTALLED = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
"""Where installing the package puts a copy of the notebooks, see pyproject.toml."""


def restore_notebook(name: str | int, folder: str | os.PathLike = ".") -> None:
    """Put a notebook back as it was, keep the learner's under another name, and print what was done.

    ``name`` is the notebook's number, or as much of its name as tells it from the others: 3, "03_samp". ``folder`` is
    the folder of the notebooks, or the one that holds ``notebooks``. The original comes from git where there is a
    repository, else from the copy that was installed with the package. Raises ``ValueError`` for a name that fits no
    notebook or several, ``RuntimeError`` if there is no original.
    """
    folder = _folder(Path(folder))
    path = folder / _one_of(str(name), folder)
    original = from_git(path) or from_installed(path)
    if original is None:
        raise RuntimeError(
            f"there is no original of {path.name}: neither git has one nor {INSTALLED}. Install the course again "
            "(`pip install -r requirements.txt`), or take the notebook from a new download"
        )
    if path.exists() and path.read_bytes() == original:
        print(f"{path.name} is as it was: nothing to restore.")
        return
    kept = _put(path, original)
    print(f"{path.name} is as it was.", *([f"What you had is now {kept.name}."] if kept else []))
    print("If it is open in JupyterLab: File → Reload Notebook from Disk.")


def from_git(path: Path) -> bytes | None:
    """Return the file as git's last commit has it, None without git, a repository or such a file in it."""
    command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None


def from_installed(path: Path) -> bytes | None:
    """Return the file as it was installed with the package, None if it was not."""
    original = INSTALLED / path.name
    return original.read_bytes() if original.is_file() else None


def _folder(folder: Path) -> Path:
    inside = folder / "notebooks"
    return (inside if inside.is_dir() else folder).resolve()


def _one_of(name: str, folder: Path) -> str:
    """Return the one notebook whose file name begins with ``name``, among those of the folder and the originals."""
    files = {path.name for place in (folder, INSTALLED) for path in place.glob("[0-9][0-9]_*.ipynb")}
    files = {file for file in files if ".mine-" not in file}
    # No name at all is the beginning of every one, and with zeros before it that of notebook 00.
    found = sorted(file for file in files if name and file.startswith(name.zfill(2)))
    if len(found) != 1:
        raise ValueError(f"name must fit one of {sorted(files)}, got {name!r}")
    return found[0]


def _put(path: Path, content: bytes) -> Path | None:
    """Write a notebook, and return the name that the learner's has now, None where there was none.

    The original is whole on the disk before the learner's gives way: where the disk is full nothing changes.
    """
    part = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as handle:
            part = Path(handle.name)
            handle.write(content)
        part.chmod(0o666 & ~_umask())  # a temporary file is private, a notebook follows the umask
        kept = _keep(path) if path.exists() else None
        os.replace(part, path)
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
    return kept


def _keep(path: Path) -> Path:
    """Give the learner's notebook a name that is free, and return it."""
    number = 1
    while (kept := path.with_name(f"{path.stem}.mine-{number}.ipynb")).exists():
        number += 1
    path.rename(kept)
    return kept


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which notebook? for example: python -m lmhead_course.restore 03")
    try:
        restore_notebook(sys.argv[1])
    except (ValueError, RuntimeError, OSError) as problem:
        sys.exit(str(problem))
