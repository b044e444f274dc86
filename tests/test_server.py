"""The server extension: connections work as usual, and their small packets do not wait."""

import json
from pathlib import Path
from types import SimpleNamespace

from lmhead_course import server

CONFIG = Path(__file__).parents[1] / "jupyter" / "lmhead_course.json"


class Usual:
    def __init__(self, handler):
        self.websocket_handler = handler

    def connect(self):
        return "connected"


def test_a_connection_is_told_to_send_at_once_and_then_connects_as_usual():
    told = []
    app = SimpleNamespace(web_app=SimpleNamespace(settings={"kernel_websocket_connection_class": Usual}))
    server._load_jupyter_server_extension(app)
    connection = app.web_app.settings["kernel_websocket_connection_class"](
        SimpleNamespace(set_nodelay=told.append)
    )
    assert connection.connect() == "connected"
    assert told == [True]
    assert isinstance(connection, Usual)


def test_the_setting_that_jupyter_server_looks_up_still_has_that_name():
    from jupyter_server.services.kernels.websocket import KernelWebsocketHandler

    handler = SimpleNamespace(settings={server._CLASS: Usual})
    assert KernelWebsocketHandler.kernel_websocket_connection_class.fget(handler) is Usual


def test_the_installed_configuration_switches_on_this_module():
    extensions = json.loads(CONFIG.read_text(encoding="utf-8"))["ServerApp"]["jpserver_extensions"]
    assert extensions == {server.__name__: True}
    assert server._jupyter_server_extension_points() == [{"module": server.__name__}]
