"""deliveries list, retry, confirm, dismiss: what was given up is shown with its reason, and decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.delivery import Delivery
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import DeliveryStatus
from holdfast.store import Store
from tests.builders import a_delivery, later
from tests.doors.calls import CANARIES, HOSTILE, UNFIT, Opens, Run
from tests.doors.test_tasks import damage

GIVEN_UP = Failure(kind="gave_up", message="20 attempts: it answers 503")
IN_DOUBT = Failure(kind="in_doubt", message="it may have gone out, and the receiver cannot be asked")


def stored(store: Store, status: DeliveryStatus = DeliveryStatus.FAILED, **changes: Any) -> Delivery:
    given: dict[str, Any] = {
        "status": status,
        "origin": Origin(channel="hook", peer="ada"),
        "failure": GIVEN_UP if status is DeliveryStatus.FAILED else None,
        "attempts": 20,
    }
    delivery = a_delivery(**given | changes)
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return delivery


def status_of(ledger: Opens, delivery: Delivery) -> DeliveryStatus:
    with ledger() as store:
        return store.read_now(lambda tx: tx.deliveries.get(delivery.id)).status


# --- list


def test_a_list_shows_what_was_given_up_and_why(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed = stored(store)
        stored(store, DeliveryStatus.PENDING)
        stored(store, DeliveryStatus.DELIVERED)

    called = run("deliveries", "list")

    lines = called.out.splitlines()
    assert lines[0].split() == ["ID", "TO", "TRIED", "SINCE", "WHY", "NOT", "TEXT"]
    assert len(lines) == 2
    assert lines[1].startswith(failed.id)
    assert "hook ada" in lines[1]
    assert "it answers 503" in lines[1]
    assert f"holdfast deliveries retry {failed.id}" in called.err


def test_a_list_as_json_has_all_that_is_known(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed = stored(store)

    listing = run("deliveries", "list", "--json").json

    assert listing == {
        "deliveries": [
            {
                "id": failed.id,
                "taskId": "task_x",
                "status": "failed",
                "channel": "hook",
                "peer": "ada",
                "text": "done",
                "attempts": 20,
                "why": "20 attempts: it answers 503",
                "kind": "gave_up",
                "createdAt": "2026-01-01T00:00:00Z",
                "updatedAt": "2026-01-01T00:00:00Z",
                "dueAt": "2026-01-01T00:00:00Z",
            }
        ],
        "nextPageToken": None,
        "problems": [],
    }


def test_what_is_still_owed_is_another_list(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored(store)
        owed = [stored(store, DeliveryStatus.PENDING), stored(store, DeliveryStatus.ATTEMPTING)]

    listing = run("deliveries", "list", "--owed", "--json").json

    assert {one["id"] for one in listing["deliveries"]} == {one.id for one in owed}


def test_pages_follow_each_other_without_a_gap(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        ids = sorted(stored(store).id for _ in range(5))

    first = run("deliveries", "list", "--json", "--limit", "3").json
    second = run("deliveries", "list", "--json", "--limit", "3", "--page", first["nextPageToken"]).json

    assert [one["id"] for one in first["deliveries"] + second["deliveries"]] == ids
    assert second["nextPageToken"] is None


@pytest.mark.parametrize(
    ("option", "said"), [((), "no deliveries have failed\n"), (("--owed",), "no deliveries are pending\n")]
)
def test_an_empty_list_says_so(run: Run, ledger: Opens, option: tuple[str, ...], said: str) -> None:
    with ledger() as store:
        stored(store, DeliveryStatus.DELIVERED)

    called = run("deliveries", "list", *option)

    assert (called.out, called.err) == ("", said)


def test_a_damaged_one_hides_no_other(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        ids = sorted(stored(store).id for _ in range(3))
    damage(home, f"UPDATE deliveries SET message = x'22' WHERE id = '{ids[0]}'")

    listing = run("deliveries", "list", "--json").json

    assert [one["id"] for one in listing["deliveries"]] == ids[1:]
    assert ids[0] in listing["problems"][0]


def test_a_hostile_one_is_shown_clean(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored(
            store,
            failure=Failure(kind="gave_up", message=f"{HOSTILE} {CANARIES[1]}"),
            origin=Origin(channel=HOSTILE, peer=f"{HOSTILE}{CANARIES[2]}"),
        )
        stored(store, message=b'{"no":"letter"}')

    shown = run("deliveries", "list").out + run("deliveries", "list", "--json").out

    assert UNFIT.search(shown) is None
    assert not any(canary in shown for canary in CANARIES)


def test_the_status_counts_them(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored(store)
        stored(store)

    assert run("status", "--json").json["failedDeliveries"] == 2
    assert "2 messages: `holdfast deliveries list`" in run("status").out


# --- retry and dismiss


def test_what_was_given_up_is_owed_again(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed = stored(store)

    called = run("deliveries", "retry", failed.id.removeprefix("dlv_")[:20])

    assert called.status == 0
    assert called.out == f"{failed.id} is queued again; the gateway sends it when it starts: `holdfast up`\n"
    with ledger() as store:
        now = store.read_now(lambda tx: tx.deliveries.get(failed.id))
        (event,) = store.read_now(lambda tx: tx.events.newest(limit=1))
    assert (now.status, now.attempts, now.idempotency_key) == (
        DeliveryStatus.PENDING,
        20,
        failed.idempotency_key,
    )
    assert (event.kind, event.subject_id, set(event.facts)) == ("delivery_retried", failed.id, {"by"})


def test_who_sends_again_what_may_have_gone_out_is_told(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed = stored(store, failure=IN_DOUBT)

    assert "an earlier attempt may have arrived" in run("deliveries", "retry", failed.id).out


def test_what_may_have_arrived_is_confirmed_by_a_person_who_has_asked(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        doubted = stored(store, failure=IN_DOUBT)
    shown = run("deliveries", "list")

    called = run("deliveries", "confirm", doubted.id)

    assert f"holdfast deliveries confirm {doubted.id}" in shown.err
    assert called.out == f"{doubted.id} is confirmed: it is delivered, and is not sent again\n"
    assert status_of(ledger, doubted) is DeliveryStatus.DELIVERED
    with ledger() as store:
        (event,) = store.read_now(lambda tx: tx.events.newest(limit=1))
    assert (event.kind, event.subject_id, set(event.facts)) == ("delivery_confirmed", doubted.id, {"by"})


def test_what_certainly_did_not_arrive_is_not_confirmed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed = stored(store)

    called = run("deliveries", "confirm", failed.id)

    assert called.status == 3
    assert "only a failed delivery that may have arrived can be" in called.err
    assert status_of(ledger, failed) is DeliveryStatus.FAILED


@pytest.mark.parametrize("status", [DeliveryStatus.FAILED, DeliveryStatus.PENDING])
def test_what_is_not_wanted_is_dismissed(run: Run, ledger: Opens, status: DeliveryStatus) -> None:
    with ledger() as store:
        delivery = stored(store, status)

    called = run("deliveries", "dismiss", delivery.id, "--json")

    assert called.json["delivery"]["status"] == "dismissed"
    assert status_of(ledger, delivery) is DeliveryStatus.DISMISSED


@pytest.mark.parametrize("command", ["retry", "confirm", "dismiss"])
@pytest.mark.parametrize("status", [DeliveryStatus.DELIVERED, DeliveryStatus.ATTEMPTING])
def test_what_went_out_or_is_being_sent_stays_so(
    run: Run, ledger: Opens, command: str, status: DeliveryStatus
) -> None:
    with ledger() as store:
        delivery = stored(store, status)

    called = run("deliveries", command, delivery.id)

    assert called.status == 3
    assert delivery.id in called.err
    assert status_of(ledger, delivery) is status


@pytest.mark.parametrize("command", ["retry", "confirm", "dismiss"])
def test_one_that_is_not_there_is_not_found(run: Run, ledger: Opens, command: str) -> None:
    with ledger() as store:
        stored(store, created_at=later(seconds=1))

    assert run("deliveries", command, "dlv_zzzz").status == 4
