"""OpenClaw's real CLI and client against `holdfast up`: they get answers, and the truth after a restart."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home
from tests.openclaw.packages import NpmAway, installed
from tests.openclaw.programs import ClawClient, OpenClaw

pytestmark = pytest.mark.slow

AGENTS = Path(__file__).with_name("agents.py")
NAMES = ["asker", "main", "patient", "sleeper"]
TOLD = "from the operator"


class Sink(HTTPServer):
    """A receiver of webhooks, in this process."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        sink = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.bodies.append(msgspec.json.decode(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                pass

        super().__init__(("127.0.0.1", 0), Receiver)


class ClawWorld(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway for all tests of this file, what talks to it, and who receives its webhooks."""

    gateway: GatewayHome
    openclaw: OpenClaw
    sink: Sink

    def started(self, text: str) -> int:
        """How many times an agent was started with this text."""
        return self.gateway.world("started").count(text)

    def task_of(self, text: str) -> Any:
        """The task that answers this text, once an agent has it."""
        found: list[Any] = []

        def is_there() -> bool:
            tasks = self.gateway.ask("tasks.list", status="running")["tasks"]
            found.extend(one for one in tasks if one["title"] == text)
            return bool(found)

        self.gateway.wait_for(is_there, f"no agent got {text!r}")
        return found[0]

    def question(self) -> Any:
        """The open question, once an agent has asked it."""
        found: list[Any] = []

        def is_there() -> bool:
            found.extend(self.gateway.ask("question.list")["questions"])
            return bool(found)

        self.gateway.wait_for(is_there, "no agent asked anything")
        return found[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClawWorld]:
    try:
        packages = installed()
    except NpmAway as why:
        pytest.skip(f"OpenClaw cannot be installed: {why}")
    base = tmp_path_factory.mktemp("openclaw")
    with Sink() as sink, pytest.MonkeyPatch.context() as patch:
        receiving = threading.Thread(target=sink.serve_forever)
        receiving.start()
        patch.setenv("HOOK_SECRET", "0123456789abcdef0123456789abcdef")
        settings = {
            "agents": {
                "asker": {"callable": "tests.openclaw.agents:asker"},
                "main": {"command": [sys.executable, str(AGENTS)]},
                "patient": {"callable": "tests.openclaw.agents:patient"},
                "sleeper": {"callable": "tests.openclaw.agents:sleeper"},
            },
            "channels": {
                "hook": {
                    "kind": "webhook",
                    "secret_env": "HOOK_SECRET",
                    "url": f"http://127.0.0.1:{sink.server_port}/",
                }
            },
        }
        try:
            with gateway_home(base / "home", settings=settings) as one:
                one.until_ready()
                token = (one.home / "token").read_text().strip()
                openclaw = OpenClaw(packages, base / "openclaw", url=one.url, token=token)
                one.ask("chat.send", sessionKey="main", message="good morning", idempotencyKey="morning")
                one.wait_for(one.is_quiet, "the first message is not answered")
                yield ClawWorld(gateway=one, openclaw=openclaw, sink=sink)
        finally:
            sink.shutdown()
            receiving.join()


def said(client: ClawClient, session: str, text: str) -> list[Any]:
    """The messages with this text, as OpenClaw's client reads them."""
    history = client.ask("chat.history", sessionKey=session)
    return [one for one in history["messages"] if one["content"] == [{"type": "text", "text": text}]]


# --- one row for each command

Check = Callable[[Any], object]


def first_task(answer: Any) -> bool:
    (task,) = [one for one in answer["tasks"] if one["title"] == "good morning"]
    return bool(task["status"] == "completed" and task["agentId"] == "main")


# Methods with the parameters that OpenClaw's clients send.
CALLS: dict[str, tuple[str, dict[str, Any], Check]] = {
    "the tasks": ("tasks.list", {"limit": 50, "sortBy": "updatedAt"}, first_task),
    "a message": (
        "chat.send",
        {
            "sessionKey": "main",
            "message": "a message",
            "deliver": False,
            "timeoutMs": 600_000,
            "thinking": "low",
            "idempotencyKey": "row",
        },
        lambda answer: answer["runId"].startswith("msg_") and not answer["isDuplicate"],
    ),
    "a message to a session": (
        "sessions.send",
        {"key": "agent:main:main", "message": "once more", "timeoutMs": 1, "idempotencyKey": "again"},
        lambda answer: answer["sessionKey"] == "agent:main:main",
    ),
    "the transcript": (
        "chat.history",
        {"sessionKey": "main", "agentId": "main", "limit": 200},
        lambda answer: (
            answer["messages"][0]["role"] == "user"
            and answer["messages"][1]["role"] == "assistant"
            and answer["messages"][1]["content"][0]["text"] == "you said: good morning"
        ),
    ),
    "the sessions": (
        "sessions.list",
        {
            "limit": 50,
            "activeMinutes": 10_080,
            "includeGlobal": False,
            "includeUnknown": False,
            "includeDerivedTitles": True,
            "includeLastMessage": True,
        },
        lambda answer: (
            [one["derivedTitle"] for one in answer["sessions"] if one["key"] == "agent:main:main"]
            == ["good morning"]
        ),
    ),
    "the agents": (
        "agents.list",
        {},
        lambda answer: [one["id"] for one in answer["agents"]] == NAMES and answer["defaultId"] == "main",
    ),
    "no models": ("models.list", {"view": "all"}, lambda answer: answer == {"models": []}),
    "no questions": ("question.list", {}, lambda answer: answer == {"questions": []}),
    "nothing to abort": (
        "chat.abort",
        {"sessionKey": "agent:patient:idle", "preserveSideRuns": True},
        lambda answer: answer == {"ok": True, "aborted": False, "runIds": []},
    ),
    "the channels": (
        "channels.status",
        {"probe": False, "timeoutMs": 10_000},
        lambda answer: answer["channelAccounts"]["hook"][0]["configured"],
    ),
    "the schema of the settings": (
        "config.schema",
        {},
        lambda answer: "agents" in answer["schema"]["$defs"]["Config"]["properties"],
    ),
    "a notice to a person": (
        "send",
        {"to": "ada", "channel": "hook", "message": TOLD, "idempotencyKey": "notice"},
        lambda answer: answer["status"] == "sent" and answer["channel"] == "hook",
    ),
}


def test_methods_answer_the_real_client(world: ClawWorld) -> None:
    with world.openclaw.client() as client:
        client.until_connected()
        answers = {row: client.ask(method, **params) for row, (method, params, _) in CALLS.items()}

    assert {row: answers[row] for row, (_, _, is_right) in CALLS.items() if not is_right(answers[row])} == {}


MORNING = {
    "name": "Morning brief",
    "agentId": "main",
    "enabled": True,
    "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin"},
    "sessionTarget": "isolated",
    "wakeMode": "now",
    "payload": {"kind": "agentTurn", "message": "Brief me."},
}


