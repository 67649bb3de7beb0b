"""A tool with which an agent asks its own gateway to restart, and learns what that would interrupt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

import msgspec

from holdfast.core.errors import BadInput, NotInRun
from holdfast.core.payload import check_text
from holdfast.core.session import agent_of
from holdfast.core.step_declarations import DidNotHappen, Happened, Verdict, tool, verifiable
from holdfast.tools.inputs import current_key


class RestartAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer. If it was refused, it lists what else would be interrupted, so that the agent can decide:
    each by the key of its session, or by the id of its task if it has no session of its own."""

    is_accepted: bool
    why: str | None = None
    would_interrupt: tuple[str, ...] = ()


class RestartDoor(Protocol):
    """The gateway that runs this task, as the tool sees it."""

    async def ask(
        self, key: str, reason: str, *, force: bool, session_key: str | None, continuation: str | None
    ) -> RestartAsked: ...

    async def asked(self, key: str) -> RestartAsked | None:
        """The answer to an earlier call with this key; None when there was none."""


# The gateway that runs the present task; asyncio tasks and threads inherit it, so two gateways in one process
# do not meet.
_gateway: ContextVar[RestartDoor | None] = ContextVar("holdfast_gateway", default=None)


@contextlib.contextmanager
def restarting_through(door: RestartDoor) -> Iterator[None]:
    """Runs that start inside the block, also in other asyncio tasks, ask this gateway to restart."""
    token = _gateway.set(door)
    try:
        yield
    finally:
        _gateway.reset(token)


def _door() -> RestartDoor:
    door = _gateway.get()
    if door is None:
        raise NotInRun("restart_gateway", "a run of a gateway: start one with `holdfast up`")
    return door


async def _verify_restart(
    reason: str, force: bool = False, session_key: str | None = None, continuation: str | None = None
) -> Verdict:
    del reason, force, session_key, continuation
    asked = await _door().asked(current_key())
    return DidNotHappen() if asked is None else Happened(asked)


@tool(
    effect=verifiable(_verify_restart, did_not_happen=(BadInput, NotInRun)),
    name="restart_gateway",
    raises=(BadInput, NotInRun),
)
async def restart_gateway(
    reason: str, force: bool = False, session_key: str | None = None, continuation: str | None = None
) -> RestartAsked:
    """Ask the gateway that runs this task to restart, once for each effect.

    The readiness gate may refuse: then the answer lists what else would be interrupted, and the agent decides
    whether to ask again with `force`. Once accepted, this run is paused at its next call and goes on after
    the restart; a `continuation` comes back as the next message of `session_key`.
    """
    check_text("reason", reason)
    if continuation is not None:
        check_text("continuation", continuation)
        if session_key is None:
            raise BadInput("session_key", "name the session that the continuation goes to")
    if session_key is not None:
        agent_of(session_key)  # raises for a key without an agent: no agent would get the continuation
    return await _door().ask(
        current_key(), reason, force=force, session_key=session_key, continuation=continuation
    )
