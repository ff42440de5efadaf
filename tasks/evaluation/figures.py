"""The paper's Figures 8, 9 and 10 with our numbers, as SVG: ours are lines, the paper's dashed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgsr_core.evaluation.contenders import CONTENDERS
from pgsr_core.evaluation.published import COMPARED, EPSILONS, TABLE_1, TIME_OUT
from tasks.evaluation.catalogue import SERIES, SERIES_EPSILON
from tasks.evaluation.paper import notation, stand_ins, variants
from tasks.evaluation.store import Store

if TYPE_CHECKING:
    import altair as alt

    Drawing = alt.LayerChart | alt.FacetChart | alt.HConcatChart

WIDTH, HEIGHT = 330, 260
OURS, PAPER = "ours", "paper"
SECONDS = "seconds"
# One for each contender (Tableau's ten, and four).
PALETTE = (
    *("#f28e2b", "#e15759", "#4e79a7", "#9c755f", "#b07aa1", "#79706e", "#ff9da7"),
    *("#edc948", "#d37295", "#b6992d", "#59a14f", "#76b7b2", "#86bcb6", "#bab0ac"),
)


def figures(store: Store) -> dict[str, str]:
    """Every figure that there are results for, by name."""
    drawn = {
        "figure-8": _figure_8(store),
        "figure-9": _figure_9(store),
        "figure-10": _figure_10(store),
    }
    return {name: _svg(chart) for name, chart in drawn.items() if chart is not None}


def _figure_8(store: Store) -> Drawing | None:
    rows = store.rows(
        "SELECT largest_size AS x, mechanism, coalesce(seconds, time_limit) AS mean,"
        " coalesce(standard_error, 0) AS error, answered = 0 AS ended FROM costs"
        " JOIN data_sets USING (data) WHERE starts_with(data, ?) AND epsilon = ?"
        " AND answered + timed_out > 0",
        [f"{SERIES}-", SERIES_EPSILON],
    )
    if not rows:
        return None
    import altair as alt

    points = _points(rows)
    limit = (
        alt.Chart({"values": [{"limit": TIME_OUT}]})
        .mark_rule(strokeDash=[2, 3])
        .encode(y="limit:Q")
    )
    return alt.layer(*_layers(points, x="N", y=SECONDS, kind="Q"), limit).properties(
        title="Figure 8: seconds by the number of sizes N (dotted: the paper's time-out)",
        width=2 * WIDTH,
        height=HEIGHT,
    )


def _figure_9(store: Store) -> Drawing | None:
    charts = []
    for _, name in stand_ins(store):
        rows = store.rows(
            "SELECT epsilon AS x, mechanism, coalesce(seconds, time_limit) AS mean,"
            " coalesce(standard_error, 0) AS error, answered = 0 AS ended FROM costs"
            " WHERE data = ? AND answered + timed_out > 0",
            [name],
        )
        charts.append((name, _compared(rows)))
    return _beside("Figure 9: seconds", charts, y=SECONDS)


def _figure_10(store: Store) -> Drawing | None:
    charts = []
    for data, name in stand_ins(store):
        rows = store.rows(
            "SELECT epsilon AS x, mechanism, mean, coalesce(standard_error, 0) AS error,"
            " false AS ended FROM totals WHERE data = ? AND metric = 'l1'",
            [name],
        )
        printed = [
            {"x": epsilon, "mechanism": mechanism, "mean": TABLE_1[data, epsilon, mechanism].total}
            for epsilon in EPSILONS
            for mechanism in COMPARED
        ]
        charts.append((name, _compared(rows) + _points(printed, source=PAPER)))
    return _beside("Figure 10: L1 error, all levels (dashed: the paper's)", charts, y="L1 error")


def _compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {name for mechanism in COMPARED for name in variants(mechanism)}
    return _points([r for r in rows if r["mechanism"] in names and r["x"] in EPSILONS])


def _points(rows: Sequence[dict[str, Any]], *, source: str = OURS) -> list[dict[str, Any]]:
    """Rows for a chart; error bars are two standard errors either way, and stay above zero.

    Nothing has no place on a logarithmic scale: what takes no time is left out.
    """
    points = []
    for row in (row for row in rows if row["mean"] > 0):
        error = 2 * row.get("error", 0)
        points.append(
            {
                "x": row["x"],
                "mechanism": notation(row["mechanism"]),
                "mean": row["mean"],
                "low": max(row["mean"] - error, row["mean"] / 10),
                "high": row["mean"] + error,
                "end": "timed out" if row.get("ended") else "answered",
                "source": source,
            }
        )
    return points


def _layers(points: list[dict[str, Any]], *, x: str, y: str, kind: str) -> list[alt.Chart]:
    import altair as alt

    base = alt.Chart({"values": points}).encode(
        x=alt.X(f"x:{kind}", title=x, axis=alt.Axis(labelAngle=0)),
        color=alt.Color(
            "mechanism:N", title=None, scale=_colours(points), legend=alt.Legend(labelLimit=0)
        ),
    )
    ours = base.transform_filter(f"datum.source == '{OURS}'")
    means = alt.Y("mean:Q", title=y, scale=alt.Scale(type="log"))
    dashes = alt.StrokeDash(
        "source:N", legend=None, scale=alt.Scale(domain=[OURS, PAPER], range=[[1, 0], [5, 4]])
    )
    shapes = alt.Shape(
        "end:N",
        legend=None,
        scale=alt.Scale(domain=["answered", "timed out"], range=["circle", "triangle-up"]),
    )
    return [
        base.mark_line().encode(y=means, strokeDash=dashes),
        ours.mark_rule().encode(y=alt.Y("low:Q", title=y), y2="high:Q"),
        ours.mark_point(filled=True, size=45).encode(y=means, shape=shapes),
    ]


def _colours(points: list[dict[str, Any]]) -> alt.Scale:
    """A mechanism has the same colour in every figure."""
    import altair as alt

    palette = dict(zip((notation(name) for name in CONTENDERS), PALETTE, strict=True))
    used = {point["mechanism"] for point in points}
    shown = {name: colour for name, colour in palette.items() if name in used}
    return alt.Scale(domain=list(shown), range=list(shown.values()))


def _beside(
    title: str, charts: list[tuple[str, list[dict[str, Any]]]], *, y: str
) -> Drawing | None:
    if not any(points for _, points in charts):
        return None
    import altair as alt

    drawn = [
        alt.layer(*_layers(points, x="ε", y=y, kind="O")).properties(
            title=name, width=WIDTH, height=HEIGHT
        )
        for name, points in charts
    ]
    return alt.hconcat(*drawn, title=title)


def _svg(chart: Drawing) -> str:
    import vl_convert

    described = chart.configure(background="white", font="sans-serif").to_dict(validate=False)
    drawn: str = vl_convert.vegalite_to_svg(described)
    return drawn
