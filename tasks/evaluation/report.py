"""What an evaluation leaves behind: tables, figures, one document of all, and a page filled in.

Parts of a page stand between ``<!-- evaluation: NAME -->`` and ``<!-- /evaluation -->``; what lies
in between is replaced, the rest is left as it is.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from pgsr_core.errors import PgsrError
from pgsr_core.evaluation.published import CENSUS, REPETITIONS, TAXI
from tasks.evaluation import comparison, paper
from tasks.evaluation.catalogue import ALL, expand
from tasks.evaluation.claims import claims
from tasks.evaluation.figures import figures
from tasks.evaluation.order import Order
from tasks.evaluation.store import NOT_PRIVATE, Outcome, Store
from tasks.evaluation.tables import Table
from tasks.storage.zones import disk_told

PART = re.compile(r"(<!-- evaluation: ([a-z0-9-]+) -->\n).*?(<!-- /evaluation -->)", re.DOTALL)
CAVEATS = f"""\
- **{NOT_PRIVATE[0].upper()}{NOT_PRIVATE[1:]}.** Every number here is a difference from the truth.
- The paper's data are not public. Census data are its construction on other counts of households,
  taxi data are drawn to have its shape: numbers can be compared in kind, not one by one.
- The taxi errors that the paper prints cannot be matched by anybody: two tables of 13,282 groups
  differ by 2G = 26,564 at a level at most, and Table 1 has up to 9,157,000.
- Seconds are those of post-processing on one core, noise excluded; memory is the peak above what
  the process held before the run, the measurements included.
"""


class NoSuchPart(PgsrError):
    """A page has a marker that no result goes with."""

    def __init__(self, page: Path, part: str) -> None:
        super().__init__(
            f"{page} has a marker for {part}, which an evaluation does not have. "
            "Remedy: take one of the names in evaluation.md of the results."
        )


def write_report(order: Order, store: Store) -> None:
    """Write everything anew from the results that there are.

    Raises:
        StateNotWritten: the disk did not take it.
        NoSuchPart: the page has a marker of another name.
    """
    folder = Path(order.folder)
    parts = {"run": _about_the_run(order, store), "caveats": CAVEATS}
    tables = all_tables(store)
    for table in tables:
        _write(folder / "tables" / f"{table.name}.csv", table.csv())
        parts[table.name] = table.markdown()
        if table.name.startswith(paper.ORDER):
            parts[table.name.replace(paper.ORDER, "disagreements")] = _disagreements(table)
    drawn = figures(store)
    for name, svg in drawn.items():
        _write(folder / "figures" / f"{name}.svg", svg)
    _write(folder / "measured.json", json.dumps(_measured(order, store), indent=1) + "\n")
    _write(folder / "evaluation.md", _document(parts))
    if order.page is not None:
        fill_page(Path(order.page), parts, drawn)


def all_tables(store: Store) -> list[Table]:
    """Every table of the results."""
    return [
        comparison.data_sets(store),
        paper.table_1(store, CENSUS),
        paper.table_1(store, TAXI),
        *(
            paper.orders(store, data, as_printed=as_printed)
            for data, as_printed in product((CENSUS, TAXI), (False, True))
        ),
        paper.figure_8(store),
        paper.figure_9(store),
        paper.figure_10(store),
        claims(store),
        comparison.challenge(store),
        *(comparison.winners(store, metric) for metric in comparison.METRICS),
        comparison.violations(store),
        comparison.optima(store),
        comparison.costs(store),
        comparison.ratios(store),
    ]


def fill_page(page: Path, parts: dict[str, str], drawn: dict[str, str]) -> None:
    """Replace the marked parts of a page, and the figures in the folder of its name beside it."""

    def part(marked: re.Match[str]) -> str:
        opening, name, closing = marked.groups()
        if name not in parts:
            raise NoSuchPart(page, name)
        return f"{opening}{parts[name]}{closing}"

    with disk_told(page):
        text = page.read_text(encoding="utf-8")
    _write(page, PART.sub(part, text))
    for name, svg in drawn.items():
        _write(page.with_suffix("") / f"{name}.svg", svg)


def _measured(order: Order, store: Store) -> dict[str, Any]:
    """What `mechanism: auto` chooses from: the ratios of mechanisms that can publish."""
    settings = comparison.choices(store)
    return {
        "command": command(order),
        "repetitions": min((setting["repetitions"] for setting in settings), default=0),
        "settings": settings,
    }


def _about_the_run(order: Order, store: Store) -> str:
    [counted] = store.rows(
        "SELECT count(*) AS runs, coalesce(max(repetition) + 1, 0) AS repetitions,"
        " count_if(outcome = ?) AS answered, coalesce(sum(seconds), 0) AS seconds FROM runs",
        [Outcome.ANSWERED],
    )
    quick = counted["repetitions"] < REPETITIONS
    marked = f" **A quick run: the paper has {REPETITIONS} repetitions.**" if quick else ""
    return (
        f"{counted['runs']:,} runs, {counted['answered']:,} with an answer, up to "
        f"{counted['repetitions']} repetitions, {counted['seconds']:,.0f} s of post-processing; "
        f"seed {order.seed}, time limit {order.time_limit:,.0f} s, {datetime.now(UTC):%Y-%m-%d}."
        f"{marked}\n\n```console\n$ {command(order)}\n```\n"
    )


def command(order: Order) -> str:
    """The command that makes these results, in a folder of that name wherever one likes."""
    everything = order.data == expand((ALL,))
    options = {
        "data": ALL if everything else ",".join(order.data),
        "mechanisms": ALL if order.slow else ",".join(order.mechanisms),
        "epsilons": ",".join(order.epsilons),
        "repetitions": str(order.repetitions),
        "seed": str(order.seed),
        "time-limit": f"{order.time_limit:g}",
        **({} if order.patience == order.time_limit else {"patience": f"{order.patience:g}"}),
        **({} if order.page is None else {"page": "/".join(Path(order.page).parts[-2:])}),
    }
    words = [f"--{name} {value}" for name, value in options.items()]
    return " ".join(["pgsr evaluate", Path(order.folder).name, *words])


def _disagreements(table: Table) -> str:
    """How many clear orders of Table 1 are ours too, and those that are not."""
    verdicts = [row[-1] for row in table.rows]
    measured = [verdict for verdict in verdicts if verdict != paper.NOT_MEASURED]
    others = tuple(row for row in table.rows if row[-1] in (paper.WITHIN, paper.DISAGREES))
    same = measured.count(paper.AGREES)
    text = f"{same} of {len(measured)} agree ({len(verdicts)} in the table).\n"
    if not others:
        return text
    return f"{text}\n{Table(table.name, table.columns, others).markdown()}"


def _document(parts: dict[str, str]) -> str:
    sections = "".join(f"\n## {name}\n\n{text}" for name, text in parts.items() if name != "ratios")
    return f"# Evaluation\n{sections}"


def _write(path: Path, text: str) -> None:
    with disk_told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
