"""logs.tail: the end of the gateway's log file, redacted, and what was added since."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.params import Params
from holdfast.core.errors import Refused
from holdfast.core.redaction import redact_text
from holdfast.gateway.log_file import LOG_NAME
from holdfast.views.openclaw_gateway import LogTailView

if TYPE_CHECKING:
    from holdfast.api.contract import Caller, GatewayDoor


class LogsAsked(Params, frozen=True, kw_only=True):
    """The last lines, or those after the `cursor` of an earlier answer."""

    cursor: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 500
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 250_000


async def tail(gateway: GatewayDoor, asked: LogsAsked, caller: Caller) -> LogTailView:  # noqa: ARG001 - a method
    # In a thread: a file may be slow, and redaction takes its time.
    return await asyncio.to_thread(read_tail, gateway.home / LOG_NAME, asked)


def read_tail(path: Path, asked: LogsAsked) -> LogTailView:
    """Whole lines only; a line that is being written comes with the next call."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return LogTailView(file=LOG_NAME, cursor=0, size=0, lines=[], reset=bool(asked.cursor))
    except OSError as error:
        raise Refused(f"the log file cannot be read: {error.strerror}; see {LOG_NAME} in the home") from error
    with os.fdopen(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        is_reset = asked.cursor is not None and asked.cursor > size
        start = 0 if asked.cursor is None or is_reset else asked.cursor
        is_cut = size - start > asked.max_bytes
        if is_cut:
            start = size - asked.max_bytes
        # From the byte before: if it ends a line, the first line is whole.
        opened.seek(max(0, start - 1))
        text = opened.read(size - max(0, start - 1))
    if start:
        before, _, text = text.partition(b"\n")
        start += len(before)
    whole = text.rfind(b"\n") + 1
    lines = text[:whole].splitlines()
    shown = lines[-asked.limit :]
    return LogTailView(
        file=LOG_NAME,
        cursor=start + whole,
        size=size,
        lines=[redact_text(line.decode("utf-8", "replace")) for line in shown],
        truncated=is_cut or len(shown) < len(lines),
        reset=is_reset,
    )
