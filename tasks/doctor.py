"""The doctor: looks an installation over and says what to do; it changes nothing.

Every check returns findings, good ones included, so that a report shows what was looked at.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pgsr_core.errors import PgsrError
from tasks.served import read_served
from tasks.server_check import NoAnswer, what_is_open
from tasks.storage.temporary import SPILL, is_abandoned
from tasks.storage.trust import HomeNotSafe, require_own
from tasks.storage.zones import KEY_BYTES, Home

if TYPE_CHECKING:
    from tasks.configuration.plan import ReleasePlan
    from tasks.ledger.ledger import Ledger, RunState

LEAST_FREE_BYTES = 1 << 30
MOST_LISTED = 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Drafts that an atomic write leaves if its process is killed: .NAME.draft-1a2b… or .NAME.1a2b…
_DRAFT = re.compile(r"\..+\.(draft-[0-9a-f]{8}|[0-9a-f]{16})")
_TRUE = {"1", "true", "yes", "on", "t", "y"}
_FALSE = {"0", "false", "no", "off", "f", "n"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: permissions, keys, ledger, runs, prefect, leftovers or disk.
        ok: whether it is as it should be.
        says: what was found.
        remedy: the command to run, or what to do, where it is not.
    """

    area: str
    ok: bool
    says: str
    remedy: str = ""


@dataclass
class Patient:
    """An installation, and what was learnt of it so far."""

    home: Home
    environment: Mapping[str, str]
    free_bytes: Callable[[Path], int]
    plans: dict[str, ReleasePlan] = field(default_factory=dict)
    states: tuple[RunState, ...] = ()
    has_measured: bool = False

    @property
    def is_working(self) -> bool:
        """Whether some process may be in the middle of a run."""
        return any(state.state == "running" and not _died(state) for state in self.states)


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


def examine(
    home: Home,
    *,
    environment: Mapping[str, str] | None = None,
    free_bytes: Callable[[Path], int] = _free_bytes,
) -> tuple[Finding, ...]:
    """Look an installation over; nothing is changed, created or repaired.

    Args:
        home: the installation.
        environment: variables, this process's by default.
        free_bytes: how much space is left where a path is.
    """
    try:
        require_own(home.root)
    except HomeNotSafe as error:
        return (_problem("home", error),)
    if not home.root.is_dir():
        says = f"there is no state folder {home.root}"
        return (Finding("home", False, says, "name it with --home or in PGSR_HOME"),)
    patient = Patient(home, os.environ if environment is None else environment, free_bytes)
    checks = (_permissions, _plans, _ledger, _runs, _keys, _prefect, _leftovers, _disk)
    return tuple(finding for check in checks for finding in check(patient))


# --- permissions ------------------------------------------------------------------------------


def _permissions(patient: Patient) -> Iterator[Finding]:
    """Nobody but the owner may enter; Prefect's own files are behind its folder's door."""
    root = patient.home.root
    seen, loose = 0, []
    for path in (root, *_inside(root, but=patient.home.prefect)):
        seen += 1
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            says = f"{path} is a link; what it leads to is not protected by this folder"
            yield Finding("permissions", False, says, f"ls -l {_quoted(path)}")
        elif mode & _OTHERS:
            loose.append((path, mode))
    if len(loose) > MOST_LISTED:
        says = f"{len(loose)} files and folders of {root} are open to others"
        yield Finding("permissions", False, says, f"chmod -R go= {_quoted(root)}")
        return
    for path, mode in loose:
        right = "700" if stat.S_ISDIR(mode) else "600"
        says = f"{path} is {stat.S_IMODE(mode):04o}: open to others"
        yield Finding("permissions", False, says, f"chmod {right} {_quoted(path)}")
    if not loose:
        yield Finding("permissions", True, f"{seen} files and folders are closed to others")


def _inside(root: Path, *, but: Path) -> Iterator[Path]:
    """Everything below a folder, links not followed; of one folder its name only."""
    for folder, folders, files in os.walk(root):
        yield from (Path(folder) / name for name in sorted([*folders, *files]))
        folders[:] = [name for name in folders if Path(folder) / name != but]


# --- runs, ledger -----------------------------------------------------------------------------


def _plans(patient: Patient) -> Iterator[Finding]:
    """Read every run's plan: it says where its key and its bundle are."""
    from tasks.configuration.plan import ReleasePlan

    runs = patient.home.root / "runs"
    for path in sorted(runs.glob("*/*/plan.json")):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        try:
            patient.plans[name] = ReleasePlan.model_validate_json(path.read_bytes())
        except (OSError, ValueError):
            says = f"the plan of {name} cannot be read"
            yield Finding("runs", False, says, "run pgsr release with its configuration again")


