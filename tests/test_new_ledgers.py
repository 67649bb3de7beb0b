"""A copied ledger is as one that was set up."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from holdfast.store import checksums
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.new_ledgers import put_new_ledger


def test_a_copied_ledger_is_as_one_that_was_set_up_but_for_its_id(quick_path: Path) -> None:
    paths = [quick_path / f"{name}.db" for name in ("set-up", "one", "two")]
    for path in paths[1:]:
        put_new_ledger(path)

    found = []
    for path in paths:
        with closing(SqliteStore(path, clock=FakeClock())) as store:
            connection: apsw.Connection = store._writer.exclusively(lambda session: session.connection)  # type: ignore[attr-defined]
            assert (store.held_why(), store.verify(), checksums.has(connection)) == (None, [], True)
            schema = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
            facts = {
                str(name): value for name, value in connection.execute("SELECT name, value FROM ledger_facts")
            }
            found.append((schema, facts))

    assert len({facts.pop("ledger_id") for _, facts in found}) == 3
    assert found[0] == found[1] == found[2]
