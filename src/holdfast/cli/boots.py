"""Boots for commands: which processes a ledger shows as running, and what this host can prove of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.views.health import BootView

if TYPE_CHECKING:
    from holdfast.cli.invocation import Invocation
    from holdfast.store.contract import Reader


def read_boots(call: Invocation, ledger: Reader) -> list[BootView]:
    """Boots that the ledger shows as running, and whether this host can prove that they are alive."""
    proofs = call.boot_proofs
    return [
        BootView.of(boot, is_alive=proofs.is_held(boot))
        for boot in ledger.read_now(lambda tx: tx.boots.alive())
    ]
