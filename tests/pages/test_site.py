"""The audit site of a real product: what it says, where it may go, and that its bytes repeat."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from tasks.ledger.inspection import NoLedger
from tasks.run import RunRef
from tasks.site import place
from tasks.site.build import build_site
from tasks.site.bundles import NOT_HERE, NOT_THE_SAME, Bundle, NoBundle, find_bundle
from tasks.site.comparison import Comparison, Verdict, compare
from tasks.site.history import ReleaseHistory, products_of
from tasks.site.settings import compare_settings
from tasks.storage.zones import Home
from tests.pages.conftest import EMPTIED

ROOT = Path(__file__).parents[2]
RELEASES = "products/household-sizes/releases"
FIRST, SECOND = f"{RELEASES}/synthetic-1", f"{RELEASES}/synthetic-2"
COMPARISON = f"{SECOND}/against-synthetic-1.html"


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def text_of(page: Path) -> str:
    """What a page says, without its style, scripts and tags."""
    body = page.read_text()[page.read_text().index("<body>") :]
    body = re.sub(r"<(script|style|svg).*?</\1>", " ", body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body))


def histories(office: Home) -> list[ReleaseHistory]:
    ledger = RunRef(str(office.root), "household-sizes", "synthetic-1").ledger()
    [product] = products_of(ledger.timeline())
    return list(product.releases)


def bundles(office: Home) -> tuple[Bundle, Bundle]:
    first, second, _ = (find_bundle(office, release) for release in histories(office))
    return first, second


# --- what it says -----------------------------------------------------------------------------


def test_the_index_tells_products_releases_states_spend_and_checks(site: Path) -> None:
    text = text_of(site / "index.html")
    assert "household-sizes" in text
    first = re.search(r"synthetic-1 withdrawn replaced by synthetic-2 \S+ 0\.5 ✓ (\d+) of \1", text)
    second = re.search(r"synthetic-2 published replaced by synthetic-3 \S+ 1 ✓ (\d+) of \1", text)
    third = re.search(r"synthetic-3 published \S+ 0 ✓ (\d+) of \1 global with synthetic-2", text)
    assert first is not None
    assert second is not None
    assert third is not None
    assert "virginia-2000 4 1.5 2.5" in text
    assert "✓ intact" in text


def test_the_timeline_tells_events_and_that_the_chain_verifies(
    site: Path, internal_site: Path, office: Home
) -> None:
    ledger = RunRef(str(office.root), "household-sizes", "synthetic-1").ledger()
    inside, text = (text_of(folder / "timeline.html") for folder in (internal_site, site))
    assert "Intact. Every event of the log" in text
    assert f"Events {len(ledger.timeline())}" in inside
    assert ledger.head().hash in inside
    assert ledger.head().hash not in text  # it is in no bundle yet
    assert "which is in this log" in text_of(site / SECOND / "index.html")


def test_the_public_sees_hashes_that_are_out_already_and_operators_all(
    site: Path, internal_site: Path, office: Home
) -> None:
    ledger = RunRef(str(office.root), "household-sizes", "synthetic-1").ledger()
    every = {f"{event.sequence} {event.hash}": event for event in ledger.timeline()}
    inside = (internal_site / "hashes.txt").read_text().splitlines()
    assert inside == list(every)
    shown = (site / "hashes.txt").read_text().splitlines()
    # Before each of three signatures the gates had spoken; one release was withdrawn.
    kinds = [every[line].kind for line in shown]
    assert kinds == ["validated", "validated", "withdrawn", "validated"]
    hidden = [event.hash[:12] for line, event in every.items() if line not in shown]
    pages = b"".join(content for name, content in files(site).items() if "report" not in name)
    assert not [hash_ for hash_ in hidden if hash_.encode() in pages]


def test_a_withdrawn_release_is_marked_on_every_page_that_shows_it(site: Path) -> None:
    for page in (f"{FIRST}/index.html", COMPARISON):
        text = text_of(site / page)
        assert re.search(r"WITHDRAWN on \d{4}-\d\d-\d\d", text)
        assert "A city was counted &lt;twice&gt;." in text
    assert "WITHDRAWN" not in text_of(site / SECOND / "index.html")


def test_every_release_embeds_the_report_that_was_published(site: Path, bundle: Path) -> None:
    assert (site / FIRST / "report.html").read_bytes() == (bundle / "report.html").read_bytes()
    for folder in (FIRST, SECOND):
        assert (
            '<iframe class="report-frame" id="report" src="report.html"'
            in (site / folder / "index.html").read_text()
        )


def test_links_are_relative_and_lead_to_pages_that_are_there(site: Path) -> None:
    seen = set()
    for page in site.rglob("*.html"):
        if page.name == "report.html":
            continue
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            parts = urlparse(target)
            assert not parts.scheme
            assert not parts.netloc
            assert not parts.path.startswith("/")
            there = page.parent / parts.path if parts.path else page
            assert there.is_file(), f"{page} links to {target}"
            if parts.fragment:
                assert f'id="{parts.fragment}"' in there.read_text()
            seen.add(there.resolve())
    pages = {page.resolve() for page in site.rglob("*.html")}
    assert pages <= seen  # every page can be reached


# --- comparison -------------------------------------------------------------------------------


def rows(bundle: Bundle, table: str) -> dict[tuple[str, str], dict[str, str]]:
    with (bundle.folder / f"{table}.csv").open() as file:
        return {(row["region"], row["size"]): row for row in csv.DictReader(file)}


def slow_verdicts(earlier: Bundle, later: Bundle) -> Counter[tuple[int, Verdict]]:
    """The obvious twin: row by row, in words of the definition."""
    found: Counter[tuple[int, Verdict]] = Counter()
    before, margins_before = rows(earlier, "group_sizes"), rows(earlier, "margins")
    margins_after = rows(later, "margins")
    for cell, row in rows(later, "group_sizes").items():
        one, other = margins_before[cell], margins_after[cell]
        overlap = range(
            max(int(one["lower_95"]), int(other["lower_95"])),
            min(int(one["upper_95"]), int(other["upper_95"])) + 1,
        )
        if row["count"] == before[cell]["count"]:
            verdict = Verdict.SAME
        else:
            verdict = Verdict.WITHIN if overlap else Verdict.BEYOND
        found[int(row["level"]), verdict] += 1
    return found


def test_changes_are_judged_by_margins_as_the_slow_twin_does(office: Home) -> None:
    first, second = bundles(office)
    for one, other in ((first, second), (second, first), (first, first)):
        fast = {
            (level.level, verdict): number
            for level in compare(one, other).levels
            for verdict, number in level.verdicts.items()
            if number
        }
        assert fast == slow_verdicts(one, other)


def test_a_city_that_was_emptied_is_beyond_the_margins_and_comes_first(office: Home) -> None:
    found = compare(*bundles(office))
    assert found.states_margins
    assert found.listed[0].title == EMPTIED
    assert found.listed[0].verdict is Verdict.BEYOND
    gaps = [max(cell.lowest or 0, -(cell.highest or 0)) for cell in found.listed]
    assert gaps == sorted(gaps, reverse=True)
    [nobody] = [cell for cell in found.root if cell.size == 0]
    assert nobody.change > 0
    assert nobody.verdict is Verdict.BEYOND
    assert found.beyond == sum(
        level.verdicts[Verdict.BEYOND] for level in found.levels if level.level > 1
    )


def test_the_formats_of_a_bundle_make_no_difference(office: Home) -> None:
    first, second = bundles(office)
    from_csv = replace(second, files={n: h for n, h in second.files.items() if "parquet" not in n})
    assert compare(first, from_csv) == compare(first, second)


def spoiled(bundle: Bundle, folder: Path, table: str, old: str, new: str) -> Bundle:
    """A copy of a bundle in CSV, with a table changed; no margins where they would not fit."""
    shutil.copytree(bundle.folder, folder)
    path = folder / f"{table}.csv"
    path.write_text(re.sub(old, new, path.read_text(), flags=re.MULTILINE))
    kept = {n: h for n, h in bundle.files.items() if n.endswith(".csv") and "margins" not in n}
    return replace(bundle, folder=folder, files=kept)


def test_what_only_one_release_has_is_counted_and_not_compared(
    office: Home, tmp_path: Path
) -> None:
    first, second = bundles(office)
    # Every size 7 is missing from the later one: its 6 stands for "6 and more".
    smaller = spoiled(second, tmp_path / "smaller", "group_sizes", r"^.*,7,\d+\n", "")
    found = compare(first, smaller)
    assert found.largest == (7, 6)
    assert found.sizes == range(6)
    assert not found.states_margins
    assert {cell.verdict for cell in found.root} <= {Verdict.SAME, Verdict.UNKNOWN}
    assert found.listed == ()
    # A block group has another name.
    renamed = spoiled(second, tmp_path / "renamed", "regions", r"^510919701001,", "new,")
    moved = compare(first, renamed)
    assert (moved.regions_gone, moved.regions_new) == (1, 1)
    assert cells(moved) == cells(compare(first, second)) - 8


def cells(found: Comparison) -> int:
    return sum(level.cells for level in found.levels)


def test_the_configuration_is_compared_setting_by_setting(
    office: Home, site: Path, internal_site: Path
) -> None:
    changed = {
        s.name: (s.earlier, s.later) for s in compare_settings(*bundles(office)) if s.changed
    }
    assert changed["Privacy loss ε"] == ("1/2 (0.5)", "1")
    assert "Mechanism" not in changed
    public = text_of(site / COMPARISON)
    assert "Privacy loss ε 1/2 (0.5) 1 changed" in public
    assert "parquet" not in public
    inside = text_of(internal_site / COMPARISON)
    assert "source.persons persons/*.parquet later/persons.parquet changed" in inside
    assert "replaces – synthetic-1 changed" in inside


def test_releases_of_the_same_measurements_are_told_apart_from_others(site: Path) -> None:
    said = "computed from the same measurements"
    assert said in text_of(site / RELEASES / "synthetic-3" / "against-synthetic-2.html")
    for page in (COMPARISON, f"{RELEASES}/synthetic-3/against-synthetic-1.html"):
        assert said not in text_of(site / page)
    assert "nothing further was charged" in text_of(site / RELEASES / "synthetic-3" / "index.html")


# --- what stays inside ------------------------------------------------------------------------


def test_the_public_site_names_no_person_machine_path_time_or_run(site: Path, office: Home) -> None:
    ledger = RunRef(str(office.root), "household-sizes", "synthetic-1").ledger()
    actors = {event.actor for event in ledger.timeline()}
    hidden = {*(f"@{actor.partition('@')[2]}" for actor in actors), str(office.root.parent)}
    for name, content in files(site).items():
        if name.endswith("report.html"):
            continue
        page = content.decode()
        assert not [word for word in hidden if word in page], name
        assert not re.search(r"\d\d:\d\d:\d\d", page), name
        assert "INTERNAL" not in page, name


def test_the_operators_site_is_marked_on_every_page_and_tells_owners_stages_and_errors(
    internal_site: Path, office: Home
) -> None:
    for page in internal_site.rglob("*.html"):
        if page.name != "report.html":
            text = page.read_text()
            assert "<title>INTERNAL: " in text, page
            assert "INTERNAL: for operators only, not for publication" in text, page
            assert "keep this site in the confidential zone" in text, page
    ledger = RunRef(str(office.root), "household-sizes", "synthetic-1").ledger()
    operations = text_of(internal_site / "operations.html")
    process = ledger.run_states()[0].process
    assert process is not None
    for told in (process.host, str(process.process), "isotonic", "Peak memory", "Last error none"):
        assert told in operations
    assert ledger.timeline()[0].actor in text_of(internal_site / "timeline.html")


def test_the_operators_site_is_closed_to_others_and_the_public_one_open(
    site: Path, internal_site: Path
) -> None:
    for folder, file_mode, folder_mode in ((site, 0o644, 0o755), (internal_site, 0o600, 0o700)):
        for path in (folder, *folder.rglob("*")):
            wanted = folder_mode if path.is_dir() else file_mode
            assert path.stat().st_mode & 0o777 == wanted, path


# --- the same bytes ---------------------------------------------------------------------------


def test_another_process_with_other_hashes_and_hours_writes_the_same_bytes(
    site: Path, office: Home, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows", "audit", "site", tmp_path / "again", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={
            "PYTHONHASHSEED": "7",
            "TZ": "Asia/Tokyo",
            "PYTHONPATH": ".",
            "PGSR_HOME": str(office.root),
            "PATH": os.environ["PATH"],
        },
    )
    said = json.loads(done.stdout)
    assert said["intact"] is True
    assert (said["releases"], said["comparisons"]) == (3, 3)
    assert files(tmp_path / "again") == files(site)


# --- where it may go --------------------------------------------------------------------------


def test_the_operators_site_goes_nowhere_but_into_the_confidential_zone(
    office: Home, tmp_path: Path
) -> None:
    for out in (tmp_path / "site", office.root / "site", office.root / "confidential"):
        refused = CliRunner().invoke(
            app, ["audit", "site", str(out), "--internal", "--home", str(office.root)]
        )
        assert isinstance(refused.exception, place.InternalSiteOutside)
        assert refused.exception.exit_code == 2
        assert "Remedy: " in str(refused.exception)
    sideways = office.root / "confidential" / ".." / "site"
    with pytest.raises(place.InternalSiteOutside):
        build_site(office, sideways, internal=True)
    assert not (tmp_path / "site").exists()
    assert not (office.root / "site").exists()


def test_the_public_site_does_not_go_among_confidential_files_or_into_a_bundle(
    office: Home, bundle: Path
) -> None:
    with pytest.raises(place.PublicSiteInside):
        build_site(office, office.root / "confidential" / "site")
    for out in (bundle, bundle / "site"):
        with pytest.raises(place.NotASite, match="published bundle"):
            build_site(office, out)


def test_a_folder_that_holds_anything_else_is_refused_and_left_alone(
    office: Home, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    build_site(office, out)  # an empty folder will do
    before = files(out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(place.NotASite, match=re.escape("'notes.txt'")):
        build_site(office, out)
    assert files(out) == {**before, "notes.txt": b"mine"}
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(place.NotASite):
        build_site(office, file)
    link = tmp_path / "link"
    link.symlink_to(out)
    with pytest.raises(place.NotASite):
        build_site(office, link)


def test_an_earlier_site_is_replaced_whole_and_stays_if_the_new_one_fails(
    office: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    build_site(office, out)
    before = files(out)
    build_site(office, out)
    assert files(out) == before

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    rename = Path.rename

    def full_at_last(self: Path, target: Path) -> Path:
        new = target == out and not self.name.endswith(".before")
        return full() if new else rename(self, target)  # type: ignore[func-returns-value]

    for broken, fails in (("shutil.copyfile", full), ("pathlib.Path.rename", full_at_last)):
        with monkeypatch.context() as patch:
            patch.setattr(broken, fails)
            with pytest.raises(place.SiteNotWritten) as failed:
                build_site(office, out)
        assert failed.value.exit_code == 3
        assert files(out) == before
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with monkeypatch.context() as patch:
        patch.setattr("tasks.site.build.compare", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_site(office, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_without_a_ledger_there_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(NoLedger):
        build_site(Home(tmp_path / ".pgsr"), tmp_path / "site")
    assert list(tmp_path.iterdir()) == []


# --- what is wrong is told --------------------------------------------------------------------


@pytest.fixture
def elsewhere(office: Home, tmp_path: Path) -> Home:
    """A copy of the office's state; the plans still name the bundles' own place."""
    return Home(Path(shutil.copytree(office.root, tmp_path / ".pgsr")))


def test_a_ledger_that_was_edited_is_shown_as_broken_on_every_page(
    elsewhere: Home, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(elsewhere.root / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE events SET actor = 'nobody' WHERE sequence = 2")
    done = CliRunner().invoke(
        app, ["audit", "site", str(tmp_path / "site"), "--home", str(elsewhere.root)]
    )
    assert done.exit_code == 1
    for page in (tmp_path / "site").rglob("*.html"):
        if page.name != "report.html":
            assert "THE LEDGER DOES NOT VERIFY" in page.read_text()
    text = text_of(tmp_path / "site" / "timeline.html")
    assert "✗ Broken. 1 problem found in: chain." in text


def test_a_bundle_that_is_missing_or_changed_is_not_shown_and_the_page_says_why(
    elsewhere: Home, office: Home, bundle: Path, tmp_path: Path
) -> None:
    first, second, _ = histories(office)
    plan = elsewhere.run("household-sizes", "synthetic-1").plan
    changed = Path(shutil.copytree(bundle, tmp_path / "p" / "household-sizes" / "synthetic-1"))
    (changed / "report.html").write_text("forged")
    folder = json.dumps(str(bundle.parents[2]))
    plan.write_text(
        plan.read_text()
        .replace(folder, json.dumps(str(tmp_path)))
        .replace('"to": "public"', '"to": "p"')
    )
    with pytest.raises(NoBundle, match=re.escape(NOT_THE_SAME)):
        find_bundle(elsewhere, first)
    elsewhere.run("household-sizes", "synthetic-2").plan.unlink()
    with pytest.raises(NoBundle, match=re.escape(NOT_HERE)):
        find_bundle(elsewhere, second)
    build_site(elsewhere, tmp_path / "site")
    assert "other checksums" in text_of(tmp_path / "site" / FIRST / "index.html")
    assert NOT_HERE in text_of(tmp_path / "site" / SECOND / "index.html")
    shown = [path.parent.name for path in (tmp_path / "site").rglob("report.html")]
    assert shown == ["synthetic-3"]
    assert not list((tmp_path / "site").rglob("against-*"))
