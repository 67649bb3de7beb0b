"""The key of sealed values as operators and scripts meet it: made, shown, changed, carried, lost, refused."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast import app
from holdfast.config import read_store_url
from holdfast.core.clock import SystemClock
from holdfast.core.errors import KeyMissing, KeyWrong, SettingsError
from holdfast.core.seal_mode import SealMode
from holdfast.engine.claims.boots import Life
from holdfast.store.outer_keys import FileKey, read_key_file, text_of
from holdfast.store.rekey import bring
from holdfast.store.sealing import NoKey, Vault, fingerprint
from tests.config.homes import write
from tests.doors.calls import Run, environment, run_process
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

# Made up at run time, and long enough to be one.
SECRET = "ghp_" + secrets.token_hex(18)


@hf.task(name="fetch")
async def fetch(_run: hf.Run) -> str:
    return SECRET


def store_secret(url: str, **more: Any) -> str:
    """A task whose result is a secret; its id."""

    async def live() -> str:
        async with hf.open(url, tasks=[fetch], **more) as holdfast:
            handle = await holdfast.start(fetch())
            assert await handle.result() == SECRET
            return handle.id

    return asyncio.run(live())


def result_of(url: str, task_id: str, **more: Any) -> object:
    async def live() -> object:
        async with hf.open(url, **more) as holdfast:
            return await holdfast.handle(task_id).result()

    return asyncio.run(live())


@pytest.fixture
def url(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ledger of the home, which is the default home of this test."""
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    return f"sqlite:///{home}/ledger.db"


@pytest.fixture
def task_id(url: str) -> str:
    return store_secret(url)


def key_in(path: Path) -> bytes:
    key = read_key_file(path)
    assert key is not None
    return key


# --- where it is made, and where it is found


def test_the_first_secret_makes_a_key_in_the_home_and_nothing_before_does(url: str, home: Path) -> None:
    app.open_store(url, clock=SystemClock()).close()
    assert not (home / "key").exists()

    task_id = store_secret(url)

    assert (home / "key").stat().st_mode & 0o777 == 0o600
    assert result_of(url, task_id) == SECRET


def test_the_key_of_a_scripts_ledger_lies_hidden_beside_it(tmp_path: Path, home: Path) -> None:
    link = tmp_path / "link.db"
    url = f"sqlite:///{tmp_path}/work.db"

    task_id = store_secret(url, home=home)
    link.symlink_to(tmp_path / "work.db")

    assert (tmp_path / ".work.db.key").exists()
    assert not home.exists()
    assert result_of(f"sqlite:///{link}", task_id, home=tmp_path / "another home") == SECRET
    assert result_of(url, task_id, home=tmp_path) == SECRET


def test_a_process_with_another_home_finds_the_key_of_a_home(url: str, task_id: str, tmp_path: Path) -> None:
    assert result_of(url, task_id, home=tmp_path / "elsewhere") == SECRET


def test_a_ledger_that_was_moved_with_its_key_opens(tmp_path: Path, home: Path) -> None:
    task_id = store_secret(f"sqlite:///{tmp_path}/work.db", home=home)
    (tmp_path / "new").mkdir()
    for name in ("work.db", ".work.db.key"):
        shutil.move(tmp_path / name, tmp_path / "new" / name)

    assert result_of(f"sqlite:///{tmp_path}/new/work.db", task_id, home=home) == SECRET


