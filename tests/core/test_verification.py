"""Verification of a bundle: everything holds, or the line that does not is named."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.attestation.keys import PrivateKey
from pgsr_core.attestation.provenance import PROVENANCE_FILE, Provenance
from pgsr_core.attestation.strict_json import MOST_BYTES
from pgsr_core.hierarchy import RegionTree
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.verification import Verification, verify_bundle
from pgsr_core.verification.conditions import (
    adds_up_in_64_bits,
    inconsistent_cells,
    level_totals,
)
from tests.core.example_bundle import (
    COUNTS,
    KEY,
    Draft,
    example,
    package,
    passed_checks,
    seal,
    without_margins,
)

ROOT = Path(__file__).parents[2]
FLIPS_A_FILE = 40
BUNDLE = example().signed()


def verify(bundle: dict[str, bytes]) -> Verification:
    return verify_bundle(bundle, KEY.public)


def failures(bundle: dict[str, bytes]) -> set[str]:
    found = verify(bundle)
    assert found.verified is (not found.failed)
    return {item.name for item in found.failed}


@pytest.mark.parametrize("query", list(Query))
@pytest.mark.parametrize("units_from_data", [False, True])
@pytest.mark.parametrize("forms", [("parquet", "csv"), ("parquet",), ("csv",)])
def test_a_bundle_that_keeps_every_promise_is_verified(
    query: Query, units_from_data: bool, forms: tuple[str, ...]
) -> None:
    draft = example(query=query, units_from_data=units_from_data, forms=forms)
    found = verify(draft.signed())
    assert found.failed == ()
    assert found.verified
    assert found.provenance == Provenance(**draft.provenance)
    assert len(found.items) > 30
    assert len({item.name for item in found.items}) == len(found.items)
    assert all(item.sentence.endswith(".") for item in found.items)


@pytest.mark.parametrize("name", sorted(BUNDLE))
def test_no_flipped_bit_in_any_file_is_accepted(name: str) -> None:
    chance = random.Random(name)  # noqa: S311 (which bits to flip)
    content = BUNDLE[name]
    for _ in range(FLIPS_A_FILE):
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        assert not verify({**BUNDLE, name: bytes(damaged)}).verified


@pytest.mark.parametrize("name", sorted(BUNDLE))
def test_a_missing_or_renamed_or_emptied_file_is_found(name: str) -> None:
    others = {known: content for known, content in BUNDLE.items() if known != name}
    missing = "signature" if name == PROVENANCE_FILE else "files-present"
    assert missing in failures(others)
    assert missing in failures({**others, f"{name}.bak": BUNDLE[name]})
    assert failures({**BUNDLE, name: b""})


def test_two_files_that_swapped_their_names_are_found() -> None:
    one, other = "group_sizes.csv", "measurements.csv"
    swapped = {**BUNDLE, one: BUNDLE[other], other: BUNDLE[one]}
    assert "files-unchanged" in failures(swapped)


@pytest.mark.parametrize("name", ["extra.txt", ".hidden", "a/b", "\x1b[31mred", "group_sizes.CSV"])
def test_an_extra_file_is_found_and_its_name_cannot_move_the_cursor(name: str) -> None:
    found = verify({**BUNDLE, name: b"x"})
    assert {item.name for item in found.failed} == {"nothing-extra", "data-package"}
    assert all(item.sentence.isprintable() for item in found.items)


def test_an_empty_bundle_is_not_verified() -> None:
    assert {"signature", "files-present", "data-package", "tables"} <= failures({})


def test_another_key_verifies_nothing() -> None:
    found = verify_bundle(BUNDLE, PrivateKey.generate().public)
    assert not found.verified
    assert found.provenance is None
    assert "another key" in found.failed[0].sentence


def test_an_unsigned_bundle_is_not_verified_and_everything_else_is_still_looked_at() -> None:
    found = verify(example().unsigned())
    assert not found.verified
    held = {item.name for item in found.items if item.passed}
    assert {"data-package", "consistency", "faithfulness", "digest:group_sizes"} <= held
    assert {item.name for item in found.failed} == {
        "signature",
        "files-present",
        "files-unchanged",
        "nothing-extra",
        "software-as-signed",
        "privacy-as-signed",
        "checks-as-signed",
    }
    assert found.items[0].sentence.startswith("The bundle is not signed")


def test_an_unsigned_simulation_says_that_it_is_one() -> None:
    draft = example()
    for document in draft.documents.values():
        document["simulation"] = True
    assert "no-simulation" in failures(draft.unsigned())


def test_damaged_files_are_not_looked_into() -> None:
    damaged = {**BUNDLE, "group_sizes.parquet": b"PAR1 nonsense PAR1"}
    found = verify(damaged)
    [item] = [item for item in found.failed if item.name == "integrality:group_sizes.parquet"]
    assert "not looked into" in item.sentence


def cell(table: str, row: int, column: int, value: Any) -> Callable[[Draft], None]:
    """Change one cell of a table, in every format, before it is listed and signed."""

    def change(draft: Draft) -> None:
        draft.tables[table][row][column] = value

    return change


def field(document: str, *path: str | int, value: Any) -> Callable[[Draft], None]:
    """Change one field of a document before it is listed and signed."""

    def change(draft: Draft) -> None:
        inner: Any = draft.documents[document]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def drop(table: str, row: int) -> Callable[[Draft], None]:
    return lambda draft: draft.tables[table].pop(row) and None


def repeat(table: str, row: int) -> Callable[[Draft], None]:
    return lambda draft: draft.tables[table].append(list(draft.tables[table][row]))


def text(file: str, old: bytes, new: bytes) -> Callable[[Draft], None]:
    """Change the text of one format only."""

    def edit(content: bytes) -> bytes:
        assert content.count(old) == 1
        return content.replace(old, new)

    def change(draft: Draft) -> None:
        draft.edits[file] = edit

    return change


def typed(column: str, kind: pa.DataType) -> Callable[[Draft], None]:
    return lambda draft: draft.types.update({column: kind})


def half(numerator: int) -> dict[str, Any]:
    return {"exact": str(Fraction(numerator, 2)), "decimal": numerator / 2}


# What is broken, and the item that has to notice although the publisher signed it.
BROKEN: dict[str, tuple[Callable[[Draft], None], str]] = {
    "children do not add up": (cell("group_sizes", 9, 3, 2), "consistency"),
    "changed count": (cell("group_sizes", 9, 3, 2), "digest:group_sizes"),
    "count above its margin": (cell("margins", 3, 4, 1), "margins"),
    "95% within 90%": (cell("margins", 3, 6, 2), "margins"),
    "negative margin": (cell("margins", 3, 5, -1), "margins"),
    "changed margin": (cell("margins", 3, 6, 9), "digest:margins"),
    "missing margin": (drop("margins", 3), "completeness:margins.csv"),
    "margin of an unknown size": (cell("margins", 3, 2, 3), "completeness:margins.parquet"),
    "margins as floats": (typed("upper_90", pa.float64()), "integrality:margins.parquet"),
    "typical margin below zero": (cell("margins_by_level", 3, 2, -1), "typical-margins"),
    "typical margin smaller at 95%": (cell("margins_by_level", 3, 3, 0), "typical-margins"),
    "changed typical margin": (cell("margins_by_level", 3, 3, 9), "digest:margins_by_level"),
    "missing level": (drop("margins_by_level", 3), "completeness:margins_by_level.csv"),
    "unknown level": (cell("margins_by_level", 3, 0, 4), "completeness:margins_by_level.csv"),
    "negative count": (cell("group_sizes", 0, 3, -1), "non-negativity"),
    "level does not add up": (cell("group_sizes", 0, 3, 4), "faithfulness"),
    "overflowing counts": (cell("group_sizes", 0, 3, 2**63 - 1), "consistency"),
    "missing cell": (drop("group_sizes", 3), "completeness:group_sizes.csv"),
    "missing cell in parquet": (drop("group_sizes", 3), "completeness:group_sizes.parquet"),
    "cell that stands twice": (repeat("group_sizes", 3), "completeness:group_sizes.csv"),
    "unknown region": (cell("group_sizes", 3, 1, "elsewhere"), "completeness:group_sizes.csv"),
    "unknown size": (cell("group_sizes", 3, 2, 3), "completeness:group_sizes.parquet"),
    "other level": (cell("group_sizes", 3, 0, 1), "completeness:group_sizes.csv"),
    "empty count": (cell("group_sizes", 3, 3, None), "completeness:group_sizes.parquet"),
    "counts as floats": (typed("count", pa.float64()), "integrality:group_sizes.parquet"),
    "counts as text": (typed("count", pa.string()), "integrality:group_sizes.parquet"),
    "fraction in csv": (
        text("group_sizes.csv", b"1,country,0,3\n", b"1,country,0,3.5\n"),
        "integrality:group_sizes.csv",
    ),
    "other column in csv": (
        text("group_sizes.csv", b"size,count", b"size,counts"),
        "integrality:group_sizes.csv",
    ),
    "torn csv": (
        text("group_sizes.csv", b"1,country,0,3\n", b"1,country,0\n"),
        "integrality:group_sizes.csv",
    ),
    "formats differ": (
        text("measurements.csv", b"1,country,1,8,", b"1,country,1,9,"),
        "digest:measurements",
    ),
    "region tables differ": (
        text("regions.csv", b"The Country", b"The Kingdom"),
        "regions-in-all-formats",
    ),
    "changed measurement": (cell("measurements", 2, 3, 4), "digest:measurements"),
    "other scale": (cell("measurements", 2, 4, 5.0), "scales:measurements.csv"),
    "region with two rows": (repeat("regions", 3), "regions"),
    "region without a name": (cell("regions", 3, 0, None), "regions"),
    "region under another parent": (cell("regions", 3, 1, "NA"), "digest:group_sizes"),
    "region at another level": (cell("regions", 3, 2, 2), "regions"),
    "region in a circle": (cell("regions", 2, 1, "s1"), "regions"),
    "public groups do not add up": (cell("regions", 3, 4, 3), "public-groups"),
    "public groups missing": (cell("regions", 3, 4, None), "public-groups"),
    "other number of groups": (field("privacy.json", "groups", value=11), "faithfulness"),
    "epsilon in two forms": (
        field("privacy.json", "epsilon", "decimal", value=0.25),
        "privacy-statement",
    ),
    "other epsilon": (field("privacy.json", "epsilon", value=half(3)), "privacy-as-signed"),
    "shares do not add up": (
        field("privacy.json", "levels", 0, "epsilon", value=half(1)),
        "epsilon-adds-up",
    ),
    "too little noise": (
        field("privacy.json", "levels", 1, "scale", value=half(1)),
        "noise-suffices",
    ),
    "scale that was not used": (
        field("privacy.json", "levels", 1, "scale", value=half(99)),
        "scales:measurements.parquet",
    ),
    "flattering noise": (
        field("privacy.json", "levels", 1, "expected_absolute_noise", value=0.1),
        "expected-noise",
    ),
    "flattering sensitivity": (
        field("privacy.json", "sensitivity", "largest_contribution", value=2),
        "sensitivity",
    ),
    "other neighbours": (field("privacy.json", "neighbours", value="replace"), "privacy-as-signed"),
    "other population": (field("privacy.json", "population", value="x"), "privacy-as-signed"),
    "other mechanism": (field("privacy.json", "mechanism", "name", value="direct"), "mechanism"),
    "other sampler": (
        field("privacy.json", "mechanism", "sampler", value="fast-exact"),
        "privacy-as-signed",
    ),
    "unknown mechanism": (field("privacy.json", "mechanism", "name", value="magic"), "mechanism"),
    "totals promised in vain": (
        field("privacy.json", "keeps_region_totals", value=True),
        "mechanism",
    ),
    "less spent": (field("privacy.json", "budget", "spent", value=half(2)), "privacy-as-signed"),
    "more spent than allowed": (
        field("privacy.json", "budget", "spent", value=half(9)),
        "spending",
    ),
    "other levels": (field("privacy.json", "levels", 0, "regions", value=2), "levels"),
    "no levels": (field("privacy.json", "levels", value=[]), "epsilon-adds-up"),
    "proviso dropped": (field("privacy.json", "units", value="from-data"), "invariants"),
    "groups of regions given away": (
        field("privacy.json", "units", value="from-data"),
        "public-groups",
    ),
    "sizes without bound": (
        field("privacy.json", "sizes", "largest", value=2**62),
        "privacy-statement",
    ),
    "more cells than memory": (
        field("privacy.json", "sizes", "largest", value=2**31 - 1),
        "levels",
    ),
    "other product": (field("privacy.json", "product", value="x"), "documents-agree"),
    "other date": (field("checks.json", "published_on", value="2027-01-01"), "documents-agree"),
    "simulation": (field("checks.json", "simulation", value=True), "no-simulation"),
    "failed gate": (field("checks.json", "checks", 0, "passed", value=False), "gates"),
    "gate without expectations": (
        field("checks.json", "checks", 0, "expectations", value=0),
        "gates",
    ),
    "no gate": (field("checks.json", "checks", value=[]), "gates"),
    "gate that was not signed": (
        field("checks.json", "checks", 0, "name", value="other"),
        "checks-as-signed",
    ),
    "certificate that says no": (
        field("checks.json", "certificates", "cpwl", "optimal", value=False),
        "certificates",
    ),
    "other digest on record": (
        field("checks.json", "table_digests", "group_sizes", value="a" * 64),
        "digest:group_sizes",
    ),
    "number as text": (field("privacy.json", "groups", value="10"), "privacy-statement"),
    "number as truth": (field("privacy.json", "groups", value=True), "privacy-statement"),
    "checks of another shape": (field("checks.json", "checks", value={}), "account-of-checks"),
}


@pytest.mark.parametrize("broken", BROKEN, ids=list(BROKEN))
def test_a_broken_promise_is_found_even_when_it_was_signed(broken: str) -> None:
    change, item = BROKEN[broken]
    draft = example()
    change(draft)
    found = failures(draft.signed())
    assert item in found
    assert found.isdisjoint({"signature", "files-present", "files-unchanged", "nothing-extra"})


def test_a_leaf_that_ends_above_counts_at_every_level_below() -> None:
    # Level 3 alone has 4 groups; with NA, which ends at level 2, it has all 10.
    assert sum(COUNTS[3]) == 4
    moved = [[3, 4, 3], [2, 2, 1], [1, 2, 2], [1, 2, 2]]  # consistent, faithful, other numbers
    assert failures(example(counts=moved).signed()) == set()
    lost = [[3, 4, 2], [2, 2, 1], [1, 2, 1], [1, 2, 1]]  # consistent, but 9 groups
    assert failures(example(counts=lost).signed()) == {"faithfulness"}


def test_region_totals_are_held_against_the_public_ones_where_they_are_promised() -> None:
    moved = [[3, 4, 3], [2, 2, 1], [1, 2, 2], [1, 2, 2]]  # one group too few in NA
    for counts, broken in ((COUNTS, set()), (moved, {"region-totals"})):
        draft = example(counts=counts)
        draft.state(
            mechanism="global",
            notation=MECHANISMS["global"].notation,
            keeps_region_totals=True,
            checks=passed_checks(public=True, totals=True),
            certificates={"global": {"residual": 0.0}, "margins": {"repetitions": 2}},
            digests={t: d for t, d in draft.facts.digests.items() if t != "isotonic"},
        )
        found = verify(draft.signed())
        assert {item.name for item in found.failed} == broken
        assert "region-totals" in {item.name for item in found.items}


def test_a_key_that_stands_twice_in_a_document_is_refused() -> None:
    draft = example()
    draft.edits["privacy.json"] = lambda content: content.replace(
        b'"groups": 10', b'"groups": 10, "groups": 10'
    )
    assert "privacy-statement" in failures(draft.signed())


def test_a_document_beyond_all_measure_is_not_parsed() -> None:
    draft = example()
    draft.edits["checks.json"] = lambda content: content + b" " * MOST_BYTES
    found = verify(draft.signed())
    assert any("larger than" in item.sentence for item in found.failed)


@pytest.mark.parametrize(
    "resources",
    [
        lambda listed: listed[1:],
        lambda listed: [*listed, listed[0]],
        lambda listed: [{**listed[0], "bytes": 1}, *listed[1:]],
        lambda listed: [{**listed[0], "hash": f"sha256:{'0' * 64}"}, *listed[1:]],
        lambda listed: [{**listed[0], "path": "../x"}, *listed[1:]],
        lambda listed: [*listed, {"path": "x", "bytes": 0, "hash": "sha256:"}],
        lambda _: "none",
    ],
)
def test_a_data_package_that_lists_other_files_is_found(resources: Callable[..., Any]) -> None:
    draft = example()
    files = draft.unsigned()
    listed = json.loads(files["datapackage.json"])["resources"]
    files["datapackage.json"] = package({}, draft.facts, resources=resources(listed))
    assert "data-package" in failures(seal(files, Provenance(**draft.provenance), KEY))


def test_a_bundle_without_one_of_its_tables_is_not_verified() -> None:
    for table, item in (
        ("regions", "regions"),
        ("measurements", "completeness:measurements"),
        ("group_sizes", "completeness:group_sizes"),
        ("margins", "completeness:margins"),
        ("margins_by_level", "completeness:margins_by_level"),
    ):
        draft = example()
        del draft.tables[table]
        assert item in failures(draft.signed())


def test_a_bundle_that_states_no_margins_is_verified_and_says_so() -> None:
    draft = without_margins(example())
    found = verify(draft.signed())
    assert found.verified, found.failed
    assert "no margins" in next(i.sentence for i in found.items if i.name == "margins")


class Lazy:
    """A reader that counts how many files are open, and cannot open some."""

    def __init__(self, files: dict[str, bytes], *, broken: str = "") -> None:
        self.files = files
        self.broken = broken

    def names(self) -> Iterable[str]:
        return self.files

    def open(self, name: str) -> BinaryIO:
        if name == self.broken:
            raise OSError("a link")
        return io.BytesIO(self.files[name])


def test_a_lazy_reader_gives_the_same_answer_as_bytes_in_memory() -> None:
    assert verify_bundle(Lazy(BUNDLE), KEY.public) == verify(BUNDLE)


@pytest.mark.parametrize("name", sorted(BUNDLE))
def test_a_file_that_cannot_be_opened_keeps_the_bundle_unverified(name: str) -> None:
    found = verify_bundle(Lazy(BUNDLE, broken=name), KEY.public)
    assert not found.verified


def test_verifying_imports_neither_orchestrator_nor_database_nor_compiler() -> None:
    code = (
        "import sys; from pgsr_core.verification import verify_bundle\n"
        "heavy = ('prefect', 'duckdb', 'sqlalchemy', 'great_expectations', 'numba', 'opendp',"
        " 'pandas', 'tasks', 'flows', 'expectations')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@st.composite
def trees(draw: st.DrawFn) -> RegionTree:
    regions = draw(st.integers(1, 12))
    parents = [None] + [f"r{draw(st.integers(0, i - 1))}" for i in range(1, regions)]
    return RegionTree.from_table([f"r{i}" for i in range(regions)], parents)


@given(trees(), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=80)
def test_sums_over_the_tree_agree_with_plain_loops(tree: RegionTree, sizes: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(-3, 4, size=(tree.regions, sizes))
    broken = 0
    for region in range(tree.regions):
        children = [r for r in range(tree.regions) if tree.parent[r] == region]
        for size in range(sizes):
            expected = sum(int(counts[c, size]) for c in children)
            broken += bool(children) and expected != counts[region, size]
    assert inconsistent_cells(tree, counts) == broken
    leaf_or_here = [
        sum(
            int(counts[r].sum())
            for r in range(tree.regions)
            if tree.level[r] == level or (tree.level[r] < level and tree.is_leaf[r])
        )
        for level in range(tree.levels)
    ]
    assert level_totals(tree, counts.sum(axis=1)) == leaf_or_here


def test_numbers_that_could_wrap_around_are_not_added_up() -> None:
    assert adds_up_in_64_bits(np.array([2**62 - 1, 2**62 - 1]))
    assert not adds_up_in_64_bits(np.array([2**62, 2**62]))
    assert not adds_up_in_64_bits(np.array([-(2**63), 0]))
