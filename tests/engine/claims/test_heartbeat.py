"""A sign of life for each claim: renewed while it is held, told once when it is lost."""

from __future__ import annotations

from holdfast.core.claim import Claim
from holdfast.engine.claims.heartbeat import BEATS_PER_LEASE, Heartbeat
from holdfast.testing import FakeClock
from tests.engine.parts import Parts


class HeartbeatNews:
    """What a heartbeat told, in order."""

    def __init__(self) -> None:
        self.lost: list[Claim] = []
        self.cancelled: list[Claim] = []


def a_heartbeat(parts: Parts) -> tuple[Heartbeat, HeartbeatNews]:
    told = HeartbeatNews()
    return Heartbeat(parts.claims, on_lost=told.lost.append, on_cancelled=told.cancelled.append), told


async def test_a_claim_that_is_renewed_outlives_many_leases(parts: Parts, clock: FakeClock) -> None:
    await parts.create()
    (claimed,) = await parts.claims.take()
    heartbeat, told = a_heartbeat(parts)
    heartbeat.hold(claimed.claim)

    for _ in range(5):
        clock.advance(seconds=20)
        await heartbeat.run_once()
        await parts.rescuer.rescue()

    assert told.lost == []
    assert (await parts.ledger.finish(heartbeat.newest(claimed.claim))).task.has_ended


async def test_a_claim_that_was_rescued_meanwhile_is_told_as_lost_once(
    parts: Parts, clock: FakeClock
) -> None:
    await parts.create()
    (claimed,) = await parts.claims.take()
    heartbeat, told = a_heartbeat(parts)
    heartbeat.hold(claimed.claim)
    clock.advance(seconds=31)
    await parts.rescuer.rescue()

    await heartbeat.run_once()
    await heartbeat.run_once()

    assert [claim.run_id for claim in told.lost] == [claimed.claim.run_id]


async def test_a_claim_that_was_let_go_is_renewed_no_more(parts: Parts, clock: FakeClock) -> None:
    await parts.create()
    (claimed,) = await parts.claims.take()
    heartbeat, told = a_heartbeat(parts)
    heartbeat.hold(claimed.claim)
    heartbeat.let_go(claimed.claim)
    heartbeat.let_go(claimed.claim)

    clock.advance(seconds=31)
    renewed = await heartbeat.run_once()

    assert renewed.held == ()
    assert (await parts.rescuer.rescue()).checkpointed == 1
    assert told.lost == []


async def test_a_holder_hears_that_its_task_is_to_end(parts: Parts) -> None:
    task = await parts.create()
    (claimed,) = await parts.claims.take()
    heartbeat, told = a_heartbeat(parts)
    heartbeat.hold(claimed.claim)
    await parts.ledger.cancel(task.id, reason="not needed any more")

    await heartbeat.run_once()

    assert [claim.task_id for claim in told.cancelled] == [task.id]


async def test_a_heart_beats_several_times_in_a_lease(parts: Parts) -> None:
    heartbeat, _ = a_heartbeat(parts)

    assert heartbeat.every_s * BEATS_PER_LEASE == 30
