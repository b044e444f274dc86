"""One learner of the rehearsal: logs in, starts a server and a kernel, opens the explorer, moves its sliders.

Everything goes the way that a page goes: the hub's login form, its REST interface, a websocket to the kernel with the
binary protocol, widgets' messages on a subshell, as JupyterLab sends them.
"""

import json
import random
import time
import uuid
from ast import literal_eval
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

import requests
import websocket
from jupyter_server.services.kernels.connection.base import (
    deserialize_msg_from_ws_v1,
    serialize_msg_to_ws_v1,
)

from .class_hub import Hub

PATIENCE = 300  # seconds for whatever is waited for
PROTOCOL = "v1.kernel.websocket.jupyter.org"
PROMPTS = (
    "The capital of France is",
    "To be or not to be, that is the",
    "Once upon a time there was a",
    "Water boils at a temperature of",
    "The best way to learn a language is",
    "My favourite food is",
    "In the middle of the night she",
    "Two plus two is",
    "The sun rises in the",
    "He opened the door and saw",
    "A triangle has three",
    "The largest planet is",
    "For breakfast I had",
    "The opposite of hot is",
    "The first president of the United States was",
    "They lived happily",
)
# The part of each slider's track on which a learner moves: at the rest of it the rows hardly change.
TRACKS = {"temperature": (0.15, 1.0), "top-k": (0.2, 1.0), "top-p": (0.6, 1.0), "min-p": (0.0, 0.3)}
CELL = """
import torch
torch.set_num_threads(1)
from lmhead_course import SamplingExplorer, SamplingParams, load_model
explorer = SamplingExplorer(load_model(), prompt={prompt!r}, params=SamplingParams(temperature={temperature}))
explorer
"""


@dataclass(frozen=True)
class Move:
    """After ``at`` seconds the hand has a slider at a ``fraction`` of its track."""

    at: float
    slider: str
    fraction: float


def moves_of(seconds: float, seed: int) -> list[Move]:
    """Return what a hand does: drags of a second with 5 to 10 moves each, and one or two seconds between them."""
    chance = random.Random(seed)
    moves, start = [], chance.uniform(0, 2)
    while start + 1 <= seconds:
        slider = chance.choice(list(TRACKS))
        a, b = (chance.uniform(*TRACKS[slider]) for _ in range(2))
        count = chance.randint(5, 10)
        moves += [Move(start + i / count, slider, a + (b - a) * i / count) for i in range(1, count + 1)]
        start += 1 + chance.uniform(1, 2)
    return moves


@dataclass(frozen=True)
class Answer:
    """What came of a move: the settings it stood for, the rows then shown, and how long after the hand they came."""

    positions: dict[str, int]
    rows: list[dict]
    seconds: float
    idle_seconds: float
    error: str = ""


