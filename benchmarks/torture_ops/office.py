"""An office of several machines: PostgreSQL, a Prefect server, and workers on one pool."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.torture_ops.machines import Machine
from benchmarks.torture_ops.postgresql import Postgresql, server
from tasks.ledger.ledger import Ledger

POOL = "pgsr"
START_SECONDS = 180
POLL_SECONDS = 0.5
SECRET = "pgsr:word"  # noqa: S105  (of a server that lives as long as its torture)
LEASES = "prefect.server.concurrency.lease_storage.filesystem"


@dataclass(frozen=True)
class Office:
    """What the machines share, and the machines.

    Attributes:
        folder: storage that every machine sees: state, configurations, bundles.
        postgresql: the server of the ledger's database and, if it can be, of Prefect's.
        server: the machine of the Prefect server.
        workers: the machines that make releases.
        api: the address of the Prefect server.
        ledger_url: of the ledger's database.
    """

    folder: Path
    postgresql: Postgresql
    server: Machine
    workers: tuple[Machine, ...]
    api: str
    ledger_url: str

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def public(self) -> Path:
        return self.folder / "public"

    def ledger(self) -> Ledger:
        return Ledger(self.ledger_url, witness=self.home / "witness.json")

    def start_worker(self, machine: Machine) -> None:
        pool = ("--pool", POOL, "--type", "process", "--name", machine.name, "--limit", "1")
        machine.start("prefect", "worker", "start", *pool, log="worker.log")

    def ask(self, path: str, **document: Any) -> Any:
        """Ask the Prefect server."""
        user, _, word = SECRET.partition(":")
        answer = httpx.post(f"{self.api}/{path}", json=document, auth=(user, word), timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def flow_runs(self) -> list[dict[str, Any]]:
        """All flow runs, as Prefect knows them."""
        found: list[dict[str, Any]] = []
        while page := self.ask("flow_runs/filter", limit=200, offset=len(found)):
            found += page
        return found


@contextmanager
def opened(folder: Path, *, workers: int) -> Iterator[Office]:
    """An office with its servers running and its machines idle; gone on leaving."""
    (folder / "public").mkdir(parents=True)
    with server() as postgresql:
        for name in ("ledger", "prefect"):
            postgresql.create(name)
        office = _office(folder, postgresql, workers)
        try:
            _start_prefect(office)
            yield office
        finally:
            for machine in (*office.workers, office.server):
                machine.shut_down()


def make_pool(office: Office) -> None:
    """Make the work pool, as the operator does."""
    _must(office.server, "prefect", "work-pool", "create", POOL, "--type", "process")


def deploy(office: Office, configurations: list[Path], *, limited: bool = True) -> None:
    """Deploy products to the pool, as the operator does.

    Args:
        limited: to one run of a product at a time.
    """
    file = office.folder / "prefect.yaml"
    paths = [str(path) for path in configurations]
    _must(office.server, "flows", "serve", *paths, "--prefect-yaml", str(file))
    if not limited:
        document = yaml.safe_load(file.read_text())
        for deployment in document["deployments"]:
            del deployment["concurrency_limit"]
        file.write_text(yaml.safe_dump(document))
    _must(office.server, "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(file))


def _must(machine: Machine, *command: str) -> None:
    done = machine.run(*command)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def _office(folder: Path, postgresql: Postgresql, workers: int) -> Office:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    ledger = postgresql.url("ledger", driver="psycopg")
    shared = {
        **{name: value for name, value in os.environ.items() if not _is_ours(name)},
        "PGSR_HOME": str(folder / "home"),
        "XDG_DATA_HOME": str(folder / "data"),
        "PGSR_LEDGER_URL": ledger,
        "PREFECT_API_URL": api,
        "PREFECT_API_AUTH_STRING": SECRET,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "DO_NOT_TRACK": "1",
        "NUMBA_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    database = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
    prefect = {database: postgresql.url("prefect", driver="asyncpg")}
    of_server = {
        **(prefect if postgresql.takes_prefect else {}),
        "PREFECT_SERVER_API_AUTH_STRING": SECRET,
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
        # A worker that dies with a run in its hands keeps the product waiting for so long.
        "PREFECT_SERVER_CONCURRENCY_INITIAL_DEPLOYMENT_LEASE_DURATION": "60",
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
    }
    of_worker = {"PREFECT_WORKER_QUERY_SECONDS": "2", "PREFECT_WORKER_PREFETCH_SECONDS": "1"}

    def machine(name: str, settings: dict[str, str]) -> Machine:
        own = {"PREFECT_HOME": str(folder / name / "prefect")}
        return Machine(name, folder / name, {**shared, **own, **settings})

    return Office(
        folder=folder,
        postgresql=postgresql,
        server=machine("server", of_server),
        workers=tuple(machine(f"worker-{number}", of_worker) for number in range(1, workers + 1)),
        api=api,
        ledger_url=ledger,
    )


def _is_ours(name: str) -> bool:
    return name.startswith(("PREFECT_", "PGSR_"))


def _start_prefect(office: Office) -> None:
    port = office.api.rpartition(":")[2].partition("/")[0]
    arguments = ("server", "start", "--host", "127.0.0.1", "--port", port, "--no-ui")
    office.server.start("prefect", *arguments, log="server.log")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{office.api}/health", timeout=5).raise_for_status()
        except httpx.HTTPError:
            time.sleep(POLL_SECONDS)
        else:
            return
    raise TimeoutError(f"the Prefect server did not start: see {office.server.folder}")
