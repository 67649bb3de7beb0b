"""The table of RPC methods: name, scope, parameters, answer and function; used by every transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    audit,
    checkpoints,
    deliveries,
    events,
    imports,
    ledger,
    openclaw,
    overview,
    producers,
    questions,
    restart,
    reviews,
    schedule_params,
    schedules,
    sessions,
    settings,
    starts,
    steps,
    task_changes,
    task_lists,
    task_waits,
    tasks,
    token_methods,
    upkeep,
    wakes,
)
from holdfast.api.agent_methods import AGENT_METHODS
from holdfast.api.alert_methods import ALERT_METHODS
from holdfast.api.calendar_methods import CALENDAR_METHODS
from holdfast.api.campaign_checkpoint_methods import CAMPAIGN_CHECKPOINT_METHODS
from holdfast.api.campaign_methods import CAMPAIGN_METHODS
from holdfast.api.contract import ADMIN, READ, WRITE, Caller, GatewayDoor
from holdfast.api.dashboard_methods import DASHBOARD_METHODS
from holdfast.api.failure_methods import FAILURE_METHODS
from holdfast.api.flow_methods import FLOW_METHODS
from holdfast.api.method_kinds import Method, P, V
from holdfast.api.method_kinds import acts as _acts
from holdfast.api.method_kinds import audited as _audited
from holdfast.api.method_kinds import calls as _calls
from holdfast.api.method_kinds import decides as _decides
from holdfast.api.method_kinds import reads as _reads
from holdfast.api.method_kinds import reads_own as _reads_own
from holdfast.api.method_kinds import reports_own as _reports_own
from holdfast.api.method_kinds import run_write as _write
from holdfast.api.method_kinds import shows_own as _shows_own
from holdfast.api.method_kinds import writes as _writes
from holdfast.api.method_kinds import writes_own as _writes_own
from holdfast.api.openclaw_methods import OPENCLAW_METHODS
from holdfast.api.params import Nothing
from holdfast.api.throughput_methods import THROUGHPUT_METHODS
from holdfast.api.timeline_methods import TIMELINE_METHODS
from holdfast.api.worker_methods import WORKER_METHODS
from holdfast.views.audit import AuditPageView
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView
from holdfast.views.config import ConfigView
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView
from holdfast.views.effects import ResolvedView, ReviewDetailView, ReviewPageView
from holdfast.views.events import EventPageView
from holdfast.views.gateway import (
    GatewayView,
    LetResumeView,
    PreflightView,
    ReadinessView,
    RestartAnswerView,
    RestartPageView,
    StoppingView,
)
from holdfast.views.health import AcceptedView
from holdfast.views.imports import BatchTakenView, ImportBegunView
from holdfast.views.methods import DescriptionView, MethodView
from holdfast.views.questions import AnsweredView, QuestionPageView, QuestionView
from holdfast.views.recorded import RecordedView
from holdfast.views.schedules import (
    FiringPageView,
    SchedulePageView,
    ScheduleRemovedView,
    ScheduleRunView,
    ScheduleStatusView,
    ScheduleView,
)
from holdfast.views.sessions import (
    SessionDetailView,
    SessionPageView,
    SpawnedView,
    TranscriptView,
)
from holdfast.views.snapshot import SnapshotView
from holdfast.views.starts import RecoveryView
from holdfast.views.status import OverviewView
from holdfast.views.steps import StepPageView
from holdfast.views.tasks import (
    CancelView,
    CreatedView,
    ForkedView,
    NotifyView,
    ResultView,
    RetriedPageView,
    RetriedView,
    TaskDetailView,
    TaskPageView,
    WaitedView,
)
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView
from holdfast.views.upkeep import AuditView, MaintenanceView
from holdfast.views.wakes import WakeHistoryView, WakePageView, WakeView
from holdfast.views.wire import TaskCancelled, TaskFound, TaskListed, TasksDismissed, TasksRetried, TaskWaited

if TYPE_CHECKING:
    from holdfast.store.contract import Write


def _begins(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write that only commands on this machine may call."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        return await _write(gateway, name, writing, asked, caller)

    return _audited(name, params, answer, call, summary, scope=ADMIN, is_local=True)


def _schedules_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method of one write to a schedule that the caller may reach."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> V:
        by = schedules.ScheduleCaller.of(gateway.config, caller, gateway.tasks)
        return await _write(gateway, name, writing, asked, caller, by=by)

    return _audited(name, params, answer, call, summary, is_owned=True)


def _cancels_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A cancel: of work that others execute, its runtime is asked to stop it before the record ends."""

    async def call(gateway: GatewayDoor, asked: Any, caller: Caller) -> V:
        target = asked.run_id if isinstance(asked, producers.RunCancelAsked) else asked.task_id
        why = asked.reason or "cancelled by an operator"
        cannot_stop = await producers.why_not_stopped(
            gateway.store, gateway.clock, gateway.runtimes, target, why, caller.reach
        )
        return await _write(
            gateway, name, writing, asked, caller, reach=caller.reach, cannot_stop=cannot_stop
        )

    return _audited(name, params, answer, call, summary, is_owned=True)


