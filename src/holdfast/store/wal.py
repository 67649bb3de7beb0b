"""Distinguishes a -wal that a crash cut short from one that was damaged later.

After a crash SQLite reads the -wal up to the first frame that does not match its checksum, and assumes that
the rest is a commit that the crash cut short. A frame that was damaged later looks the same, and hides every
commit after it. But each commit is flushed before the next one begins: if frames follow a commit that SQLite
does not see, that commit was complete once.

Damage to the last commit looks the same as a commit that was cut short; so does damage to the salts of the
commit before it. The mark may detect these (see watermark.py).
"""

from __future__ import annotations

import struct

import apsw

_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">4I")
_HEADER_BYTES, _FRAME_BYTES = 32, 24
# The lowest bit of the magic number is the byte order of the checksums.
_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF


def is_filled(connection: apsw.Connection) -> bool:
    """Whether the -wal holds anything; it is empty after a clean stop."""
    connection.pragma("page_count")  # SQLite opens it when it first reads
    return connection.read("main", 1, 0, _HEADER_BYTES)[0]


def has_lost_commits(connection: apsw.Connection, seen: int) -> bool:
    """Whether the -wal holds commits after the frames that SQLite sees. No process may write meanwhile."""
    is_whole, header = connection.read("main", 1, 0, _HEADER_BYTES)
    if not is_whole:
        return False
    magic, _, page_size, _, *salts, sum1, sum2 = _HEADER.unpack(header)
    if magic & ~1 != _MAGIC or _checksum(header[:24], is_big=bool(magic & 1)) != (sum1, sum2):
        # A bad header: it is written before the first frame, so without frames a crash cut it short.
        return connection.read("main", 1, _HEADER_BYTES, _FRAME_BYTES)[0]
    has_commit, number = False, seen
    while True:
        offset = _HEADER_BYTES + number * (_FRAME_BYTES + page_size)
        is_whole, head = connection.read("main", 1, offset, _FRAME.size)
        if not is_whole:
            return False
        page, size_after, *frame_salts = _FRAME.unpack(head)
        # Frames from before the -wal was last reset have other salts.
        if frame_salts == salts and page:
            if has_commit:
                return True
            has_commit = size_after > 0
        number += 1


def _checksum(content: bytes, *, is_big: bool) -> tuple[int, int]:
    """SQLite's checksum of a header."""
    first = second = 0
    words = struct.unpack(f"{'>' if is_big else '<'}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
