"""store migrate, backup, verify, accept."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast import app
from holdfast.api.params import Nothing
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, counted, size
from holdfast.core.errors import BadInput, NoLedger
from holdfast.views.health import AcceptedView, BackedUpView, MigratedView, VerifiedView
from holdfast.views.text import one_line

MAX_PATH_CHARS = 4096


@click.group("store")
@shared_options
def store() -> None:
    """The ledger itself."""


@store.command("migrate", short_help="Set the ledger up, or bring it to the newest schema.")
@shared_options
@click.pass_obj
def migrate(call: Invocation) -> None:
    """Set the ledger up, or bring it to the newest schema. Make a backup first."""
    before, had_checksums = _applied(call)
    with call.output.progress("migrating"), call.writing(may_upgrade=True):
        pass
    after, has_checksums = _applied(call)
    view = MigratedView(
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        is_new=not before,
        applied=[number for number in after if number not in before],
        version=max(after, default=0),
        has_checksums=has_checksums,
    )
    are_new = has_checksums and not had_checksums
    call.output.show(view, lambda: call.output.line(_migrated(view, has_new_checksums=are_new)))


def _applied(call: Invocation) -> tuple[list[int], bool]:
    """The migrations that were applied, and whether the pages of the database have checksums."""
    try:
        with call.reading(must_be_current=False) as ledger:
            facts = ledger.facts()
            has_checksums = "on" in (facts.get("page_checksums"), facts.get("data_checksums"))
            return [number for number, _ in ledger.applied_migrations()], has_checksums
    except NoLedger:
        return [], False


def _migrated(view: MigratedView, *, has_new_checksums: bool) -> str:
    if view.is_new:
        return f"a new ledger at {view.store}, schema {view.version}"
    also = ", page checksums added" if has_new_checksums else ""
    if view.applied:
        migrations = counted(len(view.applied), "migration")
        return f"{view.store} has schema {view.version} now ({migrations} applied){also}"
    if also:
        return f"{view.store} has schema {view.version}{also}"
    hint = "" if view.has_checksums else "; it has no page checksums, see `holdfast doctor`"
    return f"nothing to do: {view.store} has schema {view.version}{hint}"


@store.command("backup", short_help="Copy the whole ledger while it is in use.")
@click.argument("target", type=click.Path(path_type=Path))
@shared_options
@click.pass_obj
def backup(call: Invocation, target: Path) -> None:
    """Copy the whole ledger to TARGET while it is in use. Never overwrites."""
    if target.is_dir():
        raise BadInput("target", f"{target} is a directory; name a file in it")
    with call.reading(must_be_current=False) as ledger, call.output.progress("copying") as tell:
        ledger.backup(str(target), on_pages=tell)
    view = BackedUpView(
        target=one_line(str(target.absolute()), MAX_PATH_CHARS), size_bytes=target.stat().st_size
    )
    call.output.show(view, lambda: call.output.line(f"{view.target}  ({size(view.size_bytes)})"))


@store.command("verify", short_help="Read everything back and compare.")
@shared_options
@click.pass_context
def verify(context: click.Context) -> None:
    """Read everything back: pages, digests, blobs and counts. Status 1 when something is wrong."""
    call: Invocation = context.obj
    with call.reading() as ledger, call.output.progress("reading") as tell:
        read = 0

        def count(rows: int) -> None:
            nonlocal read
            read += rows
            tell(read, None)

        problems = ledger.verify(on_rows=count)
    view = VerifiedView.of(problems, rows_read=read)
    call.output.show(view, lambda: _print_verified(call.output, view))
    if not view.is_sound:
        context.exit(FAILED)


def _print_verified(output: Output, view: VerifiedView) -> None:
    for problem in view.problems:
        output.line(problem)
    if view.is_sound:
        output.line(f"sound: {counted(view.rows_read, 'row')} read, every digest and every count agrees")
    else:
        output.say(f"{counted(len(view.problems), 'problem')}; restore a backup, or ask before you go on")


@store.command("accept", short_help="Take an older database as it is.")
@shared_options
@click.pass_obj
def accept(call: Invocation) -> None:
    """Take a database that is older than its mark as it is, so that resumes go on."""
    with call.writing_or_asking() as ledger:
        if ledger is None:
            view = call.ask("store.accept", Nothing(), AcceptedView)
        else:
            why = app.accept(ledger, clock=call.clock)
            view = AcceptedView(was_held=why is not None, why=why)
    sentence = f"accepted, although {view.why}" if view.was_held else "nothing was held"
    call.output.show(view, lambda: call.output.line(sentence))
