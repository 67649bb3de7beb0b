"""OpenClaw's programs as tests use them: its CLI, a CLI command that goes on, and its client."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tests.openclaw.packages import Packages

HERE = Path(__file__).parent
# Long enough for a slow machine; no test waits for it unless something is wrong.
PATIENCE_S = 60.0


class CliAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a command of OpenClaw's CLI ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out.strip(), self.err
        return json.loads(self.out)


class OpenClaw:
    """OpenClaw's programs with a home of their own, connected to one gateway."""

    def __init__(self, packages: Packages, home: Path, *, url: str, token: str) -> None:
        self._packages = packages
        self._home = home
        self.url = url.replace("http://", "ws://")
        self.token = token
        (home / "plain").mkdir(parents=True)
        remote = home / "remote"
        remote.mkdir()
        settings = {"gateway": {"mode": "remote", "remote": {"url": self.url, "token": token}}}
        (remote / "openclaw.json").write_text(json.dumps(settings))

    def run(self, *arguments: str) -> CliAnswer:
        """A command that finds the gateway in OpenClaw's own settings."""
        return self._run("remote", *arguments)

    def run_at(self, *arguments: str) -> CliAnswer:
        """A command that is told the gateway's address and token."""
        return self._run("plain", *arguments, "--url", self.url, "--token", self.token)

    def call(self, method: str, **params: Any) -> CliAnswer:
        """`openclaw gateway call`."""
        within = str(int(PATIENCE_S * 1000))
        return self.run_at(
            "gateway", "call", method, "--json", "--timeout", within, "--params", json.dumps(params)
        )

    def _run(self, state: str, *arguments: str) -> CliAnswer:
        done = subprocess.run(
            [self._packages.node, self._packages.openclaw, *arguments],
            env=self._environ(state),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return CliAnswer(status=done.returncode, out=done.stdout, err=done.stderr)

    def following(self, *arguments: str) -> Following:
        """A command that goes on until it is left."""
        return Following([self._packages.node, self._packages.openclaw, *arguments], self._environ("remote"))

    def schemas(self) -> dict[str, Any]:
        """The JSON Schemas of OpenClaw's protocol, by the names that they have there."""
        protocol = self._packages.modules / "openclaw" / "dist" / "gateway" / "protocol" / "index.js"
        done = subprocess.run(
            [self._packages.node, HERE / "schemas.mjs", protocol],
            env=self._environ("plain"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        schemas: dict[str, Any] = json.loads(done.stdout)
        return schemas

    def client(self) -> ClawClient:
        sdk = self._packages.modules / "openclaw" / "dist" / "plugin-sdk" / "gateway-runtime.js"
        command = [self._packages.node, HERE / "client.mjs", sdk, self.url, self.token]
        return ClawClient(command, self._environ("remote"))

    def _environ(self, state: str) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._home),
            "OPENCLAW_STATE_DIR": str(self._home / state),
            "TMPDIR": str(self._home),
            "NO_COLOR": "1",
            # In one process, so that nothing of it is left when a test ends it.
            "OPENCLAW_NO_RESPAWN": "1",
        }


class Following:
    """A program beside the test whose lines it waits for."""

    def __init__(self, command: list[Any], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.said: list[Any] = []

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def until(self, is_it: Callable[[Any], bool]) -> Any:
        """The next line for which this is true."""
        while True:
            try:
                line = json.loads(self._lines.get(timeout=PATIENCE_S))
            except queue.Empty:
                raise AssertionError(f"not said in time; it said {self.said[-20:]}") from None
            self.said.append(line)
            if is_it(line):
                return line

    def tell(self, line: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(line)}\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(line)


class ClawClient(Following):
    """OpenClaw's own client library, which connects again by itself."""

    _last = 0

    def until_connected(self) -> Any:
        return self.until(lambda line: line["told"] == "hello")

    def begin(self, method: str, *, expect_final: bool = False, **params: Any) -> int:
        self._last += 1
        self.tell({"id": self._last, "method": method, "params": params, "expectFinal": expect_final})
        return self._last

    def answer(self, number: int) -> Any:
        return self.until(lambda line: line["told"] == "answer" and line["id"] == number)

    def ask(self, method: str, **params: Any) -> Any:
        answer = self.answer(self.begin(method, **params))
        assert answer["ok"], answer
        return answer["payload"]
