"""Saves a step as a run does, without the program around it: one durable, guarded write."""

from __future__ import annotations

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock, to_micros
from holdfast.core.payload import encode_payload
from holdfast.core.step import Step
from holdfast.store import Store
from holdfast.store.blobs import pack
from holdfast.store.journal import saving_step


async def save_step(store: Store, clock: Clock, claim: Claim, name: str, result: object) -> None:
    """Encode the result, build the step, and write it under the run's claim."""
    micros = to_micros(clock.now())
    step = Step(
        task_id=claim.task_id,
        name=name,
        run_id=claim.run_id,
        seq=micros,
        result=pack(encode_payload("result", result), store.sealing).stored,
        started_us=micros,
        ended_us=micros,
    )
    await store.write(saving_step(step, claim.fence, store.sealing))
