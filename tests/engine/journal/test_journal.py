"""The journal: a step is saved once and remembered for ever; plans, artifacts and notes stand beside it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest

from holdfast.core.clock import to_micros
from holdfast.core.errors import BadInput, ClaimLost, RowDamaged
from holdfast.core.plan import Plan, PlanItem, plan_of
from holdfast.core.step import ArtifactKind, NoteKind
from holdfast.store import Tx
from holdfast.store.blobs import INLINE_BYTES
from holdfast.testing import FakeClock
from tests.engine.parts import Parts
from tests.engine.tables import dump, execute, literal

LARGE = "tide " * INLINE_BYTES


async def test_a_saved_step_is_remembered(parts: Parts) -> None:
    claimed = await parts.carry()

    saved = await parts.journal.save_step(claimed.claim, "read", {"pages": 3})

    assert (saved.result, saved.was_saved_before) == (b'{"pages":3}', False)
    assert await parts.journal.find_step(claimed.task.id, "read") == b'{"pages":3}'


async def test_a_step_that_was_never_saved_is_not_remembered(parts: Parts) -> None:
    claimed = await parts.carry()

    assert await parts.journal.find_step(claimed.task.id, "read") is None


@pytest.mark.parametrize("first", ["small", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("second", ["other", LARGE + "!"], ids=["small", "large"])
async def test_the_first_result_of_a_step_stays(parts: Parts, first: str, second: str) -> None:
    claimed = await parts.carry()
    await parts.journal.save_step(claimed.claim, "read", first)

    again = await parts.journal.save_step(claimed.claim, "read", second)

    assert again.was_saved_before
    assert msgspec.json.decode(again.result) == first
    assert msgspec.json.decode(await parts.journal.find_step(claimed.task.id, "read") or b"") == first


async def test_a_large_result_comes_back_whole_at_once_and_later(parts: Parts) -> None:
    claimed = await parts.carry()

    saved = await parts.journal.save_step(claimed.claim, "read", LARGE)

    assert msgspec.json.decode(saved.result) == LARGE
    assert await parts.journal.find_step(claimed.task.id, "read") == saved.result


async def test_scopes_names_and_occurrences_keep_steps_apart(parts: Parts) -> None:
    claimed = await parts.carry()
    keys = [("", "read", "1"), ("", "read", "2"), ("turn:1", "read", "1"), ("", "write", "1")]

    for number, (scope, name, occurrence) in enumerate(keys):
        await parts.journal.save_step(claimed.claim, name, number, scope=scope, occurrence=occurrence)

    found = [
        await parts.journal.find_step(claimed.task.id, name, scope=scope, occurrence=occurrence)
        for scope, name, occurrence in keys
    ]
    assert found == [b"0", b"1", b"2", b"3"]


async def test_the_journal_is_read_in_the_order_it_was_written(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()
    for name in ("c", "a", "b"):
        await parts.journal.save_step(claimed.claim, name, name)
        clock.advance(seconds=1)

    assert [step.name for step in await parts.journal.steps(claimed.task.id)] == ["c", "a", "b"]


async def test_a_step_whose_name_held_a_secret_is_found_by_the_same_name(parts: Parts) -> None:
    claimed = await parts.carry()
    name = "fetch with api_key=sk-abcdefghijklmnopqrst1234"

    await parts.journal.save_step(claimed.claim, name, 1)

    assert await parts.journal.find_step(claimed.task.id, name) == b"1"


async def test_a_step_and_its_plan_are_saved_together_or_not_at_all(parts: Parts) -> None:
    claimed = await parts.carry()
    lost = msgspec.structs.replace(claimed.claim, fence=9)
    before = dump(parts.store)

    with pytest.raises(ClaimLost):
        await parts.journal.save_step(lost, "read", LARGE, plan=plan_of("read").complete("read"))

    assert dump(parts.store) == before


async def test_a_plan_is_replaced_by_the_next_one(parts: Parts) -> None:
    claimed = await parts.carry()

    await parts.journal.save_plan(claimed.claim, plan_of("read", "write"))
    await parts.journal.save_plan(claimed.claim, plan_of("read", "write").complete("read"))

    plans = await parts.store.read(lambda tx: tx.journal.plans([claimed.task.id]))
    _, plan = plans[claimed.task.id]
    assert (plan.cursor.last_completed, plan.cursor.next_step) == ("read", "write")


async def test_a_file_is_recorded_with_its_checksum(parts: Parts, tmp_path: Path) -> None:
    claimed = await parts.carry()
    path = tmp_path / "report.txt"
    path.write_text("calm")

    artifact = await parts.journal.record_file(claimed.claim, path)

    assert artifact.sha256 == hashlib.sha256(b"calm").hexdigest()
    assert (artifact.kind, artifact.size_bytes, artifact.path) == (ArtifactKind.FILE, 4, str(path))


async def test_what_is_no_file_is_not_waited_for(parts: Parts, tmp_path: Path) -> None:
    """To open a pipe that nobody writes to would never end."""
    claimed = await parts.carry()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(BadInput):
        await parts.journal.record_file(claimed.claim, pipe)


async def test_recording_an_artifact_again_replaces_the_record(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.journal.record_output(claimed.claim, "report", "calm")

    await parts.journal.record_output(claimed.claim, "report", "rough", kind=ArtifactKind.DIFF)

    found = await parts.store.read(lambda tx: tx.journal.artifacts([claimed.task.id]))
    (artifact,) = found[claimed.task.id]
    assert (artifact.content, artifact.kind) == ("rough", ArtifactKind.DIFF)


async def test_decisions_and_references_are_kept_in_order(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()
    await parts.journal.decide(claimed.claim, "use the tables")
    clock.advance(seconds=1)
    await parts.journal.refer(claimed.claim, "browser profile 7")

    notes = (await parts.store.read(lambda tx: tx.journal.notes([claimed.task.id])))[claimed.task.id]

    assert [(note.kind, note.text) for note in notes] == [
        (NoteKind.DECISION, "use the tables"),
        (NoteKind.TOOL_CONTEXT, "browser profile 7"),
    ]


async def test_the_same_note_written_again_by_the_same_write_stands_once(parts: Parts) -> None:
    claimed = await parts.carry()
    note = await parts.journal.decide(claimed.claim, "use the tables")

    def again(tx: Tx) -> None:
        tx.journal.add_note(claimed.claim, note, seq=to_micros(note.written_at))

    before = dump(parts.store)
    await parts.store.write(again)

    assert dump(parts.store) == before


async def test_a_damaged_result_is_never_handed_out(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.journal.save_step(claimed.claim, "read", "calm")
    execute(parts.store, f"UPDATE steps SET result = {literal(parts.store, b'rough')}")

    with pytest.raises(RowDamaged):
        await parts.journal.find_step(claimed.task.id, "read")
    with pytest.raises(RowDamaged):
        await parts.journal.save_step(claimed.claim, "read", "calm")


async def test_a_plan_keeps_what_its_items_said(parts: Parts) -> None:
    claimed = await parts.carry()
    plan = Plan(items=(PlanItem(id="1", title="Gezeiten — 潮汐"), PlanItem(id="2", title="x", is_done=True)))

    await parts.journal.save_plan(claimed.claim, plan)

    found = await parts.store.read(lambda tx: tx.journal.plans([claimed.task.id]))
    assert found[claimed.task.id][1] == plan
