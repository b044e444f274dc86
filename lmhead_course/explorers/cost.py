"""The cost explorer: what the head of one or two models costs, in parameters, bytes, FLOPs and time at best."""

from dataclasses import replace

import ipywidgets
import plotly.graph_objects as go

from ..catalog import Device, devices, models
from ..cost import BYTES
from ..escaping import as_html, visible
from ..figures import roofline_chart
from .controls import SliderNames, StepSlider
from .cost_view import FREE, CostParams, CostView, Side, view_of_cost
from .explorer import UpdatingExplorer
from .plot import Plot
from .words import Words

NOBODY = "nobody"
OWN_RATES = "own rates"
D_STOPS = [
    64,
    128,
    256,
    512,
    576,
    640,
    768,
    896,
    1024,
    1536,
    2048,
    2304,
    3584,
    4096,
    7168,
    8192,
    12288,
    18432,
]
V_STOPS = [
    1000,
    2000,
    4000,
    8000,
    16000,
    30522,
    32000,
    49152,
    50257,
    64000,
    100000,
    128000,
    151936,
    200000,
    262144,
]
LAYER_STOPS = [1, 2, 4, 6, 8, 12, 16, 18, 24, 30, 32, 48, 61, 80, 96, 118, 128]
BATCH_STOPS = [2**i for i in range(13)]
LENGTH_STOPS = [1, *(2**i for i in range(4, 18))]
GB_STOPS = [
    10.0,
    20.0,
    30.0,
    50.0,
    75.0,
    100.0,
    200.0,
    300.0,
    500.0,
    750.0,
    1000.0,
    1500.0,
    2039.0,
    3350.0,
    5000.0,
]
GB_STOPS += [8000.0, 10_000.0]
TFLOP_STOPS = [mantissa * 10.0**power for power in range(-2, 3) for mantissa in (1, 2, 3, 5, 7)]
TFLOP_STOPS += [989.0, 2000.0, 5000.0]
LABEL = {"description_width": "8.6em"}


class CostExplorer(UpdatingExplorer):
    """Two models side by side on one device; display it as the last line of a cell.

    ``a`` and ``b`` are panels with a picker (``.model``, names from the catalog, "your own sizes", for b also
    "nobody") and sliders ``.d_model``, ``.d_vocab``, ``.layers``; shared are ``batch``, ``length``, ``dtype``,
    ``device`` (a picker), ``bandwidth`` (GB/s) and ``arithmetic`` (TFLOP/s). Each has a trait ``value``. A model that
    is picked moves its sliders; a slider that is moved leaves the model's name and says "(changed)".

    ``machine`` adds a measured device to the picker and starts with it. ``view`` is what is shown, ``sentence`` the
    same in words, ``error`` what is wrong with the settings.
    """

    def __init__(self, a: str = "SmolLM2-135M", b: str = "Llama-3-8B", *, machine: Device | None = None):
        own = [replace(machine, name=visible(machine.name))] if machine else []
        self._devices = {device.name: device for device in own} | devices()
        self.a, self.b = SidePanel("A", a), SidePanel("B", b, may_be_empty=True)
        self._build()
        self.view = self.compute(self.params)
        self._picture()
        self._listen()
        self._refresh()

    @property
    def params(self) -> CostParams:
        """What the controls say now."""
        sides = tuple(side for side in (self.a.side, self.b.side) if side is not None)
        rates = Device(self.device.value, self.bandwidth.value * 1e9, self.arithmetic.value * 1e12)
        return CostParams(sides, self.batch.value, self.length.value, self.dtype.value, rates)

    def compute(self, params: CostParams) -> CostView:
        """Return everything that the explorer would show for these settings; changes nothing."""
        return view_of_cost(params)

    def _build(self) -> None:
        first = next(iter(self._devices.values()))
        self.batch = StepSlider("batch", 1, BATCH_STOPS, limit=10**6)
        self.length = StepSlider("length", 1024, LENGTH_STOPS, limit=10**7)
        self.dtype = _picker("numbers in", list(BYTES), "bfloat16")
        self.device = _picker("device", [*self._devices, OWN_RATES], first.name)
        self.bandwidth = StepSlider("GB/s", float(first.bandwidth / 1e9), GB_STOPS, limit=1e6)
        self.arithmetic = StepSlider("TFLOP/s", float(first.flops / 1e12), TFLOP_STOPS, limit=1e6)
        self.words, self.table = Words(), ipywidgets.HTML()
        self.table.add_class("jp-RenderedHTMLCommon")
        shared = [
            ipywidgets.VBox([self.batch, self.length, self.dtype]),
            ipywidgets.VBox([self.device, self.bandwidth, self.arithmetic]),
        ]
        stepped = [self.batch, self.length, self.bandwidth, self.arithmetic, *self.a.sliders, *self.b.sliders]
        for slider in stepped:
            slider.box.layout.width = "16.5em"  # room for 128256
        names = SliderNames(stops={slider.box.description: slider.texts for slider in stepped})
        controls = ipywidgets.VBox([_two(self.a, self.b), _two(*shared), names])
        controls.add_class("lmhead-controls")
        super().__init__([controls, self.words, self.table])
        self.layout = ipywidgets.Layout(max_width="1100px", overflow="visible")

    def _picture(self) -> None:
        self.plot = Plot(_roofline(self.view))
        box = ipywidgets.VBox([self.plot], layout=ipywidgets.Layout(min_width="0", overflow="hidden"))
        table = ipywidgets.VBox([self.table])
        table.layout = ipywidgets.Layout(flex="1 1 400px", min_width="0", overflow="visible")
        box.layout.flex = "1 1 400px"
        row = ipywidgets.HBox(
            [table, box], layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
        )
        self.children = [self.children[0], self.words, row]

    def _listen(self) -> None:
        for panel in (self.a, self.b):
            panel.on_change(self._refresh)
        self.device.observe(self._picked_device, "value")
        for slider in (self.bandwidth, self.arithmetic):
            slider.observe(self._own_rates, "value")
        for control in (self.batch, self.length, self.dtype):
            control.observe(self._refresh, "value")

    # Nothing may leave the callbacks below: what they print or raise lands in a log that no learner reads.

    def _picked_device(self, change) -> None:
        if change.new in self._devices:
            device = self._devices[change.new]
            with self._together():
                self.bandwidth.value = device.bandwidth / 1e9
                self.arithmetic.value = device.flops / 1e12
        else:
            self._refresh()

    def _own_rates(self, _change) -> None:
        if self._moving:
            return
        if self.device.value == OWN_RATES:
            self._refresh()
        else:
            self.device.value = OWN_RATES  # which refreshes

    def _show(self, view: CostView) -> None:
        self.view = view
        self.words.sentence = view.sentence
        self.table.value = _html(view)
        self.plot.show(_roofline(view))