class Line:
    """The page's connection to its kernel."""

    def __init__(self, url: str, token: str):
        self._session = uuid.uuid4().hex
        self._socket = websocket.create_connection(
            f"{url}?session_id={self._session}",
            header=[f"Authorization: token {token}"],
            subprotocols=[PROTOCOL],
            timeout=PATIENCE,
        )

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, kind: str, content: dict, channel: str = "shell", subshell: str | None = None) -> str:
        """Send a message to the kernel; return its id."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._session,
            "username": "",
            "date": datetime.now(UTC).isoformat(),
            "version": "5.4",
            **({"subshell_id": subshell} if subshell else {}),
        }
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        self._socket.send_binary(
            serialize_msg_to_ws_v1(message, channel, lambda part: json.dumps(part).encode())
        )
        return header["msg_id"]

    def receive(self, seconds: float = PATIENCE) -> dict | None:
        """Return the next message, or None if none comes in time."""
        self._socket.settimeout(max(seconds, 0.0005))
        try:
            data = self._socket.recv()
        except (websocket.WebSocketTimeoutException, BlockingIOError):
            return None
        _, parts = deserialize_msg_from_ws_v1(data)
        header, parent, _, content = (json.loads(part) for part in parts[:4])
        return {"kind": header["msg_type"], "parent": parent.get("msg_id"), "content": content}

    def ask(self, kind: str, content: dict, channel: str = "shell") -> tuple[dict, list[dict]]:
        """Send a request; return the content of its reply, and all that came until the kernel was idle again."""
        asked, reply, heard, idle = self.send(kind, content, channel), None, [], False
        end = time.monotonic() + PATIENCE
        while reply is None or not idle:
            message = self.receive(end - time.monotonic())
            if message is None:
                raise TimeoutError(f"no answer to {kind} within {PATIENCE} s")
            heard.append(message)
            if message["parent"] == asked:
                reply = message["content"] if message["kind"].endswith("_reply") else reply
                idle = idle or is_idle(message)
        return reply, heard

    def run(self, code: str, expression: str = "None") -> tuple[object, list[dict]]:
        """Run a cell; return the value of a Python expression after it, and all messages. Raises what went wrong."""
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        asked = {"value": f"__import__('json').dumps({expression})"}
        reply, heard = self.ask(
            "execute_request", {**content, "user_expressions": asked, "stop_on_error": True}
        )
        value = reply.get("user_expressions", {}).get("value", reply)
        if reply["status"] != "ok" or value["status"] != "ok":
            raise RuntimeError(f"{value.get('ename')}: {value.get('evalue')}")
        return json.loads(literal_eval(value["data"]["text/plain"])), heard


def is_idle(message: dict) -> bool:
    """Tell whether a message says that the kernel has done what it was asked."""
    return message["kind"] == "status" and message["content"]["execution_state"] == "idle"


class Page:
    """What a page knows of the kernel's widgets: their state, from the messages that bring it."""

    def __init__(self):
        self.models: dict[str, dict] = {}

    def hear(self, message: dict) -> dict:
        """Take in a message; return the state that it brought, with the id of its model."""
        content = message["content"]
        if message["kind"] == "comm_open":
            self.models[content["comm_id"]] = dict(content["data"]["state"])
        elif message["kind"] == "comm_msg" and content["data"].get("method") == "update":
            state = content["data"]["state"]
            self.models.setdefault(content["comm_id"], {}).update(state)
            return {content["comm_id"]: state}
        return {}

    @property
    def table(self) -> str:
        """The id of the table of tokens."""
        return next(model for model, state in self.models.items() if {"rows", "readouts"} <= state.keys())

    def slider(self, name: str) -> str:
        """Return the id of the slider that stands beside the number box with this name, or one that starts with it."""
        for state in self.models.values():
            parts = [part.removeprefix("IPY_MODEL_") for part in state.get("children", ())]
            boxes = [part for part in parts if self._names(part).startswith(name)]
            if boxes and "IntSliderModel" in (
                kinds := {self.models[part]["_model_name"]: part for part in parts}
            ):
                return kinds["IntSliderModel"]
        raise LookupError(f"no slider beside a box called {name}")

    def _names(self, model: str) -> str:
        return str(self.models.get(model, {}).get("description", ""))


class Hand:
    """A hand on the sliders of a page, which like ipywidgets has one message on its way at a time.

    A move that comes while the kernel is busy waits, and a later one takes its place. Times count from when the hand
    moved, so that the waiting is in them.
    """

    def __init__(self, line: Line, page: Page, subshell: str):
        self._line, self._page, self._subshell = line, page, subshell
        self._sliders = {name: page.slider(name) for name in TRACKS}
        self._table = page.table
        self.answers: list[Answer] = []
        self.overtaken = 0

    def follow(self, moves: list[Move]) -> None:
        """Make the moves at their times, and wait for the last answer."""
        start, queue, waiting, under_way = time.perf_counter(), deque(moves), None, None
        while queue or waiting or under_way:
            while queue and start + queue[0].at <= time.perf_counter():
                self.overtaken += waiting is not None
                waiting = queue.popleft()
            if waiting and not under_way:
                under_way, waiting = self._send(waiting, start), None
                continue
            until = start + queue[0].at if queue else time.perf_counter() + 30
            message = self._line.receive(until - time.perf_counter())
            if message is None and not queue:
                raise TimeoutError("a move of a slider was not answered within 30 s")
            if message and self._hear(message, under_way):
                under_way = None

    def _send(self, move: Move, start: float) -> dict | None:
        model = self._sliders[move.slider]
        state = self._page.models[model]
        position = round(move.fraction * state["max"])
        if position == state["value"]:
            return None  # the handle stands there already, and a page says nothing
        state["value"] = position
        data = {"method": "update", "state": {"value": position}, "buffer_paths": []}
        sent = self._line.send("comm_msg", {"comm_id": model, "data": data}, subshell=self._subshell)
        return {"id": sent, "moved": start + move.at, "shown": None}

    def _hear(self, message: dict, under_way: dict | None) -> bool:
        """Take in a message; tell whether it was the last one of the answer."""
        changed = self._page.hear(message)
        if not under_way or message["parent"] != under_way["id"]:
            return False
        now = time.perf_counter() - under_way["moved"]
        if "rows" in changed.get(self._table, {}):
            under_way["shown"] = now
        if not is_idle(message):
            return False
        table = self._page.models[self._table]
        positions = {name: self._page.models[model]["value"] for name, model in self._sliders.items()}
        # Rows that stay as they are are not sent again; that they are right is known when the kernel is idle.
        shown = now if under_way["shown"] is None else under_way["shown"]
        self.answers.append(Answer(positions, table["rows"], shown, now, table["error"]))
        return True


