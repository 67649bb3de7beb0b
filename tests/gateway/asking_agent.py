"""An agent that asks before it answers."""

from __future__ import annotations

import holdfast as hf
from holdfast.core.message import Envelope


@hf.task
async def asker(run: hf.Run, message: Envelope) -> str:
    return f"{message.text}: {await run.ask('Which colour?')}"
