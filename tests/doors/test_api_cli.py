"""The commands beside a gateway: writes go through its socket, reads beside it; a silent one ends with 5."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.api import local
from holdfast.cli import client, gateway
from holdfast.core.clock import SystemClock
from holdfast.core.session import Session
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.producers.contract import Alive
from holdfast.gateway.gateway import GatewayPhase
from holdfast.store import Tx
from holdfast.store.locks import HomeLock
from holdfast.upkeep.sweep import Sweep
from tests.api.stand_in import TOKEN, ServedDoors, served_doors
from tests.builders import a_restart, a_session, stored_checkpoint, stored_run
from tests.doors.calls import Opens, Run
from tests.doors.test_questions import asked_by_waiting_run
from tests.doors.test_reviews import in_doubt
from tests.doors.test_upkeep import silent_run
from tests.upkeep.recorded import FixedAnswer, status_of

pytestmark = pytest.mark.slow

SETTINGS = '[agents.ada]\ncallable = "tests.api.stand_in:agents"\n'


@pytest.fixture
def house(home: Path) -> Iterator[ServedDoors]:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS, encoding="utf-8")
    with served_doors(home) as house:
        yield house


# --- writes through the gateway


def test_a_task_is_cancelled_through_the_gateway(run: Run, house: ServedDoors) -> None:
    task_id = stored_run(house.gateway.store).task_id

    called = run("tasks", "cancel", task_id[:16], "--reason", "enough")

    assert (called.status, called.out) == (0, f"{task_id} is cancelled\n")
    assert house.gateway.store.read_now(lambda tx: tx.tasks.get(task_id)).cancel_reason == "enough"


def test_an_effect_is_resolved_through_the_gateway_by_the_caller_that_asked(
    run: Run, house: ServedDoors
) -> None:
    effect = in_doubt(house.gateway.store)

    called = run("reviews", "resolve", effect.id, "done", "--result", "7", "--by", "ada", "--json")

    assert called.status == 0
    # Whom the caller names, and who the caller is as the gateway knows it.
    assert called.json["review"]["effect"]["decision"]["by"] == f"ada (said {getpass.getuser()})"
    assert house.gateway.store.read_now(lambda tx: tx.effects.get(effect.id)).outcome == b"7"


def test_a_result_of_null_is_not_a_result_that_was_not_given(run: Run, house: ServedDoors) -> None:
    effect = in_doubt(house.gateway.store)

    called = run("reviews", "resolve", effect.id, "skip")

    assert called.status == 0
    assert "the step is skipped, with the result null" in called.out


def test_a_question_is_answered_through_the_gateway(run: Run, house: ServedDoors) -> None:
    question = asked_by_waiting_run(house.gateway.store)

    called = run("questions", "answer", question.id, "yes")

    assert called.status == 0
    assert "is answered" in called.out


def test_a_gateway_that_answers_goes_on_with_its_agents_tasks_and_says_no_more(
    run: Run, house: ServedDoors
) -> None:
    agent = {"runtime": RuntimeName.AGENT, "name": "agent.ada"}
    effect = in_doubt(house.gateway.store, task=agent)

    called = run("reviews", "resolve", effect.id, "skip")

    assert called.out.endswith(f"task {effect.task_id} is queued, and the gateway resumes it\n")


def test_a_failed_resume_is_retried_and_old_checkpoints_are_pruned_through_the_gateway(
    run: Run, house: ServedDoors
) -> None:
    failed = stored_checkpoint(house.gateway.store, status=CheckpointStatus.FAILED_RESUME)

    retried = run("checkpoints", "retry", failed.id)
    pruned = run("checkpoints", "prune", "--older-than", "0s", "--json")

    assert retried.status in {0, 3}, retried.err
    assert (pruned.status, pruned.json["isDryRun"]) == (0, False)


def test_a_detached_task_is_recorded_through_the_gateway_and_once_for_each_key(
    run: Run, house: ServedDoors
) -> None:
    arguments = ("run", "tests.doors.sample_tasks:nothing", "--detach", "--key", "k1", "--json")

    first, again = run(*arguments), run(*arguments)

    assert (first.status, again.status) == (0, 0)
    assert (first.json["status"], first.json["isNew"], again.json["isNew"]) == ("queued", True, False)
    assert first.json["id"] == again.json["id"]


def test_the_gateway_whose_runtimes_can_prove_life_is_asked_for_a_sweep_and_for_its_preview(
    run: Run, house: ServedDoors
) -> None:
    store = house.gateway.store
    alive = silent_run(store)
    house.gateway.sweep = Sweep(store, house.gateway.clock, proofs=FixedAnswer(Alive()))

    preview, applied = run("tasks", "maintenance", "--json"), run("tasks", "maintenance", "--apply", "--json")

    assert (preview.status, preview.json["changes"]) == (0, [])
    assert (applied.status, applied.json["changes"]) == (0, [])
    assert status_of(store, alive) is TaskStatus.RUNNING


def test_a_sound_ledger_is_accepted_through_the_gateway(run: Run, house: ServedDoors) -> None:
    assert run("store", "accept").out == "nothing to do: no work is held\n"


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("tasks", "notify", "task_none", "silent"), 4, "not_found"),
        (("reviews", "resolve", "eff_none", "done"), 4, "not_found"),
        (("questions", "answer", "ques_none", "x"), 4, "not_found"),
        (("sessions", "send", "agent:eve:main", "x"), 4, "not_found"),
    ],
    ids=str,
)
def test_an_error_of_the_gateway_has_the_status_that_the_command_itself_would_have(
    run: Run, house: ServedDoors, arguments: tuple[str, ...], status: int, code: str
) -> None:
    called = run(*arguments, "--json")

    assert (called.status, called.error["code"]) == (status, code)


def test_what_was_decided_before_is_refused_with_the_same_words(run: Run, house: ServedDoors) -> None:
    effect = in_doubt(house.gateway.store)
    run("reviews", "resolve", effect.id, "done", "--by", "ada")

    called = run("reviews", "resolve", effect.id, "retry", "--json")

    assert (called.status, called.error["code"]) == (3, "illegal_move")
    assert "ada (said " in called.error["message"]
    assert "already decided: done" in called.error["message"]


def test_a_command_that_means_another_ledger_is_refused(run: Run, house: ServedDoors, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert run("store", "migrate", "--store", other, "--home", str(tmp_path / "elsewhere")).status == 0

    called = run("tasks", "cancel", "task_x", "--store", other, "--json")

    assert (called.status, called.error["code"]) == (3, "home_in_use")


def test_reads_do_not_need_the_gateway_to_answer(run: Run, house: ServedDoors) -> None:
    task_id = stored_run(house.gateway.store).task_id
    house.gateway.now = GatewayPhase.DRAINING

    assert task_id in run("tasks", "list").out


# --- by its address


def test_a_gateway_whose_home_is_not_here_is_asked_by_its_address_and_token(
    run: Run, house: ServedDoors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = stored_run(house.gateway.store).task_id
    monkeypatch.setenv("HOLDFAST_URL", house.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
    elsewhere = ("--home", str(tmp_path / "elsewhere"))

    fares = run("gateway", "status", "--json", *elsewhere)
    cancelled = run("tasks", "cancel", task_id, *elsewhere)
    missing = run("tasks", "cancel", "task_none", "--json", *elsewhere)

    assert fares.json["status"] == "serving"
    assert (cancelled.status, cancelled.out) == (0, f"{task_id} is cancelled\n")
    assert (missing.status, missing.json["outcome"]) == (4, "not_found")


@pytest.mark.parametrize(
    ("url", "status"),
    [("http://127.0.0.1:1", 5), ("nonsense", 2), ("ftp://x", 2)],
    ids=lambda value: str(value),
)
def test_an_address_without_a_server_is_told_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, status: int
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", url)
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)

    assert run("gateway", "status").status == status


def test_a_wrong_token_is_refused_at_an_address(
    run: Run, house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", house.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", "x" * 64)

    called = run("gateway", "status", "--json")

    assert (called.status, called.error["code"]) == (3, "AUTH_TOKEN_MISMATCH")


# --- no server answers


@contextlib.contextmanager
def frozen_gateway(home: Path) -> Iterator[None]:
    """It holds the home and its socket, and says nothing."""
    lock = HomeLock.take(home, role="gateway")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "gateway.sock"))
        listening.listen(10)
        yield
    lock.release()


def test_a_gateway_that_holds_the_home_and_is_silent_ends_with_status_5(
    run: Run, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
    with ledger() as store:
        task_id = stored_run(store).task_id
    with frozen_gateway(home):
        called = run("tasks", "cancel", task_id, "--json")

    assert (called.status, called.error["code"]) == (5, "gateway_silent")
    assert "the request may still take effect" in called.error["message"]
    assert "`holdfast up` starts" not in called.error["message"]


def test_a_gateway_that_dies_in_the_middle_of_its_answer_ends_with_status_5(
    run: Run, ledger: Opens, home: Path
) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    lock = HomeLock.take(home, role="gateway")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "gateway.sock"))
        listening.listen(10)

        def die() -> None:
            for _ in range(2):  # the look whether a server is there, and the request
                way, _ = listening.accept()
                with way:
                    way.settimeout(5)
                    if way.recv(10_000):
                        way.send(b'{"type":"res","ok":tr')

        dying = threading.Thread(target=die)
        dying.start()
        called = run("tasks", "cancel", task_id)
        dying.join(10)
    lock.release()

    assert called.status == 5


def test_a_socket_that_a_dead_gateway_left_is_no_gateway(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(home / "gateway.sock"))

    called = run("tasks", "cancel", task_id)
    lock = HomeLock.take(home, role="cli")
    beside = run("tasks", "cancel", task_id)
    lock.release()

    assert called.status == 0
    assert beside.status == 5
    assert f"process {os.getpid()} holds" in beside.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("gateway", "status"),
        ("gateway", "restart"),
        ("gateway", "restart", "--plan"),
        ("gateway", "stop"),
        ("gateway", "resume"),
    ],
    ids=" ".join,
)
def test_what_only_a_gateway_can_do_ends_with_status_5_without_one(
    run: Run, ledger: Opens, arguments: tuple[str, ...]
) -> None:
    with ledger():
        pass

    called = run(*arguments, "--json")

    assert (called.status, called.error["code"]) == (5, "gateway_silent")
    assert "holdfast up" in called.error["message"]


# --- the socket itself


def test_only_the_gateways_own_user_and_root_are_heard(
    run: Run, house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "peer_uid", lambda _connection: 54321)
    task_id = stored_run(house.gateway.store).task_id

    called = run("tasks", "cancel", task_id)

    assert called.status == 3
    assert house.gateway.store.read_now(lambda tx: tx.tasks.get(task_id)).status is TaskStatus.QUEUED


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"{}\n",
        b"\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"req","id":"1","method":"no.such"}\n',
        b'{"type":"req","id":"1","method":"tasks.list","params":[]}\n',
        b"x" * (1024**2 + 10) + b"\n",
    ],
    ids=lambda line: str(line[:20]),
)
def test_a_line_that_is_no_request_is_told_so(house: ServedDoors, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(20)
        way.connect(str(house.home / "gateway.sock"))
        with contextlib.suppress(BrokenPipeError):
            way.sendall(line)
        answer = way.recv(10_000)

    assert b'"ok":false' in answer
    assert b"INVALID_REQUEST" in answer


def test_clients_that_vanish_do_no_harm(run: Run, house: ServedDoors) -> None:
    for cut in (b"", b"{", b'{"type":"req","id":"1","method":"rpc.describe"}\n'):
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as way:
                way.connect(str(house.home / "gateway.sock"))
                way.sendall(cut)

    assert run("gateway", "status").status == 0


# --- the gateway's own commands


def test_status_says_how_the_gateway_fares(run: Run, house: ServedDoors) -> None:
    called = run("gateway", "status")
    view = run("gateway", "status", "--json").json

    assert called.out.splitlines()[0].split() == ["gateway", "serving"]
    assert (view["status"], view["isReady"], view["lastRestart"]) == ("serving", True, None)


def test_a_refused_restart_ends_with_status_3_and_the_list(run: Run, house: ServedDoors) -> None:
    run_ = stored_run(house.gateway.store, RunStatus.RUNNING)
    house.gateway.is_safe = False

    plan = run("gateway", "restart", "--plan")
    called = run("gateway", "restart", "--reason", "update")
    as_json = run("gateway", "restart", "--json")

    assert (plan.status, called.status, as_json.status) == (0, 3, 3)
    assert run_.task_id in plan.out
    assert run_.task_id in called.out
    assert "too many are in flight" in called.err
    assert as_json.json["readiness"]["interruptions"][0]["taskId"] == run_.task_id
    assert as_json.error["code"] == "not_ready"
    assert "too many are in flight" in as_json.error["message"]
    assert "too many are in flight" in as_json.err
    assert house.gateway.wishes == []


def test_a_forced_restart_is_asked_for_with_its_reason(
    run: Run, house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "BACK_PATIENCE_S", 0.0)  # the stand-in never comes back
    house.gateway.is_safe = False

    called = run("gateway", "restart", "--force", "--reason", "update")

    assert called.status == 0
    assert [wish.reason for wish in house.gateway.wishes] == ["update"]


def test_a_restart_that_waits_begins_when_the_gateway_is_idle(
    run: Run, house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "BACK_PATIENCE_S", 0.0)  # the stand-in never comes back
    monkeypatch.setattr(gateway, "_IDLE_CHECK_S", 0.0)
    stored_run(house.gateway.store, RunStatus.RUNNING)
    # Busy; idle, but busy again when the restart is asked for; and idle at last.
    answers = iter([False, True, False, False, True, True])
    monkeypatch.setattr(type(house.gateway), "is_safe", property(lambda _: next(answers)), raising=False)

    called = run("gateway", "restart", "--wait", "--reason", "update")

    assert called.status == 0
    assert [wish.reason for wish in house.gateway.wishes] == ["update"]
    assert "waiting: 1 run in flight (limit 0); Ctrl-C gives up" in called.err
    assert next(answers, None) is None


def test_a_restart_cannot_both_wait_and_be_forced(run: Run, house: ServedDoors) -> None:
    called = run("gateway", "restart", "--wait", "--force")

    assert called.status == 2
    assert "--force restarts at once and --wait waits; give only one of them" in called.err
    assert house.gateway.wishes == []


def test_a_restart_or_a_stop_that_cannot_be_had_ends_with_status_3_and_the_reason(
    run: Run, house: ServedDoors
) -> None:
    house.gateway.problem = "no checkpoint of run_1 was saved: the disk is full"

    restarted = run("gateway", "restart", "--force", "--json")
    shown = run("gateway", "restart", "--force")
    stopped = run("gateway", "stop")

    reason = f"the gateway does not restart: {house.gateway.problem}; fix that, then ask again"
    assert (restarted.status, shown.status, stopped.status) == (3, 3, 3)
    assert restarted.error == {"code": "restart_blocked", "message": reason}
    assert f"holdfast: {reason}" in shown.err
    assert f"holdfast: {reason}" in stopped.err


def test_restarts_are_asked_of_the_gateway_that_runs(run: Run, house: ServedDoors) -> None:
    """It may know of refusals that it could not write into the ledger."""
    refused = a_restart()
    house.gateway.unwritten.append(refused)

    assert [one["id"] for one in run("gateway", "restarts", "--json").json["restarts"]] == [refused.id]
    assert refused.id in run("gateway", "restarts").out


def test_stop_and_resume_are_asked_for(run: Run, house: ServedDoors) -> None:
    stopped = run("gateway", "stop", "--reason", "the evening")
    resumed = run("gateway", "resume")

    assert (stopped.status, resumed.status) == (0, 0)
    assert house.gateway.stops[0].startswith("the evening (")
    assert resumed.out == "3 runs resumed\n"


def test_restarts_are_read_beside_the_gateway_and_without_one(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        restart = a_restart()
        store.write_now(lambda tx: tx.restarts.create(restart))

    called = run("gateway", "restarts")
    view = run("gateway", "restarts", "--json").json

    assert restart.id in called.out
    assert [one["id"] for one in view["restarts"]] == [restart.id]


# --- conversations


def test_a_message_is_sent_listed_and_shown(run: Run, house: ServedDoors) -> None:
    sent = run("sessions", "send", "ada", "hello", "--key", "k1")
    again = run("sessions", "send", "agent:ada:main", "hello", "--key", "k1", "--json")
    listed = run("sessions", "list")
    shown = run("sessions", "show", "ada")

    assert sent.status == 0
    assert again.json["isDuplicate"]
    assert "agent:ada:main" in listed.out
    assert "user (queued): hello" in shown.out


@pytest.mark.parametrize(
    ("active", "shown"),
    [("30", ["old", "new"]), ("5", ["new"]), ("1", []), ("5m", ["new"]), ("1h", ["old", "new"])],
)
def test_sessions_that_are_active_are_those_of_the_last_minutes(
    run: Run, ledger: Opens, active: str, shown: list[str]
) -> None:
    now = SystemClock().now()
    with ledger() as store:
        for name, minutes in (("old", 20), ("new", 2)):
            spoken_at = now - timedelta(minutes=minutes)
            session = a_session(key=f"agent:ada:{name}", agent="ada", updated_at=spoken_at)
            store.write_now(functools.partial(create_session, session))

    page = run("sessions", "list", "--active", active, "--json").json

    assert [one["key"].rpartition(":")[2] for one in reversed(page["sessions"])] == shown


def create_session(session: Session, tx: Tx) -> None:
    tx.sessions.create(session)


@pytest.mark.parametrize("active", ["soon", "-5", "5x", "0.5", "٣", ""])
def test_what_is_no_time_is_refused(run: Run, active: str) -> None:
    assert run("sessions", "list", "--active", active).status == 2


def test_a_message_is_stored_while_no_gateway_runs(run: Run, ledger: Opens, home: Path) -> None:
    with ledger():
        pass
    (home / "holdfast.toml").write_text(SETTINGS, encoding="utf-8")

    sent = run("sessions", "send", "ada", "hello")
    shown = run("sessions", "show", "ada", "--json")

    assert sent.status == 0
    assert [message["text"] for message in shown.json["messages"]] == ["hello"]


def test_a_session_without_a_message_is_not_found(run: Run, house: ServedDoors) -> None:
    assert run("sessions", "show", "ada").status == 4
    assert run("sessions", "show", "a:b").status == 2


def test_chat_ends_with_the_answer(run: Run, house: ServedDoors) -> None:
    """An agent of the test answers the first message that waits."""
    answering = threading.Thread(target=answer_first, args=(house,))
    answering.start()

    called = run("chat", "ada", "--message", "how are you?")
    answering.join(20)

    assert (called.status, called.out) == (0, "fine, thanks\n")


def answer_first(house: ServedDoors) -> None:
    from holdfast.core.message import Role
    from holdfast.engine.conversation.transcripts import new_message, post

    store, clock = house.gateway.store, house.gateway.clock

    def answer(tx: Tx) -> bool:
        first = tx.messages.next_of("agent:ada:main") if tx.sessions.find("agent:ada:main") else None
        if first is None:
            return False
        reply = new_message(
            "agent:ada:main", "fine, thanks", None, role=Role.AGENT, is_noted=True, now=clock.now()
        )
        import msgspec

        post(tx, msgspec.structs.replace(reply, reply_to=first.id))
        return True

    while not store.write_now(answer):
        pass


def test_agents_are_listed_from_the_settings(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS, encoding="utf-8")

    called = run("agents", "list")

    assert "agent:ada:main" in called.out
    assert run("agents", "list", "--json").json["agents"][0]["runtime"] == "callable"


# --- one screen


def test_one_screen_shows_the_gateway_and_the_ledger(run: Run, house: ServedDoors) -> None:
    stored_run(house.gateway.store)
    in_doubt(house.gateway.store)
    run("sessions", "send", "ada", "hello")

    called = run("status")
    view = run("status", "--json").json

    assert "serving" in called.out
    assert "holdfast reviews list" in called.out
    assert view["tasks"]["queued"] == 1
    assert (view["openReviews"], view["gateway"]["status"]) == (1, "serving")


def test_one_screen_is_shown_without_a_gateway_and_without_a_ledger(run: Run, home: Path) -> None:
    called = run("status")

    assert called.status == 0
    assert "start it with `holdfast up`" in called.out
    assert not home.exists()
