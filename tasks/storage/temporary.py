"""Folders that live as long as their process: a lock tells those of the living from leftovers.

The lock is the operating system's and goes with its process, however that ended. So whoever comes
next knows what is abandoned, and removes it; what somebody still uses is never touched.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.storage.zones import PRIVATE_FILE, PRIVATE_FOLDER, Home

LOCK = "lock"
# Holds what DuckDB's memory did not: raw values, if it belongs to a confidential store.
SPILL = ".spill-"
# What versions without locks called theirs, and DuckDB the files in it.
_UNLOCKED_SPILL, _SPILLED = "spill", "duckdb_temp*"
_ATTEMPTS = 20


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a private folder, gone again on leaving; abandoned ones of that prefix go first.

    Raises:
        OSError: it cannot be made.
    """
    remove_abandoned(parent, prefix)
    folder, lock = _make_locked(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def folders_of(parent: Path, prefix: str) -> list[Path]:
    """The temporary folders of a prefix, used or abandoned; none where nobody can look.

    A random part holds no '-', so those of "2026-Q1" are not those of "2026-Q1-revised".
    """
    try:
        return [
            path
            for path in sorted(parent.iterdir())
            if path.name.startswith(prefix)
            and "-" not in path.name.removeprefix(prefix)
            and path.is_dir()
            and not path.is_symlink()
        ]
    except OSError:
        return []


def is_abandoned(folder: Path) -> bool:
    """Whether nobody holds the lock of a temporary folder; changes nothing."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # another user's: not ours to judge
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def remove_abandoned(parent: Path, prefix: str) -> int:
    """Remove the folders of a prefix whose processes are gone; says how many went."""
    return sum(_remove_if_abandoned(folder) for folder in folders_of(parent, prefix))


def remove_spill(home: Home) -> int:
    """Remove what killed runs of an installation spilled; says how many folders went."""
    zones = (home.root / "confidential", home.root / "runs")
    runs = [run for zone in zones for run in _folders_below(zone, depth=2)]
    return sum(remove_abandoned(run, SPILL) for run in runs)


def remove_unlocked_spill(folder: Path) -> None:
    """Remove what an older version spilled beside a store that nobody else has open."""
    with suppress(OSError):
        for path in (folder / _UNLOCKED_SPILL).glob(_SPILLED):
            path.unlink()
        (folder / _UNLOCKED_SPILL).rmdir()


def _folders_below(folder: Path, *, depth: int) -> list[Path]:
    if depth == 0:
        return [folder]
    try:
        inside = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []
    return [found for path in inside for found in _folders_below(path, depth=depth - 1)]


def _make_locked(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder and hold its lock.

    Another process may take the new folder for abandoned until the lock is held. It then holds
    the lock itself, or has removed or made the file, and the next name is tried.
    """
    for _ in range(_ATTEMPTS):
        folder = parent / f"{prefix}{secrets.token_hex(8)}"
        folder.mkdir(mode=PRIVATE_FOLDER)
        lock = None
        try:
            lock = os.open(
                folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE
            )
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
                return folder, lock
        except (BlockingIOError, FileExistsError, FileNotFoundError):
            pass
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if lock is not None:
            os.close(lock)
    raise BlockingIOError(errno.EAGAIN, "other processes keep removing the folder")


def _remove_if_abandoned(folder: Path) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        if folder.lstat().st_uid != os.geteuid():
            return False  # in a folder that others may write it could be a trap
        lock = os.open(folder / LOCK, flags, PRIVATE_FILE)
    except OSError:
        return False  # gone already
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(folder)
        return not folder.exists()
    except OSError:
        return False
    finally:
        os.close(lock)


def _empty(folder: Path) -> None:
    """Remove a folder, its lock last: a process that dies meanwhile leaves it recognisable."""
    for path in list(folder.iterdir()):
        if path.name == LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)
