"""reviews list, show, resolve: a person learns what is in doubt, decides, and the decision is audited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.effect import NOT_APPROVED, Decision, Effect, EffectClass
from holdfast.core.task import Failure, RuntimeName
from holdfast.core.transitions import EffectStatus, RunStatus
from holdfast.store import Store
from holdfast.views.effects import misfit_of
from holdfast.views.waits import DECISIONS
from tests.builders import an_effect, later, stored_run
from tests.doors.calls import CANARIES, Opens, Run
from tests.doors.test_tasks import damage

SAMPLE_TASKS = "tests.doors.sample_tasks"
IN_DOUBT = msgspec.json.encode(Failure(kind="unknown", message="the line went dead"))


def in_doubt(store: Store, task: dict[str, Any] | None = None, **changes: Any) -> Effect:
    """An effect of unknown outcome whose run waits for a review of it."""
    usual = {"outcome": IN_DOUBT, "request": b'["boot_x","00","to=ada, amount=3"]'}
    effect = an_effect(status=EffectStatus.UNKNOWN, **usual | changes)
    run = stored_run(store, RunStatus.WAITING, task=task, waits_on=f"review:{effect.id}")
    effect = msgspec.structs.replace(effect, task_id=run.task_id, run_id=run.id)
    store.write_now(lambda tx: tx.effects.create(effect))
    return effect


def paid(run: Run) -> tuple[str, str]:
    """A real task that waits for a review: its id, and that of the effect."""
    task_id = run("run", f"{SAMPLE_TASKS}:pays", "--json").json["id"]
    (review,) = run("reviews", "list", "--json").json["reviews"]
    return task_id, review["effect"]["id"]


# --- list


def test_a_list_shows_the_oldest_first_with_why_each_is_in_doubt(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        ids = sorted(in_doubt(store).id for _ in range(3))

    called = run("reviews", "list")

    lines = called.out.splitlines()
    assert lines[0].split() == ["ID", "TASK", "CLASS", "BEGUN", "STEP", "WHY", "IN", "DOUBT"]
    assert [line.split()[0] for line in lines[1:]] == ids
    assert "the line went dead" in lines[1]
    assert f"holdfast reviews resolve {ids[0]}" in called.err


def test_a_list_as_json_has_what_was_asked_and_by_whom(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        effect = in_doubt(store, effect_class=EffectClass.KEYED, scope="main:3", occurrence="2")

    listing = run("reviews", "list", "--json").json

    assert set(listing) == {"reviews", "nextPageToken", "problems"}
    (review,) = listing["reviews"]
    assert review["taskName"] == "research"
    assert review["asked"] == "to=ada, amount=3"
    assert review["why"] == "the line went dead"
    assert review["effect"] == {
        "id": effect.id,
        "taskId": effect.task_id,
        "runId": effect.run_id,
        "name": "send",
        "scope": "main:3",
        "occurrence": "2",
        "effectClass": "keyed",
        "idempotencyKey": effect.idempotency_key,
        "generation": 1,
        "status": "unknown",
        "begunAt": "2026-01-01T00:00:00Z",
        "updatedAt": "2026-01-01T00:00:00Z",
        "decision": None,
    }


def test_pages_follow_each_other_without_a_gap(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        ids = sorted(in_doubt(store).id for _ in range(5))

    first = run("reviews", "list", "--json", "--limit", "3").json
    second = run("reviews", "list", "--json", "--limit", "3", "--page", first["nextPageToken"]).json

    shown = [one["effect"]["id"] for one in first["reviews"] + second["reviews"]]
    assert shown == ids
    assert second["nextPageToken"] is None


def test_only_what_is_in_doubt_is_listed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        held = stored_run(store)
        done = an_effect(task_id=held.task_id, status=EffectStatus.DONE)
        store.write_now(lambda tx: tx.effects.create(done))

    called = run("reviews", "list")

    assert (called.status, called.out) == (0, "")
    assert "no effects wait for a review" in called.err


def test_a_damaged_one_hides_no_other(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        ids = sorted(in_doubt(store).id for _ in range(3))
    damage(home, f"UPDATE effects SET name = 'other' WHERE id = '{ids[1]}'")

    called = run("reviews", "list", "--json")

    assert [one["effect"]["id"] for one in called.json["reviews"]] == [ids[0], ids[2]]
    assert ids[1] in called.json["problems"][0]
    assert "damaged" in run("reviews", "list").err


# --- show


def test_one_is_shown_with_all_that_a_decision_needs(run: Run) -> None:
    task_id, effect_id = paid(run)

    called = run("reviews", "show", effect_id)

    for expected in (
        effect_id,
        "unknown",
        "opaque",
        "amount=3",
        "the bank did not answer",
        f"{task_id} (pays, needs_review)",
        "effect_in_doubt",
    ):
        assert expected in called.out
    assert f"holdfast reviews resolve {effect_id} done|retry|skip|compensate" in called.err


def test_one_as_json_has_the_failure_and_the_evidence(run: Run) -> None:
    _, effect_id = paid(run)

    view = run("reviews", "show", effect_id, "--json").json

    assert view["failure"]["kind"] == "unknown"
    assert view["result"] is None
    assert [event["kind"] for event in view["evidence"]] == ["effect_in_doubt"]
    assert view["goal"] == "pays()"


def test_what_a_lost_holder_saw_is_evidence(run: Run, ledger: Opens) -> None:
    from holdfast.core.events import EventKind

    with ledger() as store:
        effect = in_doubt(store)
        store.write_now(
            lambda tx: tx.emit(
                EventKind.EFFECT_SEEN_LATE,
                effect.run_id,
                at=later(seconds=1),
                task_id=effect.task_id,
                effect_id=effect.id,
                outcome="done",
            )
        )

    view = run("reviews", "show", effect.id, "--json").json

    assert view["evidence"][0]["facts"]["outcome"] == "done"


@pytest.mark.parametrize("command", [("show",), ("resolve",)], ids=str)
@pytest.mark.parametrize(
    ("given", "status"), [("eff_zzz", 4), ("task_0", 4), ("no such!", 2), ("", 2)], ids=str
)
def test_an_unknown_or_foreign_id_is_refused(
    run: Run, ledger: Opens, command: tuple[str, ...], given: str, status: int
) -> None:
    with ledger() as store:
        in_doubt(store)
    decision = ("done",) if command == ("resolve",) else ()

    called = run("reviews", *command, given, *decision)

    assert called.status == status
    if status == 4:
        assert "`holdfast reviews list`" in called.err


def test_a_secret_in_what_was_asked_is_not_shown(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        effect = in_doubt(store)
        request = msgspec.json.encode({"shown": f"token={CANARIES[0]} \x1b[31m"})
        other = msgspec.structs.replace(an_effect(request=request), task_id=effect.task_id)
        other = msgspec.structs.replace(other, status=EffectStatus.UNKNOWN, outcome=IN_DOUBT)
        store.write_now(lambda tx: tx.effects.create(other))

    shown = run("reviews", "list", "--json").out + run("reviews", "show", other.id).out

    assert CANARIES[0] not in shown
    assert "\x1b" not in shown


# --- resolve


def test_the_decisions_are_those_of_the_engine() -> None:
    assert list(DECISIONS) == [decision.value for decision in Decision]


def test_done_gives_the_step_its_result_and_the_task_goes_on(run: Run) -> None:
    task_id, effect_id = paid(run)

    called = run(
        "reviews", "resolve", effect_id[:14], "done", "--result", '"receipt 7"', "--note", "I looked"
    )

    assert called.status == 0
    assert "with the result you gave" in called.out
    assert f"task {task_id} is queued" in called.out
    assert run("run", "--resume", task_id, f"{SAMPLE_TASKS}:pays").out == "receipt 7\n"


@pytest.mark.parametrize("given", ["5", "true", "[]", "{}", "1.5"])
def test_a_result_that_the_tool_cannot_have_returned_is_refused(run: Run, given: str) -> None:
    _, effect_id = paid(run)

    called = run("reviews", "resolve", effect_id, "done", "--result", given, "--json")

    assert (called.status, called.error["code"]) == (2, "bad_input")
    assert (
        "pay returns str: give text as JSON (a string needs its own quotes: '\"5\"')"
        in called.error["message"]
    )
    assert run("reviews", "show", effect_id, "--json").json["review"]["taskStatus"] == "needs_review"


def test_the_declared_type_of_the_result_is_shown(run: Run) -> None:
    _, effect_id = paid(run)

    assert run("reviews", "list", "--json").json["reviews"][0]["returns"] == "str"
    assert "pay -> str" in run("reviews", "list").out
    assert ["returns", "str"] in [line.split() for line in run("reviews", "show", effect_id).out.splitlines()]


def test_the_help_says_how_a_result_is_written(run: Run) -> None:
    shown = run("reviews", "resolve", "--help").out

    assert "the step returns --result, as JSON" in shown
    assert """--result '"5"' is a string""" in shown


@pytest.mark.parametrize(
    ("returns", "value", "wanted"),
    [
        ("str", "5", None),
        ("str", 5, "text"),
        ("str | None", 5, "text or null"),
        ("str", None, None),
        ("int", 5, None),
        ("int", True, "a whole number"),
        ("int", 5.5, "a whole number"),
        ("float", 5, None),
        ("float", "5", "a number"),
        ("bool", 1, "true or false"),
        ("dict[str, int]", {}, None),
        ("dict[str, int | None]", [], None),
        ("list[str]", {}, "a list"),
        ("tuple[int, int]", [1, 2], None),
        ("int | str", "5", None),
        ("None", 5, "null"),
        ("Receipt", 5, None),
        ("typing.Literal['a']", 5, None),
        (None, 5, None),
    ],
)
def test_only_what_plainly_does_not_fit_is_a_misfit(
    returns: str | None, value: object, wanted: str | None
) -> None:
    assert misfit_of(returns, value) == wanted


def test_an_agents_task_is_left_to_the_gateway(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        effect = in_doubt(store, task={"runtime": RuntimeName.AGENT, "name": "agent.ada"})

    called = run("reviews", "resolve", effect.id, "skip")

    assert "the gateway resumes it (if none runs: `holdfast up`)" in called.out
    assert "--resume" not in called.out


def test_done_without_a_result_says_that_it_is_null(run: Run) -> None:
    task_id, effect_id = paid(run)

    called = run("reviews", "resolve", effect_id, "done")

    assert "with the result null (no --result was given)" in called.out
    assert run("run", "--resume", task_id, f"{SAMPLE_TASKS}:pays", "--json").json["result"] is None


def test_a_decision_is_audited(run: Run) -> None:
    task_id, effect_id = paid(run)

    run("reviews", "resolve", effect_id, "skip", "--by", "ada", "--note", "not needed")

    view = run("reviews", "show", effect_id, "--json").json
    decision = view["review"]["effect"]["decision"]
    assert (decision["decision"], decision["by"], decision["note"]) == ("skip", "ada", "not needed")
    reviewed = [
        event["facts"]
        for event in run("events", "--task", task_id, "--json").json["events"]
        if event["kind"] == "effect_reviewed"
    ]
    assert reviewed == [{"decision": "skip", "by": "ada", "step": "pay"}]
    assert "skip, by ada" in run("reviews", "show", effect_id).out


def test_a_decision_as_json_says_what_happens_next(run: Run) -> None:
    _, effect_id = paid(run)

    view = run("reviews", "resolve", effect_id, "retry", "--json").json

    assert view["decision"] == "retry"
    assert view["review"]["effect"]["status"] == "failed"
    assert view["review"]["taskStatus"] == "queued"
    assert "performed again, with a new idempotency key" in view["next"]


@pytest.mark.parametrize(
    ("decision", "next_step"),
    [
        ("retry", "it is approved, and will be performed"),
        ("compensate", "it is not performed, and its step fails"),
    ],
)
def test_a_decision_about_an_effect_that_needs_approval_says_what_happens_next(
    run: Run, ledger: Opens, decision: str, next_step: str
) -> None:
    waits = msgspec.json.encode(Failure(kind=NOT_APPROVED, message="policies.approval asks a person"))
    with ledger() as store:
        effect = in_doubt(store, outcome=waits)

    assert "policies.approval asks" in run("reviews", "list").out
    assert next_step in run("reviews", "resolve", effect.id, decision).out


def test_a_retry_is_done_again_with_a_new_key(run: Run) -> None:
    task_id, effect_id = paid(run)
    run("reviews", "resolve", effect_id, "retry")

    run("run", "--resume", task_id, f"{SAMPLE_TASKS}:pays")

    (again,) = run("reviews", "list", "--json").json["reviews"]
    assert again["effect"]["generation"] == 2
    first = run("reviews", "show", effect_id, "--json").json["review"]["effect"]
    assert again["effect"]["idempotencyKey"] != first["idempotencyKey"]


def test_what_is_compensated_fails_its_step(run: Run) -> None:
    task_id, effect_id = paid(run)

    called = run("reviews", "resolve", effect_id, "compensate")

    assert "its step fails" in called.out
    assert run("tasks", "show", task_id, "--json").json["effects"][0]["status"] == "failed"


def test_what_is_not_in_doubt_any_more_is_refused_with_its_status(run: Run) -> None:
    _, effect_id = paid(run)
    run("reviews", "resolve", effect_id, "done", "--by", "ada")

    called = run("reviews", "resolve", effect_id, "retry", "--json")

    assert called.status == 3
    assert called.error["code"] == "illegal_move"
    assert "needs no review any more" in called.error["message"]
    assert "ada already decided: done" in called.error["message"]


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (
            EffectStatus.FAILED,
            "has failed and cannot be reviewed: only an effect of unknown outcome",
            3,
        ),
        (EffectStatus.DONE, "run `holdfast reviews list` to see what there is", 4),
        (EffectStatus.INTENT, "run `holdfast reviews list` to see what there is", 4),
    ],
)
def test_what_was_never_in_doubt_is_refused(
    run: Run, ledger: Opens, status: EffectStatus, said: str, code: int
) -> None:
    with ledger() as store:
        held = stored_run(store)
        effect = an_effect(task_id=held.task_id, run_id=held.id, status=status)
        store.write_now(lambda tx: tx.effects.create(effect))

    called = run("reviews", "resolve", effect.id, "done")

    assert called.status == code
    assert said in called.err


def test_a_review_stays_open_when_its_task_is_cancelled(run: Run) -> None:
    task_id, effect_id = paid(run)
    run("tasks", "cancel", task_id)

    (review,) = run("reviews", "list", "--json").json["reviews"]
    called = run("reviews", "resolve", effect_id, "done")

    assert review["taskStatus"] == "cancelled"
    assert called.status == 0
    assert "is cancelled, so nothing more happens" in called.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("retry", "--result", "1"),
        ("skip", "--result", "1"),
        ("done", "--result", "{"),
        ("perhaps",),
        (),
        ("done", "--by", ""),
        ("done", "--note", "\x1b[2J"),
    ],
    ids=str,
)
def test_a_decision_that_makes_no_sense_changes_nothing(
    run: Run, ledger: Opens, arguments: tuple[str, ...]
) -> None:
    with ledger() as store:
        effect = in_doubt(store)

    called = run("reviews", "resolve", effect.id, *arguments)

    assert called.status == 2
    assert len(run("reviews", "list", "--json").json["reviews"]) == 1


def test_a_run_that_waits_for_something_else_is_left_alone(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        other = stored_run(store, RunStatus.WAITING, waits_on="sleep")
        effect = msgspec.structs.replace(an_effect(), task_id=other.task_id, run_id=other.id)
        effect = msgspec.structs.replace(
            effect,
            status=EffectStatus.UNKNOWN,
            outcome=IN_DOUBT,
            request=b'["b","00",""]',
        )
        store.write_now(lambda tx: tx.effects.create(effect))

    called = run("reviews", "resolve", effect.id, "done", "--json")

    assert called.json["review"]["taskStatus"] == "waiting"
    assert f"task {other.task_id} is waiting" in called.json["next"]
