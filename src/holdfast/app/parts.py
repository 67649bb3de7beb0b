"""Parts: one boot on one open store, and the objects that claim, save, pause and resume runs for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.app import homes, stores
from holdfast.app.vaults import vault_of
from holdfast.config import Settings
from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import StoreUnavailable
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES

if TYPE_CHECKING:
    from holdfast.engine.claims.boots import Life
    from holdfast.engine.claims.claims import Claims
    from holdfast.engine.ledger.ledger import Ledger
    from holdfast.engine.recovery.checkpoints import Checkpoints
    from holdfast.engine.recovery.rescue import Rescuer
    from holdfast.engine.recovery.resume import Resumer
    from holdfast.store.contract import Store
    from holdfast.store.outer_keys import Given


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """One boot of one process, its store, and what works on it."""

    store: Store
    clock: Clock
    life: Life
    ledger: Ledger
    claims: Claims
    checkpoints: Checkpoints
    rescuer: Rescuer
    resumer: Resumer
    # Up to this size, in bytes, results of steps stay when their turn has committed.
    keep_results: int = KEEP_RESULTS_BYTES


@contextlib.asynccontextmanager
async def open_parts(
    settings: Settings,
    *,
    clock: Clock | None = None,
    role: str = "script",
    names: Sequence[str] | None = None,
    key: Given | None = None,
) -> AsyncIterator[Parts]:
    """Open the store, begin a boot in it and wire the parts; end the boot and close the store at the end.

    `names` are the tasks that this process can run; None means any. `key` is as for `open`.
    """
    from holdfast.engine.claims.boots import Life

    machine = SystemClock() if clock is None else clock
    store = stores.open_place(
        settings.store,
        clock=machine,
        vault=vault_of(settings, key=key),
        # A gateway must answer requests while its PostgreSQL server stalls.
        may_write_inline=role != "gateway",
    )
    try:
        # From here on use the ledger's clock: times that are compared in the ledger come from one clock.
        life = await Life.begin(
            store,
            store.clock,
            locks=homes.locks_of(settings),
            role=role,
            is_shared=stores.is_shared(settings),
            names=names,
        )
        try:
            parts = wire(store, store.clock, life, names=names)
            yield msgspec.structs.replace(parts, keep_results=settings.keep_results)
        finally:
            # If the store is away, the boot stays open; its lock proves to other processes that it is dead.
            with contextlib.suppress(StoreUnavailable):
                await life.end()
    finally:
        store.close()


def wire(store: Store, clock: Clock, life: Life, *, names: Sequence[str] | None = None) -> Parts:
    """The parts of one boot on one store."""
    from holdfast.engine.claims.claims import Claims
    from holdfast.engine.ledger.ledger import Ledger
    from holdfast.engine.recovery.checkpoints import Checkpoints
    from holdfast.engine.recovery.rescue import Rescuer
    from holdfast.engine.recovery.resume import Resumer

    return Parts(
        store=store,
        clock=clock,
        life=life,
        ledger=Ledger(store, clock),
        claims=Claims(store, clock, life.id, names=names),
        checkpoints=Checkpoints(store, clock),
        rescuer=Rescuer(store, clock, life),
        resumer=Resumer(store, clock, life.id),
    )
