"""Which asyncio task runs now: every step and every write asks, so without a frame of Python around it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 12):  # there it is written in C
    current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None] = asyncio.current_task
else:
    from asyncio.tasks import _current_tasks  # type: ignore[attr-defined]

    current_task = _current_tasks.get
