"""A gateway performs no effect of the classes that its policies name before a person approves it."""

from __future__ import annotations

from pathlib import Path

import holdfast as hf
from holdfast.config.policies import ApprovalPolicy, PolicySettings
from holdfast.config.sections import Config
from holdfast.core.transitions import TaskStatus
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.workers import soon, until
from tests.gateway.gateways import hosted


async def test_an_effect_waits_for_its_approval(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    paid: list[str] = []

    @hf.opaque
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    @hf.task
    async def pays(run: hf.Run) -> str:
        return await run.step(pay, "ann")

    config = Config(policies=PolicySettings(approval=ApprovalPolicy(effects=["opaque"])))
    async with hosted(store, clock, tmp_path / "home", pays, config=config):
        holdfast = hf.Holdfast(store, clock, {"pays": pays})
        handle = await holdfast.start(pays())
        await until(lambda: _status(store, handle.id) is TaskStatus.NEEDS_REVIEW)
        assert paid == []
        (effect,) = await holdfast.reviews()

        await holdfast.resolve(effect.id, "retry")

        assert await soon(handle.result()) == "paid ann"
        assert paid == ["ann"]


def _status(store: Store, task_id: str) -> TaskStatus:
    return store.read_now(lambda tx: tx.tasks.get(task_id)).status
