"""A real gateway in processes of its own: started, talked to, restarted, killed, and read afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import app
from holdfast.cli.main import main
from holdfast.core.clock import SystemClock
from holdfast.store import Store
from tests.architecture.source import ROOT
from tests.doors.calls import Call

SHORT_LEASES = ROOT / "tests" / "gateway" / "short_leases"
# Long enough for a slow machine; no test waits for it unless something is wrong.
PATIENCE_S = 60.0


class GatewayHome:
    """One home with its supervisor and gateway. `tell` it what to do; ask the ledger what happened."""

    def __init__(
        self,
        home: Path,
        *,
        settings: Mapping[str, Any],
        store: str | None = None,
        world: Path | None = None,
        lease: timedelta | None = None,
    ) -> None:
        """A gateway has leases of 30 seconds, unless the test says otherwise."""
        self.home = home
        self.store = store
        self.lease = lease
        self.settings = dict(settings)
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.url = ""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (world or home / "world").mkdir(exist_ok=True)
        if world is not None:
            (home / "world").symlink_to(world)
        self.save_settings()

    def save_settings(self) -> None:
        beside = self.home / ".holdfast.json.new"
        beside.write_text(json.dumps(self.settings))
        beside.rename(self.home / "holdfast.json")

    @property
    def environ(self) -> dict[str, str]:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        if self.lease is not None:
            paths.insert(0, str(SHORT_LEASES))
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOLDFAST_HOME": str(self.home)}
        if self.lease is not None:
            given["SHORT_LEASE_S"] = str(self.lease.total_seconds())
        given.pop("HOLDFAST_STORE", None)
        return given if self.store is None else given | {"HOLDFAST_STORE": self.store}

    # --- its life

    def start(self) -> None:
        """Returns as soon as connections are taken; a test that needs more asks `until_ready`."""
        log = (self.home / "up.log").open("ab")
        with log:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "up", "--json", "--port", str(self._port())],
                env=self.environ,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # So that a signal to the test's own group does not reach it.
                start_new_session=True,
            )
        assert self.supervisor.stdout is not None
        with self.supervisor.stdout as stdout:
            line = stdout.readline()
        assert line, f"it did not start:\n{self.log()}"
        self.url = json.loads(line)["urls"][0]

    def _port(self) -> int:
        """The same one after each start, so that clients find it again."""
        return 0 if not self.url else int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        assert self.supervisor is not None
        self.supervisor.send_signal(signal.SIGTERM)
        return self.supervisor.wait(PATIENCE_S)

    def end(self) -> None:
        """Nothing of it is left, whatever the test did."""
        if self.supervisor is None or self.supervisor.poll() is not None:
            return
        gateway = self.pid_of_gateway()
        self.supervisor.kill()
        self.supervisor.wait()
        if gateway is not None:
            kill(gateway)

    def log(self) -> str:
        path = self.home / "up.log"
        return path.read_text() if path.exists() else ""

    def world(self, name: str) -> list[str]:
        """What the agents did to it, line by line."""
        path = self.home / "world" / name
        return path.read_text().splitlines() if path.exists() else []

    def open_door(self, name: str) -> None:
        """The agent that waits for it goes on, in this life and in all later ones."""
        (self.home / "world" / f"{name}.open").touch()

    def pid_of_gateway(self) -> int | None:
        """The supervisor's only child, as the kernel knows it."""
        assert self.supervisor is not None
        pid = self.supervisor.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    # --- talking to it

    def call(self, method: str, /, **params: Any) -> Any:
        """Through the unix socket, as the CLI does. Raises OSError while no gateway answers."""
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE_S)
            one.connect(str(self.home / "gateway.sock"))
            frame = {"type": "req", "id": "1", "method": method, "params": params}
            one.sendall(json.dumps(frame).encode() + b"\n")
            with one.makefile("rb") as answers:
                line = answers.readline()
        if not line:
            raise ConnectionResetError(f"no answer to {method}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise RuntimeError(answer["error"])
        return answer["payload"]

    def ask(self, method: str, /, **params: Any) -> Any:
        """The same again and again, until it is answered: through a restart and through a crash."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.call(method, **params)
            except OSError:
                if time.monotonic() > give_up_at:
                    raise AssertionError(f"no gateway answers {method}:\n{self.log()}") from None
                time.sleep(0.02)

    def until_ready(self, *, unless_boot: str | None = None) -> dict[str, Any]:
        """Until it serves; another life than that one, if that is wanted."""
        status: dict[str, Any] = {}

        def is_ready() -> bool:
            nonlocal status
            status = self.ask("gateway.status")
            return bool(status["isReady"]) and status["bootId"] != unless_boot

        self.wait_for(is_ready, "it is not ready")
        return status

    def is_quiet(self) -> bool:
        """No message is being answered, and none waits."""
        sessions = self.ask("sessions.page", limit=200)["sessions"]
        return all(session["status"] == "idle" and not session.get("queued") for session in sessions)

    def wait_for(self, is_so: Any, what: str, *, patience_s: float = PATIENCE_S) -> None:
        give_up_at = time.monotonic() + patience_s
        while not is_so():
            assert time.monotonic() < give_up_at, f"{what}:\n{self.log()[-8000:]}"
            time.sleep(0.05)

    # --- the ways to interrupt it

    def restart_by_rpc(self) -> None:
        answer = self.call("gateway.restart", force=True, reason="the test wants it")
        assert answer["isAccepted"], answer

    def restart_by_signal(self) -> None:
        assert self.supervisor is not None
        self.supervisor.send_signal(signal.SIGUSR1)

    def restart_by_settings(self) -> None:
        gateway = self.settings.setdefault("gateway", {})
        gateway["capacity"] = 1000 + (gateway.get("capacity", 1000) + 1) % 1000
        self.save_settings()

    def kill_gateway(self) -> None:
        pid = self.pid_of_gateway()
        if pid is not None:
            kill(pid)

    def kill_both(self) -> None:
        assert self.supervisor is not None
        gateway = self.pid_of_gateway()
        self.supervisor.kill()
        if gateway is not None:
            kill(gateway)
        self.supervisor.wait()
        self.start()


class Cli:
    """The program on the home of a gateway, run in this process: it talks to the gateway as any other."""

    def __init__(self, one: GatewayHome) -> None:
        self._gateway = one

    def __call__(self, *arguments: str) -> Call:
        before = dict(os.environ)
        os.environ["HOLDFAST_HOME"] = str(self._gateway.home)
        if self._gateway.store is not None:
            os.environ["HOLDFAST_STORE"] = self._gateway.store
        try:
            with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    status = main(arguments)
                out.seek(0)
                err.seek(0)
                return Call(status=status, out=out.read(), err=err.read())
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def opened_ledger(one: GatewayHome) -> Iterator[Store]:
    """What its ledger says, once no process writes any more."""
    opened = app.open_store(one.store or f"sqlite:///{one.home / 'ledger.db'}", clock=SystemClock())
    try:
        yield opened
    finally:
        opened.close()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def gateway_home(
    home: Path,
    *,
    settings: Mapping[str, Any],
    store: str | None = None,
    world: Path | None = None,
    lease: timedelta | None = None,
) -> Iterator[GatewayHome]:
    one = GatewayHome(home, settings=settings, store=store, world=world, lease=lease)
    one.start()
    try:
        yield one
    finally:
        one.end()
