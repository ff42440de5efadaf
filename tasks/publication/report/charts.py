"""The report's charts, compiled: what its page and its drawings are made from.

They are compiled once and kept as a file, `python -m tasks.publication.report.charts` writes it
anew, so that a page of this version holds the same charts whatever library is installed where
it is made, and where it is verified. A test compares the file with the installed library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasks.pages.charts import ROWS, TICKS, Row, ticks_of
from tasks.pages.frame import asset
from tasks.publication.report.figures import (
    SizeAxes,
    Style,
    changes_figure,
    sizes_figure,
    stages_figure,
)

FILE = "charts.json"
_FIGURES = {"sizes": sizes_figure, "stages": stages_figure, "changes": changes_figure}
_EXAMPLES = {Style.BARS: range(3), Style.STEPS: range(99), Style.BINS: range(10**6)}


@dataclass(frozen=True)
class Chart:
    """One of the report's charts.

    Attributes:
        name: "sizes", "stages" or "changes"; see figures.py for the fields of their rows.
        axes: what it is drawn over.
    """

    name: str
    axes: SizeAxes

    def compiled(self) -> dict[str, Any]:
        """The chart for a page that fills it in: in Vega, with the fields that place its ticks."""
        found: dict[str, Any] = deepcopy(_compiled()[f"{self.name}-{self.axes.style}"])
        _fill(found["vega"], self.axes)
        return found

    def drawn_with(self, rows: Sequence[Row]) -> dict[str, Any]:
        """The chart in Vega with its data, to be drawn."""
        found = self.compiled()
        vega: dict[str, Any] = found["vega"]
        next(data for data in vega["data"] if data["name"] == ROWS)["values"] = list(rows)
        if found["logarithmic"]:
            _set_signals(vega, {TICKS: ticks_of(rows, found["logarithmic"])})
        return vega


def _fill(vega: dict[str, Any], axes: SizeAxes) -> None:
    """Give a compiled chart the titles and parameters of these axes."""
    titles = {"x": axes.x_title, "y": axes.y_title}
    for axis in vega["axes"]:
        if "title" in axis:
            axis["title"] = titles[axis["scale"]]
    _set_signals(vega, axes.parameters)


def _set_signals(vega: dict[str, Any], values: Mapping[str, Any]) -> None:
    for signal in vega["signals"]:
        if signal["name"] in values:
            signal["value"] = values[signal["name"]]


@cache
def _compiled() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asset(__package__, FILE))
    return found


def compile_charts() -> str:
    """Compile every chart in every style, with the installed library."""
    charts = {
        f"{name}-{style}": {"vega": made.vega(), "logarithmic": list(made.logarithmic)}
        for name, make in _FIGURES.items()
        for style, sizes in _EXAMPLES.items()
        for made in (make(SizeAxes(sizes, "x", "y")),)
    }
    return json.dumps(charts, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "assets" / FILE).write_text(compile_charts(), encoding="utf-8")
