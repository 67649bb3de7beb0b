"""gateway.recovery: what each step of a start found and did, also of one that was cut off."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from holdfast.api.contract import Caller, GatewayDoor
from holdfast.api.params import Params
from holdfast.store.transaction import Tx
from holdfast.views.starts import RecoveryView, StartView

EARLIER = 5


class StartAsked(Params, frozen=True, kw_only=True):
    """One start: of the boot with this id or prefix, else the newest, of any process or of one kind."""

    boot_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    role: Literal["gateway", "worker", "serve"] | None = None


def read_recovery(tx: Tx, asked: StartAsked) -> RecoveryView:
    """Raises NotFound for an id, and finds nothing on a ledger without any start."""
    if asked.boot_id is not None:
        newest = tx.starts.get(asked.boot_id)
    else:
        found = tx.starts.page(role=asked.role, limit=1)
        if not found:
            return RecoveryView(start=None)
        newest = found[0]
    before = tx.starts.page(role=asked.role, before=newest.boot_id, limit=EARLIER)
    earlier = [StartView.of(one) for one in before]
    return RecoveryView(
        start=StartView.of(newest),
        earlier=[msgspec.structs.replace(one, steps=[]) for one in earlier],
    )


async def recovery(gateway: GatewayDoor, asked: StartAsked, caller: Caller) -> RecoveryView:  # noqa: ARG001 - a method
    return await gateway.store.read(lambda tx: read_recovery(tx, asked))
