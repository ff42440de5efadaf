"""Evaluations: what is missing is run, what does not end is ended, tables tell what was found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pgsr_core.evaluation.contenders import CONTENDERS, MechanismContender, NotApplicable
from pgsr_core.evaluation.datasets import from_leaves
from pgsr_core.evaluation.metrics import LevelError
from pgsr_core.evaluation.published import AS_PRINTED, CENSUS, COMPARED, EPSILONS, TABLE_1
from pgsr_core.mechanisms import MECHANISMS
from tasks.evaluation import comparison, paper, real_data, stages, supervisor, worker
from tasks.evaluation.catalogue import CATALOGUE, UnknownData, expand, read_data
from tasks.evaluation.order import SLOW, BadOrder, Order, Trial, make_order
from tasks.evaluation.report import NoSuchPart, fill_page, write_report
from tasks.evaluation.store import (
    OtherEvaluation,
    Outcome,
    Result,
    Store,
    open_store,
    prepare_store,
)
from tasks.evaluation.supervisor import Supervisor
from tasks.evaluation.tables import Estimate, Table

ANSWERED = Result(Outcome.ANSWERED, 0.1, 44, 1_000, 0, (LevelError(1, 5, 7, 0.5),))


def order_of(folder: Path, **options: Any) -> Order:
    chosen: dict[str, Any] = {
        "folder": folder,
        "data": "taxi-like",
        "mechanisms": "cumulative,global",
        "epsilons": "0.1,1.0",
        "repetitions": 2,
        "seed": 7,
        "time_limit": 100.0,
        **options,
    }
    order = make_order(**chosen)
    prepare_store(order)
    return order


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return order_of(tmp_path / "results")


FACTS = {
    "levels": 1, "regions": 1, "leaves": 1, "largest_size": 3, "groups": 9, "public_units": False
}  # fmt: skip


class FakeSupervisor:
    """Answers at once with what a test says, and remembers what it was asked."""

    facts = FACTS
    asked: list[dict[str, Any]]
    answers: Iterator[Result | BaseException]

    def __init__(self, data: str, mechanism: str) -> None:
        self.group = (data, mechanism)

    def __enter__(self) -> FakeSupervisor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, **request: Any) -> Result:
        type(self).asked.append(request)
        answer = next(type(self).answers, ANSWERED)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Have the next runs answered as given, later ones well; returns what is asked."""
    monkeypatch.setattr(stages, "Supervisor", FakeSupervisor)

    def answering(*answers: Result | BaseException) -> list[dict[str, Any]]:
        FakeSupervisor.asked, FakeSupervisor.answers = [], iter(answers)
        return FakeSupervisor.asked

    return answering


def measure(order: Order, data: str = "taxi-like", mechanism: str = "cumulative") -> None:
    stages.measure.fn(order, data, mechanism)


def outcomes(order: Order) -> list[str]:
    with open_store(order) as store:
        return [row["outcome"] for row in store.rows("SELECT outcome FROM runs ORDER BY ALL")]


