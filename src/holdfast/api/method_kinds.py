"""The kinds of RPC methods: reads, writes, changes with an audit entry, and what a limited token may call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.api import audit
from holdfast.api.contract import READ, WRITE, Caller, GatewayDoor
from holdfast.api.params import Params
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES

if TYPE_CHECKING:
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

T = TypeVar("T")
P = TypeVar("P", bound=Params)
V = TypeVar("V", bound=msgspec.Struct)

Called = Callable[[GatewayDoor, Any, Caller], Awaitable[msgspec.Struct]]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method. Unknown parameters are refused, and the answer is a view."""

    name: str
    scope: str
    params: type[Params]
    answer: type[msgspec.Struct]
    call: Called
    summary: str
    # Whether a token limited to an owner or to task names may call it; the method then sees and changes only
    # tasks that the token may reach.
    is_owned: bool = False
    # Whether it is available only on the unix socket: a token cannot create tokens.
    is_local: bool = False
    # Whether its calls are in the audit log.
    is_audited: bool = False
    # For `agent`, on a WebSocket: what follows its answer, as a second response with the same id.
    finish: Called | None = None


def reads(name: str, params: type[P], answer: type[V], read: Callable[[Tx, P], V], summary: str) -> Method:
    """A method that reads a snapshot of the ledger."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:  # noqa: ARG001 - the signature of every method
        return await gateway.store.read(partial(read, asked=asked))  # type: ignore[call-arg]

    return calls(name, READ, params, answer, call, summary)


def writes(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write: durable before the answer, and idempotent."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        return await run_write(gateway, name, writing, asked, caller)

    return audited(name, params, answer, call, summary)


def reads_own(name: str, params: type[P], answer: type[V], read: Callable[..., V], summary: str) -> Method:
    """A method that reads only the tasks that the caller may reach."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        return await gateway.store.read(lambda tx: read(tx, asked, reach=caller.reach))

    return calls(name, READ, params, answer, call, summary, is_owned=True)


def shows_own(name: str, params: type[P], answer: type[V], read: Callable[..., V], summary: str) -> Method:
    """The same for tasks that are shown with a projected status."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        projection = gateway.projection()
        return await gateway.store.read(lambda tx: read(tx, asked, reach=caller.reach, projection=projection))

    return calls(name, READ, params, answer, call, summary, is_owned=True)


def writes_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write to a task that the caller may reach."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        return await run_write(gateway, name, writing, asked, caller, reach=caller.reach)

    return audited(name, params, answer, call, summary, is_owned=True)


def reports_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """The same without an audit entry: producers call it every few seconds, and it decides nothing."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        now = gateway.clock.now()
        return await gateway.store.write(writing(asked, now=now, reach=caller.reach))

    return calls(name, WRITE, params, answer, call, summary, is_owned=True)


def decides(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write that records who decided: the authenticated caller."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        return await run_write(gateway, name, writing, asked, caller, by=caller.who)

    return audited(name, params, answer, call, summary)


async def run_write(
    gateway: GatewayDoor,
    name: str,
    writing: Callable[..., Write[T]],
    asked: Params,
    caller: Caller,
    **more: object,
) -> T:
    """Run the write of a method and its audit entry in one transaction, and return its answer.

    The write never runs on the event loop, because it may search a long value for secrets. For the same
    reason, long parameters are checked in a thread.
    """
    now = gateway.clock.now()
    checked = partial(writing, asked, now=now, **more)
    write = await asyncio.to_thread(checked) if _is_long(asked) else checked()
    write = audit.recorded(write, caller.actor, name, asked, now=now)

    def write_beside(tx: Tx) -> T:
        tx.sealing.leave_loop()
        return write(tx)

    return await gateway.store.write(write_beside)


def _is_long(asked: Params) -> bool:
    try:
        return len(msgspec.json.encode(asked)) > REDACT_OFF_LOOP_BYTES
    except (ValueError, OverflowError, RecursionError):
        return True  # the check in the thread reports the error


def calls(
    name: str,
    scope: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    call: Called,
    summary: str,
    *,
    is_owned: bool = False,
    is_local: bool = False,
) -> Method:
    return Method(
        name=name,
        scope=scope,
        params=params,
        answer=answer,
        call=call,
        summary=summary,
        is_owned=is_owned,
        is_local=is_local,
    )


def audited(
    name: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    call: Called,
    summary: str,
    *,
    scope: str = WRITE,
    is_owned: bool = False,
    is_local: bool = False,
) -> Method:
    """A method that writes its own entry of the audit log."""
    plain = calls(name, scope, params, answer, call, summary, is_owned=is_owned, is_local=is_local)
    return msgspec.structs.replace(plain, is_audited=True)


def acts(
    name: str,
    scope: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    act: Called,
    summary: str,
    *,
    is_owned: bool = False,
    is_local: bool = False,
) -> Method:
    """A method of several writes, or one that ends the process: its audit entry is written first."""

    async def call(gateway: GatewayDoor, asked: Any, caller: Caller) -> msgspec.Struct:
        if not getattr(asked, "is_dry_run", False):
            await gateway.audit.record(audit.asking(caller.actor, name, asked, now=gateway.clock.now()))
        return await act(gateway, asked, caller)

    return audited(name, params, answer, call, summary, scope=scope, is_owned=is_owned, is_local=is_local)
