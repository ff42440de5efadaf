"""Bundles in folders: opening the files of a published release, following no link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from pgsr_core.attestation.strict_json import MOST_BYTES
from pgsr_core.attestation.withdrawal import notice_name
from pgsr_core.errors import PgsrError


class UnreadableBundle(PgsrError):
    """There is no folder to look into."""

    def __init__(self) -> None:
        super().__init__(
            "the bundle is not a folder that can be read. Remedy: give the release's folder, the "
            "one that holds datapackage.json."
        )


def notice_beside(folder: Path, release: str | None) -> bytes | None:
    """The notice of withdrawal that stands beside a bundle; None if there is none.

    Args:
        folder: the bundle, which may have been copied under another name.
        release: the name that its publisher signed, where that is known.
    """
    place = folder.absolute()
    try:
        around = FolderBundle(place.parent)
    except UnreadableBundle:
        return None
    for name in map(notice_name, filter(None, (release, place.name))):
        if name in around.names():
            try:
                with around.open(name) as file:
                    return file.read(MOST_BYTES)
            except OSError:
                return b""  # there is something, and it is no notice
    return None


class FolderBundle:
    """A bundle in a folder; see pgsr_core.verification.BundleReader.

    Raises:
        UnreadableBundle: the folder cannot be listed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._names = tuple(sorted(entry.name for entry in folder.iterdir()))
        except OSError:
            raise UnreadableBundle from None

    def names(self) -> Iterable[str]:
        """Every entry, hidden ones, folders and links included: each has to be accounted for."""
        return self._names

    def open(self, name: str) -> BinaryIO:
        """Open an ordinary file of the folder.

        Raises:
            OSError: it is a link, a folder, a device or a pipe, or cannot be read.
        """
        # A pipe would block until somebody writes to it, hence O_NONBLOCK until it is known.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._folder / name, flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("not an ordinary file")
        return os.fdopen(descriptor, "rb")
