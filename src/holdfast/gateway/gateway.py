"""Owns the services and the order in which they start and stop: recover, serve, drain, restart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.config import in_home
from holdfast.config.sections import Config
from holdfast.core.audit import AuditOutcome
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, NotFound, NotReady, RestartBlocked, SettingsError
from holdfast.core.events import EventKind
from holdfast.core.flow_definition import FlowDefinition
from holdfast.core.hold import ACCEPT, RESUME, Hold
from holdfast.core.ids import new_restart_id
from holdfast.core.manifest import Restart, RestartOutcome, Trigger
from holdfast.core.payload import check_text
from holdfast.core.session import agent_of
from holdfast.core.task import Task
from holdfast.core.transitions import RestartStatus
from holdfast.engine.aio.background import beside
from holdfast.engine.aio.service import Service
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.claims.boots import Life
from holdfast.engine.client.end_watcher import EndWatcher
from holdfast.engine.client.handles import Holdfast
from holdfast.engine.producers.contract import Runtime
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.live_run import shielded
from holdfast.engine.program.restart_requests import OnRestart, WantedRestart
from holdfast.engine.recovery.rescue import RescueRecorder
from holdfast.engine.recovery.start_log import StartLog
from holdfast.engine.schedules.changes import ScheduleLimits
from holdfast.engine.worker.worker import Worker
from holdfast.gateway.audit import AuditRecorder
from holdfast.gateway.inbox import Inbox
from holdfast.gateway.manifests import not_planned, planning, save_file
from holdfast.gateway.pulse import HealthProbe
from holdfast.gateway.readiness import NO_ASKER, Asker, Readiness, interruptions
from holdfast.gateway.recovery import QUARANTINED, Recovery
from holdfast.gateway.refused_restarts import RefusalRecorder
from holdfast.gateway.serving import ended_by_force
from holdfast.gateway.signals import StopRequest
from holdfast.store import Store, Tx
from holdfast.tools.restart import RestartAsked, restarting_through
from holdfast.tools.schedules import scheduling_within
from holdfast.tools.sessions import spawning_through
from holdfast.tools.tasks import stopping_through
from holdfast.upkeep.projection import Projection
from holdfast.upkeep.sweep import Sweep

log = logging.getLogger("holdfast")

ALIVE_EVERY_S = 5.0
# How long interrupted programs may unwind after all of them are paused; then the process ends.
UNWIND_S = 1.0
HEALTHY_AFTER_S = 30.0
# How long services may take to finish their current work.
SERVICES_S = 10.0
# How many restarts are searched for the one that a run asked for.
RECENT = 100
_MOST_TEXT = 2000


class GatewayPhase(StrEnum):
    STARTING = "starting"
    RECOVERING = "recovering"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the gateway, as every door shows it."""

    status: GatewayPhase
    boot_id: str
    pid: int
    started_at: datetime
    is_ready: bool
    in_flight: int
    holds: tuple[Hold, ...] = ()
    restart_id: str | None = None
    # Why the ledger cannot be used now; None when the last check succeeded.
    ledger_problem: str | None = None
    # Why the settings on disk are not applied; None when they are.
    settings_refused: str | None = None

    @property
    def holds_resumes(self) -> bool:
        return bool(self.holds)

    @property
    def why_held(self) -> str | None:
        return self.holds[0].why if self.holds else None


class RestartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a restart; signals and changed settings bypass the readiness gate."""

    reason: str
    triggered_by: str
    force: bool = False
    key: str | None = None
    # An agent that asks does not count itself.
    asker: Asker = NO_ASKER
    session_key: str | None = None
    continuation: str | None = None
    resume_reason: ResumeReason = ResumeReason.EXPLICIT_RESTART


class RestartAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted, with the restart it became part of; or refused, with why and what it would interrupt."""

    is_accepted: bool
    restart_id: str | None = None
    why: str | None = None
    readiness: Readiness


