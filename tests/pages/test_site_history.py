"""What the site makes of an event log: budgets, forecasts, states, and what stays inside."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction

import pytest

from tasks.site.figures import dates_between
from tasks.site.forecast import at_pace, by_schedule
from tasks.site.history import PUBLIC_FACTS, State, budgets_of, products_of, public
from tasks.site.views import budget_views, event_rows
from tests.pages.example_log import budget, charged, log, raised, scheduled

QUARTERLY = "0 6 1 1,4,7,10 *"


def test_a_budget_is_told_change_by_change() -> None:
    events = log(
        [
            budget("2025-01-01", "2"),
            charged("2025-01-01", "2025-Q1", "1/2"),
            charged("2025-04-01", "2025-Q2", "1"),
            raised("2025-05-01", "4"),
            charged("2025-07-01", "simulated", "0"),
        ]
    )
    [history] = budgets_of(events)
    assert [(c.what, c.charged, c.remaining) for c in history.changes] == [
        ("budget set", 0, 2),
        ("sizes/2025-Q1", Fraction(1, 2), Fraction(3, 2)),
        ("sizes/2025-Q2", 1, Fraction(1, 2)),
        ("budget raised", 0, Fraction(5, 2)),
    ]


def test_the_pace_is_what_was_charged_since_the_first_charge_by_day() -> None:
    events = log(
        [
            budget("2025-01-01", "4"),
            charged("2025-01-01", "a", "1"),
            charged("2025-01-11", "b", "1/2"),
            charged("2025-01-21", "c", "1/2"),
        ]
    )
    [history] = budgets_of(events)
    pace = at_pace(history)
    assert pace is not None
    assert pace.a_year == Fraction(1, 20) * Fraction("365.25")  # 1 in 20 days
    assert pace.used_up == date(2025, 3, 2)  # the remaining 2 last 40 days from the last charge


def test_there_is_no_pace_before_two_charges_on_different_days() -> None:
    events = log([budget("2025-01-01", "4"), charged("2025-01-01", "a", "1")])
    [history] = budgets_of(events)
    assert at_pace(history) is None
    twice = log([budget("2025-01-01", "4"), *(charged("2025-01-01", r, "1") for r in "ab")])
    assert at_pace(budgets_of(twice)[0]) is None


def test_a_schedule_spends_what_the_last_release_cost_until_one_does_not_fit() -> None:
    events = log(
        [
            budget("2025-01-01", "2"),
            charged("2025-01-01", "2025-Q1", "1/4"),
            charged("2025-04-01", "2025-Q2", "1/2"),
            scheduled("2025-04-02", QUARTERLY, "{date:%Y}-Q{quarter}"),
        ]
    )
    [history] = budgets_of(events)
    found = by_schedule(history, products_of(events), after=datetime(2025, 4, 2, 7, tzinfo=UTC))
    assert found is not None
    assert found.products == ("sizes",)
    assert [day for day, _ in found.spending] == [date(2025, 7, 1), date(2025, 10, 1)]
    assert found.fitting == 2  # of 5/4 that are left, twice 1/2
    assert (found.refused, found.refused_on) == ("sizes/2026-Q1", date(2026, 1, 1))


def test_several_slots_of_one_release_cost_once_and_one_that_exists_costs_nothing() -> None:
    events = log(
        [
            budget("2025-01-01", "2"),
            charged("2025-01-01", "2025-01", "1"),
            scheduled("2025-01-02", "0 6 * * *", "{date:%Y-%m}"),
        ]
    )
    [history] = budgets_of(events)
    found = by_schedule(history, products_of(events), after=datetime(2025, 1, 2, 7, tzinfo=UTC))
    assert found is not None
    assert [day for day, _ in found.spending] == [date(2025, 2, 1)]
    assert found.refused == "sizes/2025-03"


def test_the_forecasts_are_said_in_sentences_and_drawn() -> None:
    events = log(
        [
            budget("2025-01-01", "2"),
            charged("2025-01-01", "2025-Q1", "1/2"),
            charged("2025-04-01", "2025-Q2", "1/2"),
            scheduled("2025-04-02", QUARTERLY, "{date:%Y}-Q{quarter}"),
        ]
    )
    [view] = budget_views(budgets_of(events), products_of(events), events)
    pace, schedule = view.forecast
    assert "about 2.03 a year; at that pace the remaining 1 is used up on 2025-09-28" in pace
    assert "2 more releases fit; sizes/2026-Q1, due on 2026-01-01, does not" in schedule
    assert view.short == "2 more by schedule; the one due on 2026-01-01 does not fit"
    assert ">2025-01-01<" in view.svg
    assert ">2025-10-01<" in view.svg


def test_a_budget_that_is_used_up_has_no_forecast() -> None:
    events = log([budget("2025-01-01", "1"), charged("2025-01-01", "a", "1")])
    [view] = budget_views(budgets_of(events), products_of(events), events)
    assert view.short == "used up"
    assert "unless it is raised" in view.forecast[0]


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        (["reserved"], State.BEGUN),
        (["reserved", "measured"], State.MEASURED),
        (["reposted"], State.MEASURED),
        (["measured", "refused"], State.STOPPED),
        (["measured", "refused", "validated", "published"], State.PUBLISHED),
        (["measured", "validated", "published", "withdrawn", "alerted"], State.WITHDRAWN),
    ],
)
def test_a_release_stands_where_its_events_say(kinds: list[str], state: State) -> None:
    told = []
    for kind in kinds:
        facts = {"passed": kind != "refused", "checks": {"one": kind != "refused"}}
        name = "validated" if kind == "refused" else kind
        told.append(("2025-01-01T06:00:00.000+00:00", name, "sizes", "first", facts))
    [product] = products_of(log(told))
    assert product.releases[0].state is state


def test_the_public_sees_no_actor_no_time_no_reason_of_the_house_and_no_unlisted_fact() -> None:
    at = "2025-01-01T06:07:08.000+00:00"
    secret = {"SECRETFACT": "SECRETVALUE", "groups": 123456, "files": ["SECRETFILE"]}
    events = log(
        [
            raised("2025-01-01", "4"),
            *((at, kind, "sizes", "first", secret) for kind in (*PUBLIC_FACTS, "purged", "new")),
        ]
    )

    def rows(*, internal: bool) -> object:
        return event_rows(events, {}, heads=(), internal=internal)

    shown = str([public(event) for event in events]) + str(rows(internal=False))
    for hidden in ("SECRET", "123456", "somebody", "06:07"):
        assert hidden not in shown
    inside = str(rows(internal=True))
    for told in ("SECRETREASON", "somebody@somewhere", "06:07:08"):
        assert told in inside


def test_names_that_lead_elsewhere_get_no_page() -> None:
    at = "2025-01-01T06:00:00.000+00:00"
    events = log(
        [
            (at, "measured", "../../etc", "first", {}),
            (at, "measured", "sizes", "..", {}),
            (at, "measured", "sizes", "a/b", {}),
            (at, "measured", "sizes", "fine", {}),
        ]
    )
    [product] = products_of(events)
    assert [release.name for release in product.releases] == ["sizes/fine"]


@pytest.mark.parametrize(
    ("last", "days"), [(date(2025, 1, 2), 2), (date(2025, 1, 3), 3), (date(2027, 5, 5), 4)]
)
def test_the_days_of_an_axis_are_few_different_and_reach_both_ends(last: date, days: int) -> None:
    first = date(2025, 1, 1)
    found = dates_between(first, last)
    assert (found[0], found[-1], len(set(found))) == (first, last, days)
