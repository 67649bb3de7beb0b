"""Two gateways: one home admits one of them; one ledger serves both, also when one is cut off or frozen."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.core.message import Message, Role
from holdfast.core.run import RunRecord
from holdfast.core.task import Task
from holdfast.core.transitions import MessageStatus
from holdfast.store import Store, Tx
from holdfast.store.rows.conversation import message_from_row
from holdfast.store.rows.effects import effect_from_row
from holdfast.store.rows.journal import step_from_row
from holdfast.store.rows.work import checkpoint_from_row, run_from_row, task_from_row
from holdfast.store.verify import scan
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.tables import execute, query
from tests.gateway.gateway_home import PATIENCE_S, GatewayHome, gateway_home
from tests.gateway.proxy import Proxy, proxy
from tests.gateway.two_gateway_agents import BEDS, WAITS
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

AGENTS = 4
SESSIONS = ("main", "group")
GATED = 4
# So many messages are acknowledged before and during each trouble.
MANY = 10
# Short, so that it really lapses within a test; longer than a busy machine keeps a gateway waiting.
LEASE = timedelta(seconds=3)


def settings() -> dict[str, Any]:
    return {
        "agents": {
            f"s{number}": {"callable": "tests.gateway.two_gateway_agents:sower"} for number in range(AGENTS)
        },
        "gateway": {"restart": {"drainTimeoutS": 20}},
    }


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gate"
    monkeypatch.setenv("GATE_FILE", str(path))
    return path


# --- one home


def refused(one: GatewayHome, *arguments: str, environ: dict[str, str] | None = None, fds: Any = ()) -> Any:
    """What a second program in the same home says, and its status."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        env={**one.environ, **(environ or {})},
        cwd=one.home,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        pass_fds=fds,
        check=False,
    )


@pytest.mark.parametrize("more", [(), ("--no-supervisor",)])
def test_a_second_gateway_in_a_home_is_refused_with_the_pid_of_the_first(
    tmp_path: Path, gate: Path, more: tuple[str, ...]
) -> None:
    gate.touch()
    with gateway_home(tmp_path / "home", settings=settings()) as one:
        boot = one.until_ready()["bootId"]
        assert one.supervisor is not None

        second = refused(one, "up", "--json", "--port", "0", *more)

        assert second.returncode == 5
        error = json.loads(second.stdout)["error"]
        assert error["code"] == "home_in_use"
        assert f"process {one.supervisor.pid} holds {one.home}" in error["message"]
        assert f"process {one.supervisor.pid}" in second.stderr
        # The first has not noticed anything, and its way in is still its own.
        assert one.call("gateway.status")["bootId"] == boot
        assert one.stop() == 0


def test_after_a_first_without_a_supervisor_a_second_is_refused_with_its_pid(
    tmp_path: Path, gate: Path
) -> None:
    gate.touch()
    one = GatewayHome(tmp_path / "home", settings=settings())
    with alone(one) as first:
        one.until_ready()

        second = refused(one, "up", "--json", "--port", "0")

        assert second.returncode == 5
        assert f"process {first.pid} holds" in json.loads(second.stdout)["error"]["message"]
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE_S) == 0
        # A free home takes the gateway that comes next.
        with gateway_home(one.home, settings=settings()) as next_one:
            next_one.until_ready()
            assert next_one.stop() == 0


@contextlib.contextmanager
def alone(one: GatewayHome) -> Iterator[subprocess.Popen[bytes]]:
    with (one.home / "up.log").open("ab") as log:
        first = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "up", "--json", "--port", "0", "--no-supervisor"],
            env=one.environ,
            cwd=one.home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield first
    finally:
        first.kill()
        first.wait()


