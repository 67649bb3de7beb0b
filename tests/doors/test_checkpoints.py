"""checkpoints list, show, retry, prune."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from holdfast.api.checkpoints import CheckpointsAsked, count_failed_resumes, read_page
from holdfast.core.checkpoint import CheckpointKind, encode_document
from holdfast.core.errors import BadInput
from holdfast.core.ids import new_checkpoint_id
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.recovery.checkpoints import to_checkpoint
from holdfast.store import Store, Tx
from holdfast.store.sqlite_file import connect
from holdfast.views.checkpoints import checkpoint_view_json_schema
from tests.builders import FAILURE, START, a_checkpoint, a_run, a_task, an_artifact, put, stored_checkpoint
from tests.doors.calls import Call, Opens, Run

PAUSED, FAILED, RESUMED = (
    CheckpointStatus.PAUSED_FOR_RESTART,
    CheckpointStatus.FAILED_RESUME,
    CheckpointStatus.RESUMED,
)
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "checkpoint-view.v1.json"


def validated(called: Call) -> Any:
    jsonschema.validate(called.json, json.loads(SCHEMA.read_text(encoding="utf-8")))
    return called.json


# --- list


def test_a_list_shows_the_newest_first_with_what_became_of_each(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored_checkpoint(store, FAILED, diagnostic=FAILURE)
        resumed = stored_checkpoint(store, RESUMED)

    called = run("checkpoints", "list")

    assert "it broke" in called.out
    assert str(resumed.resumed_run_id) in called.out
    assert called.err == "2 of 2 checkpoints: 1 failed_resume · 1 resumed\n"


def test_a_list_can_be_limited_to_a_status_and_a_task(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        paused = stored_checkpoint(store)
        failed = stored_checkpoint(store, FAILED)

    def ids(*arguments: str) -> list[str]:
        return [one["id"] for one in run("checkpoints", "list", "--json", *arguments).json["checkpoints"]]

    assert ids("--status", "failed_resume") == [failed.id]
    assert ids("--task", paused.task_id) == [paused.id]
    assert ids("--task", paused.task_id, "--status", "failed_resume") == []
    assert ids("--task", paused.task_id, "--status", "paused_for_restart") == [paused.id]


def recorded(store: Store, number: int) -> str:
    """A task with many recorded checkpoints and one paused one, the oldest."""
    task = a_task(status=TaskStatus.PAUSED)
    owner = a_run(task, status=RunStatus.PAUSED_FOR_RESTART)
    paused = a_checkpoint(owner, id="ckpt_0")
    others = [a_checkpoint(owner, id=f"ckpt_{n:03}", kind=CheckpointKind.MILESTONE) for n in range(1, number)]
    store.write_now(lambda tx: put(tx, task, owner, checkpoints=(paused, *others)))
    return task.id


def test_pages_of_a_task_follow_each_other_though_they_are_filtered(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = recorded(store, 30)
    arguments = ("checkpoints", "list", "--json", "--task", task_id, "--limit", "10")

    first = run(*arguments).json
    second = run(*arguments, "--page", first["nextPageToken"]).json
    filtered = run(*arguments, "--status", "paused_for_restart").json

    assert len(first["checkpoints"]) == len(second["checkpoints"]) == 10
    assert first["checkpoints"][-1]["id"] > second["checkpoints"][0]["id"]
    assert [one["id"] for one in filtered["checkpoints"]] == ["ckpt_0"]
    assert filtered["nextPageToken"] is None


def test_a_recorded_checkpoint_has_no_status_of_its_own(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        recorded(store, 2)

    assert "recorded" in run("checkpoints", "list").out
    assert run("checkpoints", "list", "--json").json["checkpoints"][0]["status"] is None


# --- show


@pytest.mark.parametrize("status", list(CheckpointStatus))
def test_what_is_shown_as_json_fits_the_published_schema(
    run: Run, ledger: Opens, status: CheckpointStatus
) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store, status, diagnostic=FAILURE)

    shown = validated(run("checkpoints", "show", checkpoint.id, "--json"))

    assert shown["status"] == status
    assert shown["hasToken"] is (status is CheckpointStatus.RESUMING)
    assert shown["document"]["goal"] == "find out how tides work"
    assert shown["diagnostic"]["message"] == "it broke"


def test_the_published_schema_is_that_of_the_code() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == json.dumps(checkpoint_view_json_schema(), indent=2) + "\n"


def test_the_token_of_a_resumer_is_never_shown(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store, CheckpointStatus.RESUMING)

    for arguments in ((), ("--json",)):
        assert str(checkpoint.token) not in run("checkpoints", "show", checkpoint.id, *arguments).out


def test_a_checkpoint_is_shown_in_words_with_the_way_back(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store, FAILED, diagnostic=FAILURE)

    called = run("checkpoints", "show", checkpoint.id)

    assert "test: it broke" in called.out
    assert "find out how tides work" in called.out
    assert f"holdfast checkpoints retry {checkpoint.id}" in called.err


def test_a_retry_is_advised_only_where_it_helps_and_then_it_does(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed_id = failed_checkpoint(store)

    before = validated(run("checkpoints", "show", failed_id, "--json"))
    retried = run("checkpoints", "retry", failed_id, "--json").json["id"]
    after = validated(run("checkpoints", "show", failed_id, "--json"))

    assert (before["canRetry"], after["canRetry"]) == (True, False)
    assert before["advice"].endswith(f"holdfast checkpoints retry {failed_id}")
    assert after["advice"] == f"it was retried already: holdfast checkpoints show {retried}"


@pytest.mark.parametrize(
    ("status", "document", "advice"),
    [
        (
            TaskStatus.FAILED,
            b'{"cut',
            "it cannot be retried; to start the task again from the beginning: holdfast tasks fork {task}",
        ),
        (
            TaskStatus.CANCELLED,
            None,
            "was cancelled; to resume it: holdfast tasks retry {task} --cancelled",
        ),
        (TaskStatus.SUCCEEDED, None, "is succeeded, so it cannot be retried: holdfast tasks show {task}"),
    ],
)
def test_where_a_retry_is_refused_another_command_is_advised_instead(
    run: Run, ledger: Opens, status: TaskStatus, document: bytes | None, advice: str
) -> None:
    task = a_task(status=status)
    owner = a_run(task, status=RunStatus.FAILED_RESUME)
    changes = {} if document is None else {"document": document}
    checkpoint = a_checkpoint(owner, status=FAILED, diagnostic=FAILURE, **changes)
    with ledger() as store:
        store.write_now(lambda tx: put(tx, task, owner, checkpoints=(checkpoint,)))

    shown = validated(run("checkpoints", "show", checkpoint.id, "--json"))
    said = run("checkpoints", "show", checkpoint.id).err

    assert shown["canRetry"] is False
    assert advice.format(task=task.id) in shown["advice"]
    assert shown["advice"] in said
    assert "checkpoints retry" not in said
    assert run("checkpoints", "retry", checkpoint.id, "--json").status != 0


def test_a_checkpoint_that_has_not_failed_needs_no_advice(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store)

    shown = validated(run("checkpoints", "show", checkpoint.id, "--json"))

    assert (shown["canRetry"], shown["advice"]) == (False, None)


@pytest.mark.parametrize("document", [b'{"cut', b"[]", b"\xff\xfe", b'{"version":99}'], ids=repr)
def test_a_document_that_cannot_be_read_is_a_problem_and_not_an_error(
    run: Run, ledger: Opens, document: bytes
) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store, document=document)

    shown = validated(run("checkpoints", "show", checkpoint.id, "--json"))

    assert shown["document"] is None
    assert shown["problem"]
    assert "problem" in run("checkpoints", "show", checkpoint.id).out


def test_a_damaged_checkpoint_says_so(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store)
    connection = connect(home / "ledger.db")
    connection.execute("UPDATE run_checkpoints SET reason = 'crash'")
    connection.close()

    shown = validated(run("checkpoints", "show", checkpoint.id, "--json"))

    assert shown["isDamaged"] is True
    assert shown["problem"] == "its bytes do not match its digest"


def test_a_large_document_is_shown_whole(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        checkpoint_id = large_checkpoint(store)

    shown = validated(run("checkpoints", "show", checkpoint_id, "--json"))

    assert len(shown["document"]["artifacts"]) == 400


def large_checkpoint(store: Store) -> str:
    task = a_task(status=TaskStatus.PAUSED)
    owner = a_run(task, status=RunStatus.PAUSED_FOR_RESTART)
    small = a_checkpoint(owner, id=new_checkpoint_id(START)).read_document()
    artifacts = tuple(an_artifact(name=f"file {n}") for n in range(400))
    large = msgspec.structs.replace(small, artifacts=artifacts)
    assert len(encode_document(large)) > 16 * 1024

    def write(tx: Tx) -> str:
        put(tx, task, owner)
        checkpoint = to_checkpoint(tx, task, large, now=START)
        tx.checkpoints.create_many([checkpoint])
        return checkpoint.id

    return store.write_now(write)


@pytest.mark.parametrize("command", ["show", "retry"])
def test_an_unknown_checkpoint_ends_with_status_4(run: Run, ledger: Opens, command: str) -> None:
    with ledger() as store:
        stored_checkpoint(store)

    called = run("checkpoints", command, "ckpt_zzz")

    assert called.status == 4
    assert "`holdfast checkpoints list`" in called.err


def test_the_beginning_of_an_id_is_enough_and_must_fit_only_one(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        one, other = sorted(stored_checkpoint(store).id for _ in range(2))
    whole = next(length for length in range(6, 32) if one[:length] != other[:length])

    assert run("checkpoints", "show", one[:whole]).status == 0
    assert run("checkpoints", "show", one.removeprefix("ckpt_")[: whole - 5]).status == 0
    called = run("checkpoints", "show", one[: whole - 1])
    assert called.status == 2
    assert other in called.err


# --- retry


def failed_checkpoint(store: Store) -> str:
    task = a_task(status=TaskStatus.FAILED, failure=FAILURE)
    owner = a_run(task, status=RunStatus.FAILED_RESUME, failure=FAILURE)
    checkpoint = a_checkpoint(owner, status=FAILED, diagnostic=FAILURE)
    store.write_now(lambda tx: put(tx, task, owner, checkpoints=(checkpoint,)))
    return checkpoint.id


def test_a_failed_resume_is_opened_again_by_a_new_checkpoint(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed_id = failed_checkpoint(store)

    retried = run("checkpoints", "retry", failed_id, "--json").json

    assert retried["retryOf"] == failed_id
    assert retried["status"] == "paused_for_restart"
    assert run("tasks", "list", "--json").json["counts"] == {"paused": 1}


def test_a_second_retry_finds_what_the_first_one_wrote(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed_id = failed_checkpoint(store)

    assert run("checkpoints", "retry", failed_id).out == run("checkpoints", "retry", failed_id).out


@pytest.mark.parametrize("status", [PAUSED, RESUMED, CheckpointStatus.RESUMING])
def test_only_a_failed_resume_can_be_retried(run: Run, ledger: Opens, status: CheckpointStatus) -> None:
    with ledger() as store:
        checkpoint = stored_checkpoint(store, status)

    called = run("checkpoints", "retry", checkpoint.id, "--json")

    assert called.status == 3
    assert called.error["code"] == "illegal_move"
    assert f"checkpoint {checkpoint.id} is {status}" in called.error["message"]


# --- prune


def ended_checkpoint(store: Store) -> str:
    task = a_task(status=TaskStatus.SUCCEEDED)
    owner = a_run(task, status=RunStatus.SUCCEEDED)
    checkpoint = a_checkpoint(owner, kind=CheckpointKind.MILESTONE)
    store.write_now(lambda tx: put(tx, task, owner, checkpoints=(checkpoint,)))
    return checkpoint.id


def test_settled_checkpoints_of_ended_tasks_are_removed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        old = {ended_checkpoint(store) for _ in range(3)}
        paused = stored_checkpoint(store)

    pruned = run("checkpoints", "prune", "--json").json

    assert set(pruned["checkpointIds"]) == old
    assert pruned["count"] == 3
    left = run("checkpoints", "list", "--json").json["checkpoints"]
    assert [one["id"] for one in left] == [paused.id]


def test_a_dry_run_says_the_same_and_removes_nothing(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        old = ended_checkpoint(store)

    called = run("checkpoints", "prune", "--dry-run")

    assert called.out == f"{old}\n"
    assert "1 checkpoint would be deleted" in called.err
    assert run("checkpoints", "show", old).status == 0


@pytest.mark.parametrize("age", ["99999w", "99999d", "1s", "0m"])
def test_any_duration_can_be_asked_for(run: Run, ledger: Opens, age: str) -> None:
    with ledger():
        pass

    assert run("checkpoints", "prune", "--older-than", age).status == 0


def test_what_is_not_old_enough_stays(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        ended_checkpoint(store)
    age = datetime.now(UTC) - START  # noqa: TID251 - the program reads the machine's clock

    assert run("checkpoints", "prune", "--older-than", f"{age.days + 2}d", "--json").json["count"] == 0
    assert run("checkpoints", "prune", "--older-than", f"{age.days - 1}d", "--json").json["count"] == 1


def test_only_failed_resumes_that_need_a_person_are_listed_on_demand(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        open_ids = [failed_checkpoint(store) for _ in range(3)]
        settled = [failed_checkpoint(store) for _ in range(2)]
        stored_checkpoint(store)
    for one in settled:
        run("checkpoints", "retry", one)

    with ledger() as store:
        asked = CheckpointsAsked(needs_person=True, limit=2)
        first = store.read_now(lambda tx: read_page(tx, asked))
        rest = store.read_now(
            lambda tx: read_page(tx, msgspec.structs.replace(asked, page_token=first.next_page_token))
        )
        count = store.read_now(lambda tx: count_failed_resumes(tx, at_most=100))

    assert [one.id for one in (*first.checkpoints, *rest.checkpoints)] == sorted(open_ids, reverse=True)
    assert (len(first.checkpoints), rest.next_page_token, count) == (2, None, 3)
    assert {one.task_name for one in first.checkpoints} == {a_task().name}


def test_a_status_that_no_failed_resume_has_is_refused_beside_needs_person(ledger: Opens) -> None:
    asked = CheckpointsAsked(needs_person=True, status=CheckpointStatus.RESUMED)

    with ledger() as store, pytest.raises(BadInput, match="only failed resumes need a person"):
        store.read_now(lambda tx: read_page(tx, asked))
