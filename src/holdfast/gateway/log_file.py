"""The log file of the gateway: one line of JSON for each record, of the supervisor and of the gateway."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.core.redaction import redact_text

LOG_NAME = "log/gateway.log"
# The file is replaced when it is longer; one older file is kept beside it.
MAX_LOG_BYTES = 5_000_000
MAX_LINE_CHARS = 10_000
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the log."""

    # ISO 8601, in UTC.
    time: str
    level: str
    message: str


class LogWriter(logging.Handler):
    """Appends to the log file in a home. Two processes may: the gateway replaces a file that is too long, and
    the supervisor then continues in the new one."""

    def __init__(self, home: Path, *, replaces: bool, max_bytes: int = MAX_LOG_BYTES) -> None:
        super().__init__()
        self._path = home / LOG_NAME
        self._replaces = replaces
        self._max_bytes = max_bytes
        self._file: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """A line that cannot be written is on stderr, too: a full disk must not stop the gateway."""
        try:
            os.write(self._opened(), self._line(record))
        except OSError:
            pass
        except Exception:  # noqa: BLE001 - a line that cannot be formatted must not fail the code that logs it
            self.handleError(record)

    def close(self) -> None:
        self._let_go()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        # Redact before cutting: half of a secret would not be found.
        text = redact_text(self.format(record))[:MAX_LINE_CHARS]
        # The name of a file may hold bytes that are no text.
        text = text.encode("utf-8", "replace").decode()
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = LogLine(time=time, level=record.levelname.lower(), message=text)
        return msgspec.json.encode(line) + b"\n"

    def _opened(self) -> int:
        """The file that has the name now."""
        if self._file is not None:
            held = os.fstat(self._file)
            try:
                named = self._path.stat(follow_symlinks=False)
            except FileNotFoundError:
                named = None
            if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
                self._let_go()
            elif self._replaces and held.st_size > self._max_bytes:
                self._path.replace(self._path.with_suffix(".log.1"))
                self._let_go()
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = os.open(self._path, _FLAGS, 0o600)
        return self._file

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