class SidePanel(ipywidgets.VBox):
    """One model: a picker and three sliders; ``side`` is what they say, None for nobody."""

    def __init__(self, letter: str, name: str, *, may_be_empty: bool = False):
        options = [*models(), FREE, *([NOBODY] if may_be_empty else [])]
        if name not in options:
            raise ValueError(f"{letter.lower()} must be one of {', '.join(options)}, got {name!r}")
        start = Side.of(name if name in models() else "SmolLM2-135M")
        self.model = _picker(f"model {letter}", options, name)
        self.d_model = StepSlider(f"{letter}: d_model", start.d_model, D_STOPS, limit=10**6)
        self.d_vocab = StepSlider(f"{letter}: d_vocab", start.d_vocab, V_STOPS, limit=10**7)
        self.layers = StepSlider(f"{letter}: layers", start.layers, LAYER_STOPS, limit=10**4)
        self.sliders = (self.d_model, self.d_vocab, self.layers)
        self._told, self._moving = (lambda _change=None: None), False
        super().__init__([self.model, *self.sliders])
        self.model.observe(self._picked, "value")
        for slider in self.sliders:
            slider.observe(self._moved, "value")

    @property
    def side(self) -> Side | None:
        """The model as the controls say."""
        if self.model.value == NOBODY:
            return None
        return Side(self.model.value, *(slider.value for slider in self.sliders))

    def on_change(self, told) -> None:
        """Have ``told`` called once after each change."""
        self._told = told

    def _picked(self, change) -> None:
        if change.new in models():
            side = Side.of(change.new)
            self._moving = True
            try:
                self.d_model.value, self.d_vocab.value, self.layers.value = (
                    side.d_model,
                    side.d_vocab,
                    side.layers,
                )
            finally:
                self._moving = False
        self._told()

    def _moved(self, _change) -> None:
        if not self._moving:
            self._told()


def _html(view: CostView) -> str:
    # Two lines high, so that nothing moves when "(changed)" joins a name.
    head = "".join(f'<th scope="col" style="height:2.6em">{as_html(name)}</th>' for name in ("", *view.names))
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{as_html(row[0])}</th>'
        + "".join(f"<td>{as_html(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in view.rows
    )
    return f'<table style="width:100%"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _roofline(view: CostView) -> go.Figure:
    device = view.params.device
    return roofline_chart(device.bandwidth, device.flops, view.points, title=f"Roofline: {device.name}")


def _picker(name: str, options: list[str], value: str) -> ipywidgets.Dropdown:
    layout = ipywidgets.Layout(width="24em", max_width="100%")
    return ipywidgets.Dropdown(options=options, value=value, description=name, style=LABEL, layout=layout)


def _two(*boxes: ipywidgets.Widget) -> ipywidgets.HBox:
    """Return boxes in a row, or below each other where the page is too narrow."""
    for box in boxes:
        box.layout = ipywidgets.Layout(flex="1 1 340px", min_width="0", overflow="visible")
    return ipywidgets.HBox(list(boxes), layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible"))
