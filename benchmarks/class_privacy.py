"""What one learner of the rehearsal must not reach of another: each tries, from its kernel and through the hub."""

import secrets
import time
from collections.abc import Iterable

import requests
import websocket

from .class_learner import Learner, Line

# Run in a learner's kernel; ``reached`` are the things that it should not have been able to do.
PRYING = """
import contextlib, os, pathlib, threading, time, zmq
reached = []
def attempt(what, act):
    with contextlib.suppress(OSError):
        if act() is not False:
            reached.append(what)
def listen(ports, secret, seconds):
    context, poller = zmq.Context(), zmq.Poller()
    for port in ports:
        socket = context.socket(zmq.SUB)
        socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{port}")
        poller.register(socket, zmq.POLLIN)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for socket, _ in poller.poll(1000 * left):
            if secret in b"".join(socket.recv_multipart()):
                reached.append("its kernel's outputs, by the port")
                end = 0
                break
    context.destroy(linger=0)
def ports_of(uid):
    lines = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
    return sorted({int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and int(line[7]) == uid})
"""
NEIGHBOUR = """
home, kernel, server = pathlib.Path({home!r}), {kernel}, {server}
attempt("its home folder", lambda: os.listdir(home))
attempt("its notes", lambda: (home / "notes.txt").read_text())
attempt("its connection file", lambda: pathlib.Path({connection!r}).read_text())
for pid in (kernel, server):
    attempt("the environment of its processes", lambda: open(f"/proc/{{pid}}/environ", "rb").read())
    attempt("the memory of its processes", lambda: open(f"/proc/{{pid}}/mem", "rb").close())
    attempt("a signal to its processes", lambda: os.kill(pid, 0))
ports = ports_of(os.stat(f"/proc/{{kernel}}").st_uid)
listener = threading.Thread(target=listen, args=(ports, {secret!r}.encode(), 5))
"""
MODEL_FILES = """
cache = pathlib.Path(os.environ["LMHEAD_COURSE_CACHE"])
for path in [cache, *cache.rglob("*")]:
    attempt(f"the model: {path.name} is its own", lambda: os.stat(path).st_uid == os.getuid())
    attempt(f"the model: {path.name} made writable", lambda: path.chmod(0o777))
    if path.is_dir():
        attempt(f"the model: a file in {path.name}", lambda: (path / "own.txt").write_text("x"))
    else:
        attempt(f"the model: {path.name} written to", lambda: path.open("r+b").close())
        attempt(f"the model: {path.name} deleted", lambda: path.unlink())
"""


def pry(learners: list[Learner]) -> Iterable[str]:
    """Have each learner try to reach its neighbour's files, processes and outputs, and to change the model."""
    marks = {learner.name: secrets.token_hex(8) for learner in learners}
    pairs = [(learner, learners[i - 1]) for i, learner in enumerate(learners)]
    for learner in learners:
        note = f"import pathlib; pathlib.Path('~/notes.txt').expanduser().write_text({marks[learner.name]!r})"
        learner.line.run(note)
    for learner, neighbour in pairs:
        learner.line.run(PRYING + MODEL_FILES)
        if neighbour is not learner:
            learner.line.run(_neighbour(neighbour, marks[neighbour.name]))
    if len(learners) > 1:
        _listen_to_each_other(learners, marks)
    for learner, neighbour in pairs:
        for what in sorted(set(learner.line.run("", "reached")[0])):
            yield f"{learner.name} reached of {neighbour.name}: {what}"


def _listen_to_each_other(learners: list[Learner], marks: dict[str, str]) -> None:
    for learner in learners:
        learner.line.run("listener.start()")
    for _ in range(5):  # whoever listens is connected after a moment only
        for learner in learners:
            learner.line.run(f"print({marks[learner.name]!r})")
        time.sleep(0.3)
    for learner in learners:
        learner.line.run("listener.join()")


def _neighbour(neighbour: Learner, secret: str) -> str:
    expression = "[os.path.expanduser('~'), __import__('ipykernel').get_connection_file()]"
    (home, connection), _ = neighbour.line.run("import os", expression)
    return NEIGHBOUR.format(
        home=home,
        connection=connection,
        kernel=neighbour.kernel_pid,
        server=neighbour.server_pid,
        secret=secret,
    )


def knock(learner: Learner, neighbour: Learner) -> Iterable[str]:
    """Have a learner try its token and its session on a neighbour's server; return where it got in."""
    site, token = learner.hub.url, {"Authorization": f"token {learner.token}"}
    for path in (
        "api/contents",
        "api/kernels",
        f"api/kernels/{neighbour.kernel_id}",
        "lab",
        "files/notes.txt",
    ):
        url = f"{site}/user/{neighbour.name}/{path}"
        if requests.get(url, headers=token, proxies={"http": ""}).ok:
            yield f"{learner.name} read {path} of {neighbour.name} with its token"
        if learner.web.get(url).ok:
            yield f"{learner.name} read {path} of {neighbour.name} with its session"
    if requests.get(f"{site}/hub/api/users/{neighbour.name}", headers=token, proxies={"http": ""}).ok:
        yield f"{learner.name} read what the hub knows of {neighbour.name}"
    try:
        Line(learner.kernel_url(neighbour), learner.token).close()
        yield f"{learner.name} was connected to the kernel of {neighbour.name}"
    except websocket.WebSocketBadStatusException:
        pass
