"""The folder `state/` of a home: atomic files, one writer at a time, and a swap of the whole.

    state/campaigns -> .tree-0123456789abcdef     all campaigns, one folder each
    state/progress  -> campaigns/rd-os/progress   the newest campaign, under the names of seed 002

The links are replaced atomically, so a reader finds the old files or the new ones, never none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from holdfast import trust
from holdfast.core.errors import BadInput, HomeUnusable

FOLDER = "state"
CAMPAIGNS = "campaigns"
# What the seed has at the top: links into the folder of the newest campaign.
SEED_FOLDERS = ("agent-states", "progress", "checkpoints", "memory", "artifacts")
_LOCK = ".lock"
_TREE = re.compile(r"\.tree-[0-9a-f]{16}\Z")
_UNFINISHED = ".unfinished"
# Names of campaigns, items, phases and checkpoints, with an ending. Ids are checked when they are stored;
# checked again here, because a name with a slash would lead out of the folder.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_POSITION = re.compile(r"\.position\.json\Z")


def folder_of(home: Path) -> Path:
    return home / FOLDER


class FileTree:
    """The state files of one home."""

    def __init__(self, home: Path) -> None:
        self.root = folder_of(home)

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Whether this process is the only writer until the end of the block; at once, without waiting.

        Raises HomeUnusable.
        """
        with _explained(self.root):
            _make_folder(self.root)
            lock = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                yield False
                return
            yield True
        finally:
            os.close(lock)

    def current(self) -> TreeFolder | None:
        """The files that readers see now."""
        try:
            name = os.readlink(self.root / CAMPAIGNS)  # noqa: PTH115 - a text is needed, not a path
        except OSError:
            return None
        path = self.root / name
        return TreeFolder(path) if _TREE.match(name) and path.is_dir() and not path.is_symlink() else None

    def create(self) -> TreeFolder:
        """An empty folder that no reader sees yet. Raises HomeUnusable."""
        with _explained(self.root):
            path = self.root / f".tree-{secrets.token_hex(8)}"
            path.mkdir(mode=0o700)
        return TreeFolder(path)

    def show(self, tree: TreeFolder) -> None:
        """Readers see this folder from now on; the others are removed. Raises HomeUnusable."""
        with _explained(self.root):
            _link(self.root / CAMPAIGNS, tree.path.name)
            self.tidy()

    def show_newest(self, campaign: str) -> None:
        """The names of the seed lead to this campaign. Raises HomeUnusable."""
        with _explained(self.root):
            for name in SEED_FOLDERS:
                _link(self.root / name, f"{CAMPAIGNS}/{_checked(campaign)}/{name}")

    def tidy(self) -> None:
        """Remove what a process left behind that was killed while it wrote."""
        now = self.current()
        for path in self.root.iterdir():
            is_old_tree = _TREE.match(path.name) and (now is None or path != now.path)
            if is_old_tree and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.endswith(_UNFINISHED):
                path.unlink(missing_ok=True)
        if now is not None:
            shutil.rmtree(now.path / _UNFINISHED, ignore_errors=True)


class TreeFolder:
    """The files of all campaigns in one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: set[Path] = set()

    def write(self, content: bytes, *names: str) -> bool:
        """Write a file atomically, unless it has this content; returns whether it was written.

        Raises HomeUnusable."""
        path = self.path_of(*names)
        if _content_of(path) == content:
            return False
        with self.replacing(*names) as file:
            _write_all(file, content)
        return True

    @contextlib.contextmanager
    def replacing(self, *names: str) -> Iterator[int]:
        """A new file, for the body to write, that takes the place of this one if the body succeeds.

        It is not synced to disk: after a power cut the files are compared with the ledger, and mended.
        """
        path = self.path_of(*names)
        unfinished = self.path / _UNFINISHED
        with _explained(path):
            self._make(unfinished)
            self._make(path.parent)
            made = unfinished / secrets.token_hex(8)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                file = os.open(made, flags, 0o600)
                try:
                    yield file
                finally:
                    os.close(file)
                os.replace(made, path)  # noqa: PTH105 - an error names both
            except BaseException:
                # The folder may have been removed; then it is made again for the next file.
                self._made.clear()
                with contextlib.suppress(OSError):
                    made.unlink()
                raise

    def read(self, *names: str) -> bytes | None:
        """The content of a file; None if there is none, or it cannot be read."""
        return _content_of(self.path_of(*names))

    def names_in(self, *names: str) -> list[str]:
        """The names of the files and folders in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(os.listdir(self.path_of(*names)))  # noqa: PTH208 - names are needed, not paths
        except OSError:
            return []

    def path_of(self, *names: str) -> Path:
        """Raises BadInput for a name that could lead out of the folder."""
        return self.path.joinpath(*map(_checked, names))

    def make_folders(self, campaign: str) -> None:
        """Raises HomeUnusable."""
        with _explained(self.path):
            for name in SEED_FOLDERS:
                self._make(self.path_of(campaign, name))

    def take_over(self, old: TreeFolder, campaign: str) -> int:
        """Copy what cannot be made again: logs of days whose events are gone, and snapshots of milestones.

        Returns how many files that were. Raises HomeUnusable."""
        files: list[tuple[str, ...]] = [
            (campaign, "memory", name) for name in old.names_in(campaign, "memory")
        ]
        files += [
            (campaign, "checkpoints", name, "snapshot.json") for name in old.names_in(campaign, "checkpoints")
        ]
        copied = 0
        for names in files:
            content = old.read(*names)
            if content:
                copied += self.write(content, *names)
        return copied

    def _make(self, folder: Path) -> None:
        if folder not in self._made:
            if folder != self.path:
                self._make(folder.parent)
            _make_folder(folder)
            self._made.add(folder)


def _checked(name: str) -> str:
    if not _NAME.match(name) and not _POSITION.match(name):
        raise BadInput("state file", f"{name[:80]!r} is no name of a file")
    return name


def _make_folder(folder: Path) -> None:
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "it is a link", str(folder))
    if not folder.is_dir():
        trust.make_private_directory(folder)


def _link(link: Path, target: str) -> None:
    """Raises OSError if something that is no link has its name."""
    if link.is_symlink() and os.readlink(link) == target:  # noqa: PTH115 - a text is needed
        return
    made = link.with_name(f".{link.name}.{secrets.token_hex(8)}{_UNFINISHED}")
    made.symlink_to(target)
    try:
        os.replace(made, link)  # noqa: PTH105 - an error names both
    except OSError:
        made.unlink()
        raise


def _content_of(path: Path) -> bytes | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        try:
            return opened.read()
        except OSError:
            return None


def _write_all(file: int, content: bytes) -> None:
    with os.fdopen(file, "wb", closefd=False) as opened:
        opened.write(content)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HomeUnusable(
            f"state files: {path} cannot be written: {error.strerror or error}; they are written as soon as "
            "it can be, and no work waits for them"
        ) from error
