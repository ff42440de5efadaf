"""Purging: the confidential files of a published release are deleted; the evidence stays.

What a release needs for verification and replay is right of the barrier (bundle, safe store,
ledger), so nothing that an auditor asks for is lost. Deleting is unlinking: the file system
forgets the file. It is no secure erasure; on flash storage and on file systems that keep old
blocks, only encryption of the whole volume gives that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
# A publication may be recorded by a machine whose clock is ahead of this one's.
_CLOCKS_DIFFER = timedelta(days=1)


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


class CannotLook(Unavailable):
    """A folder that may hold confidential files cannot be read, so nobody knows what is in it."""

    def __init__(self, folder: Path, reason: str | None) -> None:
        super().__init__(
            f"{folder} cannot be read ({reason or 'unknown reason'}), so what is due cannot be "
            "told. Remedy: run this as the user whose folder it is, with its disk in place; "
            "--home or PGSR_HOME names another installation."
        )


class LedgerGone(Unavailable):
    """There are confidential files, and no ledger that knows what was published when."""

    def __init__(self, home: Home) -> None:
        super().__init__(
            f"{home.root} holds confidential files, but there is no ledger to tell what was "
            "published, and when. Remedy: name it in PGSR_LEDGER_URL, or restore it from a backup."
        )


class DateUnknown(Refused):
    """The ledger's date of a publication is none, or has not come yet."""

    def __init__(self, name: str, at: str) -> None:
        super().__init__(
            f"the ledger says that {name} was published at {at}, which is no date that has come, "
            f"so it cannot be told when its retention is over. Remedy: see to the clock; pgsr "
            f"purge {name} deletes its confidential files now."
        )


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


@dataclass(frozen=True)
class Undecided:
    """A release of which it cannot be told whether it is due, or that cannot be purged now."""

    name: str
    error: PgsrError


@dataclass(frozen=True)
class Due:
    """What is to be deleted, and what nobody can tell of."""

    purges: tuple[Purge, ...]
    undecided: tuple[Undecided, ...]


def plan_purge(ref: RunRef) -> Purge:
    """Say what a purge would delete; touches nothing.

    Raises:
        NoSuchRun: it was never started here.
        NotPublished: the ledger has no event of its publication.
        LedgerGone: there is no ledger to ask.
        StillRunning: a process works on it.
        CannotLook: its confidential folder cannot be read.
    """
    home = ref.installation
    ledger = Ledger.existing(home.ledger_url, witness=home.witness)
    if ledger is None:
        ref.open()
        raise LedgerGone(home)
    # The plan is not needed: a damaged one must not keep the truth on the disk.
    kinds = {kind for kind, _ in ledger.events(ref.product, ref.release)}
    if PUBLISHED not in kinds:
        ref.open()
        raise NotPublished(ref.name)
    _refuse_running(ledger, ref)
    folder = ref.folder.confidential
    files = tuple(
        str(path.relative_to(folder)) for path in _entries(folder) if not _is_folder(path)
    )
    return Purge(ref, files, purged_before=EVENT in kinds)


def due_purges(home: Home, *, now: datetime) -> Due:
    """What the products' `retention` says is to be deleted by now; touches nothing.

    A release is due so many days after it was first published. Where its plan says nothing of
    retention it is kept: deleting without being told to is worse than keeping. Where it cannot be
    told whether a release is due, that is said, and it is kept as well.

    Raises:
        CannotLook: the installation cannot be read at all.
        LedgerGone: there are confidential files, and no ledger.
        PgsrError: the ledger cannot be read.
    """
    runs = _confidential_runs(home)
    ledger = Ledger.existing(home.ledger_url, witness=home.witness)
    if ledger is None:
        if any(_holds_files(run) for run in runs):
            raise LedgerGone(home)
        return Due((), ())
    published: dict[tuple[str, str], str] = {}
    for event in ledger.timeline():
        if event.kind == PUBLISHED and event.product and event.release:
            published.setdefault((event.product, event.release), event.at)
    planned, undecided = [], []
    for name, at in sorted(published.items()):
        ref = RunRef(str(home.root), *name)
        try:
            if _is_due(ref, at, now):
                planned.append(plan_purge(ref))
        except PgsrError as error:
            undecided.append(Undecided(ref.name, error))
    return Due(tuple(planned), tuple(undecided))


def _is_due(ref: RunRef, at: str, now: datetime) -> bool:
    """Whether there is something to delete, and its time has come.

    Raises:
        PgsrError: why that cannot be told.
    """
    if not _holds_files(ref.folder.confidential):
        return False  # purged, or made by a machine with a home of its own
    retention = ref.open().plan.configuration.retention
    if retention is None:
        return False
    try:
        age = now - datetime.fromisoformat(at)
    except (ValueError, TypeError):
        raise DateUnknown(ref.name, at) from None
    if age < -_CLOCKS_DIFFER:
        raise DateUnknown(ref.name, at)
    return age >= timedelta(days=retention.confidential_days)


def _confidential_runs(home: Home) -> list[Path]:
    """The folders of an installation's releases, those that cannot be read included."""
    zone = home.root / "confidential"
    try:
        list(home.root.iterdir())
        products = [path for path in zone.iterdir() if path.is_dir()] if zone.exists() else []
    except OSError as error:
        raise CannotLook(home.root, error.strerror) from None
    runs = []
    for product in products:
        try:
            runs += [path for path in product.iterdir() if _is_folder(path)]
        except OSError as error:
            raise CannotLook(product, error.strerror) from None
    return runs


def _holds_files(folder: Path) -> bool:
    return any(not _is_folder(path) for path in _entries(folder))


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
    plan_purge(ref)  # refused without touching anything
    with ref.alone():
        return _purge_alone(ref)


def _purge_alone(ref: RunRef) -> Purge:
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
    """Everything below a folder, contents before the folder that holds them.

    Raises:
        CannotLook: a folder cannot be read; one that is not there holds nothing.
    """

    def tell(error: OSError) -> None:
        raise CannotLook(folder, error.strerror) from None

    try:
        folder.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        tell(error)
    for root, folders, files in os.walk(folder, topdown=False, onerror=tell):
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
