"""`holdfast up` as it is attacked: with a webhook, a token for the attacker, and an operator that calls."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

from tests.gateway.gateway_home import GatewayHome, gateway_home
from tests.security.hostile_inputs import Target
from tests.security.raw_http import SECRET

FUZZER = "fuzzer" * 10
TROUBLE = re.compile(
    r"Traceback|Exception in|Fatal error|never retrieved|Task was destroyed|its log says more"
)

SETTINGS: dict[str, Any] = {
    "gateway": {"rate_limit_per_s": 100_000},
    "agents": {"ada": {"command": ["true"]}},
    "channels": {"hook": {"kind": "webhook", "secret_file": "hook.secret", "agent": "ada"}},
    "tokens": {
        "fuzzer": {
            "token_file": "fuzzer.token",
            "scopes": ["operator.read", "operator.write", "operator.admin"],
        }
    },
}


@contextlib.contextmanager
def attacked(home: Path) -> Iterator[tuple[GatewayHome, Target]]:
    home.mkdir(mode=0o700)
    for name, content in (("hook.secret", SECRET), ("fuzzer.token", FUZZER.encode())):
        (home / name).touch(mode=0o600)
        (home / name).write_bytes(content)
    with gateway_home(home, settings=SETTINGS) as one:
        one.until_ready()
        yield one, Target(int(one.url.rpartition(":")[2]), FUZZER, SECRET)


def rss_bytes(pid: int) -> int:
    return _memory(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    return _memory(pid, "VmHWM")


def _memory(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


class Operator:
    """Calls all the while, over a connection that it keeps, over new ones, and over a WebSocket."""

    def __init__(self, one: GatewayHome) -> None:
        self._url = one.url
        self._token = (one.home / "token").read_text().strip()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.calls = 0
        self.problem: BaseException | None = None

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.problem = error

    def _call(self) -> None:
        headers = {"authorization": f"Bearer {self._token}"}
        where = self._url.replace("http://", "ws://")
        with (
            httpx.Client(
                base_url=self._url, headers=headers, timeout=30, trust_env=False, verify=False
            ) as http,
            connect(where, compression=None, max_size=2**24) as way,
        ):
            way.recv(30)
            params = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": self._token}}
            way.send(json.dumps({"type": "req", "id": "0", "method": "connect", "params": params}))
            assert json.loads(way.recv(30))["ok"]
            while not self._is_over.is_set():
                new = {"connection": "close"} if self.calls % 5 == 0 else {}
                answer = http.post("/rpc/tasks.list", json={"limit": 5}, headers=new)
                assert answer.status_code == 200, answer.text
                way.send(json.dumps({"type": "req", "id": "1", "method": "health"}))
                while (said := json.loads(way.recv(30)))["type"] == "event":
                    pass
                assert said["ok"], said
                self.calls += 1
