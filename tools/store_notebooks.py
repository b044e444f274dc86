"""Run notebooks from top to bottom and store them with their outputs, in the form that the tests expect.

    python tools/store_notebooks.py                               all of them, in order
    python tools/store_notebooks.py notebooks/03_sampling.ipynb   only these

An error in a cell stops it and leaves that notebook's file as it was. Use it instead of saving from JupyterLab:
it starts a fresh kernel, so that every output comes from the code as it stands, and it drops what must not be
stored: widget state (about 5 MB a figure), times, machine names.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
CELL_TIMEOUT = 120  # seconds, as for pytest --nbval
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
OWN_MACHINE = "own-machine"  # tags a cell whose output is about the machine it ran on: it is not stored
WIDGET = "application/vnd.jupyter.widget-view+json"
PLACEHOLDER = "(interactive: run this cell)"
PLACEHOLDER_OF_MACHINE = "(about your machine: run this cell)"
KEPT_METADATA = ("tags", "jupyter", "slideshow")  # of a cell; "jupyter" holds what is folded away


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run every cell in a fresh python3 kernel started in `folder`; raise CellExecutionError at the first error."""
    notebook.metadata["kernelspec"] = KERNEL
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        allow_errors=False,
        coalesce_streams=True,
    )
    with tempfile.TemporaryDirectory() as nobody:  # a stored notebook shows nobody's progress
        return client.execute(env=os.environ | {"LMHEAD_COURSE_DATA": nobody})


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Drop from `notebook`, in place, all that depends on the machine or the moment; refuse what can't be stored."""
    notebook.metadata = NotebookNode(kernelspec=KERNEL, language_info={"name": "python"})
    for number, cell in enumerate(notebook.cells):
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k in KEPT_METADATA and v})
        if cell.cell_type == "code":
            tidy_outputs(cell, number)
    notebook.nbformat_minor = max(notebook.nbformat_minor, 5)  # the first with cell ids
    _, notebook = nbformat.validator.normalize(notebook)
    return notebook


def tidy_outputs(cell: NotebookNode, number: int) -> None:
    """Replace a stored widget, which no viewer could show without its state, and what is about one machine.

    A line that says what to do takes their place.
    """
    if OWN_MACHINE in cell.metadata.get("tags", []):
        cell.outputs = [nbformat.v4.new_output("display_data", data={"text/plain": PLACEHOLDER_OF_MACHINE})]
    for output in cell.outputs:
        if output.get("name") == "stderr":
            raise ValueError(f"cell {number} wrote to stderr, which would be compared: {output.text[:200]!r}")
        if WIDGET not in output.get("data", {}):
            continue
        if "nbval-ignore-output" not in cell.metadata.get("tags", []):
            raise ValueError(
                f"cell {number} shows a widget: tag it nbval-ignore-output, print in the next cell"
            )
        output.data = NotebookNode({"text/plain": PLACEHOLDER})
        output.metadata = NotebookNode()


def write(notebook: NotebookNode, path: Path) -> None:
    """Write `notebook` to `path` at once: a reader sees the old file or the new one, never half of it."""
    nbformat.validate(notebook)
    part = path.with_suffix(".part")
    try:
        part.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def store(path: Path) -> None:
    """Run one notebook and store it."""
    start = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    write(tidy(execute(notebook, path.parent)), path)
    print(f"{path.name}: {time.perf_counter() - start:.0f} s, {path.stat().st_size / 1e3:.0f} kB", flush=True)


def main(names: list[str]) -> None:
    """Store the notebooks in `names`, or all of the course; what a learner kept as NAME.mine-1.ipynb is their own."""
    course = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if ".mine-" not in path.name)
    paths = [Path(name).resolve() for name in names] or course
    for path in paths:
        store(path)


if __name__ == "__main__":
    main(sys.argv[1:])
