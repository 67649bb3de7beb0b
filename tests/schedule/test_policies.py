"""Schedules of tasks: each occurrence is one task, whatever dies or races; missed and overlapping ones follow
their policies."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.config.timetable import jitter_of
from holdfast.core.errors import BadInput, NameTaken, NotFound, Refused, RevisionMismatch, SettingsError
from holdfast.core.finding import FindingCode
from holdfast.core.ids import BootId
from holdfast.core.schedule import Firing
from holdfast.core.schedule_spec import COMMAND_TASK
from holdfast.core.task import Task
from holdfast.core.transitions import FiringStatus, TaskStatus
from holdfast.engine.client.schedules import Schedules
from holdfast.engine.ledger.ledger import cancelling
from holdfast.engine.schedules.changes import ScheduleLimits
from holdfast.engine.schedules.firing import Fired, settling
from holdfast.schedule.cron import Cron
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, FakeClock, RepeatingStore, memory_store
from holdfast.upkeep.schedule_audit import findings_of_schedules
from tests.builders import START, a_boot, later
from tests.conftest import Ledger
from tests.engine.stage import Stage
from tests.schedule.test_cron import a_schedule

pytestmark = pytest.mark.slow


@hf.task
async def nightly(run: hf.Run, region: str = "eu") -> str:
    return await run.step(shout, region)


def shout(region: str) -> str:
    return region.upper()


def schedules(store: Store, clock: FakeClock, **options: Any) -> Schedules:
    return Schedules(store, clock, "system", **options)


def history(store: Store, name: str = "night") -> list[Firing]:
    return store.read_now(lambda tx: tx.firings.page(name, limit=999))[::-1]


def outcomes(store: Store, name: str = "night") -> list[str]:
    return [one.status.value for one in history(store, name)]


def tasks(store: Store) -> list[Task]:
    return store.read_now(lambda tx: tx.tasks.page(limit=999))


def end(store: Store, clock: FakeClock, firing: Firing) -> None:
    assert firing.task_id is not None
    store.write_now(cancelling(firing.task_id, owner=None, reason="test", now=clock.now()))


# --- one task for each occurrence


async def test_a_firing_of_a_task_is_done_with_its_task_and_links_to_it(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    stage = await Stage(store, clock, tmp_path / "boots").open(nightly)
    await schedules(store, clock).add("night", nightly("us"), every="1h")
    clock.advance(hours=1)
    service = Cron(RepeatingStore(store), clock, {})

    assert await service.run_once() == Fired(fired=1)
    assert outcomes(store) == ["running"]
    await stage.settle()
    await service.run_once()

    (firing,) = history(store)
    (task,) = tasks(store)
    assert (firing.status, firing.task_id) == (FiringStatus.DONE, task.id)
    assert (task.status, task.result, task.name) == (TaskStatus.SUCCEEDED, b'"US"', "nightly")
    assert "schedule night" in task.goal
    stage.kill()


async def test_a_crash_at_any_write_of_a_firing_makes_one_task() -> None:
    async def life(store: Store, clock: FakeClock) -> None:
        clock.set(START)
        with contextlib.suppress(NameTaken):  # an earlier life added it
            await schedules(store, clock).add("night", nightly("us"), every="1h", overlap="replace")
        service = Cron(store, clock, {})
        for _ in range(3):
            clock.advance(hours=1)
            await service.run_once()

    recorded = FailingStore(memory_store())
    await life(recorded, FakeClock(START))

    for point in recorded.failpoints():
        store, clock = memory_store(), FakeClock(START)
        with pytest.raises(Crashed):
            await life(FailingStore(store, [point]), clock)
        await life(store, clock)
        fired = history(store)
        assert [one.occurrence_at for one in fired] == [later(hours=hour) for hour in (1, 2, 3)], point
        alive = [one.id for one in tasks(store) if not one.has_ended]
        started = [one.task_id for one in fired if one.task_id is not None]
        assert alive == [fired[-1].task_id], point
        assert len(started) == len(set(started)) == len(tasks(store)), point
        assert store.verify() == []
        store.close()


async def test_two_gateways_start_the_task_of_each_occurrence_once(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    for number in range(5):
        await schedules(first, ledger.clock).add(f"n{number}", nightly(str(number)), every="1h", jitter="10m")
    both = [Cron(store, ledger.clock, {}, place=place) for store, place in ((first, "a"), (second, "b"))]

    for _ in range(4):
        ledger.clock.advance(hours=1, minutes=1)
        await asyncio.gather(*(one.run_once() for one in both))
        for number in range(5):
            for firing in history(first, f"n{number}"):
                if firing.task_id is not None:
                    end(first, ledger.clock, firing)
        await asyncio.gather(*(one.run_once() for one in both))

    made = [one for number in range(5) for one in history(first, f"n{number}")]
    assert len({(one.schedule, one.occurrence_at) for one in made}) == len(made)
    assert len({one.task_id for one in made if one.task_id}) == len(tasks(first)) > 10


# --- missed


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("skip", []), ("latest", [5]), ("all", [3, 4, 5])],
)
async def test_what_a_time_without_a_gateway_leaves_follows_the_policy(
    store: Store, clock: FakeClock, missed: str, fired: list[int]
) -> None:
    await schedules(store, clock).add("night", nightly(), every="1h", missed=missed, max_missed=3)
    clock.advance(hours=5, minutes=20)

    await Cron(store, clock, {}).run_once()

    made = history(store)
    assert [one.occurrence_at for one in made] == [later(hours=hour) for hour in range(1, 6)]
    assert [one.occurrence_at for one in made if one.status is not FiringStatus.MISSED] == [
        later(hours=hour) for hour in fired
    ]
    assert all(one.why for one in made if one.status is FiringStatus.MISSED)


async def test_a_one_shot_fires_once_also_long_after_its_time(store: Store, clock: FakeClock) -> None:
    own = schedules(store, clock)
    await own.add("once", nightly(), at="2026-01-01T06:00", tz="Europe/Berlin")
    clock.advance(days=3)

    service = Cron(store, clock, {})
    assert await service.run_once() == Fired(fired=1)
    assert await service.run_once() == Fired()

    assert [one.occurrence_at for one in history(store, "once")] == [later(hours=5)]
    assert (await own.get("once")).due_at is None
    end(store, clock, history(store, "once")[0])
    await service.run_once()
    clock.advance(days=8)
    await service.run_once()
    with pytest.raises(NotFound):
        await own.get("once")


async def test_a_restart_does_not_shift_an_interval(store: Store, clock: FakeClock) -> None:
    clock.advance(seconds=7)
    await schedules(store, clock).add("night", nightly(), every="15m")
    for _ in range(6):
        clock.advance(minutes=11)
        await Cron(store, clock, {}).run_once()

    anchor = later(seconds=7)
    assert all((one.occurrence_at - anchor) % timedelta(minutes=15) == timedelta(0) for one in history(store))
    assert len(history(store)) == 4


async def test_a_year_ahead_and_an_hour_back_fire_nothing_twice(store: Store, clock: FakeClock) -> None:
    await schedules(store, clock).add("night", nightly(), every="1h", missed="all", overlap="queue")
    service = Cron(store, clock, {})
    for jump in (timedelta(days=365), timedelta(days=-365), timedelta(hours=-1), timedelta(hours=1)):
        for _ in range(3):
            clock.advance(hours=1)
            await service.run_once()
        clock.jump(seconds=jump.total_seconds())
        await service.run_once()

    made = history(store)
    assert len({one.occurrence_at for one in made}) == len(made)
    planned = {later(hours=hour) for hour in range(1, 12)}
    assert planned <= {one.occurrence_at for one in made if one.status is not FiringStatus.MISSED}


def test_jitter_is_the_same_for_every_gateway_and_within_its_limit() -> None:
    found = {jitter_of("night", later(hours=hour), 600) for hour in range(200)}

    assert found == {jitter_of("night", later(hours=hour), 600) for hour in range(200)}
    assert len(found) > 150
    assert all(timedelta(0) <= one < timedelta(minutes=10) for one in found)


async def test_with_the_longest_jitter_every_occurrence_fires(store: Store, clock: FakeClock) -> None:
    await schedules(store, clock).add("night", nightly(), cron="*/15 * * * *", jitter="899s", missed="all")
    service = Cron(store, clock, {})

    for _ in range(8 * 60):
        clock.advance(minutes=1)
        await service.run_once()

    fired = [one.occurrence_at for one in history(store) if one.status is not FiringStatus.MISSED]
    assert fired == [later(minutes=15 * number) for number in range(1, len(fired) + 1)]
    assert len(fired) >= 31


# --- overlap


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", ["running", "missed", "missed"]),
        ("queue", ["running", "due", "due"]),
        ("replace", ["failed", "failed", "running"]),
    ],
)
async def test_an_occurrence_while_the_one_before_runs_follows_the_policy(
    store: Store, clock: FakeClock, overlap: str, expected: list[str]
) -> None:
    await schedules(store, clock).add("night", nightly(), every="1h", overlap=overlap)
    service = Cron(RepeatingStore(store), clock, {})

    for _ in range(3):
        clock.advance(hours=1)
        await service.run_once()

    assert outcomes(store) == expected


async def test_a_firing_that_waits_starts_when_the_one_before_has_ended(
    store: Store, clock: FakeClock
) -> None:
    await schedules(store, clock).add("night", nightly(), every="1h")
    service = Cron(RepeatingStore(store), clock, {})
    for _ in range(3):
        clock.advance(hours=1)
        await service.run_once()
    assert [one.task_id is None for one in history(store)] == [False, True, True]

    end(store, clock, history(store)[0])
    await service.run_once()

    assert outcomes(store) == ["failed", "running", "due"]


async def test_firings_that_wait_behind_a_stuck_one_keep_no_other_schedule_from_starting(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.schedule.cron.BATCH", 3)
    own = schedules(store, clock)
    for name in ("stuck", "stuck-too"):
        await own.add(name, nightly(), every="1m")
    service = Cron(store, clock, {})
    for _ in range(5):
        clock.advance(minutes=1)
        await service.run_once()
    await own.add("night", nightly(), every="1m")
    for _ in range(3):
        clock.advance(minutes=1)
        await service.run_once()
    assert outcomes(store) == ["running", "due", "due"]

    end(store, clock, history(store)[0])
    await service.run_once()

    assert outcomes(store) == ["failed", "running", "due"]


async def test_a_look_at_firings_that_wait_writes_nothing_until_one_can_start(
    store: Store, clock: FakeClock
) -> None:
    await schedules(store, clock).add("night", nightly(), every="1h")
    for _ in range(4):
        clock.advance(hours=1)
        await Cron(store, clock, {}).run_once()

    assert store.read_now(lambda tx: tx.firings.startable(limit=9)) == []
    end(store, clock, history(store)[0])
    store.write_now(settling([history(store)[0].id], now=clock.now()))

    assert store.read_now(lambda tx: tx.firings.startable(limit=9)) == [history(store)[1]]


async def test_replace_cancels_a_task_that_a_worker_runs_and_starts_after_it(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    @hf.task(name="slow")
    async def slow(run: hf.Run) -> None:
        await run.sleep("10h")

    stage = await Stage(store, clock, tmp_path / "boots").open(slow)
    await schedules(store, clock).add("night", slow(), every="1h", overlap="replace")
    service = Cron(store, clock, {})
    clock.advance(hours=1)
    await service.run_once()
    await stage.settle()
    clock.advance(hours=1)

    await service.run_once()

    first, second = history(store)
    old = store.read_now(lambda tx: tx.tasks.get(first.task_id or ""))
    assert old.cancel_requested_at is not None or old.status is TaskStatus.CANCELLED
    await stage.settle()
    await service.run_once()
    await stage.settle()
    assert outcomes(store) == ["failed", "running"]
    assert history(store)[1].task_id not in (None, first.task_id)
    assert second.occurrence_at == later(hours=2)
    stage.kill()


async def test_a_queue_of_firings_of_a_removed_schedule_is_given_up(store: Store, clock: FakeClock) -> None:
    own = schedules(store, clock)
    await own.add("night", nightly(), every="1h")
    service = Cron(store, clock, {})
    for _ in range(2):
        clock.advance(hours=1)
        await service.run_once()

    await own.remove("night")
    await service.run_once()

    assert outcomes(store) == ["running", "missed"]


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
async def test_a_schedule_that_is_added_again_follows_no_firing_of_the_removed_one(
    store: Store, clock: FakeClock, overlap: str
) -> None:
    own, service = schedules(store, clock), Cron(RepeatingStore(store), clock, {})
    await own.add("night", nightly("before"), every="1h", overlap="queue")
    for _ in range(2):
        clock.advance(hours=1)
        await service.run_once()
    await own.remove("night")
    clock.advance(minutes=1)
    await own.add("night", nightly("after"), every="1h", overlap=overlap)

    clock.advance(hours=1)
    await service.run_once()

    assert outcomes(store) == ["running", "missed", "running"]
    assert history(store)[1].why == "its schedule was removed or changed"


async def test_the_same_request_for_a_schedule_that_was_added_again_fires_it(
    store: Store, clock: FakeClock
) -> None:
    own = schedules(store, clock)
    await own.add("night", nightly("before"), every="1h")
    first = await own.run("night", request_id="click")
    await own.remove("night")
    clock.advance(minutes=1)
    await own.add("night", nightly("after"), every="1h")

    second = await own.run("night", request_id="click")

    assert second.id != first.id
    assert second.task_id not in (None, first.task_id)


async def test_an_owner_sees_no_history_of_an_earlier_schedule_of_the_same_name(
    store: Store, clock: FakeClock
) -> None:
    bob, eve = (Schedules(store, clock, f"agent:{name}:main", only_owner=True) for name in ("bob", "eve"))
    await bob.add("night", nightly(), every="1h")
    await bob.run("night")
    await bob.remove("night")
    clock.advance(minutes=1)
    await eve.add("night", nightly(), every="1h")

    assert await eve.history("night") == []
    assert len(await schedules(store, clock).history("night")) == 1


# --- run now


async def test_a_run_now_is_beside_the_plan_and_a_repeated_request_fires_once(
    store: Store, clock: FakeClock
) -> None:
    own = schedules(RepeatingStore(store), clock)
    await own.add("night", nightly(), every="1h")
    clock.advance(hours=1)

    clicks = [await own.run("night", request_id="click") for _ in range(2)]
    await Cron(store, clock, {}).run_once()

    assert clicks[0].id == clicks[1].id
    made = history(store)
    assert [(one.cause.value, one.status.value) for one in made] == [
        ("planned", "due"),
        ("requested", "running"),
    ]
    assert made[0].occurrence_at == later(hours=1)


async def test_a_run_now_while_it_runs_is_refused_with_skip(store: Store, clock: FakeClock) -> None:
    own = schedules(store, clock)
    await own.add("night", nightly(), every="1h", overlap="skip")
    first = await own.run("night")

    with pytest.raises(Refused, match=f"{first.id} of night has not ended"):
        await own.run("night")


# --- changes


async def test_an_edit_to_another_target_leaves_nothing_of_the_one_before(
    store: Store, clock: FakeClock
) -> None:
    own = schedules(store, clock)
    boot = a_boot(task_names=(COMMAND_TASK, "agent.scholar"))
    store.write_now(lambda tx: tx.boots.begin(boot))
    await own.add("night", command=["du", "-sh"], directory="/srv", timeout="5s", every="1h")

    to_call = await own.edit("night", nightly("us"))
    assert (to_call.spec.target, to_call.spec.arguments) == ("task nightly", {"region": "us"})
    to_command = await own.edit("night", command=["df"])
    assert (to_command.spec.target, to_command.spec.directory) == ("command df", None)
    with pytest.raises(BadInput, match="it has 2 targets"):
        await own.edit("night", nightly("us"), command=["df"])
    to_agent = await own.edit("night", agent="scholar", prompt="Look.")
    assert to_agent.spec.target == "agent scholar (session cron-night)"
    await own.edit("night", command=["df"])
    both = await own.edit("night", timeout="9s")
    assert (both.spec.command, both.spec.timeout_s) == (["df"], 9.0)


async def test_a_schedule_whose_task_no_gateway_has_is_logged_once_and_fires_when_one_has_it(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def begin(name: str, *task_names: str) -> None:
        boot = a_boot(id=BootId(name), role="gateway", task_names=task_names)
        store.write_now(lambda tx: tx.boots.begin(boot))

    # A worker fires no schedules.
    store.write_now(lambda tx: tx.boots.begin(a_boot(task_names=("nightly",))))
    await schedules(store, clock).add("tea", nightly(), every="1h")
    other = Cron(store, clock, {}, names=["other"])
    clock.advance(hours=1, minutes=1)
    await other.run_once()
    assert caplog.messages == []
    begin("boot_g", "other")

    for _ in range(3):
        await other.run_once()

    assert caplog.messages == ["schedule tea: no gateway has task nightly; see `holdfast cron show tea`"]
    (found,) = store.read_now(lambda tx: list(findings_of_schedules(tx, clock.now())))
    assert (found.code, found.evidence["schedule"]) == (FindingCode.SCHEDULE_WITHOUT_TARGET, "tea")
    begin("boot_h", "nightly")
    assert store.read_now(lambda tx: list(findings_of_schedules(tx, clock.now()))) == []
    assert await Cron(store, clock, {}, names=["nightly"]).run_once() == Fired(fired=1)


async def test_two_edits_at_once_are_one_edit_and_one_refusal(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    both = [schedules(store, ledger.clock) for store in (first, second)]
    await both[0].add("night", nightly(), every="1h")

    answers = await asyncio.gather(
        *(one.edit("night", every=f"{hours}h", revision=1) for one, hours in zip(both, (2, 3), strict=True)),
        return_exceptions=True,
    )

    refused = [one for one in answers if isinstance(one, RevisionMismatch)]
    assert len(refused) == 1
    assert "schedule night is at revision 2, and this change was made for revision 1" in str(refused[0])
    assert (await both[0].get("night")).revision == 2


async def test_a_paused_schedule_fires_nothing_and_counts_from_its_resume(
    store: Store, clock: FakeClock
) -> None:
    own, service = schedules(store, clock), Cron(store, clock, {})
    await own.add("night", nightly(), every="1h", missed="all")
    await own.pause("night")
    clock.advance(hours=5, minutes=30)
    assert await service.run_once() == Fired()

    await own.resume("night")
    clock.advance(minutes=30)

    assert await service.run_once() == Fired(fired=1)
    assert [one.occurrence_at for one in history(store)] == [later(hours=6)]


async def test_what_waits_does_not_start_while_its_schedule_is_paused(store: Store, clock: FakeClock) -> None:
    own, service = schedules(store, clock), Cron(RepeatingStore(store), clock, {})
    await own.add("night", nightly(), every="1h")
    for _ in range(3):
        clock.advance(hours=1)
        await service.run_once()
    await own.pause("night")

    for _ in range(3):
        end(store, clock, history(store)[0])
        await service.run_once()
    assert outcomes(store) == ["failed", "due", "due"]

    await own.resume("night")
    await service.run_once()
    assert outcomes(store) == ["failed", "running", "due"]


async def test_what_waits_does_not_start_while_the_settings_switch_its_schedule_off(
    store: Store, clock: FakeClock
) -> None:
    on = a_schedule(agent=None, session=None, prompt=None, task="nightly", overlap="queue")
    service = Cron(RepeatingStore(store), clock, {"night": on})
    await service.run_once()
    for _ in range(2):
        clock.advance(hours=1)
        await service.run_once()
    service.schedules = {"night": msgspec.structs.replace(on, is_enabled=False)}
    end(store, clock, history(store)[0])
    for _ in range(2):
        await service.run_once()
    assert outcomes(store) == ["failed", "due"]

    service.schedules = {"night": on}
    await service.run_once()
    assert outcomes(store) == ["failed", "running"]


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_run_now_of_a_paused_schedule_does_not_wait_for_what_waits_for_the_resume(
    store: Store, clock: FakeClock, *, is_running: bool
) -> None:
    own, service = schedules(RepeatingStore(store), clock), Cron(RepeatingStore(store), clock, {})
    await own.add("night", nightly(), every="1h")
    for _ in range(2):
        clock.advance(hours=1)
        await service.run_once()
    await own.pause("night")
    if not is_running:
        end(store, clock, history(store)[0])
        await service.run_once()

    await own.run("night", request_id="click")
    assert outcomes(store) == (["running", "due", "due"] if is_running else ["failed", "due", "running"])
    if is_running:
        end(store, clock, history(store)[0])
    await service.run_once()

    assert outcomes(store) == ["failed", "due", "running"]


async def test_a_schedule_is_removed_once_whatever_becomes_of_the_answer(
    store: Store, clock: FakeClock
) -> None:
    own = schedules(RepeatingStore(store), clock)
    await own.add("night", nightly(), every="1h")

    await own.remove("night")

    with pytest.raises(NotFound):
        await own.remove("night")
    clock.advance(seconds=1)
    await own.add("night", nightly(), every="1h")
    assert (await own.get("night")).revision == 1


async def test_a_name_of_run_time_and_of_the_settings_exclude_each_other(
    store: Store, clock: FakeClock
) -> None:
    own = schedules(store, clock)
    await own.add("hourly", nightly(), every="1h")
    service = Cron(store, clock, {"hourly": a_schedule()}, place="here")
    with pytest.raises(SettingsError, match="was made at run time by system for task nightly"):
        await service.declare()

    await own.remove("hourly")
    await service.declare()

    with pytest.raises(NameTaken, match="there is a schedule hourly in the settings of a gateway"):
        await own.add("hourly", nightly(), every="1h")
    with pytest.raises(Refused, match=r"change it there, at \[schedules.hourly\]"):
        await own.edit("hourly", every="2h")
    with pytest.raises(Refused, match="holdfast cron remove hourly --force"):
        await own.remove("hourly")
    await own.remove("hourly", force=True)
    await service.declare()
    service.schedules = {}
    await service.run_once()
    with pytest.raises(NotFound):
        await own.get("hourly")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "it has no time"),
        ({"cron": "0 9 * * *", "every": "1h"}, "it has 2 kinds of time"),
        ({"cron": "x"}, "such as 0 9 * * mon-fri"),
        ({"every": "-1h"}, "is not a duration"),
        ({"every": -3600}, "a duration cannot be negative"),
        ({"every": 0}, "an interval of 0 s is too short"),
        ({"at": "2025-12-31T09:00"}, "has passed, so it would never fire"),
        ({"cron": "0 9 * * *", "tz": "Mars/Olympus"}, "such as Europe/Berlin or UTC, not 'Mars/Olympus'"),
        ({"every": "1h", "agent": "x", "prompt": "y"}, "it has 2 targets"),
        ({"every": "1h", "overlap": "stack"}, "overlap"),
        ({"cron": "0 9 * * *", "jitter": "1d"}, "shorter than the interval of 1d"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, dict) else None,
)
async def test_what_can_never_work_is_refused_with_an_example(given: dict[str, Any], told: str) -> None:
    store, clock = memory_store(), FakeClock(START)

    with pytest.raises(BadInput, match=told.replace("*", r"\*")):
        await schedules(store, clock).add("night", nightly(), **given)
    store.close()


async def test_limits_bound_the_number_and_the_interval_of_an_owner() -> None:
    store, clock = memory_store(), FakeClock(START)
    limits = ScheduleLimits(most=1, min_interval=timedelta(minutes=5))
    own = schedules(store, clock, limits=limits, only_owner=True)
    with pytest.raises(BadInput, match="an agent may schedule at most every 5m"):
        await own.add("often", nightly(), cron="*/2 * * * *")
    await own.add("night", nightly(), cron="*/5 * * * *")

    with pytest.raises(Refused, match="has 1 schedules already, which is the limit"):
        await own.add("another", nightly(), every="1h")
    with pytest.raises(BadInput, match="an agent may schedule at most every 5m"):
        await own.edit("night", every="10s")
    with pytest.raises(NotFound):
        await Schedules(store, clock, "agent:x:main", only_owner=True).get("night")
    store.close()


async def test_a_paused_schedule_counts_towards_the_limit_of_its_owner(
    store: Store, clock: FakeClock
) -> None:
    limits = ScheduleLimits(most=2, min_interval=timedelta(minutes=5))
    own = schedules(store, clock, limits=limits, only_owner=True)
    for name in ("a", "b"):
        await own.add(name, nightly(), every="1h")
        await own.pause(name)

    with pytest.raises(Refused, match="has 2 schedules already, which is the limit"):
        await own.add("c", nightly(), every="1h")
    assert (await own.resume("a")).due_at is not None
    await own.edit("b", every="2h")


async def test_a_one_shot_that_is_over_does_not_count_until_it_gets_a_new_time(
    store: Store, clock: FakeClock
) -> None:
    limits = ScheduleLimits(most=1, min_interval=timedelta(minutes=5))
    own = schedules(store, clock, limits=limits, only_owner=True)
    await own.add("once", nightly(), at=later(hours=1))
    clock.advance(hours=1)
    await Cron(store, clock, {}).run_once()
    await own.add("night", nightly(), every="1h")

    with pytest.raises(Refused, match="has 1 schedules already, which is the limit"):
        await own.edit("once", at=later(hours=9))
    assert (await own.get("once")).due_at is None


async def test_schedules_above_a_lowered_limit_are_not_resumed(store: Store, clock: FakeClock) -> None:
    before = schedules(store, clock, limits=ScheduleLimits(most=2, min_interval=timedelta(minutes=5)))
    for name in ("a", "b"):
        await before.add(name, nightly(), every="1h")
        await before.pause(name)
    own = schedules(store, clock, limits=ScheduleLimits(most=1, min_interval=timedelta(minutes=5)))

    with pytest.raises(Refused, match="which is the limit"):
        await own.resume("a")
    assert (await own.edit("a", every="2h")).revision == 3
    assert (await own.get("a")).is_paused


async def test_a_one_shot_that_is_paused_is_kept(store: Store, clock: FakeClock) -> None:
    own = schedules(store, clock)
    await own.add("once", nightly(), at=later(days=30))
    await own.pause("once")
    clock.advance(days=8)

    await Cron(store, clock, {}).run_once()

    assert (await own.resume("once")).next_at == later(days=30)


async def test_a_pass_reads_only_what_is_due() -> None:
    store, clock = memory_store(), FakeClock(START)
    own = schedules(store, clock)
    for number in range(30):
        await own.add(f"far-{number}", nightly(), cron="0 0 1 1 *")
    await own.add("near", nightly(), every="1m")
    clock.advance(minutes=1)

    page = store.read_now(lambda tx: tx.schedules.due(now=clock.now(), limit=99))
    plan = store.read_now(lambda tx: [row[-1] for row in _plan(tx)])

    assert [one.name for one in page.schedules] == ["near"]
    assert any("schedules_due" in one for one in plan), plan
    store.close()


def _plan(tx: Any) -> list[Any]:
    from holdfast.store.queries import load_queries

    sql = load_queries("sqlite")["due_schedules"]
    params = {"now": 1, "after_at": -1, "after": "", "limit": 9}
    return list(tx.statements._connection.execute(f"EXPLAIN QUERY PLAN {sql}", params))
