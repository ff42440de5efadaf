"""`pgsr synth`: make a population to try things on."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgsr_core.synthesis.options import BadOption, Shape, whole_numbers

if TYPE_CHECKING:
    from pgsr_core.synthesis.populations import Population
    from tasks.synthesis import Product, Progress, Written

PEOPLE = 300_000
EMPTY_SHARE = 0.05
DATA_FOLDER = "PGSR_DATA"


def synth(
    out: Annotated[Path, typer.Argument(help="New or empty folder to write to.")],
    shape: Annotated[
        Shape | None, typer.Option(help="What the population looks like; us by default.")
    ] = None,
    people: Annotated[
        int | None, typer.Option(help="Rows: persons, or trips of taxis; 300000 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal populations.")] = 1,
    fan_out: Annotated[
        str | None, typer.Option(help="Children of each region, level by level: 52,60.")
    ] = None,
    regions_by_level: Annotated[
        str | None, typer.Option(help="Instead, regions of each level, uneven: 52,3143.")
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option(help="Largest group; by default us 1000, taxi 13282, custom 20."),
    ] = None,
    empty_share: Annotated[
        float, typer.Option(help="Share of the public units that are empty.")
    ] = EMPTY_SHARE,
    rows_per_part: Annotated[
        int, typer.Option(help="Rows of each Parquet file; memory grows with it.")
    ] = 5_000_000,
    from_histogram: Annotated[
        Path | None,
        typer.Option(help=f"Expand this CSV of group counts (also sought in ${DATA_FOLDER})."),
    ] = None,
    level_columns: Annotated[
        str | None, typer.Option(help="The histogram's levels, coarsest first: state,county.")
    ] = None,
    size_columns: Annotated[
        str | None, typer.Option(help="Its counts by size; by default all named like h1, h7plus.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what was written as JSON.")] = False,
) -> None:
    """Make a synthetic population with a configuration that is ready to be released.

    Writes persons/*.parquet, the public unit table (empty units included), regions.csv and
    product.yaml. Nobody in it exists, and nothing is ever overwritten.

    Example: pgsr synth demo-us --shape us --people 300000 --seed 7

    Example: pgsr synth virginia --from-histogram us_va2000_household_size_blockgroup.csv
    --level-columns state,county,tract,bg
    """
    from tasks.synthesis import write_population

    tree = {"shape": shape, "people": people, "fan-out": fan_out}
    tree |= {"regions-by-level": regions_by_level, "max-size": max_size}
    columns = {"level-columns": level_columns, "size-columns": size_columns}
    if from_histogram is None:
        _refuse_given(columns, needs="is for from-histogram only")
        population, product = _drawn(
            shape or Shape.US, people, seed, fan_out, regions_by_level, max_size, empty_share
        )
    else:
        _refuse_given(tree, needs="does not go with from-histogram")
        population, product = _counted(
            from_histogram, level_columns, size_columns, seed, empty_share
        )
    with _progress_bar(population.people) as progress:
        written = write_population(
            population, out, product=product, rows_per_part=rows_per_part, progress=progress
        )
    _report(written, as_json=as_json)


def _drawn(
    shape: Shape,
    people: int | None,
    seed: int,
    fan_out: str | None,
    regions_by_level: str | None,
    max_size: int | None,
    empty_share: float,
) -> tuple[Population, Product]:
    from pgsr_core.synthesis.shapes import draw_population
    from tasks.synthesis import Product

    population = draw_population(
        shape,
        people=PEOPLE if people is None else people,
        seed=seed,
        fan_out=None if fan_out is None else whole_numbers("fan-out", fan_out),
        regions_by_level=None
        if regions_by_level is None
        else whole_numbers("regions-by-level", regions_by_level),
        max_size=max_size,
        empty_share=empty_share,
    )
    name = f"synthetic-{shape.value}-{seed}"
    if shape is Shape.TAXI:
        return population, Product("taxi-trips", name, "trip")
    return population, Product("household-sizes", name, "person")


def _counted(
    file: Path, level_columns: str | None, size_columns: str | None, seed: int, empty_share: float
) -> tuple[Population, Product]:
    from tasks.synthesis import Product, read_histogram

    population = read_histogram(
        _found(file),
        level_columns=_names(level_columns or ""),
        size_columns=None if size_columns is None else _names(size_columns),
        empty_share=empty_share,
        seed=seed,
    )
    return population, Product("household-sizes", f"synthetic-histogram-{seed}", "person")


def _refuse_given(options: Mapping[str, object], *, needs: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise BadOption(option=option, rule=needs, got=value, remedy=f"leave {option} out")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _found(file: Path) -> Path:
    """Return the file as named, or of that name in the data folder."""
    folder = os.environ.get(DATA_FOLDER)
    return Path(folder) / file if folder and not file.exists() else file


@contextmanager
def _progress_bar(total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Writing persons", total=total)
        yield lambda done, _total: bar.update(task, completed=done)


def _report(written: Written, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(written), default=str))
        return
    typer.echo(
        f"{written.people:,} rows in {written.person_parts} part(s), {written.units:,} units "
        f"({written.empty_units:,} empty), {written.regions:,} regions in {written.folder}"
    )
    typer.echo(f"Next: pgsr check {shlex.quote(str(written.configuration))}")
