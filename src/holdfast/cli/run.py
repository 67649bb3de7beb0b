"""run: starts or resumes a task from a Python program, and follows it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast import app
from holdfast.app.programs import ProgramModule, load_program, split_place
from holdfast.cli.arguments import read_arguments
from holdfast.cli.errors import DONE, FAILED
from holdfast.cli.follow import Follower, TaskSnapshot, look
from holdfast.cli.invocation import Invocation, shared_options, task_prefix, user_name
from holdfast.cli.output import Output, counted, is_terminal
from holdfast.cli.screen import Screen, restore_cursor, screen_for
from holdfast.config import HOME_VARIABLE, MemoryPlace, SqlitePlace
from holdfast.core.errors import BadInput, HoldfastError, NoLedger, NotFound, SettingsError
from holdfast.core.transitions import TaskStatus
from holdfast.store.events import START
from holdfast.views.tasks import FollowedView
from holdfast.views.text import one_line, safe
from holdfast.views.waits import brief_wait

if TYPE_CHECKING:
    from holdfast.api.ledger import CreateAsked
    from holdfast.core.task import Task
    from holdfast.engine.claims.claims import Family
    from holdfast.engine.client.handles import Holdfast
    from holdfast.engine.program.definitions import Call
    from holdfast.engine.program.secrets import Secrets
    from holdfast.store.transaction import Tx

DEFAULT_OWNER = "system"
# Ended tasks that --resume retries.
_RETRIED = frozenset({TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST})
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed command line: a new task, or one to resume."""

    program: ProgramModule
    call: Call[Any] | None
    # An id or its prefix; only without `call`.
    task_id: str | None
    # The name that the resumed task must have, if one was given.
    name: str | None
    key: str | None
    goal: str | None
    owner: str


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """How `run` ended."""

    seen: TaskSnapshot
    is_new: bool
    # The signal that stopped this process; None if none did.
    left_by: int | None = None


@click.command("run")
@click.argument("place", metavar="MODULE:TASK")
@click.option(
    "--arg",
    "plain",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument, converted by its type annotation; repeatable.",
)
@click.option(
    "--json-arg", "as_json_args", multiple=True, metavar="NAME=JSON", help="An argument as JSON; repeatable."
)
@click.option("--key", help="Idempotency key: the same key finds the first task, even one that has ended.")
@click.option("--goal", help="What the task is for, in your words.")
@click.option("--owner", help=f"Owner of the task. [default: {DEFAULT_OWNER}]")
@click.option("--detach", is_flag=True, help="Only queue the task; a worker that knows it runs it.")
@click.option(
    "--resume",
    callback=task_prefix,
    metavar="ID",
    help="Resume this task instead of starting one; a failed task is retried.",
)
@shared_options
@click.pass_context
def run(
    context: click.Context,
    place: str,
    plain: tuple[str, ...],
    as_json_args: tuple[str, ...],
    key: str | None,
    goal: str | None,
    owner: str | None,
    resume: str | None,
    *,
    detach: bool,
) -> None:
    """Start a task and follow it to its end. Its result goes to stdout; everything it prints goes to stderr.

    MODULE is an importable module or path/to/file.py; TASK is a function decorated with @hf.task. This
    process runs the task and its children, and no other work of the ledger. An interrupted task with the
    same --key is resumed. With --resume, a failed task is retried from its last good point.

    \b
    holdfast run agents.research:research --arg topic=tides --arg depth=3
    holdfast run agent.py:research --key tides-1 --json-arg tags='["sea"]'
    holdfast run --resume task_01h8 agent.py:research

    Ctrl-C pauses the task and prints the command that resumes it; a second Ctrl-C exits at once. Exit status
    0 if the task succeeded; 1 if it failed, timed out or was cancelled, or if it needs a review and no
    terminal is attached.
    """
    call: Invocation = context.obj
    if call.home is not None:
        # The program's tools read the home from here: for their receipts, and for files they must not touch.
        os.environ[HOME_VARIABLE] = str(call.settings.home)
    given = {"--arg": plain, "--json-arg": as_json_args, "--key": key, "--goal": goal, "--owner": owner}
    if resume is not None:
        clashing = [name for name, value in (given | {"--detach": detach}).items() if value]
        if clashing:
            raise click.UsageError(
                f"{', '.join(clashing)} applies to a new task only; leave it out with --resume"
            )
    if not detach:
        call.must_be_here()  # this process runs the task, so it needs the database itself
    with stdout_kept(), _failures_told_here():
        asked = _ask(place, plain, as_json_args, key=key, goal=goal, owner=owner, resume=resume)
        if call.gateway_url is not None:
            recorded = _record_elsewhere(call, asked)
        else:
            followed = _record(call, asked) if detach else _carried(call, asked)
    if call.gateway_url is not None:
        call.output.show(recorded, lambda: call.output.line(recorded.id))
        return
    _show(call, place, followed, is_detached=detach)
    status = _exit_status(followed, is_detached=detach)
    if status:
        context.exit(status)


