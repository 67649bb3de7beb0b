"""run.requires_restart: asked for once, waited for, and then done or refused, the same on every replay."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import RestartRefused
from holdfast.core.payload import clean_text, encode_payload
from holdfast.core.step import Step, failed_payload, failure_in_payload
from holdfast.core.task import Failure
from holdfast.engine.journal.codec import MAX_MESSAGE_CHARS, failure_of
from holdfast.engine.journal.scopes import Key, TaskHistory
from holdfast.engine.program.live_run import LiveRun
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.program.waits import Waits
from holdfast.store import Tx

# Why a run without a gateway is refused, and what helps.
CANNOT_RESTART = (
    "this process cannot restart itself: let a gateway run the task (`holdfast up`), use hf.serve, or give "
    "hf.open an on_restart="
)


class WantedRestart(msgspec.Struct, frozen=True, kw_only=True):
    """A run wants its process to restart. The same run that asks again has the same key."""

    key: str
    why: str
    task_id: str
    session_key: str | None


# Why the process does not restart; or None: it will, and the drain pauses the run that asked.
OnRestart: TypeAlias = Callable[[WantedRestart], Coroutine[Any, Any, str | None]]


def calling(on_restart: Callable[[str], object]) -> OnRestart:
    """Adapt a user's function, which is called with the reason and raises to refuse."""

    async def ask(asked: WantedRestart) -> str | None:
        try:
            answer = on_restart(asked.why)
            if inspect.isawaitable(answer):
                await answer
        except RestartRefused as refused:
            return refused.why
        except Exception as error:  # noqa: BLE001 - the user's own work
            failure = failure_of(error)
            return f"on_restart raised {failure.kind}: {failure.message}"
        return None

    return ask


class _Asked(msgspec.Struct, frozen=True, array_like=True):
    """What is journalled of the request before it is made."""

    boot_id: str
    key: str


class RestartRequests:
    """The restarts that one run asks for."""

    def __init__(self, live: LiveRun, past: TaskHistory, waits: Waits, on_restart: OnRestart | None) -> None:
        self._live = live
        self._past = past
        self._waits = waits
        self._on_restart = on_restart

    async def ask(self, key: Key, why: str) -> None:
        """Returns in another process than the one that was asked. Raises RestartRefused."""
        found = self._past.find(key)
        if found is None:
            asked = await self._asked(key)
            if asked.boot_id != self._live.place.life.id:
                # The process that was asked is gone, so it has restarted.
                found = await self._waits.note(key, encode_payload("result", None), lambda _tx: None)
            else:
                found = await self._refused(key, asked, await self._why_not(asked, why))
        if (failure := failure_in_payload(found.result)) is not None:
            refused = RestartRefused(failure.message)
            # A retry of the task asks again.
            refused.__holdfast_keys__ = (key,)  # type: ignore[attr-defined]
            raise refused

    async def _asked(self, key: Key) -> _Asked:
        live, (scope, name, occurrence) = self._live, key
        mark = (scope, f"{name}!asked", occurrence)
        found = self._past.find(mark)
        if found is None:
            digest = hashlib.blake2b("|".join(key).encode(), digest_size=8).hexdigest()
            new = _Asked(live.place.life.id, f"{live.run.id}:{digest}")
            found = await self._waits.note(mark, msgspec.json.encode(new), lambda _tx: None)
        return msgspec.json.decode(found.result, type=_Asked)

    async def _refused(self, key: Key, asked: _Asked, why_not: str) -> Step:
        """Journalled as the outcome of a step is; the session learns it in the same write."""
        live, now = self._live, self._live.clock.now()
        why_not = clean_text(why_not, max_chars=MAX_MESSAGE_CHARS)
        failure = Failure(kind=RestartRefused.code, message=why_not)

        def tell(tx: Tx) -> None:
            if live.task.session_key is not None:
                from holdfast.engine.conversation.transcripts import tell_refused_restart  # few have one

                tell_refused_restart(tx, live.task.session_key, live.task, why_not, key=asked.key, now=now)

        return await self._waits.note(key, failed_payload(failure), tell)

    async def _why_not(self, asked: _Asked, why: str) -> str:
        """Why the process does not restart. If it does, the drain pauses the run, and Stopping is raised."""
        live = self._live
        if self._on_restart is None:
            return CANNOT_RESTART
        # A restart would cut short what else this run does.
        await live.until_idle()
        live.check()
        ask = WantedRestart(key=asked.key, why=why, task_id=live.task.id, session_key=live.task.session_key)
        before, live.restart_why = live.restart_why, why
        try:
            why_not = await self._unless_stopped(self._on_restart(ask))
            while why_not is None:
                await self._until_told()
            return why_not
        finally:
            live.restart_why = before

    async def _unless_stopped(self, asking: Awaitable[str | None]) -> str | None:
        answer = asyncio.ensure_future(asking)
        try:
            while not answer.done():
                told = asyncio.ensure_future(self._until_told())
                try:
                    await asyncio.wait([answer, told], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    told.cancel()
                    await asyncio.gather(told, return_exceptions=True)
                self._check()
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
        return answer.result()

    async def _until_told(self) -> None:
        self._check()
        await self._live.until_change()
        self._check()

    def _check(self) -> None:
        """The run waits for a drain, so a drain is no reason to unwind until it has paused the run."""
        live = self._live
        if live.is_given_up or live.is_over or live.why not in (None, StopReason.DRAINING):
            live.check()
