"""The rows of "It does not go on: what now?" that need a gateway: brought about in one, shown, and helped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.waiting_page import Row, assert_gone, assert_shown, produces, row_of
from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home
from tests.gateway.test_disk_full import no_file_grows
from tests.gateway.test_stubborn import Asked

pytestmark = pytest.mark.slow

ECHO = {"callable": "tests.gateway.hostile_agents:echo"}
ASKER = {"callable": "tests.gateway.asking_agent:asker"}


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    return row_of(request)


def until_answered(one: GatewayHome, session: str, answer: str) -> None:
    def is_said() -> bool:
        shown = Cli(one)("sessions", "show", session, "--json")
        return any(said["text"] == answer for said in shown.json["messages"] if said["role"] == "agent")

    one.wait_for(is_said, f"{answer!r} was not said")


@produces("gateway not running")
def test_no_gateway(tmp_path: Path, row: Row) -> None:
    one = GatewayHome(tmp_path / "home", settings={"agents": {"echo": ECHO}})
    run = Cli(one)
    assert_shown(run, row)
    assert row.command("up") == ["up"]

    with gateway_home(tmp_path / "home", settings=one.settings) as one:  # which runs `holdfast up`
        one.until_ready()
        assert_gone(run, row)
        assert one.stop() == 0


@produces("messages wait for AGENT")
def test_messages_for_an_agent_that_the_settings_do_not_have(tmp_path: Path, row: Row) -> None:
    with gateway_home(tmp_path / "home", settings={"agents": {"echo": ECHO}}) as one:
        run, session = Cli(one), "agent:echo:main"
        one.until_ready()
        assert one.stop() == 0
        assert run("sessions", "send", session, "hello").status == 0
        assert_shown(run, row)
        one.settings["agents"] = {"asker": ASKER}
        one.save_settings()

        one.start()  # which runs `holdfast up`
        one.until_ready()
        assert_shown(run, row)
        assert "echo" not in run(*row.command("agents list")).out
        one.settings["agents"] = {"asker": ASKER, "echo": ECHO}
        one.save_settings()

        until_answered(one, session, "hello")
        assert_gone(run, row)
        assert one.stop() == 0


@produces("sessions … 1 waiting for a person")
def test_an_agent_that_asks(tmp_path: Path, row: Row) -> None:
    with gateway_home(tmp_path / "home", settings={"agents": {"asker": ASKER}}) as one:
        run, session = Cli(one), "agent:asker:main"
        one.until_ready()
        assert run("sessions", "send", session, "paint it").status == 0
        one.wait_for(lambda: row.value(run("status", "--json")), "it does not ask")
        assert_shown(run, row)

        assert run(*row.command("sessions send", SESSION=session, TEXT="blue")).status == 0

        until_answered(one, session, "paint it: blue")
        assert_gone(run, row)
        assert one.stop() == 0


@produces("settings …")
def test_settings_that_are_refused(tmp_path: Path, row: Row) -> None:
    with gateway_home(tmp_path / "home", settings={"agents": {"echo": ECHO}}) as one:
        run = Cli(one)
        boot = one.until_ready()["bootId"]
        one.settings["agents"]["late"] = {"callable": "late_agent:answer"}
        one.save_settings()
        one.wait_for(lambda: row.value(run("status", "--json")), "they are not refused")
        assert_shown(run, row)
        assert run(*row.command("config check")).status == 1

        (one.home / "late_agent.py").write_text("async def answer(text: str) -> str:\n    return text\n")

        one.until_ready(unless_boot=boot)
        assert_gone(run, row)
        assert run("sessions", "send", "agent:late:main", "hello").status == 0
        until_answered(one, "agent:late:main", "hello")
        assert one.stop() == 0


@produces("not restarted")
def test_a_restart_that_was_refused(tmp_path: Path, row: Row) -> None:
    with gateway_home(tmp_path / "home", settings={"agents": {"echo": ECHO}}) as one:
        run = Cli(one)
        boot = one.until_ready()["bootId"]
        with no_file_grows(one):
            assert run("gateway", "restart", "--force").status == 3
        one.wait_for(lambda: row.value(run("status", "--json")), "the restart is not blocked")
        assert_shown(run, row)
        assert "blocked" in run(*row.command("gateway restarts")).out

        assert run("gateway", "restart").status == 0
        assert "`holdfast gateway restart`" in row.helps

        one.until_ready(unless_boot=boot)
        assert_gone(run, row)
        assert one.stop() == 0


@produces("gateway draining")
def test_a_gateway_that_drains(tmp_path: Path, row: Row) -> None:
    agents = {"sends": {"callable": "tests.gateway.hostile_agents:sends"}, "echo": ECHO}
    settings = {"agents": agents, "gateway": {"restart": {"drainTimeoutS": 600}}}
    with gateway_home(tmp_path / "home", settings=settings) as one:
        run = Cli(one)
        boot = one.until_ready()["bootId"]
        one.ask("chat.send", sessionKey="agent:sends:main", message="hold", idempotencyKey="hold")
        one.wait_for(lambda: one.world("sent") == ["hold"], "no effect is in flight")
        with Asked(one):
            one.wait_for(lambda: one.ask("gateway.status")["status"] == "draining", "it does not drain")
            assert_shown(run, row)
            assert "agent:sends:main" in run(*row.command("gateway restart --plan")).out
            assert run("sessions", "send", "agent:echo:main", "hello").status == 0
            one.open_door("send")

        one.until_ready(unless_boot=boot)
        until_answered(one, "agent:echo:main", "hello")
        assert not row.is_in(run("status"))
        assert one.stop() == 0
