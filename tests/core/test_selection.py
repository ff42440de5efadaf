"""The choice of a mechanism: the nearest measured setting decides, and is named."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from pgsr_core.selection import MeasuredResults, MeasuredSetting, Shape, choose

SMALL = Shape(3, 100, 10, public_units=False, epsilon=Fraction(1, 10))
LARGE = Shape(4, 5_000, 1_000, public_units=True, epsilon=Fraction(1))
RESULTS = MeasuredResults(
    command="pgsr evaluate",
    repetitions=30,
    settings=(
        MeasuredSetting("small", SMALL, {"cumulative": 1.0, "global": 1.2, "direct": 2.0}),
        MeasuredSetting("large", LARGE, {"cumulative": 1.0, "global": 0.6, "direct": 3.0}),
    ),
)


def test_the_best_mechanism_of_the_nearest_setting_is_chosen() -> None:
    assert choose(SMALL, RESULTS).mechanism == "cumulative"
    assert choose(LARGE, RESULTS).mechanism == "global"
    assert choose(replace(LARGE, leaves=4_000, levels=3), RESULTS).nearest.data == "large"
    assert choose(replace(SMALL, largest_size=20), RESULTS).nearest.data == "small"


@pytest.mark.parametrize(
    ("change", "distance"),
    [
        ({}, 0),
        ({"levels": 5}, 2),
        ({"leaves": 400}, 2),
        ({"largest_size": 5}, 1),
        ({"public_units": True}, 1),
        ({"epsilon": Fraction(8, 10)}, 3),
    ],
)
def test_a_doubling_a_level_and_the_kind_of_units_count_alike(
    change: dict[str, object], distance: float
) -> None:
    other = replace(SMALL, **change)  # type: ignore[arg-type]
    assert SMALL.distance(other) == pytest.approx(distance)
    assert other.distance(SMALL) == pytest.approx(distance)


def test_equal_settings_and_equal_mechanisms_are_decided_by_their_order() -> None:
    twins = replace(
        RESULTS,
        settings=(
            MeasuredSetting("first", SMALL, {"global": 1.0, "cumulative": 1.0}),
            MeasuredSetting("second", SMALL, {"global": 0.1, "cumulative": 1.0}),
        ),
    )
    assert choose(SMALL, twins).nearest.data == "first"
    assert choose(SMALL, twins).mechanism == "cumulative"


def test_the_explanation_names_the_setting_the_ratio_and_the_command() -> None:
    chosen, because = choose(replace(LARGE, leaves=6_000), RESULTS).explain()
    assert chosen.startswith("global: ")
    assert "large (4 levels, 5,000 leaves, sizes to 1,000, public units, epsilon 1)" in chosen
    assert "error 0.60 of cumulative's there" in because
    assert "others: cumulative 1.00, direct 3.00" in because
    assert "30 repetitions by pgsr evaluate" in because
