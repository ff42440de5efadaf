"""`pgsr status`: where every release stands, whose it is, and the command to run next."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.homes import HomeFolder, option
from flows.cli.inspect import ledger_of
from flows.cli.release import AsJson
from pgsr_core.errors import PgsrError
from tasks.outside import IN_WORDS, INPUT_STOPPED, recorded_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Group

    from tasks.ledger.ledger import Ledger, RunState

POLL_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 15.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class NoSuchRelease(PgsrError):
    """A release was named that was never started here."""


@dataclass(frozen=True)
class Standing:
    """A release as it is shown.

    Attributes:
        state: running, failed, published, or dead: running in a process that is gone.
        age: seconds since it was noted.
        next: the command to run, if one is called for.
    """

    state: RunState
    age: float
    next: str

    @property
    def name(self) -> str:
        """PRODUCT/RELEASE."""
        return f"{self.state.product}/{self.state.release}"

    @property
    def owner(self) -> str:
        """Host and process of the one who noted it."""
        process = self.state.process
        return f"{process.host}/{process.process}" if process is not None else "?"

    @property
    def error(self) -> str:
        """What may be said of what stopped it, and the stage; the rest is the operator's alone."""
        name = self._error_name
        if name == INPUT_STOPPED:
            return f"{IN_WORDS} in {self.state.stage}; see operator.log"
        return f"{name} in {self.state.stage}" if name else ""

    @property
    def _error_name(self) -> str | None:
        return recorded_name(self.state.stage, self.state.error)

    def document(self) -> dict[str, Any]:
        """For scripts."""
        process = self.state.process
        return {
            "product": self.state.product,
            "release": self.state.release,
            "state": self.state.shown,
            "stage": self.state.stage,
            "since": _moment(self.state.updated),
            "age_seconds": round(self.age),
            "host": process.host if process is not None else None,
            "process": process.process if process is not None else None,
            "error": self._error_name,
            "next": self.next,
        }


def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[PRODUCT/RELEASE]", help="One release; all of them by default."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow what is running until it ends.")
    ] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show where releases stand, whose they are, and what to run next.

    Example: pgsr status household-sizes/2026-Q3 --watch
    """
    from flows.cli.screen import out, say_json

    look = _Look(ledger_of(home), name)
    if watch:
        with suppress(KeyboardInterrupt):
            _follow(look, quiet=as_json)
    if as_json:
        say_json([standing.document() for standing in look()])
    elif not watch:
        if look.has_ledger:
            out.print(_page(look()), soft_wrap=True)
        _tell_edited(home)


def _tell_edited(home: Path | None) -> None:
    """Say which products wait for their owner: what was served is not what the file says now."""
    from flows.cli.screen import warn
    from tasks.served import EditedSinceServed, read_served
    from tasks.storage.zones import Home

    for served in read_served(Home.locate(home)):
        if served.is_edited:
            warn(f"{served.product}: {EditedSinceServed(served.path)}")


class _Look:
    """Asks the ledger where releases stand, as often as it is called."""

    def __init__(self, ledger: Ledger | None, name: str | None) -> None:
        from tasks.storage.zones import split_run_name

        self._ledger = ledger
        self._named = split_run_name(name) if name is not None else None
        self._home = option()
        self.has_ledger = ledger is not None

    def __call__(self) -> tuple[Standing, ...]:
        states = self._ledger.run_states() if self._ledger is not None else ()
        if self._named is not None:
            states = tuple(s for s in states if (s.product, s.release) == self._named)
            if not states:
                raise NoSuchRelease(
                    f"{'/'.join(self._named)} was never started here. Remedy: see pgsr status for "
                    "the names."
                )
        now = time.time()
        return tuple(Standing(state, now - state.updated, self._next(state)) for state in states)

    def _next(self, state: RunState) -> str:
        name = f"{state.product}/{state.release}"
        if state.error == "GateFailed":
            # Trying again gives the same tables; which checks failed is in the log.
            return f"pgsr audit log {name}{self._home}"
        wanted = {
            "failed": f"pgsr resume {name}{self._home}",
            "dead": f"pgsr resume {name}{self._home}",
            "running": f"pgsr status {name} --watch{self._home}",
        }
        return wanted.get(state.shown, "")


def _follow(look: _Look, *, quiet: bool) -> None:
    """Show changes until nothing runs any more: in place on a terminal, else line by line."""
    from rich.live import Live

    from flows.cli.screen import out

    if quiet:
        for _ in _until_still(look):
            pass
    elif out.is_terminal:
        with Live(console=out, auto_refresh=False) as live:
            for standings in _until_still(look):
                live.update(_page(standings), refresh=True)
    else:
        shown: set[str] = set()
        for standings in _until_still(look):
            for line in [_line(standing) for standing in standings]:
                if line not in shown:
                    out.print(line, soft_wrap=True, markup=False)
                    shown.add(line)


def _until_still(look: _Look) -> Iterator[tuple[Standing, ...]]:
    while True:
        standings = look()
        yield standings
        if not any(_goes_on(standing) for standing in standings):
            return
        time.sleep(POLL_SECONDS)


def _goes_on(standing: Standing) -> bool:
    """Whether something may still come of it: a stage that failed may be tried again soon."""
    state = standing.state
    process = state.process
    gone = process is not None and process.is_surely_gone()
    waits = state.shown == "failed" and not gone and standing.age < LONGEST_RETRY_SECONDS
    return state.shown == "running" or waits


def _line(standing: Standing) -> str:
    parts = (_moment(standing.state.updated), standing.name, standing.state.shown)
    return "  ".join((*parts, standing.error or standing.state.stage))


def _page(standings: tuple[Standing, ...]) -> Group:
    """The table and, below it, the commands: whole, on one line each, to be copied."""
    from rich.console import Group
    from rich.text import Text

    from flows.cli.screen import table

    columns = ("release", "state", "stage", "for", "owner", "last error")
    grid = table("Releases", *columns, numbers=("for",))
    for column in grid.columns:
        column.overflow = "fold"
    for standing in standings:
        state = standing.state
        cells = (standing.name, state.shown, state.stage, _span(standing.age), standing.owner)
        grid.add_row(*(Text(cell) for cell in (*cells, standing.error)))
    commands = [Text(f"Next     {each.next}", overflow="ignore") for each in standings if each.next]
    return Group(grid, *commands)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _span(seconds: float) -> str:
    """An age in its largest unit, such as 42 s, 5 min, 3 h or 12 d."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