def _ask(
    spec: str,
    plain: tuple[str, ...],
    as_json_args: tuple[str, ...],
    *,
    key: str | None,
    goal: str | None,
    owner: str | None,
    resume: str | None,
) -> RunArguments:
    place, name = split_place(spec)
    program = load_program(place)
    wanted = None if resume is not None and name is None else program.find(name)
    call = None
    if resume is None:
        assert wanted is not None
        call = wanted(**read_arguments(wanted, plain, as_json_args))
    return RunArguments(
        program=program,
        call=call,
        task_id=resume,
        name=None if wanted is None else wanted.name,
        key=key,
        goal=goal,
        owner=DEFAULT_OWNER if owner is None else owner,
    )


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """Send what the program and its child processes print to stderr: stdout is for the result."""
    sys.stdout.flush()
    with contextlib.ExitStack() as undo:
        with contextlib.suppress(OSError):  # one of the streams was closed
            kept = os.dup(1)
            undo.callback(os.close, kept)
            os.dup2(2, 1)
            undo.callback(os.dup2, kept, 1)
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


@contextlib.contextmanager
def _failures_told_here() -> Iterator[None]:
    """Mute the log line about the failed task: `run` reports the failure itself."""
    import logging

    log = logging.getLogger("holdfast.tasks")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


# --- with --detach


def _creation(asked: RunArguments) -> CreateAsked:
    from holdfast.api.ledger import CreateAsked
    from holdfast.core.payload import decode_payload, encode_payload

    assert asked.call is not None
    arguments = encode_payload("arguments", asked.call.arguments)
    return CreateAsked(
        name=asked.call.name,
        goal=asked.call.goal if asked.goal is None else asked.goal,
        has_own_goal=asked.goal is not None,
        owner=asked.owner,
        arguments=decode_payload(arguments),
        key=asked.key,
    )


def _record_elsewhere(call: Invocation, asked: RunArguments) -> FollowedView:
    """Queue the task through the gateway at HOLDFAST_URL."""
    from holdfast.api.task_waits import ResultAsked
    from holdfast.api.tasks import TaskAsked
    from holdfast.views.tasks import CreatedView, ResultView, TaskDetailView

    made = call.ask("ledger.create", _creation(asked), CreatedView)
    found = call.ask("ledger.show", TaskAsked(task_id=made.task_id), TaskDetailView)
    # A task found by its key may have ended.
    ended = call.ask("ledger.result", ResultAsked(task_id=made.task_id), ResultView)
    return FollowedView(
        id=found.task.id,
        status=ended.status,
        result=ended.result,
        failure=ended.failure,
        steps=found.steps_saved,
        name=found.task.name,
        goal=found.task.goal,
        key=found.task.key,
        waits_on=found.task.waits_on,
        is_new=made.is_new,
    )


def _record(call: Invocation, asked: RunArguments) -> Followed:
    from holdfast.api.audit import recorded
    from holdfast.api.ledger import creating_task
    from holdfast.views.tasks import CreatedView

    if isinstance(call.settings.store, MemoryPlace):
        raise BadInput(
            "--detach", "an in-memory ledger is lost when this process ends; name a database with --store"
        )
    create = _creation(asked)
    with call.writing_or_asking(may_upgrade=call.is_new()) as store:
        if store is not None:
            now = store.clock.now()
            write = creating_task(create, now=now)
            made = store.write_now(recorded(write, call.actor, "ledger.create", create, now=now))
            seen = store.read_now(lambda tx: _look_at(tx, made.task_id, asked))
            return Followed(seen=seen, is_new=made.is_new)
    made = call.ask("ledger.create", create, CreatedView)
    with call.reading() as ledger:
        seen = ledger.read_now(lambda tx: _look_at(tx, made.task_id, asked))
    return Followed(seen=seen, is_new=made.is_new)


