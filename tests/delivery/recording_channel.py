"""What the tests of the outbox share: a world outside, what is owed to it, and an outbox that sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.channels.contract import CannotTell
from holdfast.core.delivery import Delivery, DeliveryText
from holdfast.core.task import Origin
from holdfast.core.transitions import DeliveryStatus
from holdfast.delivery.outbox import Outbox
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.builders import BOOT, a_boot, a_delivery, later, unique

ADA, BEN = Origin(channel="post", peer="ada"), Origin(channel="post", peer="group 7", thread="2")
S = DeliveryStatus


class RecordingChannel:
    """The world outside: what reached it, once for each key if it heeds them."""

    def __init__(self, *, is_keyed: bool = True, remembers: bool = False) -> None:
        self.is_keyed = is_keyed
        self.remembers = remembers
        self.sent: list[tuple[str, str]] = []
        self.keys: list[str] = []
        self.before: Callable[[str], object] = lambda _text: None
        self.after: Callable[[str], object] = lambda _text: None

    async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
        self.before(letter.text)
        if not (self.is_keyed and key in self.keys):
            self.sent.append((origin.peer or "", letter.text))
        self.keys.append(key)
        self.after(letter.text)
        return f"id of {key}"

    async def find_sent(self, key: str) -> str | CannotTell | None:
        if not self.remembers:
            return CannotTell()
        return f"id of {key}" if key in self.keys else None


def raising(error: BaseException, times: int = 1) -> Callable[[str], object]:
    left = [error] * times

    def act(_text: str) -> None:
        if left:
            raise left.pop()

    return act


def owed(store: Store, text: str, origin: Origin | None = ADA, **changes: Any) -> Delivery:
    number = int(unique())
    delivery = a_delivery(
        origin=origin,
        message=msgspec.json.encode(DeliveryText(text=text)),
        created_at=later(microseconds=number),
        **changes,
    )
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return delivery


def seen(store: Store, delivery: Delivery) -> Delivery:
    return store.read_now(lambda tx: tx.deliveries.get(delivery.id))


def outbox(store: Store, clock: FakeClock, post: Any, boot_id: str = BOOT, **options: Any) -> Outbox:
    inner: Store = getattr(store, "inner", store)
    inner.write_now(lambda tx: tx.boots.begin(a_boot(id=boot_id)))
    return Outbox(store, clock, {"post": post}, boot_id=boot_id, **options)
