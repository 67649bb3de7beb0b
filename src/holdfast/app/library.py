"""holdfast.open, serve and detached: a script, or a process of its own, on a ledger."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.app.parts import open_parts
from holdfast.app.workers import build_worker
from holdfast.config import Settings, read_seal, read_settings
from holdfast.core.clock import Clock
from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import BadInput

if TYPE_CHECKING:
    from holdfast.core.seal_mode import SealMode
    from holdfast.engine.claims.claims import Family
    from holdfast.engine.client.detached import DetachedTask
    from holdfast.engine.client.handles import Holdfast
    from holdfast.engine.producers.contract import Runtime
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.engine.program.secrets import Given as GivenSecrets
    from holdfast.engine.program.secrets import Secrets
    from holdfast.gateway.signals import StopRequest
    from holdfast.store.outer_keys import Given


@contextlib.asynccontextmanager
async def open(  # noqa: A001 - `holdfast.open(…)` is how it reads
    url: str,
    *,
    tasks: Sequence[TaskDefinition[..., Any]] = (),
    clock: Clock | None = None,
    home: Path | None = None,
    owner: str = "system",
    capacity: int = 1000,
    drain_timeout: Duration = "30s",
    secrets: Secrets | GivenSecrets | None = None,
    on_restart: Callable[[str], object] | None = None,
    role: str = "script",
    family: Family | None = None,
    seal: SealMode | str | None = None,
    key: Given | None = None,
    runtimes: Sequence[Runtime] = (),
) -> AsyncIterator[Holdfast]:
    """The whole set-up of a script: a ledger, and the tasks that this process runs while the block is open.

    Runs that were in flight when an earlier process died are resumed. Runs that are in flight at the end of
    the block are paused, and resumed when a process opens the ledger again; effects in flight get up to
    `drain_timeout` to finish. An exception of the body comes out unchanged. Without tasks, use it to start
    tasks and to read. With a family, this process runs only the task that was chosen there and its children.

    `on_restart` is called with the reason when a run calls `run.requires_restart`: end the block soon, and
    start the process again. The run is paused at the end of the block, and goes on in the next process. It
    may be a coroutine function, and raises RestartRefused to refuse. Without it every such call is refused.

    `secrets` declares what steps get in place of `hf.secret("NAME")`: each name with its value or a function
    that returns it, or one function for any name. HOLDFAST_SECRET_NAME in the environment declares one, too.

    `seal` says which values are sealed: those that hold `secrets`, `all`, or `never` any; the default is what
    the settings say. `key` opens them: its text, its 32 bytes, or a function that fetches either. Without it
    the key is HOLDFAST_KEY, what `store.key_command` prints, or a file beside the ledger, which is created
    with the first secret.

    `runtimes` are asked first when recorded work is to be stopped; see `holdfast.producers`.
    """
    from holdfast.app.campaigns import LazyCampaignStarter
    from holdfast.app.runtimes import FOR_A_GATEWAY, runtimes_of
    from holdfast.engine.aio.background import beside
    from holdfast.engine.client.handles import Holdfast
    from holdfast.engine.producers.stopper import Stopper
    from holdfast.engine.program.definitions import by_name

    ask_restart = None
    if on_restart is not None:
        from holdfast.engine.program.restart_requests import calling

        if not callable(on_restart):
            raise BadInput(
                "on_restart", f"a function of the reason is needed, not {type(on_restart).__name__}"
            )
        ask_restart = calling(on_restart)
    known = by_name(tasks)
    limit = parse_duration("drain_timeout", drain_timeout)
    settings = _settings_of(url, home, seal)
    async with open_parts(settings, clock=clock, role=role, names=sorted(known), key=key) as parts:
        known_runtimes = runtimes_of(parts, settings, runtimes)
        holdfast = Holdfast(
            parts.store, parts.clock, known, owner=owner, boot_id=parts.life.id, runtimes=known_runtimes
        )
        if not known:
            yield holdfast
            return
        worker = build_worker(
            parts,
            known,
            capacity=capacity,
            drain_timeout=limit,
            secrets=secrets,
            on_restart=ask_restart,
            on_let_go=holdfast.endings.tell,
            family=family,
        )
        await worker.take_over()
        stopper = Stopper(parts.store, parts.clock, known_runtimes, patience=FOR_A_GATEWAY)
        async with (
            beside(worker),
            beside(stopper),
            beside(LazyCampaignStarter(parts.store, parts.clock, host=parts.life.boot.node)),
        ):
            yield holdfast


@contextlib.asynccontextmanager
async def detached(
    name: str, *, store: str | None = None, home: Path | None = None, owner: str = "system", **facts: Any
) -> AsyncIterator[DetachedTask]:
    """Record the work of one block, in a program that needs nothing else of the ledger: `async with
    holdfast.detached("render", owner="ada") as task: await task.progress("frame 1")`.

    The ledger is open while the block runs: the one that `store` names, else HOLDFAST_STORE, else the one of
    the home. The other arguments are those of `Holdfast.detached`; a program that has opened a ledger uses
    that one.
    """
    from holdfast.engine.client.handles import Holdfast

    settings = _settings_of(store, home, None)
    async with open_parts(settings, role="script", names=[]) as parts:
        holdfast = Holdfast(parts.store, parts.clock, {}, owner=owner, boot_id=parts.life.id)
        async with holdfast.detached(name, **facts) as task:
            yield task


async def serve(
    url: str,
    *,
    tasks: Sequence[TaskDefinition[..., Any]],
    clock: Clock | None = None,
    home: Path | None = None,
    capacity: int = 1000,
    drain_timeout: Duration = 90,
    secrets: Secrets | GivenSecrets | None = None,
    seal: SealMode | str | None = None,
    key: Given | None = None,
    runtimes: Sequence[Runtime] = (),
) -> StopRequest:
    """Run these tasks until SIGTERM, SIGINT or SIGUSR1, or until a run says that it needs a restart.

    Then the process claims nothing new; runs in flight stop at their next call, at the latest after
    `drain_timeout`, and are paused. A second SIGTERM or SIGINT stops at once. The answer says whether a
    restart is wanted: `if asyncio.run(holdfast.serve(…)).wants_restart: …`. `secrets`, `seal` and `key` are
    as for `open`. Schedules of these tasks fire here, too.
    """
    from holdfast.app.serving import serve_tasks
    from holdfast.engine.program.definitions import by_name
    from holdfast.gateway.serving import Requests

    limit = parse_duration("drain_timeout", drain_timeout)
    return await serve_tasks(
        _settings_of(url, home, seal),
        by_name(tasks),
        Requests(),
        role="serve",
        clock=clock,
        options={
            "capacity": capacity,
            "drain_timeout": limit,
            "step_patience": limit,
            "secrets": secrets,
        },
        key=key,
        runtimes=runtimes,
    )


def _settings_of(url: str | None, home: Path | None, seal: SealMode | str | None) -> Settings:
    settings = read_settings(os.environ, store=url, home=None if home is None else str(home))
    return settings if seal is None else msgspec.structs.replace(settings, seal=read_seal(seal, "seal"))
