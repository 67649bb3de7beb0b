"""What crosses turns: append-only lists and values, applied in memory at once and durable with the turn."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar, cast

import msgspec

from holdfast.core.errors import BadInput, Drift
from holdfast.core.payload import decode_payload
from holdfast.core.program_records import ListDelta, StoredValue
from holdfast.core.redaction import holds_secret
from holdfast.engine.journal.codec import codec_for
from holdfast.engine.journal.scopes import (
    Marks,
    Scope,
    ScopeChange,
    TaskHistory,
    digest_of_values,
    inside_step,
    stored_form,
)
from holdfast.engine.program.live_run import LiveRun
from holdfast.store import Tx

T = TypeVar("T")

_EMPTY_CHAIN = bytes(16)
_ONE = msgspec.Raw(b"1")


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
        for item in list(items):  # it may be given itself
            self.append(item)

    def __iadd__(self, items: Iterable[T]) -> DurableList[T]:  # type: ignore[override, misc]
        self.extend(items)
        return self

    def __holdfast_digest__(self) -> str:
        """For the input of a step: name, length and rolling digest, so that a long list costs nothing."""
        return f"{self._log.name}:{len(self)}:{self._log.chain.hex()}"

    def __holdfast_name__(self) -> str:
        """How the input of a step shows it."""
        return f"list {self._log.name}: {len(self)} items"

    def __holdfast_secret__(self) -> bool:
        """Whether that digest is one of a secret, too."""
        return self._log.has_secret

    # A copy is a plain list: nothing that is done to it is durable.

    def __copy__(self) -> list[T]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        return copy.deepcopy(list(self), memo)

    def __reduce_ex__(self, _protocol: object) -> tuple[type[list[T]], tuple[list[T]]]:
        return (list, (list(self),))

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
    """What a durable list has had appended: how much of it a replay has reached, and what is not durable."""

    def __init__(self, memory: RunMemory, name: str, of: Any, deltas: Sequence[ListDelta]) -> None:
        self.name = name
        self.chain = _EMPTY_CHAIN
        self.has_secret = False
        self.items: DurableList[Any] = DurableList(self)
        self._op = f"list {name}"
        self._memory = memory
        self._codec = codec_for(self._op, of)
        self._is_typed = of is not Any
        # Stored by earlier runs, and not reached yet by the replay: the program must not see it yet.
        self._ahead: list[bytes] = []
        for delta in deltas:
            if delta.start != len(self._ahead):
                raise Drift(self._op, f"items from {len(self._ahead)} on are missing")
            self._ahead += map(bytes, msgspec.json.decode(delta.items, type=list[msgspec.Raw]))
        self._ahead.reverse()
        self._saved = len(self._ahead)
        self._unsaved: list[bytes] = []
        self._saved_last: list[bytes] = []

    def append(self, item: object) -> None:
        scope, before = self._memory.begin_op(self._op)
        if before is None:
            self.add(item)
            self._memory.note(scope, self._op, _ONE)
        else:
            self.reach(len(self.items) + msgspec.json.decode(before, type=int))

    def add(self, item: object) -> None:
        self.reach_all()
        field = f"item {len(self.items)} of {self._op}"
        encoded = self._codec.encode_as(field, item)
        if self._is_typed:
            # As it will be read back: a field that the type does not have is not kept.
            encoded = self._codec.encode_as(field, self._codec.decode(encoded))
        self._put(encoded)
        self._unsaved.append(encoded)

    def reach(self, length: int) -> None:
        """The replay has come this far."""
        while self._ahead and len(self.items) < length:
            self._put(self._ahead.pop())

    def reach_all(self) -> bool:
        """Drop what is stored but not reached: it cannot come after new items. False if there was nothing."""
        is_behind = bool(self._ahead)
        self.reach(len(self.items) + len(self._ahead))
        return is_behind

    def take_delta(self, live: LiveRun, now: datetime) -> ListDelta | None:
        self._check_kept()
        if not self._unsaved:
            return None
        return ListDelta(
            task_id=live.claim.task_id,
            name=self.name,
            start=self._saved,
            count=len(self._unsaved),
            items=b"[" + b",".join(self._unsaved) + b"]",
            chain=self.chain,
            run_id=live.claim.run_id,
            written_at=now,
        )

    def saved(self, count: int) -> None:
        self._saved_last = self._unsaved[:count]
        del self._unsaved[:count]
        self._saved += count

    def _put(self, encoded: bytes) -> None:
        list.append(self.items, self._codec.decode(encoded))
        self.chain = hashlib.blake2b(self.chain + encoded, digest_size=16).digest()
        self.has_secret = self.has_secret or holds_secret(encoded)

    def _check_kept(self) -> None:
        """Refuse an item that was changed in place since it was appended: a restart would lose the change.

        Only items that were appended lately are checked: programs change those, and to check all is slow.
        """
        recent = [*self._saved_last, *self._unsaved]
        first = self._saved + len(self._unsaved) - len(recent)
        for place, encoded in enumerate(recent, first):
            if self._codec.encode_as(f"item {place} of {self._op}", self.items[place]) != encoded:
                raise BadInput(
                    self._op,
                    f"item {place} was changed after it was appended; append a new item instead, "
                    "or keep what changes in run.value(…)",
                )


class DurableValue(Generic[T]):
    """A named value that crosses turns."""

    def __init__(self, cell: ValueBuffer) -> None:
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

    def __holdfast_name__(self) -> str:
        return f"value {self._cell.name}"

    def __holdfast_secret__(self) -> bool:
        return holds_secret(self._cell.encoded)

    def __repr__(self) -> str:
        return f"<value {self._cell.name}: {decode_payload(self._cell.encoded)!r}>"


class ValueBuffer:
    """The stored form of a durable value, and whether it is durable already."""

    def __init__(self, memory: RunMemory, name: str, of: Any, encoded: bytes = b"null") -> None:
        self.name = name
        self.encoded = encoded
        self.is_changed = False
        self.shown: DurableValue[Any] = DurableValue(self)
        self._op = f"value {name}"
        self._memory = memory
        self._codec = codec_for(self._op, of)

    def get(self) -> object:
        return self._codec.decode(self.encoded)

    def set(self, value: object) -> None:
        scope, before = self._memory.begin_op(self._op)
        if before is None:
            self.put(value)
            self._memory.note(scope, self._op, msgspec.Raw(self.encoded))
        else:
            self.encoded = bytes(before)
        scope.changed[self.name] = None

    def put(self, value: object) -> None:
        self.encoded = self._codec.encode_as(self._op, value)
        self.is_changed = True


class PendingChanges(msgspec.Struct, kw_only=True):
    """The changes of lists and values that are not durable yet, ready for one write."""

    deltas: list[tuple[ListLog, ListDelta]] = []
    values: list[StoredValue] = []
    # Of scopes that stay open, and of loops.
    ops: dict[str, bytes] = {}
    counts: dict[str, int] = {}

    def apply(self, tx: Tx, task_id: str) -> None:
        for _, delta in self.deltas:
            tx.lists.append(delta)
        for value in self.values:
            tx.lists.set_value(value)
        for path, ops in self.ops.items():
            tx.lists.set_ops(task_id, path, ops)


class RunMemory:
    """All lists and values of one run, always as they were at the place where the program is.

    A replay goes through the open scopes again. What it does there to a list or a value may have been made
    durable by an earlier run (pinned); then it is done again as it was. What finished turns did is applied
    when the replay passes their loop. So the program never sees an item that comes later.
    """

    def __init__(
        self,
        live: LiveRun,
        past: TaskHistory,
        scope_now: Callable[[], Scope],
        on_drift: Callable[[Drift], None],
    ) -> None:
        self._live = live
        self._on_drift = on_drift
        self._past = past
        self._scope_now = scope_now
        self._lists: dict[str, ListLog] = {}
        self._values: dict[str, ValueBuffer] = {}
        # What finished turns have left and the program has not asked for yet.
        self._reached = Marks()
        self._stored_lengths = {delta.name: delta.start + delta.count for delta in past.deltas}
        # Scopes with operations that are not durable yet.
        self._touched: dict[str, Scope] = {}

    def list(self, name: str, initial: Iterable[T], of: Any) -> DurableList[T]:
        """The list of that name; `initial` counts only when there is none yet."""
        name = stored_form(name, self._has_list)
        log = self._lists.get(name)
        if log is not None:
            return log.items
        if name in self._reached.lists:
            log = self._load_list(name, of)
            log.reach(self._reached.lists.pop(name))
            return log.items
        op = f"list {name}"
        scope, before = self.begin_op(op)
        log = self._load_list(name, of)
        if before is not None:
            log.reach(msgspec.json.decode(before, type=int))
        elif not log.reach_all():
            try:
                for item in initial:
                    log.add(item)
            except BaseException:
                del self._lists[name]
                raise
            self.note(scope, op, msgspec.Raw(str(len(log.items)).encode()))
        return log.items

    def value(self, name: str, initial: T, of: Any) -> DurableValue[T]:
        name = stored_form(name, self._has_value)
        cell = self._values.get(name)
        if cell is not None:
            return cell.shown
        reached = self._reached.values.pop(name, None)
        if reached is not None:
            cell = self._values[name] = ValueBuffer(self, name, of, bytes(reached))
            return cell.shown
        op = f"value {name}"
        scope, before = self.begin_op(op)
        cell = ValueBuffer(self, name, of)
        stored = self._past.values.get(name)
        if before is not None:
            cell.encoded = bytes(before)
        elif stored is not None:
            cell.encoded = stored.value
        else:
            cell.put(initial)
            self.note(scope, op, msgspec.Raw(cell.encoded))
        scope.changed[name] = None
        self._values[name] = cell
        return cell.shown

    def _has_list(self, form: str) -> bool:
        known = (self._lists, self._reached.lists, self._stored_lengths)
        return any(form in names for names in known) or self._is_next(f"list {form}")

    def _has_value(self, form: str) -> bool:
        known = (self._values, self._reached.values, self._past.values)
        return any(form in names for names in known) or self._is_next(f"value {form}")

    def _is_next(self, op: str) -> bool:
        """Whether an earlier run pinned this operation for the place where the program is."""
        scope = self._scope_now()
        return scope.ops_done < len(scope.ops) and scope.ops[scope.ops_done].name == op

    def _load_list(self, name: str, of: Any) -> ListLog:
        deltas = [delta for delta in self._past.deltas if delta.name == name]
        log = self._lists[name] = ListLog(self, name, of, deltas)
        # Free the memory: from now on the list holds them.
        self._past.deltas = [delta for delta in self._past.deltas if delta.name != name]
        return log

    # --- operations

    def begin_op(self, name: str) -> tuple[Scope, msgspec.Raw | None]:
        """The scope that the operation belongs to, and what an earlier run pinned for it, if anything."""
        if (step := inside_step.get()) is not None:
            raise BadInput(
                name,
                "a step must not change lists, values or the plan: return what it found from "
                f"{step.name}, and save it after the step",
            )
        self._live.check()
        scope = self._scope_now()
        if scope.ops_done == len(scope.ops):
            return scope, None
        pinned = scope.ops[scope.ops_done]
        if pinned.name != name:
            where = f"turn {scope.path}" if scope.path else "the task"
            self._on_drift(Drift(where, f"changed {pinned.name} where it now changes {name}"))
            del scope.ops[scope.ops_done :]
            return scope, None
        scope.ops_done += 1
        return scope, pinned.payload

    def note(self, scope: Scope, name: str, payload: msgspec.Raw) -> None:
        """The operation was done; it becomes durable with the next turn."""
        scope.ops.append(ScopeChange(name, payload))
        scope.ops_done += 1
        self._touched[scope.path] = scope

    def touch(self, scope: Scope) -> None:
        """The operations that are pinned for the scope must be stored again."""
        self._touched[scope.path] = scope

    # --- loops

    def pass_loop(self, marks: Marks, around: Scope) -> None:
        """The replay passes finished turns: apply what they did."""
        for name, length in marks.lists.items():
            log = self._lists.get(name)
            if log is None:
                self._reached.lists[name] = length
            else:
                log.reach(length)
        for name, encoded in marks.values.items():
            cell = self._values.get(name)
            if cell is None:
                self._reached.values[name] = encoded
            else:
                cell.encoded = bytes(encoded)
        around.changed |= dict.fromkeys(marks.values)

    def marks_after(self, marks: Marks, closing: Scope) -> Marks:
        """Where everything stands when a turn of a loop has committed."""
        changed = {
            name: msgspec.Raw(self._values[name].encoded) for name in closing.changed if name in self._values
        }
        left = {name: self._reached.values[name] for name in closing.changed if name in self._reached.values}
        lengths = {name: len(log.items) for name, log in self._lists.items()}
        return Marks(
            lists={**marks.lists, **self._reached.lists, **lengths},
            values={**marks.values, **left, **changed},
        )

    def standing(self) -> tuple[dict[str, int], str]:
        """The length of every list, and a digest of all values, also of those this run has not asked for."""
        lengths = {**self._stored_lengths, **{name: len(log.items) for name, log in self._lists.items()}}
        values = {name: stored.value for name, stored in self._past.values.items()}
        values |= {name: cell.encoded for name, cell in self._values.items()}
        return {name: length for name, length in lengths.items() if length}, digest_of_values(values)

    # --- making it durable

    @property
    def is_touched(self) -> bool:
        """Whether anything is not durable yet."""
        return bool(self._touched)

    def flush(
        self, *, now: datetime, closing: str | None = None, loops: Mapping[str, Marks] | None = None
    ) -> PendingChanges:
        """Everything that is not durable yet. The operations of a scope that closes need not be pinned."""
        task_id = self._live.claim.task_id
        taken = [(log, log.take_delta(self._live, now)) for log in self._lists.values()]
        pinned = {
            path: scope
            for path, scope in self._touched.items()
            if closing is None or not scope.is_within(closing)
        }
        ops = {path: msgspec.json.encode(scope.ops) for path, scope in pinned.items()}
        return PendingChanges(
            deltas=[(log, delta) for log, delta in taken if delta is not None],
            values=[
                StoredValue(task_id=task_id, name=cell.name, value=cell.encoded, written_at=now)
                for cell in self._values.values()
                if cell.is_changed
            ],
            ops=ops | {path: msgspec.json.encode(marks) for path, marks in (loops or {}).items()},
            counts={path: len(scope.ops) for path, scope in self._touched.items()},
        )

    def flushed(self, flush: PendingChanges) -> None:
        """This flush is durable now; later changes are not."""
        for log, delta in flush.deltas:
            log.saved(delta.count)
        stored = {value.name: value.value for value in flush.values}
        for cell in self._values.values():
            if cell.encoded == stored.get(cell.name):
                cell.is_changed = False
        for path, scope in list(self._touched.items()):
            if len(scope.ops) == flush.counts.get(path):
                del self._touched[path]
