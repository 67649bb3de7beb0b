"""The table of RPC methods: name, scope, parameters, answer and function; every wire reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.api import (
    audit,
    checkpoints,
    deliveries,
    events,
    ledger,
    openclaw,
    overview,
    questions,
    restart,
    reviews,
    sessions,
    settings,
    tasks,
    token_methods,
)
from holdfast.api.contract import ADMIN, READ, WRITE, Caller, Gateway
from holdfast.api.params import Nothing, Params
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES
from holdfast.views.audit import AuditPageView
from holdfast.views.checkpoints import CheckpointLineView, CheckpointPageView, CheckpointView, PrunedView
from holdfast.views.config import ConfigView
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView
from holdfast.views.effects import ResolvedView, ReviewDetailView, ReviewPageView
from holdfast.views.events import EventPageView
from holdfast.views.gateway import (
    GatewayView,
    HealthView,
    LetResumeView,
    PreflightView,
    ReadinessView,
    RestartAnswerView,
    RestartPageView,
    StoppingView,
)
from holdfast.views.health import AcceptedView
from holdfast.views.methods import DescriptionView, MethodView
from holdfast.views.questions import AnsweredView, QuestionPageView
from holdfast.views.sessions import (
    AgentPageView,
    PostedView,
    SessionDetailView,
    SessionPageView,
    TranscriptView,
)
from holdfast.views.status import OverviewView
from holdfast.views.tasks import (
    CancelView,
    CreatedView,
    ForkedView,
    ResultView,
    RetriedPageView,
    RetriedView,
    TaskDetailView,
    TaskPageView,
)
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView
from holdfast.views.wire import TaskCancelled, TaskFound, TaskListed, TasksDismissed, TasksRetried

if TYPE_CHECKING:
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

T = TypeVar("T")
P = TypeVar("P", bound=Params)
V = TypeVar("V", bound=msgspec.Struct)

Called = Callable[[Gateway, Any, Caller], Awaitable[msgspec.Struct]]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method. Its parameters are a closed object, and its answer is a view."""

    name: str
    scope: str
    params: type[Params]
    answer: type[msgspec.Struct]
    call: Called
    summary: str
    # Whether a token may call it that is bound to an owner or to names of tasks: it shows and touches only
    # what the token reaches.
    is_owned: bool = False
    # Whether it is answered at the unix socket alone: no token makes another one.
    is_local: bool = False
    # Whether the audit log tells who called it.
    is_audited: bool = False


def _reads(name: str, params: type[P], answer: type[V], read: Callable[[Tx, P], V], summary: str) -> Method:
    """A method that looks at a snapshot of the ledger."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:  # noqa: ARG001 - as every method has it
        return await gateway.store.read(partial(read, asked=asked))  # type: ignore[call-arg]

    return Method(name=name, scope=READ, params=params, answer=answer, call=call, summary=summary)


def _writes(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method that is one write: durable before it is answered, the same when it is run again."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await _write(gateway, name, writing, asked, caller)

    return _audited(name, params, answer, call, summary)


def _reads_own(name: str, params: type[P], answer: type[V], read: Callable[..., V], summary: str) -> Method:
    """A method that looks at what is the caller's; at everything when the caller is bound to no owner."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await gateway.store.read(lambda tx: read(tx, asked, reach=caller.reach))

    return Method(
        name=name, scope=READ, params=params, answer=answer, call=call, summary=summary, is_owned=True
    )


def _writes_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """The same for one write."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await _write(gateway, name, writing, asked, caller, reach=caller.reach)

    return _audited(name, params, answer, call, summary, is_owned=True)


def _decides(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """The same for what a person decides: who it was is recorded, as the server knows them."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await _write(gateway, name, writing, asked, caller, by=caller.who)

    return _audited(name, params, answer, call, summary)


