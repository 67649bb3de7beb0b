"""Runs that do not want to stop: paused and fenced at the deadline, the process ended, and resumed."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.events import EventKind
from holdfast.core.transitions import CheckpointStatus, RestartStatus, RunStatus
from holdfast.store import Store
from tests.crash.invariants import Contents, assert_ledger_is_whole
from tests.gateway.gateway_home import GatewayHome, gateway_home, opened_ledger
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

STUBBORN = ("ignores", "swallows", "threads", "own_threads")
GOOD = 3


def settings(drain_timeout_s: float, *agents: str) -> dict[str, Any]:
    return {
        "agents": {name: {"callable": f"tests.gateway.hostile_agents:{name}"} for name in agents},
        "gateway": {"restart": {"drainTimeoutS": drain_timeout_s}},
    }


def test_who_does_not_stop_is_paused_at_the_deadline_and_resumed(tmp_path: Path) -> None:
    drain_with_hostile_agents(tmp_path / "home", None)


def test_the_same_on_a_server(tmp_path: Path, postgres_server: PostgresServer) -> None:
    drain_with_hostile_agents(tmp_path / "home", postgres_server.create_database())


def drain_with_hostile_agents(home: Path, store: str | None) -> None:
    agents = [*STUBBORN, "behaves", "sends"]
    with gateway_home(home, settings=settings(3.5, *agents), store=store) as one:
        boot = one.until_ready()["bootId"]
        texts = [say(one, name, name) for name in (*STUBBORN, "sends")]
        texts += [say(one, "behaves", f"behaves-{number}") for number in range(GOOD)]
        one.wait_for(lambda: set(one.world("begun")) == set(texts), "not all of them have begun")
        one.wait_for(lambda: one.world("sent") == ["sends"], "no effect is in flight")

        with Asked(one) as asked:
            one.wait_for(lambda: one.ask("gateway.status")["status"] == "draining", "it does not drain")
            one.wait_for(lambda: is_paused_but_busy(one), "those that behave are not paused first")
            assert asked.answer is None
            one.open_door("send")
        assert asked.answer is not None
        assert asked.answer["isAccepted"], asked.answer
        # Before the next life begins: a thread that looks too early never returns there, either.
        one.open_door("mended")
        one.until_ready(unless_boot=boot)
        one.wait_for(lambda: one.is_quiet(), "not everything was answered")
        assert one.stop() == 0

    assert "crashed" not in one.log()
    assert one.world("intruded") == []
    assert one.world("sent") == ["sends"]
    assert Counter(one.world("planted")) == {
        f"{text} {when}": 1 for text in texts for when in ("before", "after")
    }
    with opened_ledger(one) as ledger:
        check(ledger, len(texts))


class Asked:
    """A caller asks for a restart and waits for the answer, while the test goes on."""

    def __init__(self, one: GatewayHome) -> None:
        self.answer: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._ask, args=(one,))

    def _ask(self, one: GatewayHome) -> None:
        self.answer = one.call("gateway.restart", force=True, reason="the test wants it")

    def __enter__(self) -> Asked:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def say(one: GatewayHome, agent: str, text: str) -> str:
    one.ask("chat.send", sessionKey=f"agent:{agent}:{text}", message=text, idempotencyKey=text)
    return text


def is_paused_but_busy(one: GatewayHome) -> bool:
    """Those that stop at their next step need not wait for the others; and reads are answered."""
    return len(one.ask("checkpoints.list")["checkpoints"]) == GOOD


def check(ledger: Store, interrupted: int) -> None:
    contents = assert_ledger_is_whole(ledger, is_at_rest=True)
    stop, restart = ledger.read_now(lambda tx: tx.restarts.page(10))
    assert stop.status is RestartStatus.DRAINED
    assert restart.status is RestartStatus.RECOVERED
    assert restart.outcome is not None
    assert Counter(found.fate.value for found in restart.outcome.recovered) == {"resumed": interrupted}
    assert len(contents.checkpoints) == interrupted
    for checkpoint in contents.checkpoints.values():
        assert (checkpoint.kind, checkpoint.status) == (CheckpointKind.RESTART, CheckpointStatus.RESUMED)
    for task_id in contents.tasks:
        first, second = contents.runs_of(task_id)
        assert (first.status, second.status) == (RunStatus.RESUMED, RunStatus.SUCCEEDED)
    assert_nothing_was_written_while_unwinding(contents)


def assert_nothing_was_written_while_unwinding(contents: Contents) -> None:
    """After its pause, nothing in the story of a run is the run's own."""
    paused_at: dict[str, datetime] = {one.run_id: one.created_at for one in contents.checkpoints.values()}
    for step in contents.steps:
        assert step.run_id not in paused_at or step.ended_at <= paused_at[step.run_id], step
    late = {EventKind.CHECKPOINT_CLAIMED, EventKind.CHECKPOINT_RESUMED, EventKind.CHECKPOINT_SAVED}
    for event in contents.events:
        is_late = event.subject_id in paused_at and event.at > paused_at[event.subject_id]
        assert not is_late or event.kind in late, event


def test_a_program_that_keeps_the_loop_from_going_on_is_ended_by_force_and_resumed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway_home(home, settings=settings(2.5, "blocks", "behaves")) as one:
        one.until_ready()
        texts = [say(one, "blocks", "blocks"), say(one, "behaves", "behaves")]
        one.wait_for(lambda: set(one.world("begun")) == set(texts), "not both of them have begun")
        pid = one.pid_of_gateway()

        one.restart_by_signal()
        one.wait_for(lambda: "draining" in one.log(), "it does not drain")
        one.open_door("block")
        one.wait_for(lambda: one.pid_of_gateway() not in (None, pid), "it has not ended")
        one.open_door("mended")
        one.until_ready()
        one.wait_for(lambda: one.is_quiet(), "not everything was answered")
        assert one.stop() == 0

    assert Counter(one.world("planted")) == {
        f"{text} {when}": 1 for text in texts for when in ("before", "after")
    }
    with opened_ledger(one) as ledger:
        contents = assert_ledger_is_whole(ledger, is_at_rest=True)
        assert_nothing_was_written_while_unwinding(contents)
