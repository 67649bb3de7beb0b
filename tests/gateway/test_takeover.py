"""One of two gateways on a server is killed: the other takes over as soon as its lease has lapsed, and tells
the people who must be told; once, also when the dead one comes back or the survivor dies of it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from holdfast.channels.webhook import KEY_HEADER, SIGNATURE_HEADER, sign
from holdfast.core.manifest import ActiveSession, Restart
from holdfast.core.run import RunRecord
from holdfast.core.transitions import DeliveryStatus, RestartStatus, RunStatus
from holdfast.store.rows.conversation import delivery_from_row
from holdfast.store.rows.journal import step_from_row
from holdfast.store.verify import scan
from tests.channels.receiver import Receiver
from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import PATIENCE_S, GatewayHome, gateway_home, kill
from tests.gateway.test_two_gateways import LedgerOfBoth, ledger_of_both, until
from tests.gateway.two_gateway_agents import BEDS, WAITS
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

SECRET = b"0123456789abcdef0123456789abcdef"
PEERS = ("ada", "ben")
# Whose the peers are: two accounts at the other end may know the same peer.
ACCOUNT = "team-sea"
CHILD = "seedling()"
# Longer than the pause between two looks of the survivor, and than a busy machine keeps a gateway waiting.
LEASE = timedelta(seconds=4)
# About as long as a gateway takes to start.
STARTING = timedelta(seconds=1.5)
# What a busy machine may add to the lease.
SCHEDULING = timedelta(seconds=2.5)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "gate"
    monkeypatch.setenv("GATE_FILE", str(path))
    return path


def settings(receiver: Receiver) -> dict[str, Any]:
    return {
        "tasks": ["tests.gateway.two_gateway_agents:seedling"],
        "channels": {
            "hooks": {"kind": "webhook", "secretFile": "hooks.secret", "url": receiver.url, "agent": "sower"}
        },
        "agents": {
            name: {"callable": f"tests.gateway.two_gateway_agents:{name}"} for name in ("sower", "guardian")
        },
    }


def opened(home: Path, receiver: Receiver, store: str) -> Any:
    home.mkdir(mode=0o700)
    secret = home / "hooks.secret"
    secret.touch(mode=0o600)
    secret.write_bytes(SECRET)
    return gateway_home(home, settings=settings(receiver), store=store, lease=LEASE)


def post(one: GatewayHome, peer: str) -> None:
    said = {"messageId": peer, "text": f"{WAITS}-{peer}", "peer": peer, "accountId": ACCOUNT}
    content = json.dumps(said).encode()
    headers = {
        "Content-Type": "application/json",
        SIGNATURE_HEADER: sign(SECRET, content, datetime.now(UTC)),  # noqa: TID251 - a real one
    }
    with urlopen(Request(f"{one.url}/channels/hooks", data=content, headers=headers), timeout=PATIENCE_S):
        pass


def kill_for_good(one: GatewayHome) -> None:
    """The supervisor must not start it again, and must not die first: it would drain."""
    assert one.supervisor is not None
    pid = one.pid_of_gateway()
    one.supervisor.send_signal(signal.SIGSTOP)
    assert pid is not None
    kill(pid)
    one.supervisor.kill()
    one.supervisor.wait()


def until_almost_lapsed(found: LedgerOfBoth, lost: dict[str, RunRecord]) -> None:
    """Until the first lease of the dead ends so soon that a gateway which starts now meets the survivor."""
    first = min(one.lease_until for one in lost.values() if one.lease_until is not None)
    until(lambda: found.store.clock.now() >= first - STARTING, "its leases do not end")


def carried(found: LedgerOfBoth) -> list[RunRecord]:
    return [one for one in found.runs() if one.status is RunStatus.RUNNING]


@pytest.mark.parametrize("who", ["nobody", "the dead one", "the survivor"])
def test_a_killed_gateway_is_taken_over_from_and_everybody_is_told_once_whichever_gateway_comes_back(
    tmp_path: Path, gate: Path, postgres_server: PostgresServer, who: str
) -> None:
    url = postgres_server.create_database()
    with (
        Receiver().listening() as receiver,
        ledger_of_both(url) as found,
        opened(tmp_path / "a", receiver, url) as a,
    ):
        found.prepare()
        a.until_ready()
        for peer in PEERS:
            post(a, peer)
        a.ask("chat.send", sessionKey="agent:guardian:g", message="grow", idempotencyKey="g")
        until(lambda: is_busy(found), "they do not come to the gate", a)
        with opened(tmp_path / "b", receiver, url) as b:
            boot = b.until_ready()["bootId"]
            kill_for_good(a)
            lost: dict[str, RunRecord] = {one.id: one for one in carried(found)}
            assert tasks_of(found, lost) >= {f"{WAITS}-{peer}" for peer in PEERS} | {CHILD}
            assert_leases_are_real(lost)
            if who == "the dead one":
                # At the same moment its leases lapse and it is started again.
                until_almost_lapsed(found, lost)
                a.start()
                a.until_ready()
            if who == "the survivor":
                until(lambda: restarts(found) != [], "no gateway takes over", b)
                b.kill_gateway()
                b.until_ready(unless_boot=boot)
            until(lambda: is_taken_over(found, lost), "it was not taken over", a, b)
            if who == "nobody":
                assert_taken_over_when_the_lease_had_lapsed(found, lost)
            gate.touch()
            until(lambda: found.unanswered() == [], "not everything was answered", a, b)
            until(lambda: has_delivered(found), "not everything was delivered", a, b)
            if who == "nobody":
                a.start()
                a.until_ready()
            assert a.supervisor is not None
            if a.supervisor.poll() is None:
                assert a.stop() == 0
            assert b.stop() == 0
        # A survivor that dies may have begun with what it took over; then that is interrupted once more.
        check(found, receiver, lost, most=2 if who == "the survivor" else 1)


def is_busy(found: LedgerOfBoth) -> bool:
    """Those who talk have sown their first bed, and the child has begun."""
    steps = found.store.read_now(lambda tx: [step_from_row(row, tx.sealing) for row in scan(tx, "steps", 4)])
    sown = found.store.read_now(lambda tx: scan(tx, "effects", 6))
    return any(one.name == "sprout" for one in steps) and len(list(sown)) >= len(PEERS)


def tasks_of(found: LedgerOfBoth, runs: dict[str, RunRecord]) -> set[str]:
    goals = {one.id: one.goal for one in found.tasks()}
    return {goals[one.task_id] for one in runs.values()}


def is_taken_over(found: LedgerOfBoth, lost: dict[str, RunRecord]) -> bool:
    """Whether all of it is carried again, by runs that follow up: also by the second one, when the first was
    on its way already while its gateway was killed."""
    runs, again = {one.id: one for one in found.runs()}, set()
    for one in runs.values():
        before = one.resumes_run_id if one.status in {RunStatus.RUNNING, RunStatus.WAITING} else None
        while before is not None:
            again.add(before)
            before = runs[before].resumes_run_id
    return lost.keys() <= again


def assert_leases_are_real(lost: dict[str, RunRecord]) -> None:
    """None ends sooner than one length after its holder claimed or renewed it: the test has moved nothing."""
    for one in lost.values():
        assert one.lease_until is not None
        assert one.beat_at is not None
        assert one.lease_until - one.beat_at >= LEASE


def active(crashes: list[Restart]) -> list[ActiveSession]:
    return [one for crash in crashes for one in crash.manifest.active_sessions]


def restarts(found: LedgerOfBoth) -> list[Any]:
    return found.store.read_now(lambda tx: tx.restarts.page())


def has_delivered(found: LedgerOfBoth) -> bool:
    owed = found.store.read_now(
        lambda tx: [delivery_from_row(row, tx.sealing) for row in scan(tx, "deliveries", 1)]
    )
    return all(one.status is DeliveryStatus.DELIVERED for one in owed)


def assert_taken_over_when_the_lease_had_lapsed(found: LedgerOfBoth, lost: dict[str, RunRecord]) -> None:
    """By the times in the ledger, which all have one clock: the lease as its holder left it, and the
    follow-up run."""
    follow_ups = [one for one in found.runs() if one.resumes_run_id in lost]
    assert len(follow_ups) == len(lost)
    for one in follow_ups:
        assert one.resumes_run_id is not None
        lease_until = lost[one.resumes_run_id].lease_until
        assert lease_until is not None
        late = one.created_at - lease_until
        print(f"{one.id}: {late.total_seconds():.3f} s after the end of the lease")
        assert timedelta(0) <= late <= SCHEDULING


def check(found: LedgerOfBoth, receiver: Receiver, lost: dict[str, RunRecord], most: int) -> None:
    """For each interruption one notice and one message to the parent; each answer once."""
    crashes = [one for one in restarts(found) if one.manifest.reason == "crash"]
    assert {one.status for one in crashes} == {RestartStatus.RECOVERED}
    times = Counter(was.task_id for one in crashes for was in one.manifest.interruptions)
    assert times.keys() == {one.task_id for one in lost.values()}
    assert set(times.values()) <= set(range(1, most + 1))
    goals = {one.id: one.goal for one in found.tasks()}
    wanted = {goals[task_id]: number for task_id, number in times.items()}
    letters = [one.json for one in receiver.accepted.values()]
    if most == 1:
        assert len(receiver.requests) == len(receiver.accepted)
    # Else one that was killed while it sent has a successor, which sends the same again with its key.
    sent = Counter(one.headers[KEY_HEADER] for one in receiver.requests)
    assert sent.keys() == receiver.accepted.keys()
    assert max(sent.values()) <= most
    assert all(one.json == receiver.accepted[one.headers[KEY_HEADER]].json for one in receiver.requests)
    assert {one["accountId"] for one in letters} == {ACCOUNT}
    assert {one.key for one in active(crashes) if one.channel == "hooks"} == {
        f"agent:sower:hooks@{ACCOUNT}:{peer}" for peer in PEERS
    }
    notices = Counter(one["peer"] for one in letters if "Resumed after restart" in one["text"])
    assert notices == {peer: wanted[f"{WAITS}-{peer}"] for peer in PEERS}
    answers = Counter(one["text"] for one in letters if "Resumed" not in one["text"])
    assert answers == {f"{WAITS}-{peer}: {BEDS} beds": 1 for peer in PEERS}
    (grown,) = [one.text for one in found.messages() if one.text.startswith("grow:")]
    assert grown == f"grow: grown, told True, again {wanted[CHILD] > 1}"
    assert_ledger_is_whole(found.store)
