"""A rehearsal: a bundle of a few made-up numbers, built where and as the real one will be.

It goes through the code that publishes a release, up to the rename, in a private staging folder
that is removed again. Its numbers are made up, it says of itself that it is a simulation, and no
key signs it: whatever becomes of it, nobody can take it for the release.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import RegionTree
from pgsr_core.lineage import Lineage
from pgsr_core.margins import BOUNDS, HALF_WIDTHS, MARGINS, MARGINS_BY_LEVEL
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.postprocessing.steps import cumulative_from_counts
from tasks.configuration.plan import ReleasePlan
from tasks.publication.bundle import build_bundle
from tasks.publication.errors import CannotBuildBundle
from tasks.publication.facts import BundleFacts, CheckFacts, StatedLevel
from tasks.publication.place import Staging, publish_bundle
from tasks.publication.report.page import render_report
from tasks.publication.report.reading import FITTED, read_report_tables
from tasks.storage.duck import connect
from tasks.storage.tables import MatrixStore, write_regions

if TYPE_CHECKING:
    import duckdb

_LARGEST_SIZE = 2
_GROUPS = 5
_TABLE = "group_sizes"
_CHECK = CheckFacts("rehearsal", "rehearsal", "This bundle is made up.", True, 1)
_NO_DIGEST = "0" * 64


def rehearse(plan: ReleasePlan, staging: Staging) -> None:
    """Build and move a small bundle inside of a staging folder.

    Raises:
        PgsrError: what would stop the publication.
        CannotBuildBundle: something that nobody foresaw would.
    """
    facts = _facts(plan)
    resources = plan.configuration.resources
    formats = plan.configuration.publish.formats
    try:
        with connect(
            None,
            writable_folder=staging.folder,
            memory_limit=resources.memory_limit,
            threads=resources.threads,
        ) as connection:
            _fill(connection, facts)
            # A page that cannot be made does not stop a bundle later: it is asked for by itself.
            render_report(facts, read_report_tables(connection, facts), formats=formats)
            build_bundle(connection, staging.bundle, facts, formats=formats)
        publish_bundle(staging.bundle, staging.folder / "published")
    except PgsrError:
        raise
    except Exception as error:
        raise CannotBuildBundle(f"{type(error).__name__}: {error}") from error


def _facts(plan: ReleasePlan) -> BundleFacts:
    """What the documents will say, of one region a level and of a few sizes."""
    configuration = plan.configuration
    largest = min(configuration.sizes.max, _LARGEST_SIZE)
    measured = plan.mechanism.query.measured_sizes(range(plan.smallest_size, largest + 1))
    repetitions = configuration.margins.repetitions
    made = [step.name for step in plan.mechanism.steps] + [MARGINS] * (repetitions > 0)
    return BundleFacts(
        product=plan.product,
        release=plan.release,
        published_on=datetime.now(UTC).date(),
        code_version=plan.code_version,
        simulation=True,
        population=configuration.population.name,
        unit_of_privacy=configuration.population.unit_of_privacy,
        epsilon=configuration.privacy.epsilon,
        levels=tuple(
            StatedLevel(
                level=level.level,
                regions=1,
                cells=len(measured),
                epsilon=level.epsilon,
                scale=level.scale,
                expected_absolute_noise=level.expected_error,
            )
            for level in plan.levels
        ),
        neighbours=configuration.privacy.neighbours,
        sensitivity=plan.sensitivity,
        query=plan.mechanism.query,
        mechanism=plan.mechanism.name,
        notation=plan.mechanism.notation,
        sampler=plan.sampler,
        units_from_data=configuration.units_from_data,
        groups=_GROUPS,
        smallest_size=plan.smallest_size,
        largest_size=largest,
        largest_contribution=configuration.sizes.largest_contribution,
        keeps_region_totals=plan.mechanism.keeps_region_totals,
        spent_on_population=Fraction(0),
        budget=configuration.population.budget,
        checks=(_CHECK,),
        certificates={name: {} for name in made},
        digests={_TABLE: _NO_DIGEST, "measurements": _NO_DIGEST},
        lineage=Lineage(replaces=configuration.replaces),
        margin_repetitions=repetitions,
    )


def _fill(connection: duckdb.DuckDBPyConnection, facts: BundleFacts) -> None:
    """Write the tables that a bundle is made from: all groups have the smallest size."""
    names = [f"level-{level.level}" for level in facts.levels]
    tree = RegionTree.from_table(names, ["", *names[:-1]])
    public = None if facts.units_from_data else np.full(tree.regions, _GROUPS)
    write_regions(connection, tree, tuple(names), public)
    store = MatrixStore(connection, tree)
    counts = np.zeros((tree.regions, len(facts.sizes)), dtype=np.int64)
    counts[:, 0] = _GROUPS
    measured = counts
    if facts.query == Query.CUMULATIVE:
        measured = cumulative_from_counts(counts, largest_size=facts.largest_size)
    written = [
        (_TABLE, counts, facts.sizes),
        ("measurements", measured, facts.measured_sizes),
        (FITTED, measured, facts.measured_sizes),
        (MARGINS, np.stack([counts] * len(BOUNDS)), facts.sizes),
        (MARGINS_BY_LEVEL, np.stack([counts] * len(HALF_WIDTHS)), facts.sizes),
    ]
    for table, values, sizes in written:
        store.write(table, table, values, sizes=sizes, inputs="rehearsal")
