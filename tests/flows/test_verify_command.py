"""`pgsr keys` and `pgsr audit verify`: a real bundle in a folder, and what a stranger sees."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from flows.cli.audit import audit
from flows.cli.keys import keys
from pgsr_core.attestation.provenance import PROVENANCE_FILE, Provenance, sign_release
from pgsr_core.errors import PgsrError
from pgsr_core.verification import verify_bundle
from tasks.bundles import FolderBundle, UnreadableBundle
from tasks.keys import KeyFiles, create_key, read_private_key, read_public_key
from tasks.publication.bundle import build_bundle
from tasks.storage.duck import connect
from tasks.storage.tables import MatrixStore, write_regions
from tests.core.honest_bundle import make, replace_table

ROOT = Path(__file__).parents[2]
app = typer.Typer()
app.add_typer(keys)
app.add_typer(audit)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@dataclass(frozen=True)
class Release:
    """A signed bundle, as the pipeline's own publisher writes it, and its key."""

    folder: Path
    key: KeyFiles

    def verify(self, *options: str) -> Result:
        return run("audit", "verify", self.folder, "--key", self.key.public, *options)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Written by tasks.publication, as a release writes it."""
    base = tmp_path_factory.mktemp("published")
    folder = base / "bundle"
    folder.mkdir()
    made = make()
    tree, facts = made.tree, made.draft.facts
    with connect(base / "safe.duckdb", writable_folder=base) as connection:
        write_regions(connection, tree, ("",) * tree.regions, made.groups)
        store = MatrixStore(connection, tree)
        for table, (matrix, sizes) in made.arrays.items():
            ref = store.write(table, table, matrix, sizes=sizes, inputs="")
            assert ref.digest == facts.digests[table]
        key = create_key(base / "release.key")
        build_bundle(connection, folder, facts, formats=("parquet", "csv"), keyid=key.keyid)
    sign(folder, made.draft.provenance, key)
    return Release(folder, key)


def sign(folder: Path, provenance: dict[str, object], key: KeyFiles) -> None:
    checksums = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
    }
    envelope = sign_release(
        checksums,
        Provenance(**provenance),  # type: ignore[arg-type]
        key=read_private_key(key.private),
    )
    (folder / PROVENANCE_FILE).write_bytes(envelope)


@pytest.fixture
def release(published: Release, tmp_path: Path) -> Release:
    """A copy that a test may spoil."""
    return Release(Path(shutil.copytree(published.folder, tmp_path / "bundle")), published.key)


def test_a_published_bundle_is_verified_and_explained_line_by_line(release: Release) -> None:
    shown = release.verify()
    assert shown.exit_code == 0, shown.output
    assert "Verified" in shown.output
    assert "✗" not in shown.output
    assert shown.output.count("✓") > 30
    assert release.key.keyid in shown.output
    said = json.loads(release.verify("--json").output)
    assert said["verified"] is True
    assert said["keyid"] == release.key.keyid
    assert said["provenance"]["charge"]["epsilon"] == "3/2"
    assert {"name", "passed", "sentence"} == set(said["items"][0])


def test_the_importable_function_agrees_with_the_command(release: Release) -> None:
    found = verify_bundle(FolderBundle(release.folder), read_public_key(release.key.public))
    assert found.verified
    said = json.loads(release.verify("--json", "--no-replay").output)
    names = [item.name for item in found.items]
    assert [item["name"] for item in said["items"]] == [*names, "report"]


def test_verify_replays_and_its_last_line_names_what_it_left_out_with_the_command(
    release: Release,
) -> None:
    whole = release.verify()
    assert "replay:recomputed:group_sizes" in whole.output
    assert "Not checked" not in whole.output
    assert json.loads(release.verify("--json").output)["not_checked"] == []
    short = release.verify("--no-replay")
    assert short.exit_code == 0
    last = short.output.rstrip().splitlines()[-1]
    command = f"pgsr audit replay {release.folder}"
    assert last.startswith("Not checked: ")
    assert last.endswith(f"run {command}.")
    [left_out] = json.loads(release.verify("--json", "--no-replay").output)["not_checked"]
    assert left_out["command"] == command
    assert run(*command.split()[1:]).exit_code == 0


def test_the_truth_in_place_of_the_release_ends_with_1(release: Release) -> None:
    made = make()
    replace_table(made, "group_sizes", made.truth)
    bounds = made.arrays["margins"][0].copy()
    bounds[:] = made.truth
    replace_table(made, "margins", bounds)
    for name, content in made.draft.unsigned().items():
        (release.folder / name).write_bytes(content)
    (release.folder / PROVENANCE_FILE).unlink()
    sign(release.folder, made.draft.provenance, release.key)
    outcome = release.verify()
    assert outcome.exit_code == 1
    assert "✗ replay:recomputed:group_sizes" in outcome.output
    assert "✗ report" in release.verify("--no-replay").output  # which was made of other numbers


def edit_report(release: Release, before: str, after: str) -> None:
    """Forge the page, and sign everything again with the publisher's own key."""
    page = release.folder / "report.html"
    text = page.read_text(encoding="utf-8")
    assert before in text
    page.write_text(text.replace(before, after), encoding="utf-8", newline="\n")
    package = json.loads((release.folder / "datapackage.json").read_text())
    for resource in package["resources"]:
        if resource["path"] == page.name:
            content = page.read_bytes()
            resource["bytes"] = len(content)
            resource["hash"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (release.folder / "datapackage.json").write_text(json.dumps(package), encoding="utf-8")
    (release.folder / PROVENANCE_FILE).unlink()
    sign(release.folder, make().draft.provenance, release.key)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("3/2 (1.5)", "3/200 (0.015)"),
        ("The unit of privacy is: person", "The unit of privacy is: household"),
        ("<h3>What is not protected</h3>", ""),
        ('name="pgsr-report"', 'name="something"'),
        ('name="pgsr-report" content="', 'name="pgsr-report" content="9'),
    ],
    ids=["a hundredth of ε", "another unit", "a heading left out", "no form", "another form"],
)
def test_a_report_that_says_something_else_is_refused_though_signed_again(
    release: Release, before: str, after: str
) -> None:
    edit_report(release, before, after)
    outcome = release.verify()
    assert outcome.exit_code == 1
    assert "NOT VERIFIED: 1 of" in outcome.output
    assert "✗ report" in outcome.output


