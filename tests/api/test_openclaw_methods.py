"""What OpenClaw's clients call, on our own client: parameters, answers, scopes, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.api import openclaw_send
from holdfast.api.logs import LogsAsked, read_tail
from holdfast.api.openclaw_methods import OPENCLAW_METHODS
from holdfast.config.sections import AgentSettings, ChannelSettings
from holdfast.core.transitions import DeliveryStatus
from holdfast.gateway.log_file import LOG_NAME, LogWriter
from tests.api.stand_in import OWNER_TOKEN, READ_TOKEN, ServedDoors
from tests.builders import a_run, a_task, put
from tests.fake_secrets import SHAPES
from tests.store.program_records import a_question

HOOK = ChannelSettings(kind="webhook", secret_env="HOOK", url="https://example.org/hook")
DEAF = ChannelSettings(kind="webhook", secret_env="HOOK", agent="ada")


def ask(house: ServedDoors, method: str, **params: Any) -> Any:
    answer = house.post(method, params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def why(house: ServedDoors, method: str, **params: Any) -> tuple[int, str]:
    answer = house.post(method, params)
    return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize("method", [method.name for method in OPENCLAW_METHODS])
def test_an_unknown_parameter_is_refused_as_the_protocol_does(house: ServedDoors, method: str) -> None:
    status, message = why(house, method, bogus=1)

    assert status == 400
    assert message.startswith(f"invalid {method} params: at root: ")


# --- chats


@pytest.mark.parametrize(
    "named",
    [
        {"sessionKey": "main"},
        {"sessionKey": "ada"},
        {"sessionKey": "main", "agentId": "ada"},
        {"sessionKey": "agent:ada:main", "agentId": "ada"},
    ],
)
def test_the_main_session_is_meant_in_every_way_that_clients_name_it(
    house: ServedDoors, named: dict[str, str]
) -> None:
    asked = {"deliver": False, "timeoutMs": 5, "thinking": "low", "queueMode": "followup"}

    posted = ask(house, "chat.send", message="x", **named, **asked)

    assert posted["sessionKey"] == "agent:ada:main"
    assert ask(house, "chat.history", **named)["totalMessages"] == 1


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"deliver": True}, "deliver"),
        ({"agentId": "eve"}, "agentId"),
        ({"sessionId": "sess_other"}, "sessionId"),
        ({"queueMode": "interrupt"}, "queueMode"),
        ({"attachments": []}, "attachments"),
        ({"timeoutMs": -1}, "timeoutMs"),
    ],
)
def test_what_no_agent_here_can_do_is_refused_by_name(
    house: ServedDoors, changed: dict[str, Any], word: str
) -> None:
    ask(house, "chat.send", sessionKey="ada", message="first")

    status, message = why(house, "chat.send", **{"sessionKey": "agent:ada:main", "message": "x"} | changed)

    assert status == 400
    assert word in message
    assert ask(house, "chat.history", sessionKey="ada")["totalMessages"] == 1


def test_a_transcript_is_read_page_by_page_from_its_end(house: ServedDoors) -> None:
    for number in range(5):
        key = {"key": "ada"} if number % 2 else {"sessionKey": "ada"}
        ask(house, "sessions.send", message=f"message {number}", idempotencyKey=f"k{number}", **key)

    newest = ask(house, "chat.history", sessionKey="ada", limit=2, maxChars=7)
    older = ask(house, "chat.history", sessionKey="ada", limit=2, offset=newest["nextOffset"])
    refused = why(house, "chat.history", sessionKey="ada", offset=1, after=1)

    assert [one["content"][0]["text"] for one in newest["messages"]] == ["messag…", "messag…"]
    assert [one["text"] for one in older["messages"]] == ["message 1", "message 2"]
    assert (older["messages"][0]["role"], older["messages"][0]["idempotencyKey"]) == ("user", "k1")
    assert newest["sessionInfo"]["sessionId"] == newest["sessionId"]
    assert (refused[0], why(house, "sessions.send", message="x")[0]) == (400, 400)


def test_sessions_are_listed_with_what_a_client_wants_to_show(house: ServedDoors) -> None:
    for name in ("one", "two", "three"):
        ask(house, "chat.send", sessionKey=f"agent:ada:{name}", message=f"about {name}")
    wanted = {"includeGlobal": True, "includeDerivedTitles": True, "includeLastMessage": True, "limit": 2}

    first = ask(house, "sessions.list", **wanted)
    rest = ask(house, "sessions.list", **wanted, offset=first["nextOffset"])

    assert [one["derivedTitle"] for one in first["sessions"]] == ["about three", "about two"]
    assert [one["lastMessagePreview"] for one in rest["sessions"]] == ["about one"]
    assert (first["hasMore"], rest["hasMore"]) == (True, False)
    assert first["sessions"][0]["hasActiveRun"]
    assert ask(house, "sessions.list", agentId="eve")["count"] == 0


def test_without_a_default_agent_a_client_has_to_choose(house: ServedDoors) -> None:
    other = AgentSettings(callable="tests.api.stand_in:agents")
    both = {"ada": house.gateway.config.agents["ada"], "eve": other}
    house.gateway.config = msgspec.structs.replace(house.gateway.config, agents=both)

    listed = ask(house, "agents.list")
    refused = why(house, "agent", message="x", idempotencyKey="k")

    assert [one["id"] for one in listed["agents"]] == ["ada", "eve"]
    assert "defaultId" not in listed
    assert listed["selectionRequired"]
    assert refused == (400, "agentId: name an agent: ada, eve")


# --- runs


def test_a_run_that_waits_is_aborted_by_its_id_or_by_its_key(house: ServedDoors) -> None:
    runs = [ask(house, "agent", message=f"m{n}", agentId="ada", idempotencyKey=f"k{n}") for n in range(4)]
    pending = ask(house, "agent.wait", runId=runs[0]["runId"], timeoutMs=0)

    by_id = ask(house, "chat.abort", sessionKey="ada", runId=runs[0]["runId"])
    by_key = ask(house, "chat.abort", sessionKey="ada", runId="k1")
    twice = ask(house, "chat.abort", sessionKey="ada", runId="k1")
    elsewhere = ask(house, "chat.abort", sessionKey="agent:ada:other", runId=runs[2]["runId"])
    without_session = ask(house, "sessions.abort", runId=runs[2]["runId"])
    rest = ask(house, "sessions.abort", key="ada", clearQueued=True)

    assert pending == {"runId": runs[0]["runId"], "status": "pending", "timeoutPhase": "queue"}
    assert (by_id["runIds"], by_key["runIds"]) == ([runs[0]["runId"]], [runs[1]["runId"]])
    assert not twice["aborted"]
    assert not elsewhere["aborted"]
    assert without_session["abortedRunId"] == runs[2]["runId"]
    assert (rest["status"], rest["cleared"]) == ("no-active-run", 1)
    ended = [ask(house, "agent.wait", runId=run["runId"]) for run in runs]
    assert {(one["status"], one["stopReason"]) for one in ended} == {("error", "aborted")}
    assert house.post("sessions.abort", {}).status_code == 400
    assert house.post("agent.wait", {"runId": "k1"}).status_code == 404


def test_the_same_run_twice_is_one_run(house: ServedDoors) -> None:
    asked = {"message": "once", "agentId": "ada", "idempotencyKey": "k"}

    first, again = (ask(house, "agent", **asked) for _ in range(2))
    ask(house, "chat.abort", sessionKey="ada", runId="k")
    ended = ask(house, "agent", **asked)

    assert (first["status"], again["status"], ended["status"]) == ("accepted", "in_flight", "error")
    assert first["runId"] == again["runId"] == ended["runId"]
    assert house.post("agent", asked | {"message": "other"}).status_code == 409


def test_the_end_of_a_run_follows_as_a_second_response(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        accepted = client.call("agent", {"message": "x", "agentId": "ada", "idempotencyKey": "k"})
        client.send(
            {
                "type": "req",
                "id": "stop",
                "method": "chat.abort",
                "params": {"sessionKey": "ada", "runId": "k"},
            }
        )
        frames = [client.read(), client.read()]
        while any(frame["type"] == "event" for frame in frames):
            frames = [frame for frame in frames if frame["type"] != "event"] + [client.read()]

    by_id = {frame["id"]: frame["payload"] for frame in frames}
    assert accepted["payload"]["status"] == "accepted"
    assert by_id["stop"]["aborted"]
    assert by_id[accepted["id"]]["status"] == "error"
    assert by_id[accepted["id"]]["runId"] == accepted["payload"]["runId"]


# --- questions


def asked_question(house: ServedDoors, **changes: Any) -> str:
    task = a_task()
    run = a_run(task)
    question = a_question(run, **changes)

    def write(tx: Any) -> None:
        put(tx, task, run)
        tx.questions.create(question)

    house.gateway.store.write_now(write)
    return question.id


def test_a_question_is_answered_by_a_client_that_may_do_nothing_else(house: ServedDoors) -> None:
    question_id = asked_question(house, question="Ship it?", choices=("yes", "no"))
    answers = {"answers": {"answer": ["yes"]}}

    with house.websocket() as client:
        hello = client.connect(scopes=["operator.questions"])
        (record,) = client.call("question.list")["payload"]["questions"]
        forbidden = client.call("tasks.list")
        wrong = client.call(
            "question.resolve", {"id": question_id, "answers": {"answers": {"answer": ["?"]}}}
        )
        answered = client.call("question.resolve", {"id": question_id, "answers": answers})
    found = ask(house, "question.get", id=question_id)["question"]

    assert hello["payload"]["auth"]["scopes"] == ["operator.questions"]
    assert [one["label"] for one in record["questions"][0]["options"]] == ["yes", "no"]
    assert forbidden["error"]["code"] == "FORBIDDEN"
    assert not wrong["ok"]
    assert answered["payload"] == {"status": "answered", "answers": answers}
    assert (found["status"], found["answers"], found["resolvedBy"]) == ("answered", answers, "operator")
    assert house.post("question.list", token=READ_TOKEN).status_code == 403


@pytest.mark.parametrize("bad", [{"cancel": True}, {}, {"answers": {"answers": {"other": ["x"]}}}])
def test_an_answer_that_cannot_be_one_is_refused(house: ServedDoors, bad: dict[str, Any]) -> None:
    question_id = asked_question(house)

    status, message = why(house, "question.resolve", id=question_id, **bad)

    assert status == 400
    assert "answers" in message or "tasks.cancel" in message


# --- messages to people


@pytest.fixture
def hooked(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> ServedDoors:
    channels = {"hook": HOOK, "deaf": DEAF}
    house.gateway.config = msgspec.structs.replace(house.gateway.config, channels=channels)
    monkeypatch.setattr(openclaw_send, "SENT_WITHIN_S", 0.0)
    return house


def test_a_message_to_a_person_is_owed_once_and_stands_in_the_transcript(hooked: ServedDoors) -> None:
    asked = {"to": "bob", "message": "hello", "idempotencyKey": "k", "sessionKey": "ada", "threadId": "t"}

    first, again = (ask(hooked, "send", **asked) for _ in range(2))
    plain = ask(hooked, "send", to="bob", message="hello", idempotencyKey="p", channel="hook")

    assert first == again
    assert (first["status"], first["channel"], first["runId"]) == ("queued", "hook", "k")
    owed = ask(hooked, "deliveries.list", which="owed")["deliveries"]
    assert {one["id"] for one in owed} == {first["messageId"], plain["messageId"]}
    (said,) = ask(hooked, "chat.history", sessionKey="ada")["messages"]
    assert (said["role"], said["text"]) == ("assistant", "hello")
    assert hooked.post("send", asked | {"message": "bye"}).status_code == 409
    assert hooked.post("send", asked | {"to": "eve"}).status_code == 409


@pytest.mark.parametrize("channel", ["deaf", "nowhere", "console"])
def test_only_a_channel_that_sends_can_be_named(hooked: ServedDoors, channel: str) -> None:
    status, message = why(hooked, "send", to="bob", message="x", idempotencyKey="k", channel=channel)

    assert (status, message) == (400, "channel: name a channel that sends: hook")


def test_a_message_that_a_channel_refused_is_an_error(hooked: ServedDoors) -> None:
    asked = {"to": "bob", "message": "x", "idempotencyKey": "k"}
    sent = ask(hooked, "send", **asked)
    store = hooked.gateway.store
    now = hooked.gateway.clock.now()

    def fail(tx: Any) -> None:
        owed = tx.deliveries.attempt(sent["messageId"], boot_id="boot_x", lease_until=now, now=now)
        tx.deliveries.settle(owed, DeliveryStatus.FAILED, now=now)

    store.write_now(fail)

    status, message = why(hooked, "send", **asked)
    assert (status, "holdfast deliveries list" in message) == (409, True)


# --- the gateway


def test_status_and_health_tell_what_the_ledger_knows(hooked: ServedDoors) -> None:
    ask(hooked, "chat.send", sessionKey="ada", message="x")

    status = ask(hooked, "status", includeCliProjection=True)
    health = ask(hooked, "health", probe=True)
    bound = hooked.post("health", token=OWNER_TOKEN).json()
    (entry,) = ask(hooked, "system-presence")

    assert (status["tasks"]["total"], status["sessions"]["count"]) == (0, 1)
    assert status["sessions"]["byAgent"][0]["recent"][0]["key"] == "agent:ada:main"
    assert status["cliProjection"]["agents"]["defaultId"] == "ada"
    assert health["agents"][0]["sessions"]["count"] == 1
    assert health["channelOrder"] == ["hook", "deaf"]
    assert set(bound) == {"ok", "status", "isReady", "ts"}
    assert (entry["mode"], entry["reason"]) == ("gateway", "self")


def test_channels_models_and_the_schema_are_told(hooked: ServedDoors) -> None:
    one = ask(hooked, "channels.status", channel="deaf", probe=True, timeoutMs=1)

    assert one["channelAccounts"]["deaf"][0]["webhookPath"] == "/channels/deaf"
    assert hooked.post("channels.status", {"channel": "x"}).status_code == 404
    assert ask(hooked, "models.list", view="all", includeDetails=True) == {"models": []}
    assert "agents" in ask(hooked, "config.schema")["schema"]["$defs"]["Config"]["properties"]


# --- the log


def a_record(text: str) -> logging.LogRecord:
    return logging.LogRecord("holdfast", logging.INFO, __file__, 1, text, None, None)


def test_the_log_is_read_on_from_a_cursor_and_holds_no_secret(house: ServedDoors) -> None:
    log = LogWriter(house.gateway.home, replaces=True)
    log.emit(a_record(f"first {SHAPES['github'][0]}"))
    begun = ask(house, "logs.tail")
    log.emit(a_record("second\nwith a line"))
    log.close()

    more = ask(house, "logs.tail", cursor=begun["cursor"])

    (first,) = map(msgspec.json.decode, begun["lines"])
    assert (first["level"], first["message"]) == ("info", "first [redacted:github]")
    assert [msgspec.json.decode(line)["message"] for line in more["lines"]] == ["second\nwith a line"]
    assert (more["cursor"], more["file"]) == (more["size"], LOG_NAME)
    assert house.post("logs.tail", {"limit": 0}).status_code == 400


def test_a_log_that_is_too_long_is_replaced_and_both_writers_go_on(tmp_path: Path) -> None:
    gateway = LogWriter(tmp_path, replaces=True, max_bytes=200)
    supervisor = LogWriter(tmp_path, replaces=False)
    for number in range(4):
        gateway.emit(a_record(f"gateway {number}"))
        supervisor.emit(a_record(f"supervisor {number}"))
    gateway.close()
    supervisor.close()

    path = tmp_path / LOG_NAME
    both = [*path.with_name("gateway.log.1").read_bytes().splitlines(), *path.read_bytes().splitlines()]
    assert [msgspec.json.decode(line)["message"] for line in both][-1] == "supervisor 3"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("asked", "lines", "cursor", "truncated", "reset"),
    [
        (LogsAsked(), ["one", "two"], 8, False, False),
        (LogsAsked(limit=1), ["two"], 8, True, False),
        (LogsAsked(max_bytes=8), ["two"], 8, True, False),
        (LogsAsked(cursor=4), ["two"], 8, False, False),
        (LogsAsked(cursor=8), [], 8, False, False),
        (LogsAsked(cursor=99), ["one", "two"], 8, False, True),
    ],
)
def test_only_whole_lines_are_read(
    tmp_path: Path, asked: LogsAsked, lines: list[str], cursor: int, truncated: bool, reset: bool
) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthr")

    found = read_tail(path, asked)

    assert (found.lines, found.cursor, found.truncated, found.reset) == (lines, cursor, truncated, reset)