def test_a_schedule_that_the_real_cli_adds_is_listed_by_it(world: ClawWorld) -> None:
    added = world.openclaw.call("cron.add", **MORNING)

    command = world.openclaw.run_at("cron", "list", "--json")

    assert (added.status, command.status) == (0, 0), (added, command)
    (one,) = command.json["jobs"]
    assert (one["id"], one["name"]) == (added.json["id"], "Morning brief")
    assert (one["schedule"]["expr"], one["payload"]["message"]) == ("0 7 * * *", "Brief me.")


def test_a_task_is_shown_and_cancelled_by_the_real_cli(world: ClawWorld) -> None:
    asked = {"agentId": "sleeper", "message": "cancel me", "idempotencyKey": "cancel me"}
    world.gateway.ask("agent", **asked)
    task_id = world.task_of("cancel me")["id"]

    shown = world.openclaw.call("tasks.get", taskId=task_id)
    cancelled = world.openclaw.call("tasks.cancel", taskId=task_id, reason="too slow")

    assert (shown.json["task"]["id"], shown.json["task"]["status"]) == (task_id, "running")
    assert (cancelled.json["found"], cancelled.json["cancelled"]) == (True, True)
    assert [one.status for one in (shown, cancelled)] == [0, 0]


def test_a_question_is_read_and_answered_by_the_real_cli(world: ClawWorld) -> None:
    asked = {"agentId": "asker", "message": "Which tide?", "idempotencyKey": "tide"}
    run = world.gateway.ask("agent", **asked)
    question = world.question()

    with world.openclaw.client() as client:
        client.until_connected()
        shown = client.ask("question.get", id=question["id"])["question"]
        answers = {"answers": {"answer": ["flood"]}}
        resolved = world.openclaw.call("question.resolve", id=question["id"], answers=answers)
        ended = client.ask("agent.wait", runId=run["runId"], timeoutMs=30_000)
        heard = said(client, run["sessionKey"], "you chose: flood")

    assert shown == question
    assert shown["questions"][0]["question"] == "Which tide?"
    assert resolved.json == {"status": "answered", "answers": answers}
    assert ended["status"] == "ok"
    assert len(heard) == 1


