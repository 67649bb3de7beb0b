"""Argument parsing and exit codes; each command is a function that is imported when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from holdfast import __version__
from holdfast.cli.errors import DONE, INTERRUPTED, PIPE_CLOSED, report
from holdfast.cli.groups import LazyGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.core.errors import HoldfastError

# Where each command is, and its help line, so that `--help` imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("holdfast.cli.up:up", "Start the gateway and keep it running."),
    "dashboard": (
        "holdfast.cli.dashboard:dashboard",
        "Open the dashboard in a browser, or print a link to it.",
    ),
    "gateway": (
        "holdfast.cli.main:gateway",
        "The running gateway: restart, stop, status, restarts, resume, unit.",
    ),
    "status": ("holdfast.cli.status:status", "One screen: gateway, sessions, tasks, last restart."),
    "chat": ("holdfast.cli.sessions:chat", "Talk to an agent."),
    "sessions": ("holdfast.cli.sessions:sessions", "Conversations with agents: list, show, tasks, send."),
    "agents": (
        "holdfast.cli.agents:agents",
        "Agents of the gateway and of campaigns: list, show, pause, resume, restart.",
    ),
    "run": ("holdfast.cli.run:run", "Start a task from a Python program and follow it to its end."),
    "worker": (
        "holdfast.cli.worker:worker",
        "Carry tasks and items of campaigns in this process, without doors.",
    ),
    "tasks": (
        "holdfast.cli.tasks:tasks",
        "Tasks: list, show, steps, wait, notify, cancel, retry, fork, flow, audit, maintenance.",
    ),
    "campaign": (
        "holdfast.cli.campaigns:campaign",
        (
            "Many items through the same phases: list, show, items, item, recovery, create, analyse, add, "
            "start, pause, resume, retry."
        ),
    ),
    "progress": (
        "holdfast.cli.campaign_progress:progress",
        "How far a campaign is: a live screen with bars.",
    ),
    "reviews": (
        "holdfast.cli.reviews:reviews",
        "Effects whose outcome is unknown: list, show, resolve.",
    ),
    "questions": ("holdfast.cli.questions:questions", "Questions that tasks ask a person: list, answer."),
    "deliveries": (
        "holdfast.cli.deliveries:deliveries",
        "Pending and failed deliveries of messages: list, retry, confirm, dismiss.",
    ),
    "cron": (
        "holdfast.cli.cron:cron",
        "Schedules: list, show, add, edit, pause, resume, run, remove, history.",
    ),
    "checkpoints": (
        "holdfast.cli.checkpoints:checkpoints",
        "Saved points that work resumes from: list, show, retry, milestone, restore, prune.",
    ),
    "wakes": ("holdfast.cli.wakes:wakes", "Work that waits to go on, and when: list, history, cancel."),
    "alerts": ("holdfast.cli.alerts:alerts", "Alerts, by rules over figures: list, rules, check, silence."),
    "audit": ("holdfast.cli.audit:audit", "Audit log, by actor and action: log."),
    "events": ("holdfast.cli.events:events", "The event feed, in order."),
    "import": ("holdfast.cli.imports:import_group", "Work of another gateway: openclaw."),
    "state": (
        "holdfast.cli.projections:state",
        "Readable files about campaigns: path, rebuild.",
    ),
    "store": (
        "holdfast.cli.store:store",
        "The ledger database: migrate, backup, verify, accept, key, rekey.",
    ),
    "doctor": (
        "holdfast.cli.doctor:doctor",
        "Check the home and the ledger, and say how to fix what is wrong.",
    ),
    "config": ("holdfast.cli.config:config", "The settings: check, explain."),
    "security": ("holdfast.cli.security:security", "What to tighten, and how: check."),
    "tokens": ("holdfast.cli.tokens:tokens", "API tokens: list, create, revoke, rotate."),
    "demo": (
        "holdfast.cli.demo:demo",
        "Kill a busy campaign and watch each item go on exactly once.",
    ),
    "version": ("holdfast.cli.version:version", "Versions of Holdfast, Python and SQLite."),
}

GATEWAY: dict[str, tuple[str, str]] = {
    "restart": ("holdfast.cli.gateway:restart", "Drain, restart and resume."),
    "stop": ("holdfast.cli.gateway:stop", "Drain, then stop."),
    "status": ("holdfast.cli.gateway:status", "Status of the gateway."),
    "restarts": (
        "holdfast.cli.gateway:restarts",
        "Past restarts, and the outcome of the work that each interrupted.",
    ),
    "resume": ("holdfast.cli.gateway:resume", "Release work held after a crash loop."),
    "unit": ("holdfast.cli.units:unit", "Print a systemd unit, or a launchd plist for macOS."),
    "child": ("holdfast.cli.child:child", ""),
}


@click.group("gateway", cls=LazyGroup, table=GATEWAY)
@shared_options
def gateway() -> None:
    """Control the gateway of this home."""


@click.group(
    "holdfast", cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@shared_options
def program() -> None:
    """Your agents' work survives restarts.

    Results go to stdout, messages to stderr. Any unique id prefix works.
    Exit status: 0 done, 1 failed, 2 usage error, 3 refused, 4 not found, 5 gateway not reachable or home in
    use.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Expected errors are one line, never a traceback."""
    if "_HOLDFAST_COMPLETE" in os.environ:
        program.main(prog_name="holdfast")  # click answers the shell and exits
    given = list(sys.argv[1:] if arguments is None else arguments)
    invocation = Invocation()
    try:
        status = _run(given, invocation)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    else:
        return status


def _run(given: list[str], invocation: Invocation) -> int:
    try:
        with program.make_context("holdfast", list(given), obj=invocation) as context:
            program.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except BrokenPipeError:
        raise
    except (HoldfastError, click.ClickException, OSError) as error:
        # If parsing failed, the flag may not have been stored yet.
        as_json = invocation.as_json or "--json" in given
        return report(error, as_json=as_json, worded=invocation.worded)
    return DONE


def _forget_stdout() -> None:
    """Point stdout at /dev/null, so that the flush at exit does not fail on the closed pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
