"""An agent that waits, asks or answers, as the message says."""

from __future__ import annotations

import holdfast as hf


@hf.task
async def patient(run: hf.Run, message: hf.Envelope) -> str:
    if message.text.startswith("wait"):
        await run.sleep("1h")
    if message.text.startswith("ask"):
        return f"painted it {await run.ask('which colour?', ['red', 'blue'])}"
    return f"you said {message.text}"
