"""A gateway without a ledger: it obeys the contract, or breaks it as its life is told to.

`child.py DIRECTORY WAYS`: the first life goes the first of the ways (separated by commas), the next one the
next, and all that follow the last. Only the standard library, so that a life begins quickly.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

ALIVE_EVERY_S = 0.05
# What a gateway ends with that cannot use its ledger at its start.
LEDGER_AWAY = 69


class ChildLife:
    def __init__(self, directory: Path, way: str, supervised: dict[str, Any]) -> None:
        self.directory = directory
        self.way = way
        self.life_fd: int = supervised["life_fd"]
        self.tell_fd: int = supervised["tell_fd"]
        fds = [*supervised["tcp_fds"], supervised["unix_fd"]]
        self.doors = [socket.socket(fileno=number) for number in fds]
        for door in self.doors:
            door.setblocking(False)
        self.alive_at = 0.0

    def tell(self, event: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the supervisor is dead, which the other pipe says
            os.write(self.tell_fd, json.dumps({"event": event}).encode() + b"\n")

    def note(self, words: str) -> None:
        """On stderr, which is the supervisor's: a test reads it there, in order."""
        os.write(2, f"child {os.getpid()}: {words}\n".encode())

    # --- ways to live

    def live(self) -> NoReturn:
        ways: dict[str, Callable[[], object]] = {
            "crash": lambda: os._exit(1),
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "unusable": lambda: os._exit(78),
            "restart": lambda: os._exit(75),
            "away": lambda: os._exit(LEDGER_AWAY),
            "hang": self.hang,
            "stubborn": self.ignore_stops,
            "mute": self.be_mute,
            "babble": self.babble,
            "orphan": self.leave_an_orphan,
            "late": self.answer_late,
            "boot": self.boot_for_ever,
            "gate": self.wait_at_the_gate,
        }
        signals, mouth = os.pipe()
        os.set_blocking(mouth, False)
        signal.set_wakeup_fd(mouth)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)
        ways.get(self.way, lambda: None)()
        if self.way != "mute":
            self.tell("ready")
            if self.way == "healthy":
                self.tell("healthy")
        self.note("serves")
        while True:
            self.look(signals)

    def look(self, signals: int) -> None:
        doors = {door.fileno(): door for door in self.doors}
        ready, _, _ = select.select([*doors, signals, self.life_fd], [], [], ALIVE_EVERY_S)
        for one in ready:
            if one == signals:
                for number in os.read(signals, 100):
                    self.obey(number)
            elif one == self.life_fd:
                assert os.read(self.life_fd, 1) == b"", "nothing is ever said there"
                self.note("the supervisor is dead")
                self.drain(0)
            else:
                self.answer(doors[one])
        if self.way != "mute" and time.monotonic() - self.alive_at > ALIVE_EVERY_S:
            self.alive_at = time.monotonic()
            self.tell("alive")

    def obey(self, number: int) -> None:
        self.note(f"got {signal.Signals(number).name}")
        if self.way == "stubborn":
            return
        self.drain(75 if number in (signal.SIGUSR1, signal.SIGHUP) else 0)

    def drain(self, status: int) -> NoReturn:
        with contextlib.suppress(OSError):
            self.tell("draining")
        gate = self.directory / "drain-until"
        while gate.exists() and not (self.directory / "drained").exists():
            time.sleep(0.01)  # a test decides when the drain is over
        os._exit(status)

    def answer(self, door: socket.socket) -> None:
        try:
            client, _ = door.accept()
        except BlockingIOError:
            return
        with client, contextlib.suppress(OSError):
            client.settimeout(10)
            line = client.recv(1000)
            client.sendall(f"{os.getpid()} ".encode() + line)

    # --- ways to break it

    def hang(self) -> NoReturn:
        """Stuck in something that nothing ends but a SIGKILL."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.tell("ready")
        self.note("hangs")
        while True:
            time.sleep(3600)

    def answer_late(self) -> NoReturn:
        """Silent until it is told to stop; then it drains in order, and says that a stop was wanted."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        self.tell("ready")
        self.note("is silent")
        signal.sigwait([signal.SIGTERM])
        self.note("answers")
        self.drain(0)

    def boot_for_ever(self) -> NoReturn:
        """Never ready, and no ear for signals yet: they do what they do to any process."""
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        self.note("boots")
        while True:
            self.tell("alive")
            time.sleep(ALIVE_EVERY_S)

    def wait_at_the_gate(self) -> None:
        """Not ready before a test says so."""
        self.note("waits")
        while not (self.directory / "may-be-ready").exists():
            self.tell("alive")
            time.sleep(0.01)

    def ignore_stops(self) -> None:
        pass  # see `obey`

    def be_mute(self) -> None:
        os.close(self.tell_fd)

    def babble(self) -> None:
        os.write(self.tell_fd, b"\xff\n{}\n[]\n" + b'{"event":"no such word"}\n' + b"x" * 200_000 + b"\n")

    def leave_an_orphan(self) -> None:
        """A grandchild whose parent is gone, and that ends when a test says so."""
        first = os.fork()
        if first == 0:
            orphan = os.fork()
            if orphan != 0:
                self.note(f"orphan {orphan}")
                os._exit(0)
            for door in self.doors:
                door.close()
            while not (self.directory / "orphan-may-end").exists():
                time.sleep(0.01)
            os._exit(0)
        os.waitpid(first, 0)


def main() -> None:
    directory, ways = Path(sys.argv[1]), sys.argv[2].split(",")
    supervised = json.loads(os.environ["HOLDFAST_SUPERVISED"])
    with (directory / "lives").open("a+") as lives:
        lives.seek(0)
        number = len(lives.readlines())
        lives.write(json.dumps({**supervised, "pid": os.getpid()}) + "\n")
    ChildLife(directory, ways[min(number, len(ways) - 1)], supervised).live()


if __name__ == "__main__":
    main()
