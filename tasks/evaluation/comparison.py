"""Every mechanism against M_c^dp: ratios of errors, who wins where, broken promises, costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pgsr_core.evaluation.contenders import CONTENDERS
from tasks.configuration.choice import CHOSEN_FROM
from tasks.evaluation.catalogue import CATALOGUE
from tasks.evaluation.paper import CLEAR, notation
from tasks.evaluation.store import Outcome, Store
from tasks.evaluation.tables import Cell, Estimate, Table, decimals

BASE = "cumulative"
CHALLENGER = "global"
SHIPPED_OPTIMUM, SAME_OPTIMUM = "direct", ("exact-counts", "constraint-tables")
METRICS = {"l1": "L1", "earth_mover": "earth mover", "range_error": "range queries"}


def data_sets(store: Store) -> Table:
    """What the data are like."""
    rows = store.rows("SELECT * FROM data_sets")
    found = {row["data"]: row for row in rows}
    cells = [
        (
            name,
            CATALOGUE[name].about,
            row["levels"],
            row["regions"],
            row["leaves"],
            row["largest_size"],
            row["groups"],
            "yes" if row["public_units"] else "no",
        )
        for name, row in _ordered(found)
    ]
    columns = ("data", "what", "levels", "regions", "leaves", "N", "groups", "units public")
    return Table("data", columns, tuple(cells))


def ratios(store: Store) -> Table:
    """Every ratio to M_c^dp: data, ε, level and metric by mechanism; the whole of it."""
    found = store.rows(
        "SELECT * FROM ratios WHERE mechanism <> ?"
        " ORDER BY data, epsilon::DOUBLE, mechanism, metric, level",
        [BASE],
    )
    cells = [
        (
            row["data"],
            row["epsilon"],
            row["mechanism"],
            row["level"],
            METRICS[row["metric"]],
            Estimate(row["ratio"], row["standard_error"]),
            row["repetitions"],
        )
        for row in found
    ]
    columns = ("data", "ε", "mechanism", "level", "metric", "ratio", "repetitions")
    return Table("ratios", columns, tuple(cells))


def challenge(store: Store, *, challenger: str = CHALLENGER) -> Table:
    """One mechanism against M_c^dp, level by level from the root: is it better everywhere?"""
    cases = _by_case(store, challenger)
    rows = []
    for (data, epsilon), levels in cases.items():
        cells = [
            " · ".join(str(levels[metric, level]) for level in _levels(levels))
            for metric in ("l1", "earth_mover")
        ]
        rows.append((data, epsilon, *cells, *_verdict(levels)))
    columns = ("data", "ε", "L1, root to leaves", "earth mover, root to leaves", "worse", "even")
    return Table(f"{challenger}-against-{BASE}", columns, tuple(rows))


def winners(store: Store, metric: str) -> Table:
    """The geometric mean over levels of every mechanism's ratio; the least is in bold.

    Of data of realistic size: those for the exact programs have next to no groups.
    """
    means: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in store.rows(
        "SELECT data, epsilon, mechanism, exp(avg(ln(ratio))) AS ratio FROM ratios"
        " WHERE metric = ? AND ratio > 0 GROUP BY ALL",
        [metric],
    ):
        if CATALOGUE[row["data"]].exact_epsilon is None:
            means[row["data"], row["epsilon"]][row["mechanism"]] = row["ratio"]
    names = [name for name in CONTENDERS if any(name in found for found in means.values())]
    rows = []
    for (data, epsilon), found in _ordered_cases(means):
        least = min(found.values())
        cells: list[Cell] = [data, epsilon]
        for name in names:
            ratio = found.get(name)
            text = None if ratio is None else f"{ratio:,.{decimals(ratio)}f}"
            cells.append(f"**{text}**" if ratio == least else text)
        rows.append(tuple(cells))
    return Table(f"ratios-{metric.replace('_', '-')}", ("data", "ε", *names), tuple(rows))


def violations(store: Store) -> Table:
    """Constraint violations of every mechanism, and whether it keeps what it promises."""
    found = {
        row["mechanism"]: row
        for row in store.rows(
            "SELECT mechanism, count(*) AS runs, count_if(violations > 0) AS broken,"
            " avg(violations) AS mean, max(violations) AS most FROM runs WHERE outcome = ?"
            " GROUP BY mechanism",
            [Outcome.ANSWERED],
        )
    }
    rows = []
    for name, contender in CONTENDERS.items():
        if name in found:
            row = found[name]
            promise = "none" if contender.consistent else "–"
            kept = "–" if not contender.consistent else "no" if row["broken"] else "yes"
            cells = (row["runs"], row["broken"], float(row["mean"]), row["most"])
            rows.append((notation(name), promise, *cells, kept))
    columns = ("mechanism", "promises", "runs", "with violations", "mean", "most", "kept")
    return Table("violations", columns, tuple(rows))


def broken_promises(store: Store) -> list[str]:
    """The mechanisms that claim consistency and were caught without it."""
    rows = store.rows("SELECT DISTINCT mechanism FROM runs WHERE violations > 0")
    broken = {row["mechanism"] for row in rows}
    return [name for name, known in CONTENDERS.items() if known.consistent and name in broken]


def optima(store: Store) -> Table:
    """Whether the papers' exact solvers reach the optimum of the dynamic program that is shipped.

    All three minimise the squared distance to the same noisy counts, so theirs must be the same.
    """
    found = store.rows(
        "SELECT a.data, a.epsilon, a.mechanism, count(*) AS runs,"
        " count_if(a.distance = b.distance) AS same FROM runs AS a"
        " JOIN runs AS b USING (data, epsilon, repetition)"
        " WHERE b.mechanism = ? AND list_contains(?, a.mechanism) AND a.distance IS NOT NULL"
        " GROUP BY ALL",
        [SHIPPED_OPTIMUM, list(SAME_OPTIMUM)],
    )
    places = [*CATALOGUE, *CONTENDERS]
    found.sort(key=lambda row: (places.index(row["data"]), places.index(row["mechanism"])))
    rows = [
        (row["data"], row["epsilon"], notation(row["mechanism"]), row["runs"], row["same"])
        for row in found
    ]
    shipped = CONTENDERS[SHIPPED_OPTIMUM].notation
    return Table("optima", ("data", "ε", "mechanism", "runs", f"optimum of {shipped}"), tuple(rows))


def costs(store: Store) -> Table:
    """Seconds and peak memory of a run, the mean over ε; what did not end."""
    found = store.rows(
        "SELECT data, mechanism, count(*) AS runs, avg(seconds) AS seconds, max(memory) AS memory,"
        " count_if(outcome = 'timed out') AS timed_out, count_if(outcome = 'failed') AS failed,"
        " count_if(outcome = 'not applicable') AS too_large,"
        " any_value(note) FILTER (note <> '') AS note FROM runs GROUP BY ALL"
    )
    by_data: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in found:
        by_data[row["data"]][row["mechanism"]] = row
    rows = []
    for data, mechanisms in _ordered(by_data):
        for name in (name for name in CONTENDERS if name in mechanisms):
            row = mechanisms[name]
            megabytes = None if row["memory"] is None else round(row["memory"] / 1e6)
            ends = [row[end] or None for end in ("timed_out", "too_large", "failed")]
            rows.append((data, notation(name), row["runs"], row["seconds"], megabytes, *ends))
    columns = (
        "data",
        "mechanism",
        "runs",
        "seconds",
        "MB",
        "timed out",
        "too large",
        "failed",
    )
    return Table("costs", columns, tuple(rows))


def choices(store: Store) -> list[dict[str, Any]]:
    """Which mechanism that may be chosen is best, by the shape of the data and ε.

    Best by the geometric mean, over levels, of its ratios of L1 and of earth mover's distance.
    """
    marks: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    repetitions: dict[tuple[str, str], int] = {}
    for row in store.rows(
        "SELECT data, epsilon, mechanism, exp(avg(ln(ratio))) AS ratio,"
        " min(repetitions) AS repetitions FROM ratios"
        " WHERE metric <> 'range_error' AND ratio > 0 GROUP BY ALL"
    ):
        case = row["data"], row["epsilon"]
        # Unlike data for the exact programs, releases have many groups.
        if row["mechanism"] in CHOSEN_FROM and CATALOGUE[row["data"]].exact_epsilon is None:
            marks[case][row["mechanism"]] = row["ratio"]
            repetitions[case] = min(repetitions.get(case, row["repetitions"]), row["repetitions"])
    facts = {row["data"]: row for row in store.rows("SELECT * FROM data_sets")}
    return [
        {
            **facts[case[0]],
            "epsilon": case[1],
            "repetitions": repetitions[case],
            "best": min(found, key=found.__getitem__),
            "ratios": {name: round(ratio, 4) for name, ratio in sorted(found.items())},
        }
        for case, found in _ordered_cases(marks)
    ]


Levels = dict[tuple[str, int], Estimate]


def _by_case(store: Store, mechanism: str) -> dict[tuple[str, str], Levels]:
    cases: dict[tuple[str, str], Levels] = defaultdict(dict)
    for row in store.rows("SELECT * FROM ratios WHERE mechanism = ?", [mechanism]):
        estimate = Estimate(row["ratio"], row["standard_error"])
        cases[row["data"], row["epsilon"]][row["metric"], row["level"]] = estimate
    return dict(_ordered_cases(cases))


def _levels(levels: Levels) -> Sequence[int]:
    return sorted({level for _, level in levels})


def _verdict(levels: Levels) -> tuple[str, str]:
    """Where it is worse, and where neither: metric and levels."""
    worse, even = [], []
    for metric in ("l1", "earth_mover"):
        for level in _levels(levels):
            ratio = levels[metric, level]
            doubt = CLEAR * (ratio.error or 0)
            if ratio.mean - doubt > 1:
                worse.append(f"{METRICS[metric]} {level}")
            elif ratio.mean + doubt >= 1:
                even.append(f"{METRICS[metric]} {level}")
    return ", ".join(worse) or "–", ", ".join(even) or "–"


def _ordered(found: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, found[name]) for name in CATALOGUE if name in found]


def _ordered_cases(cases: dict[tuple[str, str], Any]) -> list[tuple[tuple[str, str], Any]]:
    place = {name: number for number, name in enumerate(CATALOGUE)}
    return sorted(cases.items(), key=lambda item: (place[item[0][0]], float(item[0][1])))
