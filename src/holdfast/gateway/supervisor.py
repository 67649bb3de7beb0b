"""The parent: holds the sockets, starts the gateway, restarts it, breaks crash loops.

It is small on purpose, so that it does not crash with its gateway: one thread, one loop, no ledger.
It keeps the listening sockets open all the time; while no gateway runs, a new connection waits in the
backlog and is not refused.

The protocol between the two is in `supervised.py`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.spacing import Spacing, in_words
from holdfast.gateway import absence, sd_notify
from holdfast.gateway.absence import Absence, Notice
from holdfast.gateway.crashes import Crashes, SupervisorTimeouts
from holdfast.gateway.sd_notify import Notifier
from holdfast.gateway.sockets import Sockets
from holdfast.gateway.supervisor_protocol import (
    LEDGER_AWAY,
    SETTINGS_UNUSABLE,
    STOPPED,
    VARIABLE,
    WANTS_RESTART,
    GatewayReport,
    Said,
    Supervised,
)

log = logging.getLogger("holdfast")

FAILED = 1
# The longest sleep of the loop; a longer pause means that this process itself was suspended.
TICK_S = 5.0
MAX_WORDS_BYTES = 65536
_STOPS = (signal.SIGTERM, signal.SIGINT)
_RESTARTS = (signal.SIGUSR1, signal.SIGHUP)


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's settings; read again each time it starts or stops a gateway."""

    drain_timeout_s: float = 90.0
    alert_urls: list[str] = []
    alert_after_s: float = 60.0


