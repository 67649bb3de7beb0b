"""GET /events: what happens, as it happens, and from where a client left off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest

from holdfast.api import server
from holdfast.core.clock import SystemClock
from tests.api.stand_in import TOKEN, ServedDoors
from tests.builders import stored_run

pytestmark = pytest.mark.slow


class StreamedEvent:
    """One event of a stream."""

    def __init__(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        self.id = fields.get("id")
        self.kind = fields.get("event")
        self.view: Any = msgspec.json.decode(fields["data"]) if "data" in fields else None


def told(response: httpx.Response) -> Iterator[StreamedEvent]:
    lines: list[str] = []
    for line in response.iter_lines():
        if line:
            lines.append(line)
        elif lines:
            yield StreamedEvent(lines)
            lines = []


def stream(house: ServedDoors, **headers: str) -> Any:
    sent = {"authorization": f"Bearer {TOKEN}"} | {name.replace("_", "-"): v for name, v in headers.items()}
    return house.http.stream("GET", f"{house.url}/events", headers=sent)


def cancel_one(house: ServedDoors) -> str:
    task_id = stored_run(house.gateway.store).task_id
    house.post("tasks.cancel", {"taskId": task_id})
    return task_id


def test_what_happens_is_told_as_it_happens(house: ServedDoors) -> None:
    with stream(house) as response:
        events = told(response)
        next(events)  # the greeting: the stream has found its place
        task_id = cancel_one(house)

        found = next(events)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert found.view["taskId"] == task_id
    assert found.id == found.view["position"]
    assert found.kind == found.view["kind"]


def test_a_stream_goes_on_where_the_last_one_ended(house: ServedDoors) -> None:
    for _ in range(3):
        cancel_one(house)
    with stream(house, last_event_id="0.0") as response:
        events = [one for _, one in zip(range(3), (e for e in told(response) if e.id), strict=False)]
    with stream(house, last_event_id=str(events[0].id)) as response:
        again = next(one for one in told(response) if one.id)

    assert again.id == events[1].id


def test_what_was_pruned_is_said_and_the_rest_told(house: ServedDoors) -> None:
    store = house.gateway.store
    cancel_one(house)
    (position,) = [event.position for event in store.read_now(lambda tx: tx.events.newest(limit=1))]
    for _ in range(3):
        cancel_one(house)
    later = SystemClock().now() + timedelta(days=1)
    store.write_now(lambda tx: tx.events.prune(older_than=later))
    cancel_one(house)

    with stream(house, last_event_id=position) as response:
        kinds = [one.kind for _, one in zip(range(2), (e for e in told(response) if e.kind), strict=False)]

    assert kinds[0] == "feed_gap"
    assert kinds[1] != "feed_gap"


def test_a_stream_of_one_task_tells_of_that_task_alone(house: ServedDoors) -> None:
    """What happened to others before and between is passed over, and the stream goes on behind it."""
    for _ in range(3):
        cancel_one(house)
    wanted = stored_run(house.gateway.store).task_id
    with house.http.stream(
        "GET",
        f"{house.url}/events",
        params={"task": wanted[:20], "after": "0.0"},
        headers={"authorization": f"Bearer {TOKEN}"},
    ) as response:
        events = (one for one in told(response) if one.id)
        house.post("tasks.cancel", {"taskId": wanted})
        found = next(events)
        cancel_one(house)
        house.post("ledger.cancel", {"taskId": wanted})

    assert found.view["taskId"] == wanted


def test_a_stream_of_a_task_that_is_not_there_is_not_found(house: ServedDoors) -> None:
    assert house.get("/events?task=task_none").status_code == 404
    assert house.get("/events?task=../x").status_code == 404


@pytest.mark.parametrize("position", ["yesterday", "1", "-1.0", "1.2.3", "9" * 40])
def test_a_position_that_is_none_is_refused(house: ServedDoors, position: str) -> None:
    assert house.get("/events", last_event_id=position).status_code == 400


def test_a_quiet_stream_says_that_it_is_there(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PING_S", 0.01)
    monkeypatch.setattr(server, "_LOOK_EVERY_S", 0.01)
    with stream(house) as response:
        lines = response.iter_lines()

        assert ": still here" in (next(lines) for _ in range(5))


def test_too_many_listeners_are_refused(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_LISTENERS", 1)
    with stream(house) as response:
        events = told(response)
        next(events)

        assert house.get("/events").status_code == 503


def test_streams_end_when_the_doors_close(house: ServedDoors) -> None:
    with stream(house) as response:
        events = told(response)
        next(events)
        house.stop_soon()

        assert list(events) == []
