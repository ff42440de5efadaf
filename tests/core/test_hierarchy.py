"""The region tree: what it refuses, how it numbers regions, and its sums against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.hierarchy import (
    SHOWN_ROWS,
    CyclicRegions,
    EmptyTree,
    NoRoot,
    OrphanRegion,
    RegionTree,
    RegionWithTwoParents,
    SeveralRoots,
    TreeError,
)

RAGGED = [
    ("nation", None),
    ("north", "nation"),
    ("south", "nation"),
    ("n1", "north"),
    ("n2", "north"),
    ("n2a", "n2"),
]


def tree_of(rows):
    return RegionTree.from_table([row[0] for row in rows], [row[1] for row in rows])


def children_of(rows):
    children = {region: [] for region, _ in rows}
    for region, parent in rows:
        if parent:
            children[parent].append(region)
    return children


@st.composite
def region_rows(draw, largest=24):
    """Rows of any tree: each region's parent is one that came before it; then shuffled."""
    count = draw(st.integers(1, largest))
    names = draw(
        st.lists(
            st.text(alphabet="abcdeé-0", min_size=1, max_size=4),
            min_size=count,
            max_size=count,
            unique=True,
        )
    )
    rows = [(names[0], draw(st.sampled_from([None, ""])))]
    for place in range(1, count):
        rows.append((names[place], names[draw(st.integers(0, place - 1))]))
    return draw(st.permutations(rows))


# --- what is refused, and where -------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "error", "positions"),
    [
        ([], EmptyTree, ()),
        ([("a", None), ("b", "a"), ("b", "a")], RegionWithTwoParents, (3,)),
        (
            [("b", "a"), ("a", None), ("c", "a"), ("b", "c"), ("a", "b")],
            RegionWithTwoParents,
            (4, 5),
        ),
        ([("a", None), ("b", "a"), ("c", "")], SeveralRoots, (1, 3)),
        ([("a", "b"), ("b", "a")], NoRoot, ()),
        ([("a", None), ("b", "a"), ("c", "x"), ("d", "c"), ("e", "y")], OrphanRegion, (3, 5)),
        ([("a", None), ("b", "c"), ("c", "b"), ("d", "a")], CyclicRegions, (2, 3)),
        ([("a", None), ("b", "b")], CyclicRegions, (2,)),
    ],
)
def test_each_broken_rule_is_an_error_of_its_own_that_names_the_rows(rows, error, positions):
    with pytest.raises(error) as caught:
        tree_of(rows)
    assert isinstance(caught.value, TreeError)
    assert caught.value.exit_code == 2
    assert caught.value.rows == positions
    assert caught.value.rule in str(caught.value)
    assert str(caught.value).endswith(f"Remedy: {error.remedy}.")


def test_only_the_first_rows_are_listed_but_all_are_counted():
    rows = [("root", None)] + [(f"lost{number}", "nowhere") for number in range(20)]
    with pytest.raises(OrphanRegion) as caught:
        tree_of(rows)
    assert caught.value.rows == tuple(range(2, 2 + SHOWN_ROWS))
    assert caught.value.count == 20
    assert "2, 3, 4, 5, 6, …; 20 rows in all" in str(caught.value)


def test_an_error_never_quotes_a_region():
    with pytest.raises(OrphanRegion) as caught:
        tree_of([("root", None), ("secret-place", "secret-parent")])
    assert "secret" not in str(caught.value)


def test_a_region_column_longer_than_its_parents_is_not_cut_short():
    with pytest.raises(ValueError, match="shorter"):
        RegionTree.from_table(["a", "b"], [None])


# --- shapes ---------------------------------------------------------------------------------


def test_a_ragged_tree_is_numbered_level_by_level_with_siblings_together():
    tree = tree_of(RAGGED)
    assert tree.names == ("nation", "north", "south", "n1", "n2", "n2a")
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 4]
    assert tree.first_child.tolist() == [1, 3, 5, 5, 5, 6, 6]
    assert tree.level_start.tolist() == [0, 1, 3, 5, 6]
    assert tree.level.tolist() == [0, 1, 1, 2, 2, 3]
    assert tree.leaves.tolist() == [2, 3, 5]
    assert tree.is_leaf.tolist() == [False, False, True, True, False, True]
    assert tree.index["n2"] == 4


def test_a_lone_root_is_a_tree_of_one_level_whose_root_is_a_leaf():
    tree = tree_of([("all", "")])
    assert (tree.regions, tree.levels, tree.leaves.tolist()) == (1, 1, [0])
    assert tree.aggregate(np.array([[3, 4]])).tolist() == [[3, 4]]
    assert tree.children_sums(np.array([[3, 4]])).tolist() == [[3, 4]]


def test_a_long_chain_does_not_need_recursion():
    length = 5000
    names = [f"r{number:05d}" for number in range(length)]
    tree = RegionTree.from_table(names[::-1], [*names[-2::-1], None])
    assert tree.levels == length
    values = np.zeros((length, 1), dtype=np.int64)
    values[-1] = 7
    assert (tree.aggregate(values) == 7).all()


