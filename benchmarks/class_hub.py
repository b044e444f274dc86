"""A JupyterHub on this machine for the rehearsal of a class, and accounts that exist only as long as it runs."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

HUB, PROXY = "jupyterhub>=6,<7", "configurable-http-proxy@5"
MODEL, HOMES = "model", "homes"
# How a server talks to its kernels. A port of the machine is open to all who are logged in on it: whoever listens at
# Jupyter's own ports reads what a kernel prints. And servers that start kernels at the same time may choose the same
# port, encrypted or not; one kernel then does not start. Files in a learner's own folder have neither fault.
TRANSPORTS = {
    "files": ["--KernelManager.transport=ipc"],
    "encrypted": ["--MappingKernelManager.transport_encryption=required"],
    "ports": [],
}
# The name of such a file may have 107 characters, and Jupyter's own place for it is deep in the home folder.
RUNTIME = """
homes = {homes!r}
c.Spawner.environment["JUPYTER_RUNTIME_DIR"] = lambda spawner: f"{{homes}}/{{spawner.user.name}}/.jr"
"""
VERSION = "'.'.join(map(str, sys.version_info[:2]))"


@dataclass(frozen=True)
class Hub:
    """A running hub: where it is, and the password of all its accounts."""

    url: str
    password: str


def python_of(folder: Path) -> Path:
    """Return the Python that hub and learners run."""
    return folder / "env" / "bin" / "python"


def proxy_of(folder: Path) -> Path:
    """Return the program that sends each learner's requests to that learner's server."""
    return folder / "proxy/node_modules/.bin/configurable-http-proxy"


def set_up(folder: Path, python: str) -> None:
    """Make what a rehearsal needs: an environment with JupyterHub, its proxy, and a copy of the model.

    The environment sees the course's packages, so that only the hub's own are installed. ``python`` must be of the
    same minor version as the one that runs this, and where learners can reach it. All can be read by everybody and
    changed by its owner alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    wanted, found = _ask(sys.executable, VERSION), _ask(python, VERSION)
    if wanted != found:
        raise SystemExit(f"{python} is Python {found}, the course's is {wanted}: name another with --python.")
    if not python_of(folder).exists():
        subprocess.run([python, "-m", "venv", folder / "env"], check=True)
        packages = sysconfig.get_path("purelib")
        own = Path(_ask(python_of(folder), "__import__('sysconfig').get_path('purelib')"))
        (own / "course.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    if not (folder / "env/bin/jupyterhub").exists():
        subprocess.run([python_of(folder), "-m", "pip", "install", "--quiet", HUB], check=True)
    if not proxy_of(folder).exists():
        subprocess.run(["npm", "install", "--silent", "--prefix", folder / "proxy", PROXY], check=True)
    model = folder / MODEL
    if not model.exists():
        # Here, so that this process stays small while it measures others.
        from lmhead_course.fetch import fetch

        source = fetch()
        shutil.copytree(source, model / source.name)
        for path in (model, *model.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)


def _ask(python: str | Path, expression: str) -> str:
    done = subprocess.run(
        [python, "-c", f"import sys; print({expression})"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@contextmanager
def accounts(folder: Path, names: list[str], real: bool) -> Iterator[None]:
    """Have an account with a home folder for each name until the block ends; without ``real``, only the folders.

    A real account is one of this machine's, made by ``useradd``, which cannot log in by itself. Whatever still runs
    under it at the end is ended, and account and home are removed.
    """
    homes = folder / HOMES
    homes.mkdir(exist_ok=True)
    made = []
    try:
        for name in names:
            home = homes / name
            if real:
                account = ["--no-create-home", "--user-group", "--shell", "/usr/sbin/nologin"]
                subprocess.run(["useradd", *account, "--home-dir", home, name], check=True)
                made.append(name)
            home.mkdir()
            home.chmod(0o700)  # useradd's own default lets every other account read
            if real:
                shutil.chown(home, name, name)
        yield
    finally:
        for name in made:
            _end_all_of(name)
            subprocess.run(["userdel", name], check=True)
        shutil.rmtree(homes)


def _end_all_of(name: str) -> None:
    from pwd import getpwnam  # not on Windows

    uid = getpwnam(name).pw_uid
    for _ in range(50):
        left = [path for path in Path("/proc").glob("[0-9]*") if _owner(path) == uid]
        if not left:
            return
        for path in left:
            os.kill(int(path.name), signal.SIGKILL)
        time.sleep(0.1)


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except FileNotFoundError:  # the process ended meanwhile
        return None


def settings_of(
    folder: Path, names: list[str], ports: list[int], password: str, real: bool, transport: str
) -> dict:
    """Return the hub's settings, those that a teacher's hub needs as well as those of a rehearsal."""
    share = Path(sys.prefix) / "share" / "jupyter"
    site, proxy, hub = ports
    return {
        # As docs/teaching.md has it for every hub: the shared model, one thread a kernel.
        "Spawner.environment": {
            "LMHEAD_COURSE_CACHE": str(folder / MODEL),
            "OMP_NUM_THREADS": "1",
            # The course's environment is another than the hub's: its settings and pages are there.
            "JUPYTER_PATH": str(share),
            "JUPYTER_CONFIG_PATH": str(Path(sys.prefix) / "etc" / "jupyter"),
            "JUPYTERLAB_DIR": str(share / "lab"),
        },
        "Spawner.cmd": [str(python_of(folder)), "-m", "jupyterhub.singleuser"],
        "Spawner.args": TRANSPORTS[transport],
        "Spawner.default_url": "/lab",
        # Sixteen servers that start at once on two cores take longer than the 30 seconds that a hub waits.
        "Spawner.http_timeout": 300,
        "Spawner.start_timeout": 300,
        "JupyterHub.spawner_class": "jupyterhub.spawner.LocalProcessSpawner" if real else "simple",
        "SimpleLocalProcessSpawner.home_dir_template": str(folder / HOMES / "{username}"),
        "JupyterHub.authenticator_class": "dummy",
        "DummyAuthenticator.password": password,
        "Authenticator.allowed_users": set(names),
        "JupyterHub.bind_url": f"http://127.0.0.1:{site}",
        "JupyterHub.hub_port": hub,
        "ConfigurableHTTPProxy.api_url": f"http://127.0.0.1:{proxy}",
        "ConfigurableHTTPProxy.command": [str(proxy_of(folder))],
    }


@contextmanager
def running_hub(folder: Path, names: list[str], *, real: bool, transport: str) -> Iterator[Hub]:
    """Run a hub for these accounts until the block ends; its servers and its proxy end with it."""
    ports, password = _free_ports(3), secrets.token_hex(16)
    url, log_path = f"http://127.0.0.1:{ports[0]}", folder / "hub.log"
    settings = settings_of(folder, names, ports, password, real, transport)
    with tempfile.TemporaryDirectory(prefix="hub-", dir=folder) as work, log_path.open("w") as log:
        config = "".join(f"c.{name} = {value!r}\n" for name, value in settings.items())
        (Path(work) / "config.py").write_text(config + RUNTIME.format(homes=str(folder / HOMES)))
        process = subprocess.Popen(
            [python_of(folder), "-m", "jupyterhub", "-f", "config.py"], stdout=log, stderr=log, cwd=work
        )
        try:
            _wait_for(f"{url}/hub/health", process, log_path)
            yield Hub(url, password)
        finally:
            process.terminate()
            process.wait(timeout=120)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _wait_for(url: str, process: subprocess.Popen, log: Path, timeout: float = 90) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end and process.poll() is None:
        try:
            if requests.get(url, timeout=5, proxies={"http": ""}).ok:
                return
        except requests.RequestException:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the hub did not answer within {timeout:.0f} s:\n{log.read_text()[-3000:]}")
