"""Supervisors beside a test: started, signalled, killed; what they say is read as it comes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATIENCE_S = 60.0
# Quick, but otherwise as in earnest.
QUICK = {"first_wait_s": 0.01, "longest_wait_s": 0.05}


class SupervisorProcess:
    """One supervisor and the lives of its child."""

    def __init__(self, directory: Path, ways: str, environ: dict[str, str], order: dict[str, Any]) -> None:
        self.home = directory / "home"
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.directory = directory
        self._lives_before = len(self.lives())
        command = [sys.executable, "-S", "-E", str(HERE / "child.py"), str(directory), ways]
        wrapper: list[str] = order.pop("wrapper", [])
        # In a wrapper the pids of the children are those of another namespace: no process of ours to signal.
        self._is_elsewhere = bool(wrapper)
        order = {"home": str(self.home), "command": command, "patience": QUICK, **order}
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, str(HERE / "supervise.py"), json.dumps(order)],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own, so that a test can press Ctrl-C for it.
            process_group=0,
        )
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        self._err = self.process.stderr.fileno()
        self._read_up_to = 0
        self.text = ""
        line = self.process.stdout.readline()
        self.urls: list[str] = json.loads(line)["urls"] if line else []

    @property
    def port(self) -> int:
        return int(self.urls[0].rpartition(":")[2])

    # --- what is said

    def read_until(self, text: str) -> None:
        """Up to and with that text; what was read before does not count again."""
        give_up_at = time.monotonic() + PATIENCE_S
        while (place := self.text.find(text, self._read_up_to)) < 0:
            ready, _, _ = select.select([self._err], [], [], max(0.0, give_up_at - time.monotonic()))
            assert ready, f"{text!r} was not said in time; {self.text[-2000:]}"
            piece = os.read(self._err, 65536)
            assert piece, f"it ended without saying {text!r}; {self.text[-2000:]}"
            self.text += piece.decode("utf-8", "replace")
        self._read_up_to = place + len(text)

    def end(self) -> int:
        """Its exit status, once it has ended; everything that it said is in `text`."""
        _, err = self.process.communicate(timeout=PATIENCE_S)
        self.text += err.decode("utf-8", "replace")
        return self.process.returncode

    def lives(self) -> list[dict[str, Any]]:
        """What each child was given, in order."""
        path = self.directory / "lives"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def child(self) -> int:
        """The pid of the newest child."""
        return int(self.lives()[-1]["pid"])

    # --- what is done

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ask(self, line: str = "hello") -> tuple[int, str]:
        """Who answers, and what."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as way:
            return _ask(way, line)

    def ask_locally(self, line: str = "hello") -> tuple[int, str]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
            way.settimeout(PATIENCE_S)
            way.connect(str(self.home / "gateway.sock"))
            return _ask(way, line)

    def open_gate(self, name: str) -> None:
        (self.directory / name).touch()

    def leave(self) -> None:
        """No process stays behind, however the test ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.open_gate("orphan-may-end")
        self.open_gate("drained")
        for life in [] if self._is_elsewhere else self.lives()[self._lives_before :]:
            if is_running(life["pid"]):
                with suppress(ProcessLookupError):
                    os.kill(life["pid"], signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE_S)


def _ask(way: socket.socket, line: str) -> tuple[int, str]:
    way.sendall(line.encode())
    answer = way.recv(1000)
    if not answer:
        raise ConnectionResetError
    pid, _, text = answer.decode().partition(" ")
    return int(pid), text


@contextmanager
def supervising(directory: Path, ways: str = "serve", **order: Any) -> Iterator[SupervisorProcess]:
    """A supervisor whose children go these ways; `environ` is added to its environment."""
    supervisor = SupervisorProcess(directory, ways, order.pop("environ", {}), order)
    try:
        yield supervisor
    finally:
        supervisor.leave()


def is_running(pid: int) -> bool:
    """There, and not only waiting to be reaped."""
    if pid <= 0:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
