"""Command agents with a run_timeout_s: warned, saved with their own checkpoint, woken with the packet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.config.sections import AgentSettings, Config
from holdfast.core.events import EventKind
from holdfast.core.task import Task
from holdfast.core.transitions import RunStatus, TaskStatus, WakeStatus
from holdfast.runtimes import command_turns
from holdfast.runtimes.agents import define, definitions
from holdfast.runtimes.command import CommandInput
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools import commands
from tests.backends import on_sqlite
from tests.engine.stage import Stage
from tests.gateway.chats import Chat

pytestmark = pytest.mark.slow

AGENT = str(Path(__file__).with_name("long_agent.py"))
STEPS = ["read", "think", "write"]
# What must hold before an answer counts, and the names of both.
CRITERIA = {"done_files": ["report.md"], "done_command": ["grep", "-q", "tides", "report.md"]}
BOTH = ["report.md exists", "grep -q tides report.md succeeds"]


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


@pytest.fixture
def quick_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that does not end when it is asked to is killed soon."""
    for module in (commands, command_turns):
        monkeypatch.setattr(module, "GRACE_S", 0.1)


class LongAgent:
    """An agent that works in cycles, and what it has left."""

    def __init__(self, stage: Stage, place: Path, way: str, **settings: Any) -> None:
        options: dict[str, Any] = {"run_timeout_s": 30, "stdin": "json"}
        agent = AgentSettings(
            command=[sys.executable, "-I", "-S", AGENT, way, str(place)],
            directory=str(place),
            **options | settings,
        )
        self.stage = stage
        self.place = place
        self.chat = Chat(stage, *definitions(Config(agents={"scholar": agent}), home=place))

    async def ask(self, cycles: int = 9) -> list[str]:
        """Ask it, and let time pass until it has answered; what stands in the transcript then."""
        await self.chat.begin()
        await self.chat.say("Tides?")
        await self.go_on(cycles)
        return (await self.chat.transcript())[1:]

    async def go_on(self, cycles: int = 9) -> None:
        for _ in range(cycles):
            await self.chat.talk()
            if not await self.stage.pass_time():
                break

    @property
    def task(self) -> Task:
        (task,) = self.stage.store.read_now(lambda tx: tx.tasks.page(limit=9))
        return task

    def events(self, kind: EventKind) -> list[dict[str, Any]]:
        found = self.stage.store.read_now(lambda tx: tx.events.after("0.0", limit=1000))
        return [dict(event.facts) for event in found if event.kind is kind]

    def noted(self, name: str) -> list[str]:
        path = self.place / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def heard(self) -> list[CommandInput]:
        lines = [msgspec.json.decode(line, type=str) for line in self.noted("heard")]
        return [msgspec.json.decode(line, type=CommandInput) for line in lines]


@pytest.mark.parametrize("way", ["file", "stdout"])
async def test_an_agent_that_hands_over_its_checkpoint_is_woken_with_the_packet_until_it_is_done(
    stage: Stage, tmp_path: Path, way: str
) -> None:
    agent = LongAgent(stage, tmp_path, way)

    assert await agent.ask() == ["agent: All done."]

    assert agent.noted("done") == STEPS
    first, second, third = agent.heard
    assert first.packet is None
    assert second.packet is not None
    assert third.packet is not None
    assert second.packet.resume.next_actions == ["think", "write"]
    assert (third.packet.resume.current_step, third.packet.document.last_completed) == ("write", STEPS[:2])
    reason = "scheduled_progress"  # it did not wait for its limit
    assert (second.packet.wake_mode, second.packet.reason) == ("cron", reason)
    task = agent.task
    wakes = stage.store.read_now(lambda tx: tx.wakes.page(task_id=task.id, limit=9))
    assert [wake.status for wake in wakes] == [WakeStatus.FIRED] * 2
    runs = stage.store.read_now(lambda tx: tx.runs.of_task(task.id))
    assert [run.status for run in runs] == [RunStatus.RESUMED, RunStatus.RESUMED, RunStatus.SUCCEEDED]
    assert second.packet.checkpoint == runs[1].checkpoint_id
    facts = [(one["status"], one["progress_pct"]) for one in agent.events(EventKind.AGENT_HANDED_OVER)]
    assert facts == [("waiting", 33), ("waiting", 66)]


@pytest.mark.parametrize("way", ["stdin", "SIGUSR1"])
@on_sqlite
async def test_an_agent_is_warned_before_its_limit_in_the_way_that_it_declares(
    stage: Stage, tmp_path: Path, way: str
) -> None:
    agent = LongAgent(stage, tmp_path, way, warn=way, run_timeout_s=1.5)

    assert await agent.ask() == ["agent: All done."]

    assert agent.noted("done") == STEPS
    first, *_ = [line for line in agent.noted("warned") if line]
    if way == "stdin":
        warning = msgspec.json.decode(first)
        assert warning == {
            "type": "stop_soon",
            "reason": "run_timeout",
            "seconds_left": 0.225,
            "task_id": agent.task.id,
        }
    assert [one.packet and one.packet.reason for one in agent.heard] == [
        None,
        "timeout_recovery",
        "timeout_recovery",
    ]


