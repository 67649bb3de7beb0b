"""A database that goes away and comes back: the gateway says so everywhere, in few words, and once when it is
over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.clock import SystemClock
from holdfast.store.postgres import PostgresStore
from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home
from tests.gateway.proxy import proxy
from tests.gateway.test_two_gateways import check, ledger_of_both, merged, post_gated, until
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

# Long enough for a line each second of each service to be too many.
OUTAGE_S = 4.0
SETTINGS = {"agents": {"sower": {"callable": "tests.gateway.two_gateway_agents:sower"}}}


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gate"
    monkeypatch.setenv("GATE_FILE", str(path))
    return path


def ready(one: GatewayHome) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{one.url}/readyz", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def lines_since(one: GatewayHome, before: str) -> list[str]:
    return one.log()[len(before) :].splitlines()


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_a_server_that_is_away_is_told_at_every_door_and_in_a_handful_of_lines(
    tmp_path: Path, postgres_server: PostgresServer, how: str
) -> None:
    url = postgres_server.create_database()
    with (
        proxy(postgres_server) as way,
        gateway_home(tmp_path / "home", settings=SETTINGS, store=f"{way.url(url)}&connect_timeout=2") as one,
    ):
        boot = one.until_ready()["bootId"]
        assert ready(one)[0] == 200
        before = one.log()

        getattr(way, how)()
        began = time.monotonic()
        one.wait_for(lambda: ready(one)[0] == 503, "it says that it is ready")
        code, found = ready(one)
        shown = Cli(one)("status")
        gateway = one.call("gateway.status")
        time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - began)))
        way.heal()
        one.wait_for(lambda: ready(one)[0] == 200, "it does not come back")
        one.wait_for(lambda: "can be used again" in one.log(), "the log does not say that it is over")
        lines = lines_since(one, before)

        assert (code, found["status"], found["ledger"]) == (503, "serving", "away")
        assert (gateway["status"], gateway["isReady"], gateway["bootId"]) == ("serving", False, boot)
        assert gateway["ledgerProblem"]
        assert shown.status == 1
        assert "PostgreSQL" in shown.out
        assert "serving, up for" in shown.out
        assert len(lines) <= 6, lines
        assert sum("can be used again" in line for line in lines) == 1
        assert one.stop() == 0


def test_a_gateway_that_starts_without_its_server_says_so_less_and_less_often_and_holds_nothing(
    tmp_path: Path, gate: Path, postgres_server: PostgresServer
) -> None:
    """What was in flight goes on as soon as the server is back, and is done once."""
    url = postgres_server.create_database()
    with (
        proxy(postgres_server) as way,
        ledger_of_both(url) as found,
        gateway_home(tmp_path / "home", settings=SETTINGS, store=way.url(url)) as one,
    ):
        found.prepare()
        boot = one.until_ready()["bootId"]
        posted = post_gated(one, found, "sower")
        way.cut()
        one.kill_gateway()
        one.wait_for(lambda: "cannot use its ledger" in one.log(), "it has not tried")
        before = one.log()

        time.sleep(OUTAGE_S)
        way.heal()
        gate.touch()
        status = one.until_ready(unless_boot=boot)
        lines = lines_since(one, before)

        assert len(lines) <= 8, lines
        assert sum("the ledger is back, after" in line for line in lines) == 1
        assert not status["holdsResumes"]
        until(lambda: found.unanswered() == [], "not everything was answered", one)
        assert one.stop() == 0
        check(found, merged(more=posted))


@pytest.mark.timeout(60)
def test_a_server_that_stalls_does_not_stop_the_event_loop_of_a_gateway(
    postgres_server: PostgresServer,
) -> None:
    """A caller that is alone writes on the loop's own thread while commits are quick: not in a gateway."""
    url = postgres_server.create_database()

    async def write_while_it_stalls() -> None:
        for number in range(10):  # quick, and alone: from here on they would run inline
            await store.write(lambda tx: tx.boots.set_fact("number", str(number)))  # noqa: B023 - run at once
        way.stall()
        writing = asyncio.ensure_future(store.write(lambda tx: tx.boots.set_fact("news", "written")))
        done, _ = await asyncio.wait([writing], timeout=0.2)
        assert not done
        way.heal()
        await writing

    with (
        proxy(postgres_server) as way,
        contextlib.closing(PostgresStore(way.url(url), clock=SystemClock(), may_write_inline=False)) as store,
    ):
        asyncio.run(write_while_it_stalls())

        assert store.read_now(lambda tx: tx.boots.fact("news")) == "written"
