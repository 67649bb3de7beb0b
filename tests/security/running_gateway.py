"""A gateway in a process of its own, and an address that records what it is sent."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.doors.calls import PROGRAM, environment
from tests.doors.terminals import PATIENCE_S


class RunningGateway:
    """`holdfast up` beside us."""

    def __init__(self, home: Path, **environ: str) -> None:
        self.home = home
        self._process = subprocess.Popen(
            [*PROGRAM, "up", "--json", "--port", "0"],
            env=environment(home, **environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["urls"][0]
        self.http = httpx.Client(verify=False, timeout=20, trust_env=False)

    def __enter__(self) -> RunningGateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    def post(self, method: str, params: object, *, token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return self.http.post(f"{self.url}/rpc/{method}", json=params, headers=headers)


def eventually(look: Callable[[], Any]) -> Any:
    """What `look` finds, as soon as it finds something."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < give_up_at, "it did not come about in time"
        time.sleep(0.02)
    return found


@contextmanager
def recorder() -> Iterator[tuple[str, list[str]]]:
    """An address on loopback, and what was sent to it."""
    sent: list[str] = []

    class Record(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library has it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Record)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
