"""Durable memory. Re-exports the contract; chooses no backend."""

from __future__ import annotations

from holdfast.store.contract import Store, Write
from holdfast.store.transaction import Tx

__all__ = ["Store", "Tx", "Write"]
