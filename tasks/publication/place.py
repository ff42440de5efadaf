"""Moving a bundle into the public folder: all of it at once, durably, and never over another.

A staging folder is a hidden sibling of the release, hence on its file system, so that one
rename makes the release appear. Until then it is private (0700), and what a crash leaves behind
is removed by the next attempt; a lock that lives exactly as long as its process keeps one
attempt from removing what another is still building.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgsr_core.attestation.provenance import PROVENANCE_FILE
from tasks.publication.documents import CHECKS, DATAPACKAGE, REPORT, file_digest
from tasks.publication.errors import (
    AlreadyPublished,
    DamagedRelease,
    GateNotPassed,
    NotABundle,
    PublicationUncertain,
    PublicFolderMissing,
    PublicFolderUnusable,
    UnsafeName,
)
from tasks.storage.temporary import remove_abandoned, temporary_folder

PUBLIC_FILE = 0o644
PUBLIC_FOLDER = 0o755

# Files that datapackage.json does not list: itself, and the signature over it.
UNLISTED = frozenset({DATAPACKAGE, PROVENANCE_FILE})


@dataclass(frozen=True)
class Staging:
    """Where a bundle is built.

    Attributes:
        folder: private; a store's connection may write and spill here.
        bundle: inside it, not there yet; what is built here is published, and nothing else.
        destination: the folder that the bundle becomes.
    """

    folder: Path
    bundle: Path
    destination: Path


@dataclass(frozen=True)
class Published:
    """A release in the public folder.

    Attributes:
        folder: the release.
        checksums: SHA-256 of every file, datapackage.json included, by name.
    """

    folder: Path
    checksums: Mapping[str, str]

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.folder / REPORT


def release_folder(to: Path, product: str, release: str) -> Path:
    """Say where a release is published: ``<to>/<product>/<release>``, an absolute path.

    Raises:
        UnsafeName: a name that would lead elsewhere.
    """
    from tasks.configuration.model import identifier

    for kind, name in (("product", product), ("release", release)):
        try:
            identifier(name)
        except ValueError:
            raise UnsafeName(kind) from None
    return to.absolute() / product / release


@contextmanager
def staging_folder(to: Path, product: str, release: str) -> Iterator[Staging]:
    """Make a private folder beside the release-to-be; gone again on leaving.

    Leftovers of attempts at the same release that did not live to clean up are removed.

    Raises:
        UnsafeName: a name that would lead elsewhere.
        AlreadyPublished: the release is there.
        PublicFolderMissing: there is no folder `to`; a mistyped path is not created.
        PublicFolderUnusable: it cannot be written.
    """
    destination = release_folder(to, product, release)
    if os.path.lexists(destination):
        raise AlreadyPublished(release)
    if not to.is_dir():
        raise PublicFolderMissing
    make_public_folder(destination.parent)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(destination.parent, _prefix(release)))
        except OSError as error:
            raise PublicFolderUnusable(error.strerror) from error
        yield Staging(folder=folder, bundle=folder / "bundle", destination=destination)


def _prefix(release: str) -> str:
    return f".staging-{release}-"


def make_public_folder(folder: Path) -> None:
    """Make a folder that everyone may read, whatever the umask; one that is there stays as it is.

    Raises:
        PublicFolderMissing: the folder it would be in is not there, or it is no folder.
        PublicFolderUnusable: it cannot be made.
    """
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(PUBLIC_FOLDER)
            _flush(folder.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise PublicFolderMissing from None
    except OSError as error:
        raise PublicFolderUnusable(error.strerror) from error
    if not folder.is_dir():
        raise PublicFolderMissing


def publish_bundle(staging: Path, destination: Path) -> Published:
    """Make a bundle public with one rename, after making every byte of it durable.

    Nothing is written into the bundle. Of several attempts at one release exactly one wins:
    renaming a folder onto one that is not empty fails, and a bundle never is empty.

    Args:
        staging: the built bundle, on the file system of its destination.
        destination: where it goes; must not exist.

    Raises:
        AlreadyPublished: something, whatever it is, stands at the destination.
        GateNotPassed: by checks.json no check ran, or one failed.
        NotABundle: the files are not exactly those that datapackage.json lists.
        PublicFolderUnusable: the public folder cannot be written; nothing appeared.
        PublicationUncertain: the release appeared, but may not outlive a loss of power.
    """
    if os.path.lexists(destination):
        raise AlreadyPublished(destination.name)
    try:
        checksums = verified_checksums(staging)
        _refuse_failed_checks(staging)
        for name in checksums:
            (staging / name).chmod(PUBLIC_FILE)
            _flush(staging / name)
        staging.chmod(PUBLIC_FOLDER)
        _flush(staging)
        staging.rename(destination)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
            raise AlreadyPublished(destination.name) from error
        raise PublicFolderUnusable(error.strerror) from error
    try:
        _flush(destination.parent)
    except OSError as error:
        raise PublicationUncertain(error.strerror) from error
    return Published(folder=destination, checksums=checksums)


def is_published(destination: Path) -> bool:
    """Say whether a release stands at a folder; an attempt that died never does."""
    return not destination.is_symlink() and (destination / DATAPACKAGE).is_file()


def confirm_published(destination: Path) -> Published:
    """Check a release that an earlier attempt published, and make its appearance durable.

    For a run that died after the rename and before anyone took note of it, or cleaned up.

    Raises:
        DamagedRelease: the files are not exactly those that its datapackage.json lists.
        PublicFolderUnusable: the folder cannot be read.
    """
    try:
        checksums = verified_checksums(destination)
        remove_abandoned(destination.parent, _prefix(destination.name))
        _flush(destination.parent)
    except NotABundle as error:
        raise DamagedRelease(error.what) from None
    except OSError as error:
        raise PublicFolderUnusable(error.strerror) from error
    return Published(folder=destination, checksums=checksums)


def recorded_digests(destination: Path) -> dict[str, str]:
    """Return the digests of the tables that a release was published from, by table.

    Raises:
        DamagedRelease: its checks.json cannot be read.
    """
    try:
        digests = read_json(destination / CHECKS).get("table_digests")
    except NotABundle as error:
        raise DamagedRelease(error.what) from None
    if not isinstance(digests, dict):
        raise DamagedRelease(f"{CHECKS} lists no digests of tables")
    return digests


def verified_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a bundle that is whole.

    Raises:
        NotABundle: a file is missing, changed, extra, or no ordinary file.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise NotABundle("there is no folder of that name")
    names = sorted(entry.name for entry in folder.iterdir())
    for name in names:
        if (folder / name).is_symlink() or not (folder / name).is_file():
            raise NotABundle(f"{name!r} is not an ordinary file")
    listed = _listed_checksums(folder)
    unexpected = set(names) - set(listed) - UNLISTED
    if unexpected:
        raise NotABundle(f"{DATAPACKAGE} does not list {sorted(unexpected)}")
    checksums = {name: file_digest(folder / name) for name in names}
    for name, checksum in listed.items():
        if checksums.get(name) != checksum:
            raise NotABundle(f"{name!r} is missing or changed")
    return checksums


def _listed_checksums(folder: Path) -> dict[str, str]:
    package = read_json(folder / DATAPACKAGE)
    try:
        return {
            resource["path"]: resource["hash"].removeprefix("sha256:")
            for resource in package["resources"]
        }
    except (KeyError, TypeError, AttributeError):
        raise NotABundle(f"{DATAPACKAGE} does not list files and checksums") from None


def _refuse_failed_checks(staging: Path) -> None:
    """Ask once more at the last moment, of the very file that is going to be published."""
    document = read_json(staging / CHECKS)
    try:
        checks = document["checks"]
        failed = tuple(
            str(check["name"])
            for check in checks
            if check["passed"] is not True or not check["expectations"] > 0
        )
    except (KeyError, TypeError):
        raise NotABundle(f"{CHECKS} does not list checks") from None
    if failed or not checks:
        raise GateNotPassed(failed)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON document of a bundle.

    Raises:
        NotABundle: it is missing, or no JSON object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        raise NotABundle(f"{path.name} is missing or no JSON") from None
    if not isinstance(document, dict):
        raise NotABundle(f"{path.name} is not a JSON object")
    return document


def _flush(path: Path) -> None:
    """Make a file's bytes, or a folder's entries, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
