"""Group commit: many callers share one commit, each gets its own answer, and none a false one."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast.core.errors import ClaimLost, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.live_run import shielded
from holdfast.store import Store, Tx, Write
from holdfast.store.contract import Busy
from holdfast.store.journal import saving_step
from holdfast.store.sealing import CLOSED
from holdfast.store.transaction import Tx as RealTx
from holdfast.store.write_session import WriteSession
from holdfast.store.writer import MAX_GROUP, Writer
from holdfast.testing import FakeClock, contents_of, memory_store
from tests.builders import START, a_step, a_task, running_run, stored_run

PATIENCE_S = 20.0


def remember(name: str, value: str) -> Callable[[Tx], str]:
    def write(tx: Tx) -> str:
        tx.boots.set_fact(name, value)
        tx.emit(EventKind.RUN_WOKEN, name, at=START)
        tx.count("task", TaskStatus.QUEUED, 1)
        return value

    return write


def fail(tx: Tx) -> None:
    tx.boots.set_fact("bad", "x")
    tx.emit(EventKind.RUN_WOKEN, "bad", at=START)
    tx.count("task", TaskStatus.FAILED, 1)
    raise ZeroDivisionError


def interrupt(tx: Tx) -> None:
    tx.boots.set_fact("bad", "x")
    tx.emit(EventKind.RUN_WOKEN, "bad", at=START)
    tx.count("task", TaskStatus.FAILED, 1)
    raise KeyboardInterrupt


def leave(tx: Tx) -> None:
    """Not KeyboardInterrupt, which asyncio would pass on by itself."""
    tx.boots.set_fact("bad", "x")
    raise GeneratorExit


def subjects(store: Store) -> list[str]:
    return [event.subject_id for event in store.read_now(lambda tx: tx.events.after(limit=10_000))]


class Gate:
    """A write that holds its writer until it is let go, so that others have to wait together."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.may_go = threading.Event()

    def __call__(self, tx: Tx) -> str:
        tx.boots.set_fact(f"gate {id(self)}", "passed")
        self.is_reached.set()
        assert self.may_go.wait(PATIENCE_S)
        return "gate"


async def crowd(store: Store, *writes: Write[Any]) -> list[Any]:
    """The answers or errors of writes that wait together while every writer is held up."""
    gates = [Gate() for _ in range(4)]  # at least as many as there are writers
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(asyncio.to_thread(store.write_now, gate)) for gate in gates]
        await asyncio.to_thread(gates[0].is_reached.wait, PATIENCE_S)
        waiting = asyncio.gather(*(store.write(write) for write in writes), return_exceptions=True)
        await asyncio.sleep(0)
        for gate in gates:
            gate.may_go.set()
        answers = await waiting
    assert [task.result() for task in held] == ["gate"] * len(gates)
    return list(answers)


# --- a crowd


def test_a_thousand_callers_at_once_get_their_own_answers(store: Store) -> None:
    async def write_all() -> list[str]:
        return list(
            await asyncio.gather(*(store.write(remember(f"fact {n}", f"value {n}")) for n in range(1000)))
        )

    assert asyncio.run(write_all()) == [f"value {number}" for number in range(1000)]
    assert sorted(subjects(store)) == sorted(f"fact {number}" for number in range(1000))
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 1000}
    assert store.read_now(lambda tx: tx.boots.fact("fact 777")) == "value 777"


def test_a_bad_write_in_a_crowd_harms_no_other(store: Store) -> None:
    writes = [fail if number % 7 == 3 else remember(f"fact {number}", "x") for number in range(100)]

    answers = asyncio.run(crowd(store, *writes))

    for number, answer in enumerate(answers):
        if number % 7 == 3:
            assert isinstance(answer, ZeroDivisionError)
        else:
            assert answer == "x"
    good = {f"fact {number}" for number in range(100) if number % 7 != 3}
    assert set(subjects(store)) == good
    assert store.read_now(lambda tx: tx.boots.fact("bad")) is None
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": len(good)}


def test_a_write_that_the_database_refuses_harms_no_other(store: Store, refusal: type[Exception]) -> None:
    def break_a_constraint(tx: Tx) -> None:
        tx.tasks.create(a_task(status=TaskStatus.FAILED, ended_at=None))

    writes = [
        break_a_constraint if number % 5 == 0 else remember(f"fact {number}", "x") for number in range(20)
    ]

    answers = asyncio.run(crowd(store, *writes))

    assert [isinstance(answer, refusal) for answer in answers] == [number % 5 == 0 for number in range(20)]
    assert len(subjects(store)) == 16


