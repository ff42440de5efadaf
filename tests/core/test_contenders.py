"""Everything that is compared keeps its claims, and answers to a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import replace
from fractions import Fraction
from multiprocessing import get_context

import numpy as np
import pytest

from pgsr_core import scales
from pgsr_core.budget import balanced_shares
from pgsr_core.evaluation.contenders import (
    CONTENDERS,
    Answer,
    NotApplicable,
    Setting,
    TimedOut,
)
from pgsr_core.evaluation.datasets import EvaluationData, from_leaves, with_public_units
from pgsr_core.evaluation.metrics import constraint_violations
from pgsr_core.evaluation.protocol import level_scales, measured
from pgsr_core.evaluation.published import AS_PRINTED
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing.protocol import Query

LEAVES = [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w"), ("c",)]
COUNTS = np.array([[9, 5, 2, 1], [0, 4, 0, 0], [7, 7, 1, 0], [1, 0, 0, 2], [3, 0, 5, 1]])
FROM_DATA = from_leaves("tiny", LEAVES, COUNTS)
DATA = {"from-data": FROM_DATA, "units": with_public_units(FROM_DATA, empty_share=0.3)}


def setting(data: EvaluationData, *, epsilon: str = "1", seed: int = 3) -> Setting:
    return Setting(data=data, epsilon=Fraction(epsilon), seed=seed, time_limit=60.0)


Ask = Callable[[str, Setting], Answer]
OR_TOOLS = "constraint-tables"
# Its tables grow with the square of the noise.
EPSILON = {OR_TOOLS: "12"}
PAPERS = {
    "exact-counts": "M_H",
    "relaxed-counts": "M_H^r",
    "constraint-tables": "M_dp^OP",
    "direct": "M_H^dp",
    "exact-cumulative": "M_c",
    "relaxed-cumulative": "M_c^r",
    "cumulative": "M_c^dp",
}


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Ask a contender; OR-tools cannot be loaded beside HiGHS, which other tests use."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        yield (
            lambda name, asked: (
                elsewhere.submit(CONTENDERS[name], asked).result()
                if name == OR_TOOLS
                else CONTENDERS[name](asked)
            )
        )


def test_the_papers_seven_mechanisms_are_there_with_the_product_s_own_and_peers() -> None:
    assert {name: CONTENDERS[name].notation for name in PAPERS} == PAPERS
    assert set(CONTENDERS) >= {*PAPERS, "global", "kuo-hc", "kuo-hg", "plain", "top-down"}
    claim_nothing = {name for name, known in CONTENDERS.items() if not known.consistent}
    relaxed = {*AS_PRINTED, *AS_PRINTED.values()}
    assert claim_nothing == {*relaxed, "plain"}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_a_contender_answers_with_integers_and_keeps_its_claim(
    name: str, data: EvaluationData, ask: Ask
) -> None:
    contender = CONTENDERS[name]
    assert contender.name == name
    for seed in range(1 if name == OR_TOOLS else 3):
        answer = ask(name, setting(data, seed=seed, epsilon=EPSILON.get(name, "1")))
        assert answer.values.shape == data.truth.shape
        assert answer.values.dtype == np.int64
        assert answer.seconds >= 0
        if contender.consistent:
            assert constraint_violations(data.tree, answer.values) == 0
            assert (answer.values >= 0).all()
            assert answer.values[0].sum() == data.truth[0].sum()


@pytest.mark.parametrize("name", sorted(set(CONTENDERS) - {OR_TOOLS}))
def test_an_answer_is_a_function_of_the_seed(name: str) -> None:
    first, again, other = (
        CONTENDERS[name](setting(DATA["units"], epsilon="0.2", seed=seed)).values
        for seed in (5, 5, 6)
    )
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_with_hardly_any_noise_the_truth_comes_back(name: str, ask: Ask) -> None:
    for data in DATA.values():
        answer = ask(name, setting(data, epsilon="1000"))
        assert (answer.values == data.truth).all()


def test_mechanisms_with_one_query_and_seed_see_the_same_measurements() -> None:
    """So that what differs between them is their post-processing alone."""
    asked = setting(DATA["units"], epsilon="0.2")
    direct, exact = (CONTENDERS[name](asked).values for name in ("direct", "exact-counts"))
    plain = CONTENDERS["plain"](asked).values
    assert ((direct - plain) ** 2).sum() == ((exact - plain) ** 2).sum()


def test_a_contender_out_of_time_or_out_of_its_depth_says_so() -> None:
    asked = replace(setting(FROM_DATA), time_limit=0.0)
    with pytest.raises(TimedOut) as late:
        CONTENDERS["exact-counts"](asked)
    wide = from_leaves("wide", LEAVES, np.ones((len(LEAVES), 20_000), dtype=np.int64))
    with pytest.raises(NotApplicable) as large:
        CONTENDERS["exact-cumulative"](setting(wide))
    for error in (late.value, large.value):
        again = copy(error)  # as a process that sends it does
        assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize("epsilon", ["0.5", "5"])
def test_a_contender_measures_with_the_split_that_its_mechanism_has_in_a_release(
    epsilon: str,
) -> None:
    asked, query = setting(FROM_DATA, epsilon=epsilon), Query.CUMULATIVE
    shares = balanced_shares(3, epsilon=asked.epsilon, sensitivity=1)
    balanced = level_scales(asked, query, split="balanced")
    assert balanced == tuple(1 / (asked.epsilon * share) for share in shares)
    uniform = level_scales(asked, query)
    assert uniform == (3 / asked.epsilon,) * 3
    assert (balanced == uniform) is (epsilon == "5")
    step = MECHANISMS["global"].steps[0]
    expected = step(measured(asked, query, balanced), asked.data.facts(balanced)).values
    np.testing.assert_array_equal(CONTENDERS["global"](asked).values, expected)


def test_with_little_noise_sparse_rows_are_not_drawn_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(4)
    leaves = [(f"{parent}", f"{child}") for parent in range(6) for child in range(8)]
    counts = (generator.random((len(leaves), 80)) < 0.03).astype(np.int64)
    sparse = from_leaves("sparse", leaves, counts)

    def error(name: str) -> int:
        answers = (CONTENDERS[name](setting(sparse, epsilon="6", seed=s)) for s in range(10))
        return sum(int(np.abs(answer.values - sparse.truth).sum()) for answer in answers)

    assert error("global") < 0.9 * error("cumulative")
    monkeypatch.setattr(scales, "LEAST_POOLED_SCALE", 0)
    assert error("global") > error("cumulative")
