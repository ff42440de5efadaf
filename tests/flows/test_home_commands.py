"""Every command finds its state folder, says which where it matters, and uses nobody else's."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from flows.cli import homes
from flows.cli.app import app, run
from flows.cli.homes import WITH_HOME, runnable
from tasks.ledger.ledger import Ledger
from tasks.storage.places import default_root
from tasks.storage.zones import Home
from tests.flows.commandline import Pgsr, edit

ROOT = Path(__file__).parents[2]
STRANGER = 65534
NAME = "household-sizes/synthetic-1"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """The whole command line inside this process, messages and exit codes included."""
    monkeypatch.setattr(homes, "_option", "")

    def called(*arguments: str | Path) -> Ended:
        capfd.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["pgsr", *map(str, arguments)])
            try:
                run()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        return Ended(code, *capfd.readouterr())

    return called


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A state folder at a place with a space, in which one release failed."""
    place = Home(tmp_path / "my state")
    place.create()
    ledger = Ledger(place.ledger_url, witness=place.witness)
    ledger.set_state("sizes", "2026-Q3", state="failed", stage="ingest", error="DuplicatePerson")
    return place


def commands_with_home() -> set[str]:
    """The names of all commands that take --home, by what they say of themselves."""
    found: set[str] = set()

    def look(command: typer.core.TyperCommand, name: str) -> None:
        if any("--home" in option.opts for option in command.params):
            found.add(name)
        for word, inner in getattr(command, "commands", {}).items():
            look(inner, f"{name} {word}".strip())

    look(typer.main.get_command(app), "")
    return found


def test_every_command_that_needs_a_state_folder_takes_it_as_an_option() -> None:
    assert commands_with_home() == set(WITH_HOME)
    stateless = {"demo", "synth", "evaluate", "audit verify", "alerts test", "keys"}
    known = {
        f"{group.typer_instance.info.name if group else ''} {c.name or c.callback.__name__}".strip()
        for group in (None, *app.registered_groups)
        for c in (group.typer_instance if group else app).registered_commands
    }
    assert {name for name in known if not name.startswith("keys")} <= {*WITH_HOME, *stateless}


