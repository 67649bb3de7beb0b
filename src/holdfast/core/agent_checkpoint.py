"""The checkpoint document that a command agent hands over: found in its output, and validated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.payload import check_line, check_words
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.wake_contract import TaskDocument

# A line of standard output that begins so holds a checkpoint document, and is no part of the answer.
CHECKPOINT_MARK = "HOLDFAST_CHECKPOINT"
CHECKPOINT_VARIABLE = "HOLDFAST_CHECKPOINT"
MAX_DOCUMENT_BYTES = 256 * 1024
MAX_LISTED = 200
MAX_LISTED_CHARS = 2000
_MAX_TITLE_CHARS = 200

_Listed = Annotated[list[str], msgspec.Meta(max_length=MAX_LISTED)]


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """The document as an agent writes it: all eleven fields; further ones are ignored."""

    task_id: str
    goal: str
    status: Literal["running", "waiting", "blocked", "done", "failed"]
    current_step: str | None
    progress_pct: Annotated[float, msgspec.Meta(ge=0, le=100)]
    last_completed: _Listed
    next_actions: _Listed
    artifacts: _Listed
    errors: _Listed
    retry_count: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    updated_at: datetime


class FoundCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest valid document, and which others were not believed, and why."""

    document: TaskDocument | None = None
    problems: tuple[str, ...] = ()


def split_output(stdout: str) -> tuple[str, list[str]]:
    """The answer, and the documents that stood in marked lines."""
    documents, answer = [], []
    for line in stdout.splitlines(keepends=True):
        if line.startswith((f"{CHECKPOINT_MARK} ", f"{CHECKPOINT_MARK}:", f"{CHECKPOINT_MARK}={{")):
            documents.append(line[len(CHECKPOINT_MARK) + 1 :].strip())
        else:
            answer.append(line)
    return "".join(answer), documents


def find_checkpoint(
    *, marked: Sequence[str], files: Sequence[str | None], ids: Collection[str]
) -> FoundCheckpoint:
    """The newest valid document of the marked lines and of the file's contents; of a file, the whole content
    or its last valid line. `ids` are the names of the task: a document about another task is not believed."""
    valid: list[TaskDocument] = []
    problems: list[str] = []
    for source, texts in (("stdout", marked), (CHECKPOINT_VARIABLE, [one for one in files if one])):
        for text in texts:
            try:
                valid.append(_document_in(text, ids, has_lines=source != "stdout"))
            except BadInput as error:
                problems.append(f"{source}: {error}")
    newest = max(reversed(valid), key=lambda one: one.updated_at, default=None)
    return FoundCheckpoint(document=newest, problems=tuple(problems))


def _document_in(text: str, ids: Collection[str], *, has_lines: bool) -> TaskDocument:
    try:
        return read_document(text, ids)
    except BadInput as error:
        if not has_lines or "\n" not in text.strip() or len(text) > MAX_DOCUMENT_BYTES:
            raise
        for line in _lines_from_the_end(text):
            try:
                return read_document(line, ids)
            except BadInput:
                continue
        raise error from None


def _lines_from_the_end(text: str) -> Iterator[str]:
    return (line for line in reversed(text.splitlines()) if line.strip().startswith("{"))


def read_document(text: str, ids: Collection[str]) -> TaskDocument:
    """The document in the words of the contract. Raises BadInput with the field and the fix."""
    if len(text.encode("utf-8", "replace")) > MAX_DOCUMENT_BYTES:
        raise BadInput(
            "checkpoint", f"it is longer than {MAX_DOCUMENT_BYTES // 1024} KiB; name files instead"
        )
    try:
        found = msgspec.json.decode(text.encode("utf-8", "replace"), type=_Written)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInput("checkpoint", f"it is not a whole and valid document: {error}") from error
    if found.task_id not in ids:
        raise BadInput("checkpoint.task_id", f"it is about {found.task_id[:100]!r}, not about this task")
    if found.updated_at.tzinfo is None:
        raise BadInput("checkpoint.updated_at", "it has no time zone; write 2026-03-01T12:00:00Z")
    if found.status in ("running", "waiting") and not found.next_actions:
        raise BadInput("checkpoint.next_actions", f"it is {found.status}, and nothing is left to do")
    for name in ("last_completed", "next_actions", "artifacts", "errors"):
        for one in getattr(found, name):
            check_words(f"checkpoint.{name}", one, max_bytes=MAX_LISTED_CHARS)
    facts: dict[str, Any] = {name: getattr(found, name) for name in found.__struct_fields__}
    facts["goal"] = check_words(
        "checkpoint.goal", found.goal, max_bytes=MAX_DOCUMENT_BYTES, may_be_empty=True
    )
    if found.current_step is not None:
        facts["current_step"] = check_line("checkpoint.current_step", found.current_step)
    return TaskDocument(**facts | {"progress_pct": int(found.progress_pct)})


def has_progressed(document: TaskDocument, before: TaskDocument | None) -> bool:
    """Whether a wake cycle came further: an agent that hands over the same place again and again is stuck."""
    if before is None:
        return bool(document.last_completed or document.progress_pct)
    return _place(document) != _place(before)


def _place(document: TaskDocument) -> tuple[object, ...]:
    return (
        document.progress_pct,
        document.current_step,
        tuple(document.last_completed),
        tuple(document.next_actions),
    )


def plan_of(document: TaskDocument) -> Plan:
    """Its steps as a plan, so that every list and every view shows how far the agent is."""
    done = [(title, True) for title in document.last_completed]
    items: dict[str, PlanItem] = {}
    for title, is_done in [*done, *((title, False) for title in document.next_actions)]:
        shown = " ".join(title.split())[:_MAX_TITLE_CHARS] or "…"
        name, number = shown, 2
        while name in items:
            name, number = f"{shown[: _MAX_TITLE_CHARS - 10]} ({number})", number + 1
        items[name] = PlanItem(id=name, title=title, is_done=is_done)
    return Plan(items=tuple(items.values()))
