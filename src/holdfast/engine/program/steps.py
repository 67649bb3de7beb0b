"""Run a step once: find its result in the journal, or do the work and save it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.effect import EffectClass
from holdfast.core.errors import BadInput, Drift, RetryAfter, StepFailed
from holdfast.core.events import EventKind
from holdfast.core.ladder import delay
from holdfast.core.payload import check_code_name, check_line, decode_payload
from holdfast.core.redaction import holds_secret
from holdfast.core.step import Step, failed_payload, failure_in_payload
from holdfast.core.step_declarations import EffectSpec, StepOptions, options_of, step_name, unwrapped
from holdfast.core.task import Failure
from holdfast.engine.journal.codec import (
    SCALARS,
    Codec,
    Exited,
    codec_of,
    failure_of,
    input_digest,
    preview_of,
    revive,
    shown_input,
    shown_scalars,
)
from holdfast.engine.journal.scopes import (
    Called,
    Key,
    Scope,
    TaskHistory,
    inside_step,
    stored_form,
    waits_beside,
)
from holdfast.engine.program.live_run import LiveRun, TooLate
from holdfast.engine.program.waits import Waits
from holdfast.store import Tx
from holdfast.store.blobs import HEAVY_BYTES, INLINE_BYTES, Packed, pack
from holdfast.store.journal import saving_step
from holdfast.store.sealing import Sealing

FREE = frozenset({EffectClass.READ, EffectClass.IDEMPOTENT})
# How long an effect without a timeout may take: the next worker waits so long before it settles it.
DEFAULT_EFFECT_TIMEOUT = timedelta(minutes=10)
_MICROSECOND = timedelta(microseconds=1)
_DEFAULT_NS = DEFAULT_EFFECT_TIMEOUT // _MICROSECOND * 1000


class StepCall(Called, kw_only=True):
    """One call of a step, until it is done."""

    key: Key
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: StepOptions
    codec: Codec
    # Whether all its arguments are scalars.
    is_plain: bool
    digest: bytes
    # It was called with a secret, so its digest is stored keyed.
    has_secret: bool
    began_us: int
    effect: EffectSpec | None
    is_coroutine: bool
    timeout: timedelta | None
    # How often it failed, and how often a provider asked to come back later; in earlier runs, too.
    failures: int = 0
    pauses: int = 0
    # Of an effect: the function has returned, and only the outcome is to be saved.
    has_landed: bool = False
    # Of an effect: what came of its last attempt.
    outcome: Any = None
    # Of an effect: by when it must be over, by the steady clock, counted from its intent.
    until_ns: int | None = None
    # Its time was up, by its own timeout, while it was being called.
    is_cut_off: bool = False
    # It is the effect itself or its compensation, and not its `verify`.
    is_effect: bool = True
    # The names of its positional arguments, if one of them names a secret.
    names: tuple[str, ...] = ()
    # How its arguments begin, redacted.
    shown: str = ""


class StepDeclaration(msgspec.Struct, frozen=True):
    """What a function declares; cached, because every step asks."""

    name: str
    fn: Callable[..., Any]
    options: StepOptions
    codec: Codec
    is_coroutine: bool
    # The names of its positional arguments, if one of them names a secret.
    names: tuple[str, ...] = ()
    # Its name as it stands in the code, if the stored name is redacted.
    plain_name: str | None = None


@functools.lru_cache(maxsize=1024)
def _declared(fn: Callable[..., Any]) -> StepDeclaration:
    real = unwrapped(fn)
    return StepDeclaration(
        check_code_name("step", step_name(fn)),
        real,
        options_of(fn),
        codec_of(real),
        inspect.iscoroutinefunction(real),
        _telling_names(real, options_of(fn)),
        None if check_code_name("step", step_name(fn)) == step_name(fn) else step_name(fn),
    )


def _telling_names(fn: Callable[..., Any], options: StepOptions) -> tuple[str, ...]:
    """Positional names up to the last that names a secret: a password is one even without its name."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some builtins have none
        return ()
    if options.effect is not None and options.effect.effect_class is EffectClass.TRANSACTIONAL:
        del parameters[:1]  # its transaction, which is no argument of the caller's
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in parameters if one.kind in kinds]
    while names and not _tells_secret(names[-1]):
        names.pop()
    return tuple(names)


