"""Ledgers in files for tests that need a new one each: copied from one that is set up.

Setting one up takes ten times as long. What is tested about that is tested with files that do not exist yet.
"""

from __future__ import annotations

import functools
import tempfile
from contextlib import closing
from pathlib import Path

import apsw

from holdfast.store.sqlite import migrate_file
from holdfast.store.sqlite_file import connect


def put_new_ledger(path: Path) -> None:
    """The first store that opens it finds it as after its own setup, and gives it an id of its own."""
    path.write_bytes(_image())


@functools.cache
def _image() -> bytes:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as directory:
        path = Path(directory) / "ledger.db"
        with closing(connect(path)) as connection:
            migrate_file(connection, may_upgrade=False)
            connection.execute("DELETE FROM ledger_facts WHERE name = 'ledger_id'")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return path.read_bytes()
