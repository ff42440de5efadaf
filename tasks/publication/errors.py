"""Why a bundle is not built or not published; each error carries its facts and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pgsr_core.errors import InputError, PgsrError, Refused, Unavailable


class InconsistentFacts(PgsrError):
    """What a bundle would say contradicts itself, or contradicts the tables it describes."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the bundle would contradict itself: {what}. Remedy: nothing was published; run the "
            "release again, and report this if it happens twice."
        )


class FormulaLikeName(InputError):
    rule = "no name may look like a formula to a spreadsheet: none may start with = + - or @"
    remedy = "rename these regions in the region table; names are published as they are"


class UnsafeName(PgsrError):
    """A product or release name that could not be the name of one folder."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"the name of the {kind} cannot be a folder's name. Remedy: start with a letter or "
            "digit and use only letters, digits, '_', '-' and '.' (at most 64)."
        )


class GateNotPassed(Refused):
    """A bundle without checks, or with a failed one, is never built and never published."""

    def __init__(self, failed: tuple[str, ...]) -> None:
        self.failed = failed
        what = f"failed checks: {', '.join(failed)}" if failed else "no check ran"
        super().__init__(
            f"nothing was published: {what}. Remedy: find the cause; noise is never drawn again "
            "for a release, so a corrected one needs a new release name."
        )


class AlreadyPublished(Refused):
    """A release is never overwritten."""

    def __init__(self, release: str) -> None:
        self.release = release
        super().__init__(
            f"something else stands in the public folder as {release!r}, and nothing there is ever "
            "overwritten. Remedy: find out what it is; move it away and run the same again, or "
            "choose another release name."
        )


class NoticeInTheWay(Refused):
    """A notice of withdrawal stands where nothing was published yet."""

    def __init__(self, release: str) -> None:
        self.release = release
        super().__init__(
            f"a notice of withdrawal of {release!r} stands in the public folder, so everybody "
            "would take the release for withdrawn. Remedy: choose another release name, or find "
            "out whose notice it is and move it away."
        )


class DiffersInCase(Refused):
    """A name that some file systems cannot tell from one that is there."""

    def __init__(self, name: str, there: str) -> None:
        super().__init__(
            f"{name!r} differs from {there!r}, which is there already, in upper and lower case "
            "only; where bundles are copied to they may be one. Remedy: choose another name."
        )


class NotABundle(Refused):
    """A folder holds something other than the files its datapackage.json lists."""

    remedy: ClassVar[str] = "resume the release, which builds it again from the stored measurements"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the folder is not the bundle that was built: {what}. Remedy: {self.remedy}."
        )


class DamagedRelease(NotABundle):
    """What stands in the public folder is no longer what was published."""

    remedy = (
        "do not use it; restore it from a copy, or move it away and resume the release, which "
        "builds the same tables from the stored measurements"
    )


class PublicFolderMissing(PgsrError):
    """The folder that publish.to names is not there; a mistyped path is not created."""

    def __init__(self) -> None:
        super().__init__(
            "the folder of publish.to is missing, or is not a folder. Remedy: create it (or mount "
            "it), or correct publish.to."
        )


class PublicFolderUnusable(Unavailable):
    """The public folder cannot be written now; nothing appeared in it."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason or "unknown reason"
        super().__init__(
            f"the public folder cannot be written ({self.reason}); nothing was published. Remedy: "
            "make it writable, with room for the bundle, and run the same again."
        )


class PublicationUncertain(Unavailable):
    """The release appeared, but the disk would not confirm that it stays."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason or "unknown reason"
        super().__init__(
            f"the release appeared in the public folder, which may not outlive a loss of power "
            f"({self.reason}). Remedy: see to the disk and resume the release."
        )


class NotEnoughMemory(Unavailable):
    """The store may not use enough memory to put a table in order."""

    def __init__(self) -> None:
        super().__init__(
            "the tables could not be put in order within the memory limit; nothing was "
            "published. Remedy: raise resources.memory_limit and resume the release."
        )


class NotEnoughRoom(Unavailable):
    """A disk has less room than the release may need; nothing was charged or drawn."""

    def __init__(self, place: Path, *, needed: int, free: int) -> None:
        self.needed = needed
        self.free = free
        super().__init__(
            f"the release may need {_megabytes(needed)} at {place}, and {_megabytes(free)} are "
            "free. Remedy: make room there, and run the same again; nothing was charged."
        )


class NoMoreFiles(Unavailable):
    """A disk takes no more files, whatever room it has."""

    def __init__(self, place: Path) -> None:
        super().__init__(
            f"the disk at {place} takes no more files (its inodes are used up). Remedy: delete "
            "what is not needed there, and run the same again; nothing was charged."
        )


class TooLittleMemory(Unavailable):
    """The tables of the release do not fit into this machine's memory."""

    def __init__(self, *, needed: int, there: int) -> None:
        self.needed = needed
        self.there = there
        super().__init__(
            f"the tables of the release need at least {_megabytes(needed)} of memory, and this "
            f"machine has {_megabytes(there)}. Remedy: lower sizes.max, take fewer regions, or use "
            "a larger machine; nothing was charged."
        )


class CannotBuildBundle(Unavailable):
    """A bundle of a few made-up numbers could not be built, so a real one could not be, either."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"no bundle or report can be built on this machine ({what}). Remedy: install the "
            "software anew from its lock, see pgsr doctor, and run the same again; nothing was "
            "charged."
        )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.0f} MB"
