"""cron list, show, add, edit, run, pause, resume, remove, history: what fires by itself."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import click
import msgspec

from holdfast.api.schedule_params import (
    AgentTurnAsked,
    AtAsked,
    CommandAsked,
    CronAsked,
    EveryAsked,
    FiringsAsked,
    ScheduleAddAsked,
    ScheduleAsked,
    ScheduleEditAsked,
    SchedulePatchAsked,
    ScheduleRemoveAsked,
    ScheduleRunAsked,
    SchedulesAsked,
    TaskTargetAsked,
)
from holdfast.api.schedules import (
    ScheduleCaller,
    adding_schedule,
    editing_schedule,
    list_schedules,
    read_firings,
    removing_schedule,
    running,
    show_schedule,
)
from holdfast.cli.errors import REFUSED
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, page_option, read_json, shared_options
from holdfast.cli.output import Output
from holdfast.config.timetable import seconds_of
from holdfast.core.errors import BadInput, SettingsError
from holdfast.views.schedules import (
    CommandView,
    CronView,
    EveryView,
    FiringPageView,
    PromptView,
    SchedulePageView,
    ScheduleRemovedView,
    ScheduleRunView,
    ScheduleView,
)
from holdfast.views.text import clip

_MAX_DIGITS = 12
_MAX_SHOWN_CHARS = 4000

F = TypeVar("F", bound=Callable[..., Any])


@click.group("cron", cls=ListGroup)
@shared_options
def cron() -> None:
    """Schedules: what fires by itself, when, and how it went."""


def _options(*, is_new: bool) -> Callable[[F], F]:
    """The options that `add` and `edit` share."""
    options = [
        click.option("--cron", "expression", metavar="EXPRESSION", help="Minute, hour, day, month, weekday."),
        click.option("--every", metavar="DURATION", help="At an interval, such as 15m."),
        click.option("--at", metavar="TIME", help="Once, such as 2030-01-31T09:00."),
        click.option("--tz", metavar="ZONE", help="The time zone of these times. [default: UTC]"),
        click.option("--agent", help="The agent that gets the prompt."),
        click.option("--prompt", help="What the agent should do."),
        click.option("--session", help="The agent's session. [default: cron-NAME]"),
        click.option("--task", metavar="MODULE:TASK", help="The task to start, or its name."),
        click.option("--arg", "plain", multiple=True, metavar="NAME=VALUE", help="An argument of the task."),
        click.option(
            "--json-arg",
            "as_json_args",
            multiple=True,
            metavar="NAME=JSON",
            help="An argument of the task, as JSON.",
        ),
        click.option("--directory", help="The command's working directory."),
        click.option("--timeout", metavar="DURATION", help="For how long the command may run."),
        click.option(
            "--missed",
            type=click.Choice(["skip", "latest", "all"]),
            help="What fires after a time without a gateway. [default: latest]",
        ),
        click.option(
            "--max-missed", type=click.IntRange(1, 100), help="With --missed all: fire at most this many."
        ),
        click.option(
            "--overlap",
            type=click.Choice(["skip", "queue", "replace"]),
            help="What happens if the firing before still runs. [default: queue]",
        ),
        click.option("--jitter", metavar="DURATION", help="Fire up to this much later."),
        click.option(
            "--retry/--no-retry", default=None, help="Whether an interrupted firing is queued again."
        ),
        click.option("--description", help="What it is for, in your words."),
    ]
    if is_new:
        options.append(
            click.option("--paused", "is_paused", is_flag=True, help="Do not fire before a resume.")
        )
    else:
        options.append(
            click.option("--drop-arg", "dropped", multiple=True, metavar="NAME", help="Drop an argument.")
        )
        options.append(
            click.option(
                "--revision", type=int, help="Refuse the edit if it is not at this revision any more."
            )
        )
    options.append(click.argument("command", nargs=-1, metavar="[-- PROGRAM [ARGUMENT]...]"))

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# --- list and show


@cron.command("list", short_help="Schedules, with their next and last firing.")
@click.option("--all", "is_all", is_flag=True, help="Also list schedules that are paused or switched off.")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_cron(call: Invocation, limit: int, page: str | None, *, is_all: bool) -> None:
    """Schedules by name, when each fires next (UTC), and how its last firing ended."""
    asked = SchedulesAsked(include_disabled=is_all, limit=limit, sort_by="name", page_token=page or "")
    view = call.look_at_list(
        "cron.list",
        asked,
        lambda tx: list_schedules(tx, asked, by=ScheduleCaller(), now=call.clock.now()),
        SchedulePageView(),
    )
    call.output.show(view, lambda: _print_page(call, view))
    if page is None and call.gateway_url is None:
        _tell_of_settings(call, view)


def _tell_of_settings(call: Invocation, view: SchedulePageView) -> None:
    """Name schedules of the settings that no gateway has brought into the ledger yet."""
    from holdfast.cli.config import read

    try:
        declared = {name for name, one in read(call)[1].config.schedules.items() if one.is_enabled}
    except SettingsError as error:
        call.output.say(f"the settings are invalid, so their schedules are unknown: {error}")
        return
    missing = sorted(declared - {one.id for one in view.schedules})
    if (
        missing
        and view.next_page_token is None
        and not any(one.source == "settings" for one in view.schedules)
    ):
        call.output.say(
            f"in the settings, and not in the ledger yet: {', '.join(missing)[:200]}; they begin with "
            f"`{call.command('up')}`"
        )


def _print_page(call: Invocation, view: SchedulePageView) -> None:
    output = call.output
    if not view.schedules:
        output.say(f"no schedules; add one: {call.command('cron', 'add', '--help')}")
        return
    rows = [
        (one.id, _when(one), _moment(one.next_run_at_ms), _last(one), _target(one)) for one in view.schedules
    ]
    output.table(("NAME", "WHEN", "NEXT", "LAST", "FOR"), rows, leave=("FOR", "WHEN"), matters="NEXT")
    for one in view.schedules:
        if one.problem is not None:
            output.say(f"{one.id} does not fire: {one.problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


@cron.command("show", short_help="One schedule in full.")
@click.argument("name")
@shared_options
@click.pass_obj
def show_cron(call: Invocation, name: str) -> None:
    """One schedule: when it fires, for what, its policies, and its last firing."""
    asked = ScheduleAsked(id=name)
    view = call.look(
        "cron.get",
        asked,
        lambda tx: show_schedule(tx, asked, by=ScheduleCaller(), now=call.clock.now()),
        ScheduleView,
    )
    call.output.show(view, lambda: _print_one(call.output, view))


def _print_one(output: Output, view: ScheduleView) -> None:
    output.fields(
        [
            ("name", view.id),
            ("title", view.name if view.name != view.id else None),
            ("description", view.description),
            ("when", _when(view)),
            ("next", _moment(view.next_run_at_ms)),
            ("status", _status(view)),
            ("problem", view.problem),
            ("for", _target(view)),
            *_payload_fields(view),
            ("missed", f"all, at most {view.max_missed}" if view.missed == "all" else view.missed),
            ("overlap", view.overlap),
            ("jitter", None if not view.jitter_ms else f"up to {view.jitter_ms // 1000}s"),
            ("retry", None if view.retry is None else "yes" if view.retry else "no"),
            ("declared in", "the settings" if view.source == "settings" else "the ledger, at run time"),
            ("owner", view.owned_by),
            ("revision", view.config_revision),
            ("last", _last(view)),
            ("why", view.last_run_error),
            ("task", view.last_task_id),
        ]
    )


def _status(view: ScheduleView) -> str:
    if view.is_over:
        return "over"
    return "paused" if view.is_paused else "on" if view.enabled else "off"


def _payload_fields(view: ScheduleView) -> list[tuple[str, str | None]]:
    """What it runs, in full."""
    match view.payload:
        case PromptView(message=message):
            return [("session", view.session_key), ("prompt", message)]
        case CommandView(argv=argv, cwd=cwd, timeout_seconds=timeout_s):
            timeout = None if timeout_s is None else f"{timeout_s:g}s"
            return [("command", shlex.join(argv)), ("directory", cwd), ("timeout", timeout)]
        case task:
            given = [
                f"{name} = {msgspec.json.encode(value).decode()}" for name, value in task.arguments.items()
            ]
            return [("arguments", clip(", ".join(given), _MAX_SHOWN_CHARS) or None)]


# --- add and edit


@cron.command("add", short_help="Add a schedule.")
@click.argument("name")
@_options(is_new=True)
@shared_options
@click.pass_obj
def add_cron(
    call: Invocation, /, name: str, command: Sequence[str], *, is_paused: bool, **given: Any
) -> None:
    """Add a schedule, for an agent's prompt, a task, or a command after `--`.

    \b
    holdfast cron add brief --cron "0 8 * * mon-fri" --tz Europe/Berlin --agent scholar --prompt "Brief me."
    holdfast cron add report --every 6h --task reports:nightly --arg region=eu
    holdfast cron add sweep --at 2030-01-31T09:00 -- du -sh /var/log
    """
    times, target = _times(given), _payload(given, command)
    if times is None or target is None:
        raise click.UsageError(
            "give a time (--cron, --every or --at) and a target (--agent with --prompt, --task or -- PROGRAM)"
        )
    asked = ScheduleAddAsked(
        name=name, schedule=times, payload=target, enabled=False if is_paused else None, **_policies(given)
    )
    writing = partial(_local, call, adding_schedule, target)
    view = call.change("cron.add", asked, writing, ScheduleView, before=lambda _: {"is_new": True})
    call.output.show(view, lambda: call.output.line(f"{view.id} is added; {_comes(call, view)}"))


@cron.command("edit", short_help="Change a schedule that was added at run time.")
@click.argument("name")
@_options(is_new=False)
@shared_options
@click.pass_obj
def edit_cron(
    call: Invocation, /, name: str, command: Sequence[str], revision: int | None, **given: Any
) -> None:
    """Change a schedule; what you leave out stays as it is.

    Arguments of a task that you do not name stay, too; --drop-arg drops one. Another task begins with none.
    Exit status 3 if it is not at the given --revision any more, or if it is declared in the settings.
    """
    target = _payload(given, command)
    patch = SchedulePatchAsked(schedule=_times(given), payload=target, **_policies(given))
    if patch == SchedulePatchAsked():
        raise click.UsageError(f"nothing to change; see `{call.command('cron', 'edit', '--help')}`")
    asked = ScheduleEditAsked(
        id=name, patch=patch, expected_config_revision=None if revision is None else str(revision)
    )
    writing = partial(_local, call, editing_schedule, target)
    view = call.change("cron.update", asked, writing, ScheduleView)
    call.output.show(
        view,
        lambda: call.output.line(f"{view.id} is at revision {view.config_revision}; {_comes(call, view)}"),
    )


def _local(
    call: Invocation, writing: Callable[..., Any], target: object, asked: Any, *, now: datetime, **_: object
) -> Any:
    """The write in this process, with what a gateway with these settings would know."""
    return writing(asked, now=now, by=_caller(call, needs_tasks=isinstance(target, TaskTargetAsked)))


def _caller(call: Invocation, *, needs_tasks: bool = False) -> ScheduleCaller:
    from holdfast.app.module_search import places_of, search
    from holdfast.app.startup import load_tasks
    from holdfast.cli.config import read
    from holdfast.core.schedule_spec import COMMAND_TASK
    from holdfast.core.session import agent_task

    home, loaded = read(call)
    config = loaded.config
    known, tasks = {agent_task(one) for one in config.agents} | {COMMAND_TASK}, {}
    if needs_tasks:
        search(places_of(config, home))
        tasks = dict(load_tasks(config, call.settings))
    agents = {name: one.session for name, one in config.agents.items()}
    return ScheduleCaller(owner=config.gateway.owner, agents=agents, known=known | set(tasks), tasks=tasks)


def _times(given: dict[str, Any]) -> AtAsked | EveryAsked | CronAsked | None:
    named = [one for one in ("expression", "every", "at") if given[one] is not None]
    if len(named) > 1:
        raise click.UsageError("give only one kind of time: --cron, --every or --at")
    if given["expression"] is not None:
        return CronAsked(expr=given["expression"], tz=given["tz"])
    if given["every"] is not None:
        return EveryAsked(every_ms=1000 * _seconds("--every", given["every"]))
    return None if given["at"] is None else AtAsked(at=given["at"])


def _payload(
    given: dict[str, Any], command: Sequence[str]
) -> AgentTurnAsked | CommandAsked | TaskTargetAsked | None:
    named = [bool(given["agent"] or given["prompt"]), bool(given["task"]), bool(command)]
    if sum(named) > 1:
        raise click.UsageError("give only one target: --agent with --prompt, --task, or -- PROGRAM")
    arguments, dropped = _arguments(given["plain"], given["as_json_args"]), list(given.get("dropped", ()))
    if given["task"] is not None or arguments or dropped:
        return TaskTargetAsked(
            task=given["task"], arguments=arguments or None, drop_arguments=dropped or None
        )
    timeout = None if given["timeout"] is None else _seconds("--timeout", given["timeout"])
    if command or given["directory"] is not None or timeout is not None:
        return CommandAsked(
            argv=list(command) or None,
            cwd=given["directory"],
            timeout_seconds=timeout,
        )
    return AgentTurnAsked(message=given["prompt"]) if given["agent"] or given["prompt"] else None


def _seconds(option: str, text: str) -> int:
    """A duration; a plain number is seconds."""
    is_plain = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return seconds_of(option, int(text) if is_plain else text)


def _arguments(plain: Sequence[str], as_json: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option, pairs in (("--arg", plain), ("--json-arg", as_json)):
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not equals or not name:
                raise BadInput(option, f"{pair!r:.100} has no value; write {option} name=value")
            if name in found:
                raise BadInput(f"{option} {name}", "it is given twice; give it once")
            found[name] = text if option == "--arg" else read_json(f"{option} {name}", text)
    return found


def _policies(given: dict[str, Any]) -> dict[str, Any]:
    jitter = given["jitter"]
    return {
        "tz": given["tz"],
        "agent_id": given["agent"],
        "session_key": given["session"],
        "missed": given["missed"],
        "max_missed": given["max_missed"],
        "overlap": given["overlap"],
        "jitter_ms": None if jitter is None else 1000 * _seconds("--jitter", jitter),
        "retry": given["retry"],
        "description": given["description"],
    }


def _comes(call: Invocation, view: ScheduleView) -> str:
    if view.is_paused:
        return f"it is paused: `{call.command('cron', 'resume', view.id)}`"
    if view.next_run_at_ms is None:
        return "it does not fire any more"
    return f"it fires next at {_moment(view.next_run_at_ms)}"


# --- pause, resume, run, remove


@cron.command("pause", short_help="Let a schedule not fire.")
@click.argument("name")
@shared_options
@click.pass_obj
def pause_cron(call: Invocation, name: str) -> None:
    """Let a schedule not fire until it is resumed, also one of the settings.

    A firing under way goes on; firings that wait for it start after the resume.
    """
    view = _switch(call, name, is_on=False)
    call.output.show(view, lambda: call.output.line(f"{view.id} is paused"))


@cron.command("resume", short_help="Let a paused schedule fire again.")
@click.argument("name")
@shared_options
@click.pass_obj
def resume_cron(call: Invocation, name: str) -> None:
    """Let a paused schedule fire again, and start what waited before the pause.

    What became due while it was paused does not fire.
    """
    view = _switch(call, name, is_on=True)
    call.output.show(view, lambda: call.output.line(f"{view.id} is resumed; {_comes(call, view)}"))


def _switch(call: Invocation, name: str, *, is_on: bool) -> ScheduleView:
    asked = ScheduleEditAsked(id=name, patch=SchedulePatchAsked(enabled=is_on))
    writing = partial(_plain, editing_schedule)
    return call.change("cron.update", asked, writing, ScheduleView)


def _plain(writing: Callable[..., Any], asked: Any, *, now: datetime) -> Any:
    return writing(asked, now=now, by=ScheduleCaller())


@cron.command("run", short_help="Fire a schedule now.")
@click.argument("name")
@click.option("--request-id", metavar="ID", help="The same id again fires it only once.")
@shared_options
@click.pass_context
def run_cron(context: click.Context, name: str, request_id: str | None) -> None:
    """Fire a schedule now, beside its planned occurrences. Also a paused one.

    Exit status 3 if its last firing has not ended and its overlap policy is skip.
    """
    call: Invocation = context.obj
    if request_id == "":
        raise BadInput("--request-id", "write 1 to 200 characters, or leave it out")
    # With an id of its own, a request that is sent again is not a second firing.
    asked = ScheduleRunAsked(id=name, request_id=secrets.token_hex(8) if request_id is None else request_id)
    view = call.change("cron.run", asked, partial(_plain, running), ScheduleRunView)
    call.output.show(view, lambda: _print_run(call, name, view))
    if not view.ran:
        context.exit(REFUSED)


def _print_run(call: Invocation, name: str, view: ScheduleRunView) -> None:
    if not view.ran:
        call.output.say(
            f"{name} was not fired: its last firing has not ended, and its overlap policy is skip; see "
            f"`{call.command('cron', 'history', name)}`"
        )
        return
    call.output.line(f"{name} was fired: {view.run_id}")
    if view.task_id is not None:
        call.output.say(f"to follow it: {call.command('tasks', 'wait', view.task_id)}")


@cron.command("remove", short_help="Remove a schedule.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also one of the settings, if its gateway is gone for good.")
@shared_options
@click.pass_obj
def remove_cron(call: Invocation, name: str, *, force: bool) -> None:
    """Remove a schedule; its history stays, and a firing under way goes on."""
    asked = ScheduleRemoveAsked(id=name, force=force)
    view = call.change("cron.remove", asked, partial(_plain, removing_schedule), ScheduleRemovedView)
    call.output.show(view, lambda: call.output.line(f"{view.id} is removed"))


# --- history


@cron.command("history", short_help="The firings of a schedule, or of all.")
@click.argument("name", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def history_cron(call: Invocation, name: str | None, limit: int, page: str | None) -> None:
    """The firings of a schedule, latest first, with the task of each; without NAME, of all schedules."""
    asked = FiringsAsked(id=name, limit=limit, page_token=page)
    view = call.look_at_list(
        "cron.runs",
        asked,
        lambda tx: read_firings(tx, asked, by=ScheduleCaller()),
        FiringPageView(),
    )
    call.output.show(view, lambda: _print_history(call.output, view))


def _print_history(output: Output, view: FiringPageView) -> None:
    if not view.entries:
        output.say("it has not fired yet")
        return
    rows = [
        (
            one.schedule,
            _moment(one.run_at_ms, to="%Y-%m-%d %H:%M:%S"),
            one.status or one.firing_status or "-",
            "retry" if one.is_retry else one.cause or "-",
            one.task_id or "-",
            one.error or "-",
        )
        for one in view.entries
    ]
    headers = ("NAME", "AT", "OUTCOME", "CAUSE", "TASK", "WHY")
    output.table(headers, rows, leave=("CAUSE", "NAME", "WHY"), matters="WHY")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


# --- words


def _when(one: ScheduleView) -> str:
    match one.schedule:
        case CronView(expr=expr, tz=tz):
            return expr if tz in (None, "UTC") else f"{expr} {tz}"
        case EveryView(every_ms=every_ms):
            return f"every {_span(every_ms // 1000)}"
        case at:
            return f"at {at.at}"


def _span(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _target(one: ScheduleView) -> str:
    match one.payload:
        case PromptView():
            return f"agent {one.agent_id}"
        case CommandView(argv=argv):
            return f"command {argv[0] if argv else '-'}"
        case task:
            return f"task {task.task}"


def _last(one: ScheduleView) -> str:
    if one.times.last_run_at_ms is None:
        return "-"
    outcome = one.last_run_status or "running"
    return f"{outcome} {_moment(one.times.last_run_at_ms)}"


def _moment(millis: int | None, *, to: str = "%Y-%m-%d %H:%M") -> str:
    """A time in UTC, with its zone."""
    return "-" if millis is None else f"{datetime.fromtimestamp(millis / 1000, UTC).strftime(to)}Z"