def _tells_secret(name: str) -> bool:
    return holds_secret(msgspec.json.encode({name: ""}))


def stored_digest(doing: StepCall, sealing: Sealing) -> bytes:
    """The digest of a step's arguments, as it is stored. Only that of a secret is keyed, so that a lost key
    does not harm tasks without secrets."""
    return sealing.conceal(doing.digest, of_secret=True) if doing.has_secret else doing.digest


def digest_in_key(doing: StepCall, sealing: Sealing) -> str:
    """The same, shortened, as a part of a step's key."""
    stored = stored_digest(doing, sealing).hex()
    return stored[-12:] if doing.has_secret else stored[:12]


def time_of(doing: StepCall) -> int:
    """How long an effect may take, in nanoseconds."""
    return _DEFAULT_NS if doing.timeout is None else doing.timeout // _MICROSECOND * 1000


def pause_key(doing: StepCall, what: str) -> Key:
    scope, name, occurrence = doing.key
    return (scope, waits_beside(name, occurrence), what)


class StepRunner:
    """The steps of one run."""

    def __init__(self, live: LiveRun, past: TaskHistory, waits: Waits) -> None:
        self._live = live
        self._past = past
        self._waits = waits
        self.saved = 0

    def begin(
        self,
        scope: Scope,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        step_id: str | None = None,
    ) -> StepCall:
        """Takes the key now: the order of calls, not of awaits, tells steps of one name apart."""
        try:
            declared = _declared(fn)
        except TypeError:  # a callable that cannot be hashed
            declared = _declared.__wrapped__(fn)
        options = declared.options
        if (step := inside_step.get()) is not None:
            raise BadInput(
                f"step {declared.name}",
                f"was called inside step {step.name}, which would hide it from a replay; "
                "call the function itself, or make it a step beside the other",
            )
        own = step_id or options.id  # a model that gives none may give an empty one
        is_plain = SCALARS.issuperset(map(type, args)) and (
            not kwargs or SCALARS.issuperset(map(type, kwargs.values()))
        )
        digest, has_secret, text = input_digest(self._live.place.digest_key, args, kwargs, is_plain=is_plain)
        if declared.names and args:
            has_secret = has_secret or any(map(_tells_secret, declared.names[: len(args)]))
        name = declared.name if declared.plain_name is None else self._stored_name(scope, declared)
        if options.effect is not None and options.effect.effect_class not in FREE:
            # Of an effect more is shown: a person may have to decide about it.
            shown = preview_of(args, kwargs, names=declared.names)
        elif is_plain and not (has_secret or kwargs):
            shown = shown_scalars(text)
        else:
            shown = shown_input(text, args, kwargs, names=declared.names, has_secret=has_secret)
        return StepCall(
            name=name,
            key=scope.key(name, None if own is None else self._stored_id(scope, name, own)),
            fn=declared.fn,
            args=args,
            kwargs=kwargs,
            options=options,
            codec=declared.codec,
            is_plain=is_plain,
            digest=digest,
            has_secret=has_secret,
            sealing=self._live.sealing,
            began_us=self._live.place.nanos() // 1000,
            effect=options.effect,
            is_coroutine=declared.is_coroutine,
            timeout=options.timeout,
            names=declared.names,
            shown=shown,
        )

    def _stored_id(self, scope: Scope, name: str, own: str) -> str:
        """The id as it is stored. Ids that look like secrets are redacted, and stay distinct."""
        past = self._past
        return stored_form(check_line("id", own), lambda form: past.has((scope.path, name, f"id:{form}")))

    def _stored_name(self, scope: Scope, declared: StepDeclaration) -> str:
        """The redacted name, unless an older release, which knew fewer secrets, stored the plain one."""
        path, plain = scope.path, declared.plain_name or declared.name
        steps = (*self._past.steps.get(path, ()), *self._past.effects)
        return plain if any(key[0] == path and key[1] == plain for key in steps) else declared.name

    def remembered(self, doing: StepCall) -> tuple[bool, Any]:
        """Whether it was done before, and then its result; a remembered failure is raised."""
        found = self._past.find(doing.key)
        if found is None:
            return False, None
        if found.input_digest is not None and not self._live.sealing.is_same(
            found.input_digest, doing.digest, "step", doing.name
        ):
            raise Drift(f"step {doing.name}", "it was done before with other arguments")
        last = self._live.last_step
        if last is None or found.seq > last.seq:
            self._live.last_step = found
        return True, self.result_of(doing, found.result)

    def result_of(self, doing: StepCall, stored: bytes) -> Any:
        if (failure := failure_in_payload(stored)) is not None:
            raise self.revived(doing, failure)
        # Null whatever its type is: a person may have skipped the step.
        return None if stored == b"null" else doing.codec.decode(stored)

    def opened(
        self,
        name: str,
        payload: bytes,
        *keys: Key,
        decode: Callable[[bytes], Any] = decode_payload,
    ) -> Any:
        """The value of a journalled payload; a failure is raised. A retry of the task forgets the steps under
        the keys."""
        if (failure := failure_in_payload(payload)) is not None:
            revived = revive(name, failure, ())
            revived.__holdfast_keys__ = keys  # type: ignore[attr-defined]
            raise revived
        return decode(payload)

    async def carry(self, doing: StepCall) -> Any:
        """A plain step: its saved result, or the result of a call now. It may run again until it is saved."""
        try:
            is_known, result = self.remembered(doing)
            if is_known:
                return result
        except Drift as drift:
            await self._forget(doing, drift)
        live, codec = self._live, doing.codec
        if not self._past.is_empty:
            await self.go_on_waiting(doing)
        # As often as its retry allows. The final failure is remembered, too.
        while True:
            if live.is_stopping:
                live.check()
            try:
                value = await self.call(doing)
                break
            except RetryAfter as wait:
                await self.pause_for(doing, wait.seconds)
            except Exception as error:  # noqa: BLE001 - the user's own work
                await self.after_failure(doing, error)
        payload = codec.encode(doing.name, value)
        is_heavy = len(payload) >= HEAVY_BYTES
        step, packed = await self.saving_beside(doing, payload) if is_heavy else self.saving(doing, payload)
        claim = live.claim
        if packed is None and not (claim.is_alone or doing.options.is_pure):
            await live.write(saving_step(step, claim.fence, live.sealing))
            self.saved += 1
            live.last_step = step
            self._past.put(doing.key, step)
        else:
            await self._save_otherwise(doing, step, packed)
            self.remember(doing, step, payload)
        return codec.decode(payload)

    async def go_on_waiting(self, doing: StepCall) -> None:
        """Count the attempts of earlier runs, and go on with a wait that was cut short."""
        waited: list[Key] = []
        while self._past.find(key := pause_key(doing, f"retry-{doing.failures + 1}")) is not None:
            doing.failures += 1
            waited.append(key)
        while self._past.find(key := pause_key(doing, f"pause-{doing.pauses + 1}")) is not None:
            doing.pauses += 1
            waited.append(key)
        for key in waited:
            await self._waits.sleep_until(key, self._live.clock.now())

    async def after_failure(self, doing: StepCall, error: Exception) -> None:
        """Wait before the next attempt, or raise StepFailed when there is none."""
        doing.failures += 1
        retry, now, claim = doing.options.retry, self._live.clock.now(), self._live.claim
        if retry is None or doing.failures > retry.attempts:
            raise await self.failed(doing, error) from error
        attempt, why = doing.failures, failure_of(error).message

        def tell(tx: Tx) -> None:
            tx.emit(
                EventKind.STEP_RETRIED,
                claim.run_id,
                at=now,
                task_id=claim.task_id,
                step=doing.name,
                scope=doing.key[0],
                attempt=attempt,
                why=why,
            )

        chance = random.random()  # noqa: S311 - jitter, not a secret
        until = now + delay(retry, doing.failures, chance=chance)
        await self._waits.sleep_until(pause_key(doing, f"retry-{doing.failures}"), until, tell)

    async def pause_for(self, doing: StepCall, seconds: float) -> None:
        """A durable wait of one step: a restart does not begin it anew."""
        doing.pauses += 1
        until = self._live.clock.now() + timedelta(seconds=seconds)
        await self._waits.sleep_until(pause_key(doing, f"pause-{doing.pauses}"), until)

    async def call(self, doing: StepCall) -> Any:
        """Call the function: awaited, or in a thread with a copy of this context."""
        live = self._live
        live.in_flight += 1
        token = inside_step.set(doing)
        try:
            if doing.timeout is None:
                if doing.is_coroutine:
                    args, kwargs = doing.args, doing.kwargs
                    if not doing.is_plain:  # then one of them may be a secret
                        args, kwargs = live.place.secrets.opened(args, kwargs, task=live.task.name)
                    if doing.until_ns is not None:
                        live.refuse_late(doing.until_ns)
                    return await doing.fn(*args, **kwargs)
                return await self._calling(doing)
            async with asyncio.timeout(self._seconds_left(doing.timeout, doing.until_ns)) as limit:
                try:
                    return await self._calling(doing, limit)
                finally:
                    # Set before TimeoutError is raised: our own timeout does not say whether it happened.
                    doing.is_cut_off = limit.expired()
        except SystemExit as error:
            raise Exited(error) from error
        finally:
            doing.has_landed = True
            inside_step.reset(token)
            live.landed()

    def _calling(self, doing: StepCall, limit: asyncio.Timeout | None = None) -> Awaitable[Any]:
        live = self._live
        args, kwargs = live.place.secrets.opened(doing.args, doing.kwargs, task=live.task.name)
        if doing.is_coroutine:
            if doing.until_ns is not None:
                self._live.refuse_late(doing.until_ns)
            return doing.fn(*args, **kwargs)  # type: ignore[no-any-return]
        act = functools.partial(doing.fn, *args, **kwargs)
        if doing.until_ns is not None:
            # Checked in the thread: all threads may be busy, so it may begin much later.
            key = doing.idempotency_key if doing.is_effect else None
            act = functools.partial(self._begin_in_time, doing.until_ns, key, act)
        return self._call_in_thread(act, limit)

    def _begin_in_time(self, until_ns: int, key: str | None, act: Callable[[], Any]) -> Any:
        with self._live.place.at_work.doing(key):
            self._live.refuse_late(until_ns)
            return act()

    def _seconds_left(self, timeout: timedelta, until_ns: int | None) -> float:
        if until_ns is None:
            return timeout.total_seconds()
        self._live.refuse_late(until_ns)
        return (until_ns - self._live.place.steady()) / 1e9

    async def _call_in_thread(self, fn: Callable[[], Any], limit: asyncio.Timeout | None) -> Any:
        act = functools.partial(contextvars.copy_context().run, fn)
        answer = await self._live.call_in_thread(act, limit)
        return await answer if inspect.isawaitable(answer) else answer

    async def call_instead(
        self, fn: Callable[..., Any], doing: StepCall, key: str, *, is_effect: bool = True
    ) -> Any:
        """Call another function with the arguments of a step: its `verify` (no effect) or `compensate`."""
        live = self._live
        live.check()
        stand_in = msgspec.structs.replace(
            doing,
            fn=fn,
            is_coroutine=inspect.iscoroutinefunction(fn),
            idempotency_key=key,
            is_effect=is_effect,
            until_ns=live.place.steady() + time_of(doing),
        )
        try:
            return await StepRunner.call(self, stand_in)
        except TooLate as late:
            raise (live.lapsed() if late.is_lease else TimeoutError(str(late))) from late

    async def failed(self, doing: StepCall, error: Exception) -> StepFailed:
        """Remember the failure, so that a replay raises the same."""
        failure = failure_of(error)
        await self.save(doing, failed_payload(failure))
        return self.revived(doing, failure)

    def revived(self, doing: StepCall, failure: Failure) -> StepFailed:
        revived = revive(doing.name, failure, doing.options.raises)
        revived.__holdfast_keys__ = (doing.key,)  # type: ignore[attr-defined]
        return revived

    # --- saving

    def saving(
        self, doing: StepCall, payload: bytes, sealing: Sealing | None = None
    ) -> tuple[Step, Packed | None]:
        """The step as it will be stored, and its payload packed if it is too large to be stored inline.
        Inside a transaction, pass the transaction's sealing."""
        live = self._live
        sealing = live.sealing if sealing is None else sealing
        micros, claim = live.place.nanos() // 1000, live.claim
        packed = None if len(payload) <= INLINE_BYTES else pack(payload, sealing)
        scope, name, occurrence = doing.key
        step = Step(
            task_id=claim.task_id,
            scope=scope,
            name=name,
            occurrence=occurrence,
            run_id=claim.run_id,
            seq=micros,
            input_digest=stored_digest(doing, sealing),
            result=payload if packed is None else packed.stored,
            started_us=doing.began_us,
            ended_us=micros,
            arguments=doing.shown,
            is_effect=doing.effect is not None and doing.effect.effect_class not in FREE,
        )
        return step, packed

    async def saving_beside(self, doing: StepCall, payload: bytes) -> tuple[Step, Packed | None]:
        """The same, in a thread if the payload is large: to scan and compress it takes long."""
        if len(payload) < HEAVY_BYTES:
            return self.saving(doing, payload)
        return await asyncio.to_thread(self.saving, doing, payload)

    async def save(self, doing: StepCall, payload: bytes) -> None:
        step, packed = await self.saving_beside(doing, payload)
        await self._save_otherwise(doing, step, packed)
        self.remember(doing, step, payload)

    async def _save_otherwise(self, doing: StepCall, step: Step, packed: Packed | None) -> None:
        """The less common saves: a large result, a run under suspicion, a pure step whose commit waits."""
        live, claim = self._live, self._live.claim
        save = saving_step(step, claim.fence, live.sealing)
        if packed is None and not claim.is_alone:
            if doing.options.is_pure:
                await self._live.delay(step, save)
            else:
                await self._live.write(save)
            return

        def save_with_company(tx: Tx) -> None:
            if packed is not None:
                tx.blobs.keep(claim.task_id, packed)
            save(tx)
            live.note_progress(tx, step.ended_at)

        await self._live.write(save_with_company)
        live.last_step = step

    def remember(self, doing: StepCall, step: Step, payload: bytes) -> None:
        self.saved += 1
        if not doing.options.is_pure:
            self._live.last_step = step
        if step.result is not payload:
            step = msgspec.structs.replace(step, result=payload)
        self._past.put(doing.key, step)

    async def _forget(self, doing: StepCall, drift: Drift) -> None:
        """Forget the result under this key, because the arguments have changed, and record an event."""
        live, now = self._live, self._live.clock.now()

        def forget_step(tx: Tx) -> None:
            tx.journal.require(live.claim)
            if tx.journal.find_step(live.claim.task_id, *doing.key) is None:
                return
            tx.journal.forget_step(live.claim, *doing.key)
            is_effect = tx.journal.find_step(live.claim.task_id, *doing.key) is not None
            # An effect that was done is kept; a note beside it says that its drift was recorded.
            if not is_effect or tx.journal.put_step(
                self._waits.step(pause_key(doing, "drift"), b"null", now)
            ):
                tell_drift(tx, live.claim, doing, drift, now)

        await live.write(forget_step)
        self._past.forget(doing.key)


def tell_drift(tx: Tx, claim: Claim, doing: StepCall, drift: Drift, now: datetime) -> None:
    tx.emit(
        EventKind.STEP_DRIFTED,
        claim.run_id,
        at=now,
        task_id=claim.task_id,
        step=doing.name,
        scope=doing.key[0],
        why=drift.problem,
    )
