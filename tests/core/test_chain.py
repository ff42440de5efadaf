"""The hash chain: whatever is done to a chain is found, and called what it is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsr_core.chain import GENESIS, GENESIS_HASH, Event, Head, append, event_hash, verify_chain


def chain(length: int = 6, start: Head = GENESIS, word: str = "fact") -> list[Event]:
    events: list[Event] = []
    head = start
    for number in range(length):
        event = append(
            head,
            at=f"2026-01-01T00:00:0{number % 10}.000+00:00",
            actor="operator@office",
            kind="recorded",
            product="p",
            release=None,
            facts={word: number, "digest": "d" * 64, "nested": {"b": [1, True], "a": "ü"}},
        )
        events.append(event)
        head = event.head
    return events


def damages(events: list[Event], **against: Head) -> list[tuple[str, int]]:
    return [(found.damage, found.sequence) for found in verify_chain(events, **against).breaks]


def test_a_chain_as_it_was_written_is_intact_and_has_the_last_events_head() -> None:
    events = chain()
    report = verify_chain(events, head=events[-1].head)
    assert report.intact
    assert (report.length, report.head) == (6, Head(6, events[-1].hash))
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6]
    assert events[0].previous == GENESIS_HASH == "0" * 64


def test_no_events_are_an_intact_chain() -> None:
    assert verify_chain([]).head == GENESIS
    assert verify_chain([], head=GENESIS).intact


def test_the_hash_is_that_of_the_sorted_compact_json_of_all_but_itself() -> None:
    event = chain(1)[0]
    fields = {name: value for name, value in vars(event).items() if name != "hash"}
    obvious = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert event.hash == hashlib.sha256(obvious.encode()).hexdigest() == event_hash(event)


EDITS = {
    "sequence": 99,
    "at": "2027-01-01T00:00:00.000+00:00",
    "actor": "other@office",
    "kind": "other",
    "product": None,
    "release": "r",
    "facts": {},
    "previous": "1" * 64,
    "hash": "1" * 64,
}


@pytest.mark.parametrize("field", EDITS)
@pytest.mark.parametrize("position", [0, 2, 5])
def test_an_edit_of_any_field_of_any_event_is_found(field: str, position: int) -> None:
    events = chain()
    events[position] = replace(events[position], **{field: EDITS[field]})
    assert ("edited", events[position].sequence) in damages(events)


@pytest.mark.parametrize("facts", [{"n": 2**80}, {"n": float("nan")}, {"n": b"bytes"}])
def test_facts_that_could_never_be_written_are_an_edit_and_no_traceback(facts: dict) -> None:
    events = chain()
    events[3] = replace(events[3], facts=facts)
    assert damages(events) == [("edited", 4)]


def test_an_edit_with_a_new_hash_is_told_by_the_event_after_it() -> None:
    events = chain()
    forged = replace(events[2], facts={})
    events[2] = replace(forged, hash=event_hash(forged))
    assert damages(events) == [("edited", 3)]


def test_a_deleted_event_is_found_with_its_number() -> None:
    events = chain()
    del events[2:4]
    report = verify_chain(events)
    assert [(found.damage, found.sequence) for found in report.breaks] == [("deleted", 3)]
    assert "3 to 4" in str(report.breaks[0])


def test_deleted_first_events_are_found() -> None:
    assert damages(chain()[1:]) == [("deleted", 1)]


def test_events_in_another_order_are_reordered() -> None:
    events = chain()
    events[2], events[3] = events[3], events[2]
    assert ("reordered", 3) in damages(events)


def test_events_that_swapped_their_numbers_are_reordered() -> None:
    events = chain()
    events[2], events[3] = replace(events[3], sequence=3), replace(events[2], sequence=4)
    assert damages(events) == [("reordered", 3), ("reordered", 4)]


@pytest.mark.parametrize("left", range(6))
def test_a_cut_tail_is_found_against_a_head_and_only_against_one(left: int) -> None:
    events = chain()
    assert damages(events[:left]) == []
    assert damages(events[:left], head=events[-1].head) == [("truncated", left)]


def test_another_history_is_a_fork_against_a_head() -> None:
    events = chain()
    other = events[:3] + chain(5, start=events[2].head, word="other")
    assert verify_chain(other).intact
    assert damages(other, head=events[4].head) == [("forked", 5)]
    assert damages(other, head=events[2].head) == []


def test_two_events_of_one_number_are_a_fork() -> None:
    events = chain()
    twin = chain(1, start=events[1].head, word="twin")[0]
    assert ("forked", 3) in damages([*events[:3], twin, *events[3:]])


def test_a_tail_is_verified_from_where_it_was_seen_before() -> None:
    events = chain()
    assert verify_chain(events[3:], start=events[2].head, head=events[-1].head).intact
    assert damages(events[3:], start=Head(3, "f" * 64)) == [("forked", 4)]
    assert damages(events[4:], start=events[2].head) == [("deleted", 4)]
    assert damages([], start=events[2].head, head=Head(3, "f" * 64)) == [("forked", 3)]


@settings(max_examples=60)
@given(data=st.data())
def test_no_subset_or_order_but_the_written_one_verifies_against_its_head(
    data: st.DataObject,
) -> None:
    events = chain(5)
    kept = data.draw(st.lists(st.sampled_from(events), max_size=7))
    report = verify_chain(kept, head=events[-1].head)
    assert report.intact == (kept == events)
