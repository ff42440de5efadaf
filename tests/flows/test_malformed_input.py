"""Bad input: a typed error and exit code 2, no value echoed, no charge, nothing published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from pgsr_core.errors import PgsrError
from pgsr_core.hierarchy import (
    CyclicRegions,
    NoRoot,
    OrphanRegion,
    RegionWithTwoParents,
    SeveralRoots,
)
from tasks.configuration.loading import ConfigurationError
from tasks.ingestion import errors
from tasks.ledger.ledger import Ledger
from tasks.storage.places import default_root
from tests.flows.commandline import Pgsr

SECRET = "secretvalue7731"  # noqa: S105  (a value to look for)
CONFIGURATION = """\
product: nests
release: first
population: {name: birds, budget: "4", unit_of_privacy: bird}
source:
  persons: persons.csv
  columns: {person: bird, unit: nest, region: tree, quantity: eggs}
regions: regions.csv
units: units.csv
sizes: {max: 6, largest_contribution: 9}
privacy: {epsilon: "2"}
publish: {to: public}
"""
PERSONS = [["b1", "n1", "oak", "1"], ["b2", "n1", "oak", "2"], ["b3", "n2", "elm", "0"]]
REGIONS = [["wood", ""], ["oak", "wood"], ["elm", "wood"]]
UNITS = [["n1", "oak"], ["n2", "elm"], ["n3", "elm"]]


@dataclass
class Inputs:
    """The four files of a small release, to be spoilt before they are written."""

    configuration: str
    persons: pd.DataFrame
    regions: pd.DataFrame
    units: pd.DataFrame

    def write(self, folder: Path) -> Path:
        for name in ("persons", "regions", "units"):
            getattr(self, name).to_csv(folder / f"{name}.csv", index=False)
        (folder / "product.yaml").write_text(self.configuration)
        return folder / "product.yaml"


def sound() -> Inputs:
    return Inputs(
        CONFIGURATION,
        pd.DataFrame(PERSONS, columns=["bird", "nest", "tree", "eggs"]),
        pd.DataFrame(REGIONS, columns=["region", "parent"]),
        pd.DataFrame(UNITS, columns=["unit", "region"]),
    )


def cell(table: str, row: int, column: str, value: str) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        getattr(inputs, table).loc[row, column] = value

    return spoil


def row(table: str, *values: str) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        frame = getattr(inputs, table)
        frame.loc[len(frame)] = list(values)

    return spoil


def without(table: str, column: str) -> Callable[[Inputs], None]:
    return lambda inputs: setattr(inputs, table, getattr(inputs, table).drop(columns=column))


def emptied(table: str) -> Callable[[Inputs], None]:
    return lambda inputs: setattr(inputs, table, getattr(inputs, table).iloc[:0])


def setting(old: str, new: str) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        assert old in inputs.configuration
        inputs.configuration = inputs.configuration.replace(old, new)

    return spoil


IN_THE_PERSONS = {
    "missing column": (without("persons", "nest"), errors.MissingColumn),
    "null person": (cell("persons", 1, "bird", ""), errors.MissingValue),
    "null unit": (cell("persons", 1, "nest", ""), errors.MissingValue),
    "null region": (cell("persons", 1, "tree", ""), errors.MissingValue),
    "null quantity": (cell("persons", 1, "eggs", ""), errors.MissingValue),
    "quantity of another type": (cell("persons", 1, "eggs", SECRET), errors.WrongType),
    "quantity that is no number": (cell("persons", 1, "eggs", "NaN"), errors.NotANumber),
    "infinite quantity": (cell("persons", 1, "eggs", "inf"), errors.InfiniteQuantity),
    "negative quantity": (cell("persons", 1, "eggs", "-3"), errors.NegativeQuantity),
    "fractional quantity": (cell("persons", 1, "eggs", "1.5"), errors.FractionalQuantity),
    "quantity above Z": (cell("persons", 1, "eggs", "10"), errors.QuantityAboveLimit),
    "huge quantity": (cell("persons", 1, "eggs", "9" * 60), errors.QuantityAboveLimit),
    "unknown region": (cell("persons", 1, "tree", SECRET), errors.UnknownRegion),
    "region that is no leaf": (cell("persons", 1, "tree", "wood"), errors.RegionNotALeaf),
    "unit in another region": (cell("persons", 2, "tree", "oak"), errors.UnitInOtherRegion),
    "unit not in the table": (cell("persons", 1, "nest", SECRET), errors.UnknownUnit),
    "duplicate person": (row("persons", "b1", "n2", "elm", "1"), errors.DuplicatePerson),
}
IN_THE_PUBLIC_FILES = {
    "two parents": (row("regions", "oak", "elm"), RegionWithTwoParents),
    "several roots": (row("regions", "heath", ""), SeveralRoots),
    "no root": (cell("regions", 0, "parent", "oak"), NoRoot),
    "orphan": (cell("regions", 1, "parent", SECRET), OrphanRegion),
    "cycle": (
        lambda inputs: [row("regions", "a", "b")(inputs), row("regions", "b", "a")(inputs)],
        CyclicRegions,
    ),
    "formula": (cell("regions", 1, "region", f"=cmd|{SECRET}"), errors.UnsafeName),
    "path": (cell("regions", 1, "region", f"../{SECRET}"), errors.UnsafeName),
    "duplicate unit": (row("units", "n1", "oak"), errors.DuplicateUnit),
    "unit of an unknown region": (cell("units", 0, "region", SECRET), errors.UnknownRegion),
    "no regions": (emptied("regions"), errors.EmptyTable),
    "no units": (emptied("units"), errors.EmptyTable),
}
IN_THE_CONFIGURATION = {
    "unknown key": setting("product:", "colour: green\nproduct:"),
    "path as a name": setting("product: nests", "product: ../nests"),
    "SQL as a column": setting("unit: nest", "unit: 'nest\"; DROP TABLE x; --'"),
    "float epsilon": setting('epsilon: "2"', 'epsilon: "2e0"'),
    "no such source": setting("persons.csv", "elsewhere.csv"),
    "split of too many levels": setting(
        'epsilon: "2"', 'epsilon: "2", split: ["1/2", "1/4", "1/4"]'
    ),
    "seed without simulation": setting("product:", "seed: 1\nproduct:"),
    "nowhere to publish": setting("to: public", "to: no/such/public"),
}


@pytest.fixture
def refused(
    tmp_path: Path, release_in_process: Callable[[Path], None]
) -> Callable[[Callable[[Inputs], None]], PgsrError]:
    """Spoil sound inputs, release them, and return the error; nothing must have happened."""

    def attempt(spoil: Callable[[Inputs], object]) -> PgsrError:
        inputs = sound()
        spoil(inputs)
        configuration = inputs.write(tmp_path)
        with pytest.raises(PgsrError) as caught:
            release_in_process(configuration)
        error = caught.value
        assert error.exit_code == 2
        assert "Remedy: " in str(error)
        assert SECRET not in str(error)
        ledger = default_root() / "ledger.sqlite"
        if ledger.exists():
            assert all(a.spent == 0 == a.reserved for a in Ledger(f"sqlite:///{ledger}").accounts())
        public = tmp_path / "public"
        assert not public.exists() or not [path for path in public.rglob("*") if path.is_file()]
        return error

    return attempt


def test_the_sound_inputs_are_released(
    tmp_path: Path, release_in_process: Callable[[Path], None]
) -> None:
    release_in_process(sound().write(tmp_path))
    assert (tmp_path / "public" / "nests" / "first" / "report.html").is_file()


@pytest.mark.parametrize("name", IN_THE_PERSONS)
def test_bad_persons_are_refused_by_rule_and_row(
    name: str, refused: Callable[[Callable[[Inputs], None]], PgsrError]
) -> None:
    spoil, expected = IN_THE_PERSONS[name]
    error = refused(spoil)
    assert type(error) is expected
    assert "persons" in str(error)


@pytest.mark.parametrize("name", IN_THE_PUBLIC_FILES)
def test_bad_public_files_are_refused_by_rule_and_configuration_line(
    name: str, refused: Callable[[Callable[[Inputs], None]], PgsrError]
) -> None:
    spoil, expected = IN_THE_PUBLIC_FILES[name]
    error = refused(spoil)
    assert isinstance(error, ConfigurationError)
    [problem] = error.problems
    assert expected.rule in problem.message
    assert problem.line is not None


@pytest.mark.parametrize("name", IN_THE_CONFIGURATION)
def test_bad_configurations_are_refused_with_their_line(
    name: str, refused: Callable[[Callable[[Inputs], None]], PgsrError]
) -> None:
    error = refused(IN_THE_CONFIGURATION[name])
    assert isinstance(error, ConfigurationError)
    assert all(problem.line is not None for problem in error.problems)


def test_a_unit_in_two_regions_is_refused_where_units_come_from_the_data(
    refused: Callable[[Callable[[Inputs], None]], PgsrError],
) -> None:
    def spoil(inputs: Inputs) -> None:
        setting("units.csv", "from-data")(inputs)
        cell("persons", 1, "tree", "elm")(inputs)

    assert type(refused(spoil)) is errors.UnitInTwoRegions


def test_the_command_ends_with_a_message_and_no_traceback(pgsr: Pgsr, tmp_path: Path) -> None:
    inputs = sound()
    inputs.persons.loc[1, "eggs"] = SECRET
    inputs.write(tmp_path)
    done = pgsr("release", "product.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "row 2" in done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr + done.stdout
