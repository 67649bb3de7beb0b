"""`holdfast worker` in processes of their own: several share a campaign, one is killed, one begins anew."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TypeVar

import pytest

import holdfast as hf
from holdfast.core.campaign import CampaignSpec, Item, Phase
from holdfast.core.transitions import CampaignStatus, RunStatus, TaskStatus
from tests.config.homes import write
from tests.crash.carried_tasks import WORLD
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import kill
from tests.doors.calls import PROGRAM, environment
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

MODULE = str(Path(__file__).with_name("carried_tasks.py"))
PATIENCE_S = 60.0
ITEMS, CONCURRENCY = 30, 6
T = TypeVar("T")
# For what is about signals and the end of a process.
on_a_file = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


class Fleet:
    """Workers on one ledger, and the log of what their tasks did."""

    def __init__(self, place: LedgerAddress) -> None:
        self.place = place
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*PROGRAM, "worker", MODULE, "--store", self.place.url, *options],
            env=environment(
                self.place.home,
                HOLDFAST_KEY=os.environ["HOLDFAST_KEY"],
                **{WORLD: str(self.place.home)},
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def lines(self) -> list[tuple[str, int]]:
        """What was noted, and by which process."""
        log = self.place.home / "world.log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [(what, int(pid)) for what, _, pid in (line.partition(" ") for line in lines)]

    def until(self, is_so: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < ends_at, self.lines()[-5:]
            for process in self._processes:
                assert process.poll() in (None, 0, 75, -signal.SIGKILL), process.stderr.read()  # type: ignore[union-attr]
            time.sleep(0.01)

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def ledger(self, body: Callable[[hf.Holdfast], Awaitable[T]]) -> T:
        async def whole() -> T:
            async with hf.open(self.place.url, home=self.place.home) as holdfast:
                return await body(holdfast)

        return asyncio.run(whole())


@contextmanager
def a_fleet(place: LedgerAddress) -> Iterator[Fleet]:
    fleet = Fleet(place)
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.fixture
def fleet(place: LedgerAddress) -> Iterator[Fleet]:
    with a_fleet(place) as fleet:
        yield fleet


def most_at_once(lines: list[tuple[str, int]]) -> int:
    """How many items were begun and had not ended, at most. Those of a dead process are begun again."""
    is_open: set[str] = set()
    most = 0
    for what, _ in lines:
        if what.startswith("+"):
            is_open.add(what[1:])
            most = max(most, len(is_open))
        elif what.startswith("-"):
            is_open.discard(what[1:])
    return most


def test_four_workers_share_a_campaign_and_one_is_killed(fleet: Fleet) -> None:
    spec = CampaignSpec(
        phases=(Phase(name="analysis", task="analyse"), Phase(name="migration", task="analyse")),
        concurrency=CONCURRENCY,
    )

    async def begin(holdfast: hf.Holdfast) -> None:
        campaigns = holdfast.campaigns()
        await campaigns.create("rd-os", spec, [Item(id=f"repo-{n:03d}") for n in range(1, ITEMS + 1)])

    async def start(holdfast: hf.Holdfast) -> None:
        await holdfast.campaigns().start("rd-os")

    async def end(holdfast: hf.Holdfast) -> CampaignStatus:
        return (await holdfast.campaigns().wait("rd-os", timeout_s=PATIENCE_S)).status

    fleet.ledger(begin)
    # Four processes have more room than the campaign allows.
    workers = [fleet.start("--json", "--capacity", "2") for _ in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert f'"pid": {worker.pid}' in _document(worker.stdout)
    fleet.ledger(start)
    fleet.until(lambda: len({pid for _, pid in fleet.lines()}) >= 2 and len(fleet.lines()) >= ITEMS)
    victim = fleet.lines()[-1][1]
    kill(victim)

    assert fleet.ledger(end) is CampaignStatus.DONE
    lines = fleet.lines()
    ended = Counter(what for what, _ in lines if what.startswith("-"))
    assert len(ended) == 2 * ITEMS
    # Only what the dead process was in the midst of may have been done again.
    again = {what for what, count in Counter(what for what, _ in lines).items() if count > 1}
    assert again <= {what for what, pid in lines if pid == victim}
    assert most_at_once(lines) <= CONCURRENCY
    assert len({pid for _, pid in lines}) >= 2

    for worker in workers:
        if worker.pid != victim:
            worker.send_signal(signal.SIGTERM)
    assert [worker.wait(PATIENCE_S) for worker in workers if worker.pid != victim] == [0, 0, 0]

    fleet.ledger(assert_all_is_done)
    with closing(fleet.place.open()) as store:
        assert_ledger_is_whole(store, is_at_rest=True)


def _document(stream: IO[str]) -> str:
    """What a worker prints when it is ready."""
    text = ""
    while not text.endswith("}\n"):
        line = stream.readline()
        assert line, text
        text += line
    return text


async def assert_all_is_done(holdfast: hf.Holdfast) -> None:
    progress = await holdfast.campaigns().progress("rd-os")
    assert (progress.counts.done, progress.counts.total) == (2 * ITEMS, 2 * ITEMS)
    campaign = progress.campaign
    taken = await holdfast.store.read(lambda tx: tx.slots.taken(campaign.id, "campaign"))
    assert taken == 0


@on_a_file
def test_a_run_that_needs_a_restart_gets_a_new_process_with_the_same_id(fleet: Fleet) -> None:
    async def begin(holdfast: hf.Holdfast) -> str:
        from tests.crash.carried_tasks import upgrade

        return (await holdfast.start(upgrade())).id

    task_id = fleet.ledger(begin)
    worker = fleet.start()
    fleet.until(lambda: ("-upgrade", worker.pid) in fleet.lines())
    fleet.until(lambda: _status(fleet, task_id) is TaskStatus.SUCCEEDED)

    # The program was begun twice, in the same process id; its step was done once.
    assert fleet.lines() == [(what, worker.pid) for what in ("before", "+upgrade", "before", "-upgrade")]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0


@on_a_file
def test_a_service_manager_may_start_it_again_instead(fleet: Fleet) -> None:
    async def begin(holdfast: hf.Holdfast) -> str:
        from tests.crash.carried_tasks import upgrade

        return (await holdfast.start(upgrade())).id

    task_id = fleet.ledger(begin)
    worker = fleet.start("--exit-to-restart")

    assert worker.wait(PATIENCE_S) == 75
    assert _status(fleet, task_id) is TaskStatus.PAUSED


@on_a_file
@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_drains_and_a_second_one_stops_at_once(fleet: Fleet, count: int) -> None:
    async def begin(holdfast: hf.Holdfast) -> str:
        from tests.crash.carried_tasks import waits

        return (await holdfast.start(waits())).id

    task_id = fleet.ledger(begin)
    worker = fleet.start("--drain-timeout", "1h")
    fleet.until(lambda: ("waiting", worker.pid) in fleet.lines())
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    while "stopping: SIGTERM" not in worker.stderr.readline():
        pass
    if count == 1:
        (fleet.place.home / "door").touch()
    else:
        worker.send_signal(signal.SIGTERM)

    assert worker.wait(PATIENCE_S) == 0
    assert _run_status(fleet, task_id) is RunStatus.PAUSED_FOR_RESTART


def test_a_worker_obeys_the_policies_of_approval_and_retry(fleet: Fleet) -> None:
    write(
        fleet.place.home,
        "config/policies.yaml",
        {"approval": {"effects": ["opaque"]}, "retry": {"attempts": 2}},
    )

    async def begin(holdfast: hf.Holdfast) -> list[str]:
        from tests.crash.carried_tasks import fails, mails

        return [(await holdfast.start(mails())).id, (await holdfast.start(fails())).id]

    async def approve(holdfast: hf.Holdfast) -> None:
        (effect,) = await holdfast.reviews()
        await holdfast.resolve(effect.id, "retry")

    mailing, failing = fleet.ledger(begin)
    worker = fleet.start()
    fleet.until(lambda: _status(fleet, mailing) is TaskStatus.NEEDS_REVIEW)
    fleet.until(lambda: _status(fleet, failing) is TaskStatus.FAILED)
    assert fleet.lines() == [("tried", worker.pid)] * 2

    fleet.ledger(approve)
    fleet.until(lambda: _status(fleet, mailing) is TaskStatus.SUCCEEDED)
    assert fleet.lines()[2:] == [("mailed", worker.pid)]


def test_a_worker_goes_on_after_its_database_was_away(tmp_path: Path, quick_path: Path) -> None:
    async def begin(holdfast: hf.Holdfast) -> str:
        from tests.crash.carried_tasks import waits

        return (await holdfast.start(waits())).id

    with PostgresServer.start(tmp_path / "postgres") as server:
        place = LedgerAddress(url=server.create_database(), home=quick_path)
        with a_fleet(place) as fleet:
            worker = fleet.start()
            before = fleet.ledger(begin)
            fleet.until(lambda: ("waiting", worker.pid) in fleet.lines())
            server.stop("immediate")
            (place.home / "door").touch()  # its step ends while the database is away
            assert worker.stderr is not None
            while "store_unavailable" not in (line := worker.stderr.readline()):
                assert line, "the worker ended"
            server.start_again()
            after = fleet.ledger(begin)
            for task_id in (before, after):
                fleet.until(lambda task_id=task_id: _status(fleet, task_id) is TaskStatus.SUCCEEDED)  # type: ignore[misc]

            assert worker.poll() is None
            assert fleet.lines().count(("waiting", worker.pid)) == 2
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE_S) == 0


def _status(fleet: Fleet, task_id: str) -> TaskStatus:
    async def read(holdfast: hf.Holdfast) -> TaskStatus:
        return await holdfast.handle(task_id).status()

    return fleet.ledger(read)


def _run_status(fleet: Fleet, task_id: str) -> RunStatus:
    async def read(holdfast: hf.Holdfast) -> RunStatus:
        runs = await holdfast.store.read(lambda tx: tx.runs.of_task(task_id))
        return runs[-1].status

    return fleet.ledger(read)
