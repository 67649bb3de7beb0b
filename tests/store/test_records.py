"""Effects, deliveries, flows, sessions, wakes, boots and facts: created once, moved by their tables."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.errors import IllegalMove, NotFound, RevisionMismatch
from holdfast.core.flow import FlowMode
from holdfast.core.ids import BootId
from holdfast.core.message import Role
from holdfast.core.schedule import WakeReason
from holdfast.core.task import Origin
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    FiringStatus,
    FlowStatus,
    MessageStatus,
    SessionStatus,
    WakeStatus,
)
from holdfast.store import Store, Tx
from holdfast.store.records import Records
from tests.builders import (
    BOOT,
    FAILURE,
    OTHER_BOOT,
    START,
    a_boot,
    a_delivery,
    a_firing,
    a_flow,
    a_message,
    a_session,
    a_wake,
    an_effect,
    later,
    running_run,
    stored_checkpoint,
)

RECORDS: dict[str, Any] = {
    "delivery": a_delivery(origin=Origin(channel="console"), attempts=2, failure=FAILURE),
    "flow": a_flow(
        mode=FlowMode.TASK_MIRRORED,
        current_step="draft",
        contents=b"{}",
        waits_on="ada",
        blocked_by_task_id="task_x",
        cancel_requested_at=START,
    ),
    "session": a_session(
        parent_key="agent:scholar:main",
        waits_on="a turn",
        origin=Origin(channel="hook", peer="group 7", account_id="team", thread="3"),
        status=SessionStatus.PROCESSING,
        task_id="task_x",
        last_position=7,
        queued=2,
    ),
    "message": a_message(
        role=Role.AGENT,
        account_id="team",
        channel_message_id="m-1",
        origin=Origin(channel="console", peer="group 7"),
        reply_to="msg_x",
        status=MessageStatus.TAKEN,
        task_id="task_x",
    ),
    "firing": a_firing(message_id="msg_y", status=FiringStatus.RUNNING, task_id="task_x", is_retry=True),
    "wake": a_wake(checkpoint_id="ckpt_x", reason=WakeReason.DEPENDENCY_READY, attempt=3),
}


def nouns(tx: Tx) -> dict[str, Records[Any]]:
    return {
        "delivery": tx.deliveries,
        "flow": tx.flows,
        "session": tx.sessions,
        "message": tx.messages,
        "firing": tx.firings,
        "wake": tx.wakes,
    }


@pytest.mark.parametrize("noun", RECORDS)
def test_a_record_is_read_back_as_it_was_written(store: Store, noun: str) -> None:
    record = RECORDS[noun]

    assert store.write_now(lambda tx: nouns(tx)[noun].create(record)) == record
    assert store.read_now(lambda tx: nouns(tx)[noun].get(record.id)) == record


@pytest.mark.parametrize("noun", RECORDS)
def test_a_record_that_was_never_created_is_not_found(store: Store, noun: str) -> None:
    with pytest.raises(NotFound):
        store.read_now(lambda tx: nouns(tx)[noun].get("nothing"))


@pytest.mark.parametrize("noun", RECORDS)
def test_creating_a_record_again_finds_it_as_it_stands(store: Store, noun: str) -> None:
    record = RECORDS[noun]
    changed = msgspec.structs.replace(record, updated_at=later(seconds=9))
    store.write_now(lambda tx: nouns(tx)[noun].create(record))

    assert store.write_now(lambda tx: nouns(tx)[noun].create(changed)) == record


@pytest.mark.parametrize("noun", ["delivery", "session", "message", "firing"])
def test_the_same_key_under_another_id_finds_the_first(store: Store, noun: str) -> None:
    record = RECORDS[noun]
    twin = msgspec.structs.replace(record, id="another")
    store.write_now(lambda tx: nouns(tx)[noun].create(record))

    assert store.write_now(lambda tx: nouns(tx)[noun].create(twin)) == record
    with pytest.raises(NotFound):
        store.read_now(lambda tx: nouns(tx)[noun].get("another"))


def test_a_retried_effect_is_a_new_one_with_a_higher_generation(store: Store) -> None:
    first = an_effect()
    second = msgspec.structs.replace(first, id="eff_second", generation=2)

    store.write_now(lambda tx: [tx.effects.create(first), tx.effects.create(second)])

    assert store.read_now(lambda tx: tx.effects.again(second)) == second


MOVES: list[tuple[str, Any, Any, Any]] = [
    ("delivery", a_delivery(), DeliveryStatus.ATTEMPTING, DeliveryStatus.DISMISSED),
    ("flow", a_flow(), FlowStatus.RUNNING, FlowStatus.RUNNING),
    ("session", a_session(), SessionStatus.DRAINING, SessionStatus.WAITING),
    ("message", a_message(), MessageStatus.TAKEN, MessageStatus.QUEUED),
    ("firing", a_firing(), FiringStatus.RUNNING, FiringStatus.MISSED),
    ("wake", a_wake(), WakeStatus.FIRED, WakeStatus.CANCELLED),
]


@pytest.mark.parametrize(("noun", "record", "to", "wrong"), MOVES, ids=[move[0] for move in MOVES])
def test_a_record_moves_as_its_table_allows_and_no_other_way(
    store: Store, noun: str, record: Any, to: Any, wrong: Any
) -> None:
    store.write_now(lambda tx: nouns(tx)[noun].create(record))

    moved = store.write_now(lambda tx: nouns(tx)[noun].move(record.id, to, now=later(seconds=1)))
    with pytest.raises(IllegalMove) as error:
        store.write_now(lambda tx: nouns(tx)[noun].move(record.id, wrong, now=later(seconds=2)))

    assert (moved.status, moved.updated_at) == (to, later(seconds=1))
    assert (error.value.status, error.value.to) == (to.value, wrong.value)
    assert store.read_now(lambda tx: nouns(tx)[noun].get(record.id)) == moved


@pytest.mark.parametrize(("noun", "record", "to", "wrong"), MOVES, ids=[move[0] for move in MOVES])
def test_what_was_never_created_cannot_move(
    store: Store, noun: str, record: Any, to: Any, wrong: Any
) -> None:
    with pytest.raises(NotFound):
        store.write_now(lambda tx: nouns(tx)[noun].move("nothing", to, now=START))


def test_a_delivery_counts_its_attempts(store: Store) -> None:
    delivery = a_delivery()

    def attempt_twice(tx: Tx) -> None:
        tx.deliveries.create(delivery)
        for to in (DeliveryStatus.ATTEMPTING, DeliveryStatus.PENDING, DeliveryStatus.ATTEMPTING):
            tx.deliveries.move(delivery.id, to, now=START)

    store.write_now(attempt_twice)

    assert store.read_now(lambda tx: tx.deliveries.get(delivery.id)).attempts == 2


# --- flows


def test_a_flow_moves_only_from_the_revision_that_was_read(store: Store) -> None:
    flow = a_flow()
    store.write_now(lambda tx: tx.flows.create(flow))
    moved = store.write_now(lambda tx: tx.flows.move(flow.id, FlowStatus.RUNNING, now=START, revision=1))

    with pytest.raises(RevisionMismatch) as error:
        store.write_now(lambda tx: tx.flows.move(flow.id, FlowStatus.FAILED, now=START, revision=1))

    assert moved.revision == 2
    assert (error.value.expected, error.value.found) == (1, 2)
    assert store.read_now(lambda tx: tx.flows.get(flow.id)) == moved


def test_a_flow_that_ends_says_when(store: Store) -> None:
    flow = a_flow(status=FlowStatus.RUNNING)
    store.write_now(lambda tx: tx.flows.create(flow))

    ended = store.write_now(lambda tx: tx.flows.move(flow.id, FlowStatus.SUCCEEDED, now=later(seconds=3)))

    assert (ended.status, ended.ended_at, ended.revision) == (FlowStatus.SUCCEEDED, later(seconds=3), 2)


# --- boots and facts


def test_a_boot_begins_once_and_ends_once(store: Store) -> None:
    boot = a_boot()

    def begin(tx: Tx) -> None:
        tx.boots.begin(boot)
        tx.boots.begin(a_boot(host="elsewhere"))

    store.write_now(begin)
    assert store.read_now(lambda tx: tx.boots.get(boot.id)) == boot
    assert store.read_now(lambda tx: tx.boots.alive()) == [boot]

    assert store.write_now(lambda tx: tx.boots.end(boot.id, now=later(seconds=1)))
    assert not store.write_now(lambda tx: tx.boots.end(boot.id, now=later(seconds=2)))
    assert store.read_now(lambda tx: tx.boots.alive()) == []
    ended = store.read_now(lambda tx: tx.boots.get(boot.id))
    assert ended is not None
    assert ended.ended_at == later(seconds=1)
    assert store.read_now(lambda tx: tx.boots.get("boot_nothing")) is None


def test_a_boot_that_is_locked_is_the_same_boot(store: Store) -> None:
    boot = a_boot()
    store.write_now(lambda tx: tx.boots.begin(boot))

    assert store.write_now(lambda tx: tx.boots.lock(boot.id)) == boot
    assert store.write_now(lambda tx: tx.boots.lock("boot_nothing")) is None


def test_boots_are_found_by_how_their_host_begins(store: Store) -> None:
    here = [a_boot(id=BootId("boot_1"), host="ada/1"), a_boot(id=BootId("boot_2"), host="ada/1.kernel")]
    elsewhere = [a_boot(id=BootId("boot_3"), host="ada/2"), a_boot(id=BootId("boot_4"), host="bob/1")]
    ended = a_boot(id=BootId("boot_5"), host="ada/1")
    store.write_now(lambda tx: [tx.boots.begin(boot) for boot in (*here, *elsewhere, ended)])
    store.write_now(lambda tx: tx.boots.end(ended.id, now=START))

    assert store.read_now(lambda tx: tx.boots.alive_at("ada/1")) == here
    assert store.read_now(lambda tx: tx.boots.alive_at("ada/1", limit=1)) == here[:1]


def test_a_boot_is_forgotten_unless_it_has_ended_or_carries_something(store: Store) -> None:
    idle, ended, resuming = (BootId(f"boot_{name}") for name in ("idle", "ended", "resuming"))
    running_run(store)
    stored_checkpoint(store, CheckpointStatus.RESUMING, claimed_by=resuming)
    store.write_now(lambda tx: [tx.boots.begin(a_boot(id=one)) for one in (BOOT, idle, ended, resuming)])
    store.write_now(lambda tx: tx.boots.end(ended, now=START))

    def forget(tx: Tx) -> list[str]:
        return [one for one in (BOOT, idle, ended, resuming) if tx.boots.forget(one)]

    assert store.write_now(forget) == [idle]
    assert store.write_now(forget) == []
    assert store.read_now(lambda tx: tx.boots.get(idle)) is None


def test_boots_that_ended_long_ago_are_forgotten(store: Store) -> None:
    old, fresh, alive = (BootId(f"boot_{name}") for name in ("old", "fresh", "alive"))

    def live_and_die(tx: Tx) -> None:
        for boot_id in (old, fresh, alive):
            tx.boots.begin(a_boot(id=boot_id))
        tx.boots.end(old, now=later(seconds=1))
        tx.boots.end(fresh, now=later(seconds=9))

    store.write_now(live_and_die)
    store.write_now(lambda tx: tx.boots.forget_ended(older_than=later(seconds=5)))

    left = store.read_now(lambda tx: [tx.boots.get(boot_id) is not None for boot_id in (old, fresh, alive)])
    assert left == [False, True, True]


def test_the_boots_in_flight_are_those_that_a_claim_names(store: Store) -> None:
    running_run(store)
    running_run(store)
    stored_checkpoint(store, CheckpointStatus.RESUMING, claimed_by=OTHER_BOOT)
    stored_checkpoint(store, CheckpointStatus.FAILED_RESUME, claimed_by=BootId("boot_past"))

    assert store.read_now(lambda tx: tx.boots.in_flight()) == [BOOT, OTHER_BOOT]


def test_a_fact_is_kept_until_it_is_replaced(store: Store) -> None:
    assert store.read_now(lambda tx: tx.boots.fact("colour")) is None

    store.write_now(lambda tx: tx.boots.set_fact("colour", "blue"))
    store.write_now(lambda tx: tx.boots.set_fact("colour", "green"))

    assert store.read_now(lambda tx: tx.boots.fact("colour")) == "green"
    assert store.read_now(lambda tx: tx.boots.facts(["colour", "shape"])) == {"colour": "green"}
