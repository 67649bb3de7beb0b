"""The key of sealed values beside a real `holdfast up`, whose supervisor holds the home."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.core.errors import KeyProblem
from holdfast.store.outer_keys import FileKey, read_key_file
from holdfast.store.rekey import read_wrapped, rekey
from holdfast.store.sealing import fingerprint
from tests.builders import a_task
from tests.conftest import quick_directory
from tests.doors.calls import PROGRAM, environment, run_process
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

SECRET = b'{"password":"behind the third stone"}'


@contextlib.contextmanager
def up(home: Path, **environ: str) -> Iterator[None]:
    """While it is ready."""
    with (home.parent / "log").open("a") as log:
        process = subprocess.Popen(
            [*PROGRAM, "up", "--json", "--port", "0"],
            env=environment(home, **environ),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        url = msgspec.json.decode(process.stdout.readline())["urls"][0]
        give_up_at = time.monotonic() + 60
        while httpx.get(f"{url}/readyz", timeout=60).status_code != 200:
            assert time.monotonic() < give_up_at, (home.parent / "log").read_text(encoding="utf-8")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with quick_directory(tmp_path) as directory:
        home = directory / "home"
        home.mkdir(mode=0o700)
        yield home


def leave_secret(home: Path) -> None:
    settings = app.read_settings({}, home=str(home))
    store = app.open_place(settings.store, clock=SystemClock(), vault=app.vault_of(settings))
    with contextlib.closing(store):
        store.write_now(lambda tx: tx.tasks.create(a_task(arguments=SECRET)))


def change_and_carry_the_key(home: Path, **environ: str) -> None:
    exported = home.parent / "exported"
    before = read_key_file(home / "key")

    assert run_process(home, "store", "rekey", **environ).status == 0
    assert run_process(home, "store", "key", "export", str(exported), **environ).status == 0
    assert run_process(home, "store", "key", "import", str(exported), **environ).status == 0
    assert before is not None
    assert read_key_file(home / f"key.{fingerprint(before)}.old") == before
    assert read_key_file(home / "key") == read_key_file(exported) != before


def test_the_key_is_changed_and_brought_while_a_gateway_runs(home: Path) -> None:
    leave_secret(home)

    with up(home):
        change_and_carry_the_key(home)
    with up(home):
        assert run_process(home, "store", "key", "show").status == 0


def test_the_first_gateway_on_a_new_server_makes_the_key(home: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()

    with up(home, HOLDFAST_STORE=url):
        change_and_carry_the_key(home, HOLDFAST_STORE=url)
    postgres_server.drop_database(url)


class UnadoptedKey(FileKey):
    """A process that ends before the new key has come to its place."""

    def adopt(self, name: str, **_: object) -> None:
        raise KeyProblem(f"{name} could not be put there")


def test_a_gateway_starts_after_a_change_of_the_key_that_was_cut_short(home: Path) -> None:
    leave_secret(home)
    settings = app.read_settings({}, home=str(home))
    store = app.open_place(settings.store, clock=SystemClock(), vault=app.vault_of(settings))
    with contextlib.closing(store):
        done = rekey(store, UnadoptedKey(home / "key"), {})
        wanted = store.read_now(read_wrapped)
    assert done is not None
    assert wanted is not None
    assert (done.after, done.problem) == (wanted.outer, f"{wanted.outer} could not be put there")

    with up(home):
        assert run_process(home, "store", "key", "show").status == 0

    key = read_key_file(home / "key")
    assert key is not None
    assert fingerprint(key) == wanted.outer
