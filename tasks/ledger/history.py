"""Whether the ledger is the one that was seen before: verified when it is opened and written.

The whole chain is verified once in a process; from then on only the events that were added.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from pgsr_core.chain import GENESIS, Break, Head, verify_chain
from pgsr_core.errors import Refused
from tasks.ledger.bookkeeping import contradictions
from tasks.ledger.database import snapshot
from tasks.ledger.events import hash_at, read_events, read_head
from tasks.ledger.witness import Witness, Witnessed

# How far each ledger was verified by this process.
_verified: dict[str, Head] = {}


class LedgerRolledBack(Refused):
    """The ledger is older than what was seen of it; nothing was changed."""

    def __init__(self, *, found: int, seen: int, published: bool = False) -> None:
        self.found = found
        self.seen = seen
        whom = "a published release carries" if published else "its witness saw"
        super().__init__(
            f"the ledger ends at event {found}, but {whom} event {seen}: it was rolled back or "
            "cut. Charges may be missing, so nothing is released. Remedy: pgsr ledger restore with "
            "the newest backup and, by --events, what was exported since."
        )


class LedgerForked(Refused):
    """The ledger tells another history than the one that was seen; nothing was changed."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        super().__init__(
            f"event {sequence} of the ledger is another one than was seen before: its history was "
            "rewritten, or this is another ledger. Nothing is released. Remedy: restore the "
            "ledger that belongs to this PGSR_HOME; another ledger needs a PGSR_HOME of its own."
        )


class LedgerEdited(Refused):
    """The ledger's chain or its books are broken; nothing was changed."""

    def __init__(self, found: Sequence[object]) -> None:
        self.found = tuple(str(what) for what in found)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        super().__init__(
            f"the ledger was changed by other means than pgsr: {self.found[0]}{more}. Nothing is "
            "released. Remedy: restore the newest backup of the ledger; pgsr ledger check lists "
            "everything that is broken."
        )


class History:
    """Vouches for one ledger: what this process verified, and what the witness saw."""

    def __init__(self, engine: Engine, url: str, witness: Witness) -> None:
        self._engine = engine
        self._url = url
        self._witness = witness

    def verify(self) -> None:
        """Verify what is new, all of it the first time, and compare with the witness.

        Raises:
            LedgerEdited, LedgerForked, LedgerRolledBack: it is not the ledger that was seen.
        """
        self.head()

    def head(self) -> Head:
        """The last event, verified."""
        # Read before the snapshot: what the witness saw was committed, so the snapshot has it.
        witnessed = self._witness.read()
        with snapshot(self._engine) as connection:
            return self._verified_head(connection, read_head(connection), witnessed)

    def lock(self, connection: Connection) -> Head:
        """Keep others from writing, and verify what they wrote since.

        The witness is asked each time: an event on top of another history would move it there.
        """
        head = read_head(connection, lock=True)
        return self._verified_head(connection, head, self._witness.read())

    def advance(self, head: Head) -> None:
        """After a commit: remember the new head, here and in the witness."""
        self._remember(head)
        self._witness.move(head=head)

    def publish(self, head: Head) -> None:
        """Before a bundle that carries a head appears: let the witness remember it."""
        self._witness.move(head=head, published=head)

    def _verified_head(
        self, connection: Connection, head: Head | None, witnessed: Witnessed | None
    ) -> Head:
        if head is None:
            raise LedgerEdited(["the row of the chain's head is missing"])
        self._verify_tail(connection, head)
        if witnessed is not None:
            require_witnessed(connection, head, witnessed)
        self._remember(head)
        return head

    def _verify_tail(self, connection: Connection, head: Head) -> None:
        """Verify the events that this process has not verified yet."""
        seen = _verified.get(self._url)
        if head == seen:
            return
        start = seen or GENESIS
        if head.sequence < start.sequence:
            raise LedgerRolledBack(found=head.sequence, seen=start.sequence)
        events = read_events(connection, after=start.sequence)
        report = verify_chain(events, start=start, head=head)
        _raise_for(report.breaks)
        if report.head != head:
            raise LedgerEdited([f"event {report.head.sequence} is not in the chain's head"])
        if seen is None and (wrong := contradictions(connection, events)):
            raise LedgerEdited(wrong)

    def _remember(self, head: Head) -> None:
        known = _verified.get(self._url, GENESIS)
        if head.sequence >= known.sequence:
            _verified[self._url] = head


def require_witnessed(connection: Connection, head: Head, witnessed: Witnessed) -> None:
    """Refuse a ledger that does not hold what the witness saw.

    Raises:
        LedgerRolledBack: it ends before.
        LedgerForked: it has another event in its place.
    """
    for seen, published in ((witnessed.published, True), (witnessed.head, False)):
        if seen.sequence > head.sequence:
            raise LedgerRolledBack(found=head.sequence, seen=seen.sequence, published=published)
        if seen not in {GENESIS, head} and hash_at(connection, seen.sequence) != seen.hash:
            raise LedgerForked(seen.sequence)


def _raise_for(breaks: Sequence[Break]) -> None:
    if not breaks:
        return
    if all(found.damage == "forked" for found in breaks):
        raise LedgerForked(breaks[0].sequence)
    raise LedgerEdited(breaks)
