"""wakes.* over RPC: what is to be woken, what was, and a cancel."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast.engine.recovery.wakes import firing, pausing_until_wake
from tests.api.stand_in import READ_TOKEN, ServedDoors
from tests.engine.parts import Parts


async def _save(house: ServedDoors) -> tuple[str, str]:
    """A task that was saved, woken and saved again: its id, and that of its pending wake."""
    store, clock = house.gateway.store, house.gateway.clock
    parts = await Parts.begin(store, clock)
    claimed = await parts.carry(owner="operator")
    now = clock.now()
    await store.write(pausing_until_wake(claimed.claim, due_at=now, now=now))
    await store.write(firing(due_by=now, now=now))
    await parts.resumer.resume_all()
    (claimed,) = await parts.claims.take()
    now += timedelta(seconds=1)
    await store.write(
        pausing_until_wake(
            claimed.claim, due_at=now + timedelta(hours=1), now=now, own_reason="poll the build"
        )
    )
    (wake,) = (await store.read(lambda tx: tx.wakes.page(task_id=claimed.task.id)))[:1]
    return str(claimed.task.id), str(wake.id)


def test_wakes_are_listed_looked_back_on_and_cancelled(house: ServedDoors) -> None:
    task_id, wake_id = asyncio.run(_save(house))

    (listed,) = house.post("wakes.list", {}, token=READ_TOKEN).json()["wakes"]
    history = house.post("wakes.history", {"taskId": task_id}).json()
    shown = house.post("ledger.show", {"taskId": task_id}).json()
    refused = house.post("wakes.cancel", {"wakeId": wake_id}, token=READ_TOKEN)
    cancelled = house.post("wakes.cancel", {"wakeId": wake_id, "reason": "no disk"}).json()
    failed = house.post("ledger.show", {"taskId": task_id}).json()

    assert (listed["id"], listed["taskId"], listed["reason"]) == (wake_id, task_id, "poll the build")
    assert [one["status"] for one in history["wakes"]] == ["pending", "fired"]
    assert [one["resumedFromCheckpoint"] for one in history["reports"]] == [False, True]
    assert shown["resumePacket"]["checkpoint"] == listed["checkpointId"]
    assert refused.status_code == 403
    assert (cancelled["id"], cancelled["status"]) == (wake_id, "cancelled")
    assert failed["document"]["status"] == "failed"
    assert "no disk" in failed["document"]["errors"][0]
    assert house.post("wakes.list", {}).json()["wakes"] == []
    fired = history["wakes"][1]["id"]
    assert house.post("wakes.cancel", {"wakeId": fired}).status_code == 409