def test_the_variable_and_the_command_take_the_place_of_the_file(
    url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = text_of(secrets.token_bytes(32))
    write(home, "holdfast.toml", {"store": {"key_command": ["printf", key]}})
    by_command = store_secret(url)
    (home / "holdfast.toml").unlink()
    monkeypatch.setenv("HOLDFAST_KEY", key)

    assert result_of(url, by_command) == SECRET
    assert not (home / "key").exists()


def test_a_script_brings_its_own_key_and_says_what_is_sealed(tmp_path: Path, home: Path) -> None:
    key, url = secrets.token_bytes(32), f"sqlite:///{tmp_path}/work.db"

    task_id = store_secret(url, home=home, key=lambda: text_of(key))

    assert result_of(url, task_id, home=home, key=key) == SECRET
    assert not (tmp_path / ".work.db.key").exists()
    with pytest.raises(KeyWrong, match="argument `key`"):
        result_of(url, task_id, home=home, key=bytes(32))
    with pytest.raises(SettingsError, match="seal is 'some': write secrets, all or never"):
        result_of(url, task_id, home=home, seal="some")
    plain = f"sqlite:///{tmp_path}/plain.db"
    store_secret(plain, home=home, seal="never")
    assert not (tmp_path / ".plain.db.key").exists()


def test_a_key_that_was_given_is_the_ledgers_from_the_first_start_on(tmp_path: Path, home: Path) -> None:
    """Two processes with two keys must not both begin to work."""
    url = f"sqlite:///{tmp_path}/work.db"

    async def open_with(key: bytes) -> None:
        async with hf.open(url, home=home, key=key):
            pass

    asyncio.run(open_with(bytes(32)))

    with pytest.raises(KeyWrong, match="argument `key`"):
        asyncio.run(open_with(bytes(range(32))))


def test_a_document_that_cannot_be_read_stops_a_write_and_no_look(
    run: Run, home: Path, tmp_path: Path
) -> None:
    write(home, "holdfast.toml", "nonsense")
    store = ("--store", f"sqlite:///{tmp_path}/x.db")

    assert run("tasks", "list", *store).status == 0
    called = run("store", "migrate", *store)
    assert called.status == 2
    assert "it may say how values are sealed" in called.err


# --- without the right one


def lose(home: Path) -> None:
    (home / "key").unlink()


def replace(home: Path) -> None:
    lose(home)
    FileKey(home / "key").make()


def open_to_others(home: Path) -> None:
    (home / "key").chmod(0o644)


def empty(home: Path) -> None:
    (home / "key").write_bytes(b"")


def link(home: Path) -> None:
    shutil.move(home / "key", home.parent / "key")
    (home / "key").symlink_to(home.parent / "key")


@pytest.mark.parametrize(
    ("harm", "code", "says"),
    [
        (lose, "key_missing", "store key import"),
        (replace, "key_wrong", "store key import"),
        (open_to_others, "key_unusable", "chmod 600"),
        (empty, "key_unusable", "is empty"),
        (link, "key_unusable", "is a link"),
    ],
)
@pytest.mark.usefixtures("url")
def test_without_the_right_key_writers_are_refused_and_readers_see_what_is_not_sealed(
    run: Run, home: Path, task_id: str, harm: Callable[[Path], None], code: str, says: str
) -> None:
    harm(home)

    refused = run("tasks", "cancel", task_id, "--json")
    assert (refused.status, refused.error["code"]) == (2, code)
    assert says in refused.error["message"]
    shown = run("tasks", "show", task_id, "--json")
    assert (shown.status, shown.json["task"]["id"]) == (0, task_id)
    assert SECRET not in shown.out
    found = run("store", "key", "show", "--json")
    assert (found.status, found.json["opens"]) == (1, False)
    assert says in found.json["problem"]
    for command in (("doctor",), ("config", "check")):
        checks = {one["name"]: one for one in run(*command, "--json").json["checks"]}
        assert (checks["key"]["verdict"], checks["key"]["remedy"]) == ("fail", "holdfast store key show")
    exported = home.parent / "exported"
    assert run("store", "key", "export", str(exported)).status == 2
    assert not exported.exists()
    assert run("store", "rekey").status == 2
    assert run("store", "key", "show", "--json").json["wanted"] == found.json["wanted"]


@pytest.mark.usefixtures("url")
def test_a_key_that_did_not_arrive_in_its_variable_is_told_and_no_other_is_made(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", "")

    called = run("store", "migrate", "--json")

    assert (called.status, called.error["code"]) == (2, "key_unusable")
    assert "the variable HOLDFAST_KEY is empty" in called.error["message"]
    assert not (home / "key").exists()


@pytest.mark.usefixtures("url")
def test_no_new_key_is_made_because_the_one_that_was_meant_did_not_arrive(
    run: Run, home: Path, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key_in(home / "key")
    monkeypatch.setenv("HOLDFAST_NEW_KEY", "")

    called = run("store", "rekey", "--json")

    assert (called.status, called.error["code"], task_id != "") == (2, "key_unusable", True)
    assert key_in(home / "key") == before


@pytest.mark.usefixtures("url")
def test_nothing_is_changed_where_the_new_key_could_not_be_put(run: Run, home: Path, task_id: str) -> None:
    """The right key is there, under another name; in its place lies something that must not be used."""
    right = key_in(home / "key")
    shutil.copy(home / "key", home / f"key.{fingerprint(right)}.old")
    open_to_others(home)
    before = sorted(home.iterdir())

    for command in (("rekey",), ("key", "import", str(home / f"key.{fingerprint(right)}.old"))):
        called = run("store", *command, "--json")
        assert (called.status, called.error["code"], task_id != "") == (2, "key_unusable", True)

    assert sorted(home.iterdir()) == before
    assert run("store", "key", "show", "--json").json["wanted"] == fingerprint(right)


@pytest.mark.usefixtures("url")
def test_a_command_that_only_looks_asks_once_for_a_key_that_is_away(
    run: Run, home: Path, url: str, task_id: str
) -> None:
    store_secret(url)
    lose(home)
    asked = home.parent / "asked"
    write(
        home,
        "holdfast.toml",
        {"store": {"key_command": [sys.executable, "-c", f"open({str(asked)!r}, 'a').write('x'); exit(1)"]}},
    )

    called = run("tasks", "list", "--json")

    assert (called.status, len(called.json["tasks"]), task_id != "") == (0, 2, True)
    assert asked.read_text(encoding="utf-8") == "x"


def test_a_key_that_is_right_is_said_to_be(run: Run, home: Path, task_id: str) -> None:
    name = fingerprint(key_in(home / "key"))

    called = run("store", "key", "show", "--json")

    assert (called.status, task_id != "") == (0, True)
    assert called.json == {
        "store": f"sqlite:///{home}/ledger.db",
        "seal": "secrets",
        "where": f"the file {home}/key",
        "fingerprint": name,
        "wanted": name,
        "opens": True,
        "problem": None,
    }
    assert name in run("store", "key", "show").out
    checks = {one["name"]: one for one in run("doctor", "--json").json["checks"]}
    assert (checks["key"]["verdict"], name in checks["key"]["message"]) == ("ok", True)


def test_the_doctor_says_when_nothing_is_sealed(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("store", "migrate")
    checks = {one["name"]: one for one in run("doctor", "--json").json["checks"]}
    assert checks["key"]["message"] == "nothing is sealed yet; the first secret creates the key"

    monkeypatch.setenv("HOLDFAST_SEAL", "never")

    checks = {one["name"]: one for one in run("doctor", "--json").json["checks"]}
    assert (checks["key"]["verdict"], "stored unencrypted" in checks["key"]["message"]) == ("warn", True)


# --- rekey


def test_rekeying_changes_the_key_and_no_value_and_keeps_the_old_one(
    run: Run, home: Path, url: str, task_id: str, tmp_path: Path
) -> None:
    before = key_in(home / "key")
    run("store", "backup", str(tmp_path / "before.db"))

    called = run("store", "rekey", "--json")

    after = key_in(home / "key")
    assert called.status == 0
    assert after != before
    assert (called.json["before"], called.json["after"]) == (fingerprint(before), fingerprint(after))
    assert key_in(Path(called.json["kept"])) == before
    assert result_of(url, task_id) == SECRET
    # A backup from before that is put back opens with the key that was kept.
    shutil.copy(tmp_path / "before.db", home / "ledger.db")
    for name in ("ledger.db-wal", "ledger.db-shm", "ledger.db.mark"):
        (home / name).unlink(missing_ok=True)
    assert result_of(url, task_id) == SECRET


def test_a_process_that_works_meanwhile_goes_on_and_so_does_one_that_starts(
    run: Run, home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a variable, and when the process has not needed the key before."""
    old, new = (text_of(secrets.token_bytes(32)) for _ in range(2))
    monkeypatch.setenv("HOLDFAST_KEY", old)
    task_id = store_secret(url)

    async def live() -> None:
        async with hf.open(url, tasks=[fetch]) as holdfast:
            monkeypatch.setenv("HOLDFAST_NEW_KEY", new)
            called = run("store", "rekey")
            assert called.status == 0
            assert "to do: before the next start, set HOLDFAST_KEY to the new key" in called.err
            assert await holdfast.handle(task_id).result() == SECRET
            await (await holdfast.start(fetch())).result()

    asyncio.run(live())

    with pytest.raises(KeyWrong):
        result_of(url, task_id)
    monkeypatch.setenv("HOLDFAST_KEY", new)
    assert result_of(url, task_id) == SECRET


def test_rekeying_writes_beside_a_gateway_that_holds_the_home(
    run: Run, home: Path, url: str, task_id: str
) -> None:
    lock = app.take_home(home, role="gateway")

    called = run("store", "rekey")
    lock.release()

    assert called.status == 0
    assert result_of(url, task_id) == SECRET


@pytest.mark.parametrize("new", ["", "too short", "the same"])
def test_a_new_key_for_a_variable_must_be_given_and_be_one(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    key = text_of(secrets.token_bytes(32))
    monkeypatch.setenv("HOLDFAST_KEY", key)
    task_id = store_secret(url)
    monkeypatch.setenv("HOLDFAST_NEW_KEY", key if new == "the same" else new)

    called = run("store", "rekey")

    assert called.status == 2
    assert "HOLDFAST_NEW_KEY" in called.err
    assert result_of(url, task_id) == SECRET


def test_a_ledger_without_a_key_needs_no_other(run: Run, home: Path) -> None:
    run("store", "migrate")

    for more in ((), ("--lost", "--yes")):
        called = run("store", "rekey", *more)
        assert (called.status, called.out.startswith("nothing to do")) == (0, True)
    assert not (home / "key").exists()


def test_a_lost_key_is_given_up_only_when_it_is_lost_and_said_so(
    run: Run, home: Path, url: str, task_id: str
) -> None:
    assert run("store", "rekey", "--lost", "--yes").status == 2
    (home / "key").unlink()
    assert run("store", "rekey").status == 2
    assert run("store", "rekey", "--lost").status == 2
    with pytest.raises(KeyMissing):
        result_of(url, task_id)

    called = run("store", "rekey", "--lost", "--yes", "--json")

    assert (called.status, called.json["isLost"]) == (0, True)
    with pytest.raises(hf.KeyLost, match="holdfast store key show"):
        result_of(url, task_id)
    assert result_of(url, store_secret(url)) == SECRET
    shown = run("tasks", "show", task_id)
    assert (shown.status, "[sealed]  (to find its key: `holdfast store key show`" in shown.out) == (0, True)
    assert run("tasks", "show", task_id, "--json").json["result"]["isSealed"]


def test_a_key_is_not_given_up_while_a_process_may_know_it(
    run: Run, home: Path, url: str, task_id: str
) -> None:
    settings = app.read_settings({}, home=str(home))

    async def live() -> None:
        store = app.open_place(settings.store, clock=SystemClock(), vault=app.vault_of(settings))
        life = await Life.begin(
            store, store.clock, locks=app.locks_of(settings), role="serve", is_shared=False
        )
        (home / "key").unlink()
        called = run("store", "rekey", "--lost", "--yes")
        assert called.status == 3
        assert "stop it first" in called.err
        await life.end()
        store.close()

    asyncio.run(live())

    assert run("store", "rekey", "--lost", "--yes").status == 0


# --- from host to host


def test_a_key_is_carried_to_another_home_only_if_it_opens_the_ledger(
    run: Run, home: Path, url: str, task_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = tmp_path / "exported"
    called = run("store", "key", "export", str(exported), "--json")
    printed = run("store", "key", "export")
    right = key_in(home / "key")
    assert exported.stat().st_mode & 0o777 == 0o600
    assert (key_in(exported), printed.out) == (right, f"{text_of(right)}\n")
    assert called.json == {"fingerprint": fingerprint(right), "key": None, "file": str(exported)}
    assert run("store", "key", "export", str(exported)).status == 2
    assert run("store", "key", "export", str(tmp_path / "none" / "x")).status == 2
    assert run("store", "key", "import", str(tmp_path / "none")).status == 2
    replace(home)
    wrong = key_in(home / "key")
    stranger = FileKey(tmp_path / "stranger").make()

    refused = run("store", "key", "import", str(tmp_path / "stranger"))
    exported.chmod(0o644)
    taken = run("store", "key", "import", str(exported), "--json")

    assert refused.status == 2
    assert fingerprint(stranger) in refused.err
    assert (taken.status, taken.json["wasCompared"]) == (0, True)
    assert "(mode 0644); delete it" in taken.err
    assert key_in(home / "key") == right
    assert key_in(home / f"key.{fingerprint(wrong)}.old") == wrong
    assert result_of(url, task_id) == SECRET
    monkeypatch.setenv("HOLDFAST_KEY", text_of(wrong))
    assert run("store", "key", "import", str(exported)).status == 3


def test_a_terminal_sees_the_key_only_if_it_is_asked_to(
    run: Run, home: Path, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = text_of(key_in(home / "key"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    refused = run("store", "key", "export")
    shown = run("store", "key", "export", "--show")

    assert task_id
    assert (refused.status, key in refused.out + refused.err) == (2, False)
    assert shown.out == f"{key}\n"


def test_a_key_may_be_brought_before_the_ledger_has_one(run: Run, home: Path, tmp_path: Path) -> None:
    key = FileKey(tmp_path / "key").make()
    assert run("store", "key", "export").status == 2

    called = run("store", "key", "import", str(tmp_path / "key"), "--json")

    assert called.json["wasCompared"] is False
    assert key_in(home / "key") == key


# --- backups


def test_a_backup_with_its_key_opens_without_further_steps(
    run: Run, home: Path, task_id: str, tmp_path: Path
) -> None:
    target, alone = tmp_path / "far" / "copy.db", tmp_path / "alone.db"
    target.parent.mkdir()
    name = fingerprint(key_in(home / "key"))

    called = run("store", "backup", str(target), "--with-key", "--json")
    without = run("store", "backup", str(alone))
    shutil.rmtree(home)

    beside = tmp_path / "far" / ".copy.db.key"
    assert (called.json["keyFingerprint"], called.json["key"]) == (name, str(beside))
    assert beside.stat().st_mode & 0o777 == 0o600
    assert result_of(f"sqlite:///{target}", task_id, home=tmp_path / "new home") == SECRET
    assert name in without.err
    with pytest.raises(KeyMissing):
        result_of(f"sqlite:///{alone}", task_id, home=tmp_path / "new home")


def test_a_backup_without_a_key_to_take_along_is_not_made(
    run: Run, home: Path, task_id: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    (tmp_path / ".copy.db.key").touch()
    assert run("store", "backup", str(target), "--with-key").status == 2
    (tmp_path / ".copy.db.key").unlink()
    (home / "key").unlink()

    called = run("store", "backup", str(target), "--with-key", "--json")

    assert (called.status, called.error["code"], bool(task_id)) == (2, "key_missing", True)
    assert not target.exists()
    assert run("store", "backup", str(target)).status == 0


# --- the gateway


@pytest.mark.parametrize(
    ("harm", "says"), [(lose, "is not in the file"), (replace, "but the one in the file")]
)
def test_a_gateway_without_the_right_key_ends_as_with_unusable_settings_and_is_not_started_again(
    home: Path, task_id: str, harm: Callable[[Path], None], says: str
) -> None:
    harm(home)

    called = run_process(home, "up", "--port", "0")

    assert task_id
    assert called.status == 78
    assert says in called.err
    assert called.err.count("started the gateway") == 1


def test_a_restart_is_refused_while_the_next_gateway_would_have_no_key(home: Path, task_id: str) -> None:
    assert run_process(home, "gateway", "child", "--trial").status == 0
    lose(home)

    called = run_process(home, "gateway", "child", "--trial")

    assert task_id
    assert called.status == 78
    assert "is not in the file" in called.err


# --- several hosts


RACE = """
import sys, time
from contextlib import closing
from pathlib import Path
from holdfast import app
from holdfast.config import read_store_url
from holdfast.core.clock import SystemClock
from holdfast.core.errors import KeyProblem

settings = app.read_settings({}, home=sys.argv[1], store=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    with closing(app.open_place(settings.store, clock=SystemClock(), vault=app.vault_of(settings))) as store:
        print(store.read_now(store.vault.find).id.hex())
except KeyProblem as error:
    print(f"{error.code}: {error}")
"""


@pytest.mark.slow
def test_of_two_hosts_that_start_at_once_on_a_new_server_one_wins_and_the_other_is_told(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """With the key of the winner the other one starts; the key that it made for nothing is gone."""
    for number in range(2):
        url = postgres_server.create_database()
        if number % 2:  # the schema is there already: the race is about the key alone
            app.open_place(
                read_store_url(url), clock=SystemClock(), vault=Vault(NoKey(), SealMode.NEVER)
            ).close()
        homes = [tmp_path / f"{number}-{name}" for name in "abc"]
        answers = race(url, homes)

        winners = [home for home, answer in answers.items() if not answer.startswith("key_")]
        losers = [home for home in homes if home not in winners]
        assert len(winners) == 1, answers
        assert all(answers[home].startswith("key_") for home in losers)
        assert all("store key import" in answers[home] for home in losers)
        assert [one.name for home in losers if home.exists() for one in home.iterdir()] == []
        assert [one.name for one in winners[0].iterdir()] == ["key"]
        bring(FileKey(losers[0] / "key"), key_in(winners[0] / "key"), None)
        assert race(url, [losers[0]]) == {losers[0]: answers[winners[0]]}
        postgres_server.drop_database(url)


def race(url: str, homes: list[Path]) -> dict[Path, str]:
    """What each of them said that opened the ledger for writing at the same moment."""
    racing = {
        home: subprocess.Popen(
            [sys.executable, "-c", RACE, str(home), url],
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for home in homes
    }
    for one in racing.values():
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in racing.values():
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return {home: one.communicate(timeout=60)[0].strip() for home, one in racing.items()}
