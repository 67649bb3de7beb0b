"""The test server itself: it answers, survives a hard stop, and leaves nothing behind."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest

from tests import servers
from tests.servers import PostgresServer, ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[1]

STARTER = """
import signal, sys
from pathlib import Path
from tests.servers import PostgresServer
server = PostgresServer.start(Path(sys.argv[1]))
print(server.pid, server.socket_directory, flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path_factory.mktemp("server")) as running:
        yield running


def ask(url: str, query: LiteralString) -> list[object]:
    """The first column of what the query returns."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query)]


@pytest.mark.slow
def test_the_server_listens_on_its_private_socket_and_nowhere_else(server: PostgresServer) -> None:
    private = server.socket_directory

    assert ask(server.url(), "SHOW listen_addresses") == [""]
    assert (private / ".s.PGSQL.5432").is_socket()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.slow
def test_the_url_is_enough_whatever_the_environment_says(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    monkeypatch.setenv("PGDATABASE", "nothing")

    assert ask(server.url(), "SELECT current_database()::text || ' of ' || current_user") == [
        "postgres of postgres"
    ]


@pytest.mark.slow
def test_a_created_database_is_empty_new_and_utf8_with_c_collation(server: PostgresServer) -> None:
    first, second = server.create_database(), server.create_database()

    assert first != second
    assert ask(first, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [0]
    assert ask(
        first,
        "SELECT pg_encoding_to_char(encoding) || ' ' || datcollate"
        " FROM pg_database WHERE datname = current_database()",
    ) == ["UTF8 C"]


@pytest.mark.slow
def test_a_database_is_dropped_even_while_a_client_is_connected(server: PostgresServer) -> None:
    url = server.create_database()
    connection = psycopg.connect(url)

    server.drop_database(url)

    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


@pytest.mark.slow
def test_a_database_of_another_server_is_not_dropped(server: PostgresServer) -> None:
    with pytest.raises(ValueError, match="not a database of this server"):
        server.drop_database("postgresql://postgres@/important?host=/var/run/postgresql&port=5432")


@pytest.mark.slow
@pytest.mark.parametrize(("durable", "fsync"), [(True, "on"), (False, "off")])
def test_only_a_durable_server_waits_for_the_disk_but_every_commit_is_written(
    tmp_path: Path, durable: bool, fsync: str
) -> None:
    with PostgresServer.start(tmp_path, durable=durable) as server:
        settings = [
            ask(server.url(), query)[0]
            for query in ("SHOW fsync", "SHOW synchronous_commit", "SHOW max_connections")
        ]

    assert settings == [fsync, "on", "200"]


@pytest.mark.slow
def test_what_was_committed_survives_an_immediate_stop_and_what_was_not_does_not(tmp_path: Path) -> None:
    with PostgresServer.start(tmp_path) as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        unfinished = psycopg.connect(url)
        unfinished.execute("INSERT INTO kept VALUES (2)")
        first_pid = server.pid

        server.stop("immediate")
        unfinished.close()
        server.start_again()

        assert server.pid != first_pid
        assert ask(url, "SELECT n FROM kept") == [1]


@pytest.mark.slow
def test_stopping_and_closing_are_safe_to_repeat_and_only_the_log_stays(tmp_path: Path) -> None:
    server = PostgresServer.start(tmp_path)

    for _ in range(2):
        server.stop()
    with pytest.raises(ServerFailed, match="not running"):
        _ = server.pid
    for _ in range(2):
        server.close()

    assert not server.socket_directory.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["postgres.log"]


@pytest.mark.slow
def test_a_running_server_refuses_to_start_again(server: PostgresServer) -> None:
    with pytest.raises(ServerFailed, match="already running"):
        server.start_again()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with PostgresServer.start(tmp_path) as server:
        server.stop()
        (server._cluster / "postgresql.conf").write_text("no_such_setting = 1\n")

        with pytest.raises(ServerFailed, match='unrecognized configuration parameter "no_such_setting"'):
            server.start_again()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_the_server_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid, socket_directory = starter.stdout.readline().split()
        postmaster = os.pidfd_open(int(pid))
        starter.kill()

    ended, _, _ = select.select([postmaster], [], [], 30)

    os.close(postmaster)
    shutil.rmtree(socket_directory)
    assert ended


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_root_runs_it_from_a_clone_that_no_other_user_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    site = servers.installed_binaries().parents[2]
    unwanted = shutil.ignore_patterns("include", "pginstall", "*.a")
    for part in (servers.PACKAGE, f"{servers.PACKAGE}.libs"):
        shutil.copytree(site / part, closed / part, ignore=unwanted)
    monkeypatch.setattr(
        servers, "installed_binaries", lambda: closed / servers.PACKAGE / servers.INSTALL / "bin"
    )

    with PostgresServer.start(closed / "server") as server:
        assert server._binaries.is_relative_to(server.socket_directory)
        assert ask(server.create_database(), "SELECT 1") == [1]

    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_directory_below_a_closed_one_is_not_for_everybody(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    opened = closed / "opened"
    opened.mkdir(parents=True, mode=0o755)
    closed.chmod(0o700)

    assert not servers.everybody_can_enter(opened)
    assert servers.everybody_can_enter(Path("/"))


def test_root_becomes_another_user_and_others_stay_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    stand_in = servers.server_user()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert stand_in is not None
    assert stand_in.pw_uid != 0
    assert servers.server_user() is None


def test_the_socket_path_stays_short_when_the_temporary_directory_is_deep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    private = servers.make_private_directory(None)

    private.rmdir()
    assert not private.is_relative_to(deep)


def test_a_temporary_directory_that_the_servers_user_cannot_enter_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as closed:
        monkeypatch.setattr(tempfile, "tempdir", closed)

        private = servers.make_private_directory(pwd.getpwuid(os.getuid()))

    private.rmdir()
    assert not private.is_relative_to(closed)


@pytest.mark.parametrize(
    ("lines", "ready"),
    [
        (["7", "/cluster", "0", "5432", "/socket", "", "1 2", "ready   "], True),
        (["7", "/cluster", "0", "5432", "/socket", "", "1 2", "starting"], False),
        (["8", "/cluster", "0", "5432", "/socket", "", "1 2", "ready   "], False),
        (["7", "/cluster"], False),
    ],
    ids=["ready", "still starting", "left by another", "half written"],
)
def test_the_server_is_ready_when_its_own_pid_file_says_so(
    tmp_path: Path, lines: list[str], ready: bool
) -> None:
    pid_file = tmp_path / "postmaster.pid"
    pid_file.write_text("\n".join(lines) + "\n")

    assert servers.says_ready(pid_file, 7) is ready


def test_the_server_is_not_ready_before_its_pid_file_exists(tmp_path: Path) -> None:
    assert not servers.says_ready(tmp_path / "postmaster.pid", 7)