def test_a_second_child_is_refused_by_the_lock_of_the_home_with_the_pid_of_the_first(
    tmp_path: Path, gate: Path
) -> None:
    """As if a supervisor had lost sight of its gateway and started another."""
    gate.touch()
    with gateway_home(tmp_path / "home", settings=settings()) as one, contextlib.ExitStack() as undo:
        boot = one.until_ready()["bootId"]
        unix = undo.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(tmp_path / "other.sock"))
        unix.listen()
        life, ours, ears, tell = *os.pipe(), *os.pipe()
        for number in (life, ours, ears, tell):
            undo.callback(os.close, number)
        fds = (unix.fileno(), life, tell)
        supervised = {"tcp_fds": [], "unix_fd": fds[0], "life_fd": fds[1], "tell_fd": fds[2]}

        second = refused(
            one, "gateway", "child", environ={"HOLDFAST_SUPERVISED": json.dumps(supervised)}, fds=fds
        )

        assert second.returncode == 78
        assert f"process {one.pid_of_gateway()} holds {one.home}" in second.stderr
        assert one.call("gateway.status")["bootId"] == boot
        assert one.stop() == 0


# --- one ledger


class Poster:
    """Posts at a steady rate through one gateway, and sends again what was not acknowledged."""

    def __init__(self, one: GatewayHome, name: str) -> None:
        self._gateway = one
        self._name = name
        self._random = random.Random(name)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.posted: dict[str, list[str]] = defaultdict(list)
        self.count = 0
        self.problem: BaseException | None = None

    def __enter__(self) -> Poster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.03):
                key = f"agent:s{self._random.randrange(AGENTS)}:{self._random.choice(SESSIONS)}"
                text = f"{self._name}{self.count}"
                insist(self._gateway, key, text)
                self.posted[key].append(text)
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - raised where the test looks
            self.problem = error

    def until_more(self, number: int) -> None:
        wanted = self.count + number
        until(
            lambda: self.count >= wanted or self.problem is not None,
            "no client is acknowledged",
            self._gateway,
        )


def insist(one: GatewayHome, key: str, text: str) -> None:
    """Until it is acknowledged, through whatever happens to the gateway and to its database."""
    until(lambda: is_sent(one, key, text), f"{text} is not acknowledged", one)


def is_sent(one: GatewayHome, key: str, text: str) -> bool:
    try:
        one.call("chat.send", sessionKey=key, message=text, idempotencyKey=text)
    except OSError:
        return False
    except RuntimeError as error:
        if not error.args[0].get("retryable"):
            raise
        return False
    return True


def until(is_so: Callable[[], bool], what: str, *gateways: GatewayHome) -> None:
    give_up_at = time.monotonic() + 3 * PATIENCE_S
    while not is_so():
        logs = "\n".join(f"--- {one.home.name}\n{one.log()[-6000:]}" for one in gateways)
        assert time.monotonic() < give_up_at, f"{what}:\n{logs}"
        time.sleep(0.05)


