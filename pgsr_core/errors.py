"""Errors that a user can cause: each carries its facts and ends with the remedy.

Exit codes are part of the command line's contract: 1 the answer is no, 2 bad input or
configuration, 3 a component is not available and trying again is safe.
"""

from __future__ import annotations

from typing import ClassVar


class PgsrError(Exception):
    """Base of every expected failure; the command line prints it without a traceback.

    Attributes:
        exit_code: of the command that it ends.
        depends_on_data: whether confidential records decide that it is raised. Then its class is
            confidential, too: outside of the confidential zone a run says only that it stopped.
    """

    exit_code: ClassVar[int] = 2
    depends_on_data: ClassVar[bool] = False


class Refused(PgsrError):
    """The question was well put and the answer is no."""

    exit_code: ClassVar[int] = 1


class Unavailable(PgsrError):
    """A component cannot be reached; nothing was changed and trying again is safe."""

    exit_code: ClassVar[int] = 3


class InputError(PgsrError):
    """A table breaks a rule. Says which rule, where and what to do; never quotes a value.

    Row positions and their number depend on confidential data when the table is the person
    table, so this text goes to the operator's terminal and log and nowhere else.

    Args:
        table: which table ("persons", "regions", "units").
        column: the column's role or name, where one is at fault.
        rows: positions of the first offending rows; the first data row is 1.
        count: how many rows offend, where known.
        detail: further facts that hold no value of the data.
    """

    depends_on_data = True
    rule: ClassVar[str] = "the table can be read"
    remedy: ClassVar[str] = "correct the table"

    def __init__(
        self,
        *,
        table: str,
        column: str | None = None,
        rows: tuple[int, ...] = (),
        count: int | None = None,
        detail: str = "",
    ) -> None:
        self.table = table
        self.column = column
        self.rows = rows
        self.count = count
        self.detail = detail
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        where = f"{self.table}, column {self.column}" if self.column else self.table
        text = f"{where}: {self.rule}"
        if self.rows:
            shown = ", ".join(str(row) for row in self.rows)
            more = "" if self.count is None or self.count <= len(self.rows) else ", …"
            text += f" (row {shown}{more}"
            text += f"; {self.count} rows in all)" if self.count and self.count > 1 else ")"
        if self.detail:
            text += f"; {self.detail}"
        return f"{text}. Remedy: {self.remedy}."
