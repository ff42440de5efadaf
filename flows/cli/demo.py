"""`pgsr demo`: a whole release on a synthetic population, with nothing set up beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.homes import home_at
from flows.cli.release import AsJson, Verbose, run_and_report, slot_time
from pgsr_core.synthesis.options import Shape
from tasks.storage.places import BESIDE

PEOPLE = 300_000
FAN_OUT = (12, 10)
MAX_SIZE = 20
SEED = 2026


def demo(
    folder: Annotated[Path, typer.Option(help="Where demonstrations are kept.")] = Path("demo"),
    people: Annotated[int, typer.Option(help="How many people to make up.")] = PEOPLE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make up a population in a three-level tree and release it.

    Example: pgsr demo
    """
    from flows.cli.screen import err, warn
    from pgsr_core.synthesis.shapes import draw_population
    from tasks.stages.prepare import prepare
    from tasks.synthesis import Product, write_population

    place = _fresh(folder)
    err.print(f"Making up {people:,} people in {place}")
    population = draw_population(
        Shape.US, people=people, seed=SEED, fan_out=FAN_OUT, max_size=MAX_SIZE
    )
    product = Product("household-sizes", "made-up-residents", "person")
    written = write_population(population, place, product=product)
    # Its own folder, whatever PGSR_HOME says: demonstrations share no ledger with real releases.
    home = home_at(place.absolute() / BESIDE)
    ref = prepare(written.configuration, slot=slot_time(None), home=home, warn=warn)
    run_and_report(ref, as_json=as_json, verbose=verbose)


def _fresh(folder: Path) -> Path:
    """A folder of its own for each demonstration: nothing is overwritten."""
    number = 1
    while (folder / str(number)).exists():
        number += 1
    return folder / str(number)
