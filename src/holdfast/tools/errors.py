"""What the ready-made tools raise, with the hierarchy drawn here.

HoldfastError
├── NotDone
│   ├── CommandNotStarted       the command never began
│   ├── FileNotWritten          the file cannot be written
│   └── HttpNotSent             no request went out
├── Conflict
│   └── FileChanged             the file is not what was recorded; it was left as it is
├── CommandFailed               with `check`: the command's exit status was not 0
├── CommandTimedOut             with `check`: the command was stopped at its timeout (also a TimeoutError)
├── CommandCutShort             it began, and how it ended is not known (also an EOFError)
├── GitFailed                   git ended with an error
└── HttpFailed                  the request went out and no usable answer came (also a ConnectionError)

NotDone means that nothing happened, and so do the errors that a tool declares with `did_not_happen`. After
any other error the effect may have happened, and the engine settles it by its class.
"""

from __future__ import annotations

from holdfast.core.errors import Conflict, HoldfastError, NotDone
from holdfast.core.redaction import redact_text

_SHOWN_CHARS = 2000


class FileChanged(Conflict):
    """Another program changed the file; it was left as it is."""

    code = "file_changed"

    def __init__(self, path: str, expected_sha256: str | None) -> None:
        self.path = path
        self.expected_sha256 = expected_sha256
        expected = "no file there" if expected_sha256 is None else f"the checksum {expected_sha256}"
        # Do not name the present checksum: a caller could use it to replace content that it never read.
        super().__init__(
            f"{path} is not as expected ({expected}): another program wrote it; to replace it, read it and "
            "write again with expected_sha256, the SHA-256 of what you read"
        )


class FileNotWritten(NotDone):
    """A file could not be written; readers see what was there before."""

    code = "file_not_written"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"{path} was not written: {why}")
        self.why = why


class CommandFailed(HoldfastError):
    """With `check`: the command ended with an exit status other than 0."""

    code = "command_failed"

    def __init__(self, exit_code: int, stderr: str) -> None:
        self.exit_code = exit_code
        self.stderr = stderr
        super().__init__(
            f"the command failed: {how_it_ended(exit_code)}; its stderr: {shown(stderr) or 'nothing'}"
        )


class CommandTimedOut(HoldfastError, TimeoutError):
    """With `check`: the command was stopped at its timeout; it may have done a part of its work."""

    code = "command_timed_out"

    def __init__(self, stderr: str) -> None:
        self.stderr = stderr
        super().__init__(f"the command was stopped at its timeout; its stderr: {shown(stderr) or 'nothing'}")


class CommandNotStarted(NotDone):
    """The command never began; nothing happened."""

    code = "command_not_started"

    def __init__(self, why: str) -> None:
        super().__init__(f"the command did not start: {why}")
        self.why = why


class CommandCutShort(HoldfastError, EOFError):
    """The command began, and how it ended is not known: it may have done its work, or a part of it."""

    code = "command_cut_short"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the outcome of the command is not known: {why}")


class GitFailed(HoldfastError):
    """A git command ended with an error; `stderr` has git's message."""

    code = "git_failed"

    def __init__(self, command: str, exit_code: int, stderr: str) -> None:
        self.command = command
        self.exit_code = exit_code
        self.stderr = shown(stderr)
        super().__init__(
            f"git {command} failed ({how_it_ended(exit_code)}): {self.stderr or 'it printed nothing'}"
        )


class HttpNotSent(NotDone):
    """No request went out: no such host, connection refused, or an untrusted certificate."""

    code = "http_not_sent"

    def __init__(self, url: str, why: str) -> None:
        self.url = shown(url)
        super().__init__(f"nothing was sent to {self.url}: {why}")
        self.why = why


class HttpFailed(HoldfastError, ConnectionError):
    """The request went out, and the server failed or went away; it may have done what was asked."""

    code = "http_failed"

    def __init__(self, url: str, why: str, *, status: int | None = None, body: str = "") -> None:
        self.url = shown(url)
        self.why = why
        self.status = status
        self.body = body
        said = f"; its answer: {shown(body)}" if body else ""
        super().__init__(f"{self.url} gave no usable answer: {why}{said}")


def how_it_ended(exit_code: int) -> str:
    """An exit code in words; as in Python, a negative one is the signal that ended the command."""
    return f"exit status {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"


def shown(text: str) -> str:
    """The end of a program's output, without secrets, short enough for a message."""
    text = redact_text(text).strip()
    return text if len(text) <= _SHOWN_CHARS else f"… {text[-_SHOWN_CHARS:]}"
