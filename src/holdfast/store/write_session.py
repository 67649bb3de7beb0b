"""Session: one connection that can run transactions, as the writer uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.store.contract import JoinedWrite, Write
from holdfast.store.transaction import Tx

T = TypeVar("T")


class WriteSession(Protocol):
    """One connection that can run transactions."""

    tx: Tx

    def begin(self, *, may_wait: bool) -> None:
        """Raises Busy when it may not wait: for another process's transaction, for a server to answer."""
        ...

    def commit(self) -> None:
        """Durable when it returns. Raises CommitUnknown when the answer was lost."""
        ...

    def rollback(self) -> None:
        """Safe when no transaction is open."""
        ...

    def savepoint(self) -> None: ...

    def release(self) -> None: ...

    def rollback_to(self) -> None: ...

    def is_open(self) -> bool:
        """Whether the transaction still exists after an error."""
        ...

    def explain(self, error: Exception) -> Exception | None:
        """StoreUnavailable (or a finer error) for a failure of the database; None for the write's own."""
        ...

    def may_retry(self, error: Exception) -> bool:
        """Whether running the same write again at once may go better: a deadlock, a lost connection."""
        ...

    def alone(self, write: JoinedWrite[T], *, may_wait: bool) -> T:
        """Run a write of one statement without a transaction around it; durable when it returns."""
        ...

    def crowd(self, write: Write[T], *, may_wait: bool) -> T:
        """The same for a crowd of writes of one kind: all of them, or none."""
        ...

    def close(self) -> None: ...


class CommitUnknown(Exception):
    """The answer to a commit was lost. Any session can ask later whether it happened."""

    def __init__(self, ask: Callable[[Any], bool]) -> None:
        super().__init__("the answer to a commit was lost")
        self.ask = ask
        self.topics: set[str] = set()