async def _answer(gateway: GatewayDoor, asked: questions.AnswerAsked, caller: Caller) -> AnsweredView:
    answered = await _write(
        gateway, "questions.answer", questions.recording_answer, asked, caller, by=caller.who
    )
    # Build the view after the commit, so that other writes do not wait; in a thread, because it may be long.
    return await asyncio.to_thread(AnsweredView.of, *answered, has_gateway=True)


async def _prune(gateway: GatewayDoor, asked: checkpoints.PruneAsked, caller: Caller) -> PrunedView:  # noqa: ARG001
    moment = checkpoints.moment_of(asked, gateway.clock.now())
    if asked.is_dry_run:
        return await gateway.store.read(lambda tx: checkpoints.prunable(tx, moment))
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(checkpoints.prune, gateway.store.write_now, moment)


async def _retry_page(gateway: GatewayDoor, asked: tasks.RetryPageAsked, caller: Caller) -> RetriedPageView:
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(tasks.retry_page, gateway.store, asked, reach=caller.reach)


async def _fork(gateway: GatewayDoor, asked: tasks.ForkAsked, caller: Caller) -> ForkedView:
    # In a thread: the history of a task may be long.
    return await asyncio.to_thread(
        tasks.fork_task, gateway.store, asked, now=gateway.clock.now(), reach=caller.reach
    )


