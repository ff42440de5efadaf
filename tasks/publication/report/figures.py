"""The charts of a release: group sizes with margins of error, and what each step changed.

Few sizes are drawn as bars, many as steps over logarithmic axes. Rows have `size`, `label`, and
the fields named at each chart; a field that is not known is null.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from tasks.pages.charts import (
    COUNT_LABELS,
    TICKS,
    WIDTH,
    Figure,
    decade_sizes,
    figure,
    round_sizes,
)
from tasks.publication.report.bins import size_bins

if TYPE_CHECKING:
    import altair as alt

MOST_BARS = 31
"""More sizes than that do not fit as bars with a label each."""
LABEL_WIDTH = 28
"""Room for the label of a bar; where bars are narrower, only every second or third has one."""
SIZES, BAR = "sizes", "bar"
"""The names of a chart's parameters: which sizes are labelled, and how wide a bar is."""
# Counted from the last, which says that it stands for larger ones; an index is from 0 to 1.
_SOME_LABELS = f"round((1 - datum.index) * ({SIZES}[0] - 1)) % {SIZES}[1] == 0 ? datum.label : ''"
_BIN_LABELS = (
    "(datum.value < 1000 ? datum.value : format(datum.value, '.3~s'))"
    f" + (datum.value == {SIZES}[length({SIZES}) - 1] ? '+' : '')"
)
ACCENT, BARS, BAND = "var(--accent)", "var(--bar)", "var(--band)"
INK, SOFT = "var(--ink)", "var(--soft)"


class Style(StrEnum):
    """How sizes are drawn: few as bars, many as steps, ranges of very many as bars."""

    BARS = "bars"
    STEPS = "steps"
    BINS = "bins"


@dataclass(frozen=True)
class SizeAxes:
    """The axes of a chart over sizes.

    Attributes:
        sizes: from left to right.
        x_title: what a size means.
        y_title: what is counted.
    """

    sizes: range
    x_title: str
    y_title: str

    @property
    def style(self) -> Style:
        """How these sizes are drawn."""
        if size_bins(self.sizes) is not None:
            return Style.BINS
        return Style.STEPS if len(self.sizes) > MOST_BARS else Style.BARS

    @property
    def many(self) -> bool:
        """Whether sizes are drawn as steps, being too many for a bar each."""
        return self.style is Style.STEPS

    @property
    def parameters(self) -> dict[str, Any]:
        """What the expressions of a chart need to know of its axes."""
        first, last = self.sizes[0], self.sizes[-1]
        match self.style:
            case Style.STEPS:
                return {SIZES: round_sizes(first, last)}
            case Style.BINS:
                starts = [bin_[0] for bin_ in size_bins(self.sizes) or ()]
                return {BAR: _bar(len(starts)), SIZES: decade_sizes(starts)}
            case Style.BARS:
                bars = len(self.sizes)
                return {BAR: _bar(bars), SIZES: [bars, math.ceil(bars * LABEL_WIDTH / WIDTH)]}

    def x(self) -> alt.X:
        """The sizes."""
        import altair as alt

        title = self.x_title
        match self.style:
            case Style.BARS:
                axis = alt.Axis(labelAngle=0, labelExpr=_SOME_LABELS)
                return alt.X("label:N", sort=None, title=title, axis=axis)
            case Style.BINS:
                axis = alt.Axis(labelAngle=0, values=alt.ExprRef(SIZES), labelExpr=_BIN_LABELS)
                return alt.X("size:O", sort=None, title=title, axis=axis)
        ends = [alt.ExprRef(f"{SIZES}[0]"), alt.ExprRef(f"{SIZES}[length({SIZES}) - 1]")]
        return alt.X(
            "size:Q",
            title=title,
            scale=alt.Scale(type="symlog", domain=ends, nice=False),
            axis=alt.Axis(values=alt.ExprRef(SIZES), labelExpr="format(datum.value, ',')"),
        )

    def y(self, field: str, *, even: bool = False) -> alt.Y:
        """The counts of a field; all fields of a chart share one axis (even: never logarithmic)."""
        import altair as alt

        if even or self.style is Style.BARS:
            axis = alt.Axis(labelExpr=COUNT_LABELS)
            return alt.Y(f"{field}:Q", title=self.y_title, axis=axis, stack=None)
        return alt.Y(
            f"{field}:Q",
            title=self.y_title,
            stack=None,
            scale=alt.Scale(type="symlog", nice=False),
            axis=alt.Axis(labelExpr=COUNT_LABELS, values=alt.ExprRef(TICKS)),
        )

    def figure(self, layers: Sequence[alt.Chart], *fields: str) -> Figure:
        """Lay the marks over one another; these fields decide where the ticks are."""
        logarithmic = fields if self.style is not Style.BARS else ()
        return figure(layers, logarithmic=logarithmic, parameters=self.parameters)


