"""Where a site goes: whole or not at all, over an earlier site or where nothing is.

What is confidential and what is public are kept apart: the operator's view is written below the
confidential folder of the installation, and the public site is not.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgsr_core.errors import PgsrError, Unavailable
from tasks.publication.documents import DATAPACKAGE
from tasks.publication.place import PUBLIC_FILE, PUBLIC_FOLDER
from tasks.storage.zones import PRIVATE_FILE, PRIVATE_FOLDER, Home

MANIFEST = "pgsr-site.json"
FORMAT = "pgsr-site-1"


class InternalSiteOutside(PgsrError):
    """The operator's view would be written where it does not belong."""

    def __init__(self, home: Home) -> None:
        super().__init__(
            "the operator's view names people, machines and durations, so it is written below the "
            f"folder confidential of PGSR_HOME only. Remedy: pgsr audit site "
            f"{home.root / 'confidential' / 'audit-site'} --internal, or leave --internal out."
        )


class PublicSiteInside(PgsrError):
    """The public site would be written among confidential files."""

    def __init__(self) -> None:
        super().__init__(
            "a site for the public does not belong among confidential files, from where nobody "
            "should copy anything. Remedy: name a folder outside of PGSR_HOME, or add --internal "
            "for the operator's view."
        )


class NotASite(PgsrError):
    """Something else stands where the site would go; it is left as it is."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}, and is left as it is. Remedy: name a new or empty folder, or one that holds "
            "an earlier site and nothing else."
        )


class SiteNotWritten(Unavailable):
    """The disk did not take the site; what was there before is unchanged."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(
            f"the site cannot be written ({reason or 'unknown reason'}); what was there before is "
            "unchanged. Remedy: see that the folder around it is there and writable and that the "
            "disk is not full, and run the same again."
        )


def check_place(out: Path, home: Home, *, internal: bool) -> None:
    """Refuse a place that a site must not go to.

    Raises:
        InternalSiteOutside: the operator's view outside of the confidential folder.
        PublicSiteInside: the public site inside of it.
        NotASite: something else is there.
    """
    confidential = (home.root / "confidential").resolve()
    place = out.resolve()
    inside = place.is_relative_to(confidential)
    if internal and (not inside or place == confidential):
        raise InternalSiteOutside(home)
    if not internal and inside:
        raise PublicSiteInside
    if any((folder / DATAPACKAGE).is_file() for folder in (place, *place.parents)):
        raise NotASite("the folder belongs to a published bundle")
    _refuse_others(out)


def _refuse_others(out: Path) -> None:
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise NotASite("what is there is not a folder")
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()}
    extra = found - _listed(out) - {MANIFEST}
    if extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise NotASite(f"the folder holds {min(extra)!r}{more}, which is no part of a site")


def _listed(out: Path) -> set[str]:
    """The files of the site that is there; none if there is no site."""
    try:
        document = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            return set()
        return set(map(str, document["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return set()


@contextmanager
def site_folder(out: Path, *, internal: bool) -> Iterator[Path]:
    """A draft to build the site in, beside its place; on leaving it takes the place.

    Whatever goes wrong, the draft is gone, and an earlier site is where it was.

    Raises:
        SiteNotWritten: the disk did not take it.
    """
    place = out.absolute()
    draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    before = draft.with_name(f"{draft.name}.before")
    try:
        draft.mkdir(mode=PRIVATE_FOLDER)
        yield draft
        _finish(draft, internal=internal)
        if place.is_dir():
            place.rename(before)
        draft.rename(place)
    except OSError as error:
        raise SiteNotWritten(error.strerror) from None
    finally:
        if before.is_dir() and not place.exists():
            before.rename(place)
        for left in (draft, before):
            shutil.rmtree(left, ignore_errors=True)


def _finish(draft: Path, *, internal: bool) -> None:
    """List the files, by which a later site knows this one, and say who may read them."""
    files = sorted(
        path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file()
    )
    document = {"format": FORMAT, "internal": internal, "files": files}
    (draft / MANIFEST).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    file_mode, folder_mode = (
        (PRIVATE_FILE, PRIVATE_FOLDER) if internal else (PUBLIC_FILE, PUBLIC_FOLDER)
    )
    for path in (draft, *draft.rglob("*")):
        path.chmod(folder_mode if path.is_dir() else file_mode)
