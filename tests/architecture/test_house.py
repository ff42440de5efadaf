"""The repository tests itself: layering, light start, honest documents, a lock without address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "prefect",
    "great_expectations",
    "pandas",
    "numba",
    "duckdb",
    "opendp",
    "sqlalchemy",
    "scipy",
)
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"])


def test_imports_point_one_way() -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["release", "--help"], ["budget", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; sys.argv = ['pgsr', *sys.argv[1:]]\n"
        "from flows.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "HEAVY []" in done.stdout


def commands() -> dict[str, str]:
    """Every command of the command line, with its help."""
    from flows.cli.app import app

    found = {}
    groups = {
        group.typer_instance.info.name: group.typer_instance for group in app.registered_groups
    }
    for prefix, group in {"": app, **groups}.items():
        for command in group.registered_commands:
            assert command.callback is not None
            name = command.name or command.callback.__name__
            found[f"{prefix} {name}".strip()] = command.callback.__doc__ or ""
    return found


def test_every_command_has_help_with_an_example() -> None:
    for name, documentation in commands().items():
        assert f"Example: pgsr {name}" in documentation, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_only_commands_and_make_targets_that_exist(document: Path) -> None:
    known = {word for name in commands() for word in (name, name.split()[0])}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(re.findall(r"```.*?```|`[^`]+`", document.read_text(), re.DOTALL))
    assert set(re.findall(r"(?:^|[`\s])pgsr ([a-z]+)\b", code)) <= known
    groups = "|".join({name.split()[0] for name in commands() if " " in name})
    assert set(re.findall(rf"(?:^|[`\s])pgsr ((?:{groups}) [a-z]+)\b", code)) <= known
    assert set(re.findall(r"(?:^|[`\s])make ([a-z-]+)\b", code)) <= targets


def test_links_between_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_lock_pins_every_package_by_hash_and_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index" not in lock
    entries = re.split(r"\n(?=[a-z0-9])", lock)
    assert len(entries) > 50
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils.py", "helpers.py", "common.py", "misc.py"}
    packages = ("pgsr_core", "expectations", "tasks", "flows", "deployments")
    found = [p for package in packages for p in (ROOT / package).rglob("*.py") if p.name in drawers]
    assert found == []