def _ledger(patient: Patient) -> Iterator[Finding]:
    """It opens, is the one that was seen, can be written, and holds no abandoned reservation."""
    from pgsr_core.chain import GENESIS
    from tasks.ledger.database import file_of
    from tasks.ledger.inspection import NO_WITNESS
    from tasks.ledger.ledger import Ledger

    home = patient.home
    try:
        yield from _ledger_file(file_of(home.ledger_url), home)
        ledger = Ledger.existing(home.ledger_url, witness=home.witness)
        if ledger is None:
            remedy = "restore it from a backup: without it budgets could be spent twice"
            yield Finding("ledger", not patient.plans, "there is no ledger", remedy)
            return
        patient.states = ledger.run_states()
        patient.has_measured = any(
            ledger.measurement(plan.product, plan.release) for plan in patient.plans.values()
        )
        if ledger.head() != GENESIS and not home.witness.exists():
            yield _problem("ledger", PgsrError(f"the witness of the ledger: {NO_WITNESS}"))
        else:
            says = "the ledger opens, and its chain is the one that was seen"
            yield Finding("ledger", True, says)
        yield from _reservations(ledger, patient)
        yield from _second_purses(ledger, home)
    except PgsrError as error:
        yield _problem("ledger", error)


def _ledger_file(path: Path | None, home: Home) -> Iterator[Finding]:
    """A ledger that is a file: who may read it, and whether we may write it."""
    if path is None or not path.is_file():
        return
    # One inside the home was looked at with everything else there.
    if not path.is_relative_to(home.root) and path.stat().st_mode & _OTHERS:
        says = f"the ledger {path} is open to others"
        yield Finding("permissions", False, says, f"chmod 600 {_quoted(path)}")
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        says = f"the ledger {path} or its folder cannot be written"
        yield Finding("ledger", False, says, f"chmod u+rw {_quoted(path)}")


def _reservations(ledger: Ledger, patient: Patient) -> Iterator[Finding]:
    held = [account for account in ledger.accounts() if account.reserved]
    if held and not patient.is_working:
        for account in held:
            says = f"{account.reserved} of {account.population} is reserved by a run that is gone"
            yield Finding(
                "ledger", False, says, "pgsr status names the run; pgsr resume takes over"
            )
        return
    yield Finding("ledger", True, "no reservation was left behind")


def _second_purses(ledger: Ledger, home: Home) -> Iterator[Finding]:
    """A population that another ledger of this user holds, too, has two budgets."""
    from tasks.ledger.holders import refuse_held_elsewhere

    held = [account for account in ledger.accounts() if ledger.holds(account.population)]
    for account in held:
        try:
            refuse_held_elsewhere(home, ledger, account.population, cost=account.budget)
        except PgsrError as error:
            yield _problem("ledger", error)


def _runs(patient: Patient) -> Iterator[Finding]:
    died = [state for state in patient.states if _died(state)]
    for state in died:
        name = f"{state.product}/{state.release}"
        yield Finding("runs", False, f"{name} died in stage {state.stage}", f"pgsr resume {name}")
    if not died:
        yield Finding("runs", True, f"none of {len(patient.states)} runs died")


def _died(state: RunState) -> bool:
    from tasks.ledger.owner import Owner

    owner = Owner.parse(state.owner)
    return state.state == "running" and owner is not None and owner.is_surely_gone()


# --- keys -------------------------------------------------------------------------------------


def _keys(patient: Patient) -> Iterator[Finding]:
    """The secret of source digests, and every key that a configuration signs with."""
    from tasks.keys import needs_passphrase

    secret = patient.home.root / "confidential" / "source-digest.key"
    if patient.has_measured and not secret.is_file():
        says = f"{secret} is missing; measured releases cannot be recognised without it"
        yield Finding("keys", False, says, "restore it from a backup")
    elif secret.is_file():
        yield _source_key(secret)
    published = {f"{s.product}/{s.release}" for s in patient.states if s.state == "published"}
    keys: dict[Path, set[str]] = {}
    for name, plan in patient.plans.items():
        if plan.configuration.publish.signing_key is not None:
            key = Path(plan.folder) / plan.configuration.publish.signing_key
            keys.setdefault(key, set()).add(name)
    if patient.home.signing_key.exists():
        keys.setdefault(patient.home.signing_key, set())
    for key, names in sorted(keys.items()):
        if names <= published and not key.exists():
            continue  # it was rotated, and is kept elsewhere
        try:
            protected = "a passphrase" if needs_passphrase(key) else "its permissions alone"
            yield Finding("keys", True, f"{key} can be read by its owner; {protected} guards it")
        except PgsrError as error:
            yield _problem("keys", error)


def _source_key(path: Path) -> Finding:
    try:
        whole = path.stat().st_size == KEY_BYTES and os.access(path, os.R_OK)
    except OSError:
        whole = False
    if whole:
        return Finding("keys", True, f"{path.name} is whole and can be read")
    says = f"{path} is damaged or cannot be read"
    return Finding("keys", False, says, "restore it from a backup")