async def _write(
    gateway: Gateway,
    name: str,
    writing: Callable[..., Write[T]],
    asked: Params,
    caller: Caller,
    **more: object,
) -> T:
    """What the write of a method gives, durable together with the entry of the audit log.

    It never runs on the event loop: it may search a long value for secrets, to store it or to show it.
    Long parameters are checked in a thread, for the same reason.
    """
    now = gateway.clock.now()
    checked = partial(writing, asked, now=now, **more)
    write = await asyncio.to_thread(checked) if _is_long(asked) else checked()
    write = audit.recorded(write, caller.actor, name, asked, now=now)

    def write_beside(tx: Tx) -> T:
        tx.sealing.leave_loop()
        return write(tx)

    return await gateway.store.write(write_beside)


def _is_long(asked: Params) -> bool:
    try:
        return len(msgspec.json.encode(asked)) > REDACT_OFF_LOOP_BYTES
    except (ValueError, OverflowError, RecursionError):
        return True  # the check says what is wrong with it


def _calls(
    name: str,
    scope: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    call: Called,
    summary: str,
    *,
    is_owned: bool = False,
    is_local: bool = False,
) -> Method:
    return Method(
        name=name,
        scope=scope,
        params=params,
        answer=answer,
        call=call,
        summary=summary,
        is_owned=is_owned,
        is_local=is_local,
    )


def _audited(
    name: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    call: Called,
    summary: str,
    *,
    scope: str = WRITE,
    is_owned: bool = False,
    is_local: bool = False,
) -> Method:
    return Method(
        name=name,
        scope=scope,
        params=params,
        answer=answer,
        call=call,
        summary=summary,
        is_owned=is_owned,
        is_local=is_local,
        is_audited=True,
    )


def _acts(
    name: str,
    scope: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    act: Called,
    summary: str,
    *,
    is_owned: bool = False,
    is_local: bool = False,
) -> Method:
    """A method of several writes, or one that ends the process: the log tells who asked, before it begins."""

    async def call(gateway: Gateway, asked: Any, caller: Caller) -> msgspec.Struct:
        if not getattr(asked, "is_dry_run", False):
            await gateway.audit.record(audit.asking(caller.actor, name, asked, now=gateway.clock.now()))
        return await act(gateway, asked, caller)

    return _audited(name, params, answer, call, summary, scope=scope, is_owned=is_owned, is_local=is_local)


async def _answer(gateway: Gateway, asked: questions.AnswerAsked, caller: Caller) -> AnsweredView:
    answered = await _write(
        gateway, "questions.answer", questions.recording_answer, asked, caller, by=caller.who
    )
    # After the commit, because other writes need not wait for it; in a thread, because answers may be long.
    return await asyncio.to_thread(AnsweredView.of, *answered, has_gateway=True)


async def _prune(gateway: Gateway, asked: checkpoints.PruneAsked, caller: Caller) -> PrunedView:  # noqa: ARG001
    moment = checkpoints.moment_of(asked, gateway.clock.now())
    if asked.is_dry_run:
        return await gateway.store.read(lambda tx: checkpoints.prunable(tx, moment))
    # In a thread: it is many writes, and the loop does not wait for it.
    return await asyncio.to_thread(checkpoints.prune, gateway.store.write_now, moment)


async def _retry_page(gateway: Gateway, asked: tasks.RetryPageAsked, caller: Caller) -> RetriedPageView:
    # In a thread: it is many writes, and the loop does not wait for it.
    return await asyncio.to_thread(tasks.retry_page, gateway.store, asked, reach=caller.reach)


async def _fork(gateway: Gateway, asked: tasks.ForkAsked, caller: Caller) -> ForkedView:
    # In a thread: the past of a task may be long.
    return await asyncio.to_thread(
        tasks.fork_task, gateway.store, asked, now=gateway.clock.now(), reach=caller.reach
    )


