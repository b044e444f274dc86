"""A real JupyterLab and a real Chromium, for tests and measurements, cut off from everything but this machine."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

REPOSITORY = Path(__file__).parents[2]
SCREENSHOTS = REPOSITORY / "screenshots"
CHROMIUM = os.environ.get("LMHEAD_COURSE_CHROMIUM", "/usr/bin/chromium")
# Most of these keep Chromium itself from calling home; the page's own requests are watched by `Lab`.
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOCAL_SCHEMES = {"data", "blob", "about"}


@dataclass
class Server:
    """A running JupyterLab: where it is, its secret, and the folder it serves."""

    url: str
    token: str
    root: Path


@contextmanager
def jupyter_lab(folder: Path) -> Iterator[Server]:
    """Run JupyterLab over ``folder / "root"``, with settings of its own, until the block ends."""
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    _write_settings(folder / "settings")
    port, token = _free_port(), secrets.token_hex(16)
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            _command(root, port), stdout=log, stderr=log, env=_environment(folder, token), cwd=root
        )
    server = Server(f"http://127.0.0.1:{port}", token, root)
    try:
        _wait_for(server, process, folder / "server.log")
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)


def _command(root: Path, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        *(f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}"),
        # Its extension manager asks a package registry; the app object lets a test run commands by name.
        *("--LabApp.extension_manager=readonly", "--LabApp.expose_app_in_browser=True"),
    ]


def _environment(folder: Path, token: str) -> dict[str, str]:
    own = {
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": folder / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
        "IPYTHONDIR": folder / "ipython",
    }
    # As on a hub: a model that uses every core fights with the browser over them.
    return {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in own.items()}}


def _write_settings(folder: Path) -> None:
    settings = {
        "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "@jupyterlab/extensionmanager-extension/plugin": {"enabled": False},
        # A notebook that saves itself during a test opens dialogs about a changed file.
        "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    }
    for name, values in settings.items():
        path = folder / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(server: Server, process: subprocess.Popen, log: Path, timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.url}/api?token={server.token}", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not answer within {timeout:.0f} s:\n{log.read_text()[-3000:]}")


@dataclass
class Lab:
    """One browser page on JupyterLab, and what it did: console errors, and requests to other machines."""

    page: object
    server: Server
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.page.on("console", lambda message: message.type == "error" and self._note(message.text))
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.context.on("request", lambda request: self._watch(request.url))
        self.page.on("websocket", lambda socket: self._watch(socket.url))

    def _note(self, text: str) -> None:
        self.errors.append(text)

    def _watch(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in LOCAL_SCHEMES and parts.hostname != "127.0.0.1":
            self.strangers.append(url)

    def open(self, notebook: str) -> None:
        """Open a notebook of the served folder in a fresh workspace, its kernel ready."""
        self.page.goto(f"{self.server.url}/lab/tree/{notebook}?reset&token={self.server.token}")
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell", timeout=60_000)
        self._wait_for_kernel()

    def run_all(self, timeout: float = 180_000) -> None:
        """Run every cell and wait for the kernel to be idle again."""
        self.page.set_default_timeout(timeout)
        self.page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self._wait_for_kernel()
        self.page.set_default_timeout(30_000)

    def _wait_for_kernel(self) -> None:
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=120_000,
        )

    def theme(self, name: str) -> None:
        """Switch to "light" or "dark"."""
        title = f"JupyterLab {name.capitalize()}"
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", title
        )
        self.page.wait_for_selector(f"body[data-jp-theme-name='{title}']", state="attached")
        self.page.wait_for_timeout(500)

    def screenshot(self, name: str) -> None:
        """Save what the window shows to ``screenshots/<name>.png``."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@contextmanager
def chromium() -> Iterator[object]:
    """Run a headless Chromium with a new, empty user folder until the block ends."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()
