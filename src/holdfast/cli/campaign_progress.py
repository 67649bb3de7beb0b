"""progress: how far a campaign is, as a live screen, once, as documents, by groups, or as a sample."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.api.progress import (
    MOST_SAMPLED,
    CampaignProgressAsked,
    GroupKind,
    GroupsAsked,
    SampleAsked,
    read_context_document,
    read_groups,
    read_phase,
    read_progress,
    read_sample,
)
from holdfast.cli.campaign_names import campaign_name
from holdfast.cli.campaigns import ITEM_STATUSES, facts_of
from holdfast.cli.invocation import Invocation, page_option, shared_options
from holdfast.cli.output import counted, is_terminal, may_color
from holdfast.cli.progress_lines import WIDTH, Line, draw, draw_groups, print_lines
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.campaigns.documents import ContextDocument, PhaseDocument
from holdfast.views.progress import CampaignProgressView, GroupPageView, SampleView

if TYPE_CHECKING:
    from rich.text import Text

LOOK_EVERY_S = 0.5
# Poll a remote gateway less often: it limits requests per second.
LOOK_ELSEWHERE_EVERY_S = 2.0
# A slow ledger is polled less often.
_SHARE_OF_LOOKING = 0.1


@click.command("progress")
@click.argument("campaign", metavar="[NAME]", required=False, callback=campaign_name)
@click.option("--once", is_flag=True, help="Print it once, also on a terminal.")
@click.option("--phase", metavar="NAME", help="Only this phase.")
@click.option("--context", is_flag=True, help="The small JSON document for an agent: at most 2 KB.")
@click.option("--document", is_flag=True, help="The JSON document of a phase, as in the files of state.")
@click.option(
    "--by", type=click.Choice([one.value for one in GroupKind]), help="Counts by these, a page at a time."
)
@click.option("--sample", type=click.IntRange(1, MOST_SAMPLED), metavar="N", help="Some items by chance.")
@click.option("--status", type=click.Choice(ITEM_STATUSES), help="With --sample: only items in this status.")
@click.option(
    "--seed", type=click.IntRange(0, 2**53), metavar="N", help="With --sample: the same items again."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="With --by: maximum number to show.",
)
@page_option
@shared_options
@click.pass_obj
def progress(
    call: Invocation,
    campaign: str | None,
    phase: str | None,
    by: str | None,
    sample: int | None,
    status: str | None,
    seed: int | None,
    limit: int,
    page: str | None,
    *,
    once: bool,
    context: bool,
    document: bool,
) -> None:
    """How far a campaign is; without NAME, the newest one that runs.

    On a terminal it follows a running campaign until that ends; Ctrl-C leaves, and the campaign goes on. Into
    a pipe, or with --once, it prints once. A bar shows what is done (█), in progress (▒), failed (✗) and
    pending (·).
    """
    chosen = {"--context": context, "--document": document, "--by": by, "--sample": sample}
    named = [name for name, value in chosen.items() if value]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} cannot be combined; give only one of them")
    if (status or seed is not None) and sample is None:
        raise click.UsageError("--status and --seed belong to --sample N")
    if page is not None and by is None:
        raise click.UsageError("--page belongs to --by")
    asked = CampaignProgressAsked(campaign=campaign, phase=phase)
    if context:
        _print_document(
            call.look(
                "progress.context",
                asked,
                lambda tx: read_context_document(tx, asked, projection=call.projection()),
                ContextDocument,
            )
        )
    elif document:
        _print_document(
            call.look(
                "progress.phase",
                asked,
                lambda tx: read_phase(tx, asked, now=call.clock.now()),
                PhaseDocument,
            )
        )
    elif by is not None:
        groups = GroupsAsked(campaign=campaign, phase=phase, by=GroupKind(by), limit=limit, page_token=page)
        found = call.look("progress.batches", groups, lambda tx: read_groups(tx, groups), GroupPageView)
        call.output.show(found, lambda: _print_groups(call, found))
    elif sample is not None:
        wanted = None if status is None else ItemStatus(status)
        some = SampleAsked(campaign=campaign, phase=phase, status=wanted, size=sample, seed=seed)
        drawn = call.look("progress.sample", some, lambda tx: read_sample(tx, some), SampleView)
        call.output.show(drawn, lambda: _print_sample(call, drawn))
    else:
        _show(call, asked, once=once)


def _print_document(document: msgspec.Struct) -> None:
    """Always as JSON: it is made for programs."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


