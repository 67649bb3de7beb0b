"""A real gateway restarts in the middle of a firing: the operator sees in the shell that it is a retry."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home

pytestmark = pytest.mark.slow

# A gateway is ready by the first, unless the machine is very busy; a running one has looked by the second.
SOON, LATER = timedelta(seconds=4), timedelta(seconds=45)


def schedule(after: timedelta) -> dict[str, Any]:
    at = datetime.now(UTC) + after  # noqa: TID251 - a real one
    cron = f"{at.second} {at.minute} {at.hour} * * *"
    return {"night": {"cron": cron, "agent": "behaves", "prompt": "water"}}


def wait_until_it_fires(one: GatewayHome) -> None:
    """A gateway that came too late has the schedule due in a day: then it is written anew."""
    give_up_at = time.monotonic() + 3 * SOON.total_seconds()
    while one.world("begun") != ["water"] and time.monotonic() < give_up_at:
        time.sleep(0.05)
    if one.world("begun") != ["water"]:
        one.settings["schedules"] = schedule(LATER)
        one.save_settings()
        one.wait_for(lambda: one.world("begun") == ["water"], "it does not fire", patience_s=120.0)


def shown(one: GatewayHome, *arguments: str, as_json: bool = True) -> Any:
    done = Cli(one)(*arguments, *(["--json"] if as_json else []))
    assert done.status == 0, done.err
    return done.json if as_json else done.out


@pytest.mark.parametrize("is_killed", [False, True], ids=["restart", "crash"])
def test_a_firing_that_a_restart_interrupted_is_shown_as_a_retry(tmp_path: Path, is_killed: bool) -> None:
    agents = {"behaves": {"callable": "tests.gateway.hostile_agents:behaves"}}
    settings = {"agents": agents, "schedules": schedule(SOON)}
    with gateway_home(tmp_path / "home", settings=settings) as one:
        boot = one.until_ready()["bootId"]
        wait_until_it_fires(one)
        if is_killed:
            one.kill_gateway()
        else:
            one.restart_by_rpc()
        one.until_ready(unless_boot=boot)
        one.open_door("mended")
        one.wait_for(lambda: one.is_quiet(), "it was not answered")

        (task,) = shown(one, "tasks", "list")["tasks"]
        detail = shown(one, "tasks", "show", task["id"])
        firing = detail["firing"]
        assert [run["status"] for run in detail["runs"]] == ["resumed", "succeeded"]
        assert (firing["schedule"], firing["status"], firing["isRetry"]) == ("night", "done", True)
        assert "retried after an interruption" in shown(one, "tasks", "show", task["id"], as_json=False)
        (restart,) = shown(one, "gateway", "restarts")["restarts"]
        assert [(found["fate"], found["isRetry"]) for found in restart["interrupted"]] == [("resumed", True)]
        assert "resumed, retry" in shown(one, "gateway", "restarts", as_json=False)
        (rpc,) = one.ask("gateway.restarts")["restarts"]
        assert rpc["interrupted"] == restart["interrupted"]
        manifest = json.loads((one.home / "restart-manifest.json").read_text()) if not is_killed else None
        if manifest is not None:
            assert [run["jobId"] for run in manifest["activeCronRuns"]] == ["night"]
        assert one.stop() == 0
    assert one.world("planted") == ["water before", "water after"]
