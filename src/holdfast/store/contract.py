"""Store, Statements and Write: what a backend must provide, and the shape of every write.

A write is a synchronous function of a transaction. It runs on one thread, without await and without I/O other
than `tx`. The caller makes its ids, tokens and times beforehand, so the write is idempotent: if the
acknowledgement of its commit was lost, it runs again and gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from holdfast.core.clock import Clock
    from holdfast.store.dashboard_views import ViewReport
    from holdfast.store.expected_schema import Index
    from holdfast.store.sealing import Sealing
    from holdfast.store.transaction import Tx

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A row as the driver returns it, in the order of the columns; only store/rows/ reads its columns.
Row: TypeAlias = Sequence[Any]
Params: TypeAlias = Mapping[str, object]


# Executes a program's own statement, with values for its `:name` parameters.
Execute: TypeAlias = "Callable[[str, Params | None], list[Row]]"

# What callers pass to `Store.write`.
Write: TypeAlias = "Callable[[Tx], T]"


class Busy(Exception):
    """The write would block the event loop too long: another process is writing, or the write is large."""


class JoinedWrite(Protocol[T_co]):
    """A write that is a single guarded statement when it is alone, so that it needs no transaction.

    Why: it saves BEGIN, COMMIT and their calls. On PostgreSQL these are round trips:
    `python -m bench --quick --only "PostgreSQL: one run"`, plain steps: 0.75 of a raw commit with it and 0.50
    without; effects: 0.31 and 0.23.

    It writes no events and no counts, and notifies no topic.
    """

    is_joined: ClassVar[bool]
    # Its answer when the statement changed its row, as it nearly always does. If not, call it to learn why.
    when_done: ClassVar[Any]
    # The name of a query, and its values in the order of rows.IN_ORDER.
    statement: str
    row: Row
    # Whether many writes of this kind can be one batch, which is faster (see GroupRunner). Otherwise they
    # share a transaction with the other writes in the queue.
    is_crowd: ClassVar[bool]

    def __call__(self, tx: Tx, /) -> T_co: ...

    @staticmethod
    def together(tx: Tx, writes: Sequence[Any], /) -> Sequence[Any]:
        """The answers of a batch, in order; an exception among them is the answer of that write.

        If this raises, run each write alone: none of their answers is known.
        """
        ...


class Statements(Protocol):
    """Named queries on one connection, inside its current transaction."""

    def one(self, query: str, params: Params, /) -> Row | None: ...

    def all(self, query: str, params: Params, /) -> list[Row]: ...

    def run(self, query: str, params: Params, /) -> None: ...

    def many(self, query: str, rows: Iterable[Params], /) -> None: ...

    def guarded(self, query: str, row: Row, /) -> bool:
        """Run a statement of rows.IN_ORDER, which has its own guard; True if it changed its row."""
        ...

    def save_steps(self, rows: Sequence[Row], /) -> list[bool]:
        """Save those steps (each as for `save_step`) whose run is still held with the given fence.

        Returns for each whether it was saved now, or raises if each must be saved alone. It is the one bulk
        write that each database does in its own fastest way.
        """
        ...

    def pack(self, values: Sequence[str], /) -> object:
        """A list as the value of a `:name[]` parameter."""
        ...

    def lend(self, act: Callable[[Execute], T], /) -> T:
        """Call a program's own function, which may execute statements on its own tables; returns its result.

        The function cannot access the ledger's tables or control the transaction. Raises what the function
        raised, SqlFailed if the database refused a statement, BadInput for a statement that is not allowed.
        """
        ...


class Store(Protocol):
    """Durable memory: a write either happened or raised, and a read sees what was committed."""

    @property
    def clock(self) -> Clock:
        """The one clock of this ledger: compare moments in the ledger only with its time."""
        ...

    @property
    def sealing(self) -> Sealing:
        """Seals values of rows that are built before their transaction begins."""
        ...

    async def write(self, write: Write[T]) -> T:
        """Run it in a transaction; return after the commit is durable.

        Raises what the write raised (nothing changed), or StoreUnavailable (nothing was acknowledged; it is
        safe to retry). Writes that wait at the same time share one commit.
        """
        ...

    def write_now(self, write: Write[T]) -> T:
        """The same for a caller without an event loop; blocks."""
        ...

    async def read(self, read: Callable[[Tx], T]) -> T:
        """Run it on a snapshot of what was committed."""
        ...

    def read_now(self, read: Callable[[Tx], T]) -> T: ...

    async def wait_for(self, topic: str, timeout_s: float) -> bool:
        """Wait until a topic is notified. A notification is only a hint: it may come early, late or never."""
        ...

    def backup(self, target: str) -> None:
        """Copy the whole ledger while it is in use."""
        ...

    def verify(self) -> list[str]:
        """What is wrong with the database, in sentences; empty when nothing is."""
        ...

    def held_why(self) -> str | None:
        """Why resumes are held (the database is older than its mark), or None."""
        ...

    def accept(self) -> None:
        """Release held resumes: an operator accepts the database as it is."""
        ...

    def close(self) -> None:
        """Finish the queued writes, then close. It is safe to call twice."""
        ...


class Reader(Protocol):
    """Read-only access to a ledger that other processes may be writing."""

    @property
    def clock(self) -> Clock:
        """The one clock of this ledger."""
        ...

    def read_now(self, read: Callable[[Tx], T]) -> T:
        """Run it on a snapshot of what was committed."""
        ...

    def applied_migrations(self) -> Sequence[tuple[int, str]]:
        """Number and digest of each migration that the database has."""
        ...

    def missing_indexes(self) -> list[Index]:
        """The indexes that the migrations of the database created and that are missing now."""
        ...

    def views(self) -> ViewReport:
        """Which SQL views for dashboards it has under which names, and which are missing."""
        ...

    def held_why(self) -> str | None:
        """Why resumes are held, or the next gateway would hold them; None when they are not."""
        ...

    def verify(self, *, on_rows: Callable[[int], None] = ...) -> list[str]:
        """What is wrong with the database, in sentences; `on_rows` reports progress."""
        ...

    def backup(self, target: str, *, on_pages: Callable[[int, int], None] = ...) -> None:
        """Copy the whole ledger while it is in use; `on_pages` reports progress."""
        ...

    def facts(self) -> dict[str, object]:
        """What the database reports about itself, for operators."""
        ...

    def close(self) -> None: ...
