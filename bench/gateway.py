"""The gateway from outside, in its own processes: back after a kill, ready after a start, messages taken."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

import holdfast as hf
from bench import raw
from bench.history import fill
from bench.measure import Report
from holdfast.config.token import TOKEN_NAME
from holdfast.core.message import Envelope
from holdfast.store import Store

RUNS = 1000
CLIENTS = 32
PATIENCE_S = 600.0
ROOT = Path(__file__).resolve().parents[1]

_salts = itertools.count()

# The same gateway, but each run is resumed and claimed in commits of its own.
ONE_BY_ONE = """
import sys
from holdfast.engine.worker import taking
from holdfast.engine.recovery import resume
taking.BATCH = 1
resume.Resumer.resume_all.__kwdefaults__["batch"] = 1
from holdfast.cli.main import main
sys.exit(main())
"""
TOGETHER = """
import sys
from holdfast.cli.main import main
sys.exit(main())
"""
# What a program needs that serves one route over HTTP in Python.
BARE_SERVER = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def status(request):
    return JSONResponse({"is_ready": True})

uvicorn.run(Starlette(routes=[Route("/", status)]), uds=sys.argv[1], log_level="critical")
"""

# --- what the gateways of the bench do


async def begin(number: int) -> int:
    return number


@hf.task(name="bench.waiting")
async def waiting(run: hf.Run, number: int) -> None:
    """In flight for as long as its process lives, with one step saved."""
    await run.step(begin, number)
    await asyncio.Event().wait()


async def silent(message: Envelope) -> str:
    """Its session is busy for ever: what else is said there is stored, acknowledged and waits."""
    await asyncio.Event().wait()
    return message.text


# --- one gateway


class Gateway:
    """A gateway in a home of its own, without a supervisor between it and the clock."""

    def __init__(self, home: Path, url: str, settings: Mapping[str, Any]) -> None:
        self.home = home
        self._url = url
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "holdfast.json").write_text(json.dumps(settings))
        self.socket = home / "gateway.sock"
        self.port = 0

    def start(self, script: str = TOGETHER) -> None:
        self.socket.unlink(missing_ok=True)
        with contextlib.ExitStack() as ours:
            unix = ours.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(str(self.socket))
            unix.listen(4096)
            tcp = ours.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
            self.port = tcp.getsockname()[1]
            life, self._life = os.pipe()
            tell = os.open(os.devnull, os.O_WRONLY)
            for number in (life, tell):
                ours.callback(os.close, number)
            supervised = {
                "tcp_fds": [tcp.fileno()],
                "unix_fd": unix.fileno(),
                "life_fd": life,
                "tell_fd": tell,
            }
            with (self.home / "gateway.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", script, "gateway", "child"],
                    env=environ_of(self.home, self._url) | {"HOLDFAST_SUPERVISED": json.dumps(supervised)},
                    cwd=self.home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(tcp.fileno(), unix.fileno(), life, tell),
                    start_new_session=True,
                )

    def kill(self) -> None:
        """Nothing is left of it but what is durable."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            os.close(self._life)
        self._process = None

    def memory_mib(self) -> float:
        """What the process has in memory now."""
        assert self._process is not None
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the gateway is gone")

    def processor_s(self) -> float:
        """Processor time that the process has used."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until(self, is_so: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not is_so():
            if self._process is None or self._process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError((self.home / "gateway.log").read_text()[-4000:])
            time.sleep(0.005)

    def is_ready(self) -> bool:
        return is_ready(self.socket)


def environ_of(home: Path, url: str | None) -> dict[str, str]:
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    store = {} if url is None else {"HOLDFAST_STORE": url}
    return {**os.environ, "PYTHONPATH": python_path, "HOLDFAST_HOME": str(home), **store}


def is_ready(path: Path) -> bool:
    """Whether a gateway says so through its unix socket."""
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(path))
            one.sendall(b'{"type":"req","id":"1","method":"gateway.status","params":{}}\n')
            with one.makefile("rb") as answers:
                return bool(json.loads(answers.readline() or "{}").get("payload", {}).get("isReady"))
    except OSError:
        return False


@contextlib.contextmanager
def gateway(home: Path, url: str, settings: Mapping[str, Any]) -> Iterator[Gateway]:
    one = Gateway(home, url, settings)
    try:
        yield one
    finally:
        one.kill()


