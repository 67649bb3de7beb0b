"""Databases as OpenClaw makes them: the tables of several releases, and rows for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec

from holdfast.core.clock import to_micros
from tests.builders import START

# The tables of the first release that had them, of the last with two databases, and of 2026.9.6.
_OLDEST = (
    "task_id TEXT PRIMARY KEY, runtime TEXT NOT NULL, source_id TEXT, owner_key TEXT NOT NULL, "
    "scope_kind TEXT NOT NULL, child_session_key TEXT, parent_task_id TEXT, agent_id TEXT, run_id TEXT, "
    "label TEXT, task TEXT NOT NULL, status TEXT NOT NULL, delivery_status TEXT NOT NULL, "
    "notify_policy TEXT NOT NULL, created_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER, "
    "last_event_at INTEGER, cleanup_after INTEGER, error TEXT, progress_summary TEXT, terminal_summary TEXT, "
    "terminal_outcome TEXT"
)
_ADDED_BY_MAY = "task_kind TEXT, requester_session_key TEXT, parent_flow_id TEXT"
_ADDED_BY_SEPTEMBER = (
    "requester_agent_id TEXT, execution_owner_host TEXT, execution_owner_pid INTEGER, "
    "execution_owner_start_identity INTEGER, tool_use_count INTEGER, last_tool_name TEXT, detail_json TEXT"
)
_FLOWS = (
    "flow_id TEXT PRIMARY KEY, shape TEXT, sync_mode TEXT NOT NULL DEFAULT 'managed', "
    "owner_key TEXT NOT NULL, requester_origin_json TEXT, controller_id TEXT, "
    "revision INTEGER NOT NULL DEFAULT 0, status TEXT NOT NULL, notify_policy TEXT NOT NULL, "
    "goal TEXT NOT NULL, current_step TEXT, blocked_task_id TEXT, blocked_summary TEXT, "
    "state_json TEXT, wait_json TEXT, cancel_requested_at INTEGER, created_at INTEGER NOT NULL, "
    "updated_at INTEGER NOT NULL, ended_at INTEGER"
)
_TOLD = "task_id TEXT PRIMARY KEY, requester_origin_json TEXT, last_notified_event_at INTEGER"
RELEASES = {
    "2026.3.31": ("tasks/runs.sqlite", _OLDEST),
    "2026.5.28": ("tasks/runs.sqlite", f"{_OLDEST}, {_ADDED_BY_MAY}"),
    "2026.9.6": ("state/openclaw.sqlite", f"{_OLDEST}, {_ADDED_BY_MAY}, {_ADDED_BY_SEPTEMBER}"),
}
NEWEST = "2026.9.6"
NOON_MS = to_micros(START) // 1000 - 3_600_000
ORIGIN = {"channel": "telegram", "to": "chat-7", "accountId": "bot1", "threadId": 12}


def task_row(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A task that succeeded and was delivered, as OpenClaw writes it."""
    created = NOON_MS + number * 1000
    row = {
        "task_id": f"6f1c7d52-0000-4000-8000-{number:012d}",
        "runtime": "subagent",
        "source_id": "job-1",
        "owner_key": "agent:main:main",
        "requester_session_key": "agent:main:main",
        "scope_kind": "session",
        "child_session_key": f"agent:main:subagent:{number}",
        "agent_id": "main",
        "run_id": f"cron:job-1:{created}",
        "label": "tides",
        "task": f"Summarise the tides of harbour {number}\nfor the pilot",
        "status": "succeeded",
        "delivery_status": "delivered",
        "notify_policy": "done_only",
        "created_at": created,
        "started_at": created + 100,
        "ended_at": created + 5000,
        "last_event_at": created + 5000,
        "cleanup_after": created + 604_800_000,
        "progress_summary": "half way",
        "terminal_summary": "40 beds",
        "terminal_outcome": "succeeded",
    }
    return row | changes


def active_row(number: int = 1, status: str = "running", **changes: Any) -> dict[str, Any]:
    """The same before its end."""
    created = NOON_MS + number * 1000
    gone = {"ended_at": None, "terminal_summary": None, "terminal_outcome": None, "cleanup_after": None}
    beginning = {"status": status, "delivery_status": "pending", "last_event_at": created + 200}
    return task_row(number, **gone | beginning | changes)


def flow_row(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A managed flow that waits, as OpenClaw writes it."""
    created = NOON_MS + number * 1000
    row = {
        "flow_id": f"f10c0000-0000-4000-8000-{number:012d}",
        "sync_mode": "managed",
        "owner_key": "agent:main:main",
        "controller_id": "tides/plan",
        "revision": 4,
        "status": "waiting",
        "notify_policy": "done_only",
        "goal": f"Chart the coast {number}",
        "current_step": "ask the pilot",
        "state_json": '{"done": [1, 2], "harbour": "Aber"}',
        "wait_json": '{"kind": "reply"}',
        "created_at": created,
        "updated_at": created + 900,
        "ended_at": None,
    }
    return row | changes


class OpenClawHome:
    """A state directory of one release."""

    def __init__(self, path: Path, release: str = NEWEST) -> None:
        self.path = path
        place, columns = RELEASES[release]
        self.database = path / place
        self.database.parent.mkdir(parents=True)
        self.execute(f"CREATE TABLE task_runs ({columns})")
        self.execute(f"CREATE TABLE task_delivery_state ({_TOLD})")
        # Before 2026.6 flows had a database of their own.
        self.flows = self.database
        if release != NEWEST:
            self.flows = path / "flows" / "registry.sqlite"
            self.flows.parent.mkdir(parents=True)
        with closing(apsw.Connection(str(self.flows))) as connection:
            connection.execute(f"CREATE TABLE flow_runs ({_FLOWS})")

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with closing(apsw.Connection(str(self.database))) as connection:
            return list(connection.execute(sql, values))

    def add(self, *rows: dict[str, Any], origin: object = ORIGIN) -> None:
        with closing(apsw.Connection(str(self.database))) as connection, connection:
            for row in rows:
                connection.execute(
                    f"INSERT INTO task_runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                    tuple(row.values()),
                )
                told = origin if isinstance(origin, str) else msgspec.json.encode(origin).decode()
                connection.execute(
                    "INSERT OR REPLACE INTO task_delivery_state VALUES (?, ?, ?)",
                    (row["task_id"], told, row.get("last_event_at")),
                )

    def add_flows(self, *rows: dict[str, Any]) -> None:
        """Add them, or put them in the place of those with the same ids."""
        with closing(apsw.Connection(str(self.flows))) as connection, connection:
            for row in rows:
                connection.execute(
                    f"REPLACE INTO flow_runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                    tuple(row.values()),
                )

    def change(self, row: dict[str, Any]) -> None:
        self.execute("DELETE FROM task_runs WHERE task_id = ?", (row["task_id"],))
        self.add(row)