def _look_at(tx: Tx, task_id: str, asked: RunArguments) -> TaskSnapshot:
    try:
        return look(tx, task_id, START)
    except NotFound:
        if asked.key is None:
            raise
        raise BadInput(
            "--key",
            f"{asked.key!r:.100} belongs to {task_id}, which has ended and was pruned; use another key",
        ) from None


# --- followed


def _carried(call: Invocation, asked: RunArguments) -> Followed:
    try:
        return asyncio.run(_follow(call, asked))
    except BaseExceptionGroup as group:
        # A failure of the worker arrives as an exception group; report one of its exceptions.
        expected, _ = group.split(HoldfastError)
        while isinstance(expected, BaseExceptionGroup):
            expected = expected.exceptions[0]  # type: ignore[assignment]
        if expected is None:
            raise
        raise expected from group


def _secrets(call: Invocation) -> Secrets:
    """The secrets of the settings, as in the gateway, and HOLDFAST_SECRET_… from the environment."""
    from holdfast.config.files import load
    from holdfast.engine.program.secrets import Secrets  # heavy

    try:
        return Secrets(declared=app.declared_secrets(load(call.settings.home, os.environ).config))
    except SettingsError as error:  # most programs need no secret
        call.output.say(f"{error} (this run continues without the secrets of the settings)")
        return Secrets()


async def _follow(call: Invocation, asked: RunArguments) -> Followed:
    from holdfast.engine.claims.claims import Family  # heavy

    store = call.settings.store
    after = _newest_position(call, must_exist=asked.call is None)
    if isinstance(store, SqlitePlace) and call.settings.home in store.path.parents:
        app.make_home(call.settings.home)
    followed: Followed | HoldfastError
    family = Family()
    with screen_for(call.output) as screen, StopSignals(screen).heard() as leaving:
        async with app.open(
            store.url,
            tasks=asked.program.known,
            home=call.settings.home,
            clock=call.clock,
            owner=asked.owner,
            role="run",
            family=family,
            secrets=_secrets(call),
        ) as holdfast:
            try:
                followed = await _begin_and_follow(call, asked, holdfast, family, screen, leaving, after)
            except HoldfastError as error:
                # Keep it out of the worker's task group, which would cancel the runs instead of pausing them.
                followed = error
    if isinstance(followed, HoldfastError):
        raise followed
    followed = msgspec.structs.replace(followed, left_by=leaving.by)
    if followed.seen.task.has_ended or isinstance(store, MemoryPlace):
        return followed
    # While this process stopped, the task was paused or ended: read it again.
    task_id = followed.seen.task.id
    with call.reading() as ledger:
        seen = ledger.read_now(lambda tx: look(tx, task_id, followed.seen.position))
    return msgspec.structs.replace(
        followed, seen=msgspec.structs.replace(seen, is_stuck=followed.seen.is_stuck)
    )


def _newest_position(call: Invocation, *, must_exist: bool) -> str:
    """The end of the event feed before this process does anything. Raises NoLedger if one must exist."""
    try:
        # Opened read-only first, because opening the store would create a missing ledger.
        with call.reading() as ledger:
            newest = ledger.read_now(lambda tx: tx.events.newest(limit=1))
    except NoLedger:
        if must_exist:
            raise
        return START
    return newest[-1].position if newest else START


async def _begin_and_follow(
    call: Invocation,
    asked: RunArguments,
    holdfast: Holdfast,
    family: Family,
    screen: Screen,
    leaving: StopSignals,
    after: str,
) -> Followed:
    began_at = holdfast.store.clock.now()
    task = await _begin(asked, holdfast)
    is_new = asked.call is not None and task.created_at >= began_at
    how = "" if is_new else f" ({await _gone_on(asked, holdfast, task)})"
    family.choose(task.id)
    screen.say(f"{task.id}: {one_line(task.goal)}{how}")
    follower = Follower(
        holdfast,
        task.id,
        screen,
        after=after,
        known=frozenset(definition.name for definition in asked.program.known),
        command=call.command,
        by=user_name(None),
    )
    leaving.on_stop(follower.stop)
    return Followed(seen=await follower.follow(), is_new=is_new)


async def _begin(asked: RunArguments, holdfast: Holdfast) -> Task:
    """Start the task, or find it."""
    if asked.call is not None:
        handle = await holdfast.start(asked.call, key=asked.key, goal=asked.goal)
        return (await holdfast.store.read(lambda tx: _look_at(tx, handle.id, asked))).task
    prefix = asked.task_id
    assert prefix is not None
    task = await holdfast.store.read(lambda tx: tx.tasks.look(tx.tasks.resolve(prefix)))
    if asked.name is not None and task.name != asked.name:
        raise BadInput(
            "--resume",
            f"{task.id} is a task {task.name!r}, not {asked.name!r}; name {task.name!r}, or another id",
        )
    asked.program.find(task.name)
    return task