def test_an_interrupted_evaluation_loses_one_run_and_goes_on_with_the_others(order, asked):
    first = asked(ANSWERED, ANSWERED, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        measure(order)
    assert (len(first), len(outcomes(order))) == (3, 2)
    second = asked()
    measure(order)
    assert len(second) == 2
    assert second[0] == first[2]
    assert outcomes(order) == ["answered"] * 4
    assert stages.unfinished(order) == [("taxi-like", "global")]


def test_more_repetitions_only_make_the_further_ones(order, asked):
    asked()
    measure(order)
    more = asked()
    measure(order.model_copy(update={"repetitions": 3}))
    assert [request["epsilon"] for request in more] == ["0.1", "1"]


def test_all_mechanisms_meet_the_same_noise_and_every_run_another_one(order):
    trials = [*order.trials("taxi-like", "cumulative"), *order.trials("census", "cumulative")]
    seeds = [order.seed_of(trial) for trial in trials]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [order.seed_of(trial._replace(mechanism="global")) for trial in trials]
    assert order.model_copy(update={"seed": 8}).seed_of(trials[0]) != seeds[0]


def test_results_of_another_seed_are_not_mixed_in(order):
    with pytest.raises(OtherEvaluation, match="seed 7"):
        prepare_store(order.model_copy(update={"seed": 8}))


def test_what_timed_out_is_tried_again_only_with_more_time(order, asked):
    made = asked(Result(Outcome.TIMED_OUT, seconds=100.0))
    measure(order)
    assert [request["epsilon"] for request in made] == ["0.1", "1", "1"]
    assert stages.unfinished(order) == [("taxi-like", "global")]
    patient = asked()
    measure(order.model_copy(update={"time_limit": 200.0}))
    assert [request["epsilon"] for request in patient] == ["0.1", "0.1"]


@pytest.mark.parametrize(("patience", "runs"), [(None, 2), (50.0, 1), (130.0, 3)])
def test_repetitions_end_when_together_they_took_all_patience(tmp_path, asked, patience, runs):
    order = order_of(tmp_path, repetitions=5, patience=patience)
    made = asked(*[Result(Outcome.ANSWERED, seconds=60.0)] * 10)
    measure(order)
    assert len(made) == runs * len(order.epsilons)


def test_what_cannot_be_run_is_asked_once_and_what_failed_again_next_time(order, asked):
    made = asked(Result(Outcome.NOT_APPLICABLE))
    measure(order)
    assert len(made) == 1
    asked(Result(Outcome.FAILED, note="out of memory"))
    measure(order, mechanism="global")
    again = asked()
    measure(order, mechanism="global")
    assert len(again) == 1


def test_the_series_ends_where_a_smaller_member_was_too_much(tmp_path, asked):
    order = order_of(tmp_path, data="synthetic", mechanisms="exact-counts", repetitions=9)
    made = asked(Result(Outcome.TIMED_OUT, seconds=100.0))
    measure(order, "synthetic-10", "exact-counts")
    assert len(made) == 1
    assert stages.unfinished(order) == [("synthetic-5", "exact-counts")]


def test_exact_programs_are_run_less_often_and_others_wherever_they_are(tmp_path):
    order = order_of(tmp_path, data="synthetic-5,taxi-outskirts", epsilons="0.1,1", repetitions=9)
    exact = order.trials("taxi-outskirts", "exact-counts")
    assert {trial.epsilon for trial in exact} == {"5"}
    assert len(exact) == 5
    compared = order.trials("taxi-outskirts", "direct")
    assert len(compared) == 3 * 9
    assert {trial.epsilon for trial in compared} == {"0.1", "1", "5"}
    assert {trial.epsilon for trial in order.trials("synthetic-5", "exact-counts")} == {"0.5"}


def test_an_exact_solver_is_asked_for_the_optimum_that_is_published(order):
    def answered(mechanism: str, repetition: int, distance: int) -> None:
        result = replace(ANSWERED, distance=distance)
        trial = Trial("taxi-outskirts", mechanism, "5", repetition)
        store.add(trial, result, seed=1, time_limit=9)

    with open_store(order) as store:
        for repetition, distance in enumerate((771, 802)):
            answered("direct", repetition, distance)
            answered("exact-counts", repetition, distance)
            answered("constraint-tables", repetition, 802)
        timed_out = Trial("taxi-outskirts", "exact-counts", "5", 2)
        store.add(timed_out, Result(Outcome.TIMED_OUT), seed=1, time_limit=9)
        found = comparison.optima(store)
    assert found.rows == (
        ("taxi-outskirts", "5", "M_H (exact-counts)", 2, 2),
        ("taxi-outskirts", "5", "M_dp^OP (constraint-tables)", 2, 1),
    )


def test_all_mechanisms_are_spelled_out_and_the_slow_ones_kept_to_small_data(tmp_path):
    everything = order_of(tmp_path, mechanisms="all", data="taxi-like,synthetic-5")
    assert set(everything.mechanisms) == set(CONTENDERS)
    outside = {mechanism for data, mechanism in everything.groups() if data == "taxi-like"}
    assert outside == set(CONTENDERS) - set(SLOW)


def test_programs_as_printed_are_kept_to_one_census_and_small_data(tables, tmp_path):
    everything = order_of(tmp_path / "results", mechanisms="all", data="all")
    printed = set(AS_PRINTED.values())
    where = {data for data, mechanism in everything.groups() if mechanism in printed}
    # Not census-like, which would take its place.
    assert {data for data in where if CATALOGUE[data].exact_epsilon is None} == {"census"}
    assert not printed & set(order_of(tmp_path / "quick", mechanisms=None).mechanisms)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mechanisms": "magic"},
        {"epsilons": "0.1,minus"},
        {"epsilons": "-1"},
        {"epsilons": ","},
        {"repetitions": 0},
        {"time_limit": 0.0},
        {"patience": 0.0},
        {"page": Path("nowhere.md")},
    ],
)
def test_an_order_that_cannot_be_made_says_what_to_do(tmp_path, wrong):
    with pytest.raises(BadOrder, match="Remedy: "):
        order_of(tmp_path, **wrong)


