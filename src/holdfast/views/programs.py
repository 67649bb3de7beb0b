"""LoopView, ListView, ValueView and ChildView: the durable state of a program."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.program_records import LoopPosition, StoredValue
from holdfast.core.task import Task
from holdfast.views.payloads import PayloadView
from holdfast.views.text import maybe_line, one_line


class LoopView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of finished turns of a loop, and whether it is over."""

    loop: str
    turns_done: int
    is_over: bool

    @classmethod
    def of(cls, loop: LoopPosition) -> LoopView:
        return cls(loop=one_line(loop.loop), turns_done=loop.turns_done, is_over=loop.is_over)


class ListView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A durable list: its length, without its items."""

    name: str
    length: int


class ValueView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A durable value as last set."""

    name: str
    value: PayloadView
    written_at: datetime

    @classmethod
    def of(cls, stored: StoredValue) -> ValueView:
        return cls(
            name=one_line(stored.name), value=PayloadView.of(stored.value), written_at=stored.written_at
        )


class ChildView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task that another task started."""

    id: str
    name: str
    status: str
    waits_on: str | None
    updated_at: datetime

    @classmethod
    def of(cls, task: Task) -> ChildView:
        return cls(
            id=one_line(task.id),
            name=one_line(task.name),
            status=task.status.value,
            waits_on=maybe_line(task.waits_on),
            updated_at=task.updated_at,
        )
