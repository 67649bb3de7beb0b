"""Notices through apprise: mail, chats, phones and a hundred other services, each named by a URL."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

from holdfast.channels.contract import CannotTell
from holdfast.channels.threads import ChannelThreads
from holdfast.channels.web_addresses import forms_of
from holdfast.core.delivery import DeliveryText
from holdfast.core.errors import SettingsError
from holdfast.core.task import Origin

log = logging.getLogger("holdfast")

# For how many keys to remember which places took the message; in memory only.
_REMEMBERED = 1000
# For all places together.
TIMEOUT_S = 25.0


class Notify:
    """Sends one message to all places. They know no idempotency keys, so a doubtful send is not repeated."""

    is_keyed = False

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        may_be_webhooks: bool = False,
    ) -> None:
        """With `may_be_webhooks`, a web address that apprise does not know is sent the message as JSON."""
        self.name = name
        self._may_be_webhooks = may_be_webhooks
        self._urls = tuple(urls)
        self._timeout_s = timeout_s
        self._threads = ChannelThreads(name)
        self._places: list[Any] | None = None
        self._done: dict[str, set[int]] = {}

    def check(self) -> None:
        """Raises SettingsError for a URL that apprise does not know."""
        self._open()

    async def send(self, to: str, text: str, *, key: str) -> str:  # noqa: ARG002 - the URLs say where
        return await self.deliver(Origin(channel=self.name), DeliveryText(text=text), key=key)

    async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:  # noqa: ARG002 - as above
        """Send once to each place. Raises ConnectionError or TimeoutError unless all of them took it.

        A place that reports a failure may have taken the message, for example if its answer came too late;
        apprise does not say. So that place is in doubt, and no place is sent the message twice.
        """
        places = self._open()
        done = self._done.setdefault(key, set())
        self._forget()
        tell = _Telling(places, letter.text, done)
        try:
            await self._threads.call(tell.perform, timeout_s=self._timeout_s, give_up=tell.give_up)
        except TimeoutError as error:
            raise TimeoutError(f"{self._so_far(done)} in {self._timeout_s:g} s") from error
        if len(done) < len(places):
            raise ConnectionError(self._so_far(done))
        return key

    async def find_sent(self, key: str) -> str | CannotTell | None:
        if len(self._done.get(key, set())) == len(self._urls):
            return key
        return CannotTell("the places of this channel do not report what reached them")

    def close(self) -> None:
        self._threads.close()

    def _so_far(self, done: set[int]) -> str:
        """Which places took it, by number, because a URL may hold a password."""
        count = len(self._urls)
        others = ", ".join(str(number + 1) for number in range(count) if number not in done)
        where = f"{len(done)} of {count} places of channel {self.name}"
        return f"{where} say that they took it, not number {others}"

    def _forget(self) -> None:
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]

    def _open(self) -> list[Any]:
        if self._places is None:
            with warnings.catch_warnings():
                # Apprise's own deprecation warnings do not concern our users.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._places = [self._place(number, url) for number, url in enumerate(self._urls, 1)]
        return self._places

    def _place(self, number: int, url: str) -> Any:
        import apprise  # heavy, and needed only to send a notice

        place = apprise.Apprise()
        if not any(place.add(form) for form in (forms_of(url) if self._may_be_webhooks else (url,))):
            # The URL itself may hold a password.
            raise SettingsError(
                f"channels.{self.name}.urls: number {number} is not a URL that apprise knows; "
                "see https://github.com/caronc/apprise/wiki"
            )
        return place


class _Telling:
    """Sends one message to the places that do not have it yet, one after the other."""

    def __init__(self, places: Sequence[Any], text: str, done: set[int]) -> None:
        self._places = places
        self._text = text
        self._done = done
        self._is_given_up = False

    def perform(self) -> None:
        for number, place in enumerate(self._places):
            if self._is_given_up:
                return
            if number not in self._done and _is_taken(place, self._text):
                self._done.add(number)

    def give_up(self) -> None:
        """Send to no further place: the delivery has been settled."""
        self._is_given_up = True


def _is_taken(place: Any, text: str) -> bool:
    try:
        return bool(place.notify(body=text))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything, also after it sent the message
        # Only the type: its message may hold the URL.
        log.warning("a place of a notice failed with %s", type(error).__name__)
        return False
