"""The rows of the method table that OpenClaw's own clients call, beside tasks.*: chats, runs, the gateway."""

from __future__ import annotations

from holdfast.api import (
    logs,
    openclaw_chat,
    openclaw_gateway,
    openclaw_questions,
    openclaw_runs,
    openclaw_send,
)
from holdfast.api.contract import QUESTIONS, READ, WRITE, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, audited, calls, reads, run_write
from holdfast.api.params import Nothing
from holdfast.views.openclaw_chat import (
    AgentRun,
    AgentsListed,
    ChatAborted,
    ChatAccepted,
    ChatHistory,
    ModelsListed,
    RunWaited,
    SessionAborted,
    SessionsListed,
)
from holdfast.views.openclaw_gateway import (
    ChannelStatusView,
    ConfigSchemaView,
    HealthSummary,
    LogTailView,
    PresenceView,
    SendResult,
    StatusSummary,
)
from holdfast.views.openclaw_questions import QuestionFound, QuestionRecords, QuestionResolved


async def _abort_chat(
    gateway: GatewayDoor, asked: openclaw_runs.ChatAbortAsked, caller: Caller
) -> ChatAborted:
    abort = openclaw_runs.aborting_chat
    return await run_write(gateway, "chat.abort", abort, asked, caller, config=gateway.config)


async def _abort_session(
    gateway: GatewayDoor, asked: openclaw_runs.SessionAbortAsked, caller: Caller
) -> SessionAborted:
    abort = openclaw_runs.aborting_session
    return await run_write(gateway, "sessions.abort", abort, asked, caller, config=gateway.config)


async def _resolve(
    gateway: GatewayDoor, asked: openclaw_questions.QuestionResolveAsked, caller: Caller
) -> QuestionResolved:
    resolve = openclaw_questions.resolving_question
    return await run_write(gateway, "question.resolve", resolve, asked, caller, by=caller.who)


def _of_questions(method: Method) -> Method:
    return Method(**{name: getattr(method, name) for name in Method.__struct_fields__} | {"scope": QUESTIONS})


OPENCLAW_METHODS = [
    calls(
        "chat.send",
        WRITE,
        openclaw_chat.ChatSendAsked,
        ChatAccepted,
        openclaw_chat.send,
        "Send a message to a session. It is stored before it is acknowledged, also during a drain.",
    ),
    calls(
        "chat.history",
        READ,
        openclaw_chat.ChatHistoryAsked,
        ChatHistory,
        openclaw_chat.history,
        "The transcript of a session in OpenClaw's format; can wait for new messages.",
    ),
    audited(
        "chat.abort",
        openclaw_runs.ChatAbortAsked,
        ChatAborted,
        _abort_chat,
        "Cancel what the agent of a session works on, or one queued message.",
    ),
    calls(
        "sessions.list",
        READ,
        openclaw_chat.SessionsListAsked,
        SessionsListed,
        openclaw_chat.rows,
        "Sessions in OpenClaw's format, most recently used first.",
    ),
    calls(
        "sessions.send",
        WRITE,
        openclaw_chat.SessionSendAsked,
        ChatAccepted,
        openclaw_chat.send_to_session,
        "The same as chat.send.",
    ),
    audited(
        "sessions.abort",
        openclaw_runs.SessionAbortAsked,
        SessionAborted,
        _abort_session,
        "The same as chat.abort; can also take the queued messages out of the queue.",
    ),
    Method(
        name="agent",
        scope=WRITE,
        params=openclaw_runs.AgentAsked,
        answer=AgentRun,
        call=openclaw_runs.run_agent,
        finish=openclaw_runs.finish_agent,
        summary="Send a message to an agent; on a WebSocket its answer follows as a second response.",
    ),
    calls(
        "agent.wait",
        READ,
        openclaw_runs.RunWaitAsked,
        RunWaited,
        openclaw_runs.wait,
        "Wait until a run of an agent has ended, for a bounded time.",
    ),
    calls("agents.list", READ, Nothing, AgentsListed, openclaw_chat.agents, "The agents, by name."),
    calls(
        "models.list",
        READ,
        openclaw_chat.ModelsAsked,
        ModelsListed,
        openclaw_chat.models,
        "No models: each agent chooses its own.",
    ),
    audited(
        "send",
        openclaw_send.SendAsked,
        SendResult,
        openclaw_send.send,
        "Send a text to a person through a channel, once for each key.",
    ),
    _of_questions(
        reads(
            "question.list",
            Nothing,
            QuestionRecords,
            openclaw_questions.list_questions,
            "Open questions in OpenClaw's format, oldest first; at most 200.",
        )
    ),
    _of_questions(
        reads(
            "question.get",
            openclaw_questions.ForeignQuestionAsked,
            QuestionFound,
            openclaw_questions.get_question,
            "One question in OpenClaw's format.",
        )
    ),
    audited(
        "question.resolve",
        openclaw_questions.QuestionResolveAsked,
        QuestionResolved,
        _resolve,
        "Answer a question; the first answer counts.",
        scope=QUESTIONS,
    ),
    calls(
        "channels.status",
        READ,
        openclaw_gateway.ChannelsAsked,
        ChannelStatusView,
        openclaw_gateway.channels,
        "The channels of the settings, each with the reason of its newest failed delivery.",
    ),
    calls("logs.tail", READ, logs.LogsAsked, LogTailView, logs.tail, "The end of the log, redacted."),
    calls(
        "health",
        READ,
        openclaw_gateway.HealthAsked,
        HealthSummary,
        openclaw_gateway.health,
        "Whether the gateway answers, and whether it is ready.",
        is_owned=True,
    ),
    calls(
        "status",
        READ,
        openclaw_gateway.StatusAsked,
        StatusSummary,
        openclaw_gateway.status,
        "One screen of facts in OpenClaw's format: agents, sessions, tasks and findings.",
    ),
    calls(
        "system-presence",
        READ,
        Nothing,
        PresenceView,
        openclaw_gateway.presence,
        "The gateway itself, as the one entry of a list.",
    ),
    calls(
        "config.schema",
        READ,
        Nothing,
        ConfigSchemaView,
        openclaw_gateway.config_schema,
        "The JSON Schema of the settings.",
    ),
]
