"""import openclaw as a command: the report, the exit status, a gateway that writes, and the guide."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.api.stand_in import served_doors
from tests.doors.calls import UNFIT, Opens, Run
from tests.integrations.openclaw_databases import OpenClawHome, active_row, flow_row, task_row

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "import-from-openclaw.md"
COMMAND = re.compile(r"^\$ holdfast (.+)$", re.MULTILINE)


@pytest.fixture
def state(tmp_path: Path) -> OpenClawHome:
    state = OpenClawHome(tmp_path / "openclaw")
    state.add(task_row(1), task_row(2, delivery_status="pending"), active_row(3))
    return state


def test_an_import_creates_the_ledger_and_says_what_it_did(run: Run, state: OpenClawHome) -> None:
    called = run("import", "openclaw", str(state.path))

    again = run("import", "openclaw", str(state.path))

    assert called.status == again.status == 0
    assert called.out.splitlines()[-1].split() == ["tasks", "3", "3", "0", "0", "0", "0", "0"]
    assert "1 task had not ended in OpenClaw: import again within a day" in called.err
    assert "1 update that OpenClaw still owed" in called.err
    assert "nothing new: the ledger has all of it already" in again.err
    shown = run("tasks", "show", task_row(1)["task_id"])
    assert "Summarise the tides of harbour 1" in shown.out
    entries = run("audit", "log", "--json").json["entries"]
    assert [(one["action"], one["subject"]) for one in entries] == [("imports.begin", str(state.path))] * 2
    assert run("store", "verify").status == 0


def test_a_dry_run_prints_the_same_report_and_writes_nothing(
    run: Run, state: OpenClawHome, home: Path
) -> None:
    preview = run("import", "openclaw", str(state.path), "--dry-run", "--json")

    assert not home.exists()
    done = run("import", "openclaw", str(state.path), "--json")
    assert preview.json == done.json | {"isDryRun": True}
    after = run("import", "openclaw", str(state.path), "--dry-run", "--json").json
    assert (after["tasks"]["unchanged"], after["tasks"]["created"]) == (3, 0)


def test_the_exit_status_is_1_if_a_row_was_left_out_and_its_text_does_no_harm(
    run: Run, state: OpenClawHome
) -> None:
    state.add(task_row(4, task_id="bad\x1b]0;title\x07\u202e", status="\x9b2J"))

    called, whole = (run("import", "openclaw", str(state.path), *more) for more in ((), ("--json",)))

    assert called.status == whole.status == 1
    assert "left out  task bad" in called.out
    assert not UNFIT.search(called.out + called.err)
    assert (whole.json["isComplete"], whole.json["tasks"]["leftOut"]) == (False, 1)


def test_a_wrong_path_is_refused_and_creates_no_ledger(run: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("tides", encoding="utf-8")

    called = [run("import", "openclaw", str(tmp_path / name)) for name in ("gone", "notes.txt")]

    assert [one.status for one in called] == [2, 2]
    assert all("name OpenClaw's state directory" in one.err for one in called)
    assert not home.exists()


def a_database(path: Path, *statements: str) -> Path:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_a_database_that_cannot_be_imported_creates_no_ledger(run: Run, home: Path, tmp_path: Path) -> None:
    tasks = a_database(tmp_path / "tasks.db", "CREATE TABLE task_runs (id)")
    flows = a_database(tmp_path / "flows.db", "CREATE TABLE flow_runs (id)")
    rows = "INSERT INTO task_runs VALUES ('a'), ('b')"
    damaged = a_database(tmp_path / "damaged.db", "CREATE TABLE task_runs (task_id)", rows)
    with damaged.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)

    called = [run("import", "openclaw", str(path)) for path in (tasks, flows, damaged)]

    assert [one.status for one in called] == [2, 2, 2]
    assert "task_runs of" in called[0].err
    assert "has no column task_id" in called[0].err
    assert "has no column flow_id" in called[1].err
    assert f"sqlite3 {damaged} .recover | sqlite3 recovered.sqlite" in called[2].err
    assert not home.exists()


def test_an_import_of_which_every_row_is_left_out_does_not_say_that_the_ledger_has_them(
    run: Run, tmp_path: Path
) -> None:
    state = OpenClawHome(tmp_path / "bad")
    state.add(*(task_row(number, status="dreaming") for number in range(5)))

    called = run("import", "openclaw", str(state.path))

    assert called.status == 1
    assert "nothing was imported: the ledger has 0 of 5 rows already" in called.err


@pytest.mark.slow
def test_with_a_gateway_the_batches_go_through_its_socket(run: Run, state: OpenClawHome, home: Path) -> None:
    with served_doors(home):
        called = run("import", "openclaw", str(state.path), "--json")
        again = run("import", "openclaw", str(state.path), "--json")
        shown = run("tasks", "show", task_row(1)["run_id"])
        entries = run("audit", "log", "--json").json["entries"]

    assert (called.status, called.json["tasks"]["created"]) == (0, 3)
    assert again.json["tasks"]["unchanged"] == 3
    assert shown.status == 0
    assert [one["action"] for one in entries] == ["imports.begin"] * 2


@pytest.mark.slow
def test_a_row_longer_than_a_frame_of_the_gateway_does_not_stop_the_import(
    run: Run, state: OpenClawHome, home: Path
) -> None:
    names = [f"note{number}" for number in range(20)]
    for name in names:
        state.execute(f"ALTER TABLE task_runs ADD COLUMN {name} TEXT")
    state.add(task_row(4) | dict.fromkeys(names, "潮" * 100_000), task_row(5))
    # Each quotation mark takes two bytes in a frame.
    quotes = f"""[{'"",' * 87_000}""]"""
    state.add_flows(flow_row(1, state_json=quotes, wait_json=quotes, goal='"' * 32_000), flow_row(2))

    with served_doors(home):
        called = run("import", "openclaw", str(state.path), "--json")
    rest = run("import", "openclaw", str(state.path), "--json")

    assert (called.status, called.json["tasks"]["created"]) == (1, 5), called.err
    assert [one["id"] for one in called.json["leftOut"]] == [flow_row(1)["flow_id"]]
    assert (rest.status, rest.json["flows"]["created"]) == (0, 1)


def test_running_work_that_was_just_imported_is_no_finding(run: Run, state: OpenClawHome) -> None:
    run("import", "openclaw", str(state.path))

    checks = run("doctor", "--json").json["checks"]
    findings = run("tasks", "audit", "--json").json["findings"]

    assert [one["verdict"] for one in checks if one["name"] == "owners"] == ["ok"]
    assert "stale_running" not in {one["code"] for one in findings}


def test_a_remote_gateway_imports_nothing(
    run: Run, state: OpenClawHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:9")

    called = run("import", "openclaw", str(state.path))

    assert called.status == 3
    assert "run it on that gateway's host" in called.err


def test_a_flow_is_shown_and_cancelled_by_the_id_that_it_had(run: Run, state: OpenClawHome) -> None:
    row = flow_row(7)
    state.add_flows(row)
    run("import", "openclaw", str(state.path))

    shown = run("tasks", "flow", "show", row["flow_id"], "--json")
    cancelled = run("tasks", "flow", "cancel", row["flow_id"], "--json")
    unknown = run("tasks", "flow", "show", flow_row(8)["flow_id"])

    assert (shown.status, shown.json["flow"]["goal"]) == (0, row["goal"])
    assert (cancelled.status, cancelled.json["flow"]["id"]) == (0, shown.json["flow"]["id"])
    assert unknown.status == 4


def test_the_commands_of_the_guide_work(run: Run, state: OpenClawHome, ledger: Opens) -> None:
    commands = [shlex.split(line) for line in COMMAND.findall(GUIDE.read_text(encoding="utf-8"))]

    statuses = [
        run(*(str(state.path) if word == "~/.openclaw" else word for word in words)).status
        for words in commands
    ]

    assert len(commands) == 5
    assert set(statuses) == {0}
    with ledger() as store:
        assert store.read_now(lambda tx: tx.events.counts("task")) == {"succeeded": 2, "lost": 1}
