"""What a campaign costs: its items beside the same tasks alone, its rows beside the same rows by hand."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

import msgspec
from msgspec import structs

import holdfast as hf
from bench.journal import save_step
from bench.measure import Report
from bench.recovery import kill_a_process, recover
from holdfast.alerts.actions import AlertOptions
from holdfast.alerts.watch import AlertWatch
from holdfast.config.alerts import default_alerts
from holdfast.core.clock import SystemClock
from holdfast.core.ids import TaskId
from holdfast.core.progress import CountKind
from holdfast.core.transitions import CampaignStatus, ItemStatus, TaskStatus
from holdfast.engine.aio.background import beside
from holdfast.engine.campaigns.documents import MAX_CONTEXT_BYTES, ContextDocument, read_context
from holdfast.engine.campaigns.drill_down import groups_of
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import Claims
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.ledger.campaign_progress import ItemChange, settle_items
from holdfast.progress.starter import CampaignStarter
from holdfast.store import Store, Tx
from holdfast.store.campaign_pages import ItemFilter
from tests.engine.tables import execute
from tests.engine.workers import carrying

# How many item-phases, or tasks, are in flight at once.
AGENTS = 1000
ROUNDS = 3
# How often a campaign may cost as much as the same tasks alone.
TARGET = 1.5
# What is read of a large campaign, beside a small one of so many items.
FEW = 10_000
LOOK_TARGET = 2.0
_LOOKS = 20
_PAGE = 40
_BATCH = 500
_names = itertools.count()
OpenStore = Callable[[], Store]


async def touch(name: str) -> str:
    return name


@hf.task(name="bench")
async def work(run: hf.Run, item: hf.Item) -> str:
    """One trivial step, in each phase and alone."""
    return await run.step(touch, item.id)


SPEC = hf.CampaignSpec(phases=(hf.phase("analysis", work), hf.phase("migration", work)), concurrency=AGENTS)


def items(count: int) -> list[hf.Item]:
    return [hf.Item(id=f"repo-{n:07d}", priority=f"P{n % 4}", category=f"c{n % 3}") for n in range(count)]


def _campaign_s(open_store: OpenStore, count: int) -> float:
    """Seconds from the first write of a campaign to its end."""

    async def measured() -> float:
        with contextlib.closing(open_store()) as store:
            clock, some = SystemClock(), items(count)
            async with carrying(store, clock, work, capacity=AGENTS), beside(CampaignStarter(store, clock)):
                started = time.perf_counter()
                campaigns = Campaigns(store, clock)
                await campaigns.create("bench", SPEC, some)
                await campaigns.start("bench")
                campaign = await campaigns.wait("bench")
                assert campaign.status is CampaignStatus.DONE
                return time.perf_counter() - started

    return asyncio.run(measured())


def _tasks_s(open_store: OpenStore, count: int) -> float:
    """The same tasks without a campaign: two of each item."""

    async def measured() -> float:
        with contextlib.closing(open_store()) as store:
            some = items(count)
            async with carrying(store, SystemClock(), work, capacity=AGENTS) as process:
                started = time.perf_counter()
                for _ in SPEC.phases:
                    for first in range(0, count, _BATCH):
                        await process.holdfast.start_many(
                            [work(item) for item in some[first : first + _BATCH]]
                        )
                while await _succeeded(store) < 2 * count:
                    await store.wait_for("events", 0.02)
                return time.perf_counter() - started

    return asyncio.run(measured())


async def _succeeded(store: Store) -> int:
    return (await store.read(lambda tx: tx.events.counts("task"))).get("succeeded", 0)


# --- rows


def _create_s(open_store: OpenStore, count: int) -> float:
    """Seconds to create a campaign with so many items."""
    some = items(count)

    async def measured() -> float:
        with contextlib.closing(open_store()) as store:
            started = time.perf_counter()
            await Campaigns(store, SystemClock()).create("bench", SPEC, some)
            return time.perf_counter() - started

    return asyncio.run(measured())


# The same rows by one statement for each table; `large` are the numbers from 1 to the number of items.
_BY_HAND = (
    """INSERT INTO campaign_items
       SELECT 'camp_raw', n, 'repo-' || n, 'repo-' || n, 'P' || (n % 4), 'c' || (n % 3), n / 10, {empty}, 1,
              {empty}
         FROM large""",
    """INSERT INTO item_phases (campaign_id, phase, place, priority, category, batch, status, unmet, attempt,
                                updated_at)
       SELECT 'camp_raw', phase, n, 'P' || (n % 4), 'c' || (n % 3), n / 10, 'pending', phase, 0, 1
         FROM large, (SELECT 0 AS phase UNION ALL SELECT 1) AS phases""",
)


def _create_by_hand_s(open_store: OpenStore, count: int, numbers: str, empty: str) -> float:
    with contextlib.closing(open_store()) as store:
        started = time.perf_counter()
        for statement in _BY_HAND:
            sql = statement.format(empty=empty).replace("FROM large", f"FROM {numbers.format(count=count)}")
            execute(store, sql)
        return time.perf_counter() - started


def fill(store: Store, count: int) -> hf.Campaign:
    """A campaign with so many items that has started."""

    async def create() -> hf.Campaign:
        campaigns = Campaigns(store, SystemClock())
        await campaigns.create("bench", SPEC, items(count))
        return await campaigns.start("bench")

    return asyncio.run(create())


class Filled:
    """A running campaign with so many items, filled when it is first asked for."""

    def __init__(self, open_store: OpenStore, count: int) -> None:
        self._open_store = open_store
        self._opened: Store | None = None
        self.count = count

    @cached_property
    def store(self) -> Store:
        self._opened = self._open_store()
        return self._opened

    @cached_property
    def campaign(self) -> hf.Campaign:
        campaign = fill(self.store, self.count)
        self.store.write_now(starting_items(campaign.id, now=SystemClock().now(), limit=_BATCH))
        return campaign

    def start_some(self) -> None:
        """The next batch of its items."""
        self.store.write_now(starting_items(self.campaign.id, now=SystemClock().now(), limit=_BATCH))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


class Rollups:
    """Ends items of one large campaign, batch after batch, with its counts and without."""

    def __init__(self, filled: Filled) -> None:
        self._filled = filled

    def _started(self) -> list[TaskId]:
        """The tasks of the next batch of items."""
        filled = self._filled
        filled.start_some()

        def running(tx: Tx) -> list[TaskId]:
            rows = [
                row
                for phase in range(len(SPEC.phases))
                for row in tx.item_phases.page(
                    filled.campaign.id, phase, status=ItemStatus.RUNNING, limit=_BATCH
                )
            ]
            return [row.task_id for row in rows if row.task_id is not None]

        return filled.store.read_now(running)

    def kept_us(self) -> float:
        """Microseconds for the end of an item with its counts, slots and needs."""
        tasks, now = self._started(), SystemClock().now()
        changes = [
            ItemChange(task_id=task, at=now, status=TaskStatus.SUCCEEDED, result=b'{"lines":652000}')
            for task in tasks
        ]

        def end(tx: Tx) -> None:
            settle_items(tx, self._filled.campaign.id, changes)

        started = time.perf_counter()
        self._filled.store.write_now(end)
        return 1e6 * (time.perf_counter() - started) / len(tasks)

    def bare_us(self) -> float:
        """Microseconds for the same rows alone: no counts, no slots, and no next phase."""
        tasks, now = self._started(), SystemClock().now()

        def end(tx: Tx) -> None:
            rows = tx.item_phases.of_tasks(tasks)
            tx.item_phases.end([structs.replace(row, status=ItemStatus.DONE) for row in rows], now=now)

        started = time.perf_counter()
        self._filled.store.write_now(end)
        spent = 1e6 * (time.perf_counter() - started) / len(tasks)
        self._filled.store.write_now(lambda tx: tx.slots.release(tasks))
        return spent


class Looks:
    """What people, agents and rules read of a running campaign."""

    def __init__(self, filled: Filled) -> None:
        self._filled = filled

    def context_us(self) -> float:
        """The document of `holdfast progress --context`."""

        def read(tx: Tx) -> ContextDocument:
            return read_context(tx, tx.campaigns.get(self._filled.campaign.id), now=SystemClock().now())

        found: list[ContextDocument] = []
        spent = self._read_us(lambda tx: found.append(read(tx)))
        size = len(msgspec.json.format(msgspec.json.encode(found[-1])))
        assert size <= MAX_CONTEXT_BYTES, size
        return spent

    def page_us(self) -> float:
        """A page of batches and a page of items in the middle of the campaign."""
        campaign, middle = self._filled.campaign, self._filled.count // 2

        def read(tx: Tx) -> None:
            batches, _ = groups_of(
                tx, campaign, 0, CountKind.BATCH, token=str(middle // campaign.spec.batch_size), limit=_PAGE
            )
            wanted = ItemFilter(status=ItemStatus.PENDING)
            items = tx.campaign_pages.items(campaign.id, 0, wanted, after=middle, limit=_PAGE)
            assert batches
            assert items

        return self._read_us(read)

    def _read_us(self, read: Callable[[Tx], object]) -> float:
        store = self._filled.store
        store.read_now(read)
        started = time.perf_counter()
        for _ in range(_LOOKS):
            store.read_now(read)
        return 1e6 * (time.perf_counter() - started) / _LOOKS

    def tick_us(self) -> float:
        """One pass of the default alert rules, which raises nothing."""
        assert self._filled.campaign.status is CampaignStatus.RUNNING
        rules = tuple(rule.tried_rule(name) for name, rule in default_alerts().items())
        watch = AlertWatch(self._filled.store, SystemClock(), AlertOptions(rules=rules), grace_s=0.0)

        async def passes() -> float:
            await watch.run_once()
            started = time.perf_counter()
            for _ in range(_LOOKS):
                assert (await watch.run_once()).raised == ()
            return 1e6 * (time.perf_counter() - started) / _LOOKS

        return asyncio.run(passes())


# --- recovery


def work_and_die(open_store: OpenStore, locks: Path, agents: int, count: int) -> None:
    """In its own process: a campaign with so many agents, each with one saved step, then SIGKILL.

    It has `count` items in two phases.
    """

    async def die() -> None:
        clock = SystemClock()
        store = open_store()
        life = await Life.begin(store, clock, locks=locks)
        campaigns, claims = Campaigns(store, clock), Claims(store, clock, life.id)
        spec = hf.CampaignSpec(phases=SPEC.phases, concurrency=agents)
        await campaigns.create("bench", spec, items(count))
        campaign = await campaigns.start("bench")
        while (await store.write(starting_items(campaign.id, now=clock.now()))).has_more:
            pass
        while claimed := await claims.take(_BATCH):
            async with asyncio.TaskGroup() as group:
                for one in claimed:
                    group.create_task(save_step(store, clock, one.claim, "first", {"done": True}))

    asyncio.run(die())
    os.kill(os.getpid(), signal.SIGKILL)


def _recover_campaign(open_store: OpenStore, locks: Path, agents: int, *, count: int) -> float:
    args = (open_store, locks, agents, count)
    child = multiprocessing.get_context("fork").Process(target=work_and_die, args=args)
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the process that was to be killed ended with {child.exitcode}")
    return recover(open_store, locks, agents)


def _recover_tasks(open_store: OpenStore, locks: Path, agents: int) -> float:
    kill_a_process(open_store, locks, agents)
    return recover(open_store, locks, agents)


# --- rows of the report


def _bench(report: Report, database: str, fresh: OpenStore, *, count: int) -> None:
    report.times(
        f"{database}: a campaign of {count:,} items x 2 phases, beside its tasks alone",
        partial(_campaign_s, fresh, count),
        partial(_tasks_s, fresh, count),
        target=TARGET,
        rounds=ROUNDS,
    )


def _bench_looks(report: Report, filled: Filled, few: Filled) -> None:
    """What is read of a large campaign must cost no more than of a small one."""
    large, small = Looks(filled), Looks(few)
    beside = f"of {filled.count:,} items, beside {few.count:,}"
    for what, ours, raw in (
        ("the context document of a campaign", large.context_us, small.context_us),
        ("a page of batches and of items of a campaign", large.page_us, small.page_us),
        ("a tick of the alert rules over a campaign", large.tick_us, small.tick_us),
    ):
        report.times(f"SQLite: {what} {beside}", ours, raw, target=LOOK_TARGET, rounds=5, unit="us")


def bench_sqlite(
    report: Report, directory: Path, open_store: Callable[[Path], Store], *, count: int, many: int
) -> None:
    def fresh() -> Store:
        return open_store(directory / f"campaigns-{next(_names)}" / "ledger.db")

    _bench(report, "SQLite", fresh, count=count)
    numbers = (
        "(WITH RECURSIVE large(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM large WHERE n < {count}) "
        "SELECT n FROM large) AS large"
    )
    report.times(
        f"SQLite: create a campaign of {many:,} items",
        partial(_create_s, fresh, many),
        partial(_create_by_hand_s, fresh, many, numbers, "x''"),
        target=None,
        rounds=1,
    )
    filled, few = Filled(fresh, many), Filled(fresh, FEW)
    rollups = Rollups(filled)
    report.times(
        f"SQLite: end an item of {many:,}, with all counts",
        rollups.kept_us,
        rollups.bare_us,
        target=None,
        rounds=5,
        unit="us",
    )
    _bench_looks(report, filled, few)
    filled.close()
    few.close()
    agents = min(AGENTS, count)
    place = f"{next(_names)}"

    def recovered(act: Callable[[OpenStore, Path, int], float]) -> float:
        home = directory / f"campaigns-{place}-{next(_names)}"
        return act(lambda: open_store(home / "ledger.db"), home / "boots", agents)

    report.times(
        f"SQLite: recover {agents:,} agents of a campaign of {count:,} items after SIGKILL",
        partial(recovered, partial(_recover_campaign, count=count)),
        partial(recovered, _recover_tasks),
        target=None,
        rounds=ROUNDS,
    )


def bench_postgres(
    report: Report, create_database: Callable[[], str], open_store: Callable[[str], Store], *, count: int
) -> None:
    _bench(report, "PostgreSQL", lambda: open_store(create_database()), count=count)
