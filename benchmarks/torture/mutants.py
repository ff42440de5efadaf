"""The protocol, broken in the ways that matter; a torture that does not notice is worthless."""

from __future__ import annotations

import dataclasses
import secrets
import time
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert

from benchmarks.torture.driver import PRODUCT, Int, Protocol
from tasks.ledger import measurements
from tasks.ledger.ledger import Ledger, Measurement, MeasurementRequest, Reservation
from tasks.ledger.measurements import Drawn
from tasks.ledger.schema import charges
from tasks.publication.place import Published, verified_checksums
from tasks.storage.tables import TableRef


class NoKey(Protocol):
    """Every attempt is a new measurement: nothing finds the committed one."""

    def request(self) -> MeasurementRequest:
        nonce = secrets.token_hex(8)
        asked = super().request()
        return dataclasses.replace(
            asked, key=f"{nonce}{asked.key[16:]}", release=f"{self.release}-{nonce}"
        )


class RedrawOnRerun(Protocol):
    """A rerun that finds the committed measurement materialises a draw of its own."""

    def measure(self, ledger: Ledger) -> Measurement:
        self.again = ledger.measurement(PRODUCT, self.release) is not None
        return super().measure(ledger)

    def materialise(self, ledger: Ledger, measurement: Measurement) -> TableRef:
        if not self.again:
            return super().materialise(ledger, measurement)
        with self.place.store(self.release) as store:
            return self.keep(store, self.draw(), inputs=measurement.key)


class DrawSeenBeforeCharge(Protocol):
    """The draw is kept in the safe store before the ledger takes it."""

    def commit(self, ledger: Ledger, held: Reservation, noisy: Int) -> Measurement:
        with self.place.store(self.release) as store:
            self.keep(store, noisy, inputs=held.request.key)
        self.reach("kept")
        return super().commit(ledger, held, noisy)


class LedgerOfTwoTransactions(Ledger):
    """Commits the draw first and charges for it afterwards."""

    pause = 0.0

    def commit(self, reservation: Reservation, values: Int, **said: Any) -> Measurement:
        request = reservation.request
        with self._writing() as writer:
            committed = measurements.commit(writer, reservation, Drawn(values, **said))
            writer.connection.execute(delete(charges).where(charges.c.key == request.key))
        time.sleep(self.pause)
        with self._writing() as writer:
            writer.connection.execute(
                insert(charges).values(
                    key=request.key, population=request.population, epsilon=request.epsilon
                )
            )
        return committed


@dataclasses.dataclass
class TwoTransactions(Protocol):
    """Draw and charge are committed one after the other."""

    ledger_kind: type[Ledger] = LedgerOfTwoTransactions


class UnhurriedLedgerOfTwoTransactions(LedgerOfTwoTransactions):
    """Waits between the two, so that a few random kills are enough to fall there."""

    pause = 1.0


@dataclasses.dataclass
class UnhurriedTwoTransactions(Protocol):
    """Draw and charge are committed one after the other, a while apart."""

    ledger_kind: type[Ledger] = UnhurriedLedgerOfTwoTransactions


class NonAtomicPublish(Protocol):
    """The bundle's files appear one after another."""

    pause = 0.0

    def move(self, bundle: Path, destination: Path) -> Published:
        destination.mkdir()
        for path in sorted(bundle.iterdir()):
            time.sleep(self.pause)
            (destination / path.name).write_bytes(path.read_bytes())
        return Published(destination, verified_checksums(destination))


class UnhurriedNonAtomicPublish(NonAtomicPublish):
    """Waits between the files, so that others come across the bundle meanwhile."""

    pause = 0.5


MUTANTS: dict[str, type[Protocol]] = {
    "no key": NoKey,
    "redraw on rerun": RedrawOnRerun,
    "draw visible before charge": DrawSeenBeforeCharge,
    "two transactions": TwoTransactions,
    "non-atomic publish": NonAtomicPublish,
}