def test_a_crowd_in_which_everyone_fails_commits_nothing(store: Store) -> None:
    answers = asyncio.run(crowd(store, *([fail] * 10)))

    assert [type(answer) for answer in answers] == [ZeroDivisionError] * 10
    assert subjects(store) == []
    assert store.write_now(remember("after", "x")) == "x"
    assert subjects(store) == ["after"]


def test_each_write_of_a_crowd_sees_those_before_it(store: Store) -> None:
    def add_one(tx: Tx) -> int:
        number = int(tx.boots.fact("number") or 0) + 1
        tx.boots.set_fact("number", str(number))
        return number

    async def count() -> list[int]:
        return list(await asyncio.gather(*(store.write(add_one) for _ in range(50))))

    if len(store._writer._sessions) > 1:  # type: ignore[attr-defined]
        pytest.skip("several writers at once: a write that reads before it writes takes a lock")
    assert sorted(asyncio.run(count())) == list(range(1, 51))


def test_steps_of_a_crowd_are_saved_once_each_and_strangers_are_told(store: Store) -> None:
    runs = [running_run(store) for _ in range(10)]
    good = [saving_step(a_step(run), claim.fence, CLOSED) for run, claim in runs]
    again = [saving_step(a_step(run, result=b'"other"'), claim.fence, CLOSED) for run, claim in runs[:3]]
    strangers = [saving_step(a_step(run, name="steal"), claim.fence + 1, CLOSED) for run, claim in runs[:2]]

    answers = asyncio.run(crowd(store, *good, *again, *strangers))

    saved = store.read_now(lambda tx: [tx.journal.steps(run.task_id) for run, _ in runs])
    assert [len(steps) for steps in saved] == [1] * 10
    assert sum(answer is None for answer in answers[:13]) == 10
    # Whichever of the two came first stays, and the other one is shown it.
    told = [first or second for first, second in zip(answers[:3], answers[10:13], strict=True)]
    assert told == [saved[number][0] for number in range(3)]
    assert [type(answer) for answer in answers[13:]] == [ClaimLost] * 2


def test_steps_and_other_writes_of_one_crowd_do_not_disturb_each_other(store: Store) -> None:
    runs = [running_run(store) for _ in range(5)]
    writes: list[Write[Any]] = []
    for number, (run, claim) in enumerate(runs):
        writes += [saving_step(a_step(run), claim.fence, CLOSED), remember(f"fact {number}", "x"), fail]

    answers = asyncio.run(crowd(store, *writes))

    assert answers[0::3] == [None] * 5
    assert answers[1::3] == ["x"] * 5
    assert [type(answer) for answer in answers[2::3]] == [ZeroDivisionError] * 5
    assert store.verify() != []  # `remember` counts tasks that are not there
    assert len(subjects(store)) == 5


def test_a_crowd_larger_than_a_group_is_served_whole(store: Store) -> None:
    many = 2 * MAX_GROUP + 3

    answers = asyncio.run(crowd(store, *(remember(f"fact {number}", str(number)) for number in range(many))))

    assert answers == [str(number) for number in range(many)]


# --- callers


def test_a_caller_that_was_cancelled_disturbs_no_other_caller(store: Store) -> None:
    async def scenario() -> list[Any]:
        gate = Gate()
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(asyncio.to_thread(store.write_now, gate)) for _ in range(4)]
            await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            waiting = [asyncio.ensure_future(store.write(remember(f"fact {n}", "x"))) for n in range(10)]
            await asyncio.sleep(0)
            for caller in waiting[::2]:
                caller.cancel()
            gate.may_go.set()
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [task.result() for task in held] == ["gate"] * 4
        return list(answers)

    answers = asyncio.run(scenario())

    assert [type(answer) for answer in answers[::2]] == [asyncio.CancelledError] * 5
    assert answers[1::2] == ["x"] * 5
    assert store.write_now(remember("after", "x")) == "x"


async def turns_beside(work: Callable[[], Awaitable[None]]) -> int:
    """How often another task of the loop had a turn while the work was done."""
    turns = 0
    is_over = False

    async def neighbour() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(neighbour())
        await work()
        is_over = True
    return turns


