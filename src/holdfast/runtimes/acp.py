"""The runtime of ACP sessions: it asks their agent to stop with `session/cancel`, over the agent's stdio.

The Agent Client Protocol is JSON-RPC, one message per line. Only the process that started an agent can write
to it, so a program or a plug-in that starts agents registers this runtime with the connections that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.core.recorded import RecordedWork
from holdfast.core.task import RuntimeName
from holdfast.engine.producers.contract import (
    Alive,
    Dead,
    LifeAnswer,
    NotMine,
    ReattachAnswer,
    Reattached,
    StopAnswer,
    WorkLost,
    WorkStopped,
)

# The beginning of the `reference` of a record, before the id of its ACP session.
ACP_REFERENCE = "acp:"


class AcpConnection(Protocol):
    """A connection to the agent of an ACP session."""

    async def notify(self, method: str, params: dict[str, object]) -> None:
        """Send a JSON-RPC notification. Raises OSError if the agent is gone."""
        ...

    def why_closed(self) -> str | None:
        """None while the agent can be reached."""
        ...


class StdioConnection:
    """An agent that is a child of this process, and reads JSON-RPC from its standard input."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """The child must have been started with a pipe as its standard input."""
        self._process = process

    async def notify(self, method: str, params: dict[str, object]) -> None:
        writer = self._process.stdin
        if writer is None:
            raise BrokenPipeError("the agent was started without a pipe as its standard input")
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        writer.write(msgspec.json.encode(message) + b"\n")
        await writer.drain()

    def why_closed(self) -> str | None:
        code = self._process.returncode
        return None if code is None else f"the agent (process {self._process.pid}) has ended with {code}"


class AcpRuntime:
    """Cancels ACP sessions whose agents this process can reach, and knows whether they are alive."""

    name = "acp"

    def __init__(self, find: Callable[[str], AcpConnection | None]) -> None:
        """`find` returns the connection of an ACP session by its id; None if this process has none."""
        self._find = find

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - the protocol sends none
        session_id, connection = self._connection(work)
        if connection is None:
            return NotMine()
        if connection.why_closed() is None:
            try:
                # A notification: the agent answers its open prompt with the stop reason `cancelled`.
                await connection.notify("session/cancel", {"sessionId": session_id})
            except OSError:
                if connection.why_closed() is None:
                    raise  # it may still run, so its record must not end
        return WorkStopped()

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        _, connection = self._connection(work)
        if connection is None:
            return NotMine()
        why = connection.why_closed()
        return Alive() if why is None else Dead(why=why)

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        match await self.is_alive(work):
            case Alive():
                return Reattached()
            case Dead(why=why):
                return WorkLost(why=why)
        return NotMine()

    def _connection(self, work: RecordedWork) -> tuple[str, AcpConnection | None]:
        session_id = acp_session_of(work)
        return ("", None) if session_id is None else (session_id, self._find(session_id))


def acp_session_of(work: RecordedWork) -> str | None:
    """The id of the ACP session: the record's reference `acp:ID`, else its child session."""
    if work.task.runtime is not RuntimeName.ACP or work.details is None:
        return None
    reference = work.details.reference or ""
    if reference.startswith(ACP_REFERENCE):
        return reference.removeprefix(ACP_REFERENCE) or None
    return work.details.child_session_key
