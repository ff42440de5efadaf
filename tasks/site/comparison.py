"""Two releases of one product side by side: which counts changed by more than their margins.

Read from the published tables alone. A 95 % interval misses the true number with a probability of
at most 5 %, so of two intervals that do not overlap, at least one misses with at most 10 % (union
bound) if the true numbers are equal: where they do not overlap, the true numbers differ with 90 %
confidence. Anything else is within the margins: the noise alone could have made the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pgsr_core.margins import MARGINS
from tasks.publication.report.bins import size_bins
from tasks.site.bundles import Bundle
from tasks.storage.duck import connect

if TYPE_CHECKING:
    import duckdb

CONFIDENCE = 90
MOST_LISTED = 40
_SIDES = ("earlier", "later")


class Verdict(StrEnum):
    """What a difference between two counts means."""

    SAME = "unchanged"
    WITHIN = "within the margins"
    BEYOND = "beyond the margins"
    UNKNOWN = "no margins stated"


@dataclass(frozen=True)
class Cell:
    """A count in both releases.

    Attributes:
        lowest: the least that the true number can have changed by, with CONFIDENCE; None where
            a release states no margins.
        highest: the most.
    """

    level: int
    region: str
    title: str
    size: int
    earlier: int
    later: int
    lowest: int | None
    highest: int | None
    verdict: Verdict

    @property
    def change(self) -> int:
        """Of the released count."""
        return self.later - self.earlier


@dataclass(frozen=True)
class LevelComparison:
    """One level: how many counts both releases have, and what became of them."""

    level: int
    regions: int
    cells: int
    verdicts: dict[Verdict, int]
    regions_beyond: int


@dataclass(frozen=True)
class Comparison:
    """Two releases, compared.

    Attributes:
        sizes: those that mean the same in both.
        largest: the top-coded size of each; where they differ it is compared in neither.
        levels: root first.
        root: every size of the root, or every range of sizes where a page could not show each
            (see bins.py), without margins, which do not add up.
        listed: of the regions below, the counts that changed most beyond their margins.
        beyond: how many there are of those.
        regions_gone: regions of the earlier release that the later one does not have.
        regions_new: the other way round.
        states_margins: whether both releases do.
    """

    sizes: range
    largest: tuple[int, int]
    levels: tuple[LevelComparison, ...]
    root: tuple[Cell, ...]
    listed: tuple[Cell, ...]
    beyond: int
    regions_gone: int
    regions_new: int
    states_margins: bool


def compare(earlier: Bundle, later: Bundle) -> Comparison:
    """Compare the released counts of two bundles."""
    bundles = (earlier, later)
    files = [path for bundle in bundles for path in _files(bundle) if path is not None]
    with (
        TemporaryDirectory() as spill,
        connect(None, readable=files, writable_folder=Path(spill)) as connection,
    ):
        for side, bundle in zip(_SIDES, bundles, strict=True):
            _load(connection, side, bundle)
        sizes, largest = _common_sizes(connection)
        _join(connection, sizes)
        below = _cells(connection, "verdict = 'beyond the margins' AND level > 1", MOST_LISTED)
        return Comparison(
            sizes=sizes,
            largest=largest,
            levels=_levels(connection),
            root=_root(connection, sizes),
            listed=below,
            beyond=_number(connection, "cells WHERE verdict = 'beyond the margins' AND level > 1"),
            regions_gone=_number(connection, _only_in("earlier", "later")),
            regions_new=_number(connection, _only_in("later", "earlier")),
            states_margins=all(bundle.table(MARGINS) is not None for bundle in bundles),
        )


def _files(bundle: Bundle) -> tuple[Path | None, ...]:
    return tuple(bundle.table(name) for name in ("regions", "group_sizes", MARGINS))


def _load(connection: duckdb.DuckDBPyConnection, side: str, bundle: Bundle) -> None:
    """Read the tables of a release: its regions, and its counts with their 95 % intervals."""
    regions, counts, margins = _files(bundle)
    if regions is None or counts is None:
        raise ValueError("a bundle without its tables")
    connection.execute(
        f"""
        CREATE TEMP TABLE regions_{side} AS
        SELECT region, CAST("level" AS INTEGER) AS "level", coalesce("name", region) AS title
        FROM {_reader(regions)}
        """,  # noqa: S608 (side and reader are constants; the path is bound)
        {"path": str(regions)},
    )
    connection.execute(
        f"""
        CREATE TEMP TABLE counts_{side} AS
        SELECT region, CAST(size AS BIGINT) AS size, CAST("count" AS BIGINT) AS "count",
               CAST(NULL AS BIGINT) AS lower, CAST(NULL AS BIGINT) AS upper
        FROM {_reader(counts)}
        """,  # noqa: S608
        {"path": str(counts)},
    )
    if margins is not None:
        connection.execute(
            f"""
            UPDATE counts_{side} AS c
            SET lower = CAST(m.lower_95 AS BIGINT), upper = CAST(m.upper_95 AS BIGINT)
            FROM {_reader(margins)} AS m
            WHERE m.region = c.region AND CAST(m.size AS BIGINT) = c.size
            """,  # noqa: S608
            {"path": str(margins)},
        )


def _reader(file: Path) -> str:
    """Everything in a CSV file is read as text: an id such as 007 is no number."""
    if file.suffix == ".parquet":
        return "read_parquet($path)"
    return "read_csv($path, header = true, all_varchar = true, nullstr = '')"


def _common_sizes(connection: duckdb.DuckDBPyConnection) -> tuple[range, tuple[int, int]]:
    """Sizes that mean the same in both: the largest stands for all above, too."""
    ends = []
    for side in _SIDES:
        [row] = connection.execute(f"SELECT min(size), max(size) FROM counts_{side}").fetchall()  # noqa: S608
        ends.append(row)
    (first, last), (other_first, other_last) = ends
    stop = last + 1 if last == other_last else min(last, other_last)
    return range(max(first, other_first), stop), (last, other_last)


def _join(connection: duckdb.DuckDBPyConnection, sizes: range) -> None:
    connection.execute(
        """
        CREATE TEMP TABLE cells AS
        SELECT r."level", c.region, r.title, c.size, e."count" AS earlier, c."count" AS later,
               c.lower - e.upper AS lowest, c.upper - e.lower AS highest,
               CASE WHEN e."count" = c."count" THEN 'unchanged'
                    WHEN lowest IS NULL OR highest IS NULL THEN 'no margins stated'
                    WHEN lowest > 0 OR highest < 0 THEN 'beyond the margins'
                    ELSE 'within the margins' END AS verdict
        FROM counts_later AS c
        JOIN counts_earlier AS e USING (region, size)
        JOIN regions_later AS r ON r.region = c.region
        WHERE c.size >= $first AND c.size < $stop
        """,
        {"first": sizes.start, "stop": sizes.stop},
    )


def _levels(connection: duckdb.DuckDBPyConnection) -> tuple[LevelComparison, ...]:
    rows = connection.execute(
        """
        SELECT "level", verdict, count(*), count(DISTINCT region) FROM cells
        GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    regions = dict(
        connection.execute(
            'SELECT "level", count(DISTINCT region) FROM cells GROUP BY ALL'
        ).fetchall()
    )
    found: dict[int, dict[Verdict, tuple[int, int]]] = {}
    for level, verdict, cells, of_regions in rows:
        found.setdefault(level, {})[Verdict(verdict)] = (cells, of_regions)
    return tuple(
        LevelComparison(
            level=level,
            regions=regions[level],
            cells=sum(cells for cells, _ in verdicts.values()),
            verdicts={verdict: verdicts.get(verdict, (0, 0))[0] for verdict in Verdict},
            regions_beyond=verdicts.get(Verdict.BEYOND, (0, 0))[1],
        )
        for level, verdicts in sorted(found.items())
    )


