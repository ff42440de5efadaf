"""What can be wrong with an input table: one class a rule, each with its remedy."""

from __future__ import annotations

from pgsr_core.errors import InputError, Unavailable


class RowInFile(int):
    """A data row (the first is 1) of one of several files (the first is 1, in order of name)."""

    file: int

    def __new__(cls, row: int, *, file: int) -> RowInFile:
        """Make the position; it compares as its row."""
        position = super().__new__(cls, row)
        position.file = file
        return position

    def __str__(self) -> str:
        """Say row and file, as it stands in a message."""
        return f"{int(self)} of file {self.file}"


# Files


class MissingFile(InputError):
    rule = "every path must name a file, and every pattern must match one"
    remedy = "correct the path, or deliver the file"


class UnsupportedFile(InputError):
    rule = "the path must end in .csv or .parquet"
    remedy = "convert the table to CSV or Parquet"


class PathWithPattern(InputError):
    rule = "the path of a file, its folders included, must not hold '*', '?' or '['"
    remedy = "rename the file or the folder"


class UnreadableFile(InputError):
    rule = "the file must be whole, readable and of the kind its ending says"
    remedy = "write the file again and check who may read it"


class WrongEncoding(InputError):
    rule = "a CSV file must be UTF-8"
    remedy = "write the file again in UTF-8"


class RaggedRow(InputError):
    rule = "every row of a CSV file must have as many cells as the header, divided by commas"
    remedy = "put cells that hold a comma in double quotes and fill up short rows"


class UnterminatedQuote(InputError):
    rule = "a double quote in a CSV file must be closed, and doubled inside a quoted cell"
    remedy = "close the quote, or double it"


class UnfinishedSource(InputError):
    rule = "a DuckDB file must be closed by whoever writes it (there is a .wal file beside it)"
    remedy = "close the writer, or run CHECKPOINT in it"


class FileChanged(InputError):
    rule = "no file may change while it is read"
    remedy = "wait until the files are complete, then run again"


class MissingTable(InputError):
    rule = "the DuckDB file must hold the table (views are not read)"
    remedy = "correct source.table, or make a table of the view"


class MissingHeader(InputError):
    rule = "a CSV file must begin with the names of its columns"
    remedy = "write the file again with a header; below it there may be no row at all"


class EmptyTable(InputError):
    rule = "a public table must have at least one row"
    remedy = "check that the delivery is complete"


# Columns


class MissingColumn(InputError):
    rule = "the column must be there, spelled as in the configuration"
    remedy = "correct the name; cells of a CSV file are divided by commas"


class DuplicateColumn(InputError):
    rule = "no other column may have the same name, in capitals or not"
    remedy = "rename or drop one of them"


class WrongType(InputError):
    rule = "ids must be text or integers, quantities numbers"
    remedy = "write the column with the right type (missing values turn integers into floats)"


# Rows


class MissingValue(InputError):
    rule = "the cell must not be empty or null"
    remedy = "fill in the value, or drop the row at its origin"


class NotANumber(InputError):
    rule = "a quantity must not be NaN"
    remedy = "fill in the quantity"


class InfiniteQuantity(InputError):
    rule = "a quantity must be finite"
    remedy = "correct the quantity"


class FractionalQuantity(InputError):
    rule = "a quantity must be a whole number"
    remedy = "count in a smaller unit, or round at the origin"


class NegativeQuantity(InputError):
    rule = "a quantity must not be negative"
    remedy = "correct the quantity"


class QuantityAboveLimit(InputError):
    rule = "a quantity must not exceed sizes.largest_contribution"
    remedy = "correct the quantity, or raise the public limit (the noise grows with it)"


class DuplicatePerson(InputError):
    rule = "each person must have exactly one row"
    remedy = "merge the rows of a person, or correct the ids"


class UnknownRegion(InputError):
    rule = "every region must be in the region table"
    remedy = "correct the region, or add it to the region table"


class RegionNotALeaf(InputError):
    rule = "units lie in regions without children"
    remedy = "name the leaf region"


class UnitInTwoRegions(InputError):
    rule = "a unit lies in exactly one region"
    remedy = "correct the region, or give each place an id of its own"


class UnknownUnit(InputError):
    rule = "every unit must be in the public unit table"
    remedy = "add the unit to the unit table, or correct its id"


class UnitInOtherRegion(InputError):
    rule = "a person's region must be the one that the unit table gives for the unit"
    remedy = "correct the region in the person table or in the unit table"


class DuplicateUnit(InputError):
    rule = "each unit must have exactly one row"
    remedy = "keep one row for each unit"


class UnsafeName(InputError):
    rule = (
        "a name must not look like a formula or a path: at most 200 characters, not starting "
        "with = + - @, no '/', '\\', '..', control characters or spaces at its ends"
    )
    remedy = "rename the region"


class OutOfMemory(Unavailable):
    """The machine is too small for the data; nothing was changed."""

    depends_on_data = True

    def __init__(self) -> None:
        super().__init__(
            "reading the input ran out of memory or of disk space for intermediate results. "
            "Remedy: raise resources.memory_limit or free disk space, then run again."
        )
