"""up: holds the sockets, starts the gateway, and keeps it running until it is stopped."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast import app
from holdfast.app.module_search import leave_working_directory
from holdfast.cli.errors import report
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, is_terminal
from holdfast.config import HOME_VARIABLE, STORE_VARIABLE
from holdfast.core.clock import SystemClock
from holdfast.core.errors import HomeUnusable, SettingsError
from holdfast.core.redaction import redact_text
from holdfast.views.text import one_line
from holdfast.views.up import UpView

if TYPE_CHECKING:
    from holdfast.config.sections import GatewaySettings
    from holdfast.gateway.sockets import Sockets
    from holdfast.gateway.supervisor import SupervisorSettings

MAX_PATH_CHARS = 4096
# The limit for one log record, including tracebacks.
MAX_LOGGED_CHARS = 64 * 1024
# Enough for every connection of the API; macOS refuses more.
MAX_OPEN_FILES = 10_240
# The gateway process; with --no-supervisor it replaces this one.
# -P: do not import modules from the working directory.
COMMAND = ("-P", "-m", "holdfast", "gateway", "child")


@click.command("up", short_help="Start the gateway and keep it running.")
@click.option("--host", metavar="HOST", help="Listen on this address (gateway.host).")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), help="Listen on this port; 0 takes a free one."
)
@click.option(
    "--no-supervisor",
    "is_alone",
    is_flag=True,
    help="Run without a supervisor; another service manager restarts the gateway.",
)
@shared_options
@click.pass_context
def up(context: click.Context, *, host: str | None, port: int | None, is_alone: bool) -> None:
    """Start the gateway in the foreground, and restart it after a crash or on request.

    It prints its addresses when it is ready. Ctrl-C or SIGTERM stops it: it drains, and resumes unfinished
    work at the next start. SIGHUP or SIGUSR1 restarts it; new connections wait meanwhile. Exit status 78 if
    the settings are invalid.
    """
    from holdfast.config.tls import read_certificate
    from holdfast.config.token import read_token
    from holdfast.gateway.sockets import listen
    from holdfast.gateway.supervisor import Supervisor, become_gateway
    from holdfast.gateway.supervisor_protocol import SETTINGS_UNUSABLE

    leave_working_directory(os.environ)
    call: Invocation = context.obj
    given = {"gateway.host": None if host is None else host.strip("[]"), "gateway.port": port}
    overrides = {key: value for key, value in given.items() if value is not None}
    try:
        home = call.settings.home
        app.make_home(home)
        settings = _read(home, overrides)
        read_certificate(settings.tls, home, now=call.clock.now())
        # Create the token first: a client that reads our address needs it.
        read_token(home, os.environ)
    except HomeUnusable:
        raise
    except SettingsError as error:
        report(error, as_json=call.as_json, worded=call.worded)
        context.exit(SETTINGS_UNUSABLE)
    environ = _environment(call, home)
    _allow_open_files()
    patience_s = settings.restart.drain_timeout_s + 30.0
    sockets = listen(home, host=settings.host, port=settings.port, environ=os.environ, patience_s=patience_s)
    scheme = "https" if settings.tls.is_on else "http"
    with contextlib.closing(sockets):
        command = [sys.executable, *COMMAND]
        if is_alone:
            text = _text(call.output, home, sockets, scheme)
            become_gateway(sockets, command, environ, announcement=text, overrides=overrides)
        log_to(home, replaces=False)
        terms = _Terms(home, overrides).read
        supervisor = Supervisor(sockets, command, environ=environ, overrides=overrides, terms=terms)
        status = supervisor.run(announce=lambda: _show(call.output, home, sockets, scheme))
    context.exit(status)


class _Terms:
    """The supervisor's current settings; it warns about changes that need a new `holdfast up`."""

    def __init__(self, home: Path, overrides: Mapping[str, object]) -> None:
        self._home = home
        self._overrides = overrides
        self._place: tuple[str, int] | None = None

    def read(self) -> SupervisorSettings:
        from holdfast.gateway.supervisor import SupervisorSettings

        settings = _read(self._home, self._overrides)
        place = (settings.host, settings.port)
        if self._place not in (None, place):
            logging.getLogger("holdfast").warning(
                "gateway.host or gateway.port has changed: stop and start `holdfast up` to apply it"
            )
        self._place = place
        return SupervisorSettings(
            drain_timeout_s=settings.restart.drain_timeout_s,
            alert_urls=settings.alert_urls,
            alert_after_s=settings.alert_after_s,
        )


