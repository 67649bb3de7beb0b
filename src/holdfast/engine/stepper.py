"""Run a step once: find its result in the journal, or do the work and save it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.effect import EffectClass
from holdfast.core.effect_class import EffectSpec, StepOptions, options_of, step_name, unwrapped
from holdfast.core.errors import Drift, RetryAfter, StepFailed
from holdfast.core.events import EventKind
from holdfast.core.ladder import delay
from holdfast.core.payload import check_name, decode_payload
from holdfast.core.step import Step
from holdfast.core.task import Failure
from holdfast.engine.codec import Codec, codec_of, failure_of, input_digest, revive
from holdfast.engine.live import Live
from holdfast.engine.scopes import Key, Past, Scope
from holdfast.store import Tx
from holdfast.store.blobs import pack
from holdfast.store.journal import SaveStep

# No JSON begins with it, so a stored result that does is the failure of a step.
_FAILED = b"!"
FREE = frozenset({EffectClass.READ, EffectClass.IDEMPOTENT})


class Doing(msgspec.Struct, kw_only=True):
    """One step on its way: everything about it that does not change."""

    key: Key
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: StepOptions
    codec: Codec
    digest: bytes
    began_at: datetime
    effect: EffectSpec | None
    pauses: int = 0

    @property
    def name(self) -> str:
        return self.key[1]


def pause_key(doing: Doing, what: str) -> Key:
    """For what a step waits for on its way: beside its own key, which holds its result."""
    scope, name, occurrence = doing.key
    return (scope, f"{name}!{occurrence}", what)


class Stepper:
    """The steps of one run."""

    def __init__(self, live: Live, past: Past, pause: Callable[[Key, float], Awaitable[None]]) -> None:
        self._live = live
        self._past = past
        # Waits durably: for a backoff, or for as long as a provider asks.
        self._pause = pause
        self.saved = 0

    def begin(
        self,
        scope: Scope,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        step_id: str | None = None,
    ) -> Doing:
        """Takes the key now: the order of calls, not of awaits, tells steps of one name apart."""
        options = options_of(fn)
        real = unwrapped(fn)
        name = check_name("step", step_name(fn))
        return Doing(
            key=scope.key(name, step_id or options.id),
            fn=real,
            args=args,
            kwargs=kwargs,
            options=options,
            codec=codec_of(real),
            digest=input_digest(self._live.place.digest_key, args, kwargs),
            began_at=self._live.clock.now(),
            effect=options.effect,
        )

    def remembered(self, doing: Doing) -> tuple[bool, Any]:
        """Whether it was done before, and then its result; a remembered failure is raised."""
        found = self._past.steps.get(doing.key)
        if found is None:
            return False, None
        if found.input_digest is not None and found.input_digest != doing.digest:
            raise Drift(f"step {doing.name}", "it was done before with other arguments")
        return True, self.result_of(doing, found.result)

    def result_of(self, doing: Doing, stored: bytes) -> Any:
        if stored.startswith(_FAILED):
            failure = msgspec.json.decode(stored[1:], type=Failure)
            raise self._revived(doing, failure)
        return doing.codec.decode(stored)

    def opened(self, name: str, payload: bytes, *, decode: Callable[[bytes], Any] = decode_payload) -> Any:
        """The value of a journalled payload; a failure among them is raised."""
        if payload.startswith(_FAILED):
            raise revive(name, msgspec.json.decode(payload[1:], type=Failure), ())
        return decode(payload)

    async def carry(self, doing: Doing) -> Any:
        """A plain step: run again freely when it was cut short, remembered once it was saved."""
        try:
            is_known, result = self.remembered(doing)
        except Drift as drift:
            await self.report_drift(doing, drift)
            await self.forget(doing)
        else:
            if is_known:
                return result
        value = await self.attempts(doing)
        payload = doing.codec.encode(doing.name, value)
        await self.save(doing, payload)
        return doing.codec.decode(payload)

    async def attempts(self, doing: Doing) -> Any:
        """Call it as often as its retry says. What finally failed is remembered, too."""
        failures = 0
        while True:
            try:
                return await self.call(doing)
            except RetryAfter as wait:
                await self.pause_for(doing, wait.seconds)
            except Exception as error:  # noqa: BLE001 - the user's own work
                failures += 1
                await self.after_failure(doing, error, failures)

    async def after_failure(self, doing: Doing, error: Exception, failures: int) -> None:
        """Wait before the next attempt, or raise StepFailed when there is none."""
        retry = doing.options.retry
        if retry is None or failures > retry.attempts:
            raise await self.failed(doing, error) from error
        await self._live.emit(
            EventKind.STEP_RETRIED,
            step=doing.name,
            scope=doing.key[0],
            attempt=failures,
            why=failure_of(error).message,
        )
        chance = random.random()  # noqa: S311 - jitter, not a secret
        await self.pause_for(doing, delay(retry, failures, chance=chance).total_seconds())

    async def pause_for(self, doing: Doing, seconds: float) -> None:
        """A durable wait of one step: a restart does not begin it anew."""
        doing.pauses += 1
        await self._pause(pause_key(doing, f"pause-{doing.pauses}"), seconds)

    async def call(self, doing: Doing) -> Any:
        """The function itself: awaited, or in a thread with a copy of this context."""
        self._live.check()
        timeout = doing.options.timeout
        async with contextlib.AsyncExitStack() as limits:
            if timeout is not None:
                await limits.enter_async_context(asyncio.timeout(timeout.total_seconds()))
            if inspect.iscoroutinefunction(doing.fn):
                return await doing.fn(*doing.args, **doing.kwargs)
            context = contextvars.copy_context()
            answer = await self._live.call_in_thread(
                lambda: context.run(doing.fn, *doing.args, **doing.kwargs)
            )
            return await answer if inspect.isawaitable(answer) else answer

    async def failed(self, doing: Doing, error: Exception) -> StepFailed:
        """Remember the failure, so that a replay raises the same."""
        failure = failure_of(error)
        await self.save(doing, _FAILED + msgspec.json.encode(failure))
        return self._revived(doing, failure)

    def _revived(self, doing: Doing, failure: Failure) -> StepFailed:
        revived = revive(doing.name, failure, doing.options.raises)
        revived.__holdfast_key__ = doing.key  # type: ignore[attr-defined]
        return revived

    # --- saving

    def saving(self, doing: Doing, payload: bytes) -> tuple[Step, Any]:
        """The step as it will be stored, and its payload packed."""
        now, claim, packed = self._live.clock.now(), self._live.claim, pack(payload)
        scope, name, occurrence = doing.key
        step = Step(
            task_id=claim.task_id,
            scope=scope,
            name=name,
            occurrence=occurrence,
            run_id=claim.run_id,
            seq=to_micros(now),
            input_digest=doing.digest,
            result=packed.stored,
            started_at=doing.began_at,
            ended_at=now,
        )
        return step, packed

    async def save(self, doing: Doing, payload: bytes) -> None:
        step, packed = self.saving(doing, payload)
        claim = self._live.claim
        save = SaveStep(step, claim.fence)
        if packed.digest is None and not claim.is_alone:
            await self._live.write(save)
        else:

            def save_with_company(tx: Tx) -> None:
                tx.blobs.keep(claim.task_id, packed)
                save(tx)
                if claim.is_alone and tx.runs.exonerate(claim.run_id, claim.fence, now=step.ended_at):
                    tx.hint("runs")

            await self._live.write(save_with_company)
        self.remember(doing, step, payload)

    def remember(self, doing: Doing, step: Step, payload: bytes) -> None:
        self.saved += 1
        self._past.steps[doing.key] = (
            step if step.result is payload else msgspec.structs.replace(step, result=payload)
        )

    async def forget(self, doing: Doing) -> None:
        """What was remembered under this key does not belong to it any more."""
        claim, (scope, name, occurrence) = self._live.claim, doing.key
        await self._live.write(lambda tx: tx.journal.forget_step(claim, scope, name, occurrence))
        del self._past.steps[doing.key]

    async def report_drift(self, doing: Doing, drift: Drift) -> None:
        await self._live.emit(EventKind.STEP_DRIFTED, step=doing.name, scope=doing.key[0], why=str(drift))
