"""StartedWorkerView: a worker process that has begun to work."""

from __future__ import annotations

import msgspec


class StartedWorkerView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a worker prints when everything that was left in flight is resumed."""

    boot_id: str
    pid: int
    host: str
    # Without a password.
    store: str
    tasks: list[str]
    capacity: int
