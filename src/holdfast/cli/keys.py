"""store rekey, store key show, export, import: the key that decrypts sealed values."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import click

from holdfast import app
from holdfast.api.params import Nothing
from holdfast.cli.errors import FAILED
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output
from holdfast.core.errors import BadInput, KeyMissing, KeyProblem, NoLedger, Refused
from holdfast.store.outer_keys import (
    KEY_VARIABLE,
    MAX_BYTES,
    CommandKey,
    FileKey,
    read_text,
    text_of,
    write_key_file,
)
from holdfast.store.rekey import Rekeyed, bring, opens, read_wrapped, rekey, start_over
from holdfast.store.sealing import OuterKey, WrappedKey, fingerprint, unwrap
from holdfast.views.keys import ExportedView, ImportedView, KeyView, RekeyedView
from holdfast.views.text import one_line

MAX_PATH_CHARS = 4096


# --- rekey


@click.command("rekey", short_help="Replace the key of the ledger.")
@click.option("--lost", "is_lost", is_flag=True, help="The key is lost: start with a new one.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation of --lost.")
@shared_options
@click.pass_obj
def rekey_store(call: Invocation, *, is_lost: bool, is_sure: bool) -> None:
    """Replace the key of the ledger; a gateway may run meanwhile. Stored values are not rewritten.

    The new key replaces the old one in its file. The old key is kept next to it, because older backups need
    it. To choose the new key yourself, set HOLDFAST_NEW_KEY, and then put that key where the gateway reads
    it: HOLDFAST_KEY, or the output of store.key_command.

    Use --lost if the key is gone. Values sealed with it can never be read again, and tasks that need them
    fail; all other work continues. First stop every process that uses the ledger.
    """
    call.must_be_here()
    app.vault_of(call.settings)  # fail early if there is no usable vault
    outer = app.outer_key_of(call.settings)
    if is_lost:
        _check_lost(call, outer, is_sure=is_sure)
    # Write directly even if a gateway runs: that gateway may be the process without the key.
    vault = app.vault_of(call.settings, is_lenient=True)
    app.open_reader(call.settings.store).close()  # opening the store for writing would create a missing one
    store = app.open_place(call.settings.store, clock=call.clock, vault=vault)
    try:
        call.record(store, "store.rekey", Nothing())
        done = start_over(store, outer) if is_lost else rekey(store, outer, os.environ)
    finally:
        store.close()
    view = _rekeyed(call, outer, done, is_lost=is_lost)
    call.output.show(view, lambda: _print_rekeyed(call.output, view))


def _check_lost(call: Invocation, outer: OuterKey, *, is_sure: bool) -> None:
    from holdfast.cli.boots import read_boots

    with call.reading() as ledger:
        found = ledger.read_now(read_wrapped)
        boots = read_boots(call, ledger)
    if found is None or opens(found, outer):
        return  # `start_over` reports it
    alive = [boot for boot in boots if boot.is_alive]
    if alive:
        names = ", ".join(f"{one.role} {one.pid}" for one in alive[:5])
        raise Refused(
            f"{names} uses this ledger and may still have its key; stop it first "
            f"(`{call.command('gateway', 'stop')}`), or values that it seals meanwhile are lost, too"
        )
    if is_sure:
        return
    if elsewhere := {boot.host for boot in boots if boot.is_alive is None}:
        raise Refused(
            f"processes on {len(elsewhere)} other hosts may use this ledger and have its key; stop them, "
            "then add --yes"
        )
    if not sys.stdin.isatty():
        raise BadInput("--lost", "values sealed so far can never be read again; add --yes to confirm")
    click.confirm(
        f"Values sealed so far need the key {found.outer}. Continue without it, and never read them again?",
        abort=True,
        err=True,
    )


def _rekeyed(call: Invocation, outer: OuterKey, done: Rekeyed | None, *, is_lost: bool) -> RekeyedView:
    todo = None
    if done is not None and done.is_given and not is_lost:
        way = f"set {KEY_VARIABLE} to the new key" if isinstance(outer, FileKey) else _ways(outer)
        todo = f"before the next start, {way}"
    if done is not None and done.problem is not None:
        todo = f"the new key was written next to the key file, which could not be replaced: {done.problem}"
    return RekeyedView(
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        before=None if done is None else done.before,
        after=None if done is None else done.after,
        where=one_line(outer.where, MAX_PATH_CHARS),
        kept=None if done is None or done.kept is None else one_line(str(done.kept), MAX_PATH_CHARS),
        is_lost=is_lost and done is not None,
        todo=todo if todo is None else one_line(todo, MAX_PATH_CHARS),
    )


def _ways(outer: OuterKey) -> str:
    if isinstance(outer, CommandKey):
        return "make store.key_command print the new key"
    return f"set {KEY_VARIABLE} to the new key"


def _print_rekeyed(output: Output, view: RekeyedView) -> None:
    if view.after is None:
        output.line("nothing to do: this ledger has no sealed values and no key yet")
        return
    output.line(f"the key is now {view.after}; it was {view.before}")
    if view.kept is not None:
        output.line(f"the old key is kept as {view.kept}: older backups need it")
    if view.is_lost:
        output.say(
            "values sealed before stay [sealed]; a task that needs one fails with key_lost. If you find the "
            "old key, keep it with an older backup: it decrypts that"
        )
    if view.todo is not None:
        output.say(f"to do: {view.todo}")


# --- key


@click.group("key", cls=OrderedGroup)
@shared_options
def key() -> None:
    """The key that decrypts sealed values."""


@key.command("show", short_help="Show where the key is and whether it fits the ledger.")
@shared_options
@click.pass_context
def show_key(context: click.Context) -> None:
    """Show where the key is, its fingerprint, and whether it fits the ledger. Exit status 1 if not."""
    call: Invocation = context.obj
    view = look_at_key(call, read_wanted(call))
    call.output.show(view, lambda: _print_key(call.output, view))
    if view.problem is not None or view.opens is False:
        context.exit(FAILED)


def read_wanted(call: Invocation) -> WrappedKey | None:
    """The wrapped key stored in the ledger; None if there is no key or no ledger yet."""
    try:
        with call.reading(must_be_current=False) as ledger:
            return ledger.read_now(read_wrapped)
    except NoLedger:
        return None


def look_at_key(call: Invocation, wanted: WrappedKey | None) -> KeyView:
    outer = app.outer_key_of(call.settings, is_reader=True)
    problem, name, is_right, where = None, None, None, outer.where
    try:
        wanted_name = None if wanted is None else wanted.outer
        found = outer.load(wanted_name)
        if isinstance(outer, FileKey) and (lies := outer.find(wanted_name)) is not None:
            where = f"the file {lies[0]}"
        name = None if found is None else fingerprint(found)
        if wanted is not None:
            unwrap(wanted, found, outer)
            is_right = True
    except KeyProblem as error:
        problem, is_right = one_line(str(error), 1000), None if wanted is None else False
    return KeyView(
        store=one_line(call.settings.store.shown, MAX_PATH_CHARS),
        seal=call.settings.seal.value,
        where=one_line(where, MAX_PATH_CHARS),
        fingerprint=name,
        wanted=None if wanted is None else one_line(wanted.outer),
        opens=is_right,
        problem=problem,
    )


def _print_key(output: Output, view: KeyView) -> None:
    agree = {None: "the ledger has no key yet", True: "yes", False: "no"}[view.opens]
    output.fields(
        [
            ("store", view.store),
            ("seal", view.seal),
            ("key", view.where),
            ("fingerprint", view.fingerprint or "no key"),
            ("ledger's key", view.wanted or "none"),
            ("fits", agree),
        ]
    )
    if view.problem is not None:
        output.say(view.problem)


@key.command("export", short_help="Print the key, or write it to a file.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--show", "may_show", is_flag=True, help="Print it even on a terminal.")
@shared_options
@click.pass_obj
def export_key(call: Invocation, *, file: Path | None, may_show: bool) -> None:
    """Write the key to FILE, readable only by you; without FILE, print it. Never overwrites a file.

    The key and the database together reveal everything. On a terminal, printing needs --show.
    """
    wanted = read_wanted(call)
    outer = app.outer_key_of(call.settings, is_reader=True)
    found = outer.load(None if wanted is None else wanted.outer)
    if wanted is not None:
        unwrap(wanted, found, outer)  # refuse to export a key that does not fit this ledger
    if found is None:
        raise KeyMissing(
            f"there is no key in {outer.where} yet; Holdfast creates it with the first sealed value"
        )
    name = fingerprint(found)
    if file is not None:
        if not file.absolute().parent.is_dir():
            raise BadInput("FILE", f"{file.absolute().parent} is not a directory; create it first")
        if not write_key_file(file, found):
            raise BadInput("FILE", f"{file} exists, and an export never overwrites; choose another name")
        shown = one_line(str(file.absolute()), MAX_PATH_CHARS)
        view = ExportedView(fingerprint=name, file=shown)
        call.output.show(view, lambda: call.output.line(f"{shown}  ({name})"))
        return
    if sys.stdout.isatty() and not may_show:
        raise BadInput("FILE", "name a file, or add --show to print the key on this terminal")
    view = ExportedView(fingerprint=name, key=text_of(found))
    call.output.show(view, lambda: call.output.line(text_of(found)))


@key.command("import", short_help="Install a key from another host.")
@click.argument("file", required=False, default="-", type=click.Path(path_type=Path, allow_dash=True))
@shared_options
@click.pass_obj
def import_key(call: Invocation, file: Path) -> None:
    """Read a key from FILE or stdin, and install it for the gateway if it fits this ledger.

    An existing key is kept next to the new one.
    """
    call.must_be_here()
    outer = app.outer_key_of(call.settings)
    if not isinstance(outer, FileKey):
        raise Refused(f"the key comes from {outer.where}, which has priority over a key file: {_ways(outer)}")
    found = read_text(_text_in(file), "what was given")
    if (mode := _mode_of(file)) & 0o077:
        call.output.say(
            f"other users can read {file} (mode {mode:04o}); delete it, and run `holdfast store rekey` if "
            "one of them may have read it"
        )
    wanted = read_wanted(call)
    kept = bring(outer, found, wanted)
    view = ImportedView(
        fingerprint=fingerprint(found),
        file=one_line(str(outer.path), MAX_PATH_CHARS),
        was_compared=wanted is not None,
        kept=None if kept is None else one_line(str(kept), MAX_PATH_CHARS),
    )
    call.output.show(view, lambda: _print_imported(call.output, view))


def _text_in(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read(MAX_BYTES + 1)
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput("FILE", f"cannot read {file}: {str(error.strerror).lower()}") from error


def _mode_of(file: Path) -> int:
    """The permissions of a regular file; 0 for a pipe and for stdin, which leave no copy behind."""
    if str(file) == "-" or not file.is_file():
        return 0
    return stat.S_IMODE(file.stat().st_mode)


def _print_imported(output: Output, view: ImportedView) -> None:
    output.line(f"{view.file}  ({view.fingerprint})")
    if view.kept is not None:
        output.line(f"the previous key is kept as {view.kept}")
    if not view.was_compared:
        output.say("the ledger has no key yet, so this key could not be checked")
