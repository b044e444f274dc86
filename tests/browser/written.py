"""Notebooks of a few cells, written for one browser test."""

from contextlib import contextmanager

import nbformat

from tests.browser.lab import Lab

SETUP = (
    "import torch\ntorch.set_num_threads(1)\nimport lmhead_course as course\nfrom lmhead_course import toy"
)


@contextmanager
def opened(server, browser, name, *cells):
    """Write a notebook of these cells, open it and run it; yields its page, to be closed at the end."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (SETUP, *cells)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, server.root / f"{name}.ipynb")
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    lab = Lab(context.new_page(), server)
    lab.open(f"{name}.ipynb")
    lab.run_all()
    yield lab
    context.close()