class Script(Supervisor):
    """A supervisor of a worker that a test wrote."""

    def __init__(self, script: str) -> None:
        super().__init__("data", "mechanism")
        self._command = [sys.executable, "-c", script]


REQUEST: dict[str, Any] = {"epsilon": "1", "seed": 1, "time_limit": 0.1}


def test_a_worker_that_does_not_end_is_ended_and_replaced(monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.1)
    hanging = "import time; print('{}', flush=True); time.sleep(600)"
    with Script(hanging) as tried:
        for _ in range(2):
            result = tried.run(**REQUEST)
            assert (result.outcome, result.seconds) == (Outcome.TIMED_OUT, 0.1)
            assert tried._worker is None


def test_a_worker_that_dies_leaves_its_last_words():
    with Script("raise SystemExit('no memory left')") as tried:
        result = tried.run(**REQUEST)
    assert result.outcome == Outcome.FAILED
    assert result.note == "the process ended with 1: no memory left"


TINY = from_leaves("tiny", [("a",), ("b",)], np.array([[40, 20, 10], [30, 0, 10]]))


def test_a_run_is_measured_against_the_truth():
    found = worker.run(CONTENDERS["cumulative"], TINY, epsilon="1000", seed=1, time_limit=10)
    assert found["outcome"] == Outcome.ANSWERED
    assert [error["l1"] for error in found["errors"]] == [0, 0]
    assert found["violations"] == 0
    assert found["memory"] is None or found["memory"] >= 0


def test_whatever_a_mechanism_does_is_a_result():
    def answer(error: Exception) -> Any:
        def contender(_setting: object) -> None:
            raise error

        return worker.run(contender, TINY, epsilon="1", seed=1, time_limit=10)  # type: ignore[arg-type]

    assert answer(ValueError("odd"))["note"] == "ValueError: odd"
    refused = answer(NotApplicable(contender="x", reason="too many cells"))
    assert refused["outcome"] == Outcome.NOT_APPLICABLE


@pytest.fixture
def store(order: Order) -> Iterator[Store]:
    with open_store(order) as opened:
        yield opened


def plant(store: Store, trial: Trial, l1: list[int], *, violations: int = 0) -> None:
    errors = tuple(LevelError(n, value, 2 * value, value / 10) for n, value in enumerate(l1, 1))
    result = Result(Outcome.ANSWERED, True, 0.5, 10**6, violations, errors)
    store.describe(trial.data, {**FACTS, "levels": len(l1)})
    store.add(trial, result, seed=1, time_limit=100.0)


def test_ratios_are_paired_and_their_errors_those_of_the_delta_method(store):
    generator = np.random.default_rng(3)
    base = generator.integers(80, 120, 6)
    other = base // 2 + generator.integers(0, 5, 6)
    for repetition in range(6):
        plant(store, Trial("hospitals", "cumulative", "1", repetition), [int(base[repetition])])
        plant(store, Trial("hospitals", "global", "1", repetition), [int(other[repetition])])
    plant(store, Trial("hospitals", "global", "1", 6), [10_000])  # has no partner
    [row] = store.rows("SELECT * FROM ratios WHERE mechanism = 'global' AND metric = 'l1'")
    ratio = other.mean() / base.mean()
    error = np.std(other - ratio * base, ddof=1) / np.sqrt(6) / base.mean()
    assert (row["ratio"], row["standard_error"]) == pytest.approx((ratio, error))
    assert row["repetitions"] == 6


def plant_table_1(store: Store, change: dict[tuple[str, str], list[int]] | None = None) -> None:
    for epsilon in EPSILONS:
        for mechanism in COMPARED:
            l1 = [int(error) for error in TABLE_1[CENSUS, epsilon, mechanism].l1]
            l1 = (change or {}).get((epsilon, mechanism), l1)
            plant(store, Trial("census-like", mechanism, epsilon, 0), l1)


