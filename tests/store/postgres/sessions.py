"""What the tests of PostgreSQL do beside the store: ask, change and wait, on connections of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg

from holdfast.core.events import Event, EventKind
from holdfast.core.step import Step
from holdfast.core.task import Task
from holdfast.store import Store, Tx
from tests.builders import START

Rival = psycopg.Connection[Any]

SOON_S = 20.0


def ask(url: str, query: LiteralString, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as connection:
        return connection.execute(query, values or None).fetchall()


def change(url: str, statement: LiteralString) -> None:
    with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as connection:
        connection.execute(statement)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def until_blocked(url: str, *, count: int = 1) -> None:
    """Until so many transactions wait for a lock that another session holds."""
    waiting: LiteralString = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    until(lambda: ask(url, waiting)[0][0] >= count)


def emit(store: Store, subject: str, *, task_id: str | None = None) -> None:
    store.write_now(lambda tx: tx.emit(EventKind.TASK_CREATED, subject, at=START, task_id=task_id))


def creation_of(task: Task) -> Callable[[Tx], str]:
    def create(tx: Tx) -> str:
        tx.tasks.create(task)
        return task.id

    return create


def feed(store: Store, position: str = "0.0") -> list[Event]:
    return store.read_now(lambda tx: tx.events.after(position))


def subjects(events: list[Event]) -> list[str]:
    return [event.subject_id for event in events]


def steps_of(store: Store, task_id: str) -> list[Step]:
    return store.read_now(lambda tx: tx.journal.steps(task_id))