@pytest.mark.parametrize("is_child", [False, True])
def test_a_caller_that_has_had_its_time_on_the_loop_lets_the_others_work(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_child: bool
) -> None:
    monkeypatch.setattr("holdfast.store.inline_write.INLINE_PASS_S", 0)

    async def work() -> None:
        for number in range(100):
            await store.write(remember("fact", str(number)))

    async def as_child() -> None:
        await shielded(work())

    assert asyncio.run(turns_beside(as_child if is_child else work)) >= 100
    assert len(subjects(store)) == 100


def test_a_caller_whose_writes_fail_lets_the_others_work_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.inline_write.INLINE_PASS_S", 0)

    async def work() -> None:
        for _ in range(100):
            with pytest.raises(ValueError, match="no"):
                await store.write(fail_with("no"))

    assert asyncio.run(turns_beside(work)) >= 100


class Captured:
    """What a write holds on to."""


def test_a_write_that_failed_leaves_nothing_behind(store: Store) -> None:
    kept: list[weakref.ref[Captured]] = []

    def failing() -> Write[None]:
        captured = Captured()
        kept.append(weakref.ref(captured))

        def fail_with_it(_tx: Tx) -> None:
            raise ValueError(f"no {type(captured).__name__}")

        return fail_with_it

    async def some() -> None:
        for _ in range(50):
            await asyncio.gather(store.write(failing()), return_exceptions=True)
        await asyncio.gather(*(store.write(failing()) for _ in range(10)), return_exceptions=True)

    asyncio.run(some())
    for _ in range(50):
        with pytest.raises(ValueError, match="no"):
            store.write_now(failing())
    gc.collect()

    # The last group may be held until the next one comes.
    assert sum(one() is not None for one in kept) <= 10


def fail_with(message: str) -> Write[None]:
    def fail_at_once(_tx: Tx) -> None:
        raise ValueError(message)

    return fail_at_once