def others(store: Store, *, as_printed: bool = False) -> list[tuple[Any, ...]]:
    rows = paper.orders(store, CENSUS, as_printed=as_printed).rows
    return [row for row in rows if row[-1] != paper.AGREES]


def test_the_papers_own_numbers_agree_with_its_order(store):
    plant_table_1(store)
    assert others(store) == []


def test_an_order_that_is_not_the_papers_is_told(store):
    plant_table_1(store, {("1", "cumulative"): [5_000, 3_200, 91_000]})
    [found] = others(store)
    assert (found[0], found[1], found[-1]) == ("1", 1, paper.DISAGREES)
    assert "cumulative" in str(found[2])
    assert "direct" in str(found[3])


def test_orders_as_printed_are_those_of_the_programs_as_printed(store):
    plant_table_1(store, {("1", name): [1, 1, 1] for name in AS_PRINTED})
    missing = others(store, as_printed=True)
    assert {row[-1] for row in missing} == {paper.NOT_MEASURED}
    for epsilon in EPSILONS:
        for name, printed in AS_PRINTED.items():
            l1 = [int(error) for error in TABLE_1[CENSUS, epsilon, name].l1]
            plant(store, Trial("census-like", printed, epsilon, 0), l1)
    assert others(store, as_printed=True) == []
    assert others(store) != []


def test_reports_have_every_table_and_figure_and_fill_in_a_page(order, store, tmp_path):
    plant_table_1(store)
    plant(store, Trial("census-like", "global", "1", 0), [90, 3_000, 90_000])
    plant(store, Trial("synthetic-5", "global", "0.5", 0), [1, 2, 3])
    no_time = Result(Outcome.ANSWERED, 0.0, violations=0)
    store.add(Trial("synthetic-5", "plain", "0.5", 0), no_time, seed=1, time_limit=9)
    page = tmp_path / "page.md"
    marked = "<!-- evaluation: table-1-census -->\nold\n<!-- /evaluation -->"
    page.write_text(f"before\n{marked}\nafter\n")
    write_report(order.model_copy(update={"page": str(page)}), store)
    text = page.read_text()
    assert text.startswith("before\n<!-- evaluation: table-1-census -->\n| ε | mechanism |")
    assert text.endswith("<!-- /evaluation -->\nafter\n")
    assert "old" not in text
    folder = Path(order.folder)
    assert (folder / "tables" / "figure-10.csv").is_file()
    for name in ("figure-8", "figure-9", "figure-10"):
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<svg")
        assert (tmp_path / "page" / f"{name}.svg").is_file()
    assert "noise alone" not in (folder / "figures" / "figure-8.svg").read_text()
    document = (folder / "evaluation.md").read_text()
    assert "not private, for public or synthetic data only" in document
    assert "A quick run" in document
    measured = json.loads((folder / "measured.json").read_text())
    assert [setting["epsilon"] for setting in measured["settings"]] == list(EPSILONS)
    assert measured["settings"][2]["best"] == "global"
    assert measured["settings"][2]["ratios"]["cumulative"] == 1


def test_a_page_with_an_unknown_part_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- evaluation: nonsense -->\n<!-- /evaluation -->\n")
    with pytest.raises(NoSuchPart, match="nonsense"):
        fill_page(page, {}, {})


def test_a_challenger_is_worse_or_even_only_where_the_error_allows_to_say_so(store):
    def verdict(*errors: int) -> tuple[Any, ...]:
        for repetition, error in enumerate(errors):
            plant(store, Trial("hospitals", "cumulative", "1", repetition), [100])
            plant(store, Trial("hospitals", "global", "1", repetition), [error])
        [row] = comparison.challenge(store).rows
        return row[-2:]

    assert verdict(90, 91, 92) == ("–", "–")
    assert verdict(90, 99, 108) == ("–", "L1 1, earth mover 1")
    assert verdict(109, 110, 111) == ("L1 1, earth mover 1", "–")


def test_a_promise_that_is_broken_is_found_and_no_promise_is_not_broken(store, monkeypatch):
    free = MechanismContender(MECHANISMS["direct"], consistent=False)
    monkeypatch.setattr(comparison, "CONTENDERS", {**CONTENDERS, "direct": free})
    plant(store, Trial("hospitals", "direct", "1", 0), [1], violations=3)
    assert comparison.broken_promises(store) == []
    plant(store, Trial("hospitals", "global", "1", 0), [1], violations=1)
    assert comparison.broken_promises(store) == ["global"]


