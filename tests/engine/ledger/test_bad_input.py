"""Bad input on every call: a named error, and nothing has changed in any table."""
# ruff: noqa: ARG005 - every case is called alike

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.claim import Claim
from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.payload import MAX_GOAL_BYTES, MAX_TEXT_BYTES
from holdfast.core.step import ArtifactKind
from holdfast.core.task import Failure, Origin, Progress
from holdfast.core.transitions import RunStatus
from holdfast.engine.recovery.resume import retrying
from holdfast.testing import FakeClock
from tests.engine.bad_values import CLAIMS, IDS, MOMENTS, NAMES, NUMBERS, PAYLOADS, TEXTS, nested
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump

Call = Callable[[Parts, Claim, Any], Awaitable[object]]


Case = tuple[str, Call, object]


def cases(call: Call, name: str, values: dict[str, object]) -> list[Case]:
    return [(f"{name}: {kind}", call, value) for kind, value in values.items()]


def creating(field: str) -> Call:
    return lambda parts, claim, value: parts.ledger.create(a_new_task(**{field: value}))


def with_optional(values: dict[str, object]) -> dict[str, object]:
    return {kind: value for kind, value in values.items() if value is not None}


CREATING = [
    *cases(creating("name"), "name", NAMES),
    *cases(creating("owner"), "owner", NAMES),
    *cases(creating("goal"), "goal", TEXTS | {"too large": "g" * (MAX_GOAL_BYTES + 1)}),
    *cases(creating("arguments"), "arguments", PAYLOADS),
    *cases(creating("key"), "key", with_optional(NAMES)),
    *cases(creating("session_key"), "session_key", with_optional(NAMES)),
    *cases(creating("parent_task_id"), "parent_task_id", with_optional(IDS)),
    *cases(creating("flow_id"), "flow_id", with_optional(IDS)),
    *cases(creating("priority"), "priority", NUMBERS | {"ten": 10, "none": None}),
    *cases(creating("due_at"), "due_at", MOMENTS),
    *cases(creating("runtime"), "runtime", {"unknown": "fax", "number": 1, "none": None, "list": []}),
    *cases(creating("notify"), "notify", {"unknown": "loudly", "number": 1, "none": None}),
    *cases(
        creating("origin"),
        "origin",
        {
            "text": "console",
            "no channel": Origin(channel=""),
            "control character": Origin(channel="console", peer="a\x00"),
            "number": Origin(channel="console", thread=7),  # type: ignore[arg-type]
        },
    ),
    *cases(
        lambda parts, claim, value: parts.ledger.create_many(value),
        "create_many",
        {"not tasks": ["research"], "none": None, "one": a_new_task()},
    ),
]

READING = [
    *cases(lambda parts, claim, value: parts.ledger.get(value), "get", IDS),
    *cases(lambda parts, claim, value: parts.ledger.runs(value), "runs", IDS),
    *cases(
        lambda parts, claim, value: parts.ledger.page(limit=value),
        "page limit",
        NUMBERS | {"zero": 0, "none": None},
    ),
    *cases(
        lambda parts, claim, value: parts.ledger.page(before=value),
        "page token",
        {"number": 1, "none": None, "half a surrogate": "\ud800", "NUL": "\x00"},
    ),
    *cases(
        lambda parts, claim, value: parts.ledger.page(statuses=value),
        "statuses",
        {"unknown": ("broken",), "text": "queued", "none": None, "a run's": (RunStatus.RESUMED,)},
    ),
]

CANCELLING = [
    *cases(lambda parts, claim, value: parts.ledger.cancel(value, reason="enough"), "cancel", IDS),
    *cases(
        lambda parts, claim, value: parts.ledger.cancel(claim.task_id, reason=value),
        "reason",
        TEXTS | {"too large": "r" * (MAX_TEXT_BYTES + 1)},
    ),
]

