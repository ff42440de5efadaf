"""What a scheduled run may be told to run: what was served, by path and content."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tasks.served import EditedSinceServed, NotServed, Served, read_served, record_served
from tasks.served import require_served as require
from tasks.storage.zones import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def served(home: Home, tmp_path: Path) -> Path:
    path = tmp_path / "products" / "a.yaml"
    path.parent.mkdir()
    path.write_text("product: a\n")
    record_served(home, [Served.now("a", path)])
    return path


def test_a_configuration_that_was_served_may_be_run_by_any_spelling_of_its_path(
    home: Home, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(served.parent)
    for spelling in (served, Path("a.yaml"), Path("../products/./a.yaml")):
        assert require(home, spelling).path == served


def test_an_edit_is_refused_until_it_is_served_again(home: Home, served: Path) -> None:
    served.write_text("product: a # ten times the budget\n")
    with pytest.raises(EditedSinceServed, match=r"Remedy: .* pgsr serve anew"):
        require(home, served)
    record_served(home, [Served.now("a", served)])
    assert require(home, served).product == "a"
    served.unlink()
    with pytest.raises(EditedSinceServed):
        require(home, served)


def test_another_file_with_the_same_content_is_not_the_one_that_was_served(
    home: Home, served: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "a.yaml"
    copy.write_text(served.read_text())
    link = tmp_path / "link.yaml"
    link.symlink_to(served)  # its data would be looked for beside the link
    for path in (copy, link):
        with pytest.raises(NotServed, match="Remedy"):
            require(home, path)


def test_of_a_product_the_configuration_that_was_served_last_counts(
    home: Home, served: Path, tmp_path: Path
) -> None:
    other, moved = tmp_path / "b.yaml", tmp_path / "moved.yaml"
    other.write_text("product: b\n")
    moved.write_text("product: a\n")
    record_served(home, [Served.now("b", other)])
    assert require(home, served).product == "a"
    record_served(home, [Served.now("a", moved)])
    with pytest.raises(NotServed):
        require(home, served)
    assert {each.path for each in read_served(home)} == {other, moved}


def test_the_record_is_its_owners_alone_and_a_damaged_one_allows_nothing(
    home: Home, served: Path
) -> None:
    record = home.root / "served.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    record.write_text("[1]")
    with pytest.raises(NotServed):
        require(home, served)
