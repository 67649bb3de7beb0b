"""Claims: who carries which run, until when, and what a holder that lost its claim may still do: nothing."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import msgspec
import pytest

from holdfast.core.claim import Claim
from holdfast.core.errors import BadInput, ClaimLost, IllegalMove, NotFound, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.claims import Claims
from holdfast.engine.clocks.steady import steady_of
from holdfast.store import Store, Write
from holdfast.testing import FakeClock, WrappingStore
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump

T = TypeVar("T")


class Slow(WrappingStore):
    """A store that answers five seconds after it was asked."""

    def __init__(self, inner: Store, clock: FakeClock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        self._clock.advance(seconds=5)
        return answer


# --- take


async def test_a_claim_says_who_carries_the_run_and_until_when(parts: Parts, clock: FakeClock) -> None:
    task = await parts.create()

    (claimed,) = await parts.claims.take()

    assert claimed.claim.boot_id == parts.life.id
    assert claimed.claim.lease_until == clock.now() + timedelta(seconds=30)
    assert (claimed.run.status, claimed.task.id) == (RunStatus.RUNNING, task.id)
    assert (await parts.ledger.get(task.id)).status is TaskStatus.RUNNING
    assert_ledger_is_whole(parts.store)


async def test_a_lease_counts_for_its_holder_from_when_it_was_asked_for(
    store: Store, clock: FakeClock, parts: Parts
) -> None:
    """The answer may be slow, or the holder frozen before it hears it: the lease has gone on meanwhile."""
    lease_ns = 30 * 10**9
    slow = Slow(store, clock)
    claims = Claims(slow, clock, parts.life.id)
    await parts.create()
    read = steady_of(clock)

    asked = [read()]
    (claimed,) = await claims.take()
    asked.append(read())
    (renewed,) = (await claims.renew([claimed.claim])).held

    assert claimed.claim.held_until_ns == asked[0] + lease_ns
    assert renewed.held_until_ns == asked[1] + lease_ns
    assert asked[1] - asked[0] == 5 * 10**9


async def test_a_run_is_claimed_once_however_many_ask(parts: Parts, others: Parts) -> None:
    await parts.ledger.create_many([a_new_task() for _ in range(10)])

    first = await parts.claims.take(6)
    second = await others.claims.take(6)

    assert len(first) == 6
    assert len(second) == 4
    assert {one.run.id for one in first}.isdisjoint(one.run.id for one in second)
    assert await parts.claims.take(6) == []


async def test_a_claimant_takes_only_the_names_it_knows(parts: Parts, store: Store, clock: FakeClock) -> None:
    await parts.create(name="research", priority=0)
    wanted = await parts.create(name="write", priority=9)
    writer = Claims(store, clock, parts.life.id, names=["write"])

    claimed = await writer.take(10)

    assert [one.task.id for one in claimed] == [wanted.id]


async def test_taking_the_same_with_the_same_token_finds_the_first_claim(parts: Parts) -> None:
    """The write runs a second time when the answer to its first commit was lost."""
    await parts.ledger.create_many([a_new_task(), a_new_task()])
    take = parts.claims._taking(1, token="token_one")
    first = await parts.store.write(take)
    before = dump(parts.store)

    again = await parts.store.write(take)

    assert [one.claim for one in again] == [one.claim for one in first]
    assert dump(parts.store) == before


@pytest.mark.parametrize("limit", [0, -1, 1001, 10**30, True, 1.5, "1", None])
async def test_a_limit_out_of_range_is_refused(parts: Parts, limit: object) -> None:
    await parts.create()
    before = dump(parts.store)

    with pytest.raises(BadInput):
        await parts.claims.take(limit)  # type: ignore[arg-type]

    assert dump(parts.store) == before


def test_a_lease_needs_a_length(store: Store, clock: FakeClock, parts: Parts) -> None:
    with pytest.raises(BadInput):
        Claims(store, clock, parts.life.id, lease=timedelta(0))


# --- start


async def test_a_run_that_is_carried_cannot_be_started_by_another(parts: Parts, others: Parts) -> None:
    claimed = await parts.carry()
    before = dump(parts.store)

    with pytest.raises(IllegalMove):
        await others.claims.start(claimed.run.id)

    assert dump(parts.store) == before


async def test_a_run_that_has_ended_cannot_be_started(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.finish(claimed.claim)
    before = dump(parts.store)

    with pytest.raises(IllegalMove):
        await parts.claims.start(claimed.run.id)

    assert dump(parts.store) == before


# --- renew


async def test_a_renewed_claim_holds_longer(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()
    clock.advance(seconds=20)

    renewed = await parts.claims.renew([claimed.claim])

    (held,) = renewed.held
    assert held.lease_until == clock.now() + timedelta(seconds=30)
    assert held.fence == claimed.claim.fence
    assert renewed.lost == ()


async def test_renewing_nothing_is_no_work(parts: Parts) -> None:
    before = dump(parts.store)

    renewed = await parts.claims.renew([])

    assert (renewed.held, renewed.lost) == ((), ())
    assert dump(parts.store) == before


async def test_a_claim_that_someone_else_holds_now_is_not_renewed(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    kept, lost = await parts.carry(), await parts.carry()
    await parts.claims.release(lost.claim)
    (taken,) = await others.claims.take()
    clock.advance(seconds=1)

    renewed = await parts.claims.renew([kept.claim, lost.claim])

    assert [claim.run_id for claim in renewed.held] == [kept.run.id]
    assert renewed.lost == (lost.claim,)
    theirs = await parts.store.read(lambda tx: tx.runs.get(taken.run.id))
    assert theirs.lease_until == taken.claim.lease_until


async def test_an_old_claim_of_the_same_boot_is_lost_too(parts: Parts) -> None:
    old = await parts.carry()
    await parts.claims.release(old.claim)
    (new,) = await parts.claims.take()

    renewed = await parts.claims.renew([old.claim])

    assert renewed.lost == (old.claim,)
    assert new.claim.fence > old.claim.fence


# --- release


async def test_a_released_run_can_be_claimed_again_with_a_higher_fence(parts: Parts, others: Parts) -> None:
    claimed = await parts.carry()

    await parts.claims.release(claimed.claim)

    assert (await parts.ledger.get(claimed.task.id)).status is TaskStatus.QUEUED
    (again,) = await others.claims.take()
    assert again.run.id == claimed.run.id
    assert again.claim.fence > claimed.claim.fence
    assert_ledger_is_whole(parts.store)


async def test_a_run_released_for_later_is_ready_only_then(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()

    await parts.claims.release(claimed.claim, due_at=clock.now() + timedelta(minutes=1))

    assert await parts.claims.take() == []
    clock.advance(minutes=1)
    await parts.rescuer.ready_due()
    assert len(await parts.claims.take()) == 1


async def test_releasing_twice_gives_the_same_answer(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.claims.release(claimed.claim)
    before = dump(parts.store)

    await parts.claims.release(claimed.claim)

    assert dump(parts.store) == before


# --- wait and wake


async def test_a_waiting_run_names_what_it_waits_for_and_has_no_owner(parts: Parts) -> None:
    claimed = await parts.carry()

    await parts.claims.wait(claimed.claim, waits_on="an answer")

    run = await parts.store.read(lambda tx: tx.runs.get(claimed.run.id))
    assert (run.status, run.waits_on, run.claimed_by) == (RunStatus.WAITING, "an answer", None)
    task = await parts.ledger.get(claimed.task.id)
    assert (task.status, task.waits_on) == (TaskStatus.WAITING, "an answer")
    assert await parts.claims.take() == []
    assert_ledger_is_whole(parts.store)


async def test_a_woken_run_is_the_same_run(parts: Parts, others: Parts) -> None:
    claimed = await parts.carry()
    await parts.claims.wait(claimed.claim, waits_on="an answer")

    assert await others.claims.wake(claimed.run.id)

    (again,) = await others.claims.take()
    assert (again.run.id, again.run.number) == (claimed.run.id, 1)
    assert again.run.waits_on is None
    assert again.task.waits_on is None


async def test_waking_twice_wakes_once(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.claims.wait(claimed.claim, waits_on="an answer")
    await parts.claims.wake(claimed.run.id)
    before = dump(parts.store)

    assert not await parts.claims.wake(claimed.run.id)

    assert dump(parts.store) == before


async def test_a_wait_with_a_due_time_ends_by_itself(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()
    await parts.claims.wait(claimed.claim, waits_on="the tide", due_at=clock.now() + timedelta(hours=6))

    assert (await parts.rescuer.ready_due()).made_ready == 0
    clock.advance(hours=6)
    assert (await parts.rescuer.ready_due()).made_ready == 1

    assert [one.run.id for one in await parts.claims.take()] == [claimed.run.id]
    events = await parts.store.read(lambda tx: tx.events.of_task(claimed.task.id))
    assert [event.kind for event in events][-3:] == [
        EventKind.RUN_WAITED,
        EventKind.RUN_WOKEN,
        EventKind.RUN_CLAIMED,
    ]


async def test_waking_a_run_that_never_was_finds_nothing(parts: Parts) -> None:
    assert not await parts.claims.wake("run_nothing")


# --- a holder that lost its claim

Late = Callable[[Parts, Claim], Awaitable[object]]


@pytest.mark.parametrize(
    "late",
    [
        lambda parts, claim: parts.claims.release(claim),
        lambda parts, claim: parts.claims.wait(claim, waits_on="an answer"),
        lambda parts, claim: parts.ledger.finish(claim, "done"),
        lambda parts, claim: parts.journal.save_step(claim, "one", 1),
        lambda parts, claim: parts.journal.decide(claim, "go on"),
    ],
    ids=["release", "wait", "finish", "save_step", "decide"],
)
async def test_a_worker_that_lost_its_claim_changes_nothing(parts: Parts, others: Parts, late: Late) -> None:
    claimed = await parts.carry()
    await parts.claims.release(claimed.claim)
    await others.claims.take()
    before = dump(parts.store)

    with pytest.raises(ClaimLost):
        await late(parts, claimed.claim)

    assert dump(parts.store) == before


@pytest.mark.parametrize(
    "late",
    [
        lambda parts, claim: parts.claims.release(claim),
        lambda parts, claim: parts.claims.wait(claim, waits_on="an answer"),
        lambda parts, claim: parts.journal.save_step(claim, "one", 1),
        lambda parts, claim: parts.journal.decide(claim, "go on"),
    ],
    ids=["release", "wait", "save_step", "decide"],
)
async def test_a_run_that_has_ended_is_never_touched_again(parts: Parts, late: Late) -> None:
    claimed = await parts.carry()
    await parts.ledger.finish(claimed.claim, "done")
    before = dump(parts.store)

    with pytest.raises(ClaimLost):
        await late(parts, claimed.claim)

    assert dump(parts.store) == before


async def test_a_claim_of_a_run_that_never_was_changes_nothing(parts: Parts) -> None:
    claimed = await parts.carry()
    nobodys = msgspec.structs.replace(claimed.claim, run_id="run_nothing")
    before = dump(parts.store)

    with pytest.raises(ClaimLost):
        await parts.journal.save_step(nobodys, "one", 1)
    with pytest.raises(NotFound):
        await parts.ledger.finish(nobodys, 1)
    with pytest.raises(NotFound):
        await parts.claims.release(nobodys)

    assert dump(parts.store) == before


async def test_a_claim_does_not_reach_another_task(parts: Parts) -> None:
    """A forged claim with a good fence but another task's id writes nothing into that task."""
    mine, theirs = await parts.carry(), await parts.carry()
    forged = msgspec.structs.replace(mine.claim, task_id=theirs.task.id)
    before = dump(parts.store)

    with pytest.raises(ClaimLost):
        await parts.journal.save_step(forged, "one", 1)
    with pytest.raises(ClaimLost):
        await parts.journal.decide(forged, "go on")

    assert dump(parts.store) == before


