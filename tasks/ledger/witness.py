"""The witness: the chain's head, kept in a file outside the ledger that only moves forward.

A chain cannot show that its own tail was cut off, or that it was replaced by an older copy. The
witness is written after each transaction with events, so at a crash it may be behind the ledger,
never ahead of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgsr_core.canonical import canonical_json
from pgsr_core.chain import GENESIS, Head
from pgsr_core.errors import Refused, Unavailable
from tasks.storage.zones import StateNotWritten, one_at_a_time, write_private

FORMAT = "pgsr-witness-1"
_HASH_LENGTH = 64


class WitnessDamaged(Refused):
    """The witness cannot be read, so nothing vouches for the ledger's age."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the ledger's witness {path} is not what was written. Remedy: restore it from a "
            "backup; if it is lost, compare pgsr ledger check with the head in the newest bundle "
            "that was published, and remove the file only if the ledger is not older."
        )


class WitnessNotWritten(Unavailable):
    """The ledger took a change, but its witness could not be written."""


@dataclass(frozen=True)
class Witnessed:
    """What the witness saw.

    Attributes:
        head: the newest event.
        published: the head that the last signed bundle carries.
    """

    head: Head = GENESIS
    published: Head = GENESIS


class Witness:
    """The witness's file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Witnessed | None:
        """What was seen; None if nothing was.

        Raises:
            WitnessDamaged: the file cannot be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            raise WitnessDamaged(self.path) from None
        try:
            document = json.loads(content)
            if document["format"] != FORMAT:
                raise ValueError(FORMAT)
            return Witnessed(_head(document["head"]), _head(document["published"]))
        except (ValueError, KeyError, TypeError):
            raise WitnessDamaged(self.path) from None

    def move(self, *, head: Head, published: Head = GENESIS) -> None:
        """Note a newer head, durably; one that is older than what was seen changes nothing.

        Raises:
            WitnessNotWritten: the disk did not take it; the ledger keeps what was committed.
        """
        try:
            # The lock is a file of its own because the witness is replaced.
            with one_at_a_time(self.path.with_suffix(".lock")):
                seen = self.read() or Witnessed()
                moved = Witnessed(
                    max(seen.head, head, key=_age), max(seen.published, published, key=_age)
                )
                if moved != seen:
                    write_private(self.path, _document(moved))
        except StateNotWritten as error:
            raise WitnessNotWritten(
                f"the ledger took the change, but its witness {self.path} could not be written "
                f"({error.reason}). Remedy: see that the disk is there, writable and not full, "
                "and run the same again; nothing is charged or drawn twice."
            ) from None


def _age(head: Head) -> int:
    return head.sequence


def _document(seen: Witnessed) -> bytes:
    return canonical_json(
        {"format": FORMAT, "head": vars(seen.head), "published": vars(seen.published)}
    )


def _head(document: Any) -> Head:
    sequence, hash_ = document["sequence"], document["hash"]
    if type(sequence) is not int or type(hash_) is not str or len(hash_) != _HASH_LENGTH:
        raise ValueError("a head is a number and a SHA-256")
    return Head(sequence, hash_)
