"""Which loop runs in this thread, and which asyncio task in it: every step and every write asks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

_Loop = asyncio.AbstractEventLoop
_Task = asyncio.Task[Any]

if sys.version_info >= (3, 12):  # there it is written in C
    current_task: Callable[[_Loop], _Task | None] = asyncio.current_task

    def running() -> tuple[_Loop, _Task | None]:
        loop = asyncio.get_running_loop()
        return loop, current_task(loop)

else:
    from asyncio.tasks import _current_tasks  # type: ignore[attr-defined]

    current_task = _current_tasks.get
    # One tuple, so that no thread sees the half of what another has found out.
    _last: tuple[int, _Loop] | None = None

    def running() -> tuple[_Loop, _Task | None]:
        # asyncio asks the kernel each time whether this is still the same process. A loop that has a task at
        # work, and was seen in this thread, is the one that runs here.
        global _last
        last = _last
        if last is not None and last[0] == get_ident():
            loop = last[1]
            if (task := current_task(loop)) is not None:
                return loop, task
        loop = asyncio.get_running_loop()
        _last = (get_ident(), loop)
        return loop, current_task(loop)
