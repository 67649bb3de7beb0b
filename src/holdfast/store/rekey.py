"""Gives a ledger its key, and replaces the outer key later: that changes one fact, and no value.

The new outer key is stored durably under its own name before the ledger names it. So if the process is killed
at any point, the ledger's key can still be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.core.errors import BadInput, KeyMissing, KeyProblem, KeyWrong, Refused
from holdfast.core.seal_mode import SealMode
from holdfast.store.contract import Store, Write
from holdfast.store.outer_keys import NEW_KEY_VARIABLE, FileKey, read_key_file, read_text
from holdfast.store.sealing import (
    FACT,
    LOST,
    LedgerKey,
    OuterKey,
    Vault,
    WrappedKey,
    fingerprint,
    unwrap,
    wrap,
)
from holdfast.store.transaction import Tx


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """Fingerprints of the outer keys before and after, and where the old one is kept."""

    # The ledger uses the new key, but the key could not be moved to its place; it is found beside it.
    problem: str | None = None

    before: str
    after: str
    kept: Path | None = None
    # The key did not come from the file: the operator must put the new one where it comes from.
    is_given: bool = False


def read_wrapped(tx: Tx) -> WrappedKey | None:
    """The ledger's key as it is stored; None when it has none yet."""
    fact = _read_fact(tx)
    return None if fact is None else WrappedKey.read(fact)


def settle(store: Store, vault: Vault, *, is_shared: bool) -> None:
    """Give the ledger its key now, unless it has one. Raises KeyWrong, KeyMissing.

    Later would be too late: two processes with different keys might both have begun to work. Only the key
    file of a ledger that no other host shares can wait until the first secret: every process on this machine
    finds the same file.
    """
    store.read_now(vault.begin)
    if vault.has_begun:
        return
    if vault.mode is SealMode.NEVER or vault.is_lenient:
        return
    # Loaded even if it is not needed yet, to report an unusable key before any work begins.
    outer, key = vault.outer, vault.outer.load()
    if not is_shared and isinstance(outer, FileKey):
        return
    is_new = key is None and isinstance(outer, FileKey)
    if key is None:
        key = outer.propose() if isinstance(outer, FileKey) else outer.make()
    wrapped, ours = wrap(LedgerKey.new(), key), fingerprint(key)

    def give(tx: Tx) -> WrappedKey:
        tx.boots.add_fact(FACT, wrapped.write())
        found = read_wrapped(tx)
        assert found is not None
        return found

    found = store.write_now(give)
    if found.outer == ours:
        if is_new and isinstance(outer, FileKey):
            outer.adopt(ours, may_replace=False)
        return
    if is_new and isinstance(outer, FileKey):
        outer.withdraw(ours)
        if outer.load(found.outer) is None:
            raise KeyWrong(
                f"another host has just given this ledger its key (fingerprint {found.outer}); copy the key: "
                "`holdfast store key export` there, `holdfast store key import` here"
            )
    store.read_now(vault.begin)


def rekey(store: Store, outer: OuterKey, environ: Mapping[str, str]) -> Rekeyed | None:
    """Wrap the ledger's key with a new outer key; None when the ledger has no key yet.

    The new one is created in the key file, or comes from HOLDFAST_NEW_KEY. Raises KeyProblem before anything
    changes.
    """
    fact = store.read_now(_read_fact)
    if fact is None:
        return None
    found = WrappedKey.read(fact)
    inner = unwrap(found, outer.load(found.outer), outer)
    given = environ.get(NEW_KEY_VARIABLE)
    if given is not None:
        new = read_text(given, f"the variable {NEW_KEY_VARIABLE}")
    elif isinstance(outer, FileKey):
        read_key_file(outer.path)  # report a bad file before the ledger gets the new key
        new = outer.propose()
    else:
        raise KeyMissing(
            f"the key comes from {outer.where}, where this command cannot store a new one: set "
            f"{NEW_KEY_VARIABLE} to the new key for this command, and store it there afterwards"
        )
    after = fingerprint(new)
    if after == found.outer:
        raise BadInput(NEW_KEY_VARIABLE, "this is the ledger's current key; make another one")
    is_done = store.write_now(_replacing(fact, wrap(inner, new)))
    if not is_done:
        if isinstance(outer, FileKey) and given is None:
            outer.withdraw(after)
        raise Refused("another process has changed the ledger's key; run `holdfast store key show`")
    if given is not None or not isinstance(outer, FileKey):
        return Rekeyed(before=found.outer, after=after, is_given=True)
    try:
        return Rekeyed(before=found.outer, after=after, kept=outer.adopt(after))
    except (KeyProblem, OSError) as error:
        return Rekeyed(before=found.outer, after=after, problem=str(error))


def start_over(store: Store, outer: OuterKey) -> Rekeyed | None:
    """Make a new key for a ledger whose outer key was lost; None when the ledger has none yet.

    What was sealed until now stays unreadable. The wrapped key is kept, in case the outer key is found.
    """
    fact = store.read_now(_read_fact)
    if fact is None:
        return None
    found = WrappedKey.read(fact)
    if opens(found, outer):
        raise BadInput("--lost", "the available key opens this ledger; leave the option out")
    key = outer.load() or outer.make()
    is_done = store.write_now(_replacing(fact, wrap(LedgerKey.new(), key), lost=found))
    if not is_done:
        raise Refused("another process has changed the ledger's key; run `holdfast store key show`")
    return Rekeyed(before=found.outer, after=fingerprint(key), is_given=not isinstance(outer, FileKey))


def opens(found: WrappedKey, outer: OuterKey) -> bool:
    """Whether the available key is the ledger's. Raises KeyProblem for a key that must not be used."""
    try:
        unwrap(found, outer.load(found.outer), outer)
    except (KeyMissing, KeyWrong):
        return False
    return True


def bring(outer: FileKey, key: bytes, found: WrappedKey | None) -> Path | None:
    """Store a key from another host in the file; returns where the old one is kept. Raises KeyWrong."""
    if found is not None:
        try:
            unwrap(found, key, outer)
        except KeyWrong as error:
            raise KeyWrong(
                f"this key has the fingerprint {fingerprint(key)}, but this ledger is sealed with "
                f"{found.outer}; export it on a host where `holdfast store key show` says that it opens"
            ) from error
    read_key_file(outer.path)  # refused before anything is written
    try:
        outer.propose(key)
        return outer.adopt(fingerprint(key))
    except OSError as error:
        raise KeyProblem(f"{outer.path} cannot be written: {error.strerror}; check its directory") from error


def _read_fact(tx: Tx) -> str | None:
    return tx.boots.fact(FACT)


def _replacing(old: str, new: WrappedKey, *, lost: WrappedKey | None = None) -> Write[bool]:
    """A write that may run again after its own commit."""
    wanted = new.write()

    def replace(tx: Tx) -> bool:
        if not tx.boots.replace_fact(FACT, old, wanted):
            return tx.boots.fact(FACT) == wanted
        if lost is not None:
            tx.boots.add_fact(f"{LOST}_{lost.id}", old)
            tx.boots.set_fact(LOST, lost.id)
        return True

    return replace


__all__ = ["Rekeyed", "bring", "opens", "read_wrapped", "rekey", "settle", "start_over"]