@pytest.mark.usefixtures("quick_stops")
@on_sqlite
async def test_an_agent_that_declares_no_warning_gets_none(stage: Stage, tmp_path: Path) -> None:
    agent = LongAgent(stage, tmp_path, "unwarned", run_timeout_s=0.6)

    assert await agent.ask() == ["agent: All done."]

    assert (agent.noted("done"), agent.noted("warned")) == (STEPS, [])


@pytest.mark.usefixtures("quick_stops")
@pytest.mark.parametrize("way", ["deaf", "frozen", "torn"])
@on_sqlite
async def test_an_agent_that_does_not_end_is_killed_and_its_last_whole_checkpoint_counts(
    stage: Stage, tmp_path: Path, way: str
) -> None:
    agent = LongAgent(stage, tmp_path, way, run_timeout_s=1.6 if way == "torn" else 0.3)

    assert await agent.ask() == ["agent: All done."]

    assert agent.noted("done") == STEPS
    assert len(agent.heard) == 3


@pytest.mark.usefixtures("quick_stops")
@pytest.mark.parametrize(("way", "refused"), [("silent", 0), ("half", 1)])
@on_sqlite
async def test_an_agent_that_is_killed_without_a_whole_checkpoint_is_never_started_again(
    stage: Stage, tmp_path: Path, way: str, refused: int
) -> None:
    agent = LongAgent(stage, tmp_path, way, run_timeout_s=0.3)

    (said,) = await agent.ask()

    assert said.startswith("system: ")
    assert len(agent.heard) == 1
    assert agent.task.failure is not None
    assert "what it did by then is not known" in agent.task.failure.message
    assert len(agent.events(EventKind.AGENT_CHECKPOINT_REFUSED)) == refused


