"""Replay from a bundle alone: equal when equal, different when anything differs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest

from pgsr_core.canonical import table_digest
from pgsr_core.hierarchy import RegionTree
from pgsr_core.margins import Margins
from pgsr_core.margins.release import margins_of
from pgsr_core.mechanisms import MECHANISMS, Mechanism
from pgsr_core.postprocessing.protocol import PublicFacts, Query
from pgsr_core.replay import (
    NotReplayable,
    Origin,
    read_published,
    recompute,
    replay,
    replay_bundle,
)
from tests.core.example_bundle import (
    COUNTS,
    CUMULATIVE,
    MARGIN_REPETITIONS,
    REGIONS,
    Draft,
    example,
    margin_rows,
)

GROUPS = np.array([row[4] for row in REGIONS])
TREE = RegionTree.from_table([row[0] for row in REGIONS], [row[1] for row in REGIONS])


def honest(query: Query = Query.CUMULATIVE, **options: Any) -> Draft:
    """The example with counts that its mechanism does compute from its measurements."""
    draft = example(query=query, **options)
    origin = read_published(draft.unsigned()).origin
    values = origin.measurements
    for step in origin.mechanism.steps:
        values = step(values, origin.facts).values
    margins = margins_of(
        origin.mechanism,
        origin.facts,
        origin.measurements,
        values,
        repetitions=MARGIN_REPETITIONS,
    )
    return with_margins(with_counts(draft, values), margins)


def with_counts(draft: Draft, counts: Any) -> Draft:
    facts = draft.facts
    cells = iter(np.asarray(counts).ravel().tolist())
    draft.tables["group_sizes"] = [[*row[:3], next(cells)] for row in draft.tables["group_sizes"]]
    digest = table_digest(
        np.asarray(counts), table="group_sizes", tree_digest=TREE.digest, sizes=facts.sizes
    )
    draft.facts = replace(facts, digests={**facts.digests, "group_sizes": digest})
    draft.documents["checks.json"]["table_digests"]["group_sizes"] = digest
    return draft


def with_margins(draft: Draft, margins: Margins) -> Draft:
    sizes = draft.facts.sizes
    draft.tables |= margin_rows(margins, sizes.start)
    for table, values in (("margins", margins.bounds), ("margins_by_level", margins.half_widths)):
        digest = table_digest(values, table=table, tree_digest=TREE.digest, sizes=sizes)
        draft.documents["checks.json"]["table_digests"][table] = digest
    return draft


@pytest.mark.parametrize("forms", [("parquet", "csv"), ("csv",), ("parquet",)])
@pytest.mark.parametrize(
    "options",
    [{}, {"query": Query.COUNTS}, {"units_from_data": True}],
    ids=["cumulative", "direct", "units-from-data"],
)
def test_a_bundle_that_its_mechanism_made_replays_equal(
    options: dict[str, Any], forms: tuple[str, ...]
) -> None:
    found = replay_bundle(honest(**options, forms=forms).unsigned())
    assert found.equal, found.items
    last = next(item for item in found.items if item.name == "recomputed:group_sizes")
    assert all(f"group_sizes.{form}" in last.sentence for form in forms)
    assert "checks.json" in last.sentence


def test_counts_that_keep_every_promise_but_were_not_computed_are_different() -> None:
    found = replay_bundle(example().unsigned())  # COUNTS add up, but nobody computed them
    assert not found.equal
    wrong = [item for item in found.items if not item.passed]
    tables = ("group_sizes", "margins", "margins_by_level")
    assert [item.name for item in wrong] == [f"recomputed:{table}" for table in tables]
    assert all("checks.json" in item.sentence for item in wrong)


@pytest.mark.parametrize("table", ["margins", "margins_by_level"])
def test_margins_that_nobody_computed_are_different(table: str) -> None:
    draft = honest()
    draft.edits[f"{table}.csv"] = _bump_last
    [wrong] = [item for item in replay_bundle(draft.unsigned()).items if not item.passed]
    assert wrong.name == f"recomputed:{table}"
    assert f"{table}.csv" in wrong.sentence


def test_a_bundle_that_states_no_margins_replays_equal_and_states_none() -> None:
    draft = honest()
    for table in ("margins", "margins_by_level"):
        del draft.tables[table]
        del draft.documents["checks.json"]["table_digests"][table]
    del draft.documents["checks.json"]["certificates"]["margins"]
    found = replay_bundle(draft.unsigned())
    assert found.equal, found.items
    assert not any("margins" in item.name for item in found.items)


def test_margins_without_a_number_of_repetitions_are_unreadable() -> None:
    draft = honest()
    draft.documents["checks.json"]["certificates"]["margins"] = {"repetitions": 0}
    with pytest.raises(NotReplayable, match="repetitions"):
        replay_bundle(draft.unsigned())


def test_one_changed_count_in_one_format_is_named() -> None:
    draft = honest()
    draft.edits["group_sizes.csv"] = _bump_last
    found = replay_bundle(draft.unsigned())
    [wrong] = [item for item in found.items if not item.passed]
    assert "group_sizes.csv" in wrong.sentence
    assert "parquet" not in wrong.sentence


def _bump_last(content: bytes) -> bytes:
    head, _, last = content.rstrip(b"\n").rpartition(b",")
    return head + b",%d\n" % (int(last) + 1)


def test_measurements_that_are_not_the_recorded_ones_are_not_computed_with() -> None:
    draft = honest()
    for row in draft.tables["measurements"]:
        row[3] += 1
    found = replay_bundle(draft.unsigned())
    assert [item.name for item in found.items] == ["measurements"]
    assert not found.equal


def test_two_formats_with_different_measurements_stop_the_replay() -> None:
    draft = honest()
    draft.edits["measurements.csv"] = lambda content: content.replace(b",-1,", b",-2,")
    found = replay_bundle(draft.unsigned())
    assert not found.equal
    assert len(found.items) == 1


def test_another_number_of_groups_in_the_statement_gives_other_tables() -> None:
    draft = honest(units_from_data=True)
    draft.documents["privacy.json"]["groups"] = 11
    assert not replay_bundle(draft.unsigned()).equal


@pytest.mark.parametrize(
    "name", ["privacy.json", "checks.json", "datapackage.json", "regions", "measurements"]
)
def test_what_is_missing_is_unreadable_and_not_merely_different(name: str) -> None:
    files = {
        file: content for file, content in honest().unsigned().items() if not file.startswith(name)
    }
    with pytest.raises(NotReplayable, match="Remedy") as refused:
        replay_bundle(files)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mechanism", "name"), "magic"),
        (("mechanism", "name"), "direct"),  # which measures something else
        (("sizes", "smallest"), 1),
        (("levels",), []),
        (("groups",), -1),
        (("units",), "perhaps"),
    ],
)
def test_a_statement_that_no_replay_can_start_from_is_unreadable(
    path: tuple[str, ...], value: Any
) -> None:
    draft = honest()
    document = draft.documents["privacy.json"]
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value
    with pytest.raises(NotReplayable):
        replay_bundle(draft.unsigned())


def test_numbers_that_no_solver_takes_are_a_difference_and_not_a_crash() -> None:
    facts = PublicFacts(TREE, 0, 2, 10, GROUPS)
    origin = Origin(MECHANISMS["direct"], facts, np.full((4, 3), 2**62))
    found = replay(origin, {"measurements": {"somebody": origin.digest}})
    assert not found.equal
    assert "cannot be recomputed" in found.items[-1].sentence


def test_a_replay_without_witnesses_is_not_equal() -> None:
    facts = PublicFacts(TREE, 0, 2, 10, GROUPS)
    origin = Origin(MECHANISMS["cumulative"], facts, np.array(CUMULATIVE))
    assert not replay(origin, {}).equal
    assert not replay(origin, {"measurements": {"somebody": origin.digest}}).equal
    assert not replay(origin, {"measurements": {"the safe store": None}}).equal


def test_two_origins_differ_in_what_differs() -> None:
    facts = PublicFacts(TREE, 0, 2, 10, GROUPS)
    one = Origin(MECHANISMS["cumulative"], facts, np.array(CUMULATIVE))
    assert one.differs(one) == ()
    other = Origin(MECHANISMS["global"], replace(facts, groups=9), np.array(CUMULATIVE))
    assert one.differs(other) == ("mechanism", "number of groups")


def random_origin(mechanism: Mechanism, *, seed: int) -> Origin:
    rng = np.random.default_rng(seed)
    parents = [None, *["root"] * 5, *(f"c{i % 5}" for i in range(60))]
    names = ["root", *(f"c{i}" for i in range(5)), *(f"d{i:02}" for i in range(60))]
    tree = RegionTree.from_table(names, parents)
    groups = tree.aggregate(np.where(tree.is_leaf, rng.integers(5, 50, tree.regions), 0))
    scales = tuple(Fraction(6) for _ in range(tree.levels))
    facts = PublicFacts(tree, 0, 30, int(groups[0]), groups, scales)
    columns = len(facts.measured_sizes(mechanism.query))
    noisy = rng.integers(-40, 60, (tree.regions, columns))
    return Origin(mechanism, facts, noisy, margin_repetitions=3)


# The released tables of the measurements of seed 3, computed once under Python 3.11.
RELEASED = {
    "cumulative": "cd2842d63678b917a36c520570d16d5fb3bb55bec1466958181f53644e4b0c29",
    "direct": "c5616ce9ed31808876686af6db4204082f71d7d98dd9488bb1adac4bbdf2ea6b",
    "global": "a9b7f9039a88268fbf7cd9ba70b047d4c277fffddadc6a400826462b096d14e8",
}


# Generic solvers are too slow for this table; that they can be replayed is tested with them.
FAST = {name: known for name, known in MECHANISMS.items() if known.requires is None}


@pytest.mark.parametrize("mechanism", FAST.values(), ids=FAST)
def test_every_version_of_python_gives_the_same_tables(mechanism: Mechanism) -> None:
    origin = replace(random_origin(mechanism, seed=3), margin_repetitions=0)
    assert list(recompute(origin))[-1].digest == RELEASED[mechanism.name]


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
@pytest.mark.parametrize("mechanism", FAST.values(), ids=FAST)
def test_one_and_two_threads_give_one_answer(mechanism: Mechanism) -> None:
    origin = random_origin(mechanism, seed=3)
    before = numba.get_num_threads()
    answers = []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            answers.append(list(recompute(origin)))
    finally:
        numba.set_num_threads(before)
    assert answers[0] == answers[1]
    tables = [done.table for done in answers[0]]
    assert tables[-3:] == ["group_sizes", "margins", "margins_by_level"]
    assert len(tables) == len(mechanism.steps) + 2


def test_recomputing_changes_no_measurement() -> None:
    origin = random_origin(MECHANISMS["cumulative"], seed=5)
    before = origin.digest
    assert all(not done.refuted for done in recompute(origin))
    assert origin.digest == before


def test_the_example_counts_are_no_fixed_point_by_accident() -> None:
    made = honest().tables["group_sizes"]
    assert [row[3] for row in made] != [count for row in COUNTS for count in row]


def test_a_table_in_between_that_was_recorded_must_come_out_as_well() -> None:
    draft = honest()
    steps = recompute(read_published(draft.unsigned()).origin)
    digests = draft.documents["checks.json"]["table_digests"]
    digests["isotonic"] = next(done.digest for done in steps if done.table == "isotonic")
    found = replay_bundle(draft.unsigned())
    assert found.equal, found.items
    [same] = [item for item in found.items if item.name == "recomputed:isotonic"]
    assert "equal to that of checks.json" in same.sentence

    digests["isotonic"] = "0" * 64
    [wrong] = [item for item in replay_bundle(draft.unsigned()).items if not item.passed]
    assert wrong.name == "recomputed:isotonic"
    assert "checks.json" in wrong.sentence
