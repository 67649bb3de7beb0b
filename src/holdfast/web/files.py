"""StaticFiles: the scripts and styles of the pages, read once from the package."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A file with its digest in the address never changes.
KEPT = "private, max-age=31536000, immutable"


class StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the pages, with its digest."""

    content: bytes
    media_type: str
    digest: str

    def headers(self, digest: str | None) -> dict[str, str]:
        keep = KEPT if digest == self.digest else "no-cache"
        return {"content-type": self.media_type, "cache-control": keep}


class StaticFiles:
    """All files below web/static, by their path there; no other file can be named."""

    def __init__(self) -> None:
        self._found = dict(_read(files("holdfast.web").joinpath("static"), ""))

    def find(self, path: str) -> StaticFile | None:
        return self._found.get(path)

    def address(self, path: str) -> str:
        """Where a page finds the file; another address for each version of it."""
        return f"/dashboard/static/{path}?v={self._found[path].digest}"


def _read(folder: Traversable, above: str) -> list[tuple[str, StaticFile]]:
    found: list[tuple[str, StaticFile]] = []
    for entry in folder.iterdir():
        path = f"{above}{entry.name}"
        if entry.is_dir():
            found += _read(entry, f"{path}/")
        elif (media_type := MEDIA_TYPES.get(f".{path.rpartition('.')[2]}")) is not None:
            content = entry.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:12]
            found.append((path, StaticFile(content=content, media_type=media_type, digest=digest)))
    return found
