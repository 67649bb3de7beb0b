"""A disk that fails when it is told to: full, broken, or half-way through a write. Any user may have one."""

from __future__ import annotations

from typing import Literal

import apsw

from holdfast.store import checksums

NAME = "holdfast-test"
Failure = Literal["full", "write error", "sync error", "short write", "read error"]

_WRITES = frozenset({"full", "write error", "short write"})


class Disk(apsw.VFS):
    """SQLite's way to its files while it is plugged in; the real disk behind it stays as it is."""

    def __init__(self) -> None:
        self.calls = 0
        self._failure: Failure | None = None
        self._from_call = 0
        self._times = 0
        # Between SQLite and its checksums: what a failing disk lets through has the right ones.
        self.below = checksums.vfs() or "unix"
        super().__init__(NAME, self.below)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def unplug(self) -> None:
        self.unregister()

    def fail(self, failure: Failure, *, after: int = 0, times: int = 10**9) -> None:
        """From now on (after so many good calls) every call that it concerns fails, so many times."""
        self._failure, self._from_call, self._times = failure, self.calls + after, times

    def mend(self) -> None:
        self._failure = None

    def passes(self, kind: Literal["write", "sync", "read"]) -> Failure | None:
        """Count one call; what shall become of it."""
        self.calls += 1
        failure = self._failure
        if failure is None or self.calls <= self._from_call or self._times <= 0:
            return None
        concerned = "write" if failure in _WRITES else failure.split()[0]
        if concerned != kind:
            return None
        self._times -= 1
        return failure


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.below, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        match self._disk.passes("write"):
            case "short write":
                super().xWrite(data[: len(data) // 2], offset)
                raise apsw.FullError("the disk is full in the midst of a write")
            case "full":
                raise apsw.FullError("no space left on device")
            case "write error":
                raise _io_error(apsw.SQLITE_IOERR_WRITE)
            case _:
                super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.passes("sync") is not None:
            raise _io_error(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self._disk.passes("read") is not None:
            raise _io_error(apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)


def _io_error(code: int) -> apsw.IOError:
    error = apsw.IOError("input/output error")
    error.extendedresult = code  # type: ignore[attr-defined] # what SQLite is told
    return error
