"""A ledger that cannot be written: the restart is refused and said to be, reads are answered, and when that
is mended the restart goes through and everything is done once."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.transitions import MessageStatus, RestartStatus
from holdfast.store.rows.conversation import message_from_row
from holdfast.store.verify import scan
from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home, opened_ledger
from tests.gateway.test_stubborn import Asked, say, settings
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

# What is said, and to whom.
SAID = {"first": "behaves", "second": "behaves", "sends": "sends"}
Trouble = Callable[[GatewayHome], contextlib.AbstractContextManager[None]]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts, and makes a file unwritable")


@contextlib.contextmanager
def no_file_grows(one: GatewayHome) -> Iterator[None]:
    """The kernel refuses every write of the gateway to a file, as a quota does."""
    pid = one.pid_of_gateway()
    assert pid is not None
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, most))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


@contextlib.contextmanager
def full_disk(one: GatewayHome) -> Iterator[None]:
    """Another program has filled it, to the last byte."""
    waste = one.home / "waste"
    with waste.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    try:
        yield
    finally:
        waste.unlink()


@contextlib.contextmanager
def read_only(one: GatewayHome) -> Iterator[None]:
    """As after an error of the disk: also what is open already cannot be written."""
    places = [str(path) for path in (one.home, *one.home.glob("ledger.db*")) if path.suffix != ".db-shm"]
    subprocess.run(["chattr", "+i", *places], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *places], check=True)


@contextlib.contextmanager
def small_disk(home: Path) -> Iterator[None]:
    """A file system of its own; what the agents do to the world is elsewhere."""
    home.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(home)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(home)], check=True)


def test_a_quota_blocks_the_restart(tmp_path: Path) -> None:
    refuse_before_the_drain(tmp_path / "home", no_file_grows)


def test_a_quota_blocks_the_restart_in_its_drain(tmp_path: Path) -> None:
    refuse_in_the_drain(tmp_path / "home", no_file_grows)


@needs_root
def test_a_full_disk_blocks_the_restart_in_its_drain(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home"):
        refuse_in_the_drain(tmp_path / "home", full_disk)


@needs_root
@pytest.mark.skipif(shutil.which("chattr") is None, reason="chattr is not installed")
def test_a_ledger_that_cannot_be_written_blocks_the_restart(tmp_path: Path) -> None:
    refuse_before_the_drain(tmp_path / "home", read_only)


def test_a_server_that_only_lets_us_read_blocks_the_restart_in_its_drain(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    owned = postgres_server.create_database()
    name = owned.removeprefix("postgresql://postgres@/").partition("?")[0]
    administer(owned, f"CREATE ROLE {name} LOGIN", f"ALTER DATABASE {name} OWNER TO {name}")

    @contextlib.contextmanager
    def only_reads(_one: GatewayHome) -> Iterator[None]:
        """At once, also for those who are connected already."""
        rights = "INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast"
        administer(owned, f"REVOKE {rights} FROM {name}")
        try:
            yield
        finally:
            administer(owned, f"GRANT {rights} TO {name}")

    refuse_in_the_drain(tmp_path / "home", only_reads, store=owned.replace("//postgres@", f"//{name}@"))


def administer(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as link:
        for statement in statements:
            link.execute(statement.encode())


@contextlib.contextmanager
def busy_gateway(home: Path, store: str | None) -> Iterator[GatewayHome]:
    with gateway_home(
        home, settings=settings(60.0, "behaves", "sends"), store=store, world=home.with_name("world")
    ) as one:
        one.until_ready()
        for text, agent in SAID.items():
            say(one, agent, text)
        one.wait_for(lambda: set(one.world("begun")) == set(SAID), "not all of them have begun")
        one.wait_for(lambda: one.world("sent") == ["sends"], "no effect is in flight")
        yield one


def refuse_before_the_drain(home: Path, trouble: Trouble, *, store: str | None = None) -> None:
    with busy_gateway(home, store) as one:
        boot = one.ask("gateway.status")["bootId"]
        with trouble(one):
            answer = one.call("gateway.restart", force=True, reason="too early")
            assert not answer["isAccepted"]
            assert answer["why"]
            assert_it_serves_reads(one, boot)
        check_the_rest(one, boot, "too early")


def refuse_in_the_drain(home: Path, trouble: Trouble, *, store: str | None = None) -> None:
    with busy_gateway(home, store) as one:
        boot = one.ask("gateway.status")["bootId"]
        with contextlib.ExitStack() as troubled:
            with Asked(one) as asked:
                one.wait_for(lambda: one.ask("gateway.status")["status"] == "draining", "it does not drain")
                troubled.enter_context(trouble(one))
                one.open_door("send")
            assert asked.answer is not None
            assert not asked.answer["isAccepted"]
            assert asked.answer["why"]
            assert_it_serves_reads(one, boot)
        check_the_rest(one, boot, "the test wants it")


def assert_it_serves_reads(one: GatewayHome, boot: str) -> None:
    status = one.call("gateway.status")
    assert (status["status"], status["bootId"]) == ("serving", boot)
    assert {session["key"] for session in one.call("sessions.list")["sessions"]} == {
        f"agent:{agent}:{text}" for text, agent in SAID.items()
    }
    (message,) = one.call("chat.history", sessionKey="agent:sends:sends")["messages"]
    assert message["text"] == "sends"
    with urllib.request.urlopen(f"{one.url}/healthz") as answer:
        assert answer.status == 200
    assert_it_is_said(one, status)
    # What cannot be kept is not acknowledged.
    with pytest.raises(RuntimeError, match="UNAVAILABLE"):
        one.call("chat.send", sessionKey="agent:behaves:late", message="late", idempotencyKey="late")


def assert_it_is_said(one: GatewayHome, status: Any) -> None:
    """A monitor that watches it knows that it cannot work, and why."""
    assert not status["isReady"]
    assert status["ledgerProblem"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{one.url}/readyz")
    with refused.value as answer:
        assert (answer.code, json.load(answer)["ledger"]) == (503, "away")
    shown = Cli(one)("status")
    assert shown.status == 1
    assert "serving" in shown.out
    assert status["ledgerProblem"].partition(" (")[0] in shown.out


def check_the_rest(one: GatewayHome, boot: str, reason: str) -> None:
    """It is mended: the restart goes through, and everything is done once."""
    blocked = one.ask("gateway.restarts")["restarts"]
    assert [(found["reason"], found["status"]) for found in blocked] == [(reason, "blocked")]
    say(one, "behaves", "late")
    one.open_door("send")
    answer = one.call("gateway.restart", force=True, reason="mended")
    assert answer["isAccepted"], answer
    one.until_ready(unless_boot=boot)
    one.open_door("mended")
    one.wait_for(lambda: one.is_quiet(), "not everything was answered")
    assert one.stop() == 0
    texts = [*SAID, "late"]
    assert Counter(one.world("planted")) == {
        f"{text} {when}": 1 for text in texts for when in ("before", "after")
    }
    assert one.world("sent") == ["sends"]
    assert one.world("intruded") == []
    assert "crashed" not in one.log()
    with opened_ledger(one) as ledger:
        assert_ledger_is_whole(ledger, is_at_rest=True)
        restarts = ledger.read_now(lambda tx: tx.restarts.page(10))
        assert [found.status for found in restarts] == [
            RestartStatus.DRAINED,
            RestartStatus.RECOVERED,
            RestartStatus.BLOCKED,
        ]
        messages = ledger.read_now(
            lambda tx: [message_from_row(row, tx.sealing) for row in scan(tx, "messages", 1)]
        )
    asked: list[Any] = [found for found in messages if found.role.value == "user"]
    assert sorted(found.text for found in asked) == sorted(texts)
    assert {found.status for found in asked} == {MessageStatus.ANSWERED}
