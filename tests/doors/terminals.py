"""The program in a terminal of its own, or beside us with its remarks read as they come."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

from tests.doors.calls import PROGRAM, environment

PATIENCE_S = 60.0


def hear_signals() -> None:
    """As a shell starts it: the caller of the tests may ignore Ctrl-C, or the end of its terminal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _own_terminal() -> None:
    hear_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class _Heard:
    """What a process has said so far, and how much of it a test has read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read_up_to = 0
        self.text = ""

    def read_until(self, text: str) -> None:
        """Up to and with that text; what was read before does not count again."""
        give_up_at = time.monotonic() + PATIENCE_S
        while (place := self.text.find(text, self._read_up_to)) < 0:
            assert self.read_some(give_up_at), f"it ended without saying {text!r}"
        self._read_up_to = place + len(text)

    def read_some(self, give_up_at: float) -> bool:
        """False when there is nothing more to come."""
        left_s = max(0.0, give_up_at - time.monotonic())
        ready, _, _ = select.select([self._descriptor], [], [], left_s)
        assert ready, f"nothing more was said in time after {self.text[-500:]!r}"
        try:
            piece = os.read(self._descriptor, 4096)
        except OSError:  # how Linux says that the other side of a terminal has closed
            return False
        self.text += piece.decode("utf-8", "replace")
        return bool(piece)


class Beside:
    """A process whose stderr is read as it comes, and which is killed if the test leaves it alone."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=hear_signals,
        )
        assert self._process.stderr is not None
        self._heard = _Heard(self._process.stderr.fileno())
        self.read_until = self._heard.read_until

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    @property
    def err(self) -> str:
        return self._heard.text

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its status (negative for a signal that killed it) and its stdout, once it has ended."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        self._heard.text += err.decode()
        return self._process.returncode, out.decode()


class Terminal:
    """A process that has a terminal for its own: what it shows is read, and keys are pressed."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env=environment(home, TERM="xterm", COLUMNS="100"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        self._heard = _Heard(self._ours)
        self.read_until = self._heard.read_until

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=PATIENCE_S)
        os.close(self._ours)

    @property
    def shown(self) -> str:
        return self._heard.text

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def hang_up(self) -> None:
        """As when the window of the terminal is closed."""
        self._process.send_signal(signal.SIGHUP)

    def end(self) -> int:
        """Its status, once it has ended and everything it showed was read."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self._heard.read_some(give_up_at):
            pass
        return self._process.wait(timeout=PATIENCE_S)
