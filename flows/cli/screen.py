"""What the command line shows: stages as they go, tables that align, errors in plain words."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from flows.cli.homes import runnable
from tasks import logs

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """Say what went wrong, on standard error; its commands can be pasted where one stands."""
    wrong, remedy, todo = message.partition("Remedy: ")
    message = f"{wrong}{remedy}{runnable(todo)}"
    if logs.is_json():
        logs.say("command failed", level=logging.ERROR, message=message)
        return
    err.print(f"[bold red]error:[/] {_plain(message)}", soft_wrap=True)


def warn(message: str) -> None:
    """Say what to know although nothing is wrong, on standard error."""
    message = runnable(message)
    if logs.is_json():
        logs.say("note", level=logging.WARNING, message=message)
        return
    err.print(f"[yellow]note:[/] {_plain(message)}", soft_wrap=True)


def say_json(document: Any) -> None:
    """Print one JSON document for a script."""
    out.file.write(json.dumps(document, indent=2, default=str) + "\n")


def table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table whose numeric columns are aligned to the right."""
    grid = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        grid.add_column(column, justify="right" if column in numbers else "left")
    return grid


START = "start"


class StageDisplay:
    """Shows the stages of a run on the operator's terminal (standard error).

    On a terminal the current stage has a spinner and counts rows or cells; elsewhere each
    finished stage is one line. Where a machine reads the log, it shows nothing: rows are counted
    left of the barrier, and that log may be collected anywhere.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._console = Console(stderr=True, quiet=True) if logs.is_json() else err
        self._lock = threading.Lock()
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description:<12}"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._tasks: dict[str, Any] = {}
        self.failure: BaseException | None = None

    def __enter__(self) -> StageDisplay:
        self._console.print(f"[bold]{_plain(self._title)}[/]")
        if self._console.is_terminal:
            self._progress.start()
        self._tasks[START] = self._progress.add_task(START, total=1, note="starting Prefect")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage_started(self, stage: str) -> None:
        """Show a new line with a spinner."""
        with self._lock:
            self.failure = None
            self._progress.update(self._tasks[START], completed=1, note="Prefect is up")
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(stage, total=1, note="…")

    def stage_advanced(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Show how far a stage is."""
        of = "" if total is None else f" of {total:,}"
        self._progress.update(self._tasks[stage], note=f"{done:,}{of} {unit}")

    def stage_finished(self, stage: str, note: str) -> None:
        """Tick a stage off."""
        self._progress.update(self._tasks[stage], completed=1, note=_plain(note))
        if not self._console.is_terminal:
            self._console.print(f"  ✓ {stage:<12} {_plain(note)}")

    def stage_failed(self, stage: str, error: BaseException) -> None:
        """Mark a stage; the message follows when the command ends."""
        self.failure = error
        self._progress.update(self._tasks[stage], note="[red]failed[/]")
        if not self._console.is_terminal:
            self._console.print(f"  ✗ {stage:<12} failed")


class GroupsDisplay:
    """One bar for many groups of runs that go on at once, with the group that moved last."""

    def __init__(self, title: str) -> None:
        self._console = Console(stderr=True, quiet=True) if logs.is_json() else err
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
        )
        self._bar = self._progress.add_task(title, total=None, note="starting Prefect")
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> GroupsDisplay:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage_started(self, stage: str) -> None:
        """Name the group."""
        self._progress.update(self._bar, note=_plain(stage))

    def stage_advanced(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Move the bar."""
        del unit
        self._count(stage, done, total or done)

    def stage_finished(self, stage: str, note: str) -> None:
        """Count runs that were given up as done; elsewhere than on a terminal, a line a group."""
        _, total = self._runs.get(stage, (0, 0))
        self._count(stage, total, total)
        if not self._console.is_terminal:
            self._console.print(f"  ✓ {_plain(stage)}: {_plain(note)}")

    def stage_failed(self, stage: str, error: BaseException) -> None:
        """Only say so if it was interrupted, and ends here: a command tells its own errors."""
        del stage
        if isinstance(error, KeyboardInterrupt):
            self._progress.stop()
            warn("interrupted; every run that ended is kept. The same command goes on.")

    def _count(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            self._runs[stage] = (done, total)
            completed = sum(runs for runs, _ in self._runs.values())
            whole = sum(runs for _, runs in self._runs.values())
        self._progress.update(self._bar, completed=completed, total=whole, note=_plain(stage))


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
