"""doctor: every check, when it is well and when it is not."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from holdfast import app
from holdfast.cli.doctor import check_checksums
from holdfast.config import read_settings
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import CheckpointStatus, RunStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.clocks import jump_facts
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import checksums
from holdfast.store.locks import BootLock, HomeLock
from holdfast.store.sqlite_file import connect
from holdfast.testing import FakeClock
from holdfast.views.health import CheckStatus
from tests.builders import FAILURE, a_boot, stored_checkpoint, stored_run
from tests.doors.calls import Opens, Run

Usage = namedtuple("Usage", "total used free")


def checks(run: Run) -> dict[str, Any]:
    return {check["name"]: check for check in run("doctor", "--json").json["checks"]}


def test_a_new_and_private_home_is_well(run: Run) -> None:
    run("store", "migrate")

    called = run("doctor", "--json")

    assert called.status == 0
    assert called.json["verdict"] == "ok"
    assert {check["verdict"] for check in called.json["checks"]} == {"ok"}


def test_in_words_each_check_has_its_line(run: Run) -> None:
    run("store", "migrate")

    called = run("doctor")

    assert called.err == "no problems found\n"
    assert called.out.count("\nok    ") == len(checks(run))


def test_a_home_that_is_open_to_others_is_a_warning_with_its_remedy(run: Run, home: Path) -> None:
    run("store", "migrate")
    home.chmod(0o755)
    (home / "ledger.db").chmod(0o644)

    called = run("doctor")

    assert called.status == 0
    assert f"fix: chmod 700 {home}" in called.out
    assert f"fix: chmod 600 {home / 'ledger.db'}" in called.out
    assert called.err == "2 problems found\n"


def test_the_holder_of_the_home_is_named(run: Run, home: Path) -> None:
    run("store", "migrate")
    lock = HomeLock.take(home, role="gateway")
    try:
        found = checks(run)["lock"]
    finally:
        lock.release()

    assert found["message"] == f"process {os.getpid()} holds the home"


def test_a_living_boot_is_told_from_a_dead_one(run: Run, ledger: Opens, home: Path) -> None:
    settings = read_settings({}, home=str(home))
    locks = app.locks_of(settings)
    assert locks is not None
    with ledger() as store:
        alive, dead = (
            asyncio.run(Life.begin(store, FakeClock(), locks=locks, role="gateway", is_shared=False))
            for _ in range(2)
        )
        assert dead._lock is not None
        assert dead._lock._descriptor is not None
        os.close(dead._lock._descriptor)
        without_file = a_boot(id="boot_lost", host=alive.boot.host, pid=4242)
        foreign = a_boot(id="boot_far", host="elsewhere/0")
        store.write_now(lambda tx: [tx.boots.begin(boot) for boot in (without_file, foreign)])

        found = checks(run)["boots"]
        asyncio.run(alive.end())

    assert found["verdict"] == "warn"
    assert f"1 alive (gateway {os.getpid()})" in found["message"]
    assert "2 on other hosts or without a lock" in found["message"]
    assert "1 crashed" in found["message"]


def test_a_run_of_a_dead_boot_has_no_living_owner(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, RunStatus.RUNNING)

    found = checks(run)["owners"]

    assert found["verdict"] == "warn"
    assert "1 run of crashed processes" in found["message"]


def test_a_lapsed_lease_is_seen(run: Run, ledger: Opens, home: Path) -> None:
    settings = read_settings({}, home=str(home))
    locks = app.locks_of(settings)
    assert locks is not None
    with ledger() as store:
        life = asyncio.run(Life.begin(store, FakeClock(), locks=locks, is_shared=False))
        stored_run(store, RunStatus.RUNNING, claimed_by=life.id)
        found = checks(run)["owners"]
        asyncio.run(life.end())

    assert found["message"] == "0 runs of crashed processes, 1 with a lapsed lease"


def test_a_failed_resume_is_a_warning(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored_checkpoint(store, CheckpointStatus.FAILED_RESUME, diagnostic=FAILURE)

    found = checks(run)["checkpoints"]

    assert found["verdict"] == "warn"
    assert found["remedy"] == "holdfast checkpoints list --status failed_resume"


def test_damaged_rows_fail(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    connection = connect(home / "ledger.db")
    connection.execute("UPDATE tasks SET goal = 'something else'")
    connection.close()

    called = run("doctor")

    assert called.status == 1
    assert "fail  digests" in called.out


def test_a_part_that_cannot_be_read_does_not_hide_the_others(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    connection = connect(home / "ledger.db")
    connection.execute("UPDATE tasks SET updated_at = 9000000000000000000")
    connection.close()

    found = checks(run)

    assert found["digests"]["verdict"] == "fail"
    assert found["disk"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("free", "verdict", "status"), [(50 * 1024**2, "fail", 1), (500 * 1024**2, "warn", 0), (10**12, "ok", 0)]
)
def test_little_space_is_seen_before_work_stops(
    run: Run, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str, status: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total=10**12, used=0, free=free))

    called = run("doctor", "--json")

    assert called.status == status
    assert called.json["checks"][-1]["verdict"] == verdict


def test_a_lock_that_was_released_belongs_to_no_living_process(run: Run, ledger: Opens, home: Path) -> None:
    settings = read_settings({}, home=str(home))
    locks = app.locks_of(settings)
    assert locks is not None
    BootLock.take(locks, "boot_other").release()

    with ledger() as store:
        life = asyncio.run(Life.begin(store, FakeClock(), locks=locks))
        asyncio.run(life.end())

    assert checks(run)["boots"]["message"] == "0 alive"


def test_a_password_in_the_url_is_not_shown(run: Run) -> None:
    called = run("--store", "postgresql://ada:hunter2@127.0.0.1:1/x?password=hunter3", "doctor")

    assert called.status == 1
    assert "hunter" not in called.out + called.err


# --- the settings


def test_settings_that_cannot_be_used_fail_with_what_looks_closer(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    assert checks(run)["settings"]["verdict"] == "ok"
    (home / "holdfast.toml").write_text("[gateway]\nport = 'x'")

    found = checks(run)["settings"]

    assert found["verdict"] == "fail"
    assert (
        found["message"] == f"gateway.port in {home}/holdfast.toml, line 2, is 'x': a whole number is needed"
    )
    assert found["remedy"] == "holdfast config check"


@pytest.mark.parametrize(
    ("by_s", "shown"), [(3600, "jumped 1:00:00 ahead"), (-3600, "jumped 1:00:00 back"), (0, None)]
)
def test_a_clock_that_jumped_is_a_warning(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch, by_s: int, shown: str | None
) -> None:
    run("store", "migrate")
    passed = jump_facts.boottime_us
    monkeypatch.setattr(jump_facts, "machine_boot", lambda: "boot 1")
    with ledger() as store:
        asyncio.run(ClockWatch(store, SystemClock(), machine="boot 1").firing_time())
    # The wall clock is ahead of the time since boot by as much as that is behind it.
    monkeypatch.setattr(jump_facts, "boottime_us", lambda: passed() - by_s * 1_000_000)

    found = checks(run)["clock"]

    assert found["verdict"] == ("ok" if shown is None else "warn")
    assert shown is None or shown in found["message"]


def test_a_ledger_without_page_checksums_is_a_warning_with_its_remedy(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "vfs", lambda: None)
        run("store", "migrate")
    found = checks(run)["checksums"]

    assert found["verdict"] == "warn"
    assert "hide a record" in found["message"]
    assert "holdfast store migrate" in found["remedy"]
    assert "page checksums added" in run("store", "migrate").out
    assert checks(run)["checksums"]["verdict"] == "ok"


def test_a_server_without_page_checksums_is_a_warning_with_its_remedy() -> None:
    found = check_checksums("off", "pg_checksums --enable")

    assert (found.verdict, found.remedy) == (CheckStatus.WARN, "pg_checksums --enable")
