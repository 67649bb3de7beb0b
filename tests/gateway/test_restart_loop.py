"""Runs that kill the gateway at every start: they alone are quarantined, and the rest of the work is done."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.message import Role
from holdfast.core.transitions import MessageStatus, TaskStatus
from holdfast.store.rows.conversation import message_from_row
from holdfast.store.verify import scan
from tests.crash.invariants import assert_ledger_is_whole
from tests.doors.waiting_page import assert_gone, assert_shown, produces, row_of
from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home, opened_ledger

pytestmark = pytest.mark.slow

RUNS = 50
# Two crashes in company make suspects of all who made no progress; each killer then dies once more, alone.
IN_COMPANY = 2
# So many crashes without a healthy life, and without a run to blame, are a loop.
BROKEN_AFTER = 5


def settings() -> dict[str, Any]:
    return {
        "agents": {
            name: {"callable": f"tests.gateway.hostile_agents:{name}"} for name in ("kills", "creeps")
        },
        "gateway": {"restart": {"max_attempts_without_progress": IN_COMPANY + 1}},
    }


def test_only_those_who_kill_the_gateway_are_quarantined(tmp_path: Path) -> None:
    killers = 2
    texts = [f"kill-{number}" for number in range(killers)]
    texts += [f"innocent-{number}" for number in range(RUNS - killers)]
    with gateway_home(tmp_path / "home", settings=settings()) as one:
        one.until_ready()
        say_all(one, texts)
        one.open_door("kill")
        one.wait_for(lambda: len(one.world("killed")) >= IN_COMPANY, "it was not killed")
        one.open_door("mended")

        one.wait_for(lambda: len(one.world("planted")) == RUNS - killers, "the rest of the work is not done")
        one.wait_for(lambda: one.is_quiet(), "not everything was settled")
        status = one.until_ready()
        assert one.stop() == 0

    assert not status["holdsResumes"], status
    assert one.log().count("crashed") == len(one.world("killed")) == IN_COMPANY + killers
    check(one, texts, killers)


@produces("held the gateway crashed …")
def test_a_loop_that_no_run_is_found_to_blame_for_is_broken_until_a_person_has_looked(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    row = row_of(request)
    with gateway_home(tmp_path / "home", settings=settings()) as one:
        one.until_ready()
        one.open_door("mended")
        say(one, "creeps", "creeps")
        one.wait_for(lambda: len(one.world("killed")) == BROKEN_AFTER, "it was not killed")
        status = one.until_ready()
        assert status["holdsResumes"], status
        # What is new is answered all the same.
        say(one, "kills", "new")
        one.wait_for(lambda: one.world("planted") == ["new"], "nothing new is done")
        waiting = Counter(found["status"] for found in one.ask("checkpoints.list")["checkpoints"])
        assert waiting["paused_for_restart"] == 1
        run = Cli(one)
        assert_shown(run, row)

        one.open_door("spared")
        assert run(*row.command("gateway resume"), "--json").json["resumed"] == 1
        one.wait_for(lambda: one.is_quiet(), "what was held is not done")
        assert_gone(run, row)
        assert one.stop() == 0

    assert one.world("planted") == ["new", "creeps"]
    assert len(one.world("killed")) == BROKEN_AFTER
    with opened_ledger(one) as ledger:
        assert_ledger_is_whole(ledger, is_at_rest=True)


def say_all(one: GatewayHome, texts: list[str]) -> None:
    """All of them have begun when this returns, and none has made any progress."""
    for text in texts:
        say(one, "kills", text)
    one.wait_for(lambda: set(one.world("begun")) == set(texts), "not all of them have begun")


def say(one: GatewayHome, agent: str, text: str) -> None:
    one.ask("chat.send", sessionKey=f"agent:{agent}:{text}", message=text, idempotencyKey=text)


def check(one: GatewayHome, texts: list[str], killers: int) -> None:
    assert Counter(one.world("planted")) == dict.fromkeys(texts[killers:], 1)
    with opened_ledger(one) as ledger:
        contents = assert_ledger_is_whole(ledger, is_at_rest=True)
        messages = ledger.read_now(
            lambda tx: [message_from_row(row, tx.sealing) for row in scan(tx, "messages", 1)]
        )
    ended = {task.goal: task for task in contents.tasks.values()}
    assert {ended[text].status for text in texts[killers:]} == {TaskStatus.SUCCEEDED}
    for text in texts[:killers]:
        failure = ended[text].failure
        assert failure is not None
        assert (failure.kind, failure.facts["why"]) == ("failed_resume", "quarantined")
    asked = {message.text: message.status for message in messages if message.role is Role.USER}
    assert asked == {
        text: MessageStatus.FAILED if text.startswith("kill") else MessageStatus.ANSWERED for text in texts
    }
