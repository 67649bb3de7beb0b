"""A store that refuses writes while a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.store import Store, Write
from holdfast.testing import WrappingStore, name_of


class BrokenStore(WrappingStore):
    """A store that refuses writes of a name while it is told to."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.refuses: Callable[[str], bool] = lambda _name: False

    async def write(self, write: Write[Any]) -> Any:
        if self.refuses(name_of(write)):
            raise StoreUnavailable("the disk is full, says the test")
        return await self.inner.write(write)
