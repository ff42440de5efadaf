"""Releases that start, crash, race, are corrupted, resumed and purged in any order stay sound."""

from __future__ import annotations

from hypothesis import settings

from benchmarks.torture.machine import STEPS, LedgerMachine, MutantMachine, finds_violation

TestNoOrderOfEventsBreaksAPromise = LedgerMachine.TestCase
TestNoOrderOfEventsBreaksAPromise.settings = settings(
    max_examples=8, stateful_step_count=STEPS, deadline=None
)


def test_the_machine_notices_a_protocol_that_draws_again() -> None:
    assert finds_violation(MutantMachine, runs=40) is not None