class GatewayProcess:
    """One gateway process, as its supervisor sees it."""

    def __init__(self, started: subprocess.Popen[bytes], tell: int, *, at: float) -> None:
        self.started = started
        self.pid = started.pid
        self.tell = tell
        self.started_at = at
        self.heard_at = at
        self.was_ready = False
        self.was_healthy = False
        self.is_stuck = False
        self.is_mute = False
        self.kill_at: float | None = None
        self._rest = b""

    def words(self) -> Iterator[GatewayReport]:
        """The words it has sent since the last call; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.tell, MAX_WORDS_BYTES):
                *lines, self._rest = (self._rest + more).split(b"\n")
                self._rest = self._rest[-MAX_WORDS_BYTES:]
                for line in lines:
                    try:
                        yield msgspec.json.decode(line, type=Said).event
                    except (msgspec.DecodeError, UnicodeError):
                        log.warning("the gateway sent a line that cannot be read: %.200r", line)
            self.is_mute = True  # it has closed its end of the pipe

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)  # not yet reaped, so the pid is still its own


class Supervisor:
    """Keeps one gateway running until it is asked to stop. It owns the whole process: it handles the signals
    and reaps every child, also orphans when it is pid 1 of a container."""

    def __init__(
        self,
        sockets: Sockets,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        overrides: Mapping[str, str | int] | None = None,
        terms: Callable[[], SupervisorSettings] = SupervisorSettings,
        patience: SupervisorTimeouts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._sockets = sockets
        self._command = list(command)
        self._environ = {name: value for name, value in environ.items() if name not in sd_notify.VARIABLES}
        self._overrides = dict(overrides or {})
        self._notifier = Notifier(environ)
        self._read_terms = terms
        self._terms = terms()
        self._patience = patience or SupervisorTimeouts()
        self._monotonic = monotonic
        self._jitter = jitter
        self._crashes = Crashes(self._patience)
        self._absence = Absence(monotonic())
        self._looked_at = monotonic()
        self._child: GatewayProcess | None = None
        self._alerts: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self._start_at: float | None = None
        self._why = "start"
        self._restarts_unready = 0
        self._was_ready = False
        # Since when the ledger is away, and whether the next failed attempt is logged.
        self._away: Spacing | None = None
        self._is_quiet = False
        self._is_stopping = False
        self._status: int | None = None
        self._announce: Callable[[], None] = lambda: None

    def run(self, *, announce: Callable[[], None] = lambda: None) -> int:
        """Run until the end; returns the exit status of this process: 0 when the stop was requested.

        `announce` is called once, when the first gateway serves.
        """
        self._announce = announce
        # The kernel closes our end of the life pipe when this process ends, however it ends.
        with selectors.DefaultSelector() as self._selector, _pipe() as (self._life, _), _heard() as ears:
            self._selector.register(ears, selectors.EVENT_READ)
            self._start()
            try:
                while self._status is None:
                    self._look(ears)
            finally:
                self._leave_alerts()
        return self._status

    def _look(self, ears: int) -> None:
        """One round: handle words, signals and ended children first, then timers."""
        self._selector.select(self._timeout())
        self._listen()
        for number in _read_signals(ears):
            self._obey(number)
        self._reap()
        if self._status is None:
            self._do_what_is_due(self._monotonic())

    def _timeout(self) -> float:
        moments = [self._start_at, self._alert_at, *(kill_at for _, kill_at in self._alerts.values())]
        if self._child is not None:
            moments += [self._child.kill_at, self._stuck_at(self._child)]
        next_at = min((moment for moment in moments if moment is not None), default=float("inf"))
        return max(0.0, min(next_at - self._monotonic(), TICK_S))

    @property
    def _alert_at(self) -> float | None:
        return None if self._is_stopping else self._absence.due_at(self._terms.alert_after_s)

    def _stuck_at(self, child: GatewayProcess) -> float | None:
        """When a silent gateway counts as stuck; one that is stopping has its own deadline."""
        is_ending = self._is_stopping or child.is_stuck
        return None if is_ending else child.heard_at + self._patience.stuck_after_s

    # --- starting

    def _start(self) -> None:
        self._start_at = None
        self._renew_terms()
        self._is_quiet = self._away is not None and not self._away.is_due(self._monotonic())
        try:
            self._child = self._spawn()
        except OSError as error:  # no memory, too many processes, or an upgrade in progress
            log.error("the gateway cannot be started: %s", error)  # noqa: TRY400 - the words say it all
            self._crashed("it could not be started", lived_s=0.0, was_healthy=False)
            return
        self._selector.register(self._child.tell, selectors.EVENT_READ)
        if not self._is_quiet:
            log.info("started the gateway as process %d (%s)", self._child.pid, self._why)

    def _renew_terms(self) -> None:
        # The gateway reads the same settings and reports their errors.
        with contextlib.suppress(HoldfastError, OSError):
            self._terms = self._read_terms()

    def _spawn(self) -> GatewayProcess:
        tell, theirs = os.pipe()
        supervised = Supervised(
            tcp_fds=[one.fileno() for one in self._sockets.tcp],
            unix_fd=self._sockets.unix.fileno(),
            life_fd=self._life,
            tell_fd=theirs,
            holds_resumes=self._crashes.are_a_loop,
            why=self._why,
            crashes=self._crashes.count,
            is_quiet=self._is_quiet,
            overrides=self._overrides,
        )
        try:
            started = subprocess.Popen(  # noqa: S603 - our own program
                self._command,
                env={**self._environ, VARIABLE: msgspec.json.encode(supervised).decode()},
                pass_fds=supervised.fds,
                stdin=subprocess.DEVNULL,
                # Ctrl-C signals the whole foreground group; the gateway must get it only from us.
                start_new_session=True,
            )
        except OSError:
            os.close(tell)
            raise
        finally:
            os.close(theirs)
        if supervised.holds_resumes:
            log.critical(
                "the gateway crashed %d times soon after its start; the next one serves, but holds "
                "interrupted work; release it with `holdfast gateway resume`",
                supervised.crashes,
            )
        os.set_blocking(tell, False)
        return GatewayProcess(started, tell, at=self._monotonic())

    # --- listening

    def _listen(self) -> None:
        child = self._child
        if child is None or child.is_mute:
            return
        for word in child.words():
            self._hear(child, word)
        if child.is_mute:
            self._selector.unregister(child.tell)

    def _hear(self, child: GatewayProcess, word: GatewayReport) -> None:
        child.heard_at = self._monotonic()
        match word:
            case GatewayReport.ALIVE:
                if not child.is_stuck:
                    self._notifier.alive()
            case GatewayReport.READY:
                is_first = not self._was_ready
                child.was_ready = self._was_ready = True
                self._restarts_unready = 0
                self._is_back()
                if is_first:
                    self._announce()
            case GatewayReport.HEALTHY:
                child.was_healthy = True
                self._crashes.forget()
            case GatewayReport.QUARANTINED:
                self._crashes.explain()
            case GatewayReport.DRAINING:
                self._drains(child)

    def _is_back(self) -> None:
        held = ", resumes are held" if self._crashes.are_a_loop else ""
        if self._away is not None:
            log.warning("the ledger is back, after %s", in_words(self._away.lasted_s(self._monotonic())))
            self._away = None
        log.info("the gateway is ready%s", held)
        if not self._is_stopping:
            self._notifier.ready(f"serving on {', '.join(self._sockets.urls)}{held}")
        if self._absence.end():
            self._alert("The gateway is back", f"It serves again{held}.", is_bad=False)

    def _drains(self, child: GatewayProcess) -> None:
        now = self._monotonic()
        if self._is_stopping:
            return
        if child.is_stuck:  # it reacted to SIGTERM, and may drain
            self._renew_terms()
            child.kill_at = now + self._longest_drain_s
        else:
            log.info("the gateway drains")
            self._notifier.reloading("draining", monotonic_s=now)

    @property
    def _longest_drain_s(self) -> float:
        return self._terms.drain_timeout_s + self._patience.drain_slack_s

    # --- signals

    def _obey(self, number: int) -> None:
        if number in _STOPS:
            self._stop(signal.Signals(number).name)
        elif number in _RESTARTS and not self._is_stopping:
            log.info("%s: the gateway is asked to restart", signal.Signals(number).name)
            if self._child is not None:
                self._child.signal(signal.Signals(number))  # the same one: it is recorded as the reason
            else:
                self._start_at = self._monotonic()  # the operator may have fixed the cause

    def _stop(self, why: str) -> None:
        """Stop the gateway. A second stop is passed on and makes it hurry; the first deadline stays."""
        child = self._child
        if child is None:
            self._end(STOPPED, f"{why}: stopped; no gateway was running")
            return
        if not self._is_stopping:
            self._is_stopping = True
            # The gateway drains by the current settings, not by those at its start.
            self._renew_terms()
            child.kill_at = self._monotonic() + self._longest_drain_s
            log.info("%s: stopping; the gateway drains for %.0f s at most", why, self._longest_drain_s)
            self._notifier.stopping("draining")
        child.signal(signal.SIGTERM)

    # --- endings

    def _reap(self) -> None:
        """Reap every ended child, orphans included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if self._child is not None and pid == self._child.pid:
                self._ended(self._child, code)
            elif pid in self._alerts:
                sender, _ = self._alerts.pop(pid)
                sender.returncode = code
                if code != 0:
                    log.error("an alert did not reach all of alert_urls (%s)", _how(code))

    def _ended(self, child: GatewayProcess, code: int) -> None:
        self._listen()  # read what it wrote before it ended
        if not child.is_mute:  # a process that it started still holds the other end
            self._selector.unregister(child.tell)
        os.close(child.tell)
        child.started.returncode = code
        self._child = None
        now = self._monotonic()
        self._absence.begin(child.heard_at if child.is_stuck else now)
        lived_s = now - child.started_at
        if self._is_stopping:
            # A gateway that has only just started has no signal handler yet, and dies of SIGTERM.
            is_fine = code in (STOPPED, WANTS_RESTART, -signal.SIGTERM)
            self._end(STOPPED if is_fine else FAILED, f"the gateway ended with {_how(code)}")
        elif child.is_stuck:
            self._crashed("it was stuck", lived_s=lived_s, was_healthy=child.was_healthy)
        elif code == STOPPED:
            self._end(STOPPED, "the gateway was told to stop")
        elif code in (WANTS_RESTART, *(-number for number in _RESTARTS)):
            self._restart(child)
        elif code == SETTINGS_UNUSABLE:
            self._settings_are_unusable()
        elif code == LEDGER_AWAY:
            self._ledger_is_away()
        else:
            self._crashed(_how(code), lived_s=lived_s, was_healthy=child.was_healthy)

    def _restart(self, child: GatewayProcess) -> None:
        """Start again at once; but with backoff if it asked for a restart before it was ready."""
        self._restarts_unready = 0 if child.was_ready else self._restarts_unready + 1
        if child.was_ready and not self._crashes.are_a_loop:
            # It served and ended cleanly, so earlier and later crashes are not in a row. If resumes are held,
            # only a healthy gateway or the operator ends that.
            self._crashes.forget()
        wait_s = self._crashes.wait(jitter=self._jitter()) if self._restarts_unready > 1 else 0.0
        self._start_later(wait_s, "restart")

    def _settings_are_unusable(self) -> None:
        if not self._was_ready:
            self._end(
                SETTINGS_UNUSABLE,
                "invalid settings, or a key that does not fit (the error is above): fix it, look again with "
                "`holdfast config check`, and start again",
            )
            return
        wait_s = self._crashes.wait(jitter=self._jitter())
        log.error(
            "invalid settings (the error is above; `holdfast config check`); the next attempt is in %.1f s",
            wait_s,
        )
        self._start_later(wait_s, "settings were unusable")

    def _ledger_is_away(self) -> None:
        """Not a crash: no resumed run is the cause, so no resumes are held because of it."""
        wait_s = min(self._crashes.wait(jitter=self._jitter()), self._patience.longest_away_s)
        now = self._monotonic()
        if self._away is None:
            self._away = Spacing(now)
            self._away.is_due(now)  # the message below is the first one
        if not self._is_quiet:
            log.error(
                "the gateway cannot use its ledger (the error is above), for %s so far; it is started again "
                "at least every %g s; this message comes less and less often",
                in_words(self._away.lasted_s(now)),
                self._patience.longest_away_s,
            )
        self._start_later(wait_s, "the ledger was away")

    def _crashed(self, how: str, *, lived_s: float, was_healthy: bool) -> None:
        wait_s = self._crashes.wait_after_crash(
            lived_s=lived_s, was_healthy=was_healthy, jitter=self._jitter()
        )
        log.error("the gateway crashed (%s); starting it again in %.1f s", how, wait_s)
        self._start_later(wait_s, f"crash: {how}")

    def _start_later(self, wait_s: float, why: str) -> None:
        self._why = why
        self._start_at = self._monotonic() + wait_s
        self._notifier.status(f"{why}; the gateway is started again")

    def _end(self, status: int, why: str) -> None:
        self._status = status
        log.log(logging.INFO if status == STOPPED else logging.ERROR, "%s", why)
        self._notifier.stopping(why)

    # --- what the clock decides

    def _do_what_is_due(self, now: float) -> None:
        child = self._child
        if now - self._looked_at > 2 * TICK_S and child is not None:
            child.heard_at = now  # this process was suspended, and perhaps the gateway, too: count anew
        self._looked_at = now
        if child is not None:
            self._end_if_over(child, now)
        elif self._start_at is not None and now >= self._start_at:
            self._start()
        if self._alert_at is not None and now >= self._alert_at:
            self._absence.was_told = True
            why = "it is stuck" if child is not None and child.is_stuck else self._why
            away = f"It has not served for {self._terms.alert_after_s:.0f} s ({why})."
            self._alert("The gateway is not back", f"{away} The supervisor keeps trying.", is_bad=True)
        for sender, kill_at in self._alerts.values():
            if now >= kill_at:
                os.kill(sender.pid, signal.SIGKILL)

    def _end_if_over(self, child: GatewayProcess, now: float) -> None:
        if child.kill_at is not None and now >= child.kill_at:
            log.critical("the gateway did not end in time and is killed; the next start resumes its work")
            child.kill_at = None
            child.signal(signal.SIGKILL)
        elif (stuck_at := self._stuck_at(child)) is not None and now >= stuck_at:
            log.critical("no heartbeat from the gateway for %.0f s: it is stuck", now - child.heard_at)
            child.is_stuck = True
            self._absence.begin(child.heard_at)
            child.kill_at = now + self._patience.stuck_grace_s
            child.signal(signal.SIGTERM)

    # --- alerts

    def _alert(self, title: str, body: str, *, is_bad: bool) -> None:
        log.log(logging.CRITICAL if is_bad else logging.WARNING, "%s. %s", title, body)
        if not self._terms.alert_urls:
            return
        place = f"Machine {socket.gethostname()}, home {self._sockets.path.parent}."
        notice = Notice(
            urls=self._terms.alert_urls, title=f"Holdfast: {title}", body=f"{body}\n{place}", is_bad=is_bad
        )
        try:
            sender = absence.send(notice)
        except OSError as error:
            log.error("no alert could be sent: %s", error)  # noqa: TRY400 - the words say it all
            return
        self._alerts[sender.pid] = (sender, self._monotonic() + self._patience.alert_timeout_s)

    def _leave_alerts(self) -> None:
        """Do not wait for alerts that are being sent: each has its own process."""
        for sender, _ in self._alerts.values():
            sender.returncode = 0  # so that Popen does not warn about a child that was not waited for