class LedgerOfBoth:
    """The ledger behind both gateways, as a reader sees it that asks none of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.table = "sown" if hasattr(store, "path") else "public.sown"

    def prepare(self) -> None:
        # Nothing unique about it: what is done twice is there twice.
        execute(self.store, f"CREATE TABLE {self.table} (message_id TEXT, bed TEXT)")

    def messages(self) -> list[Message]:
        return self.store.read_now(
            lambda tx: [message_from_row(row, tx.sealing) for row in scan(tx, "messages", 1)]
        )

    def unanswered(self) -> list[str]:
        return [one.text for one in self.messages() if one.role is Role.USER and not is_answered(one)]

    def runs(self) -> list[RunRecord]:
        return self.store.read_now(lambda tx: [*map(run_from_row, scan(tx, "runs", 1))])

    def tasks(self) -> list[Task]:
        return self.store.read_now(
            lambda tx: [task_from_row(row, tx.sealing) for row in scan(tx, "tasks", 1)]
        )

    def gated(self) -> dict[str, RunRecord]:
        """The newest run of each task that stands at the gate."""
        tasks = {one.id for one in self.tasks() if one.goal.startswith(WAITS)}
        runs = sorted(self.runs(), key=lambda one: one.number)
        return {one.task_id: one for one in runs if one.task_id in tasks}

    def carried_by(self, boot_id: str) -> bool:
        """Whether that one carries everything that stands at the gate."""
        found = self.gated().values()
        return len(found) == GATED and all(str(one.claimed_by) == boot_id for one in found)


def is_answered(message: Message) -> bool:
    return message.status is MessageStatus.ANSWERED


@contextlib.contextmanager
def ledger_of_both(url: str) -> Iterator[LedgerOfBoth]:
    store = app.open_store(url, clock=SystemClock())
    try:
        yield LedgerOfBoth(store)
    finally:
        store.close()


def check(found: LedgerOfBoth, posted: dict[str, list[list[str]]]) -> None:
    """From the ledger and from the rows that the agents left, not from the memory of a process."""
    messages = sorted(found.messages(), key=lambda one: one.position)
    asked = [one for one in messages if one.role is Role.USER]
    assert {one.status for one in asked} == {MessageStatus.ANSWERED}
    by_session: dict[str, list[Message]] = defaultdict(list)
    for message in messages:
        by_session[message.session_key].append(message)
    assert posted.keys() == by_session.keys()
    for key, orders in posted.items():
        check_session(by_session[key], orders)
    sown = Counter(query(found.store, f"SELECT message_id, bed FROM {found.table}"))
    wanted = itertools.product([one.id for one in asked], [f"bed-{number}" for number in range(BEDS)])
    assert sown == Counter(wanted)
    check_one_at_a_time(found.tasks())
    found.store.read_now(check_late_writes)
    assert_ledger_is_whole(found.store)


def check_session(found: list[Message], orders: list[list[str]]) -> None:
    """Each client's messages in its order, each answered once, in the order of the session."""
    users = [one for one in found if one.role is Role.USER]
    texts = [one.text for one in users]
    assert Counter(texts) == Counter(itertools.chain(*orders))
    for order in orders:
        assert [text for text in texts if text in set(order)] == order
    replies = [one for one in found if one.role is Role.AGENT]
    assert [one.reply_to for one in replies] == [one.id for one in users]
    assert [one.text for one in replies] == [f"{text}: {BEDS} beds" for text in texts]


def check_one_at_a_time(tasks: list[Task]) -> None:
    by_session: dict[str, list[Task]] = defaultdict(list)
    for task in sorted(tasks, key=lambda one: one.created_at):
        by_session[task.session_key or ""].append(task)
    for found in by_session.values():
        for before, after in itertools.pairwise(found):
            assert before.ended_at is not None
            assert before.ended_at <= after.created_at, f"{before.id} and {after.id} overlap"


def check_late_writes(tx: Tx) -> None:
    """What was rescued from a gateway that may yet wake up has nothing of his that is younger than its
    follow-up: that was created after the rescue had committed, and the fence lets in nothing after it."""
    followed = {
        one.run_id: tx.runs.get(one.resumed_run_id).created_at
        for one in map(checkpoint_from_row, scan(tx, "checkpoints", 1))
        if one.resumed_run_id is not None
    }
    kept = [step_from_row(row, tx.sealing) for row in scan(tx, "steps", 4)]
    steps = [(one.run_id, one.name, one.ended_at) for one in kept]
    effects = [effect_from_row(row, tx.sealing) for row in scan(tx, "effects", 6)]
    for run_id, name, at in steps + [(one.run_id, one.name, one.created_at) for one in effects]:
        assert run_id not in followed or at <= followed[run_id], f"{name} of {run_id} came late"


def merged(*posters: Poster, more: dict[str, list[str]]) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = defaultdict(list)
    for posted in (*(one.posted for one in posters), more):
        for key, texts in posted.items():
            found[key].append(texts)
    return found


def post_gated(one: GatewayHome, found: LedgerOfBoth, *agents: str) -> dict[str, list[str]]:
    """Messages whose runs stand at the gate, and have done something before."""
    names = agents or [f"s{number}" for number in range(AGENTS)]
    posted = {
        f"agent:{names[number % len(names)]}:gate-{number}": [f"{WAITS}-{number}"] for number in range(GATED)
    }
    for key, (text,) in posted.items():
        insist(one, key, text)
    until(
        lambda: len(query(found.store, f"SELECT bed FROM {found.table}")) == GATED,
        "they do not come to the gate",
        one,
    )
    return posted


