"""The table of RPC methods: name, scope, parameters, answer and function; every wire reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.api import (
    checkpoints,
    deliveries,
    events,
    openclaw,
    questions,
    restart,
    reviews,
    sessions,
    settings,
    tasks,
    upkeep,
)
from holdfast.api.contract import ADMIN, READ, WRITE, Caller, Gateway
from holdfast.api.params import Nothing, Params
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
from holdfast.views.tasks import CancelView, CreatedView, TaskDetailView, TaskPageView
from holdfast.views.wire import TaskCancelled, TaskFound, TaskListed, TasksDismissed, TasksRetried

if TYPE_CHECKING:
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

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
    # Whether those may call it who are bound to an owner: then it shows and touches only what is the owner's.
    is_owned: bool = False


def _reads(name: str, params: type[P], answer: type[V], read: Callable[[Tx, P], V], summary: str) -> Method:
    """A method that looks at a snapshot of the ledger."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:  # noqa: ARG001 - as every method has it
        return await gateway.store.read(partial(read, asked=asked))  # type: ignore[call-arg]

    return Method(name=name, scope=READ, params=params, answer=answer, call=call, summary=summary)


def _writes(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """A method that is one write: durable before it is answered, the same when it is run again."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:  # noqa: ARG001 - as every method has it
        return await gateway.store.write(writing(asked, now=gateway.clock.now()))

    return Method(name=name, scope=WRITE, params=params, answer=answer, call=call, summary=summary)


def _reads_own(name: str, params: type[P], answer: type[V], read: Callable[..., V], summary: str) -> Method:
    """A method that looks at what is the caller's; at everything when the caller is bound to no owner."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await gateway.store.read(lambda tx: read(tx, asked, owner=caller.owner))

    return Method(
        name=name, scope=READ, params=params, answer=answer, call=call, summary=summary, is_owned=True
    )


def _writes_own(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """The same for one write."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await gateway.store.write(writing(asked, owner=caller.owner, now=gateway.clock.now()))

    return Method(
        name=name, scope=WRITE, params=params, answer=answer, call=call, summary=summary, is_owned=True
    )


def _decides(
    name: str, params: type[P], answer: type[V], writing: Callable[..., Write[V]], summary: str
) -> Method:
    """The same for what a person decides: who it was is recorded, as the server knows them."""

    async def call(gateway: Gateway, asked: P, caller: Caller) -> V:
        return await gateway.store.write(writing(asked, by=caller.who, now=gateway.clock.now()))

    return Method(name=name, scope=WRITE, params=params, answer=answer, call=call, summary=summary)


def _calls(
    name: str,
    scope: str,
    params: type[Params],
    answer: type[msgspec.Struct],
    call: Called,
    summary: str,
    *,
    is_owned: bool = False,
) -> Method:
    return Method(
        name=name, scope=scope, params=params, answer=answer, call=call, summary=summary, is_owned=is_owned
    )


async def _prune(gateway: Gateway, asked: checkpoints.PruneAsked, caller: Caller) -> PrunedView:  # noqa: ARG001
    import asyncio

    moment = checkpoints.moment_of(asked, gateway.clock.now())
    if asked.is_dry_run:
        return await gateway.store.read(lambda tx: checkpoints.prunable(tx, moment))
    # In a thread: it is many writes, and nobody else waits for it.
    return await asyncio.to_thread(checkpoints.prune, gateway.store.write_now, moment)


async def _describe(gateway: Gateway, asked: Nothing, caller: Caller) -> DescriptionView:  # noqa: ARG001
    return DescriptionView(methods=[describe(method) for method in METHODS.values()])


def describe(method: Method) -> MethodView:
    return MethodView(
        name=method.name,
        scope=method.scope,
        summary=method.summary,
        params=msgspec.json.schema(method.params),
        is_owned=method.is_owned,
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
    _reads_own(
        "ledger.show",
        tasks.TaskAsked,
        TaskDetailView,
        lambda tx, asked, owner: tasks.read_detail(tx, tx.tasks.resolve(asked.task_id, owner=owner)),
        "One task with everything about it.",
    ),
    _writes_own(
        "ledger.cancel", tasks.CancelAsked, CancelView, tasks.cancelling_task, "Ask for the end of a task."
    ),
    _writes_own(
        "ledger.create",
        upkeep.CreateAsked,
        CreatedView,
        upkeep.creating_task,
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
    _decides(
        "questions.answer",
        questions.AnswerAsked,
        AnsweredView,
        questions.answering_question,
        "Answer a question, once.",
    ),
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
    _calls(
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
    _calls(
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
    _calls(
        "gateway.resume",
        ADMIN,
        Nothing,
        LetResumeView,
        restart.let_resume,
        "Let go on what the gateway holds back after a crash loop.",
    ),
    _calls(
        "store.accept",
        ADMIN,
        Nothing,
        AcceptedView,
        upkeep.accept_store,
        "Take a database that is older than its mark as it is.",
    ),
    _calls("gateway.stop", ADMIN, restart.StopAsked, StoppingView, restart.stop, "Drain, and end."),
    _calls(
        "config.get",
        READ,
        settings.ConfigAsked,
        ConfigView,
        settings.get,
        "The settings that hold now, without secrets.",
    ),
    _calls("rpc.describe", READ, Nothing, DescriptionView, _describe, "This table.", is_owned=True),
]
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
