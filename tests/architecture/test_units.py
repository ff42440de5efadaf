"""Unit files and the container file: what they start exists, and what they need is described."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "deployments" / "systemd"
UNITS = sorted([*SYSTEMD.glob("*.service"), *SYSTEMD.glob("*.timer")])
SERVICES = sorted(SYSTEMD.glob("*.service"))
EXAMPLES = {
    "/etc/pgsr/environment": SYSTEMD / "environment.example",
    "/etc/pgsr/prefect-server": SYSTEMD / "prefect-server.example",
}
SECTIONS = {"Unit", "Service", "Install", "Timer"}


def settings(unit: Path) -> list[tuple[str, str, str]]:
    """Section, name and value of every line that sets something."""
    section, found = "", []
    for line in unit.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
            continue
        name, is_set, value = line.partition("=")
        assert is_set, f"{unit.name}: {line}"
        found.append((section, name, value))
    return found


def values(unit: Path, wanted: str) -> list[str]:
    return [value for _, name, value in settings(unit) if name == wanted]


def variables(example: Path) -> set[str]:
    return set(re.findall(r"^#?([A-Z_]+)=", example.read_text(), re.MULTILINE))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_says_nothing_that_systemd_does_not_know(unit: Path, tmp_path: Path) -> None:
    assert {section for section, _, _ in settings(unit)} <= SECTIONS
    judge = shutil.which("systemd-analyze")
    if judge is None:
        return  # where there is no systemd, its own judgement is not to be had
    copies = [tmp_path / path.name.replace("@.", "@1.") for path in UNITS]
    for path, copy in zip(UNITS, copies, strict=True):
        # It also asks whether programs are there; ours are in a folder that this machine lacks.
        copy.write_text(re.sub(r"/opt/pgsr/bin/\w+", "/bin/true", path.read_text()))
    [judged] = [copy for copy in copies if copy.name == unit.name.replace("@.", "@1.")]
    said = subprocess.run(
        [judge, "verify", str(judged)], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    judged.write_text(judged.read_text().replace("Description=", "Descriptino="))
    told = subprocess.run(
        [judge, "verify", str(judged)], capture_output=True, text=True, check=False
    )
    assert "Descriptino" in told.stderr


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_a_service_finds_its_program_and_its_variables(unit: Path) -> None:
    from flows.cli.app import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.typer_instance.info.name for group in app.registered_groups}
    commands = values(unit, "ExecStart")
    assert commands
    for command in commands:
        assert set(re.findall(r"/bin/pgsr (\w+)", command)) <= known
    [file] = values(unit, "EnvironmentFile")
    used = set(re.findall(r"(?<!\$)\$([A-Z_]+)", " ".join(commands)))
    assert used <= variables(EXAMPLES[file])


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_a_service_is_nobody_of_note_and_writes_for_itself_alone(unit: Path) -> None:
    assert values(unit, "User") not in ([], ["root"])
    assert values(unit, "UMask") == ["0077"]
    assert values(unit, "NoNewPrivileges") == ["yes"]
    assert values(unit, "ProtectSystem") == ["strict"]
    # Kernels are compiled when they are first used.
    assert values(unit, "MemoryDenyWriteExecute") == []


def test_the_container_is_made_of_what_the_lock_names() -> None:
    lines = (ROOT / "deployments" / "Containerfile").read_text()
    installed = re.findall(r"pip install (.+)", lines)
    assert all("--no-deps" in what for what in installed)
    assert any("--require-hashes -r requirements.lock" in what for what in installed)
    for source in re.findall(r"^COPY (.+) \S+$", lines, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())
    packages = re.search(r"packages = \[(.+)\]", (ROOT / "pyproject.toml").read_text())
    assert packages is not None
    copied = set(re.findall(r"^COPY (\w+) \./\1$", lines, re.MULTILINE))
    assert copied == set(re.findall(r'"(\w+)"', packages[1]))
