"""Stores for tests: in memory, one that crashes at chosen points, and one that runs every write twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError
from holdfast.store.contract import Execute, Params, Row, Statements, Store, Write
from holdfast.store.sealing import Sealing
from holdfast.store.sqlite import SqliteStore
from holdfast.store.transaction import Tx
from holdfast.store.verify import scan
from holdfast.testing.clocks import FakeClock

T = TypeVar("T")

Where = Literal["before", "inside", "after"]


def memory_store(clock: Clock | None = None) -> SqliteStore:
    """SQLite in memory, behind the same contract as a ledger on disk."""
    return SqliteStore(None, clock=FakeClock() if clock is None else clock)


class Crashed(BaseException):
    """The simulated process is dead. A BaseException, so that no `except Exception` swallows it."""


class Failpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point where a process can die: in its n-th write.

    `before`: nothing was written. `inside`: after the k-th statement, in the open transaction, so that the
    whole write must be rolled back. `after`: it was committed, but its caller got no answer.
    """

    call: int
    where: Where
    statement: int = 0

    def __str__(self) -> str:
        within = f" statement {self.statement}" if self.where == "inside" else ""
        return f"{self.where}{within} of call {self.call}"


class RecordedWrite(msgspec.Struct, kw_only=True):
    """One recorded write: its name, and how many statements it ran inside its transaction."""

    number: int
    name: str
    statements: int = 0

    def failpoints(self) -> list[Failpoint]:
        """Every point in this write where a process can die."""
        inside = [
            Failpoint(call=self.number, where="inside", statement=place)
            for place in range(1, self.statements + 1)
        ]
        return [
            Failpoint(call=self.number, where="before"),
            *inside,
            Failpoint(call=self.number, where="after"),
        ]


def crash() -> NoReturn:
    """The default action at a failpoint."""
    raise Crashed


class WrappingStore:
    """Base of stores that wrap another one; a subclass overrides what it changes."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def clock(self) -> Clock:
        return self.inner.clock

    @property
    def sealing(self) -> Sealing:
        return self.inner.sealing

    def _pass(self) -> None:
        """Called before and after each call to the wrapped store."""

    async def write(self, write: Write[T]) -> T:
        raise NotImplementedError

    def write_now(self, write: Write[T]) -> T:
        raise NotImplementedError

    async def read(self, read: Callable[[Tx], T]) -> T:
        self._pass()
        answer = await self.inner.read(read)
        self._pass()
        return answer

    def read_now(self, read: Callable[[Tx], T]) -> T:
        self._pass()
        answer = self.inner.read_now(read)
        self._pass()
        return answer

    async def wait_for(self, topic: str, timeout_s: float) -> bool:
        self._pass()
        answer = await self.inner.wait_for(topic, timeout_s)
        self._pass()
        return answer

    def backup(self, target: str) -> None:
        self._pass()
        self.inner.backup(target)

    def verify(self) -> list[str]:
        self._pass()
        return self.inner.verify()

    def held_why(self) -> str | None:
        self._pass()
        return self.inner.held_why()

    def accept(self) -> None:
        self._pass()
        self.inner.accept()

    def close(self) -> None:
        self.inner.close()


class FailingStore(WrappingStore):
    """A store that simulates the death of its process, or any other action, at chosen points of a scenario.

    With an empty plan it only records: run the scenario once, then once for each of `failpoints()`, each time
    with its own store and plan. For pairs, also record the process that follows each death, and let it die at
    each of its own points.

    `act` is called at every planned point. If it raises (`crash`), the write is undone if the point demands
    it, its caller gets `Crashed`, and so does every later call to this store; `inner` stays usable for the
    next process. If it returns, the scenario goes on: so it can also kill (`os.kill(os.getpid(), SIGKILL)`)
    or let another process interfere.
    """

    def __init__(
        self, inner: Store, plan: Iterable[Failpoint] = (), *, act: Callable[[], object] = crash
    ) -> None:
        super().__init__(inner)
        self.calls: list[RecordedWrite] = []
        self._plan = frozenset(plan)
        self._act = act
        self._died_at: Failpoint | None = None
        self._lock = threading.Lock()

    @property
    def is_dead(self) -> bool:
        return self._died_at is not None

    def failpoints(self) -> list[Failpoint]:
        """Every point of the recorded writes, in order."""
        return [point for call in self.calls for point in call.failpoints()]

    async def write(self, write: Write[T]) -> T:
        call = self._begin(write)
        try:
            answer = await self.inner.write(self._watched(write, call))
        except _Stopped:
            self._pass()
            raise
        self._end(call)
        return answer

    def write_now(self, write: Write[T]) -> T:
        call = self._begin(write)
        try:
            answer = self.inner.write_now(self._watched(write, call))
        except _Stopped:
            self._pass()
            raise
        self._end(call)
        return answer

    def close(self) -> None:
        """Close the wrapped store, unless the process is dead: a dead process closes nothing."""
        if not self.is_dead:
            self.inner.close()

    def _begin(self, write: Write[Any]) -> RecordedWrite:
        self._pass()
        with self._lock:
            call = RecordedWrite(number=len(self.calls) + 1, name=name_of(write))
            self.calls.append(call)
        self._reach(Failpoint(call=call.number, where="before"))
        return call

    def _watched(self, write: Write[T], call: RecordedWrite) -> Write[T]:
        # Wrap the write only if the plan has a point inside it: a wrapped one cannot join others in a batch.
        if self._plan and not any(p.call == call.number and p.where == "inside" for p in self._plan):
            return write
        return _Watched(write, call, self)

    def _end(self, call: RecordedWrite) -> None:
        self._pass()  # raises if another call died meanwhile: a dead process gives no answer
        self._reach(Failpoint(call=call.number, where="after"))

    def _reach(self, point: Failpoint) -> None:
        if point in self._plan:
            try:
                self._act()
            except BaseException as error:
                self._died_at = point
                raise Crashed(str(point)) from error

    def _pass(self) -> None:
        if self._died_at is not None:
            raise Crashed(str(self._died_at))


class _Stopped(Exception):
    """Ends a transaction from inside. Not a BaseException: the writer's thread must survive the crash."""


