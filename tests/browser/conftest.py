"""The server, the browser and the page that browser tests share."""

import shutil
from collections.abc import Iterator

import pytest

from tests.browser.lab import REPOSITORY, Lab, Server, chromium, jupyter_lab


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """A JupyterLab over a copy of the course's notebooks."""
    folder = tmp_path_factory.mktemp("jupyter")
    shutil.copytree(REPOSITORY / "notebooks", folder / "root")
    with jupyter_lab(folder) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """The browser of all tests."""
    with chromium() as running:
        yield running


@pytest.fixture
def lab(server, browser) -> Iterator[Lab]:
    """A new page of 1280 × 900, with cookies and storage of its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Lab(context.new_page(), server)
    context.close()
