"""The agents of two gateways on one ledger: what they do is a row in the ledger's own database, so that only
the fence decides whether a late one counts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import holdfast as hf
from holdfast.core.message import Envelope

BEDS = 3
# A person who says this is answered when the gate is open.
WAITS = "wait"


def gate() -> Path:
    return Path(os.environ["GATE_FILE"])


@hf.transactional
def sow(tx: hf.Transaction, message_id: str, bed: str) -> None:
    tx.execute(
        "INSERT INTO sown (message_id, bed) VALUES (:message, :bed)", {"message": message_id, "bed": bed}
    )


def stand_at_the_gate() -> None:
    """In a thread, which cannot be cancelled: it goes on when its process wakes, however late that is."""
    while not gate().exists():
        time.sleep(0.02)


@hf.task
async def sower(run: hf.Run, message: Envelope) -> str:
    beds = run.list("beds")
    async for item in run.plan([f"bed-{number}" for number in range(BEDS)]):
        if message.text.startswith(WAITS) and item.id != "bed-0":
            await item.step(stand_at_the_gate)
        await item.step(sow, message.id, item.id)
        beds.append(item.id)
    return f"{message.text}: {len(beds)} beds"


def sprout() -> str:
    return "begun"


@hf.task
async def seedling(run: hf.Run) -> str:
    """Grows when the gate is open."""
    await run.step(sprout)
    await run.step(stand_at_the_gate)
    return "grown"


@hf.task
async def guardian(run: hf.Run, message: Envelope) -> str:
    """Has a child, and says what it was told of it besides its result."""
    result = await (await run.spawn(seedling()))
    told = await run.receive("holdfast.children", timeout="1m", default=None)
    more = await run.receive("holdfast.children", timeout="1s", default=None)
    return f"{message.text}: {result}, told {told is not None}, again {more is not None}"
