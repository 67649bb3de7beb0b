"""Builds workers: the only place where a process that runs tasks gets its Worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

if TYPE_CHECKING:
    from holdfast.app.parts import Parts
    from holdfast.config.sections import Config
    from holdfast.core.effect import EffectClass
    from holdfast.core.smart_wake import WakeOptions
    from holdfast.core.task import Task
    from holdfast.engine.aio.trouble_log import TroubleLog
    from holdfast.engine.claims.claims import Family
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.engine.program.restart_requests import OnRestart
    from holdfast.engine.program.secrets import Given, Secrets
    from holdfast.engine.recovery.rescue import RescueRecorder
    from holdfast.engine.worker.worker import Worker
    from holdfast.gateway.gateway import MakesWorker

    Tasks = Mapping[str, TaskDefinition[..., Any]]


class WorkerOptions(TypedDict, total=False):
    """What processes choose for their worker; `Worker` documents each option and has its default."""

    capacity: int
    drain_timeout: timedelta
    step_patience: timedelta
    unwind: timedelta
    secrets: Secrets | Given | None
    on_restart: OnRestart | None
    on_let_go: Callable[[str, Task | None], None]
    max_idle_attempts: int
    resume_concurrency: int
    notary: RescueRecorder
    family: Family | None
    troubles: TroubleLog
    wakes: WakeOptions
    approval: frozenset[EffectClass]


def build_worker(parts: Parts, tasks: Tasks, **options: Unpack[WorkerOptions]) -> Worker:
    """A worker that runs these tasks for the boot of `parts`; it claims nothing before its `run`."""
    from holdfast.engine.worker.worker import Worker

    return Worker(parts.store, parts.clock, parts.life, tasks, keep_bytes=parts.keep_results, **options)


def gateway_worker(
    parts: Parts, tasks: Tasks, config: Config, *, secrets: Secrets | Given | None = None
) -> MakesWorker:
    """A function that builds the gateway's worker, once the gateway has what the worker calls back."""
    from holdfast.gateway.gateway import UNWIND_S

    restart = config.gateway.restart
    drain_timeout = timedelta(seconds=restart.drain_timeout_s)
    return partial(
        build_worker,
        parts,
        tasks,
        capacity=config.gateway.capacity,
        drain_timeout=drain_timeout,
        step_patience=drain_timeout,
        unwind=timedelta(seconds=UNWIND_S),
        secrets=secrets,
        max_idle_attempts=restart.max_attempts_without_progress,
        resume_concurrency=restart.resume_concurrency,
        wakes=config.wakes.options,
        approval=config.policies.approval.classes,
    )