ENDING = [
    *cases(lambda parts, claim, value: parts.ledger.finish(claim, value), "result", PAYLOADS),
    *cases(lambda parts, claim, value: parts.ledger.finish(value, 1), "finish claim", CLAIMS),
    *cases(
        lambda parts, claim, value: parts.ledger.fail(claim, value),
        "failure",
        {
            "none": None,
            "text": "storm",
            "no kind": Failure(kind="", message="rough"),
            "control character": Failure(kind="storm", message="rough\x00"),
            "half a surrogate": Failure(kind="storm", message="rough \ud800"),
            "number": Failure(kind="storm", message=7),  # type: ignore[arg-type]
            "too large": Failure(kind="storm", message="m" * (MAX_TEXT_BYTES + 1)),
            "bad facts": Failure(kind="storm", message="rough", facts={"sea": {1, 2}}),
            "facts too deep": Failure(kind="storm", message="rough", facts={"sea": nested(100)}),
            "facts too large": Failure(kind="storm", message="rough", facts={"sea": "s" * (64 * 1024)}),
            "facts are a list": Failure(kind="storm", message="rough", facts=[]),  # type: ignore[arg-type]
        },
    ),
    *cases(
        lambda parts, claim, value: parts.ledger.fail(
            claim, Failure(kind="storm", message="rough"), status=value
        ),
        "status",
        {
            "success": RunStatus.SUCCEEDED,
            "not an end": RunStatus.RUNNING,
            "resumed": RunStatus.RESUMED,
            "failed_resume": RunStatus.FAILED_RESUME,
            "unknown": "broken",
            "none": None,
        },
    ),
    *cases(
        lambda parts, claim, value: parts.ledger.progress(claim, value),
        "progress",
        {
            "none": None,
            "text": "half",
            "negative": Progress(done=-1),
            "fraction": Progress(done=0.5),  # type: ignore[arg-type]
            "total is text": Progress(total="9"),  # type: ignore[arg-type]
            "control character": Progress(subtask="\x07"),
            "huge": Progress(failed=2**60),
        },
    ),
]

ARTIFACTS = [
    *cases(
        lambda parts, claim, value: parts.artifacts.record_output(claim, value, "calm"), "artifact", NAMES
    ),
    *cases(
        lambda parts, claim, value: parts.artifacts.record_output(claim, "report", value),
        "content",
        {kind: value for kind, value in TEXTS.items() if kind not in {"empty", "blank"}}
        | {"too large": "c" * (64 * 1024 + 1)},
    ),
    *cases(
        lambda parts, claim, value: parts.artifacts.record_output(claim, "report", "calm", kind=value),
        "output kind",
        {"file": ArtifactKind.FILE, "text": "painting", "none": None},
    ),
    *cases(
        lambda parts, claim, value: parts.artifacts.record_file(claim, value),
        "file",
        {
            "missing": Path("/nowhere/report"),
            "directory": Path("/"),
            "NUL": Path("/tmp/\x00"),
            "text": "/etc/hostname",
            "none": None,
        },
    ),
    *cases(
        lambda parts, claim, value: parts.artifacts.record_output(value, "report", "calm"),
        "artifact claim",
        CLAIMS,
    ),
]

CARRYING = [
    *cases(lambda parts, claim, value: parts.claims.start(value), "start", IDS),
    *cases(lambda parts, claim, value: parts.claims.wake(value), "wake", IDS),
    *cases(lambda parts, claim, value: parts.claims.wait(claim, waits_on=value), "waits_on", NAMES),
    *cases(
        lambda parts, claim, value: parts.claims.wait(claim, waits_on="x", due_at=value),
        "wait until",
        MOMENTS,
    ),
    *cases(lambda parts, claim, value: parts.claims.release(claim, due_at=value), "release until", MOMENTS),
    *cases(lambda parts, claim, value: parts.claims.release(value), "release claim", CLAIMS),
    *cases(lambda parts, claim, value: parts.claims.renew([value]), "renew claim", CLAIMS),
    *cases(
        lambda parts, claim, value: parts.resumer.claim(value),
        "resume limit",
        NUMBERS | {"zero": 0, "none": None},
    ),
]

