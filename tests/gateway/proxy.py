"""A way to the database that can be cut or stalled: what lies between a gateway and its server."""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

from tests.servers import PORT, PostgresServer

_CHUNK = 65536
SOCKET_NAME = f".s.PGSQL.{PORT}"


class Weather(StrEnum):
    FINE = "fine"
    # Connected clients lose the connection, and none can connect.
    CUT = "cut"
    # Connections stay and are taken, and not a byte gets through; what was sent meanwhile arrives later.
    STALLED = "stalled"


class _End:
    """One end of a connection, and what waits to be sent there."""

    def __init__(self, way: socket.socket) -> None:
        self.way = way
        self.other: _End
        self.unsent = bytearray()
        self.has_ended = False
        self.is_closed = False


class Proxy:
    """From a unix socket of its own to the server's, in one thread; changes of the weather are complete when
    the call returns."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server.socket_directory / SOCKET_NAME
        # Short, because a socket's path must be.
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-proxy-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.directory / SOCKET_NAME))
        self._listener.listen(256)
        self._listener.setblocking(False)
        self._bell, self._ears = socket.socketpair()
        self._weather = Weather.FINE
        self._wanted: Callable[[], None] | None = None
        self._is_done = threading.Event()
        self._is_over = False
        self._ends: set[_End] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ears, selectors.EVENT_READ, self._obey)
        self._thread = threading.Thread(target=self._serve, name="proxy")
        self._thread.start()

    def url(self, url: str) -> str:
        """The server's URL of a database, through here."""
        head, _, _ = url.partition("?")
        return f"{head}?host={quote(str(self.directory))}&port={PORT}"

    def cut(self) -> None:
        self._do(lambda: self._become(Weather.CUT))

    def stall(self) -> None:
        self._do(lambda: self._become(Weather.STALLED))

    def heal(self) -> None:
        """What was stalled goes on where it was; what was cut may connect again."""
        self._do(lambda: self._become(Weather.FINE))

    def close(self) -> None:
        self._do(self._end)
        self._thread.join()
        shutil.rmtree(self.directory)

    def _do(self, act: Callable[[], None]) -> None:
        self._is_done.clear()
        self._wanted = act
        self._bell.send(b"!")
        self._is_done.wait()

    # --- the thread

    def _serve(self) -> None:
        while not self._is_over:
            for key, events in self._selector.select():
                if isinstance(key.data, _End):
                    self._move(key.data, events)
                else:
                    key.data()
        for way in (self._listener, self._bell, self._ears):
            way.close()
        self._selector.close()

    def _obey(self) -> None:
        self._ears.recv(16)
        if self._wanted is not None:
            self._wanted()
        self._is_done.set()

    def _become(self, weather: Weather) -> None:
        self._weather = weather
        for end in list(self._ends):
            if weather is Weather.CUT:
                self._close(end)
            else:
                self._watch(end)

    def _end(self) -> None:
        self._become(Weather.CUT)
        self._is_over = True

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            near, _ = self._listener.accept()
            if self._weather is Weather.CUT:
                near.close()
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(str(self._server))
            except OSError:
                near.close()
                far.close()
                return
            one, other = _End(near), _End(far)
            one.other, other.other = other, one
            for end in (one, other):
                end.way.setblocking(False)
                self._ends.add(end)
                self._selector.register(end.way, selectors.EVENT_READ, end)
                self._watch(end)

    def _watch(self, end: _End) -> None:
        """For what may go through now."""
        if end.is_closed:
            return
        wanted = 0
        if self._weather is Weather.FINE:
            wanted |= 0 if end.has_ended else selectors.EVENT_READ
            wanted |= selectors.EVENT_WRITE if end.unsent else 0
        registered = end.way in self._selector.get_map()
        if wanted and registered:
            self._selector.modify(end.way, wanted, end)
        elif wanted:
            self._selector.register(end.way, wanted, end)
        elif registered:
            self._selector.unregister(end.way)

    def _move(self, end: _End, events: int) -> None:
        if end.is_closed or self._weather is not Weather.FINE:
            return
        try:
            if events & selectors.EVENT_READ:
                got = end.way.recv(_CHUNK)
                end.has_ended = not got
                end.other.unsent += got
            if events & selectors.EVENT_WRITE and end.unsent:
                del end.unsent[: end.way.send(end.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.has_ended and not end.other.unsent:
            self._close(end)
        else:
            self._watch(end)
            self._watch(end.other)
            if end.other.has_ended and not end.unsent:
                self._close(end)

    def _close(self, end: _End) -> None:
        for one in (end, end.other):
            if not one.is_closed:
                one.is_closed = True
                if one.way in self._selector.get_map():
                    self._selector.unregister(one.way)
                one.way.close()
                self._ends.discard(one)


@contextlib.contextmanager
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    one = Proxy(server)
    try:
        yield one
    finally:
        one.close()
