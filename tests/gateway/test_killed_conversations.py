"""SIGKILL, again and again, while people talk: every message enters once, is answered once, and in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from holdfast.app import open_store
from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS
from holdfast.core.clock import SystemClock
from holdfast.core.message import Role
from holdfast.core.transitions import DeliveryStatus, MessageStatus
from holdfast.store import Store, Tx
from holdfast.store.rows.work import task_from_row
from holdfast.store.verify import scan
from tests.channels.receiver import Receiver
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

SESSIONS = ("ada", "ben", "group-7")
EACH = 8
KILLS = 4
PATIENCE_S = 90.0


class ConversationProcess:
    """One life. What it says comes in a queue, so that no test waits for a process that is dead."""

    def __init__(self, url: str, locks: Path, hook: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.conversation_process", url, str(locks), hook],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.said: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line.strip())

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def heard(self, timeout_s: float = PATIENCE_S) -> str:
        return self.said.get(timeout=timeout_s)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=PATIENCE_S)
        self._reader.join(timeout=PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def rest(self) -> list[str]:
        """What it said before it died, and the test has not read yet."""
        found = []
        while True:
            try:
                found.append(self.said.get_nowait())
            except Empty:
                return found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as receiver:
        yield receiver


def test_whatever_is_killed_everybody_is_answered_once_and_in_order(
    url: str, tmp_path: Path, receiver: Receiver
) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed)
    waiting = [(session, f"{session}-{number}") for number in range(EACH) for session in SESSIONS]
    for life in range(KILLS + 1):
        acknowledged: set[str] = set()
        process = ConversationProcess(url, tmp_path / "boots", receiver.url)
        try:
            assert process.heard() == "ready"
            # Sent again is what was not acknowledged; some of it was stored all the same.
            batch = waiting if life == KILLS else waiting[: chance.randrange(2, 8)]
            for session, message_id in batch:
                process.tell(f"{session} {message_id} {message_id}")
            wanted = len(batch) if life == KILLS else chance.randrange(0, len(batch) + 1)
            acknowledged |= {process.heard() for _ in range(wanted)}
            if life == KILLS:
                until_quiet(url, receiver)
                continue
            time.sleep(chance.random() * 0.3)  # anywhere in the midst of it
            until_no_run_is_at_its_last_attempt(url)
        finally:
            process.kill()
            acknowledged |= set(process.rest())
            waiting = [one for one in waiting if one[1] not in acknowledged]

    assert waiting == []
    assert_answered_once(url, receiver)


def until_no_run_is_at_its_last_attempt(url: str) -> None:
    """A run whose process dies again and again without progress is quarantined, and rightly so: one that has
    one attempt left has to save something before the next kill. Of that, and of nothing else, the kills take
    heed."""
    store = open_store(url, clock=SystemClock())
    give_up_at = time.monotonic() + PATIENCE_S
    try:
        while last := store.read_now(_at_their_last_attempt):
            assert time.monotonic() < give_up_at, f"no run goes on with {last}"
            time.sleep(0.02)
    finally:
        store.close()


def _at_their_last_attempt(tx: Tx) -> list[str]:
    task_ids = [str(one.task_id) for one in tx.sessions.busy(limit=99)]
    heads = tx.journal.heads(task_ids)
    runs = [run for run in map(tx.runs.live_of_task, task_ids) if run is not None]
    last = [run for run in runs if run.idle_attempts + 1 >= DEFAULT_MAX_IDLE_ATTEMPTS]
    return [run.id for run in last if run.task_id not in heads or run.id not in heads[run.task_id].written_by]


def until_quiet(url: str, receiver: Receiver) -> None:
    store = open_store(url, clock=SystemClock())
    give_up_at = time.monotonic() + PATIENCE_S
    try:
        while not is_quiet(store, receiver):
            assert time.monotonic() < give_up_at, "it does not come to an end"
            time.sleep(0.05)
    finally:
        store.close()


def is_quiet(store: Store, receiver: Receiver) -> bool:
    sessions = store.read_now(lambda tx: tx.sessions.page(limit=99))
    is_answered = all(one.queued == 0 and one.task_id is None for one in sessions)
    return is_answered and len(receiver.accepted) == EACH * len(SESSIONS)


def assert_answered_once(url: str, receiver: Receiver) -> None:
    store = open_store(url, clock=SystemClock())
    try:
        # What went wrong tells more than an answer that is missing.
        tasks = store.read_now(lambda tx: [task_from_row(row, tx.sealing) for row in scan(tx, "tasks", 1)])
        assert [one.failure for one in tasks if one.failure is not None] == []
        for session in SESSIONS:
            key = f"agent:scholar:{session}"
            messages = store.read_now(lambda tx, key=key: tx.messages.after(key, limit=999))  # type: ignore[misc]
            asked = [one for one in messages if one.role is Role.USER]
            said = [one for one in messages if one.role is Role.AGENT]
            wanted = [f"{session}-{number}" for number in range(EACH)]
            assert [one.text for one in asked] == wanted
            assert [one.text for one in said] == [f"{one}/0/1/2" for one in wanted]
            assert [one.reply_to for one in said] == [one.id for one in asked]
            assert {one.status for one in asked} == {MessageStatus.ANSWERED}
            owed = [
                store.read_now(lambda tx, one=one: tx.deliveries.of_task(str(one.task_id)))  # type: ignore[misc]
                for one in said
            ]
            assert all(len(one) == 1 for one in owed)
            assert {one[0].status for one in owed} <= {DeliveryStatus.DELIVERED, DeliveryStatus.ATTEMPTING}
            arrived = [one.json["text"] for one in receiver.accepted.values() if one.json["peer"] == session]
            assert arrived == [one.text for one in said]
        assert store.verify() == []
    finally:
        store.close()
