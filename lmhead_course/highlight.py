"""A text whose tokens carry a number each: coloured on the page, readable without colours and without a page.

It is HTML with a little style and no script, as in ``pathway``: tokens follow each other and break into lines where
the page ends. Every token has its number below it, so that the colour only helps the eye; each shade sets the colour
of its own letters, so that it reads on light and dark pages.
"""

import math
from collections.abc import Sequence

from .escaping import NO_TEX, as_html, visible

# Blues from light to dark, each with the letters that stand out on it (contrast of 4.5 or more). Lightness alone
# carries the order, which every kind of colour vision sees.
SHADES = (
    ("transparent", "inherit"),
    ("#d3e5f3", "#1a1a1a"),
    ("#9cc8e6", "#1a1a1a"),
    ("#5aa5d6", "#1a1a1a"),
    ("#0072b2", "#ffffff"),
    ("#00395a", "#ffffff"),
)


class TokenText:
    """Tokens with a number each; a notebook shows them coloured, anything else as ``token(number)``.

    ``labels`` are shown as text, never as markup. ``values`` may hold NaN, shown as a dash. The shades are even steps
    from ``low`` (no colour) to ``high`` (darkest), by default from 0 to the largest value; ``digits`` places are shown.
    ``name`` says what the numbers are, with their unit.

    Raises ``ValueError`` unless there is one value for each label, and ``high`` is above ``low``.
    """

    def __init__(
        self,
        labels: Sequence[str],
        values: Sequence[float],
        name: str,
        *,
        low: float = 0.0,
        high: float | None = None,
        digits: int = 1,
    ):
        self.labels, self.name = list(map(visible, labels)), visible(name)
        self.values = [float(value) for value in values]
        if len(self.labels) != len(self.values):
            raise ValueError(
                f"values must be one for each of {len(self.labels)} labels, got {len(self.values)}"
            )
        finite = [value for value in self.values if math.isfinite(value)]
        self.low, self.high = low, high if high is not None else max([*finite, low + 1e-9])
        if not self.high > self.low:
            raise ValueError(f"high must be above low = {low}, got {high}")
        self.digits = digits

    def shade(self, value: float) -> int:
        """Return which of ``SHADES`` a value gets; 0, no colour, for NaN and for all up to ``low``."""
        if math.isnan(value) or value <= self.low:
            return 0
        share = min((value - self.low) / (self.high - self.low), 1.0)
        return min(int(share * len(SHADES)), len(SHADES) - 1)

    def _number(self, value: float) -> str:
        return "–" if math.isnan(value) else f"{value:.{self.digits}f}"

    def __repr__(self) -> str:
        pairs = zip(self.labels, self.values, strict=True)
        return f"{self.name}: " + " ".join(f"{label}({self._number(value)})" for label, value in pairs)

    def _repr_html_(self) -> str:
        tokens = "".join(map(self._token, self.labels, self.values))
        ends = f"no colour: {self._number(self.low)}, darkest: {self._number(self.high)}"
        name = f'<p style="margin:0 0 4px">{as_html(self.name)} <small>({ends})</small></p>'
        return f'<div class="{NO_TEX}">{name}<div>{tokens}</div></div>'

    def _token(self, label: str, value: float) -> str:
        background, letters = SHADES[self.shade(value)]
        style = (
            "display:inline-block;margin:1px;padding:1px 4px;border-radius:3px;text-align:center;line-height:1.25;"
            f"border:1px solid rgba(128,128,128,.35);background:{background};color:{letters}"
        )
        # bdi: a right-to-left token must not turn its neighbours around.
        return (
            f'<span style="{style}"><bdi><code style="background:none;color:inherit">{as_html(label)}</code></bdi>'
            f'<br><small style="font-variant-numeric:tabular-nums">{self._number(value)}</small></span> '
        )