# --- killed with a thousand runs


def back_after_kill(home: Path, url: str, open_store: Callable[[], Store], script: str, runs: int) -> float:
    """Seconds from the start of a process until it carries all that the killed one had carried."""
    settings: dict[str, Any] = {"tasks": ["bench.gateway:waiting"], "gateway": {"capacity": max(runs, 1000)}}
    if script is ONE_BY_ONE:
        settings["gateway"]["restart"] = {"resume_concurrency": 1}
    asyncio.run(_start_tasks(url, runs))
    store = open_store()

    def counts() -> dict[str, int]:
        return store.read_now(lambda tx: tx.events.counts("run"))

    try:
        with gateway(home, url, settings) as one:
            one.start()
            one.until(lambda: counts().get("running", 0) == runs and one.is_ready())
            one.until(lambda: store.read_now(lambda tx: len(tx.boots.in_flight())) == 1)
            one.kill()
            started = time.perf_counter()
            one.start(script)
            one.until(lambda: (found := counts()).get("resumed") == found.get("running") == runs)
            return time.perf_counter() - started
    finally:
        store.close()


async def _start_tasks(url: str, runs: int) -> None:
    async with hf.open(url) as holdfast:
        for first in range(0, runs, 500):
            await holdfast.start_many([waiting(n) for n in range(first, min(first + 500, runs))])


# --- from start to ready


def up_to_ready(home: Path) -> float:
    """Seconds of `holdfast up`, supervisor and all, until it says that it is ready."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "holdfast.json").write_text("{}")
    command = [sys.executable, "-m", "holdfast", "up", "--port", "0"]
    return _seconds_to_ready(command, home, lambda: is_ready(home / "gateway.sock"))


def bare_to_ready(home: Path) -> float:
    """The same of a process that has one route and no ledger."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / f"bare-{next(_salts)}.sock"

    def answers() -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(path))
                one.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return one.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    return _seconds_to_ready([sys.executable, "-c", BARE_SERVER, str(path)], home, answers)


