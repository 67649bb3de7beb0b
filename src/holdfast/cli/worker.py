"""worker: a process that only carries tasks and items of campaigns, with no doors."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast import app
from holdfast.cli.errors import report
from holdfast.cli.invocation import Invocation, shared_options, user_name
from holdfast.cli.output import counted
from holdfast.config import HOME_VARIABLE, STORE_VARIABLE, PostgresPlace, SqlitePlace
from holdfast.core.errors import BadInput, KeyProblem, SchemaMismatch, SettingsError
from holdfast.views.text import one_line
from holdfast.views.up import UnitView
from holdfast.views.worker import StartedWorkerView

if TYPE_CHECKING:
    from holdfast.app import Parts
    from holdfast.app.worker_process import WorkerOrder
    from holdfast.config.sections import Config
    from holdfast.gateway.units import ServiceUnit


@click.command("worker", short_help="Carry tasks and items of campaigns in this process, without doors.")
@click.argument("places", metavar="MODULE…", nargs=-1, required=True)
@click.option(
    "--tasks",
    "only",
    multiple=True,
    metavar="NAME",
    help="Carry only these tasks; separate names by commas. Repeatable.",
)
@click.option(
    "--capacity",
    type=click.IntRange(1, 100_000),
    help="How many runs this process carries at a time. [default: gateway.capacity]",
)
@click.option(
    "--drain-timeout",
    metavar="DURATION",
    help="How long a stop waits for effects and steps. [default: gateway.restart.drain_timeout_s]",
)
@click.option(
    "--exit-to-restart",
    is_flag=True,
    help="When a restart is wanted, exit with status 75 instead of starting again.",
)
@click.option("--unit", "is_unit", is_flag=True, help="Only print a systemd unit for this worker.")
@click.option("--user", metavar="NAME", help="With --unit: user that runs it. [default: the current user]")
@shared_options
@click.pass_context
def worker(
    context: click.Context,
    *,
    places: tuple[str, ...],
    only: tuple[str, ...],
    capacity: int | None,
    drain_timeout: str | None,
    exit_to_restart: bool,
    is_unit: bool,
    user: str | None,
) -> None:
    """Carry the tasks of these modules, and start the items of campaigns that need them.

    MODULE is an importable module or path/to/file.py; MODULE:TASK chooses one task. Any number of workers
    may share a ledger: on one host with SQLite, on many hosts with PostgreSQL.

    \b
    holdfast worker analysis.tasks --store postgresql://ledger.example/holdfast
    holdfast worker analysis.py --capacity 50 --tasks analyse,summarise

    SIGTERM or Ctrl-C drains: each run stops at its next step and is paused, and another worker, or the next
    one here, resumes it. A second one stops at once. SIGUSR1, or a run that requires a restart, makes the
    process start again with the code that is on the disk then. Exit status 0 when it was stopped, 1 if the
    ledger is away at the start, 2 or 78 if a module or the settings must be fixed first.
    """
    from holdfast.app.worker_process import run_worker
    from holdfast.cli.up import log_to_stderr
    from holdfast.gateway.supervisor_protocol import SETTINGS_UNUSABLE

    call: Invocation = context.obj
    call.must_be_here()
    try:
        order = _order(call, places, only, capacity, drain_timeout, exits_to_restart=exit_to_restart)
        if is_unit:
            _show_unit(call, _service(call, order, user_name(user)))
            return
        os.environ[HOME_VARIABLE] = str(call.settings.home)
        if isinstance(call.settings.store, SqlitePlace):
            app.make_home(call.settings.home)
        log_to_stderr()
        status = run_worker(order, on_ready=lambda parts: _say_ready(call, order, parts))
    except (SettingsError, SchemaMismatch, KeyProblem) as error:
        report(error, as_json=call.as_json, worded=call.worded)
        context.exit(SETTINGS_UNUSABLE)
    context.exit(status)


def _order(
    call: Invocation,
    places: tuple[str, ...],
    only: tuple[str, ...],
    capacity: int | None,
    drain_timeout: str | None,
    *,
    exits_to_restart: bool,
) -> WorkerOrder:
    from holdfast.app.worker_process import WorkerOrder, check_place, load_modules
    from holdfast.core.durations import parse_duration

    began_at = call.clock.now()
    config = _config(call)
    check_place(call.settings)
    names = [name.strip() for given in only for name in given.split(",")]
    if only and not all(names):
        raise BadInput("--tasks", "write the names of tasks, separated by commas: --tasks analyse,summarise")
    tasks = load_modules(places, only=names, default_attempts=config.policies.retry.attempts)
    limit = timedelta(seconds=config.gateway.restart.drain_timeout_s)
    return WorkerOrder(
        settings=call.settings,
        config=config,
        tasks=tasks,
        took=max(call.clock.now() - began_at, timedelta(0)),
        capacity=config.gateway.capacity if capacity is None else capacity,
        drain_timeout=limit if drain_timeout is None else parse_duration("--drain-timeout", drain_timeout),
        exits_to_restart=exits_to_restart,
    )


def _config(call: Invocation) -> Config:
    from holdfast.config.files import load

    return load(call.settings.home, os.environ).config


def _say_ready(call: Invocation, order: WorkerOrder, parts: Parts) -> None:
    view = StartedWorkerView(
        boot_id=parts.life.id,
        pid=os.getpid(),
        host=one_line(socket.gethostname()),
        store=order.settings.store.shown,
        tasks=sorted(one_line(name) for name in order.tasks),
        capacity=order.capacity,
    )
    call.output.show(
        view,
        lambda: call.output.say(
            f"worker {view.pid} carries {counted(len(view.tasks), 'task')} of {view.store}, at most "
            f"{view.capacity} runs at a time; Ctrl-C stops it"
        ),
    )
    sys.stdout.flush()


def _show_unit(call: Invocation, service: ServiceUnit) -> None:
    from holdfast.gateway.units import systemd_worker_unit

    text = systemd_worker_unit(service)
    call.output.show(UnitView(kind="systemd", text=text), lambda: call.output.line(text.rstrip("\n")))


def _service(call: Invocation, order: WorkerOrder, user: str) -> ServiceUnit:
    from pathlib import Path

    from holdfast.gateway.units import ServiceUnit

    home, place = call.settings.home, call.settings.store
    environment = {HOME_VARIABLE: str(home)}
    if isinstance(place, PostgresPlace) and place.shown != place.url:
        call.output.say(
            "the URL of the store contains a password, which every user could read in the unit; it was left "
            f"out: write {STORE_VARIABLE}=… into {home / 'environment'} (chmod 600)"
        )
    elif call.store is not None:
        environment[STORE_VARIABLE] = place.url
    modules = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    return ServiceUnit(
        command=[sys.executable, "-m", "holdfast", "worker", *_words()],
        home=str(home),
        user=user,
        environment=environment,
        drain_timeout_s=order.drain_timeout.total_seconds(),
        writable=[str(place.path.parent)] if isinstance(place, SqlitePlace) else [],
        code=[str(one) for one in modules],
        directory=str(Path.cwd()),
    )


def _words() -> list[str]:
    """The arguments of this command line, without those of the unit and of its environment."""
    context = click.get_current_context()
    found: list[str] = list(context.params["places"])
    for name in context.params["only"]:
        found += ["--tasks", name]
    for option, name in (("--capacity", "capacity"), ("--drain-timeout", "drain_timeout")):
        if context.params[name] is not None:
            found += [option, str(context.params[name])]
    return found