def test_printed_commands_carry_the_state_folder_where_a_bare_one_would_not_find_it(
    call: Callable[..., Ended], home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = f"--home '{home.root}'"
    [shown] = [
        line
        for line in call("status", "--home", home.root).out.splitlines()
        if line.startswith("Next")
    ]
    assert shown.split(maxsplit=1)[1] == f"pgsr resume sizes/2026-Q3 {option}"
    said = call("resume", "sizes/none", "--home", home.root)
    assert said.code == 2
    assert f"pgsr status {option} for the names" in said.err
    monkeypatch.setenv("PGSR_HOME", str(home.root))
    assert "pgsr resume sizes/2026-Q3\n" in call("status").out
    assert "see pgsr status for the names" in call("resume", "sizes/none").err


def test_every_command_in_a_message_can_be_given_a_state_folder(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `pgsr …` a source file prints and needs a state folder gets it, or is no command."""
    monkeypatch.setattr(homes, "_option", "")
    homes.use(home)
    for name in WITH_HOME:
        words = shlex.split(runnable(f"pgsr {name} PRODUCT/RELEASE"))
        assert words == ["pgsr", *name.split(), "--home", str(home.root), "PRODUCT/RELEASE"]
    assert runnable("pgsr keys public x; pgsr synth out") == "pgsr keys public x; pgsr synth out"
    printed = {
        command
        for package in ("tasks", "flows", "pgsr_core")
        for path in (ROOT / package).rglob("*.py")
        for command in re.findall(
            r"\bpgsr ((?:budget|ledger|audit|alerts)? ?[a-z]+)", path.read_text()
        )
    }
    printed_with_home = {name for name in WITH_HOME if name in printed}
    assert {"resume", "status", "ledger check", "audit log", "budget raise"} <= printed_with_home


def test_an_old_folder_beside_the_configuration_is_used_and_said(
    call: Callable[..., Ended], virginia: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = virginia / ".pgsr"
    (old / "example.json").unlink()
    assert str(old) not in call("check", virginia / "product.yaml").err
    (old / "runs").mkdir()
    said = call("check", virginia / "product.yaml").err
    assert f"state is kept in {old}" in said
    [move] = re.findall(r"to move it: (.*)\)\.", said)
    assert os.system(move) == 0  # noqa: S605  (what a person would paste)
    assert (default_root() / "runs").is_dir()
    monkeypatch.chdir(tmp_path)
    assert str(default_root()) in call("status").err


def test_a_release_says_that_it_opens_a_ledger_and_every_folder_finds_it(
    pgsr: Pgsr, virginia: Path, tmp_path: Path
) -> None:
    shutil.rmtree(virginia / ".pgsr")
    configuration = virginia / "product.yaml"
    done = pgsr("release", configuration, cwd=virginia)
    assert done.returncode == 0, done.stderr
    ledger = default_root() / "ledger.sqlite"
    assert f"this opens a new ledger, {ledger}: population virginia-2000 begins" in done.stderr
    assert not (virginia / ".pgsr").exists()
    (tmp_path / "elsewhere").mkdir()
    for folder in (virginia, tmp_path / "elsewhere"):
        [standing] = pgsr.json("status", cwd=folder)
        assert standing["state"] == "published"
    # The same population in another folder, with a state folder of its own: two purses.
    twin = Path(shutil.copytree(virginia, tmp_path / "twin"))
    edit(twin / "product.yaml", "release: synthetic-1", "release: synthetic-2")
    refused = pgsr("release", twin / "product.yaml", "--home", twin / "home", cwd=twin)
    assert refused.returncode == 1
    assert f"--home {default_root()}" in refused.stderr
    assert not (twin / "home").exists()
    again = pgsr("release", twin / "product.yaml", cwd=twin)
    assert again.returncode == 0, again.stderr
    assert "this opens" not in again.stderr
    [budget] = pgsr.json("budget", cwd=twin)
    assert budget["spent"] == "1"


def test_demonstrations_can_be_made_any_number_of_times(pgsr: Pgsr, tmp_path: Path) -> None:
    for number in (1, 2):
        shown = pgsr.json("demo", "--people", "2000", cwd=tmp_path, PGSR_HOME=str(tmp_path / "my"))
        assert shown["spent"] == "1/2"
        assert (tmp_path / "demo" / str(number) / ".pgsr" / "ledger.sqlite").is_file()
    assert not (tmp_path / "my").exists()


# --- somebody else's --------------------------------------------------------------------------

LOOKING = (
    ("status",),
    ("doctor",),
    ("budget",),
    ("metrics",),
    ("audit", "log"),
    ("audit", "replay", NAME),
    ("ledger", "check"),
    ("purge", "--due"),
    ("resume", NAME),
)


def problem(ended: Ended, command: tuple[str, ...], *, owner: str) -> str | None:
    """What is wrong with how a command ended that met a state folder of somebody else."""
    said = ended.out + ended.err
    if ended.code not in (1, 2):
        return f"{command} ended with {ended.code}: {said}"
    if "Traceback" in said or owner not in said or "Releases" in said or "Budgets" in said:
        return f"{command} said {said}"
    return None


def test_a_home_of_somebody_else_is_told_by_every_command(
    call: Callable[..., Ended], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    ended = {command: call(*command, "--home", home.root) for command in LOOKING}
    assert [p for c, e in ended.items() if (p := problem(e, c, owner=owner))] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "readable"])
def test_another_user_gets_a_message_and_no_traceback(
    call: Callable[..., Ended], home: Home, tmp_path: Path, is_open: bool
) -> None:
    for command in LOOKING:  # what they import is behind folders that a stranger cannot enter
        call(*command, "--home", home.root)
    if is_open:
        for folder in (home.root, *home.root.parents):
            if folder.stat().st_mode & 0o777 == 0o700:
                folder.chmod(0o755)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found: list[str | None] = ["the child died"]
        with contextlib.suppress(BaseException):
            os.setegid(STRANGER)
            os.setgroups([])
            os.seteuid(STRANGER)
            ended = {command: call(*command, "--home", home.root) for command in LOOKING}
            found = [problem(e, c, owner="root") for c, e in ended.items()]
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert [each for each in json.loads(os.read(read, 1 << 20)) if each] == []


def test_a_home_that_others_may_write_is_used_by_no_command(
    call: Callable[..., Ended], home: Home, virginia: Path
) -> None:
    home.root.chmod(0o777)
    before = sorted(home.root.rglob("*"))
    configured = [
        (*name.split(), virginia / "product.yaml")
        for name in ("release", "check", "alerts install")
    ]
    for command in (*LOOKING, *configured, ("ledger", "init")):
        ended = call(*command, "--home", home.root)
        said = ended.out + ended.err
        assert ended.code == 1, said
        assert f"chmod go-w '{home.root}'" in said, command  # whole, to be copied
    assert sorted(home.root.rglob("*")) == before


def test_where_nothing_was_released_there_is_a_word_and_no_empty_table(
    call: Callable[..., Ended], tmp_path: Path
) -> None:
    for command in ("status", "budget"):
        ended = call(command, "--home", tmp_path / "nowhere")
        assert ended.out == ""
        assert "No release was started" in ended.err


@pytest.mark.parametrize(
    "command",
    [*LOOKING, ("withdraw", NAME, "--reason", "x"), ("repost", NAME, "--as", "y")],
    ids=" ".join,
)
def test_looking_for_a_ledger_makes_none(
    call: Callable[..., Ended], tmp_path: Path, command: tuple[str, ...]
) -> None:
    call(*command, "--home", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert not default_root().exists()


def test_what_synth_prints_works_where_one_stands(
    call: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = call("synth", "my out", "--people", "500", "--shape", "custom", "--fan-out", "3")
    [printed] = [line for line in said.out.splitlines() if line.startswith("Next: ")]
    program, *arguments = shlex.split(printed.removeprefix("Next: "))
    assert program == "pgsr"
    checked = call(*arguments)
    assert checked.code == 0, checked.err
    assert f"kept in {tmp_path / 'my out' / '.pgsr'}" in checked.err
    assert "opens a new ledger" in checked.err


def test_serving_says_that_it_opens_a_ledger(
    call: Callable[..., Ended], virginia: Path, tmp_path: Path
) -> None:
    configuration = virginia / "product.yaml"
    edit(configuration, "release: synthetic-1", 'release: "{date:%Y-%m}"')
    with configuration.open("a") as file:
        file.write('schedule: {cron: "0 6 1 * *", timezone: Europe/Berlin}\n')
    home = tmp_path / "my state"
    written = call("serve", configuration, "--prefect-yaml", tmp_path / "p.yaml", "--home", home)
    assert written.code == 0, written.err
    assert f"new ledger, {home / 'ledger.sqlite'}: population virginia-2000" in written.err
    assert f"PGSR_HOME='{home}' prefect worker start" in written.out
    assert (home / "ledger.sqlite").exists()
