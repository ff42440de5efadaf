"""What the paper's text says of its figures, sentence by sentence, and what we measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from pgsr_core.evaluation.published import AS_PRINTED, COMPARED, EPSILONS, TAXI, TAXI_GROUPS
from tasks.evaluation.paper import stand_ins
from tasks.evaluation.store import Store
from tasks.evaluation.tables import Table, shown

# Seconds, or total L1 error, by ε and mechanism.
Numbers = Mapping[tuple[str, str], float]
RELAXED_H, EXACT_H, RELAXED_C, EXACT_C = COMPARED
TEN, HUNDRED = 10.0, 100.0
# Times of the same work differ by so much from run to run.
CLEARLY = 1.1


def claims(store: Store) -> Table:
    """Every statement of sections 9.2 and 9.3 that our results can answer, for each data set.

    They are about relaxed programs as the paper solved them; where such runs are missing, about
    those that are solved to the end.
    """
    rows: list[tuple[str, ...]] = []
    for data, name in stand_ins(store):
        seconds = _numbers(store, "SELECT *, seconds AS number FROM costs WHERE data = ?", name)
        rows += [(name, *row) for row in _about_times(seconds)]
        errors = _numbers(
            store, "SELECT *, mean AS number FROM totals WHERE metric = 'l1' AND data = ?", name
        )
        rows += [(name, *row) for row in _about_errors(errors)]
        if data == TAXI:
            rows += [(name, *row) for row in _about_the_bound(errors)]
    columns = ("data", "the paper says", "measured", "holds")
    return Table("claims", columns, tuple(rows))


def _about_times(seconds: Numbers) -> Iterator[tuple[str, str, str]]:
    yield _compare(
        "9.2 (1): M_H^dp is up to one order of magnitude faster than M_H^r",
        _ratios(seconds, RELAXED_H, EXACT_H),
        lambda ratios: max(ratios) >= TEN / 3,
    )
    yield _compare(
        "9.2 (1): M_c^dp is up to two orders of magnitude faster than M_c^r",
        _ratios(seconds, RELAXED_C, EXACT_C),
        lambda ratios: max(ratios) >= HUNDRED / 3,
    )
    yield _compare(
        "9.2 (2): M_c^r is consistently slower than M_H^r",
        _ratios(seconds, RELAXED_C, RELAXED_H),
        lambda ratios: min(ratios) > CLEARLY,
    )
    for mechanism, symbol in ((EXACT_H, "M_H^dp"), (EXACT_C, "M_c^dp")):
        ends = [seconds.get((epsilon, mechanism)) for epsilon in (EPSILONS[0], EPSILONS[-1])]
        slower = [ends[0] / ends[1]] if ends[0] and ends[1] else []
        yield _compare(
            f"9.2 (3): the time of {symbol} falls as ε grows (ε = 0.1 against 1)",
            slower,
            lambda ratios: min(ratios) > CLEARLY,
        )
    yield _compare(
        "9.2 (4): M_c^dp is faster than M_H^dp",
        _ratios(seconds, EXACT_H, EXACT_C),
        lambda ratios: min(ratios) > CLEARLY,
    )


def _about_errors(errors: Numbers) -> Iterator[tuple[str, str, str]]:
    for relaxed, exact, text in (
        (RELAXED_H, EXACT_H, "9.3 (1): M_H^dp has a smaller error than M_H^r"),
        (RELAXED_C, EXACT_C, "9.3 (1): M_c^dp has a smaller error than M_c^r"),
        (EXACT_H, EXACT_C, "9.3 (1): M_c^dp has a smaller error than M_H^dp"),
    ):
        yield _compare(text, _ratios(errors, relaxed, exact), lambda ratios: min(ratios) > 1)
    falls = [
        errors[before, name] / errors[after, name]
        for name in COMPARED
        for before, after in pairwise(EPSILONS)
        if (before, name) in errors and errors.get((after, name))
    ]
    yield _compare("9.3 (2): errors fall as ε grows", falls, lambda ratios: min(ratios) > 1)


def _about_the_bound(errors: Numbers) -> Iterator[tuple[str, str, str]]:
    """Who keeps G at a level errs by 2G there at most; three levels make 6G."""
    bound = 3 * 2 * TAXI_GROUPS
    most = max((errors[e, EXACT_C] for e in EPSILONS if (e, EXACT_C) in errors), default=None)
    if most is not None:
        yield (
            "Figure 10, Table 1: total errors of M_c^dp of 3.2 to 7.3 million",
            f"{most:,.0f} at most; keeping G allows {bound:,}",
            "cannot",
        )


def _ratios(numbers: Numbers, above: str, below: str) -> list[float]:
    return [
        numbers[epsilon, above] / numbers[epsilon, below]
        for epsilon in EPSILONS
        if (epsilon, above) in numbers and numbers.get((epsilon, below))
    ]


def _compare(
    statement: str, ratios: list[float], holds: Callable[[list[float]], bool]
) -> tuple[str, str, str]:
    if not ratios:
        return statement, "not measured", "–"
    low, high = shown(min(ratios)), shown(max(ratios))
    measured = f"{low} ×" if low == high else f"{low} to {high} ×"
    return statement, measured, "yes" if holds(ratios) else "no"


def _numbers(store: Store, query: str, data: str) -> Numbers:
    found = {
        (row["epsilon"], row["mechanism"]): row["number"]
        for row in store.rows(query, [data])
        if row["number"] is not None
    }
    as_printed = {
        (epsilon, mechanism): found[epsilon, AS_PRINTED[mechanism]]
        for epsilon, mechanism in found
        if (epsilon, AS_PRINTED.get(mechanism)) in found
    }
    return {**found, **as_printed}
