"""A program outside records its work over RPC, within the limits of its token."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.recorded import RecordedWork
from holdfast.engine.producers.contract import (
    LifeAnswer,
    LifeUnknown,
    ReattachAnswer,
    StopAnswer,
    Unsupported,
    WorkLost,
)
from tests.api.stand_in import OWNER, OWNER_TOKEN, House

pytestmark = pytest.mark.slow

RECORD = {"name": "render", "goal": "render the title", "runtime": "media"}


def ask(house: House, method: str, /, **params: Any) -> Any:
    return house.post(method, params, token=OWNER_TOKEN)


class Stubborn:
    """A runtime that controls everything and can stop nothing."""

    name = "stubborn"

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002
        return Unsupported(reason="it cannot be stopped")

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002
        return LifeUnknown()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002
        return WorkLost(why="stubborn")


def test_a_producer_records_its_work_from_the_start_to_the_end(house: House) -> None:
    created = ask(house, "producer.create", **RECORD, runId="render-1", sourceId="src-1").json()
    started = ask(house, "producer.start", runId="render-1").json()
    moved = ask(house, "producer.progress", runId="render-1", summary="frame 1", done=1, total=3).json()
    beat = ask(house, "producer.beat", runId="render-1").json()
    finished = ask(house, "producer.finish", runId="render-1", result={"frames": 3}, summary="done").json()
    again = ask(house, "producer.finish", runId="render-1", result={"frames": 3}).json()
    other = ask(house, "producer.fail", runId="render-1", message="too late").json()

    answers = [created, started, moved, beat, finished, again, other]
    assert [one["outcome"] for one in answers] == [
        "recorded",
        "noted",
        "noted",
        "noted",
        "finished",
        "finished",
        "already_ended",
    ]
    assert created["task"]["owner"] == OWNER
    assert other["task"]["status"] == "succeeded"
    assert (other["progressSummary"], other["terminalSummary"]) == ("frame 1", "done")


def test_a_token_of_an_owner_does_not_find_the_work_of_another(house: House) -> None:
    house.post("producer.create", RECORD | {"owner": "another", "runId": "theirs-1"})

    for method, more in (
        ("producer.start", {}),
        ("producer.beat", {}),
        ("producer.progress", {}),
        ("producer.finish", {}),
        ("producer.fail", {"message": "no"}),
        ("producer.cancel", {}),
    ):
        answer = ask(house, method, runId="theirs-1", **more)

        assert answer.status_code == 404, method
    assert ask(house, "producer.create", **RECORD, runId="theirs-1").status_code in {403, 404, 409}


def test_a_cancel_says_what_became_of_running_recorded_work(house: House) -> None:
    for run_id in ("render-1", "render-2", "render-3"):
        ask(house, "producer.create", **RECORD, runId=run_id, isRunning=True)
    task_id = ask(house, "producer.beat", runId="render-2").json()["task"]["id"]

    ended = ask(house, "producer.cancel", runId="render-1").json()
    wire = ask(house, "tasks.cancel", taskId=task_id).json()
    house.gateway.runtimes.append(Stubborn())
    kept = ask(house, "producer.cancel", runId="render-3").json()
    again = ask(house, "tasks.cancel", taskId=task_id).json()

    assert ended["outcome"] == "cancelled"
    assert (wire["found"], wire["cancelled"]) == (True, True)
    assert (kept["outcome"], kept["reason"]) == ("not_supported", "it cannot be stopped")
    assert kept["isCancelRequested"]
    assert (again["found"], again["cancelled"]) == (True, False)
