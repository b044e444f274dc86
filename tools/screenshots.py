"""Make the pictures of the README from the notebooks as they run now, in a real JupyterLab and a real Chromium.

    python tools/screenshots.py             all of them
    python tools/screenshots.py sampling    only that one

Look at what it made before you commit it. The pictures lie in docs/, in the light theme, one explorer each.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.lab import Lab, chromium, jupyter_lab  # noqa: E402

LARGEST = 300_000  # bytes of a picture
WIDTH, HEIGHT = 1280, 1400
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
SETTLED = 1500  # milliseconds in which a picture that was just moved comes to rest


@dataclass(frozen=True)
class Picture:
    """Which explorer of which notebook, counted from 0, and what is done to it before the picture is taken."""

    notebook: str
    explorer: int
    prepare: Callable[[object], None] = lambda explorer: None


def press(explorer, slider: int, key: str, times: int) -> None:
    """Press a key on one of an explorer's sliders, counted from 0."""
    for _ in range(times):
        explorer.locator(".noUi-handle").nth(slider).press(key)


def warmer_and_cut(explorer) -> None:
    """Raise the temperature to 1.2 and lower top-p to 0.85."""
    press(explorer, 0, "ArrowRight", 20)
    press(explorer, 2, "ArrowLeft", 15)


def undecided(explorer) -> None:
    """Go back in the tree to where the model had several ideas, and raise the temperature from 0 to 0.8."""
    explorer.get_by_text("␣a", exact=True).last.click()
    press(explorer, 0, "ArrowRight", 80)


def normed(explorer) -> None:
    """Put the final norm back, which the notebook's last cell had switched off."""
    explorer.get_by_role("checkbox").first.check()


PICTURES = {
    "sampling": Picture("00_start_here.ipynb", 0, warmer_and_cut),
    "generation": Picture("07_generation.ipynb", 0, undecided),
    "lens": Picture("08_reading_logits.ipynb", 0, normed),
}


def take(lab: Lab, name: str, picture: Picture) -> Path:
    """Run the notebook, prepare the explorer, and save it as docs/<name>.png."""
    lab.open(picture.notebook)
    lab.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    lab.run_all()
    explorer = lab.page.locator(f"{PANEL} .jp-OutputArea-output:has(.noUi-handle)").nth(picture.explorer)
    explorer.scroll_into_view_if_needed()
    picture.prepare(explorer)
    lab.page.wait_for_timeout(SETTLED)
    path = ROOT / "docs" / f"{name}.png"
    explorer.screenshot(path=path)
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(f"{path.name} has {size:,} bytes, at most {LARGEST:,}: show less")
    return path


def main(names: list[str]) -> None:
    """Take the pictures in `names`, or all."""
    wanted = {name: PICTURES[name] for name in names or PICTURES}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "notebooks", folder / "root")
        with jupyter_lab(folder) as server, chromium() as browser:
            for name, picture in wanted.items():
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                print(take(Lab(page, server), name, picture).relative_to(ROOT), flush=True)
                page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
