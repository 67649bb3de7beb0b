"""Whether a path lies on a network file system, where locks of files do not work reliably."""

from __future__ import annotations

import os
from pathlib import Path

# As the kernel names them in mountinfo; a part after a dot says which program serves a FUSE file system.
_NETWORK = frozenset(
    {
        *("afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"),
        *("smb3", "smbfs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
        "fuse.sshfs",
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def network_kind(path: Path) -> str | None:
    """The type of the network file system on which a file or its directory lies; None if it is none, or if
    the system does not say."""
    place = next((one for one in (path, *path.parents) if one.exists()), None)
    if place is None or not _MOUNTS.is_file():
        return None
    device = place.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines():
        # Each line: id, parent, device, root, mount point, options, more options, "-", type, source, options.
        mount, _, kind = line.partition(" - ")
        if mount.split(" ")[2] == number:
            name = kind.split(" ")[0]
            return name if name in _NETWORK else None
    return None