def test_the_arrays_of_a_tree_cannot_be_written():
    tree = tree_of(RAGGED)
    for name in ("parent", "first_child", "level_start", "level", "is_leaf", "leaves"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(tree, name)[0] = 1


@given(rows=region_rows())
def test_the_layout_says_what_the_rows_say(rows):
    tree = tree_of(rows)
    children = children_of(rows)
    assert sorted(tree.names) == sorted(children)
    for number, name in enumerate(tree.names):
        listed = tree.names[tree.first_child[number] : tree.first_child[number + 1]]
        assert list(listed) == sorted(children[name])
        parent = tree.parent[number]
        assert (parent == -1) == (number == 0)
        if number:
            assert tree.level[number] == tree.level[parent] + 1
    for level in range(tree.levels):
        start, stop = tree.level_start[level], tree.level_start[level + 1]
        assert stop > start
        assert (tree.level[start:stop] == level).all()


@given(rows=region_rows(), data=st.data())
def test_the_order_of_the_rows_does_not_matter(rows, data):
    shuffled = data.draw(st.permutations(rows))
    one, other = tree_of(rows), tree_of(shuffled)
    assert one.names == other.names
    assert one.digest == other.digest


@given(rows=region_rows(), data=st.data())
def test_another_tree_has_another_digest(rows, data):
    tree = tree_of(rows)
    renamed = [(f"{region}!", parent and f"{parent}!") for region, parent in rows]
    assert tree_of(renamed).digest != tree.digest
    grown = [*rows, ("new region", data.draw(st.sampled_from(tree.names)))]
    assert tree_of(grown).digest != tree.digest


def test_a_region_that_moves_to_another_parent_changes_the_digest():
    moved = [row if row[0] != "n1" else ("n1", "south") for row in RAGGED]
    assert tree_of(moved).digest != tree_of(RAGGED).digest


def test_names_that_join_to_the_same_text_have_different_digests():
    one = tree_of([("r", None), ("ab", "r"), ("c", "r")])
    other = tree_of([("r", None), ("a", "r"), ("bc", "r")])
    assert one.digest != other.digest


# --- sums, against a recursive twin ---------------------------------------------------------


def recursive_totals(rows, leaf_values):
    """Each region's total, by the definition: a leaf's own, else the sum over its children."""
    children = children_of(rows)

    def total(region):
        if not children[region]:
            return leaf_values[region]
        return sum(total(child) for child in children[region])

    return {region: total(region) for region in children}


@given(rows=region_rows(), data=st.data())
def test_aggregate_is_the_recursive_sum(rows, data):
    tree = tree_of(rows)
    cell = st.integers(-(2**40), 2**40)
    leaf_values = {
        tree.names[leaf]: np.array(data.draw(st.lists(cell, min_size=3, max_size=3)))
        for leaf in tree.leaves
    }
    values = np.zeros((tree.regions, 3), dtype=np.int64)
    for region, row in leaf_values.items():
        values[tree.index[region]] = row
    summed = tree.aggregate(values)
    assert summed is values
    for region, expected in recursive_totals(rows, leaf_values).items():
        assert summed[tree.index[region]].tolist() == expected.tolist()


@given(rows=region_rows(), seed=st.integers(0, 2**32 - 1))
def test_children_sums_add_up_one_generation_and_leave_the_argument_alone(rows, seed):
    tree = tree_of(rows)
    values = np.random.default_rng(seed).integers(-100, 100, (tree.regions, 2))
    values.setflags(write=False)
    before = values.copy()
    sums = tree.children_sums(values)
    assert (values == before).all()
    for region, children in children_of(rows).items():
        number = tree.index[region]
        expected = (
            np.sum([values[tree.index[child]] for child in children], axis=0)
            if children
            else values[number]
        )
        assert sums[number].tolist() == expected.tolist()


@settings(max_examples=30)
@given(rows=region_rows(), seed=st.integers(0, 2**32 - 1))
def test_an_aggregated_table_is_its_own_children_sums(rows, seed):
    tree = tree_of(rows)
    values = np.random.default_rng(seed).integers(0, 100, (tree.regions,))
    values[~tree.is_leaf] = 0
    summed = tree.aggregate(values)
    assert (tree.children_sums(summed) == summed).all()


# --- one column a level ---------------------------------------------------------------------


def test_columns_and_parents_describe_the_same_tree():
    columns = [["north", "north", "south"], ["n1", "n2", ""], [None, "n2a", None]]
    assert RegionTree.from_columns(columns, root="nation").digest == tree_of(RAGGED).digest


def test_the_order_of_rows_does_not_matter_for_columns_either():
    columns = [["south", "north", "north"], ["", "n2", "n1"], ["", "n2a", ""]]
    assert RegionTree.from_columns(columns, root="nation").digest == tree_of(RAGGED).digest


@pytest.mark.parametrize(
    ("columns", "error", "positions"),
    [
        ([["a", "b", "b"], ["x", "y", "x"]], RegionWithTwoParents, (3,)),
        ([["a", "b"], ["x", "a"]], RegionWithTwoParents, (2,)),
        ([["a", "nation"], ["x", "y"]], RegionWithTwoParents, (2,)),
        ([["a", "", "c"], ["x", "y", ""]], OrphanRegion, (2,)),
        ([["a"], [None], ["x"]], OrphanRegion, (1,)),
    ],
)
def test_columns_that_are_no_tree_are_refused_with_their_rows(columns, error, positions):
    with pytest.raises(error) as caught:
        RegionTree.from_columns(columns, root="nation")
    assert caught.value.rows == positions


def test_no_rows_at_all_leave_the_root_alone():
    assert RegionTree.from_columns([[], []], root="nation").names == ("nation",)
