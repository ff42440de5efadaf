"""Everything that would stop a publication, and can be known before, is refused before the draw."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest

from benchmarks.torture_ops.products import EPSILON, write_product
from flows.cli.app import app
from pgsr_core.attestation.withdrawal import notice_name
from pgsr_core.errors import PgsrError
from tasks.boundary import StageFailed
from tasks.configuration.loading import load_configuration
from tasks.configuration.plan import ReleasePlan, make_plan
from tasks.corrections.reposting import prepare_repost
from tasks.keys import create_key, own_key
from tasks.ledger.ledger import Ledger
from tasks.publication import preflight, rehearsal
from tasks.publication.errors import AlreadyPublished, PublicFolderUnusable
from tasks.publication.place import recorded_digests
from tasks.publication.preflight import refuse_before_the_draw, refuse_unpublishable
from tasks.run import RunRef
from tasks.stages import publish as publish_stage
from tasks.stages.prepare import prepare
from tasks.storage.zones import Home
from tests.tasks.in_process import run_stages

PRODUCT = "dwellings"
SLOT = date(2026, 1, 1)
RELEASE = "20260101T000000"
NOBODY = 65534
Patch = pytest.MonkeyPatch


class Office:
    """A product that was never released."""

    def __init__(self, folder: Path) -> None:
        self.configuration = write_product(folder / PRODUCT, PRODUCT, None)
        self.folder = folder
        self.home = Home(folder / PRODUCT / ".pgsr")
        self.key = folder / PRODUCT / "release.key"
        self.public = folder / "public"
        self.destination = self.public / PRODUCT / RELEASE
        self.ref = RunRef(str(self.home.root), PRODUCT, RELEASE)

    def edit(self, old: str, new: str) -> None:
        text = self.configuration.read_text()
        assert old in text
        self.configuration.write_text(text.replace(old, new))

    def plan(self) -> ReleasePlan:
        return make_plan(load_configuration(self.configuration), slot=SLOT).plan

    def check(self) -> None:
        arguments = ["check", str(self.configuration), "--date", str(SLOT)]
        app(arguments, standalone_mode=False)

    def everything(self) -> dict[str, tuple[int, int]]:
        """Every path below, with its mode and the time of its last change."""
        paths = [self.folder, *self.folder.rglob("*")]
        found = {str(path): path.lstat() for path in paths}
        return {name: (stat.st_mode, stat.st_mtime_ns) for name, stat in found.items()}

    def assert_nothing_was_charged(self) -> None:
        ledger = Ledger.existing(self.home.ledger_url, witness=self.home.witness)
        if ledger is not None:
            assert ledger.measurement(PRODUCT, RELEASE) is None
            assert [(a.spent, a.reserved) for a in ledger.accounts() if a.spent or a.reserved] == []


@pytest.fixture
def office(tmp_path: Path, monkeypatch: Patch) -> Office:
    office = Office(tmp_path / "office")
    monkeypatch.setenv("PGSR_HOME", str(office.home.root))
    with office.configuration.open("a") as file:
        file.write("margins: {repetitions: 0}\n")
    return office


# --- what can be in the way -------------------------------------------------------------------


def a_folder(office: Office, _: Patch) -> None:
    office.destination.mkdir(parents=True)


def a_file(office: Office, _: Patch) -> None:
    office.destination.parent.mkdir(parents=True)
    office.destination.touch()


def a_dangling_link(office: Office, _: Patch) -> None:
    office.destination.parent.mkdir(parents=True)
    office.destination.symlink_to("/nowhere")


def a_notice(office: Office, _: Patch) -> None:
    office.destination.parent.mkdir(parents=True)
    office.destination.with_name(notice_name(RELEASE)).touch()


def another_case(office: Office, _: Patch) -> None:
    (office.public / PRODUCT.upper()).mkdir(parents=True)


def another_case_of_the_release(office: Office, _: Patch) -> None:
    (office.public / PRODUCT / RELEASE.lower()).mkdir(parents=True)


def no_product_folder(office: Office, _: Patch) -> None:
    office.public.mkdir(exist_ok=True)
    (office.public / PRODUCT).touch()


def no_public_folder(office: Office, _: Patch) -> None:
    office.public.touch()


def a_link_to_nowhere(office: Office, _: Patch) -> None:
    office.public.symlink_to("/nowhere/at/all")


def no_key(office: Office, _: Patch) -> None:
    office.key.unlink()


def an_open_key(office: Office, _: Patch) -> None:
    office.key.chmod(0o644)


def a_locked_key(office: Office, _: Patch) -> None:
    office.key.unlink()
    office.key.with_name("release.key.pub").unlink()
    create_key(office.key, passphrase=b"not set")


def no_key_at_all(office: Office, _: Patch) -> None:
    office.key.write_text("not a key")


def a_full_disk(office: Office, patch: Patch) -> None:
    disk(patch, f_bavail=100, f_frsize=4096)


def no_files_left(office: Office, patch: Patch) -> None:
    disk(patch, f_files=10**6, f_favail=0)


def disk(patch: Patch, **changes: int) -> None:
    ask = os.statvfs

    class Disk:
        def __init__(self, path: Path) -> None:
            self._told = ask(path)

        def __getattr__(self, name: str) -> int:
            return changes.get(name, getattr(self._told, name))

    patch.setattr(os, "statvfs", Disk)


def a_small_machine(office: Office, patch: Patch) -> None:
    told = office.folder.parent / "meminfo"
    told.write_text("MemTotal:        1 kB\nSwapTotal:       0 kB\n")
    patch.setattr(preflight, "_MEMORY", told)


def a_small_container(office: Office, patch: Patch) -> None:
    told = office.folder.parent / "memory.max"
    told.write_text("1024\n")
    patch.setattr(preflight, "_CGROUP_LIMIT", told)


def no_library(_: Office, patch: Patch) -> None:
    patch.setattr(preflight, "_LIBRARIES", ("a_library_that_is_not_there",))


OBSTACLES: list[tuple[Callable[[Office, Patch], None], int]] = [
    (a_folder, 1),
    (a_file, 1),
    (a_dangling_link, 1),
    (a_notice, 1),
    (another_case, 1),
    (another_case_of_the_release, 1),
    (no_product_folder, 2),
    (no_public_folder, 2),
    (a_link_to_nowhere, 2),
    (no_key, 2),
    (an_open_key, 1),
    (a_locked_key, 2),
    (no_key_at_all, 2),
    (a_full_disk, 3),
    (no_files_left, 3),
    (a_small_machine, 3),
    (a_small_container, 3),
    (no_library, 3),
]
EVERY_OBSTACLE = pytest.mark.parametrize(
    ("obstacle", "code"), OBSTACLES, ids=[obstacle.__name__ for obstacle, _ in OBSTACLES]
)


@EVERY_OBSTACLE
def test_what_is_in_the_way_is_told_by_check_which_touches_nothing(
    office: Office, monkeypatch: Patch, obstacle: Callable[[Office, Patch], None], code: int
) -> None:
    obstacle(office, monkeypatch)
    before = office.everything()
    with pytest.raises(PgsrError) as told:
        office.check()
    assert told.value.exit_code == code
    assert "Remedy:" in str(told.value) or "product.yaml" in str(told.value)
    assert office.everything() == before


@EVERY_OBSTACLE
def test_a_release_with_something_in_its_way_is_not_even_begun(
    office: Office, monkeypatch: Patch, obstacle: Callable[[Office, Patch], None], code: int
) -> None:
    obstacle(office, monkeypatch)
    with pytest.raises(PgsrError) as refused:
        prepare(office.configuration, slot=SLOT)
    assert refused.value.exit_code == code
    office.assert_nothing_was_charged()
    assert not office.ref.folder.plan.exists()


@EVERY_OBSTACLE
def test_what_gets_in_the_way_later_stops_the_run_before_it_is_charged(
    office: Office, monkeypatch: Patch, obstacle: Callable[[Office, Patch], None], code: int
) -> None:
    ref = prepare(office.configuration, slot=SLOT)
    obstacle(office, monkeypatch)
    with pytest.raises(StageFailed) as stopped:
        run_stages(ref)
    assert (stopped.value.stage, stopped.value.exit_code) == ("noise", code)
    assert "Remedy:" in ref.folder.operator_log.read_text()
    office.assert_nothing_was_charged()


# --- what only a rehearsal finds --------------------------------------------------------------


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("the chart library is broken")


def a_broken_report(patch: Patch) -> None:
    patch.setattr(rehearsal, "render_report", fail)


def a_broken_template(patch: Patch) -> None:
    patch.setattr("tasks.pages.frame.asset", fail)
    patch.setattr("tasks.publication.report.page.asset", fail)


def no_renaming(patch: Patch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    patch.setattr(Path, "rename", refuse)


def no_room_for_a_table(patch: Patch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr("tasks.publication.bundle.write_tables", full)


@pytest.mark.parametrize(
    "obstacle", [a_broken_report, a_broken_template, no_renaming, no_room_for_a_table]
)
def test_a_bundle_that_could_not_be_built_or_moved_stops_the_run_before_it_is_charged(
    office: Office, monkeypatch: Patch, obstacle: Callable[[Patch], None]
) -> None:
    ref = prepare(office.configuration, slot=SLOT)
    with monkeypatch.context() as patch:
        obstacle(patch)
        with pytest.raises(StageFailed) as stopped:
            run_stages(ref)
    assert (stopped.value.stage, stopped.value.exit_code) == ("noise", 3)
    office.assert_nothing_was_charged()
    assert list((office.public / PRODUCT).iterdir()) == []  # the rehearsal leaves nothing behind
    assert run_stages(ref).samefile(office.destination)


@pytest.mark.parametrize("mechanism", ["cumulative", "direct", "global"])
@pytest.mark.parametrize("units", ["units.csv", "from-data"])
@pytest.mark.parametrize("repetitions", [0, 5])
def test_every_kind_of_release_can_be_rehearsed(
    office: Office, mechanism: str, units: str, repetitions: int
) -> None:
    office.edit("units.csv", units)
    office.edit("repetitions: 0", f"repetitions: {repetitions}")
    lines = office.configuration.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("mechanism:")]
    office.configuration.write_text("".join(kept) + f"mechanism: {mechanism}\n")
    plan = office.plan()
    assert plan.mechanism.name == mechanism
    refuse_before_the_draw(plan, office.home)
    assert list((office.public / PRODUCT).iterdir()) == []


def test_a_rehearsal_is_marked_and_never_signed(office: Office, monkeypatch: Patch) -> None:
    seen: dict[str, str] = {}
    publish = rehearsal.publish_bundle

    def look(bundle: Path, destination: Path) -> object:
        seen.update({path.name: path.read_text("latin-1") for path in bundle.iterdir()})
        assert destination.parent.stat().st_mode & 0o077 == 0
        return publish(bundle, destination)

    monkeypatch.setattr(rehearsal, "publish_bundle", look)
    refuse_before_the_draw(office.plan(), office.home)
    assert {"privacy.json", "report.html", "group_sizes.csv", "datapackage.json"} <= set(seen)
    assert not any("dsse" in name for name in seen)
    assert '"simulation": true' in seen["privacy.json"]
    assert "NOT PRIVATE" in seen["report.html"]


# --- the installation's own key ---------------------------------------------------------------


def without_a_named_key(office: Office) -> None:
    office.edit("signing_key: release.key", "signing_key: null")


@pytest.mark.parametrize("damage", ["open", "garbage"])
def test_an_own_key_that_cannot_be_used_is_refused_before_anything_is_charged(
    office: Office, damage: str
) -> None:
    without_a_named_key(office)
    ref = prepare(office.configuration, slot=SLOT)
    own_key(office.home.signing_key)
    if damage == "open":
        office.home.signing_key.chmod(0o640)
    else:
        office.home.signing_key.write_text("not a key")
    for attempt in (office.check, lambda: prepare(office.configuration, slot=SLOT)):
        with pytest.raises(PgsrError, match="key"):
            attempt()
    with pytest.raises(StageFailed, match="noise"):
        run_stages(ref)
    office.assert_nothing_was_charged()


def test_an_own_key_is_made_at_the_last_moment_and_not_by_looking(office: Office) -> None:
    without_a_named_key(office)
    office.check()
    assert not office.home.root.exists()
    ref = prepare(office.configuration, slot=SLOT)
    assert not office.home.signing_key.exists()
    refuse_before_the_draw(ref.open().plan, office.home)
    assert office.home.signing_key.is_file()


# --- as another user, and on another disk -----------------------------------------------------


@pytest.fixture
def read_only(office: Office) -> Iterator[Office]:
    """An office whose public folder is on a disk that cannot be written."""
    office.public.mkdir()
    if os.geteuid() != 0:
        office.public.chmod(0o555)
        yield office
        office.public.chmod(0o755)
        return
    mounting = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(office.public)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield office
    subprocess.run(["umount", str(office.public)], check=True)


def test_a_public_folder_that_cannot_be_written_is_refused_before_anything_is_charged(
    read_only: Office,
) -> None:
    with pytest.raises(PublicFolderUnusable, match=r"Read-only file system|Permission denied"):
        read_only.check()
    with pytest.raises(PublicFolderUnusable) as refused:
        prepare(read_only.configuration, slot=SLOT)
    assert refused.value.exit_code == 3
    read_only.assert_nothing_was_charged()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, as only root can")
@pytest.mark.parametrize("closed", ["public", "public/dwellings", ""])
def test_a_folder_that_this_user_may_not_write_is_refused(office: Office, closed: str) -> None:
    plan = office.plan()
    shutil.rmtree(office.home.root, ignore_errors=True)
    (office.folder / closed).mkdir(parents=True, exist_ok=True)
    office.key.chmod(0o600)
    os.chown(office.key, NOBODY, NOBODY)
    for path in (office.folder, *office.folder.rglob("*"), *office.folder.parents):
        if path.is_dir():
            path.chmod(path.stat().st_mode | 0o055)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(PublicFolderUnusable, match="Permission denied"):
            refuse_unpublishable(plan, office.home)
    finally:
        os.seteuid(0)


# --- what was measured goes on ----------------------------------------------------------------


def test_a_release_that_is_out_is_not_in_its_own_way(office: Office) -> None:
    bundle = run_stages(prepare(office.configuration, slot=SLOT))
    office.check()
    assert run_stages(prepare(office.configuration, slot=SLOT)) == bundle


def test_what_gets_in_the_way_after_the_draw_is_moved_away_and_the_same_draw_is_published(
    office: Office, monkeypatch: Patch
) -> None:
    ref = prepare(office.configuration, slot=SLOT)
    build = publish_stage.build_bundle

    def raced(*arguments: object, **options: object) -> None:
        office.destination.mkdir(parents=True)
        (office.destination / "foreign").touch()
        build(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(publish_stage, "build_bundle", raced)
        with pytest.raises(StageFailed, match=AlreadyPublished.__name__) as stopped:
            run_stages(ref)
    assert stopped.value.stage == "publish"
    drawn = ref.ledger().measurement(PRODUCT, RELEASE)
    assert drawn is not None
    with pytest.raises(StageFailed, match=AlreadyPublished.__name__):
        run_stages(ref)  # still there, and still not overwritten
    assert [path.name for path in office.destination.iterdir()] == ["foreign"]
    office.destination.rename(office.folder / "moved away")
    bundle = run_stages(ref)
    assert recorded_digests(bundle)["measurements"] == drawn.digest
    assert ref.ledger().account(PRODUCT).spent == EPSILON


def test_a_key_that_is_lost_after_the_draw_is_put_back_and_the_release_resumed(
    office: Office, monkeypatch: Patch
) -> None:
    ref = prepare(office.configuration, slot=SLOT)
    kept = office.key.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(publish_stage, "signing_key", lambda *_: 1 / 0)
        with pytest.raises(StageFailed, match="publish"):
            run_stages(ref)
    office.key.unlink()
    with pytest.raises(StageFailed, match="KeyFileProblem"):
        run_stages(ref)
    office.key.write_bytes(kept)
    office.key.chmod(0o600)
    assert run_stages(ref).samefile(office.destination)


def test_a_repost_with_something_in_its_way_is_not_recorded(office: Office) -> None:
    ref = prepare(office.configuration, slot=SLOT)
    run_stages(ref)
    office.destination.with_name("revised").mkdir()
    with pytest.raises(AlreadyPublished):
        prepare_repost(ref, release="revised")
    assert ref.ledger().measurement(PRODUCT, "revised") is None


# --- how much is asked for --------------------------------------------------------------------


def test_a_release_needs_no_more_room_than_is_asked_for(office: Office) -> None:
    office.edit("repetitions: 0", "repetitions: 2")
    office.edit("max: 6", "max: 2000")
    office.edit("- csv", "- csv\n  - parquet")
    ref = prepare(office.configuration, slot=SLOT)
    home, ledger, public = [n for _, n in preflight._needed_bytes(ref.open().plan, office.home)]
    bundle = run_stages(ref)

    def size(folder: Path, *but: str) -> int:
        files = [path for path in folder.rglob("*") if path.is_file() and path.name not in but]
        return sum(path.stat().st_size for path in files)

    cells = 5 * 2001
    assert size(bundle, "report.html") < public - preflight._FIXED["public"] < 1000 * cells
    assert (bundle / "report.html").stat().st_size < preflight._FIXED["public"]
    assert size(ref.folder.safe) + size(ref.folder.confidential) < home
    assert home - preflight._FIXED["home"] < 1000 * cells
    kept = sum(path.stat().st_size for path in office.home.root.glob("ledger.sqlite*"))
    assert kept < ledger


def test_what_is_needed_on_one_disk_is_added_up(office: Office, monkeypatch: Patch) -> None:
    plan = office.plan()
    needed = sum(number for _, number in preflight._needed_bytes(plan, office.home))
    for free, refused in ((needed, False), (needed - 1, True)):
        with monkeypatch.context() as patch:
            disk(patch, f_bavail=free, f_frsize=1)
            with suppress(PgsrError):
                refuse_unpublishable(plan, office.home)
                assert not refused
                continue
            assert refused
