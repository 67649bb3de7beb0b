"""A process is frozen past its lease, its work goes to another, then it wakes: too late for everything."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pytest

import holdfast as hf
from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.claim import Claim
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ClaimLost
from holdfast.core.task import Failure, Progress
from holdfast.engine.ledger.ledger import AlreadyEnded
from holdfast.engine.recovery.resume import Resumed
from holdfast.store import Store, Write
from holdfast.store.effects import BeginEffect
from holdfast.testing import WrappingStore
from tests.builders import plan_of
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork, killed_in_the_end
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump
from tests.engine.workers import carrying, soon, until

pytestmark = pytest.mark.slow

STORM = Failure(kind="storm", message="rough")

# What the store notes about itself changes with every opening.
BOOKKEEPING = {"ledger_events", "ledger_facts"}

T = TypeVar("T")
LateWrite = Callable[[Parts, Claim], Awaitable[object]]


async def renew(parts: Parts, claim: Claim) -> None:
    """The one late call that answers instead of raising."""
    renewed = await parts.claims.renew([claim])
    assert renewed.held == ()
    raise ClaimLost(claim.run_id, claim.fence)


async def pause(parts: Parts, claim: Claim) -> None:
    """So does a pause: it names what was lost and saves nothing."""
    paused = await parts.checkpoints.pause([claim], ResumeReason.SIGNAL)
    assert paused.checkpoints == ()
    assert paused.lost == (claim,)
    raise ClaimLost(claim.run_id, claim.fence)


LATE_WRITES: dict[str, LateWrite] = {
    "save_step": lambda parts, claim: parts.journal.save_step(claim, "late", 1),
    "save_large_step": lambda parts, claim: parts.journal.save_step(claim, "late", "x" * 20_000),
    "save_step_again": lambda parts, claim: parts.journal.save_step(claim, "early", 1),
    "save_plan": lambda parts, claim: parts.journal.save_plan(claim, plan_of("late")),
    "record_output": lambda parts, claim: parts.artifacts.record_output(claim, "late", "late"),
    "decide": lambda parts, claim: parts.journal.decide(claim, "too late"),
    "refer": lambda parts, claim: parts.journal.refer(claim, "too late"),
    "progress": lambda parts, claim: parts.ledger.progress(claim, Progress(done=99)),
    "record": lambda parts, claim: parts.checkpoints.record(claim, CheckpointKind.MILESTONE, "late"),
    "pause": pause,
    "finish": lambda parts, claim: parts.ledger.finish(claim, "late"),
    "fail": lambda parts, claim: parts.ledger.fail(claim, STORM),
    "release": lambda parts, claim: parts.claims.release(claim),
    "wait": lambda parts, claim: parts.claims.wait(claim, waits_on="too late"),
    "renew": renew,
}


class Ahead:
    """The clock of a process for which every lease has lapsed."""

    def now(self) -> datetime:
        return SystemClock().now() + timedelta(hours=1)


def move_the_servers_clock(place: LedgerAddress) -> None:
    """Leases on a server follow its own clock; this one goes ahead by an hour."""
    if place.is_file:
        return
    import psycopg

    connection: psycopg.Connection[Any]
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION holdfast.holdfast_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS "
            "$$ SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) + 3600000000 $$"
        )


async def carry_freeze_and_write(place: LedgerAddress, out: Pipe, thaw: Pipe) -> None:
    """The process that freezes: it carries one run for each late write, and one checkpoint to resume."""
    parts = await Parts.begin(place.open(), SystemClock(), locks=place.locks)
    await parts.ledger.create_many([a_new_task() for _ in range(len(LATE_WRITES) + 1)])
    *carried, paused = await parts.claims.take(100)
    for one in carried:
        await parts.journal.save_step(one.claim, "early", 1)
    await parts.checkpoints.pause([paused.claim], ResumeReason.SIGNAL)
    resuming = await parts.resumer.claim()
    out.say("carrying")
    thaw.hear()
    for (name, write), one in zip(LATE_WRITES.items(), carried, strict=True):
        out.say(f"{name}: {await answer(write, parts, one.claim)}")
    nothing = await parts.resumer.settle(resuming)
    out.say(f"settle: {'ClaimLost' if nothing == Resumed() else nothing}")


async def answer(write: LateWrite, parts: Parts, claim: Claim) -> str:
    try:
        return repr(await write(parts, claim))
    except ClaimLost:
        return "ClaimLost"


async def take_over(place: LedgerAddress, *, until_done: bool) -> None:
    """Another process rescues and resumes everything, and carries it on."""
    store = place.open(Ahead())
    parts = await Parts.begin(store, Ahead(), locks=place.locks)
    # As the reaper does when a worker whose lock proves it alive has not renewed for a whole lease.
    rescued = await parts.rescuer.rescue_lapsed()
    resumed = await parts.resumer.resume_all()
    claimed = await parts.claims.take(100)
    assert (rescued.checkpointed, rescued.returned) == (len(LATE_WRITES), 1)
    assert len(resumed.followed_up) == len(claimed) == len(LATE_WRITES) + 1
    for one in claimed if until_done else ():
        await parts.ledger.finish(one.claim, "done")
    assert_ledger_is_whole(store, is_at_rest=until_done)
    store.close()


class Print(NamedTuple):
    """What stands in the tables, in short: two are equal when nothing has changed."""

    rows: str
    events: int


def take_print(place: LedgerAddress, out: Pipe) -> None:
    store = place.open()
    tables = dump(store)
    rows = {name: rows for name, rows in tables.items() if name not in BOOKKEEPING}
    out.say(f"{hashlib.sha256(repr(rows).encode()).hexdigest()} {len(tables['ledger_events'])}")
    store.close()


def print_of(place: LedgerAddress) -> Print:
    out = Pipe()
    child = fork(partial(take_print, place, out))
    rows, events = out.only_hear().hear().split()
    assert_ended_well(child)
    out.close()
    return Print(rows, int(events))


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def late_answers(place: LedgerAddress, *, until_done: bool) -> tuple[dict[str, str], Print, Print]:
    """What a process heard that was frozen while its work went elsewhere; and the ledger before and after."""
    out, thaw = Pipe(), Pipe()
    frozen = fork(lambda: asyncio.run(carry_freeze_and_write(place, out, thaw)))
    with killed_in_the_end(frozen):
        assert out.only_hear().hear() == "carrying"
        freeze(frozen)
        move_the_servers_clock(place)
        assert_ended_well(fork(lambda: asyncio.run(take_over(place, until_done=until_done))))
        before = print_of(place)
        os.kill(frozen, signal.SIGCONT)
        thaw.say("go on")
        answers = dict(out.hear().split(": ", 1) for _ in range(len(LATE_WRITES) + 1))
        after = print_of(place)
    out.close()
    thaw.close()
    return answers, before, after


def test_every_write_of_a_process_that_slept_through_its_lease_is_refused(place: LedgerAddress) -> None:
    answers, before, after = late_answers(place, until_done=False)

    assert answers == dict.fromkeys([*LATE_WRITES, "settle"], "ClaimLost")
    assert after == before


def test_when_the_work_has_ended_meanwhile_a_late_end_is_ignored_and_says_so(place: LedgerAddress) -> None:
    answers, before, after = late_answers(place, until_done=True)

    ended = {name: answers.pop(name) for name in ("finish", "fail")}
    assert answers == dict.fromkeys([*(LATE_WRITES.keys() - ended), "settle"], "ClaimLost")
    assert all(said.startswith(AlreadyEnded.__name__) for said in ended.values())
    assert after == before._replace(events=before.events + 2)


# --- between an intent and its call


LEASE_S = 0.5
EFFECT_TIMEOUT_S = 0.5


class FreezingStore(WrappingStore):
    """Stops its own process, once, when an intent is durable and its effect not begun yet."""

    has_frozen = False

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        if isinstance(write, BeginEffect) and not self.has_frozen:
            self.has_frozen = True
            os.kill(os.getpid(), signal.SIGSTOP)
        return answer


def sending_to(outbox: Path) -> hf.TaskDefinition[[], str]:
    """One effect, of which the world can tell whether it happened."""

    def verify(sender: str) -> hf.Happened | hf.DidNotHappen:
        return hf.Happened(f"found {sender}") if outbox.exists() else hf.DidNotHappen()

    @hf.tool(effect=hf.verifiable(verify), timeout=EFFECT_TIMEOUT_S)
    async def send(sender: str) -> str:
        with outbox.open("a") as lines:
            lines.write(f"{os.getpid()}\n")
        return sender

    @hf.task(name="sends")
    async def sends(run: hf.Run) -> str:
        return str(await run.step(send, "ada"))

    return sends


async def send_and_freeze(place: LedgerAddress, outbox: Path, out: Pipe) -> None:
    """The process that freezes; it says when it carries nothing any more, and then ends cleanly."""
    task = sending_to(outbox)
    store = FreezingStore(place.open())
    async with carrying(cast(Store, store), SystemClock(), task, lease=LEASE_S) as process:
        await process.holdfast.start(task(), key="once")
        await until(lambda: store.has_frozen and not process.worker.claims_in_flight())
    out.say("ended")
    store.close()


async def send_meanwhile(place: LedgerAddress, outbox: Path) -> None:
    """A second worker: the lease lapses, the world says that nothing happened, so it is done again."""
    task = sending_to(outbox)
    store = place.open()
    async with carrying(store, SystemClock(), task, lease=LEASE_S) as process:
        handle = await process.holdfast.start(task(), key="once")
        assert await soon(handle.result()) == "ada"
    store.close()


def test_a_process_that_was_frozen_between_intent_and_call_does_not_begin_the_effect(
    place: LedgerAddress,
) -> None:
    out, outbox = Pipe(), place.home / "outbox"
    frozen = fork(lambda: asyncio.run(send_and_freeze(place, outbox, out)))
    out.only_hear()
    with killed_in_the_end(frozen):
        _, status = os.waitpid(frozen, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert_ended_well(fork(lambda: asyncio.run(send_meanwhile(place, outbox))))
        senders = outbox.read_text()
        os.kill(frozen, signal.SIGCONT)
        assert out.hear() == "ended"
    out.close()

    assert senders.count("\n") == 1
    assert outbox.read_text() == senders
