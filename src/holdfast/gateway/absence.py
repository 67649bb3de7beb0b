"""Says once that the gateway is not back in time, and once that it is back.

Whoever is to hear it is told by a process of its own (`python -m holdfast.gateway.absence`), so that what
sends stays out of the supervisor: it is large, it speaks to strangers, and it may hang.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import msgspec

log = logging.getLogger("holdfast")

# A plain web address is a webhook: it gets the words as JSON.
_WEBHOOKS = {"https://": "jsons://", "http://": "json://"}


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What to say, and to whom. The URLs may hold secrets: they travel by file, never as arguments."""

    urls: list[str]
    title: str
    body: str
    is_bad: bool


class Absence:
    """Since when nobody has served, and whether somebody was told so."""

    def __init__(self, since: float) -> None:
        self.since: float | None = since
        self.was_told = False

    def begin(self, at: float) -> None:
        """From the first trouble on: what fails while the gateway is away belongs to the same absence."""
        if self.since is None:
            self.since = at

    def end(self) -> bool:
        """The gateway serves. True when somebody was told that it did not."""
        was_told, self.since, self.was_told = self.was_told, None, False
        return was_told

    def due_at(self, after_s: float) -> float | None:
        """When to say so; None when there is nothing to say, or it was said."""
        return None if self.since is None or self.was_told else self.since + after_s


def send(notice: Notice) -> subprocess.Popen[bytes]:
    """Start the process that tells it; it reads the notice from a file that nobody else can open."""
    with tempfile.TemporaryFile() as page:
        page.write(msgspec.json.encode(notice))
        page.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast.gateway.absence"],
            stdin=page,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )


def main() -> int:
    """Tell everybody; 1 when somebody could not be told."""
    logging.basicConfig(level=logging.WARNING, format="holdfast: %(message)s")
    notice = msgspec.json.decode(sys.stdin.buffer.read(), type=Notice)
    # Everybody, also after somebody who could not be told.
    told = [_tell(url, notice, place) for place, url in enumerate(notice.urls)]
    return 0 if all(told) else 1


def _tell(url: str, notice: Notice, place: int) -> bool:
    import apprise

    # Apprise's own words would hold the URL.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    to = apprise.Apprise()
    if not any(to.add(form) for form in _forms(url)):
        log.error("alert_urls[%d] names no service that is known; see `holdfast config check`", place)
        return False
    kind = apprise.NotifyType.FAILURE if notice.is_bad else apprise.NotifyType.SUCCESS
    if not to.notify(title=notice.title, body=notice.body, notify_type=kind):
        log.error("alert_urls[%d] did not take the alert", place)
        return False
    return True


def _forms(url: str) -> Sequence[str]:
    """Apprise knows some web addresses itself; every other one is a webhook."""
    plain = next((form for form in _WEBHOOKS if url.lower().startswith(form)), None)
    return [url] if plain is None else [url, _WEBHOOKS[plain] + url[len(plain) :]]


if __name__ == "__main__":
    sys.exit(main())
