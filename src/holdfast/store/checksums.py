"""Page checksums of a SQLite file: a page with a flipped bit raises an error instead of losing rows.

SQLite's own VFS `cksmvfs`, which comes with apsw, keeps a checksum in the last eight bytes of each page of
the database file: it computes the checksum when it writes a page and compares it when it reads one. The
header says whether the pages of a file have checksums; `give` adds them to a file that has none.

Checksums do not detect damage in the -wal (it has checksums of its own, compared only after a crash; see
wal.py), damage in memory before a page is written, and a page that was replaced by an older or another one.

A program that does not maintain checksums, such as the SQLite shell, leaves stale ones: the pages that it
wrote are then reported as damaged.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path

import apsw

from holdfast.core.errors import StoreUnavailable

VFS = "cksmvfs"
RESERVED_BYTES = 8
_VERIFYING = "checksum_verification"
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_USUAL_PAGE_BYTES = 4096


@functools.cache
def vfs() -> str | None:
    """The name of the VFS with checksums; None if apsw was built without it."""
    before, connection = apsw.vfs_names()[0], apsw.Connection(":memory:")
    try:
        connection.enable_load_extension(True)
        # Without its suffix, which SQLite adds for each platform.
        connection.load_extension(str(Path(apsw.__file__).parent / "sqlite_extra_binaries" / "cksumvfs"))
    except (apsw.Error, AttributeError):
        return None
    finally:
        connection.close()
        # The extension makes itself the default, which would affect the program's own databases.
        apsw.set_default_vfs(before)
    return VFS


def ask_for(connection: apsw.Connection) -> None:
    """Make SQLite create an empty file with checksums; any other file does not change."""
    if connection.pragma("page_count") == 0 and vfs() is not None:
        connection.reserve_bytes("main", RESERVED_BYTES)


def begin(copy: apsw.Connection) -> None:
    """Write the first page of a copy, with room for checksums: pages written before it would have none."""
    copy.reserve_bytes("main", RESERVED_BYTES)
    copy.pragma("user_version", 1)


def has(connection: apsw.Connection) -> bool:
    """Whether the file has room for checksums, so that every writer must maintain them."""
    return connection.reserve_bytes() == RESERVED_BYTES


def are_compared(connection: apsw.Connection) -> bool:
    """Whether this connection compares checksums when it reads pages, and writes them."""
    return bool(connection.pragma(_VERIFYING) == "1")


def require(connection: apsw.Connection) -> bool:
    """False when the connection has not noticed the checksums yet and must be reopened.

    The VFS reads this from the first page in the file itself. A connection that was opened before that page
    was in the file, and found it in the -wal, would write pages without a checksum.
    """
    if not has(connection) or are_compared(connection):
        return True
    if vfs() is None:
        raise StoreUnavailable(
            "this ledger has page checksums, but this build of apsw lacks SQLite's cksumvfs: "
            "install apsw from PyPI (pip install --force-reinstall --only-binary apsw apsw)"
        )
    connection.wal_checkpoint()
    return False


def give(path: Path) -> bool:
    """Add checksums to a file that has none; False when it has them, or when this apsw lacks cksumvfs.

    The file is rewritten in one transaction, so a process that is killed meanwhile leaves it either unchanged
    or with checksums. Raises apsw.BusyError while any other connection has it open.
    """
    if vfs() is None:
        return False
    connection = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_EXRESCODE, vfs=VFS
    )
    try:
        # Before the first read: from then on no other connection is open, and none can be opened.
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
    """The pages of the file that do not match their checksums. Do not call it inside a transaction.

    Empty while the -wal holds newer versions of pages: then the older ones in the file are not read, and a
    crash during a wal_checkpoint may have left them torn.
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
    # Twice, because another process may be writing it.
    for _ in range(2):
        try:
            connection.read("main", 0, offset, size)
        except apsw.IOError:
            continue
        return True
    return False


def problems_of_file(path: Path) -> Iterator[str]:
    """What is wrong with a file that SQLite itself cannot read: its header, its length, its pages.

    Never call it in a process that has the file open in SQLite: closing the file drops SQLite's locks.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        is_known = header.startswith(_MAGIC) and len(header) == _HEADER_BYTES
        if not is_known:
            yield "the file does not begin as a SQLite database: its header is damaged, or it is another file"
        page_bytes = (_page_bytes(header) if is_known else None) or _USUAL_PAGE_BYTES
        pages = int.from_bytes(header[28:32], "big") if is_known else -(-size // page_bytes)
        if size < pages * page_bytes:
            yield f"the file was truncated to {size:,} bytes; it had {pages:,} pages of {page_bytes:,} bytes"
        if is_known and header[20] != RESERVED_BYTES:
            return  # it has no checksums, or its header denies them
        if _has_newer_pages(path):
            return  # SQLite no longer reads those in the file
        file.seek(0)
        number = 0
        while len(page := file.read(page_bytes)) == page_bytes:
            number += 1
            if _checksum(page[:-RESERVED_BYTES]) != page[-RESERVED_BYTES:]:
                yield f"SQLite: page {number} does not match its checksum"


def _page_bytes(header: bytes) -> int | None:
    """The page size in a SQLite header, where 1 means 65536."""
    found = int.from_bytes(header[16:18], "big")
    found = 65536 if found == 1 else found
    return found if found >= 512 and found & (found - 1) == 0 else None


def _has_newer_pages(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _checksum(content: bytes) -> bytes:
    """As SQLite's cksumvfs computes it: two sums over words of four bytes, each with the other."""
    one = two = 0
    words = iter(struct.unpack(f"<{len(content) // 4}I", content))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return struct.pack("<II", one, two)
