"""A flow of config/workflows.yaml in real gateways: a restart, a kill and a second one run no node twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import GatewayHome, gateway_home, opened_ledger
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

LEASE = timedelta(seconds=6)
# As many as two gateways carry at once, and twice as many as one does.
WAITERS = ["w1", "w2", "w3", "w4"]
NODES = ["first", *WAITERS, "last"]
SETTINGS = {
    "tasks": ["tests.gateway.flow_tasks:note"],
    "policies": {"concurrency": {"gateway": len(WAITERS) // 2}},
    # The nodes wait in threads, which a drain cannot interrupt.
    "gateway": {"restart": {"drainTimeoutS": 0.5}},
}
NOTE = "task: 'tests.gateway.flow_tasks:note'"
RELEASE = "\n".join(
    [
        "release:",
        "  nodes:",
        f"    first: {{{NOTE}, args: {{word: first}}}}",
        *(f"    {one}: {{{NOTE}, args: {{word: {one}, waits: true}}, needs: [first]}}" for one in WAITERS),
        f"    last: {{{NOTE}, args: {{word: {{from: w1}}}}, needs: [{', '.join(WAITERS)}]}}",
    ]
)


def in_home(home: Path) -> Path:
    (home / "config").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "config" / "workflows.yaml").write_text(RELEASE)
    return home


def started(one: GatewayHome) -> str:
    """The id of the flow; the same key finds the first one."""
    first, again = (one.ask("flows.start", name="release", key="r1") for _ in range(2))
    assert (first["isNew"], again["isNew"], first["flow"]["id"]) == (True, False, again["flow"]["id"])
    return str(first["flow"]["id"])


def waiting(one: GatewayHome) -> dict[str, str]:
    """The process that carries each waiting node now."""
    return dict(line.split() for line in one.world("waiting"))


def assert_each_node_once(one: GatewayHome, flow_id: str) -> None:
    def has_ended() -> bool:
        return bool(one.ask("flows.get", flowId=flow_id)["flow"]["status"] == "succeeded")

    one.wait_for(has_ended, "the flow has not ended")
    nodes: list[Any] = one.ask("flows.nodes", flowId=flow_id)["nodes"]
    assert [node["status"] for node in nodes] == ["succeeded"] * len(NODES)
    assert len(one.ask("flows.tasks", flowId=flow_id)["tasks"]) == len(NODES)
    # `last` notes the result of w1.
    assert sorted(one.world("noted")) == sorted(["first", *WAITERS, "w1"])


@pytest.mark.parametrize("interrupt", [GatewayHome.restart_by_rpc, GatewayHome.kill_gateway])
def test_a_flow_goes_on_after_its_gateway_was_interrupted(
    tmp_path: Path, interrupt: Callable[[GatewayHome], None]
) -> None:
    with gateway_home(in_home(tmp_path / "home"), settings=SETTINGS) as one:
        boot = one.until_ready()["bootId"]
        flow_id = started(one)
        one.wait_for(lambda: len(waiting(one)) == len(WAITERS) // 2, "no node waits")
        interrupt(one)
        one.until_ready(unless_boot=boot)
        one.open_door("flow")

        assert_each_node_once(one, flow_id)
        assert one.stop() == 0
    with opened_ledger(one) as store:
        assert_ledger_is_whole(store)


def test_two_gateways_advance_one_flow_although_one_is_killed(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    url, world = postgres_server.create_database(), tmp_path / "world"
    homes = [in_home(tmp_path / name) for name in ("a", "b")]
    with (
        gateway_home(homes[0], settings=SETTINGS, store=url, world=world, lease=LEASE) as one,
        gateway_home(homes[1], settings=SETTINGS, store=url, world=world, lease=LEASE) as other,
    ):
        boot = one.until_ready()["bootId"]
        other.until_ready()
        flow_id = started(one)
        one.wait_for(lambda: len(waiting(one)) == len(WAITERS), "not all nodes wait")
        carriers = {int(pid) for pid in waiting(one).values()}
        assert len(carriers) == 2, "one gateway carries at most half of them"
        one.kill_gateway()
        one.until_ready(unless_boot=boot)
        one.open_door("flow")

        assert_each_node_once(other, flow_id)
        assert (one.stop(), other.stop()) == (0, 0)
    with opened_ledger(one) as store:
        assert_ledger_is_whole(store)
