"""Alerts in a whole gateway: rules and addresses of the settings, a real receiver, and live changes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import app
from holdfast.alerts.watch import AlertWatch
from holdfast.app.gateway import build_gateway
from holdfast.app.startup import load_tasks, prepare
from holdfast.config import read_settings
from holdfast.config.files import load
from holdfast.config.sections import ALERT_CHANNEL
from holdfast.core.errors import SettingsError
from holdfast.delivery.outbox import Outbox
from holdfast.gateway import gateway
from holdfast.gateway.reload import Reload
from holdfast.gateway.supervisor_protocol import Supervised
from tests.channels.receiver import Receiver, json_places
from tests.config.homes import write

BUSY = {"name": "busy", "condition": "running_campaigns == 0"}
PROGRAM = """
import holdfast as hf

@hf.task
async def plain(run: hf.Run) -> None: ...

@hf.task(attempts=4)
async def stubborn(run: hf.Run) -> None: ...
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as receiver:
        yield receiver


class GatewayServices:
    """The services of a gateway over a ledger in memory."""

    def __init__(self, services: list[Any]) -> None:
        (self.watch,) = [one for one in services if isinstance(one, AlertWatch)]
        (self.outbox,) = [one for one in services if isinstance(one, Outbox)]
        (self.reload,) = [one for one in services if isinstance(one, Reload)]

    async def pass_once(self) -> None:
        await self.watch.run_once()
        await self.outbox.run_once()


@asynccontextmanager
async def built(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GatewayServices]:
    wired: list[Any] = []

    class Recorded(gateway.Gateway):
        def add_service(self, service: Any) -> None:
            wired.append(service)
            super().add_service(service)

    monkeypatch.setattr(gateway, "Gateway", Recorded)
    settings = read_settings({}, home=str(home), store="memory:")
    reads, writes = os.pipe()
    supervised = Supervised(tcp_fds=[], unix_fd=None, life_fd=reads, tell_fd=writes)
    try:
        async with app.open_parts(settings) as parts:
            build_gateway(prepare(settings, {}), parts, supervised, trial_command=())
            yield GatewayServices(wired)
    finally:
        os.close(reads)
        os.close(writes)


async def test_a_rule_of_the_settings_reaches_a_person_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    write(tmp_path, "config/alerts.yaml", {"alerts": [BUSY]})
    write(tmp_path, "holdfast.toml", {"gateway": {"alert_urls": json_places(receiver, "phone")}})

    async with built(tmp_path, monkeypatch) as parts:
        for _ in range(3):
            await parts.pass_once()

    (request,) = receiver.requests
    assert request.path == "/phone"
    assert request.json["message"].splitlines()[:2] == [
        "[warning] busy",
        "running_campaigns == 0 (running_campaigns is 0)",
    ]


async def test_a_plain_web_address_gets_the_notice_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    write(tmp_path, "config/alerts.yaml", {"alerts": [BUSY]})
    write(tmp_path, "holdfast.toml", {"gateway": {"alert_urls": [receiver.url]}})

    async with built(tmp_path, monkeypatch) as parts:
        await parts.pass_once()

    assert "[warning] busy" in receiver.requests[0].json["message"]


async def test_changed_rules_addresses_and_quiet_hours_apply_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    write(tmp_path, "config/alerts.yaml", "alerts: []")
    async with built(tmp_path, monkeypatch) as parts:
        await parts.reload.run_once()
        before = parts.watch.options
        write(tmp_path, "config/alerts.yaml", {"alerts": [BUSY]})
        write(tmp_path, "config/policies.yaml", {"quiet_hours": {"start": "22:00"}})
        settings = {
            "gateway": {"alert_urls": json_places(receiver, "phone")},
            "upkeep": {"alerts_every_s": 2.0},
        }
        write(tmp_path, "holdfast.toml", settings)
        changes = await parts.reload.run_once()

        assert changes.restart == []
        assert before.rules == ()
        assert [rule.name for rule in parts.watch.options.rules] == ["busy"]
        assert parts.watch.options.channels == (ALERT_CHANNEL,)
        assert parts.watch.options.quiet_hours is not None
        assert ALERT_CHANNEL in parts.outbox.channels
        assert parts.watch.every_s == 2.0


async def test_a_wrong_rule_leaves_the_rules_before_it_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "config/alerts.yaml", {"alerts": [BUSY]})
    async with built(tmp_path, monkeypatch) as parts:
        await parts.reload.run_once()
        write(tmp_path, "config/alerts.yaml", {"alerts": [BUSY | {"condition": "1 / 0 > running_tasks"}]})

        with pytest.raises(SettingsError, match=r"alerts\.busy\.condition"):
            await parts.reload.run_once()

        assert [rule.condition.text for rule in parts.watch.options.rules] == ["running_campaigns == 0"]


def test_the_policy_of_retries_is_the_default_of_tasks_that_name_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "retried_tasks.py", PROGRAM)
    write(tmp_path, "holdfast.toml", {"tasks": ["retried_tasks"], "agents": {"sage": {"command": ["true"]}}})
    write(tmp_path, "config/policies.yaml", {"retry": {"attempts": 2}})
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = read_settings({}, home=str(tmp_path), store="memory:")

    tasks = load_tasks(load(tmp_path, {}).config, settings)

    assert (tasks["plain"].attempts, tasks["stubborn"].attempts) == (2, 4)
    assert tasks["agent.sage"].attempts == 1