def test_a_report_that_cannot_be_compared_is_named_in_the_last_line(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests" / "fixtures" / "version-0.1.0" / "office.tar.xz") as office:
        office.extractall(tmp_path, filter="data")
    made_before = tmp_path / "public" / "household-sizes" / "2026-Q1"
    outcome = run("audit", "verify", made_before, "--key", tmp_path / "installation.pub")
    assert outcome.exit_code == 0, outcome.output
    last = outcome.output.rstrip().splitlines()[-1]
    assert last.startswith("Not checked: that report.html says what the bundle says")
    assert "install pgsr" in last


def test_a_report_that_is_as_it_was_is_accepted_when_signed_again(release: Release) -> None:
    edit_report(release, "3/2 (1.5)", "3/2 (1.5)")
    outcome = release.verify()
    assert outcome.exit_code == 0, outcome.output
    assert "✓ report" in outcome.output


def test_a_changed_missing_extra_or_renamed_file_ends_with_1_and_says_which(
    release: Release, tmp_path: Path
) -> None:
    file = release.folder / "group_sizes.csv"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"3", b"4", 1))
    changed = release.verify()
    file.rename(release.folder / "group_sizes2.csv")
    renamed = release.verify()
    (release.folder / "group_sizes2.csv").rename(file)
    file.write_bytes(content)
    (release.folder / ".extra").touch()
    extra = release.verify()
    (release.folder / ".extra").unlink()
    for outcome, name in (
        (changed, "group_sizes.csv"),
        (renamed, "group_sizes2.csv"),
        (extra, ".extra"),
    ):
        assert outcome.exit_code == 1
        assert "NOT VERIFIED" in outcome.output
        assert name in outcome.output
    assert release.verify().exit_code == 0
    file.unlink()
    assert release.verify().exit_code == 1


def test_links_folders_and_pipes_in_a_bundle_are_not_followed(
    release: Release, tmp_path: Path
) -> None:
    file = release.folder / "regions.csv"
    target = tmp_path / "target"
    file.rename(target)
    file.symlink_to(target)  # the very bytes that were signed, but elsewhere
    assert release.verify().exit_code == 1
    file.unlink()
    os.mkfifo(file)
    assert release.verify().exit_code == 1
    file.unlink()
    file.mkdir()
    assert release.verify().exit_code == 1
    file.rmdir()
    target.rename(file)
    assert release.verify().exit_code == 0
    (release.folder / "more").mkdir()
    assert release.verify().exit_code == 1


def test_a_file_name_that_is_no_text_is_shown_harmlessly(release: Release) -> None:
    Path(os.fsdecode(os.fsencode(release.folder) + b"/\xff\x1b[2J")).touch()
    outcome = release.verify()
    assert outcome.exit_code == 1
    assert "\x1b[2J" not in outcome.output


