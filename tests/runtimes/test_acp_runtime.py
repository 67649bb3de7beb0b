"""The session of an ACP agent is cancelled with `session/cancel`, written to the agent's standard input."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest

from holdfast.core.recorded import RecordedWork
from holdfast.core.transitions import TaskStatus
from holdfast.engine.ledger.ledger import Cancelled
from holdfast.engine.producers.contract import Alive, Dead, NotMine, Reattached, WorkLost
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopping import NotStopped
from holdfast.engine.producers.writes import NewRecord
from holdfast.runtimes.acp import AcpRuntime, StdioConnection
from holdfast.testing import FakeClock
from holdfast.testing.stores import memory_store

# Works on a prompt until it is told to stop, as the protocol wants it: the open request is answered.
AGENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    assert message["jsonrpc"] == "2.0" and "id" not in message
    assert message["method"] == "session/cancel", message
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "cancelled"}}
    print(json.dumps(answer | {"session": message["params"]["sessionId"]}), flush=True)
    break
"""


class NotedConnection:
    """A connection that notes what was sent, and can be closed or broken."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, object]]] = []
        self.closed: str | None = None
        self.is_broken = False

    async def notify(self, method: str, params: dict[str, object]) -> None:
        if self.is_broken:
            raise BrokenPipeError("the pipe is gone")
        self.sent.append((method, params))

    def why_closed(self) -> str | None:
        return self.closed


class AcpScene:
    """Recorded ACP sessions, and the connections that this process has."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.connections: dict[str, NotedConnection | StdioConnection] = {}
        self.runtime = AcpRuntime(self.connections.get)
        self.producers = Producers(memory_store(self.clock), self.clock, runtimes=[self.runtime])

    async def record(self, run_id: str = "run-1", **facts: Any) -> RecordedWork:
        new = NewRecord(
            **{"name": "agent", "goal": "fix it", "owner": "ada", "runtime": "acp", "run_id": run_id} | facts
        )
        return await self.producers.create(new, is_running=True)


@pytest.fixture
def scene() -> AcpScene:
    return AcpScene()


@pytest.mark.slow
async def test_a_real_agent_is_told_to_cancel_its_session_and_the_record_ends(scene: AcpScene) -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    scene.connections["sess-7"] = StdioConnection(agent)
    work = await scene.record(reference="acp:sess-7")

    before = await scene.runtime.is_alive(work)
    outcome = await scene.producers.cancel("run-1", reason="enough")
    said, _ = await asyncio.wait_for(agent.communicate(), timeout=30)
    after = await scene.runtime.is_alive(work)

    assert before == Alive()
    assert isinstance(outcome, Cancelled)
    answer = msgspec.json.decode(said)
    assert (answer["result"], answer["session"]) == ({"stopReason": "cancelled"}, "sess-7")
    assert isinstance(after, Dead)
    assert "has ended with 0" in after.why


async def test_a_session_is_found_by_the_child_session_of_its_record(scene: AcpScene) -> None:
    scene.connections["sess-8"] = connection = NotedConnection()
    await scene.record(child_session_key="sess-8", session_key="agent:ada:main")

    await scene.producers.cancel("run-1", reason="enough")

    assert connection.sent == [("session/cancel", {"sessionId": "sess-8"})]


async def test_a_session_of_another_process_is_not_its_own(scene: AcpScene) -> None:
    unknown = await scene.record(reference="acp:sess-7")
    other = await scene.record("run-2", runtime="media", reference="acp:sess-7")
    nameless = await scene.record("run-3")

    for work in (unknown, other, nameless):
        assert await scene.runtime.is_alive(work) == NotMine()
        assert await scene.runtime.cancel(work, "enough") == NotMine()
        assert await scene.runtime.reattach(work) == NotMine()
    assert isinstance(await scene.producers.cancel("run-1", reason="enough"), Cancelled)


async def test_a_session_whose_agent_has_ended_is_stopped_and_cannot_be_found_again(scene: AcpScene) -> None:
    scene.connections["sess-7"] = connection = NotedConnection()
    work = await scene.record(reference="acp:sess-7")
    found = await scene.runtime.reattach(work)
    connection.closed = "the agent has ended with 1"
    lost = await scene.runtime.reattach(work)

    outcome = await scene.producers.cancel("run-1", reason="enough")

    assert (found, lost) == (Reattached(), WorkLost(why="the agent has ended with 1"))
    assert isinstance(outcome, Cancelled)
    assert connection.sent == []


async def test_an_agent_that_cannot_be_told_may_still_run_so_its_record_goes_on(scene: AcpScene) -> None:
    scene.connections["sess-7"] = connection = NotedConnection()
    connection.is_broken = True
    await scene.record(reference="acp:sess-7")

    outcome = await scene.producers.cancel("run-1", reason="enough")

    assert isinstance(outcome, NotStopped)
    assert "the pipe is gone" in outcome.reason
    assert (await scene.producers.get("run-1")).task.status is TaskStatus.RUNNING
