"""Purging: the confidential files of a published release are deleted; the evidence stays.

What a release needs for verification and replay is right of the barrier (bundle, safe store,
ledger), so nothing that an auditor asks for is lost. Deleting is unlinking: the file system
forgets the file. It is no secure erasure; on flash storage and on file systems that keep old
blocks, only encryption of the whole volume gives that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.ledger.ledger import Ledger
from tasks.ledger.owner import Owner
from tasks.run import RunRef
from tasks.storage.zones import Home, sync_folder

EVENT = "purged"


class NotPublished(Refused):
    """A release that is not published still needs its confidential files."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not published, so its confidential files are kept. "
            f"Remedy: pgsr resume {name} finishes it; then purge it."
        )


class StillRunning(Unavailable):
    """A process works on the release at the moment; nothing was deleted."""


class CannotDelete(Unavailable):
    """The file system did not let go of a file; what was deleted so far stays deleted."""


@dataclass(frozen=True)
class Purge:
    """What is to be deleted, or was.

    Attributes:
        ref: the release.
        files: every file of its confidential folder, from there.
        purged_before: whether the ledger has an event of an earlier purge.
    """

    ref: RunRef
    files: tuple[str, ...]
    purged_before: bool


def plan_purge(ref: RunRef) -> Purge:
    """Say what a purge would delete; touches nothing.

    Raises:
        NoSuchRun: it was never started here.
        NotPublished: the ledger has no event of its publication.
        StillRunning: a process works on it.
    """
    run = ref.open()
    kinds = {kind for kind, _ in run.ledger.events(ref.product, ref.release)}
    if PUBLISHED not in kinds:
        raise NotPublished(ref.name)
    _refuse_running(run.ledger, ref)
    folder = ref.folder.confidential
    files = tuple(
        str(path.relative_to(folder)) for path in _entries(folder) if not _is_folder(path)
    )
    return Purge(ref, files, purged_before=EVENT in kinds)


def due_purges(home: Home, *, now: datetime) -> tuple[Purge, ...]:
    """What the products' `retention` says is to be deleted by now; touches nothing.

    A release is due so many days after it was first published. Where its plan says nothing of
    retention, or cannot be read, it is kept: deleting without being told to is worse than keeping.
    """
    ledger = Ledger.existing(home.ledger_url, witness=home.witness)
    published: dict[tuple[str, str], datetime] = {}
    for event in ledger.timeline() if ledger is not None else ():
        if event.kind == PUBLISHED and event.product and event.release:
            at = datetime.fromisoformat(event.at)
            published.setdefault((event.product, event.release), at)
    planned = []
    for name, at in sorted(published.items()):
        ref = RunRef(str(home.root), *name)
        if _is_due(ref, now - at):
            with suppress(StillRunning):  # it will be due the next time as well
                planned.append(plan_purge(ref))
    return tuple(purge for purge in planned if purge.files)


def _is_due(ref: RunRef, age: timedelta) -> bool:
    try:
        retention = ref.open().plan.configuration.retention
    except PgsrError:
        return False
    return retention is not None and age >= timedelta(days=retention.confidential_days)


def purge(ref: RunRef) -> Purge:
    """Delete a published release's confidential files, durably, and record that it was done.

    The event comes after the deed: a process that dies in between has deleted without saying so,
    and the next purge says it. A release that was purged before is left alone.

    Raises:
        NoSuchRun: it was never started here.
        NotPublished: the ledger has no event of its publication.
        StillRunning: a process works on it.
        CannotDelete: a file is still there.
    """
    planned = plan_purge(ref)
    folder = ref.folder.confidential
    try:
        _delete(folder)
    except OSError as error:
        raise CannotDelete(
            f"a confidential file of {ref.name} cannot be deleted ({error.strerror}). "
            "Remedy: see that the folder is yours and writable, and purge again."
        ) from None
    if planned.files or not planned.purged_before:
        # Names only: sizes and numbers of rows would tell about the data.
        ref.ledger().record(EVENT, ref.product, ref.release, files=sorted(planned.files))
    return planned


def _delete(folder: Path) -> None:
    """Remove a folder and all that is in it, contents first; links are removed, not followed."""
    if not os.path.lexists(folder):
        return
    for path in _entries(folder):
        if _is_folder(path):
            sync_folder(path)
            path.rmdir()
        else:
            path.unlink()
    # The files are gone for good before the folder's own name is.
    sync_folder(folder)
    if folder.is_symlink():  # it was moved to another disk
        folder.unlink()
    else:
        folder.rmdir()
    sync_folder(folder.parent)


def _entries(folder: Path) -> Iterator[Path]:
    """Everything below a folder, contents before the folder that holds them."""
    for root, folders, files in os.walk(folder, topdown=False):
        for name in sorted([*files, *folders]):
            yield Path(root) / name


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _refuse_running(ledger: Ledger, ref: RunRef) -> None:
    for state in ledger.run_states():
        if (state.product, state.release, state.state) != (ref.product, ref.release, "running"):
            continue
        owner = Owner.parse(state.owner)
        if owner is None or not owner.is_surely_gone():
            raise StillRunning(
                f"{ref.name} is being worked on; nothing was deleted. Remedy: wait for it "
                "(pgsr status), then purge again."
            )
