"""Kills a process at every point of what it does with a key, and lets another one go on.

`python -m tests.store.key_kills make|rekey|settle DIRECTORY` prints how many points there were. Each life is
a fork of this process, which has no thread and opens no ledger itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.seal_mode import SealMode
from holdfast.store.contract import Store
from holdfast.store.outer_keys import FileKey
from holdfast.store.rekey import read_wrapped, rekey, settle
from holdfast.store.sealing import FACT, LedgerKey, Vault, unwrap, wrap
from holdfast.store.sqlite import SqliteStore
from holdfast.store.transaction import Tx
from holdfast.testing import FakeClock

CALLS = ("open", "write", "fsync", "link", "rename", "unlink")
NOT_KILLED = 42
PLACE = ("a table", "a column")
SECRET = b'"sealed before"'


def kill_at(number: int, store: Store | None = None) -> None:
    """Before the n-th call that touches a file; the ends of a write count, too."""
    count = 0

    def passes() -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            passes()
            return call(*args, **kwargs)

        return called

    for name in CALLS:
        setattr(os, name, around(getattr(os, name)))
    if store is not None:
        write_now = store.write_now

        def written(write: Any) -> Any:
            passes()
            answer = write_now(write)
            passes()
            return answer

        store.write_now = written  # type: ignore[method-assign]


def in_a_life(act: Callable[[], None]) -> int:
    """The status of a forked process that did this; negative for the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = NOT_KILLED
        except BaseException:  # noqa: BLE001 - it must not go on as a second driver
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_everywhere(begin: Callable[[int], None], go_on: Callable[[], None], new: Callable[[], None]) -> int:
    """How many points there were. After each a second life goes on, and must succeed."""
    for number in range(1, 1000):
        new()
        status = in_a_life(partial(begin, number))
        assert status in (-signal.SIGKILL, NOT_KILLED), (number, status)
        assert in_a_life(go_on) == NOT_KILLED, f"after a kill at point {number}"
        if status == NOT_KILLED:
            return number - 1
    raise AssertionError("it has no end")


# --- making one


def kill_while_making(directory: Path) -> int:
    key = FileKey(directory / "home" / "key")

    def make(number: int) -> None:
        kill_at(number)
        key.make()

    def go_on() -> None:
        found = key.load() or key.make()
        assert key.load() == found == FileKey(key.path).make()

    return kill_everywhere(make, go_on, lambda: shutil.rmtree(directory / "home", ignore_errors=True))


# --- rekeying


def kill_while_rekeying(directory: Path) -> int:
    home = directory / "home"
    ledger, key = home / "ledger.db", FileKey(home / "key")

    def begin_anew() -> None:
        shutil.rmtree(home, ignore_errors=True)
        assert in_a_life(seal) == NOT_KILLED

    def seal() -> None:
        with closing(SqliteStore(ledger, clock=FakeClock(), vault=Vault(key))) as store:
            inner = LedgerKey.new()
            wrapped = wrap(inner, key.make()).write()
            sealed = inner.seal(SECRET, PLACE).hex()

            def keep(tx: Tx) -> None:
                tx.boots.add_fact(FACT, wrapped)
                tx.boots.add_fact("sealed", sealed)

            store.write_now(keep)

    def rekey_and_die(number: int) -> None:
        with closing(SqliteStore(ledger, clock=FakeClock(), vault=Vault(key))) as store:
            kill_at(number, store)
            rekey(store, key, {})

    def go_on() -> None:
        """A start finds the key, opens what was sealed, and rekeys as if nothing had happened."""
        vault = Vault(key)
        with closing(SqliteStore(ledger, clock=FakeClock(), vault=vault)) as store:
            check(store, vault)
            done = rekey(store, key, {})
            assert done is not None
            check(store, Vault(key))
            found = store.read_now(read_wrapped)
            assert found is not None
            assert found.outer == done.after
            unwrap(found, FileKey(key.path).load(), key)

    def check(store: Store, vault: Vault) -> None:
        inner = store.read_now(vault.find)
        sealed = store.read_now(lambda tx: tx.boots.fact("sealed"))
        assert inner is not None
        assert inner.open(bytes.fromhex(sealed or ""), PLACE) == SECRET

    return kill_everywhere(rekey_and_die, go_on, begin_anew)


# --- a ledger that hosts share


def kill_while_settling(directory: Path) -> int:
    """With SQLite in the place of the server: what is killed is the order of files and writes."""
    home = directory / "home"
    ledger, key = directory / "shared" / "ledger.db", FileKey(home / "key")

    def begin_anew() -> None:
        for one in (home, ledger.parent):
            shutil.rmtree(one, ignore_errors=True)
        assert in_a_life(lambda: SqliteStore(ledger, clock=FakeClock()).close()) == NOT_KILLED

    def settle_and_die(number: int) -> None:
        with closing(SqliteStore(ledger, clock=FakeClock())) as store:
            kill_at(number, store)
            settle(store, Vault(key, SealMode.SECRETS), is_shared=True)

    def go_on() -> None:
        vault = Vault(key)
        with closing(SqliteStore(ledger, clock=FakeClock(), vault=vault)) as store:
            settle(store, vault, is_shared=True)
            assert store.read_now(vault.find) is not None
            assert key.path.exists()

    return kill_everywhere(settle_and_die, go_on, begin_anew)


SCENES = {"make": kill_while_making, "rekey": kill_while_rekeying, "settle": kill_while_settling}

if __name__ == "__main__":
    print(SCENES[sys.argv[1]](Path(sys.argv[2])))
