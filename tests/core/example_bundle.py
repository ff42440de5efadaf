"""A small bundle made by hand, that tests may spoil before or after it is signed."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pgsr_core.attestation.keys import PrivateKey
from pgsr_core.attestation.provenance import (
    PROVENANCE_FILE,
    LedgerHead,
    Provenance,
    sign_release,
)
from pgsr_core.canonical import table_digest
from pgsr_core.documents.checks import required_checks
from pgsr_core.documents.package import datapackage_document
from pgsr_core.documents.wordings import marked, privacy_document
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins import BOUNDS, HALF_WIDTHS, Margins
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.scales import expected_absolute_noise
from pgsr_core.sensitivity import Neighbours, l1_sensitivity
from tasks.publication.documents import checks_document
from tasks.publication.facts import BundleFacts, CheckFacts, StatedLevel

KEY = PrivateKey.generate()
Rows = list[list[Any]]

# A ragged tree: country → north, south; south → s1. One name is a word for "missing".
REGIONS: Rows = [
    ["country", None, 1, "The Country", 10],
    ["NA", "country", 2, 'North, "wild"', 6],
    ["south", "country", 2, "", 4],
    ["s1", "south", 3, "Süd", 4],
]
COUNTS = [[3, 4, 3], [2, 2, 2], [1, 2, 1], [1, 2, 1]]  # sizes 0, 1, 2
CUMULATIVE = [[8, 2], [3, -1], [5, 1], [3, 0]]  # at least 1, at least 2
DIRECT = [[3, 5, 2], [1, 2, -2], [1, 2, 3], [0, 2, 1]]
COLUMNS = {
    "regions": ["region", "parent", "level", "name", "groups"],
    "group_sizes": ["level", "region", "size", "count"],
    "measurements": ["level", "region", "size", "value", "scale"],
    "margins": ["level", "region", "size", *BOUNDS],
    "margins_by_level": ["level", "size", *HALF_WIDTHS],
}
MARGIN_REPETITIONS = 2


@dataclass
class Draft:
    """The parts of a bundle before it is written; every part can be changed."""

    facts: BundleFacts
    provenance: dict[str, Any]
    tables: dict[str, Rows]
    forms: tuple[str, ...] = ("parquet", "csv")
    types: dict[str, Any] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    edits: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    package: Callable[[dict[str, Any]], object] | None = None

    def state(self, **changes: Any) -> Draft:
        """Say everything anew, from facts that are changed: consistent words, and a provenance."""
        self.facts = replace(self.facts, **changes)
        self.provenance = _provenance(self.facts)
        self.documents = {
            "privacy.json": {"simulation": False, **privacy_document(self.facts)},
            "checks.json": {"simulation": False, **checks_document(self.facts)},
        }
        return self

    def unsigned(self) -> dict[str, bytes]:
        """Write every file but the signature."""
        files = {
            f"{name}.{form}": _written(form, COLUMNS[name], rows, self.types)
            for name, rows in self.tables.items()
            for form in self.forms
        }
        for name, document in self.documents.items():
            files[name] = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
        files["report.html"] = b"<!doctype html><title>release</title>\n"
        for name, edit in self.edits.items():
            files[name] = edit(files[name])
        listed = package(files, self.facts)
        if self.package is not None:
            document = json.loads(listed)
            self.package(document)
            listed = json.dumps(document).encode()
        return {**files, "datapackage.json": listed}

    def signed(self, key: PrivateKey = KEY) -> dict[str, bytes]:
        """Write and sign every file."""
        return seal(self.unsigned(), Provenance(**self.provenance), key)


def seal(files: dict[str, bytes], provenance: Provenance, key: PrivateKey) -> dict[str, bytes]:
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return {**files, PROVENANCE_FILE: sign_release(checksums, provenance, key=key)}


@dataclass(frozen=True)
class Listed:
    sha256: str
    size: int


def package(files: dict[str, bytes], facts: BundleFacts, **changes: Any) -> bytes:
    """The data package, as its publisher derives it; without files, nothing but the changes."""
    listed = {
        name: Listed(hashlib.sha256(content).hexdigest(), len(content))
        for name, content in files.items()
    }
    formats = [name.partition(".")[2] for name in files if name.startswith("regions.")]
    try:
        document = datapackage_document(listed, facts, formats=formats)
    except KeyError:  # a table was left out; list what is there
        document = datapackage_document(listed, facts, formats=()) if "report.html" in files else {}
        document["resources"] = [
            {"path": name, "bytes": file.size, "hash": f"sha256:{file.sha256}"}
            for name, file in listed.items()
        ]
    return json.dumps(marked({**document, **changes}, simulation=facts.simulation)).encode()


def example(
    *,
    query: Query = Query.CUMULATIVE,
    units_from_data: bool = False,
    forms: tuple[str, ...] = ("parquet", "csv"),
    counts: list[list[int]] | None = None,
) -> Draft:
    """A bundle that keeps every promise, unless the counts are changed."""
    tree = RegionTree.from_table([row[0] for row in REGIONS], [row[1] for row in REGIONS])
    counts = [list(row) for row in (counts or COUNTS)]
    noisy = CUMULATIVE if query is Query.CUMULATIVE else DIRECT
    if units_from_data:
        counts = [[row[0] + row[1], row[2]] for row in counts]
        noisy = CUMULATIVE
    smallest = 1 if units_from_data else 0
    facts = _facts(query, units_from_data, smallest, len(noisy[0]))
    margins = example_margins(counts)
    facts = replace(facts, digests=_digests(tree, counts, noisy, margins, facts))
    regions = [[*row[:4], None if units_from_data else row[4]] for row in REGIONS]
    scales = [float(level.scale) for level in facts.levels]
    tables = {
        "regions": regions,
        "group_sizes": _cells(counts, smallest),
        "measurements": [
            [*row, scales[row[0] - 1]] for row in _cells(noisy, facts.measured_sizes.start)
        ],
        **margin_rows(margins, smallest),
    }
    return Draft(facts=facts, provenance={}, tables=tables, forms=forms).state()


def without_margins(draft: Draft) -> Draft:
    """The same release, which states no margins."""
    facts, of_margins = draft.facts, ("margins", "margins_by_level")
    for table in of_margins:
        del draft.tables[table]
    return draft.state(
        checks=passed_checks(public=not facts.units_from_data, margins=False),
        certificates={step: c for step, c in facts.certificates.items() if step != "margins"},
        digests={table: d for table, d in facts.digests.items() if table not in of_margins},
        margin_repetitions=0,
    )


def example_margins(counts: list[list[int]]) -> Margins:
    """Margins that keep every promise: one to either side, and two."""
    values = np.array(counts)
    sides = [np.maximum(values - 1, 0), values + 1, np.maximum(values - 2, 0), values + 2]
    widths = [np.full((3, values.shape[1]), width) for width in (1, 2)]
    return Margins(bounds=np.stack(sides), half_widths=np.stack(widths))


def margin_rows(margins: Margins, smallest: int) -> dict[str, Rows]:
    sizes = range(smallest, smallest + margins.bounds.shape[2])
    return {
        "margins": [
            [region[2], region[0], size, *margins.bounds[:, row, column].tolist()]
            for row, region in enumerate(REGIONS)
            for column, size in enumerate(sizes)
        ],
        "margins_by_level": [
            [level + 1, size, *margins.half_widths[:, level, column].tolist()]
            for level in range(margins.half_widths.shape[1])
            for column, size in enumerate(sizes)
        ],
    }


def _facts(query: Query, units_from_data: bool, smallest: int, measured: int) -> BundleFacts:
    sensitivity = l1_sensitivity(
        query, neighbours=Neighbours.ADD_REMOVE, largest_contribution=1, largest_size=2
    )
    mechanism = "cumulative" if query is Query.CUMULATIVE else "direct"
    shares = (Fraction(1, 6), Fraction(1, 12), Fraction(1, 4))
    return BundleFacts(
        product="household-sizes",
        release="2026-Q3",
        published_on=date(2026, 10, 1),
        code_version="0.1.0",
        simulation=False,
        population="residents-2026",
        unit_of_privacy="person",
        epsilon=Fraction(1, 2),
        levels=tuple(
            StatedLevel(
                level=level,
                regions=regions,
                cells=measured * regions,
                epsilon=share,
                scale=sensitivity / share,
                expected_absolute_noise=expected_absolute_noise(sensitivity / share),
            )
            for level, regions, share in zip((1, 2, 3), (1, 2, 1), shares, strict=True)
        ),
        neighbours=Neighbours.ADD_REMOVE,
        sensitivity=sensitivity,
        query=query,
        mechanism=mechanism,
        notation=MECHANISMS[mechanism].notation,
        sampler="opendp",
        units_from_data=units_from_data,
        groups=10,
        smallest_size=smallest,
        largest_size=2,
        largest_contribution=1,
        keeps_region_totals=False,
        spent_on_population=Fraction(3, 2),
        budget=Fraction(4),
        checks=passed_checks(public=not units_from_data),
        certificates={
            **({"isotonic": {"non_increasing": True}} if query is Query.CUMULATIVE else {}),
            "cpwl": {"optimal": True, "objective": "12"},
            "margins": {"repetitions": MARGIN_REPETITIONS},
        },
        digests={},
        margin_repetitions=MARGIN_REPETITIONS,
    )


def passed_checks(
    *, public: bool, totals: bool = False, margins: bool = True
) -> tuple[CheckFacts, ...]:
    required = required_checks(
        region_groups_are_public=public, region_totals_are_promised=totals, states_margins=margins
    )
    return tuple(CheckFacts(**check.passed()) for check in required)


def _digests(
    tree: RegionTree,
    counts: list[list[int]],
    noisy: list[list[int]],
    margins: Margins,
    facts: BundleFacts,
) -> dict[str, str]:
    # The tree sorts siblings by name: "NA" before "south", as REGIONS has them.
    assert tree.names == tuple(row[0] for row in REGIONS)
    fitted = {}
    if facts.query is Query.CUMULATIVE:
        # The measurements of the example do not rise with the size: fitting them clips them.
        upper = [[10 if facts.units_from_data else row[4]] for row in REGIONS]
        fitted = {"isotonic": np.clip(np.array(noisy), 0, np.array(upper))}
    return {
        table: table_digest(np.array(matrix), table=table, tree_digest=tree.digest, sizes=sizes)
        for table, matrix, sizes in (
            ("group_sizes", counts, facts.sizes),
            ("measurements", noisy, facts.measured_sizes),
            *((step, values, facts.measured_sizes) for step, values in fitted.items()),
            ("margins", margins.bounds, facts.sizes),
            ("margins_by_level", margins.half_widths, facts.sizes),
        )
    }


def _provenance(facts: BundleFacts) -> dict[str, Any]:
    return {
        "product": facts.product,
        "release": facts.release,
        "configuration_digest": "c" * 64,
        "code_version": facts.code_version,
        "lock_digest": "d" * 64,
        "measurement_digest": facts.digests["measurements"],
        "table_digests": dict(facts.digests),
        "population": facts.population,
        "epsilon": facts.epsilon,
        "spent": facts.spent_on_population,
        "budget": facts.budget,
        "neighbours": facts.neighbours,
        "mechanism": facts.mechanism,
        "sampler": facts.sampler,
        "checks": {check.name: check.passed for check in facts.checks},
        "ledger_head": LedgerHead(17, "e" * 64),
    }


def _cells(matrix: list[list[int]], first: int) -> Rows:
    return [
        [region[2], region[0], size, value]
        for region, row in zip(REGIONS, matrix, strict=True)
        for size, value in enumerate(row, start=first)
    ]


def _written(form: str, columns: list[str], rows: Rows, types: dict[str, Any]) -> bytes:
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        # None is an empty cell and "" a quoted one, as DuckDB writes them.
        for row in rows:
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(["\0" if v == "" else v for v in row])
            text.write(line.getvalue().replace("\0", '""') + "\n")
        return text.getvalue().encode()
    kinds = {
        **dict.fromkeys(("region", "parent", "name"), pa.string()),
        **dict.fromkeys(("level", "size"), pa.int32()),
        **dict.fromkeys(("count", "value", "groups", *BOUNDS, *HALF_WIDTHS), pa.int64()),
        "scale": pa.float64(),
    }
    arrays = {
        name: pa.array([row[place] for row in rows], kinds[name]).cast(types.get(name, kinds[name]))
        for place, name in enumerate(columns)
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink, compression="zstd")
    return sink.getvalue()
