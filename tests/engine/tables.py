"""Everything that stands in the ledger's tables, read and changed behind the engine's back."""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast.store import Store, Tx

Tables = dict[str, list[tuple[Any, ...]]]

_NAMES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
    "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'",
}


# A server's note of whose commit it was comes with every commit, also of a write that changed nothing.
_RECEIPTS = "commit_receipts"
# The mark of a ledger in a file rises in the background, some seconds after a commit.
_MARK = "mark"


def dump(store: Store) -> Tables:
    """Every row of every table: two dumps are equal when nothing at all has changed."""
    return store.read_now(_dump)


def execute(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Run any statement as a write; only tests do such things."""
    return store.write_now(lambda tx: _raw(tx, sql))


def query(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.read_now(lambda tx: _raw(tx, sql))


def literal(store: Store, value: bytes) -> str:
    """Bytes as a value inside a statement."""
    if store.read_now(_dialect) == "sqlite":
        return f"X'{value.hex()}'"
    return f"CAST('\\x{value.hex()}' AS bytea)"


def _dump(tx: Tx) -> Tables:
    names = sorted(str(row[0]) for row in _raw(tx, _NAMES[_dialect(tx)]))
    tables = {
        name: sorted(_raw(tx, f"SELECT * FROM {name}"), key=repr) for name in names if name != _RECEIPTS
    }
    tables["ledger_facts"] = [row for row in tables["ledger_facts"] if row[0] != _MARK]
    # On a server, counts are folded when no reader is looking; what they say together does not change.
    counts: Counter[tuple[str, str]] = Counter()
    for *_, noun, status, amount in tables.get("counters", []) + tables.pop("counter_deltas", []):
        counts[noun, status] += amount
    tables["counters"] = sorted((*key, amount) for key, amount in counts.items() if amount)
    return tables


def _dialect(tx: Tx) -> str:
    return "sqlite" if hasattr(tx.statements, "_cursor") else "postgres"


def _raw(tx: Tx, sql: str) -> list[tuple[Any, ...]]:
    statements: Any = tx.statements
    if _dialect(tx) == "sqlite":
        return [tuple(row) for row in statements._cursor.execute(sql).fetchall()]
    link = statements._link
    return [tuple(row) for row in link.rows(link.command(sql.encode()))]
