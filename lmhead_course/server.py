"""What makes sliders follow the hand: a Jupyter server extension that has each message sent at once.

Small TCP packets wait for one another (Nagle's algorithm), and a browser that has nothing to say confirms one only
after 40 ms. A kernel's answer to a slider begins with a small packet, "I am busy", so the rows behind it always wait:
68 ms from key press to paint became 38 without (``python -m benchmarks.browser_latency``).

``jupyter/lmhead_course.json`` is installed with the package and switches this on for Jupyter servers of the same
environment. Everything works without it, 30 ms later.
"""

_CLASS = "kernel_websocket_connection_class"


def _jupyter_server_extension_points() -> list[dict]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server) -> None:
    settings = server.web_app.settings
    settings[_CLASS] = without_delay(settings[_CLASS])


def without_delay(usual: type) -> type:
    """Return a class of connections between page and kernel like the usual one, which sends small packets at once."""

    class PromptConnection(usual):
        def connect(self):
            self.websocket_handler.set_nodelay(True)
            return super().connect()

    return PromptConnection
