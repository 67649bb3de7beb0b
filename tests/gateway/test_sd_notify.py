"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.gateway.sd_notify import Notifier
from tests.gateway.children.supervisor_process import PATIENCE_S, SupervisorProcess, supervising


class Ear:
    """Listens where NOTIFY_SOCKET points to."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(PATIENCE_S)
        self.heard: list[list[str]] = []

    def hear(self) -> list[str]:
        self.heard.append(self._socket.recv(65536).decode().split("\n"))
        return self.heard[-1]

    def hear_until(self, line: str) -> list[str]:
        while line not in self.hear():
            pass
        return self.heard[-1]

    def is_silent(self) -> bool:
        self._socket.setblocking(False)
        try:
            self.hear()
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "notify")


@pytest.fixture
def ear(path: str) -> Iterator[Ear]:
    ear = Ear(path)
    yield ear
    ear.close()


def test_each_word_is_one_datagram(ear: Ear, path: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000"})

    notifier.ready("serving")
    notifier.reloading("draining", monotonic_s=1.5)
    notifier.stopping("bye")
    notifier.status("two\nlines")
    notifier.alive()

    assert [ear.hear() for _ in range(5)] == [
        ["READY=1", "STATUS=serving"],
        ["RELOADING=1", "MONOTONIC_USEC=1500000", "STATUS=draining"],
        ["STOPPING=1", "STATUS=bye"],
        ["STATUS=two lines"],
        ["WATCHDOG=1"],
    ]


@pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="only Linux has abstract sockets")
def test_a_socket_without_a_file_is_found_by_its_at_sign() -> None:
    name = f"holdfast-{secrets.token_hex(8)}"
    ear = Ear(f"\0{name}")

    Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready("serving")

    assert ear.hear() == ["READY=1", "STATUS=serving"]
    ear.close()


@pytest.mark.parametrize(
    "environ",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}],
    ids=["no watchdog", "off", "that of another process"],
)
def test_a_watchdog_that_is_not_ours_is_left_alone(ear: Ear, path: str, environ: dict[str, str]) -> None:
    Notifier({"NOTIFY_SOCKET": path, **environ}, pid=os.getpid()).alive()

    assert ear.is_silent()


def test_without_a_listener_nothing_happens(tmp_path: Path) -> None:
    for where in ("", str(tmp_path / "gone"), "@", str(tmp_path / ("x" * 200))):
        Notifier({"NOTIFY_SOCKET": where, "WATCHDOG_USEC": "1"}).ready("serving")


# --- of a supervisor


def notified(path: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "5000000"}


@pytest.mark.slow
def test_systemd_hears_of_every_turn_in_the_gateways_life(tmp_path: Path, ear: Ear, path: str) -> None:
    with supervising(tmp_path, environ=notified(path)) as supervisor:
        assert ear.hear() == ["READY=1", f"STATUS=serving on {supervisor.urls[0]}"]
        ear.hear_until("WATCHDOG=1")
        supervisor.signal(signal.SIGUSR1)
        assert ear.hear_until("RELOADING=1")[1].startswith("MONOTONIC_USEC=")
        ear.hear_until("READY=1")
        os.kill(supervisor.child, signal.SIGKILL)
        ear.hear_until("STATUS=crash: SIGKILL; the gateway is started again")
        ear.hear_until("READY=1")
        supervisor.signal(signal.SIGTERM)
        ear.hear_until("STOPPING=1")

        assert supervisor.end() == 0


@pytest.mark.slow
def test_the_watchdog_is_not_fed_for_a_gateway_that_is_silent(tmp_path: Path, ear: Ear, path: str) -> None:
    with supervising(tmp_path, "hang", environ=notified(path)) as supervisor:
        supervisor.read_until("hangs")
        supervisor.signal(signal.SIGTERM)
        ear.hear_until("STOPPING=1")

    assert ["WATCHDOG=1"] not in ear.heard


@pytest.mark.slow
def test_the_child_does_not_learn_what_systemd_says_to_its_parent(
    tmp_path: Path, ear: Ear, path: str
) -> None:
    with supervising(tmp_path, environ=notified(path)) as supervisor:
        supervisor.read_until("is ready")
        names = environment_of(supervisor)

    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & names
    assert "HOLDFAST_SUPERVISED" in names


def environment_of(supervisor: SupervisorProcess) -> set[str]:
    environ = Path(f"/proc/{supervisor.child}/environ").read_bytes()
    return {line.partition(b"=")[0].decode() for line in environ.split(b"\0")}
