"""Schedules: each occurrence once, whichever gateway looks; what was missed is caught up or written down."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.config.sections import ScheduleSettings
from holdfast.config.timetable import due_between, next_after
from holdfast.core.errors import RowDamaged, SettingsError, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.message import Role
from holdfast.core.schedule import Firing
from holdfast.core.transitions import FiringStatus, MessageStatus
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.program.author_api import Run
from holdfast.engine.schedules.due import MAX_MISSED
from holdfast.engine.schedules.firing import Fired
from holdfast.runtimes.contract import AgentInput
from holdfast.schedule.cron import Cron, requeuing
from holdfast.store import Store
from holdfast.store.rows.schedules import row_from_schedule
from holdfast.store.schedules import FiringTable
from holdfast.store.sealing import CLOSED
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, RepeatingStore, memory_store
from tests.builders import START, due_by, later
from tests.conftest import Ledger
from tests.engine.stage import Stage
from tests.gateway.chats import GROUP, Chat, agent

KEY = "agent:scholar:cron-hourly"


def a_schedule(**changes: Any) -> ScheduleSettings:
    schedule: dict[str, Any] = {
        "cron": "0 * * * *",
        "agent": "scholar",
        "session": "cron-hourly",
        "prompt": "look at the tide",
    }
    return ScheduleSettings(**schedule | changes)


def cron(store: Store, clock: FakeClock, **schedules: ScheduleSettings) -> Cron:
    return Cron(store, clock, schedules or {"hourly": a_schedule()})


def firings(store: Store, schedule: str = "hourly") -> list[Firing]:
    return store.read_now(lambda tx: tx.firings.page(schedule, limit=999))[::-1]


def posted(store: Store, key: str = KEY) -> list[str]:
    return [
        one.channel_message_id or "" for one in store.read_now(lambda tx: tx.messages.after(key, limit=999))
    ]


async def test_a_schedule_that_is_new_does_not_fire_for_the_past(store: Store, clock: FakeClock) -> None:
    assert await cron(store, clock).run_once() == Fired()
    assert firings(store) == []


async def test_an_occurrence_fires_once_and_posts_its_prompt(store: Store, clock: FakeClock) -> None:
    service = cron(RepeatingStore(store), clock)
    await service.run_once()
    clock.advance(hours=1)

    assert await service.run_once() == Fired(fired=1)
    assert await service.run_once() == Fired()

    (firing,) = firings(store)
    (message,) = store.read_now(lambda tx: tx.messages.after(KEY, limit=9))
    assert (firing.occurrence_at, firing.status) == (later(hours=1), FiringStatus.DUE)
    assert firing.message_id == message.id
    assert (message.text, message.role, message.channel) == ("look at the tide", Role.USER, "cron")
    assert message.channel_message_id == "hourly@2026-01-01T01:00:00+00:00"
    assert message.status is MessageStatus.QUEUED
    kinds = [one.kind for one in store.read_now(lambda tx: tx.events.newest(limit=9))]
    assert kinds.count(EventKind.SCHEDULE_FIRED) == 1


async def test_after_a_time_without_a_gateway_the_latest_fires_and_the_others_are_missed(
    store: Store, clock: FakeClock
) -> None:
    await cron(store, clock).run_once()
    clock.advance(hours=3, minutes=20)

    did = await cron(store, clock).run_once()

    assert did == Fired(fired=1, missed=2)
    assert [one.status for one in firings(store)] == [
        FiringStatus.MISSED,
        FiringStatus.MISSED,
        FiringStatus.DUE,
    ]
    assert posted(store) == ["hourly@2026-01-01T03:00:00+00:00"]


async def test_what_was_missed_more_than_a_day_ago_does_not_fire(store: Store, clock: FakeClock) -> None:
    weekly = a_schedule(cron="0 0 * * thu")
    service = cron(store, clock, weekly=weekly)
    await service.run_once()
    clock.advance(days=7, hours=25)

    assert await service.run_once() == Fired(missed=1)
    assert await service.run_once() == Fired()
    assert [one.status for one in firings(store, "weekly")] == [FiringStatus.MISSED]


async def test_a_year_without_a_gateway_is_caught_up_at_once(store: Store, clock: FakeClock) -> None:
    service = cron(store, clock, minutely=a_schedule(cron="* * * * *"))
    await service.run_once()
    clock.advance(days=365)

    assert await service.run_once() == Fired(fired=1, missed=MAX_MISSED)
    assert await service.run_once() == Fired()


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "by a restart"])
async def test_a_schedule_that_was_changed_or_switched_on_counts_from_then_on(
    store: Store, clock: FakeClock, is_live: bool
) -> None:
    await cron(store, clock).run_once()
    clock.advance(hours=5, minutes=30)

    service = cron(store, clock, hourly=a_schedule(cron="15 * * * *"))
    assert await service.run_once() == Fired()
    off = {"hourly": a_schedule(cron="15 * * * *", is_enabled=False)}
    service.schedules, on = off, service.schedules
    clock.advance(hours=2)
    assert await service.run_once() == Fired()
    service = service if is_live else Cron(store, clock, {})
    service.schedules = on
    clock.advance(hours=2)
    assert await service.run_once() == Fired()
    clock.advance(hours=1)
    assert await service.run_once() == Fired(fired=1)


async def test_what_is_held_fires_nothing_and_catches_up(store: Store, clock: FakeClock) -> None:
    service = cron(store, clock)
    await service.run_once()
    service.hold()
    clock.advance(hours=1)

    assert await service.run_once() == Fired()
    service.go_on()
    assert await service.run_once() == Fired(fired=1)


async def test_twelve_schedules_fire_each_on_its_own(store: Store, clock: FakeClock) -> None:
    twelve = {
        f"s{number}": a_schedule(session=f"s{number}", cron=f"{number} * * * *") for number in range(12)
    }
    service = cron(store, clock, **twelve)
    await service.run_once()

    for _ in range(120):
        clock.advance(minutes=1)
        await service.run_once()

    for number in range(12):
        assert len(firings(store, f"s{number}")) == 2
        assert len(posted(store, f"agent:scholar:s{number}")) == 2


async def test_two_gateways_fire_each_occurrence_once(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    both = [cron(store, ledger.clock) for store in (first, second)]
    await both[0].run_once()

    for _ in range(10):
        ledger.clock.advance(hours=1)
        fired = await asyncio.gather(*(one.run_once() for one in both))
        assert sum(one.fired for one in fired) == 1

    assert len(set(posted(first))) == len(posted(first)) == 10


async def test_gateways_that_set_a_schedule_to_other_times_follow_the_latest_settings(
    store: Store, clock: FakeClock
) -> None:
    full, half = (
        Cron(store, clock, {"hourly": a_schedule(cron=f"{minute} * * * *")}, place=f"home-{minute}")
        for minute in (0, 30)
    )
    await full.run_once()
    await half.run_once()

    for _ in range(2 * 60 * 3):
        clock.advance(seconds=30)
        for one in (full, half):
            await one.run_once()

    assert [one.occurrence_at for one in firings(store)] == [
        later(minutes=30 + 60 * hour) for hour in range(3)
    ]


async def test_one_name_for_two_agents_on_two_gateways_is_refused_where_it_is_declared(
    store: Store, clock: FakeClock
) -> None:
    ours, theirs = (
        Cron(store, clock, {"hourly": a_schedule(agent=agent)}, place=f"home of {agent}")
        for agent in ("scholar", "sailor")
    )
    await ours.declare()

    with pytest.raises(SettingsError) as refused:
        await theirs.declare()

    told = str(refused.value)
    assert "schedules.hourly: the gateway at home of scholar declares this name for agent scholar" in told
    assert "for agent sailor" in told
    assert "holdfast cron remove hourly --force" in told
    # A gateway that went away does not block the name for ever.
    clock.advance(hours=25)
    await theirs.declare()
    with pytest.raises(SettingsError, match="home of sailor"):
        await ours.declare()


async def test_a_schedule_that_was_moved_to_another_session_complains_of_no_one(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    service = cron(store, clock)
    for session in ("harbour", "cron-hourly", "harbour"):
        await service.run_once()
        clock.advance(hours=1)
        assert await service.run_once() == Fired(fired=1)
        service.schedules = {"hourly": a_schedule(session=session)}

    assert await service.run_once() == Fired()
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


# --- a clock that was wrong


async def test_a_firing_of_a_clock_that_was_far_ahead_stops_nothing(store: Store, clock: FakeClock) -> None:
    service = cron(store, clock)
    await service.run_once()
    clock.advance(days=3650)
    assert (await service.run_once()).fired == 1
    clock.set(later(minutes=30))

    fired = 0
    for _ in range(24):
        clock.advance(hours=1)
        fired += (await service.run_once()).fired

    assert fired == 24


@pytest.mark.parametrize("is_new", [True, False], ids=["another process", "the same process"])
async def test_a_schedule_that_began_when_the_clock_was_far_ahead_begins_again(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture, is_new: bool
) -> None:
    clock.set(later(days=3650))
    service = cron(store, clock)
    await service.run_once()
    clock.set(START)
    service = cron(store, clock) if is_new else service
    await service.run_once()
    clock.advance(hours=1)

    assert await service.run_once() == Fired(fired=1)
    assert [one.levelname for one in caplog.records if "in the future" in one.getMessage()] == ["WARNING"]


# --- a clock that jumps


EACH_MINUTE = {"minutely": a_schedule(cron="* * * * *")}


def watched(store: Store, clock: FakeClock, machine: str = "boot 1") -> Cron:
    """A process that does not believe every time that its clock says."""
    watch = ClockWatch(store, clock, boottime_us=clock.boottime_us, machine=machine)
    return Cron(store, clock, EACH_MINUTE, watch=watch)


def occurrences(store: Store) -> list[tuple[datetime, str]]:
    return [(one.occurrence_at, one.status.value) for one in firings(store, "minutely")]


async def minutes(service: Cron, clock: FakeClock, count: int) -> list[Fired]:
    """What each pass of so many minutes does, two passes a minute."""
    did = []
    for _ in range(2 * count):
        clock.advance(seconds=30)
        did.append(await service.run_once())
    return did


@pytest.mark.parametrize("is_new", [False, True], ids=["the same process", "one that starts then"])
async def test_a_clock_that_is_an_hour_ahead_for_20_seconds_fires_and_misses_nothing_that_is_not_due(
    store: Store, clock: FakeClock, is_new: bool
) -> None:
    service = watched(store, clock)
    await minutes(service, clock, 5)
    clock.jump(hours=1)
    service = watched(store, clock) if is_new else service
    for _ in range(4):
        clock.advance(seconds=5)
        assert await service.run_once() == Fired()
    clock.jump(hours=-1)
    clock.advance(seconds=10)

    await minutes(service, clock, 5)

    assert occurrences(store) == [(later(minutes=number), "due") for number in range(1, 11)]


async def test_while_the_clock_is_ahead_schedules_go_on_in_time(store: Store, clock: FakeClock) -> None:
    service = watched(store, clock)
    await service.run_once()
    clock.jump(hours=1)

    await minutes(service, clock, 4)

    assert occurrences(store) == [(later(minutes=number), "due") for number in range(1, 5)]
    assert [one.created_at for one in firings(store, "minutely")] == [later(minutes=n) for n in range(1, 5)]
    assert service.next_due_at() == later(minutes=5)


async def test_a_new_time_that_holds_is_caught_up_with(store: Store, clock: FakeClock) -> None:
    service = watched(store, clock)
    await service.run_once()
    clock.jump(hours=1)

    did = await minutes(service, clock, 10)

    assert (sum(one.fired for one in did), sum(one.missed for one in did)) == (11, 59)
    assert occurrences(store)[-1] == (later(hours=1, minutes=10), "due")
    assert len(occurrences(store)) == 70


@pytest.mark.parametrize("machine", ["boot 1", "boot 2"], ids=["slept", "was off"])
async def test_what_a_machine_missed_in_the_night_is_caught_up(
    store: Store, clock: FakeClock, machine: str
) -> None:
    await watched(store, clock).run_once()
    clock.advance(hours=1)
    service = watched(store, clock, machine)

    did = await service.run_once()
    if machine == "boot 2":
        assert did == Fired()  # its clock may be wrong: only what holds is believed
        (*early, did) = await minutes(service, clock, 5)
        assert early == [Fired()] * 9

    minute = 60 if machine == "boot 1" else 65
    assert did == Fired(fired=1, missed=minute - 1)
    assert occurrences(store)[-1] == (later(minutes=minute), "due")


async def test_a_machine_that_boots_with_a_clock_an_hour_ahead_writes_nothing_before_its_time(
    store: Store, clock: FakeClock
) -> None:
    await watched(store, clock).run_once()
    clock.advance(minutes=3)
    clock.jump(hours=1)
    service = watched(store, clock, "boot 2")
    await minutes(service, clock, 1)
    assert occurrences(store) == []
    clock.jump(hours=-1)  # NTP has answered

    await minutes(service, clock, 7)

    assert [one for one, _ in occurrences(store)] == [later(minutes=number) for number in range(1, 12)]
    assert [status for _, status in occurrences(store)] == ["missed"] * 8 + ["due"] * 3


async def test_a_clock_that_jumps_back_repeats_nothing_and_what_comes_then_fires(
    store: Store, clock: FakeClock
) -> None:
    service = watched(store, clock)
    await minutes(service, clock, 30)
    clock.jump(minutes=-20)

    assert sum(one.fired for one in await minutes(service, clock, 20)) == 0
    await minutes(service, clock, 10)

    assert occurrences(store) == [(later(minutes=number), "due") for number in range(1, 41)]
    assert len(posted(store)) == len(set(posted(store))) == 40


async def test_a_clock_that_is_back_for_a_moment_delays_what_is_due(store: Store, clock: FakeClock) -> None:
    service = watched(store, clock)
    await minutes(service, clock, 5)
    clock.jump(hours=-1)
    await minutes(service, clock, 2)
    assert len(occurrences(store)) == 5
    clock.jump(hours=1)

    await minutes(service, clock, 1)

    assert [status for _, status in occurrences(store)[5:]] == ["missed", "due", "due"]
    assert occurrences(store)[-1] == (later(minutes=8), "due")


async def test_a_new_schedule_does_not_fire_for_the_past_when_the_clock_was_back_for_a_moment(
    store: Store, clock: FakeClock
) -> None:
    await watched(store, clock).run_once()
    clock.advance(minutes=30)
    service = watched(store, clock)
    service.schedules = {"hourly": a_schedule(cron="15 * * * *")}
    await service.run_once()
    clock.jump(hours=-1)
    assert await service.run_once() == Fired()
    clock.jump(hours=1)

    assert await service.run_once() == Fired()
    assert firings(store) == []


@pytest.mark.parametrize("is_watched", [True, False])
async def test_what_was_missed_before_its_time_fires_when_it_comes(
    store: Store, clock: FakeClock, is_watched: bool
) -> None:
    """As a clock that was an hour ahead left it to us, by a process that believed it."""
    believes = Cron(RepeatingStore(store), clock, EACH_MINUTE)
    await believes.run_once()
    clock.jump(hours=1)
    assert await believes.run_once() == Fired(fired=1, missed=59)
    clock.jump(hours=-1)
    service = watched(store, clock) if is_watched else believes

    did = await minutes(service, clock, 61)

    # All but the one that has fired an hour too early.
    assert sum(one.fired for one in did) == 60
    assert occurrences(store) == [(later(minutes=number), "due") for number in range(1, 62)]
    assert len(posted(store)) == len(set(posted(store))) == 61


async def test_two_gateways_fire_what_was_missed_before_its_time_once(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    both = [Cron(store, ledger.clock, EACH_MINUTE) for store in (first, second)]
    await both[0].run_once()
    ledger.clock.jump(hours=1)
    await both[0].run_once()
    ledger.clock.jump(hours=-1)

    for _ in range(10):
        ledger.clock.advance(minutes=1)
        fired = await asyncio.gather(*(one.run_once() for one in both))
        assert sum(one.fired for one in fired) == 1

    assert len(posted(first)) == len(set(posted(first))) == 11


# --- one that is broken


async def test_a_damaged_schedule_stops_no_other_one(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    service = cron(store, clock, **{name: a_schedule(session=name) for name in ("ebb", "flow", "slack")})
    await service.run_once()
    clock.advance(hours=1)
    row = store.read_now(lambda tx: tx.schedules.get("ebb"))
    damaged = row_from_schedule(row, CLOSED) | {"owner": "another", "expected": row.revision}
    store.write_now(lambda tx: tx.statements.run("edit_schedule", damaged))

    assert await service.run_once() == Fired(fired=2)
    assert [one.getMessage().split(",")[0] for one in caplog.records if one.levelname == "ERROR"] == [
        "schedule ebb could not be read"
    ]


async def test_a_schedule_that_raises_stops_no_other_one(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = cron(store, clock, **{name: a_schedule(session=name) for name in ("ebb", "flow", "slack")})
    await service.run_once()
    clock.advance(hours=1)
    _let_find_raise(monkeypatch, "ebb", RowDamaged("firing", "firing_1", "digest"))

    assert await service.run_once() == Fired(fired=2)
    assert [one.getMessage().split(";")[0] for one in caplog.records if one.levelname == "ERROR"] == [
        "schedule ebb could not be checked"
    ]


async def test_a_ledger_that_is_away_ends_the_pass(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = cron(store, clock, **{name: a_schedule(session=name) for name in ("ebb", "flow")})
    await service.run_once()
    clock.advance(hours=1)
    _let_find_raise(monkeypatch, "ebb", StoreUnavailable("away"))

    with pytest.raises(StoreUnavailable):
        await service.run_once()


async def test_a_beginning_that_cannot_be_read_is_now(store: Store, clock: FakeClock) -> None:
    store.write_now(lambda tx: tx.boots.set_fact("schedule hourly", "{"))
    service = cron(store, clock)
    await service.run_once()
    clock.advance(hours=1)

    assert await service.run_once() == Fired(fired=1)


def _let_find_raise(monkeypatch: pytest.MonkeyPatch, schedule: str, error: Exception) -> None:
    real = FiringTable.find

    def find(self: FiringTable, firing: Firing) -> Firing | None:
        if firing.schedule == schedule:
            raise error
        return real(self, firing)

    monkeypatch.setattr(FiringTable, "find", find)


async def test_a_crash_between_any_two_writes_fires_once() -> None:
    async def life(store: Store, clock: FakeClock) -> None:
        service = cron(store, clock)
        clock.set(START)
        await service.run_once()
        clock.advance(hours=3)
        await service.run_once()

    recorded = FailingStore(memory_store())
    await life(recorded, FakeClock(START))

    async def crash_at(point: Failpoint) -> None:
        store, clock = memory_store(), FakeClock(START)
        with pytest.raises(Crashed):
            await life(FailingStore(store, [point]), clock)
        await life(store, clock)
        assert posted(store) == ["hourly@2026-01-01T03:00:00+00:00"], point
        assert len(firings(store)) == 3, point
        assert store.verify() == []
        store.close()

    for point in recorded.failpoints():
        await crash_at(point)


# --- a firing follows its message


async def tell(run: Run, heard: AgentInput) -> str:
    if "break" in heard.message.text:
        raise ValueError("no")
    return "high"


@pytest.fixture
def chat(store: Store, clock: FakeClock, tmp_path: Path) -> Any:
    stage = Stage(store, clock, tmp_path / "boots")
    yield Chat(stage, agent(tell))
    stage.kill()


async def fire(chat: Chat, **changes: Any) -> Cron:
    service = cron(chat.stage.store, chat.clock, hourly=a_schedule(**changes))
    await service.run_once()
    chat.clock.advance(hours=1)
    await service.run_once()
    return service


async def test_a_firing_is_running_while_its_task_is_and_done_with_its_answer(
    chat: Chat, store: Store
) -> None:
    await chat.begin()
    await fire(chat)

    await chat.conversations.run_once()
    (running,) = firings(store)
    assert (running.status, running.task_id is not None) == (FiringStatus.RUNNING, True)
    assert store.read_now(lambda tx: tx.firings.open(limit=9)) == [running]
    await chat.talk()

    (done,) = firings(store)
    assert (done.status, done.task_id) == (FiringStatus.DONE, running.task_id)
    assert await chat.answers(KEY) == ["high"]
    assert due_by(store, later(days=365)) == [], "no gateway listens there"


async def test_what_a_schedule_asked_for_is_told_to_the_person_who_speaks_in_the_session(
    chat: Chat, store: Store
) -> None:
    await chat.begin()
    await chat.say("hello", key=KEY, origin=GROUP)
    await chat.talk()
    await fire(chat)
    await chat.talk()

    task_id = firings(store)[0].task_id
    (owed,) = store.read_now(lambda tx: tx.deliveries.of_task(str(task_id)))
    assert owed.origin == GROUP


async def test_a_firing_that_failed_is_queued_again_with_its_flag(chat: Chat, store: Store) -> None:
    await chat.begin()
    service = await fire(chat, prompt="break")
    await chat.talk()
    (failed,) = firings(store)
    assert failed.status is FiringStatus.FAILED

    requeued = RepeatingStore(store).write_now(requeuing(failed.id, now=chat.clock.now()))

    assert (requeued.status, requeued.is_retry) == (FiringStatus.REQUEUED, True)
    assert requeued.message_id != failed.message_id
    await chat.talk()
    assert firings(store)[0].status is FiringStatus.FAILED
    assert len(posted(store)) == 4
    assert (await service.requeue(failed.id)).status is FiringStatus.REQUEUED


async def test_a_firing_whose_task_goes_on_is_flagged_and_not_posted_again(chat: Chat, store: Store) -> None:
    await chat.begin()
    service = await fire(chat)
    await chat.conversations.run_once()
    (running,) = firings(store)

    requeued = await service.requeue(running.id)
    await chat.talk()

    assert (requeued.status, requeued.message_id) == (FiringStatus.REQUEUED, running.message_id)
    (done,) = firings(store)
    assert (done.status, done.is_retry) == (FiringStatus.DONE, True)
    assert await chat.answers(KEY) == ["high"]
    assert (await service.requeue(running.id)).status is FiringStatus.DONE


# --- occurrences

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]


@hypothesis_settings(max_examples=150, deadline=None)
@example(cron_text="15 1,2,3 * * *", tz="America/New_York", start=datetime(2026, 11, 1, 4), length=120)  # noqa: DTZ001
@given(
    cron_text=st.sampled_from(
        ["30 2 * * *", "*/20 * * * *", "0 * * * *", "0 3 * * sun", "0 0 1 * *", "15 1,2,3 * * *", "0 0 L * *"]
    ),
    tz=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 1)),  # noqa: DTZ001 - given a zone below
    length=st.integers(0, 60 * 24 * 4),
)
def test_the_occurrences_of_a_time_are_the_same_forwards_and_backwards(
    cron_text: str, tz: str, start: datetime, length: int
) -> None:
    schedule = a_schedule(cron=cron_text, tz=tz)
    after = start.replace(tzinfo=UTC)
    until = after + timedelta(minutes=length)
    forwards = []
    # From before an hour that the clock repeats: what has come in it once does not come again.
    for occurrence in CronSim(cron_text, (after - timedelta(hours=3)).astimezone(ZoneInfo(tz))):
        if (moment := occurrence.astimezone(UTC)) > until:
            break
        if moment > after:
            forwards.append(moment)

    assert due_between(schedule.spec, after, until, limit=MAX_MISSED + 1) == forwards[-(MAX_MISSED + 1) :]


def test_an_occurrence_is_due_at_its_very_moment() -> None:
    schedule = a_schedule()

    assert due_between(schedule.spec, START, later(hours=1), limit=9) == [later(hours=1)]
    assert due_between(schedule.spec, START, later(hours=1) - timedelta(microseconds=1), limit=9) == []
    assert due_between(schedule.spec, later(hours=1), later(hours=1), limit=9) == []
    assert next_after(schedule.spec, START) == later(hours=1)


def test_the_time_zone_of_a_schedule_counts() -> None:
    schedule = a_schedule(cron="0 9 * * *", tz="Europe/Berlin")

    winter = next_after(schedule.spec, datetime(2026, 1, 10, tzinfo=UTC))
    summer = next_after(schedule.spec, datetime(2026, 7, 10, tzinfo=UTC))

    assert winter is not None
    assert summer is not None
    assert (winter.hour, summer.hour) == (8, 7)


async def test_the_service_wakes_when_something_is_due(store: Store, clock: FakeClock) -> None:
    service = cron(store, clock)
    assert service.next_due_at() is None
    await service.run_once()
    await service.run_once()
    assert service.next_due_at() == later(hours=1)
    service.stop()

    async with asyncio.timeout(10):
        await service.run()
