"""What goes wrong in background work, said once, then less and less often, and once more when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from holdfast.core.errors import CannotSeal, HoldfastError, LedgerReplaced, StoreUnavailable
from holdfast.core.spacing import Spacing, in_words

log = logging.getLogger("holdfast")

# Everybody who cannot reach the ledger has the same trouble.
AWAY = "the ledger is away"
# A failure says so much about the present.
RECENT_S = 5.0
# A service that has not tried again for so long no longer says that the trouble goes on.
_SHORTEST_S = 30.0
_LONGEST_S = 60.0


class _Trouble:
    """One thing that goes wrong, and in whose work."""

    def __init__(self, now: float) -> None:
        self.spacing = Spacing(now)
        self.failed_at = now
        self.why = ""
        # Until when the trouble of each counts, unless it tries again before; it has none when it has worked.
        self.whose: dict[str, float] = {}


class TroubleLog:
    """One for a process, so that all its services together say once that the ledger is away.

    A ledger that is away is one trouble, whichever service finds it so. Any other error is a trouble of the
    service that has it. A trouble is over when every service that had it has worked since: others may do so
    without the ledger.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._present: dict[str, _Trouble] = {}

    def met(self, who: str, error: Exception, *, again_in_s: float = 1.0, words: str | None = None) -> None:
        """Something went wrong. It is logged, unless the same was a short while ago; `who` tries again."""
        now, kind = self._monotonic(), _kind_of(who, error)
        trouble = self._present.setdefault(kind, _Trouble(now))
        trouble.whose[who] = now + min(max(_SHORTEST_S, 3 * again_in_s), _LONGEST_S)
        trouble.failed_at, trouble.why = now, str(error)
        if not trouble.spacing.is_due(now):
            return
        lasted_s = trouble.spacing.lasted_s(now)
        since = f"still so after {in_words(lasted_s)}: " if lasted_s > 0 else ""
        # A failure that has no code was not foreseen, and its places are needed once.
        is_unforeseen = not isinstance(error, HoldfastError) and lasted_s == 0
        level = logging.WARNING if isinstance(error, HoldfastError) else logging.ERROR
        said = f"{since}{words or _words(who, error)}"
        log.log(level, "%s", said, exc_info=error if is_unforeseen else None)

    def worked(self, who: str) -> None:
        """It has done its work; a trouble that no service has any more is over, and that is logged."""
        if self._present:
            self._worked(who, self._monotonic())

    @property
    def why_away(self) -> str | None:
        """Why the ledger could not be used, if that was so just now."""
        trouble = self._present.get(AWAY)
        if trouble is None or self._monotonic() - trouble.failed_at > RECENT_S:
            return None
        return trouble.why

    def _worked(self, who: str, now: float) -> None:
        for kind, trouble in list(self._present.items()):
            if who not in trouble.whose:
                continue
            trouble.whose[who] = now
            if any(until > now for until in trouble.whose.values()):
                continue
            del self._present[kind]
            after = in_words(trouble.spacing.lasted_s(trouble.failed_at))
            if kind == AWAY:
                log.warning("the ledger can be used again, after %s", after)
            else:
                log.warning("%s: over, after %s", kind, after)


def _kind_of(who: str, error: Exception) -> str:
    if isinstance(error, StoreUnavailable) and not isinstance(error, (CannotSeal, LedgerReplaced)):
        return AWAY
    return f"{who} ({error.code if isinstance(error, HoldfastError) else type(error).__name__})"


def _words(who: str, error: Exception) -> str:
    if isinstance(error, HoldfastError):
        return f"{who}: {error} ({error.code})"
    return f"{who} failed; it goes on"
