"""The outbox among slow, rude and foreign channels: none of them ends it, starves it or is sent to twice."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from holdfast.channels.console import Console
from holdfast.channels.contract import CannotTell
from holdfast.channels.notify import Notify
from holdfast.channels.webhook import Webhook
from holdfast.core.delivery import DeliveryText
from holdfast.core.errors import RetryAfter, StoreUnavailable
from holdfast.core.task import Origin
from holdfast.delivery.outbox import CONCURRENCY
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.builders import BOOT, OTHER_BOOT, START, later
from tests.channels.receiver import Receiver, json_places
from tests.delivery.recording_channel import ADA, BEN, RecordingChannel, S, outbox, owed, raising, seen
from tests.engine.tables import execute, literal
from tests.engine.workers import soon, until

SECRET = b"a secret of the sea"


@pytest.fixture
def post() -> RecordingChannel:
    return RecordingChannel()


# --- patience that others ask for


@pytest.mark.parametrize("attempts", [0, 5, 1100])
async def test_patience_of_no_seconds_is_no_hot_loop(
    store: Store, clock: FakeClock, post: RecordingChannel, attempts: int
) -> None:
    first = owed(store, "first", attempts=attempts)
    post.before = raising(RetryAfter(0), 99)
    service = outbox(store, clock, post)

    assert (await service.run_once()).begun == 1

    waiting = seen(store, first)
    pause_s = min(2.0 ** min(attempts, 30), 300) * 0.8
    assert (waiting.status, waiting.attempts) == (S.PENDING, attempts + 1)
    assert waiting.due_at >= later(seconds=pause_s)


async def test_patience_is_bounded_at_a_time(store: Store, clock: FakeClock, post: RecordingChannel) -> None:
    first = owed(store, "first")
    post.before = raising(RetryAfter(300 * 86_400))

    await outbox(store, clock, post).run_once()

    assert seen(store, first).due_at == later(hours=1)


async def test_patience_ends_when_a_delivery_is_old(
    store: Store, clock: FakeClock, post: RecordingChannel
) -> None:
    first = owed(store, "first", attempts=30)
    post.before = raising(RetryAfter(60), 99)
    service = outbox(store, clock, post)
    clock.advance(hours=23)
    await service.run_once()
    assert seen(store, first).status is S.PENDING, "it is asked for patience, and has some"

    clock.advance(hours=2)
    await service.run_once()

    failed = seen(store, first)
    assert (failed.status, failed.failure and failed.failure.kind) == (S.FAILED, "gave_up")


async def test_what_was_not_foreseen_ends_one_attempt_and_not_the_service(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(RecordingChannel):
        @property
        def is_keyed(self) -> bool:
            raise ArithmeticError("odd")

        @is_keyed.setter
        def is_keyed(self, _value: bool) -> None: ...

        async def deliver(self, *_given: object, **_key: object) -> str:
            raise TimeoutError

    good = RecordingChannel()
    service = outbox(store, clock, good, every_s=0.05)
    service.channels = {"odd": Odd(), "post": good}
    odd = owed(store, "x", Origin(channel="odd", peer="ada"))
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await until(lambda: "left for later" in caplog.text)
        owed(store, "hello")
        await until(lambda: len(good.sent) == 1)
        service.stop()

    assert seen(store, odd).status is S.ATTEMPTING, "its claim lapses"


async def test_what_was_taken_beside_a_write_that_failed_is_sent(
    store: Store, clock: FakeClock, post: RecordingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = owed(store, "first"), owed(store, "second", BEN)
    service = outbox(store, clock, post, every_s=0.05)
    take, left = service._take, [first.id]

    async def fail_once(delivery: Any, was_attempted: bool) -> Any:
        if delivery.id in left:
            left.remove(delivery.id)
            raise StoreUnavailable("away")
        return await take(delivery, was_attempted)

    monkeypatch.setattr(service, "_take", fail_once)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await until(lambda: len(post.sent) == 2)
        service.stop()

    assert (seen(store, first).attempts, seen(store, second).attempts) == (1, 1)


# --- channels of others


async def test_what_goes_through_a_channel_of_another_gateway_waits_for_it(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    lost = owed(store, "x", Origin(channel="gone", peer="ada"))
    here = outbox(store, clock, RecordingChannel())
    with caplog.at_level(logging.WARNING):
        await here.run_once()
        await here.run_once()

    waiting = seen(store, lost)
    assert (waiting.status, waiting.attempts) == (S.PENDING, 0)
    said = [record.getMessage() for record in caplog.records]
    assert [words for words in said if "wait for gone" in words] == said, "and nothing else"
    assert len(said) == 1
    there = outbox(store, clock, RecordingChannel(), OTHER_BOOT)
    there.channels = {"gone": RecordingChannel()}
    await there.run_once()
    assert seen(store, lost).status is S.DELIVERED


async def test_a_doubt_about_a_channel_of_another_gateway_is_left_to_it(
    store: Store, clock: FakeClock
) -> None:
    lost = owed(store, "x", Origin(channel="gone", peer="ada"))
    store.write_now(
        lambda tx: tx.deliveries.attempt(lost.id, boot_id="boot_dead", lease_until=START, now=START)
    )

    await outbox(store, clock, RecordingChannel()).run_once()
    assert seen(store, lost).attempts == 1
    there = outbox(store, clock, RecordingChannel(), OTHER_BOOT)
    there.channels = {"gone": RecordingChannel(remembers=True)}
    await there.run_once()

    assert seen(store, lost).status is S.DELIVERED


async def test_a_channel_that_is_removed_after_the_claim_gives_it_back(
    store: Store, clock: FakeClock, post: RecordingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = owed(store, "first")
    service = outbox(store, clock, post)
    take = service._take

    async def take_and_lose(delivery: Any, was_attempted: bool) -> Any:
        service.channels = {}
        return await take(delivery, was_attempted)

    monkeypatch.setattr(service, "_take", take_and_lose)
    await service.run_once()

    assert (seen(store, first).status, post.sent) == (S.PENDING, [])


# --- slow channels


async def test_a_slow_channel_has_no_more_than_its_share(store: Store, clock: FakeClock) -> None:
    gate = asyncio.Event()
    begun: list[str] = []

    class Slow(RecordingChannel):
        async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
            begun.append(key)
            await gate.wait()
            return await super().deliver(origin, letter, key=key)

    slow, quick = Slow(), RecordingChannel()
    service = outbox(store, clock, quick, every_s=0.05)
    service.channels = {"slow": slow, "post": quick}
    for number in range(40):
        owed(store, str(number), Origin(channel="slow", peer=f"peer {number}"))
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await until(lambda: len(begun) == CONCURRENCY)
        owed(store, "quick")
        await until(lambda: len(quick.sent) == 1)
        assert len(begun) == CONCURRENCY
        gate.set()
        await until(lambda: len(slow.sent) == 40)
        service.stop()


async def test_receivers_that_never_answer_keep_no_thread_from_other_receivers(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    answers = threading.Event()

    def late(_request: object) -> tuple[int, dict[str, str], bytes]:
        answers.wait(60)
        return (200, {}, b"")

    receiver.answer = late
    hook = Webhook("hook", receiver.url, SECRET, clock, timeout_s=60)
    service = outbox(store, clock, Console(), every_s=0.05)
    service.channels = {"hook": hook, "post": Console()}
    for number in range(40):
        owed(store, str(number), Origin(channel="hook", peer=f"peer {number}"))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run())
            await until(lambda: len(receiver.requests) == CONCURRENCY)
            assert await soon(asyncio.to_thread(lambda: "quick")) == "quick"
            beside = owed(store, "beside")
            await until(lambda: seen(store, beside).status is S.DELIVERED)
            answers.set()
            service.stop()
    finally:
        answers.set()

    with pytest.raises(RuntimeError, match="shutdown"):
        await hook.send("ada", "too late", key="k")


# --- notices


async def test_a_notice_whose_answer_comes_too_late_is_in_doubt_and_not_repeated(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    answers = threading.Event()

    def late(_request: object) -> tuple[int, dict[str, str], bytes]:
        answers.wait(60)
        return (204, {}, b"")

    receiver.answer = late
    first = owed(store, "first", Origin(channel="alarm"))
    urls = [f"{url}?rto=0.2" for url in json_places(receiver, "one")]
    service = outbox(store, clock, RecordingChannel())
    try:
        for _ in range(3):
            service.channels = {"alarm": Notify("alarm", urls)}
            await service.run_once()
            clock.advance(hours=1)
    finally:
        answers.set()

    failed = seen(store, first)
    assert len(receiver.requests) == 1
    assert (failed.status, failed.failure and failed.failure.kind) == (S.FAILED, "in_doubt")


async def test_a_place_that_took_a_notice_does_not_get_it_again_after_another_failed(
    store: Store, clock: FakeClock, receiver: Receiver
) -> None:
    receiver.answer = lambda request: (500 if "two" in request.path else 204, {}, b"")
    first = owed(store, "first", Origin(channel="alarm"))
    for number in range(3):
        service = outbox(store, clock, RecordingChannel(), f"boot_{number}")
        service.channels = {"alarm": Notify("alarm", json_places(receiver, "one", "two", "three"))}
        await service.run_once()
        clock.advance(hours=1)

    failed = seen(store, first)
    assert [request.path.strip("/") for request in receiver.requests] == ["one", "two", "three"]
    assert failed.failure is not None
    assert failed.failure.kind == "in_doubt"
    assert "2 of 3 places" in failed.failure.message
    assert "not number 2" in failed.failure.message


# --- a sender that stood still


class Remembering:
    """It remembers what went out; two senders share its memory."""

    is_keyed = False

    def __init__(self, name: str, sent: list[str]) -> None:
        self.name = name
        self.sent = sent

    async def deliver(self, *_given: object, **_key: object) -> str:
        self.sent.append(self.name)
        return "id"

    async def find_sent(self, _key: str) -> str | CannotTell | None:
        return "id" if self.sent else None


@pytest.mark.parametrize("stood_still", ["monotonic", "wall", "both"])
async def test_a_sender_that_stood_still_past_its_lease_does_not_send(
    store: Store, clock: FakeClock, stood_still: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    first = owed(store, "first")
    now_s = 1000.0
    frozen = outbox(store, clock, Remembering("frozen", sent), monotonic=lambda: now_s)
    other = outbox(store, clock, Remembering("other", sent), OTHER_BOOT)
    take = frozen._take

    async def take_and_freeze(delivery: Any, was_attempted: bool) -> Any:
        nonlocal now_s
        taken = await take(delivery, was_attempted)
        if taken is None:
            return None
        now_s += 300 if stood_still != "wall" else 0
        clock.advance(minutes=5 if stood_still != "monotonic" else 0)
        if stood_still == "both":
            await other.run_once()
        return taken

    monkeypatch.setattr(frozen, "_take", take_and_freeze)
    async with asyncio.TaskGroup() as group:
        await frozen._begin(group)

    assert sent == (["other"] if stood_still == "both" else [])
    assert seen(store, first).status is (S.DELIVERED if stood_still == "both" else S.PENDING)
    monkeypatch.undo()
    await frozen.run_once()
    assert len(sent) == 1
    assert seen(store, first).status is S.DELIVERED


# --- damage


async def test_a_damaged_delivery_is_told_of_once_and_keeps_no_other_waiting(
    store: Store, clock: FakeClock, post: RecordingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = owed(store, "x", Origin(channel="post", peer="cai"))
    attempted = owed(store, "x", Origin(channel="post", peer="dan"))
    store.write_now(
        lambda tx: tx.deliveries.attempt(attempted.id, boot_id=BOOT, lease_until=START, now=START)
    )
    for one in (damaged, attempted):
        execute(store, f"UPDATE deliveries SET message = {literal(store, b'1')} WHERE id = '{one.id}'")
    owed(store, "first", ADA)
    owed(store, "second", BEN)
    service = outbox(store, clock, post)

    with caplog.at_level(logging.ERROR):
        await service.run_once()
        await service.run_once()

    assert sorted(text for _, text in post.sent) == ["first", "second"]
    for one in (damaged, attempted):
        told = [record for record in caplog.records if one.id in record.getMessage()]
        assert len(told) == 1
