"""Sliders with a linked number box each, and the panel of sampling settings that explorers share."""

import math
from numbers import Integral, Real
from threading import RLock

import anywidget
import ipywidgets
import traitlets

from ..sampling import ORDERS, SamplingParams
from .words import shared_css, shared_js

_NAMES = tuple(name for name in SamplingParams.__dataclass_fields__ if name != "order")


class LinkedSlider(ipywidgets.HBox):
    """A number box with a name and a slider beside it, both showing ``value``: the trait to read, set and observe.

    The box is the exact and the accessible way in (ipywidgets names boxes, not slider handles), and it reaches values
    beyond the slider, which then rests at its end. A subclass says where the slider stands for a value.
    """

    value = traitlets.Any()  # a whole number where the box takes whole numbers, else a float

    def __init__(self, box: ipywidgets.DOMWidget, slider: ipywidgets.DOMWidget):
        self.box, self.slider = box, slider
        self._lock = RLock()  # the page and a running cell may move it at once, from two threads
        box.style.description_width = "8.6em"
        box.layout = ipywidgets.Layout(width="14.2em", flex="0 0 auto")
        slider.layout = ipywidgets.Layout(width="auto", min_width="90px", flex="1 1 90px")
        super().__init__([box, slider])
        self.add_class("lmhead-slider")
        self.value = box.value
        self.observe(self._show, "value")
        box.observe(self._typed, "value")
        slider.observe(self._slid, "value")

    def _position(self, value: float) -> float:
        """Return where the slider stands for a value."""
        raise NotImplementedError

    def _at(self, position: float) -> float:
        """Return the value for a position of the slider."""
        raise NotImplementedError

    def put(self, value: float) -> None:
        """Set a value that may be beyond the box's limits: settings made in code may be any that are valid."""
        self.box.min, self.box.max = min(self.box.min, value), max(self.box.max, value)
        self.value = value

    def _show(self, _change) -> None:
        with self._lock:
            self.box.value = self.value
            self.slider.value = self._position(self.value)

    def _typed(self, change) -> None:
        with self._lock:
            self.value = change.new

    def _slid(self, change) -> None:
        with self._lock:
            # Only a move away from where the value puts the slider is a learner's move: else a slider that rests at
            # its end for a larger value in the box would pull the value back.
            if change.new != self._position(self.value):
                self.value = self._at(change.new)

    @traitlets.validate("value")
    def _in_range(self, proposal) -> float:
        value, box = proposal.value, self.box
        whole = isinstance(box, ipywidgets.BoundedIntText)
        # A NaN fails the comparison too.
        if not isinstance(value, Integral if whole else Real) or not box.min <= value <= box.max:
            kind = "a whole number" if whole else "a number"
            raise traitlets.TraitError(
                f"{box.description} must be {kind} in [{box.min}, {box.max}], got {value!r}"
            )
        return int(value) if whole else float(value)


class LinearSlider(LinkedSlider):
    """A slider over evenly spaced values, ``ends`` included; the box goes on to the wider ``limits``, if given.

    The handle counts whole steps. One that counted in floats would be told 0.7 by the kernel, make it
    0.7000000000000001 on the page, and send that back as if a learner had moved it.
    """

    def __init__(
        self,
        name: str,
        value: float,
        ends: tuple[float, float],
        step: float,
        limits: tuple[float, float] | None = None,
    ):
        low, high = limits or ends
        self.span(ends, step)
        super().__init__(
            ipywidgets.BoundedFloatText(
                value, description=name, min=min(low, value), max=max(high, value), step=step
            ),
            ipywidgets.IntSlider(
                self._position(value), min=0, max=self._steps, readout=False, continuous_update=True
            ),
        )

    def span(self, ends: tuple[float, float], step: float) -> None:
        """Lay the slider's track over other values, as many as before; the value stays as it is."""
        self.ends, self.grid = ends, step
        self._steps = round((ends[1] - ends[0]) / step)
        if self.trait_has_value("children"):
            self._show(None)

    def _position(self, value: float) -> int:
        return round(min(max((value - self.ends[0]) / self.grid, 0), self._steps))

    def _at(self, position: int) -> float:
        return round(self.ends[0] + position * self.grid, 6)


class StepSlider(LinkedSlider):
    """A slider over a list of ``stops``, for values that want a finer scale in one place than in another.

    The box takes any value of its range; the slider then stands at the nearest stop. With ``off_at_end`` the value 0,
    which switches a setting off, stands after the largest stop.
    """

    def __init__(
        self, name: str, value: float, stops: list[float], *, limit: float, off_at_end: bool = False
    ):
        self.stops, self._off_at_end = stops, off_at_end
        whole = isinstance(stops[0], int)
        box = ipywidgets.BoundedIntText if whole else ipywidgets.BoundedFloatText
        last = len(stops) if off_at_end else len(stops) - 1
        super().__init__(
            box(value, description=name, min=0, max=max(limit, value), step=1 if whole else 0.01),
            ipywidgets.IntSlider(
                self._position(value), min=0, max=last, readout=False, continuous_update=True
            ),
        )

    def _position(self, value: float) -> int:
        if self._off_at_end and value == 0:
            return len(self.stops)
        return min(range(len(self.stops)), key=lambda index: abs(self.stops[index] - value))

    def _at(self, position: int) -> float:
        return self.stops[position] if position < len(self.stops) else 0

    @property
    def texts(self) -> list[str]:
        """What the positions stand for, in words."""
        return [f"{stop:g}" for stop in self.stops] + ["off"] * self._off_at_end


