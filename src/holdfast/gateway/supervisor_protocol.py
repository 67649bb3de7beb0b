"""The protocol between a gateway and its supervisor.

The variable HOLDFAST_SUPERVISED gives the gateway its sockets and two pipes. The first closes when the
supervisor dies; into the second the gateway writes its state, one line of JSON at a time. Its exit status
says what the supervisor must do: 0 stop, 75 start it again at once, 69 start it again when the ledger may be
back, 78 stop because the settings are invalid; every other status is a crash.
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
    # Read end of a pipe: end of file means that the supervisor is dead.
    life_fd: int
    # Write end of a pipe: one line of JSON for each word.
    tell_fd: int
    holds_resumes: bool = False
    why: str = "start"
    crashes: int = 0
    # Whether the supervisor logged recently that the ledger is away, so that the gateway need not.
    is_quiet: bool = False
    # What the gateway prints when it serves, because no supervisor does.
    announcement: str = ""
    # Settings that were given to `holdfast up` on its command line, by key.
    overrides: dict[str, str | int] = {}

    @property
    def fds(self) -> list[int]:
        unix = [] if self.unix_fd is None else [self.unix_fd]
        return [*self.tcp_fds, *unix, self.life_fd, self.tell_fd]


class GatewayReport(StrEnum):
    """What a gateway says about itself."""

    READY = "ready"
    ALIVE = "alive"
    DRAINING = "draining"
    HEALTHY = "healthy"
    # The run that crashed the previous gateway was found: it has ended, or it now runs alone until its
    # attempts are used up.
    QUARANTINED = "quarantined"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One line from the gateway."""

    event: GatewayReport


def read_supervised(environ: Mapping[str, str]) -> Supervised | None:
    """What the supervisor passed; None when there is none. Raises SettingsError when it cannot be read."""
    if not environ.get(VARIABLE):
        return None
    try:
        return msgspec.json.decode(environ[VARIABLE], type=Supervised)
    except msgspec.DecodeError as error:
        raise SettingsError(f"{VARIABLE} is not what a supervisor writes ({error}); unset it") from error


def line_of(word: GatewayReport) -> bytes:
    """A word as the supervisor reads it."""
    return msgspec.json.encode(Said(event=word)) + b"\n"
