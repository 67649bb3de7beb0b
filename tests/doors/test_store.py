"""store migrate, backup, verify, accept; and ledgers that are not what they should be."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.store import migrations
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect, copy_whole
from holdfast.store.watermark import mark_path
from holdfast.testing import FakeClock
from tests.builders import stored_checkpoint, stored_run
from tests.doors.calls import Opens, Run

pytestmark = pytest.mark.slow

NEWEST = len(migrations.load_migrations("sqlite"))


@pytest.fixture
def newer_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This Holdfast learns one more migration."""
    files = tmp_path / "schema"
    shutil.copytree(migrations.SCHEMA_FILES, files)
    text = "CREATE TABLE more (id TEXT PRIMARY KEY) STRICT;"
    (files / "sqlite" / f"{NEWEST + 1:04}_more.sql").write_text(text, encoding="utf-8")
    monkeypatch.setattr(migrations, "SCHEMA_FILES", files)


def execute(home: Path, sql: str) -> None:
    connection = connect(home / "ledger.db")
    connection.execute(sql)
    connection.close()


# --- a schema that something else has altered


@pytest.mark.parametrize(
    "arguments",
    [("tasks", "list"), ("tasks", "cancel", "task_0"), ("store", "verify"), ("store", "migrate")],
    ids=" ".join,
)
def test_a_missing_column_is_a_schema_mismatch_that_names_it(
    run: Run, ledger: Opens, home: Path, arguments: tuple[str, ...]
) -> None:
    with ledger() as store:
        stored_run(store)
    execute(home, "ALTER TABLE tasks DROP COLUMN cancel_reason")

    called = run(*arguments, "--json")

    assert (called.status, called.error["code"]) == (1, "schema_mismatch")
    assert "lacks the column cancel_reason of the table tasks" in called.error["message"]


def test_the_doctor_names_a_missing_column(run: Run, ledger: Opens, home: Path) -> None:
    with ledger():
        pass
    execute(home, "ALTER TABLE tasks DROP COLUMN cancel_reason")

    called = run("doctor")

    assert called.status == 1
    assert "lacks the column cancel_reason of the table tasks" in called.out


@pytest.mark.parametrize(
    ("index", "verdict"), [("tasks_by_owner", "warn"), ("runs_alive", "fail")], ids=["plain", "unique"]
)
def test_a_missing_index_is_noticed_and_restored(
    run: Run, ledger: Opens, home: Path, index: str, verdict: str
) -> None:
    with ledger() as store:
        stored_run(store)
    execute(home, f"DROP INDEX {index}")

    verified = run("store", "verify")
    looked = run("doctor", "--json").json
    migrated = run("store", "migrate")

    assert verified.status == 1
    assert f"the index {index} is missing" in verified.out
    assert "run `holdfast store migrate` to restore it" in verified.out
    (schema,) = [one for one in looked["checks"] if one["name"] == "schema"]
    assert (schema["verdict"], index in schema["message"]) == (verdict, True)
    assert "holdfast store migrate" in schema["remedy"]
    assert migrated.out.endswith(f", index restored: {index}\n")
    assert run("store", "verify").status == 0


def test_without_an_index_that_forbids_something_nothing_is_written(
    run: Run, ledger: Opens, home: Path
) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    execute(home, "DROP INDEX runs_alive")

    called = run("tasks", "cancel", task_id, "--json")

    assert (called.status, called.error["code"]) == (1, "schema_mismatch")
    assert "lacks the index runs_alive" in called.error["message"]
    assert "holdfast store migrate" in called.error["message"]


# --- migrate


def test_a_new_ledger_is_set_up_privately(run: Run, home: Path) -> None:
    called = run("store", "migrate", "--json")

    assert called.json == {
        "store": f"sqlite:///{home}/ledger.db",
        "isNew": True,
        "applied": [*range(1, NEWEST + 1)],
        "version": NEWEST,
        "hasChecksums": True,
        "restored": [],
        "views": [],
    }
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}


def test_to_migrate_again_does_nothing(run: Run) -> None:
    run("store", "migrate")

    called = run("store", "migrate")

    assert called.status == 0
    assert called.out.startswith("nothing to do")


