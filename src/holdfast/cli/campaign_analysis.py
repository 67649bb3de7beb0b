"""campaign analyse: a campaign that analyses the repositories or packages of a folder, and its report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.analysis.discovery import bare_in_words, find_items, item_id_of
from holdfast.analysis.findings import AnalysisFindings, findings_in
from holdfast.analysis.progress import PhaseCounts, phase_counts
from holdfast.analysis.report import PAGE_NAME
from holdfast.analysis.tasks import CONCURRENCY, analyse, analysis_spec, report
from holdfast.api.campaign_changes import (
    CampaignCreateAsked,
    CampaignStartAsked,
    NewItemAsked,
    PhaseAsked,
    creating,
    starting,
)
from holdfast.api.campaigns import ItemsAsked, read_items
from holdfast.cli.campaign_changes import ItemUpload, changing
from holdfast.cli.campaign_names import campaign_name
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.item_files import ReadItem
from holdfast.cli.output import Output, counted, is_terminal, may_color
from holdfast.config import MemoryPlace, SqlitePlace
from holdfast.core.campaign import MAX_CONCURRENCY, Item
from holdfast.core.errors import BadInput, HoldfastError, NoLedger, NotFound
from holdfast.core.transitions import CampaignStatus
from holdfast.views.campaigns import CampaignChangedView, CampaignCreatedView, CampaignView, ItemPageView

if TYPE_CHECKING:
    from holdfast.engine.client.campaigns import Campaigns

Show = Callable[[Sequence[PhaseCounts], str], None]
LOOK_EVERY_S = 0.3
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class AnalysedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How an analysis ended or goes on: its campaign, its counts, and where its report is."""

    campaign: str
    # `running` if another worker goes on with it, or if this one was stopped; else `done` or `failed`.
    status: str
    items: int
    # Items found in the folder that the campaign did not have yet.
    added: int
    analysed: int
    failed: int
    report: str
    findings: AnalysisFindings


@click.command("analyse", short_help="Analyse the repositories of a folder.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--name",
    "campaign",
    callback=campaign_name,
    metavar="NAME",
    help="Name of the campaign. [default: that of the folder, and -analysis]",
)
@click.option(
    "--artifacts",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the files go. [default: artifacts/NAME in the home]",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_CONCURRENCY),
    default=CONCURRENCY,
    show_default=True,
    help="How many items may be in flight.",
)
@click.option("--detach", is_flag=True, help="Only start it; a worker that knows holdfast.analysis runs it.")
@click.option("--list", "only_list", is_flag=True, help="Only print the items, as a file for --items.")
@shared_options
@click.pass_context
def analyse_folder(
    context: click.Context,
    folder: Path,
    campaign: str | None,
    artifacts: Path | None,
    concurrency: int,
    *,
    detach: bool,
    only_list: bool,
) -> None:
    """Analyse each git repository, installed package and project in FOLDER, and write a report.

    For each item: lines by language, dependencies, tests, last commit, and a recommendation. This process
    runs the items. If it is stopped or killed, run the same command again: it goes on after the last saved
    step, and takes in what is new in the folder.

    \b
    holdfast campaign analyse ~/src
    holdfast campaign analyse ~/src --list > repos.jsonl

    Exit status 1 if an item failed, or if the analysis was stopped before its end.
    """
    call: Invocation = context.obj
    name = campaign or f"{item_id_of(folder.absolute().name or 'root', folder.absolute(), set())}-analysis"
    place = call.settings.home / "artifacts" / name if artifacts is None else artifacts
    bare: list[Path] = []
    found = find_items(folder, artifacts=place, now=call.clock.now(), on_bare=bare.append)
    if bare:
        call.output.say(f"skipped {bare_in_words(bare)}")
    if only_list:
        for item in found:
            _print_item(call.output, item)
        return
    if isinstance(call.settings.store, MemoryPlace):
        raise BadInput("--store", "an in-memory ledger is lost with this process; name a file or a database")
    if not detach:
        call.must_be_here()  # this process runs the tasks, so it needs the database itself
    one, added = _started(call, name, found, concurrency)
    if not detach and one.status == CampaignStatus.RUNNING:
        call.output.say(f"{one.name}: {counted(one.items, 'item')}; the report goes to {place / PAGE_NAME}")
        asyncio.run(_work(call, one.name))
    view = _analysed(call, one.name, added, place)
    call.output.show(view, lambda: _print(call, view))
    _say_next(call, view, folder, is_detached=detach)
    if view.status != CampaignStatus.DONE and not detach:
        context.exit(FAILED)


def _print_item(output: Output, item: Item) -> None:
    document = {"id": item.id, "name": item.name, "priority": item.priority, "category": item.category}
    output.line(msgspec.json.encode(document | item.fields).decode())


# --- start


class _FoundItems:
    """Items that were found, for the upload that files use, too."""

    def __init__(self, folder: str, items: Sequence[Item]) -> None:
        self.shown = folder
        self._items = items

    def read(self) -> Iterator[ReadItem]:
        for number, one in enumerate(self._items, 1):
            asked = NewItemAsked(
                id=one.id, name=one.name, priority=one.priority, category=one.category, fields=one.fields
            )
            yield ReadItem(line=number, item=asked)


