"""A campaign of many agents is killed at random moments: all items are done, each action happened once.

HOLDFAST_ITEMS=10000 lets so many items go through two phases; HOLDFAST_SEED=… kills at the same counts again.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import CampaignStatus, ItemStatus
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork, kill
from tests.engine.campaigns.campaign_world import all_rows, recount

pytestmark = pytest.mark.slow

ITEMS = int(os.environ.get("HOLDFAST_ITEMS") or 400)
AGENTS = 1000
KILLS = 5
# Within so long a process goes on with the campaign of one that was killed.
RECOVERY_S = 60.0
STAGES = ("transfer", "validate")
# Actions of an item: one in its first phase, and one in each stage of its second.
ACTIONS = 1 + len(STAGES)


class ActionFiles:
    """What the agents change outside the ledger: a file for each action. To do it twice is an error."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.happened: Callable[[], object] = lambda: None
        directory.mkdir(exist_ok=True)

    def tasks(self) -> list[hf.TaskDefinition[..., Any]]:
        world = self

        def was_done(name: str) -> hf.Happened | hf.DidNotHappen:
            return hf.Happened(name) if (world.directory / name).exists() else hf.DidNotHappen()

        @hf.verifiable(was_done)
        async def act(name: str) -> str:
            # Raises FileExistsError for an action that happened before; then its item fails.
            os.close(os.open(world.directory / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            world.happened()
            return name

        @hf.task(attempts=50)
        async def analyse(run: hf.Run, item: hf.Item) -> str:
            return await run.step(act, f"{item.id}-analysis")

        @hf.task(attempts=50)
        async def migrate(run: hf.Run, item: hf.Item) -> str:
            async for stage in run.stages(item):
                await stage.step(act, f"{item.id}-{stage.id}")
            return "ok"

        return [analyse, migrate]


def create(place: LedgerAddress, count: int) -> None:
    async def write() -> None:
        async with hf.open(place.url, home=place.home) as holdfast:
            spec = hf.CampaignSpec(
                phases=(
                    hf.phase("analysis", "analyse"),
                    hf.phase("migration", "migrate", stages=STAGES),
                ),
                concurrency=AGENTS,
            )
            some = [hf.Item(id=f"repo-{n:05d}", priority=f"P{n % 4}") for n in range(count)]
            await holdfast.campaigns().create("rd-os", spec, some)
            await holdfast.campaigns().start("rd-os")

    asyncio.run(write())


def carry(place: LedgerAddress, pipe: Pipe) -> None:
    """In its own process: until the campaign is over."""

    async def work() -> None:
        world = ActionFiles(place.home / "world")
        world.happened = lambda: pipe.say(".")
        async with hf.open(place.url, home=place.home, tasks=world.tasks(), capacity=AGENTS) as holdfast:
            campaign = await holdfast.campaigns().wait("rd-os")
            assert campaign.status is CampaignStatus.DONE, campaign.reason

    asyncio.run(work())


def hear(pipe: Pipe, count: int) -> int:
    """Wait for so many actions; fewer if every process has ended before."""
    heard = 0
    while heard < count and pipe.hear():
        heard += 1
    return heard


def check(place: LedgerAddress, count: int) -> None:
    store = place.open()
    try:
        campaign = store.read_now(lambda tx: tx.campaigns.find("rd-os"))
        assert campaign is not None
        assert campaign.status is CampaignStatus.DONE
        rows = store.read_now(lambda tx: all_rows(tx, campaign))
        assert len(rows) == 2 * count
        assert {(row.status, row.attempt, row.percent) for row in rows} == {(ItemStatus.DONE, 1, 100)}
        store.read_now(lambda tx: recount(tx, campaign))
        assert len(list((place.home / "world").iterdir())) == ACTIONS * count
        if count <= 1000:  # it reads every row several times
            assert_ledger_is_whole(store)
    finally:
        store.close()


def test_a_campaign_that_is_killed_five_times_does_each_action_once(quick_path: Path, seed: int) -> None:
    place = LedgerAddress.of_file(quick_path)
    chance = random.Random(seed)
    most = ACTIONS * ITEMS - 1
    moments = sorted(chance.sample(range(1, most + 1), min(KILLS, most)))
    create_in_child(place, ITEMS)

    heard, took = 0, list[float]()
    for moment in moments:
        pipe = Pipe()
        started = time.perf_counter()
        process = fork(partial(carry, place, pipe))
        pipe.only_hear()
        hear(pipe, 1)
        took.append(time.perf_counter() - started)
        print(f"the first action came {took[-1]:.2f} s after the start")
        hear(pipe, max(0, moment - heard - 1))
        kill(process)
        heard = len(list((place.home / "world").iterdir()))
        pipe.close()
    last = Pipe()
    process = fork(lambda: carry(place, last))
    last.only_hear()
    hear(last, ACTIONS * ITEMS)
    assert_ended_well(process)
    last.close()

    check(place, ITEMS)
    assert max(took) < RECOVERY_S


def test_two_processes_share_a_campaign_and_one_is_killed(place: LedgerAddress, seed: int) -> None:
    count = min(ITEMS, 100)
    create_in_child(place, count)
    pipe = Pipe()
    first, second = (fork(lambda: carry(place, pipe)) for _ in range(2))
    pipe.only_hear()

    hear(pipe, random.Random(seed).randint(1, count))
    kill(first)
    hear(pipe, ACTIONS * count)
    assert_ended_well(second)
    pipe.close()

    check(place, count)


def create_in_child(place: LedgerAddress, count: int) -> None:
    """In a process of its own, so that this one has no store when it forks."""
    assert_ended_well(fork(lambda: create(place, count)))
