"""Binds what the gateway listens on: TCP addresses, and the unix socket in the home.

Whoever binds holds a lock on the home directory as long as it lives, and so knows that a socket which it
finds there is left over. The lock is on the directory itself: nothing has to be cleaned up after a crash.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.core.errors import HomeInUse, SettingsError

log = logging.getLogger("holdfast")

SOCKET_NAME = "gateway.sock"
BACKLOG = 4096
# The kernel keeps a socket's path in so many bytes, with a NUL at its end.
MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103
# Where systemd puts the first socket that it hands over.
FIRST_HANDED_OVER = 3
_ASK_AGAIN_S = 0.1


class Sockets:
    """What is listened on, for as long as the process lives."""

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
        """The way in is gone before the home is free, so that nobody removes a successor's."""
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
    """Bind everything, or nothing. Raises HomeInUse when another supervisor lives in the home.

    The gateway of a dead supervisor may still be draining there: it is waited for, `patience_s` at most.
    Sockets that systemd hands over (LISTEN_FDS) are taken instead of the host and port.
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
    """Whoever may write in the home may put a socket of their own in place of ours."""
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
    """True when somebody still listened there: the gateway of a supervisor that is dead."""
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
    """The pid of whoever locked the home, where the kernel lists it.

    It is asked before the socket, which tells who listened last: that is the gateway, and it may be dead.
    """
    place = f"{os.major(home.st_dev):02x}:{os.minor(home.st_dev):02x}:{home.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            match line.split():
                case [_, "FLOCK", _, _, pid, where, *_] if where == place and int(pid) > 0:
                    return int(pid)
    return None


def _listener(path: Path) -> int | None:
    """The pid of whoever listens there, where the kernel tells it."""
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
        except BlockingIOError:  # a full backlog is somebody's backlog
            yield way, True
        except OSError:
            yield way, False
        else:
            yield way, True


# --- sockets


def _bind_unix(path: Path) -> socket.socket:
    """For its owner alone from its first moment. What lies there is left over: we hold the home."""
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
    """One socket for each address of the host. One of several that this machine lacks is left out."""
    found = socket.getaddrinfo(_bare(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    bound: list[socket.socket] = []
    missing: OSError | None = None
    with contextlib.ExitStack() as undo:
        for family, address in addresses:
            # The other addresses of a host get the port that the first one found free.
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
        # What is left of old connections does not keep a new supervisor from the address.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(BACKLOG)
        undo.pop_all()
        return one


def _handed_over(environ: Mapping[str, str]) -> list[socket.socket]:
    """The TCP sockets that systemd opened for this process; none when it opened them for another.

    The unix socket is always ours: clients look for it in the home.
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


def _url(scheme: str, one: socket.socket) -> str:
    host, port = one.getsockname()[:2]
    address = ipaddress.ip_address(str(host).partition("%")[0])
    if address.is_unspecified:  # "all" is no place to go to
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
