"""Finds the items in a folder: repositories, installed packages and projects, with a first guess at each."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from holdfast.analysis.documents import path_text
from holdfast.analysis.manifests import is_manifest
from holdfast.analysis.packages import DIST_INFO
from holdfast.analysis.trees import SKIPPED_FOLDERS, SkippedFiles, read_regular, walk
from holdfast.core.campaign import Item
from holdfast.core.errors import BadInput
from holdfast.core.redaction import redact_name
from holdfast.views.text import one_line

# Repositories are often kept as host/owner/name.
MAX_DEPTH = 3
MAX_FOLDERS = 200_000
# A first look, not an analysis: more files are not counted.
LOOKED_AT = 2000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_RECORD_BYTES = 8 * 1024 * 1024
_DAY_S = 86_400
# What git itself looks for in a repository without a working tree.
_BARE = frozenset({"HEAD", "config", "objects", "refs"})

# The first rule that fits: which names in the top folder show what an item is.
_CATEGORIES: tuple[tuple[str, frozenset[str]], ...] = (
    ("platform", frozenset({"ansible.cfg", "Chart.yaml", "main.tf", "terragrunt.hcl"})),
    ("product", frozenset({"Dockerfile", "Procfile", "manage.py", "docker-compose.yml", "compose.yaml"})),
    ("documentation", frozenset({"mkdocs.yml", "book.toml", "_config.yml", "antora.yml"})),
)


class FoundFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is an item, and the names in it."""

    path: Path
    names: frozenset[str]


def find_items(
    folder: Path, *, artifacts: Path, now: datetime, on_bare: Callable[[Path], None] = lambda _path: None
) -> list[Item]:
    """The items in a folder. Raises BadInput if there are none, or if it cannot be read.

    `on_bare` is told of each bare repository: it has commits, but no files to look at, so it is no item.

    Priority by size and time: P0 has 100 files or more and one that changed within 90 days, P1 has 20 or more
    and one that changed within a year, P3 has no file that changed within three years, P2 is the rest. For
    installed packages, whose files have the time of their installation, by size alone: 300, 100 and 20 files.
    """
    items, taken, bare = [], set[str](), list[Path]()
    for found in _folders_in(folder.absolute()):
        if _is_bare(found):
            bare.append(found.path)
            on_bare(found.path)
            continue
        is_package = os.fsencode(found.path).endswith(DIST_INFO)
        name = found.path.name
        if is_package:
            name = name.removesuffix(".dist-info").rpartition("-")[0] or name
        fields = {"path": path_text(found.path), "artifacts": path_text(artifacts.absolute())}
        items.append(
            Item(
                id=item_id_of(name, found.path, taken),
                name=one_line(name, 100) or "unnamed",
                priority=_package_priority(found) if is_package else _priority(found, now),
                category=_package_category(found) if is_package else _category(found),
                fields=fields,
            )
        )
    if not items and bare:
        raise BadInput(
            "folder", f"there is nothing to analyse in {one_line(str(folder))}, but {bare_in_words(bare)}"
        )
    if not items:
        raise BadInput(
            "folder",
            f"there is no git repository, installed package or project in {one_line(str(folder))}; name the "
            "folder that contains them",
        )
    return sorted(items, key=lambda item: (item.priority, item.id))


def bare_in_words(bare: Sequence[Path]) -> str:
    """What they are, why they are no items, and how to analyse the first of them."""
    count = "1 bare repository" if len(bare) == 1 else f"{len(bare):,} bare repositories"
    first = shlex.quote(one_line(str(bare[0]), 4096))
    return f"{count} without files to look at; analyse a clone: git clone {first}"


def _folders_in(folder: Path) -> Iterator[FoundFolder]:
    """Items and bare repositories."""
    try:
        top = FoundFolder(path=folder, names=_names_in(folder))
    except OSError as error:
        raise BadInput("folder", f"{one_line(str(folder))}: {error.strerror}") from error
    if ".git" in top.names or _is_bare(top):
        yield top
        return
    waiting, looked_at = [(top, 0)], 0
    while waiting:
        above, depth = waiting.pop()
        for name in sorted(above.names):
            if os.fsencode(name) in SKIPPED_FOLDERS:
                continue
            place = above.path / name
            looked_at += 1
            try:
                if place.is_symlink() or not place.is_dir() or looked_at > MAX_FOLDERS:
                    continue
                found = FoundFolder(path=place, names=_names_in(place))
            except OSError:  # it is analysed all the same, and fails with the reason
                yield FoundFolder(path=place, names=frozenset())
                continue
            if _is_item(found) or _is_bare(found):
                yield found
            elif depth + 1 < MAX_DEPTH and not name.startswith("."):
                waiting.append((found, depth + 1))


def _names_in(folder: Path) -> frozenset[str]:
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in islice(entries, MAX_FOLDERS))


def _is_item(found: FoundFolder) -> bool:
    if found.path.name.endswith(".dist-info"):
        return "METADATA" in found.names
    return ".git" in found.names or any(map(is_manifest, found.names)) or "setup.py" in found.names


def _is_bare(found: FoundFolder) -> bool:
    return found.names >= _BARE and ".git" not in found.names


def item_id_of(name: str, path: Path, taken: set[str]) -> str:
    """A name that is an id as it is stays; another one gets a part of its digest. Ids differ by more than
    small and capital letters, because some file systems do not tell those apart."""
    item_id = name
    if not _ID.match(name) or redact_name(name) != name or name.lower() in taken:
        digest = hashlib.blake2b(os.fsencode(path), digest_size=5).hexdigest()
        plain = _NOT_IN_ID.sub("-", name.encode("ascii", "replace").decode()).strip("-._")[:60]
        item_id = f"{plain}-{digest}" if plain and redact_name(plain) == plain else f"item-{digest}"
    taken.add(item_id.lower())
    return item_id


def _priority(found: FoundFolder, now: datetime) -> str:
    files, newest = 0, 0
    for file in walk(os.fsencode(found.path), SkippedFiles(), max_entries=LOOKED_AT):
        files += 1
        newest = max(newest, file.modified_s)
    days = (now.timestamp() - newest) / _DAY_S
    if not files or days > 3 * 365:
        return "P3"
    if files >= 100 and days <= 90:
        return "P0"
    return "P1" if files >= 20 and days <= 365 else "P2"


def _package_priority(found: FoundFolder) -> str:
    record = _read(found.path / "RECORD")
    files = 0 if record is None else record.count(b"\n")
    return next((name for name, least in (("P0", 300), ("P1", 100), ("P2", 20)) if files >= least), "P3")


def _category(found: FoundFolder) -> str:
    for category, names in _CATEGORIES:
        if not names.isdisjoint(found.names):
            return category
    return "library" if any(map(is_manifest, found.names)) or "setup.py" in found.names else "other"


def _package_category(found: FoundFolder) -> str:
    points = _read(found.path / "entry_points.txt") if "entry_points.txt" in found.names else None
    return "tool" if points is not None and b"[console_scripts]" in points else "library"


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(os.fsencode(path), _MAX_RECORD_BYTES)
    except OSError:
        return None
