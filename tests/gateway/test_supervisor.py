"""The supervisor with real children, real signals and real sockets."""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.gateway.sockets import listen
from holdfast.gateway.supervisor import GatewayProcess, Supervisor
from tests.gateway.children.supervisor_process import (
    PATIENCE_S,
    QUICK,
    SupervisorProcess,
    is_running,
    supervising,
)

CONTAINER = ["unshare", "--pid", "--fork", "--kill-child"]
# A silence that no machine causes by being slow.
STUCK = {**QUICK, "stuck_after_s": 2.0, "stuck_grace_s": 0.2}


# --- what a child gets


@pytest.mark.slow
def test_a_child_gets_exactly_the_descriptors_of_the_contract(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("serves")
        given = supervisor.lives()[0]
        open_fds = {int(path.name) for path in Path(f"/proc/{supervisor.child}/fd").iterdir()}

    own = 2  # the pipe of its signals
    fds = {*given["tcp_fds"], given["unix_fd"], given["life_fd"], given["tell_fd"]}
    assert fds | {0, 1, 2} <= open_fds
    assert len(open_fds) == len(fds) + 3 + own
    assert (given["holds_resumes"], given["why"], given["crashes"]) == (False, "start", 0)


@pytest.mark.slow
def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("serves")

        assert os.getsid(supervisor.child) == supervisor.child
        assert os.getsid(supervisor.process.pid) != supervisor.child


@pytest.mark.slow
def test_it_serves_on_both_sockets(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        assert supervisor.ask("by TCP") == (supervisor.child, "by TCP")
        assert supervisor.ask_locally("by a path") == (supervisor.child, "by a path")


# --- no request is refused


class EagerClient(threading.Thread):
    """Connects all the time. A connection that was accepted may break; then the same is sent again."""

    def __init__(self, supervisor: SupervisorProcess) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._is_over = threading.Event()
        self.answered = 0
        self.refused: list[OSError] = []

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._supervisor.ask(f"message {self.answered}")
                self.answered += 1
            except (ConnectionResetError, BrokenPipeError):
                pass
            except OSError as error:
                self.refused.append(error)

    def stop(self) -> None:
        self._is_over.set()
        self.join(PATIENCE_S)


@pytest.mark.slow
def test_a_client_is_never_refused_through_ten_restarts_and_two_crashes(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("is ready")
        clients = [EagerClient(supervisor) for _ in range(3)]
        for client in clients:
            client.start()
        for number in range(12):
            before = supervisor.child
            if number in (4, 9):
                os.kill(before, signal.SIGKILL)
            else:
                supervisor.signal(signal.SIGUSR1)
            supervisor.read_until("is ready")
            assert supervisor.ask()[0] == supervisor.child != before
        for client in clients:
            client.stop()
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0
    assert [client.refused for client in clients] == [[], [], []]
    assert min(client.answered for client in clients) > 12
    assert len(supervisor.lives()) == 13


@pytest.mark.slow
@pytest.mark.usefixtures("hangups_are_heard")
def test_hundreds_of_clients_wait_while_no_gateway_lives(tmp_path: Path) -> None:
    with supervising(
        tmp_path, "crash,serve", patience={"first_wait_s": 600.0, "longest_wait_s": 600.0}
    ) as supervisor:
        supervisor.read_until("starting it again in")
        ways = [socket.create_connection(("127.0.0.1", supervisor.port), PATIENCE_S) for _ in range(500)]
        for way in ways:
            way.sendall(b"hello")
        supervisor.signal(signal.SIGHUP)
        answers = [way.recv(100) for way in ways]
        for way in ways:
            way.close()

    assert answers == [f"{supervisor.child} hello".encode()] * 500


# --- the end of a supervisor


@pytest.mark.slow
def test_when_the_supervisor_is_killed_the_child_ends_and_a_new_one_takes_its_place(tmp_path: Path) -> None:
    with supervising(tmp_path) as first:
        first.read_until("serves")
        assert first.ask()[0] == first.child
        orphan = first.child
        first.signal(signal.SIGKILL)
        first.read_until("the supervisor is dead")
        with supervising(tmp_path, port=first.port) as second:
            second.read_until("is ready")

            assert not is_running(orphan)
            assert second.port == first.port
            assert second.ask()[0] == second.ask_locally()[0] == second.child != orphan


@pytest.mark.slow
def test_a_new_supervisor_waits_for_the_drain_of_an_orphan(tmp_path: Path) -> None:
    (tmp_path / "drain-until").touch()
    with supervising(tmp_path) as first:
        first.read_until("serves")
        orphan = first.child
        first.signal(signal.SIGKILL)
        first.read_until("the supervisor is dead")
        starting: queue.Queue[SupervisorProcess] = queue.Queue()

        def start() -> None:
            starting.put(SupervisorProcess(tmp_path, "serve", {}, {"port": first.port}))

        thread = threading.Thread(target=start)
        thread.start()
        assert is_running(orphan)
        first.open_gate("drained")
        second = starting.get(timeout=PATIENCE_S)
        thread.join()
        try:
            second.read_until("is ready")

            assert second.ask()[0] == second.child != orphan
        finally:
            second.leave()


@pytest.mark.slow
def test_an_orphan_that_never_ends_keeps_its_home(tmp_path: Path) -> None:
    (tmp_path / "drain-until").touch()
    with supervising(tmp_path) as first:
        first.read_until("serves")
        first.signal(signal.SIGKILL)
        first.read_until("the supervisor is dead")
        with supervising(tmp_path, port=first.port, patience_s=0.3) as second:
            assert second.end() == 2
            assert "still draining" in second.text
            assert "home_in_use" in second.text


@pytest.mark.slow
def test_a_second_supervisor_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with supervising(tmp_path) as first:
        first.read_until("serves")
        with supervising(tmp_path) as second:
            assert second.end() == 2
            assert f"home_in_use: process {first.process.pid} holds" in second.text
        assert first.ask_locally()[0] == first.lives()[0]["pid"]


@pytest.mark.slow
def test_nothing_is_left_of_a_supervisor_that_ended_in_order(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("serves")
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0
        assert list(supervisor.home.iterdir()) == []


# --- without a supervisor


@pytest.mark.slow
def test_without_a_supervisor_the_process_itself_is_the_gateway(tmp_path: Path) -> None:
    with supervising(tmp_path, is_alone=True) as supervisor:
        supervisor.read_until("serves")
        assert supervisor.ask()[0] == supervisor.ask_locally()[0] == supervisor.process.pid
        with supervising(tmp_path) as second:  # the home is held all the same
            assert second.end() == 2
            assert f"process {supervisor.process.pid} holds" in second.text
        supervisor.signal(signal.SIGUSR1)

        assert supervisor.end() == 75


# --- signals


@pytest.mark.slow
def test_ctrl_c_reaches_the_supervisor_alone(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("serves")
        os.killpg(supervisor.process.pid, signal.SIGINT)

        assert supervisor.end() == 0
    assert "got SIGTERM" in supervisor.text
    assert "got SIGINT" not in supervisor.text


@pytest.mark.slow
@pytest.mark.usefixtures("hangups_are_heard")
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
def test_these_signals_restart_the_gateway(tmp_path: Path, number: signal.Signals) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("serves")
        supervisor.signal(number)
        supervisor.read_until(f"got {number.name}")
        supervisor.read_until("is ready")

        assert [life["why"] for life in supervisor.lives()] == ["start", "restart"]


@pytest.mark.slow
def test_a_supervisor_started_with_nohup_does_not_hear_the_terminal_go(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervisor = SupervisorProcess(tmp_path, "serve", {}, {})
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        supervisor.read_until("serves")
        supervisor.signal(signal.SIGHUP)
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0
        assert len(supervisor.lives()) == 1
    finally:
        supervisor.leave()


@pytest.mark.slow
def test_a_second_stop_is_passed_on_too(tmp_path: Path) -> None:
    with supervising(tmp_path, "stubborn") as supervisor:
        supervisor.read_until("serves")
        supervisor.signal(signal.SIGTERM)
        supervisor.read_until("got SIGTERM")
        supervisor.signal(signal.SIGINT)
        supervisor.read_until("got SIGTERM")
        os.kill(supervisor.child, signal.SIGKILL)

        assert supervisor.end() == 1


@pytest.mark.slow
def test_a_child_that_ignores_the_stop_is_killed_at_the_deadline(tmp_path: Path) -> None:
    terms = {"drain_timeout_s": 0.1}
    with supervising(
        tmp_path, "stubborn", terms=terms, patience={**QUICK, "drain_slack_s": 0.1}
    ) as supervisor:
        supervisor.read_until("serves")
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 1
    assert "did not end in time and is killed" in supervisor.text
    assert "ended with SIGKILL" in supervisor.text


@pytest.mark.slow
def test_a_drain_may_last_as_long_as_the_settings_say_when_it_begins(tmp_path: Path) -> None:
    (tmp_path / "drain-until").touch()
    patience = {**QUICK, "drain_slack_s": 0.0}
    with supervising(tmp_path, terms={"drain_timeout_s": 0.0}, patience=patience) as supervisor:
        supervisor.read_until("serves")
        (supervisor.home / "terms.json").write_text('{"drain_timeout_s": 600}')
        supervisor.signal(signal.SIGTERM)
        supervisor.read_until("drains for 600 s at most")
        supervisor.read_until("got SIGTERM")
        supervisor.open_gate("drained")

        assert supervisor.end() == 0
    assert "is killed" not in supervisor.text


@pytest.mark.slow
def test_a_child_that_is_not_yet_able_to_hear_a_stop_ends_all_the_same(tmp_path: Path) -> None:
    with supervising(tmp_path, "boot") as supervisor:
        supervisor.read_until("boots")
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0


@pytest.mark.slow
def test_a_restart_that_hits_a_booting_child_is_no_crash(tmp_path: Path) -> None:
    with supervising(tmp_path, "boot,serve") as supervisor:
        supervisor.read_until("boots")
        supervisor.signal(signal.SIGUSR1)
        supervisor.read_until("is ready")

        assert (supervisor.lives()[1]["why"], supervisor.lives()[1]["crashes"]) == ("restart", 0)


@pytest.mark.slow
def test_a_stop_between_two_lives_is_obeyed_at_once(tmp_path: Path) -> None:
    with supervising(
        tmp_path, "crash", patience={"first_wait_s": 600.0, "longest_wait_s": 600.0}
    ) as supervisor:
        supervisor.read_until("starting it again in")
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0


# --- what exit statuses mean


@pytest.mark.slow
def test_a_gateway_that_was_told_to_stop_ends_its_supervisor(tmp_path: Path) -> None:
    with supervising(tmp_path) as supervisor:
        supervisor.read_until("serves")
        os.kill(supervisor.child, signal.SIGTERM)

        assert supervisor.end() == 0


@pytest.mark.slow
def test_settings_that_are_unusable_at_the_first_start_end_the_supervisor(tmp_path: Path) -> None:
    with supervising(tmp_path, "unusable") as supervisor:
        assert supervisor.end() == 78
        assert "invalid settings" in supervisor.text
        assert len(supervisor.lives()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("hangups_are_heard")
def test_settings_that_become_unusable_are_tried_again_and_are_no_crash(tmp_path: Path) -> None:
    with supervising(tmp_path, "serve,unusable,unusable,serve") as supervisor:
        supervisor.read_until("is ready")
        supervisor.signal(signal.SIGHUP)
        supervisor.read_until("next attempt")
        supervisor.read_until("is ready")

        assert [life["crashes"] for life in supervisor.lives()] == [0, 0, 0, 0]


@pytest.mark.slow
def test_restarts_before_the_gateway_was_ready_do_not_count_as_crashes(tmp_path: Path) -> None:
    with supervising(tmp_path, ",".join(["restart"] * 7 + ["serve"])) as supervisor:
        supervisor.read_until("is ready")

        assert supervisor.lives()[-1]["crashes"] == 0
        assert not supervisor.lives()[-1]["holds_resumes"]


@pytest.mark.slow
def test_a_ledger_that_is_away_at_the_start_is_no_crash_however_often_it_is_tried(tmp_path: Path) -> None:
    with supervising(tmp_path, ",".join(["away"] * 7 + ["serve"])) as supervisor:
        supervisor.read_until("is ready")

        assert {life["crashes"] for life in supervisor.lives()} == {0}
        assert not supervisor.lives()[-1]["holds_resumes"]


@pytest.mark.slow
def test_a_child_that_cannot_even_be_started_is_tried_again(tmp_path: Path) -> None:
    with supervising(tmp_path, command=["/nowhere/python"]) as supervisor:
        supervisor.read_until("cannot be started")
        supervisor.read_until("cannot be started")
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0


# --- the breaker


@pytest.mark.slow
def test_a_crash_loop_holds_resumes_until_a_life_was_healthy(tmp_path: Path) -> None:
    ways = ["crash", "kill", "crash", "crash", "crash", "serve", "healthy", "serve"]
    with supervising(tmp_path, ",".join(ways)) as supervisor:
        for _ in range(2):
            supervisor.read_until("the gateway is ready, resumes are held")
            supervisor.signal(signal.SIGUSR1)
        supervisor.read_until("the gateway is ready\n")
        lives = supervisor.lives()

    assert [life["crashes"] for life in lives] == [0, 1, 2, 3, 4, 5, 5, 0]
    assert [life["holds_resumes"] for life in lives] == [False] * 5 + [True, True, False]
    assert [life["why"] for life in lives[1:3]] == ["crash: exit status 1", "crash: SIGKILL"]


@pytest.mark.slow
def test_crashes_with_a_restart_in_good_order_between_them_are_not_in_a_row(tmp_path: Path) -> None:
    ways = ["crash", "crash", "crash", "crash", "serve", "crash", "serve"]
    with supervising(tmp_path, ",".join(ways)) as supervisor:
        supervisor.read_until("the gateway is ready")
        supervisor.signal(signal.SIGUSR1)
        supervisor.read_until("the gateway is ready\n")
        lives = supervisor.lives()

    assert [life["crashes"] for life in lives] == [0, 1, 2, 3, 4, 0, 1]
    assert not any(life["holds_resumes"] for life in lives)


# --- stuck children


@pytest.mark.slow
@pytest.mark.parametrize("way", ["hang", "late", "mute"])
def test_a_child_that_says_nothing_is_ended_and_replaced(tmp_path: Path, way: str) -> None:
    with supervising(tmp_path, f"{way},serve", patience=STUCK) as supervisor:
        supervisor.read_until("it is stuck")
        supervisor.read_until("crashed (it was stuck)")
        supervisor.read_until("is ready")

        assert (supervisor.lives()[1]["why"], supervisor.lives()[1]["crashes"]) == ("crash: it was stuck", 1)
        assert not is_running(supervisor.lives()[0]["pid"])


@pytest.mark.slow
def test_a_frozen_child_is_replaced(tmp_path: Path) -> None:
    with supervising(tmp_path, patience=STUCK) as supervisor:
        supervisor.read_until("serves")
        os.kill(supervisor.child, signal.SIGSTOP)
        supervisor.read_until("crashed (it was stuck)")
        supervisor.read_until("is ready")

        assert supervisor.ask()[0] == supervisor.lives()[1]["pid"]


class Watch:
    """A supervisor whose time a test decides, and a child that says nothing."""

    def __init__(self, home: Path) -> None:
        self.now = 1000.0
        home.mkdir(mode=0o700)
        self._sockets = listen(home, host="127.0.0.1", port=0, environ={}, patience_s=0.0)
        self.supervisor = Supervisor(self._sockets, ["true"], environ={}, monotonic=lambda: self.now)
        self._silent, self._tell = os.pipe()
        process = subprocess.Popen(["sleep", "600"])
        self.child = GatewayProcess(process, self._silent, at=self.now)
        self.supervisor._child = self.child

    def look_after(self, seconds: float) -> bool:
        """Whether the child counts as stuck, so many seconds later."""
        self.now += seconds
        self.supervisor._do_what_is_due(self.now)
        return self.child.is_stuck

    def close(self) -> None:
        self.child.started.kill()
        self.child.started.wait(PATIENCE_S)
        os.close(self._silent)
        os.close(self._tell)
        self._sockets.close()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(tmp_path / "home")
    yield watch
    watch.close()


def test_a_silence_of_sixty_seconds_is_too_long(watch: Watch) -> None:
    looks = [watch.look_after(5.0) for _ in range(12)]

    assert looks == [False] * 11 + [True]


def test_a_supervisor_that_stood_still_itself_gives_its_child_another_chance(watch: Watch) -> None:
    # Both were frozen, or the machine slept: that is no silence of the child's.
    assert not watch.look_after(3600.0)

    looks = [watch.look_after(5.0) for _ in range(12)]

    assert looks == [False] * 11 + [True]


@pytest.mark.slow
def test_words_that_are_not_understood_are_passed_over(tmp_path: Path) -> None:
    with supervising(tmp_path, "babble") as supervisor:
        supervisor.read_until("cannot be read")
        supervisor.read_until("is ready")

        assert supervisor.ask()[0] == supervisor.child


# --- as pid 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_orphans_that_are_left_to_it_are_reaped(tmp_path: Path) -> None:
    with supervising(tmp_path, "orphan,serve", is_reaper=True) as supervisor:
        supervisor.read_until("serves")
        orphan = int(supervisor.text.partition("orphan ")[2].split()[0])
        watch = os.pidfd_open(orphan)
        supervisor.open_gate("orphan-may-end")
        assert select.select([watch], [], [], PATIENCE_S)[0]
        os.close(watch)
        # A round that begins after its end reaps it.
        supervisor.signal(signal.SIGUSR1)
        supervisor.read_until("got SIGUSR1")
        supervisor.read_until("is ready")

        assert not Path(f"/proc/{orphan}").exists()


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run([*CONTAINER, "true"], capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_as_the_first_process_of_a_container_it_hears_signals_and_reaps(tmp_path: Path) -> None:
    if not can_unshare():
        pytest.skip("this machine allows no namespaces")
    with supervising(tmp_path, "orphan,serve", wrapper=CONTAINER) as supervisor:
        supervisor.read_until("serves")
        (first,) = children_of(supervisor.process.pid)
        orphans = [pid for pid in children_of(first) if is_orphan(pid)]
        assert len(orphans) == 1
        watch = os.pidfd_open(orphans[0])
        supervisor.open_gate("orphan-may-end")
        assert select.select([watch], [], [], PATIENCE_S)[0]
        os.close(watch)
        os.kill(first, signal.SIGUSR1)
        supervisor.read_until("got SIGUSR1")
        supervisor.read_until("is ready")
        assert len(children_of(first)) == 1
        os.kill(first, signal.SIGTERM)

        assert supervisor.end() == 0


def is_orphan(pid: int) -> bool:
    """The gateway leads a session; what it left behind does not."""
    return os.getsid(pid) != pid


# --- alerts


class Webhook:
    """A receiver that is told."""

    def __init__(self) -> None:
        self.told: queue.Queue[dict[str, Any]] = queue.Queue()
        webhook = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                webhook.told.put(json.loads(self.rfile.read(size)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://user:hunter22@127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    try:
        yield hook
    finally:
        hook.close()


@pytest.mark.slow
def test_an_absence_is_told_once_and_its_end_once(tmp_path: Path) -> None:
    with webhook() as hook:
        terms = {"alert_urls": [hook.url], "alert_after_s": 0.3}
        with supervising(tmp_path, "crash,crash,gate", terms=terms) as supervisor:
            gone = hook.told.get(timeout=PATIENCE_S)
            supervisor.read_until("waits")
            supervisor.open_gate("may-be-ready")
            back = hook.told.get(timeout=PATIENCE_S)
            supervisor.signal(signal.SIGTERM)
            assert supervisor.end() == 0

        assert hook.told.empty()
    assert (gone["title"], gone["type"]) == ("Holdfast: The gateway is not back", "failure")
    assert (back["title"], back["type"]) == ("Holdfast: The gateway is back", "success")
    assert supervisor.text.count("The gateway is not back.") == 1
    assert supervisor.text.count("The gateway is back.") == 1
    assert "hunter22" not in supervisor.text
    assert str(supervisor.home) in gone["message"]


@pytest.mark.slow
def test_an_alert_without_urls_is_in_the_log(tmp_path: Path) -> None:
    with supervising(tmp_path, "gate", terms={"alert_after_s": 0.1}) as supervisor:
        supervisor.read_until("The gateway is not back. It has not served for 0 s (start).")
        supervisor.open_gate("may-be-ready")
        supervisor.read_until("The gateway is back.")


@pytest.mark.slow
@pytest.mark.parametrize("url", ["nothing://that/is/known", "json://127.0.0.1:9/nobody-there"])
def test_an_alert_that_no_receiver_takes_is_in_the_log_without_its_address(tmp_path: Path, url: str) -> None:
    with supervising(tmp_path, "boot", terms={"alert_urls": [url], "alert_after_s": 0.0}) as supervisor:
        supervisor.read_until("alert_urls[0]")
        supervisor.read_until("an alert did not reach all of alert_urls (exit status 1)")
        supervisor.signal(signal.SIGTERM)

        assert supervisor.end() == 0
    assert url not in supervisor.text


@pytest.mark.slow
def test_an_alert_that_hangs_is_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/"
        terms = {"alert_urls": [url], "alert_after_s": 0.0}
        with supervising(
            tmp_path, "boot", terms=terms, patience={**QUICK, "alert_timeout_s": 0.2}
        ) as supervisor:
            supervisor.read_until("an alert did not reach all of alert_urls (SIGKILL)")


# --- size


def test_the_supervisor_imports_neither_the_store_nor_the_engine() -> None:
    look = "import sys, holdfast.cli.up, holdfast.gateway.supervisor; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True
    )
    found = set(done.stdout.split())

    heavy = ("holdfast.store", "holdfast.engine", "apprise", "asyncio", "starlette", "uvicorn", "apsw")
    assert [name for name in sorted(found) if name.startswith(heavy)] == []
