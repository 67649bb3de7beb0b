"""Installed Python packages: the files that pip recorded, the version, and what the package requires."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Iterator

import msgspec

from holdfast.analysis.trees import MAX_ENTRIES, SKIPPED_FOLDERS, SkippedFiles, TreeFile, read_regular
from holdfast.core.errors import BadInput

DIST_INFO = b".dist-info"
_MAX_RECORD_BYTES = 32 * 1024 * 1024
_MAX_METADATA_BYTES = 4 * 1024 * 1024


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of METADATA that matter here."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


def read_metadata(folder: bytes) -> Metadata:
    """What the package says of itself. Raises BadInput."""
    head = _text(folder, b"METADATA", _MAX_METADATA_BYTES).partition("\n\n")[0]
    fields: dict[str, list[str]] = {}
    for line in head.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line[:1].isspace():
            fields.setdefault(name.lower(), []).append(value.strip())
    return Metadata(
        name=fields.get("name", [""])[0],
        version=fields.get("version", [""])[0],
        requires=tuple(fields.get("requires-dist", ())),
    )


def recorded_files(folder: bytes, skipped: SkippedFiles) -> Iterator[TreeFile]:
    """The files that belong to the package, below the directory where it is installed."""
    root = os.path.realpath(os.path.dirname(folder))  # noqa: PTH120 - bytes, which Path refuses
    text = _text(folder, b"RECORD", _MAX_RECORD_BYTES)
    inside: dict[bytes, bool] = {}
    rows = csv.reader(text.splitlines())
    try:
        for number, row in enumerate(rows):
            if number >= MAX_ENTRIES:
                skipped.is_cut = True
                return
            if row:
                file = _recorded(root, os.fsencode(row[0]), inside, skipped)
                if file is not None:
                    yield file
    except csv.Error as error:
        raise BadInput("RECORD", f"it cannot be read: {error}") from error


def _recorded(
    root: bytes, relative: bytes, inside: dict[bytes, bool], skipped: SkippedFiles
) -> TreeFile | None:
    above, _, _ = relative.rpartition(b"/")
    parts = above.split(b"/")
    if b"__pycache__" in parts or relative.startswith((b"../", b"/")):
        return None  # compiled files, and scripts outside
    if not SKIPPED_FOLDERS.isdisjoint(parts):
        skipped.vendored_folders += above not in inside
        inside[above] = False
        return None
    if above not in inside:
        # A link on the way would lead out of the package.
        place = os.path.realpath(os.path.join(root, above))  # noqa: PTH118 - bytes
        inside[above] = place == root or place.startswith(root + b"/")
        skipped.links += not inside[above]
    if not inside[above]:
        return None
    path = os.path.join(root, relative)  # noqa: PTH118 - bytes
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        skipped.unreadable += 1
        return None
    if not stat.S_ISREG(found.st_mode):
        skipped.links += stat.S_ISLNK(found.st_mode)
        skipped.special += not stat.S_ISLNK(found.st_mode)
        return None
    return TreeFile(path, relative, found.st_size, int(found.st_mtime))


def _text(folder: bytes, name: bytes, max_bytes: int) -> str:
    shown = name.decode()
    try:
        content = read_regular(os.path.join(folder, name), max_bytes)  # noqa: PTH118 - bytes
    except OSError as error:
        raise BadInput("package", f"its {shown} cannot be read: {error.strerror}") from error
    if content is None:
        raise BadInput("package", f"its {shown} has more than {max_bytes:,} bytes")
    return content.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
