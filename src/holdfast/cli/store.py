"""store migrate, backup, verify, accept; and what is about its key."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast import app
from holdfast.api.params import Nothing
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.keys import key, rekey_store
from holdfast.cli.output import Output, counted, size
from holdfast.config import SqlitePlace
from holdfast.core.errors import BadInput, NoLedger, PageDamaged, StoreUnavailable
from holdfast.store.outer_keys import write_key_file
from holdfast.store.rekey import read_wrapped
from holdfast.store.sealing import unwrap
from holdfast.views.health import AcceptedView, BackedUpView, MigratedView, VerifiedView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.config import StorePlace
    from holdfast.store.contract import Reader

MAX_PATH_CHARS = 4096


@click.group("store")
@shared_options
def store() -> None:
    """The ledger itself."""


store.add_command(rekey_store)
store.add_command(key)


@store.command("migrate", short_help="Set the ledger up, or bring it to the newest schema.")
@shared_options
@click.pass_obj
def migrate(call: Invocation) -> None:
    """Set the ledger up, or bring it to the newest schema. Make a backup first."""
    before, had_checksums, missing = _applied(call)
    with call.output.progress("migrating"), call.writing(may_upgrade=True):
        pass
    after, has_checksums, still_missing = _applied(call)
    view = MigratedView(
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        is_new=not before,
        applied=[number for number in after if number not in before],
        version=max(after, default=0),
        has_checksums=has_checksums,
        restored=[name for name in missing if name not in still_missing],
    )
    are_new = has_checksums and not had_checksums
    call.output.show(view, lambda: call.output.line(_migrated(view, has_new_checksums=are_new)))


def _applied(call: Invocation) -> tuple[list[int], bool, list[str]]:
    """The migrations that were applied, whether pages have checksums, and which indexes are missing."""
    try:
        with call.reading(must_be_current=False) as ledger:
            facts = ledger.facts()
            has_checksums = "on" in (facts.get("page_checksums"), facts.get("data_checksums"))
            missing = [one_line(index.name) for index in ledger.missing_indexes()]
            return [number for number, _ in ledger.applied_migrations()], has_checksums, missing
    except NoLedger:
        return [], False, []


def _migrated(view: MigratedView, *, has_new_checksums: bool) -> str:
    if view.is_new:
        return f"a new ledger at {view.store}, schema {view.version}"
    also = ", page checksums added" if has_new_checksums else ""
    if view.restored:
        also += f", {'index' if len(view.restored) == 1 else 'indexes'} restored: {', '.join(view.restored)}"
    if view.applied:
        migrations = counted(len(view.applied), "migration")
        return f"{view.store} has schema {view.version} now ({migrations} applied){also}"
    if also:
        return f"{view.store} has schema {view.version}{also}"
    hint = "" if view.has_checksums else "; it has no page checksums, see `holdfast doctor`"
    return f"nothing to do: {view.store} has schema {view.version}{hint}"


@store.command("backup", short_help="Copy the whole ledger while it is in use.")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--with-key", "has_key", is_flag=True, help="Put the key of sealed values beside it.")
@shared_options
@click.pass_obj
def backup(call: Invocation, target: Path, *, has_key: bool) -> None:
    """Copy the whole ledger to TARGET while it is in use. Never overwrites.

    Sealed values need their key, which is not in the copy. With --with-key it is put beside the copy, where
    it is found when the copy is opened; keep the two apart if others may read the place.
    """
    if target.is_dir():
        raise BadInput("target", f"{target} is a directory; name a file in it")
    beside = app.key_beside(target.absolute())
    if has_key and (beside.exists() or beside.is_symlink()):
        raise BadInput("--with-key", f"{beside} exists; a backup never overwrites, choose another name")
    with call.reading(must_be_current=False) as ledger, call.output.progress("copying") as tell:
        if has_key:
            _key_for(call, ledger)  # before anything is copied
        ledger.backup(str(target), on_pages=tell)
    # As the copy has it: the ledger's own may have been changed meanwhile.
    with contextlib.closing(
        app.open_reader(SqlitePlace(path=target.resolve()), must_be_current=False)
    ) as copy:
        wanted = copy.read_now(read_wrapped)
        found = _key_for(call, copy) if has_key else None
    if found is not None and not write_key_file(beside, found):
        raise BadInput("--with-key", f"{beside} exists; a backup never overwrites, remove it by hand")
    view = BackedUpView(
        target=one_line(str(target.absolute()), MAX_PATH_CHARS),
        size_bytes=target.stat().st_size,
        key_fingerprint=None if wanted is None else one_line(wanted.outer),
        key=None if found is None else one_line(str(beside), MAX_PATH_CHARS),
    )
    call.output.show(view, lambda: _print_backup(call.output, view))


def _key_for(call: Invocation, ledger: Reader) -> bytes | None:
    """The key that opens this ledger; None when it needs none. Raises KeyMissing, KeyWrong."""
    wanted = ledger.read_now(read_wrapped)
    if wanted is None:
        return None
    outer = app.outer_key_of(call.settings, is_reader=True)
    found = outer.load(wanted.outer)
    unwrap(wanted, found, outer)
    return found


def _print_backup(output: Output, view: BackedUpView) -> None:
    output.line(f"{view.target}  ({size(view.size_bytes)})")
    if view.key is not None:
        output.line(f"{view.key}  (the key of its sealed values, {view.key_fingerprint})")
    elif view.key_fingerprint is not None:
        output.say(
            f"its sealed values need the key {view.key_fingerprint}, which is not in it: keep that, too "
            "(`holdfast store key export FILE` where `holdfast store key show` says that it opens the ledger)"
        )


@store.command("verify", short_help="Read everything back and compare.")
@shared_options
@click.pass_context
def verify(context: click.Context) -> None:
    """Read everything back: pages, digests, blobs and counts. Status 1 when something is wrong, with what is
    damaged and how to restore a backup."""
    call: Invocation = context.obj
    problems, rows = _verify(call)
    view = VerifiedView.of(problems, rows_read=rows, restore=_restoring(call))
    call.output.show(view, lambda: _print_verified(call.output, view))
    if not view.is_sound:
        context.exit(FAILED)


def _verify(call: Invocation) -> tuple[list[str], int]:
    """What is wrong, and how many rows were read. A file of which SQLite reads nothing is looked at here."""
    read = 0
    try:
        with call.reading(may_be_damaged=True) as ledger, call.output.progress("reading") as tell:

            def count(rows: int) -> None:
                nonlocal read
                read += rows
                tell(read, None)

            problems = ledger.verify(on_rows=count)
        if problems and not read:
            known = set(problems)
            problems += [one for one in _problems_of_file(call.settings.store) if one not in known]
        return problems, read  # noqa: TRY300 - read after it was counted
    except (PageDamaged, StoreUnavailable) as error:
        problems = _problems_of_file(call.settings.store)
        if not problems and not isinstance(error, PageDamaged):
            raise
        return [error.finding if isinstance(error, PageDamaged) else str(error), *problems], 0


def _problems_of_file(place: StorePlace) -> list[str]:
    from itertools import islice

    from holdfast.store.checksums import problems_of_file
    from holdfast.store.verify import MAX_PROBLEMS

    if not isinstance(place, SqlitePlace):
        return []
    try:
        return list(islice(problems_of_file(place.path), MAX_PROBLEMS))
    except OSError:  # the error that brought us here says it
        return []


def _restoring(call: Invocation) -> list[str]:
    """How to put a backup in the place of a damaged ledger."""
    place = call.settings.store
    stop = (
        f"stop every process that uses the ledger: `{call.command('gateway', 'stop')}`, and programs of yours"
    )
    verify = f"read it back: `{call.command('store', 'verify')}`"
    if not isinstance(place, SqlitePlace):
        return [
            stop,
            "restore a dump of `pg_dump`: `pg_restore --clean --if-exists --dbname=DATABASE DUMP`",
            verify,
        ]
    path = shlex.quote(str(place.path))
    # Not the mark: it shows that the copy is older.
    beside = [f"{place.path}{suffix}" for suffix in ("-wal", "-shm")]
    files = [path, *(shlex.quote(one) for one in beside if Path(one).exists())]
    damaged = shlex.quote(f"{place.path}.damaged")
    return [
        stop,
        f"move the damaged files away together: `mkdir {damaged} && mv {' '.join(files)} {damaged}`",
        f"put a copy in place that `holdfast store backup` made: `cp BACKUP {path}`",
        verify,
        f"say that it is older on purpose, so that its work goes on: `{call.command('store', 'accept')}`",
    ]


def _print_verified(output: Output, view: VerifiedView) -> None:
    for problem in view.problems:
        output.line(problem)
    if view.is_sound:
        output.line(f"sound: {counted(view.rows_read, 'row')} read, every digest and every count agrees")
        return
    output.say(f"{counted(len(view.problems), 'problem')}; to restore a backup:")
    for number, step in enumerate(view.restore, start=1):
        output.say(f"{number}. {step}")


@store.command("accept", short_help="Take an older database as it is.")
@shared_options
@click.pass_obj
def accept(call: Invocation) -> None:
    """Take a database that is older than its mark as it is, so that resumes go on."""
    with call.writing_or_asking() as ledger:
        if ledger is None:
            view = call.ask("store.accept", Nothing(), AcceptedView)
        else:
            from holdfast.api.ledger import accept as take_as_it_is

            call.record(ledger, "store.accept", Nothing())
            why = take_as_it_is(ledger, clock=call.clock)
            view = AcceptedView(was_held=why is not None, why=why)
    sentence = f"accepted, although {view.why}" if view.was_held else "nothing was held"
    call.output.show(view, lambda: call.output.line(sentence))
