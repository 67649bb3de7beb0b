"""The outbox: in order for each target, once for each key, and a doubt is settled or shown."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from holdfast.channels.console import Console
from holdfast.channels.contract import CannotTell, Undeliverable
from holdfast.channels.webhook import Webhook
from holdfast.core.delivery import DeliveryText
from holdfast.core.errors import NotDone, RetryAfter
from holdfast.core.events import EventKind
from holdfast.core.task import Origin
from holdfast.core.transitions import DeliveryStatus
from holdfast.delivery.outbox import Outbox
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, RepeatingStore, memory_store
from tests.builders import BOOT, OTHER_BOOT, START, a_boot, later
from tests.channels.receiver import Receiver
from tests.conftest import Ledger
from tests.delivery.recording_channel import ADA, BEN, RecordingChannel, S, outbox, owed, raising, seen
from tests.engine.workers import until


@pytest.fixture
def post() -> RecordingChannel:
    return RecordingChannel()


async def test_what_is_owed_goes_out_once(store: Store, clock: FakeClock, post: RecordingChannel) -> None:
    first = owed(store, "the tide is high")
    service = outbox(RepeatingStore(store), clock, post)

    assert (await service.run_once()).begun == 1
    assert (await service.run_once()).begun == 0

    assert post.sent == [("ada", "the tide is high")]
    assert post.keys == [first.idempotency_key]
    assert seen(store, first).status is S.DELIVERED
    (event,) = store.read_now(lambda tx: tx.events.newest(limit=1))
    assert (event.kind, event.subject_id) == (EventKind.DELIVERY_SENT, first.id)


async def test_what_is_owed_to_one_target_goes_out_in_order(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    for number in range(5):
        owed(store, f"a{number}")
        owed(store, f"b{number}", BEN)

    await outbox(store, clock, post).run_once()

    assert [text for _, text in post.sent if text[0] == "a"] == [f"a{number}" for number in range(5)]
    assert [text for _, text in post.sent if text[0] == "b"] == [f"b{number}" for number in range(5)]


async def test_what_did_not_go_out_is_tried_later_and_what_follows_waits_for_it(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    first, second = owed(store, "first"), owed(store, "second")
    post.before = raising(ValueError("the door is shut"), 2)
    service = outbox(store, clock, post)

    await service.run_once()
    waiting = seen(store, first)
    assert (waiting.status, waiting.attempts) == (S.PENDING, 1)
    assert waiting.failure is not None
    assert "the door is shut" in waiting.failure.message
    assert seen(store, second).status is S.PENDING
    clock.advance(seconds=2)
    await service.run_once()
    assert post.sent == []
    clock.advance(seconds=3)
    await service.run_once()

    assert [text for _, text in post.sent] == ["first", "second"]


async def test_who_is_asked_for_patience_waits_that_long(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    first = owed(store, "first")
    post.before = raising(RetryAfter(120))
    service = outbox(store, clock, post, max_attempts=1)

    await service.run_once()

    assert seen(store, first).due_at == later(seconds=120)
    clock.advance(seconds=120)
    await service.run_once()
    assert seen(store, first).status is S.DELIVERED


async def test_a_refusal_for_good_is_shown_and_what_follows_goes_on(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    first, second = owed(store, "first"), owed(store, "second")
    post.before = raising(Undeliverable("they moved away"))

    await outbox(store, clock, post).run_once()

    failed = seen(store, first)
    assert failed.status is S.FAILED
    assert failed.failure is not None
    assert failed.failure.message == "they moved away"
    assert seen(store, second).status is S.DELIVERED
    kinds = [event.kind for event in store.read_now(lambda tx: tx.events.newest(limit=9))]
    assert EventKind.DELIVERY_FAILED in kinds


async def test_after_many_attempts_it_is_given_up_and_shown(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    first = owed(store, "first")
    post.before = raising(ValueError("no"), 99)
    service = outbox(store, clock, post, max_attempts=3)

    for _ in range(5):
        await service.run_once()
        clock.advance(hours=1)

    failed = seen(store, first)
    assert (failed.status, failed.attempts) == (S.FAILED, 3)


async def test_what_names_no_channel_at_all_is_given_up(store: Store, clock: FakeClock) -> None:
    nowhere = owed(store, "y", None)

    await outbox(store, clock, RecordingChannel()).run_once()

    failed = seen(store, nowhere)
    assert failed.status is S.FAILED
    assert failed.failure is not None
    assert failed.failure.kind == "no_channel"


async def test_what_may_have_gone_out_is_sent_again_where_keys_are_heeded(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    first = owed(store, "first")
    post.after = raising(ConnectionError("broke"))
    service = outbox(store, clock, post)

    await service.run_once()
    clock.advance(minutes=1)
    await service.run_once()

    assert post.keys == [first.idempotency_key] * 2
    assert post.sent == [("ada", "first")]
    assert seen(store, first).status is S.DELIVERED


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionError("broke"), EOFError(), httpx.ReadError("reset"), ValueError("?")]
)
async def test_what_may_have_gone_out_is_asked_for_where_the_channel_remembers(
    store: Store, clock: FakeClock, error: Exception
) -> None:
    post = RecordingChannel(is_keyed=False, remembers=True)
    first = owed(store, "first")
    post.after = raising(error)

    await outbox(store, clock, post).run_once()

    assert post.sent == [("ada", "first")]
    assert seen(store, first).status is S.DELIVERED


async def test_what_the_channel_knows_not_to_have_gone_out_is_sent_again(
    store: Store, clock: FakeClock
) -> None:
    post = RecordingChannel(is_keyed=False, remembers=True)
    owed(store, "first")
    post.before = raising(TimeoutError())
    service = outbox(store, clock, post)

    await service.run_once()
    clock.advance(minutes=1)
    await service.run_once()

    assert post.sent == [("ada", "first")]


async def test_what_its_channel_says_was_not_sent_is_sent_again_without_a_question(
    store: Store, clock: FakeClock
) -> None:
    post = RecordingChannel(is_keyed=False)
    owed(store, "first")
    post.before = raising(NotDone("the door is shut"))
    service = outbox(store, clock, post)

    await service.run_once()
    clock.advance(minutes=1)
    await service.run_once()

    assert post.sent == [("ada", "first")]


@pytest.mark.parametrize("error", [TimeoutError(), ValueError("it answered something that is no JSON")])
async def test_a_doubt_that_cannot_be_settled_is_shown_and_not_repeated(
    store: Store, clock: FakeClock, error: Exception
) -> None:
    post = RecordingChannel(is_keyed=False)
    first = owed(store, "first")
    post.after = raising(error)
    service = outbox(store, clock, post)

    for _ in range(3):
        await service.run_once()
        clock.advance(hours=1)

    failed = seen(store, first)
    assert post.sent == [("ada", "first")]
    assert (failed.status, failed.failure and failed.failure.kind) == (S.FAILED, "in_doubt")


async def test_a_send_that_takes_too_long_is_in_doubt(store: Store, clock: FakeClock) -> None:
    class Slow(RecordingChannel):
        async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
            await asyncio.Event().wait()
            return await super().deliver(origin, letter, key=key)

    first = owed(store, "first")

    await outbox(store, clock, Slow(is_keyed=False), send_timeout_s=0.01).run_once()

    failure = seen(store, first).failure
    assert failure is not None
    assert failure.kind == "in_doubt"


# --- the sender dies


@pytest.mark.parametrize(
    ("is_keyed", "remembers", "went_out", "status", "sent"),
    [
        (True, False, True, S.DELIVERED, 1),
        (True, False, False, S.DELIVERED, 1),
        (False, True, True, S.DELIVERED, 1),
        (False, True, False, S.DELIVERED, 1),
        (False, False, True, S.FAILED, 1),
        (False, False, False, S.FAILED, 0),
    ],
)
async def test_a_send_whose_sender_died_is_found_out_about(
    store: Store,
    clock: FakeClock,
    is_keyed: bool,
    remembers: bool,
    went_out: bool,
    status: DeliveryStatus,
    sent: int,
) -> None:
    post = RecordingChannel(is_keyed=is_keyed, remembers=remembers)
    first, second = owed(store, "first"), owed(store, "second")
    store.write_now(lambda tx: tx.boots.begin(a_boot(id=OTHER_BOOT)))
    store.write_now(
        lambda tx: tx.deliveries.attempt(
            first.id, boot_id=OTHER_BOOT, lease_until=later(minutes=1), now=START
        )
    )
    if went_out:
        await post.deliver(ADA, DeliveryText(text="first"), key=first.idempotency_key)
    service = outbox(store, clock, post)
    await service.run_once()
    assert seen(store, second).status is S.PENDING, "the other is alive, as far as the ledger knows"

    store.write_now(lambda tx: tx.boots.end(OTHER_BOOT, now=START))
    await service.run_once()

    assert seen(store, first).status is status
    assert [text for _, text in post.sent].count("first") == sent
    assert [text for _, text in post.sent][-1] == "second"


async def test_a_crash_between_any_two_writes_sends_everything_once() -> None:
    async def life(store: Store, clock: FakeClock, post: RecordingChannel, boot_id: str) -> None:
        await outbox(store, clock, post, boot_id).run_once()

    def world() -> tuple[Any, FakeClock, RecordingChannel]:
        store = memory_store()
        for number in range(2):
            owed(store, f"a{number}")
            owed(store, f"b{number}", BEN)
        return store, FakeClock(START), RecordingChannel()

    async def crash_at(point: Failpoint) -> None:
        store, clock, post = world()
        with pytest.raises((Crashed, BaseExceptionGroup)):
            await life(FailingStore(store, [point]), clock, post, "boot_dead")
        store.write_now(lambda tx: tx.boots.end("boot_dead", now=START))
        await life(store, clock, post, "boot_next")

        texts = [text for _, text in post.sent]
        assert sorted(texts) == ["a0", "a1", "b0", "b1"], point
        assert texts.index("a0") < texts.index("a1"), point
        assert store.verify() == []
        store.close()

    store, clock, post = world()
    recorded = FailingStore(store)
    await life(recorded, clock, post, "boot_first")
    points = [one for one in recorded.failpoints() if one.where != "inside"]
    assert len(points) > 15
    for point in points:
        await crash_at(point)


# --- services


async def test_two_outboxes_on_one_ledger_send_everything_once(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    post = RecordingChannel(is_keyed=False)
    for number in range(40):
        owed(first, str(number), Origin(channel="post", peer=f"peer {number % 8}"))
    both = [
        outbox(first, ledger.clock, post, BOOT),
        outbox(second, ledger.clock, post, OTHER_BOOT),
    ]

    async def work(one: Outbox) -> None:
        while first.read_now(lambda tx: tx.deliveries.waiting_channels()):
            await one.run_once()

    await asyncio.gather(*map(work, both))

    assert len(post.sent) == 40
    for peer in range(8):
        texts = [int(text) for to, text in post.sent if to == f"peer {peer}"]
        assert texts == sorted(texts)


async def test_a_slow_channel_holds_up_no_other(store: Store, clock: FakeClock) -> None:
    gate = asyncio.Event()

    class Slow(RecordingChannel):
        async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
            await gate.wait()
            return await super().deliver(origin, letter, key=key)

    slow, quick = Slow(), RecordingChannel()
    service = outbox(store, clock, quick, every_s=0.05)
    service.channels = {"slow": slow, "post": quick}
    first = owed(store, "slow", Origin(channel="slow"))
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        for number in range(3):
            owed(store, str(number))
        await until(lambda: len(quick.sent) == 3)
        assert seen(store, first).status is S.ATTEMPTING
        service.stop()
        gate.set()

    assert seen(store, first).status is S.DELIVERED, "what was being sent is finished first"


async def test_the_console_is_told_by_the_transcript(store: Store, clock: FakeClock) -> None:
    first = owed(store, "hello", Origin(channel="post", peer="ada"))

    await outbox(store, clock, Console()).run_once()

    assert seen(store, first).status is S.DELIVERED


async def test_a_plain_channel_sends_to_the_peer(store: Store, clock: FakeClock) -> None:
    class Plain:
        sent: list[tuple[str, str]] = []  # noqa: RUF012 - of this test alone

        async def send(self, to: str, text: str, *, key: str) -> str:
            self.sent.append((to, text))
            return key

        async def find_sent(self, key: str) -> str | CannotTell | None:
            return None if key else CannotTell()

    owed(store, "hello", BEN)
    nobody = owed(store, "hello", Origin(channel="post"))

    await outbox(store, clock, Plain()).run_once()

    assert Plain.sent == [("group 7", "hello")]
    assert seen(store, nobody).status is S.FAILED


async def test_a_webhook_whose_receiver_comes_and_goes_gets_everything_once_and_in_order(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    answers = iter([None, (500, {}, b""), (200, {}, b""), (429, {"Retry-After": "5"}, b"")])
    receiver.answer = lambda _request: next(answers, (200, {}, b""))
    hook = Webhook("post", receiver.url, b"a secret of the sea", clock, timeout_s=5)
    for number in range(4):
        owed(store, str(number))
    service = outbox(store, clock, hook)

    for _ in range(10):
        await service.run_once()
        clock.advance(minutes=1)

    assert [request.json["text"] for request in receiver.accepted.values()] == ["0", "1", "2", "3"]
