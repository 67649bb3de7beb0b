"""The table of RPC methods: name, scope, parameters, answer and function; used by every transport."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.api import (
    audit,
    checkpoints,
    deliveries,
    events,
    questions,
    reviews,
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
from holdfast.api.gateway_methods import GATEWAY_METHODS
from holdfast.api.import_methods import IMPORT_METHODS
from holdfast.api.method_kinds import (
    Method,
    acts,
    audited,
    calls,
    decides,
    reads,
    reads_own,
    run_write,
    writes,
)
from holdfast.api.openclaw_methods import OPENCLAW_METHODS
from holdfast.api.params import Nothing
from holdfast.api.producer_methods import PRODUCER_METHODS
from holdfast.api.schedule_methods import SCHEDULE_METHODS
from holdfast.api.session_methods import SESSION_METHODS
from holdfast.api.task_methods import TASK_METHODS
from holdfast.api.throughput_methods import THROUGHPUT_METHODS
from holdfast.api.timeline_methods import TIMELINE_METHODS
from holdfast.api.worker_methods import WORKER_METHODS
from holdfast.views.audit import AuditPageView
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView
from holdfast.views.effects import ResolvedView, ReviewDetailView, ReviewPageView
from holdfast.views.events import EventPageView
from holdfast.views.methods import DescriptionView, MethodView
from holdfast.views.questions import AnsweredView, QuestionPageView, QuestionView
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView
from holdfast.views.upkeep import AuditView, MaintenanceView
from holdfast.views.wakes import WakeHistoryView, WakePageView, WakeView


async def _answer(gateway: GatewayDoor, asked: questions.AnswerAsked, caller: Caller) -> AnsweredView:
    answered = await run_write(
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
    *TASK_METHODS,
    *SCHEDULE_METHODS,
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
    *PRODUCER_METHODS,
    reads(
        "reviews.list",
        reviews.ReviewsAsked,
        ReviewPageView,
        lambda tx, asked: reviews.read_page(tx, after=asked.page_token or "", limit=asked.limit),
        "Effects whose outcome is unknown, oldest first.",
    ),
    reads(
        "reviews.show",
        reviews.ReviewAsked,
        ReviewDetailView,
        lambda tx, asked: reviews.read_detail(tx, tx.effects.resolve(asked.effect_id)),
        "One effect in full.",
    ),
    decides(
        "reviews.resolve",
        reviews.ResolveAsked,
        ResolvedView,
        reviews.resolving_effect,
        "Decide about an effect: done, retry, skip or compensate.",
    ),
    reads(
        "questions.list",
        questions.QuestionsAsked,
        QuestionPageView,
        lambda tx, asked: questions.read_page(tx, after=asked.page_token or "", limit=asked.limit),
        "Open questions that tasks ask a person, oldest first.",
    ),
    reads(
        "questions.show",
        questions.QuestionAsked,
        QuestionView,
        questions.read_question,
        "One question, also one that was answered.",
    ),
    audited(
        "questions.answer",
        questions.AnswerAsked,
        AnsweredView,
        _answer,
        "Answer a question; the first answer counts.",
    ),
    reads(
        "deliveries.list",
        deliveries.DeliveriesAsked,
        DeliveryPageView,
        lambda tx, asked: deliveries.read_page(
            tx, which=asked.which, after=asked.page_token or "", limit=asked.limit
        ),
        "Failed deliveries, oldest first; or those still to be sent.",
    ),
    decides(
        "deliveries.retry",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.retrying_delivery,
        "Send a failed delivery again.",
    ),
    decides(
        "deliveries.confirm",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.confirming_delivery,
        "Record that a delivery of unknown outcome had arrived.",
    ),
    decides(
        "deliveries.dismiss",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.dismissing_delivery,
        "Drop a delivery without sending it.",
    ),
    reads(
        "checkpoints.list",
        checkpoints.CheckpointsAsked,
        CheckpointPageView,
        checkpoints.read_page,
        "Checkpoints, newest first.",
    ),
    reads(
        "checkpoints.show",
        checkpoints.CheckpointAsked,
        CheckpointView,
        lambda tx, asked: checkpoints.read_checkpoint(tx, asked.checkpoint_id),
        "One checkpoint in full.",
    ),
    writes(
        "checkpoints.retry",
        checkpoints.CheckpointAsked,
        CheckpointLineView,
        checkpoints.retrying_checkpoint,
        "Retry a failed resume.",
    ),
    reads("wakes.list", wakes.WakesAsked, WakePageView, wakes.list_wakes, "What is to be woken."),
    reads("wakes.history", wakes.WakeHistoryAsked, WakeHistoryView, wakes.read_history, "Past wakes."),
    writes("wakes.cancel", wakes.WakeCancelAsked, WakeView, wakes.cancelling, "Cancel a wake."),
    calls(
        "wake",
        WRITE,
        wakes.WakeAsked,
        wakes.WokenView,
        wakes.wake,
        "Wake an agent, as OpenClaw's clients do.",
    ),
    acts(
        "checkpoints.prune",
        ADMIN,
        checkpoints.PruneAsked,
        PrunedView,
        _prune,
        "Delete old checkpoints of ended tasks.",
    ),
    reads_own(
        "events.list",
        events.EventsAsked,
        EventPageView,
        events.read_page,
        "Events in order: the newest ones, or those after a position.",
    ),
    reads(
        "audit.list",
        audit.AuditAsked,
        AuditPageView,
        audit.read_page,
        "Entries of the audit log, newest first.",
    ),
    calls(
        "upkeep.audit",
        READ,
        upkeep.FindingsAsked,
        AuditView,
        upkeep.read_audit,
        "What is wrong in the ledger, errors first, each with the command that helps.",
    ),
    acts(
        "upkeep.maintenance",
        WRITE,
        upkeep.MaintenanceAsked,
        MaintenanceView,
        upkeep.maintain_ledger,
        "Sweep the ledger now, or preview what a sweep would change.",
    ),
    *SESSION_METHODS,
    *GATEWAY_METHODS,
    *IMPORT_METHODS,
    calls(
        "tokens.list",
        ADMIN,
        Nothing,
        TokenPageView,
        token_methods.page,
        "All tokens, with their last use.",
        is_local=True,
    ),
    acts(
        "tokens.create",
        ADMIN,
        token_methods.TokenCreateAsked,
        TokenMadeView,
        token_methods.create,
        "Create a token; only the answer contains its text.",
        is_local=True,
    ),
    acts(
        "tokens.revoke",
        ADMIN,
        token_methods.TokenAsked,
        TokenRevokedView,
        token_methods.revoke,
        "Revoke a token.",
        is_local=True,
    ),
    acts(
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
    calls("rpc.describe", READ, Nothing, DescriptionView, _describe, "This table.", is_owned=True),
    # What OpenClaw's own clients call, in its format.
    *OPENCLAW_METHODS,
]
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
# The names under which agents know a method.
ALIASES = {"sessions_spawn": "sessions.spawn", "session_spawn": "sessions.spawn"}
