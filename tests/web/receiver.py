"""NoticeReceiver: where the webhooks of the sample home end; what it answers depends on the recipient."""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REFUSED, BROKEN, BUSY, TAKEN = 403, 500, 429, 200


class NoticeReceiver:
    """An HTTP server in this process, until the process ends."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._answerer())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/answers"

    def _status_for(self, peer: str) -> int:
        """`doubt…` may have it, `later…` is busy, `moody…` takes it the second time; all others refuse."""
        self.seen[peer] += 1
        if peer.startswith("doubt"):
            return BROKEN if self.seen[peer] == 1 else REFUSED
        if peer.startswith("later"):
            return BUSY
        return TAKEN if peer.startswith("moody") and self.seen[peer] > 1 else REFUSED

    def _answerer(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Answerer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(receiver._status_for(str(said.get("peer", ""))))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing: the tests look at the ledger."""

        return Answerer
