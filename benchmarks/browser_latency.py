"""From a key press on the temperature slider to the repainted page, in a real JupyterLab and a headless Chromium.

Run ``python -m benchmarks.browser_latency [presses]``; it exits with 1 if a press was not repainted, or if the median
is above 50 ms. Nothing is drawn by hand: the press is the browser's own event, and a press counts as repainted when
the frame that holds new rows has been handed to the screen.
"""

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.browser.lab import Lab, chromium, jupyter_lab

LIMIT_MS = 50
D_VOCAB = 49_152
NOTEBOOK = "latency.ipynb"
BURST_MS = 33

# The kernel writes down how long it takes from receiving the slider's message to having sent the new rows.
CELL = f"""
import pathlib, time, torch
from lmhead_course import SamplingExplorer
torch.set_num_threads(1)
explorer = SamplingExplorer(logits=3 * torch.randn({D_VOCAB}, generator=torch.Generator().manual_seed(0)))
slider, log = explorer.temperature.slider, pathlib.Path("python_ms.txt").open("a", buffering=1)
set_state = slider.set_state
def timed(state):
    start = time.perf_counter()
    set_state(state)
    print(1000 * (time.perf_counter() - start), file=log)
slider.set_state = timed
explorer
"""

# A change of the rows belongs to the latest press before it. The message that is posted in the animation frame is
# handled after the frame has been painted.
WATCH = """
(rows) => {
  window.latencies = [];
  window.repaints = 0;
  let pressed = null;
  document.addEventListener("keydown", (event) => { pressed = event.timeStamp; }, true);
  new MutationObserver(() => {
    const start = pressed;
    pressed = null;
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        window.repaints += 1;
        if (start !== null) window.latencies.push(performance.now() - start);
      };
      channel.port2.postMessage(null);
    });
  }).observe(rows, { subtree: true, childList: true, characterData: true, attributes: true });
}
"""


def write_notebook(folder: Path) -> None:
    """Write the notebook that is measured, in the plain JSON of its format."""
    cell = {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": CELL.strip(),
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    folder.mkdir(parents=True)
    (folder / NOTEBOOK).write_text(json.dumps(book), encoding="utf-8")


def press_one_by_one(page, presses: int) -> list[float]:
    """Press a key and wait for its repaint, again and again; a press without one within two seconds is left out."""
    for turn in range(presses):
        before = page.evaluate("window.latencies.length")
        # There and back again: no press repeats a temperature that the last few have had.
        page.keyboard.press("ArrowLeft" if turn < presses / 2 else "ArrowRight")
        for _ in range(200):
            if page.evaluate("window.latencies.length") > before:
                break
            page.wait_for_timeout(10)
        page.wait_for_timeout(40)
    return page.evaluate("window.latencies")


def press_in_a_burst(page, presses: int) -> int:
    """Hold the pace of a held key, wait for nothing, and return how often the page was repainted meanwhile."""
    before = page.evaluate("window.repaints")
    for _ in range(presses):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(BURST_MS)
    page.wait_for_timeout(500)
    return page.evaluate("window.repaints") - before


def measure(presses: int) -> dict:
    """Return the milliseconds of every press in the page and in Python, and the repaints of a burst."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_notebook(folder / "root")
        with jupyter_lab(folder) as server, chromium() as browser:
            lab = Lab(browser.new_page(viewport={"width": 1280, "height": 900}), server)
            lab.open(NOTEBOOK)
            lab.run_all()
            lab.page.locator(".lmhead-tokens tbody tr").nth(29).wait_for()
            lab.page.locator(".lmhead-tokens tbody").evaluate(WATCH)
            lab.page.get_by_role("slider", name="temperature").focus()
            press_one_by_one(lab.page, 5)
            lab.page.evaluate("window.latencies = []")
            log = folder / "root" / "python_ms.txt"
            warm = len(log.read_text().split())
            in_page = press_one_by_one(lab.page, presses)
            in_python = [float(line) for line in log.read_text().split()[warm:]]
            burst = press_in_a_burst(lab.page, presses)
    return {"page": in_page, "python": in_python, "burst": burst}


def main(presses: int = 50) -> int:
    """Print the measurement; return the exit status."""
    found = measure(presses)
    page, python = statistics.median(found["page"]), statistics.median(found["python"])
    p95 = statistics.quantiles(found["page"], n=20)[-1]
    load = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    print(f"{presses} presses on the temperature slider, {D_VOCAB:,} tokens, 30 rows{load}")
    print(f"repainted           {len(found['page'])} of {presses}")
    print(f"press to paint      median {page:.1f} ms, 95th percentile {p95:.1f} ms")
    print(f"  in Python         median {python:.1f} ms, {python / page:.0%}")
    print(f"  outside Python    {1 - python / page:.0%} (messages, browser, waiting for the next frame)")
    print(f"a press every {BURST_MS} ms  {found['burst']} repaints of {presses}")
    return int(len(found["page"]) < presses or page > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
