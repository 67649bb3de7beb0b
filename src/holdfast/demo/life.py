"""One life of the demo's process: rescues, resumes, and carries every run that it can claim to its end.

`python -m holdfast.demo.life OWNER CREATE` with the settings in the environment; on stdout it tells how far
it is, by one line of JSON after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import Callable

import msgspec

from holdfast.app import Parts, Settings, open_parts, read_settings
from holdfast.core.checkpoint import decode_seed
from holdfast.core.claim import Claim
from holdfast.core.plan import Plan, plan_of
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.ledger.ledger import NewTask

TASK_NAME = "demo"
STEPS = ("read", "outline", "draft", "check", "revise", "publish")
# Before a step begins, one of this scope says so: an intent, by which the proof sees what was begun twice.
BEGUN = "begun"
LONGEST_STEP_S = 0.5
CREATED_AT_ONCE = 500
TAKEN_AT_ONCE = 500
RENEW_EVERY_S = 10.0


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the process says about itself while it lives."""

    what: str
    number: int = 0


Tell = Callable[[Told], None]


async def live(settings: Settings, *, owner: str, create: int, tell: Tell) -> None:
    """Begin a life, bring back what an earlier one left, and work until nothing is left to claim."""
    async with open_parts(settings, role=TASK_NAME, names=[TASK_NAME]) as parts:
        await _create(parts, owner, create, tell)
        await parts.rescuer.rescue()
        resumed = await parts.resumer.resume_all()
        tell(Told(what="resumed", number=len(resumed.followed_up)))
        await _carry_all(parts, tell)


async def _create(parts: Parts, owner: str, number: int, tell: Tell) -> None:
    for first in range(0, number, CREATED_AT_ONCE):
        batch = range(first, min(first + CREATED_AT_ONCE, number))
        await parts.ledger.create_many(
            [
                NewTask(name=TASK_NAME, goal=f"write page {place + 1}", owner=owner, key=f"page-{place}")
                for place in batch
            ]
        )
        tell(Told(what="created", number=batch.stop))


async def _carry_all(parts: Parts, tell: Tell) -> None:
    held: dict[str, Claim] = {}
    async with asyncio.TaskGroup() as outer:
        renewing = outer.create_task(_renew(parts, held))
        async with asyncio.TaskGroup() as group:
            while taken := await parts.claims.take(TAKEN_AT_ONCE):
                for one in taken:
                    held[one.claim.run_id] = one.claim
                    group.create_task(_carry(parts, one, held, tell))
        renewing.cancel()


async def _renew(parts: Parts, held: dict[str, Claim]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await parts.claims.renew(list(held.values()))


async def _carry(parts: Parts, one: ClaimedRun, held: dict[str, Claim], tell: Tell) -> None:
    """Every step that is not done yet, in order; each is durable, with the plan, before the next begins."""
    plan = await _plan(parts, one)
    for item in plan.items:
        if item.is_done:
            continue
        await parts.journal.save_step(
            one.claim, item.id, os.getpid(), scope=BEGUN, occurrence=one.claim.run_id
        )
        await asyncio.sleep(random.uniform(0, LONGEST_STEP_S))  # noqa: S311 - the work itself
        plan = plan.complete(item.id)
        await parts.journal.save_step(one.claim, item.id, {"by": os.getpid()}, plan=plan)
        tell(Told(what="step"))
    await parts.ledger.finish(one.claim, {"steps": len(plan.items)})
    del held[one.claim.run_id]
    tell(Told(what="finished"))


async def _plan(parts: Parts, one: ClaimedRun) -> Plan:
    """A follow-up run is told where the work stands; a first run makes its plan."""
    if one.run.seed is not None:
        known = decode_seed(one.run.seed).plan
        if known is not None:
            return known
    plan = plan_of(*STEPS)
    await parts.journal.save_plan(one.claim, plan)
    return plan


def _print(told: Told) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)  # the parent is gone, and nobody is left to show anything to


def main() -> None:
    owner, create = sys.argv[1], int(sys.argv[2])
    asyncio.run(live(read_settings(os.environ), owner=owner, create=create, tell=_print))


if __name__ == "__main__":
    main()