# Whole commands: whether they are told the address, their arguments, and what they print.
COMMANDS: dict[str, tuple[bool, tuple[str, ...], Check]] = {
    "gateway health": (True, ("gateway", "health", "--json"), lambda said: said["ok"] and said["isReady"]),
    "gateway probe": (
        True,
        ("gateway", "probe", "--json"),
        lambda said: said["ok"] and not said["degraded"] and said["targets"][0]["connect"]["rpcOk"],
    ),
    "health": (
        False,
        ("health", "--json"),
        lambda said: [one["agentId"] for one in said["agents"]] == NAMES,
    ),
    "status": (
        False,
        ("status", "--json"),
        lambda said: (
            said["gateway"]["reachable"]
            and said["tasks"]["total"] >= 1
            and said["sessions"]["count"] >= 1
            and [one["id"] for one in said["agents"]["agents"]] == NAMES
        ),
    ),
    "channels status": (
        False,
        ("channels", "status", "--json"),
        lambda said: said["channelOrder"] == ["hook"],
    ),
    "agent": (
        False,
        ("agent", "--agent", "main", "--message", "how are you", "--json"),
        lambda said: (
            said["status"] == "ok" and said["result"]["payloads"] == [{"text": "you said: how are you"}]
        ),
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_real_cli_works(world: ClawWorld, command: str) -> None:
    has_address, arguments, is_right = COMMANDS[command]
    run = world.openclaw.run_at if has_address else world.openclaw.run

    answer = run(*arguments)

    assert answer.status == 0, answer
    assert is_right(answer.json), answer.out


def test_commands_for_people_print_what_the_gateway_knows(world: ClawWorld) -> None:
    health = world.openclaw.run("health")
    logs = world.openclaw.run("logs", "--limit", "50")

    assert "Agents: asker, main (default), patient, sleeper" in health.out
    assert "- agent:main:main" in health.out
    assert "the gateway is ready" in logs.out


def test_a_notice_arrives_once(world: ClawWorld) -> None:
    sent = {"to": "ada", "channel": "hook", "message": "only once", "idempotencyKey": "once"}

    with world.openclaw.client() as client:
        client.until_connected()
        first, again = (client.ask("send", **sent) for _ in range(2))

    assert first == again
    assert [body["text"] for body in world.sink.bodies].count("only once") == 1


def test_what_is_not_answered_gets_the_errors_of_the_protocol(world: ClawWorld) -> None:
    unknown = world.openclaw.call("device.pair.list")
    with world.openclaw.client() as client:
        client.until_connected()

        def refusal(method: str, **params: Any) -> tuple[str, str]:
            answer = client.answer(client.begin(method, **params))
            assert not answer["ok"]
            return answer["code"], answer["message"]

        bogus = refusal("tasks.list", bogus=True)
        missing = refusal("tasks.get", taskId="task_none")
        delivered = refusal("chat.send", sessionKey="main", message="x", deliver=True, idempotencyKey="no")
        cancelled = client.ask("tasks.cancel", taskId="task_none")

    assert unknown.status == 1
    assert (unknown.json["error"]["code"], unknown.json["error"]["message"]) == (
        "INVALID_REQUEST",
        "unknown method: device.pair.list",
    )
    assert bogus == (
        "INVALID_REQUEST",
        "invalid tasks.list params: at root: unexpected property 'bogus'",
    )
    assert missing == ("INVALID_REQUEST", "task not found: task_none")
    assert delivered[0] == "INVALID_REQUEST"
    assert cancelled == {"found": False, "cancelled": False, "reason": "Task not found."}


def test_a_run_is_waited_for_and_aborted(world: ClawWorld) -> None:
    asked = {"agentId": "sleeper", "message": "abort me", "idempotencyKey": "abort"}
    with world.openclaw.client() as client:
        client.until_connected()
        run = client.ask("agent", **asked)
        world.task_of("abort me")

        running = client.ask("agent.wait", runId=run["runId"], timeoutMs=1)
        aborted = client.ask("chat.abort", sessionKey=run["sessionKey"], runId=run["runId"])
        ended = client.ask("agent.wait", runId=run["runId"], timeoutMs=30_000)
        again = client.ask("sessions.abort", key=run["sessionKey"])

    assert (run["status"], running) == ("accepted", {"runId": run["runId"], "status": "timeout"})
    assert aborted == {"ok": True, "aborted": True, "runIds": [run["runId"]]}
    assert (ended["status"], ended["stopReason"]) == ("error", "aborted")
    assert again["status"] == "no-active-run"


# --- the shapes of answers

# Fields of our own beside OpenClaw's, by the schema of the record that they stand in.
OURS = {
    "AgentSummarySchema": {"mainSession", "runtime", "target"},
    "CronJobSchema": {"maxMissed", "missed", "overlap", "ownedBy", "source", "tz"},
}


def test_answers_fit_the_schemas_that_openclaw_publishes(world: ClawWorld) -> None:
    schemas = world.openclaw.schemas()
    wrong: list[str] = []

    def check(name: str, answer: Any) -> None:
        validator = Draft202012Validator(schemas[name])
        wrong.extend(f"{name}: {error.json_path} {error.message}" for error in validator.iter_errors(answer))

    def check_extended(name: str, record: dict[str, Any]) -> None:
        check(name, {field: value for field, value in record.items() if field not in OURS[name]})
        assert record.keys() >= OURS[name]

    with world.openclaw.client() as client:
        check("HelloOkSchema", client.until_connected()["hello"])
        for agent in ("sleeper", "asker"):
            client.ask("agent", agentId=agent, message=f"shape of {agent}", idempotencyKey=f"shape {agent}")
        task_id, question_id = world.task_of("shape of sleeper")["id"], world.question()["id"]
        record = {"name": "render", "goal": "render a title", "owner": "ada", "runtime": "subagent"}
        work = world.gateway.ask("producer.create", runId="shape", isRunning=True, **record)["task"]["id"]
        world.gateway.ask("producer.progress", runId="shape", summary="frame 1", tool="ffmpeg", toolUses=2)
        check("TasksGetResultSchema", client.ask("tasks.get", taskId=work))
        world.gateway.ask("producer.finish", runId="shape", summary="three frames", outcome="blocked")
        check("TasksGetResultSchema", client.ask("tasks.get", taskId=work))
        check("TasksListResultSchema", client.ask("tasks.list"))
        check("TasksGetResultSchema", client.ask("tasks.get", taskId=task_id))
        check("TasksCancelResultSchema", client.ask("tasks.cancel", taskId=task_id))
        check("TasksCancelResultSchema", client.ask("tasks.cancel", taskId="task_none"))
        check("TasksGetResultSchema", client.ask("tasks.get", taskId=task_id))
        check("TasksRecoveryResultSchema", client.ask("tasks.retry", taskIds=[task_id]))
        check("TasksRecoveryResultSchema", client.ask("tasks.dismiss", taskIds=[task_id]))
        check("QuestionListResultSchema", client.ask("question.list"))
        check("QuestionGetResultSchema", client.ask("question.get", id=question_id))
        answers = {"answers": {"answer": ["ebb"]}}
        check("QuestionResolveResultSchema", client.ask("question.resolve", id=question_id, answers=answers))
        check("QuestionGetResultSchema", client.ask("question.get", id=question_id))
        check("ChannelsStatusResultSchema", client.ask("channels.status"))
        check("ConfigSchemaResponseSchema", client.ask("config.schema"))
        check("LogsTailResultSchema", client.ask("logs.tail"))
        for entry in client.ask("system-presence"):
            check("PresenceEntrySchema", entry)
        for row in client.ask("sessions.list", includeLastMessage=True)["sessions"]:
            check("SessionRowSchema", row)
        agents = client.ask("agents.list")
        check("AgentsListResultSchema", agents | {"agents": []})
        for agent in agents["agents"]:
            check_extended("AgentSummarySchema", agent)
        added = client.ask("cron.add", **MORNING | {"name": "Shape"})
        check_extended("CronJobSchema", added)
        for job in client.ask("cron.list", includeDisabled=True)["jobs"]:
            check_extended("CronJobSchema", job)
        client.ask("cron.remove", id=added["id"])

    assert wrong == []


# --- a restart and a crash


def interrupt_by_restart(world: ClawWorld) -> None:
    done = Cli(world.gateway)("gateway", "restart", "--force", "--reason", "the test wants it")
    assert done.status == 0, done


def interrupt_by_kill(world: ClawWorld) -> None:
    world.gateway.kill_gateway()


def statuses(client: ClawClient) -> dict[str, str]:
    tasks = client.ask("tasks.list", limit=500)["tasks"]
    return {one["id"]: one["status"] for one in tasks}


def test_the_real_client_connects_again_and_sees_the_truth(world: ClawWorld) -> None:
    one = world.gateway
    with world.openclaw.client() as client, world.openclaw.following("logs", "--follow", "--json") as logs:
        client.until_connected()
        logs.until(lambda line: line["type"] == "meta")
        # One task goes on through it all, and one is cancelled before.
        lasting = client.begin("agent", agentId="patient", message="lasting", idempotencyKey="lasting")
        run_id = client.answer(lasting)["payload"]["runId"]
        task_id = world.task_of("lasting")["id"]
        client.ask("agent", agentId="sleeper", message="stopped", idempotencyKey="stopped")
        stopped = world.task_of("stopped")["id"]
        assert client.ask("tasks.cancel", taskId=stopped)["cancelled"]
        one.wait_for(lambda: statuses(client)[stopped] == "cancelled", "it is not cancelled")
        known = statuses(client)

        for how, interrupt in (("restart", interrupt_by_restart), ("kill", interrupt_by_kill)):
            boot = one.until_ready()["bootId"]
            # Its agent works on it, in the middle of the interruption.
            working = {"sessionKey": f"agent:patient:{how}", "message": how, "idempotencyKey": how}
            posted = client.ask("chat.send", **working)
            one.wait_for(lambda: has_begun(world, how), "its agent does not work on it")  # noqa: B023 - called at once
            # Acknowledged, and nothing else is known of it.
            sent = {"sessionKey": "main", "message": f"just before the {how}", "idempotencyKey": how}
            fresh = client.ask("chat.send", **sent)
            interrupt(world)
            client.until(lambda line: line["told"] == "close")
            client.until_connected()
            one.until_ready(unless_boot=boot)
            again = [client.ask("chat.send", **asked) for asked in (working, sent)]
            one.open_door(how)
            ended = client.ask("agent.wait", runId=posted["runId"], timeoutMs=20_000)

            assert [(message["messageId"], message["isDuplicate"]) for message in again] == [
                (posted["messageId"], True),
                (fresh["messageId"], True),
            ]
            assert ended["status"] == "ok"
            assert world.started(how) == 1
            assert len(said(client, f"agent:patient:{how}", how)) == 1
            assert len(said(client, f"agent:patient:{how}", f"you said: {how}")) == 1
            assert len(said(client, "main", f"just before the {how}")) == 1
            assert world.started(f"just before the {how}") <= 1
            found = statuses(client)
            assert {task: found.get(task) for task in known} == known
            assert found[stopped] == "cancelled"
            logs.until(lambda line: "the gateway is ready" in line.get("message", ""))

        one.open_door("lasting")
        ended = client.ask("agent.wait", runId=run_id, timeoutMs=20_000)
        assert ended["status"] == "ok"
        assert statuses(client)[task_id] == "completed"
        assert world.started("lasting") == 1
        assert len(said(client, "agent:patient:main", "you said: lasting")) == 1


def has_begun(world: ClawWorld, text: str) -> bool:
    """Whether an agent has begun with this text, and saved that."""
    tasks = world.gateway.ask("tasks.list")["tasks"]
    (task,) = [one for one in tasks if one["title"] == text] or [None]
    if task is None:
        return False
    steps = world.gateway.ask("ledger.steps", taskId=task["id"])["steps"]
    return any(step["name"] == "is_open" for step in steps)


def test_the_real_client_gets_the_end_of_a_run_as_a_second_response(world: ClawWorld) -> None:
    with world.openclaw.client() as client:
        client.until_connected()
        number = client.begin(
            "agent", expect_final=True, agentId="main", message="the end", idempotencyKey="the end"
        )
        accepted = client.until(lambda line: line["told"] == "accepted")["payload"]
        final = client.answer(number)["payload"]

    assert (accepted["status"], final["status"]) == ("accepted", "ok")
    assert final["runId"] == accepted["runId"]
    assert final["result"]["payloads"] == [{"text": "you said: the end"}]
