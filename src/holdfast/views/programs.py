"""The durable state of a program: loops, lists, values, notes, artifacts and children."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.program_records import LoopPosition, StoredValue
from holdfast.core.step import Artifact, Note
from holdfast.core.task import Task
from holdfast.views.payloads import PayloadView
from holdfast.views.text import bounded, maybe_line, one_line


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


class NoteView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision for later runs, or a reference to what a tool keeps."""

    # `decision` or `tool_context`.
    kind: str
    text: str
    written_at: datetime

    @classmethod
    def of(cls, note: Note) -> NoteView:
        return cls(kind=note.kind.value, text=bounded(note.text), written_at=note.written_at)


class ArtifactView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a step left outside the ledger, or a computed output: its name, place and checksum."""

    name: str
    # `file`, `diff` or `output`.
    kind: str
    path: str | None
    sha256: str
    size_bytes: int
    recorded_at: datetime

    @classmethod
    def of(cls, artifact: Artifact) -> ArtifactView:
        return cls(
            name=one_line(artifact.name),
            kind=artifact.kind.value,
            path=maybe_line(artifact.path),
            sha256=one_line(artifact.sha256),
            size_bytes=artifact.size_bytes,
            recorded_at=artifact.recorded_at,
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
