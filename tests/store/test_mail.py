"""Mail: sent once per key, in one order per task, and taken once."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.program_records import Mail
from holdfast.store import Store, Tx
from holdfast.testing import contents_of
from tests.builders import START, later, running_run, stored_run
from tests.conftest import Ledger
from tests.store.program_records import flip, large, send

PATIENCE_S = 30.0


def next_of(store: Store, task_id: str, topic: str = "hints") -> Mail | None:
    return store.read_now(lambda tx: tx.mail.next_of(task_id, topic))


def test_mail_is_read_back_as_it_was_sent(store: Store) -> None:
    run, _ = running_run(store)

    assert store.write_now(
        lambda tx: tx.mail.send(
            run.task_id, topic="Hinweis 🔎", body=large(), sender="task_y", key="k", now=later(seconds=1)
        )
    )
    assert next_of(store, run.task_id, "Hinweis 🔎") == Mail(
        task_id=run.task_id,
        seq=1,
        topic="Hinweis 🔎",
        body=large(),
        sender="task_y",
        key="k",
        sent_at=later(seconds=1),
    )


def test_mail_is_taken_in_the_order_it_was_sent_topic_by_topic(store: Store) -> None:
    run, other = stored_run(store), stored_run(store)

    def send_all(tx: Tx) -> None:
        for topic, body in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"4")):
            send(tx, run.task_id, topic, body)
        send(tx, other.task_id, "a", b"9")

    def take_all(tx: Tx) -> list[tuple[int, bytes]]:
        taken = []
        while (mail := tx.mail.next_of(run.task_id, "a")) is not None:
            assert tx.mail.take(run.task_id, mail.seq, later(seconds=1))
            taken.append((mail.seq, mail.body))
        return taken

    store.write_now(send_all)

    assert store.write_now(take_all) == [(1, b"1"), (3, b"3"), (4, b"4")]
    left = next_of(store, run.task_id, "b")
    assert left is not None
    assert (left.seq, left.taken_at) == (2, None)
    theirs = next_of(store, other.task_id, "a")
    assert theirs is not None
    assert theirs.seq == 1
    assert next_of(store, run.task_id, "nothing") is None


def test_what_has_the_same_key_is_sent_once(store: Store) -> None:
    run, other = stored_run(store), stored_run(store)
    first = store.write_now(lambda tx: send(tx, run.task_id, body=b"1", key="k"))
    before = store.read_now(contents_of)

    again = store.write_now(lambda tx: send(tx, run.task_id, "other", b"2", key="k", now=later(seconds=9)))

    assert (first, again) == (True, False)
    assert store.read_now(contents_of) == before
    assert store.write_now(lambda tx: send(tx, other.task_id, key="k"))


def test_a_key_stays_used_after_its_mail_was_taken(store: Store) -> None:
    run = stored_run(store)
    store.write_now(lambda tx: send(tx, run.task_id, key="k"))
    store.write_now(lambda tx: tx.mail.take(run.task_id, 1, START))

    assert not store.write_now(lambda tx: send(tx, run.task_id, key="k"))
    assert store.write_now(lambda tx: send(tx, run.task_id, key="l"))
    mail = next_of(store, run.task_id)
    assert mail is not None
    assert (mail.seq, mail.key) == (2, "l")


def test_mail_is_taken_once(store: Store) -> None:
    run = stored_run(store)
    store.write_now(lambda tx: send(tx, run.task_id))

    assert store.write_now(lambda tx: tx.mail.take(run.task_id, 1, START))
    before = store.read_now(contents_of)
    assert not store.write_now(lambda tx: tx.mail.take(run.task_id, 1, later(seconds=1)))
    assert not store.write_now(lambda tx: tx.mail.take(run.task_id, 2, START))
    assert store.read_now(contents_of) == before


def test_nothing_is_sent_to_a_task_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound, match="task_nothing"):
        store.write_now(lambda tx: send(tx, "task_nothing"))

    assert store.read_now(contents_of)["mail"] == []


def test_senders_at_once_get_places_of_their_own_and_no_mail_is_lost(ledger: Ledger) -> None:
    stores = [ledger.open(), ledger.open()]
    run = stored_run(stores[0])
    if stores[1].read_now(lambda tx: tx.tasks.page()) == []:
        pytest.skip("this kind of store shares nothing")
    sent: list[bool] = []

    def send_many(store: Store, name: str) -> None:
        for number in range(20):
            # Every second key is one that the other sender uses, too.
            key = f"shared {number}" if number % 2 else f"{name} {number}"
            sent.append(store.write_now(partial(send, task_id=run.task_id, key=key)))

    senders = [
        threading.Thread(target=send_many, args=(store, f"{place} {name}"))
        for place, store in enumerate(stores)
        for name in "ab"
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(PATIENCE_S)

    def read_all(tx: Tx) -> list[int]:
        return [row[1] for row in tx.statements.all("scan_mail", {"after0": "", "after1": -1, "limit": 999})]

    assert len(sent) == 80
    assert sum(sent) == 4 * 10 + 10
    assert stores[0].read_now(read_all) == list(range(1, 51))
    assert stores[0].verify() == []


@pytest.mark.parametrize("column", ["seq", "topic", "body", "sender", "key", "sent_at", "digest"])
def test_damaged_mail_is_not_handed_out(store: Store, column: str) -> None:
    run = stored_run(store)
    store.write_now(lambda tx: send(tx, run.task_id))
    flip(store, "mail", column)

    with pytest.raises(RowDamaged, match=run.task_id):
        next_of(store, run.task_id, "iints" if column == "topic" else "hints")

    assert any("mail" in problem for problem in store.verify())
