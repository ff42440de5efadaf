"""Asked before the draw: could this release be published at all?

Whatever would stop a release that is measured and charged, and can be known before, is asked when
it is decided, and again at the last moment before the budget is reserved: hours may lie between.
What has been measured is not held up here: the later stages say what is wrong, and resuming the
release repairs it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from pgsr_core.attestation.withdrawal import notice_name
from pgsr_core.errors import PgsrError
from tasks.configuration.plan import ReleasePlan
from tasks.keys import read_private_key
from tasks.ledger.database import file_of
from tasks.ledger.ledger import Ledger
from tasks.publication.errors import (
    AlreadyPublished,
    CannotBuildBundle,
    DiffersInCase,
    NoMoreFiles,
    NotEnoughRoom,
    NoticeInTheWay,
    PublicFolderMissing,
    PublicFolderUnusable,
    TooLittleMemory,
)
from tasks.publication.place import make_public_folder, staging_folder
from tasks.publication.signing import named_key, signing_key
from tasks.storage.zones import Home, StateNotWritten

# What a run writes besides its tables: Prefect's database, logs, stores that are empty; the page.
_FIXED = {"home": 64 << 20, "ledger": 8 << 20, "public": 32 << 20}
# Bytes of a row of a store: region, size and a number; and how many more a further number takes.
_STORED_ROW, _STORED_NUMBER = 16, 8
_BOUNDS = 4
# Bytes of a row of a published file: counts, measurements and margins together.
_PUBLISHED_ROWS = {"parquet": 112, "csv": 236}
_SORTED_ROW = 56
# Tables of whole numbers that are in memory at once: measured, computed, released, four bounds.
_TABLES_AT_ONCE = 7
_FEWEST_FILES = 100
_LIBRARIES = ("jinja2", "markupsafe", "pyarrow", "vl_convert")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_MEMORY = Path("/proc/meminfo")


def refuse_unpublishable(plan: ReleasePlan, home: Home) -> None:
    """Refuse a release that could not be published; looks only, and touches nothing.

    Raises:
        AlreadyPublished, NoticeInTheWay, DiffersInCase: its place is taken.
        PublicFolderMissing, PublicFolderUnusable: it has no place.
        NotEnoughRoom, NoMoreFiles, TooLittleMemory: it does not fit this machine.
        CannotBuildBundle: a library is missing.
        PgsrError: its key cannot be used.
    """
    with _unless_measured(plan, home):
        _look(plan, home)


def refuse_before_the_draw(plan: ReleasePlan, home: Home) -> None:
    """Ask the same at the last moment, and rehearse: a small bundle is built and removed again.

    The folders and the installation's own key, which publication would make, are made now.

    Raises:
        PgsrError: as `refuse_unpublishable`, and whatever the rehearsal meets.
    """
    from tasks.publication.rehearsal import rehearse

    with _unless_measured(plan, home):
        _look(plan, home)
        signing_key(plan, home)
        to = plan.destination.parent.parent
        make_public_folder(to)
        with staging_folder(to, plan.product, plan.release) as staging:
            rehearse(plan, staging)


@contextmanager
def _unless_measured(plan: ReleasePlan, home: Home) -> Iterator[None]:
    try:
        yield
    except PgsrError:
        ledger = Ledger.existing(home.ledger_url, witness=home.witness)
        if ledger is None or ledger.measurement(plan.product, plan.release) is None:
            raise


def _look(plan: ReleasePlan, home: Home) -> None:
    _refuse_taken(plan.destination)
    runs = home.root / "runs"
    for folder in (plan.destination.parent.parent, runs):
        _refuse_other_case(folder, plan.product)
        _refuse_other_case(folder / plan.product, plan.release)
    _refuse_unwritable(plan.destination.parent)
    _refuse_unusable_key(plan, home)
    _refuse_full_disks(plan, home)
    _refuse_too_large(plan)
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise CannotBuildBundle(f"missing: {', '.join(missing)}")


# --- the place --------------------------------------------------------------------------------


def _refuse_taken(destination: Path) -> None:
    """Nothing was measured, so whatever stands there is not this release."""
    if os.path.lexists(destination):
        raise AlreadyPublished(destination.name)
    if os.path.lexists(destination.with_name(notice_name(destination.name))):
        raise NoticeInTheWay(destination.name)


def _refuse_other_case(folder: Path, name: str) -> None:
    """Refuse a name that some file systems take for one that is there.

    Two that are there already stay: they live where the difference counts.
    """
    try:
        there = sorted(os.listdir(folder))  # noqa: PTH208 (names, as they are spelled)
    except OSError:
        return
    for other in there:
        if name not in there and other.casefold() == name.casefold():
            raise DiffersInCase(name, other)


def _refuse_unwritable(product: Path) -> None:
    """Refuse where the product's folder, or the first one above that is there, cannot be written.

    The public folder is made if its parent is there; more is taken for a mistyped path.
    """
    for folder in (product, product.parent, product.parent.parent):
        if os.path.lexists(folder):
            if not os.path.isdir(folder):  # noqa: PTH112 (is_dir may raise)
                raise PublicFolderMissing
            reason = _why_not_writable(folder)
            if reason is not None:
                raise PublicFolderUnusable(reason)
            return
    raise PublicFolderMissing


def _why_not_writable(folder: Path) -> str | None:
    if os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        return None
    code = errno.EACCES
    with suppress(OSError):
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            code = errno.EROFS
    return os.strerror(code)


# --- the key ----------------------------------------------------------------------------------


def _refuse_unusable_key(plan: ReleasePlan, home: Home) -> None:
    if plan.configuration.simulate or named_key(plan) is not None:
        return
    if os.path.lexists(home.signing_key):
        read_private_key(home.signing_key)
        return
    reason = _why_not_writable(_nearest(home.root))
    if reason is not None:
        raise StateNotWritten(home.signing_key, reason)


# --- disks and memory -------------------------------------------------------------------------


def _refuse_full_disks(plan: ReleasePlan, home: Home) -> None:
    """Add up what is needed on each file system, generously, and compare with what is free."""
    needed: dict[int, int] = {}
    places: dict[int, Path] = {}
    for folder, number in _needed_bytes(plan, home):
        place = _nearest(folder)
        device = os.stat(place).st_dev  # noqa: PTH116
        needed[device] = needed.get(device, 0) + number
        places.setdefault(device, place)
    for device, place in places.items():
        disk = os.statvfs(place)
        free = disk.f_bavail * disk.f_frsize
        if free < needed[device]:
            raise NotEnoughRoom(place, needed=needed[device], free=free)
        if disk.f_files and disk.f_favail < _FEWEST_FILES:  # some file systems do not count files
            raise NoMoreFiles(place)


def _needed_bytes(plan: ReleasePlan, home: Home) -> Iterator[tuple[Path, int]]:
    """What a run writes, and where: from public facts only, so that no error tells of the data."""
    cells = _cells(plan)
    margins = plan.configuration.margins.repetitions > 0
    # Measurements and each step's table; the true ones; all of it twice while it is rewritten.
    rows = 1 + len(plan.mechanism.steps) + 2 + margins
    stored = rows * _STORED_ROW + margins * (_BOUNDS - 1) * _STORED_NUMBER
    yield home.root, _FIXED["home"] + 2 * stored * cells
    ledger = file_of(home.ledger_url)
    if ledger is not None:  # once in its log and once in its file
        yield ledger.parent, _FIXED["ledger"] + 2 * _STORED_NUMBER * cells
    formats = plan.configuration.publish.formats
    published = sum(_PUBLISHED_ROWS[form] for form in formats) + _SORTED_ROW
    yield plan.destination.parent, _FIXED["public"] + published * cells


def _refuse_too_large(plan: ReleasePlan) -> None:
    needed = _TABLES_AT_ONCE * _STORED_NUMBER * _cells(plan)
    there = _memory()
    if there is not None and needed > there:
        raise TooLittleMemory(needed=needed, there=there)


def _cells(plan: ReleasePlan) -> int:
    return sum(level.regions for level in plan.levels) * len(plan.sizes)


def _memory() -> int | None:
    """Memory and swap of this machine, or of this container if it has less; None if not told."""
    limits = []
    with suppress(OSError):
        told = re.findall(r"^(?:MemTotal|SwapTotal): +([0-9]+) kB$", _MEMORY.read_text(), re.M)
        limits.append(1024 * sum(map(int, told)))
    with suppress(OSError, ValueError):
        limits.append(int(_CGROUP_LIMIT.read_text()))  # "max" where there is no limit
    return min(limits, default=None)


def _nearest(folder: Path) -> Path:
    """The folder, or the first one above that is there."""
    return next(path for path in (folder, *folder.parents) if os.path.isdir(path))  # noqa: PTH112
