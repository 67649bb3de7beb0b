"""Binds what the gateway listens on: TCP addresses, and the unix socket in the home.

The process that binds holds a lock on the home directory for as long as it lives. So a socket file that it
finds there is stale and can be removed. The lock is on the directory itself and leaves nothing to clean up.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import logging
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.core.errors import HomeInUse, SettingsError

log = logging.getLogger("holdfast")

SOCKET_NAME = "gateway.sock"
BACKLOG = 4096
# The kernel's limit for the path of a unix socket, without the final NUL.
MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103
# The file descriptor of the first socket that systemd passes.
FIRST_HANDED_OVER = 3
_ASK_AGAIN_S = 0.1


class Sockets:
    """The listening sockets, open for as long as the process lives."""

    def __init__(self, *, lock: int, path: Path, unix: socket.socket, tcp: list[socket.socket]) -> None:
        self.lock = lock
        self.path = path
        self.unix = unix
        self.tcp = tcp

    @property
    def urls(self) -> list[str]:
        """Where a client on this machine finds the gateway."""
        return self.urls_by("http")

    def urls_by(self, scheme: str) -> list[str]:
        """The same by `https` if the gateway speaks TLS."""
        return [_url(scheme, one) for one in self.tcp]

    def close(self) -> None:
        """Remove the unix socket before the home is unlocked, so as not to remove a successor's socket."""
        for one in (*self.tcp, self.unix):
            one.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self.lock)


def listen(
    home: Path,
    *,
    host: str,
    port: int,
    environ: Mapping[str, str],
    patience_s: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> Sockets:
    """Bind everything, or nothing. Raises HomeInUse when another supervisor runs in the home.

    If the gateway of a dead supervisor still drains there, wait for it, at most `patience_s`.
    Sockets that systemd passes (LISTEN_FDS) are used instead of the host and port.
    """
    path = home / SOCKET_NAME
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise _unusable(
            home,
            f"{path} is too long for a socket's path (over {MAX_PATH_BYTES} bytes); choose a shorter --home",
        )
    with contextlib.ExitStack() as undo:
        lock = _lock(home, path)
        undo.callback(os.close, lock)
        deadline = monotonic() + patience_s
        was_left = _wait_until_free(home, path, deadline, monotonic)
        until = deadline if was_left else monotonic()
        tcp = _handed_over(environ) or _bind_tcp(host, port, until=until, monotonic=monotonic)
        for one in tcp:
            undo.enter_context(one)
        unix = _bind_unix(path)
        undo.pop_all()
        return Sockets(lock=lock, path=path, unix=unix, tcp=tcp)


# --- the home


def _lock(home: Path, path: Path) -> int:
    try:
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(home, f"{error.strerror}; choose another --home") from error
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, lock)
        _check_ours(home, os.fstat(lock))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HomeInUse(home=str(home), pid=_holder(os.fstat(lock)) or _listener(path)) from None
        except OSError as error:
            raise _unusable(
                home, f"it cannot be locked ({error.strerror}); choose a --home on a local disk"
            ) from error
        undo.pop_all()
    return lock


