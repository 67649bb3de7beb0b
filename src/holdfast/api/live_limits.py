"""Limits the open pages of the dashboard that are told of changes: in all, and for each token."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from holdfast.api.rpc import RATE_LIMITED, UNAVAILABLE, RpcError

# Each stream reads the ledger once a second and keeps a connection. One token gets a quarter of them, so that
# a forgotten wall of pages leaves room for the operator.
MAX_STREAMS = 200
MAX_STREAMS_OF_TOKEN = MAX_STREAMS // 4
# A page that was refused asks again after this long; until then it reads itself now and then.
RETRY_AFTER_MS = 15_000


class LiveLimits:
    """The streams that are open now, by the name of their token."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def one_of(self, token: str) -> Iterator[None]:
        """Hold one stream until the block ends. Raises RpcError if there is no room."""
        self.check_room(token)
        self._open[token] += 1
        try:
            yield
        finally:
            self._open[token] -= 1
            if not self._open[token]:
                del self._open[token]

    def check_room(self, token: str) -> None:
        """Raises RpcError if the token, or all together, have as many streams as they may have."""
        if self._open.total() >= MAX_STREAMS:
            raise _refusal(UNAVAILABLE, f"{MAX_STREAMS} pages of the dashboard are live already, the limit")
        if self._open[token] >= MAX_STREAMS_OF_TOKEN:
            what = f"{MAX_STREAMS_OF_TOKEN} pages that signed in with the token {token} are live already"
            raise _refusal(RATE_LIMITED, f"{what}, the limit")


def _refusal(code: str, what: str) -> RpcError:
    return RpcError(
        code,
        f"{what}: close some of them",
        details={"code": "too_many_live_pages"},
        retryable=True,
        retry_after_ms=RETRY_AFTER_MS,
    )
