"""Every broken protocol is caught by a crash at every boundary and a rerun."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.torture.driver import Places, Protocol
from benchmarks.torture.failpoints import boundaries_of, crash_at_every
from benchmarks.torture.mutants import MUTANTS
from benchmarks.torture.rows import Effort, Row, Torture

# Crashes are tried from the reservation on; at most so many for each mutant.
MOST_CRASHES = 20


def run(effort: Effort) -> Iterator[Row]:
    places = Places(effort.folder / "places")
    step = max(1, len(boundaries_of(lambda: Protocol(places.fresh()))) // MOST_CRASHES)
    chosen = dict(list(MUTANTS.items())[:1]) if effort.quick else MUTANTS
    for name, kind in chosen.items():
        trials, _ = crash_at_every(
            lambda kind=kind: kind(places.fresh()),  # type: ignore[misc]
            step=step,
            until_caught=True,
        )
        yield Row(
            f"protocol mutant: {name}",
            f"caught after {trials.tried} crashes" if trials.violations else "not caught",
            "caught",
            bool(trials.violations),
            name,
            bool(trials.violations),
        )


TORTURE = Torture("mutants", run)
