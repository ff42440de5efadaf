"""Everything that is compared keeps its claims, and answers to a seed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pgsr_core.evaluation.contenders import CONTENDERS, Setting
from pgsr_core.evaluation.datasets import EvaluationData, from_leaves, with_public_units
from pgsr_core.evaluation.metrics import constraint_violations

LEAVES = [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w"), ("c",)]
COUNTS = np.array([[9, 5, 2, 1], [0, 4, 0, 0], [7, 7, 1, 0], [1, 0, 0, 2], [3, 0, 5, 1]])
FROM_DATA = from_leaves("tiny", LEAVES, COUNTS)
DATA = {"from-data": FROM_DATA, "units": with_public_units(FROM_DATA, empty_share=0.3)}


def setting(data: EvaluationData, *, epsilon: str = "1", seed: int = 3) -> Setting:
    return Setting(data=data, epsilon=Fraction(epsilon), seed=seed, time_limit=60.0)


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_a_contender_answers_with_integers_and_keeps_its_claim(
    name: str, data: EvaluationData
) -> None:
    contender = CONTENDERS[name]
    assert contender.name == name
    for seed in range(3):
        answer = contender(setting(data, seed=seed))
        assert answer.values.shape == data.truth.shape
        assert answer.values.dtype == np.int64
        assert answer.seconds >= 0
        if contender.consistent:
            assert answer.optimal
            assert constraint_violations(data.tree, answer.values) == 0
            assert (answer.values >= 0).all()
            assert answer.values[0].sum() == data.truth[0].sum()


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_an_answer_is_a_function_of_the_seed(name: str) -> None:
    first, again, other = (
        CONTENDERS[name](setting(DATA["units"], epsilon="0.2", seed=seed)).values
        for seed in (5, 5, 6)
    )
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_with_hardly_any_noise_the_truth_comes_back(name: str) -> None:
    for data in DATA.values():
        answer = CONTENDERS[name](setting(data, epsilon="1000"))
        assert (answer.values == data.truth).all()
