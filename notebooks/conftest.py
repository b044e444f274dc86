"""How pytest --nbval runs and compares the notebooks in this folder; learners can ignore it."""

import tempfile

import pytest

# A plot is not compared, only the numbers printed beside it: its JSON changes with plotly's version.
NOT_COMPARED = ("application/vnd.plotly.v1+json",)

# What restore_notebook kept of a learner's own.
collect_ignore_glob = ["*.mine-*.ipynb"]

begun = []  # notebooks whose kernel has been started


def pytest_collection_modifyitems(items):
    """Add NOT_COMPARED to what nbval leaves out (random widget ids and bitmaps, by its own choice)."""
    for notebook in {item.parent for item in items if hasattr(item.parent, "skip_compare")}:
        notebook.skip_compare += NOT_COMPARED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Start each notebook's kernel with an empty folder for its progress: never the user's, and the same for all."""
    if item.parent in begun:
        return (yield)
    begun.append(item.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMHEAD_COURSE_DATA", item.config.progress.name + f"/{len(begun)}")
        return (yield)


def pytest_configure(config):
    """Make the folder that holds those of the notebooks."""
    config.progress = tempfile.TemporaryDirectory(prefix="lmhead-course-notebooks-")


def pytest_unconfigure(config):
    """Remove it."""
    config.progress.cleanup()
