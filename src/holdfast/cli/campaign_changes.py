"""campaign: create one, add items from a file, start, pause, resume, and retry what failed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import click
import msgspec

from holdfast.api.campaign_changes import (
    NO_POLICY,
    PAUSED_BY_OPERATOR,
    CampaignCreateAsked,
    CampaignPauseAsked,
    CampaignStartAsked,
    ItemsAddAsked,
    ItemsRetryAsked,
    PhaseAsked,
    adding,
    creating,
    pausing,
    retrying,
    starting,
)
from holdfast.api.campaigns import CampaignAsked, read_campaign
from holdfast.cli.campaign_names import campaign_argument
from holdfast.cli.invocation import Invocation, maybe_duration, shared_options
from holdfast.cli.item_files import ItemColumns, ItemFile, ReadItem
from holdfast.cli.output import Output, counted
from holdfast.core.campaign import (
    CHECKPOINT_EVERY_ITEMS,
    CHECKPOINT_EVERY_S,
    DEFAULT_BATCH_SIZE,
    DEFAULT_CONCURRENCY,
    MAX_BATCH_SIZE,
    MAX_CONCURRENCY,
    MAX_ITEMS,
)
from holdfast.core.errors import BadInput, Conflict, HoldfastError, NoLedger, NotFound
from holdfast.core.transitions import CampaignStatus
from holdfast.views.campaigns import (
    CampaignChangedView,
    CampaignCreatedView,
    CampaignDetailView,
    CampaignFilledView,
    CampaignView,
    ItemsAddedView,
    ItemsRetriedView,
)

if TYPE_CHECKING:
    from holdfast.config.policies import ConcurrencyPolicy
    from holdfast.store.contract import Write

V = TypeVar("V", bound=msgspec.Struct)
F = TypeVar("F", bound=Callable[..., object])

_ENDED = (CampaignStatus.DONE, CampaignStatus.FAILED)
# What one request has at most: the gateway refuses bodies of more than 1 MiB.
_CHUNK_ITEMS = 1000
_CHUNK_BYTES = 400_000


class Change(Protocol):
    """One write, here or through the gateway."""

    def __call__(
        self, method: str, asked: msgspec.Struct, writing: Callable[..., Write[V]], answer: type[V], /
    ) -> V: ...


@contextlib.contextmanager
def changing(call: Invocation, *, may_create: bool = False) -> Iterator[Change]:
    """Several writes, each with its audit entry: here if no process holds the home, else through the
    gateway."""
    is_new = may_create and call.gateway_url is None and call.is_new()
    with call.writing_or_asking(may_upgrade=is_new) as store:

        def change(
            method: str, asked: msgspec.Struct, writing: Callable[..., Write[V]], answer: type[V], /
        ) -> V:
            if store is None:
                return call.ask(method, asked, answer)
            from holdfast.api.audit import recorded

            now = call.clock.now()
            return store.write_now(recorded(writing(asked, now=now), call.actor, method, asked, now=now))

        yield change


# --- create


def _file_options(command: F) -> F:
    for option in (
        click.option(
            "--format",
            "kind",
            type=click.Choice(["jsonl", "csv"]),
            help="Format of the file. [default: by its content]",
        ),
        click.option("--id-column", default="id", show_default=True, help="Field with the id of an item."),
        click.option("--name-column", default="name", show_default=True, help="Field with its name."),
        click.option("--priority-column", default="priority", show_default=True, help="Field with P0 to P9."),
        click.option(
            "--category-column", default="category", show_default=True, help="Field with its category."
        ),
    ):
        command = option(command)
    return command


@click.command("create", short_help="Create a campaign, and add the items of a file.")
@campaign_argument
@click.option("--items", "path", metavar="FILE", help="JSON lines or CSV; - for stdin. None adds no items.")
@click.option(
    "--phases", required=True, metavar="A,B", help="The phases that each item goes through, in order."
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    required=True,
    metavar="[PHASE=]MODULE:TASK",
    help="The task of all phases, or of one; or the name of a task. Repeatable.",
)
@click.option(
    "--stages", multiple=True, metavar="PHASE=A,B", help="The stages of a phase, in order. Repeatable."
)
@click.option(
    "--needs",
    multiple=True,
    metavar="PHASE=A,B",
    help="Phases that an item must have done before; by default the one just before. Repeatable.",
)
@click.option(
    "--wait-for-all",
    "waiting",
    multiple=True,
    metavar="PHASE",
    help="Start this phase only when all items have come through those before. Repeatable.",
)
@click.option("--role", "roles", multiple=True, metavar="PHASE=ROLE", help="What its agents are called.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, MAX_BATCH_SIZE),
    default=DEFAULT_BATCH_SIZE,
    show_default=True,
    help="Items in one batch.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_CONCURRENCY),
    help=f"How many items may be in flight; default: as the policies say, else {DEFAULT_CONCURRENCY}.",
)
@click.option(
    "--phase-concurrency",
    "limits",
    multiple=True,
    metavar="PHASE=N",
    help="How many items of one phase may be in flight. Repeatable.",
)
@click.option(
    "--host-concurrency",
    type=click.IntRange(1, MAX_CONCURRENCY),
    help="How many items may be in flight on one host.",
)
@click.option(
    "--checkpoint-items",
    type=click.IntRange(1, MAX_ITEMS),
    default=CHECKPOINT_EVERY_ITEMS,
    show_default=True,
    help="Save the campaign after so many items.",
)
@click.option(
    "--checkpoint-every",
    callback=maybe_duration,
    metavar="TIME",
    help="Save it after so long. [default: 5m]",
)
@click.option("--goal", default="", help="What it is for, in your words.")
@click.option("--owner", help="The owner of the campaign and of its tasks.")
@click.option("--start", "is_started", is_flag=True, help="Start it when all items are added.")
@_file_options
@shared_options
@click.pass_obj
def create_campaign(
    call: Invocation,
    /,
    campaign: str,
    path: str | None,
    phases: str,
    tasks: tuple[str, ...],
    stages: tuple[str, ...],
    needs: tuple[str, ...],
    waiting: tuple[str, ...],
    roles: tuple[str, ...],
    limits: tuple[str, ...],
    batch_size: int,
    concurrency: int | None,
    host_concurrency: int | None,
    checkpoint_items: int,
    checkpoint_every: timedelta | None,
    goal: str,
    owner: str | None,
    *,
    is_started: bool,
    **columns: str | None,
) -> None:
    """Create a campaign, and add the items of a file: one JSON object a line, or CSV with a header.

    An item has an id, and may have a name, a priority from P0 (first) to P9, and a category; the rest of its
    line goes to its task. If the command is cut off, run it again: it adds what is missing.

    \b
    holdfast campaign create rd-os --items repos.jsonl --phases analysis --task repos:analyse --start
    holdfast campaign create move --items repos.csv --phases analysis,migration \\
      --task analysis=repos:analyse --task migration=repos:migrate \\
      --stages migration=prep,transfer,integrate,validate
    """
    names = [name.strip() for name in phases.split(",") if name.strip()]
    found_tasks, modules = _tasks(tasks, names)
    of_stages, of_needs = _lists("--stages", stages, names), _lists("--needs", needs, names)
    of_roles, of_limits = _values("--role", roles, names), _numbers("--phase-concurrency", limits, names)
    _check_phases("--wait-for-all", waiting, names)
    asked = CampaignCreateAsked(
        name=campaign,
        phases=tuple(
            PhaseAsked(
                name=name,
                task=found_tasks[name],
                role=of_roles.get(name),
                stages=of_stages.get(name, ()),
                needs=of_needs.get(name),
                waits_for_all=name in waiting,
                concurrency=of_limits.get(name),
            )
            for name in names
        ),
        goal=goal,
        owner=owner,
        batch_size=batch_size,
        concurrency=concurrency,
        host_concurrency=host_concurrency,
        checkpoint_every_items=checkpoint_items,
        checkpoint_every_s=CHECKPOINT_EVERY_S
        if checkpoint_every is None
        else int(checkpoint_every.total_seconds()),
    )
    filling = None if path is None else ItemUpload(call.output, _item_file(path, columns))
    if filling is not None:
        # Before anything is written: a small file with a mistake leaves nothing behind.
        filling.read_first()
    elif is_started:
        _check_has_items(call, campaign)
    policy = _policy(call)
    with changing(call, may_create=True) as change:
        made = change("campaigns.create", asked, partial(creating, policy=policy), CampaignCreatedView)
        shown = made.campaign
        if filling is not None:
            shown = filling.add(change, made.campaign.name)
        # The same command again, after the campaign has ended, finds it as it is.
        if is_started and shown.status not in _ENDED:
            start = CampaignStartAsked(campaign=shown.id)
            shown = change("campaigns.start", start, starting, CampaignChangedView).campaign
    view = CampaignFilledView(
        campaign=shown,
        is_new=made.is_new,
        added=0 if filling is None else filling.added,
        known=0 if filling is None else filling.known,
    )
    call.output.show(view, lambda: _print_created(call, view, modules))


def _check_has_items(call: Invocation, campaign: str) -> None:
    """Before a draft is left behind that cannot start."""
    asked = CampaignAsked(campaign=campaign)
    try:
        items = call.look(
            "campaigns.get",
            asked,
            lambda tx: read_campaign(tx, asked, projection=call.projection()),
            CampaignDetailView,
        ).campaign.items
    except HoldfastError as error:
        if error.code not in (NotFound.code, NoLedger.code):
            raise
        items = 0
    if not items:
        raise BadInput("--start", f"{campaign} has no items; add some: --items FILE, or leave out --start")


def _policy(call: Invocation) -> ConcurrencyPolicy:
    """The limits of campaigns that give none; a gateway uses those of its own settings."""
    from holdfast.config.files import load

    if call.gateway_url is not None:
        return NO_POLICY
    return load(call.settings.home, os.environ, {"store": call.store}).config.policies.concurrency


def _tasks(given: Sequence[str], phases: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The name of each phase's task, and the modules that have them."""
    for_all: str | None = None
    found: dict[str, str] = {}
    modules: list[str] = []
    for one in given:
        phase, equals, spec = one.partition("=")
        if not equals:
            phase, spec = "", one
        elif phase not in phases:
            raise BadInput("--task", f"there is no phase {phase!r}; --phases has {', '.join(phases)}")
        name = _task_name(spec, modules)
        if phase in found or (not phase and for_all is not None):
            raise BadInput("--task", f"{phase or 'the task of all phases'} is given twice; give it once")
        if phase:
            found[phase] = name
        else:
            for_all = name
    missing = [phase for phase in phases if phase not in found]
    if missing and for_all is None:
        raise BadInput("--task", f"{missing[0]} has no task; add --task {missing[0]}=MODULE:TASK")
    return {phase: found.get(phase, for_all or "") for phase in phases}, modules


