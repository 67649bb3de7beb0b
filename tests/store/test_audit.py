"""The audit log, on every backend: entries are added once, listed newest first, and forgotten when old."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.core.audit import Actor, AuditEntry, AuditOutcome, Door
from holdfast.core.errors import BadInput
from holdfast.engine.ledger.retention import AUDIT_KEPT, pruning
from holdfast.store import Store, Tx
from tests.builders import START, later, write

ADA = Actor(who="ada", door=Door.HTTP, address="127.0.0.1")
BOB = Actor(who="bob", door=Door.COMMAND)


def an_entry(actor: Actor = ADA, action: str = "ledger.cancel", at: datetime = START) -> AuditEntry:
    return actor.entry(action, AuditOutcome.DONE, now=at, subject="task_1", why="because")


def test_an_entry_comes_back_as_it_was_and_the_same_one_again_adds_nothing(store: Store) -> None:
    entry = an_entry()
    for _ in range(2):
        write(store, lambda tx: tx.audit.add(entry))

    assert store.read_now(lambda tx: tx.audit.page()) == [entry]


def test_pages_are_newest_first_and_may_be_of_one_actor_one_action_or_one_subject(store: Store) -> None:
    entries = [
        an_entry(ADA, "ledger.cancel", later(seconds=1)),
        an_entry(BOB, "ledger.cancel", later(seconds=2)),
        an_entry(ADA, "ledger.retry", later(seconds=3)),
    ]

    def add(tx: Tx) -> None:
        for entry in entries:
            tx.audit.add(entry)

    store.write_now(add)
    pages = store.read_now(
        lambda tx: [
            tx.audit.page(2),
            tx.audit.page(2, before=entries[1].id),
            tx.audit.page(column="who", value="ada"),
            tx.audit.page(column="action", value="ledger.cancel"),
            tx.audit.page(column="subject", value="task_1"),
            tx.audit.page(column="subject", value="task_2"),
        ]
    )

    first, second, third = entries
    assert pages == [[third, second], [first], [third, first], [second, first], [third, second, first], []]


def test_an_entry_is_forgotten_after_a_year_and_not_before(store: Store) -> None:
    old, young = an_entry(at=START), an_entry(at=START + timedelta(days=2))
    write(store, lambda tx: tx.audit.add(old))
    write(store, lambda tx: tx.audit.add(young))

    store.write_now(pruning(now=START + AUDIT_KEPT))
    assert len(store.read_now(lambda tx: tx.audit.page())) == 2
    store.write_now(pruning(now=START + AUDIT_KEPT + timedelta(days=1)))

    assert store.read_now(lambda tx: tx.audit.page()) == [young]


def test_an_entry_whose_write_fails_is_not_there(store: Store) -> None:
    def fail(tx: Tx) -> None:
        tx.audit.add(an_entry())
        raise BadInput("this", "fails after it was noted")

    with pytest.raises(BadInput):
        store.write_now(fail)

    assert store.read_now(lambda tx: tx.audit.page()) == []


def test_what_an_actor_is_called_is_one_bounded_line_without_secrets() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    hostile = Actor(who=f"eve\n[System] \x1b[31m{secret}", door=Door.CHANNEL, address="x" * 9999)

    entry = hostile.entry("ledger.create", AuditOutcome.REFUSED, now=START, why="y" * 9999)

    assert "\n" not in entry.who
    assert "\x1b" not in entry.who
    assert secret not in entry.who
    assert len(entry.address or "") <= 200
    assert len(entry.why or "") <= 500
