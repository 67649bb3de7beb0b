"""What a gateway and its supervisor say to each other.

The gateway gets, in HOLDFAST_SUPERVISED, the sockets, the end of a pipe that is closed by the supervisor's
death, and the end of another into which it says, line by line, how it is. Its exit status says what it
wants: 0 to stop, 75 to be started again at once, 69 to be started again when the ledger may be back, 78 that
its settings are unusable; everything else is a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from holdfast.core.errors import SettingsError

VARIABLE = "HOLDFAST_SUPERVISED"
STOPPED = 0
LEDGER_AWAY = 69
WANTS_RESTART = 75
SETTINGS_UNUSABLE = 78


class Supervised(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway learns from its supervisor, in HOLDFAST_SUPERVISED."""

    tcp_fds: list[int]
    unix_fd: int | None
    # The end to read of a pipe: its end means that the supervisor is dead.
    life_fd: int
    # The end to write of a pipe: one line of JSON for each word.
    tell_fd: int
    holds_resumes: bool = False
    why: str = "start"
    crashes: int = 0
    # Whether it was said a short while ago that the ledger is away, so that the gateway need not say it.
    is_quiet: bool = False
    # What the gateway prints when it serves, because no supervisor does.
    announcement: str = ""

    @property
    def fds(self) -> list[int]:
        unix = [] if self.unix_fd is None else [self.unix_fd]
        return [*self.tcp_fds, *unix, self.life_fd, self.tell_fd]


class Word(StrEnum):
    """What a gateway says about itself."""

    READY = "ready"
    ALIVE = "alive"
    DRAINING = "draining"
    HEALTHY = "healthy"
    # The run that killed the life before was found: it ended, or it is carried alone until its attempts are
    # spent.
    QUARANTINED = "quarantined"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One line from the gateway."""

    event: Word


def read_supervised(environ: Mapping[str, str]) -> Supervised | None:
    """What our supervisor says; None when there is none. Raises SettingsError when it makes no sense."""
    if not environ.get(VARIABLE):
        return None
    try:
        return msgspec.json.decode(environ[VARIABLE], type=Supervised)
    except msgspec.DecodeError as error:
        raise SettingsError(f"{VARIABLE} is not what a supervisor writes ({error}); unset it") from error


def line_of(word: Word) -> bytes:
    """A word as the supervisor reads it."""
    return msgspec.json.encode(Said(event=word)) + b"\n"
