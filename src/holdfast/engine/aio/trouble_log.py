"""Logs what goes wrong in background work: once, then less and less often, and once when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from holdfast.core.errors import CannotSeal, HoldfastError, LedgerReplaced, StoreUnavailable
from holdfast.core.spacing import Spacing, in_words

log = logging.getLogger("holdfast")

# One trouble for all services that cannot reach the ledger.
AWAY = "the ledger is away"
# A failure that is older says nothing about the present.
RECENT_S = 5.0
# How long the trouble of a service counts if that service does not try again.
_SHORTEST_S = 30.0
_LONGEST_S = 60.0


class _Trouble:
    """One thing that goes wrong, and in which services."""

    def __init__(self, now: float) -> None:
        self.spacing = Spacing(now)
        self.failed_at = now
        self.why = ""
        # For each service: until when its trouble counts, unless it tries again before that.
        self.whose: dict[str, float] = {}


class TroubleLog:
    """One for a process, so that "the ledger is away" is logged once for all its services.

    A ledger that is away is one trouble, whichever service notices it. Any other error is a trouble of its
    own service. A trouble is over when every service that had it has worked again: a service that never had
    it may work without the ledger.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._present: dict[str, _Trouble] = {}

    def met(
        self, service: str, error: Exception, *, again_in_s: float = 1.0, words: str | None = None
    ) -> None:
        """Something went wrong in a service. Logged, unless the same was logged a short while ago."""
        now, kind = self._monotonic(), _kind_of(service, error)
        trouble = self._present.setdefault(kind, _Trouble(now))
        trouble.whose[service] = now + min(max(_SHORTEST_S, 3 * again_in_s), _LONGEST_S)
        trouble.failed_at, trouble.why = now, str(error)
        if not trouble.spacing.is_due(now):
            return
        lasted_s = trouble.spacing.lasted_s(now)
        since = f"still so after {in_words(lasted_s)}: " if lasted_s > 0 else ""
        # An error without a code is unexpected: log its traceback, once.
        is_unforeseen = not isinstance(error, HoldfastError) and lasted_s == 0
        level = logging.WARNING if isinstance(error, HoldfastError) else logging.ERROR
        said = f"{since}{words or _words(service, error)}"
        log.log(level, "%s", said, exc_info=error if is_unforeseen else None)

    def worked(self, service: str) -> None:
        """A service has worked. Logs the end of a trouble that no service has any more."""
        if self._present:
            self._worked(service, self._monotonic())

    @property
    def why_away(self) -> str | None:
        """Why the ledger could not be used, if that was so just now."""
        trouble = self._present.get(AWAY)
        if trouble is None or self._monotonic() - trouble.failed_at > RECENT_S:
            return None
        return trouble.why

    def _worked(self, service: str, now: float) -> None:
        for kind, trouble in list(self._present.items()):
            if service not in trouble.whose:
                continue
            trouble.whose[service] = now
            if any(until > now for until in trouble.whose.values()):
                continue
            del self._present[kind]
            after = in_words(trouble.spacing.lasted_s(trouble.failed_at))
            if kind == AWAY:
                log.warning("the ledger can be used again, after %s", after)
            else:
                log.warning("%s: over, after %s", kind, after)


def _kind_of(service: str, error: Exception) -> str:
    if isinstance(error, StoreUnavailable) and not isinstance(error, (CannotSeal, LedgerReplaced)):
        return AWAY
    return f"{service} ({error.code if isinstance(error, HoldfastError) else type(error).__name__})"


def _words(service: str, error: Exception) -> str:
    if isinstance(error, HoldfastError):
        return f"{service}: {error} ({error.code})"
    return f"{service} failed; it goes on"
