"""POST /rpc/<method> over a real store: the table of methods, its words and its errors."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.api.methods import METHODS
from holdfast.core.clock import SystemClock, to_micros
from holdfast.core.transitions import RunStatus
from holdfast.gateway.gateway import GatewayPhase
from holdfast.store.clock import LedgerClock
from tests.api.stand_in import TOKEN, ServedDoors
from tests.builders import running_run, stored_checkpoint, stored_run
from tests.store.program_records import a_summary, a_turn, kept_of

pytestmark = pytest.mark.slow


def test_a_task_is_listed_shown_and_cancelled_in_the_words_of_the_protocol(house: ServedDoors) -> None:
    task_id = stored_run(house.gateway.store).task_id

    listed = house.post("tasks.list").json()
    found = house.post("tasks.get", {"taskId": task_id}).json()
    cancelled = house.post("tasks.cancel", {"taskId": task_id, "reason": "enough"}).json()

    assert [task["id"] for task in listed["tasks"]] == [task_id]
    assert found["task"]["status"] == "queued"
    assert isinstance(found["task"]["createdAt"], int)
    assert (cancelled["found"], cancelled["cancelled"]) == (True, True)
    assert cancelled["task"]["status"] == "cancelled"


def test_a_cancel_of_nothing_is_an_answer_of_the_protocol_and_404_over_http(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        cancelled = client.call("tasks.cancel", {"taskId": "task_none"})
        missing = client.call("tasks.get", {"taskId": "task_none"})
    over_http = house.post("tasks.get", {"taskId": "task_none"})

    assert cancelled["payload"] == {"found": False, "cancelled": False, "reason": "Task not found."}
    assert missing["error"]["code"] == "INVALID_REQUEST"
    assert missing["error"]["message"] == "task not found: task_none"
    assert over_http.status_code == 404
    assert over_http.json()["error"] == {
        "code": "NOT_FOUND",
        "message": "task not found: task_none",
        "details": {"code": "not_found"},
    }


UNKNOWN: dict[str, object] = {
    "taskId": "task_none",
    "effectId": "eff_none",
    "questionId": "ques_none",
    "deliveryId": "dlv_none",
    "checkpointId": "ckpt_none",
    "wakeId": "wake_none",
    "sessionKey": "agent:eve:main",
}
MORE: dict[str, dict[str, object]] = {
    "reviews.resolve": {"decision": "done"},
    "questions.answer": {"answer": "x"},
    "chat.send": {"message": "x"},
    "sessions.send": {"message": "x"},
    "agent": {"message": "x", "idempotencyKey": "k"},
    "ledger.fork": {"at": "start"},
    "ledger.notify": {"notify": "silent"},
    "producer.create": {"runtime": "media"},
    "producer.dropped": {"total": 1},
    "wake": {"mode": "now", "text": "x"},
    "cron.add": {
        "name": "x",
        "schedule": {"kind": "every", "everyMs": 600_000},
        "payload": {"kind": "agentTurn", "message": "x"},
    },
    "sessions.spawn": {"task": "x"},
    "cron.calendar": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
    "campaigns.create": {"name": "x", "phases": [{"name": "a", "task": "t"}]},
    "campaigns.add": {"campaign": "x", "items": [{"id": "a"}]},
    **{
        f"flows.{change}": {"expectedRevision": 1}
        for change in ("update", "wait", "resume", "finish", "fail")
    },
}
NAMES_ONE = [
    (method.name, field.encode_name)
    for method in METHODS.values()
    for field in msgspec.structs.fields(method.params)
    # In a list it only chooses what is shown, and a producer may record work of a session that is elsewhere.
    if field.encode_name in UNKNOWN
    and (method.name, field.encode_name)
    not in {
        ("tasks.list", "sessionKey"),
        ("ledger.list", "sessionKey"),
        ("cron.list", "sessionKey"),
        ("sessions.tasks", "sessionKey"),
        # The target of a schedule is checked like one of the settings: an unknown agent is bad input.
        ("cron.add", "sessionKey"),
        # It needs a channel of the settings first.
        ("send", "sessionKey"),
        ("producer.create", "sessionKey"),
    }
]


@pytest.mark.parametrize(("method", "field"), NAMES_ONE)
def test_an_unknown_id_is_not_found_whatever_the_method(house: ServedDoors, method: str, field: str) -> None:
    answer = house.post(method, {field: UNKNOWN[field], **MORE.get(method, {})})

    assert answer.status_code == 404, answer.text
    assert answer.json()["error"]["code"] == "NOT_FOUND"
    assert answer.json()["error"]["details"]["code"] == "not_found"


def test_an_unknown_method_is_not_found(house: ServedDoors) -> None:
    for answer in (house.post("no.such.method"), house.get("/rpc/no.such.method")):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "NOT_FOUND"
        assert answer.json()["error"]["details"] == {"code": "unknown_method"}


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/rpc/tasks.list", "POST"),
        ("DELETE", "/rpc/ledger.show", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PUT", "/events", "GET, HEAD"),
        ("GET", "/channels/hook", "POST"),
    ],
)
def test_another_verb_than_a_route_takes_is_refused_with_those_it_does(
    house: ServedDoors, verb: str, path: str, allowed: str
) -> None:
    answer = house.http.request(verb, f"{house.url}{path}", headers={"authorization": f"Bearer {TOKEN}"})

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["details"]["code"] == "method_not_allowed"


def test_an_unknown_parameter_is_refused_in_the_words_of_the_protocol(house: ServedDoors) -> None:
    refused = house.post("tasks.list", {"bogus": 1})

    assert refused.json()["error"] == {
        "code": "INVALID_REQUEST",
        "message": "invalid tasks.list params: at root: unexpected property 'bogus'",
        "details": {"code": "bad_input"},
    }


def test_pages_follow_each_other_and_end(house: ServedDoors) -> None:
    ids = [stored_run(house.gateway.store).task_id for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, Any] = {}

    for _ in range(4):
        page = house.post("tasks.list", {"limit": 2} | cursor).json()
        seen += [task["id"] for task in page["tasks"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert seen == sorted(ids, reverse=True)


@pytest.mark.parametrize("order", ["updatedAt", "endedAt"])
def test_pages_by_change_and_by_end_follow_each_other(house: ServedDoors, order: str) -> None:
    store = house.gateway.store
    alive = [stored_run(store).task_id for _ in range(3)]
    ended = [stored_run(store).task_id for _ in range(3)]
    for task_id in ended:
        house.post("tasks.cancel", {"taskId": task_id})
    seen: list[str] = []
    cursor: dict[str, Any] = {}

    for _ in range(10):
        page = house.post("tasks.list", {"limit": 2, "sortBy": order} | cursor).json()
        seen += [task["id"] for task in page["tasks"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert seen[:3] == list(reversed(ended))
    assert sorted(seen[3:]) == ([] if order == "endedAt" else sorted(alive))


def test_a_list_is_filtered_by_status_and_session(house: ServedDoors) -> None:
    store = house.gateway.store
    stored_run(store)
    wanted = stored_run(store, status=RunStatus.RUNNING).task_id

    by_status = house.post("tasks.list", {"status": ["running", "failed"]}).json()
    by_session = house.post("tasks.list", {"sessionKey": "agent:ada:main"}).json()

    assert [task["id"] for task in by_status["tasks"]] == [wanted]
    assert by_session["tasks"] == []


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks.list", {"limit": 0}),
        ("tasks.list", {"limit": 501}),
        ("tasks.list", {"cursor": "x" * 513}),
        ("tasks.list", {"cursor": "../../etc"}),
        ("tasks.list", {"cursor": "-1", "sortBy": "endedAt"}),
        ("tasks.list", {"status": "succeeded"}),
        ("tasks.get", {}),
        ("tasks.get", {"taskId": 7}),
        ("tasks.get", {"taskId": "x" * 5000}),
        ("ledger.show", {"taskId": ""}),
        ("ledger.show", {"taskId": "A" * 201}),
        ("tasks.retry", {"taskIds": []}),
        ("tasks.retry", {"taskIds": ["a"] * 11}),
        ("chat.send", {"sessionKey": "nonsense:", "message": "x"}),
        ("chat.send", {"sessionKey": "agent:ada:main", "message": ""}),
        ("reviews.resolve", {"effectId": "eff_x", "decision": "shrug"}),
        ("events.list", {"after": "yesterday"}),
        ("gateway.restarts", {"limit": 10**9}),
        ("tasks.list", [1]),
        ("tasks.list", "x"),
    ],
)
def test_a_wrong_parameter_is_an_invalid_request(house: ServedDoors, method: str, params: object) -> None:
    refused = house.post(method, msgspec.json.encode(params))

    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "INVALID_REQUEST"


def test_the_ledger_answers_as_the_commands_print_it(house: ServedDoors) -> None:
    task_id = stored_run(house.gateway.store).task_id

    page = house.post("ledger.list").json()
    detail = house.post("ledger.show", {"taskId": task_id[:20]}).json()
    cancelled = house.post("ledger.cancel", {"taskId": task_id}).json()

    assert page["tasks"][0]["id"] == task_id
    assert page["counts"] == {"queued": 1}
    assert detail["task"]["id"] == task_id
    assert cancelled["outcome"] == "cancelled"


def test_the_steps_of_a_finished_turn_are_answered_in_full_on_request(house: ServedDoors) -> None:
    store = house.gateway.store
    run, _ = running_run(store)
    text = b'"' + b"tide " * 100 + b'"'
    step = a_summary("fetch", preview='"tide', arguments='"sea"', size_bytes=len(text), is_kept=True)
    turn = a_turn(run, steps=(step,))
    store.write_now(lambda tx: tx.turns.commit(turn, "main:1", is_over=False, kept=kept_of(text)))

    brief = house.post("ledger.steps", {"taskId": run.task_id}).json()
    full = house.post("ledger.steps", {"taskId": run.task_id, "full": True, "turn": "main:1"}).json()
    refused = house.post("ledger.steps", {"taskId": run.task_id, "turn": "main:7"})

    assert (brief["steps"][0]["arguments"], brief["steps"][0]["result"]) == ('"sea"', None)
    assert full["steps"][0]["result"] == "tide " * 100
    assert refused.status_code == 400


def test_what_is_not_there_is_not_found(house: ServedDoors) -> None:
    refused = house.post("ledger.show", {"taskId": "task_none"})

    assert refused.status_code == 404
    assert refused.json()["error"]["details"] == {"code": "not_found"}


def test_a_message_is_durable_before_it_is_acknowledged_and_posted_once(house: ServedDoors) -> None:
    asked = {"sessionKey": "agent:ada:main", "message": "hello", "idempotencyKey": "k1"}

    first = house.post("chat.send", asked).json()
    again = house.post("chat.send", asked).json()
    told = house.post("chat.history", {"sessionKey": "ada"}).json()

    assert (first["status"], first["isDuplicate"]) == ("queued", False)
    assert (again["messageId"], again["isDuplicate"]) == (first["messageId"], True)
    assert [message["text"] for message in told["messages"]] == ["hello"]


def test_an_agent_is_woken_as_openclaws_clients_do_it(house: ServedDoors) -> None:
    now = house.post("wake", {"mode": "now", "text": "the tide turns", "agentId": "ada"})
    later = house.post("wake", {"mode": "next-heartbeat", "text": "by the way", "sessionKey": "ada", "x": 1})
    told = house.post("chat.history", {"sessionKey": "ada"}).json()

    assert (now.json(), later.json()) == ({"ok": True}, {"ok": True})
    assert [(one["text"], one["status"]) for one in told["messages"]] == [
        ("the tide turns", "queued"),
        ("by the way", "noted"),
    ]
    assert house.post("wake", {"mode": "soon", "text": "x"}).status_code == 400
    assert house.post("wake", {"mode": "now", "text": "x", "agentId": "nobody"}).status_code == 404


def test_the_same_key_with_another_text_is_refused(house: ServedDoors) -> None:
    house.post("chat.send", {"sessionKey": "ada", "message": "hello", "idempotencyKey": "k1"})

    refused = house.post("chat.send", {"sessionKey": "ada", "message": "bye", "idempotencyKey": "k1"})

    assert refused.status_code == 409
    assert refused.json()["error"]["details"] == {"code": "key_conflict"}


def test_the_same_key_in_another_session_is_another_message(house: ServedDoors) -> None:
    first = house.post("chat.send", {"sessionKey": "ada", "message": "hello", "idempotencyKey": "k1"})
    other = house.post("chat.send", {"sessionKey": "agent:ada:two", "message": "bye", "idempotencyKey": "k1"})

    assert (first.status_code, other.status_code) == (200, 200)


def test_a_message_to_an_unknown_agent_is_not_found(house: ServedDoors) -> None:
    assert house.post("chat.send", {"sessionKey": "agent:eve:main", "message": "x"}).status_code == 404


def test_messages_are_stored_and_reads_answered_during_drain(house: ServedDoors) -> None:
    house.gateway.now = GatewayPhase.DRAINING

    posted = house.post("chat.send", {"sessionKey": "ada", "message": "are you there?"})
    listed = house.post("tasks.list")

    assert posted.json()["status"] == "queued"
    assert listed.status_code == 200
    assert house.get("/readyz", token=None).status_code == 503
    assert house.get("/healthz", token=None).status_code == 200


def test_while_it_starts_everything_but_its_status_is_unavailable(house: ServedDoors) -> None:
    house.gateway.now = GatewayPhase.STARTING

    refused = house.post("tasks.list")

    assert refused.status_code == 503
    error = refused.json()["error"]
    assert (error["code"], error["details"]["reason"]) == ("UNAVAILABLE", "startup-sidecars")
    assert error["retryable"]
    assert house.post("gateway.status").json()["status"] == "starting"
    assert house.post("health").json()["ok"]


def test_a_history_waits_for_what_comes(house: ServedDoors) -> None:
    house.post("chat.send", {"sessionKey": "ada", "message": "one"})

    more = house.post("chat.history", {"sessionKey": "ada", "after": 0, "waitMs": 5000}).json()
    nothing = house.post("chat.history", {"sessionKey": "ada", "after": more["nextAfter"], "waitMs": 1})

    assert [message["text"] for message in more["messages"]] == ["one"]
    assert nothing.json()["messages"] == []


def test_sessions_and_agents_are_listed(house: ServedDoors) -> None:
    house.post("chat.send", {"sessionKey": "ada", "message": "hello"})

    page = house.post("sessions.list").json()
    one = house.post("sessions.get", {"sessionKey": "ada"}).json()
    agents = house.post("agents.list").json()

    assert [session["key"] for session in page["sessions"]] == ["agent:ada:main"]
    assert one["session"]["queued"] == 1
    assert [agent["name"] for agent in agents["agents"]] == ["ada"]


def test_the_gate_refuses_with_the_list_and_force_passes(house: ServedDoors) -> None:
    stored_run(house.gateway.store)
    house.gateway.is_safe = False

    refused = house.post("gateway.restart", {"reason": "update"}).json()
    forced = house.post("gateway.restart", {"reason": "update", "force": True}).json()
    preflight = house.post("gateway.restart.preflight").json()

    assert not refused["isAccepted"]
    assert len(refused["readiness"]["interruptions"]) == 1
    assert forced["isAccepted"]
    assert [wish.triggered_by for wish in house.gateway.wishes] == ["operator"]
    assert (preflight["safe"], preflight["counts"]["totalActive"]) == (False, 1)
    assert preflight["blockers"][0]["kind"] == "run"


def test_the_table_describes_itself_and_makes_the_openapi_document(house: ServedDoors) -> None:
    described = house.post("rpc.describe").json()
    document = house.get("/openapi.json").json()

    assert {method["name"] for method in described["methods"]} == set(METHODS)
    over_http = {name for name, method in METHODS.items() if not method.is_local}
    assert {path[len("/rpc/") :] for path in document["paths"] if path.startswith("/rpc/")} == over_http


def test_openapi_says_of_each_method_what_must_be_given(house: ServedDoors) -> None:
    """With all that is required the parameters are taken, and without any one of it they are not."""
    document = house.get("/openapi.json").json()

    for method in METHODS.values():
        if method.is_local:  # it is not answered over HTTP
            continue
        body = document["paths"][f"/rpc/{method.name}"]["post"]["requestBody"]
        given_as = body["content"]["application/json"]["schema"]
        # Where nothing is required, null is as good as an empty object.
        name = given_as.get("anyOf", [given_as])[0]["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
        required, known = schema.get("required", []), UNKNOWN | MORE.get(method.name, {})
        assert body["required"] is bool(required), method.name
        for missing in required:
            given = {one: known.get(one, "x") for one in required if one != missing}
            refused = house.post(method.name, given)
            assert refused.status_code == 400, (method.name, missing)
            assert f"must have required property '{missing}'" in refused.json()["error"]["message"]


def test_openapi_requires_of_an_answer_what_it_always_has(house: ServedDoors) -> None:
    schemas = house.get("/openapi.json").json()["components"]["schemas"]
    stored_run(house.gateway.store)
    page = house.post("ledger.list").json()

    assert set(schemas["TaskPageView"]["required"]) == set(page)
    assert set(schemas["TaskView"]["required"]) == set(page["tasks"][0])
    assert schemas["TaskCancelled"]["required"] == ["found", "cancelled"]


def test_what_a_method_answers_is_what_the_table_says(house: ServedDoors) -> None:
    """Every method that needs no parameters; its answer decodes to its own view."""
    for method in METHODS.values():
        if method.name in {"gateway.stop", "gateway.restart"}:
            continue
        answer = house.post(method.name)
        if answer.status_code == 200:
            # Protocol views leave out what is not known; the others are complete.
            msgspec.json.decode(answer.content, type=method.answer)


def test_metrics_count_requests_and_records(house: ServedDoors) -> None:
    stored_run(house.gateway.store)
    house.post("tasks.list")
    house.post("no.such.method")

    text = house.get("/metrics").text

    assert 'holdfast_tasks{status="queued"} 1.0' in text
    assert 'holdfast_requests_total{code="OK",method="tasks.list"} 1.0' in text
    assert 'holdfast_requests_total{code="NOT_FOUND",method="other"} 1.0' in text
    assert "no.such.method" not in text


def test_every_metric_is_in_the_guide(house: ServedDoors) -> None:
    stored_checkpoint(house.gateway.store)
    house.post("tasks.list")
    text = house.get("/metrics").text

    found = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "observe.md").read_text(encoding="utf-8")
    table = guide.partition("## Metrics")[2].partition("\n## ")[0]
    named = re.findall(r"^\| (`holdfast_.*?) \|", table, re.MULTILINE)
    assert found == set(re.findall(r"\w+", " ".join(named)))


def test_metrics_tell_how_far_the_clocks_are_apart(house: ServedDoors) -> None:
    assert "holdfast_clock_skew_seconds 0.0" in house.get("/metrics").text

    clock = LedgerClock()
    clock.learn(clock.steady_ns(), to_micros(SystemClock.now() - timedelta(seconds=45)))
    house.gateway.clock = clock

    lines = house.get("/metrics").text.splitlines()
    shown = dict(line.split() for line in lines if line.startswith("holdfast_clock"))
    assert round(float(shown["holdfast_clock_skew_seconds"]), 1) == 45.0
    assert 0 < float(shown["holdfast_clock_uncertainty_seconds"]) < 1
