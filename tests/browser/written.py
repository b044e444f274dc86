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


def sentence(page, root=""):
    """Return what an explorer says in words; ``root`` is its selector where a page holds several."""
    return page.locator(f"{root} .sentence").inner_text()


def expect_sentence(page, part, root=""):
    """Wait until the explorer's words hold a part, and fail with what they are instead."""
    for _ in range(200):
        if part in sentence(page, root):
            return
        page.wait_for_timeout(100)
    assert part in sentence(page, root)