# --- a database that has lost commits


async def test_while_resumes_are_held_only_runs_that_were_made_since_are_taken(
    parts: Parts, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a process had begun an older one, the lost commits would say."""
    held: list[str | None] = ["the database is older than its mark"]
    monkeypatch.setattr(parts.store, "held_why", lambda: held[0])
    older = await parts.ledger.create(a_new_task())
    clock.advance(hours=1)
    claims = Claims(parts.store, clock, parts.life.id)
    newer = await parts.ledger.create(a_new_task())

    assert [one.task.id for one in await claims.take(limit=10)] == [newer.id]
    held[0] = None  # a person has accepted it
    clock.advance(seconds=2)
    assert [one.task.id for one in await claims.take(limit=10)] == [older.id]


async def test_whether_the_database_has_lost_commits_is_asked_beside_the_loop(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that is a read, which takes as long as the server is away; the rest goes on meanwhile."""
    asked_in: list[int] = []
    monkeypatch.setattr(parts.store, "held_why", lambda: asked_in.append(threading.get_ident()))

    await parts.claims.take(1)
    await parts.resumer.resume_all()

    assert len(asked_in) == 2
    assert threading.get_ident() not in asked_in


async def test_while_it_cannot_be_read_whether_commits_are_lost_nothing_is_claimed_and_the_outage_is_logged(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await parts.create()

    def away() -> str | None:
        raise StoreUnavailable("the server restarts, says the test")

    with monkeypatch.context() as patched:
        patched.setattr(parts.store, "held_why", away)
        while_away = await parts.claims.take()
    (claimed,) = await parts.claims.take()

    assert while_away == []
    assert claimed.run.status is RunStatus.RUNNING
    assert "the server restarts, says the test" in caplog.text
    assert "the ledger can be used again" in caplog.text
