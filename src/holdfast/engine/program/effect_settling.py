"""How an effect ended: recorded, or found out after a crash or a cancel left it open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from holdfast.core.clock import from_micros
from holdfast.core.effect import Effect, EffectClass, decode_request
from holdfast.core.errors import ClaimLost, HoldfastError, RetryAfter
from holdfast.core.events import EventKind
from holdfast.core.payload import clean_text
from holdfast.core.step import Step
from holdfast.core.step_declarations import DidNotHappen, EffectSpec, Happened, Stopped, Unknown
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus
from holdfast.engine.journal.codec import MAX_MESSAGE_CHARS, failure_of
from holdfast.engine.journal.scopes import Key, TaskHistory, opened_step
from holdfast.engine.program.effect_reviews import certain, doubt, doubting, is_in_doubt_once_failed
from holdfast.engine.program.live_run import LiveRun
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.program.steps import StepCall, StepRunner, time_of
from holdfast.engine.program.stopping import Stopping
from holdfast.store import Tx
from holdfast.store.blobs import Packed
from holdfast.store.clock import doubt_about

# How long `verify` may take for an effect that a cancel of its task has cut short.
_LOOK_S = 5.0
_CUT = "the program cancelled it while it was being done"


class Open(msgspec.Struct, frozen=True):
    """It was begun, and it is not known whether it happened."""

    why: str
    # What its function raised; None if its process died.
    error: Exception | None = None


class Definite(msgspec.Struct, frozen=True):
    """Its function raised, and it may be tried again: nothing happened, or its provider knows keys."""

    error: Exception


class Raised(msgspec.Struct, frozen=True):
    """Its function raised, and it may have happened all the same: the step fails and is not tried again."""

    failure: Failure
    # None if an earlier process called it.
    error: Exception | None = None


class Limited(msgspec.Struct, frozen=True):
    """It did not happen: the provider asks to come back later."""

    error: RetryAfter


class Again(msgspec.Struct, frozen=True):
    """It may be done: with a new key, or with the same one if its provider knows keys."""

    is_same_key: bool = False


# What came of one attempt: the payload of its result, one of the above, or None if a person has to decide.
Outcome: TypeAlias = bytes | Open | Definite | Raised | Limited | Again | None


class EffectSettler:
    """Records how the effects of one run ended, and finds out what came of those that were left open."""

    def __init__(
        self,
        live: LiveRun,
        past: TaskHistory,
        stepper: StepRunner,
        *,
        park: Callable[[Effect], Awaitable[None]],
        until_ended: Callable[[str, datetime], Awaitable[None]],
        on_cut: Callable[[], None],
    ) -> None:
        self._live = live
        self._past = past
        self._stepper = stepper
        # Waits until a person has decided about the effect.
        self.park = park
        self._until_ended = until_ended
        self._on_cut = on_cut
        # Effects that the program itself has cancelled: it goes no further until each of them is settled.
        self._cut: dict[Key, tuple[StepCall, EffectSpec]] = {}

    # --- recording

    async def succeed(
        self, doing: StepCall, effect: Effect, step: Step, packed: Packed | None, to: EffectStatus
    ) -> None:
        """Record that it happened, and its result as a step."""
        live, now = self._live, step.ended_at

        def note_outcome(tx: Tx) -> None:
            tx.journal.require(live.claim)
            if packed is not None:
                tx.blobs.keep(live.claim.task_id, packed)
            if effect.run_id != live.claim.run_id:
                # Begun by another run, so record a step for this run, too.
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
                # Another worker settles it; what we saw may help a person to decide.
                await live.tell_late(
                    EventKind.EFFECT_SEEN_LATE, effect_id=effect.id, step=doing.name, outcome=to.value
                )
            raise

    async def fail(
        self,
        doing: StepCall,
        effect: Effect,
        failure: Failure,
        step: Step | None = None,
        packed: Packed | None = None,
    ) -> None:
        """Record the failure, with the failed step if the program is to see it, in one write."""
        live, now = self._live, self._live.clock.now()
        outcome = msgspec.json.encode(failure)

        def note_failure(tx: Tx) -> Effect:
            tx.journal.require(live.claim)
            found = tx.effects.again(effect)
            if found.status is EffectStatus.FAILED:
                if found.outcome == outcome:
                    return found
                # `verify` was asked after it failed, and now it is certain.
                tx.effects.settle(effect, EffectStatus.UNKNOWN, outcome=None, now=now)
            if step is not None:
                if packed is not None:
                    tx.blobs.keep(live.claim.task_id, packed)
                tx.journal.put_step(step)
                live.note_progress(tx, now)
            return tx.effects.settle(effect, EffectStatus.FAILED, outcome=outcome, now=now)

        self._past.effects[doing.key] = await live.write(note_failure, is_kept=True)

    async def ask_person(self, doing: StepCall, effect: Effect, why: str) -> None:
        """Record that its outcome is unknown, so that a person decides."""
        live, now = self._live, self._live.clock.now()

        def note_doubt(tx: Tx) -> Effect:
            tx.journal.require(live.claim)
            return doubt(tx, effect, Failure(kind="unknown", message=why), now)

        self._past.effects[doing.key] = await live.write(note_doubt, is_kept=True)

    # --- what a crash left open

    async def left_open(self, doing: StepCall, effect: Effect) -> Open | None:
        """What a dead process left open, once it has surely finished. None: a person has to decide."""
        await self._outlive(effect)
        left = Open("the process died while it was being done")
        if not self.has_other_arguments(doing, effect):
            return left
        await self.ask_person(doing, effect, with_other_arguments(left.why))
        return None

    async def _outlive(self, effect: Effect) -> None:
        """Wait until the worker that began it has surely finished, and no longer than until that worker ends.
        Does not wait if that worker provably ended."""
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
        began_at = effect.created_at
        duration = until - began_at + doubt_about(live.clock, began_at)
        left = live.place.elapsed.left_of(duration, effect.idempotency_key, began_at)
        if left > timedelta(0):
            await self._until_ended(boot_id, live.clock.now() + left)

    def has_other_arguments(self, doing: StepCall, effect: Effect) -> bool:
        """Whether the program now calls it with other arguments: then `verify` and a repeat say nothing."""
        stored = bytes.fromhex(decode_request(effect.request).input_digest)
        return not self._live.sealing.is_same(stored, doing.digest, "effect", effect.id)

    def is_key_known(self, spec: EffectSpec, effect: Effect) -> bool:
        """Whether the provider still remembers the key, counted from when it first saw it."""
        clock = self._live.clock
        since = from_micros(self._past.keys_since.get(effect.idempotency_key, effect.created_us))
        age = clock.now() - since + doubt_about(clock, since)
        # Negative when the clock was set back: if by more than the window, it says nothing about the key.
        return abs(age) < (spec.window or timedelta(0))

    # --- asking the world

    async def ask_world(
        self, doing: StepCall, spec: EffectSpec, effect: Effect, left: Open
    ) -> bytes | Again | Definite | None:
        """Settle by class: it happened, it may be done again, or (None) a person has to decide."""
        why = left.why
        if spec.effect_class is EffectClass.KEYED:
            if effect.effect_class is not EffectClass.KEYED:
                why = f"{why}; it was {effect.effect_class.value} then, and sent no key"
            elif self.is_key_known(spec, effect):
                return Again(is_same_key=True)
            else:
                why = key_forgotten(spec, why)
        elif spec.effect_class is EffectClass.VERIFIABLE:
            verdict = await self._verify(doing, spec, effect)
            if isinstance(verdict, Happened):
                payload = doing.codec.encode(doing.name, verdict.result)
                step, packed = await self._stepper.saving_beside(doing, payload)
                await self.succeed(doing, effect, step, packed, EffectStatus.CONFIRMED)
                self._stepper.remember(doing, step, payload)
                self._past.effects.pop(doing.key, None)
                return payload
            if isinstance(verdict, DidNotHappen):
                await self.fail(doing, effect, certain(Failure(kind="did_not_happen", message=why)))
                return Again() if left.error is None else Definite(left.error)
            if isinstance(verdict, Stopped) and await self._is_cancelled():
                # The cancel has reached it: nothing of it goes on.
                await self.fail(doing, effect, Failure(kind="stopped", message=verdict.why))
                self._live.stop(StopReason.CANCELLED)
                raise Stopping(StopReason.CANCELLED)
            # The author's words, which may quote what was sent.
            why = clean_text(f"{why}; verify says: {verdict.why}", max_chars=MAX_MESSAGE_CHARS)
        await self.ask_person(doing, effect, why)
        return None

    async def _is_cancelled(self) -> bool:
        """Whether a cancel of the task is recorded: the run itself may not have heard of it yet."""
        task_id = self._live.claim.task_id
        return (await self._live.read(lambda tx: tx.tasks.look(task_id))).cancel_requested_at is not None

    async def _verify(
        self, doing: StepCall, spec: EffectSpec, effect: Effect
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

    async def _has_left_its_thread(self, doing: StepCall, effect: Effect) -> bool:
        """Wait for its thread, as long as an effect may take. A function in a thread goes on after its
        timeout; until it returns, `verify` may say "did not happen" just before it does."""
        at_work, key = self._live.place.at_work, effect.idempotency_key
        if key in at_work:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(time_of(doing) / 1e9):
                    await at_work.until_over(key)
        return key not in at_work

    # --- what the program itself cancels: by a timeout of its own, or because a call beside it failed

    async def cut_short(self, doing: StepCall, spec: EffectSpec) -> None:
        """The program no longer waits for an effect that was begun: note that before the program goes on."""
        live, effect = self._live, self._past.effects.get(doing.key)
        if effect is None:
            return
        if is_in_doubt_once_failed(effect) and not live.is_stopping:
            # It failed while it was being cancelled, so the program never saw that error.
            self._cut[doing.key] = (doing, spec)
            self._on_cut()
        if effect.status is not EffectStatus.INTENT:
            return
        if live.is_stopping:
            if live.must_cancel and spec.is_local:
                await self._settle_cancelled(doing, spec, effect)
            return
        self._cut[doing.key] = (doing, spec)
        self._on_cut()
        if spec.effect_class is EffectClass.VERIFIABLE:
            return  # `verify` runs at the next call: the code that cancelled us does not want to wait
        # If this fails, the next worker finds an intent and settles it.
        with contextlib.suppress(HoldfastError, Stopping):
            await self._doubt_cut(doing, effect)

    async def _settle_cancelled(self, doing: StepCall, spec: EffectSpec, effect: Effect) -> None:
        """Its task is cancelled. A local effect can be verified at once: a command that was ended with the
        task, for one, leaves nothing to ask a person about."""
        # If this fails, the end of the task puts the effect before a person.
        with contextlib.suppress(HoldfastError, Stopping, TimeoutError):
            async with asyncio.timeout(_LOOK_S), self._live.cleanup():
                await self.ask_world(doing, spec, effect, Open(_CUT))

    async def _doubt_cut(self, doing: StepCall, effect: Effect) -> None:
        live, now = self._live, self._live.clock.now()

        def note_doubt(tx: Tx) -> tuple[Effect, Step | None]:
            tx.journal.require(live.claim)
            found = tx.effects.again(effect)
            # Its outcome may have been on its way to the ledger when it was cut short.
            if found.status is EffectStatus.INTENT:
                found = doubt(tx, effect, Failure(kind="unknown", message=_CUT), now)
            step = tx.journal.find_step(effect.task_id, *doing.key)
            return found, None if step is None else opened_step(tx, step)

        self._past.effects[doing.key], step = await live.write(note_doubt)
        if step is not None:
            self._past.put(doing.key, step)

    @property
    def has_cut(self) -> bool:
        """Whether an effect that the program cancelled is not settled yet."""
        return bool(self._cut)

    async def settle_cut(self) -> None:
        """Before the program goes on, or ends: verify the effects that it cancelled, and wait for a person's
        decision about the others."""
        for key, (doing, spec) in list(self._cut.items()):
            effect = self._past.effects.get(key)
            if effect is not None and effect.status is EffectStatus.INTENT:
                if spec.effect_class is EffectClass.VERIFIABLE:
                    await self.ask_world(doing, spec, effect, Open(_CUT))
                else:
                    await self._doubt_cut(doing, effect)
                effect = self._past.effects.get(key)
            if effect is not None and is_in_doubt_once_failed(effect):
                effect = await self._doubt_failed(effect)
            if effect is not None and effect.status is EffectStatus.UNKNOWN:
                await self.park(effect)
            self._cut.pop(key, None)

    async def _doubt_failed(self, effect: Effect) -> Effect:
        """It raised, and the program did not see that: put it before a person."""
        live = self._live
        put_in_doubt = doubting(effect, live.claim, self._past.beside(effect.key), live.clock.now())

        def note_doubt(tx: Tx) -> Effect:
            tx.journal.require(live.claim)
            put_in_doubt(tx)
            return tx.effects.again(effect)

        found = self._past.effects[effect.key] = await live.write(note_doubt)
        self._past.forget(effect.key)
        return found


def with_other_arguments(why: str) -> str:
    return f"{why}; now it is called with other arguments"


def key_forgotten(spec: EffectSpec, why: str) -> str:
    return f"{why}, and the provider's window of {spec.window} has passed"
