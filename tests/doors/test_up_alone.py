"""`holdfast up` among strangers: connections that only wait."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.doors.calls import environment, run_process
from tests.doors.terminals import PATIENCE_S

pytestmark = pytest.mark.slow


class Up:
    def __init__(self, process: subprocess.Popen[str], home: Path, log: Path) -> None:
        self.process = process
        self.home = home
        self._log = log
        assert process.stdout is not None
        self.facts = json.loads(process.stdout.readline())
        self.url = str(self.facts["urls"][0])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def gateway_pid(self) -> int:
        status = run_process(self.home, "gateway", "status", "--json")
        assert status.status == 0, status.err + self.log[-2000:]
        return int(status.json["pid"])


@contextmanager
def started(home: Path, directory: Path, *, open_files: tuple[int, int] | None = None) -> Iterator[Up]:
    """In that directory, as its console script would: nothing of it is on the path."""

    def limit() -> None:
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, open_files)

    log = directory / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast", "up", "--json", "--port", "0"],
            env=environment(home),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=limit,
        )
    with process:
        try:
            yield Up(process, home, log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_strangers_who_only_wait_keep_no_client_out(home: Path, tmp_path: Path) -> None:
    with started(home, tmp_path, open_files=(256, 256)) as up:
        before = up.gateway_pid()
        port = int(up.url.rpartition(":")[2])
        waiting = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(600)]
        for way in waiting:
            with suppress(OSError):  # it may be closed by now
                way.sendall(b"GET / HTTP/1.1\r\n")

        assert httpx.get(f"{up.url}/healthz", trust_env=False, timeout=PATIENCE_S).status_code == 200
        assert up.gateway_pid() == before
        for way in waiting:
            way.close()
    assert "Traceback" not in up.log
    assert up.log.count("connections without a token, the limit; the oldest are closed") == 1


def test_it_takes_more_descriptors_than_it_was_given(home: Path, tmp_path: Path) -> None:
    with started(home, tmp_path, open_files=(256, 1000)) as up:
        pid = up.gateway_pid()

        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (1000, 1000)