def test_many_threads_write_at_once(store: Store) -> None:
    answers: dict[int, str] = {}

    def write_some(first: int) -> None:
        for number in range(first, first + 25):
            answers[number] = store.write_now(remember(f"fact {number}", str(number)))

    threads = [threading.Thread(target=write_some, args=(25 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert answers == {number: str(number) for number in range(200)}
    assert len(subjects(store)) == 200


def test_many_event_loops_share_one_store(store: Store) -> None:
    answers: dict[int, list[str]] = {}

    def one_loop(index: int) -> None:
        async def write_some() -> list[str]:
            names = [f"fact {index} {number}" for number in range(25)]
            return list(await asyncio.gather(*(store.write(remember(name, name)) for name in names)))

        answers[index] = asyncio.run(write_some())

    threads = [threading.Thread(target=one_loop, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert answers == {index: [f"fact {index} {number}" for number in range(25)] for index in range(6)}


def test_a_loop_that_was_closed_while_its_write_waited_disturbs_no_other_caller(store: Store) -> None:
    gate = Gate()
    threads = [threading.Thread(target=store.write_now, args=(gate,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert gate.is_reached.wait(PATIENCE_S)

    async def leave_early() -> None:
        waiting = asyncio.ensure_future(store.write(remember("orphan", "x")))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(leave_early())
    gate.may_go.set()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert store.write_now(remember("after", "x")) == "x"


def test_an_interrupted_write_leaves_nothing_and_the_store_usable(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        store.write_now(interrupt)

    assert store.write_now(remember("after", "x")) == "x"
    assert asyncio.run(store.write(remember("later", "x"))) == "x"
    assert subjects(store) == ["after", "later"]
    assert store.read_now(lambda tx: tx.boots.fact("bad")) is None
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 2}


def test_an_interrupt_on_the_writers_thread_reaches_its_caller_and_the_store_lives(store: Store) -> None:
    answers = asyncio.run(
        asyncio.wait_for(crowd(store, remember("before", "x"), leave, remember("after", "x")), 30)
    )

    assert isinstance(answers[1], BaseException)
    assert store.write_now(remember("last", "x")) == "x"
    assert "last" in subjects(store)


# --- the end


def test_closing_finishes_what_waits(store: Store) -> None:
    async def scenario() -> list[Any]:
        gate = Gate()
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(asyncio.to_thread(store.write_now, gate)) for _ in range(4)]
            await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            waiting = asyncio.gather(*(store.write(remember(f"fact {n}", str(n))) for n in range(20)))
            await asyncio.sleep(0)
            closing = group.create_task(asyncio.to_thread(store.close))
            gate.may_go.set()
            answers = await waiting
            await closing
        assert [task.result() for task in held] == ["gate"] * 4
        return list(answers)

    assert asyncio.run(scenario()) == [str(number) for number in range(20)]
    with pytest.raises(StoreUnavailable):
        store.write_now(remember("late", "x"))


def test_nothing_changes_when_the_only_write_fails(store: Store) -> None:
    running_run(store)
    before = store.read_now(contents_of)

    with pytest.raises(ZeroDivisionError):
        store.write_now(fail)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(store.write(fail))

    assert store.read_now(contents_of) == before


# --- errors that end a transaction, with a database that breaks on demand


class Broken(Exception):
    """The database failed, and its transaction is gone."""


class FakeStatements:
    """Remembers what was committed; a query named `break` ends the transaction."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session

    def run(self, query: str, params: Any) -> None:  # noqa: ARG002 - the contract's shape
        if query == "break":
            self._session.pending.clear()
            self._session.in_transaction = False
            raise Broken
        self._session.pending.append(query)

    def many(self, query: str, rows: Any) -> None:
        self._session.pending += [query] * len(list(rows))

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


class FakeSession:
    """One connection to a database that keeps a list of words."""

    def __init__(self) -> None:
        self.tx = RealTx(FakeStatements(self), CLOSED.vault)
        self.pending: list[str] = []
        self.committed: list[str] = []
        self.commits = 0
        self.in_transaction = False
        # Which commits fail, counted from 1, and how often an error may pass.
        self.failing_commits: set[int] = set()
        self.retries = 0
        self._mark = 0

    def begin(self, *, may_wait: bool) -> None:  # noqa: ARG002 - the contract's shape
        assert not self.in_transaction
        self.in_transaction = True
        self.pending.clear()

    def commit(self) -> None:
        self.commits += 1
        if self.commits in self.failing_commits:
            self.pending.clear()
            self.in_transaction = False
            raise Broken
        self.committed += self.pending
        self.in_transaction = False

    def rollback(self) -> None:
        self.pending.clear()
        self.in_transaction = False

    def savepoint(self) -> None:
        self._mark = len(self.pending)

    def release(self) -> None:
        pass

    def rollback_to(self) -> None:
        assert self.in_transaction
        del self.pending[self._mark :]

    def is_open(self) -> bool:
        return self.in_transaction

    def alone(self, write: Any, *, may_wait: bool) -> Any:
        raise NotImplementedError

    crowd = alone

    def explain(self, error: Exception) -> Exception | None:
        return StoreUnavailable("broken") if isinstance(error, Broken) else None

    def may_retry(self, error: Exception) -> bool:  # noqa: ARG002 - the contract's shape
        if self.retries:
            self.retries -= 1
            return True
        return False

    def close(self) -> None:
        pass


def say(word: str) -> Callable[[Tx], str]:
    def write(tx: Tx) -> str:
        tx.statements.run(word, {})
        return word

    return write


def breaks(tx: Tx) -> None:
    tx.statements.run("break", {})


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def writer(session: FakeSession) -> Iterator[Writer]:
    checked: WriteSession = session
    writer = Writer([checked])
    yield writer
    writer.close()


class Held:
    """Keeps a writer busy, so that what comes next waits together."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._gate = Gate()
        self.error: StoreUnavailable | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._gate.is_reached.wait(PATIENCE_S)

    def let_go(self) -> None:
        self._gate.may_go.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            self._writer.write_now(self._hold)
        except StoreUnavailable as error:
            self.error = error

    def _hold(self, tx: Tx) -> None:
        tx.statements.run("held", {})
        self._gate.is_reached.set()
        assert self._gate.may_go.wait(PATIENCE_S)


def write_together(writer: Writer, *writes: Write[Any]) -> list[Any]:
    async def together() -> list[Any]:
        held = Held(writer)
        waiting = asyncio.gather(*(writer.write(write) for write in writes), return_exceptions=True)
        await asyncio.sleep(0)
        await asyncio.to_thread(held.let_go)
        return list(await waiting)

    return asyncio.run(together())


def test_who_waits_together_shares_one_commit(session: FakeSession, writer: Writer) -> None:
    answers = write_together(writer, *(say(str(number)) for number in range(50)))

    assert answers == [str(number) for number in range(50)]
    assert session.committed == ["held", *answers]
    assert session.commits == 2


def test_when_a_write_ends_the_transaction_the_others_run_again_alone(
    session: FakeSession, writer: Writer
) -> None:
    answers = write_together(writer, say("one"), say("two"), breaks, say("three"))

    assert answers[:2] == ["one", "two"]
    assert isinstance(answers[2], StoreUnavailable)
    assert answers[3] == "three"
    assert session.committed == ["held", "one", "two", "three"]


def test_when_the_commit_fails_no_caller_was_told_and_each_runs_again_alone(
    session: FakeSession, writer: Writer
) -> None:
    # The first commit is that of the write which holds the others up, the second is theirs.
    session.failing_commits = {2}

    answers = write_together(writer, say("a"), say("b"), say("c"))

    assert answers == ["a", "b", "c"]
    assert session.committed == ["held", "a", "b", "c"]
    assert session.commits == 5


def test_while_the_database_stays_broken_everyone_is_told_so(session: FakeSession, writer: Writer) -> None:
    session.failing_commits = set(range(2, 6))

    answers = write_together(writer, say("a"), say("b"), say("c"))

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert writer.write_now(say("back")) == "back"
    assert session.committed == ["held", "back"]


def test_an_error_that_may_pass_is_tried_again(session: FakeSession, writer: Writer) -> None:
    session.failing_commits, session.retries = {1, 2, 3}, 3

    assert writer.write_now(say("word")) == "word"
    assert session.committed == ["word"]


def test_events_and_counts_of_a_lost_transaction_are_written_once(
    session: FakeSession, writer: Writer
) -> None:
    def tell(tx: Tx) -> None:
        tx.emit(EventKind.RUN_WOKEN, "run_x", at=START)
        tx.count("task", TaskStatus.QUEUED, 1)

    session.failing_commits, session.retries = {1, 2}, 2
    writer.write_now(tell)

    assert session.committed == ["insert_event", "add_to_counter"]


def test_hints_are_given_after_the_commit_and_only_then(session: FakeSession) -> None:
    given: list[tuple[set[str], int]] = []
    writer = Writer([session], on_commit=lambda topics: given.append((topics, session.commits)))

    def hint(tx: Tx) -> None:
        tx.statements.run("word", {})
        tx.hint("runs")
        assert given == []

    def hint_and_fail(tx: Tx) -> None:
        tx.hint("never")
        raise ZeroDivisionError

    writer.write_now(hint)
    with pytest.raises(ZeroDivisionError):
        writer.write_now(hint_and_fail)
    writer.write_now(say("word"))
    writer.close()

    assert [pair for pair in given if pair[0]] == [({"runs"}, 1)]


def test_a_loop_does_not_wait_for_another_process(session: FakeSession, writer: Writer) -> None:
    for _ in range(3):
        writer.write_now(say("warm"))
    begin, threads = session.begin, []

    def busy_on_the_loop(*, may_wait: bool) -> None:
        threads.append((threading.current_thread(), may_wait))
        if not may_wait:
            raise Busy
        begin(may_wait=may_wait)

    session.begin = busy_on_the_loop  # type: ignore[method-assign]

    assert asyncio.run(writer.write(say("word"))) == "word"
    # Refused on the loop's thread, so it went to the writer's, where it may wait.
    assert [may_wait for _, may_wait in threads] == [False, True]
    assert threads[0][0] is threading.main_thread()
    assert threads[1][0] is not threading.main_thread()


def test_closing_waits_for_a_write_on_the_callers_own_thread(session: FakeSession) -> None:
    writer = Writer([session])
    held = Held(writer)
    closed: list[list[str]] = []

    def close_session() -> None:
        closed.append(list(session.committed))

    session.close = close_session  # type: ignore[method-assign]
    closing = threading.Thread(target=writer.close)
    closing.start()
    held.let_go()
    closing.join(PATIENCE_S)

    assert closed == [["held"]]


def test_a_hint_that_fails_takes_nothing_back(caplog: pytest.LogCaptureFixture) -> None:
    store = memory_store(FakeClock())

    def fail(_topics: set[str]) -> None:
        raise OSError("too many open files")

    store._writer._groups._on_commit = fail
    run = stored_run(store)

    assert store.read_now(lambda tx: tx.runs.get(run.id)) == run
    assert "too many open files" in caplog.text
    store.close()
