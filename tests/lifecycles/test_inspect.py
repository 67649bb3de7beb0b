"""Inspect tasks from clients and the command line: every door shows the same tasks, and writes nothing.

The chat's side of this is in tests/chat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import app
from holdfast.cli.main import main
from holdfast.config.sections import Config
from holdfast.core.clock import SystemClock
from holdfast.core.ids import RunId
from holdfast.core.recorded import RecordedDetails, ScopeKind
from holdfast.core.task import Failure, Origin, RuntimeName
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.testing import contents_of
from tests.api.stand_in import QUICK, TOKEN, ServedDoors, StandIn, agents
from tests.builders import START, a_run, a_task, put
from tests.conftest import quick_directory

SESSION = "agent:ada:main"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_server").create_database()
        return
    with quick_directory(tmp_path) as directory:
        yield f"sqlite:///{directory / 'ledger.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = app.open_store(url, clock=SystemClock())
    yield store
    store.close()


@pytest.fixture
def house(store: Store, tmp_path: Path) -> Iterator[ServedDoors]:
    """The doors of a gateway over that ledger."""
    with quick_directory(tmp_path) as home:
        gateway = StandIn(store, Config(gateway=QUICK, agents=agents()), home)
        with ServedDoors(gateway, home) as house:
            yield house


class Answer(msgspec.Struct, frozen=True):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


class Clients:
    """The ways in: the methods of a gateway, and the command line, also through that gateway."""

    def __init__(
        self, house: ServedDoors, url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self._house, self._url, self._patch, self._capfd = house, url, monkeypatch, capfd

    def call(self, method: str, **params: Any) -> tuple[int, Any]:
        answer = self._house.post(method, params)
        return answer.status_code, answer.json()

    def run(self, *arguments: str, is_remote: bool = False) -> Answer:
        with self._patch.context() as patch:
            patch.setenv("HOLDFAST_HOME", str(self._house.home))
            if is_remote:
                patch.setenv("HOLDFAST_URL", self._house.url)
                patch.setenv("HOLDFAST_TOKEN", TOKEN)
            else:
                patch.setenv("HOLDFAST_STORE", self._url)
            self._capfd.readouterr()
            status = main(arguments)
            return Answer(status, *self._capfd.readouterr())


@pytest.fixture
def clients(
    house: ServedDoors, url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Clients:
    for name in ("HOLDFAST_STORE", "HOLDFAST_URL", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return Clients(house, url, monkeypatch, capfd)


@pytest.fixture
def tasks(store: Store) -> dict[str, str]:
    """A subagent at work for the session, a media render that failed, and a program of another agent."""
    helper = a_task(
        name="research",
        goal="find the tides of Brest",
        runtime=RuntimeName.SUBAGENT,
        status=TaskStatus.RUNNING,
        session_key=SESSION,
        owner=SESSION,
        origin=Origin(channel="hook", peer="ada"),
    )
    video = a_task(
        name="render",
        goal="render the harbour",
        runtime=RuntimeName.MEDIA,
        status=TaskStatus.FAILED,
        dedup_key="harbour 2026",
        failure=Failure(kind="codec", message="no such codec"),
    )
    other = a_task(name="agent.bob", goal="greet", runtime=RuntimeName.AGENT, session_key="agent:bob:main")
    details = RecordedDetails(
        task_id=helper.id,
        scope=ScopeKind.SESSION,
        agent_id="ada",
        child_session_key="agent:ada:child",
        created_at=START,
        last_event_at=START,
    )

    def write(tx: Tx) -> None:
        put(
            tx,
            helper,
            a_run(helper, id=RunId("helper-run"), status=RunStatus.RUNNING, claimed_by="producer:x"),
        )
        put(tx, video, a_run(video, status=RunStatus.FAILED))
        put(tx, other, a_run(other))
        tx.recorded.create(details)

    store.write_now(write)
    return {"helper": helper.id, "video": video.id, "other": other.id}


def ids(found: Any) -> list[str]:
    return [task["id"] for task in found["tasks"]]


def test_every_door_filters_by_session_agent_status_and_runtime(
    clients: Clients, tasks: dict[str, str]
) -> None:
    filters: list[tuple[dict[str, Any], dict[str, Any], tuple[str, ...], str]] = [
        ({"sessionKey": SESSION}, {"sessionKey": SESSION}, ("--session", SESSION), "helper"),
        ({"agentId": "bob"}, {"agentId": "bob"}, ("--agent", "bob"), "other"),
        ({"status": "failed"}, {"status": ["failed"]}, ("--status", "failed"), "video"),
        ({"status": ["running"]}, {"status": ["running"]}, ("--status", "running"), "helper"),
        ({}, {"runtime": "media"}, ("--runtime", "media"), "video"),
        ({}, {"name": "render", "text": "CODEC"}, ("--name", "render", "--text", "codec"), "video"),
    ]

    for theirs, ours, options, name in filters:
        wanted = [tasks[name]]
        if theirs:
            assert ids(clients.call("tasks.list", **theirs)[1]) == wanted, theirs
        assert ids(clients.call("ledger.list", **ours)[1]) == wanted, ours
        assert ids(clients.run("tasks", *options, "--json").json) == wanted, options
        assert ids(clients.run("tasks", *options, "--json", is_remote=True).json) == wanted, options


def test_every_door_goes_from_page_to_page(clients: Clients, tasks: dict[str, str]) -> None:
    newest_first = sorted(tasks.values(), reverse=True)

    theirs = clients.call("tasks.list", limit=2)[1]
    rest = clients.call("tasks.list", limit=2, cursor=theirs["nextCursor"])[1]
    ours = clients.call("ledger.list", limit=2)[1]
    more = clients.call("ledger.list", limit=2, pageToken=ours["nextPageToken"])[1]
    shown = clients.run("tasks", "--limit", "2", "--json").json
    next_page = clients.run("tasks", "--limit", "2", "--page", shown["nextPageToken"], "--json").json

    assert ids(theirs) + ids(rest) == ids(ours) + ids(more) == ids(shown) + ids(next_page) == newest_first
    assert "nextCursor" not in rest
    assert more["nextPageToken"] is next_page["nextPageToken"] is None


def test_a_lookup_token_is_an_id_a_run_a_key_or_a_session_in_every_door(
    clients: Clients, tasks: dict[str, str]
) -> None:
    names = {
        "helper": (tasks["helper"], "helper-run", SESSION, "agent:ada:child"),
        "video": (tasks["video"][:31], "harbour 2026"),
    }

    for task, tokens in names.items():
        for token in tokens:
            assert clients.call("tasks.get", taskId=token)[1]["task"]["id"] == tasks[task]
            assert clients.call("ledger.show", taskId=token)[1]["task"]["id"] == tasks[task]
            assert clients.run("tasks", "show", token, "--json").json["task"]["id"] == tasks[task]


def test_a_client_of_the_protocol_reads_its_words_and_ours_reads_ours(
    clients: Clients, tasks: dict[str, str]
) -> None:
    theirs = clients.call("tasks.get", taskId=tasks["video"])[1]["task"]
    ours = clients.call("ledger.show", taskId=tasks["video"])[1]["task"]

    assert (theirs["status"], theirs["runtime"], theirs["error"]) == ("failed", "cli", "no such codec")
    assert (ours["status"], ours["runtime"], ours["failure"]["kind"]) == ("failed", "media", "codec")
    assert ours == clients.run("tasks", "show", tasks["video"], "--json").json["task"]
    assert ours == clients.run("tasks", "show", tasks["video"], "--json", is_remote=True).json["task"]


def test_wrong_parameters_and_missing_tasks_are_told_in_the_words_of_the_door(
    clients: Clients, tasks: dict[str, str]
) -> None:
    status, bogus = clients.call("tasks.list", bogus=1)
    missing_status, missing = clients.call("tasks.get", taskId="task_none")
    unknown, _ = clients.call("ledger.list", status=["completed"])
    shown = clients.run("tasks", "show", "task_none")
    listed = clients.run("tasks", "--status", "completed")

    assert status == 400
    assert bogus["error"]["message"] == "invalid tasks.list params: at root: unexpected property 'bogus'"
    assert (missing_status, missing["error"]["message"]) == (404, "task not found: task_none")
    assert unknown == 400
    assert (shown.status, listed.status) == (4, 2)
    assert "`holdfast tasks list`" in shown.err


def test_looking_writes_nothing(clients: Clients, store: Store, tasks: dict[str, str]) -> None:
    """There is no boundary to be killed at: also a status that is projected for display is not stored."""
    before = store.read_now(contents_of)

    for arguments in (("tasks",), ("tasks", "show", tasks["helper"]), ("tasks", "wait", tasks["video"])):
        clients.run(*arguments)
        clients.run(*arguments, "--json")
    for method, params in (
        ("tasks.list", {}),
        ("tasks.get", {"taskId": tasks["helper"]}),
        ("tasks.wait", {"taskId": tasks["helper"], "timeoutMs": 1}),
        ("ledger.list", {"text": "tides"}),
        ("ledger.show", {"taskId": tasks["helper"]}),
        ("ledger.wait", {"taskId": tasks["video"], "waitMs": 1}),
    ):
        assert clients.call(method, **params)[0] == 200

    assert store.read_now(contents_of) == before
