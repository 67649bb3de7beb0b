"""Commits on PostgreSQL whose answer was lost happen once."""

from __future__ import annotations

import asyncio
import functools
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.events import EventKind
from holdfast.store import Tx
from holdfast.store.journal import saving_step
from holdfast.store.postgres import PostgresStore
from holdfast.store.sealing import CLOSED
from tests.builders import START, a_step, a_task, running_run, write
from tests.servers import PostgresServer
from tests.store.postgres.sessions import (
    SOON_S,
    Rival,
    ask,
    change,
    creation_of,
    emit,
    feed,
    steps_of,
    subjects,
    until_blocked,
)

pytestmark = pytest.mark.slow


class Cutter:
    """Stands between a store and its server, and cuts the line once, at a message that holds some bytes."""

    def __init__(self, server: PostgresServer) -> None:
        self._target = str(server.socket_directory / ".s.PGSQL.5432")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cut: tuple[bytes, bool] | None = None
        self._ends = socket.socketpair()
        self._pool = ThreadPoolExecutor()
        self._pool.submit(self._accept)
        self.has_cut = threading.Event()

    def url(self, of: str) -> str:
        host, port = self._listener.getsockname()
        database = of.removeprefix("postgresql://postgres@/").partition("?")[0]
        return f"postgresql://postgres@{host}:{port}/{database}?sslmode=disable&gssencmode=disable"

    def cut_before(self, message: bytes) -> None:
        """The server will never see it."""
        self._cut = (message, False)

    def cut_after(self, message: bytes) -> None:
        """The server will have answered, and no client will hear it."""
        self._cut = (message, True)

    def close(self) -> None:
        self._ends[0].close()
        self._pool.shutdown()
        self._ends[1].close()
        self._listener.close()

    def _accept(self) -> None:
        while self._listener in select.select([self._listener, self._ends[1]], [], [])[0]:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._pool.submit(self._carry, client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            while True:
                heard = select.select([client, server, self._ends[1]], [], [])[0]
                if self._ends[1] in heard:
                    return
                for source, target in ((client, server), (server, client)):
                    if source not in heard:
                        continue
                    message = source.recv(65536)
                    if not message or (source is client and self._cuts(message, server)):
                        return
                    target.sendall(message)

    def _cuts(self, message: bytes, server: socket.socket) -> bool:
        if self._cut is None or self._cut[0] not in message:
            return False
        (_, is_delivered), self._cut = self._cut, None
        if is_delivered:
            server.sendall(message)
            server.recv(65536)
        self.has_cut.set()
        return True


@pytest.fixture
def cutter(postgres_server: PostgresServer) -> Iterator[Cutter]:
    cutter = Cutter(postgres_server)
    yield cutter
    cutter.close()


@pytest.mark.parametrize("is_delivered", [True, False], ids=["after the commit", "before the commit"])
def test_a_commit_whose_answer_was_lost_happens_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str, is_delivered: bool
) -> None:
    store = open_store(cutter.url(url))
    task = a_task()
    attempts = []

    def create(tx: Tx) -> str:
        attempts.append(1)
        tx.tasks.create(task)
        tx.emit(EventKind.TASK_CREATED, task.id, at=START, task_id=task.id)
        return task.id

    (cutter.cut_after if is_delivered else cutter.cut_before)(b"COMMIT\0")
    answer = write(store, create)

    assert cutter.has_cut.is_set()
    assert answer == task.id
    assert len(attempts) == (1 if is_delivered else 2)
    assert subjects(feed(store)) == [task.id]
    assert store.verify() == []


def emit_created(name: str, tx: Tx) -> None:
    tx.emit(EventKind.TASK_CREATED, name, at=START)


def test_a_commit_whose_answer_was_lost_on_the_loops_own_thread_happens_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str
) -> None:
    store = open_store(cutter.url(url))
    names = [f"subject {number}" for number in range(9)]

    async def main() -> None:
        for name in names:
            if name == names[-1]:
                cutter.cut_after(b"COMMIT\0")
            await store.write(functools.partial(emit_created, name))

    asyncio.run(main())

    assert cutter.has_cut.is_set()
    assert subjects(feed(store)) == names


def test_all_writes_of_a_group_whose_commit_was_not_answered_are_there_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str
) -> None:
    store = open_store(cutter.url(url), writers=1)
    tasks = [a_task() for _ in range(20)]
    cutter.cut_after(b"COMMIT\0")

    async def main() -> list[object]:
        return list(await asyncio.gather(*(store.write(creation_of(task)) for task in tasks)))

    answers = asyncio.run(main())

    assert cutter.has_cut.is_set()
    assert answers == [task.id for task in tasks]
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 20}
    assert store.verify() == []


@pytest.mark.parametrize("is_delivered", [True, False], ids=["after the step", "before the step"])
def test_a_step_whose_answer_was_lost_is_saved_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str, is_delivered: bool
) -> None:
    store = open_store(cutter.url(url))
    run, claim = running_run(store)
    step = a_step(run, name="the one that is cut")
    store.write_now(saving_step(a_step(run, name="prepares the statement"), claim.fence, CLOSED))

    (cutter.cut_after if is_delivered else cutter.cut_before)(b"the one that is cut")
    answer = store.write_now(saving_step(step, claim.fence, CLOSED))

    assert cutter.has_cut.is_set()
    assert answer is None  # saved now, also when the answer to that was lost
    assert len(steps_of(store, run.task_id)) == 2


@pytest.mark.parametrize("commits", [True, False])
def test_a_caller_that_asks_about_a_commit_waits_until_the_server_is_done_with_it(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor, commits: bool
) -> None:
    change(url, "INSERT INTO commit_receipts VALUES ('lost', 6, 1)")
    rival.execute("UPDATE commit_receipts SET number = 7 WHERE id = 'lost'")

    asking = threads.submit(
        store._writer.exclusively,
        lambda session: session.has_committed("lost", 7),
    )
    until_blocked(url)
    (rival.commit if commits else rival.rollback)()

    assert asking.result(SOON_S) is commits


def test_receipts_are_tidied_away(open_store: Callable[..., PostgresStore], url: str) -> None:
    store = open_store()
    emit(store, "one")
    change(url, "INSERT INTO commit_receipts VALUES ('of a dead process', 6, 1)")
    change(url, "DELETE FROM commit_receipts WHERE written_at > 1")
    emit(store, "goes on without its receipt")
    open_store().close()
    left = ask(url, "SELECT number FROM commit_receipts")
    store.close()

    assert left == [(2,)]
    assert ask(url, "SELECT number FROM commit_receipts") == []
