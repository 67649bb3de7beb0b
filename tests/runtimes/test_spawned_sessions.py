"""sessions_spawn: a child session with a task, once for each packet; woken until done; its parent is told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.config.sections import AgentSettings, Config
from holdfast.core.errors import BadInput, HoldfastError, KeyConflict, NotFound, Refused
from holdfast.core.events import EventKind
from holdfast.core.spawn_packet import SpawnPacket, packet_from, packet_in
from holdfast.core.step_declarations import step_name
from holdfast.core.task import Task
from holdfast.core.transitions import SessionStatus, TaskStatus
from holdfast.engine.conversation import spawning as spawning_module
from holdfast.engine.conversation.spawning import Spawned, spawn_request, spawning
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.runtimes.agents import _definition, definitions
from holdfast.runtimes.command import CommandInput
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools import schedule_prompt, session_spawn, sessions_spawn
from holdfast.tools.sessions import SpawnedSession, spawning_through
from tests.engine.stage import Stage
from tests.gateway.chats import KEY, Chat, agent
from tests.runtimes.test_command_limits import AGENT, STEPS

pytestmark = pytest.mark.slow

ID = "smartwake_tides_20260301T120000Z"
PACKET: dict[str, Any] = {
    "task": "Collect the tides",
    "task_id": ID,
    "wakeMode": "cron",
    "resume": {"from": "latest_checkpoint", "current_step": "read", "next_actions": ["read", "think"]},
    "done_criteria": ["output file generated"],
}


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


def worker(place: Path) -> TaskDefinition[..., Any]:
    """An agent that is a command, and needs three cycles."""
    settings = AgentSettings(
        command=[sys.executable, "-I", "-S", AGENT, "file", str(place)],
        stdin="json",
        run_timeout_s=30,
        directory=str(place),
    )
    definition, *_ = definitions(Config(agents={"worker": settings}), home=place)
    return definition


def parent(tool: Any = sessions_spawn, **arguments: Any) -> TaskDefinition[..., Any]:
    async def speak(run: hf.Run, heard: Any) -> str:
        if heard.message.channel == "system":
            return f"heard: {heard.message.text}"
        given = {"task": "Collect the tides", "agent": "worker", "task_id": ID} | arguments
        spawned: SpawnedSession = await run.tool(tool, given)
        return f"{spawned.task_key} {spawned.session_key} {spawned.is_duplicate}"

    return agent(speak)


async def request(
    chat: Chat, packet: dict[str, Any] | None = None, *, owner: str = KEY, **more: Any
) -> Spawned:
    options: dict[str, Any] = {"agent": "worker", "agents": {"worker", "scholar"}, "key": None}
    asked = spawn_request(
        packet_from(PACKET if packet is None else packet),
        owner=owner,
        now=chat.clock.now(),
        **options | more,
    )
    return await chat.stage.store.write(spawning(asked, now=chat.clock.now()))


async def family(stage: Stage, tmp_path: Path, **options: Any) -> Chat:
    chat = await Chat(stage, parent(**options), worker(tmp_path)).begin()
    await chat.say("Start.")
    return chat


async def child_of(chat: Chat) -> Task:
    tasks = await chat.stage.store.read(lambda tx: tx.tasks.page(limit=20))
    (child,) = [task for task in tasks if task.name == "agent.worker"]
    return child


@pytest.mark.parametrize("tool", [sessions_spawn, session_spawn])
async def test_a_spawned_session_is_woken_until_it_is_done_and_its_parent_is_told(
    stage: Stage, tmp_path: Path, tool: Any
) -> None:
    with spawning_through(lambda: {"worker"}):
        chat = await family(stage, tmp_path, tool=tool, done_criteria=["three steps"])
        for _ in range(9):
            await chat.talk()
            if not await stage.pass_time():
                break

    child = await child_of(chat)
    key = str(child.session_key)
    assert (child.status, child.owner, child.dedup_key) == (TaskStatus.SUCCEEDED, KEY, ID)
    assert await chat.transcript(key) == [
        f"user: {(await chat.inbox.messages(key))[0].text}",
        "agent: All done.",
    ]
    session = await chat.inbox.session(key)
    assert (session.parent_key, session.status, session.task_id) == (KEY, SessionStatus.IDLE, None)
    # The parent's answer, and the update about its child.
    said = await chat.transcript()
    assert said[1] == f"agent: {ID} {key} False"
    assert f"“Collect the tides” is done after 4m ({child.id}): All done." in said[2]
    lines = (tmp_path / "heard").read_text().splitlines()
    heard = [msgspec.json.decode(msgspec.json.decode(line, type=str), type=CommandInput) for line in lines]
    packet = packet_in(heard[0].message.text)
    assert packet is not None
    assert (packet.task_id, packet.wake_mode) == (ID, "cron")
    last = heard[-1].packet
    assert last is not None
    assert (last.task_id, last.done_criteria, last.resume.next_actions) == (ID, ["three steps"], ["write"])
    assert (tmp_path / "done").read_text().split() == STEPS


def test_each_name_of_the_tool_is_the_name_of_a_function_and_of_a_step() -> None:
    assert (sessions_spawn.__name__, step_name(sessions_spawn)) == ("sessions_spawn", "sessions_spawn")
    assert (session_spawn.__name__, step_name(session_spawn)) == ("session_spawn", "session_spawn")


async def test_the_same_packet_is_the_same_task_and_another_one_is_a_conflict(
    stage: Stage, tmp_path: Path
) -> None:
    chat = await family(stage, tmp_path)
    first = await request(chat)
    chat.clock.advance(hours=1)

    again = await request(chat)

    assert (again.task.id, again.session_key, again.is_duplicate) == (first.task.id, first.session_key, True)
    with pytest.raises(KeyConflict, match=ID):
        await request(chat, PACKET | {"task": "Something else"})
    with pytest.raises(KeyConflict):
        await request(chat, agent="scholar")
    # Keys belong to their owner.
    assert (await request(chat, owner="operator")).task.id != first.task.id


async def test_a_packet_without_a_task_id_gets_one_that_its_key_finds_again(
    stage: Stage, tmp_path: Path
) -> None:
    chat = await family(stage, tmp_path)
    packet = PACKET | {"task_id": ""}
    first = await request(chat, packet, key="call 1")
    chat.clock.advance(hours=1)

    again, other = await request(chat, packet, key="call 1"), await request(chat, packet, key="call 2")

    assert str(first.task.dedup_key).startswith("smartwake_collect_the_tides_2026")
    assert (again.task.id, again.is_duplicate) == (first.task.id, True)
    assert other.task.id != first.task.id


async def test_two_requests_at_once_spawn_one_session(stage: Stage, tmp_path: Path) -> None:
    chat = await family(stage, tmp_path)

    spawned = await asyncio.gather(*(request(chat) for _ in range(8)))

    assert len({one.task.id for one in spawned}) == 1
    assert [one.is_duplicate for one in spawned].count(False) == 1


@pytest.mark.parametrize(("ledger", "every"), [("sqlite", 1), ("postgres", 3)], indirect=["ledger"])
async def test_a_tool_that_is_killed_at_any_write_spawns_once(
    stage: Stage, tmp_path: Path, every: int
) -> None:
    writes = range(1, 12, every)

    async def speak(run: hf.Run, heard: Any) -> str:
        spawned: SpawnedSession = await run.tool(sessions_spawn, {"task": "Tides", "agent": "worker"})
        return spawned.task_id

    with spawning_through(lambda: {"worker"}):
        for number in writes:
            chat = await Chat(stage, agent(speak), worker(tmp_path)).begin()
            await chat.say("Start.", key=f"agent:scholar:{number}")
            stage.die_at_write(number)
            await chat.talk()
            for _ in range(3):
                await chat.begin()
                await chat.talk()

    tasks = await stage.store.read(lambda tx: tx.tasks.page(limit=100))
    owners = [task.owner for task in tasks if task.name == "agent.worker"]
    assert len(owners) == len(set(owners)) == len(writes)


async def test_depth_and_number_of_children_are_limited(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = await family(stage, tmp_path)
    monkeypatch.setattr(spawning_module, "MAX_CHILDREN", 2)
    owner = KEY
    for _ in range(spawning_module.MAX_DEPTH - 1):
        owner = (await request(chat, owner=owner)).session_key
    with pytest.raises(Refused, match="5 deep"):
        await request(chat, owner=owner)

    await request(chat, PACKET | {"task_id": "second"})
    with pytest.raises(Refused, match=r"2 spawned tasks .* `holdfast tasks cancel task_"):
        await request(chat, PACKET | {"task_id": "third"})
    # What exists is found, also at the limit.
    assert (await request(chat)).is_duplicate


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"task": ""}, "task: is empty"),
        ({"task": "x" * 70_000}, "task: "),
        ({"task": "a\x00b"}, "control character"),
        ({"task": 3}, "Expected `str`"),
        ({"task_id": "a b"}, "smartwake_<slug>_<timestamp>"),
        ({"task_id": "../../etc"}, "task_id"),
        ({"wakeMode": "sometimes"}, "one of cron, auto, never"),
        ({"resume": {"from": "the_beginning"}}, "only latest_checkpoint"),
        ({"resume": {"next_actions": ["x"] * 51}}, "at most 50"),
        ({"resume": [1]}, "resume"),
        ({"done_criteria": ["x" * 3000]}, "done_criteria"),
        ({"runTimeoutS": -1}, "runTimeoutS"),
    ],
)
async def test_a_wrong_packet_is_refused_with_the_field_and_the_fix(
    stage: Stage, tmp_path: Path, change: dict[str, Any], match: str
) -> None:
    chat = await family(stage, tmp_path)

    with pytest.raises(BadInput, match=match):
        await request(chat, PACKET | change)


async def test_unknown_agents_and_parents_are_refused(stage: Stage, tmp_path: Path) -> None:
    chat = await family(stage, tmp_path)

    for wrong in ({"agent": "nobody"}, {"owner": "agent:scholar:nowhere"}):
        with pytest.raises(NotFound):
            await request(chat, **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="name the agent"):
        await request(chat, owner="operator", agent=None)


async def test_only_its_own_task_can_read_the_session_that_was_spawned(stage: Stage, tmp_path: Path) -> None:
    from holdfast.engine.conversation.transcripts import hear

    chat = await family(stage, tmp_path)
    spawned = await request(chat)
    other = await request(chat, PACKET | {"task_id": "other"})
    (message,) = await chat.inbox.messages(spawned.session_key)

    def read(task_id: str) -> Any:
        return stage.store.read_now(
            lambda tx: hear(
                tx,
                session_key=spawned.session_key,
                message_id=message.id,
                task_id=task_id,
                until=9,
                limit=9,
            )
        )

    assert read(spawned.task.id)[0].id == message.id
    with pytest.raises(HoldfastError):
        read(other.task.id)


async def test_a_packet_with_wake_mode_never_is_not_woken(stage: Stage, tmp_path: Path) -> None:
    chat = await family(stage, tmp_path)
    await request(chat, PACKET | {"wakeMode": "never"})

    await chat.talk()

    child = await child_of(chat)
    assert child.failure is not None
    assert "smart_wake is never" in child.failure.message
    assert any(
        event.kind is EventKind.MESSAGE_FAILED
        for event in stage.store.read_now(lambda tx: tx.events.after("0.0", limit=500))
    )


@pytest.mark.parametrize(("wake_mode", "mode"), [("cron", "always"), ("never", "never"), ("auto", "never")])
async def test_a_wake_mode_counts_for_an_agent_in_python_and_auto_is_as_the_settings_say(
    stage: Stage, wake_mode: str, mode: str
) -> None:
    modes: list[str] = []

    async def speak(run: hf.Run, heard: Any) -> str:
        limit = run._live.limit
        assert limit is not None
        modes.append(limit.mode.value)
        return str(heard.message.text)

    options = {"timeout": None, "attempts": None, "backoff": "1s", "default_attempts": 5}
    child = _definition("worker", speak, options | {"run_timeout": "10m", "smart_wake": "never"})
    chat = await Chat(stage, parent(), child).begin()
    await request(chat, PACKET | {"wakeMode": wake_mode}, owner="system")

    await chat.talk()

    assert modes == [mode]


def test_a_packet_survives_its_way_through_a_message() -> None:
    packet = packet_from(PACKET)

    assert packet_in(packet.text) == packet
    assert packet_in("no packet") is None
    assert isinstance(packet, SpawnPacket)


async def test_the_tools_of_a_spawned_session_act_for_it_and_not_for_its_parent(stage: Stage) -> None:
    seen: list[tuple[str | None, str, str | None]] = []

    async def speak(run: hf.Run, heard: Any) -> str:
        given = {"name": "later", "prompt": "Go on.", "cron": "0 * * * *"}
        await run.tool(schedule_prompt, given)
        made = await run._live.store.read(lambda tx: tx.schedules.find("later"))
        assert made is not None
        seen.append((run._live.task.session_key, made.owner, made.spec.session_key))
        return "done"

    with spawning_through(lambda: {"worker"}):
        chat = await Chat(
            stage, parent(), _definition("worker", speak, {"timeout": None, "attempts": 1, "backoff": "1s"})
        ).begin()
        await chat.say("Start.")
        for _ in range(5):
            await chat.talk()
            if not await stage.pass_time():
                break

    ((own, owner, target),) = seen
    assert own != KEY
    assert (owner, target) == (own, own)
