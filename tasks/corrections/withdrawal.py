"""Withdrawing a release: an event in the ledger, then a signed notice beside the bundle.

The bundle is never deleted or altered. The event comes first and says all that the notice says,
so a process that dies in between leaves nothing undecided: the next attempt signs the same.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pgsr_core.attestation.dsse import claimed_keyid
from pgsr_core.attestation.keys import PrivateKey
from pgsr_core.attestation.provenance import PROVENANCE_FILE, LedgerHead
from pgsr_core.attestation.withdrawal import (
    LONGEST_REASON,
    Withdrawal,
    notice_name,
    sign_withdrawal,
)
from pgsr_core.chain import Event
from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks import failpoints
from tasks.ledger.bookkeeping import PUBLISHED
from tasks.ledger.ledger import Ledger
from tasks.publication.documents import DATAPACKAGE
from tasks.publication.place import PUBLIC_FILE
from tasks.publication.signing import passphrase, signing_key
from tasks.run import Run, RunRef
from tasks.storage.zones import sync_folder

EVENT = "withdrawn"
# What tells one bundle from another: all other files' checksums are in the first of them.
_NAMING_FILES = (DATAPACKAGE, PROVENANCE_FILE)


class NothingToWithdraw(Refused):
    """A release that was never published cannot be withdrawn."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} was never published, so there is nothing to withdraw. Remedy: see pgsr status."
        )


class NoKeyToWithdraw(PgsrError):
    """A notice is always signed, and a simulation has no key."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a notice of withdrawal must be signed, and {name} is a simulation, which no key "
            "signs. Remedy: give --key FILE; pgsr keys new makes one."
        )


class UnusableReason(PgsrError):
    """The reason is empty, too long, or more than one line."""


class OtherNotice(Refused):
    """Something else stands where the notice belongs; it is left as it is."""

    def __init__(self, file: str) -> None:
        super().__init__(
            f"{file} is there, but is not the notice of this withdrawal. "
            "Remedy: find out who put it there, move it away, and withdraw again."
        )


class NoticeNotPlaced(Unavailable):
    """The withdrawal is on record, but its notice could not be written."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(
            f"the withdrawal is on record, but its notice cannot be written beside the bundle "
            f"({reason or 'unknown reason'}). Remedy: make the public folder writable, and "
            "withdraw again."
        )


class ReleaseWithdrawn(Refused):
    """A withdrawn release is not run or published again."""

    def __init__(self, name: str, day: str) -> None:
        super().__init__(
            f"{name} was withdrawn on {day}; it is not published again. Remedy: release the "
            "correction under a new name with replaces: in its configuration, or use pgsr repost."
        )


@dataclass(frozen=True)
class Withdrawn:
    """A withdrawal and its notice.

    Attributes:
        withdrawal: what is said.
        notice: the file beside the bundle.
        keyid: of the key that signed it.
        is_new: whether this call withdrew the release; otherwise it was withdrawn before.
    """

    withdrawal: Withdrawal
    notice: Path
    keyid: str
    is_new: bool


def key_for(ref: RunRef, file: Path | None) -> PrivateKey:
    """The key that a notice is signed with: the one that is named, or the release's own.

    Raises:
        NoKeyToWithdraw: there is none.
        PgsrError: it cannot be used.
    """
    from tasks.keys import read_private_key

    if file is not None:
        return read_private_key(file, passphrase=passphrase())
    key = signing_key(ref.open().plan, ref.installation)
    if key is None:
        raise NoKeyToWithdraw(ref.name)
    return key


def withdraw(ref: RunRef, *, reason: str, key: PrivateKey) -> Withdrawn:
    """Withdraw a published release; one that was withdrawn before keeps its first reason.

    Raises:
        NoSuchRun: it was never started here.
        NothingToWithdraw: it was never published.
        UnusableReason: the reason is no line of text.
        OtherNotice: something else stands at the notice's place.
        NoticeNotPlaced: it is on record, but the notice cannot be written.
    """
    reason = _line(reason)
    run = ref.open()
    event = withdrawal_event(run.ledger, ref.product, ref.release)
    is_new = event is None
    if event is None:
        event = _record(run, reason)
    failpoints.reach("withdraw.recorded")
    withdrawal = _withdrawal(event)
    envelope = sign_withdrawal(_texts(event.facts["bundle"]), withdrawal, key=key)
    run.ledger.remember_published(event.head)
    notice = run.plan.destination.with_name(notice_name(ref.release))
    keyid = _place(notice, envelope, key=key)
    ref.note(state=EVENT, stage="withdraw")
    return Withdrawn(withdrawal, notice, keyid, is_new)


def withdrawal_event(ledger: Ledger, product: str, release: str) -> Event | None:
    """The event of a release's withdrawal; the first one counts."""
    events = (event for event in ledger.timeline(product, release) if event.kind == EVENT)
    return next(events, None)


def refuse_withdrawn(ref: RunRef, ledger: Ledger) -> None:
    """Stop a run of a release that was withdrawn.

    Raises:
        ReleaseWithdrawn: it was.
    """
    event = withdrawal_event(ledger, ref.product, ref.release)
    if event is not None:
        raise ReleaseWithdrawn(ref.name, str(event.facts.get("withdrawn_on")))


def _record(run: Run, reason: str) -> Event:
    ref, ledger = run.ref, run.ledger
    events = ledger.events(ref.product, ref.release)
    published = [facts for kind, facts in events if kind == PUBLISHED]
    if not published:
        raise NothingToWithdraw(ref.name)
    files = dict(published[-1].get("files", {}))
    ledger.record(
        EVENT,
        ref.product,
        ref.release,
        reason=reason,
        withdrawn_on=datetime.now(UTC).date().isoformat(),
        bundle={name: files[name] for name in _NAMING_FILES if name in files},
    )
    event = withdrawal_event(ledger, ref.product, ref.release)
    if event is None:
        raise NothingToWithdraw(ref.name)
    return event


def _withdrawal(event: Event) -> Withdrawal:
    return Withdrawal(
        product=str(event.product),
        release=str(event.release),
        reason=str(event.facts["reason"]),
        withdrawn_on=date.fromisoformat(str(event.facts["withdrawn_on"])),
        ledger_head=LedgerHead(event.head.sequence, event.head.hash),
    )


def _texts(fields: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.items()}


def _line(reason: str) -> str:
    text = reason.strip()
    if not 0 < len(text) <= LONGEST_REASON or not text.isprintable():
        raise UnusableReason(
            f"the reason must be one line of 1 to {LONGEST_REASON} characters. Remedy: say in "
            "plain words why nobody should use the release."
        )
    return text


def _place(notice: Path, envelope: bytes, *, key: PrivateKey) -> str:
    """Write the notice, durable on return, and say whose it is; one that is there is kept.

    One that another key signed stays: after a change of keys, those who hold the old one need it.
    """
    try:
        _create(notice, envelope)
        there = notice.read_bytes()
    except OSError as error:
        raise NoticeNotPlaced(error.strerror) from None
    keyid = claimed_keyid(there)
    if keyid is None or (keyid == key.public.keyid and there != envelope):
        raise OtherNotice(notice.name)
    return keyid


def _create(notice: Path, envelope: bytes) -> None:
    """Let a file appear whole and readable by all, or leave the one that is there."""
    if os.path.lexists(notice):
        return
    draft = notice.with_name(f".{notice.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PUBLIC_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), PUBLIC_FILE)  # whatever the umask
            file.write(envelope)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first
            os.link(draft, notice)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(notice.parent)
