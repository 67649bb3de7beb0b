"""The process that is killed: it recovers, claims, works, pauses and ends runs, and notes what it was told.

`python -m tests.crash.victim URL HOME SEED OFFSET` is one life of it in a fresh process.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ClaimLost
from holdfast.core.plan import Plan
from holdfast.core.task import Failure, Progress
from holdfast.core.transitions import TaskStatus
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.ledger.ledger import Finished
from holdfast.engine.recovery import resume
from holdfast.engine.recovery.resume import Resumed
from holdfast.store import Store
from tests.builders import plan_of
from tests.crash.facts import Log, assert_facts_stand, read_facts
from tests.crash.ledger_address import LedgerAddress
from tests.engine.parts import Parts, a_new_task

CROWD = 12
STEPS = ("read", "think", "write")
LARGE = "x" * 20_000
# Kills here are not the fault of a run, so runs may be interrupted as often as it pleases us.
PATIENCE = 1_000_000
STUCK_AFTER_S = 60.0


def facts_path(home: Path) -> Path:
    return home / "facts.jsonl"


class Victim:
    """One life. It works until it is killed, or until nothing is left when it was told to stop there."""

    def __init__(self, parts: Parts, log: Log, seed: int) -> None:
        self._parts = parts
        self._log = log
        self._random = random.Random(seed)

    async def recover(self) -> None:
        await self._parts.rescuer.rescue()
        await self._resume()

    async def work(self) -> None:
        """For ever: there is always something new to do."""
        while True:
            await self._create()
            await self._carry_some()
            await self._resume()

    async def finish_everything(self) -> None:
        """Until nothing is left; what has not ended after so long is stuck, and will be found."""
        give_up_at = time.monotonic() + STUCK_AFTER_S
        while await self._is_anything_left() and time.monotonic() < give_up_at:
            await self.recover()
            await self._carry_some()

    async def _is_anything_left(self) -> bool:
        counts = await self._parts.store.read(lambda tx: tx.events.counts("task"))
        return any(counts.get(status.value) for status in TaskStatus if status.value in LIVE)

    async def _create(self) -> None:
        counts = await self._parts.store.read(lambda tx: tx.events.counts("task"))
        room = CROWD - sum(counts.get(status, 0) for status in LIVE)
        wanted = [
            a_new_task(key=f"key-{self._random.getrandbits(64):x}", arguments={"n": number})
            for number in range(max(0, room))
        ]
        if not wanted:
            return
        for task in await self._parts.ledger.create_many(wanted):
            self._log.write("created", task=task.id, name=task.dedup_key)

    async def _resume(self) -> None:
        self._note_resumes(await self._parts.resumer.resume_all(batch=self._random.choice([1, 3, 500])))

    def _note_resumes(self, resumed: Resumed) -> None:
        for checkpoint, run in resumed.followed_up.items():
            self._log.write("resumed", checkpoint=checkpoint, run=run)
        for checkpoint in (*resumed.failed, *resumed.cancelled):
            self._log.write("failed_resume", checkpoint=checkpoint)

    async def _carry_some(self) -> None:
        await self._parts.rescuer.ready_due()
        claimed = await self._parts.claims.take(self._random.randint(1, CROWD))
        for one in claimed:
            self._log.write("claimed", run=one.run.id, value=one.claim.fence)
        async with asyncio.TaskGroup() as group:
            for one in claimed:
                group.create_task(self._carry(one))

    async def _carry(self, one: ClaimedRun) -> None:
        try:
            for number, name in enumerate(STEPS):
                await self._step(one, number, name)
                if await self._is_over_after_an_incident(one):
                    return
            await self._end(one)
        except ClaimLost:
            # Another process may cancel or take it; none in these tests does, except ourselves.
            assert one.claim.lease_until < self._parts.clock.now(), f"{one.claim.run_id} was lost while held"

    async def _step(self, one: ClaimedRun, number: int, name: str) -> None:
        found = await self._parts.journal.find_step(one.task.id, name)
        if found is not None:
            return
        value = f"{self._random.getrandbits(64):x}" + (LARGE if self._random.random() < 0.05 else "")
        plan = _plan_after(number) if self._random.random() < 0.5 else None
        self._log.write("doing", task=one.task.id, name=name, value=value)
        await self._parts.journal.save_step(one.claim, name, value, plan=plan)
        self._log.write("step", task=one.task.id, name=name, value=value)
        if plan is not None:
            self._log.write("plan", task=one.task.id, value=number + 1)

    async def _is_over_after_an_incident(self, one: ClaimedRun) -> bool:
        """Sometimes a run is paused, waits, is given back, is cancelled, or only notes something."""
        incidents: list[Callable[[ClaimedRun], object]] = [
            self._pause,
            self._wait,
            self._release,
            self._cancel,
            self._note,
            self._keep_output,
            self._progress,
            self._renew,
        ]
        incident = self._random.choice(incidents)
        if self._random.random() < 0.5:
            return False
        return bool(await incident(one))  # type: ignore[misc]

    async def _pause(self, one: ClaimedRun) -> bool:
        paused = await self._parts.checkpoints.pause([one.claim], ResumeReason.EXPLICIT_RESTART)
        for checkpoint in paused.checkpoints:
            self._log.write("paused", checkpoint=checkpoint.id, run=checkpoint.run_id)
        return True

    async def _wait(self, one: ClaimedRun) -> bool:
        await self._parts.claims.wait(one.claim, waits_on="the tide", due_at=self._parts.clock.now())
        self._log.write("waited", run=one.run.id, value=one.claim.fence)
        return True

    async def _release(self, one: ClaimedRun) -> bool:
        due_at = self._parts.clock.now() + timedelta(milliseconds=self._random.choice([0, 1]))
        await self._parts.claims.release(one.claim, due_at=due_at)
        self._log.write("released", run=one.run.id, value=one.claim.fence)
        return True

    async def _cancel(self, one: ClaimedRun) -> bool:
        if self._random.random() < 0.7:
            return False
        await self._parts.ledger.cancel(one.task.id, reason="enough")
        self._log.write("cancel", task=one.task.id)
        return await self._pause(one)

    async def _note(self, one: ClaimedRun) -> bool:
        text = f"{self._random.getrandbits(64):x}"
        await self._parts.journal.decide(one.claim, text)
        self._log.write("note", task=one.task.id, value=text)
        return False

    async def _keep_output(self, one: ClaimedRun) -> bool:
        artifact = await self._parts.artifacts.record_output(one.claim, "report", "the sea is calm")
        self._log.write("output", task=one.task.id, name=artifact.name)
        return False

    async def _progress(self, one: ClaimedRun) -> bool:
        before = one.task.progress
        done = 1 if before is None else before.done + 1
        await self._parts.ledger.progress(one.claim, Progress(done=done))
        self._log.write("progress", task=one.task.id, value=done)
        return False

    async def _renew(self, one: ClaimedRun) -> bool:
        renewed = await self._parts.claims.renew([one.claim])
        assert renewed.lost == ()
        return False

    async def _end(self, one: ClaimedRun) -> None:
        if self._random.random() < 0.1:
            await self._parts.ledger.fail(one.claim, Failure(kind="storm", message="the sea was rough"))
            self._log.write("failed", task=one.task.id)
            return
        value = self._random.getrandbits(32)
        outcome = await self._parts.ledger.finish(one.claim, value)
        assert isinstance(outcome, Finished)
        self._log.write("finished", task=one.task.id, run=one.run.id, value=value)


LIVE = frozenset({"queued", "running", "waiting", "needs_review", "paused"})


def _plan_after(number: int) -> Plan:
    plan = plan_of(*STEPS)
    for name in STEPS[: number + 1]:
        plan = plan.complete(name)
    return plan


async def live(
    place: LedgerAddress,
    *,
    seed: int,
    offset: int = 0,
    say: Callable[[str], object] = lambda _line: None,
    until_done: bool = False,
    wrapped: Callable[[Store], Store] = lambda store: store,
) -> None:
    """Open the ledger, look whether everything that was acknowledged stands, say so, then work.

    Most lives suspect no run: otherwise so many kills would soon have every run in quarantine.
    """
    if seed % 4:
        resume.SUSPECT_AFTER = PATIENCE
    store = place.open()
    assert_facts_stand(store, read_facts(facts_path(place.home), offset))
    log = Log(facts_path(place.home))
    say("checked")
    parts = await Parts.begin(wrapped(store), SystemClock(), locks=place.locks, max_idle_attempts=PATIENCE)
    victim = Victim(parts, log, seed)
    await victim.recover()
    say("recovered")
    if until_done:
        await victim.finish_everything()
        await parts.life.end()
        store.close()
    else:
        await victim.work()


def main(url: str, home: str, seed: str, offset: str) -> None:
    place = LedgerAddress(url=url, home=Path(home))
    asyncio.run(
        live(place, seed=int(seed), offset=int(offset), say=lambda line: os.write(1, line.encode() + b"\n"))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
