"""Records the steps of a start as they begin and end: a start that was cut off shows where."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from holdfast.core.claim import Boot
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError
from holdfast.core.manifest import Restart
from holdfast.core.progress import CountKind, ItemCounts, counts_of, noun_of
from holdfast.core.start_record import StartRecord, StartStep, StepRecord, notes_of
from holdfast.core.transitions import CampaignStatus, CheckpointStatus, RunStatus
from holdfast.engine.recovery.rescue import Rescued
from holdfast.engine.recovery.resume import Resumed
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

# Campaigns that are counted at a start; more would hold it up.
_MAX_CAMPAIGNS = 100


class StepFacts:
    """What a step has found so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.notes: list[str] = []

    def rescued(self, found: Rescued) -> None:
        self.counts |= {
            "deadProcesses": len(found.dead_boots),
            "runsRescued": found.checkpointed,
            "runsLost": found.lost,
            "runsDamaged": found.damaged,
            "resumesReturned": found.returned,
            "runsDue": found.made_ready,
        }
        self.notes += [f"{boot_id} died" for boot_id in found.dead_boots]

    def resumed(self, found: Resumed) -> None:
        self.counts |= {
            "resumed": len(found.followed_up) - len(found.anew),
            "startedAnew": len(found.anew),
            "failed": len(found.failed),
            "cancelled": len(found.cancelled),
            "suspects": len(found.blamed),
        }
        self.notes += [f"{goal} starts anew: nothing was saved ({one})" for one, goal in found.anew.items()]
        self.notes += [f"{one} is not resumed: {why}" for one, why in found.failed.items()]

    async def held(self, store: Store, why: str) -> None:
        """Nothing is resumed before a person allows it."""
        self.counts["heldBack"] = await store.read(held_counts)
        self.notes.append(why)

    def closed(self, restarts: Sequence[Restart]) -> None:
        """Restarts that were left open: those concerned were told."""
        outcomes = [one.outcome for one in restarts if one.outcome is not None]
        self.counts |= {
            "restartsClosed": len(restarts),
            "interruptions": sum(len(one.recovered) for one in outcomes),
            "notices": sum(one.notices for one in outcomes),
            "parentsTold": sum(one.parents_told for one in outcomes),
        }
        self.notes += [f"{one.id}: {one.manifest.reason}" for one in restarts]


class StartLog:
    """The record of one start. What cannot be recorded does not hold up the start."""

    def __init__(self, store: Store, clock: Clock, boot: Boot) -> None:
        self._store = store
        self._clock = clock
        self.record = StartRecord(
            boot_id=boot.id, role=boot.role, host=boot.node, pid=boot.pid, began_at=clock.now()
        )

    async def configured(self, counts: Mapping[str, int], *, took: timedelta) -> None:
        """The first step is over before there is a ledger."""
        now = self._clock.now()
        step = StepRecord(
            step=StartStep.CONFIGURATION, began_at=now - took, ended_at=now, counts=dict(counts)
        )
        self.record = msgspec.structs.replace(self.record, began_at=step.began_at, steps=(step,))
        await self._save()

    @asynccontextmanager
    async def step(self, step: StartStep) -> AsyncIterator[StepFacts]:
        """Recorded when it begins, and with what it found when it ends or fails."""
        before, began_at = self.record.steps, self._clock.now()
        facts = StepFacts()
        self._set(before, StepRecord(step=step, began_at=began_at))
        await self._save()
        error: str | None = None
        try:
            yield facts
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            raise
        finally:
            done = StepRecord(
                step=step,
                began_at=began_at,
                ended_at=self._clock.now(),
                counts=facts.counts,
                notes=notes_of(facts.notes),
                error=None if error is None else notes_of([error])[0],
            )
            self._set(before, done)
            await self._save()

    async def go_on(self, tell: Callable[[], Awaitable[Sequence[Restart]]] | None = None) -> None:
        """The last step: tell those concerned, and count what is ready to run."""
        async with self.step(StartStep.CONTINUE) as facts:
            if tell is not None:
                facts.closed(await tell())
            try:
                facts.counts["runsReady"] = await self._store.read(ready_count)
            except HoldfastError as problem:
                facts.notes.append(f"not counted: {problem}")

    async def ended(self) -> None:
        """The process works."""
        self.record = msgspec.structs.replace(self.record, ended_at=self._clock.now())
        await self._save()

    async def load(self) -> None:
        """The second step: count what the ledger says, from kept counts."""
        async with self.step(StartStep.LOAD) as facts:
            try:
                facts.counts |= await self._store.read(loaded_counts)
            except HoldfastError as problem:  # one damaged record must not hold up the start
                facts.notes.append(f"not counted: {problem}")

    def _set(self, before: tuple[StepRecord, ...], step: StepRecord) -> None:
        self.record = msgspec.structs.replace(self.record, steps=(*before, step))

    async def _save(self) -> None:
        record = self.record
        try:
            await self._store.write(lambda tx: tx.starts.save(record))
        except HoldfastError as problem:
            log.warning("the record of this start could not be saved: %s", problem)


def loaded_counts(tx: Tx) -> dict[str, int]:
    """Agents, item-phases and tasks, by what they do. What this costs does not grow with their number."""
    counts = ItemCounts()
    campaigns = 0
    for status in (CampaignStatus.RUNNING, CampaignStatus.PAUSED):
        for campaign in tx.campaigns.in_status(status, limit=_MAX_CAMPAIGNS):
            campaigns += 1
            for number in range(len(campaign.spec.phases)):
                prefix = noun_of(campaign.id, number, CountKind.PRIORITY, "")
                for tallies in tx.campaigns.counts_under(prefix).values():
                    counts += counts_of(tallies)
    tasks = {_camel(status): number for status, number in tx.events.counts("task").items() if number}
    return {
        "campaigns": campaigns,
        "agentsKnown": counts.total,
        "itemsDone": counts.done,
        "itemsRunning": counts.running,
        "itemsPending": counts.pending,
        "itemsPaused": counts.paused,
        "itemsFailed": counts.failed,
        **tasks,
    }


def _camel(status: str) -> str:
    return f"tasks{status.title().replace('_', '')}"


def ready_count(tx: Tx) -> int:
    """How many runs wait for a worker."""
    return tx.events.counts("run").get(RunStatus.QUEUED.value, 0)


def held_counts(tx: Tx) -> int:
    """How many runs wait for a resume."""
    return tx.events.counts("checkpoint").get(CheckpointStatus.PAUSED_FOR_RESTART.value, 0)