def test_a_mean_and_its_error_are_one_cell_for_people_and_two_for_machines():
    table = Table("t", ("name", "x"), (("a", Estimate(1234.5, 6.7)), ("b", None)))
    assert table.markdown() == "| name | x |\n| --- | --: |\n| a | 1,234 ± 7 |\n| b | – |\n"
    assert table.csv() == "name,x,x (SE)\na,1234.5,6.7\nb,,\n"
    assert str(Estimate(0.01234, None)) == "0.0123"


TABLES = {
    real_data.VIRGINIA: "bg,tract,county,state,h1,h2,h3,h4,h5,h6,h7plus\n"
    "111,11,1,51,9,8,7,6,5,4,3\n121,12,1,51,1,0,0,0,0,0,0\n",
    real_data.ENGLAND_AND_WALES: "lsoa21,msoa_name,lad_name,region,country,"
    "h1,h2,h3,h4,h5,h6,h7,h8plus\n"
    "E1,m,d,r,England,1,2,3,4,5,6,7,8\nW1,n,e,s,Wales,0,0,0,0,0,0,0,1\n",
    real_data.AUSTRALIA: "sa1,sa2,sa3,sa4,state,h1,h2,h3,h4,h5,h6plus\n"
    "11111,1111,111,11,1,3,4,0,0,3,5\n11112,1111,111,11,1,0,0,0,0,0,3\n",
    real_data.LARGE_COUNTIES: "county,state,name,total,h1,h2,h3,h4plus\n"
    '01003,01,"Baldwin County, Alabama",10,1,2,3,4\n02020,02,"Anchorage",1,0,0,0,1\n',
    real_data.MANHATTAN: "root,town,neighbourhood,size,count\n"
    "m,low,n0,1,5\nm,low,n0,4,2\nm,up,n1,2,3\n",
    real_data.HOSPITALS: "id,state,county_fips,beds\n"
    "1,CA,06031,49\n2,CA,06031,-999\n3,NY,36001,1200\n",
    real_data.COUNTIES: "county,name,state,pop2010,households_2009_13,"
    "persons_per_household_2009_13\n01001,A,AL,9,20071,2.71\n01003,B,AL,9,7328,2.52\n",
}
EXPECTED = {
    "virginia-2000": (4, 7, 43),
    "england-wales-2021": (6, 8, 37),
    "australia-2016": (6, 6, 18),
    "large-counties-2019": (3, 4, 11),
    "manhattan-taxi": (3, 4, 10),
    "hospitals": (3, 1000, 2),
    "census": (3, 1000, 20071 + 7328 + 50),
}


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TABLES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PGSR_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", EXPECTED)
def test_real_data_are_read_into_a_tree_that_adds_up(tables, name):
    data = read_data(name)
    assert (data.tree.levels, data.largest_size, data.counts[0].sum()) == EXPECTED[name]
    assert (data.tree.children_sums(data.counts) == data.counts).all()
    assert data.name == name
    assert read_data(f"{name}-units").name == f"{name}-units"


def test_hospitals_without_known_beds_are_left_out_and_large_ones_top_coded(tables):
    counts = read_data("hospitals").counts[0]
    assert np.flatnonzero(counts).tolist() == [48, 999]


@pytest.mark.parametrize("damage", ["", "a,b\n1,2\n", "odd"])
def test_a_damaged_table_is_a_typed_error(tables, damage):
    for name, text in TABLES.items():
        (tables / name).write_text(text.replace(",1", ",x") if damage == "odd" else damage)
    with pytest.raises(real_data.RealDataUnreadable, match="Remedy: "):
        read_data("virginia-2000")


def test_without_real_data_all_means_what_is_generated(monkeypatch, tmp_path):
    monkeypatch.setenv("PGSR_DATA", str(tmp_path))
    assert set(expand(("all",))) == {name for name, data in CATALOGUE.items() if not data.file}
    with pytest.raises(real_data.RealDataMissing, match=r"PGSR_DATA.*Remedy: "):
        expand(("hospitals",))
    with pytest.raises(UnknownData, match="hospitels"):
        expand(("hospitels",))
