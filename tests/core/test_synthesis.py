"""Synthetic populations: exact totals, safe ids, realistic sizes, one result for one seed."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.synthesis import populations
from pgsr_core.synthesis.histograms import population_of_cells
from pgsr_core.synthesis.identifiers import Scatter
from pgsr_core.synthesis.options import BadOption, Shape, whole_numbers
from pgsr_core.synthesis.populations import CountedPopulation
from pgsr_core.synthesis.regions import (
    apportion,
    nested_table,
    regular_children,
    safe_ids,
    safe_name,
    table_of_paths,
    uneven_children,
)
from pgsr_core.synthesis.shapes import draw_population
from pgsr_core.synthesis.sizes import (
    HOUSEHOLD_SHARES,
    SEVEN_AND_MORE,
    TAIL_RATIO,
    HouseholdSizes,
    LongTail,
    draw_groups,
)

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
seeds = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def all_sizes(population: populations.Population) -> np.ndarray:
    return np.concatenate([block.sizes for block in population.blocks()])


# Person ids


@given(count=st.integers(1, 5_000), seed=seeds)
@settings(max_examples=60, deadline=None)
def test_scattering_is_a_bijection(count: int, seed: int) -> None:
    ids = Scatter.drawn(count, generator=rng(seed))(np.arange(count))
    assert np.array_equal(np.sort(ids), np.arange(count))


def commonest_step(ids: np.ndarray) -> float:
    """Share of the commonest difference between ids of neighbours in the file."""
    return Counter(np.diff(ids).tolist()).most_common(1)[0][1] / (len(ids) - 1)


def test_ids_of_neighbours_in_the_file_are_not_a_fixed_step_apart() -> None:
    count = 50_000
    ids = Scatter.drawn(count, generator=rng(3))(np.arange(count))
    affine = (7_919 * np.arange(count) + 13) % count
    assert commonest_step(affine) > 0.5
    assert commonest_step(ids) < 0.01


def test_ids_of_a_part_are_those_of_the_whole() -> None:
    scatter = Scatter.drawn(10_007, generator=rng(5))
    whole = scatter(np.arange(10_007))
    assert np.array_equal(scatter(np.arange(4_000, 5_000)), whole[4_000:5_000])


# Regions


@given(
    total=st.integers(0, 10**9),
    shares=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_apportioning_keeps_the_total_and_strays_less_than_one_from_the_quota(
    total: int, shares: list[float]
) -> None:
    parts = apportion(total, np.array(shares))
    quotas = np.array(shares) * (total / sum(shares))
    assert parts.sum() == total
    assert parts.min() >= 0
    assert np.abs(parts - quotas).max() < 1 + 1e-6 * total


def test_uneven_levels_have_the_numbers_asked_for_and_no_childless_parent() -> None:
    states, counties = uneven_children((52, 3_143), spread=0.9, generator=rng(1))
    assert states.tolist() == [52]
    assert counties.sum() == 3_143
    assert counties.min() >= 1
    assert counties.max() > 3 * counties.mean()


def test_a_nested_table_is_one_tree_with_the_levels_asked_for() -> None:
    table = nested_table(regular_children((3, 12)), root=("R", "Whole"), kinds=("State", "County"))
    tree = table.tree()
    assert np.diff(tree.level_start).tolist() == [1, 3, 36]
    assert tree.names[:2] == ("R", "R-1")
    assert table.leaf_ids[0] == "R-1-01"
    assert table.names[-1] == "County 12, State 3"
    assert [tree.level[tree.index[name]] for name in table.ids] == table.depth.tolist()


def test_a_name_shared_by_two_levels_becomes_a_path() -> None:
    paths = [("England",), ("Wales",), ("England", "London"), ("Wales", "Wales")]
    assert safe_ids(paths) == ["England", "Wales", "London", "Wales.Wales"]


def test_a_name_shared_by_two_parents_becomes_a_path_in_both() -> None:
    paths = [("A", "Centre"), ("B", "Centre")]
    assert safe_ids(paths) == ["A.Centre", "B.Centre"]


def test_ids_do_not_depend_on_the_order_of_regions() -> None:
    paths = [("a", "x"), ("A", "x"), ("a.x",), ("é",), ("e",), ("=1+1",), ("1_1",)]
    there = dict(zip(paths, safe_ids(paths), strict=True))
    back = dict(zip(reversed(paths), safe_ids(paths[::-1]), strict=True))
    assert there == back


@pytest.mark.parametrize("name", ["=1+1", "-2", "@x", "+3", "../etc", "a/b", "..", "", "\tz", "日"])
def test_no_id_can_be_a_formula_or_a_path(name: str) -> None:
    (region,) = safe_ids([(name,)])
    assert SAFE.fullmatch(region)
    assert ".." not in region


@given(
    st.sets(
        st.lists(
            st.one_of(st.sampled_from(["a", "A", "a.a", "all", "á"]), st.text(max_size=80)),
            min_size=1,
            max_size=3,
        ).map(tuple),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=100, deadline=None)
def test_ids_are_safe_and_unique_whatever_the_names(paths: set[tuple[str, ...]]) -> None:
    ids = safe_ids([*paths, ()])
    assert len({region.casefold() for region in ids}) == len(paths) + 1
    assert all(SAFE.fullmatch(region) for region in ids)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Bournemouth, Christchurch and Poole", "Bournemouth, Christchurch and Poole"),
        ("King's Lynn & West Norfolk", "King's Lynn & West Norfolk"),
        ("Ynys Môn", "Ynys Môn"),
        ("=1+1", "1+1"),
        ("＝- @x", "x"),
        ("Bath/Bristol", "Bath-Bristol"),
        ("../etc", ".-etc"),
        ("a\tb\u2028c", "a b c"),
        ("..", ""),
    ],
)
def test_a_name_is_kept_but_for_what_is_dangerous(name: str, shown: str) -> None:
    assert safe_name(name) == shown


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_shown_name_can_be_a_formula_or_a_path(name: str) -> None:
    shown = safe_name(name)
    assert shown == safe_name(shown) == shown.strip()
    assert not shown.startswith(tuple("=+-@"))
    assert not any(part in shown for part in ("/", "\\", "..", "\n"))
    assert len(shown) <= 200


def test_a_root_is_added_only_above_several_regions() -> None:
    one, _ = table_of_paths([("V", "x"), ("V", "y")])
    two, ends = table_of_paths([("V", "x"), ("W", "y")])
    assert next(one.rows()) == ("V", "", "V")
    assert next(two.rows()) == ("all", "", "All regions")
    assert [two.names[row] for row in ends] == ["x", "y"]
    assert two.tree().levels == one.tree().levels + 1


# Sizes


@given(
    people=st.integers(0, 20_000),
    max_size=st.integers(1, 1_500),
    tilt=st.floats(-0.2, 0.2),
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_groups_hold_exactly_the_people_asked_for(
    people: int, max_size: int, tilt: float, seed: int
) -> None:
    for law in (HouseholdSizes(max_size, tilt), LongTail(max_size, 0.5 + max_size / 5, 1.1)):
        sizes = draw_groups(law, people, generator=rng(seed))
        assert sizes.sum() == people
        assert sizes.size == 0 or (sizes.min() >= 1 and sizes.max() <= max_size)


def test_household_shares_are_those_published_and_the_tail_keeps_their_ratio() -> None:
    shares = HouseholdSizes(1_000).shares
    published = np.array(HOUSEHOLD_SHARES) / (sum(HOUSEHOLD_SHARES) + SEVEN_AND_MORE)
    assert shares[:6] == pytest.approx(published, rel=1e-6)
    assert shares[6:].sum() == pytest.approx(SEVEN_AND_MORE / (1 + 0.007), rel=1e-6)
    assert shares[6:] / shares[5:-1] == pytest.approx(TAIL_RATIO, rel=1e-6)


def fits(sizes: np.ndarray, shares: np.ndarray) -> bool:
    """Whether counts of sizes 1..7 lie within five standard deviations of their means."""
    found = np.bincount(sizes, minlength=8)[1:8]
    expected = sizes.size * shares[:7]
    return bool(np.all(np.abs(found - expected) < 5 * np.sqrt(expected)))


def test_drawn_households_follow_their_shares_and_a_small_tilt_is_noticed() -> None:
    shares = HouseholdSizes(1_000).shares
    assert fits(HouseholdSizes(1_000).draw(200_000, generator=rng(1)), shares)
    assert not fits(HouseholdSizes(1_000, 0.05).draw(200_000, generator=rng(1)), shares)


def test_a_few_group_quarters_reach_up_to_the_largest_size() -> None:
    sizes = HouseholdSizes(1_000).draw(1_000_000, generator=rng(2))
    large = sizes[sizes > 50]
    assert 10 <= large.size <= 100
    assert 500 < large.max() <= 1_000


def test_trips_have_a_long_tail_and_the_median_asked_for() -> None:
    sizes = LongTail(13_282, 200.0, 1.1).draw(100_000, generator=rng(3))
    assert 195 <= np.median(sizes) <= 206
    assert np.quantile(sizes, 0.999) > 20 * np.median(sizes)


# Populations


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        (Shape.US, {}),
        (Shape.TAXI, {}),
        (Shape.CUSTOM, {"fan_out": (2, 3, 2)}),
        (Shape.CUSTOM, {"regions_by_level": (2, 9), "max_size": 3}),
        (Shape.US, {"fan_out": (4, 5), "empty_share": 0.0}),
    ],
)
def test_a_population_has_exactly_the_people_asked_for(
    shape: Shape, options: dict[str, object]
) -> None:
    population = draw_population(shape, people=20_011, seed=4, **options)
    sizes = all_sizes(population)
    assert sizes.sum() == population.people == 20_011
    assert sizes.max() <= population.max_size
    assert (sizes == 0).any() == (population.empty_share > 0)
    assert population.regions.tree().regions == len(population.regions.ids)


def test_small_nations_have_small_trees_and_the_full_one_has_52_states_and_3143_counties() -> None:
    small = draw_population(Shape.US, people=300_000, seed=1).regions.tree()
    full = draw_population(Shape.US, people=300_000_000, seed=1).regions.tree()
    assert np.diff(small.level_start).tolist() == [1, 12, 120]
    assert np.diff(full.level_start).tolist() == [1, 52, 3_143]


def test_counties_differ_in_population_and_in_household_size() -> None:
    population = draw_population(Shape.US, people=3_000_000, seed=1)
    people = np.sort(population.people_by_leaf)[::-1]
    means = [law.mean for law in population.laws]
    assert people[: len(people) // 10].sum() > 0.3 * people.sum()
    assert 0.05 < np.std(means) < 0.4


def test_one_seed_gives_one_population_and_another_seed_another() -> None:
    first, again, other = (
        all_sizes(draw_population(Shape.US, people=10_000, seed=seed)) for seed in (7, 7, 8)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_empty_units_have_the_share_asked_for(share: float) -> None:
    sizes = all_sizes(draw_population(Shape.US, people=200_000, seed=2, empty_share=share))
    assert np.mean(sizes == 0) == pytest.approx(share, abs=0.002)


def test_empty_units_are_mixed_with_the_others() -> None:
    (block,) = draw_population(Shape.CUSTOM, people=20_000, seed=2, fan_out=(1,)).blocks()
    places = np.flatnonzero(block.sizes == 0) / block.sizes.size
    assert 0.4 < places.mean() < 0.6


def test_large_leaves_come_in_blocks_that_meet_every_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(populations, "PEOPLE_PER_BLOCK", 100)
    regions, _ = table_of_paths([("V", "x"), ("V", "y"), ("V", "z")])
    counts = np.array([[310, 7, 100], [0, 0, 0], [1, 0, 1]])
    population = CountedPopulation(regions, np.array([0, 1, 7]), counts, 0.0, 1)
    found = np.zeros_like(counts)
    blocks = list(population.blocks())
    for block in blocks:
        found[block.leaf] += [np.count_nonzero(block.sizes == size) for size in (0, 1, 7)]
        assert np.maximum(block.sizes, 1).sum() <= 100 + 3 * 7
    assert np.array_equal(found, counts)
    assert len(blocks) == 11 + 0 + 1


def test_drawn_blocks_are_bounded_and_keep_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(populations, "PEOPLE_PER_BLOCK", 500)
    population = draw_population(Shape.CUSTOM, people=9_999, seed=1, fan_out=(2,))
    people = [int(block.sizes.sum()) for block in population.blocks()]
    assert sum(people) == 9_999
    assert max(people) <= 500


# Bad options


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("people", {"people": 0}),
        ("people", {"people": 10**13}),
        ("max-size", {"max_size": 0}),
        ("seed", {"seed": -1}),
        ("empty-share", {"empty_share": 1.0}),
        ("empty-share", {"empty_share": float("nan")}),
        ("fan-out", {"fan_out": ()}),
        ("fan-out", {"fan_out": (3, 0)}),
        ("fan-out", {"fan_out": (3,)}),
        ("fan-out", {"fan_out": (3, 3), "regions_by_level": (3, 9)}),
        ("fan-out: number of regions", {"fan_out": (10_000, 10_000)}),
        ("regions-by-level", {"regions_by_level": (9, 3)}),
        ("shape", {"shape": Shape.CUSTOM}),
    ],
)
def test_a_bad_option_is_named_with_its_remedy(option: str, options: dict[str, object]) -> None:
    arguments: dict[str, object] = {"shape": Shape.US, "people": 1_000, "seed": 1}
    arguments |= options
    with pytest.raises(BadOption, match="Remedy: ") as caught:
        draw_population(**arguments)
    assert caught.value.option == option
    assert caught.value.exit_code == 2


def test_lists_of_numbers_are_parsed_or_refused() -> None:
    assert whole_numbers("fan-out", "52, 60") == (52, 60)
    with pytest.raises(BadOption, match="'52,x'"):
        whole_numbers("fan-out", "52,x")


def test_rows_of_one_region_are_added_up_and_branches_may_end_early() -> None:
    lines = [
        ["h2", "a", "h1plus", "b"],
        ["1", "V", "2", "x"],
        ["3", "V", "4", "x"],
        [],
        ["5", "W", "6", ""],
    ]
    population = population_of_cells(
        lines, level_columns=["a", "b"], size_columns=["h1plus", "h2"], empty_share=0
    )
    found = dict(zip(population.regions.leaf_ids, population.counts.tolist(), strict=True))
    assert found == {"x": [6, 4], "W": [6, 5]}
    assert population.people == 6 + 8 + 6 + 10
