"""A program that kills its gateway until a person has mended the roof: its resume fails in the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import holdfast as hf

MENDED = "roof.mended"


def is_mended() -> bool:
    return Path(MENDED).exists()


@hf.task
async def thatch(run: hf.Run) -> str:
    if not is_mended():
        os.kill(os.getpid(), signal.SIGKILL)
    return "thatched"