class HoldableService(Protocol):
    """A service that can be told to begin nothing new, and to go on."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class MakesWorker(Protocol):
    """Builds the worker that runs the gateway's tasks, with what the worker calls in the gateway."""

    def __call__(
        self,
        *,
        on_restart: OnRestart,
        on_let_go: Callable[[str, Task | None], None],
        notary: RescueRecorder,
        troubles: TroubleLog,
    ) -> Worker: ...


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A request to stop or restart, queued for the loop that drains."""

    trigger: Trigger
    wants_restart: bool
    # Set when it is decided: None when the process ends, else the reason why it goes on.
    decided: asyncio.Future[str | None] | None = None
    # Whether a trial has shown that the next gateway can start.
    was_tried: bool = False


class Gateway:
    """One gateway process, from its recovery to its drain."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        life: Life,
        config: Config,
        tasks: Mapping[str, TaskDefinition[..., Any]],
        *,
        home: Path,
        inbox: Inbox,
        make_worker: MakesWorker,
        sweep: Sweep,
        services: Sequence[Service] = (),
        held: Sequence[HoldableService] = (),
        why_held: str | None = None,
        tell: Callable[[str], None] = lambda _event: None,
        trial: Callable[[], Awaitable[str | None]] | None = None,
        runtimes: Sequence[Runtime] = (),
        find_flow: Callable[[Config, str], FlowDefinition] | None = None,
        settings_took: timedelta = timedelta(0),
        sources: Mapping[str, str] | None = None,
        urls: Sequence[str] = (),
    ) -> None:
        """`trial` returns why the next gateway could not start, or None when it could. `find_flow` finds a
        flow of the settings; without it, no flow can be started by name."""
        settings = config.gateway.restart
        self.store = store
        self.clock = clock
        self.config = config
        self.inbox = inbox
        self.runtimes = tuple(runtimes)
        self.urls = tuple(urls)
        # Where each setting comes from; the service that watches the settings keeps it up to date.
        self.sources = {} if sources is None else sources
        self.tasks = tasks
        self._settings_took = settings_took
        self._find_flow = find_flow
        self.holdfast = Holdfast(
            store, clock, tasks, owner=config.gateway.owner, runtimes=lambda: self.runtimes
        )
        self._life = life
        self._refusals = RefusalRecorder(store, clock)
        self._pulse = HealthProbe(store, clock)
        self.audit = AuditRecorder(store, clock)
        # For the doors; as a service it is one of `services`.
        self.sweep = sweep
        self.ends = EndWatcher(store)
        # Shared, so that all services together log once that the ledger is away.
        self.troubles = TroubleLog()
        self._services: list[Service] = []
        for service in (*services, self._refusals, self._pulse, self.audit):
            self.add_service(service)
        # Set by the service that watches the settings.
        self.settings_refused: str | None = None
        self._held = list(held)
        self._tell = tell
        self._trial = trial
        self._why_held = why_held
        # Stays the same after a reboot, so that the gateway recognises the restarts that it left open.
        self._place = f"{life.directory} {home}"
        self.home = home
        self._recovery = Recovery(store, clock, life, inbox, settings, place=self._place, home=home)
        self._worker = make_worker(
            on_restart=self._run_requires_restart,
            on_let_go=self.holdfast.endings.tell,
            notary=self._recovery,
            troubles=self.troubles,
        )
        self._wishes: asyncio.Queue[_Wish] = asyncio.Queue()
        # Restarts that runs of this process asked for and that are not decided yet, by request key.
        self._asking: dict[str, asyncio.Future[str | None]] = {}
        self._standing = GatewayPhase.STARTING
        self._restart: Restart | None = None
        # How the process ends; a late stop still turns a restart into a stop.
        self.wants_restart = False
        self.is_ready = asyncio.Event()

    def add_service(self, service: Service) -> None:
        """Add a service that needs the gateway itself; call it before `run`."""
        service.troubles = self.troubles
        self._services.append(service)

    # --- what doors ask

    async def look(self, *, at_most_old_s: float = 0.0) -> GatewayStatus:
        """The status, after a check of the ledger that is at most so old."""
        await self._pulse.look(at_most_old_s=at_most_old_s)
        return self.status()

    def status(self) -> GatewayStatus:
        """The status as it is known, without a check of the ledger; `look` makes one."""
        problem = self._pulse.problem or self.troubles.why_away
        is_serving = self.is_ready.is_set() and self._standing is GatewayPhase.SERVING
        return GatewayStatus(
            status=self._standing,
            boot_id=self._life.id,
            pid=self._life.boot.pid,
            started_at=self._life.boot.started_at,
            is_ready=is_serving and problem is None,
            in_flight=len(self._worker.claims_in_flight()),
            holds=tuple(self._holds()),
            restart_id=None if self._restart is None else self._restart.id,
            ledger_problem=problem,
            settings_refused=self.settings_refused,
        )

    def _holds(self) -> Iterator[Hold]:
        if self._why_held is not None:
            yield Hold(why=self._why_held, remedy=RESUME)
        if self._pulse.held is not None:
            yield Hold(why=self._pulse.held, remedy=ACCEPT)

    def find_flow(self, name: str, /) -> FlowDefinition:
        """The flow that the settings define under this name. Raises NotFound, SettingsError."""
        if self._find_flow is None:
            raise NotFound("flow", name, remedy="this gateway has no flows of the settings")
        return self._find_flow(self.config, name)

    def projection(self) -> Projection:
        return Projection(self._life.proofs, self.clock.now())

    async def preflight(self, asker: Asker = NO_ASKER) -> Readiness:
        """What a restart would interrupt now, without the agent that asks."""
        task_ids = self._task_ids()
        found = await self.store.read(lambda tx: interruptions(tx, task_ids, asker)) if task_ids else []
        settings = self.config.gateway.restart
        threshold = settings.readiness_gate_threshold
        return Readiness(
            is_safe=not settings.readiness_gate or len(found) <= threshold,
            threshold=threshold,
            interruptions=tuple(one for one, _ in found),
            names=tuple(name for _, name in found),
        )

    async def restart(self, request: RestartRequest, *, waits: bool = True) -> RestartAnswer:
        """Ask for a restart. The readiness gate may refuse it, unless it is forced; so does a drain that
        cannot save what is in flight. With `waits`, returns when the drain is over. A run must not wait: the
        drain waits for the run, and both would hang."""
        trigger = self._trigger(request)
        readiness = await self.preflight(request.asker)
        if not readiness.is_safe and not request.force:
            refused = NotReady(readiness.counts, len(readiness.interruptions), readiness.threshold)
            await self._note_refusal([trigger], str(refused))
            return RestartAnswer(is_accepted=False, why=str(refused), readiness=readiness)
        decided = asyncio.get_running_loop().create_future()
        self._want(_Wish(trigger=trigger, wants_restart=True, decided=decided))
        if not waits:
            return RestartAnswer(is_accepted=True, readiness=readiness)
        why = await decided
        restart_id = None if self._restart is None else self._restart.id
        return RestartAnswer(is_accepted=why is None, why=why, restart_id=restart_id, readiness=readiness)

    async def ask(
        self, key: str, reason: str, *, force: bool, session_key: str | None, continuation: str | None
    ) -> RestartAsked:
        """For a tool inside a run: answers at once, because the drain waits for the run."""
        caller = self._worker.caller_of(key)
        asker = Asker(session_key=session_key)
        if caller is not None:
            asker = Asker(task_id=caller.id, session_key=session_key or caller.session_key)
        request = RestartRequest(
            reason=reason,
            triggered_by=asker.session_key or asker.task_id or "run",
            force=force,
            key=key,
            asker=asker,
            session_key=session_key,
            continuation=continuation,
        )
        answer = await self.restart(request, waits=False)
        return RestartAsked(
            is_accepted=answer.is_accepted,
            why=answer.why,
            would_interrupt=() if answer.is_accepted else answer.readiness.names,
        )

    async def asked(self, key: str) -> RestartAsked | None:
        """What became of the recent restart that has this key among its triggers."""
        found = _with_key(await self.restarts(RECENT), key)
        if found is None:
            return None
        why = _why_blocked(found)
        if why is None:
            return RestartAsked(is_accepted=True)
        task_ids = [one.task_id for one in found.manifest.interruptions]
        names = await self.store.read(lambda tx: [name for _, name in interruptions(tx, task_ids)])
        return RestartAsked(is_accepted=False, why=why, would_interrupt=tuple(names))

    async def stop(self, why: str, *, triggered_by: str) -> None:
        """Drain and end; returns when that is decided."""
        decided = asyncio.get_running_loop().create_future()
        request = RestartRequest(reason=why, triggered_by=triggered_by, resume_reason=ResumeReason.SIGNAL)
        self._want(_Wish(trigger=self._trigger(request), wants_restart=False, decided=decided))
        problem = await decided
        if problem is not None:
            raise RestartBlocked(problem)

    async def let_resume(self) -> int:
        """Resume what was held, after a person has looked; returns how many runs."""
        # The reaper stays held meanwhile, so that only this call resumes.
        resumed = await self._worker.take_over(is_allowed=True)
        self._why_held = None
        self._worker.hold_resumes(None)
        await self._recovery.finish()
        return len(resumed.followed_up)

    async def restarts(self, limit: int = 20, before: str = "~") -> list[Restart]:
        found = await self.store.read(lambda tx: tx.restarts.page(limit, before))
        return self._refusals.with_these(found, limit=limit, before=before)

    # --- what signals, runs and settings want

    def put(self, request: StopRequest) -> None:
        """Queue the stop of a signal, or of a dead supervisor: it bypasses the readiness gate."""
        wanted = RestartRequest(reason=request.why, triggered_by="signal", resume_reason=ResumeReason.SIGNAL)
        action = "gateway.restart" if request.wants_restart else "gateway.stop"
        self.audit.note(action, outcome=AuditOutcome.ASKED, why=request.why)
        self._want(_Wish(trigger=self._trigger(wanted), wants_restart=request.wants_restart))

    async def try_settings(self) -> None:
        """Raises SettingsError when the next gateway could not start with the settings on disk."""
        why_not = None if self._trial is None else await self._trial()
        if why_not is not None:
            raise SettingsError(f"the next gateway could not start: {why_not}")

    async def settings_changed(self, keys: Sequence[str]) -> None:
        """Restart for changed settings that were tried and apply only after a restart. Returns when all is
        drained; raises RestartBlocked when a run could not be saved, and the gateway goes on."""
        wanted = RestartRequest(
            reason=f"config-change: {', '.join(keys)}"[:_MOST_TEXT],
            triggered_by="config",
            resume_reason=ResumeReason.CONFIG_RELOAD,
        )
        decided = asyncio.get_running_loop().create_future()
        trigger = self._trigger(wanted)
        self._want(_Wish(trigger=trigger, wants_restart=True, decided=decided, was_tried=True))
        problem = await decided
        if problem is not None:
            raise RestartBlocked(problem)

    def apply(self, config: Config) -> None:
        """Apply live settings; most are read where they are used."""
        self.config = config
        settings = config.gateway.restart
        self._recovery.settings = settings
        self._recovery.cron = config.cron
        self._worker.be_patient(timedelta(seconds=settings.drain_timeout_s))
        self._worker.resume_side_by_side(settings.resume_concurrency)

    def _want(self, wish: _Wish) -> None:
        """Queue a request for the loop that drains. After the drain, a stop can still replace a restart."""
        if self._standing is not GatewayPhase.STOPPED:
            self._wishes.put_nowait(wish)
            return
        if self.wants_restart and not wish.wants_restart:
            log.warning("stopping instead of restarting: %s", wish.trigger.reason)
            self.wants_restart = False
        _decide(wish, None)

    async def _run_requires_restart(self, asked: WantedRestart) -> str | None:
        """Why there is no restart; None when everything is drained. A replayed run finds its first request,
        and what was decided about it."""
        decided = self._asking.get(asked.key)
        if decided is None:
            refused = await self._refusal_of(asked.key)
            if refused is not None:
                return refused
            decided = self._asking.setdefault(asked.key, asyncio.get_running_loop().create_future())
            decided.add_done_callback(lambda _decided: self._asking.pop(asked.key, None))
            wanted = RestartRequest(
                reason=asked.why,
                triggered_by=asked.session_key or asked.task_id,
                key=asked.key,
                resume_reason=ResumeReason.REQUIRES_RESTART,
            )
            self._want(_Wish(trigger=self._trigger(wanted), wants_restart=True, decided=decided))
        return await asyncio.shield(decided)

    async def _refusal_of(self, key: str) -> str | None:
        try:
            found = await self.restarts(RECENT)
        except HoldfastError:  # the ledger is away: search only the refusals that are kept in memory
            found = self._refusals.with_these([], limit=RECENT, before="~")
        restart = _with_key(found, key)
        return None if restart is None else _why_blocked(restart)

    def _trigger(self, request: RestartRequest) -> Trigger:
        if request.session_key is not None:
            agent_of(request.session_key)
        return Trigger(
            # On one line, because it is logged.
            reason=" ".join(check_text("reason", request.reason).split())[:_MOST_TEXT] or "restart",
            triggered_by=request.triggered_by,
            at=self.clock.now(),
            resume_reason=request.resume_reason,
            key=request.key,
            session_key=request.session_key,
            continuation=request.continuation,
        )

    def _task_ids(self) -> list[str]:
        return sorted({claim.task_id for claim in self._worker.claims_in_flight()})

    # --- the run of the process

    async def run(self) -> bool:
        """Recover, serve, drain. True when a restart is wanted, False when the gateway must stay stopped."""
        with (
            restarting_through(self),
            stopping_through(self.runtimes),
            scheduling_within(lambda: _limits_of(self.config)),
            spawning_through(lambda: self.config.agents),
        ):
            return await self._run()

    async def _run(self) -> bool:
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._beat())
            try:
                self._standing = GatewayPhase.RECOVERING
                start = StartLog(self.store, self.clock, self._life.boot)
                await self._take_up(start)
                async with beside(self._worker), self._served():
                    await start.ended()
                    self._standing = GatewayPhase.SERVING
                    self.is_ready.set()
                    self._tell("ready")
                    await self._serve()
            finally:
                beat.cancel()
        return self.wants_restart

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        """Run the services until the block ends; each of their writes is whole, so they can stop anywhere."""
        async with asyncio.TaskGroup() as group:
            serving = [group.create_task(service.run()) for service in self._services]
            try:
                yield
            finally:
                for service in self._services:
                    service.stop()
                # Let a send in progress finish: if it were cut short, its outcome would be unknown.
                await shielded(_ended(serving))
                for child in serving:
                    child.cancel()

    async def _take_up(self, start: StartLog) -> None:
        await start.configured(_counts_of(self.config, len(self.tasks)), took=self._settings_took)
        if self._why_held is not None:
            # The gateway serves and shows what it holds, until an operator or a healthy start releases it.
            self._worker.hold_resumes(self._why_held)
            await self._worker.take_over(start=start)
            return
        resumed = await self._worker.take_over(start=start)
        if resumed.blamed or await self._has_quarantined(list(resumed.failed)):
            # A crash that one run caused does not count towards a crash loop: quarantine handles that run,
            # and its task's attempts bound how often it can crash the gateway.
            self._tell("quarantined")
        await start.go_on(self._recovery.finish)

    async def _has_quarantined(self, checkpoint_ids: Sequence[str]) -> bool:
        def read(tx: Tx) -> bool:
            found = [tx.checkpoints.get(checkpoint_id).diagnostic for checkpoint_id in checkpoint_ids]
            return any(one is not None and one.kind == QUARANTINED for one in found)

        return bool(checkpoint_ids) and await self.store.read(read)

    async def _beat(self) -> None:
        """Send heartbeats to the supervisor, and say once that the gateway is healthy."""
        since, is_told = 0.0, False
        while True:
            self._tell("alive")
            await asyncio.sleep(ALIVE_EVERY_S)
            since += ALIVE_EVERY_S
            # Recovery may take longer than HEALTHY_AFTER_S.
            if since >= HEALTHY_AFTER_S and self.is_ready.is_set() and not is_told:
                is_told = True
                self._tell("healthy")

    async def _serve(self) -> None:
        while not await self._drain(await self._wishes.get()):
            pass

    # --- the drain

    async def _drain(self, first: _Wish) -> bool:
        """True when the process may end; False when the drain was blocked and the gateway goes on."""
        needs_trial = first.wants_restart and not first.was_tried
        why_not = await self._trial() if self._trial is not None and needs_trial else None
        wishes = [first, *self._waiting_wishes()]
        if why_not is not None and all(wish.wants_restart for wish in wishes):
            # A running gateway with the old settings is better than none.
            log.error("not restarted: %s", why_not)
            why_not = f"the next gateway could not start: {why_not}"
            await self._note_refusal([wish.trigger for wish in wishes], why_not)
            for wish in wishes:
                _decide(wish, why_not)
            return False
        self._standing = GatewayPhase.DRAINING
        self._tell("draining")
        for one in self._held:
            one.hold()
        self.inbox.is_closed = not self.config.gateway.restart.drain_queue_messages
        try:
            self._restart = await self._begin_restart(wishes)
        except HoldfastError as error:
            self._go_on(wishes, error.why if isinstance(error, RestartBlocked) else str(error))
            return False
        log.warning("draining: %s", first.trigger.reason)
        self._worker.stop(_reason_for_others(first.trigger), may_go_on=True)
        if sum(not wish.wants_restart for wish in wishes) > 1:
            self._worker.hurry()
        with ended_by_force(self._worker, self.store, self.clock):
            problem = await self._until_drained(wishes)
        if problem is not None:
            await self._note_end(self._restart, problem)
            self._go_on(wishes, problem)
            return False
        await self._note_end(self._restart)
        self._standing = GatewayPhase.STOPPED
        self.wants_restart = all(wish.wants_restart for wish in wishes)
        # Also answer requests that arrived while the end was being noted.
        for wish in (*wishes, *self._waiting_wishes()):
            self._want(wish)
        return True

    async def _begin_restart(self, wishes: Sequence[_Wish]) -> Restart:
        """Write the manifest to the ledger and to its file before anything is stopped. If the ledger cannot
        be written, nothing is stopped. If only the file cannot be written, a restart is blocked and a stop is
        not: the next start needs only the ledger."""
        triggers = [wish.trigger for wish in wishes]
        try:
            planned = await self._plan(triggers)
        except HoldfastError as error:
            self._refusals.add(self._not_planned(triggers), str(error))
            raise
        now = planned.requested_at

        def begin(tx: Tx) -> Restart:
            restart = tx.restarts.create(planned)
            if restart is planned:  # not found from an earlier commit whose answer was lost
                tx.emit(EventKind.RESTART_BEGUN, restart.id, at=now, reason=restart.manifest.reason)
            return restart

        try:
            await self._refusals.run_once()  # note earlier refusals first, to keep the order
            restart = await self.store.write(begin)
        except HoldfastError as error:
            self._refusals.add(planned, str(error))
            raise
        named = self.config.gateway.restart.manifest_path
        try:
            path = in_home(self.home, named, key="gateway.restart.manifest_path")
            await asyncio.to_thread(save_file, path, restart.manifest)
        except (RestartBlocked, SettingsError) as error:
            why = error.why if isinstance(error, RestartBlocked) else str(error)
            if all(wish.wants_restart for wish in wishes):
                await self._note_end(restart, why)
                raise
            log.warning("%s; the gateway stops anyway, because the ledger has the manifest", why)
        return restart

    async def _plan(self, triggers: Sequence[Trigger]) -> Restart:
        now = self.clock.now()
        plan = planning(
            new_restart_id(now),
            boot_id=self._life.id,
            place=self._place,
            task_ids=self._task_ids(),
            triggers=triggers,
            now=now,
        )
        return await self.store.read(plan)

    def _not_planned(self, triggers: Sequence[Trigger]) -> Restart:
        now = self.clock.now()
        restart_id = new_restart_id(now)
        return not_planned(restart_id, boot_id=self._life.id, place=self._place, triggers=triggers, now=now)

    async def _note_refusal(self, triggers: Sequence[Trigger], why: str) -> None:
        """List a restart that never began among the restarts, with what it would have interrupted: in the
        ledger, or in memory until the ledger can be written."""
        try:
            refused = await self._plan(triggers)
        except HoldfastError:
            refused = self._not_planned(triggers)
        self._refusals.add(refused, why)
        try:
            await self._refusals.run_once()
        except HoldfastError as error:
            log.warning("the refusal of %s is not in the ledger yet: %s", refused.id, error)

    async def _until_drained(self, wishes: list[_Wish]) -> str | None:
        """Drain; returns why it was blocked. Later requests join this one; a second stop makes it hurry."""
        decided = asyncio.ensure_future(self._worker.until_decided())
        try:
            while not decided.done():
                another = asyncio.ensure_future(self._wishes.get())
                await asyncio.wait([decided, another], return_when=asyncio.FIRST_COMPLETED)
                if another.done():
                    await self._join(wishes, another.result())
                else:
                    another.cancel()
                    await asyncio.gather(another, return_exceptions=True)
        finally:
            decided.cancel()
            await asyncio.gather(decided, return_exceptions=True)
        problem = decided.result()
        return None if problem is None else str(problem)

    async def _join(self, wishes: list[_Wish], wish: _Wish) -> None:
        assert self._restart is not None
        if not wish.wants_restart and any(not one.wants_restart for one in wishes):
            self._worker.hurry()
        wishes.append(wish)
        restart_id, trigger, now = self._restart.id, wish.trigger, self.clock.now()
        with contextlib.suppress(HoldfastError):  # the drain goes on; only this reason is not recorded
            self._restart = await self.store.write(
                lambda tx: tx.restarts.add_triggers(restart_id, [trigger], now=now)
            )

    def _waiting_wishes(self) -> list[_Wish]:
        found = []
        while not self._wishes.empty():
            found.append(self._wishes.get_nowait())
        return found

    def _go_on(self, wishes: Sequence[_Wish], why: str) -> None:
        log.error("the restart is blocked: %s; the gateway goes on", why)
        for one in self._held:
            one.go_on()
        self.inbox.is_closed = False
        self._standing = GatewayPhase.SERVING
        self._restart = None
        self._tell("ready")
        for wish in wishes:
            _decide(wish, why)

    async def _note_end(self, restart: Restart, why_blocked: str | None = None) -> None:
        """Note that the restart drained or was blocked. If that fails, the next start asks the runs."""
        now = self.clock.now()

        def note(tx: Tx) -> None:
            if tx.restarts.get(restart.id).status is not RestartStatus.DRAINING:
                return
            if why_blocked is None:
                tx.restarts.move(restart.id, RestartStatus.DRAINED, now=now)
                tx.emit(EventKind.RESTART_DRAINED, restart.id, at=now, reason=restart.manifest.reason)
            else:
                outcome = RestartOutcome(why_blocked=why_blocked)
                tx.restarts.settle(restart.id, RestartStatus.BLOCKED, now=now, outcome=outcome)
                tx.emit(EventKind.RESTART_BLOCKED, restart.id, at=now, why=why_blocked)

        try:
            await self.store.write(note)
        except HoldfastError as error:
            log.warning("the end of %s is not in the ledger: %s", restart.id, error)
            if why_blocked is not None:
                self._refusals.add(restart, why_blocked)


