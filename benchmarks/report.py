"""``python -m benchmarks.report``: how large a report is and how soon a browser shows it.

Opening is measured in Debian's Chromium against an empty page, both opened in turn from a file:
from asking for the page until the root's charts are drawn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks import workloads
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins.intervals import confidence_intervals
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.postprocessing.steps import (
    ConsistentCountsFromCumulative,
    Int,
    LocalIsotonicFix,
)
from pgsr_core.scales import expected_absolute_noise
from pgsr_core.sensitivity import Neighbours
from tasks.publication.facts import BundleFacts, CheckFacts, StatedLevel
from tasks.publication.report.page import render_report
from tasks.publication.report.reading import LevelSizes, ReportTables

CHROMIUM = "/usr/bin/chromium"
SCALE = Fraction(6)
MOST_MEGABYTES = 25
MOST_SECONDS = 3
EMPTY = "<!doctype html><html lang=en><title>empty</title><body data-region=none></body></html>"


@dataclass(frozen=True)
class Opened:
    """The least seconds that a page took until it was complete."""

    report: float
    empty: float


def main() -> int:
    """Build a report, open it, and say what that took; exit code 1 if a bar is missed."""
    options = _parser().parse_args()
    shape = workloads.tiny(workloads.US) if options.quick else workloads.US
    start = time.perf_counter()
    facts, tables = release(shape)
    print(f"{shape.label}: made in {time.perf_counter() - start:.1f} s")
    start = time.process_time()
    page = render_report(facts, tables, formats=("parquet", "csv"))
    megabytes = len(page.encode()) / 1e6
    print(f"report: {megabytes:.1f} MB, written in {time.process_time() - start:.1f} s of CPU time")
    if options.keep:
        options.keep.write_text(page, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        opened = open_pages(Path(folder), page, repetitions=options.repetitions)
    print(
        f"opened in {opened.report:.2f} s, {opened.report / opened.empty:.1f} × an empty page "
        f"({opened.empty:.2f} s)"
    )
    return 0 if megabytes < MOST_MEGABYTES and opened.report < MOST_SECONDS else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny tree")
    parser.add_argument("--repetitions", metavar="N", type=int, default=3, help="best of N")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="write the report there, too")
    return parser


def open_pages(folder: Path, page: str, *, repetitions: int) -> Opened:
    """Open the report and an empty page in turn."""
    texts = {"report": page, "empty": EMPTY}
    best = dict.fromkeys(texts, float("inf"))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(repetitions):
            for name in texts:
                tab = browser.new_page()
                start = time.perf_counter()
                tab.goto((folder / f"{name}.html").as_uri())
                tab.wait_for_selector("body[data-region]", state="attached")
                best[name] = min(best[name], time.perf_counter() - start)
                tab.close()
        browser.close()
    return Opened(**best)


def release(shape: workloads.Shape) -> tuple[BundleFacts, ReportTables]:
    """Post-process a made-up measurement, as a release does."""
    work = workloads.cumulative(shape, scale=float(SCALE))
    public = PublicFacts(
        tree=work.tree,
        smallest_size=0,
        largest_size=shape.sizes,
        groups=work.groups,
        groups_by_region=work.groups_by_region,
        scales=(SCALE,) * len(shape.regions),
    )
    fitted = LocalIsotonicFix()(work.noisy, public)
    released = ConsistentCountsFromCumulative()(fitted.values, public)
    bounds = confidence_intervals(Query.CUMULATIVE, public, work.noisy, released.values)
    certificates = {"isotonic": fitted.certificate, "cpwl": released.certificate}
    tables = ReportTables(
        ids=work.tree.names,
        names=tuple(f"Region {name}" for name in work.tree.names),
        parents=work.tree.parent,
        region_levels=work.tree.level + 1,
        public_groups=tuple(work.groups_by_region.tolist()),
        released=released.values,
        measured=work.noisy,
        fitted=fitted.values,
        bounds=bounds,
        levels=_levels(work.tree, released.values, bounds),
    )
    return _facts(shape, work.groups, certificates), tables


def _levels(tree: RegionTree, released: Int, bounds: Int) -> tuple[LevelSizes, ...]:
    return tuple(
        LevelSizes(
            level=level + 1,
            regions=int(tree.level_start[level + 1] - tree.level_start[level]),
            counts=tuple(released[0].tolist()),
            groups=int(released[0].sum()),
            half_widths=(bounds[1::2] - released)[:, tree.level_start[level]],
        )
        for level in range(tree.levels)
    )


def _facts(
    shape: workloads.Shape, groups: int, certificates: Mapping[str, Mapping[str, object]]
) -> BundleFacts:
    epsilon = 1 / SCALE
    return BundleFacts(
        product="household-sizes",
        release="benchmark",
        published_on=date(2026, 1, 1),
        code_version="0.1.0",
        simulation=True,
        population="nobody",
        unit_of_privacy="person",
        epsilon=epsilon * len(shape.regions),
        levels=tuple(
            StatedLevel(
                level,
                regions,
                regions * shape.sizes,
                epsilon,
                SCALE,
                expected_absolute_noise(SCALE),
            )
            for level, regions in enumerate(shape.regions, start=1)
        ),
        neighbours=Neighbours.ADD_REMOVE,
        sensitivity=1,
        query=Query.CUMULATIVE,
        mechanism="cumulative",
        notation="M_c^dp",
        sampler="a seeded generator",
        units_from_data=False,
        groups=groups,
        smallest_size=0,
        largest_size=shape.sizes,
        largest_contribution=1,
        keeps_region_totals=False,
        spent_on_population=Fraction(0),
        budget=Fraction(4),
        checks=(CheckFacts("totals", "release", "Counts add up to G.", True, 1),),
        certificates=certificates,  # type: ignore[arg-type]
        digests={},
        margin_repetitions=100,
    )


if __name__ == "__main__":
    raise SystemExit(main())