def _cells(connection: duckdb.DuckDBPyConnection, which: str, most: int) -> tuple[Cell, ...]:
    """Some cells: of one region by size, of several those first whose intervals are furthest."""
    rows: Sequence[tuple[Any, ...]] = connection.execute(
        f"""
        SELECT "level", region, title, size, earlier, later, lowest, highest, verdict
        FROM cells WHERE {which}
        ORDER BY CASE WHEN "level" > 1 THEN -greatest(lowest, -highest) END, "level", region, size
        LIMIT $most
        """,  # noqa: S608 (the condition is a constant)
        {"most": most},
    ).fetchall()
    return tuple(Cell(*(*row[:-1], Verdict(row[-1]))) for row in rows)


def _root(connection: duckdb.DuckDBPyConnection, sizes: range) -> tuple[Cell, ...]:
    bins = size_bins(sizes)
    if bins is None:
        return _cells(connection, "level = 1", len(sizes))
    rows = connection.execute(
        """
        SELECT "level", region, title, b.first, CAST(sum(earlier) AS BIGINT),
               CAST(sum(later) AS BIGINT), bool_and(earlier = later)
        FROM cells JOIN (SELECT unnest($firsts) AS first, unnest($lasts) AS last) AS b
             ON size BETWEEN b.first AND b.last
        WHERE "level" = 1 GROUP BY ALL ORDER BY b.first
        """,
        {"firsts": [first for first, _ in bins], "lasts": [last for _, last in bins]},
    ).fetchall()
    said = {True: Verdict.SAME, False: Verdict.UNKNOWN}
    return tuple(Cell(*(*row[:-1], None, None, said[row[-1]])) for row in rows)


def _only_in(side: str, other: str) -> str:
    return f"regions_{side} ANTI JOIN regions_{other} USING (region)"


def _number(connection: duckdb.DuckDBPyConnection, what: str) -> int:
    [(number,)] = connection.execute(f"SELECT count(*) FROM {what}").fetchall()  # noqa: S608
    return int(number)
