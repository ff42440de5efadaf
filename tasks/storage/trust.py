"""Whether a state folder is in nobody else's hands: as strict as ssh is with its keys."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from pgsr_core.errors import Refused

_MOST_LINKS = 40
_SYSTEM = 0
_ELSEWHERE = "name a state folder of your own with --home or PGSR_HOME"


class HomeNotSafe(Refused):
    """A state folder that others may change, or that is somebody else's; nothing was done."""


def require_own(root: Path) -> None:
    """Refuse a state folder that others may write or replace, or that is somebody else's.

    The folder must be this user's; every folder and link on the way to it this user's or the
    system's; and nobody else may write there, but for folders such as /tmp (sticky), in which
    others cannot replace what is ours. What does not exist yet is made closed to others.

    Raises:
        HomeNotSafe: saying which folder, whose it is, and what to do.
    """
    home = Path(os.path.realpath(root))
    for step, found in list(_way_to(root)):
        _require_owner(root, step, found, itself=step == home)
        if not stat.S_ISLNK(found.st_mode):
            _require_closed(step, found, itself=step == home)


def _way_to(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link that decides what a path means, as far as they exist.

    Raises:
        HomeNotSafe: this user may not go on.
    """
    here = Path(path.anchor)
    yield here, here.lstat()
    todo = list(reversed(path.parts[1:]))
    links = 0
    while todo and links <= _MOST_LINKS:
        name = todo.pop()
        here = here.parent if name == ".." else here / name
        try:
            found = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError:
            closed = here.parent
            raise _somebody_elses(path, closed, closed.lstat()) from None
        yield here, found
        if stat.S_ISLNK(found.st_mode):
            links += 1
            target = here.readlink()
            here = Path(target.anchor) if target.is_absolute() else here.parent
            todo.extend(reversed([part for part in target.parts if part != target.anchor]))


def _require_owner(root: Path, step: Path, found: os.stat_result, *, itself: bool) -> None:
    user = os.geteuid()
    if itself and found.st_uid != user:
        raise _somebody_elses(root, step, found)
    if found.st_uid not in {user, _SYSTEM}:
        raise HomeNotSafe(
            f"{step}, on the way to the state folder {root}, belongs to {_name(found.st_uid)}, who "
            f"could put another one in its place. Remedy: {_ELSEWHERE}."
        )


def _require_closed(step: Path, found: os.stat_result, *, itself: bool) -> None:
    mode = found.st_mode
    if not itself and mode & stat.S_ISVTX:
        return
    by_group = mode & stat.S_IWGRP and (itself or not _is_private_group(found.st_gid))
    if by_group or mode & stat.S_IWOTH:
        raise HomeNotSafe(
            f"{step} may be written by others (mode {stat.S_IMODE(mode):04o}), who could change "
            "what is charged and what is published. Remedy: chmod go-w "
            f"{shlex.quote(str(step))}, or {_ELSEWHERE}."
        )


def _is_private_group(group: int) -> bool:
    """Whether a group has this user as its only member, as many systems make one for each."""
    try:
        members = set(grp.getgrgid(group).gr_mem)
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    members |= {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group}
    return members == {user}


def _somebody_elses(root: Path, step: Path, found: os.stat_result) -> HomeNotSafe:
    owner, user = _name(found.st_uid), _name(os.geteuid())
    whose = f"belongs to {owner}" if step == root else f"is behind {step}, which is {owner}'s"
    return HomeNotSafe(
        f"the state folder {root} {whose}, and this command runs as {user}. Remedy: run it as "
        f"{owner} (sudo -u {owner} …), or {_ELSEWHERE}."
    )


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
