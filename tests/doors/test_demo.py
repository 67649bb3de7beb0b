"""The demo: the proof holds after a real kill on both databases, and fails when the ledger says otherwise."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from holdfast.core.errors import Refused
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.demo.process import BEGUN
from holdfast.demo.proof import Proof, prove
from holdfast.store.sqlite_file import connect
from holdfast.store.sqlite_reader import SqliteReader
from tests.builders import START, a_run, a_step, a_task, an_effect, later, put, stored_run
from tests.doors.calls import PROGRAM, Call, Opens, Run, environment, run_process
from tests.doors.terminals import Terminal, hear_signals
from tests.servers import PostgresServer


def failing(view: Any) -> list[str]:
    return [line["what"] for line in view["lines"] if not line["holds"]]


def demo(home: Path, *arguments: str, **environ: str) -> Call:
    """A short demo: few items, and hardly any rest between steps."""
    return run_process(home, "demo", "--items", "20", "--pause", "0.1", *arguments, **environ)


@pytest.mark.slow
def test_every_item_goes_on_exactly_once_after_three_kills(home: Path, tmp_path: Path) -> None:
    called = demo(home, "--items", "10", "--kills", "3", "--no-wait", "--json", TMPDIR=str(tmp_path))

    assert failing(called.json) == []
    assert called.status == 0
    assert called.json["holds"] is True
    document = {"items": 10, "kills": 3, "lost": 0, "repeated": 0}
    assert document.items() <= called.json.items()
    assert called.json["resumed"] >= 3
    assert called.json["steps"] >= 10 * 8
    assert len(called.json["killedPids"]) == 3
    assert list(tmp_path.iterdir()) == []
    assert called.err.count("killed by SIGKILL") == 3


@pytest.mark.slow
def test_the_same_on_postgresql(home: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()

    called = demo(home, "--items", "10", "--json", "--store", url)

    assert failing(called.json) == []
    assert called.status == 0


@pytest.mark.slow
def test_a_kept_ledger_and_its_report_can_be_looked_at(home: Path, tmp_path: Path) -> None:
    called = demo(home, "--items", "5", "--keep", TMPDIR=str(tmp_path))

    assert called.status == 0
    assert "proved by the ledger" in called.out
    (kept,) = tmp_path.iterdir()
    assert f"kept: holdfast --home {kept} tasks list" in called.err
    assert run_process(kept, "tasks", "list", "--json").json["counts"] == {"succeeded": 10}
    report = kept / "artifacts" / "analysis-report.md"
    assert f"kept: {report}" in called.err
    assert "5 of 5 items" in report.read_text()


@pytest.mark.slow
def test_a_folder_of_ones_own_is_analysed_and_a_broken_item_is_told(home: Path, tmp_path: Path) -> None:
    for number in range(6):
        project = tmp_path / f"project-{number}"
        project.mkdir()
        (project / "setup.cfg").write_text("[metadata]\nname = one\n")
        (project / "one.py").write_text("x = 1\n")
    broken = tmp_path / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Name: broken\nVersion: 1.0\n")

    called = demo(home, "--folder", str(tmp_path), "--json")

    assert failing(called.json) == []
    assert (called.json["items"], called.json["report"]["linesOfCode"]) == (7, 6)
    told = {line["what"]: line["found"] for line in called.json["lines"]}
    assert told["items that could not be analysed, with the reason"] == 1


@pytest.mark.slow
def test_a_named_store_may_be_used_again_and_again(run: Run, home: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'x.db'}"

    for played in (1, 2):
        assert demo(home, "--items", "3", "--store", store).status == 0
        counts = run("tasks", "list", "--json", "--store", store).json["counts"]
        assert counts == {"succeeded": 6 * played}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)], ids=str
)
def test_a_user_that_ends_it_half_way_finds_nothing_left(
    home: Path, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "demo", "--items", "50"],
        env=environment(home, TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )
    assert process.stderr is not None
    child = next(int(line.split()[1]) for line in process.stderr if line.startswith("process"))

    process.send_signal(sent)

    assert process.wait(timeout=30) == status
    assert process.stderr.read() == ""
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["\n", "\x03"], ids=["Enter", "Ctrl-C"])
def test_in_a_terminal_the_dashboard_shows_the_campaign_until_enter(home: Path, keys: str) -> None:
    with Terminal(home, "demo", "--items", "5", "--pause", "0.1") as terminal:
        terminal.read_until("see it in the dashboard:")
        terminal.read_until("press Enter to end the demo")
        link = re.findall(r"http://\S+", terminal.shown)[-1]
        base, _, found = link.partition("/dashboard/sign-in?next=")
        page, _, code = found.partition("#")
        with httpx.Client(base_url=base, headers={"origin": base, "hx-request": "true"}) as browser:
            assert browser.post("/dashboard/sign-in", data={"code": code}).status_code == 200
            campaign = browser.get(unquote(page)).text
        terminal.press(keys)

        assert terminal.end() == 0
    assert "5 of 5" in campaign
    with pytest.raises(httpx.ConnectError):
        httpx.get(base)


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_the_dashboard(home: Path) -> None:
    with Terminal(home, "demo", "--items", "3", "--pause", "0") as terminal:
        terminal.press("\n")  # too early: it does not count
        terminal.read_until("press Enter to end the demo")
        base = re.findall(r"(http://\S+)/dashboard/", terminal.shown)[-1]
        assert httpx.get(f"{base}/healthz").status_code == 200
        terminal.hang_up()

        assert terminal.end() == 129
    with pytest.raises(httpx.ConnectError):
        httpx.get(base)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--no-wait", "--json"])
def test_it_ends_by_itself_if_it_shall_not_wait(home: Path, option: str) -> None:
    with Terminal(home, "demo", "--items", "3", "--pause", "0", option) as terminal:
        assert terminal.end() == 0

        assert "dashboard" not in terminal.shown


def test_a_ledger_with_work_in_flight_is_not_played_with(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)

    called = run("demo", "--store", f"sqlite:///{home / 'ledger.db'}")

    assert called.status == 3
    assert "1 tasks in flight" in called.err


def test_two_processes_cannot_share_a_ledger_in_memory(run: Run) -> None:
    assert run("demo", "--store", "memory:").status == 2


def test_the_store_of_the_environment_is_never_played_with(
    run: Run, ledger: Opens, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[object] = []

    def note(place: object, **_: object) -> None:
        places.append(place)
        raise Refused("not now")

    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{home / 'ledger.db'}")
    monkeypatch.setattr("holdfast.cli.demo.kill_and_resume", note)

    assert run("demo").status == 3
    assert places == [None]


def test_more_kills_than_a_small_folder_can_show_are_refused_before_anything_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        project = tmp_path / "folder" / name
        project.mkdir(parents=True)
        (project / "setup.py").touch()

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkdtemp", lambda **_: pytest.fail("a ledger was made"))
        patch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
        called = run("demo", "--folder", str(tmp_path / "folder"), "--kills", "8", "--keep")

    assert called.status == 2
    assert "--kills" in called.err
    assert "2 items" in called.err
    assert "at most 7" in called.err


# --- the proof itself


def proof_of(home: Path) -> Proof:
    reader = SqliteReader(home / "ledger.db")
    try:
        proof = prove(reader, owner="ada")
    finally:
        reader.close()
    assert not proof.holds
    return proof


def wrong(proof: Proof) -> set[str]:
    return {line.what for line in proof.lines if not line.holds}


def test_a_task_that_is_missing_or_stuck_is_seen(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, RunStatus.RUNNING)

    missing = {"items", "tasks, one for each item and phase", "tasks stuck or lost", "runs still open"}
    assert missing <= wrong(proof_of(home))


def test_a_step_that_is_missing_is_seen(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store, RunStatus.SUCCEEDED)

    proof = proof_of(home)

    assert {"steps saved, each once", "steps missing"} <= wrong(proof)
    assert proof.lost == 2


@pytest.mark.parametrize(
    ("begun_at", "is_seen"), [(START, False), (later(seconds=1), True)], ids=["before", "after"]
)
def test_a_step_that_was_begun_after_it_was_saved_is_seen(
    ledger: Opens, home: Path, begun_at: datetime, is_seen: bool
) -> None:
    with ledger() as store:
        run = stored_run(store, RunStatus.SUCCEEDED)
        store.write_now(lambda tx: tx.journal.put_step(a_step(run, name="survey")))
        body = b'{"step":"survey","pid":7}'
        store.write_now(
            lambda tx: tx.mail.send(run.task_id, topic=BEGUN, body=body, sender="demo", key="1", now=begun_at)
        )

    proof = proof_of(home)

    assert ("steps begun again though saved" in wrong(proof)) is is_seen
    assert proof.repeated == int(is_seen)


@pytest.mark.parametrize(
    ("statuses", "is_seen"),
    [
        ([EffectStatus.DONE, EffectStatus.DONE], True),
        ([EffectStatus.UNKNOWN, EffectStatus.DONE], True),
        ([EffectStatus.FAILED], False),
    ],
    ids=["done twice", "unknown", "found undone"],
)
def test_an_effect_that_may_have_happened_twice_is_seen(
    ledger: Opens, home: Path, statuses: list[EffectStatus], is_seen: bool
) -> None:
    with ledger() as store:
        run = stored_run(store, RunStatus.SUCCEEDED)
        effects = [
            an_effect(
                task_id=run.task_id, run_id=run.id, name="write_analysis", generation=one, status=status
            )
            for one, status in enumerate(statuses, start=1)
        ]
        store.write_now(lambda tx: [tx.effects.create(effect) for effect in effects])

    found = wrong(proof_of(home))

    effects_lines = {"files written (effects), each once", "effects in another status"}
    assert bool(effects_lines & found) is is_seen


def test_a_run_without_a_follow_up_is_seen(ledger: Opens, home: Path) -> None:
    task = a_task(status=TaskStatus.SUCCEEDED)
    runs = (a_run(task, status=RunStatus.RESUMED), a_run(task, number=2, status=RunStatus.SUCCEEDED))
    with ledger() as store:
        store.write_now(lambda tx: put(tx, task, *runs))

    found = wrong(proof_of(home))

    assert {"follow-up runs", "checkpoints resumed", "follow-up runs of one run, at most"} <= found


def test_a_ledger_that_does_not_verify_is_no_proof(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    connection = connect(home / "ledger.db")
    connection.execute("UPDATE counters SET amount = 7")
    connection.close()

    assert "problems found by store verify" in wrong(proof_of(home))
