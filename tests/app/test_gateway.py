"""What the gateway's process wires together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import app
from holdfast.app.gateway import build_gateway
from holdfast.app.startup import prepare
from holdfast.config import read_settings
from holdfast.engine.aio.service import Service
from holdfast.engine.ledger.retention import Pruner
from holdfast.gateway import gateway
from holdfast.gateway.supervisor_protocol import Supervised
from holdfast.schedule.cron import Cron
from holdfast.tools.receipt_cleanup import ReceiptPruner


async def test_whatever_deletes_or_fires_goes_by_one_watch_over_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired: list[Service] = []

    class Recorded(gateway.Gateway):
        def __init__(self, *parts: object, services: list[Service], **options: object) -> None:
            wired.extend(services)
            super().__init__(*parts, services=services, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(gateway, "Gateway", Recorded)
    settings = read_settings({}, home=str(tmp_path), store="memory:")
    reads, writes = os.pipe()
    supervised = Supervised(tcp_fds=[], unix_fd=None, life_fd=reads, tell_fd=writes)

    async with app.open_parts(settings) as parts:
        build_gateway(prepare(settings, {}), parts, supervised, trial_command=())

    os.close(reads)
    os.close(writes)
    watches = [one._watch for one in wired if isinstance(one, (Cron, Pruner, ReceiptPruner))]
    assert len(watches) == 3
    assert watches[0] is not None
    assert len({id(one) for one in watches}) == 1