def _check_ours(home: Path, found: os.stat_result) -> None:
    """Refuse a home that another user can write: that user could replace the socket."""
    if found.st_uid != os.geteuid():
        raise _unusable(
            home, f"it belongs to another user ({found.st_uid}); start as that user, or choose another --home"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        raise _unusable(home, f"others may write in it (mode {mode:04o}); chmod 700 {home}")
    if mode & 0o077:
        log.warning("%s is open to others (mode %04o); chmod 700 %s", home, mode, home)


def _wait_until_free(home: Path, path: Path, deadline: float, monotonic: Callable[[], float]) -> bool:
    """Wait for the gateway of a dead supervisor; False when none listened there."""
    if not _is_listened_on(path):
        return False
    log.warning("the gateway of a dead supervisor is still draining in %s; waiting for it", home)
    while _is_listened_on(path):
        if monotonic() >= deadline:
            raise HomeInUse(home=str(home), pid=None)
        time.sleep(_ASK_AGAIN_S)
    return True


def _is_listened_on(path: Path) -> bool:
    with _connected(path) as (_, is_there):
        return is_there


def _holder(home: os.stat_result) -> int | None:
    """The pid of the process that locked the home, where the kernel lists it.

    Tried before the socket: that names the process that called `listen` last, which may be a dead gateway.
    """
    place = f"{os.major(home.st_dev):02x}:{os.minor(home.st_dev):02x}:{home.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            match line.split():
                case [_, "FLOCK", _, _, pid, where, *_] if where == place and int(pid) > 0:
                    return int(pid)
    return None


def _listener(path: Path) -> int | None:
    """The pid of the process that listens there, where the kernel tells it."""
    with _connected(path) as (way, is_there):
        if not is_there or not hasattr(socket, "SO_PEERCRED"):
            return None
        try:
            found = way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
        return int(struct.unpack("3i", found)[0]) or None


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[tuple[socket.socket, bool]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.setblocking(False)
        try:
            way.connect(str(path))
        except BlockingIOError:  # the backlog is full, so a process listens
            yield way, True
        except OSError:
            yield way, False
        else:
            yield way, True


# --- sockets


def _bind_unix(path: Path) -> socket.socket:
    """Bind the socket with mode 0600 from the start. A file there is stale: we hold the home's lock."""
    with contextlib.ExitStack() as undo:
        unix = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                unix.bind(str(path))
            finally:
                os.umask(before)
            unix.listen(BACKLOG)
        except OSError as error:
            raise _unusable(
                path.parent, f"no socket at {path} ({error.strerror}); remove what is there"
            ) from error
        undo.pop_all()
        return unix


def _bind_tcp(host: str, port: int, *, until: float, monotonic: Callable[[], float]) -> list[socket.socket]:
    while True:
        try:
            return _bind_all(host, port)
        except OSError as error:
            # A gateway that has just ended frees its sockets one after another.
            if error.errno != errno.EADDRINUSE or monotonic() >= until:
                raise _why_not_bound(host, port, error) from error
        time.sleep(_ASK_AGAIN_S)


def _bind_all(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of the host. If there are several, those this machine lacks are skipped."""
    found = socket.getaddrinfo(_bare(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    bound: list[socket.socket] = []
    missing: OSError | None = None
    with contextlib.ExitStack() as undo:
        for family, address in addresses:
            # With port 0, all addresses of the host use the port that the first one got.
            chosen = bound[0].getsockname()[1] if bound else port
            try:
                one = _bind_one(socket.AddressFamily(family), (address[0], chosen, *address[2:]))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
                continue
            bound.append(undo.enter_context(one))
        if missing is not None and not bound:
            raise missing
        undo.pop_all()
    return bound


def _bind_one(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    with contextlib.ExitStack() as undo:
        one = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        # Connections in TIME_WAIT must not keep a new supervisor from binding.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(BACKLOG)
        undo.pop_all()
        return one


def _handed_over(environ: Mapping[str, str]) -> list[socket.socket]:
    """The TCP sockets that systemd opened for this process; none when they are for another process.

    The unix socket never comes from systemd: clients look for it in the home.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()) or not environ.get("LISTEN_FDS", "").isdigit():
        return []
    tcp = []
    for number in range(FIRST_HANDED_OVER, FIRST_HANDED_OVER + int(environ["LISTEN_FDS"])):
        one = socket.socket(fileno=number)
        one.set_inheritable(False)
        if one.family in (socket.AF_INET, socket.AF_INET6):
            tcp.append(one)
        else:
            one.close()
    return tcp


# --- words


def _bare(host: str) -> str:
    """An IPv6 address may be written as in a URL."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def urls_of(descriptors: Sequence[int], *, scheme: str) -> list[str]:
    """Where a client on this machine finds the sockets that another process has bound."""
    found = []
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as one:
            found.append(_url(scheme, one))
    return found


def _url(scheme: str, one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    address = ipaddress.ip_address(str(host).partition("%")[0])
    if address.is_unspecified:  # a client cannot connect to "all addresses"
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"{scheme}://[{host}]:{port}" if address.version == 6 else f"{scheme}://{host}:{port}"


def _why_not_bound(host: str, port: int, error: OSError) -> SettingsError:
    if isinstance(error, socket.gaierror):
        return SettingsError(
            f"host is {host!r}: no such host ({error.strerror}); give an address of this machine"
        )
    match error.errno:
        case errno.EADDRINUSE:
            why = "another program listens there; stop it, or choose another --port (0 takes any free one)"
        case errno.EACCES:
            why = "this user may not listen there; choose a --port from 1024 on"
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            why = "this machine has no such address; give another --host (127.0.0.1 is always there)"
        case _:
            why = f"{error.strerror}; choose another --host or --port"
    return SettingsError(f"host and port are {host!r} and {port}: {why}")


def _unusable(home: Path, why: str) -> SettingsError:
    return SettingsError(f"home is {str(home)!r}: {why}")
