"""The paper's Table 1 and Figures 8 to 10 with our numbers beside the printed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgsr_core.evaluation import published
from pgsr_core.evaluation.contenders import CONTENDERS
from pgsr_core.evaluation.published import (
    AS_PRINTED,
    CENSUS,
    COMPARED,
    EPSILONS,
    TABLE_1,
    TAXI,
)
from tasks.evaluation.catalogue import CATALOGUE, SERIES, SERIES_EPSILON
from tasks.evaluation.store import Store
from tasks.evaluation.tables import Cell, Estimate, Table

# How the names of tables of orders begin.
ORDER = "order"
# A difference of more than this many standard errors is no accident.
CLEAR = 2.0
NOT_MEASURED, AGREES, WITHIN, DISAGREES = "not measured", "yes", "within the error", "no"


def notation(mechanism: str) -> str:
    """The name of a mechanism in the literature, for a page."""
    known = CONTENDERS.get(mechanism)
    return mechanism if known is None else f"{known.notation} ({mechanism})"


def our_data(store: Store, data: str) -> str | None:
    """The first data set with results that stands for one of the paper's, if there is any."""
    here = {row["data"] for row in store.rows("SELECT DISTINCT data FROM runs")}
    standing = (name for name, known in CATALOGUE.items() if known.stands_for == data)
    return next((name for name in standing if name in here), None)


def variants(mechanism: str) -> tuple[str, ...]:
    """Our contenders for a mechanism of Table 1: solved to the end, and as the paper prints it."""
    return (mechanism, AS_PRINTED[mechanism]) if mechanism in AS_PRINTED else (mechanism,)


def table_1(store: Store, data: str) -> Table:
    """Mean L1 errors by level and constraint violations of Table 1's mechanisms."""
    ours, costs = _means(store, data), _costs(store, our_data(store, data))
    levels = range(1, 4)
    rows: list[tuple[Cell, ...]] = []
    for epsilon in EPSILONS:
        for theirs, mechanism in ((name, ours) for name in COMPARED for ours in variants(name)):
            if mechanism != theirs and (epsilon, mechanism) not in costs:
                continue
            printed = TABLE_1[data, epsilon, theirs]
            cells: list[Cell] = [epsilon, notation(mechanism)]
            for level in levels:
                cells += [ours.get((epsilon, mechanism, level)), int(printed.l1[level - 1])]
            cost = costs.get((epsilon, mechanism), {})
            violations = cost.get("violations")
            if violations is not None:
                violations = Estimate(violations, cost["violations_error"])
            rows.append((*cells, violations, printed.violations))
    headings = [name for level in levels for name in (f"level {level}", "paper")]
    columns = ("ε", "mechanism", *headings, "violations", "paper")
    return Table(f"table-1-{data}", columns, tuple(rows))


def orders(store: Store, data: str, *, as_printed: bool) -> Table:
    """Every order that Table 1 shows clearly, and whether ours is the same.

    Args:
        store: the results.
        data: of Table 1.
        as_printed: whether relaxed programs are solved as the paper prints them, or to the end.
    """
    ours, solved = _means(store, data), AS_PRINTED if as_printed else {}
    rows = []
    for order in published.clear_orders(data):
        pair = [solved.get(name, name) for name in (order.smaller, order.larger)]
        smaller, larger = (ours.get((order.epsilon, name, order.level)) for name in pair)
        verdict = NOT_MEASURED if smaller is None or larger is None else _agrees(smaller, larger)
        rows.append(
            (
                order.epsilon,
                order.level,
                *(notation(name) for name in pair),
                f"{order.gap:.0%}",
                smaller,
                larger,
                verdict,
            )
        )
    columns = (
        "ε",
        "level",
        "smaller in Table 1",
        "larger",
        "gap",
        "ours",
        "ours, larger",
        "agrees",
    )
    return Table(f"{ORDER}-{data}{'-as-printed' if as_printed else ''}", columns, tuple(rows))


