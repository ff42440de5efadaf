"""Withdrawing, replacing and reposting on a real release: notices, names, and no second charge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from pgsr_core.verification import Notice, examine_notice, verify_bundle
from tasks.boundary import StageFailed
from tasks.bundles import FolderBundle, notice_beside
from tasks.configuration.loading import ConfigurationError
from tasks.corrections.replacement import NothingToReplace
from tasks.corrections.reposting import NeedsOtherMeasurements, UnusableName, prepare_repost
from tasks.corrections.withdrawal import (
    NoKeyToWithdraw,
    NothingToWithdraw,
    NoticeNotPlaced,
    OtherNotice,
    ReleaseWithdrawn,
    UnusableReason,
    Withdrawn,
    key_for,
    withdraw,
)
from tasks.keys import create_key, read_public_key
from tasks.ledger import history
from tasks.ledger.ledger import Ledger, LedgerEdited, ReleaseHasOtherMeasurements
from tasks.ledger.reposts import NameTaken
from tasks.purge import purge
from tasks.replay import replay_folder, replay_run
from tasks.run import NoSuchRun, RunRef
from tasks.stages.prepare import prepare
from tests.tasks.in_process import run_stages

SLOT = date(2026, 1, 1)
RELEASE = "synthetic-1"
REASON = "Two counties were swapped."


@pytest.fixture(scope="module")
def released(virginia_population: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An office with one signed release."""
    folder = tmp_path_factory.mktemp("corrected") / "office"
    shutil.copytree(virginia_population, folder)
    create_key(folder / "release.key")
    edit(folder, "  to: public\n", "  to: public\n  signing_key: release.key\n")
    edit(folder, "mechanism:", "margins: {repetitions: 0}\nmechanism:")
    run_stages(prepare(folder / "product.yaml", slot=SLOT))
    return folder


@pytest.fixture
def office(released: Path, tmp_path: Path) -> Iterator[Path]:
    """The office, put back as it was afterwards: plans hold its absolute path."""
    kept = shutil.copytree(released, tmp_path / "kept")
    yield released
    shutil.rmtree(released)
    shutil.copytree(kept, released)
    history._verified.clear()


def edit(folder: Path, old: str, new: str) -> None:
    configuration = folder / "product.yaml"
    text = configuration.read_text()
    assert old in text
    configuration.write_text(text.replace(old, new))


def ref(office: Path, release: str = RELEASE) -> RunRef:
    return RunRef(str(office / ".pgsr"), "household-sizes", release)


def ledger(office: Path) -> Ledger:
    return ref(office).ledger()


def withdrawn(office: Path, reason: str = REASON) -> Withdrawn:
    return withdraw(ref(office), reason=reason, key=key_for(ref(office), None))


def notice_of(office: Path) -> Notice:
    bundle = office / "public" / "household-sizes" / RELEASE
    key = read_public_key(office / "release.key.pub")
    found = verify_bundle(FolderBundle(bundle), key)
    assert found.verified
    notice = notice_beside(bundle, RELEASE)
    assert notice is not None
    return examine_notice(notice, FolderBundle(bundle), found.provenance, key)


def state_of(office: Path) -> str:
    [state] = [s for s in ledger(office).run_states() if s.release == RELEASE]
    return state.state


def content(bundle: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bundle.iterdir()}


# --- withdrawal -------------------------------------------------------------------------------


def test_a_withdrawal_is_a_signed_notice_and_an_event_and_leaves_the_bundle_alone(
    office: Path,
) -> None:
    bundle = office / "public" / "household-sizes" / RELEASE
    before = content(bundle)
    done = withdrawn(office)
    assert done.is_new
    assert done.notice == bundle.parent / "synthetic-1.withdrawn.dsse.json"
    assert done.notice.stat().st_mode & 0o777 == 0o644
    assert content(bundle) == before
    accepted = notice_of(office).withdrawal
    assert accepted == done.withdrawal
    assert accepted.reason == REASON
    [event] = [e for e in ledger(office).timeline() if e.kind == "withdrawn"]
    assert (accepted.ledger_head.sequence, accepted.ledger_head.hash) == (
        event.head.sequence,
        event.head.hash,
    )
    assert event.facts["reason"] == REASON
    assert state_of(office) == "withdrawn"


def test_withdrawing_again_says_so_and_keeps_the_first_reason(office: Path) -> None:
    first = withdrawn(office)
    notice = first.notice.read_bytes()
    again = withdrawn(office, "Something else.")
    assert not again.is_new
    assert again.withdrawal == first.withdrawal
    assert first.notice.read_bytes() == notice
    assert [e.kind for e in ledger(office).timeline()].count("withdrawn") == 1


