"""The commands of tasks, each in the file that its line names."""

from __future__ import annotations

import click

from holdfast.cli.groups import LazyListGroup
from holdfast.cli.invocation import shared_options

TASKS: dict[str, tuple[str, str]] = {
    "list": ("holdfast.cli.task_list:list_tasks", "Tasks, newest first; the command that may be left out."),
    "show": ("holdfast.cli.task_show:show_task", "One task in full."),
    "steps": ("holdfast.cli.steps:show_steps", "The steps of a task, also of finished turns."),
    "wait": ("holdfast.cli.task_wait:wait_for_task", "Wait until a task has ended."),
    "notify": ("holdfast.cli.task_changes:set_notify", "Choose which updates the requester of a task gets."),
    "cancel": ("holdfast.cli.task_changes:cancel_task", "Cancel a task."),
    "retry": ("holdfast.cli.task_retry:retry_tasks", "Retry tasks that failed, timed out or are lost."),
    "fork": ("holdfast.cli.task_changes:fork_one", "Copy a task up to one of its turns."),
    "flow": ("holdfast.cli.flows:flow", "Flows of several tasks: list, show, start, cancel, retry."),
    "audit": ("holdfast.cli.upkeep:audit", "What is wrong in the ledger, and the command that helps."),
    "maintenance": ("holdfast.cli.upkeep:maintenance", "Preview or apply a sweep of the ledger."),
}


@click.group("tasks", cls=LazyListGroup, table=TASKS)
@shared_options
def tasks() -> None:
    """Tasks: what was asked for, and how far it is."""
