"""state: where the state files are, and how to write them anew."""

from __future__ import annotations

import click

from holdfast.app.homes import make_home
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import counted
from holdfast.core.errors import NoLedger
from holdfast.views.projections import FilesPlaceView, FilesRebuiltView
from holdfast.views.text import one_line

_MAX_PATH_CHARS = 4096


@click.group("state", cls=OrderedGroup)
@shared_options
def state() -> None:
    """Readable files about campaigns, below the home, for people and agents without a database.

    The gateway writes them a few seconds after something has changed. They can always be written anew.
    """


@state.command("path", short_help="Where the state files are.")
@shared_options
@click.pass_obj
def path(call: Invocation) -> None:
    """Where the state files are.

    Below it are agent-states, progress, checkpoints, memory and artifacts of the newest campaign, and
    `campaigns` with those of all.
    """
    from holdfast.progress.file_tree import CAMPAIGNS, folder_of
    from holdfast.progress.projections import newest_campaign

    call.must_be_here()
    folder = folder_of(call.settings.home)
    newest = None
    try:
        with call.reading() as ledger:
            newest = ledger.read_now(newest_campaign)
    except NoLedger:
        pass
    view = FilesPlaceView(
        path=one_line(str(folder), _MAX_PATH_CHARS),
        campaigns=one_line(str(folder / CAMPAIGNS), _MAX_PATH_CHARS),
        newest_campaign=None if newest is None else one_line(newest.name),
    )
    call.output.show(view, lambda: call.output.line(view.path))
    if not folder.is_dir():
        call.output.say("there are no files yet; the gateway writes them, or `holdfast state rebuild` does")


@state.command("rebuild", short_help="Write the state files anew.")
@shared_options
@click.pass_obj
def rebuild(call: Invocation) -> None:
    """Write the state files of all campaigns anew from the ledger, also while the gateway runs.

    Readers see the old files until the new ones are complete. What the ledger does not have any more is kept:
    snapshots, and the logs of days whose events were removed.
    """
    from holdfast.progress.file_tree import folder_of
    from holdfast.progress.projections import rebuild as write_anew

    call.must_be_here()
    home = call.settings.home
    make_home(home)
    with call.reading() as ledger, call.output.progress("writing") as tell:
        written = write_anew(home, ledger, ledger.clock, on_campaign=tell)
    view = FilesRebuiltView(
        path=one_line(str(folder_of(home)), _MAX_PATH_CHARS), campaigns=written.campaigns, files=written.files
    )
    said = f"{counted(view.files, 'file')} of {counted(view.campaigns, 'campaign')} in {view.path}"
    call.output.show(view, lambda: call.output.line(said))