PAUSING = [
    *cases(
        lambda parts, claim, value: parts.checkpoints.pause([claim], value),
        "pause reason",
        {"text": "because", "none": None},
    ),
    *cases(
        lambda parts, claim, value: parts.checkpoints.pause([claim], ResumeReason.SIGNAL, kind=value),
        "pause kind",
        {
            "milestone": CheckpointKind.MILESTONE,
            "micro": CheckpointKind.MICRO,
            "unknown": "nap",
            "none": None,
        },
    ),
    *cases(
        lambda parts, claim, value: parts.checkpoints.pause([claim], ResumeReason.SIGNAL, note=value),
        "pause note",
        with_optional(TEXTS),
    ),
    *cases(
        lambda parts, claim, value: parts.checkpoints.pause([value], ResumeReason.SIGNAL),
        "pause claim",
        CLAIMS,
    ),
    *cases(
        lambda parts, claim, value: parts.checkpoints.record(claim, value, "half-way"),
        "record kind",
        {"restart": CheckpointKind.RESTART, "crash": CheckpointKind.CRASH, "unknown": "nap", "none": None},
    ),
    *cases(
        lambda parts, claim, value: parts.checkpoints.record(claim, CheckpointKind.MILESTONE, value),
        "record name",
        TEXTS,
    ),
]


async def retry(parts: Parts, claim: Claim, value: Any) -> object:
    return await parts.store.write(retrying(value, now=parts.clock.now()))


GROUPS = {
    "creating": CREATING,
    "reading": READING,
    "cancelling": CANCELLING,
    "ending": ENDING,
    "artifacts": ARTIFACTS,
    "carrying": CARRYING,
    "pausing": PAUSING,
    "retrying": cases(retry, "retry", IDS),
}


@pytest.mark.parametrize("group", GROUPS)
async def test_bad_input_is_refused_by_name_and_changes_nothing(parts: Parts, group: str) -> None:
    claimed = await parts.carry()
    before = dump(parts.store)

    answers = [
        (name, await answer_to(call, parts, claimed.claim, value)) for name, call, value in GROUPS[group]
    ]

    assert [(name, answer) for name, answer in answers if not isinstance(answer, HoldfastError)] == []
    assert dump(parts.store) == before


async def answer_to(call: Call, parts: Parts, claim: Claim, value: Any) -> object:
    try:
        return await call(parts, claim, value)
    except Exception as error:  # noqa: BLE001 - which kind it is, the test asks
        return error


@pytest.mark.parametrize(
    "call",
    [
        lambda parts: parts.ledger.get("task_nothing"),
        lambda parts: parts.ledger.runs("task_nothing"),
        lambda parts: parts.ledger.cancel("task_nothing", reason="enough"),
        lambda parts: parts.claims.start("run_nothing"),
        lambda parts: parts.store.write(retrying("ckpt_nothing", now=datetime(2026, 1, 1, tzinfo=UTC))),
    ],
    ids=["get", "runs", "cancel", "start", "retry"],
)
async def test_an_unknown_id_is_not_found_and_changes_nothing(
    parts: Parts, call: Callable[[Parts], Awaitable[object]]
) -> None:
    before = dump(parts.store)

    with pytest.raises(NotFound):
        await call(parts)

    assert dump(parts.store) == before


async def test_text_that_only_looks_bad_is_stored_as_it_is(parts: Parts) -> None:
    goal = "Gezeiten — 潮汐 🌊\n\t'; DROP TABLE tasks; -- %s {} \\x00 \u200d"

    task = await parts.create(goal=goal, arguments=[goal], key="k' OR 1=1")

    found = await parts.ledger.get(task.id)
    assert found.goal == goal
    assert msgspec.json.decode(found.arguments) == [goal]


async def test_a_clock_that_stands_still_keeps_notes_apart(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()

    for text in ("one", "two", "three"):
        await parts.journal.decide(claimed.claim, text)

    notes = await parts.store.read(lambda tx: tx.journal.notes([claimed.task.id]))
    assert [note.text for note in notes[claimed.task.id]] == ["one", "two", "three"]
