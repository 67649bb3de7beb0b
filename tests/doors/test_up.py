"""`holdfast up`: what it says, what it refuses, and how it is stopped; whatever becomes of the gateway."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from holdfast.core.clock import SystemClock, to_micros
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.transitions import EffectStatus, RunStatus
from holdfast.engine.clocks.jump_facts import FACT, boottime_us, machine_boot
from holdfast.store import Store
from holdfast.views.up import UpView
from tests.builders import an_effect, stored_run
from tests.doors.calls import PROGRAM, Opens, Run, environment, run_process
from tests.doors.terminals import PATIENCE_S, Beside, Terminal

CTRL_C = "\x03"


class Up:
    """The command beside us; where it listens is read from its stdout."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, "up", "--json", "--port", "0", *arguments],
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.said = json.loads(self._process.stdout.readline())

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def until_restarted(self, run: Run) -> Any:
        """The newest restart, once it is written down as drained or more."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            found = run("gateway", "restarts", "--json").json["restarts"]
            if found and found[0]["status"] != "draining":
                return found[0]
            time.sleep(0.05)
        raise AssertionError("it was not restarted in time")

    def end(self) -> int:
        return self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)


def note_effect(store: Store, effect: Effect) -> None:
    store.write_now(lambda tx: tx.effects.create(effect))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


# --- what it refuses


def test_a_port_that_is_taken_is_one_line_with_the_remedy(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        call = run("up", "--port", str(other.getsockname()[1]))

    assert call.status == 2
    assert "another program listens there; stop it, or choose another --port" in call.err
    assert call.out == ""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("[gateway]\nport = 70000\n", "gateway.port"), ("[gateway]\nprot = 1\n", "gateway.prot"), ("[", "TOML")],
)
def test_settings_that_are_unusable_end_it_with_78(
    run: Run, home: Path, settings: str, expected: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(settings)

    call = run("up")

    assert call.status == 78
    assert expected in call.err


@pytest.mark.parametrize("named", ["file", "file/below"])
def test_a_home_that_cannot_be_used_ends_it_with_2(run: Run, tmp_path: Path, named: str) -> None:
    (tmp_path / "file").write_text("")

    call = run("up", "--home", str(tmp_path / named))

    assert (call.status, call.out) == (2, "")
    assert str(tmp_path / named) in call.err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_is_none_is_a_usage_error(run: Run, port: str) -> None:
    call = run("up", "--port", port)

    assert (call.status, call.out) == (2, "")


def test_a_host_that_is_none_is_refused(run: Run) -> None:
    call = run("up", "--host", "no such host", "--port", "0")

    assert call.status == 78
    assert "is 'no such host'" in call.err


@pytest.mark.slow
def test_a_home_in_which_one_runs_is_refused_with_its_pid(run: Run, home: Path) -> None:
    with Up(home) as first:
        call = run("up", "--port", "0")

        assert call.status == 5
        assert f"process {first.said['pid']} holds {home}" in call.err
        first.stop()


# --- what it looks after


@pytest.mark.slow
def test_its_gateway_removes_receipts_that_no_run_will_ask_for_again(home: Path, ledger: Opens) -> None:
    home.mkdir(mode=0o700)
    with ledger() as store:
        run = stored_run(store, RunStatus.SUCCEEDED)
        for key, status in (("settled", EffectStatus.DONE), ("open", EffectStatus.UNKNOWN)):
            effect = an_effect(task_id=run.task_id, run_id=run.id, status=status, idempotency_key=key)
            note_effect(store, msgspec.structs.replace(effect, effect_class=EffectClass.VERIFIABLE))
        # The clock of this machine has been right for long: else nothing is deleted for an hour.
        passed = boottime_us()
        right = {
            machine_boot(): {
                "offset": to_micros(SystemClock().now()) - passed,
                "since": passed - 7_200_000_000,
            }
        }
        store.write_now(lambda tx: tx.boots.set_fact(FACT, json.dumps(right)))
    receipts = home / "receipts"
    receipts.mkdir(mode=0o700)
    for key in ("settled", "open"):
        (receipts / f"{key}.started").write_text("{}")
        os.utime(receipts / f"{key}.started", (0, 0))

    with Up(home) as up:
        give_up_at = time.monotonic() + PATIENCE_S
        while (receipts / "settled.started").exists() and time.monotonic() < give_up_at:
            time.sleep(0.02)
        assert up.stop() == 0

    assert [path.name for path in receipts.iterdir()] == ["open.started"]


# --- what it says


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--no-supervisor",)], ids=["supervised", "alone"])
def test_it_says_where_it_listens_when_it_serves_there(home: Path, more: tuple[str, ...]) -> None:
    with Up(home, *more) as up:
        ready = httpx.get(f"{up.said['urls'][0]}/readyz", timeout=PATIENCE_S, trust_env=False)

        assert port_of(up.said["urls"][0]) > 0
        assert ready.status_code == 200
        assert up.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--no-supervisor",)], ids=["supervised", "alone"])
def test_a_gateway_that_never_serves_is_not_announced(home: Path, more: tuple[str, ...]) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text('tasks = ["nowhere_at_all:task"]\n')

    called = run_process(home, "up", "--json", "--port", "0", *more)

    assert (called.status, called.out) == (78, "")


@pytest.mark.slow
@pytest.mark.usefixtures("hangups_are_heard")
@pytest.mark.parametrize(
    ("number", "more"),
    [(signal.SIGHUP, ()), (signal.SIGUSR1, ("--no-supervisor",))],
    ids=["supervised", "alone"],
)
def test_a_restart_is_recorded_with_the_signal_that_asked_for_it(
    run: Run, home: Path, number: signal.Signals, more: tuple[str, ...]
) -> None:
    with Up(home, *more) as up:
        up.send(number)
        restart = up.until_restarted(run)

        assert (restart["reason"], restart["triggers"][0]["triggeredBy"]) == (number.name, "signal")
        assert restart["kind"] == "restart"
        # On its own it asks whatever started it to start it again.
        assert (up.end() if more else up.stop()) == (75 if more else 0)


@pytest.mark.slow
def test_alone_and_without_its_ledger_it_ends_with_69(home: Path) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"

    called = run_process(home, "up", "--no-supervisor", "--port", "0", "--store", nowhere)

    assert (called.status, called.out) == (69, "")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--no-supervisor",)], ids=["supervised", "alone"])
def test_a_stop_ends_it_with_0_also_when_the_manifest_cannot_be_written(
    run: Run, home: Path, more: tuple[str, ...]
) -> None:
    with Up(home, *more) as up:
        (home / "restart-manifest.json").mkdir()
        refused = run("gateway", "restart", "--json")
        listed = run("gateway", "restarts", "--json").json["restarts"]
        stopped = run("gateway", "stop")

        assert (refused.status, refused.error["code"]) == (3, "restart_blocked")
        assert [one["status"] for one in listed] == ["blocked"]
        assert str(home / "restart-manifest.json") in listed[0]["whyBlocked"]
        assert stopped.status == 0
        assert up.end() == 0


@pytest.mark.slow
def test_it_says_where_it_listens_and_can_be_reached_there_at_once(home: Path) -> None:
    with Up(home) as up:
        assert set(up.said) == set(UpView.__struct_fields__)
        assert (up.said["home"], up.said["token"]) == (str(home), str(home / "token"))
        assert Path(up.said["socket"]).stat().st_mode & 0o777 == 0o600
        assert home.stat().st_mode & 0o777 == 0o700
        with socket.create_connection(("127.0.0.1", port_of(up.said["urls"][0])), PATIENCE_S):
            pass

        assert up.stop() == 0
    assert not (home / "gateway.sock").exists()


@pytest.mark.slow
def test_a_port_of_the_settings_is_taken_unless_another_is_given(home: Path) -> None:
    home.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (home / "holdfast.toml").write_text(f"[gateway]\nport = {port}\n")

    with Beside(home, "up") as up:
        up.read_until("the gateway is ready")
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S):
            pass
        up.send(signal.SIGTERM)
        status, out = up.end()

    assert status == 0
    assert f"http://127.0.0.1:{port}" in out


@pytest.mark.slow
@pytest.mark.usefixtures("hangups_are_heard")
def test_a_change_that_it_cannot_follow_is_said_at_the_next_start_of_the_gateway(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text("[gateway]\nport = 0\n")

    with Beside(home, "up") as up:
        up.read_until("started the gateway")
        (home / "holdfast.toml").write_text("[gateway]\nport = 4654\n")
        up.send(signal.SIGHUP)
        up.read_until("stop and start `holdfast up` to apply it")
        up.send(signal.SIGTERM)

        assert up.end()[0] == 0


@pytest.mark.slow
def test_in_a_terminal_ctrl_c_stops_it(home: Path) -> None:
    with Terminal(home, "up", "--port", "0") as terminal:
        terminal.read_until("the gateway is ready")
        terminal.read_until("listens")
        terminal.read_until("http://127.0.0.1:")
        terminal.read_until(str(home / "token"))
        terminal.read_until("Ctrl-C")
        terminal.press(CTRL_C)

        assert terminal.end() == 0


@pytest.mark.slow
def test_a_terminal_gets_a_link_that_signs_in_once_and_a_log_gets_none(home: Path) -> None:
    with Terminal(home, "up", "--port", "0") as terminal:
        terminal.read_until("it drains first")
        base, _, rest = re.findall(r"http://\S+#\S+", terminal.shown)[0].partition("/dashboard/sign-in#")
        with httpx.Client(base_url=base, headers={"origin": base, "hx-request": "true"}) as browser:
            answers = [browser.post("/dashboard/sign-in", data={"code": rest}).status_code for _ in range(2)]
        terminal.press(CTRL_C)
        terminal.end()
    assert answers == [200, 401]

    with subprocess.Popen(
        [*PROGRAM, "up", "--port", "0"],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as logged:
        assert logged.stdout is not None
        said = logged.stdout.readline()
        logged.send_signal(signal.SIGTERM)
        said += logged.stdout.read()
    assert "run `holdfast dashboard` for a link" in said
    assert "#" not in said
