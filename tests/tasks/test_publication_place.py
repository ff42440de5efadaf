"""Moving a bundle into the public folder: at once, durably, and never over another."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from pgsr_core.errors import PgsrError, Refused, Unavailable
from tasks.publication import place
from tasks.publication.errors import (
    AlreadyPublished,
    DamagedRelease,
    GateNotPassed,
    NotABundle,
    PublicationUncertain,
    PublicFolderMissing,
    PublicFolderUnusable,
    UnsafeName,
)
from tasks.publication.place import (
    Staging,
    confirm_published,
    is_published,
    make_public_folder,
    publish_bundle,
    recorded_digests,
    staging_folder,
)

PRODUCT, RELEASE = "sizes", "2026-Q1"


def fill(
    folder: Path, *, text: str = "level,region\n", passed: bool = True, checks: int = 1
) -> None:
    """Write the smallest folder that counts as a bundle."""
    folder.mkdir()
    verdicts = [{"name": "totals", "passed": passed, "expectations": 1}] * checks
    files = {
        "regions.csv": text,
        "checks.json": json.dumps({"checks": verdicts, "table_digests": {"group_sizes": "d"}}),
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    listed = [
        {"path": name, "hash": f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"}
        for name, content in files.items()
    ]
    (folder / "datapackage.json").write_text(json.dumps({"resources": listed}))


@pytest.fixture
def public(tmp_path: Path) -> Path:
    folder = tmp_path / "public"
    folder.mkdir()
    return folder


@contextmanager
def staged(public: Path, release: str = RELEASE) -> Iterator[Staging]:
    with staging_folder(public, PRODUCT, release) as staging:
        fill(staging.bundle)
        yield staging


def release_once(public: Path) -> place.Published:
    with staged(public) as staging:
        return publish_bundle(staging.bundle, staging.destination)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(public: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(public)): path.read_bytes()
        for path in public.rglob("*")
        if path.is_file()
    }


def test_a_release_appears_whole_and_its_staging_folder_is_gone(public: Path) -> None:
    published = release_once(public)
    assert published.folder == public / PRODUCT / RELEASE
    assert published.report == published.folder / "report.html"
    assert is_published(published.folder)
    assert names_in(public / PRODUCT) == [RELEASE]
    assert published.checksums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in published.folder.iterdir()
    }


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_do_not_depend_on_the_umask(public: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with staged(public) as staging:
            assert stat.S_IMODE(staging.folder.stat().st_mode) == 0o700
            assert stat.S_IMODE((staging.folder / "lock").stat().st_mode) == 0o600
            folder = publish_bundle(staging.bundle, staging.destination).folder
        make_public_folder(public / "made")
    finally:
        os.umask(before)
    for made in (folder, folder.parent, public / "made"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_a_release_is_never_overwritten(public: Path) -> None:
    release_once(public)
    before = contents(public)
    with pytest.raises(AlreadyPublished) as caught:
        release_once(public)
    assert isinstance(caught.value, Refused)
    assert contents(public) == before


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "symlink", "dangling symlink"])
def test_whatever_stands_at_the_destination_is_left_as_it_is(public: Path, kind: str) -> None:
    with staged(public) as staging:
        destination = staging.destination
        if kind == "file":
            destination.write_text("mine")
        elif kind.endswith("folder"):
            destination.mkdir()
            if kind == "folder":
                (destination / "mine").write_text("mine")
        else:
            destination.symlink_to(public if kind == "symlink" else public / "nowhere")
        mode = destination.lstat()
        with pytest.raises(AlreadyPublished):
            publish_bundle(staging.bundle, destination)
        assert destination.lstat().st_ino == mode.st_ino
        assert destination.lstat().st_mode == mode.st_mode
        assert not is_published(destination)
    with pytest.raises(AlreadyPublished), staged(public):
        pytest.fail("a staging folder was made although the place is taken")


def test_a_release_that_appears_after_the_last_look_still_wins(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = release_once(public)
    before = contents(public)
    with staging_folder(public, PRODUCT, "other") as staging:
        fill(staging.bundle, text="another\n")
        monkeypatch.setattr(place.os.path, "lexists", lambda _path: False)
        with pytest.raises(AlreadyPublished):
            publish_bundle(staging.bundle, first.folder)
    assert contents(public) == before


def test_of_concurrent_attempts_exactly_one_wins(public: Path) -> None:
    attempts = 8
    together = Barrier(attempts)

    def attempt(number: int) -> str | None:
        with staging_folder(public, PRODUCT, RELEASE) as staging:
            fill(staging.bundle, text=f"attempt {number}\n")
            together.wait(timeout=30)
            try:
                folder = publish_bundle(staging.bundle, staging.destination).folder
            except AlreadyPublished:
                return None
        return (folder / "regions.csv").read_text()

    with ThreadPoolExecutor(attempts) as pool:
        won = [text for text in pool.map(attempt, range(attempts)) if text is not None]
    assert len(won) == 1
    assert (public / PRODUCT / RELEASE / "regions.csv").read_text() == won[0]
    assert names_in(public / PRODUCT) == [RELEASE]
    confirm_published(public / PRODUCT / RELEASE)


def test_an_error_before_the_rename_leaves_nothing_and_a_second_try_works(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Path, _target: Path) -> Path:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            release_once(public)
    assert names_in(public / PRODUCT) == []
    assert release_once(public).folder.is_dir()


def _die_while_staging(public: Path) -> None:
    with staged(public):
        os._exit(9)


def test_what_a_killed_attempt_left_is_removed_by_the_next(public: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_while_staging, args=(public,))
    process.start()
    process.join(timeout=30)
    assert process.exitcode == 9
    (leftover,) = (public / PRODUCT).iterdir()
    assert leftover.name.startswith(".staging-")
    assert not is_published(public / PRODUCT / RELEASE)
    with staged(public, f"{RELEASE}-revised"):
        assert leftover.exists(), "another release's leftovers are none of its business"
    with staged(public):
        assert not leftover.exists()


def test_an_attempt_does_not_remove_what_another_is_still_building(public: Path) -> None:
    with staged(public) as first, staged(public) as second:
        assert first.folder != second.folder
        assert (first.bundle / "datapackage.json").exists()
        publish_bundle(first.bundle, first.destination)
    assert names_in(public / PRODUCT) == [RELEASE]


def test_a_link_that_looks_like_a_leftover_is_not_followed(public: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    (public / PRODUCT).mkdir()
    (public / PRODUCT / f".staging-{RELEASE}-00").symlink_to(precious)
    release_once(public)
    assert names_in(precious) == ["file"]


@pytest.mark.parametrize(
    "damage",
    ["changed", "missing", "extra", "link", "folder", "no package", "not json", "no list", "array"],
)
def test_only_exactly_the_listed_files_are_published(public: Path, damage: str) -> None:
    with staged(public) as staging:
        table, package = staging.bundle / "regions.csv", staging.bundle / "datapackage.json"
        content = table.read_text()
        match damage:
            case "changed":
                table.write_text("level,REGION\n")
            case "missing":
                table.unlink()
            case "extra":
                (staging.bundle / "notes.txt").write_text("x")
            case "link":
                table.rename(staging.folder / "elsewhere.csv")
                table.symlink_to(staging.folder / "elsewhere.csv")
                assert table.read_text() == content
            case "folder":
                (staging.bundle / "spill").mkdir()
            case "no package":
                package.unlink()
            case "not json":
                package.write_text("{")
            case "no list":
                package.write_text("{}")
            case "array":
                package.write_text("[]")
        with pytest.raises(NotABundle) as caught:
            publish_bundle(staging.bundle, staging.destination)
        assert isinstance(caught.value, Refused)
    assert names_in(public / PRODUCT) == []


def test_a_staging_folder_that_is_a_link_is_refused(public: Path, tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere")
    link = public / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotABundle):
        publish_bundle(link, public / RELEASE)
    assert not (public / RELEASE).exists()


@pytest.mark.parametrize(("passed", "checks"), [(False, 1), (True, 0)])
def test_a_bundle_without_passed_checks_is_not_published(
    public: Path, passed: bool, checks: int
) -> None:
    with staging_folder(public, PRODUCT, RELEASE) as staging:
        fill(staging.bundle, passed=passed, checks=checks)
        with pytest.raises(GateNotPassed):
            publish_bundle(staging.bundle, staging.destination)
    assert names_in(public / PRODUCT) == []


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".hidden", "a\n", "x" * 65, "/etc"])
def test_names_that_lead_elsewhere_are_refused(public: Path, name: str) -> None:
    for product, release in ((name, RELEASE), (PRODUCT, name)):
        with pytest.raises(UnsafeName), staging_folder(public, product, release):
            pytest.fail("a staging folder was made for an unsafe name")
    assert names_in(public) == []


def test_a_missing_public_folder_is_named_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(PublicFolderMissing, match="create it"), staged(tmp_path / "typo"):
        pytest.fail("a staging folder was made in a folder that is not there")
    assert names_in(tmp_path) == []
    with pytest.raises(PublicFolderMissing):
        make_public_folder(tmp_path / "no" / "such")
    (tmp_path / "file").touch()
    with pytest.raises(PublicFolderMissing):
        make_public_folder(tmp_path / "file")


def test_a_read_only_public_folder_is_an_expected_error(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Refused by hand: permissions do not bind an administrator, under whom tests may run.
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PublicFolderUnusable, match="Read-only") as caught, staged(public):
        pytest.fail("a staging folder was made in a read-only folder")
    assert isinstance(caught.value, Unavailable)
    assert str(public) not in str(caught.value)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EXDEV, errno.EACCES])
def test_a_rename_that_fails_publishes_nothing(
    public: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(_self: Path, _target: Path) -> Path:
        raise OSError(code, os.strerror(code))

    with staged(public) as staging:
        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(PublicFolderUnusable, match="nothing was published"):
            publish_bundle(staging.bundle, staging.destination)
    assert names_in(public / PRODUCT) == []


def test_every_file_and_folder_is_flushed_before_the_rename_and_the_parent_after(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    flush, rename = place._flush, Path.rename
    monkeypatch.setattr(place, "_flush", lambda path: (done.append(path.name), flush(path)))
    monkeypatch.setattr(
        Path, "rename", lambda self, to: (done.append("RENAME"), rename(self, to))[1]
    )
    with staged(public) as staging:
        done.clear()
        publish_bundle(staging.bundle, staging.destination)
    position = done.index("RENAME")
    assert sorted(done[: position - 1]) == ["checks.json", "datapackage.json", "regions.csv"]
    assert done[position - 1] == "bundle"
    assert done[position + 1 :] == [PRODUCT]


def test_a_disk_that_will_not_confirm_the_rename_is_not_taken_for_success(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = place._flush

    def fails_for_the_product(path: Path) -> None:
        if path.name == PRODUCT:
            raise OSError(errno.EIO, "Input/output error")
        flush(path)

    with staged(public) as staging:
        monkeypatch.setattr(place, "_flush", fails_for_the_product)
        with pytest.raises(PublicationUncertain):
            publish_bundle(staging.bundle, staging.destination)
    monkeypatch.undo()
    assert confirm_published(public / PRODUCT / RELEASE).folder == public / PRODUCT / RELEASE


def test_a_published_release_is_confirmed_and_a_damaged_one_is_not(public: Path) -> None:
    published = release_once(public)
    assert confirm_published(published.folder) == published
    assert recorded_digests(published.folder) == {"group_sizes": "d"}
    (published.folder / "regions.csv").write_text("forged")
    with pytest.raises(DamagedRelease, match="changed"):
        confirm_published(published.folder)
    (published.folder / "checks.json").write_text("{}")
    with pytest.raises(DamagedRelease):
        recorded_digests(published.folder)
    assert isinstance(DamagedRelease("x"), PgsrError)


def test_a_bundle_is_not_published_while_it_is_staged(public: Path) -> None:
    with staged(public) as staging:
        assert not is_published(staging.destination)
        assert [path for path in (public / PRODUCT).iterdir() if path.name[0] != "."] == []


def test_what_a_crash_after_the_rename_left_is_removed_when_the_release_is_confirmed(
    tmp_path: Path,
) -> None:
    """Died between the rename and the clean-up: the bundle is public, its staging folder empty."""
    with staging_folder(tmp_path, PRODUCT, RELEASE) as staging:
        fill(staging.bundle)
        publish_bundle(staging.bundle, staging.destination)
    abandoned = staging.destination.parent / f".staging-{RELEASE}-0123456789abcdef"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    confirm_published(staging.destination)
    assert list(staging.destination.parent.iterdir()) == [staging.destination]
