"""Which disks a SQLite ledger may stand on: local ones, whose locks hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pgsr_core.errors import PgsrError

MOUNTS = Path("/proc/self/mounts")
# SQLite's write-ahead log needs memory that all processes share and locks that are kept, and
# across a network there is neither. 9p and virtiofs are left out: in a virtual machine or a
# container they are how one machine sees its own disk.
# fmt: off
NETWORK = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs",
        "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs",
        "fuse.ceph", "fuse.curlftpfs", "fuse.davfs", "fuse.davfs2",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.glusterfs-fuse", "fuse.juicefs",
        "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
    }
)
# fmt: on
_MOUNT_FIELDS = 3


class LedgerOnNetwork(PgsrError):
    """The ledger's file would stand on a network file system; nothing was made there."""

    def __init__(self, file_system: str) -> None:
        self.file_system = file_system
        super().__init__(
            f"the ledger's file would stand on a network file system ({file_system}), where "
            "SQLite's locks do not hold and a budget could be spent twice. Remedy: put it on a "
            "local disk (PGSR_HOME or PGSR_LEDGER_URL), or use PostgreSQL "
            "(postgresql+psycopg://…)."
        )


def require_local(folder: Path) -> None:
    """Refuse a folder on a network file system; the folder need not exist yet.

    Raises:
        LedgerOnNetwork: naming the kind of file system.
    """
    kind = file_system_of(folder)
    if kind in NETWORK:
        raise LedgerOnNetwork(kind)


def file_system_of(folder: Path) -> str | None:
    """The kind of file system that holds a folder; None where the system does not tell."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    place = os.path.realpath(folder)
    found, length = None, -1
    for line in lines:
        fields = line.split(" ")
        if len(fields) < _MOUNT_FIELDS:
            continue
        point = _unescaped(fields[1]).rstrip("/")
        # The last mount at a point hides the earlier ones.
        if f"{place}/".startswith(f"{point}/") and len(point) >= length:
            found, length = fields[2], len(point)
    return found


def _unescaped(text: str) -> str:
    """Spaces and the like are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
