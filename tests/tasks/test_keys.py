"""Key files: closed to others, never overwritten, never shown."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pgsr_core.attestation.keys import (
    PassphraseNeeded,
    PrivateKey,
    UnusableKey,
    WrongPassphrase,
)
from tasks.keys import (
    KeyExists,
    KeyFileProblem,
    LooseKey,
    NoPassphrase,
    create_key,
    needs_passphrase,
    own_key,
    passphrase_from_environment,
    public_path,
    read_private_key,
    read_public_key,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_the_private_file_is_0600_and_the_public_one_0644_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        made = create_key(tmp_path / "release.key")
    finally:
        os.umask(before)
    assert (mode(made.private), mode(made.public)) == (0o600, 0o644)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["release.key", "release.key.pub"]


def test_both_halves_are_read_back_and_belong_together(tmp_path: Path) -> None:
    made = create_key(tmp_path / "release.key")
    private, public = read_private_key(made.private), read_public_key(made.public)
    assert private.public == public
    assert public.keyid == made.keyid
    assert public.accepts(private.sign(b"message"), b"message")
    assert not public.accepts(private.sign(b"message"), b"massage")
    assert not needs_passphrase(made.private)


def test_two_keys_are_never_the_same(tmp_path: Path) -> None:
    assert create_key(tmp_path / "a").keyid != create_key(tmp_path / "b").keyid


def test_a_protected_key_opens_with_its_passphrase_only(tmp_path: Path) -> None:
    made = create_key(tmp_path / "release.key", passphrase=b"open sesame")
    assert needs_passphrase(made.private)
    assert read_private_key(made.private, passphrase=b"open sesame").public.keyid == made.keyid
    with pytest.raises(PassphraseNeeded):
        read_private_key(made.private)
    with pytest.raises(WrongPassphrase):
        read_private_key(made.private, passphrase=b"open barley")


@pytest.mark.parametrize("there", ["release.key", "release.key.pub"])
def test_a_key_is_never_overwritten_and_nothing_is_written_beside_one(
    tmp_path: Path, there: str
) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(KeyExists):
        create_key(tmp_path / "release.key")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_followed_by_a_new_key(tmp_path: Path) -> None:
    (tmp_path / "release.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyExists):
        create_key(tmp_path / "release.key")
    assert not (tmp_path / "elsewhere").exists()


def test_of_two_that_make_one_key_at_once_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "release.key"
    generate = PrivateKey.generate

    def another_was_first() -> PrivateKey:
        path.write_text("the other's")
        return generate()

    monkeypatch.setattr(PrivateKey, "generate", another_was_first)
    with pytest.raises(KeyExists):
        create_key(path)
    assert path.read_text() == "the other's"
    assert [entry.name for entry in tmp_path.iterdir()] == ["release.key"]


@pytest.mark.parametrize("loose", [0o640, 0o604, 0o660, 0o644, 0o620])
def test_a_private_key_that_others_can_read_or_change_is_not_used(
    tmp_path: Path, loose: int
) -> None:
    made = create_key(tmp_path / "release.key")
    made.private.chmod(loose)
    with pytest.raises(LooseKey, match="chmod 600"):
        read_private_key(made.private)


def test_a_missing_folder_or_file_or_something_else_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(KeyFileProblem):
        create_key(tmp_path / "missing" / "release.key")
    large, empty, pipe = tmp_path / "large", tmp_path / "empty", tmp_path / "pipe"
    large.write_bytes(b"x" * 100_000)
    empty.touch()
    os.mkfifo(pipe, 0o600)
    for path in (large, empty):
        path.chmod(0o600)
    for path in (tmp_path / "missing", tmp_path, large, pipe):
        with pytest.raises(KeyFileProblem):
            read_public_key(path)
        with pytest.raises((KeyFileProblem, LooseKey)):
            read_private_key(path)
    with pytest.raises(UnusableKey):
        read_private_key(empty)
    with pytest.raises(UnusableKey):
        read_public_key(empty)


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    made = create_key(tmp_path / "release.key")
    with pytest.raises(UnusableKey, match="pgsr keys public"):
        read_public_key(made.private)
    made.public.chmod(0o600)
    with pytest.raises(UnusableKey):
        read_private_key(made.public)


def test_the_passphrase_comes_from_the_environment_and_is_never_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_WORDS", "öffne dich")
    passphrase = passphrase_from_environment("KEY_WORDS")
    made = create_key(tmp_path / "release.key", passphrase=passphrase)
    assert read_private_key(made.private, passphrase=passphrase).public.keyid == made.keyid
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("KEY_WORDS")
        else:
            monkeypatch.setenv("KEY_WORDS", value)
        with pytest.raises(NoPassphrase):
            passphrase_from_environment("KEY_WORDS")
    # Somebody who types the passphrase where its variable's name belongs does not see it again.
    with pytest.raises(NoPassphrase) as caught:
        passphrase_from_environment("open sesame")
    assert "sesame" not in str(caught.value)


def test_the_public_half_stands_beside_the_private_one() -> None:
    assert public_path(Path("keys/release.key")) == Path("keys/release.key.pub")


def test_an_installation_makes_its_key_once_and_alone_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    with ThreadPoolExecutor(8) as together:
        made = list(together.map(own_key, [path] * 8))
    assert len({key.public.keyid for key in made}) == 1
    assert mode(path) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["signing.key"]
    path.chmod(0o640)
    with pytest.raises(LooseKey):
        own_key(path)