class _Watched:
    """A write whose statements are counted, and that can crash after each of them."""

    def __init__(self, write: Write[Any], call: RecordedWrite, store: FailingStore) -> None:
        self._write = write
        self._call = call
        self._store = store

    def __call__(self, tx: Tx) -> Any:
        self._call.statements = 0  # the writer may run it again
        self._refuse_when_dead()
        answer = self._write(tx.seen_through(_CountingStatements(tx.statements, self._ran)))
        self._refuse_when_dead()  # the write may have swallowed what stopped it
        return answer

    def _ran(self) -> None:
        self._refuse_when_dead()
        self._call.statements += 1
        point = Failpoint(call=self._call.number, where="inside", statement=self._call.statements)
        try:
            self._store._reach(point)  # noqa: SLF001 - its other half
        except Crashed as error:
            raise _Stopped(str(point)) from error

    def _refuse_when_dead(self) -> None:
        if self._store.is_dead:
            raise _Stopped


class _CountingStatements:
    """Statements with a callback after each."""

    def __init__(self, statements: Statements, ran: Callable[[], None]) -> None:
        self._statements = statements
        self._ran = ran

    def one(self, query: str, params: Params) -> Row | None:
        answer = self._statements.one(query, params)
        self._ran()
        return answer

    def all(self, query: str, params: Params) -> list[Row]:
        answer = self._statements.all(query, params)
        self._ran()
        return answer

    def run(self, query: str, params: Params) -> None:
        self._statements.run(query, params)
        self._ran()

    def many(self, query: str, rows: Iterable[Params]) -> None:
        self._statements.many(query, rows)
        self._ran()

    def guarded(self, query: str, row: Row) -> bool:
        answer = self._statements.guarded(query, row)
        self._ran()
        return answer

    def save_steps(self, rows: Sequence[Row]) -> list[bool]:
        answer = self._statements.save_steps(rows)
        self._ran()
        return answer

    def pack(self, values: Sequence[str]) -> object:
        return self._statements.pack(values)

    def lend(self, act: Callable[[Execute], T]) -> T:
        def watched(execute: Execute) -> T:
            def counted(sql: str, params: Params | None) -> list[Row]:
                answer = execute(sql, params)
                self._ran()
                return answer

            return act(counted)

        return self._statements.lend(watched)


def name_of(write: Write[Any]) -> str:
    """The name of a write in the record: its function's qualified name, or its class."""
    return str(getattr(write, "__qualname__", type(write).__qualname__))


class RepeatingStore(WrappingStore):
    """Runs every write a second time after its own commit, like a caller that lost the answer.

    Raises AssertionError unless the second run gives the same answer and changes nothing: no row, no event,
    no count. Use it with one writer at a time, and with a clock that stands still.
    """

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        await self.inner.write(_Again(write, answer))
        return answer

    def write_now(self, write: Write[T]) -> T:
        answer = self.inner.write_now(write)
        self.inner.write_now(_Again(write, answer))
        return answer


class _Again:
    """The second run of a write, compared with the first."""

    def __init__(self, write: Write[Any], answer: object) -> None:
        self._write = write
        self._answer = answer

    def __call__(self, tx: Tx) -> None:
        name, before, mark = name_of(self._write), contents_of(tx), tx.mark()
        try:
            answer = self._write(tx)
        except HoldfastError as error:
            raise AssertionError(f"{name} raised when it ran again: {error!r}") from error
        # A write that joins a batch returns whether it was the first, so only its answer may differ.
        if answer != self._answer and not getattr(self._write, "is_joined", False):
            raise AssertionError(f"{name} answered {self._answer!r}, and then {answer!r}")
        if (*tx.mark()[:2], tx.mark()[3]) != (*mark[:2], mark[3]):
            raise AssertionError(f"{name} emitted events or counted again when it ran again")
        changed = [noun for noun, rows in contents_of(tx).items() if rows != before[noun]]
        if changed:
            raise AssertionError(f"{name} changed {', '.join(changed)} when it ran again")


def contents_of(tx: Tx) -> dict[str, object]:
    """Everything in the ledger, for comparison: rows by noun, counts, events, boots."""
    contents: dict[str, object] = {
        noun: [tuple(row) for row in scan(tx, noun, width)] for noun, width in _KEY_WIDTHS.items()
    }
    contents |= {
        f"count of {noun}s": tx.events.counts(noun) for noun in ("task", "run", "checkpoint", "flow")
    }
    return contents | {"events": tx.events.newest(limit=100_000), "boots": tx.boots.alive(limit=100_000)}


# How many columns the key of each noun has.
_KEY_WIDTHS = {
    "tasks": 1,
    "runs": 1,
    "steps": 4,
    "plans": 1,
    "artifacts": 2,
    "notes": 2,
    "loops": 2,
    "turns": 3,
    "kept_steps": 3,
    "list_deltas": 3,
    "values": 2,
    "imported_records": 3,
    "scope_ops": 2,
    "mail": 2,
    "questions": 1,
    "checkpoints": 1,
    "effects": 6,
    "deliveries": 1,
    "flows": 1,
    "flow_nodes": 2,
    "sessions": 1,
    "messages": 1,
    "firings": 1,
    "wakes": 1,
    "schedules": 1,
    "restarts": 1,
    "recorded_tasks": 1,
    "blobs": 1,
}
