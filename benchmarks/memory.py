"""The largest resident memory of every notebook's kernel: ``python -m benchmarks.memory [notebook …]``, on Linux.

Each notebook runs from top to bottom in a fresh kernel; the figure is what the kernel's process held at its worst
(VmHWM), shared pages of the model's file included. Exits with 1 above 1.5 GB, which is what a small hosted machine has.
"""

import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

LIMIT_GB = 1.5
NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def peak_of(path: Path) -> tuple[float, float]:
    """Return the peak of a notebook's kernel in GB (10⁹ bytes), and the seconds that the notebook took."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    start = time.perf_counter()
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        status = Path(f"/proc/{client.km.provisioner.pid}/status").read_text()
    kibibytes = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
    return kibibytes * 1024 / 1e9, time.perf_counter() - start


def main() -> int:
    """Print a line for each notebook; return 1 if one of them needs more than the limit."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb"))
    peaks = []
    for path in paths:
        peak, seconds = peak_of(path)
        peaks.append(peak)
        print(f"{path.stem:20} {peak:5.2f} GB  {seconds:4.0f} s", flush=True)
    return int(max(peaks) > LIMIT_GB)


if __name__ == "__main__":
    sys.exit(main())
