"""doctor: checks the home and the ledger without changing them, and says how to fix what is wrong."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast import trust
from holdfast.cli.boots import read_boots
from holdfast.cli.errors import FAILED
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, counted, size
from holdfast.config import SqlitePlace
from holdfast.core.errors import HoldfastError, NoLedger, SettingsError
from holdfast.core.recorded import is_unregistered
from holdfast.store.clock import MOST_SKEW, SET_BY_NTP, LedgerClock, skew_in_words
from holdfast.store.locks import holder_of
from holdfast.views.health import CheckStatus, CheckView, DoctorView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.store.contract import Reader
    from holdfast.store.sealing import WrappedKey
    from holdfast.store.transaction import Tx

SAMPLE = 200
COUNTED_AT_MOST = 1000
LITTLE_SPACE_BYTES = 1024**3
NO_SPACE_BYTES = 100 * 1024**2
OK, WARN, FAIL = CheckStatus.OK, CheckStatus.WARN, CheckStatus.FAIL


@click.command("doctor")
@shared_options
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check the home and the ledger, and say how to fix what is wrong. Exit status 1 if a check fails."""
    call: Invocation = context.obj
    call.must_be_here()
    checks = [
        *_look_at_home(call),
        *_look_at_settings(call),
        *_look_at_ledger(call),
        *_look_at_disk(call),
    ]
    view = DoctorView(
        verdict=worst(checks),
        home=one_line(str(call.settings.home), 1000),
        store=one_line(call.settings.store.shown, 1000),
        checks=checks,
    )
    call.output.show(view, lambda: _print(call.output, view))
    if view.verdict is FAIL:
        context.exit(FAILED)


def worst(checks: list[CheckView]) -> CheckStatus:
    found = {one.verdict for one in checks}
    return FAIL if FAIL in found else WARN if WARN in found else OK


def _print(output: Output, view: DoctorView) -> None:
    output.fields([("home", view.home), ("store", view.store)])
    output.line()
    print_checks(output, view.checks)


def print_checks(output: Output, checks: list[CheckView]) -> None:
    """Print each check with its remedy, then the number of problems."""
    width = max(len(one.name) for one in checks)
    for one in checks:
        verdict = output.paint_status(one.verdict.value) + " " * (4 - len(one.verdict))
        output.line(f"{verdict}  {one.name.ljust(width)}  {one.message}")
        if one.remedy is not None:
            output.line(f"{' ' * (width + 6)}  {output.paint(output.to_copy('fix: ' + one.remedy), 'bold')}")
    bad = sum(one.verdict is not OK for one in checks)
    output.say("no problems found" if not bad else f"{counted(bad, 'problem')} found")


def check(name: str, verdict: CheckStatus, message: str, remedy: str | None = None) -> CheckView:
    shown = None if remedy is None else one_line(remedy, 1000)
    return CheckView(name=name, verdict=verdict, message=one_line(message, 1000), remedy=shown)


# --- the home


def _look_at_home(call: Invocation) -> Iterator[CheckView]:
    home = call.settings.home
    if not home.exists():
        yield check("home", OK, f"{home} does not exist yet; the first start creates it")
        return
    problem = trust.why_not_trusted(home)
    if problem is not None:
        what, _, remedy = problem.rpartition(": ")
        yield check("home", FAIL, what, remedy)
    else:
        yield _check_private("home", home, 0o700)
    try:
        holder = holder_of(home)
    except HoldfastError as error:
        yield check("lock", FAIL, str(error), f"check the owner of {home}")
        return
    yield check(
        "lock", OK, "no process holds the home" if holder is None else f"process {holder} holds the home"
    )


def _check_private(name: str, path: Path, mode: int) -> CheckView:
    """Whether only its owner can access it, and we are the owner."""
    found = path.stat()
    shown = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        return check(name, WARN, f"{path} belongs to another user ({found.st_uid})", f"ls -ld {path}")
    if shown & 0o077:
        what = f"other users can access {path} (mode {shown:04o})"
        return check(name, WARN, what, f"chmod {mode:o} {path}")
    return check(name, OK, f"{path} is private (mode {shown:04o})")


# --- the settings


def _look_at_settings(call: Invocation) -> Iterator[CheckView]:
    from holdfast.config.files import load

    try:
        loaded = load(call.settings.home, os.environ, {"store": call.store})
    except SettingsError as error:
        yield check("settings", FAIL, str(error), call.command("config", "check"))
        return
    yield check(
        "settings", OK, f"{counted(len(loaded.sources), 'key')} set; `holdfast config check` checks them"
    )


# --- the ledger


