"""A real HTTP server at the other end of a webhook: it writes down what came, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


# Status, headers and body of an answer; None breaks the connection.
Answer = tuple[int, dict[str, str], bytes] | None


def json_places(receiver: Receiver, *names: str) -> list[str]:
    """URLs for apprise that lead to it."""
    return [
        receiver.url.replace("http://", "json://").replace("/hook?team=sea", f"/{name}") for name in names
    ]


class Receiver:
    """Heeds idempotency keys, as a good receiver does: `accepted` holds each message once."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.accepted: dict[str, Request] = {}
        self.answer: Callable[[Request], Answer] = lambda _request: (200, {}, b"{}")
        self.url = ""

    @contextmanager
    def listening(self, port: int = 0) -> Iterator[Receiver]:
        receiver = self

        class Handle(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(size)
                if len(body) < size:  # the sender died: no server takes that for a request
                    self.close_connection = True
                    return
                request = Request(self.path, dict(self.headers.items()), body)
                receiver.requests.append(request)
                answer = receiver.answer(request)
                if answer is None:
                    self.connection.close()
                    return
                status, headers, said = answer
                if 200 <= status < 300:
                    receiver.accepted.setdefault(request.headers.get("Idempotency-Key", ""), request)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_arguments: object) -> None:
                pass  # a connection that was broken on purpose

        server = Server(("127.0.0.1", port), Handle)
        self.url = f"http://127.0.0.1:{server.server_port}/hook?team=sea"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join(timeout=10)
