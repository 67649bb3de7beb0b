"""Notices through apprise: mail, chats, phones and a hundred other places, each named by a URL."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from holdfast.channels.contract import CannotTell
from holdfast.core.delivery import Letter
from holdfast.core.errors import SettingsError
from holdfast.core.task import Origin

# Which places have had a message of which key; only the last of them, and only in this life.
_REMEMBERED = 1000


class Notify:
    """One message to all of its places. They do not know our keys: what may have gone out is not repeated."""

    is_keyed = False

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        self.name = name
        self._urls = tuple(urls)
        self._places: list[Any] | None = None
        self._done: dict[str, set[int]] = {}

    def check(self) -> None:
        """Raises SettingsError for a URL that apprise does not know."""
        self._open()

    async def send(self, to: str, text: str, *, key: str) -> str:  # noqa: ARG002 - the URLs say where
        return await self.deliver(Origin(channel=self.name), Letter(text=text), key=key)

    async def deliver(self, origin: Origin, letter: Letter, *, key: str) -> str:  # noqa: ARG002 - as above
        done = self._done.setdefault(key, set())
        places = self._open()
        failed = 0
        for number, place in enumerate(places):
            if number in done:
                continue
            if await place.async_notify(body=letter.text):
                done.add(number)
            else:
                failed += 1
        if failed:
            raise RuntimeError(f"{failed} of {len(places)} places of channel {self.name} took no notice")
        self._forget()
        return key

    async def find_sent(self, key: str) -> str | CannotTell | None:
        done = self._done.get(key, set())
        if self._places is not None and len(done) == len(self._places):
            return key
        return CannotTell("the places of this channel do not tell what reached them")

    def _forget(self) -> None:
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]

    def _open(self) -> list[Any]:
        if self._places is None:
            with warnings.catch_warnings():
                # What apprise itself uses of Python is no concern of ours.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._places = [self._place(number, url) for number, url in enumerate(self._urls, 1)]
        return self._places

    def _place(self, number: int, url: str) -> Any:
        import apprise  # heavy, and needed only where somebody is notified

        place = apprise.Apprise()
        if not place.add(url):
            # The URL itself may hold a password.
            raise SettingsError(
                f"channels.{self.name}.urls: number {number} is not a URL that apprise knows; "
                "see https://github.com/caronc/apprise/wiki"
            )
        return place
