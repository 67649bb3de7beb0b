"""Ready-made tools whose effects are not repeated by accident: commands, files, git, HTTP, messages, tasks.

Each name is imported when it is first used, so that a program pays only for the tools it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.tools.campaigns import (
        OwnGroup,
        OwnGroups,
        OwnItem,
        OwnItems,
        campaign_groups,
        campaign_progress,
        campaign_sample,
    )
    from holdfast.tools.commands import ShellResult, shell
    from holdfast.tools.errors import (
        CommandCutShort,
        CommandFailed,
        CommandNotStarted,
        CommandTimedOut,
        FileChanged,
        FileNotWritten,
        GitFailed,
        HttpFailed,
        HttpNotSent,
    )
    from holdfast.tools.files import FileResult, write_file
    from holdfast.tools.git import GitCommit, GitPush, git_commit, git_push
    from holdfast.tools.http import HttpResponse, http_get, http_request
    from holdfast.tools.messages import SentMessage, message_tool, send_message
    from holdfast.tools.restart import RestartAsked, restart_gateway
    from holdfast.tools.schedules import (
        OwnSchedule,
        OwnSchedules,
        ScheduleRemoved,
        my_schedules,
        remove_my_schedule,
        schedule_prompt,
    )
    from holdfast.tools.sessions import SpawnedSession, session_spawn, sessions_spawn
    from holdfast.tools.tasks import OwnTask, OwnTasks, cancel_my_task, my_tasks

_MODULES = {
    "campaigns": "OwnGroup OwnGroups OwnItem OwnItems campaign_groups campaign_progress campaign_sample",
    "commands": "ShellResult shell",
    "errors": (
        "CommandCutShort CommandFailed CommandNotStarted CommandTimedOut FileChanged FileNotWritten "
        "GitFailed HttpFailed HttpNotSent"
    ),
    "files": "FileResult write_file",
    "git": "GitCommit GitPush git_commit git_push",
    "http": "HttpResponse http_get http_request",
    "messages": "SentMessage message_tool send_message",
    "restart": "RestartAsked restart_gateway",
    "schedules": "OwnSchedule OwnSchedules ScheduleRemoved my_schedules remove_my_schedule schedule_prompt",
    "sessions": "SpawnedSession session_spawn sessions_spawn",
    "tasks": "OwnTask OwnTasks cancel_my_task my_tasks",
}
_WHERE = {name: f"holdfast.tools.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'holdfast.tools' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "CommandCutShort",
    "CommandFailed",
    "CommandNotStarted",
    "CommandTimedOut",
    "FileChanged",
    "FileNotWritten",
    "FileResult",
    "GitCommit",
    "GitFailed",
    "GitPush",
    "HttpFailed",
    "HttpNotSent",
    "HttpResponse",
    "OwnGroup",
    "OwnGroups",
    "OwnItem",
    "OwnItems",
    "OwnSchedule",
    "OwnSchedules",
    "OwnTask",
    "OwnTasks",
    "RestartAsked",
    "ScheduleRemoved",
    "SentMessage",
    "ShellResult",
    "SpawnedSession",
    "campaign_groups",
    "campaign_progress",
    "campaign_sample",
    "cancel_my_task",
    "git_commit",
    "git_push",
    "http_get",
    "http_request",
    "message_tool",
    "my_schedules",
    "my_tasks",
    "remove_my_schedule",
    "restart_gateway",
    "schedule_prompt",
    "send_message",
    "session_spawn",
    "sessions_spawn",
    "shell",
    "write_file",
]