@on_sqlite
async def test_a_wrong_document_is_told_to_the_operator_and_not_believed(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = LongAgent(stage, tmp_path, "wrong")

    await agent.ask()

    assert len(agent.heard) == 1
    assert agent.task.failure is not None
    assert "cannot be believed" in agent.task.failure.message
    (refused,) = agent.events(EventKind.AGENT_CHECKPOINT_REFUSED)
    assert "$.status" in refused["problems"][0]
    assert "is not believed" in caplog.text


async def test_an_agent_that_says_failed_has_failed(stage: Stage, tmp_path: Path) -> None:
    agent = LongAgent(stage, tmp_path, "failed")

    await agent.ask()

    assert agent.task.status is TaskStatus.FAILED
    assert agent.task.failure is not None
    assert "no such page" in agent.task.failure.message


async def test_a_blocked_agent_asks_a_person_and_gets_the_answer(stage: Stage, tmp_path: Path) -> None:
    agent = LongAgent(stage, tmp_path, "blocked")
    said = await agent.ask()
    assert said == ["agent: agent scholar is blocked: which sea?. What should it do?"]

    await agent.chat.say("the North Sea")
    await agent.go_on()

    assert (await agent.chat.answers())[-1] == "the North Sea"


async def test_an_agent_that_comes_no_further_is_given_up_after_five_wakes(
    stage: Stage, tmp_path: Path
) -> None:
    agent = LongAgent(stage, tmp_path, "stuck")

    await agent.ask(cycles=20)

    assert len(agent.heard) == 5
    task = agent.task
    assert (task.status, task.failure and task.failure.kind) == (TaskStatus.FAILED, "failed_resume")
    assert not await stage.pass_time()


@pytest.mark.parametrize("way", ["hasty", "hasty_done"])
async def test_an_agent_that_says_done_too_early_is_woken_and_told_what_is_missing(
    stage: Stage, tmp_path: Path, way: str
) -> None:
    agent = LongAgent(stage, tmp_path, way, **CRITERIA)

    assert (await agent.ask())[-1] == "agent: All done."

    packets = [one.packet for one in agent.heard]
    assert [one and one.unmet for one in packets] == [None, BOTH, BOTH[1:]]
    assert packets[1] is not None
    assert (packets[1].done_criteria, packets[1].reason) == (BOTH, "scheduled_progress")
    assert packets[1].resume.next_actions == [f"make this hold: {one}" for one in BOTH]
    checked = [(one["met"], list(one["unmet"])) for one in agent.events(EventKind.DONE_CHECKED)]
    assert checked == [([], BOTH), (BOTH[:1], BOTH[1:]), (BOTH, [])]
    assert agent.task.status is TaskStatus.SUCCEEDED


async def test_an_agent_that_is_never_done_fails_after_five_wakes_and_names_each_check(
    stage: Stage, tmp_path: Path
) -> None:
    agent = LongAgent(stage, tmp_path, "never_done", **CRITERIA)

    await agent.ask(cycles=20)

    task = agent.task
    assert (task.status, len(agent.heard)) == (TaskStatus.FAILED, 5)
    assert task.failure is not None
    assert task.failure.kind == "failed_resume"
    assert "not done: report.md exists: report.md does not exist; grep" in task.failure.message
    assert not await stage.pass_time()


@on_sqlite
async def test_a_done_command_does_not_inherit_what_its_agent_does_not(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "a-token-of-the-gateway")
    monkeypatch.setenv("HOLDFAST_SECRET_SEA", "a-secret-of-the-gateway")
    check = ["sh", "-c", "env > found"]
    agent = LongAgent(stage, tmp_path, "done", done_command=check)

    assert await agent.ask() == ["agent: All done."]

    found = (tmp_path / "found").read_text()
    assert "PATH=" in found
    assert "of-the-gateway" not in found


async def test_an_artifact_that_changed_before_the_wake_is_asked_about(stage: Stage, tmp_path: Path) -> None:
    agent = LongAgent(stage, tmp_path, "artifact")
    await agent.ask(cycles=1)
    assert agent.events(EventKind.AGENT_HANDED_OVER)[0]["missing_artifacts"] == ["nowhere.md"]
    (tmp_path / "report.md").write_text("changed by another")

    await agent.go_on()
    assert len(agent.heard) == 1
    await agent.chat.say("keep")
    await agent.go_on()

    assert (await agent.chat.answers())[-1] == "changed"


async def test_the_time_for_the_whole_answer_ends_the_wakes(stage: Stage, tmp_path: Path) -> None:
    agent = LongAgent(stage, tmp_path, "file", timeout_s=60)

    await agent.ask()

    assert len(agent.heard) == 1
    assert agent.task.failure is not None
    assert "timeout_s is over" in agent.task.failure.message


async def test_a_cancel_between_two_wakes_ends_the_task_and_its_wake(stage: Stage, tmp_path: Path) -> None:
    agent = LongAgent(stage, tmp_path, "file")
    await agent.ask(cycles=0)
    await agent.chat.talk()
    assert agent.task.waits_on is not None

    await stage.holdfast.cancel(agent.task.id, reason="enough")
    await agent.go_on()

    assert agent.task.status is TaskStatus.CANCELLED
    assert len(agent.heard) == 1
    (wake,) = stage.store.read_now(lambda tx: tx.wakes.page(task_id=agent.task.id, limit=9))
    assert wake.status is WakeStatus.CANCELLED


def test_a_run_timeout_of_a_python_agent_is_the_run_timeout_of_its_task() -> None:
    agent = AgentSettings(callable="tests.runtimes.sample_agents:research", run_timeout_s=5)

    limit = define("scholar", agent).run_timeout

    assert limit is not None
    assert limit.total_seconds() == 5


# --- a command that finished


FINISHES = """
import json, os, sys
document = {
    "task_id": os.environ["HOLDFAST_TASK_ID"], "goal": "g", "status": "waiting", "current_step": "send mail",
    "progress_pct": 50, "last_completed": ["read"], "next_actions": ["send mail"], "artifacts": [],
    "errors": [], "retry_count": 0, "updated_at": "2026-11-18T12:00:00Z",
}
with open(os.environ["HOLDFAST_CHECKPOINT"], "w") as file:
    file.write(json.dumps(document))
with open("mails", "a") as file:
    file.write("sent\\n")
print("The mail is sent.")
if sys.argv[1] == "marked":
    document |= {"status": "done", "next_actions": [], "updated_at": "2026-03-01T12:00:00Z"}
    print("HOLDFAST_CHECKPOINT " + json.dumps(document))
"""


@pytest.mark.parametrize("way", ["plain", "marked"])
@on_sqlite
async def test_a_command_that_answers_is_not_started_again_for_the_file_it_wrote_on_its_way(
    stage: Stage, tmp_path: Path, way: str
) -> None:
    agent = AgentSettings(
        command=[sys.executable, "-I", "-S", "-c", FINISHES, way], directory=str(tmp_path), run_timeout_s=30
    )
    chat = Chat(stage, *definitions(Config(agents={"scholar": agent}), home=tmp_path))
    await chat.begin()
    await chat.say("Send the mail.")
    for _ in range(9):
        await chat.talk()
        if not await stage.pass_time():
            break

    assert (tmp_path / "mails").read_text() == "sent\n"
    assert "The mail is sent." in (await chat.transcript())[-1]