def _task_name(spec: str, modules: list[str]) -> str:
    """The own name of `module:task`, whose module is imported here; a plain name stays as it is."""
    if ":" not in spec:
        return spec
    from holdfast.app.programs import load_program, split_place
    from holdfast.cli.run import stdout_kept

    place, name = split_place(spec)
    with stdout_kept():
        definition = load_program(place).find(name)
    definition.check_takes("item")
    if place not in modules:
        modules.append(place)
    return definition.name


def _pairs(option: str, given: Sequence[str], phases: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        phase, equals, value = one.partition("=")
        if not equals:
            raise BadInput(option, f"{one!r:.100} names no value; write {option} PHASE=VALUE")
        _check_phases(option, [phase], phases)
        if phase in found:
            raise BadInput(option, f"{phase} is given twice; give it once")
        found[phase] = value
    return found


def _check_phases(option: str, given: Sequence[str], phases: Sequence[str]) -> None:
    for phase in given:
        if phase not in phases:
            raise BadInput(option, f"there is no phase {phase!r:.60}; --phases has {', '.join(phases)}")


_values = _pairs


def _lists(option: str, given: Sequence[str], phases: Sequence[str]) -> dict[str, tuple[str, ...]]:
    pairs = _pairs(option, given, phases).items()
    return {phase: tuple(part.strip() for part in value.split(",") if part.strip()) for phase, value in pairs}


def _numbers(option: str, given: Sequence[str], phases: Sequence[str]) -> dict[str, int]:
    found = {}
    for phase, value in _pairs(option, given, phases).items():
        if not (value.isascii() and value.isdecimal() and 0 < len(value) < 8):
            raise BadInput(option, f"{value!r:.40} is not a number; write {option} {phase}=20")
        found[phase] = int(value)
    return found


def _item_file(path: str, columns: dict[str, str | None]) -> ItemFile:
    named = ItemColumns(
        id=columns["id_column"] or "id",
        name=columns["name_column"] or "name",
        priority=columns["priority_column"] or "priority",
        category=columns["category_column"] or "category",
    )
    return ItemFile(path, kind=columns["kind"], columns=named)


def _print_created(call: Invocation, view: CampaignFilledView, modules: Sequence[str]) -> None:
    one, output = view.campaign, call.output
    output.line(one.name)
    again = "" if view.is_new else "it exists already; "
    _say_added(output, one, added=view.added, known=view.known, before=again)
    if one.status == "draft" and one.items:
        output.say(f"to start it: {call.command('campaign', 'start', one.name)}")
    elif one.status == "running":
        output.say(f"to follow it: {call.command('progress', one.name)}")
    elif one.status == "failed":
        output.say(f"to start again what failed: {call.command('campaign', 'retry', one.name)}")
    if modules and one.status in ("draft", "running"):
        output.say(f"to run its items: {call.command('worker', *modules)}")


def _say_added(output: Output, one: CampaignView, *, added: int, known: int, before: str = "") -> None:
    known_before = f", {known:,} were there already" if known else ""
    output.say(
        f"{before}{counted(added, 'item')} added{known_before}; {one.name} is {one.status} and has "
        f"{counted(one.items, 'item')} in {_batches(one.batches)}"
    )


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"


# --- add


class ItemSource(Protocol):
    """Where items come from, one after another; `shown` is its name in messages."""

    shown: str

    def read(self) -> Iterator[ReadItem]: ...


class ItemUpload:
    """Adds the items of a file in chunks. If it is cut off, it says how far it came, and the same command
    goes on."""

    def __init__(self, output: Output, file: ItemSource) -> None:
        self._output = output
        self._file = file
        self._items = iter(file.read())
        self._first: list[ReadItem] = []
        self.added = 0
        self.known = 0

    def read_first(self) -> None:
        """Read the first chunk, so that its mistakes are found before anything is written."""
        self._first = self._chunk()

    def add(self, change: Change, campaign: str) -> CampaignView:
        chunk = self._first
        try:
            with self._output.progress("adding items") as tell:
                while True:
                    shown = self._add(change, campaign, chunk)
                    tell(self.added + self.known, None)
                    chunk = self._chunk()
                    if not chunk:
                        return shown
        except (HoldfastError, KeyboardInterrupt, OSError):
            done = self.added + self.known
            self._output.say(
                f"{counted(done, 'item')} of {self._file.shown} are in the campaign {campaign}; the same "
                "command again adds what is missing"
            )
            raise

    def _add(self, change: Change, campaign: str, chunk: Sequence[ReadItem]) -> CampaignView:
        asked = ItemsAddAsked(campaign=campaign, items=tuple(one.item for one in chunk))
        try:
            done = change("campaigns.add", asked, adding, ItemsAddedView)
        except HoldfastError as error:
            line = next((one.line for one in chunk if f"item {one.item.id} " in str(error)), None)
            if line is None:
                raise
            raise Conflict(f"{self._file.shown}:{line}: {error}") from error
        self.added += done.added
        self.known += done.known
        return done.campaign

    def _chunk(self) -> list[ReadItem]:
        chunk: list[ReadItem] = []
        size = 0
        for one in self._items:
            chunk.append(one)
            size += len(msgspec.json.encode(one.item))
            if len(chunk) == _CHUNK_ITEMS or size >= _CHUNK_BYTES:
                break
        return chunk


@click.command("add", short_help="Add items to a campaign, also while it runs.")
@campaign_argument
@click.argument("path", metavar="FILE")
@_file_options
@shared_options
@click.pass_obj
def add_items(call: Invocation, /, campaign: str, path: str, **columns: str | None) -> None:
    """Add the items of a file (- for stdin) to a campaign, also to one that runs or has ended.

    Items that are there already with the same contents are left alone. If the command is cut off, run it
    again.
    """
    filling = ItemUpload(call.output, _item_file(path, columns))
    filling.read_first()
    with changing(call) as change:
        shown = filling.add(change, campaign)
    view = ItemsAddedView(campaign=shown, added=filling.added, known=filling.known)
    call.output.show(view, lambda: _print_added(call.output, view))


def _print_added(output: Output, view: ItemsAddedView) -> None:
    output.line(view.campaign.name)
    _say_added(output, view.campaign, added=view.added, known=view.known)


# --- start, pause, resume


@click.command("start", short_help="Start a campaign.")
@campaign_argument
@shared_options
@click.pass_obj
def start_campaign(call: Invocation, campaign: str) -> None:
    """Start a campaign: workers that know its tasks run its items."""
    _change(call, "campaigns.start", CampaignStartAsked(campaign=campaign), starting)


@click.command("resume", short_help="Let a paused campaign go on.")
@campaign_argument
@shared_options
@click.pass_obj
def resume_campaign(call: Invocation, campaign: str) -> None:
    """Let a paused campaign go on where it was."""
    _change(call, "campaigns.resume", CampaignStartAsked(campaign=campaign), starting)


@click.command("pause", short_help="Start no more items of a campaign.")
@campaign_argument
@click.option("--reason", default=PAUSED_BY_OPERATOR, show_default=True, help="Reason to record.")
@shared_options
@click.pass_obj
def pause_campaign(call: Invocation, campaign: str, reason: str) -> None:
    """Start no more items of a campaign; those that run come to their end."""
    _change(call, "campaigns.pause", CampaignPauseAsked(campaign=campaign, reason=reason), pausing)


def _change(
    call: Invocation,
    method: str,
    asked: msgspec.Struct,
    writing: Callable[..., Write[CampaignChangedView]],
) -> None:
    with changing(call) as change:
        view = change(method, asked, writing, CampaignChangedView)
    one = view.campaign
    call.output.show(view, lambda: call.output.line(f"{one.name} is {one.status}"))
    if one.status == "running":
        call.output.say(f"to follow it: {call.command('progress', one.name)}")
    elif one.status == "paused":
        call.output.say(f"to let it go on: {call.command('campaign', 'resume', one.name)}")


# --- retry


@click.command("retry", short_help="Let failed items start again.")
@campaign_argument
@click.argument("item_ids", metavar="[ITEM]...", nargs=-1)
@click.option("--phase", metavar="NAME", help="Only in this phase.")
@shared_options
@click.pass_obj
def retry_items(call: Invocation, campaign: str, item_ids: tuple[str, ...], phase: str | None) -> None:
    """Let failed items start again, after you have fixed the cause: all of them, or the named ones.

    Each goes on after its last saved step. A campaign that has ended goes on.
    """
    asked = ItemsRetryAsked(campaign=campaign, phase=phase, item_ids=item_ids)
    retried = 0
    with changing(call) as change:
        while True:
            done = change("campaigns.retry", asked, retrying, ItemsRetriedView)
            retried += done.retried
            if not done.has_more:
                break
    view = ItemsRetriedView(campaign=done.campaign, retried=retried, has_more=False)
    call.output.show(view, lambda: _print_retried(call, view))


def _print_retried(call: Invocation, view: ItemsRetriedView) -> None:
    one = view.campaign
    if not view.retried:
        call.output.line(f"nothing failed; {one.name} is {one.status}")
        return
    call.output.line(f"{counted(view.retried, 'item')} to be started again; {one.name} is {one.status}")
    if one.status == "paused":
        # An operator resumes it, or finishes the restore that has paused it: the campaign says which.
        call.output.say(f"what lets it go on: {call.command('campaign', 'show', one.name)}")
    else:
        call.output.say(f"to follow it: {call.command('progress', one.name)}")
