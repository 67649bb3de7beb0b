"""A gateway for the doors' tests: a real store, inbox and sockets; only the process is stood in for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import msgspec
import uvicorn.server
from websockets.sync.client import ClientConnection, connect

from holdfast.api.contract import READ, WRITE, Caller
from holdfast.api.server import Webhooks, serve_doors
from holdfast.api.tls import Certificates
from holdfast.api.tokens import Tokens
from holdfast.app.flows import find_flow
from holdfast.config.sections import AgentSettings, Config, GatewaySettings
from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import RestartBlocked
from holdfast.core.flow_definition import FlowDefinition
from holdfast.core.hold import Hold
from holdfast.core.manifest import Restart
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.client.end_watcher import EndWatcher
from holdfast.engine.producers.contract import Runtime
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.gateway.audit import AuditRecorder
from holdfast.gateway.gateway import GatewayPhase, GatewayStatus, RestartAnswer, RestartRequest
from holdfast.gateway.inbox import Inbox
from holdfast.gateway.readiness import Readiness, interruptions
from holdfast.store import Store, Tx
from holdfast.store.boot_proofs import BootProofs
from holdfast.store.locks import HomeLock
from holdfast.store.outer_keys import FileKey
from holdfast.store.sealing import Vault
from holdfast.store.sqlite import SqliteStore
from holdfast.upkeep.projection import Projection
from holdfast.upkeep.sweep import Sweep
from holdfast.web.dashboard import Dashboard
from tests.new_ledgers import put_new_ledger

TOKEN = "hf_test_" + "a1" * 32
READ_TOKEN = "hf_test_" + "b2" * 32
OWNER_TOKEN = "hf_test_" + "c3" * 32
OWNER = "plugin of ada"
QUICK = GatewaySettings(rate_limit_per_s=100_000.0)


def agents() -> dict[str, AgentSettings]:
    return {"ada": AgentSettings(callable="tests.api.stand_in:agents")}


class StandIn:
    """What the doors ask of a gateway, over a real store."""

    def __init__(self, store: Store, config: Config, home: Path) -> None:
        self.store = store
        self.home = home
        self.urls = ["http://127.0.0.1:4653"]
        self.clock: Clock = SystemClock()
        self.config = config
        self.sources: dict[str, str] = {}
        self.tasks: dict[str, TaskDefinition[..., Any]] = {}
        self.inbox = Inbox(store, self.clock)
        self.now = GatewayPhase.SERVING
        self.is_safe = True
        self.troubles = TroubleLog()
        self.holds: tuple[Hold, ...] = ()
        self.ledger_problem: str | None = None
        self.settings_refused: str | None = None
        self.wishes: list[RestartRequest] = []
        self.stops: list[str] = []
        # Why neither a restart nor a stop can be had.
        self.problem: str | None = None
        self.unwritten: list[Restart] = []
        self.started_at = self.clock.now()
        self.audit = AuditRecorder(self.store, self.clock)
        self.runtimes: list[Runtime] = []
        self.sweep = Sweep(self.store, self.clock)
        self.ends = EndWatcher(self.store)

    def status(self) -> GatewayStatus:
        return GatewayStatus(
            status=self.now,
            boot_id="boot_stand_in",
            pid=1,
            started_at=self.started_at,
            is_ready=self.now is GatewayPhase.SERVING and self.ledger_problem is None,
            in_flight=0,
            holds=self.holds,
            ledger_problem=self.ledger_problem,
            settings_refused=self.settings_refused,
        )

    async def look(self, *, at_most_old_s: float = 0.0) -> GatewayStatus:  # noqa: ARG002 - it looks at nothing
        return self.status()

    def projection(self) -> Projection:
        return Projection(BootProofs(None, ""), self.clock.now())

    def find_flow(self, name: str) -> FlowDefinition:
        return find_flow(self.config, name)

    async def preflight(self) -> Readiness:
        def read(tx: Tx) -> Readiness:
            found = interruptions(tx, [task.id for task in tx.tasks.page(limit=10)])
            return Readiness(is_safe=self.is_safe, threshold=0, interruptions=tuple(one for one, _ in found))

        return await self.store.read(read)

    async def restart(self, request: RestartRequest) -> RestartAnswer:
        readiness = await self.preflight()
        if not readiness.is_safe and not request.force:
            return RestartAnswer(is_accepted=False, why="too many are in flight", readiness=readiness)
        if self.problem is not None:
            return RestartAnswer(is_accepted=False, why=self.problem, readiness=readiness)
        self.wishes.append(request)
        return RestartAnswer(is_accepted=True, restart_id="rst_one", readiness=readiness)

    async def stop(self, why: str, *, triggered_by: str) -> None:
        if self.problem is not None:
            raise RestartBlocked(self.problem)
        self.stops.append(f"{why} ({triggered_by})")

    async def let_resume(self) -> int:
        return 3

    async def restarts(self, limit: int = 20, before: str = "~") -> list[Restart]:
        unwritten = [one for one in self.unwritten if one.id < before]
        return [*unwritten, *await self.store.read(lambda tx: tx.restarts.page(limit, before))]


class ServedDoors:
    """The doors of one gateway in a thread of their own, and the ways in."""

    def __init__(
        self,
        gateway: StandIn,
        home: Path,
        *,
        webhooks: Webhooks | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.certificates = certificates
        self.gateway = gateway
        self.home = home
        self.tokens = Tokens.of(
            TOKEN,
            {
                READ_TOKEN: Caller(who="board", scopes=frozenset({READ})),
                OWNER_TOKEN: Caller(who="plugin", scopes=frozenset({READ, WRITE}), owner=OWNER),
            },
        )
        self._webhooks = webhooks
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._tcp.getsockname()[1]
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(str(home / "gateway.sock"))
        self._unix.listen(100)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_up = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        # One for all: to make one reads every certificate of this machine.
        self.http = httpx.Client(verify=False, timeout=20, trust_env=False)

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificates is not None else ''}://127.0.0.1:{self.port}"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the test that waits for it
            self.failure = error
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._is_up.set()
        await serve_doors(
            self.gateway,
            tcp_sockets=[self._tcp],
            unix_socket=self._unix,
            tokens=self.tokens,
            stop=self._stop,
            webhooks=self._webhooks,
            pages=Dashboard(),
            certificates=self.certificates,
        )

    def __enter__(self) -> ServedDoors:
        self._thread.start()
        assert self._is_up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert self.failure is None, self.failure

    def stop_soon(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        self.http.close()
        self.stop_soon()
        self._thread.join(20)
        assert not self._thread.is_alive()

    # --- the ways in

    def post(
        self, method: str, params: object = None, *, token: str | None = TOKEN, **headers: str
    ) -> httpx.Response:
        sent = {"content-type": "application/json"} | {
            name.replace("_", "-"): v for name, v in headers.items()
        }
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        body = params if isinstance(params, bytes) else msgspec.json.encode(params or {})
        return self.http.post(f"{self.url}/rpc/{method}", content=body, headers=sent)

    def get(self, path: str, *, token: str | None = TOKEN, **headers: str) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        return self.http.get(f"{self.url}{path}", headers=sent)

    @contextlib.contextmanager
    def websocket(self, path: str = "/", **options: Any) -> Iterator[Client]:
        where = f"ws://127.0.0.1:{self.port}{path}"
        options = {"compression": None, "max_size": 2**24, "open_timeout": 20, "close_timeout": 2} | options
        with connect(where, **options) as way:
            yield Client(way)


class Client:
    """One WebSocket, as a client of the protocol uses it."""

    def __init__(self, way: ClientConnection) -> None:
        self.way = way
        self._number = 0
        self.events: list[Any] = []

    def read(self, timeout: float = 20) -> Any:
        return msgspec.json.decode(self.way.recv(timeout=timeout))

    def send(self, frame: object) -> None:
        self.way.send(msgspec.json.encode(frame).decode())

    def challenge(self) -> Any:
        frame = self.read()
        assert frame["event"] == "connect.challenge"
        return frame

    def connect(self, token: str | None = TOKEN, **changes: Any) -> Any:
        """After the challenge: the answer to `connect`."""
        self.challenge()
        params = {
            "minProtocol": 4,
            "maxProtocol": 4,
            "client": {"id": "cli", "version": "1", "platform": "linux", "mode": "cli", "instanceId": "x"},
            "caps": [],
            "auth": {} if token is None else {"token": token},
            "role": "operator",
            "scopes": ["operator.read", "operator.write", "operator.admin"],
        }
        return self.call("connect", params | changes)

    def call(self, method: str, params: object = None) -> Any:
        """The response; events that come before it are kept."""
        self._number += 1
        request = {"type": "req", "id": str(self._number), "method": method}
        self.send(request if params is None else request | {"params": params})
        while (frame := self.read())["type"] == "event":
            self.events.append(frame)
        assert frame["id"] == str(self._number)
        return frame


async def _tick(delay: float, result: object = None) -> Any:
    return await asyncio.sleep(delay / 20, result)


@contextlib.contextmanager
def _quick_ticks() -> Iterator[None]:
    """uvicorn looks ten times a second whether it shall end, and then waits as long again."""
    quick = SimpleNamespace(**vars(asyncio) | {"sleep": _tick})
    with mock.patch.object(uvicorn.server, "asyncio", quick):
        yield


@contextlib.contextmanager
def served_doors(
    home: Path,
    *,
    settings: GatewaySettings = QUICK,
    webhooks: Webhooks | None = None,
    certificates: Certificates | None = None,
) -> Iterator[ServedDoors]:
    """A gateway that serves in this home and holds it."""
    home.mkdir(mode=0o700, exist_ok=True)
    lock = HomeLock.take(home, role="gateway")
    ledger = home / "ledger.db"
    if not ledger.exists():
        put_new_ledger(ledger)
    store = SqliteStore(ledger, clock=SystemClock(), vault=Vault(FileKey(home / "key")))
    try:
        config = Config(gateway=settings, agents=agents())
        gateway = StandIn(store, config, home)
        with (
            _quick_ticks(),
            ServedDoors(gateway, home, webhooks=webhooks, certificates=certificates) as house,
        ):
            yield house
    finally:
        store.close()
        lock.release()
