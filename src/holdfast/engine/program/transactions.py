"""Transactional effects: a function that runs its own SQL inside the write that saves its step."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.effect import Effect, EffectClass
from holdfast.core.errors import BadInput, Drift, RetryAfter
from holdfast.core.step import Step
from holdfast.core.step_declarations import EffectSpec
from holdfast.core.transitions import EffectStatus
from holdfast.engine.journal.codec import Exited
from holdfast.engine.journal.scopes import inside_step
from holdfast.engine.program.effects import Effects, effect_of
from holdfast.engine.program.live_run import LiveRun
from holdfast.engine.program.steps import StepCall, StepRunner
from holdfast.store import Tx
from holdfast.store.blobs import Packed
from holdfast.store.contract import Execute


class Transaction:
    """The first argument of a transactional step: access to its own tables in the ledger's database.

    Its statements commit together with the step's result, or not at all. The ledger's tables are hidden.
    """

    __slots__ = ("_execute",)

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def execute(self, sql: str, params: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """The rows of one statement; its parameters are written `:name`. Raises SqlFailed."""
        return [tuple(row) for row in self._execute(sql, params)]


class _Raised(Exception):
    """Carries what the function raised through the write: nothing of it was committed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Transactions:
    """The transactional steps of one run. Their outcome is always known, unless they drifted."""

    def __init__(self, live: LiveRun, stepper: StepRunner, effects: Effects) -> None:
        self._live = live
        self._stepper = stepper
        self._effects = effects

    async def carry(self, doing: StepCall, spec: EffectSpec) -> Any:
        """Its result, remembered once it is done. If it raises, nothing is committed."""
        generation = 1
        try:
            is_known, result = self._stepper.remembered(doing)
        except Drift as drift:
            is_known, result = await self._effects.beside_drift(doing, spec, drift)
            if not is_known:
                is_known, result, generation = await self._effects.reviewed(doing)
        if is_known:
            return result
        while True:
            try:
                return self._stepper.result_of(doing, await self._do(doing, generation))
            except _Raised as raised:
                if isinstance(raised.error, RetryAfter):
                    await self._stepper.pause_for(doing, raised.error.seconds)
                else:
                    await self._stepper.after_failure(doing, raised.error)

    async def _do(self, doing: StepCall, generation: int) -> bytes:
        """One attempt. The writer may call the function several times; all but one are rolled back."""
        live = self._live
        live.check()
        args, kwargs = live.place.secrets.opened(doing.args, doing.kwargs, task=live.task.name)
        effect = self._effect(doing, generation)
        doing.idempotency_key = effect.idempotency_key
        context = contextvars.copy_context()

        def call(execute: Execute) -> bytes:
            inside_step.set(doing)
            try:
                value = doing.fn(Transaction(execute), *args, **kwargs)
                return doing.codec.encode(doing.name, value)
            except (SystemExit, KeyboardInterrupt) as error:
                raise _Raised(Exited(error)) from error
            except Exception as error:  # the user's function may raise anything
                raise _Raised(error) from error

        def write(tx: Tx) -> tuple[Step, bytes]:
            tx.journal.require(live.claim)
            found = tx.journal.find_step(live.claim.task_id, *doing.key)
            if found is not None:  # the write runs a second time after its own commit
                return found, tx.blobs.open(found.result)
            # Keys are read in this transaction: another one would wait for this one for ever.
            doing.sealing = tx.sealing
            # In a copy: the context of an interrupted attempt cannot be entered again.
            payload = tx.statements.lend(lambda execute: context.copy().run(call, execute))
            step, packed = self._stepper.saving(doing, payload, tx.sealing)
            self._save(tx, step, packed, effect)
            return step, payload

        step, payload = await live.write(write)
        self._stepper.remember(doing, step, payload)
        return payload

    def _save(self, tx: Tx, step: Step, packed: Packed | None, effect: Effect) -> None:
        claim = self._live.claim
        if packed is not None:
            tx.blobs.keep(claim.task_id, packed)
        # Recorded as done at once, so its outcome is never unknown; a done effect is its own step.
        done = msgspec.structs.replace(
            effect, status=EffectStatus.DONE, outcome=step.result, updated_us=step.ended_us
        )
        if tx.effects.create(done).id != done.id:
            raise Drift(f"step {step.name}", f"another effect has its key {done.idempotency_key}")
        self._live.note_progress(tx, step.ended_at)

    def _effect(self, doing: StepCall, generation: int) -> Effect:
        if doing.is_coroutine:
            raise BadInput(
                f"step {doing.name}",
                "a transactional effect runs inside a write and cannot await; write `def`",
            )
        live = self._live
        micros = live.place.nanos() // 1000
        return effect_of(doing, EffectClass.TRANSACTIONAL, generation, live.claim, live.sealing, micros)