def _started(
    call: Invocation, name: str, found: Sequence[Item], concurrency: int
) -> tuple[CampaignView, int]:
    """The campaign, with all items of the folder, and running unless it has ended."""
    spec = analysis_spec(concurrency=concurrency)
    asked = CampaignCreateAsked(
        name=name,
        phases=tuple(
            PhaseAsked(name=one.name, task=one.task, role=one.role, waits_for_all=one.waits_for_all)
            for one in spec.phases
        ),
        goal=spec.goal,
        concurrency=concurrency,
    )
    # Their first priority and category stay: a folder changes, and the guess with it.
    known = _known_ids(call, name)
    upload = ItemUpload(call.output, _FoundItems(name, [one for one in found if one.id not in known]))
    upload.read_first()
    with changing(call, may_create=True) as change:
        one = change("campaigns.create", asked, creating, CampaignCreatedView).campaign
        if len(known) < len(found):
            one = upload.add(change, one.name)
        if one.status in (CampaignStatus.DRAFT, CampaignStatus.PAUSED):
            start = CampaignStartAsked(campaign=one.id)
            one = change("campaigns.start", start, starting, CampaignChangedView).campaign
    return one, upload.added


def _known_ids(call: Invocation, name: str) -> set[str]:
    known: set[str] = set()
    token: str | None = None
    while True:
        asked = ItemsAsked(campaign=name, phase="analysis", limit=1000, page_token=token)
        try:
            page = call.look("campaigns.items", asked, _reading(asked), ItemPageView)
        except (NotFound, NoLedger):
            return known
        known.update(one.id for one in page.items if one.id is not None)
        token = page.next_page_token
        if token is None:
            return known


def _reading(asked: ItemsAsked) -> Callable[..., ItemPageView]:
    return lambda tx: read_items(tx, asked)


# --- run


async def _work(call: Invocation, name: str) -> None:
    """Run items until the campaign has ended or is paused, or this process is told to stop."""
    from holdfast import app

    store, stopped = call.settings.store, asyncio.Event()
    if isinstance(store, SqlitePlace) and call.settings.home in store.path.parents:
        app.make_home(call.settings.home)
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopped.set)
    with _bars() as show:
        async with app.open(
            store.url, tasks=[analyse, report], home=call.settings.home, clock=call.clock, role="analyse"
        ) as holdfast:
            error = await _follow(holdfast.campaigns(), name, stopped, show)
    if error is not None:
        raise error


async def _follow(
    campaigns: Campaigns, name: str, stopped: asyncio.Event, show: Show
) -> HoldfastError | None:
    """Returns an error, so that the worker's task group does not cancel its runs instead of pausing them."""
    try:
        while not stopped.is_set():
            progress = await campaigns.progress(name)
            show(phase_counts(progress), "")
            if progress.campaign.status is not CampaignStatus.RUNNING:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await stopped.wait()
    except HoldfastError as error:
        return error
    return None


@contextlib.contextmanager
def _bars() -> Iterator[Show]:
    if not is_terminal(sys.stderr):
        yield lambda _phases, _note: None
        return
    from holdfast.cli.phase_bars import bars

    with bars(has_color=may_color(sys.stderr)) as (show, _):
        yield show


# --- shown


def _analysed(call: Invocation, name: str, added: int, artifacts: Path) -> AnalysedView:
    from holdfast.api.progress import CampaignProgressAsked, read_progress
    from holdfast.views.progress import CampaignProgressView

    asked = CampaignProgressAsked(campaign=name)
    found = call.look(
        "progress.get",
        asked,
        lambda tx: read_progress(tx, asked, projection=call.projection()),
        CampaignProgressView,
    )
    assert found.campaign is not None
    phases = {phase.name: phase.counts for phase in found.phases}
    return AnalysedView(
        campaign=found.campaign.name,
        status=found.campaign.status,
        items=found.campaign.items,
        added=added,
        analysed=phases["analysis"].done,
        failed=phases["analysis"].failed + phases["report"].failed,
        report=os.fspath(artifacts / PAGE_NAME),
        findings=findings_in(artifacts),
    )


def _print(call: Invocation, view: AnalysedView) -> None:
    counts = f"{view.analysed:,} of {counted(view.items, 'item')}"
    if view.failed:
        counts = f"{counts}, {view.failed:,} failed"
    facts: list[tuple[str, str | None]] = [
        ("campaign", view.campaign),
        ("status", view.status),
        ("analysed", counts),
    ]
    if view.analysed:
        facts += [*view.findings.fields(), ("report", view.report)]
    call.output.fields(facts)


def _say_next(call: Invocation, view: AnalysedView, folder: Path, *, is_detached: bool) -> None:
    if view.status == CampaignStatus.RUNNING:
        if is_detached:
            call.output.say(f"to run its items: {call.command('worker', 'holdfast.analysis')}")
        else:
            again = call.command("campaign", "analyse", str(folder), "--name", view.campaign)
            call.output.say(f"stopped; what is done is saved. To go on: {again}")
    elif view.failed:
        failed = call.command("campaign", "items", view.campaign, "--phase", "analysis", "--status", "failed")
        retry = call.command("campaign", "retry", view.campaign)
        call.output.say(f"to see what failed: {failed}; to repeat it, once the cause is fixed: {retry}")
