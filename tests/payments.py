"""A real HTTP server that takes payments and misbehaves: what it took is the truth."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Payments(ThreadingHTTPServer):
    """It takes every payment that arrives, whatever it answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taken)
        self.bank = f"http://127.0.0.1:{self.server_port}"
        self.url = f"{self.bank}/pay"
        self.taken: list[bytes] = []
        self.how = "well"
        self.stalls = threading.Event()


class _Taken(BaseHTTPRequestHandler):
    server: Payments

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.server.taken.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        match self.server.how:
            case "resets":
                linger = struct.pack("ii", 1, 0)  # closing sends a reset instead of an end
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True
                self.connection.close()
                self.wfile = open("/dev/null", "wb")  # noqa: PTH123, SIM115 - what it writes at its end
            case "closes":
                self.close_connection = True
            case "stalls":
                self.server.stalls.wait(10)
                self.close_connection = True
            case "declines":
                self.server.taken.pop()
                self._answer(402, b"{}")
            case "answers 500":
                self._answer(500, b'{"error": "oops"}')
            case "answers nonsense":
                self._answer(200, b"<html>busy</html>")
            case "answers half":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"id": ')
                self.close_connection = True
            case _:
                self._answer(200, b'{"id": "pay-1"}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def taking_payments() -> Iterator[Payments]:
    """On loopback, without a proxy in between."""
    with pytest.MonkeyPatch.context() as patch, Payments() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(name, raising=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.stalls.set()
            server.shutdown()
            thread.join()
