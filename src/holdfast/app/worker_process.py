"""The process of `holdfast worker`: tasks of the user's modules and no doors, up to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from holdfast.app.parts import Parts
from holdfast.app.programs import load_program, split_place
from holdfast.app.secrets import declared_secrets
from holdfast.app.serving import serve_tasks
from holdfast.config import MemoryPlace, Settings, SqlitePlace
from holdfast.core.errors import BadInput, SettingsError

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.gateway.sd_notify import Notifier
    from holdfast.gateway.signals import StopRequest

    Tasks = dict[str, TaskDefinition[..., Any]]

log = logging.getLogger("holdfast")

ALIVE_EVERY_S = 10.0


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is to do: its modules, and how much of them at a time."""

    settings: Settings
    config: Config
    tasks: dict[str, Any]
    capacity: int
    drain_timeout: timedelta
    # How long it took to read the settings and the modules.
    took: timedelta = timedelta(0)
    # Whether it ends with a status of its own when a restart is wanted, for a service manager to start it.
    exits_to_restart: bool = False


def load_modules(
    places: Sequence[str], *, only: Sequence[str] = (), default_attempts: int | None = None
) -> Tasks:
    """The tasks of these modules and files, by name: also those that they import. `only` chooses some.
    Tasks that do not say themselves how often they are tried are tried `default_attempts` times, if given.

    Raises BadInput, which names the module: it cannot be imported, it has no tasks, or two of them have
    different tasks of one name.
    """
    found: Tasks = {}
    origin: dict[str, str] = {}
    for spec in places:
        place, name = split_place(spec)
        program = load_program(place)
        if not program.known:
            raise BadInput(place, "it has no tasks; decorate an async function with @hf.task")
        for one in program.known if name is None else [program.find(name)]:
            before = origin.setdefault(one.name, place)
            if found.setdefault(one.name, one) is not one:
                raise BadInput(
                    place,
                    f"it has another task called {one.name!r} than {before}; give one of them another name: "
                    f"@hf.task(name=…), or name only the tasks that you need: {place}:TASK",
                )
    unknown = [name for name in only if name not in found]
    if unknown:
        raise BadInput(
            "--tasks",
            f"there is no task {unknown[0]!r} in these modules; they have {', '.join(sorted(found))}",
        )
    chosen = {name: one for name, one in found.items() if not only or name in only}
    if default_attempts is None:
        return chosen
    return {name: one.with_default_attempts(default_attempts) for name, one in chosen.items()}


def check_place(settings: Settings) -> None:
    """Refuse a ledger that a worker cannot share. Raises SettingsError."""
    from holdfast.store.file_systems import network_kind

    place = settings.store
    if isinstance(place, MemoryPlace):
        raise SettingsError(
            "an in-memory ledger has no other process's work; name a database: holdfast worker MODULE "
            "--store URL"
        )
    if isinstance(place, SqlitePlace) and (kind := network_kind(place.path)) is not None:
        raise SettingsError(
            f"{place.path} lies on a network file system ({kind}), where locks of files are "
            "not reliable; for workers on several hosts use PostgreSQL: --store postgresql://…"
        )


def run_worker(order: WorkerOrder, *, on_ready: Callable[[Parts], None]) -> int:
    """Work until a signal or a run asks the process to end; then everything in flight is paused.

    Returns the exit status. If a restart is wanted, this process begins anew instead, unless the order says
    that a service manager does that.
    """
    from holdfast.gateway.sd_notify import VARIABLES, Notifier
    from holdfast.gateway.supervisor_protocol import STOPPED, WANTS_RESTART

    environ = os.environ.copy()
    # Programs that tasks start must not notify for this process.
    for name in VARIABLES:
        os.environ.pop(name, None)
    request = asyncio.run(_run(order, Notifier(environ), on_ready, environ))
    if not request.wants_restart:
        return STOPPED
    if not order.exits_to_restart:
        start_again(environ)
    return WANTS_RESTART


async def _run(
    order: WorkerOrder, notifier: Notifier, on_ready: Callable[[Parts], None], environ: Mapping[str, str]
) -> StopRequest:
    from holdfast.engine.program.secrets import Secrets
    from holdfast.gateway.serving import END_WITHIN_S, Requests, end_soon
    from holdfast.gateway.supervisor_protocol import STOPPED, WANTS_RESTART

    class NotifiedRequests(Requests):
        """Requests of which the service manager hears, too."""

        def put(self, request: StopRequest) -> None:
            if request.wants_restart:
                notifier.reloading(f"restarting: {request.why}", monotonic_s=time.monotonic())
            else:
                notifier.stopping(f"stopping: {request.why}")
            super().put(request)

    def ready(parts: Parts) -> None:
        notifier.ready(f"carrying {len(order.tasks)} tasks")
        on_ready(parts)

    async def beat() -> None:
        while True:
            notifier.alive()
            await asyncio.sleep(ALIVE_EVERY_S)

    restart = order.config.gateway.restart
    beating = asyncio.get_running_loop().create_task(beat())
    try:
        request = await serve_tasks(
            order.settings,
            order.tasks,
            NotifiedRequests(),
            role="worker",
            options={
                "capacity": order.capacity,
                "drain_timeout": order.drain_timeout,
                "step_patience": order.drain_timeout,
                "secrets": Secrets(declared=declared_secrets(order.config)),
                "max_idle_attempts": restart.max_attempts_without_progress,
                "resume_concurrency": restart.resume_concurrency,
                "wakes": order.config.wakes.options,
                "approval": order.config.policies.approval.classes,
            },
            settings_took=order.took,
            on_ready=ready,
        )
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
    if request.wants_restart and not order.exits_to_restart:
        # Also if a program left a thread behind that never returns.
        watch = threading.Timer(END_WITHIN_S, start_again, [environ])
        watch.daemon = True
        watch.start()
    else:
        end_soon(WANTS_RESTART if request.wants_restart else STOPPED)
    return request


def start_again(environ: Mapping[str, str]) -> NoReturn:
    """Become a new process of the same command line, with the same process id; does not return.

    A service manager sees no end, and new code is read from the disk.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environ))  # noqa: S606 - no shell
