"""Whether recorded work is alive: what a runtime can say about it, and how long it may be silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.payload import decode_payload
from holdfast.core.recorded import RecordedDetails, RecordedWork
from holdfast.core.redaction import redact_text
from holdfast.core.run import RunRecord
from holdfast.core.task import Failure, RuntimeName, Task
from holdfast.core.transitions import RunStatus, is_terminal
from holdfast.engine.ledger.ledger import checked_failure
from holdfast.engine.producers.contract import (
    Ended,
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    Runtime,
)

T = TypeVar("T")

LOST_AFTER = timedelta(minutes=5)
# A subagent without a session of its own reports only at its end, so it may be silent for longer.
CHILDLESS_AFTER = timedelta(minutes=30)
# How long one runtime may take to answer, and how long it is left alone if it does not.
PROOF_TIMEOUT_S = 10.0
REST_S = 30.0
MAX_LOOKED_AT = 16_000
MAX_MESSAGE_CHARS = 1000


class Proofs(Protocol):
    """What the runtimes of a process know about recorded work."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        """Asked before the work is declared lost; it changes nothing. If it raises, the work is left alone
        until the next sweep."""
        ...

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        """The last chance of the runtime: it may find the work again, or start it again."""
        ...


class NoProofs:
    """For a process without runtimes: it cannot tell of any work."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002 - the shape of proofs
        return LifeUnknown()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002 - the shape of proofs
        return NotMine()


class RuntimeProofs:
    """Asks each runtime in turn, until one of them controls the work.

    A runtime that raises or hangs may be the one that controls the work. The others are asked all the same,
    and if none of them controls it, the error is raised: the work is not declared lost.
    """

    def __init__(self, runtimes: Sequence[Runtime]) -> None:
        self._runtimes = runtimes
        # Until when a runtime that did not answer is not asked again, in the time of the event loop.
        self._rests_until: dict[str, float] = {}

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        async def ask(runtime: Runtime) -> LifeAnswer:
            answer = await runtime.is_alive(work)
            return checked_end(answer) if isinstance(answer, Ended) else answer

        return await self._first_answer(ask)

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        return await self._first_answer(lambda runtime: runtime.reattach(work))

    async def _first_answer(self, ask: Callable[[Runtime], Coroutine[None, None, T]]) -> T | NotMine:
        failed: Exception | None = None
        for runtime in self._runtimes:
            try:
                answer = await self._ask_in_time(runtime, ask)
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; raised again below
                failed = failed or error
                continue
            if not isinstance(answer, NotMine):
                return answer
        if failed is not None:
            raise failed
        return NotMine()

    async def _ask_in_time(self, runtime: Runtime, ask: Callable[[Runtime], Coroutine[None, None, T]]) -> T:
        loop = asyncio.get_running_loop()
        if loop.time() < self._rests_until.get(runtime.name, 0.0):
            raise TimeoutError(f"the runtime {runtime.name} did not answer a moment ago")
        try:
            async with asyncio.timeout(PROOF_TIMEOUT_S):
                return await ask(runtime)
        except TimeoutError:
            self._rests_until[runtime.name] = loop.time() + REST_S
            raise TimeoutError(
                f"the runtime {runtime.name} did not answer in {PROOF_TIMEOUT_S:g} s"
            ) from None


def checked_end(answer: Ended) -> Ended:
    """The end that a runtime knows, fit to be stored. Raises BadInput: a plug-in may say anything."""
    outcome = answer.outcome
    if not is_terminal(outcome.status):
        raise BadInput("outcome", f"{outcome.status.value} is not an end")
    if outcome.result is not None:
        decode_payload(outcome.result)
    failure = outcome.failure
    if failure is None and outcome.status is not RunStatus.SUCCEEDED:
        failure = Failure(kind=outcome.status.value, message=answer.why)
    if failure is not None:
        failure = checked_failure(msgspec.structs.replace(failure, message=_brief(failure.message)))
    return msgspec.structs.replace(answer, outcome=msgspec.structs.replace(outcome, failure=failure))


def _brief(message: str) -> str:
    """A message that may come from the log of another program. It is redacted before it is cut: the beginning
    of a secret alone would not be found."""
    plain = "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in message[:MAX_LOOKED_AT])
    return redact_text(plain)[:MAX_MESSAGE_CHARS]


def last_sign(task: Task, run: RunRecord, details: RecordedDetails | None) -> datetime:
    """The last sign of life of a run: its beat, its last move, or the progress of its task. A request to
    cancel the task is none."""
    signs = [run.updated_at, run.beat_at, None if details is None else details.last_event_at]
    if task.updated_at != task.cancel_requested_at:
        signs.append(task.updated_at)
    return max(sign for sign in signs if sign is not None)


def may_be_silent(run: RunRecord, details: RecordedDetails | None, now: datetime) -> bool:
    """Whether the last sign of life of recorded work still counts, or its time has not come."""
    if run.status is RunStatus.QUEUED:
        return run.due_at > now
    if details is not None:
        return details.alive_until is not None and details.alive_until > now
    return run.lease_until is not None and run.lease_until > now


def grace_of(task: Task, details: RecordedDetails | None, lost_after: timedelta) -> timedelta:
    """How long recorded work may be silent before it is lost."""
    child = task.session_key if details is None else details.child_session_key
    is_childless = task.runtime is RuntimeName.SUBAGENT and child is None
    return max(lost_after, CHILDLESS_AFTER) if is_childless else lost_after
