"""One life of a gateway after another: the gate, the drain, the manifest, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.config.sections import ScheduleSettings
from holdfast.core.errors import Draining
from holdfast.core.manifest import InterruptionKind, InterruptionOutcome
from holdfast.core.message import Role
from holdfast.core.transitions import FiringStatus, MessageStatus, RestartStatus, RunStatus, TaskStatus
from holdfast.engine.recovery import resume
from holdfast.engine.worker import drain, in_flight
from holdfast.engine.worker.in_flight import RunInFlight
from holdfast.gateway.gateway import UNWIND_S
from holdfast.gateway.signals import StopRequest
from holdfast.schedule.cron import Cron
from holdfast.store import Store
from holdfast.store.rows.conversation import delivery_from_row
from holdfast.store.verify import scan
from holdfast.testing import FakeClock
from holdfast.tools import restart_gateway
from tests.engine.dead_processes import spend_attempts
from tests.engine.workers import soon, until
from tests.gateway.broken_store import BrokenStore
from tests.gateway.gateways import config_with, document_of, hosted
from tests.gateway.waiting_programs import ADA, KEY, WaitingPrograms

# --- the gate


async def test_the_gate_refuses_with_the_list_of_those_who_would_be_interrupted(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting()
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        handle = await one.gateway.holdfast.start(waiting(), goal="dig the garden")
        await programs.entered()

        answer = await one.restart(force=False)

        assert not answer.is_accepted
        assert answer.why == (
            "1 run is busy (limit 0). A restart would checkpoint and resume it; use --wait or --force."
        )
        (found,) = answer.readiness.interruptions
        assert (found.kind, found.task_id, found.title) == (
            InterruptionKind.RUN,
            handle.id,
            "dig the garden",
        )
        assert not one.running.done()
        (refused,) = await one.restarts()
        assert (refused.status, refused.manifest.triggered_by) == (RestartStatus.BLOCKED, "ada")
        assert refused.outcome is not None
        assert refused.outcome.why_blocked == answer.why
        assert [found.task_id for found in refused.manifest.interruptions] == [handle.id]


async def test_a_restart_that_the_next_gateway_would_not_survive_is_refused_and_stands_among_the_restarts(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with hosted(store, clock, tmp_path / "home", why_not=lambda: "no module garden") as one:
        answer = await one.restart("new tools")

        assert (answer.is_accepted, answer.why) == (
            False,
            "the next gateway could not start: no module garden",
        )
        (refused,) = await one.restarts()
        assert (refused.status, refused.manifest.reason) == (RestartStatus.BLOCKED, "new tools")
        assert refused.outcome is not None
        assert refused.outcome.why_blocked == answer.why
        assert not one.running.done()


async def test_a_refusal_that_the_ledger_cannot_take_is_shown_from_memory(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    broken = BrokenStore(store)
    async with hosted(broken, clock, tmp_path / "home", why_not=lambda: "no module garden") as one:
        broken.refuses = lambda _name: True
        answer = await one.restart("new tools")

        (refused,) = await one.restarts()
        assert refused.outcome is not None
        assert refused.outcome.why_blocked == answer.why
        broken.refuses = lambda _name: False
        assert await one.gateway._refusals.run_once() == 1
        (noted,) = await store.read(lambda tx: tx.restarts.page())
        assert noted.id == refused.id


@pytest.mark.parametrize("restart", [{"readiness_gate_threshold": 1}, {"readiness_gate": False}])
async def test_the_gate_lets_pass_what_the_settings_allow(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms, restart: dict[str, Any]
) -> None:
    waiting = programs.waiting()
    config = config_with(**restart)
    async with hosted(store, clock, tmp_path / "home", waiting, config=config) as one:
        await one.gateway.holdfast.start(waiting())
        await programs.entered()
        programs.open.set()

        assert (await one.restart(force=False)).is_accepted
        assert await one.ended()


async def test_a_signal_does_not_wait_at_the_gate(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting()
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        await one.gateway.holdfast.start(waiting())
        await programs.entered()
        one.gateway.put(StopRequest(why="SIGUSR1", wants_restart=True))
        programs.open.set()

        assert await one.ended()
        (restart,) = await one.restarts()
    assert (restart.manifest.reason, restart.manifest.triggered_by) == ("SIGUSR1", "signal")


# --- from one life to the next


async def test_a_restart_leaves_a_manifest_and_the_next_life_says_what_became_of_it(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting(), tmp_path / "home"
    async with hosted(store, clock, home, waiting) as one:
        handle = await one.gateway.holdfast.start(waiting(), goal="dig")
        await programs.entered()
        asking = asyncio.ensure_future(one.restart("new tools"))
        await until(lambda: one.gateway._worker._is_stopping)
        programs.open.set()

        answer = await soon(asking)
        assert answer.is_accepted
        assert await one.ended()
        assert one.told[-1] == "draining"
        (drained,) = await one.restarts()
    assert drained.status is RestartStatus.DRAINED
    manifest = document_of(home / "restart-manifest.json")
    assert (manifest["reason"], manifest["triggeredBy"]) == ("new tools", "ada")
    assert [found["taskId"] for found in manifest["interruptions"]] == [handle.id]
    assert "consumedAt" not in manifest

    async with hosted(store, clock, home, waiting) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "after"
        (restart,) = await other.restarts()
        runs = await store.read(lambda tx: tx.runs.of_task(handle.id))
        assert restart.outcome is not None
        (recovered,) = restart.outcome.recovered
        assert (restart.status, restart.recovered_by) == (RestartStatus.RECOVERED, other.life.id)
        assert (recovered.fate, recovered.run_id) == (InterruptionOutcome.RESUMED, runs[1].id)
        assert runs[1].resumes_run_id == runs[0].id
    assert "consumedAt" in document_of(home / "restart-manifest.json")
    assert Counter(programs.notes) == {"before": 1, "entered": 1, "after": 1}

    # A consumed manifest is never read again, also when the life that consumed it has crashed.
    async with hosted(store, clock, home, waiting) as third:
        assert len(await third.restarts()) == 1


async def test_a_crash_is_noted_and_recovered_from_as_a_restart_is(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting(), tmp_path / "home"
    async with hosted(store, clock, home, waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()

    programs.open.set()
    async with hosted(store, clock, home, waiting) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "after"
        (restart,) = await other.restarts()
    assert (restart.manifest.reason, restart.status) == ("crash", RestartStatus.RECOVERED)
    assert restart.outcome is not None
    assert [found.fate for found in restart.outcome.recovered] == [InterruptionOutcome.RESUMED]


async def test_a_gateway_that_dies_in_its_drain_is_recovered_by_the_manifest(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting(), tmp_path / "home"
    async with hosted(store, clock, home, waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        asking = asyncio.ensure_future(one.restart("half-way"))
        await until(lambda: one.gateway._worker._is_stopping)
    asking.cancel()

    programs.open.set()
    async with hosted(store, clock, home, waiting) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "after"
        (restart,) = await other.restarts()
    assert (restart.manifest.reason, restart.status) == ("half-way", RestartStatus.RECOVERED)


async def test_several_triggers_become_one_restart_that_keeps_every_reason(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting()
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        await one.gateway.holdfast.start(waiting())
        await programs.entered()
        asking = [asyncio.ensure_future(one.restart(why)) for why in ("first", "second")]
        await until(lambda: one.gateway._worker._is_stopping)
        changing = asyncio.ensure_future(one.gateway.settings_changed(["agents.main"]))
        await asyncio.sleep(0)  # it is asked for before the signal comes
        one.gateway.put(StopRequest(why="SIGUSR1", wants_restart=True))
        await until(lambda: len(one.gateway._restart.triggers) == 4 if one.gateway._restart else False)
        programs.open.set()

        answers = await soon(asyncio.gather(*asking))
        await soon(changing)
        assert await one.ended()
        (restart,) = await one.restarts()
    assert {answer.restart_id for answer in answers} == {restart.id}
    reasons = [trigger.reason for trigger in restart.triggers]
    assert sorted(reasons[:2]) == ["first", "second"]
    assert reasons[2:] == ["config-change: agents.main", "SIGUSR1"]


async def test_a_stop_beats_a_restart_and_its_work_goes_on_at_the_next_start(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting(), tmp_path / "home"
    async with hosted(store, clock, home, waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        asking = asyncio.ensure_future(one.restart())
        await until(lambda: one.gateway._worker._is_stopping)
        one.gateway.put(StopRequest(why="SIGTERM"))
        programs.open.set()
        await soon(asking)

        assert not await one.ended()
    async with hosted(store, clock, home, waiting) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "after"


async def test_a_second_wish_to_stop_waits_for_nothing(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting()
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        for _ in range(2):
            one.gateway.put(StopRequest(why="SIGTERM"))

        assert not await one.ended()
        (run,) = await store.read(lambda tx: tx.runs.of_task(handle.id))
    assert run.status is RunStatus.PAUSED_FOR_RESTART


async def test_a_run_that_requires_a_restart_gets_one_and_goes_on_after_it(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    @hf.task(name="upgrade")
    async def upgrade(run: hf.Run) -> str:
        if run.resumed is None:
            await run.requires_restart("a new driver")
        return "upgraded"

    home = tmp_path / "home"
    async with hosted(store, clock, home, upgrade) as one:
        handle = await one.gateway.holdfast.start(upgrade())
        assert await one.ended()
        (restart,) = await one.restarts()
        assert restart.manifest.reason == "a new driver"
    async with hosted(store, clock, home, upgrade) as other:
        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "upgraded"


# --- what cannot be saved blocks it


async def test_a_ledger_that_cannot_be_written_blocks_the_restart_and_nothing_stops(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    broken, waiting = BrokenStore(store), programs.waiting()
    async with hosted(broken, clock, tmp_path / "home", waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        broken.refuses = lambda _name: True

        answer = await one.restart()

        assert not answer.is_accepted
        assert "the disk is full, says the test" in answer.why
        assert one.gateway.status().status == "serving"
        broken.refuses = lambda _name: False
        programs.open.set()
        assert await soon(handle.result()) == "after"
        (run,) = await store.read(lambda tx: tx.runs.of_task(handle.id))
        assert run.status is RunStatus.SUCCEEDED
        assert (await one.restart()).is_accepted
        assert await one.ended()


async def test_a_checkpoint_that_cannot_be_written_blocks_the_restart_and_the_run_goes_on(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    broken, waiting = BrokenStore(store), programs.waiting()
    async with hosted(broken, clock, tmp_path / "home", waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
        broken.refuses = lambda name: "pause" in name
        asking = asyncio.ensure_future(one.restart())
        await until(lambda: one.gateway._worker._is_stopping)
        programs.open.set()

        answer = await soon(asking)

        assert not answer.is_accepted
        assert "the disk is full, says the test" in answer.why
        assert await soon(handle.result()) == "after"
        (blocked,) = await one.restarts()
        assert blocked.status is RestartStatus.BLOCKED
        assert blocked.outcome is not None
        assert "the disk is full" in (blocked.outcome.why_blocked or "")
        broken.refuses = lambda _name: False
        assert (await one.restart()).is_accepted
    assert Counter(programs.notes)["after"] == 1


async def test_a_manifest_that_cannot_be_written_blocks_the_restart(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting()
    config = config_with(manifest_path="missing/manifest.json")
    async with hosted(store, clock, tmp_path / "home", waiting, config=config) as one:
        answer = await one.restart()

        assert not answer.is_accepted
        assert "missing/manifest.json" in answer.why
        (tmp_path / "home" / "missing").mkdir()
        assert (await one.restart()).is_accepted
        assert await one.ended()


# --- held resumes


async def test_after_a_crash_loop_resumes_are_held_until_a_person_lets_them_go_on(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting(), tmp_path / "home"
    async with hosted(store, clock, home, waiting) as one:
        handle = await one.gateway.holdfast.start(waiting())
        await programs.entered()
    programs.open.set()
    async with hosted(store, clock, home, waiting, why_held="it crashed five times") as other:
        status = other.gateway.status()
        assert (status.holds_resumes, status.why_held) == (True, "it crashed five times")
        task = await store.read(lambda tx: tx.tasks.get(handle.id))
        assert task.status is not TaskStatus.SUCCEEDED

        assert await other.gateway.let_resume() == 1

        assert await soon(other.gateway.holdfast.handle(handle.id).result()) == "after"
        (restart,) = await other.restarts()
    assert restart.status is RestartStatus.RECOVERED


# --- sessions, children


async def test_a_conversation_goes_on_where_it_was_and_its_message_is_answered_once(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    async with hosted(store, clock, home, waiting) as one:
        posted = [
            await one.gateway.inbox.post(KEY, f"question {number}", ADA, channel_message_id=f"m{number}")
            for number in (1, 2)
        ]
        await programs.entered()
        asking = asyncio.ensure_future(one.restart("new tools"))
        await until(lambda: one.gateway._worker._is_stopping)
        programs.open.set()
        await soon(asking)
    manifest = document_of(home / "restart-manifest.json")
    answered = posted[0].message
    assert answered.origin is not None
    assert manifest["activeSessions"] == [
        {
            "key": answered.session_key,
            "status": "processing",
            "lastUserMessage": answered.text,
            "activeSubagents": [],
            "channel": answered.channel,
            "channelTarget": answered.origin.peer,
            "accountId": answered.account_id,
        }
    ]
    async with hosted(store, clock, home, waiting) as other:
        await until(lambda: programs.notes.count("after") == 2)
        (restart,) = await other.restarts()
        notices = await store.read(
            lambda tx: [row for row in scan(tx, "deliveries", 1) if row[2].startswith("notice:")]
        )
    assert restart.outcome is not None
    assert [found.fate for found in restart.outcome.recovered] == [InterruptionOutcome.RESUMED]
    assert restart.outcome.notices == 1
    assert len(notices) == 1
    assert programs.notes == ["before", "entered", "after", "before", "entered", "after"]


async def test_a_session_whose_run_cannot_be_resumed_is_told_in_the_words_of_the_seed(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    # Nobody knows whether it killed its process.
    monkeypatch.setattr(resume, "_died_alone", lambda _document: False)
    async with hosted(store, clock, home, waiting) as one:
        await one.gateway.inbox.post(KEY, "question", ADA, channel_message_id="m1")
        await programs.entered()
    clock.advance(seconds=1)
    async with hosted(store, clock, home, waiting):
        await programs.entered(2)
        spend_attempts(store)
    clock.advance(seconds=1)
    async with hosted(store, clock, home, waiting) as other:
        await until(lambda: programs.notes.count("entered") == 3)
        newest = (await other.restarts())[0]
        messages = await other.gateway.inbox.messages(KEY)
    assert newest.outcome is not None
    assert [found.fate for found in newest.outcome.recovered] == [InterruptionOutcome.TOLD]
    told = [message.text for message in messages if message.role is Role.SYSTEM]
    (sentence,) = [text for text in told if "Gateway" in text]
    assert sentence == (
        "[System] Gateway restarted at 2026-01-01T00:00:02Z. Reason: crash. You were interrupted mid-task. "
        "Review conversation context and respond to any unanswered messages."
    )


async def test_without_session_recovery_no_person_is_told_and_runs_are_resumed_all_the_same(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    config = config_with(session_recovery=False)
    async with hosted(store, clock, home, waiting, config=config) as one:
        await one.gateway.inbox.post(KEY, "question", ADA, channel_message_id="m1")
        await programs.entered()
    programs.open.set()
    async with hosted(store, clock, home, waiting, config=config) as other:
        await until(lambda: programs.notes.count("after") == 1)
        (restart,) = await other.restarts()
    assert restart.outcome is not None
    assert (restart.outcome.notices, restart.outcome.recovered[0].fate) == (0, InterruptionOutcome.RESUMED)


async def test_the_parent_of_an_interrupted_child_is_told_and_the_child_is_resumed(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    child, home = programs.waiting("child"), tmp_path / "home"

    @hf.task(name="parent")
    async def parent(run: hf.Run) -> list[Any]:
        result = await (await run.spawn(child()))
        told = await run.receive("holdfast.children", timeout="1h", default=None)
        return [result, told]

    async with hosted(store, clock, home, child, parent) as one:
        handle = await one.gateway.holdfast.start(parent())
        await programs.entered()
    programs.open.set()
    async with hosted(store, clock, home, child, parent) as other:
        result, told = await soon(other.gateway.holdfast.handle(handle.id).result())
    assert result == "after"
    assert told["fate"] == "resumed"


async def test_a_continuation_comes_back_as_the_next_message_of_its_session(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    programs.open.set()
    async with hosted(store, clock, home, waiting) as one:
        await one.gateway.inbox.post(KEY, "question", ADA, channel_message_id="m1")
        await until(lambda: programs.notes.count("after") == 1)
        await one.restart("new tools", session_key=KEY, continuation="check the garden")
        await one.ended()
    async with hosted(store, clock, home, waiting) as other:
        await until(lambda: programs.notes.count("after") == 2)
        messages = await other.gateway.inbox.messages(KEY)
    texts = [message.text for message in messages if message.role is Role.SYSTEM]
    assert texts == ["[System] The restart that you asked for is done. You had noted: check the garden"]


async def test_an_agent_may_ask_for_a_restart_and_learns_who_is_in_the_way(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    other = programs.waiting()

    @hf.task(name="asks")
    async def asks(run: hf.Run) -> list[Any]:
        answers = run.list("answers")
        async for turn in run.turns(max=2):
            arguments = {"reason": "new tools", "force": turn.number == 2}
            answer = await turn.tool(restart_gateway, arguments, id="r")
            answers.append([answer.is_accepted, list(answer.would_interrupt)])
        return list(answers)

    home = tmp_path / "home"
    async with hosted(store, clock, home, asks, other) as one:
        in_the_way = await one.gateway.holdfast.start(other())
        await programs.entered()
        handle = await one.gateway.holdfast.start(asks())
        await until(lambda: one.gateway._worker._is_stopping)
        programs.open.set()
        assert await one.ended()
        found = await one.restarts()
        assert {(one.status, one.manifest.reason) for one in found} == {
            (RestartStatus.DRAINED, "new tools"),
            (RestartStatus.BLOCKED, "new tools"),
        }
        # There is no session, so the task is who asked.
        assert {one.manifest.triggered_by for one in found} == {handle.id}
    async with hosted(store, clock, home, asks, other) as again:
        result = await soon(again.gateway.holdfast.handle(handle.id).result())
        assert len(await again.restarts()) == 2
    assert result == [[False, [in_the_way.id]], [True, []]]


async def test_an_agent_that_is_alone_in_flight_passes_the_gate(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    @hf.task(name="agent.main")
    async def agent(run: hf.Run, session_key: str = "", message_id: str = "", until: int = 0) -> str:
        answer = await run.tool(restart_gateway, {"reason": "new tools"})
        assert answer.is_accepted
        await run.sleep("1h")
        return "restarted"

    async with hosted(store, clock, tmp_path / "home", agent) as one:
        await one.gateway.inbox.post(KEY, "restart yourself", ADA, channel_message_id="m1")

        assert await one.ended()
        (restart,) = await one.restarts()
    assert restart.manifest.triggered_by == KEY


async def test_an_agent_learns_the_session_keys_of_those_in_the_way(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    """Also of its own child, which has no session of its own: so that one is named by its task."""
    busy, child, answers = programs.waiting("agent.busy"), programs.waiting("child"), list[Any]()
    children: set[str] = set()

    @hf.task(name="agent.main")
    async def agent(run: hf.Run, session_key: str = "", message_id: str = "", until: int = 0) -> str:
        started = await run.spawn(child())
        children.add(started.id)
        await run.receive("go")
        answers.append(await run.tool(restart_gateway, {"reason": "new tools", "session_key": KEY}))
        return "asked"

    other_key = "agent:busy:garden"
    async with hosted(store, clock, tmp_path / "home", agent, busy, child) as one:
        await one.gateway.inbox.post(other_key, "dig", ADA, channel_message_id="m1")
        await one.gateway.inbox.post(KEY, "restart yourself", ADA, channel_message_id="m2")
        await programs.entered(2)
        session = await store.read(lambda tx: tx.sessions.of_key(KEY))
        assert session.task_id is not None
        await one.gateway.holdfast.send(one.gateway.holdfast.handle(session.task_id), "go")
        await until(lambda: answers != [])
    assert answers[0].is_accepted is False
    assert sorted(answers[0].would_interrupt) == sorted([other_key, *children])


@pytest.mark.parametrize("is_queued", [True, False])
async def test_messages_that_come_during_a_drain_are_queued_or_refused_as_the_settings_say(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms, is_queued: bool
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    config = config_with(drain_queue_messages=is_queued)
    async with hosted(store, clock, home, waiting, config=config) as one:
        await one.gateway.inbox.post(KEY, "first", ADA, channel_message_id="m1")
        await programs.entered()
        asking = asyncio.ensure_future(one.restart())
        await until(lambda: one.gateway._worker._is_stopping)
        if is_queued:
            posted = await one.gateway.inbox.post(KEY, "second", ADA, channel_message_id="m2")
            assert posted.message.status is MessageStatus.QUEUED
        else:
            with pytest.raises(Draining, match="drain_queue_messages"):
                await one.gateway.inbox.post(KEY, "second", ADA, channel_message_id="m2")
        programs.open.set()
        await soon(asking)
    async with hosted(store, clock, home, waiting, config=config) as other:
        await until(lambda: programs.notes.count("after") == 1 + is_queued)
        messages = await other.gateway.inbox.messages(KEY)
    assert [one.text for one in messages if one.role is Role.USER] == ["first", "second"][: 1 + is_queued]


@pytest.mark.parametrize("is_retried", [True, False])
async def test_an_interrupted_firing_is_queued_again_or_given_up_as_the_settings_say(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms, is_retried: bool
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    config = config_with(cron_retry_on_interrupt=is_retried)
    schedule = ScheduleSettings(cron="0 0 * * *", agent="main", session="nightly", prompt="water the garden")
    async with hosted(store, clock, home, waiting, config=config) as one:
        await Cron(store, clock, {"night": schedule}).run_once()
        clock.advance(days=1)
        await Cron(store, clock, {"night": schedule}).run_once()
        await programs.entered()
        readiness = await one.gateway.preflight()
        assert [found.kind for found in readiness.interruptions] == [InterruptionKind.CRON]
    programs.open.set()
    async with hosted(store, clock, home, waiting, config=config) as other:
        await until(lambda: not store.read_now(lambda tx: tx.firings.open(limit=10)))
        (restart,) = await other.restarts()
    (firing,) = store.read_now(lambda tx: tx.firings.page("night", limit=1))
    assert restart.manifest.active_cron_runs[0].job_name == "night"
    assert restart.outcome is not None
    if is_retried:
        assert (firing.status, firing.is_retry) == (FiringStatus.DONE, True)
        assert [found.fate for found in restart.outcome.recovered] == [InterruptionOutcome.RESUMED]
    else:
        assert firing.status is FiringStatus.FAILED
        assert [found.fate for found in restart.outcome.recovered] == [InterruptionOutcome.CANCELLED]
        assert programs.notes.count("after") == 0


# --- settings that apply live


async def test_settings_of_a_recovery_apply_to_the_next_one(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with hosted(store, clock, tmp_path / "home") as one:
        worker = one.gateway._worker
        config = config_with(resume_concurrency=7, drain_timeout_s=3.0, session_recovery=False)

        one.gateway.apply(config)

        assert worker._resumer.concurrency == 7
        assert worker._drain.patience.effects_s == 3.0
        assert not one.gateway._recovery.settings.session_recovery


# --- who does not stop


async def test_who_does_not_stop_is_paused_at_the_deadline_and_gets_a_second_to_unwind(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[float, RunStatus]] = []

    async def interrupt(some: Sequence[RunInFlight], *, within_s: float) -> None:
        runs = [store.read_now(lambda tx, one=one: tx.runs.get(one.claim.run_id)) for one in some]  # type: ignore[misc]
        given.extend((within_s, run.status) for run in runs)
        await in_flight.interrupt(some, within_s=within_s)

    monkeypatch.setattr(drain, "interrupt", interrupt)
    waiting = programs.waiting()
    async with hosted(
        store, clock, tmp_path / "home", waiting, config=config_with(drain_timeout_s=0.1)
    ) as one:
        await one.gateway.holdfast.start(waiting())
        await programs.entered()

        assert (await one.restart()).is_accepted

    # Checkpoint and fence come first, and what is left of the restart is short.
    assert given == [(UNWIND_S, RunStatus.PAUSED_FOR_RESTART)]
    assert one.gateway._worker.longest_stop_s < 0.1 + 5


# --- who kills the gateway


async def test_a_session_whose_run_killed_the_gateway_is_not_asked_again_and_answers_what_comes_next(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting, home = programs.waiting("agent.main"), tmp_path / "home"
    # It dies with each of them before anything was saved; the third time with that one alone.
    programs.saves = False
    config = config_with(max_attempts_without_progress=3)
    for number in range(3):
        async with hosted(store, clock, home, waiting, config=config) as one:
            if number == 0:
                await one.gateway.inbox.post(KEY, "question", ADA, channel_message_id="m1")
            await programs.entered(number + 1)
        clock.advance(seconds=1)
    programs.saves = True

    async with hosted(store, clock, home, waiting, config=config) as other:
        programs.open.set()
        (restart, *_) = await other.restarts()
        await until(lambda: status_of(store, "question") is MessageStatus.FAILED)
        messages = await other.gateway.inbox.messages(KEY)
        assert programs.notes.count("entered") == 3  # no person is asked to go on where it was

        await other.gateway.inbox.post(KEY, "another", ADA, channel_message_id="m2")
        await until(lambda: status_of(store, "another") is MessageStatus.ANSWERED)

    assert "quarantined" in other.told
    assert restart.outcome is not None
    assert [(found.fate, restart.outcome.notices) for found in restart.outcome.recovered] == [
        (InterruptionOutcome.FAILED, 0)
    ]
    # One sentence in the transcript, and the same one as the only letter about it.
    (noted,) = [message for message in messages if "not resumed" in message.text.lower()]
    assert (noted.role, noted.status) == (Role.SYSTEM, MessageStatus.NOTED)
    why = "not resumed after a restart: its process died again"
    assert noted.text.startswith(f"[System] Your last message could not be answered: {why}")
    letters = store.read_now(
        lambda tx: [delivery_from_row(row, tx.sealing) for row in scan(tx, "deliveries", 1)]
    )
    about = [one for one in letters if b"not resumed" in (one.message or b"").lower()]
    assert [one.idempotency_key for one in about] == [f"failure:{noted.task_id}"]
    assert programs.notes.count("after") == 1


def status_of(store: Store, text: str) -> MessageStatus:
    messages = store.read_now(lambda tx: tx.messages.after(KEY, limit=99))
    (status,) = [one.status for one in messages if one.text == text]
    return status