def test_an_unsigned_bundle_ends_with_1_and_the_rest_is_still_shown(release: Release) -> None:
    (release.folder / PROVENANCE_FILE).unlink()
    outcome = release.verify()
    assert outcome.exit_code == 1
    assert "is not signed" in outcome.output
    assert "In every region and size" in outcome.output


def test_another_key_ends_with_1(release: Release, tmp_path: Path) -> None:
    other = create_key(tmp_path / "other.key")
    outcome = run("audit", "verify", release.folder, "--key", other.public)
    assert outcome.exit_code == 1
    assert "another key" in outcome.output


def test_an_empty_folder_ends_with_1_and_no_folder_or_key_with_2(
    release: Release, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("audit", "verify", empty, "--key", release.key.public).exit_code == 1
    for bundle, key in (
        (tmp_path / "missing", release.key.public),
        (release.folder / "regions.csv", release.key.public),
        (release.folder, tmp_path / "missing"),
        (release.folder, release.folder / "regions.csv"),
        (release.folder, release.key.private),
    ):
        outcome = run("audit", "verify", bundle, "--key", key)
        assert isinstance(outcome.exception, PgsrError)
        assert outcome.exception.exit_code == 2
        assert "Remedy:" in str(outcome.exception)


def test_a_folder_that_cannot_be_listed_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableBundle):
        FolderBundle(tmp_path / "missing")


@pytest.mark.parametrize("options", [["--no-replay"], []])
def test_verifying_needs_no_prefect_no_database_and_no_network(
    release: Release, options: list[str]
) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise RuntimeError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse\n"
        "from flows.cli.audit import audit\n"
        "try: audit()\n"
        "except SystemExit as end: print('EXIT', end.code)\n"
        "heavy = ('prefect', 'duckdb', 'sqlalchemy', 'great_expectations', 'numba', 'pandas')\n"
        "print('HEAVY', [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "verify",
            release.folder,
            "--key",
            release.key.public,
            *options,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "EXIT 0" in done.stdout
    assert "HEAVY ['numba']" in done.stdout  # solvers are compiled


def test_keys_new_makes_a_pair_and_public_prints_the_public_half(tmp_path: Path) -> None:
    made = run("keys", "new", tmp_path / "release.key", "--json")
    assert made.exit_code == 0, made.output
    said = json.loads(made.output)
    assert oct((tmp_path / "release.key").stat().st_mode & 0o777) == "0o600"
    shown = run("keys", "public", tmp_path / "release.key")
    assert shown.stdout == (tmp_path / "release.key.pub").read_text()
    assert said["keyid"] in shown.stderr
    assert json.loads(run("keys", "public", tmp_path / "release.key", "--json").stdout) == {
        "public": shown.stdout,
        "keyid": said["keyid"],
    }
    again = run("keys", "new", tmp_path / "release.key")
    assert isinstance(again.exception, PgsrError)
    assert again.exception.exit_code == 1


def test_a_passphrase_comes_from_a_variable_or_a_prompt_and_is_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct horse battery"  # noqa: S105 (a test's own)
    monkeypatch.setenv("WORDS", secret)
    monkeypatch.setattr(getpass, "getpass", lambda _: secret)
    one = run("keys", "new", tmp_path / "one.key", "--passphrase-env", "WORDS")
    two = run("keys", "new", tmp_path / "two.key", "--ask-passphrase")
    for name, made in (("one.key", one), ("two.key", two)):
        assert made.exit_code == 0, made.output
        assert b"ENCRYPTED" in (tmp_path / name).read_bytes()
        shown = run("keys", "public", tmp_path / name, "--passphrase-env", "WORDS")
        assert shown.stdout == (tmp_path / f"{name}.pub").read_text()
        refused = run("keys", "public", tmp_path / name)  # no terminal to ask on
        assert isinstance(refused.exception, PgsrError)
        assert secret not in made.output + shown.output + str(refused.exception)


def test_a_passphrase_typed_differently_the_second_time_makes_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["one", "two"])
    monkeypatch.setattr(getpass, "getpass", lambda _: next(typed))
    refused = run("keys", "new", tmp_path / "release.key", "--ask-passphrase")
    assert isinstance(refused.exception, PgsrError)
    assert list(tmp_path.iterdir()) == []


def test_every_command_has_help_with_an_example() -> None:
    for group in (keys, audit):
        for command in group.registered_commands:
            assert command.callback is not None
            assert "Example: pgsr " in (command.callback.__doc__ or "")
