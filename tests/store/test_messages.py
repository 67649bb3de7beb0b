"""Messages: once by the id of their channel, at one place, taken once, and read as a transcript."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.errors import RowDamaged
from holdfast.core.message import Message
from holdfast.core.transitions import MessageStatus
from holdfast.store import Store, Tx
from tests.builders import START, a_message, later
from tests.store.program_records import flip

KEY = "agent:scholar:main"


def told(store: Store, *statuses: MessageStatus) -> list[Message]:
    messages = [a_message(position=place, status=status) for place, status in enumerate(statuses, 1)]
    store.write_now(lambda tx: [tx.messages.create(one) for one in messages])
    return messages


def ids(messages: list[Message]) -> list[str]:
    return [one.id for one in messages]


def test_the_same_id_in_another_channel_or_account_is_another_message(store: Store) -> None:
    first = a_message(channel_message_id="7")
    others = [
        a_message(channel_message_id="7", channel="hook"),
        a_message(channel_message_id="7", account_id="team"),
        a_message(channel_message_id="8"),
        a_message(),
        a_message(),
    ]

    kept = store.write_now(lambda tx: [tx.messages.create(one) for one in (first, *others)])

    assert kept == [first, *others]


def test_a_message_is_found_by_its_id_and_by_its_name_in_its_channel(store: Store) -> None:
    message = a_message(channel_message_id="7", account_id="team")
    twin = msgspec.structs.replace(message, id="msg_twin")
    store.write_now(lambda tx: tx.messages.create(message))

    assert store.read_now(lambda tx: tx.messages.find(message)) == message
    assert store.read_now(lambda tx: tx.messages.find(twin)) == message
    assert store.read_now(lambda tx: tx.messages.find(a_message())) is None


def test_a_place_is_given_to_one_message(store: Store) -> None:
    (first,) = told(store, MessageStatus.QUEUED)

    def create(tx: Tx) -> object:
        return tx.messages.create(a_message(position=first.position))

    with pytest.raises(Exception, match="no message"):
        store.write_now(create)


def test_a_message_is_taken_once(store: Store) -> None:
    message = a_message()
    store.write_now(lambda tx: tx.messages.create(message))

    taken = store.write_now(lambda tx: tx.messages.take(message.id, "task_1", now=later(seconds=1)))
    again = store.write_now(lambda tx: tx.messages.take(message.id, "task_2", now=later(seconds=2)))

    assert taken is not None
    assert (taken.status, taken.task_id) == (MessageStatus.TAKEN, "task_1")
    assert taken.updated_at == later(seconds=1)
    assert again is None
    assert store.read_now(lambda tx: tx.messages.taken_by("task_1")) == taken
    assert store.read_now(lambda tx: tx.messages.taken_by("task_2")) is None


def test_what_was_answered_is_taken_by_no_worker(store: Store) -> None:
    message = a_message()

    def act(tx: Tx) -> None:
        tx.messages.create(message)
        tx.messages.take(message.id, "task_1", now=START)
        tx.messages.move(message.id, MessageStatus.ANSWERED, now=START)

    store.write_now(act)

    assert store.read_now(lambda tx: tx.messages.taken_by("task_1")) is None


def test_the_next_message_is_the_first_that_waits(store: Store) -> None:
    messages = told(store, MessageStatus.ANSWERED, MessageStatus.QUEUED, MessageStatus.QUEUED)
    store.write_now(lambda tx: tx.messages.create(a_message(session_key="agent:scholar:other", position=1)))

    assert store.read_now(lambda tx: tx.messages.next_of(KEY)) == messages[1]
    assert store.read_now(lambda tx: tx.messages.next_of("agent:scholar:none")) is None


def test_a_transcript_is_read_forwards_and_backwards(store: Store) -> None:
    messages = told(store, *[MessageStatus.NOTED] * 5)

    def read(tx: Tx) -> list[list[str]]:
        return [
            ids(tx.messages.after(KEY, limit=9)),
            ids(tx.messages.after(KEY, 2, limit=2)),
            ids(tx.messages.before(KEY, limit=2)),
            ids(tx.messages.before(KEY, 3, limit=9)),
        ]

    known = ids(messages)
    assert store.read_now(read) == [known, known[2:4], known[3:], known[:2]]


def test_what_an_agent_has_heard_leaves_out_what_waits(store: Store) -> None:
    messages = told(
        store,
        MessageStatus.ANSWERED,
        MessageStatus.TAKEN,
        MessageStatus.QUEUED,
        MessageStatus.NOTED,
        MessageStatus.FAILED,
        MessageStatus.NOTED,
    )
    known = ids(messages)

    heard = store.read_now(lambda tx: tx.messages.heard(KEY, until=5, limit=9))
    newest = store.read_now(lambda tx: tx.messages.heard(KEY, until=5, limit=2))

    assert ids(heard) == [known[0], known[1], known[3], known[4]]
    assert ids(newest) == [known[3], known[4]]


@pytest.mark.parametrize("column", ["body", "position", "role", "created_at"])
def test_a_message_that_changed_on_disk_is_not_handed_out(
    store: Store, refusal: type[Exception], column: str
) -> None:
    message = a_message()
    store.write_now(lambda tx: tx.messages.create(message))
    try:
        flip(store, "messages", column)
    except refusal:
        pytest.skip("the database itself refuses such a value")

    with pytest.raises(RowDamaged):
        store.read_now(lambda tx: tx.messages.get(message.id))
