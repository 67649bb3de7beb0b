"""Who changed what through a door is in the ledger with what they changed; and so is who was refused."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.api.methods import METHODS
from holdfast.api.task_changes import CancelAsked
from holdfast.api.token_methods import TokenAsked, TokenCreateAsked
from holdfast.cli.client import call as call_socket
from holdfast.core.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.testing import WrappingStore
from holdfast.views.tasks import CancelView
from holdfast.views.tokens import TokenMadeView, TokenRevokedView
from tests.api.stand_in import OWNER, OWNER_TOKEN, READ_TOKEN, ServedDoors
from tests.builders import a_run, a_task, put
from tests.security.webhook_server import webhook_house

pytestmark = pytest.mark.slow


def a_queued_task(store: Store, owner: str = "ada") -> str:
    task = a_task(owner=owner)
    store.write_now(lambda tx: put(tx, task, a_run(task)))
    return task.id


def entries(house: ServedDoors) -> list[dict[str, Any]]:
    """What the log says, oldest first, with what is still in memory."""
    asyncio.run(house.gateway.audit.run_once())
    return list(reversed(house.post("audit.list").json()["entries"]))


def told(house: ServedDoors) -> list[tuple[str, str, str, str]]:
    return [(one["who"], one["door"], one["action"], one["outcome"]) for one in entries(house)]


# --- what is changed through a door


def test_a_change_over_http_names_the_token_the_address_and_the_record(house: ServedDoors) -> None:
    task_id = a_queued_task(house.gateway.store, OWNER)

    house.post("ledger.cancel", {"taskId": task_id[:20]}, token=OWNER_TOKEN)

    (entry,) = entries(house)
    assert {**entry, "id": None, "at": None} == {
        "id": None,
        "at": None,
        "who": "plugin",
        "door": "http",
        "address": "127.0.0.1",
        "action": "ledger.cancel",
        "subject": task_id,
        "outcome": "done",
        "why": None,
        "times": 1,
    }


def test_a_change_over_a_websocket_and_over_the_socket_of_the_home_names_the_door(house: ServedDoors) -> None:
    one, other = a_queued_task(house.gateway.store), a_queued_task(house.gateway.store)
    with house.websocket() as client:
        client.connect()
        client.call("ledger.cancel", {"taskId": one})
    call_socket(house.home, "ledger.cancel", CancelAsked(task_id=other), CancelView)

    assert told(house) == [
        ("operator", "websocket", "ledger.cancel", "done"),
        (getpass.getuser(), "socket", "ledger.cancel", "done"),
    ]


def test_an_act_of_several_writes_is_recorded_before_it_begins(house: ServedDoors) -> None:
    house.post("gateway.restart", {"reason": "new settings"})
    house.gateway.is_safe = False
    house.post("gateway.restart", {"reason": "again"})

    assert told(house) == [
        ("operator", "http", "gateway.restart", "asked"),
        ("operator", "http", "gateway.restart", "asked"),
        ("operator", "http", "gateway.restart", "refused"),
    ]


def test_every_method_that_changes_something_is_audited() -> None:
    free = {
        name for name, method in METHODS.items() if method.scope != "operator.read" and not method.is_audited
    }

    # Messages and wakes are in the transcript with their sender; results and tokens are only read. Signs of
    # life come every few seconds, and decide nothing; nor do counts of dropped reports. An import has one
    # entry, at its begin.
    signs = {"producer.beat", "producer.progress", "producer.dropped"}
    read = {"ledger.result", "tokens.list", "question.list", "question.get", "flows.state"}
    batches = {"imports.tasks", "imports.flows"}
    assert free == {"chat.send", "sessions.send", "agent", "wake"} | read | signs | batches


# --- what is refused


def test_what_is_refused_is_in_the_log_with_the_reason(house: ServedDoors) -> None:
    theirs = a_queued_task(house.gateway.store, "somebody else")
    house.post("ledger.cancel", {"taskId": theirs}, token=READ_TOKEN)
    house.post("ledger.cancel", {"taskId": theirs}, token=OWNER_TOKEN)
    house.post("gateway.stop", token=OWNER_TOKEN)

    found = entries(house)
    assert [(one["who"], one["action"], one["outcome"]) for one in found] == [
        ("board", "ledger.cancel", "refused"),
        ("plugin", "ledger.cancel", "refused"),
        ("plugin", "gateway.stop", "refused"),
    ]
    assert found[0]["why"] == "missing scope: operator.write"


def test_wrong_tokens_and_wrong_signatures_are_in_the_log_with_their_address(home: Path) -> None:
    with webhook_house(home) as house:
        for _ in range(3):
            house.post("ledger.list", token="w" * 40)
        with house.websocket() as client:
            client.connect(token="w" * 40)
        house.http.post(f"{house.url}/channels/hook", json={})

        found = [(one["door"], one["action"], one["address"], one["times"]) for one in entries(house)]

    assert found == [
        ("http", "token.wrong", "127.0.0.1", 3),
        ("websocket", "token.wrong", "127.0.0.1", 1),
        ("http", "signature.wrong", "127.0.0.1", 1),
    ]


def test_a_token_is_revoked_although_the_ledger_is_away_and_the_log_tells_it_later(
    house: ServedDoors,
) -> None:
    class Away(WrappingStore):
        async def write(self, write: Any) -> Any:  # noqa: ARG002 - it is away
            raise StoreUnavailable("it is away, says the test")

    store: Any = house.gateway.store
    call_socket(house.home, "tokens.create", TokenCreateAsked(name="board"), TokenMadeView)
    house.gateway.audit._store = cast(Store, Away(store))

    gone = call_socket(house.home, "tokens.revoke", TokenAsked(name="board"), TokenRevokedView)

    house.gateway.audit._store = store
    assert gone.token.name == "board"
    assert [(one["action"], one["subject"]) for one in entries(house)] == [
        ("tokens.create", "board"),
        ("tokens.revoke", "board"),
    ]
