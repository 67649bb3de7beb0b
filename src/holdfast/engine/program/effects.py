"""Effects: the intent is durable before the call, the outcome after it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import FunctionType
from typing import Any

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import to_micros
from holdfast.core.effect import Effect, EffectClass, EffectRequest
from holdfast.core.errors import BadInput, Drift, HoldfastError, NotInRun, RetryAfter, StepFailed
from holdfast.core.ids import new_effect_id
from holdfast.core.ladder import Retry, delay
from holdfast.core.step import failed_payload
from holdfast.core.step_declarations import EffectSpec
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus
from holdfast.core.transport import is_transport_error
from holdfast.engine.journal.codec import failure_of
from holdfast.engine.journal.scopes import Called, Key, TaskHistory, inside_step
from holdfast.engine.program.effect_reviews import (
    certain,
    doubt,
    failure_in,
    follow_review,
    is_certain,
    unapproved,
)
from holdfast.engine.program.effect_settling import (
    Again,
    Definite,
    EffectSettler,
    Limited,
    Open,
    Outcome,
    Raised,
    key_forgotten,
    with_other_arguments,
)
from holdfast.engine.program.live_run import LiveRun, TooLate, sheltered, shielded
from holdfast.engine.program.steps import (
    StepCall,
    StepRunner,
    digest_in_key,
    stored_digest,
    tell_drift,
    time_of,
)
from holdfast.engine.program.stopping import Stopping
from holdfast.store import Tx
from holdfast.store.effects import beginning_effect, finishing_effect
from holdfast.store.sealing import Sealing

# Between two calls with one key, while the provider's answers leave the outcome open.
_PATIENCE = Retry(attempts=1_000_000, backoff=timedelta(seconds=1), most=timedelta(minutes=5))

_encode = msgspec.json.Encoder().encode


# --- for tools: what the effect that calls them knows


def idempotency_key() -> str:
    """The key of the effect that is being done: the same after a crash, so that a repeat is recognised."""
    called = inside_step.get()
    if called is None or called.idempotency_key is None:
        raise NotInRun("idempotency_key()", "inside a tool that was called by turn.tool or run.step")
    return called.idempotency_key


def file_key(kind: str, *, is_for_reading: bool = False) -> bytes | None:
    """The key to seal a file of the effect that is being done; None if the ledger does not seal."""
    called = inside_step.get()
    if called is None:
        return None
    find = called.sealing.key_of_file if is_for_reading else called.sealing.file_key
    return find(kind, idempotency_key())


@contextlib.contextmanager
def keyed_by(name: str, key: str, sealing: Sealing) -> Iterator[None]:
    """Call a tool as if inside the step of an effect."""
    token = inside_step.set(Called(name=name, idempotency_key=key, sealing=sealing))
    try:
        yield
    finally:
        inside_step.reset(token)


# --- the note of an effect


def key_of(task_id: str, doing: StepCall, generation: int) -> str:
    """From the task, the scope, the name and the occurrence; never from the run."""
    text = "\0".join((task_id, *doing.key, str(generation)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def effect_of(
    doing: StepCall,
    effect_class: EffectClass,
    generation: int,
    claim: Claim,
    sealing: Sealing,
    micros: int,
    *,
    settle_us: int | None = None,
    shared_key: str | None = None,
) -> Effect:
    """The effect as it is noted before its call. A `shared_key` is that of an earlier attempt."""
    scope, name, occurrence = doing.key
    key = key_of(claim.task_id, doing, generation)
    request = EffectRequest(
        boot=claim.boot_id,
        input_digest=stored_digest(doing, sealing).hex(),
        shown=doing.shown,
        returns=doing.codec.shown(),
    )
    return Effect(
        id=new_effect_id(micros, key),
        task_id=claim.task_id,
        run_id=claim.run_id,
        name=name,
        scope=scope,
        occurrence=occurrence,
        effect_class=effect_class,
        idempotency_key=shared_key or key,
        generation=generation,
        request=_encode(request),
        created_us=micros,
        fence=claim.fence,
        settle_us=settle_us,
        updated_us=micros,
    )


class Effects:
    """The effects of one run: begun, called, tried again."""

    def __init__(self, live: LiveRun, past: TaskHistory, stepper: StepRunner, settler: EffectSettler) -> None:
        self._live = live
        self._past = past
        self._stepper = stepper
        self.settler = settler
        # Effects whose failure the program has seen since this process executes the run.
        self.raised: set[Key] = set()
        # With its present lease; worked out anew when that was renewed.
        self._newest: Claim | None = None
        self._lease_us = 0
        self._held_until_ns = 0

    async def carry(self, doing: StepCall, spec: EffectSpec) -> Any:
        """Its result, remembered once it is done. It is never done twice unless its class allows that."""
        past = self._past
        try:
            is_known, result = self._stepper.remembered(doing)
        except Drift as drift:
            is_known, result = await self.beside_drift(doing, spec, drift)
        except StepFailed as failed:
            self.raised.add(doing.key)
            if spec.effect_class is EffectClass.OPAQUE and doing.key not in past.effects:
                # A fork has the step of its origin but not the effect, so a retry must not repeat it.
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
                    await self.settler.park(effect)
                    # A person decided before the run gave up its claim: go on with the decision.
                    is_known, result = self._stepper.remembered(doing)
                    if is_known:
                        return result
                    continue
                match await self._next_outcome(doing, spec, effect):
                    case bytes(payload):
                        return self._stepper.result_of(doing, payload)
                    case Limited(error):
                        await self._stepper.pause_for(doing, error.seconds)
                    case Definite(error):
                        await self._stepper.after_failure(doing, error)
                    case Raised(failure, cause):
                        self.raised.add(doing.key)
                        raise self._stepper.revived(doing, failure) from cause
                    case _:
                        continue
        except Stopping:
            raise
        except asyncio.CancelledError:
            await shielded(self.settler.cut_short(doing, spec))
            raise

    async def _next_outcome(self, doing: StepCall, spec: EffectSpec, effect: Effect | None) -> Outcome:
        """What comes of the next attempt, or of the one that an earlier life began."""
        if effect is None and spec.effect_class in self._live.place.approval:
            await self._ask_first(doing, spec, 1, unapproved(spec.effect_class))
            return None
        if effect is None:
            outcome = await self._attempt(doing, spec, 1)
        elif effect.status is EffectStatus.INTENT:
            outcome = await self.settler.left_open(doing, effect)
        else:
            await follow_review(self._stepper, doing, effect)
            outcome = await self._once_more(doing, spec, effect)
        return await self._resolve(doing, spec, outcome) if type(outcome) is Open else outcome

    async def beside_drift(self, doing: StepCall, spec: EffectSpec, drift: Drift) -> tuple[bool, Any]:
        """It was done with other arguments, so to do it now would be a second effect. Give it a key of its
        own, and let a person decide."""
        scope, name, occurrence = doing.key
        doing.key = (scope, name, f"{occurrence}~{digest_in_key(doing, self._live.sealing)}")
        is_known, result = self._stepper.remembered(doing)
        if not is_known and doing.key not in self._past.effects:
            failure = Failure(kind="unknown", message=drift.problem)
            await self._ask_first(doing, spec, 1, failure, drift=drift)
        return is_known, result

    async def _ask_first(
        self, doing: StepCall, spec: EffectSpec, generation: int, why: Failure, *, drift: Drift | None = None
    ) -> None:
        """Note the effect and put it before a person, in one write and without performing it."""
        live, now = self._live, self._live.clock.now()
        effect = self._intent(doing, spec, generation, to_micros(now))

        def note_doubt(tx: Tx) -> Effect:
            if not tx.effects.begin(effect, live.claim):
                raise Drift(f"step {doing.name}", f"another effect has its key {effect.idempotency_key}")
            if drift is not None and tx.effects.again(effect).status is EffectStatus.INTENT:
                tell_drift(tx, live.claim, doing, drift, now)
            return doubt(tx, effect, why, now)

        self._past.effects[doing.key] = await live.write(note_doubt)

    async def reviewed(self, doing: StepCall) -> tuple[bool, Any, int]:
        """Waits for a person's decision, if one is missing. Whether the result is known, the result, and the
        generation in which to do it otherwise."""
        while (effect := self._past.effects.get(doing.key)) is not None:
            if effect.status is not EffectStatus.UNKNOWN:
                await follow_review(self._stepper, doing, effect)
                return False, None, effect.generation + 1
            await self.settler.park(effect)
            is_known, result = self._stepper.remembered(doing)
            if is_known:
                return True, result, effect.generation
        return False, None, 1

    # --- trying again

    async def _once_more(self, doing: StepCall, spec: EffectSpec, effect: Effect) -> Outcome:
        """After a failure: with a new key if nothing happened, with the same one if the provider knows keys,
        after `verify` if there is one; otherwise not at all."""
        settler = self.settler
        # Two attempts with one key: that the second did nothing does not say that of the first.
        has_own_key = effect.idempotency_key == key_of(effect.task_id, doing, effect.generation)
        if self._needs_approval(doing, spec, effect):
            await self._ask_first(doing, spec, effect.generation + 1, unapproved(spec.effect_class))
            return None
        if effect.review is not None or (has_own_key and is_certain(effect)):
            return await self._attempt(doing, spec, effect.generation + 1)
        failure = failure_in(effect)
        why = f"it raised {failure.kind}: {failure.message}"
        is_keyed = spec.effect_class is effect.effect_class is EffectClass.KEYED
        is_verifiable = spec.effect_class is EffectClass.VERIFIABLE
        if (is_keyed or is_verifiable) and settler.has_other_arguments(doing, effect):
            await settler.ask_person(doing, effect, with_other_arguments(why))
            return None
        if is_verifiable:
            return Open(why)
        if is_keyed:
            if settler.is_key_known(spec, effect):
                self._past.keys_since.setdefault(effect.idempotency_key, effect.created_us)
                return await self._attempt(doing, spec, effect.generation + 1, key=effect.idempotency_key)
            await settler.ask_person(doing, effect, key_forgotten(spec, why))
            return None
        if self._past.find(doing.key) is None:  # killed before it was saved, or by an older version
            await self._stepper.save(doing, failed_payload(failure))
        return Raised(failure)

    def _needs_approval(self, doing: StepCall, spec: EffectSpec, effect: Effect) -> bool:
        """Whether a person has to approve the next attempt: the person approved another call than the one
        that the program makes now, or its task ended before a decision."""
        is_held_back = spec.effect_class in self._live.place.approval
        is_withdrawn = effect.is_unapproved and effect.review is None
        if is_held_back and is_withdrawn:
            return True
        return (is_held_back or effect.is_unapproved) and self.settler.has_other_arguments(doing, effect)

    async def _resolve(self, doing: StepCall, spec: EffectSpec, left: Open) -> Outcome:
        """Verify it, or repeat it with the same key, until its outcome is known or a person must decide."""
        effect, attempts = self._past.effects[doing.key], 0
        outcome: Outcome = left
        while isinstance(outcome, Open):
            outcome = await self.settler.ask_world(doing, spec, effect, outcome)
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

    # --- beginning

    async def _attempt(
        self, doing: StepCall, spec: EffectSpec, generation: int, *, key: str | None = None
    ) -> Outcome:
        """Note the intent, durably, then call it; only while the lease holds. With the key of an earlier
        attempt, if one is given."""
        live = self._live
        if live.is_stopping:
            live.check()
        began_ns, micros = live.place.steady(), live.place.nanos() // 1000
        effect = self._intent(doing, spec, generation, micros, key)
        if micros >= self._lease_us or began_ns >= self._held_until_ns:
            raise live.lapsed()
        # Counted from here: a worker that must outlive it knows only when it was noted.
        doing.until_ns = began_ns + time_of(doing)
        # In flight from its intent on, so that a drain waits for it.
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
            patience = functools.partial(self._patience, doing)
            await sheltered(self._do(doing, effect, is_first=True), patience=patience)
            outcome: Outcome = doing.outcome
            return outcome
        finally:
            live.effect_landed()

    def _intent(
        self, doing: StepCall, spec: EffectSpec, generation: int, micros: int, shared_key: str | None = None
    ) -> Effect:
        """The effect as it will be noted, under the claim with its present lease."""
        claim = self._live.place.newest(self._live.claim)
        if claim is not self._newest:
            self._newest, self._held_until_ns = claim, claim.held_until_ns
            self._lease_us = to_micros(claim.lease_until)
        settle_us = self._lease_us + time_of(doing) // 1000
        return effect_of(
            doing,
            spec.effect_class,
            generation,
            claim,
            self._live.sealing,
            micros,
            settle_us=settle_us,
            shared_key=shared_key,
        )

    async def _take_back(
        self, doing: StepCall, effect: Effect, why: str = "the run was told to stop before it was done"
    ) -> None:
        """Record that nothing happened: the run was stopped between the intent and the call."""
        live = self._live
        outcome = msgspec.json.encode(Failure(kind="not_begun", message=why))

        def take_back(tx: Tx) -> Effect | None:
            # The note may still be on its way; to note it again waits for that.
            if not tx.effects.begin(effect, live.claim):
                return None
            return tx.effects.settle(effect, EffectStatus.FAILED, outcome=outcome, now=effect.created_at)

        # Stopping: the claim is lost, and the worker that has it now settles this, too.
        with contextlib.suppress(HoldfastError, Stopping):
            taken = await live.write(take_back, is_kept=True)
            if taken is not None:  # a program that was only cancelled may call it again: with a new key
                self._past.effects[doing.key] = taken

    def _patience(self, doing: StepCall) -> float | None:
        """How long its child may take to end, once the program has cancelled it."""
        live = self._live
        # A drain, or a cancel of the task, waits for effects by itself, as long as it can.
        return None if doing.has_landed or live.is_stopping else live.place.landing_s

    # --- calling

    async def _do(self, doing: StepCall, effect: Effect, *, is_first: bool = False) -> None:
        """Call it and record its outcome, which is left in `doing.outcome`."""
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
                # It says nothing about an earlier call with the same key.
                await self.settler.fail(doing, effect, certain(failure) if is_first else failure)
                doing.outcome = Limited(error)
                return
            except Exception as error:  # noqa: BLE001 - the user's own work
                doing.outcome = await self._after(doing, effect, error, handled, is_first=is_first)
                return
            await self._save(doing, effect, value)
        finally:
            if live.place.calling.get(key) is live:
                del live.place.calling[key]
            live.effect_landed()

    async def _save(self, doing: StepCall, effect: Effect, value: Any) -> None:
        """The world has changed, and that must be recorded even if the run is told to stop: the caller
        shelters this from a cancel."""
        live = self._live
        try:
            payload = doing.codec.encode(doing.name, value)
        except HoldfastError as error:
            # It happened all the same; that its value cannot be stored is its result.
            payload = failed_payload(failure_of(error))
        step, packed = await self._stepper.saving_beside(doing, payload)
        finish = finishing_effect(effect, live.claim, payload, step.seq, live.sealing)
        is_simple = packed is None and not live.claim.is_alone and effect.run_id == live.claim.run_id
        if not (is_simple and await live.write(finish, is_kept=True)):
            await self.settler.succeed(doing, effect, step, packed, EffectStatus.DONE)
        self._stepper.remember(doing, step, payload)
        self._past.effects.pop(doing.key, None)
        doing.outcome = payload

    async def _after(
        self,
        doing: StepCall,
        effect: Effect,
        error: Exception,
        handled: BaseException | None,
        *,
        is_first: bool,
    ) -> Outcome:
        """What an exception means. It does not say that nothing happened, unless the author says so of the
        first call: then it may be done again. Otherwise its class decides."""
        spec, failure = doing.effect, failure_of(error)
        assert spec is not None
        says_nothing_happened = not doing.is_cut_off and spec.is_certain(error)
        if is_first and (says_nothing_happened or self._was_not_entered(doing, error)):
            await self.settler.fail(doing, effect, certain(failure))
            return Definite(error)
        if spec.effect_class is EffectClass.VERIFIABLE or is_transport_error(error, outside=handled):
            return Open(failure.message, error)
        if spec.effect_class is EffectClass.KEYED:
            await self.settler.fail(doing, effect, failure)
            return Definite(error)
        # One write for both, so that no replay finds a failed effect without its failed step.
        payload = failed_payload(failure)
        step, packed = await self._stepper.saving_beside(doing, payload)
        await self.settler.fail(doing, effect, failure, step, packed)
        self._stepper.remember(doing, step, payload)
        return Raised(failure, error)

    def _was_not_entered(self, doing: StepCall, error: Exception) -> bool:
        """Whether Python refused the call itself, so that the function did nothing: a model gave arguments
        that do not fit, or names a secret that is not known here."""
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
