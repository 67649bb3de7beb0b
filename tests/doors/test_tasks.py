"""tasks list, show, cancel."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.core.plan import plan_of
from holdfast.core.step import NoteKind
from holdfast.core.task import DEFAULT_PRIORITY, Failure, Origin, Progress
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.ledger import NewTask, creating
from holdfast.store import Store, Tx
from holdfast.store.journal import SaveStep
from holdfast.store.sqlite_file import connect
from tests.builders import (
    START,
    a_checkpoint,
    a_note,
    a_run,
    a_step,
    a_task,
    claim_of,
    put,
    running_run,
    stored_run,
)
from tests.doors.calls import CANARIES, HOSTILE, UNFIT, Opens, Run


def ids(listing: object) -> list[str]:
    assert isinstance(listing, dict)
    return [task["id"] for task in listing["tasks"]]


# --- list


def test_a_list_shows_the_newest_first(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored = [stored_run(store).task_id for _ in range(3)]

    called = run("tasks", "list")

    shown = [line.split()[0] for line in called.out.splitlines()[1:]]
    assert shown == sorted(stored, reverse=True)


def test_a_list_has_a_line_of_names_and_a_remark_with_the_counts(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored_run(store)
        stored_run(store, RunStatus.RUNNING)

    called = run("tasks", "list")

    assert called.out.splitlines()[0].split() == ["ID", "STATUS", "NAME", "OWNER", "CHANGED", "GOAL"]
    assert called.err == "2 of 2 tasks: 1 queued · 1 running\n"


def test_a_list_as_json_holds_tasks_counts_and_the_next_page(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        run_id = stored_run(store, task={"progress": Progress(done=2, total=3)})

    listing = run("tasks", "list", "--json").json

    assert set(listing) == {"tasks", "counts", "next_page_token"}
    assert listing["counts"] == {"queued": 1}
    assert listing["next_page_token"] is None
    assert (
        listing["tasks"][0]
        | {
            "id": run_id.task_id,
            "status": "queued",
            "goal": "find out how tides work",
            "priority": DEFAULT_PRIORITY,
            "progress": {"done": 2, "total": 3, "failed": 0, "subtask": None},
            "created_at": "2026-01-01T00:00:00Z",
        }
        == listing["tasks"][0]
    )


def test_pages_follow_each_other_without_a_gap(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored = {stored_run(store).task_id for _ in range(5)}

    first = run("tasks", "list", "--json", "--limit", "3").json
    second = run("tasks", "list", "--json", "--limit", "3", "--before", first["next_page_token"]).json

    assert len(ids(first)) == 3
    assert second["next_page_token"] is None
    assert set(ids(first) + ids(second)) == stored


def test_a_page_may_begin_after_a_task_that_is_gone(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    assert ids(run("tasks", "list", "--json", "--before", "task_zzz").json) == [task_id]
    assert ids(run("tasks", "list", "--json", "--before", "task_000").json) == []


def test_a_list_can_be_limited_to_statuses_and_an_owner(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        queued = stored_run(store).task_id
        running = stored_run(store, RunStatus.RUNNING).task_id
        ended = stored_run(store, RunStatus.SUCCEEDED, task={"owner": "bob"}).task_id

    both = run("tasks", "list", "--json", "--status", "queued", "--status", "running").json
    bobs = run("tasks", "list", "--json", "--owner", "bob").json

    assert set(ids(both)) == {queued, running}
    assert ids(bobs) == [ended]


def test_a_list_says_when_there_is_nothing_to_show(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored_run(store)

    called = run("tasks", "list", "--owner", "nobody")

    assert (called.out, called.err) == ("", "no tasks to show (1 queued)\n")


def test_a_damaged_task_is_listed_as_such(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    damage(home, "UPDATE tasks SET goal = 'something else'")

    assert "damaged" in run("tasks", "list").out
    assert run("tasks", "list", "--json").json["tasks"][0]["is_damaged"] is True
    shown = run("tasks", "show", task_id)
    assert shown.status == 0
    assert "does not match" in shown.err or "do not match" in shown.err


# --- ids


@pytest.mark.parametrize(
    "command", [("tasks", "show"), ("tasks", "cancel"), ("events", "--task")], ids=" ".join
)
def test_the_beginning_of_an_id_is_enough_with_or_without_its_prefix(
    run: Run, ledger: Opens, command: tuple[str, ...]
) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    assert run(*command, task_id[:12]).status == 0
    assert run(*command, task_id.removeprefix("task_")[:12]).status == 0
    assert run(*command, task_id).status == 0


def test_a_beginning_that_fits_several_is_refused_and_names_them(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        one, other = sorted(stored_run(store).task_id for _ in range(2))

    called = run("tasks", "show", one[:8])

    assert called.status == 2
    assert one in called.err
    assert other in called.err


@pytest.mark.parametrize(
    "command", [("tasks", "show"), ("tasks", "cancel"), ("events", "--task")], ids=" ".join
)
def test_an_unknown_id_ends_with_status_4(run: Run, ledger: Opens, command: tuple[str, ...]) -> None:
    with ledger() as store:
        stored_run(store)

    called = run(*command, "task_zzz")

    assert called.status == 4
    assert "`holdfast tasks list`" in called.err


@pytest.mark.parametrize(
    "hostile",
    ["\x1b[31mred", "task_\u202ex", "../../etc", "a" * 65, "TASK_A", "%", "task_'--", ""],
    ids=ascii,
)
def test_what_cannot_be_an_id_is_refused_and_not_repeated(run: Run, ledger: Opens, hostile: str) -> None:
    with ledger() as store:
        stored_run(store)

    called = run("tasks", "show", hostile)

    assert called.status == 2
    assert UNFIT.search(called.out + called.err) is None


# --- show


def full_task(store: Store) -> str:
    """A task with everything: a failed first run, a resumed one, a plan, steps, notes, checkpoints."""
    task = a_task(
        status=TaskStatus.RUNNING,
        arguments=b'{"topic":"tides"}',
        origin=Origin(channel="console", peer="ada"),
        session_key="agent:scholar:1",
        dedup_key="k1",
        progress=Progress(done=1, total=3, subtask="reading"),
        cancel_requested_at=START,
        cancel_reason="too slow",
    )
    first = a_run(task, status=RunStatus.RESUMED)
    checkpoint = a_checkpoint(first, status=CheckpointStatus.RESUMED)
    second = a_run(
        task, number=2, status=RunStatus.RUNNING, resumes_run_id=first.id, checkpoint_id=checkpoint.id
    )
    plan = plan_of("read", "write").complete("read")

    def write(tx: Tx) -> None:
        put(tx, task, first, second, checkpoints=(checkpoint,))
        SaveStep(a_step(second, name="read"), second.fence)(tx)
        tx.journal.save_plan(claim_of(second), plan, now=START)

    store.write_now(write)
    return task.id


def test_a_task_is_shown_with_its_whole_lineage(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = full_task(store)

    detail = run("tasks", "show", task_id, "--json").json

    assert detail["task"]["id"] == task_id
    assert [one["number"] for one in detail["runs"]] == [1, 2]
    assert detail["runs"][1]["resumes_run_id"] == detail["runs"][0]["id"]
    assert detail["checkpoints"][0]["run_id"] == detail["runs"][0]["id"]
    assert detail["arguments"] == {
        "size_bytes": 17,
        "is_whole": True,
        "value": {"topic": "tides"},
        "preview": '{"topic":"tides"}',
    }
    assert detail["plan"]["next_step"] == "write"
    assert detail["steps_saved"] == 1
    assert detail["latest_steps"][0]["preview"] == '"seen"'
    assert detail["problems"] == []


def test_a_task_is_shown_in_words(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = full_task(store)

    shown = run("tasks", "show", task_id).out

    for expected in (
        task_id,
        "2 runs",
        "1 checkpoint",
        "1 of 3 done (reading)",
        "too slow",
        "next: write",
        "1 step",
    ):
        assert expected in shown


def test_the_token_of_a_claim_is_never_shown(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        held, _ = running_run(store, claim_token="0123456789abcdef01234567")

    called = run("tasks", "show", held.task_id, "--json")

    assert "0123456789abcdef01234567" not in called.out


def test_a_large_payload_is_shown_by_its_size_and_its_beginning(
    run: Run, ledger: Opens, clock: object
) -> None:
    with ledger() as store:
        new = NewTask(name="big", goal="carry much", arguments={"words": ["tide"] * 50_000})
        task_id = store.write_now(creating([new], now=START))[0].id

    arguments = run("tasks", "show", task_id, "--json").json["arguments"]

    assert arguments["is_whole"] is False
    assert arguments["value"] is None
    assert arguments["size_bytes"] > 300_000
    assert len(arguments["preview"]) <= 2000


def test_a_damaged_part_does_not_hide_the_others(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = full_task(store)
    damage(home, "UPDATE runs SET seed = x'00' WHERE number = 2")
    damage(home, "UPDATE steps SET result = x'00'")

    detail = run("tasks", "show", task_id, "--json").json

    assert [one["is_damaged"] for one in detail["runs"]] == [False, True]
    assert len(detail["checkpoints"]) == 1
    assert "is damaged" in detail["problems"][0]


# --- cancel


def test_a_task_that_nobody_carries_is_cancelled_at_once(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    called = run("tasks", "cancel", task_id, "--reason", "not needed", "--json")

    assert called.status == 0
    assert called.json["outcome"] == "cancelled"
    assert run("tasks", "show", task_id, "--json").json["task"]["cancel_reason"] == "not needed"


def test_a_task_that_is_carried_is_asked_to_stop(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        held, _ = running_run(store)

    called = run("tasks", "cancel", held.task_id)

    assert called.status == 0
    assert "its holder is told" in called.out


def test_cancelling_what_has_ended_changes_nothing_and_says_so(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store, RunStatus.SUCCEEDED).task_id

    called = run("tasks", "cancel", task_id)

    assert called.status == 0
    assert called.out == f"{task_id} had ended before as succeeded; nothing changed\n"


def test_a_reason_with_control_characters_is_refused(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    called = run("tasks", "cancel", task_id, "--reason", "\x1b[2J")

    assert called.status == 2
    assert run("tasks", "show", task_id, "--json").json["task"]["status"] == "queued"


# --- what a screen must never see


def hostile_ledger(store: Store, text: str) -> tuple[str, str]:
    """A task and a checkpoint written past every check, as an older version or another program might."""
    failure = Failure(kind=text, message=text, facts={text: [text, {text: text}]})
    task = a_task(
        status=TaskStatus.RUNNING,
        name=text,
        goal=text,
        owner=text,
        arguments=b"",
        origin=Origin(channel=text, peer=text, account_id=text, thread=text),
        session_key=text,
        dedup_key=text,
        progress=Progress(done=1, subtask=text),
        waits_on=text,
        failure=failure,
        cancel_reason=text,
        cancel_requested_at=START,
    )
    task = msgspec.structs.replace(task, arguments=msgspec.json.encode({text: [text]}))
    first = a_run(task, status=RunStatus.FAILED_RESUME, failure=failure)
    held = a_run(task, number=2, status=RunStatus.RUNNING)
    checkpoint = a_checkpoint(first, status=CheckpointStatus.FAILED_RESUME, diagnostic=failure)
    document = msgspec.json.decode(checkpoint.document)
    note = {"kind": "decision", "text": text, "written_at": document["created_at"]}
    document |= {"goal": text, "note": text, "decisions": [note], "tool_context": [note]}
    document |= {"cursor": {"last_completed": text, "next_step": text}}
    checkpoint = msgspec.structs.replace(checkpoint, document=msgspec.json.encode(document))

    def write(tx: Tx) -> None:
        put(tx, task, first, held, checkpoints=(checkpoint,))
        tx.journal.add_note(claim_of(held), a_note(kind=NoteKind.DECISION, text=text), seq=1)
        row = {"at": 0, "kind": "run_woken", "task_id": task.id, "subject_id": text}
        facts = msgspec.json.encode({text: text, "more": [text]})
        tx.statements.run("insert_event", row | {"facts": facts})

    store.write_now(write)
    return task.id, checkpoint.id


def everything_shown(run: Run, task_id: str, checkpoint_id: str) -> str:
    calls = [
        ("tasks", "list"),
        ("tasks", "show", task_id),
        ("checkpoints", "list"),
        ("checkpoints", "show", checkpoint_id),
        ("events",),
        ("events", "--task", task_id),
        ("doctor",),
        ("store", "verify"),
    ]
    shown = ""
    for arguments in calls:
        for as_json in ((), ("--json",)):
            called = run(*arguments, *as_json)
            assert called.status == 0, called.err
            shown += called.out + called.err
    return shown


def test_nothing_that_a_terminal_obeys_is_ever_shown(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id, checkpoint_id = hostile_ledger(store, HOSTILE)

    shown = everything_shown(run, task_id, checkpoint_id)

    assert UNFIT.search(shown) is None
    assert "ared" in shown
    assert "title" not in shown


def test_no_secret_is_ever_shown(run: Run, ledger: Opens) -> None:
    text = f"use {CANARIES[0]} and {CANARIES[1]} or {CANARIES[2]}"
    with ledger() as store:
        task_id, checkpoint_id = hostile_ledger(store, text)

    shown = everything_shown(run, task_id, checkpoint_id)

    assert [canary for canary in CANARIES if canary in shown] == []
    assert "[redacted:github]" in shown


def test_a_secret_that_an_escape_cuts_in_two_is_not_shown_either(run: Run, ledger: Opens) -> None:
    half, rest = CANARIES[0][:20], CANARIES[0][20:]
    with ledger() as store:
        task_id, checkpoint_id = hostile_ledger(store, f"{half}\x1b[0m{rest}")

    shown = everything_shown(run, task_id, checkpoint_id)

    assert CANARIES[0] not in shown
    assert rest not in shown


def damage(home: Path, sql: str) -> None:
    """Change a row behind the ledger's back."""
    connection = connect(home / "ledger.db")
    connection.execute(sql)
    connection.close()
