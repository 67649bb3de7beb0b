"""Visitor and NotAnswered: what the pages of the dashboard ask of the gateway, and how it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

# The key of the visitor in the ASGI scope of a request.
VISITOR = "holdfast.visitor"


class NotAnswered(Exception):
    """The gateway refused a request of a page, or could not answer it."""

    def __init__(self, code: str, message: str, *, status: int, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        # The HTTP status of the same refusal.
        self.status = status
        # When to try again, if waiting helps.
        self.retry_after_s = retry_after_s


class ChangesView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What changed since the last look, for a page that is open."""

    # `starting`, `serving`, `draining` or `stopped`.
    status: str
    # The process that answers: another one after a restart.
    boot: str
    # The kinds of the events; empty if there were none, null if there were too many to read.
    kinds: list[str] | None = []
    # The tasks that they are about.
    tasks: list[str] = []


class Visitor(Protocol):
    """The person in front of a page. Nothing in it is the browser's own claim."""

    @property
    def is_signed_in(self) -> bool: ...

    @property
    def who(self) -> str:
        """The name of the token that the person signed in with."""
        ...

    @property
    def may_change(self) -> bool: ...

    @property
    def may_administer(self) -> bool: ...

    async def ask(self, method: str, /, **params: Any) -> Any:
        """Call a method of the gateway with the person's rights, and return its view. Raises NotAnswered."""
        ...

    def live(self) -> AbstractContextManager[None]:
        """Hold one of the limited number of live streams until the block ends. Raises NotAnswered."""
        ...

    def check_live(self) -> None:
        """Raises NotAnswered if there is no room for another live stream."""
        ...

    def changes(self) -> AsyncIterator[ChangesView | None]:
        """Changes as they happen; None every 15 s if there are none. Ends when the sign-in is over."""
        ...

    async def sign_in(self, *, code: str = "", token: str = "") -> str:
        """Exchange a single-use code or a token for the text of a cookie. Raises NotAnswered."""
        ...

    async def sign_out(self) -> str:
        """End the sign-in; returns the text of a cookie that removes the one of the browser."""
        ...
