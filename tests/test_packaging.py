"""The lock agrees with pyproject.toml, and what a learner installs is what was tested."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import without_cuda

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
LOCK = (ROOT / "requirements.txt").read_text()
LINES = [line for line in LOCK.splitlines() if line and not line.startswith("#")]


def pins(lines=LINES) -> list[Requirement]:
    return [Requirement(line) for line in lines if not line.startswith("-")]


def out_of_range(declared: str, locked: list[Requirement]) -> list[str]:
    """Return the pins of `declared` outside its range, or a word that says it has none."""
    wanted = Requirement(declared)
    found = [pin for pin in locked if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
    bad = [str(pin) for pin in found if not wanted.specifier.contains(str(pin.specifier).lstrip("="))]
    return bad if found else [f"{wanted.name} is not pinned"]


@pytest.mark.parametrize("declared", DECLARED)
def test_each_declared_dependency_is_pinned_within_its_range(declared):
    assert out_of_range(declared, pins()) == []


def test_a_pin_outside_its_range_or_a_missing_one_would_be_seen():
    assert out_of_range("numpy>=3", [Requirement("numpy==2.4.6")]) == ["numpy==2.4.6"]
    assert out_of_range("numpy>=3", []) == ["numpy is not pinned"]
    assert out_of_range("NumPy>=2", [Requirement("numpy==2.4.6")]) == []


def test_every_line_of_the_lock_is_an_exact_pin_and_the_project_itself_comes_last():
    assert LINES[-1] == "-e ."
    assert [line for line in LINES[:-1] if not re.match(r"[a-z0-9][a-z0-9._-]*==[\w.]+( ; .+)?$", line)] == []


def test_torch_is_pinned_to_the_version_that_the_readme_names():
    assert "torch==2.13.0" in LINES
    readme = (ROOT / "README.md").read_text()
    assert set(re.findall(r"torch==([\d.]+\d)", readme)) == {"2.13.0"}


def test_the_lock_names_no_cuda_library_no_index_and_no_host():
    assert without_cuda(LOCK) == LOCK
    assert not re.search(r"https?:|--(extra-)?index|--find-links|--hash", LOCK)


def test_the_cuda_libraries_are_what_is_left_out_and_nothing_else():
    lock = "cuda-toolkit==13.0\nnvidia-nccl-cu13==2.2\ntriton==3.7\ntritonclient==1.0\ntorch==2.13.0\n"
    assert without_cuda(lock) == "tritonclient==1.0\ntorch==2.13.0\n"


@pytest.mark.parametrize("version", ["3.11.2", "3.11.7", "3.12.0", "3.13.1", "3.14.0"])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_each_declared_dependency_has_one_pin_on_every_system_and_python(system, version):
    environment = default_environment() | {
        "sys_platform": system,
        "os_name": "nt" if system == "win32" else "posix",
        "python_full_version": version,
        "python_version": version.rpartition(".")[0],
    }
    names = [canonicalize_name(p.name) for p in pins() if not p.marker or p.marker.evaluate(environment)]
    assert len(names) == len(set(names))
    assert {canonicalize_name(Requirement(d).name) for d in DECLARED} <= set(names)


def test_the_header_states_the_command_that_makes_the_lock():
    assert "python tools/lock.py" in LOCK.splitlines()[1]
    assert (ROOT / "tools" / "lock.py").is_file()


def test_the_readme_gives_the_two_commands_each_sufficient_alone():
    readme = (ROOT / "README.md").read_text()
    install = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/"
    assert (
        f"<!-- course-command -->\n```bash\n{install}jupyter lab notebooks/00_start_here.ipynb\n```" in readme
    )
    assert f"<!-- test-command -->\n```bash\n{install}pytest --nbval\n```" in readme


PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "requirements.txt", "environment.yml"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/*.md")) if path.is_file()]


@pytest.mark.parametrize("path", PAGES)
def test_no_page_names_a_folder_of_one_machine(path):
    text = (ROOT / path).read_text("utf-8").replace("/opt/tljh/", "")  # where every such server has its files
    assert not re.search(r"(?<![\w.~/])/(root|work|opt|tmp)/|/home/\w+", text)


def test_the_installed_packages_get_along():
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=120, check=False
    )
    if "No module named pip" in done.stderr:
        pytest.skip("this environment has no pip")
    assert done.returncode == 0, done.stdout