def _read(home: Path, overrides: Mapping[str, object]) -> GatewaySettings:
    from holdfast.config.files import load

    return load(home, os.environ, overrides).config.gateway


def _allow_open_files() -> None:
    """Raise the limit of open files, which the gateway inherits: the usual 1,024 are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # then fewer connections are possible
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _environment(call: Invocation, home: Path) -> dict[str, str]:
    """Our options for the gateway, as variables: a URL may contain a password, and arguments are public."""
    environ = {**os.environ, HOME_VARIABLE: str(home)}
    if call.store is not None:
        environ[STORE_VARIABLE] = call.settings.store.url
    return environ


def _show(output: Output, home: Path, sockets: Sockets, scheme: str) -> None:
    from holdfast.config.token import TOKEN_NAME, TOKEN_VARIABLE

    has_variable = bool(os.environ.get(TOKEN_VARIABLE))
    view = UpView(
        pid=os.getpid(),
        urls=sockets.urls_by(scheme),
        home=one_line(str(home), MAX_PATH_CHARS),
        socket=one_line(str(sockets.path), MAX_PATH_CHARS),
        dashboard=_dashboard_link(home, sockets, scheme) if _is_for_a_person(output) else None,
        token=f"${TOKEN_VARIABLE}" if has_variable else one_line(str(home / TOKEN_NAME), MAX_PATH_CHARS),
    )
    output.stream(view, lambda: _print(output, view))


def _is_for_a_person(output: Output) -> bool:
    """Whether a person reads what is printed, or a program that asked for JSON: a log must keep no link."""
    return output.as_json or is_terminal(sys.__stdout__)


def _dashboard_link(home: Path, sockets: Sockets, scheme: str) -> str | None:
    """A link that signs a browser in once; none under systemd, whose journal keeps what is printed."""
    from holdfast.config.sign_in import make_code, sign_in_url

    urls = sockets.urls_by(scheme)
    if not urls or "JOURNAL_STREAM" in os.environ:
        return None
    try:
        return sign_in_url(urls[0], make_code(home, SystemClock().now()))
    except SettingsError as error:
        logging.getLogger("holdfast").warning("no link to the dashboard: %s", error)
        return None


def _text(output: Output, home: Path, sockets: Sockets, scheme: str) -> str:
    """The same as text, for the gateway to print."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        _show(output, home, sockets, scheme)
    return text.getvalue()


def _print(output: Output, view: UpView) -> None:
    output.fields(
        [
            ("listens", "\n".join([*view.urls, view.socket])),
            ("token", view.token),
            ("dashboard", view.dashboard or "run `holdfast dashboard` for a link"),
            ("stop", f"Ctrl-C, or kill {view.pid}; it drains first"),
        ]
    )


def log_to(home: Path, *, replaces: bool) -> None:
    """Log to stderr and to the log file of the home; `replaces` as in LogWriter."""
    from holdfast.gateway.log_file import LogWriter

    log_to_stderr()
    logging.getLogger().addHandler(LogWriter(home, replaces=replaces))


def log_to_stderr() -> None:
    """Log to stderr; with the time, unless the journal adds it."""
    has_journal = "JOURNAL_STREAM" in os.environ
    form = "%(message)s" if has_journal else "%(asctime)s %(levelname)s %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class RedactingFormatter(logging.Formatter):
    """Redacts log lines: an error may quote stored values, and a traceback its source."""

    def format(self, record: logging.LogRecord) -> str:
        # Redact before cutting: half of a secret would not be found.
        return redact_text(super().format(record))[:MAX_LOGGED_CHARS]
