"""Campaigns, items, items in phases and slots: kept as written, found in order, moved by their tables."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from holdfast.core.campaign import (
    Campaign,
    CampaignSpec,
    ItemPhase,
    ItemProgress,
    ItemRecord,
    Phase,
)
from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.ids import CampaignId, TaskId
from holdfast.core.task import Progress
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.store import Store, Tx
from tests.builders import START, later
from tests.engine.tables import execute, query

LATER = later(minutes=5)
ID = CampaignId("camp_01kdvh35m0zsepkcs5exh5ywvk")
SPEC = CampaignSpec(
    phases=(Phase(name="analysis", task="analyse"), Phase(name="migration", task="migrate", stages=("prep",)))
)


def a_campaign(**changes: Any) -> Campaign:
    facts: dict[str, Any] = {"id": ID, "name": "rd-os", "owner": "ada", "spec": SPEC}
    return Campaign(**facts | {"created_at": START, "updated_at": START} | changes)


def an_item(place: int, **changes: Any) -> ItemRecord:
    facts: dict[str, Any] = {
        "campaign_id": ID,
        "place": place,
        "id": f"repo-{place}",
        "name": f"pingcap/{place}",
        "priority": "P1",
        "category": "tool",
        "batch": 1 + place // 2,
        "contents": b'{"url":"x"}',
        "created_at": START,
    }
    return ItemRecord(**facts | changes)


def a_row(place: int, **changes: Any) -> ItemPhase:
    facts: dict[str, Any] = {
        "campaign_id": ID,
        "phase": 0,
        "place": place,
        "priority": "P1",
        "category": "tool",
        "batch": 1 + place // 2,
        "updated_at": START,
    }
    return ItemPhase(**facts | changes)


def filled(store: Store, *rows: ItemPhase) -> None:
    def fill(tx: Tx) -> None:
        tx.campaigns.create(a_campaign())
        tx.items.create_many([an_item(row.place) for row in rows if row.phase == 0])
        tx.item_phases.create_many(rows)

    store.write_now(fill)


def start(store: Store, row: ItemPhase, task_id: str, *, now: datetime = LATER, **changes: Any) -> None:
    started = msgspec.structs.replace(row, task_id=TaskId(task_id), attempt=row.attempt + 1, **changes)
    store.write_now(lambda tx: tx.item_phases.start([started], now=now))


def row_at(store: Store, place: int, phase: int = 0) -> ItemPhase:
    (row,) = store.read_now(lambda tx: tx.item_phases.between(ID, phase, place, place))
    return row


# --- campaigns


def test_a_campaign_keeps_all_that_it_was_created_with(store: Store) -> None:
    campaign = a_campaign(items=3, batches=2, open_batches={"P0": (1, 9), "P1": (2, 1)})

    store.write_now(lambda tx: tx.campaigns.create(campaign))

    assert store.read_now(lambda tx: tx.campaigns.get(ID)) == campaign
    assert store.read_now(lambda tx: tx.campaigns.find("rd-os")) == campaign
    assert store.read_now(lambda tx: tx.campaigns.resolve("rd-os")) == ID
    assert store.read_now(lambda tx: tx.campaigns.resolve(ID[:12])) == ID
    assert store.read_now(lambda tx: tx.campaigns.find("other")) is None


def test_the_phases_of_a_campaign_are_rows_for_views(store: Store) -> None:
    store.write_now(lambda tx: tx.campaigns.create_phases(a_campaign()))

    assert query(store, "SELECT number, name, role, task, stages FROM campaign_phases ORDER BY number") == [
        (0, "analysis", "analyzer", "analyse", "[]"),
        (1, "migration", "migrator", "migrate", '["prep"]'),
    ]


def test_a_campaign_whose_row_was_changed_is_told(store: Store) -> None:
    store.write_now(lambda tx: tx.campaigns.create(a_campaign()))
    execute(store, "UPDATE campaigns SET owner = 'eve'")

    with pytest.raises(RowDamaged):
        store.read_now(lambda tx: tx.campaigns.get(ID))


def _create(campaign: Campaign, tx: Tx) -> None:
    tx.campaigns.create(campaign)


def test_a_damaged_campaign_keeps_no_other_from_its_page(store: Store) -> None:
    ids = [CampaignId(f"camp_{number}") for number in range(5)]
    for number, one in enumerate(ids):
        made = a_campaign(id=one, name=f"c{number}", status=CampaignStatus.RUNNING)
        store.write_now(partial(_create, made))
    execute(store, "UPDATE campaigns SET owner = 'eve' WHERE id IN ('camp_0', 'camp_3', 'camp_4')")

    running = store.read_now(lambda tx: tx.campaigns.in_status(CampaignStatus.RUNNING, limit=1))
    rest = store.read_now(lambda tx: tx.campaigns.in_status(CampaignStatus.RUNNING, after=ids[1], limit=1))
    newest = store.read_now(lambda tx: tx.campaigns.page(limit=1))

    assert [one.id for one in [*running, *rest, *newest]] == [ids[1], ids[2], ids[2]]


def test_a_campaign_that_ends_and_goes_on_has_the_times_of_that(store: Store) -> None:
    store.write_now(lambda tx: tx.campaigns.create(a_campaign()))

    def move(to: CampaignStatus, now: datetime) -> Campaign:
        return store.write_now(lambda tx: tx.campaigns.move(ID, to, now=now, reason="why"))

    running = move(CampaignStatus.RUNNING, START)
    done = move(CampaignStatus.DONE, LATER)
    again = move(CampaignStatus.RUNNING, later(minutes=9))

    assert (running.started_at, running.ended_at, running.reason) == (START, None, "why")
    assert (done.started_at, done.ended_at) == (START, LATER)
    assert (again.started_at, again.ended_at) == (START, None)
    found = store.read_now(lambda tx: tx.campaigns.in_status(CampaignStatus.RUNNING))
    assert found == [again]


# --- items


def test_items_are_found_by_id_by_place_and_by_batch(store: Store) -> None:
    filled(store, *(a_row(place) for place in range(5)))

    def ids(found: list[ItemRecord]) -> list[str]:
        return [one.id for one in found]

    assert store.read_now(lambda tx: tx.items.at(ID, 3)) == an_item(3)
    assert set(store.read_now(lambda tx: tx.items.by_ids(ID, ["repo-1", "nothing"]))) == {"repo-1"}
    assert ids(store.read_now(lambda tx: tx.items.page(ID, after=2, limit=1))) == ["repo-3"]
    assert ids(store.read_now(lambda tx: tx.items.page(ID, batch=2))) == ["repo-2", "repo-3"]
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.items.at(ID, 99))


def test_one_damaged_item_is_marked_and_stops_no_other(store: Store) -> None:
    filled(store, a_row(0), a_row(1))
    execute(store, "UPDATE campaign_items SET name = 'other' WHERE place = 0")

    found = store.read_now(lambda tx: tx.items.page(ID))

    assert [one.is_damaged for one in found] == [True, False]


# --- items in phases


def test_a_verification_finds_a_damaged_campaign_and_a_damaged_item(store: Store) -> None:
    filled(store, a_row(0), a_row(1))
    assert store.verify() == []

    execute(store, "UPDATE campaigns SET owner = 'eve'")
    execute(store, "UPDATE campaign_items SET name = 'eve' WHERE place = 1")

    assert [one.split(":")[0].split()[0] for one in store.verify()] == ["campaign", "campaign_item"]


def test_the_most_urgent_items_that_can_start_come_first(store: Store) -> None:
    filled(
        store,
        a_row(0, priority="P2"),
        a_row(1, priority="P0", batch=2),
        a_row(2, priority="P0", batch=1),
        a_row(3, priority="P0", unmet=1),
        a_row(4, priority="P0", status=ItemStatus.PENDING, phase=1),
    )

    startable = store.write_now(lambda tx: tx.item_phases.startable(ID, 0, limit=9))
    upcoming = store.read_now(lambda tx: tx.item_phases.upcoming(ID, 0, limit=2))

    assert [row.place for row, _ in startable] == [2, 1, 0]
    assert [item.id for _, item in startable if item is not None] == ["repo-2", "repo-1", "repo-0"]
    assert [row.place for row in upcoming] == [2, 1]


def test_an_item_whose_row_is_gone_is_startable_without_it(store: Store) -> None:
    filled(store, a_row(0))
    execute(store, "DELETE FROM campaign_items")

    assert store.write_now(lambda tx: tx.item_phases.startable(ID, 0, limit=9)) == [(a_row(0), None)]


@pytest.mark.parametrize("count", [1, 3])
def test_items_start_and_end(store: Store, count: int) -> None:
    rows = [a_row(place) for place in range(count)]
    filled(store, *rows)
    started = [
        msgspec.structs.replace(row, task_id=TaskId(f"task_{row.place}"), attempt=1, stage="prep", note="why")
        for row in rows
    ]

    store.write_now(lambda tx: tx.item_phases.start(started, now=LATER))
    running = row_at(store, 0)
    ended = [
        msgspec.structs.replace(row, status=ItemStatus.DONE, summary=b'{"a":1}', error=None)
        for row in started
    ]
    store.write_now(lambda tx: tx.item_phases.end(ended, now=later(minutes=9)))
    done = row_at(store, count - 1)

    assert (running.status, running.task_id, running.attempt) == (ItemStatus.RUNNING, "task_0", 1)
    assert (running.stage, running.note, running.started_at) == ("prep", "why", LATER)
    assert (done.status, done.summary, done.percent) == (ItemStatus.DONE, b'{"a":1}', 100)
    assert done.ended_at == later(minutes=9)


@pytest.mark.parametrize("count", [1, 3])
def test_how_far_tasks_are_is_noted_and_ends_are_not_overwritten(store: Store, count: int) -> None:
    filled(store, *(a_row(place) for place in range(count)))
    for place in range(count):
        start(store, a_row(place), f"task_{place}")
    of_plan = ItemProgress(stage="transfer", percent=25)
    own = ItemProgress(
        progress=Progress(done=3, total=4, failed=1, subtask="map"), last_action="scan", last_action_at=LATER
    )

    def note(progress: ItemProgress) -> None:
        news = {f"task_{place}": progress for place in range(count)} | {"task_gone": progress}
        store.write_now(lambda tx: tx.item_phases.note(news, now=LATER))

    note(of_plan)
    planned = row_at(store, count - 1)
    note(own)
    note(of_plan)
    reported = row_at(store, count - 1)
    failed = msgspec.structs.replace(reported, status=ItemStatus.FAILED, error="x")
    store.write_now(lambda tx: tx.item_phases.end([failed], now=LATER))
    note(ItemProgress(stage="late", percent=99))

    assert (planned.stage, planned.percent, planned.items_total) == ("transfer", 25, None)
    assert (reported.stage, reported.percent, reported.subtask) == ("transfer", 75, "map")
    assert (reported.items_total, reported.items_done, reported.items_failed) == (4, 3, 1)
    assert (reported.last_action, reported.last_action_at) == ("scan", LATER)
    assert row_at(store, count - 1).stage == "transfer"


@pytest.mark.parametrize("count", [1, 3])
def test_the_step_that_a_task_saved_last_is_told_unless_a_newer_one_is_known(
    store: Store, count: int
) -> None:
    filled(store, *(a_row(place) for place in range(count)))
    for place in range(count):
        start(store, a_row(place), f"task_{place}")

    def tell(name: str, minutes: int) -> ItemPhase:
        steps = {f"task_{place}": (name, later(minutes=minutes)) for place in range(count)}
        store.write_now(
            lambda tx: tx.item_phases.tell_steps(steps | {"task_gone": ("x", LATER)}, now=later(minutes=9))
        )
        return row_at(store, count - 1)

    first, second = tell("scan", 1), tell("map", 3)
    late = tell("scan", 2)
    done = msgspec.structs.replace(late, status=ItemStatus.DONE, last_action="write", last_action_at=LATER)
    store.write_now(lambda tx: tx.item_phases.end([done], now=LATER))
    after = tell("late", 8)

    assert (first.last_action, first.last_action_at) == ("scan", later(minutes=1))
    assert first.updated_at == later(minutes=9)
    assert (second.last_action, second.last_action_at) == ("map", later(minutes=3))
    assert late == second
    assert (after.last_action, after.last_action_at, after.updated_at) == ("write", LATER, LATER)


@pytest.mark.parametrize("count", [1, 3])
def test_an_item_that_starts_anew_forgets_how_far_it_was(store: Store, count: int) -> None:
    rows = [a_row(place) for place in range(count)]
    filled(store, *rows)
    for row in rows:
        start(store, row, f"task_{row.place}")
    news = {f"task_{n}": ItemProgress(stage="b", percent=50, last_action="scan") for n in range(count)}
    store.write_now(lambda tx: tx.item_phases.note(news, now=LATER))

    def fail_and_retry(tx: Tx) -> list[ItemPhase]:
        found = tx.item_phases.of_tasks(list(news))
        tx.item_phases.end(
            [msgspec.structs.replace(row, status=ItemStatus.FAILED) for row in found], now=LATER
        )
        tx.item_phases.retry(found, now=LATER)
        return found

    before = store.write_now(fail_and_retry)
    store.write_now(lambda tx: tx.item_phases.start(before, now=LATER))
    kept = row_at(store, 0)

    def start_anew(tx: Tx) -> None:
        found = tx.item_phases.of_tasks(list(news))
        tx.item_phases.end(
            [msgspec.structs.replace(row, status=ItemStatus.FAILED) for row in found], now=LATER
        )
        tx.item_phases.retry(found, now=LATER)
        anew = [
            msgspec.structs.replace(row, task_id=TaskId(f"task_new_{row.place}"), stage="a") for row in found
        ]
        tx.item_phases.start(anew, now=LATER)

    store.write_now(start_anew)
    fresh = row_at(store, 0)

    assert (kept.task_id, kept.stage, kept.percent, kept.last_action) == ("task_0", "b", 50, "scan")
    assert (fresh.task_id, fresh.stage, fresh.percent, fresh.last_action) == ("task_new_0", "a", 0, None)


@pytest.mark.parametrize("count", [1, 3])
def test_items_are_paused_and_go_on(store: Store, count: int) -> None:
    rows = [a_row(place) for place in range(count)]
    filled(store, *rows)

    store.write_now(lambda tx: tx.item_phases.pause(rows, note="why", goes_on=True, now=LATER))
    paused = row_at(store, 0)
    going_on = store.write_now(lambda tx: tx.item_phases.lock_going_on(ID, limit=9))
    store.write_now(lambda tx: tx.item_phases.go_on(going_on, now=LATER))

    assert (paused.status, paused.goes_on, paused.note) == (ItemStatus.PAUSED, True, "why")
    assert len(going_on) == count
    assert (row_at(store, 0).status, row_at(store, 0).goes_on) == (ItemStatus.PENDING, False)
    assert store.write_now(lambda tx: tx.item_phases.lock_going_on(ID, limit=9)) == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_need_is_met_once_for_each_phase_before(store: Store, count: int) -> None:
    filled(store, *(a_row(place, unmet=1) for place in range(count)))
    places = list(range(count))

    for _ in range(2):
        store.write_now(lambda tx: tx.item_phases.meet_needs(ID, 0, places, now=LATER))

    assert [row_at(store, place).unmet for place in places] == [0] * count


def test_items_of_a_phase_are_paged_by_status(store: Store) -> None:
    filled(store, *(a_row(place) for place in range(4)))
    start(store, a_row(2), "task_2")

    def places(status: ItemStatus | None, after: int = -1, limit: int = 9) -> list[int]:
        found = store.read_now(lambda tx: tx.item_phases.page(ID, 0, status=status, after=after, limit=limit))
        return [row.place for row in found]

    assert places(None, after=0, limit=2) == [1, 2]
    assert places(ItemStatus.PENDING, after=0) == [1, 3]
    assert store.read_now(lambda tx: tx.item_phases.has(ID, 0, ItemStatus.RUNNING))
    assert not store.read_now(lambda tx: tx.item_phases.has(ID, 0, ItemStatus.FAILED))


def test_items_are_locked_and_looked_at_by_their_ids(store: Store) -> None:
    filled(store, *(a_row(place) for place in range(3)))

    locked = store.write_now(lambda tx: tx.item_phases.lock_of_items(ID, 0, ["repo-2", "repo-0"]))
    looked = store.read_now(lambda tx: tx.item_phases.look_of_items(ID, 0, ["repo-2", "repo-0"]))

    assert [row.place for row in locked] == [0, 2]
    assert looked == locked


# --- slots


@pytest.mark.parametrize("count", [1, 3])
def test_slots_are_taken_left_and_released(store: Store, count: int) -> None:
    tasks = [f"task_{n}" for n in range(count)]

    def take(tx: Tx) -> None:
        for scope in ("campaign", "host:a"):
            tx.slots.create(ID, scope, count)
            tx.slots.create(ID, scope, count)
            free = tx.slots.free(ID, scope, limit=9)
            tx.slots.take(ID, scope, list(zip(free, tasks, strict=True)))

    store.write_now(take)
    held = store.read_now(lambda tx: tx.slots.of_tasks(tasks))
    store.write_now(lambda tx: tx.slots.leave([one for one in held if one[1] == "host:a"]))
    left = store.read_now(lambda tx: tx.slots.holders(ID))
    store.write_now(lambda tx: tx.slots.release(tasks))

    assert len(held) == 2 * count
    assert left == [("campaign", task) for task in tasks]
    assert store.read_now(lambda tx: tx.slots.taken(ID, "campaign")) == 0
    assert store.read_now(lambda tx: tx.slots.has(ID, "host:a"))
    assert not store.read_now(lambda tx: tx.slots.has(ID, "host:b"))


def test_a_slot_that_is_taken_is_not_taken_again(store: Store) -> None:
    def take(task_id: str) -> None:
        store.write_now(lambda tx: tx.slots.take(ID, "campaign", [(1, task_id)]))

    store.write_now(lambda tx: tx.slots.create(ID, "campaign", 1))
    take("task_1")
    take("task_2")

    assert store.read_now(lambda tx: tx.slots.holders(ID)) == [("campaign", "task_1")]
    assert store.write_now(lambda tx: tx.slots.free(ID, "campaign", limit=9)) == []
