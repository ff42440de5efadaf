"""Charts: one look for all of them, as static SVG or as a Vega specification to be filled later.

Colours are the page's own variables, so a chart follows light, dark and print without being drawn
again. The layout is fixed (no automatic sizing, no legend), so that the same numbers give the
same bytes whatever fonts a machine has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    from markupsafe import Markup

Row = Mapping[str, object]
ROWS = "rows"
"""The name of a chart's data, by which a page fills it in."""
TICKS = "ticks"
"""The name of a chart's parameter for the ticks of a symmetric logarithmic axis."""

WIDTH, HEIGHT = 400, 190
PADDING = {"left": 46, "right": 10, "top": 30, "bottom": 52}
COUNT_LABELS = "abs(datum.value) < 1000 ? format(datum.value, ',~g') : format(datum.value, '~s')"
_AXIS = {
    "domainColor": "var(--line)",
    "gridColor": "var(--grid)",
    "labelColor": "var(--soft)",
    "labelFontSize": 12,
    "labelLimit": 0,
    "labelOverlap": False,
    "labelPadding": 5,
    "tickColor": "var(--line)",
    "titleColor": "var(--soft)",
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
LOOK = {
    # Readers get the table beside a chart; hundreds of labelled marks would only be in their way.
    "aria": False,
    "background": "transparent",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": _AXIS,
    "axisX": {"grid": False, "titleY": 36, "titleAnchor": "middle"},
    "axisY": {
        "domain": False,
        "ticks": False,
        "tickCount": 5,
        "titleAngle": 0,
        "titleAlign": "left",
        "titleBaseline": "bottom",
        "titleX": -PADDING["left"],
        "titleY": -12,
    },
}


def layered(layers: Sequence[alt.Chart], rows: Sequence[Row] | None) -> alt.LayerChart:
    """Lay marks over one another, with the size and the margins that all charts have.

    Args:
        layers: without data of their own.
        rows: the data; None where the page fills them in, under the name ROWS.
    """
    import altair as alt

    return alt.LayerChart(
        layer=list(layers),
        data=alt.InlineData(name=ROWS, values=[dict(row) for row in rows or ()]),
        width=WIDTH,
        height=HEIGHT,
        padding=PADDING,
        autosize=alt.AutoSizeParams(type="none"),
    )


def decades(smallest: float, largest: float) -> list[int]:
    """Ticks of a symmetric logarithmic axis: zero and the powers of ten in between."""
    powers = [10**power for power in range(19)]
    below = [-power for power in reversed(powers) if smallest <= -power]
    return [*below, 0, *(power for power in powers if power <= largest)]


def round_sizes(first: int, last: int) -> list[int]:
    """Ticks for sizes on a logarithmic axis: 0, 1, 2, 5, 10, 20, 50, … and the ends."""
    steps = [step * 10**power for power in range(10) for step in (1, 2, 5)]
    # A tick right beside the last one would run into it.
    return [first, *(step for step in steps if first < step <= last * 0.45), last]


def static_svg(chart: alt.TopLevelMixin) -> Markup:
    """Draw a chart, for a template; the same chart gives the same bytes."""
    from markupsafe import Markup

    # Vega escapes what it draws.
    return Markup(_draw(json.dumps(_specification(chart), sort_keys=True)))  # noqa: S704


def vega_specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Compile a chart for the Vega runtime in a page."""
    import vl_convert

    compiled: dict[str, Any] = vl_convert.vegalite_to_vega(_specification(chart))
    return compiled


def _specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    return {**chart.to_dict(), "config": LOOK}


@lru_cache(maxsize=64)
def _draw(specification: str) -> str:
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(specification)
    return drawn
