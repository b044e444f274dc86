"""Every picture of the course: arrays in, a ``plotly.graph_objects.Figure`` out. One style, no widgets, no models.

Colours are those of Okabe and Ito (2008), told apart also by colour-blind eyes; what matters is marked by text, dash
or pattern as well. The ground is white and the text dark on every page: plotly does not follow JupyterLab's light and
dark themes, and no grey has a contrast of 4.5 on both (explorers, which can, follow the theme). Margins are set, so
that nothing jumps when numbers change.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from .escaping import as_plotly, visible

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY = "#56B4E9", "#CC79A7", "#767676"
GROUND, TEXT = "#FFFFFF", "#333333"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, GREY)
PATTERNS = ("", "/", ".", "x", "-", "|", "+")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star")

_AXIS = {
    "gridcolor": "rgba(128,128,128,0.25)",
    "zerolinecolor": "rgba(128,128,128,0.5)",
    "linecolor": "rgba(128,128,128,0.5)",
    "automargin": False,
    "title": {"standoff": 8},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"color": TEXT, "size": 13, "family": "system-ui, sans-serif"},
        "title": {"font": {"size": 15}, "x": 0, "xref": "paper", "y": 0.97, "yanchor": "top"},
        "paper_bgcolor": GROUND,
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": COLOURS,
        "margin": {"l": 70, "r": 20, "t": 70, "b": 55},
        "legend": {
            "bgcolor": "rgba(0,0,0,0)",
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
        },
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        # plotly's buttons would lie over the title.
        "modebar": {"remove": ["zoom", "pan", "zoomin", "zoomout", "autoscale", "resetscale", "toimage"]},
        "hoverlabel": {"font": {"family": "system-ui, sans-serif"}},
    }
)


def _array(values: ArrayLike) -> np.ndarray:
    """float64 numbers of anything array-like, a tensor on a GPU included."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values, dtype=float)


def _styles(count: int) -> list[tuple[str, str, str]]:
    """Return a colour, dash and symbol for each of so many series, all different; raise ``ValueError`` beyond them."""
    if count > len(COLOURS):
        raise ValueError(f"series must be at most {len(COLOURS)}, as many as can be told apart, got {count}")
    return list(zip(COLOURS, DASHES, SYMBOLS, strict=True))[:count]


def styled(figure: go.Figure, title: str, x_title: str, y_title: str, height: int = 360) -> go.Figure:
    """Give a figure the course's style, a title and the titles of its axes (with units); returns the same figure."""
    figure.update_layout(template=TEMPLATE, title_text=as_plotly(title), height=height)
    figure.update_xaxes(title_text=as_plotly(x_title))
    figure.update_yaxes(title_text=as_plotly(y_title))
    return figure


def probability_bars(
    labels: Sequence[str],
    series: Mapping[str, ArrayLike],
    *,
    title: str,
    dropped: Sequence[bool] | None = None,
    x_title: str = "probability (%)",
) -> go.Figure:
    """Return horizontal bars of probabilities in percent, the first label on top, a colour and a hatching a series.

    ``series`` maps a name to probabilities (len(labels),) between 0 and 1. Where ``dropped`` is True the label is
    marked with ✕, so that a dropped token shows without its colour too.
    """
    marks = dropped if dropped is not None else [False] * len(labels)
    names = [f"{'✕ ' if mark else ''}{visible(label)}" for mark, label in zip(marks, labels, strict=True)]
    figure = go.Figure()
    styles = zip(_styles(len(series)), PATTERNS, strict=False)
    for ((colour, _, _), pattern), (name, values) in zip(styles, series.items(), strict=False):
        percent = 100 * _array(values)
        figure.add_bar(
            orientation="h",
            name=as_plotly(name),
            # Positions, not names: two tokens may look alike, and plotly would put them on one row.
            y=list(range(len(names))),
            x=percent,
            marker={"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay"}},
            text=[f"{value:.2f}" for value in percent],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    rows = len(labels) * len(series)
    styled(figure, title, x_title, "", height=140 + max(18 * rows, 28 * len(labels)))
    longest = max(map(len, names), default=0)
    figure.update_layout(
        margin_l=min(260, 40 + 9 * longest), margin_r=60, bargap=0.25, showlegend=len(series) > 1
    )
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=list(map(as_plotly, names)),
        autorange="reversed",
        showgrid=False,
    )
    figure.update_xaxes(rangemode="tozero")
    return figure