@pytest.mark.usefixtures("newer_schema")
def test_an_older_ledger_is_read_only_after_it_was_migrated(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(migrations, "SCHEMA_FILES", Path(migrations.__file__).parent / "schema")
        with ledger() as store:
            stored_run(store)

    refused = run("tasks", "list", "--json")
    assert refused.status == 1
    assert refused.error["code"] == "schema_mismatch"
    assert "`holdfast store migrate`" in refused.error["message"]
    assert run("tasks", "cancel", "task_0").status == 1
    assert run("doctor", "--json").json["verdict"] == "fail"

    migrated = run("store", "migrate", "--json").json
    assert (migrated["isNew"], migrated["applied"], migrated["version"]) == (False, [NEWEST + 1], NEWEST + 1)
    assert len(run("tasks", "list", "--json").json["tasks"]) == 1


@pytest.mark.parametrize(
    "arguments", [("tasks", "list"), ("store", "migrate"), ("store", "backup", "x.db")], ids=" ".join
)
def test_a_ledger_of_a_newer_holdfast_is_left_alone(
    run: Run, ledger: Opens, home: Path, arguments: tuple[str, ...]
) -> None:
    with ledger():
        pass
    execute(home, "INSERT INTO schema_migrations VALUES (99, 'later', 'x')")

    called = run(*arguments)

    assert called.status == 1
    assert "upgrade Holdfast" in called.err


# --- backup


def test_a_backup_is_a_whole_and_private_ledger(run: Run, ledger: Opens, tmp_path: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    target = tmp_path / "copy.db"

    called = run("store", "backup", str(target), "--json")

    assert called.json == {
        "target": str(target),
        "sizeBytes": target.stat().st_size,
        "keyFingerprint": None,
        "key": None,
    }
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert run("--store", f"sqlite:///{target}", "tasks", "show", task_id).status == 0
    assert run("--store", f"sqlite:///{target}", "store", "verify").status == 0


def test_a_backup_never_overwrites(run: Run, ledger: Opens, tmp_path: Path) -> None:
    with ledger():
        pass
    target = tmp_path / "precious"
    target.write_text("mine", encoding="utf-8")

    called = run("store", "backup", str(target))

    assert called.status == 2
    assert "never overwrites" in called.err
    assert target.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("place", ["", "no/such/place/copy.db"])
def test_a_place_that_cannot_hold_a_backup_is_refused(
    run: Run, ledger: Opens, tmp_path: Path, place: str
) -> None:
    with ledger():
        pass

    called = run("store", "backup", str(tmp_path / place))

    assert called.status in {1, 2}
    assert called.err.startswith("holdfast: ")
    assert not list(tmp_path.glob("**/*.unfinished"))


def test_a_backup_comes_to_its_end_beside_a_busy_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit of another connection would begin it anew, unless it is made from one snapshot."""
    store = SqliteStore(tmp_path / "ledger.db", clock=FakeClock())
    for _ in range(200):
        stored_run(store, task={"goal": "tides " * 1000})
    monkeypatch.setattr("holdfast.store.sqlite_file.BACKUP_PAGES", 10)
    looks = 0

    def commit(_done: int, _all: int) -> None:
        nonlocal looks
        looks += 1
        assert looks < 1000
        stored_run(store)

    source = connect(tmp_path / "ledger.db", is_reader=True)
    copy_whole(source, tmp_path / "copy.db", on_pages=commit)
    source.close()
    store.close()

    copy = SqliteStore(tmp_path / "copy.db", clock=FakeClock())
    assert looks > 10
    assert copy.verify() == []
    assert copy.read_now(lambda tx: tx.events.counts("task")) == {"queued": 200}
    copy.close()


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    source = connect(home / "ledger.db", is_reader=True)

    def fail(_done: int, _all: int) -> None:
        raise apsw.FullError("database or disk is full")

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        copy_whole(source, tmp_path / "copy.db", on_pages=fail)
    source.close()

    assert [path.name for path in tmp_path.iterdir()] == ["home"]


# --- verify


def test_a_sound_ledger_is_said_to_be_sound(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored_checkpoint(store)

    called = run("store", "verify", "--json")

    assert called.status == 0
    assert called.json == {"isSound": True, "rowsRead": 3, "problems": [], "restore": []}


def test_what_was_altered_is_named_and_the_status_is_1(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    execute(home, "UPDATE tasks SET goal = 'something else'")
    execute(home, "UPDATE counters SET amount = 7")

    called = run("store", "verify", "--json")

    assert called.status == 1
    assert called.json["isSound"] is False
    assert any(task_id in problem for problem in called.json["problems"])
    assert any("counts" in problem for problem in called.json["problems"])
    words = run("store", "verify")
    assert words.status == 1
    assert task_id in words.out


def test_a_damaged_file_is_a_clear_error_or_a_list_of_problems(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        for _ in range(50):
            stored_run(store, task={"goal": "tides " * 200})
    content = bytearray((home / "ledger.db").read_bytes())
    for place in range(8192, len(content), 4096):
        content[place : place + 100] = b"\xff" * 100
    (home / "ledger.db").write_bytes(content)

    for arguments in (("store", "verify"), ("tasks", "list"), ("doctor",), ("status",)):
        called = run(*arguments)
        assert called.status == 1
        assert "Traceback" not in called.err


def spoil_page_1(content: bytearray) -> None:
    content[200:300] = b"\xff" * 100


def spoil_header(content: bytearray) -> None:
    content[:100] = b"\xff" * 100


def spoil_schema(content: bytearray) -> None:
    content[PAGE + 50 : PAGE + 150] = b"\xff" * 100


def spoil_tasks(content: bytearray) -> None:
    place = content.rindex(b"tides tides tides")
    content[place : place + 10] = b"\xff" * 10


def cut_in_half(content: bytearray) -> None:
    del content[len(content) // 2 :]


PAGE = 4096


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (spoil_page_1, "page 1 does not match its checksum"),
        (spoil_header, "its header is damaged"),
        (spoil_schema, "page 2 does not match its checksum"),
        (spoil_tasks, "tasks: the database is damaged"),
        (cut_in_half, "the file was truncated"),
    ],
)
def test_what_is_damaged_is_listed_with_how_to_restore_a_backup(
    run: Run, ledger: Opens, home: Path, spoil: Callable[[bytearray], None], found: str
) -> None:
    with ledger() as store:
        for _ in range(50):
            stored_run(store, task={"goal": "tides " * 200})
    content = bytearray((home / "ledger.db").read_bytes())
    spoil(content)
    (home / "ledger.db").write_bytes(content)

    called, words = run("store", "verify", "--json"), run("store", "verify")

    assert (called.status, called.json["isSound"], words.status) == (1, False, 1)
    assert any(found in problem for problem in called.json["problems"])
    assert not any("store verify" in problem for problem in called.json["problems"])
    assert found in words.out
    assert "to restore a backup:" in words.err
    assert [step for step in called.json["restore"] if f"cp BACKUP {home}/ledger.db" in step] != []
    assert called.json["restore"][-1].endswith("`holdfast store accept`")


def test_a_backup_is_restored_by_the_steps_that_are_listed(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id
    run("store", "backup", str(home / "copy.db"))
    with ledger() as store:
        stored_run(store)
    content = bytearray((home / "ledger.db").read_bytes())
    spoil_page_1(content)
    (home / "ledger.db").write_bytes(content)

    _stop, move, copy, _verify, _accept = run("store", "verify", "--json").json["restore"]
    for step in (move, copy.replace("BACKUP", str(home / "copy.db"))):
        subprocess.run(step.rpartition(": ")[2].strip("`"), shell=True, check=True)

    assert run("store", "verify").status == 0
    assert run("store", "accept", "--json").json["wasHeld"]
    assert [task["id"] for task in run("tasks", "list", "--json").json["tasks"]] == [task_id]


@pytest.mark.parametrize("content", [b"not a database at all" * 300, b"x"], ids=["long", "short"])
def test_a_file_that_is_no_database_is_a_clear_error(run: Run, home: Path, content: bytes) -> None:
    home.mkdir()
    (home / "ledger.db").write_bytes(content)

    called = run("tasks", "list")

    assert called.status == 1
    assert "not a Holdfast database" in called.err


def test_a_database_of_something_else_is_refused(run: Run, home: Path) -> None:
    home.mkdir()
    connection = apsw.Connection(str(home / "ledger.db"))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    called = run("tasks", "list")

    assert called.status == 1
    assert "is not a Holdfast database" in called.err


def test_a_file_that_was_not_filled_is_no_ledger_yet(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "ledger.db").touch()

    called = run("tasks", "list", "--json")

    assert (called.status, called.json["tasks"]) == (0, [])


# --- accept


def an_older_database(ledger: Opens, home: Path) -> None:
    """The ledger as it was before its last clean stop."""
    with ledger() as store:
        stored_run(store)
    shutil.copy(home / "ledger.db", home / "old.db")
    with ledger() as store:
        stored_run(store)
    for suffix in ("-wal", "-shm"):
        (home / f"ledger.db{suffix}").unlink(missing_ok=True)
    shutil.move(home / "old.db", home / "ledger.db")


def test_an_older_database_is_held_until_a_person_accepts_it(run: Run, ledger: Opens, home: Path) -> None:
    an_older_database(ledger, home)

    held = {check["name"]: check for check in run("doctor", "--json").json["checks"]}["resumes"]
    assert held["verdict"] == "warn"
    assert "holdfast store accept" in held["remedy"]

    accepted = run("store", "accept", "--json").json
    assert accepted["wasHeld"] is True
    assert "older than its mark" in accepted["why"]
    assert run("events", "--json").json["events"][-1]["kind"] == "store_accepted"
    assert run("store", "accept", "--json").json == {"wasHeld": False, "why": None}


def test_looking_at_a_held_ledger_does_not_accept_it(run: Run, ledger: Opens, home: Path) -> None:
    an_older_database(ledger, home)
    before = mark_path(home / "ledger.db").read_bytes()

    run("tasks", "list")
    run("store", "verify")

    assert mark_path(home / "ledger.db").read_bytes() == before