async def _describe(gateway: Gateway, asked: Nothing, caller: Caller) -> DescriptionView:  # noqa: ARG001
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
    # Tasks, as clients of OpenClaw's protocol know them.
    _reads_own(
        "tasks.list",
        openclaw.ListAsked,
        TaskListed,
        openclaw.list_tasks,
        "A page of tasks in the protocol's shape; by creation, last change or end, newest first.",
    ),
    _reads_own(
        "tasks.get",
        openclaw.GetAsked,
        TaskFound,
        openclaw.get_task,
        "One task in the protocol's shape.",
    ),
    _writes_own(
        "tasks.cancel",
        openclaw.WireCancelAsked,
        TaskCancelled,
        openclaw.cancelling_wire_task,
        "Ask for the end of a task; one that is not there is an answer, not an error.",
    ),
    _writes_own(
        "tasks.retry",
        openclaw.SeveralAsked,
        TasksRetried,
        openclaw.retrying_tasks,
        "Open tasks again whose resume has failed.",
    ),
    _writes_own(
        "tasks.dismiss",
        openclaw.SeveralAsked,
        TasksDismissed,
        openclaw.dismissing_tasks,
        "Send nothing more of what is owed because of these tasks, and stop telling that it failed.",
    ),
    # The ledger, as the commands print it.
    _reads_own(
        "ledger.list",
        tasks.TasksAsked,
        TaskPageView,
        tasks.read_asked_page,
        "A page of tasks, newest first, with how many there are in each status.",
    ),
    Method(
        name="ledger.show",
        scope=READ,
        params=tasks.TaskAsked,
        answer=TaskDetailView,
        call=tasks.show,
        summary="One task with everything about it.",
        is_owned=True,
    ),
    _calls(
        "ledger.overview",
        READ,
        Nothing,
        OverviewView,
        overview.overview,
        "How many there are of what a person may have to look at.",
    ),
    _calls(
        "ledger.result",
        # Not for those who only look: they are shown what `ledger.show` shows.
        WRITE,
        tasks.ResultAsked,
        ResultView,
        tasks.result,
        "How a task ended, with its result whole; may wait a while for it.",
        is_owned=True,
    ),
    _writes_own(
        "ledger.cancel", tasks.CancelAsked, CancelView, tasks.cancelling_task, "Ask for the end of a task."
    ),
    _writes_own(
        "ledger.retry",
        tasks.RetryAsked,
        RetriedView,
        tasks.retrying_one,
        "Go on with a task that ended without success, from its last good place.",
    ),
    _acts(
        "ledger.retry_page",
        WRITE,
        tasks.RetryPageAsked,
        RetriedPageView,
        _retry_page,
        "The same for several: a page of those in some statuses, by name or owner.",
        is_owned=True,
    ),
    _acts(
        "ledger.fork",
        WRITE,
        tasks.ForkAsked,
        ForkedView,
        _fork,
        "A new task with the past of another, up to the end of one of its turns.",
        is_owned=True,
    ),
    _writes_own(
        "ledger.create",
        ledger.CreateAsked,
        CreatedView,
        ledger.creating_task,
        "Record a task, for whoever carries tasks of that name.",
    ),
    _reads(
        "reviews.list",
        reviews.ReviewsAsked,
        ReviewPageView,
        lambda tx, asked: reviews.read_page(tx, after=asked.after or "", limit=asked.limit),
        "Effects whose outcome nobody knows, oldest first.",
    ),
    _reads(
        "reviews.show",
        reviews.ReviewAsked,
        ReviewDetailView,
        lambda tx, asked: reviews.read_detail(tx, tx.effects.resolve(asked.effect_id)),
        "One effect with all that is known about it.",
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
        lambda tx, asked: questions.read_page(tx, after=asked.after or "", limit=asked.limit),
        "What tasks ask a person, oldest first.",
    ),
    _audited("questions.answer", questions.AnswerAsked, AnsweredView, _answer, "Answer a question, once."),
    _reads(
        "deliveries.list",
        deliveries.DeliveriesAsked,
        DeliveryPageView,
        lambda tx, asked: deliveries.read_page(
            tx, which=asked.which, after=asked.after or "", limit=asked.limit
        ),
        "What was given up, oldest first; or what is still owed.",
    ),
    _decides(
        "deliveries.retry",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.retrying_delivery,
        "Send after all what was given up.",
    ),
    _decides(
        "deliveries.dismiss",
        deliveries.DeliveryAsked,
        DeliveryChangedView,
        deliveries.dismissing_delivery,
        "Send it no more.",
    ),
    _reads(
        "checkpoints.list",
        checkpoints.CheckpointsAsked,
        CheckpointPageView,
        lambda tx, asked: checkpoints.read_page(
            tx, status=asked.status, task_id=asked.task_id, before=asked.before, limit=asked.limit
        ),
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
        "Open a failed resume again.",
    ),
    _acts(
        "checkpoints.prune",
        ADMIN,
        checkpoints.PruneAsked,
        PrunedView,
        _prune,
        "Remove settled checkpoints of ended tasks.",
    ),
    _reads_own(
        "events.list",
        events.EventsAsked,
        EventPageView,
        events.read_page,
        "What happened, in order: the newest, or what came after a position.",
    ),
    _reads(
        "audit.list",
        audit.AuditAsked,
        AuditPageView,
        audit.read_page,
        "Who did what, newest first.",
    ),
    # Conversations.
    _calls(
        "chat.send",
        WRITE,
        sessions.ChatAsked,
        PostedView,
        sessions.send,
        "Post a message to a session. It is durable before it is acknowledged, also during drain.",
    ),
    _calls(
        "chat.history",
        READ,
        sessions.HistoryAsked,
        TranscriptView,
        sessions.history,
        "The transcript of a session; may wait a while for more.",
    ),
    _calls("sessions.list", READ, sessions.SessionsAsked, SessionPageView, sessions.page, "Sessions."),
    _calls(
        "sessions.get",
        READ,
        sessions.SessionAsked,
        SessionDetailView,
        sessions.get,
        "One session with the end of its transcript.",
    ),
    _calls("sessions.send", WRITE, sessions.ChatAsked, PostedView, sessions.send, "The same as chat.send."),
    _calls("agents.list", READ, Nothing, AgentPageView, sessions.agents, "The agents of the settings."),
    # The process.
    _calls("health", READ, Nothing, HealthView, restart.health, "That somebody is there.", is_owned=True),
    _calls("gateway.status", READ, Nothing, GatewayView, restart.status, "How the gateway fares."),
    _calls(
        "gateway.readiness",
        READ,
        Nothing,
        ReadinessView,
        restart.readiness,
        "Whom a restart would interrupt now.",
    ),
    _calls(
        "gateway.restart.preflight",
        READ,
        Nothing,
        PreflightView,
        restart.preflight,
        "The same in the protocol's words.",
    ),
    _acts(
        "gateway.restart",
        ADMIN,
        restart.RestartAsked,
        RestartAnswerView,
        restart.restart,
        "Drain, restart and go on. Refused, with the list, when too many would be interrupted.",
    ),
    _calls(
        "gateway.restarts",
        READ,
        restart.RestartsAsked,
        RestartPageView,
        restart.restarts,
        "Each restart: what it interrupted, and what became of it.",
    ),
    _acts(
        "gateway.resume",
        ADMIN,
        Nothing,
        LetResumeView,
        restart.let_resume,
        "Let go on what the gateway holds back after a crash loop.",
    ),
    _acts(
        "store.accept",
        ADMIN,
        Nothing,
        AcceptedView,
        ledger.accept_store,
        "Take a database that is older than its mark as it is.",
    ),
    _acts("gateway.stop", ADMIN, restart.StopAsked, StoppingView, restart.stop, "Drain, and end."),
    _calls(
        "config.get",
        READ,
        settings.ConfigAsked,
        ConfigView,
        settings.get,
        "The settings that hold now, without secrets.",
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
        "One more token; its text is in the answer, and nowhere else.",
        is_local=True,
    ),
    _acts(
        "tokens.revoke",
        ADMIN,
        token_methods.TokenAsked,
        TokenRevokedView,
        token_methods.revoke,
        "Let a token open nothing any more.",
        is_local=True,
    ),
    _acts(
        "tokens.rotate",
        ADMIN,
        token_methods.TokenRotateAsked,
        TokenMadeView,
        token_methods.rotate,
        "Another text for a token; the one before opens nothing any more.",
        is_local=True,
    ),
    _calls("rpc.describe", READ, Nothing, DescriptionView, _describe, "This table.", is_owned=True),
]
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
