"""Leases on PostgreSQL follow the clock of the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.core.clock import from_micros, to_micros
from holdfast.store.postgres import PostgresStore
from tests.builders import (
    BOOT,
    LEASE,
    OTHER_BOOT,
    START,
    later,
    running_run,
    stored_checkpoint,
    stored_run,
    write,
)

pytestmark = pytest.mark.slow


def set_clock(url: str, micros: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION holdfast.holdfast_now() RETURNS BIGINT LANGUAGE sql VOLATILE"
            f" AS $$ SELECT CAST({micros} AS BIGINT) $$".encode()
        )


def test_leases_follow_the_clock_of_the_database_and_not_the_callers(store: PostgresStore, url: str) -> None:
    server_time = to_micros(later(days=1000))
    set_clock(url, server_time)
    for _ in range(3):
        stored_run(store)

    claims: dict[str, Any] = {"boot_id": BOOT, "now": START, "lease": LEASE}
    ready = write(store, lambda tx: tx.runs.claim_ready(token="a", names=None, limit=1, **claims))
    named = write(store, lambda tx: tx.runs.claim_ready(token="b", names=["research"], limit=1, **claims))
    left = stored_run(store)
    one = write(store, lambda tx: tx.runs.claim(left.id, token="c", **claims))

    assert one is not None
    assert {run.lease_until for run in (*ready, *named, one)} == {from_micros(server_time) + LEASE}
    assert {run.updated_at for run in (*ready, *named, one)} == {START}


def test_a_lease_lapses_and_is_renewed_by_the_clock_of_the_database(store: PostgresStore, url: str) -> None:
    run, _ = running_run(store)
    set_clock(url, to_micros(START + LEASE) - 1)
    early = store.read_now(lambda tx: tx.runs.lapsed(now=later(days=9), limit=9))

    set_clock(url, to_micros(START + LEASE))
    late = store.read_now(lambda tx: tx.runs.lapsed(now=START, limit=9))
    renewed = write(store, lambda tx: tx.runs.renew([run.id], boot_id=BOOT, now=START, lease=LEASE))

    assert early == []
    assert [found.id for found in late] == [run.id]
    assert renewed == {run.id: (1, START + 2 * LEASE)}


def test_resumes_are_leased_by_the_clock_of_the_database(store: PostgresStore, url: str) -> None:
    stored_checkpoint(store)
    set_clock(url, to_micros(later(days=7)))

    claimed = write(
        store, lambda tx: tx.checkpoints.claim(boot_id=BOOT, token="t", limit=1, now=START, lease=LEASE)
    )
    before = store.read_now(lambda tx: tx.checkpoints.lapsed(now=later(days=99), limit=9))
    set_clock(url, to_micros(later(days=7) + LEASE))
    after = store.read_now(lambda tx: tx.checkpoints.lapsed(now=START, limit=9))

    assert claimed[0].lease_until == later(days=7) + LEASE
    assert before == []
    assert [found.id for found in after] == [claimed[0].id]


def test_a_lease_of_another_boot_is_not_renewed(store: PostgresStore) -> None:
    run, _ = running_run(store)

    renewed = write(
        store,
        lambda tx: tx.runs.renew([run.id], boot_id=OTHER_BOOT, now=START, lease=timedelta(seconds=1)),
    )

    assert renewed == {}
