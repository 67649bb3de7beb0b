"""A real gateway on a machine whose clock is not the database's: it works, and tells in log and metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.core.events import EventKind
from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import PATIENCE_S, GatewayHome, gateway_home, opened_ledger
from tests.gateway.noting_agents import STEPS
from tests.servers import PostgresServer, move_clock

pytestmark = pytest.mark.slow

SETTINGS = {"agents": {"gardener": {"callable": "tests.gateway.noting_agents:gardener"}}}


def skew_in_metrics(one: GatewayHome) -> float:
    token = (one.home / "token").read_text().strip()
    asked = Request(f"{one.url}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urlopen(asked, timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("holdfast_clock_skew_seconds ")]
    return float(value)


@pytest.mark.parametrize("seconds", [-45, 3600])
def test_a_gateway_with_another_clock_does_everything_once_and_says_so(
    tmp_path: Path, postgres_server: PostgresServer, seconds: int
) -> None:
    url = postgres_server.create_database()
    app.open_store(url, clock=SystemClock()).close()
    move_clock(url, seconds=seconds)

    with gateway_home(tmp_path / "home", settings=SETTINGS, store=url) as one:
        boot = one.until_ready()["bootId"]
        for number in range(3):
            one.ask(
                "chat.send", sessionKey=f"agent:gardener:s{number}", message="dig", idempotencyKey=f"{number}"
            )
        one.wait_for(one.is_quiet, "not everybody is answered")
        assert round(-skew_in_metrics(one)) == seconds
        said = one.log().count("this machine's clock is")
        one.kill_gateway()
        one.until_ready(unless_boot=boot)
        assert one.stop() == 0

    assert said == 1
    assert "given back" not in one.log()
    for number in range(3):
        beds = Counter(one.world(f"agent-gardener-s{number}"))
        assert (len(beds), set(beds.values())) == (STEPS, {1})
    with opened_ledger(one) as store:
        events = store.read_now(lambda tx: tx.events.after("0.0"))
        assert Counter(event.kind for event in events)[EventKind.RUN_CLAIMED] == 3
        assert_ledger_is_whole(store)
