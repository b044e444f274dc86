"""Install the course from the folder in which this file lies, without any network.

    python3 install.py [TARGET]

TARGET is where the course goes, `lmhead_course` in the current folder unless you name another. It copies the course
there, makes an environment in TARGET/.venv, installs into it only what lies in this folder, and unpacks the model
into the cache (the platform's cache folder, or the one that LMHEAD_COURSE_CACHE names). It needs nothing but Python.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FETCH = "from lmhead_course.fetch import fetch; print('The model is in', fetch())"


def differences(made_for: dict[str, str]) -> list[str]:
    """Return in words how this computer differs from the one for which the packages were downloaded."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    here = {"python": version, "system": platform.system(), "machine": platform.machine()}
    return [f"{key} is {here[key]}, must be {value}" for key, value in made_for.items() if here[key] != value]


def environment() -> dict[str, str]:
    """Return this process's variables, with pip told to look here and nowhere else."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    # As addresses, because pip takes a space in this variable for the end of a folder's name.
    found = " ".join((HERE / name).as_uri() for name in ("wheels", "model"))
    return kept | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": found, "PIP_CONFIG_FILE": os.devnull}


def install(target: Path) -> Path:
    """Copy the course to `target`, install it there, unpack the model; return the environment's folder of programs.

    Where that fails `target` is removed, or it would be in the way of the next try. (An environment can't be moved,
    so that it is made where it stays.)
    """
    target.mkdir(parents=True)
    try:
        return fill(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def fill(target: Path) -> Path:
    """Do the work of `install` in an empty folder."""
    shutil.copytree(HERE / "course", target, dirs_exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(target / ".venv")], check=True)
    programs = target / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    quiet = ("--quiet", "--disable-pip-version-check")
    command = [python, "-m", "pip", "install", *quiet, "-r", "requirements.txt"]
    subprocess.run(command, cwd=target, env=environment(), check=True)
    subprocess.run([python, "-c", FETCH], cwd=target, env=environment(), check=True)
    return programs


def main(arguments: list[str]) -> None:
    """Install to the folder in `arguments`, or to the usual one."""
    target = Path(*arguments[:1] or ["lmhead_course"]).expanduser().resolve()
    if target.exists():
        sys.exit(f"{target} is there already: name another folder, or remove it if you no longer need it")
    if wrong := differences(json.loads((HERE / "made_for.json").read_text("utf-8"))):
        sys.exit("These packages are for another kind of computer: " + "; ".join(wrong))
    programs = install(target)
    print(f'\nDone. Start the course with:\n\n    cd "{target}"')
    print(f'    "{programs / "jupyter"}" lab notebooks/00_start_here.ipynb')


if __name__ == "__main__":
    main(sys.argv[1:])
