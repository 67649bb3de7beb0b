"""An operator's calls beside ten hostile connections of each kind, and the same calls beside none."""

from __future__ import annotations

import http.client
import statistics
import time
from pathlib import Path

from bench.gateway import Gateway, gateway
from bench.measure import Report
from holdfast.config.token import TOKEN_NAME
from tests.security.attackers import ATTACKS, CONNECTIONS, under_attack

NAME = f"SQLite: an operator's call beside {CONNECTIONS} hostile connections: {{}} / beside none"


def call_seconds(one: Gateway, calls: int) -> float:
    """The median of so many calls, one after another over a connection that is kept."""
    token = (one.home / TOKEN_NAME).read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    found: list[float] = []
    try:
        while len(found) < calls:
            started = time.perf_counter()
            connection.request("POST", "/rpc/tasks.list", body=b'{"limit": 5}', headers=headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:  # its own rate, which is no part of what is measured
                time.sleep(0.1)
                continue
            if answer.status != 200:
                raise RuntimeError(f"the operator was answered with {answer.status}")
            found.append(time.perf_counter() - started)
    finally:
        connection.close()
    return statistics.median(found)


def attacked_seconds(one: Gateway, kind: str, calls: int) -> float:
    with under_attack(kind, one.port):
        return call_seconds(one, calls)


def bench(report: Report, directory: Path, *, calls: int) -> None:
    """Reported, without a target: the attackers share the processor with the gateway and its operator."""
    rows = {NAME.format(kind): kind for kind in ATTACKS}
    if not any(report.wants(name) for name in rows):
        return
    home = directory / "hostile"
    settings = {
        "agents": {"silent": {"callable": "bench.gateway:silent"}},
        "channels": {"hook": {"kind": "webhook", "secret_file": "hook.secret", "agent": "silent"}},
    }
    with gateway(home, f"sqlite:///{home / 'ledger.db'}", settings) as one:
        (home / "hook.secret").touch(mode=0o600)
        (home / "hook.secret").write_text("a secret that both ends know")
        one.start()
        one.until(one.is_ready)
        call_seconds(one, calls)  # until all that is cached is
        for name, kind in rows.items():
            report.times(
                name,
                lambda kind=kind: attacked_seconds(one, kind, calls),  # type: ignore[misc]
                lambda: call_seconds(one, calls),
                target=None,
                rounds=5,
            )
