"""The paper's Table 1 and Figures 8 to 10 with our numbers beside the printed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgsr_core.evaluation import published
from pgsr_core.evaluation.contenders import CONTENDERS
from pgsr_core.evaluation.published import CENSUS, COMPARED, EPSILONS, TABLE_1, TAXI
from tasks.evaluation.catalogue import SERIES
from tasks.evaluation.store import Store
from tasks.evaluation.tables import Cell, Estimate, Table

# Which of our data sets stand for the paper's: the first that there are results of.
STANDS_FOR = {CENSUS: ("census", "census-like"), TAXI: ("taxi-like",)}
# A difference of more than this many standard errors is no accident.
CLEAR = 2.0
NOT_MEASURED, AGREES, WITHIN, DISAGREES = "not measured", "yes", "within the error", "no"


def notation(mechanism: str) -> str:
    """The name of a mechanism in the literature, for a page."""
    known = CONTENDERS.get(mechanism)
    return mechanism if known is None else f"{known.notation} ({mechanism})"


def our_data(store: Store, data: str) -> str | None:
    """The data set that stands for one of the paper's, if there are results of it."""
    here = {row["data"] for row in store.rows("SELECT DISTINCT data FROM runs")}
    return next((name for name in STANDS_FOR[data] if name in here), None)


def table_1(store: Store, data: str) -> Table:
    """Mean L1 errors by level and constraint violations of Table 1's mechanisms."""
    ours, costs = _means(store, data), _costs(store, our_data(store, data))
    levels = range(1, 4)
    rows: list[tuple[Cell, ...]] = []
    for epsilon in EPSILONS:
        for mechanism in COMPARED:
            printed = TABLE_1[data, epsilon, mechanism]
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


def orders(store: Store, data: str) -> Table:
    """Every order that Table 1 shows clearly, and whether ours is the same."""
    ours = _means(store, data)
    rows = []
    for order in published.clear_orders(data):
        smaller = ours.get((order.epsilon, order.smaller, order.level))
        larger = ours.get((order.epsilon, order.larger, order.level))
        verdict = NOT_MEASURED if smaller is None or larger is None else _agrees(smaller, larger)
        rows.append(
            (
                order.epsilon,
                order.level,
                notation(order.smaller),
                notation(order.larger),
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
    return Table(f"order-{data}", columns, tuple(rows))


def _agrees(smaller: Estimate, larger: Estimate) -> str:
    if smaller.mean < larger.mean:
        return AGREES
    doubt = ((smaller.error or 0) ** 2 + (larger.error or 0) ** 2) ** 0.5
    return WITHIN if smaller.mean - larger.mean <= CLEAR * doubt else DISAGREES


def figure_8(store: Store) -> Table:
    """Seconds of every mechanism on the series of growing N."""
    costs = store.rows(
        "SELECT largest_size, costs.* FROM costs JOIN data_sets USING (data)"
        " WHERE starts_with(data, ?) ORDER BY largest_size",
        [f"{SERIES}-"],
    )
    names = [name for name in CONTENDERS if any(row["mechanism"] == name for row in costs)]
    cells = {(row["largest_size"], row["mechanism"]): _seconds(row) for row in costs}
    sizes = sorted({row["largest_size"] for row in costs})
    rows = [(size, *(cells.get((size, name)) for name in names)) for size in sizes]
    return Table("figure-8", ("N", *(notation(name) for name in names)), tuple(rows))


def figure_9(store: Store) -> Table:
    """Seconds of the mechanisms that the paper compares on census and taxi data."""
    rows = []
    for _, name in stand_ins(store):
        costs = _costs(store, name)
        for epsilon in EPSILONS:
            found = [costs.get((epsilon, mechanism)) for mechanism in COMPARED]
            rows.append((name, epsilon, *(None if c is None else _seconds(c) for c in found)))
    return Table("figure-9", ("data", "ε", *(notation(name) for name in COMPARED)), tuple(rows))


def figure_10(store: Store) -> Table:
    """The L1 error of all levels together, ours and the paper's."""
    rows = []
    for data, name in stand_ins(store):
        found = store.rows("SELECT * FROM totals WHERE data = ? AND metric = 'l1'", [name])
        ours = {(row["epsilon"], row["mechanism"]): row for row in found}
        for epsilon in EPSILONS:
            cells: list[Cell] = [name, epsilon]
            for mechanism in COMPARED:
                row = ours.get((epsilon, mechanism))
                estimate = None if row is None else Estimate(row["mean"], row["standard_error"])
                cells += [estimate, int(TABLE_1[data, epsilon, mechanism].total)]
            rows.append(tuple(cells))
    headings = [text for name in COMPARED for text in (notation(name), "paper")]
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