def _bar(bars: int) -> float:
    return min(28.0, 0.62 * WIDTH / bars)


@cache
def sizes_figure(axes: SizeAxes) -> Figure:
    """How many groups there are of each size: `count`, from `lower` to `upper`."""
    import altair as alt

    x, y, ends = axes.x(), axes.y("count"), {"y": axes.y("lower"), "y2": alt.Y2("upper")}
    base = alt.Chart()
    known = base.transform_filter("isValid(datum.upper)")
    if axes.many:
        layers = [
            known.mark_area(color=BAND, interpolate="step").encode(x=x, **ends),
            base.mark_line(color=ACCENT, interpolate="step", strokeWidth=1.5).encode(x=x, y=y),
        ]
    else:
        cap = known.mark_tick(color=INK, thickness=1.5, size=8)
        layers = [
            base.mark_bar(color=BARS, width=alt.ExprRef(BAR)).encode(x=x, y=y),
            known.mark_rule(color=INK, strokeWidth=1.5).encode(x=x, **ends),
            *(cap.encode(x=x, y=axes.y(end)) for end in ("lower", "upper")),
        ]
    return axes.figure(layers, "count", "upper")


@cache
def stages_figure(axes: SizeAxes) -> Figure:
    """One region through the stages: `noisy`, `fitted` and `released`, by size."""
    import altair as alt

    x, base = axes.x(), alt.Chart()
    fitted = base.transform_filter("isValid(datum.fitted)")
    if axes.many:
        # One path, not a thousand dots: a page that is opened must be drawn at once.
        dots = base.mark_line(color=SOFT, strokeWidth=0.7)
        steps = fitted.mark_line(color=INK, interpolate="step", strokeDash=[4, 3], strokeWidth=1.2)
        blocks = base.mark_line(color=ACCENT, interpolate="step", strokeWidth=1.5)
    else:
        dots = base.mark_point(color=INK, size=45, strokeWidth=1.5)
        steps = fitted.mark_tick(color=INK, thickness=2, size=alt.ExprRef(f"{BAR} * 1.25"))
        blocks = base.mark_bar(color=BAND, width=alt.ExprRef(BAR))
    noisy = dots.encode(x=x, y=axes.y("noisy"))
    others = [blocks.encode(x=x, y=axes.y("released")), steps.encode(x=x, y=axes.y("fitted"))]
    layers = [noisy, *others] if axes.many else [*others, noisy]
    return axes.figure(layers, "noisy", "fitted", "released")


@cache
def changes_figure(axes: SizeAxes) -> Figure:
    """How far each stage is from the released number: `noisy_change` and `fitted_change`."""
    import altair as alt

    x, base = axes.x(), alt.Chart()
    noisy, change = axes.y("noisy_change", even=True), axes.y("fitted_change", even=True)
    fitted = base.transform_filter("isValid(datum.fitted_change)")
    zero = base.mark_rule(color=ACCENT, strokeWidth=2).encode(y=alt.YDatum(0))
    if axes.many:
        layers = [
            base.mark_line(color=SOFT, strokeWidth=0.7).encode(x=x, y=noisy),
            fitted.mark_line(color=INK, interpolate="step", strokeWidth=1.2).encode(x=x, y=change),
            zero,
        ]
    else:
        stems = base.mark_rule(color=SOFT, strokeWidth=1.5)
        ticks = fitted.mark_tick(color=INK, thickness=2, size=alt.ExprRef(f"{BAR} * 1.25"))
        layers = [
            stems.encode(x=x, y=noisy, y2=alt.Y2(datum=0)),
            zero,
            ticks.encode(x=x, y=change),
            base.mark_point(color=INK, size=45, strokeWidth=1.5).encode(x=x, y=noisy),
        ]
    return figure(layers, parameters=axes.parameters)