async def _describe(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> DescriptionView:  # noqa: ARG001
    return DescriptionView(methods=[describe(method) for method in METHODS.values()])


def describe(method: Method) -> MethodView:
    return MethodView(
        name=method.name,
        scope=method.scope,
        summary=method.summary,
        params=msgspec.json.schema(method.params),
        is_owned=method.is_owned,
        is_local=method.is_local,
        answer=method.answer.__name__,
    )


_TABLE = [
    # Tasks in the format of OpenClaw's protocol.
    _shows_own(
        "tasks.list",
        openclaw.ListAsked,
        TaskListed,
        openclaw.list_tasks,
        "A page of tasks in OpenClaw's format; by creation, last change or end, newest first.",
    ),
    _shows_own(
        "tasks.get",
        openclaw.GetAsked,
        TaskFound,
        openclaw.get_task,
        "One task in OpenClaw's format.",
    ),
    _cancels_own(
        "tasks.cancel",
        openclaw.WireCancelAsked,
        TaskCancelled,
        openclaw.cancelling_wire_task,
        "Cancel a task; for a missing task the answer says so, without an error.",
    ),
    _calls(
        "tasks.wait",
        READ,
        task_waits.WireWaitAsked,
        TaskWaited,
        task_waits.wire_wait,
        "Wait until a task has ended, for a bounded time.",
        is_owned=True,
    ),
    _writes_own(
        "tasks.retry",
        openclaw.SeveralAsked,
        TasksRetried,
        openclaw.retrying_tasks,
        "Retry tasks whose resume has failed.",
    ),
    _writes_own(
        "tasks.dismiss",
        openclaw.SeveralAsked,
        TasksDismissed,
        openclaw.dismissing_tasks,
        "Drop the pending and failed deliveries of these tasks.",
    ),
    # Schedules in the format of OpenClaw's protocol.
    _calls(
        "cron.list",
        READ,
        schedule_params.SchedulesAsked,
        SchedulePageView,
        schedules.call_list,
        "A page of schedules, with the next and the last firing of each.",
        is_owned=True,
    ),
    _calls(
        "cron.get",
        READ,
        schedule_params.ScheduleAsked,
        ScheduleView,
        schedules.call_show,
        "One schedule.",
        is_owned=True,
    ),
    _calls(
        "cron.status",
        READ,
        Nothing,
        ScheduleStatusView,
        schedules.call_status,
        "How many schedules there are, and when the next one is due.",
        is_owned=True,
    ),
    _schedules_own(
        "cron.add",
        schedule_params.ScheduleAddAsked,
        ScheduleView,
        schedules.adding_schedule,
        "Add a schedule: for an agent's prompt, a task, or (with operator.admin) a command.",
    ),
    _schedules_own(
        "cron.update",
        schedule_params.ScheduleEditAsked,
        ScheduleView,
        schedules.editing_schedule,
        "Change, pause (`enabled: false`) or resume a schedule; refused if another change came first.",
    ),
    _schedules_own(
        "cron.remove",
        schedule_params.ScheduleRemoveAsked,
        ScheduleRemovedView,
        schedules.removing_schedule,
        "Remove a schedule; its history stays.",
    ),
    _schedules_own(
        "cron.run",
        schedule_params.ScheduleRunAsked,
        ScheduleRunView,
        schedules.running,
        "Fire a schedule now; with the same `requestId` only once.",
    ),
    _calls(
        "cron.runs",
        READ,
        schedule_params.FiringsAsked,
        FiringPageView,
        schedules.call_history,
        "The history of a schedule, or of all, with the task of each firing.",
        is_owned=True,
    ),
    # The ledger, as the CLI prints it.
    _calls(
        "ledger.list",
        READ,
        task_lists.TasksAsked,
        TaskPageView,
        task_lists.list_tasks,
        "A page of tasks by any filter, newest first, with the number of tasks in each status.",
        is_owned=True,
    ),
    Method(
        name="ledger.show",
        scope=READ,
        params=tasks.TaskAsked,
        answer=TaskDetailView,
        call=tasks.show,
        summary="One task in full.",
        is_owned=True,
    ),
    _reads_own(
        "ledger.steps",
        steps.StepsAsked,
        StepPageView,
        steps.read_steps,
        "The steps of a task, also of finished turns: their arguments and what is kept of their results.",
    ),
    _calls(
        "ledger.overview",
        READ,
        Nothing,
        OverviewView,
        overview.overview,
        "The number of reviews, questions and failures that a person may have to look at.",
    ),
    _calls(
        "ledger.result",
        # Needs the write scope: readers get the redacted values of `ledger.show`.
        WRITE,
        task_waits.ResultAsked,
        ResultView,
        task_waits.result,
        "The outcome of a task with its full result; can wait for the end.",
        is_owned=True,
    ),
    _calls(
        "ledger.wait",
        READ,
        task_waits.WaitAsked,
        WaitedView,
        task_waits.wait,
        "Wait until a task has ended, for a bounded time; if it has not, what it waits for.",
        is_owned=True,
    ),
    _cancels_own(
        "ledger.cancel",
        task_changes.CancelAsked,
        CancelView,
        task_changes.cancelling_task,
        "Cancel a task; the answer says whether it is cancelled, and why not.",
    ),
    _writes_own(
        "ledger.notify",
        task_changes.NotifyAsked,
        NotifyView,
        task_changes.setting_notify,
        "Choose which updates the requester of a task gets: of its end, of changes too, or none.",
    ),
    _writes_own(
        "ledger.retry",
        tasks.RetryAsked,
        RetriedView,
        tasks.retrying_one,
        "Retry a task that ended without success, from its last good point.",
    ),
    _acts(
        "ledger.retry_page",
        WRITE,
        tasks.RetryPageAsked,
        RetriedPageView,
        _retry_page,
        "Retry a page of tasks, selected by status, name or owner.",
        is_owned=True,
    ),
    _acts(
        "ledger.fork",
        WRITE,
        tasks.ForkAsked,
        ForkedView,
        _fork,
        "Create a new task with the history of another, up to the end of one of its turns.",
        is_owned=True,
    ),
    _writes_own(
        "ledger.create",
        ledger.CreateAsked,
        CreatedView,
        ledger.creating_task,
        "Create a task for a worker that knows its name.",
    ),
    # One task over time, and failed tasks by cause.
    *TIMELINE_METHODS,
    *FAILURE_METHODS,
    # Flows: state above several tasks.
    *FLOW_METHODS,
    # Alerts: rules over figures of campaigns and of the ledger.
    *ALERT_METHODS,
    *AGENT_METHODS,
    *CAMPAIGN_METHODS,
    *CAMPAIGN_CHECKPOINT_METHODS,
    *THROUGHPUT_METHODS,
    # Work that others execute and Holdfast records.
    _writes_own(
        "producer.create",
        producers.RecordAsked,
        RecordedView,
        producers.recording_work,
        "Record work that the caller executes itself, queued or already running.",
    ),
    _writes_own(
        "producer.start",
        producers.RunAsked,
        RecordedView,
        producers.starting_work,
        "Recorded work has started.",
    ),
    _reports_own(
        "producer.progress",
        producers.ProgressAsked,
        RecordedView,
        producers.progressing_work,
        "The progress of recorded work; it counts as a sign of life.",
    ),
    _reports_own(
        "producer.beat",
        producers.RunAsked,
        RecordedView,
        producers.beating_work,
        "A sign of life; the answer tells whether a cancel was requested.",
    ),
    _reports_own(
        "producer.dropped",
        producers.DroppedAsked,
        RecordedView,
        producers.noting_dropped,
        "The producer could not send some reports: they are counted, and an audit tells of them.",
    ),
    _writes_own(
        "producer.finish",
        producers.FinishAsked,
        RecordedView,
        producers.finishing_work,
        "Recorded work has succeeded; the same call again changes nothing.",
    ),
    _writes_own(
        "producer.fail",
        producers.FailAsked,
        RecordedView,
        producers.failing_work,
        "Recorded work has failed, timed out, or was stopped by its producer.",
    ),
    _cancels_own(
        "producer.cancel",
        producers.RunCancelAsked,
        RecordedView,
        producers.cancelling_work,
        "Let the runtime stop recorded work, and end its record.",
    ),
    _reads(
        "reviews.list",
        reviews.ReviewsAsked,
        ReviewPageView,
        lambda tx, asked: reviews.read_page(tx, after=asked.page_token or "", limit=asked.limit),
        "Effects whose outcome is unknown, oldest first.",
    ),
    _reads(
        "reviews.show",
        reviews.ReviewAsked,
        ReviewDetailView,
        lambda tx, asked: reviews.read_detail(tx, tx.effects.resolve(asked.effect_id)),
        "One effect in full.",
    ),
    _decides(
        "reviews.resolve",
        reviews.ResolveAsked,
        ResolvedView,
        reviews.resolving_effect,
        "Decide about an effect: done, retry, skip or compensate.",
    ),
    _reads(
        "questions.list",
        questions.QuestionsAsked,
        QuestionPageView,
        lambda tx, asked: questions.read_page(tx, after=asked.page_token or "", limit=asked.limit),
        "Open questions that tasks ask a person, oldest first.",
    ),
    _reads(
        "questions.show",
        questions.QuestionAsked,
        QuestionView,
        questions.read_question,
        "One question, also one that was answered.",
    ),
    _audited(
        "questions.answer",
        questions.AnswerAsked,
        AnsweredView,
        _answer,
        "Answer a question; the first answer counts.",
    ),
    _reads(
        "deliveries.list",
        deliveries.DeliveriesAsked,
        DeliveryPageView,
        lambda tx, asked: deliveries.read_page(
            tx, which=asked.which, after=asked.page_token or "", limit=asked.limit
        ),
        "Failed deliveries, oldest first; or those still to be sent.",
    ),
    _decides(
        "deliveries.retry",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.retrying_delivery,
        "Send a failed delivery again.",
    ),
    _decides(
        "deliveries.confirm",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.confirming_delivery,
        "Record that a delivery of unknown outcome had arrived.",
    ),
    _decides(
        "deliveries.dismiss",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.dismissing_delivery,
        "Drop a delivery without sending it.",
    ),
    _reads(
        "checkpoints.list",
        checkpoints.CheckpointsAsked,
        CheckpointPageView,
        checkpoints.read_page,
        "Checkpoints, newest first.",
    ),
    _reads(
        "checkpoints.show",
        checkpoints.CheckpointAsked,
        CheckpointView,
        lambda tx, asked: checkpoints.read_checkpoint(tx, asked.checkpoint_id),
        "One checkpoint in full.",
    ),
    _writes(
        "checkpoints.retry",
        checkpoints.CheckpointAsked,
        CheckpointLineView,
        checkpoints.retrying_checkpoint,
        "Retry a failed resume.",
    ),
    _reads("wakes.list", wakes.WakesAsked, WakePageView, wakes.list_wakes, "What is to be woken."),
    _reads("wakes.history", wakes.WakeHistoryAsked, WakeHistoryView, wakes.read_history, "Past wakes."),
    _writes("wakes.cancel", wakes.WakeCancelAsked, WakeView, wakes.cancelling, "Cancel a wake."),
    _calls(
        "wake",
        WRITE,
        wakes.WakeAsked,
        wakes.WokenView,
        wakes.wake,
        "Wake an agent, as OpenClaw's clients do.",
    ),
    _acts(
        "checkpoints.prune",
        ADMIN,
        checkpoints.PruneAsked,
        PrunedView,
        _prune,
        "Delete old checkpoints of ended tasks.",
    ),
    _reads_own(
        "events.list",
        events.EventsAsked,
        EventPageView,
        events.read_page,
        "Events in order: the newest ones, or those after a position.",
    ),
    _reads(
        "audit.list",
        audit.AuditAsked,
        AuditPageView,
        audit.read_page,
        "Entries of the audit log, newest first.",
    ),
    _calls(
        "upkeep.audit",
        READ,
        upkeep.FindingsAsked,
        AuditView,
        upkeep.read_audit,
        "What is wrong in the ledger, errors first, each with the command that helps.",
    ),
    _acts(
        "upkeep.maintenance",
        WRITE,
        upkeep.MaintenanceAsked,
        MaintenanceView,
        upkeep.maintain_ledger,
        "Sweep the ledger now, or preview what a sweep would change.",
    ),
    # Conversations.
    _calls(
        "sessions.page",
        READ,
        sessions.SessionsAsked,
        SessionPageView,
        sessions.page,
        "A page of sessions, most recently used first.",
    ),
    _calls(
        "sessions.transcript",
        READ,
        sessions.HistoryAsked,
        TranscriptView,
        sessions.transcript,
        "The transcript of a session; can wait for new messages.",
    ),
    _calls(
        "sessions.get",
        READ,
        sessions.SessionAsked,
        SessionDetailView,
        sessions.get,
        "One session with its last messages.",
    ),
    _calls(
        "sessions.tasks",
        READ,
        sessions.SessionTasksAsked,
        SnapshotView,
        sessions.tasks,
        "What the tasks of a session do now, for an agent.",
        is_owned=True,
    ),
    _audited(
        "sessions.spawn",
        sessions.SpawnAsked,
        SpawnedView,
        sessions.spawn,
        "Give work to a child session, which is woken until it is done; idempotent by its task_id.",
        is_owned=True,
    ),
    # The process.
    _calls("gateway.status", READ, Nothing, GatewayView, restart.status, "Status of the gateway."),
    _calls(
        "gateway.readiness",
        READ,
        Nothing,
        ReadinessView,
        restart.readiness,
        "What a restart would interrupt now.",
    ),
    _calls(
        "gateway.restart.preflight",
        READ,
        Nothing,
        PreflightView,
        restart.preflight,
        "The same in OpenClaw's format.",
    ),
    _acts(
        "gateway.restart",
        ADMIN,
        restart.RestartParams,
        RestartAnswerView,
        restart.restart,
        "Drain, restart and resume. Refused, with a list, if too much is in flight.",
    ),
    _calls(
        "gateway.restarts",
        READ,
        restart.RestartsAsked,
        RestartPageView,
        restart.restarts,
        "Past restarts, and the outcome of the work that each interrupted.",
    ),
    _calls(
        "gateway.recovery",
        READ,
        starts.StartAsked,
        RecoveryView,
        starts.recovery,
        "What each step of a start found and did: of the newest gateway or worker, or of one of them.",
    ),
    _acts(
        "gateway.resume",
        ADMIN,
        Nothing,
        LetResumeView,
        restart.let_resume,
        "Release work held after a crash loop.",
    ),
    _acts(
        "store.accept",
        ADMIN,
        Nothing,
        AcceptedView,
        ledger.accept_store,
        "Accept a database that is older than its mark, such as a restored backup.",
    ),
    _begins(
        "imports.begin",
        imports.ImportBeginAsked,
        ImportBegunView,
        imports.beginning,
        "Record in the audit log that an import begins.",
    ),
    _calls(
        "imports.flows",
        ADMIN,
        imports.ImportFlowsAsked,
        BatchTakenView,
        imports.take_flows,
        "Import a batch of flows of another gateway, before and after their tasks.",
        is_local=True,
    ),
    _calls(
        "imports.tasks",
        ADMIN,
        imports.ImportBatchAsked,
        BatchTakenView,
        imports.take_tasks,
        "Import a batch of tasks of another gateway; no requester is told.",
        is_local=True,
    ),
    _acts("gateway.stop", ADMIN, restart.StopAsked, StoppingView, restart.stop, "Drain, then stop."),
    _calls(
        "config.get",
        READ,
        settings.ConfigAsked,
        ConfigView,
        settings.get,
        "The settings in effect, without secrets.",
    ),
    _calls(
        "tokens.list",
        ADMIN,
        Nothing,
        TokenPageView,
        token_methods.page,
        "All tokens, with their last use.",
        is_local=True,
    ),
    _acts(
        "tokens.create",
        ADMIN,
        token_methods.TokenCreateAsked,
        TokenMadeView,
        token_methods.create,
        "Create a token; only the answer contains its text.",
        is_local=True,
    ),
    _acts(
        "tokens.revoke",
        ADMIN,
        token_methods.TokenAsked,
        TokenRevokedView,
        token_methods.revoke,
        "Revoke a token.",
        is_local=True,
    ),
    _acts(
        "tokens.rotate",
        ADMIN,
        token_methods.TokenRotateAsked,
        TokenMadeView,
        token_methods.rotate,
        "Replace a token by a new one; the old one is refused at once.",
        is_local=True,
    ),
    *DASHBOARD_METHODS,
    *CALENDAR_METHODS,
    *WORKER_METHODS,
    _calls("rpc.describe", READ, Nothing, DescriptionView, _describe, "This table.", is_owned=True),
    # What OpenClaw's own clients call, in its format.
    *OPENCLAW_METHODS,
]
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
# The names under which agents know a method.
ALIASES = {"sessions_spawn": "sessions.spawn", "session_spawn": "sessions.spawn"}
