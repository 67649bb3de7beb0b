"""The commands with HOLDFAST_URL: one ledger for reads and writes, that of the gateway at that address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import events
from holdfast.cli.invocation import Invocation
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import CheckpointStatus, RunStatus
from holdfast.store.sqlite import SqliteStore
from tests.api.stand_in import READ_TOKEN, TOKEN, ServedDoors, served_doors
from tests.builders import a_delivery, a_restart, stored_checkpoint, stored_run
from tests.conftest import quick_directory
from tests.doors.calls import Run
from tests.doors.test_questions import asked_by_waiting_run
from tests.doors.test_reviews import in_doubt

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedDoors]:
    """A gateway on another host, as far as the commands know."""
    with quick_directory(tmp_path) as directory, served_doors(directory / "there") as house:
        monkeypatch.setenv("HOLDFAST_URL", house.url)
        monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
        yield house


@pytest.fixture
def ours(home: Path) -> str:
    """A task in a ledger of our own, which no command may show or touch."""
    home.mkdir(mode=0o700)
    store = SqliteStore(home / "ledger.db", clock=SystemClock())
    try:
        return str(stored_run(store).task_id)
    finally:
        store.close()


# --- one ledger


def test_what_is_listed_is_what_is_cancelled(run: Run, house: ServedDoors, ours: str) -> None:
    theirs = stored_run(house.gateway.store).task_id

    listed = run("tasks", "list", "--json").json
    shown = run("tasks", "show", theirs[:20])
    cancelled = run("tasks", "cancel", theirs)
    missing = run("tasks", "show", ours, "--json")

    assert [task["id"] for task in listed["tasks"]] == [theirs]
    assert theirs in shown.out
    assert cancelled.out == f"{theirs} is cancelled\n"
    assert (missing.status, missing.error["code"]) == (4, "not_found")


def test_pages_filters_and_texts_are_the_same_as_beside_a_ledger(run: Run, house: ServedDoors) -> None:
    ids = sorted(stored_run(house.gateway.store).task_id for _ in range(3))
    stored_run(house.gateway.store, RunStatus.RUNNING)

    first = run("tasks", "list", "--status", "queued", "--limit", "2")
    second = run("tasks", "list", "--status", "queued", "--limit", "1000", "--page", ids[1])

    assert f"for the next page, add --page {ids[1]}" in first.err
    assert (ids[0] in second.out, ids[1] in second.out) == (True, False)


def test_reviews_questions_and_deliveries_are_those_of_the_gateway(
    run: Run, house: ServedDoors, ours: str
) -> None:
    store = house.gateway.store
    effect, question = in_doubt(store), asked_by_waiting_run(store)
    delivery = a_delivery()
    store.write_now(lambda tx: tx.deliveries.create(delivery))

    assert run("reviews", "list", "--json").json["reviews"][0]["effect"]["id"] == effect.id
    assert run("reviews", "show", effect.id, "--json").json["review"]["effect"]["id"] == effect.id
    assert run("questions", "list", "--json").json["questions"][0]["id"] == question.id
    assert run("deliveries", "list", "--owed", "--json").json["deliveries"][0]["id"] == delivery.id


def test_checkpoints_and_restarts_are_those_of_the_gateway(run: Run, house: ServedDoors, ours: str) -> None:
    store = house.gateway.store
    checkpoint = stored_checkpoint(store, status=CheckpointStatus.FAILED_RESUME)
    restart = a_restart()
    store.write_now(lambda tx: tx.restarts.create(restart))

    listed = run("checkpoints", "list", "--status", "failed_resume", "--json").json

    assert [one["id"] for one in listed["checkpoints"]] == [checkpoint.id]
    assert run("checkpoints", "show", checkpoint.id, "--json").json["id"] == checkpoint.id
    assert run("checkpoints", "prune", "--dry-run", "--json").json["isDryRun"]
    assert restart.id in run("gateway", "restarts").out


def test_sessions_and_agents_are_those_of_the_gateway(run: Run, house: ServedDoors, ours: str) -> None:
    sent = run("sessions", "send", "ada", "hello")
    listed = run("sessions", "list", "--active", "30s")
    shown = run("sessions", "show", "ada")

    assert sent.status == 0, sent.err
    assert "agent:ada:main" in listed.out
    assert "user (queued): hello" in shown.out
    assert "agent:ada:main" in run("agents", "list").out
    assert run("sessions", "send", "eve", "hello").status == 4
    assert run("sessions", "show", "agent:ada:two").status == 4


def test_one_screen_shows_that_gateway_and_its_ledger(run: Run, house: ServedDoors, ours: str) -> None:
    in_doubt(house.gateway.store)

    called = run("status")
    view = run("status", "--json").json

    assert (view["home"], view["gateway"]["status"]) == (house.url, "serving")
    assert (view["openReviews"], view["tasks"].get("queued", 0)) == (1, 0)
    assert house.url in called.out


def test_a_detached_task_is_recorded_there(run: Run, house: ServedDoors, ours: str) -> None:
    arguments = ("run", "tests.doors.sample_tasks:nothing", "--detach", "--key", "k1", "--json")

    first, again = run(*arguments), run(*arguments)

    assert (first.status, first.json["status"], first.json["isNew"]) == (0, "queued", True)
    assert (again.json["id"], again.json["isNew"]) == (first.json["id"], False)
    assert run("tasks", "show", first.json["id"]).status == 0


def test_events_are_those_of_the_gateway_and_are_followed(
    run: Run, house: ServedDoors, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = stored_run(house.gateway.store).task_id
    run("tasks", "cancel", theirs)

    page = run("events", "--json").json
    of_task = run("events", "--task", theirs, "--json").json

    assert {event["taskId"] for event in page["events"]} == {theirs}
    assert of_task["events"]
    monkeypatch.setattr(Invocation, "ask_patiently", interrupt)
    monkeypatch.setattr(events, "LOOK_ELSEWHERE_EVERY_S", 0.0)
    assert run("events", "--follow", "--json").out.count("\n") == len(page["events"])


def interrupt(*_: object) -> None:
    """Ctrl-C, when it asks for more."""
    raise KeyboardInterrupt


def test_a_wait_ends_with_the_task_there(run: Run, house: ServedDoors, ours: str) -> None:
    theirs = stored_run(house.gateway.store).task_id
    early = run("tasks", "wait", theirs, "--timeout", "0s")
    ending = threading.Thread(target=house.post, args=("ledger.cancel", {"taskId": theirs}))
    ending.start()

    called = run("tasks", "wait", theirs, "--json")
    ending.join()

    assert early.status == 3
    assert (called.status, called.json["task"]["status"]) == (1, "cancelled")


def test_a_token_that_may_only_look_can_look(
    run: Run, house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = stored_run(house.gateway.store).task_id
    monkeypatch.setenv("HOLDFAST_TOKEN", READ_TOKEN)

    assert theirs in run("tasks", "list").out
    assert run("tasks", "cancel", theirs).status == 3


# --- what needs the ledger itself


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("store", "verify"),
        ("store", "migrate"),
        ("store", "backup", "copy.db"),
        ("store", "rekey"),
        ("store", "key", "show"),
        ("store", "key", "export", "copy.key"),
        ("store", "key", "import", "copy.key"),
        ("run", "tests.doors.sample_tasks:nothing"),
        ("run", "--resume", "task_0", "tests.doors.sample_tasks:nothing"),
    ],
    ids=" ".join,
)
def test_what_needs_the_ledger_itself_is_refused_and_touches_none(
    run: Run, house: ServedDoors, ours: str, home: Path, arguments: tuple[str, ...]
) -> None:
    before = sorted(path.name for path in home.iterdir())

    called = run(*arguments, "--json")

    assert (called.status, called.error["code"]) == (3, "refused")
    assert "run it on that gateway's host, or `unset HOLDFAST_URL`" in called.error["message"]
    assert sorted(path.name for path in home.iterdir()) == before


@pytest.mark.parametrize("arguments", [("version",), ("config", "check")], ids=" ".join)
def test_what_is_about_this_host_is_done_here(
    run: Run, house: ServedDoors, arguments: tuple[str, ...]
) -> None:
    assert run(*arguments).status == 0


def test_two_ledgers_at_once_are_a_usage_error(run: Run, house: ServedDoors, tmp_path: Path) -> None:
    called = run("tasks", "list", "--store", f"sqlite:///{tmp_path / 'other.db'}", "--json")

    assert (called.status, called.error["code"]) == (2, "usage")
    assert "unset HOLDFAST_URL" in called.error["message"]


# --- no server is there


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "list"),
        ("tasks", "show", "task_0"),
        ("tasks", "wait", "task_0"),
        ("tasks", "cancel", "task_0"),
        ("tasks", "retry", "task_0"),
        ("tasks", "retry", "--status", "failed"),
        ("tasks", "fork", "task_0", "--at", "start"),
        ("reviews", "list"),
        ("questions", "list"),
        ("deliveries", "list"),
        ("checkpoints", "list"),
        ("checkpoints", "prune", "--dry-run"),
        ("events",),
        ("events", "--follow"),
        ("sessions", "list"),
        ("sessions", "show", "ada"),
        ("agents", "list"),
        ("chat", "ada", "-m", "hello"),
        ("gateway", "restarts"),
        ("status",),
        ("run", "tests.doors.sample_tasks:nothing", "--detach"),
    ],
    ids=" ".join,
)
def test_without_a_server_every_command_ends_with_status_5(
    run: Run, ours: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", NOBODY)
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)

    called = run(*arguments, "--json")

    assert (called.status, called.error["code"]) == (5, "gateway_silent")
    assert ours not in called.out


def test_a_gateway_that_does_not_answer_is_named_by_its_address(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", NOBODY)
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)

    found = run("tasks", "list")

    assert found.status == 5
    assert f"no gateway answers at {NOBODY}: " in found.err
    assert "check HOLDFAST_URL" in found.err
    assert "holdfast up" not in found.err


def test_without_a_token_a_remote_gateway_needs_one_of_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", NOBODY)

    found = run("tasks", "list")

    assert found.status == 2
    assert f"no token for the gateway at {NOBODY}: set HOLDFAST_TOKEN to a token of that gateway" in found.err
