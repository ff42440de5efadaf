"""The folders of an installation and who may read them.

``PGSR_HOME`` holds two zones. ``confidential/`` is left of the privacy barrier; everything else
is internal but safe. Folders are 0700 and files 0600 whatever the umask.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks.storage.places import EXAMPLE_FILE, LEDGER_FILE, WITNESS_FILE, example_of, find_root
from tasks.storage.trust import require_own

LEDGER_VARIABLE = "PGSR_LEDGER_URL"
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
PRIVATE_UMASK = 0o077
KEY_BYTES = 32


class NotARunName(PgsrError):
    """A release was named in another form than PRODUCT/RELEASE."""


class SourceKeyDamaged(Refused):
    """The key of source digests is not what was written; no other one is made in its place."""


class StateNotWritten(Unavailable):
    """The disk did not take a file or folder of ours; a file that was there before is whole."""

    def __init__(self, path: Path, reason: str | None) -> None:
        self.reason = reason or "unknown reason"
        super().__init__(
            f"{path} cannot be written ({self.reason}). Remedy: see that its disk is there, "
            "writable and not full, and run the same again."
        )


@dataclass(frozen=True)
class RunFolder:
    """The files of one release: what is confidential, and what is right of the barrier."""

    confidential: Path
    safe: Path

    @property
    def confidential_store(self) -> Path:
        """The true tables."""
        return self.confidential / "confidential.duckdb"

    @property
    def operator_log(self) -> Path:
        """Full error texts, for the operator alone."""
        return self.confidential / "operator.log"

    @property
    def safe_store(self) -> Path:
        """Measurements and everything computed from them."""
        return self.safe / "safe.duckdb"

    @property
    def plan(self) -> Path:
        """The decided plan that the stages obey."""
        return self.safe / "plan.json"

    def create(self) -> None:
        """Make both folders."""
        for folder in (self.confidential, self.safe):
            make_private_folder(folder)


@dataclass(frozen=True)
class Home:
    """One installation's state."""

    root: Path

    @classmethod
    def locate(cls, named: Path | None = None, *, beside: Path | None = None) -> Home:
        """The state folder to use; see `find_root` for where it is looked for.

        Raises:
            HomeNotSafe: others may write it, or it is somebody else's.
        """
        home = cls(find_root(named, beside=beside))
        require_own(home.root)
        return home

    @property
    def ledger_url(self) -> str:
        """Where the ledger is; SQLite in here unless the environment says otherwise."""
        return os.environ.get(LEDGER_VARIABLE) or f"sqlite:///{self.root / LEDGER_FILE}"

    @property
    def example(self) -> str | None:
        """The made-up population that this folder was made for and keeps a ledger of its own."""
        return None if os.environ.get(LEDGER_VARIABLE) else example_of(self.root)

    @property
    def witness(self) -> Path:
        """What remembers the newest event of the ledger, outside of it."""
        return self.root / WITNESS_FILE

    @property
    def signing_key(self) -> Path:
        """The installation's own key, for releases whose configuration names none."""
        return self.root / "signing.key"

    @property
    def prefect(self) -> Path:
        """Prefect's own folder, so that it writes nothing elsewhere."""
        return self.root / "prefect"

    @property
    def operator_log(self) -> Path:
        """Full texts of errors that stopped a scheduled run before its release had a name."""
        return self.root / "confidential" / "operator.log"

    def run(self, product: str, release: str) -> RunFolder:
        """The folders of a release; its names were checked to be plain names."""
        return RunFolder(
            confidential=self.root / "confidential" / product / release,
            safe=self.root / "runs" / product / release,
        )

    def create(self) -> None:
        """Make the home folder, closed to others."""
        make_private_folder(self.root)

    def create_for_example(self, population: str) -> None:
        """Make it for a made-up population, whose ledger is nobody else's concern."""
        self.create()
        write_private(self.root / EXAMPLE_FILE, json.dumps({"population": population}).encode())

    def source_key(self) -> bytes:
        """The secret under which digests of raw data are taken; made on first use.

        Without a key a digest of raw data would confirm a guess of the whole data set.

        Raises:
            SourceKeyDamaged: the file does not hold a whole key.
            StateNotWritten: it cannot be made, or not be read.
        """
        path = self.root / "confidential" / "source-digest.key"
        make_private_folder(path.parent)
        with disk_told(path):
            if not path.exists():
                _make_source_key(path)
            key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise SourceKeyDamaged(
                f"{path.name} does not hold {KEY_BYTES} bytes. "
                "Remedy: restore it from a backup; releases measured under it need it."
            )
        return key


def _make_source_key(path: Path) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_private(draft, secrets.token_bytes(KEY_BYTES))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)  # atomic, and fails if another process was first
    finally:
        draft.unlink()
    sync_folder(path.parent)


def split_run_name(name: str) -> tuple[str, str]:
    """Split PRODUCT/RELEASE, refusing anything that is not two plain names."""
    from tasks.configuration.model import identifier

    product, _, release = name.partition("/")
    try:
        return identifier(product), identifier(release)
    except ValueError:
        raise NotARunName(
            "a release is named PRODUCT/RELEASE, such as household-sizes/2026-Q3. "
            "Remedy: see pgsr status for the names."
        ) from None


@contextmanager
def disk_told(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a disk into an error that says what to do.

    Raises:
        StateNotWritten: the disk did not take what was to be written there.
    """
    try:
        yield
    except OSError as error:
        raise StateNotWritten(path, error.strerror) from None


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700, whatever the umask.

    Raises:
        StateNotWritten: it cannot be made.
    """
    with disk_told(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            path.chmod(PRIVATE_FOLDER)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, durable on return, replacing it atomically.

    Raises:
        StateNotWritten: the disk did not take it.
    """
    draft = path.with_name(f".{path.name}.draft-{secrets.token_hex(4)}")
    with disk_told(path):
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def append_private(path: Path, text: str) -> None:
    """Append to a file that only its owner can read.

    Raises:
        StateNotWritten: the disk did not take it.
    """
    with disk_told(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        with os.fdopen(descriptor, "a") as file:
            file.write(text)


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a lock file, which lives as long as its process; others wait.

    Raises:
        StateNotWritten: it cannot be made.
    """
    make_private_folder(lock.parent)
    with disk_told(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        with disk_told(lock):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
