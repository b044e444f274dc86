"""What a hosted or a conda environment installs is what pyproject.toml asks for and requirements.txt locks."""

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUN = PROJECT["dependencies"]
TEST = PROJECT["optional-dependencies"]["test"]
CONDA_NAMES = {"torch": "pytorch-cpu", "playwright": "playwright-python"}  # elsewhere the names are the same
NOT_OURS = {"python", "pip", "nbgitpuller"}  # of an image, not of the course


def conda_lines(path: str) -> list[str]:
    """Return what an environment asks for, from conda-forge and, behind it, from PyPI; not the course itself."""
    lines = yaml.safe_load((ROOT / path).read_text())["dependencies"]
    by_pip = [line for part in lines if isinstance(part, dict) for line in part["pip"]]
    return [line for line in [*lines, *by_pip] if isinstance(line, str) and not line.startswith("-e")]


def bounds(lines: list[str]) -> dict[str, SpecifierSet]:
    """Return the bounds of each package, by its conda name; conda's single ``=`` is not a bound of ours."""
    wanted = [Requirement(line) for line in lines if re.split(r"[=<>]", line)[0] not in NOT_OURS]
    return {CONDA_NAMES.get(one.name, canonicalize_name(one.name)): one.specifier for one in wanted}


def test_the_conda_environment_has_the_bounds_of_pyproject_with_tests():
    assert bounds(conda_lines("environment.yml")) == bounds([*RUN, *TEST])


def test_the_hosted_environment_has_the_bounds_of_pyproject_without_tests():
    assert bounds(conda_lines("binder/environment.yml")) == bounds(RUN)


@pytest.mark.parametrize(
    "lines", [["numpy>=1.27"], ["numpy"], [], ["numpy>=1.26", "scipy"]], ids=lambda lines: " ".join(lines)
)
def test_a_bound_that_differs_or_a_package_too_many_would_be_seen(lines):
    assert bounds(lines) != bounds(["numpy>=1.26"])


@pytest.mark.parametrize("path", ["environment.yml", "binder/environment.yml"])
def test_conda_takes_everything_from_one_channel_and_a_python_that_the_course_allows(path):
    environment = yaml.safe_load((ROOT / path).read_text())
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    (python,) = [line for line in conda_lines(path) if line.startswith("python=")]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python=") + ".0")


@pytest.mark.parametrize("path", ["environment.yml", "binder/environment.yml"])
def test_the_locked_versions_lie_within_the_bounds_of_conda(path):
    pins = [
        Requirement(line) for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line
    ]
    locked: dict[str, list[str]] = {}
    for pin in pins:
        name = CONDA_NAMES.get(pin.name, canonicalize_name(pin.name))
        locked.setdefault(name, []).append(str(pin.specifier).lstrip("="))
    asked = bounds(conda_lines(path))
    assert {
        name: locked.get(name) for name in asked if not all(map(asked[name].contains, locked[name]))
    } == {}


def test_one_commented_line_turns_the_conda_environment_to_cuda():
    text = (ROOT / "environment.yml").read_text()
    (cpu,) = re.findall(r"^  - pytorch-cpu(.*)$", text, re.MULTILINE)
    (cuda,) = re.findall(r"^  # - pytorch-gpu(\S+)", text, re.MULTILINE)
    assert cuda == cpu


# ---- the scripts of an image, as far as they run without one ------------------------------------------------

needs_bash = pytest.mark.skipif(os.name != "posix", reason="images are Linux; this needs its bash")


@needs_bash
@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_a_script_of_the_image_may_be_executed_and_is_right_bash(name):
    path = ROOT / "binder" / name
    assert path.stat().st_mode & stat.S_IXUSR
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


@needs_bash
def test_a_failing_step_ends_the_build_of_the_image(tmp_path):
    # A Python that can't install: the script must not go on to bake half an image.
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && { echo "$PREFIX_FOR_TEST"; exit 0; }\nexit 3\n')
    python.chmod(0o755)
    prefix = tmp_path / "prefix"
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PREFIX_FOR_TEST": str(prefix),
    }
    done = subprocess.run(
        ["bash", str(ROOT / "binder" / "postBuild")], cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 3
    assert not prefix.exists()


def started(**more: str) -> dict[str, str]:
    """Return the environment that a server of the image would see."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("LMHEAD", "OMP"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["bash", str(ROOT / "binder" / "start"), "env"]
    done = subprocess.run(command, env=environment | more, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


@needs_bash
def test_a_server_of_the_image_knows_where_the_baked_model_is_and_uses_one_thread():
    seen = started()
    assert seen["LMHEAD_COURSE_CACHE"] == str(Path(sys.executable).parents[1] / "share" / "lmhead_course")
    assert seen["OMP_NUM_THREADS"] == "1"


@needs_bash
def test_a_hub_that_has_its_own_shared_cache_keeps_it():
    assert started(LMHEAD_COURSE_CACHE="/srv/model")["LMHEAD_COURSE_CACHE"] == "/srv/model"


def test_the_image_opens_a_notebook_that_exists_and_asks_nothing():
    binder = ROOT / "binder"
    url = json.loads((binder / "jupyter_lab_config.json").read_text())["LabApp"]["default_url"]
    assert (ROOT / url.removeprefix("/lab/tree/")).is_file()
    notification = json.loads((binder / "overrides.json").read_text())[
        "@jupyterlab/apputils-extension:notification"
    ]
    assert notification == {"fetchNews": "false", "checkForUpdates": False}
