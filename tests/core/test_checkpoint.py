"""A checkpoint is read back whole, or it is not read at all."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.checkpoint import (
    SCHEMA_VERSION,
    ArtifactReport,
    Checkpoint,
    CheckpointDocument,
    CheckpointKind,
    ResumeReason,
    SeedContext,
    checkpoint_json_schema,
    decode_seed,
    encode_document,
)
from holdfast.core.errors import CheckpointError, CheckpointUnreadable
from holdfast.core.ids import BootId, CheckpointId, RunId, TaskId
from holdfast.core.plan import Cursor
from holdfast.core.schedule import WakeReason
from holdfast.core.step import Artifact, ArtifactKind, ArtifactState, Note, NoteKind
from holdfast.core.task import Origin, Progress
from holdfast.core.transitions import CheckpointStatus
from tests.builders import plan_of

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas" / f"checkpoint.v{SCHEMA_VERSION}.json"
NOW = datetime(2031, 5, 4, 3, 2, 1, 500, tzinfo=UTC)
PLAN = plan_of("read", "sum", "write").complete("read")


def small_document() -> CheckpointDocument:
    """Only what every checkpoint has."""
    return CheckpointDocument(
        checkpoint_id=CheckpointId("ckpt_1"),
        task_id=TaskId("task_1"),
        run_id=RunId("run_1"),
        run_number=1,
        kind=CheckpointKind.CRASH,
        reason=ResumeReason.CRASH,
        created_at=NOW,
        owner="agent:main:inbox",
        task_name="research",
        goal="Find out when the tide turns.",
        cursor=Cursor(),
    )


def full_document() -> CheckpointDocument:
    """Everything that a checkpoint can carry."""
    return msgspec.structs.replace(
        small_document(),
        boot_id=BootId("boot_1"),
        kind=CheckpointKind.RESTART,
        reason=ResumeReason.CONFIG_RELOAD,
        account_id="acme",
        origin=Origin(channel="webhook", peer="ada", account_id="acme", thread="7"),
        session_key="agent:main:inbox",
        plan=PLAN,
        cursor=PLAN.cursor,
        steps_saved=12,
        progress=Progress(done=1, total=3, failed=0, subtask="sum"),
        artifacts=(
            Artifact(
                name="table",
                kind=ArtifactKind.FILE,
                sha256="0" * 64,
                size_bytes=3,
                path="t.csv",
                recorded_at=NOW,
            ),
            Artifact(
                name="total",
                kind=ArtifactKind.OUTPUT,
                sha256="1" * 64,
                size_bytes=2,
                content="42",
                recorded_at=NOW,
            ),
        ),
        decisions=(Note(kind=NoteKind.DECISION, text="use the north gauge", written_at=NOW),),
        tool_context=(Note(kind=NoteKind.TOOL_CONTEXT, text="browser tab 3", written_at=NOW),),
        idle_attempts=1,
        company=4,
        note="before the deploy",
        retry_of=CheckpointId("ckpt_0"),
    )


DOCUMENTS = [pytest.param(small_document(), id="small"), pytest.param(full_document(), id="full")]


def stored(document: CheckpointDocument | bytes, **changes: Any) -> Checkpoint:
    checkpoint = Checkpoint(
        id=CheckpointId("ckpt_1"),
        task_id=TaskId("task_1"),
        run_id=RunId("run_1"),
        kind=CheckpointKind.CRASH,
        reason=ResumeReason.CRASH,
        document=document if isinstance(document, bytes) else encode_document(document),
        created_at=NOW,
        status=CheckpointStatus.PAUSED_FOR_RESTART,
        priority=5,
        updated_at=NOW,
    )
    return msgspec.structs.replace(checkpoint, **changes)


def edited(**changes: object) -> bytes:
    """The full document as JSON, with some of its fields changed by a foreign hand."""
    fields = msgspec.json.decode(encode_document(full_document()))
    return msgspec.json.encode({**fields, **changes})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_comes_back_as_it_was_written(document: CheckpointDocument) -> None:
    assert stored(document).read_document() == document


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_has_the_same_bytes_whenever_it_is_written(document: CheckpointDocument) -> None:
    assert encode_document(stored(document).read_document()) == encode_document(document)


def test_a_checkpoint_that_failed_its_digest_is_not_read() -> None:
    checkpoint = stored(full_document(), is_damaged=True)

    with pytest.raises(CheckpointUnreadable) as refusal:
        checkpoint.read_document()

    assert isinstance(refusal.value, CheckpointError)
    assert refusal.value.checkpoint_id == "ckpt_1"
    assert "digest" in refusal.value.problem


def test_a_document_cut_short_anywhere_is_not_read() -> None:
    whole = encode_document(full_document())

    for length in range(len(whole)):
        with pytest.raises(CheckpointUnreadable):
            stored(whole[:length]).read_document()


def test_a_checkpoint_of_another_schema_version_is_not_read_and_says_which() -> None:
    with pytest.raises(CheckpointUnreadable) as refusal:
        stored(full_document(), schema_version=SCHEMA_VERSION + 1).read_document()

    assert f"version {SCHEMA_VERSION + 1}" in refusal.value.problem


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": "1"},
        {"schema": "someone.else"},
        {"policy": "as_often_as_you_like"},
        {"kind": "snapshot"},
        {"reason": "boredom"},
        {"run_number": "one"},
        {"goal": None},
        {"goal": ["a"]},
        {"created_at": "yesterday"},
        {"plan": {"items": [{"id": "1"}]}},
        {"plan": []},
        {"artifacts": [{"name": "x"}]},
        {"origin": "webhook"},
        {"cursor": None},
        {"steps_saved": 1.5},
        {"run_as_root": True},
        {"tools": ["shell"]},
        {"": ""},
    ],
    ids=str,
)
def test_a_document_with_wrong_or_unknown_fields_is_not_read(changes: dict[str, object]) -> None:
    with pytest.raises(CheckpointUnreadable) as refusal:
        stored(edited(**changes)).read_document()

    assert refusal.value.checkpoint_id == "ckpt_1"


@pytest.mark.parametrize("field", CheckpointDocument.__struct_fields__)
def test_a_document_without_a_field_that_has_no_default_is_not_read(field: str) -> None:
    fields = msgspec.json.decode(encode_document(full_document()))
    required = {one.encode_name for one in msgspec.structs.fields(CheckpointDocument) if one.required}
    del fields[field]
    checkpoint = stored(msgspec.json.encode(fields))

    if field in required:
        with pytest.raises(CheckpointUnreadable):
            checkpoint.read_document()
    else:
        assert checkpoint.read_document().checkpoint_id == "ckpt_1"


@pytest.mark.parametrize(
    "changes", [{"run_id": "run_2"}, {"task_id": "task_2"}, {"checkpoint_id": "ckpt_2"}], ids=str
)
def test_a_document_about_another_record_is_not_read(changes: dict[str, object]) -> None:
    with pytest.raises(CheckpointUnreadable) as refusal:
        stored(edited(**changes)).read_document()

    assert "is about" in refusal.value.problem


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"42",
        b'"text"',
        b"\x00",
        b"\x80\x04\x95.",  # the beginning of a pickle
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"goal":' * 100_000,
        b"{" + b'"a":1,' * 100_000 + b"}",
    ],
    ids=lambda body: ascii(body)[:20],
)
def test_bytes_that_are_no_document_are_not_read(body: bytes) -> None:
    with pytest.raises(CheckpointUnreadable):
        stored(body).read_document()


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_flipped_bit_yields_a_document_of_the_right_shape_or_none(place: int, bit: int) -> None:
    """The digest finds every flipped bit; this is what stands behind it."""
    body = bytearray(encode_document(full_document()))
    body[place % len(body)] ^= 1 << bit

    try:
        document = stored(bytes(body)).read_document()
    except CheckpointUnreadable:
        return

    assert (document.checkpoint_id, document.task_id, document.run_id) == ("ckpt_1", "task_1", "run_1")


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_fail_in_another_way(body: bytes) -> None:
    with pytest.raises(CheckpointUnreadable):
        stored(body).read_document()


def test_only_three_kinds_are_ever_resumed() -> None:
    assert [kind.value for kind in CheckpointKind if kind.is_resumable] == ["restart", "crash", "timeout"]


def test_every_reason_of_a_wake_is_a_reason_to_resume() -> None:
    assert {reason.value for reason in WakeReason} < {reason.value for reason in ResumeReason}


# --- the published schema


def test_the_published_schema_is_the_one_the_code_has() -> None:
    published = msgspec.json.decode(PUBLISHED.read_bytes())

    assert published == msgspec.json.decode(msgspec.json.encode(checkpoint_json_schema()))


def test_the_published_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(checkpoint_json_schema())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_real_document_validates_against_the_published_schema(document: CheckpointDocument) -> None:
    schema = msgspec.json.decode(PUBLISHED.read_bytes())

    jsonschema.Draft202012Validator(schema).validate(msgspec.json.decode(encode_document(document)))


@pytest.mark.parametrize("changes", [{"version": 2}, {"tools": ["shell"]}, {"kind": "snapshot"}], ids=str)
def test_the_published_schema_refuses_what_the_code_refuses(changes: dict[str, object]) -> None:
    schema = msgspec.json.decode(PUBLISHED.read_bytes())

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(msgspec.json.decode(edited(**changes)))


# --- what a follow-up run is told


def test_the_seed_of_a_follow_up_run_comes_back_as_it_was_written() -> None:
    seed = SeedContext(
        checkpoint_id=CheckpointId("ckpt_1"),
        reason=ResumeReason.CRASH,
        previous_run_id=RunId("run_1"),
        goal="Find out when the tide turns.",
        plan=PLAN,
        cursor=PLAN.cursor,
        steps_saved=12,
        progress=Progress(done=1),
        decisions=(Note(kind=NoteKind.DECISION, text="use the north gauge", written_at=NOW),),
        tool_context=(),
        artifacts=(ArtifactReport(name="table", state=ArtifactState.MISSING, expected_sha256="0" * 64),),
    )

    assert decode_seed(msgspec.json.encode(seed)) == seed
