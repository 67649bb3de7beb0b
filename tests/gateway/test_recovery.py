"""Taking over from another gateway on the same ledger: all of it goes on, and everybody is told, once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from holdfast.config.sections import CronSettings, RestartSettings, ScheduleSettings
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.delivery import Delivery, DeliveryText
from holdfast.core.events import EventKind
from holdfast.core.ids import new_restart_id
from holdfast.core.manifest import InterruptionOutcome, Restart, Trigger
from holdfast.core.message import Role
from holdfast.core.schedule_spec import ScheduleSpec
from holdfast.core.task import Origin
from holdfast.core.transitions import FiringStatus, RestartStatus, TaskStatus
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.recovery.rescue import BATCH, Reaper
from holdfast.engine.recovery.wakes import firing, pausing_until_wake
from holdfast.engine.schedules.changes import adding
from holdfast.gateway.conversations import Conversations, settle
from holdfast.gateway.inbox import Inbox
from holdfast.gateway.manifests import planning, save_file
from holdfast.gateway.recovery import CHILDREN_TOPIC, Recovery
from holdfast.schedule.cron import Cron
from holdfast.store import Store, Write
from holdfast.store.rows.conversation import delivery_from_row
from holdfast.store.verify import scan
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, WrappingStore, memory_store
from tests.builders import FAILURE
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.dead_processes import die, spend_attempts
from tests.engine.parts import Parts
from tests.gateway.gateways import document_of

pytestmark = pytest.mark.slow

T = TypeVar("T")

ADA = Origin(channel="webhook", peer="ada", account_id="team-sea")
BEN = Origin(channel="webhook", peer="ben", account_id="team-land")
NIGHT = ScheduleSettings(cron="0 0 * * *", agent="main", session="nightly", prompt="water the garden")
# More than a lease: who carried something then and gave no sign of life has lost it.
LATER_S = 31


class RecoveringGateway:
    """One gateway as far as it rescues, resumes and recovers; what it carries stands still."""

    def __init__(self, parts: Parts, home: Path, settings: dict[str, Any]) -> None:
        self.parts = parts
        self.home = home
        store, clock, life = parts.store, parts.clock, parts.life
        self.inbox = Inbox(store, clock)
        self.recovery = Recovery(
            store, clock, life, self.inbox, RestartSettings(**settings), place=str(home), home=home
        )
        parts.rescuer.notary = self.recovery
        self.reaper = Reaper(parts.rescuer, parts.resumer, clock)

    @classmethod
    async def open(cls, store: Store, clock: FakeClock, home: Path, **settings: Any) -> RecoveringGateway:
        home.mkdir(exist_ok=True)  # noqa: ASYNC240 - a test
        parts = await Parts.begin(store, clock, locks=home / "boots")
        parts.resumer.concurrency = 1
        return cls(parts, home, settings)

    async def start(self) -> RecoveringGateway:
        """What a gateway does before it serves."""
        await self.parts.recover()
        await self.recovery.finish()
        return self

    async def pass_by(self) -> None:
        await self.reaper.run_once()

    def die(self) -> None:
        die(self.parts)


class Work:
    """What a gateway carries: conversations with two people, a firing, a parent and its child."""

    def __init__(self, claimed: dict[str, ClaimedRun]) -> None:
        self.claimed = claimed

    @classmethod
    async def begin(cls, house: RecoveringGateway) -> Work:
        parts = house.parts
        store, clock = parts.store, parts.clock
        assert isinstance(clock, FakeClock)
        await Cron(store, clock, {"night": NIGHT}).run_once()
        clock.advance(days=1)
        await Cron(store, clock, {"night": NIGHT}).run_once()
        for origin in (ADA, BEN):
            await house.inbox.post(f"agent:main:{origin.peer}", "dig", origin, channel_message_id=origin.peer)
        await Conversations(store, clock, ["main"]).run_once()
        parent = await parts.create(goal="parent")
        await parts.create(goal="child", parent_task_id=parent.id)
        claimed = {one.task.session_key or one.task.goal: one for one in await parts.claims.take(10)}
        assert len(claimed) == 5
        spend_attempts(store)
        for key, one in claimed.items():
            # The run that talks to ben has saved nothing yet, and is not resumed again.
            if key != "agent:main:ben":
                await parts.journal.save_step(one.claim, "begin", 1)
        return cls(claimed)

    def task_id(self, name: str) -> str:
        return self.claimed[name].task.id


@pytest.fixture
def homes(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: tmp_path / name


def check(store: Store, work: Work, *, restarts: int = 1) -> list[Restart]:
    """Everybody was told of one interruption, once, and everything goes on that can."""
    found = store.read_now(lambda tx: tx.restarts.page())
    assert [one.status for one in found] == [RestartStatus.RECOVERED] * restarts
    interrupted = sorted(was.task_id for one in found for was in one.manifest.interruptions)
    assert interrupted == sorted(one.task.id for one in work.claimed.values())
    notices = [one for one in deliveries(store) if "notice:" in one.idempotency_key]
    assert [letter_of(one) for one in notices] == [("ada", "Resumed after restart; continuing.")]
    mail = store.read_now(lambda tx: tx.mail.of_task(work.task_id("parent")))
    assert [(one.topic, work.task_id("child").encode() in one.body) for one in mail] == [
        (CHILDREN_TOPIC, True)
    ]
    (firing,) = store.read_now(lambda tx: tx.firings.page("night", limit=1))
    assert (firing.status, firing.is_retry) == (FiringStatus.REQUEUED, True)
    assert len(told(store, "ben")) == 1
    assert told(store, "ada") == told(store, "nightly") == []
    for name, one in work.claimed.items():
        runs = store.read_now(lambda tx, one=one: tx.runs.of_task(one.task.id))  # type: ignore[misc]
        assert len(runs) == (1 if name == "agent:main:ben" else 2)
    recovered = [
        event for event in store.read_now(lambda tx: tx.events.newest(limit=1000)) if is_recovery(event)
    ]
    assert len(recovered) == restarts
    assert_ledger_is_whole(store)
    check_the_only_letter_to_ben(store, work)
    return found


def check_the_only_letter_to_ben(store: Store, work: Work) -> None:
    """His message could not be answered, and he hears of that once, with the reason."""
    task = store.read_now(lambda tx: tx.tasks.get(work.task_id("agent:main:ben")))
    assert task.failure is not None
    now = task.updated_at
    for _ in range(2):
        store.write_now(lambda tx: settle(tx, "agent:main:ben", task.id, now=now))
    (text,) = [text for peer, text in map(letter_of, deliveries(store)) if peer == "ben"]
    assert text == (
        f"[System] Your last message could not be answered: not resumed after a restart: "
        f"{task.failure.message} ({task.id}). The next one begins afresh."
    )


def deliveries(store: Store) -> list[Delivery]:
    return store.read_now(
        lambda tx: [delivery_from_row(row, tx.sealing) for row in scan(tx, "deliveries", 1)]
    )


def letter_of(delivery: Delivery) -> tuple[str | None, str]:
    """To whom, and what."""
    assert delivery.origin is not None
    assert delivery.message is not None
    return delivery.origin.peer, msgspec.json.decode(delivery.message, type=DeliveryText).text


def is_recovery(event: Any) -> bool:
    return bool(event.kind is EventKind.RESTART_RECOVERED)


def told(store: Store, session: str) -> list[str]:
    messages = store.read_now(lambda tx: tx.messages.after(f"agent:main:{session}", limit=99))
    return [one.text for one in messages if one.role is Role.SYSTEM and "Gateway restarted" in one.text]


# --- what a survivor does


async def test_a_survivor_tells_the_people_that_the_dead_gateway_would_have_told(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await (await RecoveringGateway.open(store, clock, homes("b"))).start()
    work = await Work.begin(a)
    await b.pass_by()
    a.die()

    for _ in range(8):
        clock.advance(seconds=5)
        await b.pass_by()

    (restart,) = check(store, work)
    assert (restart.manifest.reason, restart.recovered_by) == ("crash", b.parts.life.id)
    assert restart.outcome is not None
    fates = {one.task_id: one.fate for one in restart.outcome.recovered}
    assert {fates.pop(work.task_id("agent:main:ben"))} == {InterruptionOutcome.TOLD}
    assert set(fates.values()) == {InterruptionOutcome.RESUMED}
    assert {one.task_id for one in restart.outcome.recovered if one.is_retry} == {
        work.task_id("agent:main:nightly")
    }
    assert sorted(one.key for one in restart.manifest.active_sessions) == ["agent:main:ada", "agent:main:ben"]
    assert not (homes("b") / "restart-manifest.json").exists()


class Twice(WrappingStore):
    """As a caller that lost the answer, each time."""

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        await self.inner.write(write)
        return answer


async def test_whatever_a_recovery_writes_may_be_written_twice(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)
    b.recovery._store = b.inbox._store = Twice(store)

    await b.pass_by()

    check(store, work)


async def test_who_comes_back_after_it_was_taken_over_from_has_nothing_to_tell(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)
    await b.pass_by()

    await (await RecoveringGateway.open(store, clock, homes("a"))).start()

    check(store, work)


async def test_a_gateway_that_comes_back_in_time_tells_it_itself_and_none_takes_over(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    a.die()
    again = await (await RecoveringGateway.open(store, clock, homes("a"))).start()
    clock.advance(seconds=LATER_S)

    await b.pass_by()

    (restart,) = check(store, work)
    assert restart.recovered_by == again.parts.life.id


async def test_a_gateway_that_slept_through_its_lease_is_taken_over_from_in_parts_and_no_person_is_told_twice(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    """One claim was renewed before it froze, the others were not; it dies when all but that are gone."""
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    clock.advance(seconds=LATER_S - 1)
    await a.parts.claims.renew([work.claimed["agent:main:ada"].claim])
    clock.advance(seconds=1)
    await b.pass_by()
    assert (
        store.read_now(lambda tx: tx.tasks.get(work.task_id("agent:main:ada"))).status is TaskStatus.RUNNING
    )
    a.die()

    await (await RecoveringGateway.open(store, clock, homes("a"))).start()
    await b.pass_by()

    check(store, work, restarts=2)


async def test_what_many_writes_take_over_is_one_restart(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    for _ in range(BATCH + 1):
        await a.parts.create()
    while len(await a.parts.claims.take(1000)) > 0:
        pass
    a.die()
    clock.advance(seconds=LATER_S)

    await b.pass_by()

    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert len({one.task_id for one in restart.manifest.interruptions}) == BATCH + 1
    assert restart.outcome is not None
    assert len(restart.outcome.recovered) == BATCH + 1
    assert store.verify() == []


async def test_a_firing_that_shall_not_be_retried_is_given_up_before_a_worker_carries_it_again(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"), cron_retry_on_interrupt=False)
    work = await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)

    await b.pass_by()

    task = store.read_now(lambda tx: tx.tasks.get(work.task_id("agent:main:nightly")))
    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert (task.status, len(store.read_now(lambda tx: tx.runs.of_task(task.id)))) == (
        TaskStatus.CANCELLED,
        1,
    )
    assert restart.outcome is not None
    assert {one.task_id: one.fate for one in restart.outcome.recovered}[
        task.id
    ] is InterruptionOutcome.CANCELLED


async def test_settings_that_apply_live_count_for_the_next_pass(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)
    b.recovery.settings = RestartSettings(session_recovery=False)

    await b.pass_by()

    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert restart.outcome is not None
    assert (restart.outcome.notices, told(store, "ben")) == (0, [])


async def test_a_task_that_was_resumed_and_then_failed_by_itself_is_not_asked_again(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    """Another gateway has resumed what a planned stop had paused, and ended it, before a gateway recovers."""
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    await plan_stop(a, work)
    await a.parts.life.end()
    await b.parts.resumer.resume_all()
    for one in await b.parts.claims.take(10):
        await b.parts.ledger.fail(one.claim, FAILURE)
    clock.advance(seconds=LATER_S)

    await b.pass_by()

    assert told(store, "ada") == []
    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert restart.outcome is not None
    assert InterruptionOutcome.ENDED in {one.fate for one in restart.outcome.recovered}


# --- what a gateway had noted itself and left


async def plan_stop(house: RecoveringGateway, work: Work, *, pauses: bool = True) -> Restart:
    """As the drain of a gateway does: noted, in the file, then paused."""
    parts = house.parts
    now = parts.clock.now()
    plan = planning(
        new_restart_id(now),
        boot_id=parts.life.id,
        place=str(house.home),
        task_ids=[one.task.id for one in work.claimed.values()],
        triggers=[Trigger(reason="new tools", triggered_by="ada", at=now)],
        now=now,
    )
    restart = await parts.store.write(lambda tx: tx.restarts.create(plan(tx)))
    save_file(house.home / "restart-manifest.json", restart.manifest)
    if pauses:
        claims = [one.claim for one in work.claimed.values()]
        await parts.checkpoints.pause(claims, ResumeReason.EXPLICIT_RESTART)
        await parts.store.write(lambda tx: tx.restarts.move(restart.id, RestartStatus.DRAINED, now=now))
    return restart


async def test_what_a_stopped_gateway_left_is_told_by_another_when_it_does_not_come_back(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    noted = await plan_stop(a, work)
    await a.parts.life.end()
    await b.pass_by()
    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert restart.status is RestartStatus.DRAINED  # it may come back, and tells it then

    clock.advance(seconds=LATER_S)
    await b.pass_by()

    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert (restart.id, restart.status) == (noted.id, RestartStatus.RECOVERED)
    assert restart.recovered_by == b.parts.life.id
    mail = store.read_now(lambda tx: tx.mail.of_task(work.task_id("parent")))
    assert len(mail) == 1
    # Its own manifest says so, as soon as it is there again.
    assert "consumedAt" not in document_of(homes("a") / "restart-manifest.json")
    await (await RecoveringGateway.open(store, clock, homes("a"))).start()
    assert document_of(homes("a") / "restart-manifest.json")["outcome"]["parents_told"] == 1


async def test_a_drain_that_takes_long_stays_with_its_gateway(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    noted = await plan_stop(a, work, pauses=False)
    clock.advance(seconds=LATER_S)
    await a.parts.claims.renew([one.claim for one in work.claimed.values()])

    await b.pass_by()

    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert (restart.id, restart.status) == (noted.id, RestartStatus.DRAINING)


async def test_what_died_in_its_drain_is_told_from_its_own_manifest(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    noted = await plan_stop(a, work, pauses=False)
    a.die()
    clock.advance(seconds=LATER_S)

    await b.pass_by()
    await b.pass_by()

    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    assert (restart.id, restart.status) == (noted.id, RestartStatus.RECOVERED)
    assert len(store.read_now(lambda tx: tx.mail.of_task(work.task_id("parent")))) == 1


# --- deaths and races


class Lives:
    """A dead gateway, and a survivor whose pass is looked at; in memory, anew for each case."""

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path
        self._number = 0

    async def prepare(self) -> tuple[Store, FakeClock, Path, Work]:
        self._number += 1
        path = self._path / str(self._number)
        path.mkdir()
        clock = FakeClock()
        store = memory_store(clock)
        a = await RecoveringGateway.open(store, clock, path / "a")
        work = await Work.begin(a)
        a.die()
        clock.advance(seconds=LATER_S)
        return store, clock, path, work


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


@pytest.mark.slow
async def test_a_gateway_that_comes_after_a_survivor_that_died_while_it_took_over_tells_it_once(
    lives: Lives,
) -> None:
    store, clock, path, work = await lives.prepare()
    b = await RecoveringGateway.open(store, clock, path / "b")
    seen = FailingStore(store)
    await seen_through(b, seen).pass_by()
    check(store, work)
    store.close()

    for number, point in enumerate(seen.failpoints()):
        store, clock, path, work = await lives.prepare()
        await die_in_the_pass(store, clock, path / "b", point)
        # Itself, the one that it took over from, or a third one.
        next_home = path / ("b", "a", "c")[number % 3]
        clock.advance(seconds=LATER_S)
        after = await (await RecoveringGateway.open(store, clock, next_home)).start()
        clock.advance(seconds=LATER_S)
        await after.pass_by()
        found = store.read_now(lambda tx: tx.restarts.page())
        check(store, work, restarts=len(found))
        assert len(found) == 1, point
        store.close()


async def die_in_the_pass(store: Store, clock: FakeClock, home: Path, point: Failpoint) -> None:
    b = await RecoveringGateway.open(store, clock, home)
    # Ids come in another order each time, and so do a few statements: some points are not reached.
    with contextlib.suppress(Crashed, BaseExceptionGroup):
        await seen_through(b, FailingStore(store, [point])).pass_by()
    b.die()


def seen_through(house: RecoveringGateway, store: Store) -> RecoveringGateway:
    """The same gateway, whose every call goes through that store from now on."""
    parts = house.parts
    for part in (parts.rescuer, parts.resumer, house.recovery, house.inbox):
        part._store = store
    return house


class Interfered(WrappingStore):
    """Another gateway comes in before or after the n-th write."""

    def __init__(self, inner: Store, number: int, come_in: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._left = number
        self._come_in = come_in
        self.has_come = False

    async def write(self, write: Write[T]) -> T:
        if self._left == 0 and not self.has_come:
            self.has_come = True
            await self._come_in()
        self._left -= 1
        return await self.inner.write(write)


async def test_a_survivor_and_the_gateway_that_comes_back_tell_everybody_once_whichever_is_quicker(
    lives: Lives,
) -> None:
    number, has_come = 0, True
    while has_come:
        store, clock, path, work = await lives.prepare()
        b = await RecoveringGateway.open(store, clock, path / "b")
        a = await RecoveringGateway.open(store, clock, path / "a")
        between = Interfered(store, number, a.start)

        await seen_through(b, between).pass_by()
        clock.advance(seconds=LATER_S)
        await b.pass_by()

        has_come = between.has_come
        found = store.read_now(lambda tx: tx.restarts.page())
        check(store, work, restarts=len(found))
        store.close()
        number += 1
    assert number > 5


async def test_two_survivors_at_once_tell_everybody_once(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    survivors = [await RecoveringGateway.open(store, clock, homes(name)) for name in "bcd"]
    work = await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)

    again = await RecoveringGateway.open(store, clock, homes("a"))
    await asyncio.gather(*(one.pass_by() for one in survivors), again.start())
    clock.advance(seconds=LATER_S)
    await survivors[0].pass_by()

    found = store.read_now(lambda tx: tx.restarts.page())
    check(store, work, restarts=len(found))


async def test_no_person_is_told_what_became_of_it_while_another_gateway_still_resumes_it(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b, c = [await RecoveringGateway.open(store, clock, homes(name)) for name in "bc"]
    work = await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)
    await b.parts.rescuer.rescue()
    claimed = await c.parts.resumer.claim()

    await b.pass_by()
    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    await c.parts.resumer.settle(claimed)
    await b.pass_by()

    assert restart.status is RestartStatus.DRAINING
    check(store, work)


async def test_the_account_of_a_message_comes_back_in_its_letter_its_checkpoint_and_the_transcript(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    work = await Work.begin(a)
    a.die()
    clock.advance(seconds=LATER_S)

    await b.pass_by()

    owed = store.read_now(
        lambda tx: [delivery_from_row(row, tx.sealing) for row in scan(tx, "deliveries", 1)]
    )
    assert {one.origin for one in owed} <= {ADA, BEN}
    assert ADA in {one.origin for one in owed}
    for origin in (ADA, BEN):
        key = f"agent:main:{origin.peer}"
        said = store.read_now(lambda tx, key=key: tx.messages.after(key, limit=9))  # type: ignore[misc]
        assert {(one.account_id, one.origin) for one in said if one.origin is not None} == {
            (origin.account_id, origin)
        }
        task_id = work.task_id(key)
        (found,) = store.read_now(lambda tx, one=task_id: tx.checkpoints.page(task_id=one))  # type: ignore[misc]
        document = found.read_document()
        assert (document.account_id, document.origin) == (origin.account_id, origin)
    (restart,) = store.read_now(lambda tx: tx.restarts.page())
    routed = {(one.key, one.channel, one.channel_target) for one in restart.manifest.active_sessions}
    assert routed == {(f"agent:main:{one.peer}", one.channel, one.peer) for one in (ADA, BEN)}


async def test_a_firing_whose_schedule_says_no_retry_is_cancelled_and_others_are_queued_again(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    a = await RecoveringGateway.open(store, clock, homes("a"))
    b = await RecoveringGateway.open(store, clock, homes("b"))
    for name, retry in (("once", False), ("again", None)):
        spec = ScheduleSpec(every_s=3600, anchor_at=clock.now(), task="task", retry=retry)
        store.write_now(adding(name, spec, owner="system", now=clock.now(), known={"task"}))
    clock.advance(hours=1)
    await Cron(store, clock, {}).run_once()
    claimed = await a.parts.claims.take(10)
    assert len(claimed) == 2
    a.die()
    clock.advance(seconds=LATER_S)

    await b.pass_by()
    await Cron(store, clock, {}).run_once()

    (once,), (again,) = (store.read_now(lambda tx, n=n: tx.firings.page(n)) for n in ("once", "again"))  # type: ignore[misc]
    assert (once.status, once.is_retry) == (FiringStatus.FAILED, False)
    assert (again.status, again.is_retry) == (FiringStatus.REQUEUED, True)
    runs = store.read_now(lambda tx: tx.runs.of_task(again.task_id or ""))
    assert [one.resumes_run_id is not None for one in runs] == [False, True]


async def test_a_firing_that_is_interrupted_again_and_again_is_given_up_at_the_bound(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    spec = ScheduleSpec(every_s=3600, anchor_at=clock.now(), task="task")
    store.write_now(adding("night", spec, owner="system", now=clock.now(), known={"task"}))
    clock.advance(hours=1)
    await Cron(store, clock, {}).run_once()
    (firing,) = store.read_now(lambda tx: tx.firings.page("night"))

    for number in range(3):
        dying = await RecoveringGateway.open(store, clock, homes(f"dying-{number}"))
        (one,) = await dying.parts.claims.take(10)
        await dying.parts.journal.save_step(one.claim, f"step {number}", 1)  # progress: not a crash loop
        dying.die()
        clock.advance(seconds=LATER_S)
        survivor = await RecoveringGateway.open(store, clock, homes(f"survivor-{number}"))
        survivor.recovery.cron = CronSettings(max_retries=2)
        await survivor.pass_by()
        survivor.die()

    task = store.read_now(lambda tx: tx.tasks.get(firing.task_id or ""))
    assert task.status is TaskStatus.CANCELLED
    assert task.cancel_reason is not None
    assert "interrupted 3 times, and cron.max_retries is 2" in task.cancel_reason


async def test_the_wakes_of_a_long_firing_are_no_interruptions(
    store: Store, clock: FakeClock, homes: Callable[[str], Path]
) -> None:
    spec = ScheduleSpec(every_s=3600, anchor_at=clock.now(), task="task")
    store.write_now(adding("night", spec, owner="system", now=clock.now(), known={"task"}))
    clock.advance(hours=1)
    await Cron(store, clock, {}).run_once()
    dying = await RecoveringGateway.open(store, clock, homes("dying"))
    for number in range(3):
        (one,) = await dying.parts.claims.take(10)
        await dying.parts.journal.save_step(one.claim, f"step {number}", 1)
        store.write_now(pausing_until_wake(one.claim, due_at=clock.now(), now=clock.now()))
        store.write_now(firing(due_by=clock.now(), now=clock.now()))
        await dying.parts.resumer.resume_all()
    await dying.parts.claims.take(10)
    dying.die()
    clock.advance(seconds=LATER_S)

    survivor = await RecoveringGateway.open(store, clock, homes("survivor"))
    survivor.recovery.cron = CronSettings(max_retries=1)
    await survivor.pass_by()

    (found,) = store.read_now(lambda tx: tx.firings.page("night"))
    task = store.read_now(lambda tx: tx.tasks.get(found.task_id or ""))
    assert (task.status, task.cancel_reason) == (TaskStatus.QUEUED, None)
    assert (found.status, found.is_retry) == (FiringStatus.REQUEUED, True)
