"""Sessions: they give away places, one task answers in each, and the longest waiting goes first."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest

from holdfast.core.errors import BadInput, NotFound
from holdfast.core.ids import SessionId
from holdfast.core.session import Session
from holdfast.core.task import Origin
from holdfast.core.transitions import SessionStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.store.sessions import page_token
from tests.builders import START, a_session, a_task, later
from tests.conftest import Ledger
from tests.engine.tables import execute, literal

SPOKE = Origin(channel="console", peer="ada")


def stored(store: Store, **changes: Any) -> Session:
    session = a_session(**changes)
    store.write_now(lambda tx: tx.sessions.create(session))
    return session


def waiting(store: Store, *, since: datetime = START, queued: int = 1, **changes: Any) -> Session:
    return stored(store, queued=queued, last_position=queued, ready_at=since, **changes)


def busy(store: Store, task_id: str, **changes: Any) -> Session:
    return stored(store, status=SessionStatus.PROCESSING, task_id=task_id, **changes)


def test_a_session_is_found_by_its_key(store: Store) -> None:
    session = stored(store)

    assert store.read_now(lambda tx: tx.sessions.find(session.key)) == session
    assert store.read_now(lambda tx: tx.sessions.of_key(session.key)) == session
    assert store.write_now(lambda tx: tx.sessions.hold(session.key)) == session


def test_a_session_that_was_not_begun_is_not_found(store: Store) -> None:
    assert store.read_now(lambda tx: tx.sessions.find("agent:a:b")) is None
    assert store.write_now(lambda tx: tx.sessions.hold("agent:a:b")) is None
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.sessions.of_key("agent:a:b"))
    with pytest.raises(NotFound):
        store.write_now(lambda tx: tx.sessions.append("agent:a:b", is_queued=True, origin=None, now=START))


def test_places_are_given_away_in_order_and_what_waits_is_counted(store: Store) -> None:
    session = stored(store)

    def append(tx: Tx, is_queued: bool, at: datetime) -> Session:
        return tx.sessions.append(session.key, is_queued=is_queued, origin=None, now=at)

    noted = store.write_now(lambda tx: append(tx, False, later(seconds=1)))
    first = store.write_now(lambda tx: append(tx, True, later(seconds=2)))
    second = store.write_now(lambda tx: append(tx, True, later(seconds=3)))

    assert (noted.last_position, noted.queued, noted.ready_at) == (1, 0, None)
    assert (first.last_position, first.queued, first.ready_at) == (2, 1, later(seconds=2))
    assert (second.last_position, second.queued, second.ready_at) == (3, 2, later(seconds=2))
    assert second.updated_at == later(seconds=3)


def test_a_session_remembers_from_where_it_was_last_spoken_to(store: Store) -> None:
    session = stored(store)

    def speak(tx: Tx) -> Session:
        tx.sessions.append(session.key, is_queued=True, origin=SPOKE, now=START)
        return tx.sessions.append(session.key, is_queued=False, origin=None, now=START)

    assert store.write_now(speak).origin == SPOKE


@pytest.mark.parametrize("status", [SessionStatus.IDLE, SessionStatus.INTERRUPTED, SessionStatus.WAITING])
def test_one_task_takes_a_session_and_frees_it(store: Store, status: SessionStatus) -> None:
    session = waiting(store, queued=2, status=status, waits_on="luck")

    taken = store.write_now(lambda tx: tx.sessions.take(session.id, "task_1", now=later(seconds=1)))
    again = store.write_now(lambda tx: tx.sessions.take(session.id, "task_2", now=later(seconds=1)))
    wrong = store.write_now(lambda tx: tx.sessions.free(session.id, "task_2", now=later(seconds=2)))
    freed = store.write_now(lambda tx: tx.sessions.free(session.id, "task_1", now=later(seconds=2)))

    assert taken is not None
    assert (taken.status, taken.task_id, taken.queued) == (SessionStatus.PROCESSING, "task_1", 1)
    assert (taken.ready_at, taken.waits_on) == (None, None)
    assert again is None
    assert wrong is None
    assert freed is not None
    assert (freed.status, freed.task_id, freed.ready_at) == (SessionStatus.IDLE, None, later(seconds=2))


@pytest.mark.parametrize(
    "status",
    [
        SessionStatus.PROCESSING,
        SessionStatus.DRAINING,
        SessionStatus.INTERRUPTED,
        SessionStatus.WAITING,
    ],
)
def test_a_session_is_freed_however_its_task_left_it(store: Store, status: SessionStatus) -> None:
    session = stored(store, status=status, task_id="task_1")

    freed = store.write_now(lambda tx: tx.sessions.free(session.id, "task_1", now=START))

    assert freed is not None
    assert (freed.status, freed.ready_at) == (SessionStatus.IDLE, None)


def test_a_session_in_which_nothing_waits_or_which_drains_is_not_taken(store: Store) -> None:
    quiet = stored(store)
    draining = waiting(store, status=SessionStatus.DRAINING)

    assert store.write_now(lambda tx: tx.sessions.take(quiet.id, "task_1", now=START)) is None
    assert store.write_now(lambda tx: tx.sessions.take(draining.id, "task_1", now=START)) is None


def test_a_message_that_waits_no_longer_is_not_counted(store: Store) -> None:
    session = waiting(store, queued=2)

    def drop(tx: Tx) -> list[tuple[int, datetime | None] | None]:
        dropped = [tx.sessions.drop_queued(session.key, now=START) for _ in range(3)]
        return [None if one is None else (one.queued, one.ready_at) for one in dropped]

    assert store.write_now(drop) == [(1, START), (0, None), None]


def test_an_idle_session_has_no_task(store: Store, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        stored(store, status=SessionStatus.IDLE, task_id="task_1")


def test_a_task_answers_in_one_session(store: Store) -> None:
    busy(store, "task_1")
    other = waiting(store)

    with pytest.raises(Exception, match=r"(?i)unique"):
        store.write_now(lambda tx: tx.sessions.take(other.id, "task_1", now=START))


def test_the_longest_waiting_session_of_these_agents_is_ready_first(store: Store) -> None:
    late = waiting(store, since=later(seconds=2))
    early = waiting(store, since=later(seconds=1))
    waiting(store, agent="stranger", since=START)
    stored(store)
    busy(store, "task_1", queued=3)

    def read(tx: Tx) -> tuple[list[SessionId], list[SessionId], list[str]]:
        ready = tx.sessions.ready(["scholar", "nobody"], limit=9)
        first = tx.sessions.ready(["scholar"], limit=1)
        return [one.id for one in ready], [one.id for one in first], tx.sessions.waiting_agents(limit=9)

    assert store.read_now(read) == ([early.id, late.id], [early.id], ["scholar", "stranger"])


def test_sessions_whose_task_has_ended_or_is_gone_are_found(store: Store) -> None:
    running, done = a_task(status=TaskStatus.RUNNING), a_task(status=TaskStatus.FAILED)
    store.write_now(lambda tx: [tx.tasks.create(running), tx.tasks.create(done)])
    works = busy(store, running.id)
    ended, gone = busy(store, done.id), busy(store, "task_gone")
    stored(store)

    found = store.read_now(lambda tx: tx.sessions.ended(limit=9))
    in_flight = store.read_now(lambda tx: tx.sessions.busy(limit=9))
    rest = store.read_now(lambda tx: tx.sessions.busy(limit=9, after=in_flight[0].task_id or ""))

    assert {one.id for one in found} == {ended.id, gone.id}
    assert {one.id for one in in_flight} == {works.id, ended.id, gone.id}
    assert rest == in_flight[1:]


def test_a_page_token_leads_through_all_sessions_last_spoken_in_first(store: Store) -> None:
    sessions = [stored(store, updated_at=later(seconds=number // 2)) for number in range(5)]
    stored(store, agent="stranger", updated_at=later(seconds=9))

    def walk(tx: Tx) -> list[SessionId]:
        seen: list[Session] = []
        while page := tx.sessions.page(
            agent="scholar", before=page_token(seen[-1]) if seen else None, limit=2
        ):
            seen += page
        return [one.id for one in seen]

    wanted = sorted(sessions, key=lambda one: (one.updated_at, one.id), reverse=True)
    assert store.read_now(walk) == [one.id for one in wanted]
    assert store.read_now(lambda tx: tx.sessions.page(limit=1))[0].agent == "stranger"
    assert [one.id for one in store.read_now(lambda tx: tx.sessions.page(active_since=later(seconds=2)))] == [
        store.read_now(lambda tx: tx.sessions.page(limit=1))[0].id,
        sessions[4].id,
    ]


@pytest.mark.parametrize("token", ["x", "", "12", f"{10**30}.sess_x"])
def test_what_is_no_page_token_is_refused(store: Store, token: str) -> None:
    if token == "12":
        assert store.read_now(lambda tx: tx.sessions.page(before=token)) == []
        return
    with pytest.raises(BadInput, match="page token"):
        store.read_now(lambda tx: tx.sessions.page(before=token))


def test_a_damaged_session_keeps_no_other_from_its_turn(store: Store) -> None:
    damaged, whole = waiting(store), waiting(store)
    execute(store, f"UPDATE sessions SET digest = {literal(store, b'x')} WHERE id = '{damaged.id}'")

    ready = store.read_now(lambda tx: tx.sessions.ready(["scholar"], limit=9))

    assert [one.id for one in ready] == [whole.id]
    assert any(damaged.id in problem for problem in store.verify())


def test_two_who_take_a_session_at_once_do_not_both_get_it(ledger: Ledger) -> None:
    store = ledger.open()
    session = waiting(store)
    gate = threading.Barrier(4)
    taken: list[str] = []

    def take(task_id: str) -> None:
        gate.wait(timeout=30)
        if store.write_now(lambda tx: tx.sessions.take(session.id, task_id, now=START)) is not None:
            taken.append(task_id)

    threads = [threading.Thread(target=take, args=(f"task_{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(taken) == 1