async def _gone_on(asked: RunArguments, holdfast: Holdfast, task: Task) -> str:
    """Retry a failed task for --resume; say in a few words how an existing task continues."""
    if asked.call is not None:
        return "found by its key"
    if not task.has_ended:
        return "resumed"
    if task.status is TaskStatus.SUCCEEDED:
        return "it has already succeeded"
    await holdfast.retry(task.id)
    return "retried"


class StopSignals:
    """Ctrl-C or another stop signal: the first pauses the task, the second exits at once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._stop: Callable[[], None] | None = None
        # The number of the signal.
        self.by: int | None = None

    @contextlib.contextmanager
    def heard(self) -> Iterator[StopSignals]:
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        # Keep ignoring signals that the parent told us to ignore (nohup, a shell's background job).
        heard = [number for number, now in before.items() if now is not signal.SIG_IGN]
        for number in heard:
            signal.signal(number, self._leave_note)
        try:
            yield self
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def on_stop(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        if self.by is not None:
            stop()

    def _leave_note(self, number: int, _frame: FrameType | None) -> None:
        if self.by is not None:
            restore_cursor()
            os._exit(128 + number)
        self.by = number
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._screen.say("pausing the task; press Ctrl-C again to exit at once")
        if self._stop is not None:
            self._stop()


# --- shown


def _show(call: Invocation, spec: str, followed: Followed, *, is_detached: bool) -> None:
    task = followed.seen.task.checked()
    result = None if task.result is None else msgspec.json.decode(task.result)
    view = FollowedView.of(task, result=result, steps=followed.seen.steps, is_new=followed.is_new)
    output = call.output
    if is_detached:
        output.show(view, lambda: output.line(view.id))
    else:
        output.show(view, lambda: _print_result(output, view))
    for remark in _remarks(call, spec, followed, view, is_detached=is_detached):
        output.say(remark)


def _print_result(output: Output, view: FollowedView) -> None:
    """Print a string as it is, any other value as JSON, and nothing for None."""
    if view.result is None:
        return
    if isinstance(view.result, str):
        text = view.result
    else:
        text = msgspec.json.format(msgspec.json.encode(view.result), indent=2).decode()
    # Escape control characters on a terminal; a file or a pipe gets the raw text.
    output.line(safe(text) if is_terminal(sys.stdout) else text)


def _remarks(
    call: Invocation, spec: str, followed: Followed, view: FollowedView, *, is_detached: bool
) -> Iterator[str]:
    task = followed.seen.task
    if task.has_ended:
        yield _ended(view)
        if view.failure is not None:
            yield from (f"at {place}" for place in view.failure.places)
        if task.status is not TaskStatus.SUCCEEDED:
            yield f"for details: {call.command('tasks', 'show', view.id)}"
        if task.status in _RETRIED:
            yield f"fix the cause, then resume it: {_go_on(call, spec, view)}"
        return
    if is_detached:
        how = "queued" if followed.is_new else f"it was queued before, and is {view.status}"
        yield f"{how}; a worker that knows {view.name!r} runs it, or run it here: {_go_on(call, spec, view)}"
        return
    waits = "" if view.waits_on is None else f" (waits for {brief_wait(view.waits_on)})"
    yield f"{view.id} is now {view.status}{waits}; its progress is saved"
    yield f"to resume it: {_go_on(call, spec, view)}" + (
        "" if view.key is None else ", or the same command again"
    )


def _ended(view: FollowedView) -> str:
    steps = f", {counted(view.steps, 'step')}" if view.steps else ""
    if view.failure is None:
        return f"{view.id} {view.status}{steps}"
    step = view.failure.facts.get("step")
    where = f" in step {one_line(str(step))}" if step else ""
    return (
        f"{view.id} {view.status}{where}: {view.failure.kind}: {one_line(view.failure.message, 1000)}{steps}"
    )


def _go_on(call: Invocation, spec: str, view: FollowedView) -> str:
    return call.command("run", "--resume", view.id, one_line(spec))


def _exit_status(followed: Followed, *, is_detached: bool) -> int:
    task = followed.seen.task
    if is_detached:
        return DONE
    if task.has_ended:
        return DONE if task.status is TaskStatus.SUCCEEDED else FAILED
    return FAILED if followed.left_by is None else 128 + followed.left_by