# --- the screen


def _show(call: Invocation, asked: CampaignProgressAsked, *, once: bool) -> None:
    with _looking(call, asked) as look:
        view = look()
        is_live = not (once or call.output.as_json) and is_terminal(sys.stdout)
        if is_live and _goes_on(view):
            # By its id: a newer campaign must not take its place on the screen.
            assert view.campaign is not None
            view = _follow(call, look, view)
        call.output.show(view, lambda: print_lines(call.output, draw(_to_copy(call, view), width=_width())))


@contextlib.contextmanager
def _looking(call: Invocation, asked: CampaignProgressAsked) -> Iterator[Callable[[], CampaignProgressView]]:
    """What reads the progress, again and again: always of the campaign that the first look found."""
    found: str | None = None

    def now_asked() -> CampaignProgressAsked:
        return asked if found is None else CampaignProgressAsked(campaign=found, phase=asked.phase)

    def remember(view: CampaignProgressView) -> CampaignProgressView:
        nonlocal found
        found = None if view.campaign is None else view.campaign.id
        return view

    if call.gateway_url is not None:
        yield lambda: remember(call.ask_patiently("progress.get", now_asked(), CampaignProgressView))
        return
    with call.reading() as ledger:
        yield lambda: remember(
            ledger.read_now(lambda tx: read_progress(tx, now_asked(), projection=call.projection()))
        )


def _goes_on(view: CampaignProgressView) -> bool:
    return view.campaign is not None and view.campaign.status == CampaignStatus.RUNNING


def _follow(
    call: Invocation, look: Callable[[], CampaignProgressView], view: CampaignProgressView
) -> CampaignProgressView:
    """Redraw until the campaign ends or is paused, or the person leaves with Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not may_color(sys.stdout), highlight=False)
    every = LOOK_EVERY_S if call.gateway_url is None else LOOK_ELSEWHERE_EVERY_S
    with (
        contextlib.suppress(KeyboardInterrupt),
        # Nothing else prints meanwhile, and a redirected stdout would hide its encoding and its width.
        Live(
            console=console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live,
    ):
        while _goes_on(view):
            size = shutil.get_terminal_size()
            shown = draw(_to_copy(call, view), width=size.columns, height=size.lines)
            live.update(_text(shown), refresh=True)
            time.sleep(every)
            began = time.monotonic()
            view = look()
            every = max(every, (time.monotonic() - began) / _SHARE_OF_LOOKING)
    return view


def _text(lines: list[Line]) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for part, style in line:
            text.append(part, style=style or None)
    return text


def _width() -> int:
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else WIDTH


# --- drill-down


def _print_groups(call: Invocation, view: GroupPageView) -> None:
    print_lines(call.output, draw_groups(view.groups, width=_width()))
    call.output.say(f"{view.campaign}, phase {view.phase}, by {view.by}: {counted(len(view.groups), 'line')}")
    if view.next_page_token is not None:
        call.output.say_next(view.next_page_token)


def _print_sample(call: Invocation, view: SampleView) -> None:
    output = call.output
    for number, one in enumerate(view.items):
        if number:
            output.line()
        facts = [("item", one.id or "damaged"), ("name", one.name), ("priority", one.priority)]
        output.fields([*facts, ("category", one.category), ("batch", one.batch), *facts_of(one)])
    noun = "item" if view.status is None else f"{view.status} item"
    output.say(
        f"{len(view.items):,} of {counted(view.of, noun)} in the phase {view.phase} of "
        f"{view.campaign}; the same ones again: --seed {view.seed}"
    )


def _to_copy(call: Invocation, view: CampaignProgressView) -> CampaignProgressView:
    return msgspec.structs.replace(view, issues=[call.output.to_copy(issue) for issue in view.issues])
