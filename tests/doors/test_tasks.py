"""tasks list, show, wait, cancel."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from holdfast.core.step import NoteKind
from holdfast.core.task import DEFAULT_PRIORITY, Failure, Origin, Progress
from holdfast.core.transitions import CheckpointStatus, EffectStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.ledger.ledger import NewTask, creating
from holdfast.store import Store, Tx
from holdfast.store.journal import saving_step
from holdfast.store.sqlite_file import connect
from tests.builders import (
    FAILURE,
    START,
    a_checkpoint,
    a_note,
    a_run,
    a_step,
    a_task,
    an_effect,
    claim_of,
    later,
    plan_of,
    put,
    running_run,
    stored_run,
)
from tests.doors.calls import CANARIES, HOSTILE, PROGRAM, UNFIT, Opens, Run, environment
from tests.store.program_records import a_delta, a_question, a_turn, a_value


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

    assert set(listing) == {"tasks", "counts", "nextPageToken"}
    assert listing["counts"] == {"queued": 1}
    assert listing["nextPageToken"] is None
    assert (
        listing["tasks"][0]
        | {
            "id": run_id.task_id,
            "status": "queued",
            "goal": "find out how tides work",
            "priority": DEFAULT_PRIORITY,
            "progress": {"done": 2, "total": 3, "failed": 0, "subtask": None},
            "createdAt": "2026-01-01T00:00:00Z",
        }
        == listing["tasks"][0]
    )


def test_pages_follow_each_other_without_a_gap(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored = {stored_run(store).task_id for _ in range(5)}

    first = run("tasks", "list", "--json", "--limit", "3").json
    second = run("tasks", "list", "--json", "--limit", "3", "--page", first["nextPageToken"]).json

    assert len(ids(first)) == 3
    assert second["nextPageToken"] is None
    assert set(ids(first) + ids(second)) == stored


def test_a_page_may_begin_after_a_task_that_is_gone(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    assert ids(run("tasks", "list", "--json", "--page", f"task_{'z' * 26}").json) == [task_id]
    assert ids(run("tasks", "list", "--json", "--page", f"task_{'0' * 26}").json) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "list", "--page", "zzz"),
        ("checkpoints", "list", "--page", "zzz"),
        ("reviews", "list", "--page", "zzz"),
        ("questions", "list", "--page", "zzz"),
    ],
)
def test_a_page_that_begins_nowhere_is_refused(run: Run, ledger: Opens, arguments: tuple[str, ...]) -> None:
    with ledger() as store:
        stored_run(store)

    called = run(*arguments, "--json")

    assert (called.status, called.error["code"]) == (2, "bad_input")
    assert "copy the one printed under the previous page" in called.error["message"]


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
    assert run("tasks", "list", "--json").json["tasks"][0]["isDamaged"] is True
    shown = run("tasks", "show", task_id)
    assert shown.status == 0
    assert "does not match" in shown.err or "do not match" in shown.err


def test_a_list_says_what_a_task_waits_for_when_one_does(run: Run, ledger: Opens) -> None:
    waits = {
        "answer:ques_1": "an answer",
        "review:eff_1": "a review",
        "sleep": "its time",
        "mail:post": "mail post",
        "child:task_1": "a child",
        "children": "its children",
        "something else": "something else",
    }
    with ledger() as store:
        for waits_on in waits:
            stored_run(store, RunStatus.WAITING, task={"waits_on": waits_on}, waits_on=waits_on)
        stored_run(store)

    called = run("tasks", "list")

    header, *lines = called.out.splitlines()
    assert "WAITS FOR" in header
    assert all(any(f"  {words}  " in line for line in lines) for words in (*waits.values(), "-"))


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
    ["\x1b[31mred", "task_\u202ex", "a" * 201, ""],
    ids=ascii,
)
def test_what_cannot_name_a_task_is_refused_and_not_repeated(run: Run, ledger: Opens, hostile: str) -> None:
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
        saving_step(a_step(second, name="read"), second.fence, tx.sealing)(tx)
        tx.journal.save_plan(claim_of(second), plan, now=START)

    store.write_now(write)
    return task.id


def test_a_task_is_shown_with_its_whole_lineage(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = full_task(store)

    detail = run("tasks", "show", task_id, "--json").json

    assert detail["task"]["id"] == task_id
    assert [one["number"] for one in detail["runs"]] == [1, 2]
    assert detail["runs"][1]["resumesRunId"] == detail["runs"][0]["id"]
    assert detail["checkpoints"][0]["runId"] == detail["runs"][0]["id"]
    assert detail["arguments"] == {
        "sizeBytes": 17,
        "isWhole": True,
        "value": {"topic": "tides"},
        "preview": '{"topic":"tides"}',
        "isSealed": False,
    }
    assert detail["plan"]["nextStep"] == "write"
    assert detail["stepsSaved"] == 1
    assert detail["latestSteps"][0]["preview"] == '"seen"'
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

    assert arguments["isWhole"] is False
    assert arguments["value"] is None
    assert arguments["sizeBytes"] > 300_000
    assert len(arguments["preview"]) <= 2000


def test_a_damaged_part_does_not_hide_the_others(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = full_task(store)
    damage(home, "UPDATE runs SET seed = x'00' WHERE number = 2")
    damage(home, "UPDATE steps SET result = x'00'")

    detail = run("tasks", "show", task_id, "--json").json

    assert [one["isDamaged"] for one in detail["runs"]] == [False, True]
    assert len(detail["checkpoints"]) == 1
    assert "is damaged" in detail["problems"][0]


# --- what a program leaves

SAMPLE_TASKS = "tests.doors.sample_tasks"


@pytest.fixture
def remembered(run: Run, home: Path) -> str:
    """A task that left something of every kind, and waits for mail."""
    from holdfast import app
    from tests.doors.sample_tasks import remembers

    task_id = run("run", f"{SAMPLE_TASKS}:remembers", "--detach").out.strip()

    async def carry() -> None:
        async with app.open(f"sqlite:///{home / 'ledger.db'}", tasks=[remembers]) as holdfast:
            async for event in holdfast.handle(task_id).watch():
                if event.kind.value == "run_waited":
                    return

    asyncio.run(carry())
    return task_id


def test_what_a_program_left_is_shown(run: Run, remembered: str) -> None:
    detail = run("tasks", "show", remembered, "--json").json

    assert detail["loops"] == [{"loop": "main", "turnsDone": 2, "isOver": True}]
    assert detail["lists"] == [{"name": "words", "length": 3}]
    assert [(one["name"], one["value"]["value"]) for one in detail["values"]] == [("count", 2)]
    assert [(one["name"], one["effectClass"], one["status"]) for one in detail["effects"]] == [
        ("sent", "opaque", "done")
    ]
    assert detail["waitsFor"]["words"] == "waits for mail on 'post'"
    # Two steps in finished turns, one that failed, one that is an effect.
    assert detail["stepsSaved"] == 4
    assert detail["more"] == []
    assert detail["problems"] == []


def test_what_a_program_left_is_shown_in_words(run: Run, remembered: str) -> None:
    shown = run("tasks", "show", remembered).out

    for expected in (
        "main: 2 turns done, over",
        "words: 3 items",
        "count = 2",
        "1 effect",
        "waits for mail on 'post'",
        "failed: ValueError: no good",
        "4 steps saved; the last 2 of the journal",
    ):
        assert expected in shown


def test_a_task_that_waits_for_an_answer_shows_how_to_give_it(run: Run, ledger: Opens) -> None:
    from tests.doors.test_questions import asked_by_waiting_run

    with ledger() as store:
        question = asked_by_waiting_run(store)

    shown = run("tasks", "show", question.task_id).out

    assert f"holdfast questions answer {question.id} ANSWER" in shown


def test_a_failed_step_is_shown_as_a_failure(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:broken", "--json").json["id"]

    (step,) = run("tasks", "show", task_id, "--json").json["latestSteps"]

    assert step["preview"] == "failed: ValueError: no good"
    assert (step["failure"]["kind"], step["failure"]["message"]) == ("ValueError", "no good")


def test_calls_of_one_name_are_counted_as_people_count(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:knocks", "--json").json["id"]

    detail = run("tasks", "show", task_id, "--json").json
    shown = run("tasks", "show", task_id).out

    assert [one["occurrence"] for one in detail["effects"]] == [str(number) for number in range(1, 12)]
    steps = [(one["name"], one["occurrence"]) for one in detail["latestSteps"]]
    assert steps[-3:] == [("wait_then_knock", "10"), ("knock", "11"), ("wait_then_knock", "11")]
    assert ("wait_then_knock!10", "pause-1") in steps
    assert "knock #11" in shown
    assert "#:" not in shown


def test_a_failed_task_shows_where_the_error_came_from(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:broken", "--json").json["id"]

    failure = run("tasks", "show", task_id, "--json").json["task"]["failure"]
    shown = run("tasks", "show", task_id).out

    assert [place.rpartition(" in ")[2] for place in failure["facts"]["traceback"]] == ["broken", "refuse"]
    assert all(place in shown for place in failure["facts"]["traceback"])


def test_children_are_shown_with_how_they_fare(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:delegates", "--json").json["id"]

    detail = run("tasks", "show", task_id, "--json").json

    (child,) = detail["children"]
    assert (child["name"], child["status"]) == ("pays", "needs_review")
    assert detail["waitsFor"]["words"] == f"waits for its child {child['id']} (pays, needs_review)"
    assert "1 child\n" in run("tasks", "show", task_id).out


def waiting(store: Store, waits_on: str, due_at: datetime = NEVER) -> str:
    task = {"waits_on": waits_on}
    return stored_run(store, RunStatus.WAITING, task=task, waits_on=waits_on, due_at=due_at).task_id


@pytest.mark.parametrize(
    ("waits_on", "due_at", "words"),
    [
        ("sleep", later(hours=8), "sleeps until 2026-01-01 08:00:00 UTC"),
        ("sleep", NEVER, "sleeps"),
        ("mail:post", later(hours=1), "waits for mail on 'post' (until 2026-01-01 01:00:00 UTC)"),
        ("mail:post", NEVER, "waits for mail on 'post'"),
        ("children", NEVER, "waits for the end of its children"),
        ("child:task_gone", NEVER, "waits for its child task_gone"),
        ("review:eff_gone", NEVER, "waits for a review of eff_gone: run `holdfast reviews resolve eff_gone "),
        ("answer:ques_gone", NEVER, "waits for an answer: ques_gone"),
        ("the moon", NEVER, "waits for the moon"),
    ],
    ids=str,
)
def test_what_a_task_waits_for_is_said_in_words(
    run: Run, ledger: Opens, waits_on: str, due_at: datetime, words: str
) -> None:
    with ledger() as store:
        task_id = waiting(store, waits_on, due_at=due_at)

    assert run("tasks", "show", task_id, "--json").json["waitsFor"]["words"].startswith(words)
    assert words in run("tasks", "show", task_id).out


def test_an_open_question_is_shown_with_the_command_that_answers_it(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        held = stored_run(store, RunStatus.WAITING)
        question = a_question(held)
        store.write_now(lambda tx: tx.questions.create(question))
        asking = waiting(store, f"answer:{question.id}")

    detail = run("tasks", "show", held.task_id, "--json").json
    waits_for = run("tasks", "show", asking, "--json").json["waitsFor"]

    assert [one["id"] for one in detail["questions"]] == [question.id]
    assert waits_for["words"] == "waits for an answer: Shall I send it?"
    assert waits_for["command"] == f"holdfast questions answer {question.id} ANSWER"
    assert "1 open question" in run("tasks", "show", held.task_id).out


def test_of_what_is_endless_only_the_newest_is_read_and_it_says_so(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        held, _ = running_run(store)
        children = [a_task(parent_task_id=held.task_id) for _ in range(25)]
        effects = [an_effect(task_id=held.task_id, run_id=held.id) for _ in range(25)]

        def write(tx: Tx) -> None:
            for child in children:
                tx.tasks.create(child)
            for effect in effects:
                tx.effects.create(effect)
            for place in range(25):
                saving_step(a_step(held, name=f"step {place}", seq=place), held.fence, tx.sealing)(tx)

        store.write_now(write)

    detail = run("tasks", "show", held.task_id, "--json").json
    shown = run("tasks", "show", held.task_id).out

    assert detail["more"] == ["effects", "children"]
    assert [one["id"] for one in detail["effects"]] == sorted(effect.id for effect in effects)[-20:]
    assert [one["id"] for one in detail["children"]] == sorted(child.id for child in children)[-20:]
    assert detail["stepsSaved"] == 25
    assert [one["name"] for one in detail["latestSteps"]] == [f"step {place}" for place in range(15, 25)]
    assert "the last 20 effects" in shown
    assert "the last children" in shown
    assert "25 steps saved; the last 10 of the journal" in shown


# --- wait


def test_waiting_for_a_task_that_succeeded_is_over_at_once(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--json").json["id"]

    called = run("tasks", "wait", task_id[:14])

    assert (called.status, called.out) == (0, f"{task_id} succeeded\n")


def test_waiting_as_json_gives_the_task_and_its_result(run: Run) -> None:
    task_id = run("run", f"{SAMPLE_TASKS}:say", "--arg", "text=x", "--json").json["id"]

    view = run("tasks", "wait", task_id, "--json").json

    assert view["hasEnded"] is True
    assert view["task"]["status"] == "succeeded"
    assert view["result"]["value"] == "x"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (RunStatus.FAILED, "failed: test: it broke"),
        (RunStatus.CANCELLED, "was cancelled: test: it broke"),
        (RunStatus.TIMED_OUT, "timed out: test: it broke"),
        (RunStatus.LOST, "is lost: test: it broke"),
    ],
)
def test_waiting_for_a_task_that_ended_otherwise_is_status_1(
    run: Run, ledger: Opens, status: RunStatus, words: str
) -> None:
    with ledger() as store:
        task_id = stored_run(store, status, task={"failure": FAILURE}).task_id

    called = run("tasks", "wait", task_id)

    assert (called.status, called.out) == (1, f"{task_id} {words}\n")


def test_waiting_no_longer_than_told_is_status_3(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = waiting(store, "sleep")

    called = run("tasks", "wait", task_id, "--timeout", "0s")

    assert called.status == 3
    assert called.out == f"{task_id} is still waiting (waits for its time)\n"
    assert run("tasks", "wait", task_id, "--timeout", "0s", "--json").json["hasEnded"] is False


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("task_zzz",), 4), (("task_zzz", "--timeout", "soon"), 2), (("no such!",), 4)],
    ids=str,
)
def test_waiting_for_nonsense_is_refused(
    run: Run, ledger: Opens, arguments: tuple[str, ...], status: int
) -> None:
    with ledger() as store:
        stored_run(store)

    assert run("tasks", "wait", *arguments).status == status


def test_waiting_is_over_when_another_process_ends_the_task(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    process = subprocess.Popen(
        [*PROGRAM, "tasks", "wait", task_id, "--json"], env=environment(home), stdout=subprocess.PIPE
    )

    run("tasks", "cancel", task_id)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 1
    assert msgspec.json.decode(out)["task"]["status"] == "cancelled"


# --- cancel


def test_a_task_that_no_worker_carries_is_cancelled_at_once(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    called = run("tasks", "cancel", task_id, "--reason", "not needed", "--json")

    assert called.status == 0
    assert called.json["outcome"] == "cancelled"
    assert run("tasks", "show", task_id, "--json").json["task"]["cancelReason"] == "not needed"


def test_a_task_that_is_carried_is_asked_to_stop(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        held, _ = running_run(store)

    called = run("tasks", "cancel", held.task_id)

    assert called.status == 0
    assert "its worker cancels it" in called.out


def test_cancelling_what_has_ended_changes_nothing_and_says_so(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store, RunStatus.SUCCEEDED).task_id

    called = run("tasks", "cancel", task_id)

    assert called.status == 3
    assert called.out == f"{task_id} has already ended as succeeded; nothing changed\n"


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
    effect = an_effect(
        task_id=task.id,
        run_id=held.id,
        name=text,
        scope=text,
        status=EffectStatus.UNKNOWN,
        request=msgspec.json.encode({"shown": text}),
        outcome=msgspec.json.encode(failure),
        review=msgspec.json.encode({"decision": text, "by": text, "at": START, "note": text}),
    )
    question = a_question(held, question=text, choices=(text,), default_answer=msgspec.json.encode([text]))
    child = a_task(name=text, parent_task_id=task.id, waits_on=f"mail:{text}")

    def write(tx: Tx) -> None:
        put(tx, task, first, held, checkpoints=(checkpoint,))
        tx.tasks.create(child)
        tx.effects.create(effect)
        tx.questions.create(question)
        tx.turns.commit(a_turn(held, loop=text), "elsewhere", is_over=False)
        tx.lists.append(a_delta(held, name=text))
        tx.lists.set_value(a_value(held, name=text, value=msgspec.json.encode({text: text})))
        failed = b"!" + msgspec.json.encode(failure)
        saving_step(a_step(held, name=text, scope=text, result=failed), held.fence, tx.sealing)(tx)
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
        ("reviews", "list"),
        ("reviews", "show", "eff"),
        ("questions", "list"),
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
