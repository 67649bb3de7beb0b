"""Writes into a run's journal as its program would, without one: for tests of claims, rescues and resumes."""

from __future__ import annotations

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock, to_micros
from holdfast.core.payload import encode_payload
from holdfast.core.plan import Plan
from holdfast.core.step import Note, NoteKind, Step
from holdfast.engine.claims.claims import exonerate
from holdfast.store import Store, Tx
from holdfast.store.blobs import pack
from holdfast.store.journal import saving_step


class JournalWriter:
    """The same writes that `run.step`, `run.plan`, `run.decide` and `run.refer` make, one call each."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def save_step(self, claim: Claim, name: str, result: object, *, plan: Plan | None = None) -> bool:
        """False when the step was saved before: then its first result stays."""
        now = self._clock.now()
        packed = pack(encode_payload("result", result), self._store.sealing)
        step = Step(
            task_id=claim.task_id,
            name=name,
            run_id=claim.run_id,
            seq=to_micros(now),
            result=packed.stored,
            started_us=to_micros(now),
            ended_us=to_micros(now),
        )
        save = saving_step(step, claim.fence, self._store.sealing)
        if packed.digest is None and plan is None and not claim.is_alone:
            return await self._store.write(save) is None

        def save_with_all(tx: Tx) -> bool:
            tx.blobs.keep(claim.task_id, packed)
            is_new = save(tx) is None
            has_moved = plan is not None and tx.journal.save_plan(claim, plan, now=now)
            if claim.is_alone and (is_new or has_moved):
                exonerate(tx, claim.run_id, claim.fence, now=now)
            return is_new

        return await self._store.write(save_with_all)

    async def find_step(self, task_id: str, name: str) -> bytes | None:
        """The saved result; None when the step was never saved."""

        def read(tx: Tx) -> bytes | None:
            step = tx.journal.find_step(task_id, "", name, "1")
            return None if step is None else tx.blobs.open(step.result)

        return await self._store.read(read)

    async def save_plan(self, claim: Claim, plan: Plan) -> None:
        now = self._clock.now()

        def save_plan(tx: Tx) -> None:
            if tx.journal.save_plan(claim, plan, now=now) and claim.is_alone:
                exonerate(tx, claim.run_id, claim.fence, now=now)

        await self._store.write(save_plan)

    async def decide(self, claim: Claim, text: str) -> Note:
        return await self._note(claim, NoteKind.DECISION, text)

    async def refer(self, claim: Claim, text: str) -> Note:
        return await self._note(claim, NoteKind.TOOL_CONTEXT, text)

    async def _note(self, claim: Claim, kind: NoteKind, text: str) -> Note:
        note = Note(kind=kind, text=text, written_at=self._clock.now())
        await self._store.write(lambda tx: tx.journal.add_note(claim, note, seq=to_micros(note.written_at)))
        return note


def decoded(result: bytes | None) -> object:
    """A result that `find_step` has found."""
    assert result is not None
    return msgspec.json.decode(result)
