"""TLS for the doors: the certificate of new connections, and handshakes bounded in time and number.

A peer is counted when its connection is accepted, before its handshake: one that is silent takes a place
among the strangers, and one of few places for handshakes, for a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import weakref
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast import trust
from holdfast.api.anonymous_limits import RefusalLog, WaitingRoom
from holdfast.api.connection_limits import ConnectionLimits
from holdfast.api.peers import peer_of
from holdfast.api.protocols import STRANGER_READ_BYTES, PatientHttp
from holdfast.config.tls import Certificate, paths_of, read_certificate
from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import SettingsError
from holdfast.engine.aio.service import Service

if TYPE_CHECKING:
    from holdfast.config.sections import TlsSettings

log = logging.getLogger("holdfast")

# The whole handshake, from the accepted connection on.
HANDSHAKE_S = 10
# So long we wait for the other side's goodbye; less than the doors may take to close.
GOODBYE_S = 2.0
# At a time. When there are more, the address with most of them loses its oldest one.
MAX_HANDSHAKES = 256
# How often the files are looked at.
WATCH_EVERY_S = 2.0
# Two writes so close to each other may leave a file looking the same.
_SETTLED_NS = 2_000_000_000

_Looks: TypeAlias = tuple[tuple[int, ...] | None, ...]


class Certificates:
    """The certificate of the doors, as it is now: a renewed one counts for the connections that come next."""

    def __init__(self, settings: TlsSettings, home: Path, *, clock: Clock | None = None) -> None:
        """Raises SettingsError for one that cannot be used."""
        self._home = home
        self._clock = SystemClock() if clock is None else clock
        self.replace(settings)

    @property
    def context(self) -> ssl.SSLContext | None:
        """None: plain HTTP."""
        return None if self._now is None else self._now.context

    def replace(self, settings: TlsSettings) -> None:
        """From now on these settings hold. Raises SettingsError, and then those before go on to hold."""
        looks = self._look(settings)
        self._now: Certificate | None = read_certificate(settings, self._home, now=self._clock.now())
        self._settings, self._looks = settings, looks
        self._problem: str | None = None

    def refresh(self) -> str | None:
        """Take the files if they have changed; why they, or the certificate in use, cannot be used."""
        settings, looks = self._settings, self._look(self._settings)
        if looks != self._looks or self._problem is not None or self._has_ended or self._may_be_racy(looks):
            found, problem = self._now, None
            try:
                found = read_certificate(settings, self._home, now=self._clock.now())
            except SettingsError as error:
                problem = f"the certificate before goes on to be used: {error}"
            if settings is self._settings:  # the settings have not been replaced meanwhile
                if problem is None and found is not None and looks != self._looks:
                    log.info("a renewed certificate is in use, until %s", found.expires_at)
                self._now, self._problem, self._looks = found, problem, looks
        return self._problem

    @property
    def _has_ended(self) -> bool:
        return self._now is not None and self._clock.now() >= self._now.expires_at

    def _look(self, settings: TlsSettings) -> _Looks:
        return tuple(trust.version_of(path) for path in paths_of(settings, self._home) or ())

    def _may_be_racy(self, looks: _Looks) -> bool:
        now_ns = int(self._clock.now().timestamp() * 1e9)
        return any(look is not None and abs(now_ns - look[1]) < _SETTLED_NS for look in looks)


class CertificateWatch(Service):
    """Service: takes a renewed certificate without a restart, and tells why one cannot be used."""

    def __init__(
        self, certificates: Certificates, *, on_problem: Callable[[str | None], None] = lambda _why: None
    ) -> None:
        """`on_problem` hears what is wrong each time, and None when nothing is."""
        super().__init__(every_s=WATCH_EVERY_S)
        self._certificates = certificates
        self._on_problem = on_problem

    async def run_once(self) -> str | None:
        problem = await asyncio.to_thread(self._certificates.refresh)
        self._on_problem(problem)
        return problem


class TlsLayer(SSLProtocol):
    """Between one connection and its HTTP. Until the handshake is done, the connection is this layer's."""

    # asyncio's own keeps 256 KiB for each peer, from the first moment on.
    max_size = STRANGER_READ_BYTES

    def __init__(
        self,
        http: PatientHttp,
        context: ssl.SSLContext,
        *,
        limits: ConnectionLimits,
        handshakes: WaitingRoom,
        refusals: RefusalLog,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            loop,
            http,
            context,
            None,  # type: ignore[arg-type]  # nothing waits for it
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=GOODBYE_S,
        )
        http.arrives = self._hand_over
        self._http: PatientHttp | None = http
        self._connections: set[Any] = http.connections
        self._limits = limits
        self._handshakes = handshakes
        self._refusals = refusals
        self._time = loop.time
        self._peer = ""
        self._is_done = False
        self._is_handed_over = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self._limits.enter(self, now=self._time()):
            self._is_done = True
            transport.abort()
            return
        client = transport.get_extra_info("peername")
        self._peer = peer_of({"client": client}, ())
        self._connections.add(self)
        self._handshakes.enter(self, self._peer)
        super().connection_made(transport)

    def give_up(self) -> None:
        """Others wait for its place."""
        self._refusals.add(self._peer, "too many TLS handshakes at a time")
        self.shutdown()

    def shutdown(self) -> None:
        """The doors close: a handshake is not waited for."""
        self._is_done = True
        self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self._is_done and isinstance(exc, (ssl.SSLError, ConnectionAbortedError)):
            self._refusals.add(self._peer, _why_no_handshake(exc))
        self._leave()
        super().connection_lost(exc)
        if self._http is not None and not self._is_handed_over:
            # It hears of nothing, and would keep this layer with all its buffers.
            self._http.arrives, self._http.app = None, None
        self._http = None

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """The handshake is done, and the connection is that of HTTP from now on."""
        self._is_done = self._is_handed_over = True
        self._leave()
        close, one = type(transport).close, weakref.ref(transport)

        def close_once() -> None:
            # asyncio's transport forgets what it belongs to at the second time, and can do nothing any more.
            found = one()
            if found is not None and not found.is_closing():
                close(found)

        transport.close = close_once  # type: ignore[method-assign]

    def _leave(self) -> None:
        self._limits.leave(self)
        self._handshakes.leave(self)
        self._connections.discard(self)


def _why_no_handshake(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "HTTP_REQUEST":
            return "plain HTTP where TLS is spoken; the URL begins with https://"
        return f"no TLS handshake ({error.reason})"
    return f"no TLS handshake within {HANDSHAKE_S:g} s"


__all__ = ["CertificateWatch", "Certificates", "TlsLayer"]
