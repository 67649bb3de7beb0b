"""Page checksums of a SQLite file: a page that lost a bit is an error, and never a row that is not there.

SQLite's own VFS `cksmvfs`, which comes with apsw, keeps a checksum in the last eight bytes of each page of
the database file: it is computed when a page is written there and compared whenever one is read. A file has
checksums or has none from its first page on, as its header says; `give` adds them to one that has none.

What they do not show: a page in the -wal (it has checksums of its own, compared only after a crash; see
wal.py), damage in memory before a page is written, and a whole page that is an older one or another one's.

The eight bytes are stale after a write by anything that does not know them, such as the shell of SQLite: then
the pages that it wrote are reported as damaged.
"""

from __future__ import annotations

import functools
from pathlib import Path

import apsw

from holdfast.core.errors import StoreUnavailable

VFS = "cksmvfs"
RESERVED_BYTES = 8
_VERIFYING = "checksum_verification"


@functools.cache
def vfs() -> str | None:
    """The name of the VFS with checksums; None where apsw was built without it."""
    before, connection = apsw.vfs_names()[0], apsw.Connection(":memory:")
    try:
        connection.enable_load_extension(True)
        # Without its suffix, which SQLite knows for each system.
        connection.load_extension(str(Path(apsw.__file__).parent / "sqlite_extra_binaries" / "cksumvfs"))
    except (apsw.Error, AttributeError):
        return None
    finally:
        connection.close()
        # It makes itself the default, also for databases of the program's own.
        apsw.set_default_vfs(before)
    return VFS


def ask_for(connection: apsw.Connection) -> None:
    """Have a file that is still empty made with checksums; any other is left as it is."""
    if connection.pragma("page_count") == 0 and vfs() is not None:
        connection.reserve_bytes("main", RESERVED_BYTES)


def begin(copy: apsw.Connection) -> None:
    """Write the first page of a copy, with room for checksums: pages that came before it would have none."""
    copy.reserve_bytes("main", RESERVED_BYTES)
    copy.pragma("user_version", 1)


def has(connection: apsw.Connection) -> bool:
    """Whether the file has room for them, so that whoever writes must keep them."""
    return connection.reserve_bytes() == RESERVED_BYTES


def are_compared(connection: apsw.Connection) -> bool:
    """Whether pages that this connection reads are compared, and those that it writes get theirs."""
    return bool(connection.pragma(_VERIFYING) == "1")


def require(connection: apsw.Connection) -> bool:
    """False when the connection has not noticed them yet and must be opened anew.

    The VFS learns about them from the first page in the file itself. A connection that was opened before that
    page was there, and found it in the -wal, would write pages without a checksum.
    """
    if not has(connection) or are_compared(connection):
        return True
    if vfs() is None:
        raise StoreUnavailable(
            "this ledger has page checksums, and this apsw comes without SQLite's cksumvfs: "
            "install apsw from PyPI (pip install --force-reinstall --only-binary apsw apsw)"
        )
    connection.wal_checkpoint()
    return False


def give(path: Path) -> bool:
    """Add checksums to a file that has none; False when it has them, or when this apsw knows none.

    The file is rewritten inside one transaction of its -wal, so a process that is killed meanwhile leaves it
    as it was or with checksums. Raises apsw.BusyError while anybody else has it open.
    """
    if vfs() is None:
        return False
    connection = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_EXRESCODE, vfs=VFS
    )
    try:
        # Before anything is read: from then on no other connection can be open, and none can be opened.
        connection.pragma("locking_mode", "EXCLUSIVE")
        connection.pragma("synchronous", "FULL")
        if has(connection):
            return False
        connection.reserve_bytes("main", RESERVED_BYTES)
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()
    return True


def damaged_pages(connection: apsw.Connection) -> list[int]:
    """Which pages of the file do not match their checksums. Not inside a transaction.

    None while newer versions of pages stand in the -wal alone: then nobody reads the older ones in the file,
    which a crash in the midst of a checkpoint may have left torn.
    """
    if not are_compared(connection):
        return []
    connection.pragma("page_count")  # SQLite opens the -wal when it first reads
    frames, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    if frames != copied:
        return []
    size, count = connection.pragma("page_size"), connection.pragma("page_count")
    return [page for page in range(1, count + 1) if not _is_sound(connection, (page - 1) * size, size)]


def _is_sound(connection: apsw.Connection, offset: int, size: int) -> bool:
    # Twice: it may be written at this very moment.
    for _ in range(2):
        try:
            connection.read("main", 0, offset, size)
        except apsw.IOError:
            continue
        return True
    return False
