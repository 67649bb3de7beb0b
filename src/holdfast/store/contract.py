"""Store, Statements and Write: what a backend must provide, and the shape of every write.

A write is a synchronous function of a transaction. It is run whole on one thread: no await, no I/O but
`tx`. Its ids, tokens and times are made by the caller, so that running it again after its own commit
gives the same answer: that is how a commit whose acknowledgement was lost is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from holdfast.core.clock import Clock
    from holdfast.store.sealing import Sealing
    from holdfast.store.shape import Index
    from holdfast.store.transaction import Tx

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A row is what the driver returns, in the order of the columns; only store/rows/ takes it apart.
Row: TypeAlias = Sequence[Any]
Params: TypeAlias = Mapping[str, object]


# A statement of a program's own, with values for its `:name` parameters.
Execute: TypeAlias = "Callable[[str, Params | None], list[Row]]"

# What callers hand to `Store.write`.
Write: TypeAlias = "Callable[[Tx], T]"


class Busy(Exception):
    """It would take too long on an event loop's own thread: another process writes, or much is to be done."""


class JoinedWrite(Protocol[T_co]):
    """A write that is one guarded statement when it is alone, so that it needs no transaction around it.

    It tells nothing: no events, no counts, no hints.
    """

    is_joined: ClassVar[bool]
    # Its answer when the statement changed its row, as it nearly always does. If not, calling it tells why.
    when_done: ClassVar[Any]
    # A query's name, and its values in the order of rows.IN_ORDER.
    statement: str
    row: Row
    # Whether it is of a kind that comes in crowds: many of them become one statement where that is quicker.
    # Others share a transaction with everyone else who waits.
    is_crowd: ClassVar[bool]

    def __call__(self, tx: Tx, /) -> T_co: ...

    @staticmethod
    def together(tx: Tx, writes: Sequence[Any], /) -> Sequence[Any]:
        """The answers of a crowd, in order; an exception among them is the answer of that one.

        An exception that is raised means: nothing is known, run each alone.
        """
        ...


class Statements(Protocol):
    """Named queries on one connection, inside its present transaction."""

    def one(self, query: str, params: Params, /) -> Row | None: ...

    def all(self, query: str, params: Params, /) -> list[Row]: ...

    def run(self, query: str, params: Params, /) -> None: ...

    def many(self, query: str, rows: Iterable[Params], /) -> None: ...

    def guarded(self, query: str, row: Row, /) -> bool:
        """Run a statement of rows.IN_ORDER, which says itself when it may; whether it changed its row."""
        ...

    def save_steps(self, rows: Sequence[Row], /) -> list[bool]:
        """Save those steps (each as for `save_step`) whose run is still held with the fence that is said.

        Says of each whether it was saved now, or raises when only each alone can tell. The one bulk write
        that each database does in its own quickest way.
        """
        ...

    def pack(self, values: Sequence[str], /) -> object:
        """A list as the value of a `:name[]` parameter."""
        ...

    def lend(self, act: Callable[[Execute], T], /) -> T:
        """What a program's own function gives, which may say statements about its own tables meanwhile.

        The ledger's tables are hidden from it, and so is the transaction. Raises what the function raised;
        SqlFailed for a statement that the database refused, BadInput for one that is not a program's.
        """
        ...


class Store(Protocol):
    """Durable memory: writes that happened or raised, and reads of what was committed."""

    @property
    def clock(self) -> Clock:
        """The one clock of this ledger: whatever is compared with a moment in it comes from here."""
        ...

    @property
    def sealing(self) -> Sealing:
        """Seals values for rows that are made before their transaction begins."""
        ...

    async def write(self, write: Write[T]) -> T:
        """Run it in a transaction; return after the commit is durable.

        Raises what the write raised (nothing changed), or StoreUnavailable (nothing was acknowledged;
        it may be run again). Writes of callers that wait together share one commit.
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
        """Wait until somebody hints at a topic. Only a hint: it may come early, late or never."""
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
        """A person accepts the database as it is."""
        ...

    def close(self) -> None:
        """Finish what waits, then let go. Safe twice."""
        ...


class Reader(Protocol):
    """Someone who only looks at a ledger, beside whoever writes it."""

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
        """Those that the migrations of the database made, and that it has not any more."""
        ...

    def held_why(self) -> str | None:
        """Why resumes are held, or would be by the next gateway; None when they are not."""
        ...

    def verify(self, *, on_rows: Callable[[int], None] = ...) -> list[str]:
        """What is wrong with the database, in sentences; the caller may count the rows that were read."""
        ...

    def backup(self, target: str, *, on_pages: Callable[[int, int], None] = ...) -> None:
        """Copy the whole ledger while it is in use; the caller may watch how far it is."""
        ...

    def facts(self) -> dict[str, object]:
        """What the database says about itself, for whoever looks after it."""
        ...

    def close(self) -> None: ...
