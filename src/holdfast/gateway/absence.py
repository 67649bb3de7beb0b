"""Sends one alert when the gateway is not back in time, and one when it is back.

A separate process sends each alert (`python -m holdfast.gateway.absence`). The code that sends is large,
talks to remote services and may hang, so the supervisor does not load it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile

import msgspec

from holdfast.channels.web_addresses import forms_of

log = logging.getLogger("holdfast")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An alert and its URLs. URLs may hold secrets, so they are passed in a file and never as arguments."""

    urls: list[str]
    title: str
    body: str
    is_bad: bool


class Absence:
    """Since when no gateway has served, and whether an alert about it was sent."""

    def __init__(self, since: float) -> None:
        self.since: float | None = since
        self.was_told = False

    def begin(self, at: float) -> None:
        """Start counting. Further failures while the gateway is away belong to the same absence."""
        if self.since is None:
            self.since = at

    def end(self) -> bool:
        """The gateway serves again. True when an alert about its absence was sent."""
        was_told, self.since, self.was_told = self.was_told, None, False
        return was_told

    def due_at(self, after_s: float) -> float | None:
        """When to send the alert; None when the gateway is not away, or the alert was sent."""
        return None if self.since is None or self.was_told else self.since + after_s


def send(notice: Notice) -> subprocess.Popen[bytes]:
    """Start the process that sends the alert; it reads the notice from a file that no other user can open."""
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
    """Send the alert to every URL; 1 when one of them did not take it."""
    logging.basicConfig(level=logging.WARNING, format="holdfast: %(message)s")
    notice = msgspec.json.decode(sys.stdin.buffer.read(), type=Notice)
    # A list, not `all(...)`: a URL that fails must not keep the alert from the others.
    told = [_tell(url, notice, place) for place, url in enumerate(notice.urls)]
    return 0 if all(told) else 1


def _tell(url: str, notice: Notice, place: int) -> bool:
    import apprise

    # Apprise logs the URL, which may hold a password.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    to = apprise.Apprise()
    if not any(to.add(form) for form in forms_of(url)):
        log.error("alert_urls[%d] names no service that apprise knows; see `holdfast config check`", place)
        return False
    kind = apprise.NotifyType.FAILURE if notice.is_bad else apprise.NotifyType.SUCCESS
    if not to.notify(title=notice.title, body=notice.body, notify_type=kind):
        log.error("alert_urls[%d] did not take the alert", place)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
