"""What every test shares: checked shapes, one torch thread, repeatable hypothesis, the live model."""

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

from tests import typecheck

# From here on every annotated shape of the package is checked at each call. It must come before the package
# is first imported, and stays off for learners: notebooks run in kernels of their own.
jaxtyping.install_import_hook("lmhead_course", f"{typecheck.__name__}.typecheck")

# Two threads on a busy machine wait for each other; one is steady, and what tests assert on is values.
torch.set_num_threads(1)

# Checkers keep what was solved: the tests' right answers are not the progress of whoever runs them.
os.environ["LMHEAD_COURSE_DATA"] = tempfile.mkdtemp(prefix="lmhead-course-tests-")

# No deadline: a shared machine pauses at any time. No example database: a run leaves no files behind.
hypothesis.settings.register_profile("dev", deadline=None, database=None)
hypothesis.settings.register_profile("ci", deadline=None, database=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser):
    """Let test_conformance.py and test_fuzz.py do as much as one has time for."""
    parser.addoption(
        "--conformance", type=int, metavar="N", help="compare about N inputs in test_conformance.py"
    )
    parser.addoption("--moves", type=int, default=100, metavar="N", help="move N controls in test_fuzz.py")
    parser.addoption("--device", default="cpu", help="where tensors and the live model are, such as cuda")


def pytest_unconfigure():
    """Remove the folder that stood for the user's own."""
    if Path(folder := os.environ["LMHEAD_COURSE_DATA"]).name.startswith("lmhead-course-tests-"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def device(pytestconfig):
    """Return the device that the tests run on: the CPU, or what ``--device`` says."""
    return torch.device(pytestconfig.getoption("--device"))


# These two ask for the option itself: a test may have a parameter of its own that is called device.
@pytest.fixture(scope="session", autouse=True)
def tensors_on_the_device(pytestconfig):
    """Make the tensors of every test where ``--device`` says."""
    if pytestconfig.getoption("--device") != "cpu":
        torch.set_default_device(pytestconfig.getoption("--device"))


@pytest.fixture(scope="session")
def lm(pytestconfig):
    """Return the default model, loaded once for the whole run; the first run ever fetches it."""
    from lmhead_course import load_model

    return load_model(device=pytestconfig.getoption("--device"))


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """Point LMHEAD_COURSE_CACHE at a new, empty folder and return it."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("LMHEAD_COURSE_CACHE", str(folder))
    return folder