def test_two_homes_may_share_one_file_and_each_goes_on_with_what_the_other_left(
    tmp_path: Path, gate: Path
) -> None:
    """The lock is on the home; the store permits several processes, and so do the boots beside the file."""
    url = f"sqlite:///{tmp_path / 'shared' / 'ledger.db'}"
    with ledger_of_both(url) as found:
        found.prepare()
        with gateway_home(tmp_path / "a", settings=settings(), store=url) as a:
            a.until_ready()
            more = post_gated(a, found)
            with (
                gateway_home(tmp_path / "b", settings=settings(), store=url) as b,
                Poster(a, "a") as to_a,
                Poster(b, "b") as to_b,
            ):
                boot = b.until_ready()["bootId"]
                to_a.until_more(MANY)
                to_b.until_more(MANY)
                # Its lock proves its death to the other at once; no lease has to lapse.
                assert a.supervisor is not None
                pid = a.pid_of_gateway()
                a.supervisor.send_signal(signal.SIGSTOP)
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                until(lambda: found.carried_by(boot), "the other did not take over", a, b)
                gate.touch()
                to_b.until_more(MANY)
                a.supervisor.send_signal(signal.SIGCONT)
                a.until_ready()
                to_a.until_more(MANY)
            # Now the other one has died, with its supervisor, and no process starts it again.
            until(lambda: found.unanswered() == [], "not everything was answered", a, b)
            assert a.stop() == 0
        check(found, merged(to_a, to_b, more=more))


# --- one server


class Trouble:
    """Something that comes between one gateway and the server, and goes away again."""

    def __init__(self, one: GatewayHome, way: Proxy) -> None:
        self._gateway = one
        self._way = way

    def cut(self) -> Callable[[], None]:
        self._way.cut()
        return self._way.heal

    def stall(self) -> Callable[[], None]:
        """The server keeps its sessions, and hears later what they were to do."""
        self._way.stall()
        return self._way.heal

    def freeze(self) -> Callable[[], None]:
        """As a machine that sleeps: the supervisor, too."""
        assert self._gateway.supervisor is not None
        pids = [self._gateway.supervisor.pid, self._gateway.pid_of_gateway()]
        for pid in pids:
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)

        def thaw() -> None:
            for pid in reversed(pids):
                assert pid is not None
                os.kill(pid, signal.SIGCONT)

        return thaw


@pytest.mark.parametrize("kind", ["cut", "stall", "freeze"])
def test_one_of_two_on_a_server_is_out_for_a_while_and_everything_is_done_once(
    tmp_path: Path, gate: Path, postgres_server: PostgresServer, kind: str
) -> None:
    url = postgres_server.create_database()
    with ledger_of_both(url) as found, proxy(postgres_server) as way:
        found.prepare()
        with gateway_home(tmp_path / "a", settings=settings(), store=way.url(url), lease=LEASE) as a:
            a.until_ready()
            more = post_gated(a, found)
            with gateway_home(tmp_path / "b", settings=settings(), store=url, lease=LEASE) as b:
                boot = b.until_ready()["bootId"]
                with Poster(a, "a") as to_a, Poster(b, "b") as to_b:
                    to_a.until_more(MANY)
                    to_b.until_more(MANY)
                    heal = getattr(Trouble(a, way), kind)()
                    until(lambda: found.carried_by(boot), "the survivor did not take over", a, b)
                    to_b.until_more(MANY)
                    gate.touch()
                    until(lambda: found.store.read_now(have_ended), "the survivor does not end it", a, b)
                    to_b.until_more(MANY)
                    heal()
                    to_a.until_more(MANY)
                    a.until_ready()
                until(lambda: found.unanswered() == [], "not everything was answered", a, b)
                assert b.stop() == 0
            # The one that was out serves again, and not only at its door.
            for number in range(AGENTS):
                key = f"agent:s{number}:after"
                insist(a, key, f"after-{number}")
                more[key] = [f"after-{number}"]
            until(lambda: found.unanswered() == [], "it does not serve again", a)
            assert a.stop() == 0
        check(found, merged(to_a, to_b, more=more))


def have_ended(tx: Tx) -> bool:
    """Whether everything that stood at the gate is answered."""
    found = (message_from_row(row, tx.sealing) for row in scan(tx, "messages", 1))
    return sum(one.text.startswith(WAITS) and is_answered(one) for one in found) == GATED
