"""Charts: one look for all of them, as static SVG or as a Vega specification to be filled later.

Colours are the page's own variables, so a chart follows light, dark and print without being drawn
again. The layout is fixed (no automatic sizing, no legend), so that the same numbers give the
same bytes whatever fonts a machine has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    from markupsafe import Markup

Row = Mapping[str, Any]
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
    # Charts are hidden from screen readers, which read the tables.
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


@dataclass(frozen=True)
class Figure:
    """A chart without data: drawn at once with rows, or compiled for a page that has them.

    Attributes:
        specification: in Vega-Lite; its data are called ROWS.
        logarithmic: the fields on a symmetric logarithmic axis, whose ticks follow the data; they
            are the parameter TICKS. Empty for an even axis.
        parameters: that its expressions name, besides TICKS.
    """

    specification: Mapping[str, Any]
    logarithmic: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def svg(self, rows: Sequence[Row]) -> Markup:
        """Draw it, for a template; the same rows give the same bytes."""
        from markupsafe import Markup

        filled = self._with_parameters(ticks_of(rows, self.logarithmic))
        filled["data"] = {"name": ROWS, "values": rows}
        # Vega escapes what it draws.
        return Markup(_draw(json.dumps(filled)))  # noqa: S704

    def vega(self) -> dict[str, Any]:
        """Compile it for the Vega runtime of a page; parameters become signals."""
        import vl_convert

        compiled: dict[str, Any] = vl_convert.vegalite_to_vega(self._with_parameters([]))
        return compiled

    def _with_parameters(self, ticks: list[int]) -> dict[str, Any]:
        values = {**self.parameters, **({TICKS: ticks} if self.logarithmic else {})}
        params = [{"name": name, "value": value} for name, value in values.items()]
        return {**self.specification, "params": params}


def figure(
    layers: Sequence[alt.Chart],
    *,
    logarithmic: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
) -> Figure:
    """Lay marks over one another, with the size, the margins and the look of all charts."""
    import altair as alt

    chart = alt.LayerChart(
        layer=list(layers),
        data=alt.NamedData(name=ROWS),
        width=WIDTH,
        height=HEIGHT,
        padding=PADDING,
        autosize=alt.AutoSizeParams(type="none"),
    )
    # Checking a specification against its schema takes ten times as long as drawing it.
    described = chart.to_dict(validate=False)
    return Figure({**described, "config": LOOK}, tuple(logarithmic), parameters or {})


def ticks_of(rows: Sequence[Row], fields: Sequence[str]) -> list[int]:
    """The ticks of a logarithmic axis for these fields of the rows."""
    numbers = [row[field] or 0 for row in rows for field in fields] or [0]
    return decades(min(numbers), max(numbers))


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


def decade_sizes(starts: Sequence[int]) -> list[int]:
    """Of the first sizes of ranges those that are labelled: 0, 1, 10, 100, … and the last."""
    decades_of = [start for start in starts[:-3] if start in {0, *(10**k for k in range(10))}]
    return [*decades_of, starts[-1]]


@lru_cache(maxsize=64)
def _draw(specification: str) -> str:
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(specification)
    return drawn
