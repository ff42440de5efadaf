"""The charts of the site: a budget that burns down, and what changed from release to release."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache

from tasks.pages.charts import Figure, Row, figure
from tasks.publication.report.figures import ACCENT, BAND, INK, SOFT, SizeAxes
from tasks.site.comparison import Comparison
from tasks.site.forecast import Pace, Scheduled
from tasks.site.history import BudgetHistory

MOST_DATES = 4


def budget_svg(
    history: BudgetHistory, *, until: date, pace: Pace | None, scheduled: Scheduled | None
) -> str:
    """What was left over time, under the cap, and how it goes on.

    Args:
        history: change by change.
        until: the day up to which the log goes.
        pace: drawn as a line where it ends within what is shown.
        scheduled: drawn as steps.
    """
    now = history.now
    rows: list[Row] = [
        {
            "at": _milliseconds(change.day),
            "left": float(change.remaining),
            "cap": float(change.budget),
        }
        for change in history.changes
    ]
    until += timedelta(days=1)  # what happened on the last day is drawn, too
    rows.append(
        {"at": _milliseconds(until), "left": float(now.remaining), "cap": float(now.budget)}
    )
    planned = scheduled.spending if scheduled else ()
    if planned:
        rows += [{"at": _milliseconds(until), "planned": float(now.remaining)}]
        rows += [{"at": _milliseconds(day), "planned": float(left)} for day, left in planned]
    charges = history.charges
    if pace is not None and pace.used_up is not None:
        ends = ((charges[-1].day, float(now.remaining)), (pace.used_up, 0.0))
        rows += [{"at": _milliseconds(day), "pace": left} for day, left in ends]
    last = max([until, *(day for day, _ in planned), *_known(pace)])
    rows.append({"at": _milliseconds(last), "cap": float(now.budget)})
    return _budget_figure(history.changes[0].day, last).svg(rows)


def _known(pace: Pace | None) -> list[date]:
    return [pace.used_up] if pace is not None and pace.used_up is not None else []


def _budget_figure(first: date, last: date) -> Figure:
    import altair as alt

    last = max(last, first + timedelta(days=1))
    x = alt.X(
        "at:Q",
        title="Day (UTC)",
        scale=alt.Scale(type="utc", domain=[_milliseconds(first), _milliseconds(last)], nice=False),
        axis=alt.Axis(
            values=[_milliseconds(day) for day in dates_between(first, last)],
            labelExpr="utcFormat(datum.value, '%Y-%m-%d')",
            labelFlush=True,
        ),
    )

    def layer(field: str) -> tuple[alt.Chart, alt.Y]:
        known = alt.Chart().transform_filter(f"isValid(datum.{field})")
        return known, alt.Y(f"{field}:Q", title="ε", scale=alt.Scale(domainMin=0), stack=None)

    left, left_y = layer("left")
    cap, cap_y = layer("cap")
    planned, planned_y = layer("planned")
    pace, pace_y = layer("pace")
    return figure(
        [
            left.mark_area(color=BAND, interpolate="step-after").encode(x=x, y=left_y),
            cap.mark_line(
                color=INK, strokeWidth=1.5, strokeDash=[2, 3], interpolate="step-after"
            ).encode(x=x, y=cap_y),
            left.mark_line(color=ACCENT, strokeWidth=2, interpolate="step-after").encode(
                x=x, y=left_y
            ),
            planned.mark_line(
                color=ACCENT, strokeWidth=1.5, strokeDash=[5, 3], interpolate="step-after"
            ).encode(x=x, y=planned_y),
            pace.mark_line(color=SOFT, strokeWidth=1.5, strokeDash=[8, 4]).encode(x=x, y=pace_y),
        ]
    )


def dates_between(first: date, last: date) -> list[date]:
    """A few days for an axis, as even as days allow, both ends included."""
    days = (last - first).days
    steps = min(MOST_DATES - 1, days)
    return [first + timedelta(days=round(days * step / steps)) for step in range(steps + 1)]


def _milliseconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def change_svg(comparison: Comparison) -> str:
    """How the counts of the root changed, and how far the true numbers may have."""
    rows = [
        {
            "size": cell.size,
            "label": _label(cell.size, comparison),
            "change": cell.change,
            "lowest": cell.lowest,
            "highest": cell.highest,
        }
        for cell in comparison.root
    ]
    axes = SizeAxes(comparison.sizes, "Size of the group", "Change in groups")
    return _change_figure(axes).svg(rows)


def _label(size: int, comparison: Comparison) -> str:
    return f"{size:,}+" if size in comparison.largest else f"{size:,}"


@cache
def _change_figure(axes: SizeAxes) -> Figure:
    import altair as alt

    x, base = axes.x(), alt.Chart()
    y, ends = axes.y("change"), {"y": axes.y("lowest"), "y2": alt.Y2("highest")}
    known = base.transform_filter("isValid(datum.lowest)")
    zero = base.mark_rule(color=SOFT, strokeWidth=1).encode(y=alt.YDatum(0))
    if axes.many:
        layers = [
            known.mark_area(color=BAND, interpolate="step").encode(x=x, **ends),
            zero,
            base.mark_line(color=ACCENT, interpolate="step", strokeWidth=1.5).encode(x=x, y=y),
        ]
    else:
        cap = known.mark_tick(color=INK, thickness=1.5, size=8)
        layers = [
            zero,
            known.mark_rule(color=INK, strokeWidth=1.5).encode(x=x, **ends),
            *(cap.encode(x=x, y=axes.y(end)) for end in ("lowest", "highest")),
            base.mark_point(color=ACCENT, size=45, filled=True, opacity=1).encode(x=x, y=y),
        ]
    return axes.figure(layers, "change", "lowest", "highest")
