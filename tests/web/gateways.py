"""A real `holdfast up` beside a test: its address, its token, and the calls that fill its ledger."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx

PATIENCE_S = 60.0
REPOSITORY = Path(__file__).parents[2]
# Nothing here is encrypted; without it httpx reads the machine's certificates for 20 ms in every call.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class LiveGateway:
    """`holdfast up` in a process of its own, until the block ends."""

    def __init__(self, home: Path, *, port: int = 0, log: Path | None = None) -> None:
        self.home = home
        # Whether the tests of a session visit it one after another.
        self.is_shared = False
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        environ.pop("JOURNAL_STREAM", None)
        with (log or home / "up.log").open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "up", "--json", "--home", str(home), "--port", str(port)],
                env=environ,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (log or home / "up.log").read_text()
        self.said = json.loads(line)
        self.url: str = self.said["urls"][0]
        self.link: str = self.said["dashboard"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.communicate()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    @property
    def pid(self) -> int:
        """Of the gateway itself, not of its supervisor."""
        found: int = self.call("gateway.status")["pid"]
        return found

    def call(self, method: str, /, **params: Any) -> Any:
        answer = httpx.post(
            f"{self.url}/rpc/{method}",
            json=params,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=PATIENCE_S,
            verify=NO_CERTIFICATES,
        )
        assert answer.status_code == 200, f"{method}: {answer.text}"
        return answer.json()

    def kill(self) -> None:
        """SIGKILL for the gateway; its supervisor starts another one."""
        os.kill(self.pid, signal.SIGKILL)

    def is_serving_after(self, pid: int) -> bool:
        """Whether another gateway than this process serves now."""
        try:
            found = self.call("gateway.status")
        except httpx.TransportError:
            return False
        return bool(found["pid"] != pid and found["status"] == "serving")

    def stop(self) -> None:
        """End it with its supervisor."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)

    def command(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments, "--home", str(self.home)],
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        )

    def new_link(self, token: str = "operator") -> str:
        command = [sys.executable, "-m", "holdfast", "dashboard", "--print", "--json"]
        done = subprocess.run(
            [*command, "--home", str(self.home), "--token", token],
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        )
        link: str = json.loads(done.stdout)["url"]
        return link

    def sign_in(self) -> tuple[str, str]:
        """The name and value of a cookie for the operator's token, without a page and a process for it."""
        answer = httpx.post(
            f"{self.url}/dashboard/sign-in",
            data={"token": self.token},
            headers={"origin": self.url, "hx-request": "true"},
            timeout=PATIENCE_S,
            verify=NO_CERTIFICATES,
        )
        assert answer.status_code == 200, answer.text
        [cookie] = answer.cookies.items()
        return cookie

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        give_up_at = time.monotonic() + PATIENCE_S
        while not (found := is_so()):
            assert time.monotonic() < give_up_at, f"not in time: {what}"
            time.sleep(0.05)
        return found
