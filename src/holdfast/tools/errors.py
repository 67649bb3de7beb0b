"""What the ready-made tools raise, with the hierarchy drawn here.

HoldfastError
├── NotDone
│   ├── CommandNotStarted       the command never began
│   ├── FileNotWritten          it cannot be written there
│   └── HttpNotSent             no request went out
├── Conflict
│   └── FileChanged             the file is not what was recorded; it was left as it is
├── CommandFailed               asked to check, and the command's exit status was not 0
├── CommandTimedOut             asked to check, and its time was up (also a TimeoutError)
├── CommandCutShort             begun, and its end was not seen (also an EOFError)
├── GitFailed                   git said no
└── HttpFailed                  the request went out and no usable answer came (also a ConnectionError)

A NotDone says that nothing happened, and so do those that a tool declares with `did_not_happen`. All others
leave it open: the engine then settles the effect by its class.
"""

from __future__ import annotations

from holdfast.core.errors import Conflict, HoldfastError, NotDone
from holdfast.core.redaction import redact_text

_SHOWN_CHARS = 2000


class FileChanged(Conflict):
    """A file that somebody else changed; it was left as it is."""

    code = "file_changed"

    def __init__(self, path: str, expected_sha256: str | None) -> None:
        self.path = path
        self.expected_sha256 = expected_sha256
        expected = "no file there" if expected_sha256 is None else f"the checksum {expected_sha256}"
        # Without the checksum that it has: a caller that took it from here would replace what it never read.
        super().__init__(
            f"{path} is another file than expected ({expected}): another program wrote it; read it, and "
            "write again with expected_sha256, the SHA-256 of what you read, to replace it"
        )


class FileNotWritten(NotDone):
    """A file could not be written; readers see what was there before."""

    code = "file_not_written"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"{path} was not written: {why}")
        self.why = why


class CommandFailed(HoldfastError):
    """The command ended with another exit status than 0, and `check` was asked for."""

    code = "command_failed"

    def __init__(self, exit_code: int, stderr: str) -> None:
        self.exit_code = exit_code
        self.stderr = stderr
        super().__init__(
            f"the command failed: {how_it_ended(exit_code)}; it said: {shown(stderr) or 'nothing'}"
        )


class CommandTimedOut(HoldfastError, TimeoutError):
    """The command was stopped when its time was up, and `check` was asked for: it may have done a part."""

    code = "command_timed_out"

    def __init__(self, stderr: str) -> None:
        self.stderr = stderr
        super().__init__(f"the command was stopped, its time was up; it said: {shown(stderr) or 'nothing'}")


class CommandNotStarted(NotDone):
    """The command never began; nothing happened."""

    code = "command_not_started"

    def __init__(self, why: str) -> None:
        super().__init__(f"the command did not start: {why}")
        self.why = why


class CommandCutShort(HoldfastError, EOFError):
    """The command began and its end was not seen: what it did by then is not known."""

    code = "command_cut_short"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the outcome of the command is not known: {why}")


class GitFailed(HoldfastError):
    """A git command ended with an error; `stderr` has its own words."""

    code = "git_failed"

    def __init__(self, command: str, exit_code: int, stderr: str) -> None:
        self.command = command
        self.exit_code = exit_code
        self.stderr = shown(stderr)
        super().__init__(
            f"git {command} failed ({how_it_ended(exit_code)}): {self.stderr or 'it said nothing'}"
        )


class HttpNotSent(NotDone):
    """No request went out: no such host, nobody listens there, no trust in its certificate."""

    code = "http_not_sent"

    def __init__(self, url: str, why: str) -> None:
        self.url = shown(url)
        super().__init__(f"nothing was sent to {self.url}: {why}")
        self.why = why


class HttpFailed(HoldfastError, ConnectionError):
    """The request went out, and the server failed or went away: it may have done what was asked."""

    code = "http_failed"

    def __init__(self, url: str, why: str, *, status: int | None = None, body: str = "") -> None:
        self.url = shown(url)
        self.why = why
        self.status = status
        self.body = body
        said = f"; it said: {shown(body)}" if body else ""
        super().__init__(f"{self.url} gave no usable answer: {why}{said}")


def how_it_ended(exit_code: int) -> str:
    """Python's way to write it: a negative number is the signal that ended it."""
    return f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"


def shown(text: str) -> str:
    """The end of what a program said, without secrets, fit for one message."""
    text = redact_text(text).strip()
    return text if len(text) <= _SHOWN_CHARS else f"… {text[-_SHOWN_CHARS:]}"