def test_a_withdrawal_that_died_before_its_notice_signs_the_same_notice_later(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(point: str) -> None:
        raise KeyboardInterrupt(point)

    with monkeypatch.context() as patch:
        patch.setattr("tasks.failpoints.reach", die)
        with pytest.raises(KeyboardInterrupt):
            withdrawn(office)
    notice = office / "public" / "household-sizes" / "synthetic-1.withdrawn.dsse.json"
    assert not notice.exists()
    finished = withdrawn(office, "Another reason.")
    assert finished.withdrawal.reason == REASON
    signed = notice.read_bytes()
    notice.unlink()
    withdrawn(office)
    assert notice.read_bytes() == signed


def test_a_withdrawn_release_is_not_run_again(office: Path) -> None:
    withdrawn(office)
    with pytest.raises(ReleaseWithdrawn, match="Remedy: release the correction"):
        prepare(office / "product.yaml", slot=SLOT)
    assert state_of(office) == "withdrawn"


def test_a_release_that_was_not_published_is_not_withdrawn(office: Path) -> None:
    edit(office, "release: synthetic-1", "release: another")
    other = prepare(office / "product.yaml", slot=SLOT)
    with pytest.raises(NothingToWithdraw):
        withdraw(other, reason=REASON, key=key_for(other, None))
    with pytest.raises(NoSuchRun):
        key_for(ref(office, "never"), None)


def test_a_notice_needs_a_key_and_a_reason(office: Path, tmp_path: Path) -> None:
    edit(office, "  signing_key: release.key\n", "")
    edit(office, "release: synthetic-1", "release: unnamed")
    unnamed = prepare(office / "product.yaml", slot=SLOT)
    own = key_for(unnamed, None)
    assert key_for(unnamed, None).public == own.public
    assert own.public != read_public_key(office / "release.key.pub")
    other = create_key(tmp_path / "other.key")
    assert key_for(unnamed, other.private).public.keyid == other.keyid
    edit(office, "release: unnamed", "simulate: true\nseed: 1\nrelease: simulated")
    with pytest.raises(NoKeyToWithdraw, match="--key"):
        key_for(prepare(office / "product.yaml", slot=SLOT), None)
    for reason in ("", "  \n ", "two\nlines", "\x1b[2J", "x" * 1001):
        with pytest.raises(UnusableReason):
            withdrawn(office, reason)
    assert not [e for e in ledger(office).timeline() if e.kind == "withdrawn"]


def test_a_notice_by_another_key_or_about_another_release_is_not_accepted(
    office: Path, tmp_path: Path
) -> None:
    other = create_key(tmp_path / "other.key")
    withdraw(ref(office), reason=REASON, key=key_for(ref(office), other.private))
    found = notice_of(office)
    assert found.withdrawal is None
    assert "another key" in str(found.problem)
    bundle = office / "public" / "household-sizes" / RELEASE
    edited = {**content(bundle), "datapackage.json": b"{}", "provenance.dsse.json": b""}
    notice = notice_beside(bundle, RELEASE) or b""
    assert (
        examine_notice(notice, edited, None, read_public_key(other.public)).problem
        == "it is about another release"
    )


def test_something_else_at_the_notices_place_is_left_as_it_is(office: Path) -> None:
    done = withdrawn(office)
    done.notice.write_bytes(b"{}")
    with pytest.raises(OtherNotice):
        withdrawn(office)
    assert done.notice.read_bytes() == b"{}"
    assert notice_of(office).withdrawal is None


def test_a_notice_that_cannot_be_written_is_told_and_can_be_written_later(
    office: Path, tmp_path: Path
) -> None:
    product = office / "public" / "household-sizes"
    product.rename(tmp_path / "away")
    with pytest.raises(NoticeNotPlaced) as failed:
        withdrawn(office)
    assert failed.value.exit_code == 3
    (tmp_path / "away").rename(product)
    assert not withdrawn(office).is_new
    assert notice_of(office).withdrawal is not None


# --- replacement ------------------------------------------------------------------------------


def test_a_corrected_release_names_the_one_that_it_replaces_everywhere(office: Path) -> None:
    withdrawn(office)
    edit(office, "release: synthetic-1", "release: synthetic-1-corrected\nreplaces: synthetic-1")
    bundle = run_stages(prepare(office / "product.yaml", slot=SLOT))
    assert json.loads((bundle / "datapackage.json").read_text())["replaces"] == RELEASE
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert privacy["lineage"]["replaces"] == RELEASE
    assert privacy["lineage"]["additional_epsilon"]["exact"] == "1/2"
    assert "Replaces release synthetic-1" in (bundle / "report.html").read_text()
    found = verify_bundle(FolderBundle(bundle), read_public_key(office / "release.key.pub"))
    assert found.verified, found.failed
    assert found.provenance is not None
    assert found.provenance.lineage.replaces == RELEASE
    [account] = ledger(office).accounts()
    assert account.spent == 1  # new noise is a new charge


@pytest.mark.parametrize(
    ("release", "replaces", "wrong"),
    [
        ("next", "never-published", NothingToReplace),
        ("same", "same", ConfigurationError),
        ('"{date:%Y}"', RELEASE, ConfigurationError),
        ("next", "../elsewhere", ConfigurationError),
    ],
)
def test_only_a_published_release_of_the_product_can_be_replaced(
    office: Path, release: str, replaces: str, wrong: type[Exception]
) -> None:
    edit(office, "release: synthetic-1", f"release: {release}\nreplaces: {replaces}")
    with pytest.raises(wrong, match="replace"):
        prepare(office / "product.yaml", slot=SLOT)


# --- reposting --------------------------------------------------------------------------------


def test_a_repost_publishes_the_same_measurements_for_nothing_even_after_a_purge(
    office: Path,
) -> None:
    purge(ref(office))
    shutil.rmtree(office / "persons")
    new = prepare_repost(ref(office), release="revised", mechanism="global")
    bundle = run_stages(new)
    first = office / "public" / "household-sizes" / RELEASE
    assert (bundle / "measurements.csv").read_bytes() == (first / "measurements.csv").read_bytes()
    assert (bundle / "group_sizes.csv").read_bytes() != (first / "group_sizes.csv").read_bytes()
    [account] = ledger(office).accounts()
    assert (account.spent, account.reserved) == (Fraction(1, 2), 0)
    assert len(ledger(office).charges(account.population)) == 1
    key = read_public_key(office / "release.key.pub")
    found, before = (verify_bundle(FolderBundle(folder), key) for folder in (bundle, first))
    assert found.verified, found.failed
    assert found.provenance is not None
    assert before.provenance is not None
    assert found.provenance.lineage.reposted_from == RELEASE
    assert found.provenance.lineage.replaces == RELEASE
    assert found.provenance.measurement_digest == before.provenance.measurement_digest
    assert found.provenance.spent == before.provenance.spent
    privacy = json.loads((bundle / "privacy.json").read_text())
    assert privacy["lineage"]["additional_epsilon"] == {"exact": "0", "decimal": 0.0}
    assert privacy["epsilon"]["exact"] == "1/2"
    assert any("costs nothing further" in sentence for sentence in privacy["statement"])
    assert replay_folder(bundle).equal
    assert replay_run(new).equal


def test_a_repost_is_an_event_without_a_charge_and_the_books_agree(office: Path) -> None:
    prepare_repost(ref(office), release="revised", mechanism="global")
    prepare_repost(ref(office), release="revised", mechanism="global")
    [event] = [e for e in ledger(office).timeline() if e.kind == "reposted"]
    assert event.facts["from"] == RELEASE
    assert event.facts["additional_epsilon"] == "0"
    history._verified.clear()
    assert ledger(office).measurement("household-sizes", "revised") == ledger(office).measurement(
        "household-sizes", RELEASE
    )


@pytest.mark.parametrize(
    ("release", "digest", "wrong"),
    [("forged", "0" * 64, "unknown"), (RELEASE, None, "several measurements")],
)
def test_books_that_repost_what_was_never_measured_or_twice_are_refused(
    office: Path, release: str, digest: str | None, wrong: str
) -> None:
    measured = ledger(office).measurement("household-sizes", RELEASE)
    assert measured is not None
    facts = {"key": measured.key, "digest": digest or measured.digest}
    ledger(office).record("reposted", "household-sizes", release, **facts)
    history._verified.clear()
    with pytest.raises(LedgerEdited, match=wrong):
        ledger(office)


def test_a_repost_of_a_repost_still_names_the_release_that_was_charged(office: Path) -> None:
    prepare_repost(ref(office), release="second", mechanism="global")
    ledger(office).record("published", "household-sizes", "second", digests={}, files={})
    bundle = run_stages(prepare_repost(ref(office, "second"), release="third"))
    lineage = json.loads((bundle / "privacy.json").read_text())["lineage"]
    assert (lineage["replaces"], lineage["reposted_from"]) == ("second", RELEASE)


def test_a_repost_that_stopped_goes_on_from_its_plan_alone(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = prepare_repost(ref(office), release="revised")
    with monkeypatch.context() as patch:
        patch.setattr("tasks.stages.post_process._compute", lambda *_: 1 / 0)
        with pytest.raises(StageFailed):
            run_stages(new)
    assert run_stages(RunRef(new.home, new.product, new.release)).name == "revised"


def test_a_mechanism_that_measures_something_else_is_refused(office: Path) -> None:
    with pytest.raises(
        NeedsOtherMeasurements, match="use cumulative or exact-cumulative or global"
    ):
        prepare_repost(ref(office), release="revised", mechanism="direct")
    for release, mechanism in (
        ("revised", "unknown"),
        ("revised", "relaxed-cumulative"),
        ("../revised", None),
        ("2026-Q1.withdrawn.dsse.json", None),
        ("INDEX.html", None),
    ):
        with pytest.raises(UnusableName):
            prepare_repost(ref(office), release=release, mechanism=mechanism)
    assert not [e for e in ledger(office).timeline() if e.kind == "reposted"]


def test_a_name_stands_for_one_thing_whether_measured_or_reposted(office: Path) -> None:
    with pytest.raises(NameTaken):
        prepare_repost(ref(office), release=RELEASE)
    prepare_repost(ref(office), release="revised")
    with pytest.raises(NameTaken):
        prepare_repost(ref(office), release="revised", mechanism="global")
    edit(office, "release: synthetic-1", "release: revised")
    with pytest.raises(ReleaseHasOtherMeasurements):
        prepare(office / "product.yaml", slot=SLOT)
    [account] = ledger(office).accounts()
    assert account.spent == Fraction(1, 2)