class SliderNames(anywidget.AnyWidget):
    """Gives the slider handles of a panel their names, their keys and their style, and tells when a typed number was
    beyond the ends of its box; nothing to see until then.

    ``stops`` are the texts of the positions of sliders that have stops, by the name of the box beside them; other
    sliders say the number in their box.
    """

    _esm = shared_js("controls.js")
    _css = shared_css()
    stops = traitlets.Dict().tag(sync=True)


class SamplingControls(ipywidgets.VBox):
    """A panel for every field of ``SamplingParams``; its trait ``params`` is what to read, set and observe.

    Each control is an attribute with the name of its field, and a trait ``value``: ``controls.temperature.value = 2``.
    ``d_vocab`` is where the top-k slider ends.
    """

    params = traitlets.Instance(SamplingParams)
    error = (
        traitlets.Unicode()
    )  # why the controls' values are no valid settings; ``params`` are then the last that were

    def __init__(self, d_vocab: int, params: SamplingParams = SamplingParams()):
        self._moving = False
        for name, control in _build(d_vocab, params).items():
            setattr(self, name, control)
            control.observe(self._moved, "value")
        penalties = [self.repetition_penalty, self.presence_penalty, self.frequency_penalty]
        folded = ipywidgets.Accordion([ipywidgets.VBox(penalties)], titles=("Penalties (1, 0, 0 = off)",))
        open_ones = [self.temperature, self.top_k, self.top_p, self.min_p, self.order]
        stops = {control.box.description: control.texts for control in (self.top_k, self.min_p)}
        super().__init__([*open_ones, folded, SliderNames(stops=stops)])
        self.add_class("lmhead-controls")
        self.params = params

    def _moved(self, _change) -> None:
        if self._moving:
            return
        try:
            self.params = self._read()
            self.error = ""
        except ValueError as error:  # an order of one's own may leave out a stage
            self.error = str(error)

    def _read(self) -> SamplingParams:
        values = {name: getattr(self, name).value for name in _NAMES}
        return SamplingParams(**values, order=self.order.value)

    @traitlets.observe("params")
    def _show(self, change) -> None:
        # Eight controls move, one new setting is told.
        self._moving = True
        try:
            for name in _NAMES:
                getattr(self, name).put(getattr(change.new, name))
            self._offer(change.new.order)
            self.order.value = change.new.order
        finally:
            self._moving = False
        # A control that another thread moved meanwhile was not listened to.
        if (now := self._read()) != change.new:
            self.params = now

    def _offer(self, order: str | tuple) -> None:
        if order not in [value for _, value in self.order.options]:
            self.order.options = _orders(order)


def _orders(order: str | tuple) -> list[tuple[str, str | tuple]]:
    """Return the choices of an order: the libraries', and one's own where it is none of these."""
    presets = [(name, name) for name in ORDERS]
    return presets if isinstance(order, str) else [*presets, ("as given", order)]


# Where a slider ends, its step, and what the number box beside it takes.
SCALES = {
    "temperature": ((0.0, 2.0), 0.01, (0.0, 1000.0)),
    "top_p": ((0.0, 1.0), 0.01, (0.0, 1.0)),
    "repetition_penalty": ((0.5, 2.0), 0.01, (0.001, 1000.0)),
    "presence_penalty": ((-2.0, 2.0), 0.05, (-100.0, 100.0)),
    "frequency_penalty": ((-2.0, 2.0), 0.05, (-100.0, 100.0)),
}
MOST_K = 10**9


def _build(d_vocab: int, params: SamplingParams) -> dict[str, ipywidgets.DOMWidget]:
    """Return one control for each field of the settings, by its name."""
    p = params

    def linear(name: str, field: str) -> LinearSlider:
        return LinearSlider(name, getattr(p, field), *SCALES[field])

    return {
        "temperature": linear("temperature", "temperature"),
        "top_k": StepSlider("top-k (0 = off)", p.top_k, k_stops(d_vocab), limit=MOST_K, off_at_end=True),
        "top_p": linear("top-p (1 = off)", "top_p"),
        "min_p": StepSlider("min-p (0 = off)", p.min_p, MIN_P_STOPS, limit=1.0),
        "repetition_penalty": linear("repetition", "repetition_penalty"),
        "presence_penalty": linear("presence", "presence_penalty"),
        "frequency_penalty": linear("frequency", "frequency_penalty"),
        "order": ipywidgets.Dropdown(
            options=_orders(p.order),
            value=p.order,
            description="order of stages",
            style={"description_width": "8.6em"},
            layout=ipywidgets.Layout(width="18em", max_width="100%"),
        ),
    }


MIN_P_STOPS = [0.0, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07]
MIN_P_STOPS += [0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def k_stops(d_vocab: int) -> list[int]:
    """Return values of k about evenly spaced on a log scale: 1 2 3 4 5 7 10 15 20 30 40 50 70 100 … d_vocab."""
    stops = {1, 2, 3, 4, 5, 7}
    for power in range(1, math.ceil(math.log10(d_vocab + 1))):
        stops |= {round(mantissa * 10**power) for mantissa in (1, 1.5, 2, 3, 4, 5, 7)}
    return [*sorted(stop for stop in stops if stop < d_vocab), d_vocab]
