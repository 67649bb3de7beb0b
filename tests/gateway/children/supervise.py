"""A supervisor as `holdfast up` runs it, with a child and with limits of the test's choice.

`supervise.py ORDER`, one document of JSON. On stdout it says where it listens; on stderr it logs.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.gateway.crashes import SupervisorTimeouts
from holdfast.gateway.sockets import listen
from holdfast.gateway.supervisor import Supervisor, SupervisorSettings, become_gateway

log = logging.getLogger("supervise")

_PR_SET_CHILD_SUBREAPER = 36


class AnnouncingSupervisor(Supervisor):
    """Says where it listens as soon as it hears signals; its children may never serve."""

    urls: list[str]

    def _start(self) -> None:
        if self.urls:
            print(json.dumps({"urls": self.urls}), flush=True)
            self.urls = []
        super()._start()


def main() -> int:
    order = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if order.get("is_reaper"):  # orphans are left to us, as they are to pid 1
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        sockets = listen(
            Path(order["home"]),
            host=order.get("host", "127.0.0.1"),
            port=order.get("port", 0),
            environ=os.environ,
            patience_s=order.get("patience_s", 30.0),
        )
    except HoldfastError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 2

    if order.get("is_alone"):
        print(json.dumps({"urls": sockets.urls}), flush=True)
        become_gateway(sockets, order["command"], os.environ)
    supervisor = AnnouncingSupervisor(
        sockets,
        order["command"],
        environ=os.environ,
        terms=lambda: SupervisorSettings(**order.get("terms", {}) | changed_terms(Path(order["home"]))),
        patience=SupervisorTimeouts(**order.get("patience", {})),
    )
    supervisor.urls = sockets.urls
    status = supervisor.run(announce=lambda: log.info("announced"))
    sockets.close()
    return status


def changed_terms(home: Path) -> dict[str, Any]:
    """What a test has written there since."""
    path = home / "terms.json"
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
