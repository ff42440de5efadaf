"""What a synthetic population may be asked for, and the errors of asking for something else."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pgsr_core.errors import InputError, PgsrError

LARGEST_SIZE = 1_000_000
MOST_PEOPLE = 10**12
MOST_REGIONS = 5_000_000
LARGEST_EMPTY_SHARE = 0.9


class Shape(StrEnum):
    """The populations that can be drawn without a file."""

    US = "us"
    """Nation, states, counties; households, and a few large group quarters."""

    TAXI = "taxi"
    """City, boroughs, zones; one unit for a taxi in a zone, one row for a trip."""

    CUSTOM = "custom"
    """A tree of any depth; households."""


class BadOption(PgsrError):
    """An option of the generator is out of its range or does not go with another one.

    Args:
        option: the option's name, without dashes.
        rule: what must hold.
        got: the value given.
        remedy: what to do.
    """

    def __init__(self, *, option: str, rule: str, got: object, remedy: str) -> None:
        self.option = option
        self.rule = rule
        self.got = got
        self.remedy = remedy
        super().__init__(f"{option} {rule}, got {got}. Remedy: {remedy}.")


class HistogramError(InputError):
    """The histogram of group sizes cannot be turned into a population."""

    rule = "the file must be a CSV with one column a level and one column a size"
    remedy = "save it as UTF-8 CSV with a header line"


class MissingColumn(HistogramError):
    rule = "every column that is asked for must be in the header, once"
    remedy = "correct the level columns or the size columns, or the header"


class BadGroupCount(HistogramError):
    rule = "counts of groups must be whole numbers from 0 on"
    remedy = "correct the cells; leave no cell empty"


class LevelGap(HistogramError):
    rule = "a level may be empty only where all finer levels are empty, and the coarsest never"
    remedy = "fill in the level, or end the branch there"


class GroupsAboveLeaf(HistogramError):
    rule = "only regions without subregions may hold groups"
    remedy = "give the row the finer levels, or drop it where it is a total of other rows"


class NoPeople(HistogramError):
    rule = "at least one group of size 1 or more is needed"
    remedy = "check that the size columns are the right ones"


def check_range(option: str, value: float, *, lowest: float, highest: float) -> None:
    """Refuse a number outside [lowest, highest].

    Raises:
        BadOption: always with the range in its text.
    """
    if not lowest <= value <= highest:
        raise BadOption(
            option=option,
            rule=f"must be from {lowest:,} to {highest:,}",
            got=value,
            remedy="choose a number in that range",
        )


def check_common(*, seed: int, empty_share: float) -> None:
    """Refuse what no population can have.

    Raises:
        BadOption: the seed or the share of empty units is out of range.
    """
    check_range("seed", seed, lowest=0, highest=2**63 - 1)
    check_range("empty-share", empty_share, lowest=0, highest=LARGEST_EMPTY_SHARE)


def check_tree(option: str, numbers: Sequence[int]) -> None:
    """Refuse an empty list of levels and levels without regions.

    Raises:
        BadOption: always naming the option and what it needs.
    """
    if not numbers or min(numbers) < 1:
        raise BadOption(
            option=option,
            rule="must be whole numbers from 1 on, one for each level below the root",
            got=",".join(str(number) for number in numbers) or "nothing",
            remedy="write them with commas, such as 12,10",
        )


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Parse a list such as "52,60".

    Raises:
        BadOption: a part is not a whole number.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadOption(
            option=option,
            rule="must be whole numbers with commas between",
            got=repr(text),
            remedy="write for example 12,10",
        ) from None
