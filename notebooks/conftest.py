"""How pytest --nbval compares the notebooks in this folder; learners can ignore it."""

# A plot is not compared, only the numbers printed beside it: its JSON changes with plotly's version.
NOT_COMPARED = ("application/vnd.plotly.v1+json",)


def pytest_collection_modifyitems(items):
    """Add NOT_COMPARED to what nbval leaves out (random widget ids and bitmaps, by its own choice)."""
    for notebook in {item.parent for item in items if hasattr(item.parent, "skip_compare")}:
        notebook.skip_compare += NOT_COMPARED
