"""The answer of a verification: one line for every thing that was looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pgsr_core.attestation.provenance import Provenance
from pgsr_core.attestation.statement import is_file_name

_LONGEST_SHOWN = 80


@dataclass(frozen=True)
class Item:
    """One verified thing.

    Attributes:
        name: short and stable, for scripts.
        passed: whether it holds.
        sentence: what holds, or what does not, in plain words.
    """

    name: str
    passed: bool
    sentence: str


@dataclass(frozen=True)
class NotChecked:
    """Something that a reader may think was verified, and was not.

    Attributes:
        what: is not known to hold, to be read after "Not checked:".
        command: that checks it; None where none can.
    """

    what: str
    command: str | None = None

    def __str__(self) -> str:
        return self.what if self.command is None else f"{self.what}; run {self.command}"


@dataclass(frozen=True)
class Verification:
    """What was verified of a bundle, line by line.

    Attributes:
        items: in the order in which they were looked at.
        provenance: what the key's holder signed; None without a valid signature.
        not_checked: what was left out.
    """

    items: tuple[Item, ...]
    provenance: Provenance | None
    not_checked: tuple[NotChecked, ...] = ()

    def also(
        self, items: Iterable[Item] = (), not_checked: Iterable[NotChecked] = ()
    ) -> Verification:
        """Add what somebody else looked at, or left out."""
        return replace(
            self,
            items=(*self.items, *items),
            not_checked=(*self.not_checked, *not_checked),
        )

    @property
    def verified(self) -> bool:
        """Whether everything holds; a verification that looked at nothing does not."""
        return self.provenance is not None and all(item.passed for item in self.items)

    @property
    def failed(self) -> tuple[Item, ...]:
        """What does not hold."""
        return tuple(item for item in self.items if not item.passed)


class Report:
    """Collects items while a bundle is examined."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._not_checked: list[NotChecked] = []

    def say(self, name: str, passed: bool, *, holds: str, else_: str) -> bool:
        """Note an item, with the sentence that fits, and return whether it passed."""
        self._items.append(Item(name, passed, holds if passed else else_))
        return passed

    def hold(self, name: str, sentence: str) -> None:
        """Note what holds."""
        self._items.append(Item(name, True, sentence))

    def fail(self, name: str, sentence: str) -> None:
        """Note what does not hold or could not be examined; both keep a bundle unverified."""
        self._items.append(Item(name, False, sentence))

    def leave(self, left_out: NotChecked) -> None:
        """Note what is not looked at."""
        self._not_checked.append(left_out)

    @property
    def items(self) -> tuple[Item, ...]:
        """Everything noted so far."""
        return tuple(self._items)

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """Everything left out so far."""
        return tuple(self._not_checked)


def shown(name: str) -> str:
    """Show a name that a stranger chose: nothing in it may move a terminal's cursor."""
    if is_file_name(name):
        return name
    quoted = ascii(name)
    return quoted if len(quoted) <= _LONGEST_SHOWN else f"{quoted[:_LONGEST_SHOWN]}…"


def listing(names: list[str]) -> str:
    """Show the first few of many names."""
    few = 5
    text = ", ".join(shown(name) for name in names[:few])
    return text if len(names) <= few else f"{text} and {len(names) - few} more"