def _seconds_to_ready(command: list[str], home: Path, is_up: Callable[[], bool]) -> float:
    started = time.perf_counter()
    with (home / "up.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environ_of(home, None),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while not is_up():
            if process.poll() is not None or time.perf_counter() - started > PATIENCE_S:
                raise RuntimeError((home / "up.log").read_text()[-4000:])
            time.sleep(0.005)
        return time.perf_counter() - started
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


# --- messages


def message(client: int, number: int) -> dict[str, object]:
    salt = next(_salts)
    return {
        "sessionKey": f"agent:silent:c{client}",
        "message": f"{number}: what is the answer, in a few words?",
        "idempotencyKey": f"{client}-{number}-{salt}",
    }


async def through_unix_socket(one: Gateway, client: int, count: int) -> None:
    reader, writer = await asyncio.open_unix_connection(str(one.socket))
    for number in range(count):
        frame = {"type": "req", "id": number, "method": "chat.send", "params": message(client, number)}
        writer.write(json.dumps(frame).encode() + b"\n")
        answer = json.loads(await reader.readline())
        if not answer["ok"]:
            raise RuntimeError(answer)
    writer.close()


async def through_http(one: Gateway, client: int, count: int) -> None:
    """One connection that is kept, as a client would; written by hand, so that the client costs little."""
    token = (one.home / TOKEN_NAME).read_text().strip()
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    head = (
        f"POST /rpc/chat.send HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    for number in range(count):
        body = json.dumps(message(client, number)).encode()
        writer.write(head + str(len(body)).encode() + b"\r\n\r\n" + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in answer.split(b"\r\n") if line[:15].lower() == b"content-length:"
        )
        body = await reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(body)
    writer.close()


Send = Callable[[Gateway, int, int], Awaitable[None]]


async def rate(send: Callable[[int, int], Awaitable[None]], clients: int, each: int) -> float:
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for client in range(clients):
            group.create_task(_one_client(send, client, each))
    return clients * each / (time.perf_counter() - started)


async def _one_client(send: Callable[[int, int], Awaitable[None]], client: int, each: int) -> None:
    await send(client, each)


def raw_rate(group: raw.GroupCommit, clients: int, each: int) -> float:
    """As many callers, each waiting for its row to be durable, with the smallest group commit."""
    salt = str(next(_salts))

    async def send(client: int, count: int) -> None:
        for number in range(count):
            await group.write(raw.step_values(client, number, salt))

    return asyncio.run(rate(send, clients, each))


def bench_messages(
    report: Report, kind: str, home: Path, url: str, group: raw.GroupCommit, size: int
) -> None:
    doors: dict[str, Send] = {"unix socket": through_unix_socket, "POST /rpc/chat.send": through_http}
    names = {
        (door, clients): f"{kind}: messages, {clients} client{'s' * (clients > 1)}, {door} / durable inserts"
        for door in doors
        for clients in (1, CLIENTS)
    }
    if not any(report.wants(name) for name in names.values()):
        return
    settings = {
        "agents": {"silent": {"callable": "bench.gateway:silent"}},
        "gateway": {"rate_limit_per_s": 1e6},
    }
    with gateway(home, url, settings) as one:
        one.start()
        one.until(one.is_ready)
        for (door, clients), name in names.items():
            each = max(1, size // 4 if clients == 1 else 2 * size // clients)

            def ours(door: str = door, clients: int = clients, each: int = each) -> float:
                return asyncio.run(rate(lambda client, count: doors[door](one, client, count), clients, each))

            ours()  # until the sessions are there, and the file has its size
            report.rates(
                name,
                ours,
                lambda clients=clients, each=each: raw_rate(group, clients, each),  # type: ignore[misc]
                target=None,
                rounds=5,
            )


# --- all of it


def bench_sqlite(
    report: Report,
    directory: Path,
    open_store: Callable[[Path], Store],
    *,
    size: int,
    runs: int,
    finished: int,
) -> None:
    def back(script: str) -> float:
        home = directory / f"gw-{next(_salts)}"
        path = home / "ledger.db"
        return back_after_kill(home, f"sqlite:///{path}", lambda: open_store(path), script, runs)

    report.times(
        f"SQLite: {runs:,} runs killed with their gateway, all running again / one at a time",
        lambda: back(TOGETHER),
        lambda: back(ONE_BY_ONE),
        target=None,
        rounds=3,
    )
    name = "SQLite: `holdfast up`, start to ready, empty home / a bare HTTP server"
    report.times(
        name,
        lambda: up_to_ready(directory / f"up-{next(_salts)}"),
        lambda: bare_to_ready(directory / "bare"),
        target=None,
        rounds=7,
    )
    name = f"SQLite: `holdfast up`, start to ready, {finished:,} finished / empty home"
    if report.wants(name):
        long = directory / "up-long"
        store = open_store(long / "ledger.db")
        fill(store, finished)
        store.close()
        report.times(
            name,
            lambda: up_to_ready(long),
            lambda: up_to_ready(directory / f"up-{next(_salts)}"),
            target=None,
            rounds=7,
        )
    if report.wants("SQLite: messages"):
        home = directory / "messages"
        connection = raw.sqlite_connection(directory / f"raw-messages-{next(_salts)}.db")
        group = raw.GroupCommit(raw.commit_on_sqlite(connection, has_savepoints=True))
        try:
            bench_messages(report, "SQLite", home, f"sqlite:///{home / 'ledger.db'}", group, size)
        finally:
            group.close()
            connection.close()


def bench_postgres(
    report: Report,
    directory: Path,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    size: int,
    runs: int,
) -> None:
    def back(script: str) -> float:
        url = create_database()
        home = directory / f"gw-{next(_salts)}"
        return back_after_kill(home, url, lambda: open_store(url), script, runs)

    report.times(
        f"PostgreSQL: {runs:,} runs killed with their gateway, all running again / one at a time",
        lambda: back(TOGETHER),
        lambda: back(ONE_BY_ONE),
        target=None,
        rounds=3,
    )
    if report.wants("PostgreSQL: messages"):
        with psycopg.connect(create_database(), autocommit=True) as connection:
            connection.execute(raw.POSTGRES_TABLE)
            group = raw.GroupCommit(raw.commit_on_postgres(connection))
            try:
                bench_messages(
                    report, "PostgreSQL", directory / "messages-pg", create_database(), group, size
                )
            finally:
                group.close()