def line_chart(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    *,
    title: str,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    reference: Mapping[str, float] | None = None,
    markers: bool = False,
) -> go.Figure:
    """Return lines over a common x, told apart by colour and dash; ``reference`` draws named horizontal lines."""
    figure = go.Figure()
    styles = _styles(len(series))
    for (colour, dash, symbol), (name, values) in zip(styles, series.items(), strict=True):
        figure.add_scatter(
            x=_array(x),
            y=_array(values),
            name=as_plotly(name),
            mode="lines+markers" if markers else "lines",
            line={"color": colour, "dash": dash, "width": 2.5},
            marker={"symbol": symbol, "size": 8},
        )
    styled(figure, title, x_title, y_title)
    figure.update_xaxes(_scale([_array(x)], log_x))
    figure.update_yaxes(_scale(list(map(_array, series.values())), log_y))
    for name, height in (reference or {}).items():
        figure.add_hline(height, line={"color": GREY, "dash": "dot"}, annotation_text=as_plotly(name))
    figure.update_layout(showlegend=len(series) > 1)
    return figure


def _scale(values: Sequence[np.ndarray], log: bool) -> dict[str, Any]:
    """Return an axis's type. A logarithmic one over one to three powers of ten is marked at 1, 2, 5, 10, 20, …, written
    in full, and over more at the powers: left alone, plotly writes the "2" of 20 and that of 200 alike."""
    if not log:
        return {"type": "linear"}
    found = np.concatenate(values)
    found = found[found > 0]
    decades = np.log10(found.max() / found.min()) if len(found) else 0
    if decades > 3:
        return {"type": "log", "dtick": max(1, int(decades) // 8)}
    return {"type": "log", **({"dtick": "D2", "tickformat": ",~f"} if decades >= 0.9 else {})}


def draws_chart(labels: Sequence[str], expected: ArrayLike, observed: ArrayLike, draws: int) -> go.Figure:
    """Return the share of each token among ``draws`` draws as bars, with its probability ± two standard errors.

    ``expected`` and ``observed`` are shares (len(labels),) between 0 and 1. A correct sampler's bar ends inside the
    error bar about 19 times in 20.
    """
    probability = _array(expected)
    deviation = 200 * np.sqrt(probability * (1 - probability) / max(draws, 1))
    places = list(range(len(labels)))
    figure = go.Figure()
    figure.add_bar(x=places, y=100 * _array(observed), name="drawn", marker_color=SKY)
    figure.add_scatter(
        x=places,
        y=100 * probability,
        name="probability ± 2 standard errors",
        mode="markers",
        marker={"symbol": "line-ew-open", "size": 16, "color": VERMILION, "line": {"width": 3}},
        error_y={"type": "data", "array": deviation, "color": VERMILION},
    )
    styled(figure, f"{draws:,} draws", "token", "share (%)")
    figure.update_xaxes(tickvals=places, ticktext=[as_plotly(label) for label in labels])
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(margin_b=80)
    return figure


def labelled_points(
    x: ArrayLike,
    y: ArrayLike,
    names: Sequence[str],
    *,
    title: str,
    x_title: str,
    y_title: str,
    log_y: bool = False,
) -> go.Figure:
    """Return one numbered point an entry, with the names of the numbers listed below: names beside the points would
    cover each other where points lie close, or run out of a narrow page. A number stands above its point, below it
    where another point lies closely above."""
    figure = go.Figure()
    sides = _number_sides(_array(x), np.log10(_array(y)) if log_y else _array(y))
    for number, (a, b, name, side) in enumerate(zip(_array(x), _array(y), names, sides, strict=True), 1):
        figure.add_scatter(
            x=[a],
            y=[b],
            name=f"{number}  {as_plotly(name)}",
            text=[str(number)],
            mode="markers+text",
            textposition=f"{side} center",
            marker={"size": 9, "color": BLUE},
            hoverinfo="skip",
            cliponaxis=False,
        )
    lines = -(-len(names) // 2)
    styled(figure, title, x_title, y_title, height=420 + 22 * lines)
    figure.update_yaxes(_scale([_array(y)], log_y))
    figure.update_layout(
        margin={"b": 80 + 22 * lines, "t": 50},
        legend={
            "y": -0.2,
            "yanchor": "top",
            "entrywidth": 0.48,
            "entrywidthmode": "fraction",
            "itemwidth": 30,
        },
    )
    return figure


def _number_sides(x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return "top" or "bottom" for each point, in coordinates that are drawn evenly."""
    x, y = ((values - values.min()) / (np.ptp(values) or 1) for values in (x, y))
    right, up = x[None, :] - x[:, None], y[None, :] - y[:, None]  # from the row's point to the column's
    covers = (np.abs(right) < 0.02) & (up > 0) & (up < 0.1)  # about as wide and as high as a number
    return ["bottom" if one else "top" for one in covers.any(axis=1)]


def arrow_chart(
    tips: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_title: str,
    y_title: str,
    hidden: Sequence[float] | None = None,
    walk: ArrayLike | None = None,
    scale: float = 1.0,
) -> go.Figure:
    """Return arrows from the origin to named tips in a plane, both axes to one scale.

    ``hidden`` adds the hidden state, thick and with a round head, and ``walk`` (n, 2) the dots it passed on its way.
    With a ``scale`` other than 1 the named arrows, not the hidden state, are drawn that many times as long.
    """
    tips = {name: (float(x), float(y)) for name, (x, y) in tips.items()}
    figure = go.Figure()
    if walk is not None:
        dots = _array(walk)
        line, marker = {"color": GREY, "dash": "dot", "width": 1.5}, {"size": 5, "color": GREY}
        figure.add_scatter(
            x=dots[:, 0], y=dots[:, 1], mode="lines+markers", line=line, marker=marker, name="its way"
        )
    everyone = [*tips.values(), *([] if hidden is None else [tuple(hidden)])]
    for name, (x, y) in tips.items():
        side = _side((x, y), [other for other in everyone if other != (x, y)])
        _arrow(figure, (scale * x, scale * y), BLUE, 2, name, "arrow", side)
    if hidden is not None:
        _arrow(figure, tuple(hidden), VERMILION, 4, "hidden state", "circle", "bottom right")
    styled(figure, title, x_title, y_title, height=460)
    figure.update_yaxes(scaleanchor="x", scaleratio=1)
    figure.update_layout(showlegend=False, margin_r=70)
    return figure


def _arrow(
    figure: go.Figure, tip: tuple[float, float], colour: str, width: int, name: str, head: str, side: str
) -> None:
    figure.add_scatter(
        x=[0, tip[0]],
        y=[0, tip[1]],
        mode="lines+markers+text",
        line={"color": colour, "width": width},
        # "arrow" points up; the previous point gives it its direction.
        marker={
            "symbol": head,
            "size": [0, 12],
            "color": colour,
            "angleref": "previous",
            "opacity": 1,
            "line": {"width": 0},
        },
        text=["", as_plotly(name)],
        textposition=side,
        cliponaxis=False,
        hoverinfo="skip",
    )


def _side(tip: tuple[float, float], others: Sequence[tuple[float, float]]) -> str:
    """Return where a tip's name stands: outwards, or where another arrow points nearly the same way, away from it."""
    x, y = tip
    angles = [np.angle((x + 1j * y) * complex(*other).conjugate()) for other in others]
    if angles and abs(nearest := min(angles, key=abs)) < np.radians(25):
        x, y = (-y, x) if nearest >= 0 else (y, -x)
    return ("top" if y >= 0 else "bottom") + (" right" if x >= 0 else " left")


def roofline_chart(
    bandwidth: float,
    flops: float,
    points: Mapping[str, tuple[float, float]],
    *,
    title: str,
    x_range: tuple[float, float] = (0.1, 1e4),
    y_range: tuple[float, float] = (1e9, 1e16),
) -> go.Figure:
    """Return a roofline (bandwidth in bytes a second, flops in FLOPs a second), with named points under it.

    A point is (FLOPs a byte, FLOPs a second). Both axes are logarithmic and keep the ranges given, so that points and
    roof can be seen to move. Points differ by colour and by sign.
    """
    figure = go.Figure()
    ends = (x_range[0], min(max(flops / bandwidth, x_range[0]), x_range[1]), x_range[1])
    roof = [min(flops, bandwidth * x) for x in ends]
    figure.add_scatter(x=ends, y=roof, mode="lines", line={"color": GREY, "width": 3}, name="roof")
    styles = _styles(len(points))
    for (colour, _, symbol), (name, (x, y)) in zip(styles, points.items(), strict=True):
        marker = {"color": colour, "symbol": symbol, "size": 13, "line": {"width": 1, "color": GREY}}
        figure.add_scatter(
            x=[x], y=[y], mode="markers", marker=marker, name=as_plotly(name), cliponaxis=False
        )
    styled(figure, title, "arithmetic intensity (FLOPs a byte)", "FLOPs a second", height=420)
    for axis, ends in (("xaxis", x_range), ("yaxis", y_range)):
        figure.layout[axis].update(type="log", range=[float(np.log10(end)) for end in ends], dtick=1)
    figure.update_xaxes(exponentformat="power", ticklabelstandoff=6)  # or the corner's two labels collide
    figure.update_yaxes(exponentformat="power")
    # Long names: a legend below the axis has the whole width.
    figure.update_layout(legend={"y": -0.22, "yanchor": "top"}, margin={"b": 110, "t": 50})
    return figure


# Lightness alone carries the order, and dark letters stand out on every step (contrast of 4.5 or more).
HEAT = ["#fffbe6", "#fbd87f", ORANGE, VERMILION]


def lens_heatmap(
    labels: Sequence[Sequence[str]],
    values: ArrayLike,
    tokens: Sequence[str],
    *,
    title: str,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    hover: Sequence[Sequence[str]] | None = None,
    chosen: tuple[int, int] | None = None,
    shown: int = 7,
) -> go.Figure:
    """Return layers × positions as coloured cells, the last layer on top, each with a token's label in it.

    ``labels`` and ``values`` are (layer, position), ``tokens`` the text's tokens below the columns. Colours get darker
    from ``low`` to ``high``; with ``log``, for ranks, the scale is logarithmic and the lowest are the darkest. Labels
    are cut to ``shown`` characters; ``hover`` are the whole texts of the cells. ``chosen`` (layer, position) gets a
    frame.
    """
    values = _array(values)
    layers, positions = values.shape
    figure = go.Figure()
    figure.add_heatmap(
        z=np.log10(values) if log else values,
        zmin=None if low is None else (np.log10(low) if log else low),
        zmax=None if high is None else (np.log10(high) if log else high),
        text=[[as_plotly(_cut(label, shown)) for label in line] for line in labels],
        texttemplate="%{text}",
        textfont={"size": 11, "family": "monospace", "color": "#111111"},
        colorscale=HEAT,
        reversescale=log,
        colorbar={
            "title": {"text": as_plotly(unit), "side": "right"},
            "thickness": 12,
            "len": 1,
            **_ticks(low, high, log),
        },
        xgap=1,
        ygap=1,
        hoverinfo="skip" if hover is None else "text",
        hovertext=None if hover is None else [[as_plotly(text) for text in line] for line in hover],
    )
    styled(figure, title, "token read", "layer (0: the embedding)", height=130 + 20 * layers)
    names = [as_plotly(_cut(token, shown)) for token in tokens]
    figure.update_xaxes(tickvals=list(range(positions)), ticktext=names, showgrid=False, tickangle=0)
    figure.update_xaxes(tickfont={"size": 11, "family": "monospace"})
    figure.update_yaxes(tickvals=list(range(0, layers, 5)), showgrid=False, zeroline=False)
    figure.update_xaxes(zeroline=False, range=[-0.5, positions - 0.5])
    figure.update_yaxes(range=[-0.5, layers - 0.5])
    figure.update_layout(margin={"l": 60, "r": 95, "t": 50, "b": 60})
    if chosen is not None:
        layer, position = chosen
        box = {"x0": position - 0.5, "x1": position + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
        figure.add_shape(type="rect", line={"color": BLUE, "width": 4}, **box)
    return figure


def _cut(label: str, shown: int) -> str:
    label = visible(label)  # first: one character may become eight
    return label if len(label) <= shown else label[: shown - 1] + "…"


def _ticks(low: float | None, high: float | None, log: bool) -> dict:
    """Return a colour bar's ticks; on a logarithmic scale the powers of ten, written out."""
    if not log or low is None or high is None:
        return {}
    powers = range(int(np.ceil(np.log10(low))), int(np.floor(np.log10(high))) + 1)
    return {"tickvals": list(powers), "ticktext": [f"{10**power:,}" for power in powers]}


def loss_curve(
    logits: ArrayLike,
    losses: Mapping[str, ArrayLike],
    point: tuple[float, float],
    slope: float,
    *,
    title: str,
) -> go.Figure:
    """Return the loss over the true token's logit, one line a name, with ``point`` (logit, loss) and its tangent."""
    figure = line_chart(logits, losses, title=title, x_title="logit of the true token", y_title="loss (nats)")
    x, y = point
    reach = 2 / np.hypot(1, slope)
    ends = (x - reach, x + reach)
    line = {"color": VERMILION, "width": 3}
    heights = [y + slope * (end - x) for end in ends]
    figure.add_scatter(x=ends, y=heights, mode="lines", line=line, name=f"slope here: {_signed(slope)}")
    marker = {"size": 13, "color": VERMILION, "symbol": "circle"}
    figure.add_scatter(x=[x], y=[y], mode="markers", marker=marker, showlegend=False, cliponaxis=False)
    figure.update_layout(showlegend=True, margin_t=100)
    return figure


def gradient_bars(labels: Sequence[str], p: ArrayLike, q: ArrayLike, *, title: str) -> go.Figure:
    """Return p, q and the gradient p − q of each label as horizontal bars from −1 to 1, the first label on top.

    ``p`` and ``q`` (len(labels),) are probabilities; ``q`` is dotted. The gradient is hatched, and written beside
    its bar.
    """
    p, q = _array(p), _array(q)
    places = list(range(len(labels)))
    figure = go.Figure()
    for name, values, colour, dots in (("model p", p, BLUE, ""), ("target q", q, ORANGE, ".")):
        marker = {"color": colour, "pattern": {"shape": dots, "fillmode": "overlay"}}
        figure.add_bar(orientation="h", y=places, x=values, name=name, marker=marker, hoverinfo="skip")
    figure.add_bar(
        orientation="h",
        y=places,
        x=p - q,
        name="gradient p − q",
        marker={"color": VERMILION, "pattern": {"shape": "/", "fillmode": "overlay"}},
        text=[_signed(value) for value in p - q],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="skip",
    )
    styled(figure, title, "probability, and gradient of the loss", "", height=155 + 45 * len(labels))
    longest = max((len(visible(label)) for label in labels), default=0)
    figure.update_layout(margin={"l": min(200, 30 + 8 * longest), "r": 30, "t": 100}, bargap=0.25)
    figure.update_yaxes(
        tickvals=places, ticktext=[as_plotly(label) for label in labels], autorange="reversed", showgrid=False
    )
    # Room for the number beside a bar of 1 or −1, which would lie on the label.
    figure.update_xaxes(range=[-1.4, 1.4], dtick=0.5)
    return figure


def reliability_chart(
    series: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]], *, title: str
) -> go.Figure:
    """Return accuracy over confidence, one point a bin, and the diagonal on which a model is as right as it is sure.

    ``series`` maps a name to (confidence, accuracy, counts), each (bins,); a larger bin has a larger marker.
    """
    figure = go.Figure()
    ideal = {"color": GREY, "dash": "dot", "width": 2}
    figure.add_scatter(x=[0, 100], y=[0, 100], mode="lines", line=ideal, name="as right as sure")
    styles = _styles(len(series))
    for (colour, dash, symbol), (name, (confidence, accuracy, counts)) in zip(
        styles, series.items(), strict=True
    ):
        share = _array(counts) / max(_array(counts).sum(), 1)
        figure.add_scatter(
            x=100 * _array(confidence),
            y=100 * _array(accuracy),
            name=as_plotly(name),
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 6 + 24 * np.sqrt(share), "line": {"width": 1, "color": GREY}},
            hoverinfo="skip",
        )
    styled(
        figure, title, "confidence: probability of the best token (%)", "how often it came (%)", height=400
    )
    # Room at the ends, where a marker would be cut in half.
    figure.update_xaxes(range=[-3, 103], dtick=20)
    figure.update_yaxes(range=[-5, 105], dtick=20)
    figure.update_layout(margin_t=100)
    return figure


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def row_gradients_chart(
    ranks: ArrayLike,
    paths: Mapping[str, ArrayLike],
    seen: ArrayLike,
    *,
    title: str,
    decades: tuple[int, int],
    total: ArrayLike | None = None,
    mark: float | None = None,
) -> go.Figure:
    """Return the gradient norm of every row (n,) by path, over the row's frequency rank, both axes logarithmic.

    ``paths`` maps the names of two paths to norms (n,). A row that is ``seen`` (n,) in the batch has a filled sign, any
    other a hollow one; ``total`` (n,), the norms of the sum, are dashes. The y axis spans ``decades`` (powers of ten);
    a norm of 0, which no logarithm has, is drawn on a line of its own below. ``mark`` is a rank to point out.
    """
    x, seen = _array(ranks), _array(seen).astype(bool)
    zero = decades[0] - 0.8
    figure = go.Figure()
    for colour, symbol, (name, norms) in zip(
        (BLUE, ORANGE), ("circle", "square"), paths.items(), strict=True
    ):
        y = np.where(_array(norms) > 0, _array(norms), 10.0**zero)
        for there, suffix, sign in (
            (True, "row in the batch", symbol),
            (False, "row not in it", f"{symbol}-open"),
        ):
            marker = {"color": colour, "symbol": sign, "size": 8 if there else 6, "line": {"width": 1}}
            at, label = seen == there, f"{as_plotly(name)}, {suffix}"
            figure.add_scatter(x=x[at], y=y[at], mode="markers", name=label, marker=marker, hoverinfo="skip")
    if total is not None:
        marker = {"symbol": "line-ew-open", "size": 11, "color": GREEN, "line": {"width": 2}}
        sums = _array(total)
        figure.add_scatter(x=x, y=sums, mode="markers", name="their sum", marker=marker, hoverinfo="skip")
    styled(figure, title, "token, by its frequency rank in the text", "gradient norm of its row", height=430)
    ticks = list(range(decades[0], decades[1] + 1, max(1, (decades[1] - decades[0]) // 8)))
    figure.update_yaxes(
        type="log",
        range=[zero - 0.4, decades[1]],
        tickvals=[10.0**zero, *(10.0**tick for tick in ticks)],
        ticktext=["exactly 0", *(f"10<sup>{tick}</sup>" for tick in ticks)],
    )
    figure.update_xaxes(type="log", dtick=1, range=[-0.05, float(np.log10(x.max())) + 0.05])
    figure.add_hline(10.0 ** (zero + 0.4), line={"color": GREY, "dash": "dot", "width": 1})
    if mark is not None:
        figure.add_vline(mark, line={"color": GREY, "width": 1.5})
    figure.update_layout(legend={"y": -0.2, "yanchor": "top"}, margin={"l": 80, "b": 120, "t": 50})
    return figure


def token_tree(
    labels: Sequence[str],
    parents: Sequence[int],
    *,
    title: str,
    root: str,
    paths: Mapping[str, Sequence[int]],
    notes: Mapping[int, str] | None = None,
    shown: int = 9,
) -> go.Figure:
    """Return a tree of tokens that grows to the right, one row an end; ``paths`` are ways through it with names.

    Node i has ``labels[i]`` and stands behind node ``parents[i]``, which comes before it in the list; −1 is the
    ``root``. ``paths`` maps a name to the nodes of one way, drawn in a colour and dash of its own; ``notes`` maps a
    node to a text beside it. Labels are cut to ``shown`` characters.
    """
    depth, row = _tree_places(parents)
    figure = go.Figure()
    _edges(figure, range(len(labels)), parents, depth, row, "every way", {"color": GREY, "width": 1})
    for (colour, dash, _), (name, nodes) in zip(_styles(len(paths)), paths.items(), strict=True):
        _edges(figure, nodes, parents, depth, row, name, {"color": colour, "dash": dash, "width": 3.5})
    for place, label in [(-1, root), *enumerate(labels)]:
        note = f"  <i>{as_plotly(notes[place])}</i>" if notes and place in notes else ""
        figure.add_annotation(
            x=depth.get(place, 0),
            y=row.get(place, 0),
            text=as_plotly(label if place < 0 else _cut(label, shown)) + note,
            xanchor="right" if place < 0 else "left" if note else "center",
            showarrow=False,
            xshift=-10 if place < 0 else 0,
            # Neighbours at two heights: side by side long ones would run into each other.
            yshift=0 if place < 0 else 10 + 12 * (depth[place] % 2),
            font={"size": 11, "family": "monospace"},
        )
    ends = 1 + max(row.values())
    styled(figure, title, "new tokens", "", height=int(170 + 42 * ends))
    figure.update_xaxes(range=[-0.1, max(depth.values()) + 0.8], dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(visible=False, range=[ends - 0.3, -0.8])
    figure.update_layout(margin={"l": 30 + 7 * len(root), "r": 20, "t": 90})
    return figure


def _tree_places(parents: Sequence[int]) -> tuple[dict[int, int], dict[int, float]]:
    """Return each node's depth, and its row: an end has a row of its own, any other node that of its first child."""
    depth, behind = {-1: 0}, {-1: []}
    for place, parent in enumerate(parents):
        depth[place], behind[place] = depth[parent] + 1, []
        behind[parent].append(place)
    row, waiting, rows = {}, [-1], 0
    while waiting:
        place = waiting.pop()
        row[place] = rows
        rows += not behind[place]
        waiting += reversed(behind[place])
    return depth, row


def _edges(
    figure: go.Figure,
    nodes: Sequence[int],
    parents: Sequence[int],
    depth: Mapping[int, int],
    row: Mapping[int, float],
    name: str,
    line: dict,
) -> None:
    """Add the lines that lead to some nodes as one trace, with a dot at each."""
    pairs = [(parents[place], place) for place in nodes]
    figure.add_scatter(
        x=[x for a, b in pairs for x in (depth[a], depth[b], None)],
        y=[y for a, b in pairs for y in (row[a], row[b], None)],
        mode="lines+markers",
        name=as_plotly(name),
        line={"shape": "vh", **line},  # down from the parent, then along: no line crosses a label
        marker={"size": 7, "color": line["color"]},
        hoverinfo="skip",
    )
