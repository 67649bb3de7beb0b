"""Intent before, outcome after; settle what a crash left open."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.effect_class import DidNotHappen, EffectSpec, Happened, Unknown
from holdfast.core.errors import ClaimLost, Drift, IllegalMove, NotInRun, RetryAfter
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id, new_effect_id
from holdfast.core.ladder import Retry, delay
from holdfast.core.payload import check_name, check_text, encode_payload
from holdfast.core.step import Step
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus
from holdfast.engine.claims import wake_run
from holdfast.engine.codec import failure_of, preview_of
from holdfast.engine.inputs import check_choice
from holdfast.engine.live import Live, shielded
from holdfast.engine.scopes import Key, Past
from holdfast.engine.stepper import Doing, Stepper, pause_key
from holdfast.store import Tx, Write
from holdfast.store.blobs import pack

# How long an effect may take when nobody says it, for who must wait until a lost holder has surely finished.
DEFAULT_EFFECT_TIMEOUT = timedelta(minutes=10)
# Between two calls with one key, while the answers leave the outcome open.
_PATIENCE = Retry(attempts=1_000_000, backoff=timedelta(seconds=1), most=timedelta(minutes=5))

_key: contextvars.ContextVar[str] = contextvars.ContextVar("holdfast_idempotency_key")


def idempotency_key() -> str:
    """The key of the effect that is being done: the same after a crash, so that a repeat can be told."""
    try:
        return _key.get()
    except LookupError:
        raise NotInRun(
            "idempotency_key()", "inside a tool that was called by turn.tool or run.step"
        ) from None


class Decision(StrEnum):
    """What a person says about an effect whose outcome nobody knows."""

    DONE = "done"
    RETRY = "retry"
    SKIP = "skip"
    COMPENSATE = "compensate"


class Review(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's decision, kept with the effect."""

    decision: Decision
    by: str
    at: datetime
    note: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the world, as far as it may be kept; and by which boot."""

    boot: str
    input_digest: str
    shown: str


class Open(msgspec.Struct, frozen=True):
    """It was begun, and whether it happened is open."""

    why: str


class Definite(msgspec.Struct, frozen=True):
    """It did not happen, says the tool itself."""

    error: Exception


class Limited(msgspec.Struct, frozen=True):
    """It did not happen: the provider asks to come back later."""

    error: RetryAfter


class Again(msgspec.Struct, frozen=True):
    """It may be done, with a new key; or, for a provider that knows keys, with the same one."""

    is_same_key: bool = False


class Compensated(Exception):
    """A person decided that the effect is undone; the step failed."""


def key_of(task_id: str, doing: Doing, generation: int) -> str:
    """From the task, the scope, the name and the occurrence; never from the run."""
    text = "\0".join((task_id, *doing.key, str(generation)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Effects:
    """The effects of one run."""

    def __init__(
        self,
        live: Live,
        past: Past,
        stepper: Stepper,
        *,
        park: Callable[[Effect], Awaitable[None]],
        sleep_until: Callable[[Key, datetime], Awaitable[None]],
    ) -> None:
        self._live = live
        self._past = past
        self._stepper = stepper
        self._park = park
        self._sleep_until = sleep_until

    async def carry(self, doing: Doing, spec: EffectSpec) -> Any:
        """Once it is done its result is remembered; never done twice unless its class says that it may be."""
        try:
            is_known, result = self._stepper.remembered(doing)
        except Drift as drift:
            # It was done, with other arguments: to do it again would be a second effect.
            await self._stepper.report_drift(doing, drift)
            raise
        if is_known:
            return result
        failures = 0
        while True:
            effect = self._past.effects.get(doing.key)
            if effect is not None and effect.status is EffectStatus.UNKNOWN:
                await self._park(effect)
                continue
            outcome = await self._resolve(doing, spec, effect)
            match outcome:
                case bytes():
                    return self._stepper.result_of(doing, outcome)
                case Limited(error):
                    await self._stepper.pause_for(doing, error.seconds)
                case Definite(error):
                    failures += 1
                    await self._stepper.after_failure(doing, error, failures)
                case Again() | None:
                    continue

    async def _resolve(
        self, doing: Doing, spec: EffectSpec, effect: Effect | None
    ) -> bytes | Definite | Limited | Again | None:
        """One attempt, or the settling of one that was cut short. None: somebody has to look at it."""
        if effect is not None and effect.status is EffectStatus.INTENT:
            await self._outlive(doing, effect)
            outcome: Any = Open("the process died while it was being done")
        else:
            generation = 1
            if effect is not None:
                await self._follow_review(doing, effect)
                generation = effect.generation + 1
            effect = await self._begin(doing, spec, generation)
            outcome = await self._do(doing, effect)
        attempts = 0
        while isinstance(outcome, Open):
            outcome = await self._ask_world(doing, spec, effect, outcome.why)
            if isinstance(outcome, Again) and outcome.is_same_key:
                if attempts:
                    pause = delay(_PATIENCE, min(attempts, 20), chance=0.5)
                    await self._stepper.pause_for(doing, pause.total_seconds())
                attempts += 1
                outcome = await self._do(doing, effect)
        if isinstance(outcome, (Definite, Limited)):
            await self._end(doing, effect, EffectStatus.FAILED, failure_of(outcome.error))
        return outcome  # type: ignore[no-any-return]

    # --- before

    async def _begin(self, doing: Doing, spec: EffectSpec, generation: int) -> Effect:
        """The intent, durable before the world is touched; only with some of the lease left."""
        live, now = self._live, self._live.clock.now()
        live.check()
        claim = live.place.newest(live.claim)
        if claim.has_lapsed(now):
            live.stop("lease lapsed")
            live.check()
        timeout = doing.options.timeout or DEFAULT_EFFECT_TIMEOUT
        scope, name, occurrence = doing.key
        request = Request(
            boot=claim.boot_id, input_digest=doing.digest.hex(), shown=preview_of(doing.args, doing.kwargs)
        )
        effect = Effect(
            id=new_effect_id(now),
            task_id=claim.task_id,
            run_id=claim.run_id,
            name=name,
            scope=scope,
            occurrence=occurrence,
            effect_class=spec.effect_class,
            idempotency_key=key_of(claim.task_id, doing, generation),
            generation=generation,
            request=encode_payload(f"request of {name}", msgspec.to_builtins(request)),
            created_at=now,
            fence=claim.fence,
            settle_after=claim.lease_until + timeout,
            updated_at=now,
        )
        if not await live.write(lambda tx: tx.effects.begin(effect, live.claim)):
            raise Drift(f"step {name}", f"another effect has its key {effect.idempotency_key}")
        self._past.effects[doing.key] = effect
        return effect

    # --- the call

    async def _do(self, doing: Doing, effect: Effect) -> bytes | Open | Definite | Limited:
        """Call it and save its outcome."""
        with self._live.effect(), _keyed_by(effect.idempotency_key):
            try:
                value = await self._stepper.call(doing)
            except RetryAfter as error:
                return Limited(error)
            except Exception as error:  # noqa: BLE001 - the user's own work; what it means is said below
                return Open(failure_of(error).message) if _leaves_open(error) else Definite(error)
            payload = doing.codec.encode(doing.name, value)
            # The world has changed: that must be known, whoever wants us to stop meanwhile.
            await shielded(self._done(doing, effect, payload, EffectStatus.DONE))
            return payload

    async def _done(self, doing: Doing, effect: Effect, payload: bytes, to: EffectStatus) -> None:
        step, packed = self._stepper.saving(doing, payload)
        live, now = self._live, step.ended_at

        def note_outcome(tx: Tx) -> None:
            tx.journal.require(live.claim)
            found = tx.effects.get(effect.id)
            if found.status is to:  # the write runs a second time after its own commit
                return
            tx.blobs.keep(live.claim.task_id, packed)
            if to is EffectStatus.CONFIRMED and found.status is EffectStatus.INTENT:
                tx.effects.settle(effect.id, EffectStatus.UNKNOWN, outcome=None, now=now)
            tx.effects.settle(effect.id, to, outcome=packed.stored, now=now)
            tx.journal.put_step(step)
            if live.claim.is_alone and tx.runs.exonerate(live.claim.run_id, live.claim.fence, now=now):
                tx.hint("runs")

        try:
            await live.write(note_outcome)
        except ClaimLost:
            # Somebody else settles it; what we saw may help to decide.
            await live.emit(
                EventKind.EFFECT_SEEN_LATE, effect_id=effect.id, step=doing.name, outcome=to.value
            )
            raise
        self._stepper.remember(doing, step, payload)
        self._past.effects.pop(doing.key, None)

    async def _end(self, doing: Doing, effect: Effect, to: EffectStatus, failure: Failure) -> None:
        """A definite failure, or in doubt: noted with what was seen."""
        live, now = self._live, self._live.clock.now()
        outcome = msgspec.json.encode(failure)

        def note_end(tx: Tx) -> Effect:
            tx.journal.require(live.claim)
            found = tx.effects.get(effect.id)
            if found.status is to:
                return found
            if to is EffectStatus.UNKNOWN:
                tx.emit(
                    EventKind.EFFECT_IN_DOUBT,
                    effect.id,
                    at=now,
                    task_id=effect.task_id,
                    step=effect.name,
                    why=failure.message,
                )
            return tx.effects.settle(effect.id, to, outcome=outcome, now=now)

        self._past.effects[doing.key] = await live.write(note_end)

    # --- settling what was left open

    async def _follow_review(self, doing: Doing, effect: Effect) -> None:
        """What failed for certain is done again; a person may have said that it is undone instead."""
        review = None if effect.review is None else msgspec.json.decode(effect.review, type=Review)
        if review is None or review.decision is not Decision.COMPENSATE:
            return
        compensate = doing.options.compensate
        if compensate is not None:
            with _keyed_by(f"{effect.idempotency_key}-compensation"):
                answer = compensate(*doing.args, **doing.kwargs)
                if inspect.isawaitable(answer):
                    await answer
        message = "it was compensated" if compensate is not None else "a person compensated it"
        raise await self._stepper.failed(doing, Compensated(message))

    async def _outlive(self, doing: Doing, effect: Effect) -> None:
        """Wait until whoever began it has surely finished: no time at all when it is provably dead."""
        boot_id = msgspec.json.decode(effect.request, type=Request).boot
        life = self._live.place.life
        if boot_id == life.id or effect.settle_after is None:
            return
        boot = await self._live.store.read(lambda tx: tx.boots.get(boot_id))
        if boot is not None and not life.has_died(boot) and self._live.clock.now() < effect.settle_after:
            await self._sleep_until(pause_key(doing, f"settle-{effect.generation}"), effect.settle_after)

    async def _ask_world(
        self, doing: Doing, spec: EffectSpec, effect: Effect, why: str
    ) -> bytes | Again | None:
        """Settle by class: it happened, it may be done again, or only a person can tell."""
        if spec.effect_class is EffectClass.KEYED:
            if self._live.clock.now() - effect.created_at < (spec.window or timedelta(0)):
                return Again(is_same_key=True)
            why = f"{why}, and the provider's window of {spec.window} has passed"
        elif spec.effect_class is EffectClass.VERIFIABLE:
            verdict = await self._verify(doing, spec, effect)
            if isinstance(verdict, Happened):
                payload = doing.codec.encode(doing.name, verdict.result)
                await self._done(doing, effect, payload, EffectStatus.CONFIRMED)
                return payload
            if isinstance(verdict, DidNotHappen):
                failure = Failure(kind="did_not_happen", message=why)
                await self._end(doing, effect, EffectStatus.FAILED, failure)
                return Again()
            why = f"{why}; verify says: {verdict.why}"
        await self._end(doing, effect, EffectStatus.UNKNOWN, Failure(kind="unknown", message=why))
        return None

    async def _verify(
        self, doing: Doing, spec: EffectSpec, effect: Effect
    ) -> Happened | DidNotHappen | Unknown:
        assert spec.verify is not None
        try:
            with _keyed_by(effect.idempotency_key):
                answer = spec.verify(*doing.args, **doing.kwargs)
                verdict = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - a verify that fails knows nothing
            return Unknown(why=f"verify failed: {failure_of(error).message}")
        if isinstance(verdict, (Happened, DidNotHappen, Unknown)):
            return verdict
        return Unknown(why=f"verify answered {type(verdict).__name__}, not Happened, DidNotHappen or Unknown")


def _leaves_open(error: Exception) -> bool:
    """Whether it may have happened all the same: the answer was lost, not the request refused."""
    return isinstance(error, (TimeoutError, ConnectionError, EOFError)) or any(
        "timeout" in kind.__name__.lower() for kind in type(error).__mro__
    )


@contextlib.contextmanager
def _keyed_by(key: str) -> Iterator[None]:
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)


def resolving(
    effect_id: str,
    decision: Decision,
    *,
    by: str,
    now: datetime,
    result: object = None,
    note: str = "",
) -> Write[Effect]:
    """The write by which a person settles an effect whose outcome nobody knows, and its run goes on."""
    check_id("effect", effect_id)
    decision = check_choice("decision", decision, Decision)
    review = Review(
        decision=decision, by=check_name("by", by), at=now, note=check_text("note", note, may_be_empty=True)
    )
    packed = pack(encode_payload("result", result))
    encoded = msgspec.json.encode(review)

    def resolve(tx: Tx) -> Effect:
        effect = tx.effects.get(effect_id)
        if effect.review == encoded:  # the write runs a second time after its own commit
            return effect
        if effect.status is not EffectStatus.UNKNOWN:
            raise IllegalMove("effect", effect_id, effect.status.value, decision.value)
        is_done = decision is Decision.DONE
        to = EffectStatus.CONFIRMED if is_done else EffectStatus.FAILED
        settled = tx.effects.settle(
            effect_id, to, outcome=packed.stored if is_done else effect.outcome, now=now
        )
        tx.effects.set_review(effect_id, encoded, now=now)
        if decision in (Decision.DONE, Decision.SKIP):
            tx.blobs.keep(effect.task_id, packed)
            tx.journal.put_step(_reviewed_step(effect, packed.stored, now))
        tx.emit(
            EventKind.EFFECT_REVIEWED,
            effect_id,
            at=now,
            task_id=effect.task_id,
            decision=decision.value,
            by=by,
            step=effect.name,
        )
        run = tx.runs.live_of_task(effect.task_id)
        if run is not None and run.waits_on == f"review:{effect_id}":
            wake_run(tx, run.id, now=now)
        return msgspec.structs.replace(settled, review=encoded)

    return resolve


def _reviewed_step(effect: Effect, result: bytes, now: datetime) -> Step:
    request = msgspec.json.decode(effect.request, type=Request)
    return Step(
        task_id=effect.task_id,
        scope=effect.scope,
        name=effect.name,
        occurrence=effect.occurrence,
        run_id=effect.run_id,
        seq=to_micros(now),
        input_digest=bytes.fromhex(request.input_digest),
        result=result,
        started_at=effect.created_at,
        ended_at=now,
    )
