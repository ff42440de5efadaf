"""Key files: the private one for its owner's eyes only, the public one beside it.

A passphrase comes from the environment or from a prompt, never from an argument: arguments are
seen by every process of the machine and kept in the shell's history.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pgsr_core.attestation.keys import PrivateKey, PublicKey, is_protected
from pgsr_core.errors import PgsrError, Refused
from tasks.storage.zones import PRIVATE_FILE, sync_folder

PUBLIC_FILE = 0o644
PUBLIC_SUFFIX = ".pub"
_LARGEST_KEY_FILE = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyFileProblem(PgsrError):
    """A key file cannot be read or written."""


class KeyExists(Refused):
    """A key is never overwritten: what it signed could not be verified any more."""


class LooseKey(Refused):
    """A private key that others can read is not used."""


class NoPassphrase(PgsrError):
    """The environment variable that should hold the passphrase does not."""


@dataclass(frozen=True)
class KeyFiles:
    """A new pair of keys on disk."""

    private: Path
    public: Path
    keyid: str


def public_path(private: Path) -> Path:
    """Where the public half of a key file is written."""
    return private.with_name(private.name + PUBLIC_SUFFIX)


def create_key(path: Path, *, passphrase: bytes | None = None) -> KeyFiles:
    """Make a key: the private half at `path` (0600), the public one beside it (.pub, 0644).

    Raises:
        KeyExists: one of the files is there; nothing was written.
        KeyFileProblem: the folder cannot be written.
    """
    public = public_path(path)
    for file in (path, public):
        if os.path.lexists(file):
            raise KeyExists(
                f"{file.name} is there already, and a key is never overwritten. "
                "Remedy: choose another name."
            )
    key = PrivateKey.generate()
    _create(path, key.to_pem(passphrase=passphrase), PRIVATE_FILE)
    _create(public, key.public.to_pem(), PUBLIC_FILE)
    return KeyFiles(path, public, key.public.keyid)


def read_private_key(path: Path, *, passphrase: bytes | None = None) -> PrivateKey:
    """Read a private key that nobody else can read.

    Raises:
        LooseKey: others may read or change the file.
        KeyFileProblem: it cannot be read.
        UnusableKey: it holds something else, or the passphrase is missing or wrong.
    """
    return PrivateKey.from_pem(_read_private(path), passphrase=passphrase)


def own_key(path: Path) -> PrivateKey:
    """Read the key of an installation, which has no passphrase; made on first use.

    Its public half is printed by `pgsr keys public`: nothing in a closed folder is for everyone.

    Raises:
        LooseKey: others may read or change the file.
        KeyFileProblem: it cannot be read or made.
        UnusableKey: it holds something else.
    """
    if not path.exists():
        with suppress(KeyExists):  # another process was first
            _create(path, PrivateKey.generate().to_pem(passphrase=None), PRIVATE_FILE)
    return read_private_key(path)


def needs_passphrase(path: Path) -> bool:
    """Say whether a private key file is protected by a passphrase.

    Raises:
        LooseKey: others may read or change the file.
        KeyFileProblem: it cannot be read.
    """
    return is_protected(_read_private(path))


def read_public_key(path: Path) -> PublicKey:
    """Read a public key.

    Raises:
        KeyFileProblem: the file cannot be read.
        UnusableKey: it holds something else.
    """
    return PublicKey.from_pem(_read(path)[0])


def passphrase_from_environment(variable: str) -> bytes:
    """Take the passphrase from the environment.

    Raises:
        NoPassphrase: the variable is not set, or empty.
    """
    value = os.environ.get(variable, "")
    if not value:
        raise NoPassphrase(
            "the environment variable that should hold the passphrase is not set, or empty. "
            "Remedy: set it for this command, or name another one."
        )
    return os.fsencode(value)


def _read_private(path: Path) -> bytes:
    content, mode = _read(path)
    if mode & _OTHERS:
        raise LooseKey(
            f"the private key {path.name} can be read or changed by others than its owner, so it "
            "is not used. Remedy: chmod 600, and make a new key if others had access."
        )
    return content


def _read(path: Path) -> tuple[bytes, int]:
    """Return a file's content, and its mode as of the moment it was opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise _unreadable(path)
            content = file.read(_LARGEST_KEY_FILE + 1)
    except OSError:
        raise _unreadable(path) from None
    if len(content) > _LARGEST_KEY_FILE:
        raise _unreadable(path)
    return content, mode


def _unreadable(path: Path) -> KeyFileProblem:
    return KeyFileProblem(
        f"the key file {path.name} cannot be read. Remedy: see that it is there and readable; "
        "pgsr keys new makes a new pair."
    )


def _create(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, durable on return; it appears whole, with its final mode, or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)  # whatever the umask
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)  # atomic, and fails if another process was first
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError:
        raise KeyExists(
            f"{path.name} is there already, and a key is never overwritten. "
            "Remedy: choose another name."
        ) from None
    except OSError as error:
        raise KeyFileProblem(
            f"{path.name} cannot be written ({error.strerror}). Remedy: choose a folder that is "
            "there and writable."
        ) from None
