"""One record that cannot be read or told about must not keep the gateway from starting or stopping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.claim import Claim
from holdfast.core.errors import StoreUnavailable
from holdfast.core.task import Origin
from holdfast.engine.ledger.ledger import NewTask, creating
from holdfast.engine.recovery import resume
from holdfast.engine.worker.worker import Worker
from holdfast.gateway.signals import StopRequest
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.tools import restart_gateway
from tests.engine.dead_processes import spend_attempts
from tests.engine.tables import execute, literal
from tests.engine.workers import until
from tests.gateway.gateways import hosted
from tests.gateway.waiting_programs import ADA, KEY, WaitingPrograms


@pytest.mark.parametrize("key", ["agent:main:webhook:j\u00fcrgen", "agent:main:" + "x" * 180])
async def test_a_session_of_any_name_is_told_that_its_run_was_not_resumed(
    store: Store,
    clock: FakeClock,
    tmp_path: Path,
    programs: WaitingPrograms,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs.saves = False
    waiting = programs.waiting("agent.main")
    # Nobody knows whether it killed its process.
    monkeypatch.setattr(resume, "_died_alone", lambda _document: False)
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        await one.gateway.inbox.post(key, "question", ADA, channel_message_id="m1")
        await programs.entered()
    clock.advance(seconds=1)
    async with hosted(store, clock, tmp_path / "home", waiting):
        await programs.entered(2)
        spend_attempts(store)
    clock.advance(seconds=1)

    async with hosted(store, clock, tmp_path / "home", waiting) as last:
        await programs.entered(3)  # by the message that tells it
        said = await last.gateway.inbox.messages(key)

    assert [one.text for one in said if one.text.startswith("[System]")] != []


async def test_a_continuation_for_no_session_is_refused_before_anything_is_begun(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    @hf.task(name="asks")
    async def asks(run: hf.Run) -> str:
        async for turn in run.turns(max=1):
            given = {"reason": "r", "force": True, "session_key": "main", "continuation": "go on"}
            await turn.tool(restart_gateway, given, id="r")
        return "done"

    async with hosted(store, clock, tmp_path / "home", asks) as one:
        handle = await one.gateway.holdfast.start(asks())
        with pytest.raises(hf.TaskFailed, match="a session key is agent:"):
            await handle.result()
        assert await one.restarts() == []


async def test_a_damaged_session_is_stopped_with_all_others_and_goes_on(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting("agent.main")
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        await one.gateway.inbox.post(KEY, "question", ADA, channel_message_id="m1")
        await programs.entered()
        execute(store, f"UPDATE sessions SET digest = {literal(store, b'x')}")
        for _ in range(2):  # in a hurry
            one.gateway.put(StopRequest(why="SIGTERM"))

        assert not await one.ended()
    async with hosted(store, clock, tmp_path / "home", waiting):
        await programs.entered(2)


async def test_a_restart_that_cannot_be_read_keeps_no_gateway_from_starting(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms
) -> None:
    waiting = programs.waiting()
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        await one.gateway.holdfast.start(waiting())
        await programs.entered()
        for _ in range(2):
            one.gateway.put(StopRequest(why="SIGTERM"))
        await one.ended()
    execute(store, f"UPDATE restarts SET digest = {literal(store, b'x')}")

    async with hosted(store, clock, tmp_path / "home", waiting):
        await programs.entered(2)


async def test_a_seed_that_cannot_be_read_is_not_needed_to_tell_who_was_interrupted(
    store: Store, clock: FakeClock, tmp_path: Path, programs: WaitingPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, take_over = programs.waiting("agent.main"), Worker.take_over
    origin = Origin(channel="hooks", peer="ada")
    async with hosted(store, clock, tmp_path / "home", waiting) as one:
        await one.gateway.inbox.post(KEY, "question", origin, channel_message_id="m1")
        await programs.entered()

    async def then_damage(self: Worker, **options: Any) -> Any:
        resumed = await take_over(self, **options)
        execute(store, f"UPDATE runs SET seed = {literal(store, b'{')} WHERE seed IS NOT NULL")
        return resumed

    monkeypatch.setattr(Worker, "take_over", then_damage)
    async with hosted(store, clock, tmp_path / "home", waiting) as other:
        (restart,) = await other.restarts()

    assert restart.outcome is not None
    assert restart.outcome.notices == 1


async def test_what_is_not_carried_is_not_held_though_the_ledger_is_away(
    store: Store, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @hf.task(name="t")
    async def unfit(run: hf.Run) -> None: ...

    async def away(*_args: object) -> None:
        raise StoreUnavailable("away for a moment")

    async with hosted(store, clock, tmp_path / "home", unfit) as one:
        worker = one.gateway._worker
        monkeypatch.setattr(worker._carrier, "begin", lambda *_: ValueError("unfit"))
        monkeypatch.setattr(worker._ledger, "fail", away)
        taken: list[Claim] = []
        hold = worker._heartbeat.hold

        def hold_and_tell(claim: Claim) -> None:
            taken.append(claim)
            hold(claim)

        monkeypatch.setattr(worker._heartbeat, "hold", hold_and_tell)
        wanted = [NewTask(name="t", goal="g") for _ in range(3)]
        await store.write(creating(wanted, now=clock.now()))
        worker._news.set()
        await until(lambda: len(taken) >= 3 and not worker._heartbeat._held)
