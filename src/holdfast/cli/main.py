"""Argument parsing and exit codes; each command is a function, imported when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from holdfast import __version__
from holdfast.cli.errors import DONE, INTERRUPTED, PIPE_CLOSED, report
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.core.errors import HoldfastError

# Where each command is, and its line in the help: known without importing any.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("holdfast.cli.up:up", "Start the gateway, and keep it running."),
    "gateway": (
        "holdfast.cli.main:gateway",
        "The gateway that runs: restart, stop, status, restarts, resume, unit.",
    ),
    "status": ("holdfast.cli.status:status", "One screen: gateway, sessions, tasks, last restart."),
    "chat": ("holdfast.cli.sessions:chat", "Talk to an agent."),
    "sessions": ("holdfast.cli.sessions:sessions", "Conversations of agents: list, show, send."),
    "agents": ("holdfast.cli.sessions:agents", "Who answers: list."),
    "run": ("holdfast.cli.run:run", "Start a task of a Python program, and follow it to its end."),
    "tasks": ("holdfast.cli.tasks:tasks", "Work that someone asked for: list, show, wait, cancel."),
    "reviews": (
        "holdfast.cli.reviews:reviews",
        "Effects whose outcome nobody knows: list, show, resolve.",
    ),
    "questions": ("holdfast.cli.questions:questions", "What tasks ask a person: list, answer."),
    "deliveries": (
        "holdfast.cli.deliveries:deliveries",
        "What is owed to somebody, or was given up: list, retry, dismiss.",
    ),
    "checkpoints": (
        "holdfast.cli.checkpoints:checkpoints",
        "Saved places to go on from: list, show, retry, prune.",
    ),
    "audit": ("holdfast.cli.audit:audit", "Who did what: log."),
    "events": ("holdfast.cli.events:events", "What happened, in order."),
    "store": ("holdfast.cli.store:store", "The ledger itself: migrate, backup, verify, accept."),
    "doctor": ("holdfast.cli.doctor:doctor", "Look at the home and the ledger, and say what is wrong."),
    "config": ("holdfast.cli.config:config", "The settings of the home: check, explain."),
    "security": ("holdfast.cli.security:security", "What should be tightened: check."),
    "tokens": ("holdfast.cli.tokens:tokens", "Tokens for the doors: list, create, revoke, rotate."),
    "demo": (
        "holdfast.cli.demo:demo",
        "Kill a process full of work, and watch each task go on exactly once.",
    ),
    "version": ("holdfast.cli.version:version", "What runs here."),
}

GATEWAY: dict[str, tuple[str, str]] = {
    "restart": ("holdfast.cli.gateway:restart", "Drain, restart, and go on."),
    "stop": ("holdfast.cli.gateway:stop", "Drain, and end."),
    "status": ("holdfast.cli.gateway:status", "How the gateway fares."),
    "restarts": (
        "holdfast.cli.gateway:restarts",
        "Each restart, and what became of what it interrupted.",
    ),
    "resume": ("holdfast.cli.gateway:resume", "Let go on what is held back after a crash loop."),
    "unit": ("holdfast.cli.units:unit", "Print a systemd unit, or with --launchd a plist for macOS."),
    "child": ("holdfast.cli.child:child", ""),
}


class Program(click.Group):
    """A group whose commands are imported only when they are used; one without a line is hidden."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return [name for name, (_, line) in self._table.items() if line]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items() if line])


@click.group("gateway", cls=Program, table=GATEWAY)
@shared_options
def gateway() -> None:
    """The gateway that runs in this home."""


@click.group(
    "holdfast", cls=Program, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@shared_options
def program() -> None:
    """Your agents' work survives restarts.

    Data goes to stdout and remarks to stderr. Every id may be cut to a beginning that fits only one record.
    Exit status: 0 done, 1 failed, 2 usage, 3 refused, 4 not found, 5 gateway not reachable or home in use.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Expected errors are one line, never a traceback."""
    if "_HOLDFAST_COMPLETE" in os.environ:
        program.main(prog_name="holdfast")  # click's own answer to the shell; it ends the process
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
        # What could not be parsed may not have been remembered either.
        return report(error, as_json=invocation.as_json or "--json" in given)
    return DONE


def _forget_stdout() -> None:
    """Whoever read our output has gone; the interpreter must not complain about the rest of it at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