def _look_at_ledger(call: Invocation) -> Iterator[CheckView]:
    try:
        with call.reading() as ledger:
            yield check("ledger", OK, "readable")
            for look in (_schema, _views, _facts, _key, _clock, _held, _boots, _owners, _damage, _work):
                yield from _safely(look, call, ledger)
    except NoLedger as error:
        yield check("ledger", OK, str(error))
    except HoldfastError as error:
        yield check("ledger", FAIL, str(error), _remedy_for(error))


def _remedy_for(error: HoldfastError) -> str | None:
    """The remedy for an error whose message does not contain one."""
    if error.code == "store_unavailable":
        return "check --store; if the file is damaged, restore a backup"
    return None


def _safely(
    look: Callable[[Invocation, Reader], Iterator[CheckView]], call: Invocation, ledger: Reader
) -> Iterator[CheckView]:
    """Report one failing part without hiding the others."""
    try:
        yield from look(call, ledger)
    except HoldfastError as error:
        yield check(look.__name__.lstrip("_"), FAIL, str(error), "holdfast store verify")


def _schema(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    missing = ledger.missing_indexes()
    if missing:
        names = ", ".join(index.name for index in missing)
        one = len(missing) == 1
        message = f"{'the index' if one else 'the indexes'} {names} {'is' if one else 'are'} missing: " + (
            "duplicates are not prevented"
            if any(index.is_unique for index in missing)
            else "queries are slow"
        )
        verdict = FAIL if any(index.is_unique for index in missing) else WARN
        stopped = "stop every process that uses the ledger, then: "
        yield check("schema", verdict, message, stopped + call.command("store", "migrate"))
        return
    applied = ledger.applied_migrations()
    yield check("schema", OK, f"version {max(number for number, _ in applied)}, the newest")


def _views(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    found = ledger.views()
    if found.lacking:
        missing = ", ".join(view.name for view in found.lacking)
        said = f"SQL views for dashboards are missing or outdated: {missing}"
        yield check("views", WARN, said, call.command("store", "migrate"))
        return
    taken = [f"{view.wanted} is yours, so ours is {view.name}" for view in found.renamed]
    taken += [f"{name} is left out: a table or view of yours has its name" for name in found.homeless]
    yield check("views", OK, "; ".join(taken) or f"{len(found.views)} SQL views for dashboards")


def _facts(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    facts = ledger.facts()
    place = call.settings.store
    if not isinstance(place, SqlitePlace):
        yield check("database", OK, ", ".join(f"{name} {value}" for name, value in facts.items()))
        yield check_checksums(
            facts["data_checksums"], "stop the server, then pg_checksums --enable -D ITS_DATA_DIRECTORY"
        )
        return
    yield _check_private("file", place.path, 0o600)
    mode = facts["journal_mode"]
    if mode != "wal":
        yield check(
            "journal",
            FAIL,
            f"SQLite's journal mode is {mode}",
            "stop every process that uses the ledger, then: holdfast store migrate",
        )
    else:
        yield check("journal", OK, f"WAL, SQLite {facts['sqlite_version']}")
    yield check_checksums(facts["page_checksums"], _ADD_CHECKSUMS)


_ADD_CHECKSUMS = (
    "stop every process that uses the ledger, then: holdfast store backup BEFORE.db && holdfast store migrate"
)


def check_checksums(found: object, remedy: str) -> CheckView:
    if found == "on":
        return check("checksums", OK, "on: a damaged page is an error, not a missing record")
    message = "off: a flipped bit on the disk can hide a record, and its work may be done twice"
    return check("checksums", WARN, message, remedy)


def _key(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    from holdfast.store.rekey import read_wrapped

    yield from look_at_key(call, ledger.read_now(read_wrapped))


def look_at_key(call: Invocation, wanted: WrappedKey | None) -> Iterator[CheckView]:
    """Whether the key of sealed values is usable."""
    from holdfast.cli.keys import look_at_key as look

    found = look(call, wanted)
    if found.problem is not None:
        yield check("key", FAIL, found.problem, "holdfast store key show")
    elif found.seal == "never":
        message = "store.seal is never: secrets in values of programs are stored unencrypted"
        yield check("key", WARN, message, "set store.seal to secrets")
    elif found.wanted is None:
        yield check("key", OK, "nothing is sealed yet; the first secret creates the key")
    else:
        yield check(
            "key", OK, f"{found.where} decrypts sealed values ({found.fingerprint}); keep a copy elsewhere"
        )


def _clock(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    """SQLite uses the machine's clock, which may have jumped; PostgreSQL has a clock of its own."""
    from holdfast.engine.clocks.jump_facts import FACT, jump_in_words, jumped_by

    if isinstance(ledger.clock, LedgerClock):
        skew = ledger.clock.skew
        if abs(skew) > MOST_SKEW:
            yield check(
                "clock", WARN, f"{skew_in_words(skew)}; Holdfast uses the database's clock", SET_BY_NTP
            )
        else:
            yield check("clock", OK, skew_in_words(skew))
        return
    ahead = jumped_by(ledger.read_now(lambda tx: tx.boots.fact(FACT)), call.clock)
    if ahead is None:
        yield check("clock", OK, "the wall clock has not jumped")
        return
    yield check(
        "clock", WARN, jump_in_words(ahead), "if it is wrong, have NTP set it: timedatectl set-ntp true"
    )


def _held(_call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    why = ledger.held_why()
    if why is None:
        yield check("resumes", OK, "not held")
    else:
        yield check(
            "resumes", WARN, f"held: {why}", "if the database is older on purpose: holdfast store accept"
        )


def _boots(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    boots = read_boots(call, ledger)
    dead = [boot for boot in boots if boot.is_alive is False]
    alive = [boot for boot in boots if boot.is_alive is True]
    unknown = len(boots) - len(dead) - len(alive)
    words = [
        f"{len(alive)} alive"
        + (f" ({', '.join(f'{one.role} {one.pid}' for one in alive[:5])})" if alive else "")
    ]
    words += [f"{unknown} on other hosts or without a lock"] if unknown else []
    if dead:
        words.append(f"{len(dead)} crashed")
        yield check(
            "boots", WARN, ", ".join(words), "start the gateway, which resumes their work: holdfast up"
        )
    else:
        yield check("boots", OK, ", ".join(words))


def _owners(call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    """Every running run must have a live process."""
    dead = {boot.id for boot in read_boots(call, ledger) if boot.is_alive is False}
    now = call.clock.now()

    def count(tx: Tx) -> tuple[int, int]:
        workers = set(tx.boots.in_flight())
        gone = {boot_id for boot_id in workers if _is_gone(tx, boot_id, dead)}
        orphans = sum(len(tx.runs.of_boot(boot_id, limit=10_000)) for boot_id in gone)
        return orphans, len(
            [run for run in tx.runs.lapsed(now=now, limit=10_000) if run.claimed_by not in gone]
        )

    orphans, lapsed = ledger.read_now(count)
    if not orphans and not lapsed:
        yield check("owners", OK, "every running run has a live process")
        return
    message = f"{counted(orphans, 'run')} of crashed processes, {lapsed:,} with a lapsed lease"
    yield check("owners", WARN, message, "start the gateway, which resumes them: holdfast up")


def _is_gone(tx: Tx, boot_id: str, dead: set[str]) -> bool:
    if is_unregistered(boot_id):  # the sweep ends recorded work that is silent for too long
        return False
    boot = tx.boots.get(boot_id)
    return boot_id in dead or boot is None or boot.ended_at is not None


def _damage(_call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    def sample(tx: Tx) -> tuple[int, int]:
        tasks, checkpoints = tx.tasks.page(limit=SAMPLE), tx.checkpoints.page(limit=SAMPLE)
        damaged = [one.is_damaged for one in tasks] + [one.is_damaged for one in checkpoints]
        return len(damaged), sum(damaged)

    looked_at, damaged = ledger.read_now(sample)
    if damaged:
        message = f"{damaged} of the newest {counted(looked_at, 'record')} do not match their digest"
        yield check("digests", FAIL, message, "holdfast store verify, then restore a backup")
    else:
        yield check(
            "digests",
            OK,
            f"the newest {counted(looked_at, 'record')} match their digests; `store verify` checks all",
        )


def _work(_call: Invocation, ledger: Reader) -> Iterator[CheckView]:
    from holdfast.api.checkpoints import count_failed_resumes

    def count(tx: Tx) -> tuple[int, int]:
        paused = tx.events.counts("checkpoint").get("paused_for_restart", 0)
        return count_failed_resumes(tx, at_most=COUNTED_AT_MOST), paused

    failed, paused = ledger.read_now(count)
    if failed:
        more = " or more" if failed >= COUNTED_AT_MOST else ""
        message = f"{counted(failed, 'checkpoint')}{more} could not be resumed"
        yield check("checkpoints", WARN, message, "holdfast checkpoints list --status failed_resume")
    else:
        yield check("checkpoints", OK, f"{paused:,} wait to be resumed, none has failed")


# --- the disk


def _look_at_disk(call: Invocation) -> Iterator[CheckView]:
    place = call.settings.store
    where = place.path.parent if isinstance(place, SqlitePlace) else call.settings.home
    while not where.exists():
        where = where.parent
    free = shutil.disk_usage(where).free
    if free < NO_SPACE_BYTES:
        yield check("disk", FAIL, f"{size(free)} free at {where}", "free some disk space now, or work stops")
    elif free < LITTLE_SPACE_BYTES:
        yield check("disk", WARN, f"{size(free)} free at {where}", "free some disk space")
    else:
        yield check("disk", OK, f"{size(free)} free at {where}")