def become_gateway(
    sockets: Sockets,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    announcement: str = "",
    overrides: Mapping[str, str | int] | None = None,
) -> NoReturn:
    """Without a supervisor: this process becomes the gateway, with the same sockets and protocol.

    It holds the other ends of both pipes itself: it never sees its supervisor die, and its words are not
    read. Its parent sees the exit status. It prints the announcement when it serves.
    """
    life, ours = os.pipe()
    supervised = Supervised(
        tcp_fds=[one.fileno() for one in sockets.tcp],
        unix_fd=sockets.unix.fileno(),
        life_fd=life,
        tell_fd=os.open(os.devnull, os.O_WRONLY),
        announcement=announcement,
        overrides=dict(overrides or {}),
    )
    for number in (*supervised.fds, ours, sockets.lock):
        os.set_inheritable(number, True)
    os.execve(  # noqa: S606 - our own program
        command[0], list(command), {**environ, VARIABLE: msgspec.json.encode(supervised).decode()}
    )


def _how(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """A pipe: its read end and its write end."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextlib.contextmanager
def _heard() -> Iterator[int]:
    """The read end of a pipe into which each signal writes a byte; the loop handles them."""
    with _pipe() as (ears, mouth):
        for end in (ears, mouth):
            os.set_blocking(end, False)
        before = {number: signal.getsignal(number) for number in (*_STOPS, *_RESTARTS, signal.SIGCHLD)}
        # Under nohup, SIGHUP stays ignored.
        heard = {
            number: handler
            for number, handler in before.items()
            if number != signal.SIGHUP or handler != signal.SIG_IGN
        }
        was = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        try:
            for number in heard:
                signal.signal(number, lambda _number, _frame: None)
            yield ears
        finally:
            for number, handler in heard.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.set_wakeup_fd(was)


def _read_signals(ears: int) -> list[int]:
    with contextlib.suppress(BlockingIOError):
        return list(os.read(ears, 4096))
    return []
