"""Programs that wait at a gate until their test opens it."""

from __future__ import annotations

import asyncio

import holdfast as hf
from holdfast.core.task import Origin
from tests.engine.workers import until

ADA = Origin(channel="webhook", peer="ada", account_id="one")
KEY = "agent:main:main"


class WaitingPrograms:
    """What programs of a test did, and the gate that they wait at."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.open = asyncio.Event()
        # Whether it saves anything before it waits.
        self.saves = True

    def waiting(self, name: str = "waiting") -> hf.TaskDefinition[..., str]:
        """Does one step, waits for the gate in a second one, and does a third."""

        async def note(text: str) -> str:
            self.notes.append(text)
            return text

        async def wait() -> None:
            self.notes.append("entered")
            await self.open.wait()

        @hf.task(name=name)
        async def waiting(run: hf.Run, session_key: str = "", message_id: str = "", until: int = 0) -> str:
            if self.saves:
                await run.step(hf.step(note, id="before"), "before")
            await run.step(wait)
            return await run.step(hf.step(note, id="after"), "after")

        return waiting

    async def entered(self, times: int = 1) -> None:
        await until(lambda: self.notes.count("entered") == times)