def _agrees(smaller: Estimate, larger: Estimate) -> str:
    if smaller.mean < larger.mean:
        return AGREES
    doubt = ((smaller.error or 0) ** 2 + (larger.error or 0) ** 2) ** 0.5
    return WITHIN if smaller.mean - larger.mean <= CLEAR * doubt else DISAGREES


def figure_8(store: Store) -> Table:
    """Seconds of every mechanism on the series of growing N, at the ε that all of them have."""
    costs = store.rows(
        "SELECT largest_size, costs.* FROM costs JOIN data_sets USING (data)"
        " WHERE starts_with(data, ?) AND epsilon = ? ORDER BY largest_size",
        [f"{SERIES}-", SERIES_EPSILON],
    )
    names = [name for name in CONTENDERS if any(row["mechanism"] == name for row in costs)]
    cells = {(row["largest_size"], row["mechanism"]): _seconds(row) for row in costs}
    sizes = sorted({row["largest_size"] for row in costs})
    rows = [(size, *(cells.get((size, name)) for name in names)) for size in sizes]
    return Table("figure-8", ("N", *(notation(name) for name in names)), tuple(rows))


def figure_9(store: Store) -> Table:
    """Seconds of the mechanisms that the paper compares on census and taxi data."""
    names = [name for mechanism in COMPARED for name in variants(mechanism)]
    rows = []
    for _, name in stand_ins(store):
        costs = _costs(store, name)
        for epsilon in EPSILONS:
            found = [costs.get((epsilon, mechanism)) for mechanism in names]
            rows.append((name, epsilon, *(None if c is None else _seconds(c) for c in found)))
    return Table("figure-9", ("data", "ε", *map(notation, names)), tuple(rows))


def figure_10(store: Store) -> Table:
    """The L1 error of all levels together, ours and the paper's."""
    rows = []
    for data, name in stand_ins(store):
        found = store.rows("SELECT * FROM totals WHERE data = ? AND metric = 'l1'", [name])
        ours = {(row["epsilon"], row["mechanism"]): row for row in found}
        for epsilon in EPSILONS:
            cells: list[Cell] = [name, epsilon]
            for mechanism in COMPARED:
                for variant in variants(mechanism):
                    row = ours.get((epsilon, variant))
                    mean = None if row is None else Estimate(row["mean"], row["standard_error"])
                    cells.append(mean)
                cells.append(int(TABLE_1[data, epsilon, mechanism].total))
            rows.append(tuple(cells))
    headings = [text for name in COMPARED for text in (*map(notation, variants(name)), "paper")]
    return Table("figure-10", ("data", "ε", *headings), tuple(rows))


def stand_ins(store: Store) -> Iterator[tuple[str, str]]:
    """The paper's data sets with those of ours that stand for them."""
    for data in (CENSUS, TAXI):
        name = our_data(store, data)
        if name is not None:
            yield data, name


def _means(store: Store, data: str) -> dict[tuple[str, str, int], Estimate]:
    rows = store.rows(
        "SELECT * FROM means WHERE data = ? AND metric = 'l1'", [our_data(store, data)]
    )
    return {
        (row["epsilon"], row["mechanism"], row["level"]): Estimate(
            row["mean"], row["standard_error"]
        )
        for row in rows
    }


def _costs(store: Store, name: str | None) -> dict[tuple[str, str], dict[str, Any]]:
    rows = store.rows("SELECT * FROM costs WHERE data = ?", [name])
    return {(row["epsilon"], row["mechanism"]): row for row in rows}


def _seconds(cost: Mapping[str, Any]) -> Cell:
    """How long it took, or why there is no such number."""
    if cost["answered"]:
        return Estimate(cost["seconds"], cost["standard_error"])
    if cost["timed_out"]:
        return f"> {cost['time_limit']:,.0f}"
    return "too large" if cost["not_applicable"] else "failed"
