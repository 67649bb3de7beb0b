"""store migrate, backup, verify, accept, and the commands for its key."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast import app
from holdfast.api.params import Nothing
from holdfast.cli.errors import FAILED
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.keys import key, rekey_store
from holdfast.cli.output import Output, counted, size
from holdfast.config import SqlitePlace
from holdfast.core.errors import BadInput, NoLedger, PageDamaged, StoreUnavailable
from holdfast.store.dashboard_views import SINCE
from holdfast.store.outer_keys import write_key_file
from holdfast.store.rekey import read_wrapped
from holdfast.store.sealing import unwrap
from holdfast.views.health import AcceptedView, BackedUpView, MigratedView, VerifiedView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.config import StorePlace
    from holdfast.store.contract import Reader

MAX_PATH_CHARS = 4096


@click.group("store", cls=OrderedGroup)
@shared_options
def store() -> None:
    """The ledger database."""


@store.command("migrate", short_help="Create the ledger, or upgrade its schema.")
@shared_options
@click.pass_obj
def migrate(call: Invocation) -> None:
    """Create the ledger, or upgrade it to the newest schema. Make a backup first."""
    before = _schema(call)
    with call.output.progress("migrating"), call.writing(may_upgrade=True):
        pass
    after = _schema(call)
    view = MigratedView(
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        is_new=not before.applied,
        applied=[number for number in after.applied if number not in before.applied],
        version=max(after.applied, default=0),
        has_checksums=after.has_checksums,
        restored=[name for name in before.missing if name not in after.missing],
        views=[name for name in before.views if name not in after.views],
    )
    are_new = after.has_checksums and not before.has_checksums
    call.output.show(view, lambda: call.output.line(_migrated(view, has_new_checksums=are_new)))


class _Schema(NamedTuple):
    applied: list[int]
    has_checksums: bool
    # The indexes and the SQL views that it lacks.
    missing: list[str]
    views: list[str]


def _schema(call: Invocation) -> _Schema:
    try:
        with call.reading(must_be_current=False) as ledger:
            facts = ledger.facts()
            has_checksums = "on" in (facts.get("page_checksums"), facts.get("data_checksums"))
            missing = [one_line(index.name) for index in ledger.missing_indexes()]
            applied = [number for number, _ in ledger.applied_migrations()]
            views = [one_line(view.name) for view in ledger.views().lacking] if SINCE in applied else []
            return _Schema(applied, has_checksums, missing, views)
    except NoLedger:
        return _Schema([], has_checksums=False, missing=[], views=[])


def _migrated(view: MigratedView, *, has_new_checksums: bool) -> str:
    if view.is_new:
        return f"created a new ledger at {view.store}, schema {view.version}"
    also = ", page checksums added" if has_new_checksums else ""
    if view.restored:
        also += f", {'index' if len(view.restored) == 1 else 'indexes'} restored: {', '.join(view.restored)}"
    if view.views:
        also += f", {counted(len(view.views), 'SQL view')} made anew"
    if view.applied:
        migrations = counted(len(view.applied), "migration")
        return f"{view.store} now has schema {view.version} ({migrations} applied){also}"
    if also:
        return f"{view.store} has schema {view.version}{also}"
    hint = "" if view.has_checksums else "; it has no page checksums, see `holdfast doctor`"
    return f"nothing to do: {view.store} has schema {view.version}{hint}"


@store.command("backup", short_help="Copy the ledger while it is in use.")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--with-key", "has_key", is_flag=True, help="Copy the key of sealed values, too.")
@shared_options
@click.pass_obj
def backup(call: Invocation, target: Path, *, has_key: bool) -> None:
    """Copy the whole ledger to the file TARGET while it is in use. Never overwrites a file.

    The copy does not contain the key of its sealed values. With --with-key the key is written next to the
    copy, where Holdfast finds it when it opens the copy. If others can read that directory, store the key
    elsewhere.
    """
    if target.is_dir():
        raise BadInput("target", f"{target} is a directory; name a file in it")
    if os.path.lexists(target):
        raise BadInput("target", f"{target} exists, and a backup never overwrites; choose another name")
    beside = app.key_beside(target.absolute())
    if has_key and (beside.exists() or beside.is_symlink()):
        raise BadInput("--with-key", f"{beside} exists, and a backup never overwrites; choose another name")
    with call.reading(must_be_current=False) as ledger, call.output.progress("copying") as tell:
        if has_key:
            _key_for(call, ledger)  # fail before copying anything
        ledger.backup(str(target), on_pages=tell)
    # Read the key id from the copy: the ledger's key may have changed meanwhile.
    with contextlib.closing(
        app.open_reader(SqlitePlace(path=target.resolve()), must_be_current=False)
    ) as copy:
        wanted = copy.read_now(read_wrapped)
        found = _key_for(call, copy) if has_key else None
    if found is not None and not write_key_file(beside, found):
        raise BadInput("--with-key", f"{beside} exists, and a backup never overwrites; delete it first")
    view = BackedUpView(
        target=one_line(str(target.absolute()), MAX_PATH_CHARS),
        size_bytes=target.stat().st_size,
        key_fingerprint=None if wanted is None else one_line(wanted.outer),
        key=None if found is None else one_line(str(beside), MAX_PATH_CHARS),
    )
    call.output.show(view, lambda: _print_backup(call.output, view))


def _key_for(call: Invocation, ledger: Reader) -> bytes | None:
    """The key of this ledger; None if it has no sealed values. Raises KeyMissing, KeyWrong."""
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
            f"the backup does not contain the key of its sealed values, {view.key_fingerprint}; keep that, "
            "too: `holdfast store key export FILE`"
        )


@store.command("verify", short_help="Check the ledger for damage.")
@shared_options
@click.pass_context
def verify(context: click.Context) -> None:
    """Check the whole ledger for damage: pages, digests, blobs and counts.

    Exit status 1 if something is damaged; the command then lists it and prints how to restore a backup.
    """
    call: Invocation = context.obj
    problems, rows = _verify(call)
    view = VerifiedView.of(problems, rows_read=rows, restore=_restoring(call))
    call.output.show(view, lambda: _print_verified(call.output, view))
    if not view.is_sound:
        context.exit(FAILED)


def _verify(call: Invocation) -> tuple[list[str], int]:
    """The problems, and the number of rows read. If SQLite cannot read the file, check its pages here."""
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
    except OSError:  # the caller reports the first error
        return []


def _restoring(call: Invocation) -> list[str]:
    """The steps that replace a damaged ledger by a backup."""
    place = call.settings.store
    stop = (
        f"stop every process that uses the ledger: `{call.command('gateway', 'stop')}`, and your own programs"
    )
    verify = f"check it: `{call.command('store', 'verify')}`"
    if not isinstance(place, SqlitePlace):
        return [
            stop,
            "restore a `pg_dump` backup: `pg_restore --clean --if-exists --dbname=DATABASE DUMP`",
            verify,
        ]
    path = shlex.quote(str(place.path))
    # Leave the `.mark` file: it shows that the copy is older.
    beside = [f"{place.path}{suffix}" for suffix in ("-wal", "-shm")]
    files = [path, *(shlex.quote(one) for one in beside if Path(one).exists())]
    damaged = shlex.quote(f"{place.path}.damaged")
    return [
        stop,
        f"move the damaged files away together: `mkdir {damaged} && mv {' '.join(files)} {damaged}`",
        f"copy a backup made by `holdfast store backup` into place: `cp BACKUP {path}`",
        verify,
        f"confirm that it is older on purpose, so that its work resumes: `{call.command('store', 'accept')}`",
    ]


def _print_verified(output: Output, view: VerifiedView) -> None:
    for problem in view.problems:
        output.line(problem)
    if view.is_sound:
        output.line(f"no damage: {counted(view.rows_read, 'row')} read, all digests and counts match")
        return
    output.say(f"{counted(len(view.problems), 'problem')}; to restore a backup:")
    for number, step in enumerate(view.restore, start=1):
        output.say(f"{number}. {step}")


@store.command("accept", short_help="Accept a restored, older database.")
@shared_options
@click.pass_obj
def accept(call: Invocation) -> None:
    """Accept a database that is older than its mark (a restored backup), so that its work resumes."""
    with call.writing_or_asking() as ledger:
        if ledger is None:
            view = call.ask("store.accept", Nothing(), AcceptedView)
        else:
            from holdfast.api.ledger import accept as take_as_it_is

            call.record(ledger, "store.accept", Nothing())
            why = take_as_it_is(ledger, clock=call.clock)
            view = AcceptedView(was_held=why is not None, why=why)
    sentence = f"accepted, although {view.why}" if view.was_held else "nothing to do: no work is held"
    call.output.show(view, lambda: call.output.line(sentence))


store.add_command(key)
store.add_command(rekey_store)
