"""Where state is kept, and that nobody else can be at it."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.doctor import examine
from tasks.storage.places import default_root
from tasks.storage.trust import HomeNotSafe
from tasks.storage.zones import Home

STRANGER = 65534


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """The folder of a configuration, with an old state folder that holds a ledger."""
    folder = tmp_path / "product"
    (folder / ".pgsr").mkdir(parents=True, mode=0o700)
    (folder / ".pgsr" / "ledger.sqlite").touch()
    return folder


def test_the_state_folder_is_one_per_user_from_whatever_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found |= {Home.locate().root, Home.locate(beside=tmp_path / name).root}
    assert found == {tmp_path / "data" / "pgsr" / "home"} == {default_root()}
    assert not (tmp_path / "data").exists()  # looking makes nothing


def test_an_option_beats_the_environment_which_beats_an_old_folder_which_beats_the_default(
    product: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Home.locate(beside=product).root == product / ".pgsr"
    assert Home.locate().root == default_root()
    monkeypatch.setenv("PGSR_HOME", "elsewhere")
    assert Home.locate(beside=product).root == tmp_path / "elsewhere"
    assert Home.locate(Path("named"), beside=product).root == tmp_path / "named"


def test_a_command_without_a_configuration_finds_an_old_folder_where_one_stands(
    product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(product)
    assert Home.locate().root == product / ".pgsr"


@pytest.mark.parametrize("sign", ["witness.json", "runs", "example.json", "ledger.sqlite"])
def test_an_old_folder_is_told_by_what_it_holds(tmp_path: Path, sign: str) -> None:
    old = tmp_path / ".pgsr"
    old.mkdir(mode=0o700)
    (old / "notes").touch()
    assert Home.locate(beside=tmp_path).root == default_root()
    (old / sign).touch()
    assert Home.locate(beside=tmp_path).root == old


@pytest.mark.parametrize("variable", ["XDG_DATA_HOME", "HOME"])
def test_a_relative_place_would_be_another_one_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv(variable, "relative")
    places = set()
    for folder in (tmp_path, tmp_path.parent):
        monkeypatch.chdir(folder)
        places.add(default_root())
    [place] = places
    assert place.is_absolute()


# --- in nobody else's hands -------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "way" / "home")
    found.create()
    return found


def located(home: Home) -> Home:
    return Home.locate(home.root)


@pytest.mark.parametrize("mode", [0o702, 0o777, 0o1777, 0o720, 0o2770])
def test_a_home_that_others_may_write_is_refused(home: Home, mode: int) -> None:
    home.root.chmod(mode)
    with pytest.raises(HomeNotSafe, match=rf"chmod go-w '?{home.root}") as refusal:
        located(home)
    assert refusal.value.exit_code == 1
    [finding] = examine(home)
    assert (finding.area, finding.ok) == ("home", False)
    home.root.chmod(0o755)  # that others may read it is for the doctor to say
    assert located(home) == home


@pytest.mark.parametrize("mode", [0o702, 0o777])
def test_a_home_that_others_may_replace_is_refused(home: Home, mode: int) -> None:
    home.root.parent.chmod(mode)
    with pytest.raises(HomeNotSafe, match=f"chmod go-w {home.root.parent},"):
        located(home)
    with pytest.raises(HomeNotSafe):
        Home.locate(home.root.parent / "not" / "made" / "yet")
    home.root.parent.chmod(mode | 0o1000)  # such as /tmp
    assert located(home) == home


def test_a_folder_of_the_users_own_group_is_in_nobody_elses_hands(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.root.parent.chmod(0o770)
    me = pwd.getpwuid(os.geteuid())
    members: list[str] = []
    accounts = [me]
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_mem=members))
    monkeypatch.setattr(pwd, "getpwall", lambda: accounts)
    group = home.root.parent.stat().st_gid
    accounts[:] = [SimpleNamespace(pw_name=me.pw_name, pw_gid=group)]
    assert located(home) == home
    members.append("bob")
    with pytest.raises(HomeNotSafe):
        located(home)
    members[:] = []
    accounts.append(SimpleNamespace(pw_name="eve", pw_gid=group))
    with pytest.raises(HomeNotSafe):
        located(home)
    accounts.pop()
    home.root.chmod(0o770)  # the home itself is its owner's alone
    with pytest.raises(HomeNotSafe):
        located(home)


def test_a_link_is_followed_and_everything_on_its_way_is_looked_at(
    home: Home, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to("way/../way/home")
    assert Home.locate(link).root == link
    home.root.parent.chmod(0o707)
    with pytest.raises(HomeNotSafe, match=f"{home.root.parent} may be written"):
        Home.locate(link)
    home.root.parent.chmod(0o700)
    home.root.chmod(0o707)
    with pytest.raises(HomeNotSafe, match=f"{home.root} may be written"):
        Home.locate(link)


def test_links_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    Home.locate(tmp_path / "a")  # making it will say what is wrong


def pretend_to_be_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def test_a_home_of_somebody_else_is_refused_by_its_owners_name(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    pretend_to_be_a_stranger(monkeypatch)
    with pytest.raises(HomeNotSafe, match=f"{owner}.*Remedy") as refusal:
        located(home)
    assert str(home.root) in str(refusal.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_uses_nobody_elses_home_either(home: Home) -> None:
    os.chown(home.root, STRANGER, -1)
    with pytest.raises(HomeNotSafe, match=r"sudo -u \w+"):
        located(home)
    os.chown(home.root, 0, -1)
    os.chown(home.root.parent, STRANGER, -1)
    with pytest.raises(HomeNotSafe, match="on the way"):
        located(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_planted_link_is_not_followed(home: Home, tmp_path: Path) -> None:
    """In a sticky folder nobody can replace what is ours; a link of theirs is not ours."""
    link = tmp_path / "link"
    link.symlink_to(home.root)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(HomeNotSafe, match="on the way"):
        Home.locate(link)
