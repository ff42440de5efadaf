"""Where a SQLite ledger may stand, and how it is copied."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from tasks.ledger import disks
from tasks.ledger.backup import BackupRefused, back_up
from tasks.ledger.database import LedgerUnavailable
from tasks.ledger.disks import LedgerOnNetwork, file_system_of
from tasks.ledger.inspection import NoLedger, check_ledger
from tasks.ledger.ledger import Ledger
from tests.tasks.ledger_requests import ask, measure


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/ledger.sqlite"


def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    table = tmp_path / "mounts"
    table.write_text("".join(f"{line}\n" for line in ("/dev/vda / ext4 rw 0 0", *lines)))
    monkeypatch.setattr(disks, "MOUNTS", table)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_a_network_file_system_is_refused_before_anything_is_made(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts(tmp_path, monkeypatch, f"server:/x {tmp_path} {kind} rw 0 0")
    with pytest.raises(LedgerOnNetwork, match="Remedy:") as caught:
        Ledger(url)
    assert caught.value.file_system == kind
    assert caught.value.exit_code == 2
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay", "9p", "virtiofs", "apfs"])
def test_a_local_file_system_is_taken(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts(tmp_path, monkeypatch, f"disk {tmp_path} {kind} rw 0 0")
    assert Ledger(url).head().sequence == 0


def test_the_innermost_mount_decides_and_the_last_of_one_place_hides_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "a folder"
    escaped = str(inner).replace(" ", "\\040")
    mounts(
        tmp_path,
        monkeypatch,
        f"disk {escaped} xfs rw 0 0",
        f"server:/x {tmp_path} nfs rw 0 0",
        "broken line",
    )
    assert file_system_of(inner / "deeper") == "xfs"
    assert file_system_of(tmp_path) == "nfs"
    assert file_system_of(tmp_path.with_name(tmp_path.name + "-neighbour")) == "ext4"
    mounts(tmp_path, monkeypatch, f"d {tmp_path} xfs rw 0 0", f"s {tmp_path} cifs rw 0 0")
    assert file_system_of(tmp_path) == "cifs"


def test_a_link_to_a_network_file_system_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "near").symlink_to(far)
    mounts(tmp_path, monkeypatch, f"server:/x {far} nfs4 rw 0 0")
    with pytest.raises(LedgerOnNetwork):
        Ledger(f"sqlite:///{tmp_path}/near/ledger.sqlite")


def test_a_system_that_does_not_tell_its_mounts_refuses_nothing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "none")
    assert Ledger(url).head().sequence == 0


def test_a_backup_is_a_whole_ledger_closed_to_others(url: str, tmp_path: Path) -> None:
    ledger = Ledger(url)
    measure(ledger, ask())
    copy = tmp_path / "copies" / "copy.sqlite"
    copy.parent.mkdir(mode=0o700)
    back_up(url, copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in copy.parent.iterdir()] == ["copy.sqlite"]
    witness = tmp_path / "home" / "witness.json"
    restored = Ledger(f"sqlite:///{copy}", witness=witness)
    assert restored.timeline() == ledger.timeline()
    assert all(found.passed for found in check_ledger(f"sqlite:///{copy}", witness))


def test_a_backup_is_consistent_while_others_write(url: str, tmp_path: Path) -> None:
    ledger = Ledger(url)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            ledger.record("computed", "p", "r", text="x" * 5000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            back_up(url, tmp_path / f"copy{number}.sqlite")
    finally:
        stop.set()
        writer.join(timeout=60)
    for number in range(5):
        copy = f"sqlite:///{tmp_path}/copy{number}.sqlite"
        findings = check_ledger(copy, tmp_path / "none")
        assert {found.name for found in findings if not found.passed} <= {"witness"}


def test_a_backup_overwrites_nothing(url: str, tmp_path: Path) -> None:
    Ledger(url)
    there = tmp_path / "there"
    there.write_text("mine")
    with pytest.raises(BackupRefused, match="Remedy:") as caught:
        back_up(url, there)
    assert caught.value.exit_code == 2
    assert there.read_text() == "mine"
    assert not list(tmp_path.glob(".there*"))


def test_a_backup_that_cannot_be_written_leaves_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger(url)
    with pytest.raises(LedgerUnavailable, match="Remedy:"):
        back_up(url, tmp_path / "no" / "folder")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(LedgerUnavailable, match="I/O error"):
        back_up(url, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_there_is_no_backup_of_nothing_or_of_a_server(tmp_path: Path, url: str) -> None:
    with pytest.raises(NoLedger):
        back_up(url, tmp_path / "copy")
    with pytest.raises(BackupRefused, match="pg_dump") as caught:
        back_up("postgresql+psycopg://localhost/ledger", tmp_path / "copy")
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_found_by_check_or_cannot_be_read(url: str, tmp_path: Path) -> None:
    measure(Ledger(url), ask())
    path = Path(url.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    try:
        findings = check_ledger(url, tmp_path / "home" / "witness.json")
    except LedgerUnavailable:
        return
    assert not all(found.passed for found in findings)
