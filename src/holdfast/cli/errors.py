"""Turns an error into one line on stderr and an exit status.

0 done · 1 failed · 2 usage · 3 refused · 4 not found · 5 gateway not reachable, or home in use; and, as
in shells, 130 when interrupted and 141 when the reader of our output closed the pipe.

With --json the error is also the one document on stdout: {"error": {"code": …, "message": …}}.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from holdfast.cli.output import MAX_REMARK_CHARS, Output
from holdfast.core.errors import (
    AmbiguousId,
    BadInput,
    Conflict,
    FeedGap,
    GatewaySilent,
    HoldfastError,
    HomeInUse,
    KeyProblem,
    NotFound,
    Refused,
    SettingsError,
)
from holdfast.views.errors import ErrorDocument, ErrorView
from holdfast.views.text import one_line

DONE, FAILED, USAGE, REFUSED, NOT_FOUND, NOT_REACHABLE = range(6)
INTERRUPTED = 130
PIPE_CLOSED = 141

# The first match decides.
_STATUS_OF: tuple[tuple[type[HoldfastError], int], ...] = (
    (HomeInUse, NOT_REACHABLE),
    (GatewaySilent, NOT_REACHABLE),
    (NotFound, NOT_FOUND),
    (FeedGap, NOT_FOUND),
    (AmbiguousId, USAGE),
    (BadInput, USAGE),
    (SettingsError, USAGE),
    (KeyProblem, USAGE),
    (Conflict, REFUSED),
    (Refused, REFUSED),
)


# The same for error codes that a gateway returns.
_STATUS_OF_WIRE = {
    "INVALID_REQUEST": USAGE,
    "REFUSED": REFUSED,
    "FORBIDDEN": REFUSED,
    "UNAUTHORIZED": REFUSED,
    "NOT_FOUND": NOT_FOUND,
    "RATE_LIMITED": NOT_REACHABLE,
}


def exit_status(error: HoldfastError) -> int:
    # An error from a gateway gets the same exit status as the same error here.
    if (wire_code := getattr(error, "wire_code", None)) is not None:
        return _STATUS_OF_WIRE.get(wire_code, FAILED)
    return next((status for kind, status in _STATUS_OF if isinstance(error, kind)), FAILED)


def report(error: Exception, *, as_json: bool, worded: Callable[[str], str] = str) -> int:
    """Print the error once, in the words of the call, and return the exit status."""
    match error:
        case HoldfastError():
            return _say(error.code, str(error), exit_status(error), as_json=as_json, worded=worded)
        case click.UsageError():
            return _say("usage", _usage(error), USAGE, as_json=as_json, worded=worded)
        case click.ClickException():
            return _say("failed", error.format_message(), FAILED, as_json=as_json, worded=worded)
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return _say(
                "os_error", f"{where}{error.strerror or error}", FAILED, as_json=as_json, worded=worded
            )
        case _:
            raise error


def _usage(error: click.UsageError) -> str:
    help_of = "holdfast" if error.ctx is None else error.ctx.command_path
    return f"{error.format_message()} (see `{help_of} --help`)"


def _say(code: str, message: str, status: int, *, as_json: bool, worded: Callable[[str], str]) -> int:
    message = one_line(worded(message), MAX_REMARK_CHARS)
    output = Output(as_json=as_json)
    if as_json:
        output.show(ErrorDocument(error=ErrorView(code=code, message=message)), lambda: None)
        sys.stdout.flush()
    output.say(f"holdfast: {message}")
    return status
