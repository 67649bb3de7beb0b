"""A gateway in a process of its own, attacked by ten connections of each kind: its operator is served."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests.security.attacked_gateway import TROUBLE, Operator, attacked, peak_bytes
from tests.security.attackers import ATTACKS, under_attack
from tests.security.raw_http import head, signature_line, status_of

pytestmark = pytest.mark.slow

CALLS = 50
BODIES = 200
BODY = b" " * 1024**2
MOST_BYTES = 64 * 1024**2


def test_ten_connections_of_each_kind_at_once_do_not_keep_an_operator_from_anything(tmp_path: Path) -> None:
    with attacked(tmp_path / "home") as (one, target), contextlib.ExitStack() as attacks:
        pid = one.pid_of_gateway()
        for kind in ATTACKS:
            attacks.enter_context(under_attack(kind, target.port))
        with Operator(one) as operator:
            one.wait_for(
                lambda: operator.calls >= CALLS or operator.problem is not None, "an operator was not served"
            )

        assert operator.problem is None, operator.problem
        assert one.pid_of_gateway() == pid
        assert TROUBLE.search(one.log()) is None, one.log()[-8000:]


def test_many_bodies_of_strangers_hold_little_memory(tmp_path: Path) -> None:
    with attacked(tmp_path / "home") as (one, target), contextlib.ExitStack() as ways:
        pid = one.pid_of_gateway()
        assert pid is not None
        before = peak_bytes(pid)
        opened = []
        for _ in range(BODIES):
            way = ways.enter_context(socket.create_connection(("127.0.0.1", target.port), 30))
            with contextlib.suppress(OSError):  # it was refused before its end
                line = signature_line(BODY, secret=b"made up")
                way.sendall(head("/channels/hook", f"Content-Length: {len(BODY)}", line, token=None))
                way.sendall(BODY[:-1])
            opened.append(way)
        found = set()
        for way in opened:
            with contextlib.suppress(OSError):
                way.sendall(b" ")
                found.add(status_of(way))

        # 0 for those whose connection was reset before they had read why.
        assert found <= {0, 401, 503}
        assert peak_bytes(pid) - before < MOST_BYTES