async def _ended(children: Sequence[asyncio.Task[None]]) -> None:
    if children:
        await asyncio.wait(children, timeout=SERVICES_S)


def _with_key(restarts: Sequence[Restart], key: str) -> Restart | None:
    """The newest restart that was asked for with this key."""
    return next((one for one in restarts if any(trigger.key == key for trigger in one.triggers)), None)


def _why_blocked(restart: Restart) -> str | None:
    if restart.status is not RestartStatus.BLOCKED:
        return None
    return (None if restart.outcome is None else restart.outcome.why_blocked) or "it could not be done"


def _reason_for_others(trigger: Trigger) -> ResumeReason:
    """The resume reason for the other runs: only the run that asked gets `requires_restart`."""
    if trigger.resume_reason is ResumeReason.REQUIRES_RESTART:
        return ResumeReason.EXPLICIT_RESTART
    return trigger.resume_reason


def _decide(wish: _Wish, why: str | None) -> None:
    if wish.decided is not None and not wish.decided.done():
        wish.decided.set_result(why)


def _counts_of(config: Config, tasks: int) -> dict[str, int]:
    """What the first step of a start has read."""
    return {
        "agents": len(config.agents),
        "tasks": tasks,
        "schedules": len(config.schedules),
        "channels": len(config.channels),
    }


def _limits_of(config: Config) -> ScheduleLimits:
    """What agents may schedule themselves."""
    interval = timedelta(seconds=config.cron.min_agent_interval_s)
    return ScheduleLimits(most=config.cron.max_per_agent, min_interval=interval)
