"""What crosses turns: append-only lists and values, applied in memory at once and durable with the turn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Generic, NoReturn, TypeVar, cast

import msgspec

from holdfast.core.errors import BadInput, Drift
from holdfast.core.payload import decode_payload
from holdfast.core.scope import ListDelta, StoredValue
from holdfast.engine.codec import encode_value
from holdfast.engine.live import Live
from holdfast.engine.scopes import Past, Scope
from holdfast.store import Tx

T = TypeVar("T")

_EMPTY_CHAIN = bytes(16)


class DurableList(list[T]):
    """A list that only grows. What is appended is read back from its stored form at once, so that a program
    sees after a restart exactly what it saw before."""

    def __init__(self, log: ListLog) -> None:
        super().__init__()
        self._log = log

    def append(self, item: T) -> None:
        """Durable with the turn it is done in."""
        self._log.append(item)

    def extend(self, items: Iterable[T]) -> None:
        for item in items:
            self.append(item)

    def __iadd__(self, items: Iterable[T]) -> DurableList[T]:  # type: ignore[override, misc]
        self.extend(items)
        return self

    def __holdfast_digest__(self) -> str:
        """For the input of a step: name, length and rolling digest, so that a long list costs nothing."""
        return f"{self._log.name}:{len(self)}:{self._log.chain.hex()}"

    def _refuse(self, what: str) -> NoReturn:
        raise BadInput(
            f"list {self._log.name}",
            f"a durable list only grows, so {what} is not possible; append, or keep what changes in "
            "run.value(…), or work on a copy: list(…)",
        )

    def __setitem__(self, *_: Any) -> NoReturn:
        self._refuse("to replace an item")

    def __delitem__(self, *_: Any) -> NoReturn:
        self._refuse("to delete an item")

    def __imul__(self, *_: Any) -> NoReturn:  # type: ignore[misc]
        self._refuse("to multiply it")

    def insert(self, *_: Any) -> NoReturn:
        self._refuse("to insert")

    def pop(self, *_: Any) -> NoReturn:
        self._refuse("to pop")

    def remove(self, *_: Any) -> NoReturn:
        self._refuse("to remove")

    def clear(self) -> NoReturn:
        self._refuse("to clear it")

    def sort(self, **_: Any) -> NoReturn:
        self._refuse("to sort it")

    def reverse(self) -> NoReturn:
        self._refuse("to reverse it")


class ListLog:
    """What a durable list has had appended: how much of it is durable, and what is not yet."""

    def __init__(self, memory: Memory, name: str, of: Any) -> None:
        self.name = name
        self.chain = _EMPTY_CHAIN
        self.items: DurableList[Any] = DurableList(self)
        self._memory = memory
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(of).decode
        self._unsaved: list[bytes] = []
        self._saved = 0

    def append(self, item: object) -> None:
        if self._memory.begin_op():
            self.add(item)

    def add(self, item: object) -> None:
        encoded = encode_value(f"item {len(self.items)} of list {self.name}", item)
        self._put(encoded)
        self._unsaved.append(encoded)

    def load(self, delta: ListDelta) -> None:
        if delta.start != self._saved:
            raise Drift(f"list {self.name}", f"items from {self._saved} on are missing")
        for raw in msgspec.json.decode(delta.items, type=list[msgspec.Raw]):
            self._put(bytes(raw))
        self._saved = len(self.items)

    def take_delta(self, live: Live) -> ListDelta | None:
        if not self._unsaved:
            return None
        self._check_kept()
        return ListDelta(
            task_id=live.claim.task_id,
            name=self.name,
            start=self._saved,
            count=len(self._unsaved),
            items=b"[" + b",".join(self._unsaved) + b"]",
            chain=self.chain,
            run_id=live.claim.run_id,
            written_at=live.clock.now(),
        )

    def saved(self, count: int) -> None:
        del self._unsaved[:count]
        self._saved += count

    def _put(self, encoded: bytes) -> None:
        try:
            item = self._decode(encoded)
        except msgspec.ValidationError as error:
            what = f"item {len(self.items)} is not what `of=` says: {error}"
            raise Drift(f"list {self.name}", what) from error
        list.append(self.items, item)
        self.chain = hashlib.blake2b(self.chain + encoded, digest_size=16).digest()

    def _check_kept(self) -> None:
        """What was appended must not have been changed in place since: after a restart it would not be."""
        first = len(self.items) - len(self._unsaved)
        for place, encoded in enumerate(self._unsaved, first):
            if encode_value(f"item {place}", self.items[place]) != encoded:
                raise BadInput(
                    f"list {self.name}",
                    f"item {place} was changed after it was appended; append a new item instead, "
                    "or keep what changes in run.value(…)",
                )


class DurableValue(Generic[T]):
    """A named value that crosses turns."""

    def __init__(self, cell: ValueCell) -> None:
        self._cell = cell

    def get(self) -> T:
        """A fresh copy each time: to change it changes nothing until it is set."""
        return cast(T, self._cell.get())

    def set(self, value: T) -> T:
        """Durable with the turn it is done in. Returns it as it will be read."""
        self._cell.set(value)
        return self.get()

    def update(self, change: Callable[[T], T]) -> T:
        return self.set(change(self.get()))

    @property
    def value(self) -> T:
        return self.get()

    @value.setter
    def value(self, value: T) -> None:
        self.set(value)

    def __holdfast_digest__(self) -> bytes:
        return self._cell.encoded

    def __repr__(self) -> str:
        return f"<value {self._cell.name}: {decode_payload(self._cell.encoded)!r}>"


class ValueCell:
    """The stored form of a durable value, and whether it is durable already."""

    def __init__(self, memory: Memory, name: str, of: Any) -> None:
        self.name = name
        self.encoded = b"null"
        self.is_changed = False
        self.shown: DurableValue[Any] = DurableValue(self)
        self._memory = memory
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(of).decode

    def get(self) -> object:
        try:
            value: object = self._decode(self.encoded)
        except msgspec.ValidationError as error:
            raise Drift(f"value {self.name}", str(error)) from error
        return value

    def set(self, value: object) -> None:
        if self._memory.begin_op():
            self.put(value)

    def put(self, value: object) -> None:
        self.encoded = encode_value(f"value {self.name}", value)
        self.is_changed = True


class Flush(msgspec.Struct, kw_only=True):
    """What became of lists and values since they were last durable, ready for one write."""

    deltas: list[tuple[ListLog, ListDelta]] = []
    values: list[StoredValue] = []
    ops: dict[str, int] = {}

    def apply(self, tx: Tx, task_id: str) -> None:
        for _, delta in self.deltas:
            tx.lists.append(delta)
        for value in self.values:
            tx.lists.set_value(value)
        for scope, ops in self.ops.items():
            tx.lists.set_ops(task_id, scope, ops)


class Memory:
    """All lists and values of one run."""

    def __init__(self, live: Live, past: Past, scope_now: Callable[[], Scope]) -> None:
        self._live = live
        self._past = past
        self._scope_now = scope_now
        self._lists: dict[str, ListLog] = {}
        self._values: dict[str, ValueCell] = {}
        # Scopes with operations that are not durable yet.
        self._touched: dict[str, Scope] = {}

    def list(self, name: str, initial: Iterable[T], of: Any) -> DurableList[T]:
        """The list of that name; `initial` counts only when there is none yet."""
        is_new = self.begin_op()
        log = self._lists.get(name)
        if log is None:
            log = self._lists[name] = ListLog(self, name, of)
            for delta in self._past.deltas:
                if delta.name == name:
                    log.load(delta)
            if is_new and not log.items:
                for item in initial:
                    log.add(item)
        return log.items

    def value(self, name: str, initial: T, of: Any) -> DurableValue[T]:
        is_new = self.begin_op()
        cell = self._values.get(name)
        if cell is None:
            cell = self._values[name] = ValueCell(self, name, of)
            stored = self._past.values.get(name)
            if stored is not None:
                cell.encoded = stored.value
            else:
                cell.put(initial)
                # One that an earlier life was given, too, need not be stored.
                cell.is_changed = is_new
        return cell.shown

    def begin_op(self) -> bool:
        """Count an operation of the present scope; False when an earlier life has had it applied."""
        self._live.check()
        scope = self._scope_now()
        is_new = scope.next_op()
        if is_new:
            self._touched[scope.path] = scope
        return is_new

    def flush(self, *, closing: str | None) -> Flush:
        """Everything that is not durable yet. Operations of the scope that closes need not be counted."""
        now, task_id = self._live.clock.now(), self._live.claim.task_id
        taken = [(log, log.take_delta(self._live)) for log in self._lists.values()]
        return Flush(
            deltas=[(log, delta) for log, delta in taken if delta is not None],
            values=[
                StoredValue(task_id=task_id, name=cell.name, value=cell.encoded, written_at=now)
                for cell in self._values.values()
                if cell.is_changed
            ],
            ops={
                path: scope.ops
                for path, scope in self._touched.items()
                if closing is None or not scope.is_within(closing)
            },
        )

    def flushed(self, flush: Flush) -> None:
        """It is durable now; what has come since is not."""
        for log, delta in flush.deltas:
            log.saved(delta.count)
        stored = {value.name: value.value for value in flush.values}
        for cell in self._values.values():
            if cell.encoded == stored.get(cell.name):
                cell.is_changed = False
        for path, scope in list(self._touched.items()):
            if scope.ops == flush.ops.get(path, scope.ops):
                del self._touched[path]