@dataclass
class Learner:
    """A learner with an account on the hub, and what became of the lesson."""

    name: str
    number: int
    hub: Hub
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    kernel_pid: int = 0
    server_pid: int = 0
    hand: Hand | None = None

    @property
    def prompt(self) -> str:
        """The text that this learner's explorer begins with."""
        return PROMPTS[self.number % len(PROMPTS)]

    @property
    def temperature(self) -> float:
        """The temperature that it begins with."""
        return 0.5 + 0.05 * self.number

    def arrive(self) -> None:
        """Log in, start a server and a kernel, and open the explorer; note how long after the start each was there."""
        start = time.perf_counter()
        for step in (self.log_in, self.start_server, self.start_kernel, self.open_explorer):
            step()
            self.seconds[step.__name__] = time.perf_counter() - start

    def log_in(self) -> None:
        """Fill in the hub's form, and ask for a token."""
        self.web = requests.Session()
        self.web.trust_env = False  # all is on this machine; a proxy of the environment is for elsewhere
        self.web.get(f"{self.hub.url}/hub/login").raise_for_status()
        form = {"username": self.name, "password": self.hub.password, "_xsrf": self._xsrf()}
        answer = self.web.post(f"{self.hub.url}/hub/login", data=form, allow_redirects=False)
        if answer.status_code != 302:
            raise RuntimeError(f"the login form answered {answer.status_code}")
        self.token = self._hub_api("post", "/tokens").json()["token"]

    def _xsrf(self) -> str:
        return self.web.cookies.get("_xsrf", path="/hub/")

    def _hub_api(self, method: str, path: str) -> requests.Response:
        url = f"{self.hub.url}/hub/api/users/{self.name}{path}"
        answer = self.web.request(method, url, params={"_xsrf": self._xsrf()})
        answer.raise_for_status()
        return answer

    def start_server(self) -> None:
        """Have the hub start this learner's server, and wait until it is ready."""
        self._hub_api("post", "/server")
        end = time.monotonic() + PATIENCE
        while not (server := self._hub_api("get", "").json()["servers"].get("", {})).get("ready"):
            if time.monotonic() > end or not server.get("pending"):
                raise RuntimeError(f"the server of {self.name} did not start: {server}")
            time.sleep(0.5)

    def start_kernel(self) -> None:
        """Start a kernel, connect to it, and have a subshell for the messages of widgets, as JupyterLab has."""
        answer = requests.post(
            f"{self.hub.url}/user/{self.name}/api/kernels",
            json={"name": "python3"},
            headers={"Authorization": f"token {self.token}"},
            proxies={"http": ""},
        )
        answer.raise_for_status()
        self.kernel_id = answer.json()["id"]
        self.line = Line(self.kernel_url(self), self.token)
        pids, _ = self.line.run("import os", "[os.getpid(), os.getppid()]")
        self.kernel_pid, self.server_pid = pids
        self.subshell = self.line.ask("create_subshell_request", {}, "control")[0]["subshell_id"]

    def kernel_url(self, other: "Learner") -> str:
        """Return the address of another learner's kernel."""
        site = self.hub.url.replace("http", "ws", 1)
        return f"{site}/user/{other.name}/api/kernels/{other.kernel_id}/channels"

    def open_explorer(self) -> None:
        """Run the cell that shows the explorer."""
        page = Page()
        _, heard = self.line.run(CELL.format(prompt=self.prompt, temperature=self.temperature))
        for message in heard:
            page.hear(message)
            if message["kind"] == "stream":
                self.problems.append(f"the cell printed {message['content']['text']!r}")
        self.hand = Hand(self.line, page, self.subshell)

    def move(self, seconds: float) -> None:
        """Move the sliders for so long."""
        self.hand.follow(moves_of(seconds, seed=self.number))