# --- Prefect ----------------------------------------------------------------------------------


def _prefect(patient: Patient) -> Iterator[Finding]:
    """What is not set in the environment has our own default; see flows/prefect_settings."""
    said = {name: value.strip().lower() for name, value in patient.environment.items()}
    wanted = (
        ("PREFECT_SERVER_ANALYTICS_ENABLED", _FALSE, "false", "Prefect reports to its makers"),
        ("PREFECT_RESULTS_PERSIST_BY_DEFAULT", _FALSE, "false", "Prefect keeps results in clear"),
        ("DO_NOT_TRACK", _TRUE, "1", "libraries may report to their makers"),
    )
    wrong = 0
    for name, right, value, otherwise in wanted:
        if said.get(name, value) not in right:
            wrong += 1
            yield Finding("prefect", False, f"{name}: {otherwise}", f"export {name}={value}")
    if not wrong:
        yield Finding("prefect", True, "analytics are off and results are not persisted")
    yield from _prefect_home(patient)
    yield from _servers(patient)
    for served in read_served(patient.home):
        if served.is_edited:
            says = f"{served.path} was edited since it was served: its scheduled runs are refused"
            yield Finding("prefect", False, says, "start pgsr serve anew, or see pgsr serve --help")


def _prefect_home(patient: Patient) -> Iterator[Finding]:
    folder = Path(patient.environment.get("PREFECT_HOME") or patient.home.prefect).expanduser()
    if not folder.exists():
        yield Finding("prefect", True, "Prefect has written nothing yet")
    elif folder.stat().st_mode & _OTHERS:
        says = f"Prefect's folder {folder} is open to others"
        yield Finding("prefect", False, says, f"chmod 700 {_quoted(folder)}")
    else:
        yield Finding("prefect", True, f"Prefect's files are in {folder}, closed to others")


def _servers(patient: Patient) -> Iterator[Finding]:
    """The server that is configured, and that of a `pgsr serve`: each obeys its owner only."""
    configured = patient.environment.get("PREFECT_API_URL", "").strip()
    if configured:
        remedy = "start it (prefect server start), or unset PREFECT_API_URL"
        yield from _server(configured, "the configured Prefect server", remedy)
    try:
        noted = json.loads((patient.home.prefect / "server.json").read_bytes())
        own = str(noted["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    yield from _server(own, "the Prefect server of pgsr serve", "start pgsr serve again")


def _server(address: str, which: str, remedy: str) -> Iterator[Finding]:
    """Ask as somebody without the secret. The address is not repeated: it may hold a password."""
    try:
        problems = tuple(what_is_open(address))
    except NoAnswer:
        yield Finding("prefect", False, f"{which} does not answer", remedy)
        return
    for says, what_to_do in problems:
        yield Finding("prefect", False, says, what_to_do)
    if not problems:
        yield Finding("prefect", True, f"{which} answers, and nobody without its secret")


# --- leftovers, disk --------------------------------------------------------------------------


def _leftovers(patient: Patient) -> Iterator[Finding]:
    """What processes that were killed did not live to remove."""
    found = [path for path in _staging_folders(patient.plans.values()) if is_abandoned(path)]
    for path in _inside(patient.home.root, but=patient.home.prefect):
        if path.name.startswith(SPILL) and path.is_dir():
            found += [path] * is_abandoned(path)
        # A running process has drafts of its own; which are whose cannot be told.
        elif not patient.is_working and (
            _DRAFT.fullmatch(path.name) or (path.name == "spill" and path.is_dir())
        ):
            found.append(path)
    for path in found:
        says = f"{path} was left behind by a process that is gone"
        yield Finding("leftovers", False, says, f"rm -r {_quoted(path)}")
    if not found:
        yield Finding("leftovers", True, "no staging folder, draft or spill was left behind")


def _staging_folders(plans: Iterable[ReleasePlan]) -> list[Path]:
    folders = {plan.destination.parent for plan in plans}
    return sorted(path for folder in folders for path in folder.glob(".staging-*"))


def _disk(patient: Patient) -> Iterator[Finding]:
    places = {patient.home.root}
    places |= {plan.destination.parent for plan in patient.plans.values()}
    for place in sorted(path for path in places if path.is_dir()):
        free = patient.free_bytes(place)
        says = f"{free / 2**30:,.1f} GiB are free at {place}"
        yield Finding("disk", free >= LEAST_FREE_BYTES, says, f"df -h {_quoted(place)}")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _problem(area: str, error: PgsrError) -> Finding:
    says, _, remedy = str(error).partition(" Remedy: ")
    return Finding(area, False, says, remedy)
