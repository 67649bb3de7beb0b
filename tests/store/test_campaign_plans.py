"""On SQLite no query about one campaign reads the whole of it, also without statistics."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.queries import load_queries
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock

# What is read by places in their order, or is small: the phases of a campaign, and the slots of one scope.
KEYED = re.compile(r"USING PRIMARY KEY \(campaign_id=\?\)")
SMALL = {"campaign_phases", "campaign_slots", "campaign_restores", "campaign_saves"}
OF_CAMPAIGNS = re.compile(r"\b(item_phases|campaign_\w+)\b")


def queries_of_campaigns() -> list[str]:
    queries = load_queries("sqlite")
    return [name for name in queries.names if OF_CAMPAIGNS.search(queries[name])]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    path: Path = tmp_path_factory.mktemp("plans")
    found: dict[str, list[str]] = {}
    with closing(SqliteStore(path / "ledger.db", clock=FakeClock())) as store:
        for name in queries_of_campaigns():
            sql = load_queries("sqlite")[name].replace("[]", "").rstrip().rstrip(";")
            sql = re.sub(r"IN :(\w+)", r"IN (SELECT value FROM json_each(:\1))", sql)
            params = dict.fromkeys(re.findall(r":(\w+)", sql))

            def ask(session: Any, sql: str = sql, params: dict[str, None] = params) -> list[str]:
                return [
                    str(row[3]) for row in session.connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)
                ]

            found[name] = store._writer.exclusively(ask)
    return found


def test_no_query_of_campaigns_reads_all_of_a_campaign(plans: dict[str, list[str]]) -> None:
    wide = {
        (name, line)
        for name, lines in plans.items()
        for line in lines
        if KEYED.search(line) and not any(table in line for table in SMALL)
    }

    assert len(plans) > 60
    assert wide == set()


def test_no_query_of_campaigns_scans_a_table(plans: dict[str, list[str]]) -> None:
    scans = {
        (name, line)
        for name, lines in plans.items()
        for line in lines
        if line.startswith("SCAN ")
        and not re.search(r"json_each|SCAN (one|given|found|tree)\b|campaign_saves", line)
    }

    assert scans == set()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("items_by_ids", "campaign_items_by_id"),
        ("items_of_batch", "campaign_items_by_batch"),
        ("page_of_phase_batch", "campaign_items_by_batch"),
        ("page_of_phase_in_status", "item_phases_by_status"),
        ("page_of_item_phases_in_status", "item_phases_by_status"),
        ("page_of_agents_in_status", "item_phases_by_status"),
        ("lock_item_phases_in_status", "item_phases_by_status"),
        ("items_of_phase_in_status", "item_phases_by_status"),
        ("is_in_phase", "item_phases_by_status"),
        ("startable_item_phases", "item_phases_startable"),
        ("next_item_phases", "item_phases_startable"),
        ("item_phases_going_on", "item_phases_going_on"),
        ("item_phases_of_tasks", "item_phases_by_task"),
        ("changed_items", "item_phases_by_change"),
        ("tasks_that_campaigns_need", "item_phases_by_task"),
        ("tasks_that_campaigns_need", "campaign_kept_effects_by_task"),
        ("last_actions_of_items", "item_phases_by_change"),
        ("free_slots", "campaign_slots_free"),
    ],
)
def test_a_query_of_campaigns_uses_its_index(plans: dict[str, list[str]], query: str, index: str) -> None:
    assert any(f"INDEX {index} " in line for line in plans[query]), plans[query]
