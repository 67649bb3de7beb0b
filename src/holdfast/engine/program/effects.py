"""Intent before, outcome after; settle what a crash left open."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any, TypeAlias

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.effect import Decision, Effect, EffectClass, Request, Review, decode_request
from holdfast.core.effect_class import DidNotHappen, EffectSpec, Happened, Stopped, Unknown
from holdfast.core.errors import (
    BadInput,
    ClaimLost,
    Drift,
    HoldfastError,
    IllegalMove,
    NotInRun,
    RetryAfter,
    StepFailed,
)
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id, new_effect_id
from holdfast.core.ladder import Retry, delay
from holdfast.core.payload import check_name, check_text, clean_text, encode_payload
from holdfast.core.step import Step
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus
from holdfast.core.transport import is_transport_error
from holdfast.engine.aio.eager import begin_silent, nest_here
from holdfast.engine.conversation.questions import wake_waiting
from holdfast.engine.journal.codec import MAX_MESSAGE_CHARS, failure_of, preview_of
from holdfast.engine.journal.scopes import Called, Key, Past, inside_step, opened_step
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.program.live_run import CANCELLED, LiveRun, TooLate, landed, sheltered, shielded
from holdfast.engine.program.steps import (
    FREE,
    Doing,
    StepRunner,
    digest_in_key,
    failed_payload,
    stored_digest,
    tell_drift,
    time_of,
)
from holdfast.engine.program.stopping import Stopping
from holdfast.store import Tx, Write
from holdfast.store.blobs import Packed, pack
from holdfast.store.clock import doubt_about
from holdfast.store.effects import beginning_effect, finishing_effect
from holdfast.store.sealing import Sealing

# Between two calls with one key, while the answers leave the outcome open.
_PATIENCE = Retry(attempts=1_000_000, backoff=timedelta(seconds=1), most=timedelta(minutes=5))

# How long the world is asked about an effect that a cancel cut short.
_LOOK_S = 5.0
_CUT = "the program cancelled it while it was being done"
# Among the facts of a failure: nothing happened.
_CERTAIN = "did_not_happen"

_encode = msgspec.json.Encoder().encode


def idempotency_key() -> str:
    """The key of the effect that is being done: the same after a crash, so that a repeat can be told."""
    called = inside_step.get()
    if called is None or called.idempotency_key is None:
        raise NotInRun("idempotency_key()", "inside a tool that was called by turn.tool or run.step")
    return called.idempotency_key


def file_key(kind: str, *, is_for_reading: bool = False) -> bytes | None:
    """What the effect that is being done seals a file of its own with, under its key; None for no sealing."""
    called = inside_step.get()
    if called is None:
        return None
    find = called.sealing.key_of_file if is_for_reading else called.sealing.file_key
    return find(kind, idempotency_key())


class Open(msgspec.Struct, frozen=True):
    """It was begun, and whether it happened is open."""

    why: str
    # What it raised, unless its process died.
    error: Exception | None = None


class Definite(msgspec.Struct, frozen=True):
    """Its function raised, and it may be tried again: nothing happened, or its provider knows keys."""

    error: Exception


class Raised(msgspec.Struct, frozen=True):
    """Its function raised, and nothing says that nothing happened: the program is told, and that is all."""

    failure: Failure
    # None when it was an earlier life.
    error: Exception | None = None


class Limited(msgspec.Struct, frozen=True):
    """It did not happen: the provider asks to come back later."""

    error: RetryAfter


class Again(msgspec.Struct, frozen=True):
    """It may be done, with a new key; or, for a provider that knows keys, with the same one."""

    is_same_key: bool = False


# What came of one attempt; None: somebody has to look at it.
Outcome: TypeAlias = bytes | Open | Definite | Raised | Limited | Again | None


class Compensated(Exception):
    """A person decided that the effect is undone; the step failed."""


COMPENSATED = f"{Compensated.__module__}.{Compensated.__qualname__}"


def key_of(task_id: str, doing: Doing, generation: int) -> str:
    """From the task, the scope, the name and the occurrence; never from the run."""
    text = "\0".join((task_id, *doing.key, str(generation)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Effects:
    """The effects of one run."""

    def __init__(
        self,
        live: LiveRun,
        past: Past,
        stepper: StepRunner,
        *,
        park: Callable[[Effect], Awaitable[None]],
        until_ended: Callable[[str, datetime], Awaitable[None]],
        on_cut: Callable[[], None],
    ) -> None:
        self._live = live
        self._on_cut = on_cut
        self._past = past
        self._stepper = stepper
        self._park = park
        self._until_ended = until_ended
        self._nest = nest_here()
        # With its present lease; worked out anew when that was renewed.
        self._newest: Claim | None = None
        self._lease_us = 0
        self._held_until_ns = 0
        # Those that the program itself has cancelled: it goes no further until each of them is settled.
        self._cut: dict[Key, tuple[Doing, EffectSpec]] = {}

    async def carry(self, doing: Doing, spec: EffectSpec) -> Any:
        """Once it is done its result is remembered; never done twice unless its class says that it may be."""
        past = self._past
        steps = past.steps.get(doing.key[0])  # without a frame more: every effect comes by here
        if steps is not None and doing.key in steps:
            try:
                is_known, result = self._stepper.remembered(doing)
            except Drift as drift:
                is_known, result = await self.beside_drift(doing, spec, drift)
            except StepFailed as failed:
                if spec.effect_class is EffectClass.OPAQUE and doing.key not in past.effects:
                    # A fork has the step of what its origin did, and not the effect: it is not tried again.
                    failed.__holdfast_keys__ = ()  # type: ignore[attr-defined]
                raise
            if is_known:
                return result
        try:
            if not past.is_empty:
                await self._stepper.go_on_waiting(doing)
            while True:
                effect = past.effects.get(doing.key)
                if effect is not None and effect.status is EffectStatus.UNKNOWN:
                    await self._park(effect)
                    # Settled before we could wait for it: then nothing unwinds us, and the decision counts.
                    is_known, result = self._stepper.remembered(doing)
                    if is_known:
                        return result
                    continue
                if effect is None:
                    outcome: Outcome = await self._attempt(doing, spec, 1)
                elif effect.status is EffectStatus.INTENT:
                    outcome = await self._left_open(doing, effect)
                else:
                    await self._follow_review(doing, effect)
                    outcome = await self._once_more(doing, spec, effect)
                if type(outcome) is Open:
                    outcome = await self._resolve(doing, spec, outcome)
                match outcome:
                    case bytes():
                        return self._stepper.result_of(doing, outcome)
                    case Limited(error):
                        await self._stepper.pause_for(doing, error.seconds)
                    case Definite(error):
                        await self._stepper.after_failure(doing, error)
                    case Raised(failure, cause):
                        raise self._stepper.revived(doing, failure) from cause
                    case Again() | None:
                        continue
        except Stopping:
            raise
        except asyncio.CancelledError:
            await shielded(self._cut_short(doing, spec))
            raise

    async def beside_drift(self, doing: Doing, spec: EffectSpec, drift: Drift) -> tuple[bool, Any]:
        """It was done, with other arguments: to do it now would be a second effect. So it gets a key of its
        own, and a person decides."""
        scope, name, occurrence = doing.key
        doing.key = (scope, name, f"{occurrence}~{digest_in_key(doing, self._live.sealing)}")
        is_known, result = self._stepper.remembered(doing)
        if not is_known and doing.key not in self._past.effects:
            live, now = self._live, self._live.clock.now()
            effect, _ = self._intent(doing, spec, 1, to_micros(now))

            def note_doubt(tx: Tx) -> Effect:
                if not tx.effects.begin(effect, live.claim):
                    raise Drift(f"step {name}", f"another effect has its key {effect.idempotency_key}")
                if tx.effects.again(effect).status is EffectStatus.INTENT:
                    tell_drift(tx, live.claim, doing, drift, now)
                return doubt(tx, effect, Failure(kind="unknown", message=drift.problem), now)

            self._past.effects[doing.key] = await live.write(note_doubt)
        return is_known, result

    async def reviewed(self, doing: Doing) -> tuple[bool, Any, int]:
        """Once nobody has to decide about it any more: whether its result is known, that result, and else the
        generation in which it is done."""
        while (effect := self._past.effects.get(doing.key)) is not None:
            if effect.status is not EffectStatus.UNKNOWN:
                await self._follow_review(doing, effect)
                return False, None, effect.generation + 1
            await self._park(effect)
            is_known, result = self._stepper.remembered(doing)
            if is_known:
                return True, result, effect.generation
        return False, None, 1

    async def _left_open(self, doing: Doing, effect: Effect) -> Open | None:
        """What a crash left to us. None: somebody has to look at it."""
        await self._outlive(effect)
        left = Open("the process died while it was being done")
        if not _has_other_arguments(self._live.sealing, doing, effect):
            return left
        await self._end(doing, effect, EffectStatus.UNKNOWN, _with_other_arguments(left.why))
        return None

    async def _once_more(self, doing: Doing, spec: EffectSpec, effect: Effect) -> Outcome:
        """After a failure: with a new key if nothing had happened, with the same one if the provider knows
        keys, after a look at the world if it can be asked; and else not at all."""
        # One with the key of an attempt before it says nothing of that one, which may have happened.
        has_own_key = effect.idempotency_key == key_of(effect.task_id, doing, effect.generation)
        if effect.review is not None or (has_own_key and _is_certain(effect)):
            return await self._attempt(doing, spec, effect.generation + 1)
        failure = _failure_in(effect)
        why = f"it raised {failure.kind}: {failure.message}"
        is_keyed = spec.effect_class is effect.effect_class is EffectClass.KEYED
        if (is_keyed or spec.effect_class is EffectClass.VERIFIABLE) and _has_other_arguments(
            self._live.sealing, doing, effect
        ):
            await self._end(doing, effect, EffectStatus.UNKNOWN, _with_other_arguments(why))
            return None
        if spec.effect_class is EffectClass.VERIFIABLE:
            return Open(why)
        if is_keyed:
            if self._is_key_known(spec, effect):
                self._past.keys_since.setdefault(effect.idempotency_key, effect.created_us)
                return await self._attempt(doing, spec, effect.generation + 1, key=effect.idempotency_key)
            await self._end(doing, effect, EffectStatus.UNKNOWN, _forgotten(spec, why))
            return None
        if self._past.find(doing.key) is None:  # killed before it was saved, or by an older version
            await self._stepper.save(doing, failed_payload(failure))
        return Raised(failure)

    def _is_key_known(self, spec: EffectSpec, effect: Effect) -> bool:
        """Whether the provider still remembers the key, counted from when it first saw it."""
        clock = self._live.clock
        since = from_micros(self._past.keys_since.get(effect.idempotency_key, effect.created_us))
        age = clock.now() - since + doubt_about(clock, since)
        # Negative when the clock was set back: if by more than the window, it says nothing about the key.
        return abs(age) < (spec.window or timedelta(0))

    async def _resolve(self, doing: Doing, spec: EffectSpec, left: Open) -> Outcome:
        """The world is asked until it says what came of it, or nobody can tell."""
        effect, attempts = self._past.effects[doing.key], 0
        outcome: Outcome = left
        while isinstance(outcome, Open):
            outcome = await self._ask_world(doing, spec, effect, outcome)
            if isinstance(outcome, Again) and outcome.is_same_key:
                if attempts:
                    pause = delay(_PATIENCE, min(attempts, 20), chance=0.5)
                    await self._stepper.pause_for(doing, pause.total_seconds())
                attempts += 1
                doing.has_landed = False
                doing.until_ns = self._live.place.steady() + time_of(doing)
                patience = functools.partial(self._patience, doing)
                await sheltered(self._do(doing, effect), patience=patience)
                outcome = doing.outcome
        return outcome

    # --- before

    async def _attempt(
        self, doing: Doing, spec: EffectSpec, generation: int, *, key: str | None = None
    ) -> Outcome:
        """The intent, durable before the world is touched, and only with some of the lease left; then it is
        done. With the key of an attempt before it, if one is given."""
        live = self._live
        if live.is_stopping:
            live.check()
        began_ns, micros = live.place.steady(), live.place.nanos() // 1000
        effect, lease_us = self._intent(doing, spec, generation, micros, key)
        if micros >= lease_us or began_ns >= self._held_until_ns:
            raise live.lapsed()
        # Counted from here: whoever must outlive it knows only when it was noted.
        doing.until_ns = began_ns + time_of(doing)
        # In flight from its intent on: whoever wants us to stop waits for it.
        live.effects += 1
        try:
            try:
                is_noted = await live.write(beginning_effect(effect, live.sealing))
            except asyncio.CancelledError:
                await shielded(self._take_back(doing, effect))
                raise
            if not is_noted:
                raise Drift(f"step {doing.name}", f"another effect has its key {effect.idempotency_key}")
            self._past.effects[doing.key] = effect
            doing.has_landed = False
            # As `sheltered`, without a frame more for all those that are over at once.
            child = begin_silent(self._do(doing, effect, is_first=True), self._nest)
            if child is not None:
                await landed(child, functools.partial(self._patience, doing))
            outcome: Outcome = doing.outcome
            return outcome
        finally:
            live.effect_landed()

    def _intent(
        self, doing: Doing, spec: EffectSpec, generation: int, micros: int, shared_key: str | None = None
    ) -> tuple[Effect, int]:
        """The effect as it will be noted, and until when the claim is held that it is noted under."""
        claim = self._live.place.newest(self._live.claim)
        if claim is not self._newest:
            self._newest, self._held_until_ns = claim, claim.held_until_ns
            self._lease_us = to_micros(claim.lease_until)
        scope, name, occurrence = doing.key
        key = key_of(claim.task_id, doing, generation)
        request = Request(
            boot=claim.boot_id,
            input_digest=stored_digest(doing, self._live.sealing).hex(),
            shown=preview_of(doing.args, doing.kwargs, names=doing.names),
            returns=doing.codec.shown(),
        )
        effect = Effect(
            id=new_effect_id(micros, key),
            task_id=claim.task_id,
            run_id=claim.run_id,
            name=name,
            scope=scope,
            occurrence=occurrence,
            effect_class=spec.effect_class,
            idempotency_key=shared_key or key,
            generation=generation,
            request=_encode(request),
            created_us=micros,
            fence=claim.fence,
            settle_us=self._lease_us + time_of(doing) // 1000,
            updated_us=micros,
        )
        return effect, self._lease_us

    async def _take_back(
        self, doing: Doing, effect: Effect, why: str = "the run was told to stop before it was done"
    ) -> None:
        """We were stopped before the call: nothing has happened, that is known, and nobody need be asked."""
        live = self._live
        failure = Failure(kind="not_begun", message=why)
        outcome = msgspec.json.encode(failure)

        def take_back(tx: Tx) -> Effect | None:
            # The note may still be on its way; to note it again waits for that.
            if not tx.effects.begin(effect, live.claim):
                return None
            return tx.effects.settle(effect, EffectStatus.FAILED, outcome=outcome, now=effect.created_at)

        # Stopping: the claim is lost, and whoever has it now settles this, too.
        with contextlib.suppress(HoldfastError, Stopping):
            taken = await live.write(take_back, is_kept=True)
            if taken is not None:  # a program that was only cancelled may call it again: with a new key
                self._past.effects[doing.key] = taken

    # --- what the program itself cancels: by a timeout of its own, or because one beside it has failed

    def _patience(self, doing: Doing) -> float | None:
        """How long its child may take to land."""
        live = self._live
        # Whoever stops us for another reason waits for effects by himself, as long as he can.
        return None if doing.has_landed or live.is_stopping else live.place.landing_s

    async def _cut_short(self, doing: Doing, spec: EffectSpec) -> None:
        """It was begun, and nobody waits for it any longer: that is known before the program goes on."""
        live, effect = self._live, self._past.effects.get(doing.key)
        if effect is None or effect.status is not EffectStatus.INTENT:
            return
        if live.is_stopping:
            if live.why == CANCELLED and not live.is_given_up and spec.is_local:
                await self._settle_cancelled(doing, spec, effect)
            return
        self._cut[doing.key] = (doing, spec)
        self._on_cut()
        if spec.effect_class is EffectClass.VERIFIABLE:
            return  # the world is asked at the next call: who has just cancelled us does not want to wait
        # Whoever has the claim now, or finds us dead, sees an intent and settles it.
        with contextlib.suppress(HoldfastError, Stopping):
            await self._doubt(doing, effect)

    async def _settle_cancelled(self, doing: Doing, spec: EffectSpec, effect: Effect) -> None:
        """The task is cancelled, and its effect was cut short for that. Its own machine can tell at once what
        came of it: a command, for one, that was ended with it leaves nothing to ask a person about."""
        # Whatever stays open is put before a person when the task ends.
        with contextlib.suppress(HoldfastError, Stopping, TimeoutError):
            async with asyncio.timeout(_LOOK_S), self._live.cleanup():
                await self._ask_world(doing, spec, effect, Open(_CUT))

    async def _doubt(self, doing: Doing, effect: Effect) -> None:
        live, now = self._live, self._live.clock.now()

        def note_doubt(tx: Tx) -> tuple[Effect, Step | None]:
            tx.journal.require(live.claim)
            found = tx.effects.again(effect)
            # What came of it may have been on its way to the ledger when it was cut short.
            if found.status is EffectStatus.INTENT:
                found = doubt(tx, effect, Failure(kind="unknown", message=_CUT), now)
            step = tx.journal.find_step(effect.task_id, *doing.key)
            return found, None if step is None else opened_step(tx, step)

        self._past.effects[doing.key], step = await live.write(note_doubt)
        if step is not None:
            self._past.put(doing.key, step)

    @property
    def has_cut(self) -> bool:
        return bool(self._cut)

    async def settle_cut(self) -> None:
        """Before the program goes on, or ends: what can be found out about those is, and for the rest the
        task waits until a person has decided."""
        for key, (doing, spec) in list(self._cut.items()):
            effect = self._past.effects.get(key)
            if effect is not None and effect.status is EffectStatus.INTENT:
                if spec.effect_class is EffectClass.VERIFIABLE:
                    await self._ask_world(doing, spec, effect, Open(_CUT))
                else:
                    await self._doubt(doing, effect)
                effect = self._past.effects.get(key)
            if effect is not None and effect.status is EffectStatus.UNKNOWN:
                await self._park(effect)
            self._cut.pop(key, None)

    # --- the call

    async def _do(self, doing: Doing, effect: Effect, *, is_first: bool = False) -> None:
        """Call it and save its outcome, which is left with it."""
        live, key, handled = self._live, effect.idempotency_key, sys.exception()
        doing.idempotency_key = key
        live.effects += 1
        live.place.calling[key] = live
        try:
            if is_first and live.is_stopping:
                try:
                    live.check()
                except Stopping:
                    await self._take_back(doing, effect)
                    raise
            try:
                value = await self._stepper.call(doing)
            except TooLate as late:
                if is_first:
                    await self._take_back(doing, effect, f"it was not begun: {late}")
                if late.is_lease:
                    raise live.lapsed() from late
                # An earlier call with the same key may have happened all the same.
                error = TimeoutError(f"{doing.name} was not begun: {late}")
                doing.outcome = Definite(error) if is_first else Open(str(error), error)
                return
            except RetryAfter as error:
                failure = failure_of(error)
                # Of an earlier call with the same key it says nothing.
                failure = _certain(failure) if is_first else failure
                await self._end(doing, effect, EffectStatus.FAILED, failure)
                doing.outcome = Limited(error)
                return
            except Exception as error:  # noqa: BLE001 - the user's own work
                doing.outcome = await self._after(doing, effect, error, handled, is_first=is_first)
                return
            try:
                payload = doing.codec.encode(doing.name, value)
            except HoldfastError as error:
                # It happened all the same; what it returned is lost, and that is its result.
                payload = failed_payload(failure_of(error))
            # The world has changed: that must be known, whoever wants us to stop; so we are sheltered here.
            step, packed = await self._stepper.saving_beside(doing, payload)
            finish = finishing_effect(effect, live.claim, payload, step.seq, live.sealing)
            is_simple = packed is None and not live.claim.is_alone and effect.run_id == live.claim.run_id
            if not (is_simple and await live.write(finish, is_kept=True)):
                await self._note_outcome(doing, effect, step, packed, EffectStatus.DONE)
            self._stepper.remember(doing, step, payload)
            self._past.effects.pop(doing.key, None)
            doing.outcome = payload
        finally:
            if live.place.calling.get(key) is live:
                del live.place.calling[key]
            live.effect_landed()

    async def _after(
        self,
        doing: Doing,
        effect: Effect,
        error: Exception,
        handled: BaseException | None,
        *,
        is_first: bool,
    ) -> Outcome:
        """What an exception means. It does not say that nothing happened, unless the author says so of the
        first call: then it may be done again, and else only as its class allows."""
        spec, failure = doing.effect, failure_of(error)
        assert spec is not None
        is_certain = not doing.is_cut_off and spec.is_certain(error)
        if is_first and (is_certain or self._was_not_entered(doing, error)):
            await self._end(doing, effect, EffectStatus.FAILED, _certain(failure))
            return Definite(error)
        if spec.effect_class is EffectClass.VERIFIABLE or is_transport_error(error, outside=handled):
            return Open(failure.message, error)
        if spec.effect_class is EffectClass.KEYED:
            await self._end(doing, effect, EffectStatus.FAILED, failure)
            return Definite(error)
        # One write for both, so that no replay finds a failure without the step that tells of it.
        payload = failed_payload(failure)
        step, packed = await self._stepper.saving_beside(doing, payload)
        await self._end(doing, effect, EffectStatus.FAILED, failure, step, packed)
        self._stepper.remember(doing, step, payload)
        return Raised(failure, error)

    def _was_not_entered(self, doing: Doing, error: Exception) -> bool:
        """Whether Python refused the call itself: a model gave arguments that do not fit, or a secret that it
        names is not known here. Then the function has done nothing."""
        if not isinstance(error, (TypeError, BadInput)) or not isinstance(doing.fn, FunctionType):
            return False
        if hasattr(doing.fn, "__signature__"):  # which need not be the one that Python goes by
            return False
        try:
            live = self._live
            args, kwargs = live.place.secrets.opened(doing.args, doing.kwargs, task=live.task.name)
            inspect.signature(doing.fn, follow_wrapped=False).bind(*args, **kwargs)
        except BadInput as refusal:
            return str(refusal) == str(error)
        except TypeError:
            return True
        return False

    async def _note_outcome(
        self, doing: Doing, effect: Effect, step: Step, packed: Packed | None, to: EffectStatus
    ) -> None:
        live, now = self._live, step.ended_at

        def note_outcome(tx: Tx) -> None:
            tx.journal.require(live.claim)
            if packed is not None:
                tx.blobs.keep(live.claim.task_id, packed)
            if effect.run_id != live.claim.run_id:
                # It is its own step, but for who began it: that this run has got so far is this one's.
                tx.journal.put_step(step)
            was = tx.effects.again(effect).status
            if to is EffectStatus.CONFIRMED and was in (EffectStatus.INTENT, EffectStatus.FAILED):
                tx.effects.settle(effect, EffectStatus.UNKNOWN, outcome=None, now=now)
            tx.effects.settle(effect, to, outcome=step.result, now=now)
            live.note_progress(tx, now)

        try:
            await live.write(note_outcome, is_kept=True)
        except Stopping as stop:
            if isinstance(stop.__cause__, ClaimLost):
                # Somebody else settles it; what we saw may help to decide.
                await live.tell_late(
                    EventKind.EFFECT_SEEN_LATE, effect_id=effect.id, step=doing.name, outcome=to.value
                )
            raise

    async def _end(
        self,
        doing: Doing,
        effect: Effect,
        to: EffectStatus,
        failure: Failure,
        step: Step | None = None,
        packed: Packed | None = None,
    ) -> None:
        """A failure, or in doubt: noted with what was seen, and with the step that tells the program."""
        live, now = self._live, self._live.clock.now()
        outcome = msgspec.json.encode(failure)

        def note_end(tx: Tx) -> Effect:
            tx.journal.require(live.claim)
            if to is EffectStatus.UNKNOWN:
                return doubt(tx, effect, failure, now)
            found = tx.effects.again(effect)
            if found.status is to and found.outcome == outcome:
                return found
            if found.status is to:  # the world was asked, and now it is certain
                tx.effects.settle(effect, EffectStatus.UNKNOWN, outcome=None, now=now)
            if step is not None:
                if packed is not None:
                    tx.blobs.keep(live.claim.task_id, packed)
                tx.journal.put_step(step)
                live.note_progress(tx, now)
            return tx.effects.settle(effect, to, outcome=outcome, now=now)

        self._past.effects[doing.key] = await live.write(note_end, is_kept=True)

    # --- settling what was left open

    async def _follow_review(self, doing: Doing, effect: Effect) -> None:
        """What failed for certain is done again; a person may have said that it is undone instead."""
        review = None if effect.review is None else msgspec.json.decode(effect.review, type=Review)
        if review is None or review.decision is not Decision.COMPENSATE:
            return
        compensate = doing.options.compensate
        if compensate is not None:
            await self._stepper.call_instead(compensate, doing, f"{effect.idempotency_key}-compensation")
        message = "it was compensated" if compensate is not None else "a person compensated it"
        raise await self._stepper.failed(doing, Compensated(message))

    async def _outlive(self, effect: Effect) -> None:
        """Wait until the worker that began it has surely finished: not at all if that worker provably ended,
        and no longer than until it ends."""
        live, boot_id, until = self._live, decode_request(effect.request).boot, effect.settle_after
        life = live.place.life
        if boot_id == life.id:
            # This process may have lost the run in a freeze and claimed it again, while its call goes on.
            caller = live.place.calling.get(effect.idempotency_key)
            if caller is not None:
                await caller.until_calm()
                live.check()
            has_ended = effect.idempotency_key not in live.place.at_work
        else:
            has_ended = life.has_died(await live.read(lambda tx: tx.boots.get(boot_id)))
        if has_ended or until is None:
            return
        until += doubt_about(live.clock, effect.created_at)
        if live.clock.now() < until:
            await self._until_ended(boot_id, until)

    async def _ask_world(
        self, doing: Doing, spec: EffectSpec, effect: Effect, left: Open
    ) -> bytes | Again | Definite | None:
        """Settle by class: it happened, it may be done again, or only a person can tell."""
        why = left.why
        if spec.effect_class is EffectClass.KEYED:
            if effect.effect_class is not EffectClass.KEYED:
                why = f"{why}; it was {effect.effect_class.value} then, and sent no key"
            elif self._is_key_known(spec, effect):
                return Again(is_same_key=True)
            else:
                why = _forgotten(spec, why).message
        elif spec.effect_class is EffectClass.VERIFIABLE:
            verdict = await self._verify(doing, spec, effect)
            if isinstance(verdict, Happened):
                payload = doing.codec.encode(doing.name, verdict.result)
                step, packed = await self._stepper.saving_beside(doing, payload)
                await self._note_outcome(doing, effect, step, packed, EffectStatus.CONFIRMED)
                self._stepper.remember(doing, step, payload)
                self._past.effects.pop(doing.key, None)
                return payload
            if isinstance(verdict, DidNotHappen):
                failure = _certain(Failure(kind="did_not_happen", message=why))
                await self._end(doing, effect, EffectStatus.FAILED, failure)
                return Again() if left.error is None else Definite(left.error)
            if isinstance(verdict, Stopped) and await self._is_cancelled():
                # What was wanted is done: nothing of it goes on.
                await self._end(
                    doing, effect, EffectStatus.FAILED, Failure(kind="stopped", message=verdict.why)
                )
                live = self._live
                live.stop(CANCELLED)
                raise Stopping(live.why or CANCELLED)
            # Its author's words, which may quote what was sent.
            why = clean_text(f"{why}; verify says: {verdict.why}", max_chars=MAX_MESSAGE_CHARS)
        await self._end(doing, effect, EffectStatus.UNKNOWN, Failure(kind="unknown", message=why))
        return None

    async def _is_cancelled(self) -> bool:
        """Whether a cancel of the task is recorded: the run itself may not have heard of it yet."""
        task_id = self._live.claim.task_id
        return (await self._live.read(lambda tx: tx.tasks.look(task_id))).cancel_requested_at is not None

    async def _begun_elsewhere(self, effect: Effect) -> str | None:
        """Why this machine cannot tell what came of it; None when it can."""
        boot_id, life = decode_request(effect.request).boot, self._live.place.life
        if boot_id == life.id:
            return None
        boot = await self._live.read(lambda tx: tx.boots.get(boot_id))
        if boot is None:
            return f"the ledger no longer knows the host of {boot_id}, which began it"
        if life.is_here(boot):
            return None
        return f"it was begun on host {boot.node}; only that host can tell whether it happened"

    async def _has_left_its_thread(self, doing: Doing, effect: Effect) -> bool:
        """A function in a thread goes on after its timeout: as long as it does, `verify` may say that nothing
        happened although it is about to. So it is waited for, as long as an effect may take."""
        at_work, key = self._live.place.at_work, effect.idempotency_key
        if key in at_work:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(time_of(doing) / 1e9):
                    await at_work.until_over(key)
        return key not in at_work

    async def _verify(
        self, doing: Doing, spec: EffectSpec, effect: Effect
    ) -> Happened | DidNotHappen | Unknown:
        assert spec.verify is not None
        if spec.is_local and (elsewhere := await self._begun_elsewhere(effect)) is not None:
            return Unknown(why=elsewhere)
        if not await self._has_left_its_thread(doing, effect):
            return Unknown(why="its function is still running in a thread of this process")
        try:
            verdict = await self._stepper.call_instead(
                spec.verify, doing, effect.idempotency_key, is_effect=False
            )
        except Exception as error:  # noqa: BLE001 - a verify that fails knows nothing
            return Unknown(why=f"verify failed: {failure_of(error).message}")
        if isinstance(verdict, (Happened, DidNotHappen, Unknown)):
            return verdict
        return Unknown(why=f"verify answered {type(verdict).__name__}, not Happened, DidNotHappen or Unknown")


def doubt(tx: Tx, effect: Effect, failure: Failure, now: datetime) -> Effect:
    """Only a person can tell what came of it. What is in doubt, or what a person decided, stays as it is."""
    found = tx.effects.again(effect)
    if found.status is EffectStatus.UNKNOWN or found.review is not None:
        return found
    why = failure.message
    tx.emit(EventKind.EFFECT_IN_DOUBT, effect.id, at=now, task_id=effect.task_id, step=effect.name, why=why)
    return tx.effects.settle(effect, EffectStatus.UNKNOWN, outcome=msgspec.json.encode(failure), now=now)


def failed_unsurely(past: Past, keys: Iterable[Key]) -> list[Effect]:
    """Of these steps the opaque effects that raised, when nothing says that nothing happened.

    Not those of finished turns: the program has gone on from them, and they are not replayed.
    """
    found = [past.effects[key] for key in dict.fromkeys(keys) if key in past.effects and past.find(key)]
    return [
        effect for effect in found if effect.effect_class is EffectClass.OPAQUE and may_have_happened(effect)
    ]


def doubting(effect: Effect, claim: Claim, beside: Iterable[Key], now: datetime) -> Callable[[Tx], None]:
    """The part of a write that puts a failed opaque effect before a person. Its step is forgotten: what the
    person decides is its result."""
    failure = _failure_in(effect)
    why = (
        f"it raised {failure.kind}: {failure.message}, and the task ended with that error; "
        "the effect may have happened all the same"
    )
    in_doubt = Failure(kind="unknown", message=why, facts={**failure.facts, "raised": failure.kind})

    def put_in_doubt(tx: Tx) -> None:
        for key in (effect.key, *beside):
            tx.journal.forget_step(claim, *key)
        doubt(tx, effect, in_doubt, now)

    return put_in_doubt


def may_have_happened(effect: Effect) -> bool:
    """Whether an effect that failed may have happened all the same, and nobody has decided about it."""
    is_free = effect.effect_class in (EffectClass.TRANSACTIONAL, *FREE)
    return effect.status is EffectStatus.FAILED and not is_free and not _is_certain(effect)


def _certain(failure: Failure) -> Failure:
    """With the word that nothing happened: what has it may be done again."""
    return Failure(kind=failure.kind, message=failure.message, facts={**failure.facts, _CERTAIN: True})


def _is_certain(effect: Effect) -> bool:
    """Whether an effect that failed did not happen: its author says so, the world does, or a person."""
    failure = _failure_in(effect)
    return effect.review is not None or failure.kind == "not_begun" or failure.facts.get(_CERTAIN) is True


def _failure_in(effect: Effect) -> Failure:
    if effect.outcome is None:
        return Failure(kind="failed", message="nothing is known of how it failed")
    return msgspec.json.decode(effect.outcome, type=Failure)


def _has_other_arguments(sealing: Sealing, doing: Doing, effect: Effect) -> bool:
    """Whether nobody can ask the world about it: what it was called with, we do not have any more."""
    stored = bytes.fromhex(decode_request(effect.request).input_digest)
    return not sealing.is_same(stored, doing.digest, "effect", effect.id)


def _with_other_arguments(why: str) -> Failure:
    return Failure(kind="unknown", message=f"{why}; now it is called with other arguments")


def _forgotten(spec: EffectSpec, why: str) -> Failure:
    return Failure(kind="unknown", message=f"{why}, and the provider's window of {spec.window} has passed")


@contextlib.contextmanager
def keyed_by(name: str, key: str, sealing: Sealing) -> Iterator[None]:
    """As inside the step of an effect, for what is called without one."""
    token = inside_step.set(Called(name=name, idempotency_key=key, sealing=sealing))
    try:
        yield
    finally:
        inside_step.reset(token)


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
    payload = encode_payload("result", result)
    encoded = msgspec.json.encode(review)

    def resolve(tx: Tx) -> Effect:
        effect = tx.effects.get(effect_id)
        if effect.review == encoded:  # the write runs a second time after its own commit
            return effect
        if effect.status is not EffectStatus.UNKNOWN:
            raise IllegalMove("effect", effect_id, effect.status.value, decision.value)
        packed = pack(payload, tx.sealing)
        is_done = decision is Decision.DONE
        to = EffectStatus.CONFIRMED if is_done else EffectStatus.FAILED
        settled = tx.effects.settle(effect, to, outcome=packed.stored if is_done else effect.outcome, now=now)
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
        wake_waiting(tx, effect.task_id, f"review:{effect_id}", now)
        return msgspec.structs.replace(settled, review=encoded)

    return resolve


def _reviewed_step(effect: Effect, result: bytes, now: datetime) -> Step:
    return Step(
        task_id=effect.task_id,
        scope=effect.scope,
        name=effect.name,
        occurrence=effect.occurrence,
        run_id=effect.run_id,
        seq=to_micros(now),
        # None: what a person decided holds, whatever the step is called with by now.
        input_digest=None,
        result=result,
        started_us=effect.created_us,
        ended_us=to_micros(now),
    )
