"""A program that kills its gateway until a person has mended the roof: its resume fails in the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import holdfast as hf

MENDED = "roof.mended"


@hf.task
async def thatch(run: hf.Run) -> str:
    if not Path(MENDED).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "thatched"
