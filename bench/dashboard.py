"""The pages of the dashboard: as quick with a million tasks as with a thousand; what open ones cost."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench import campaigns
from bench.gateway import Gateway, gateway
from bench.measure import Report, timed
from bench.operators import FEW, fill_postgres, fill_sqlite
from holdfast.config.sign_in import make_code
from holdfast.core.clock import SystemClock
from holdfast.core.ids import new_id
from holdfast.core.manifest import RestartOutcome
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.core.transitions import (
    EffectStatus,
    FiringStatus,
    FlowStatus,
    MessageStatus,
    RestartStatus,
    RunStatus,
    TaskStatus,
)
from holdfast.engine.schedules.due import placed
from holdfast.store import Store, Tx
from holdfast.web.page_kinds import Page
from holdfast.web.tables import PAGES
from tests.builders import (
    a_firing,
    a_flow,
    a_message,
    a_restart,
    a_run,
    a_session,
    a_task,
    an_effect,
    put,
)

SETTINGS: dict[str, Any] = {"gateway": {"rate_limit_per_s": 1e6}}
# What fills the names in the addresses of pages.
IDS = ("task", "campaign", "item", "agent", "effect", "flow", "session", "schedule", "restart")
ITEM = "repo-0000007"
SESSION, SCHEDULE = "agent:main:bench", "yearly"
# One flow, restart, message of the session and firing of the schedule for so many tasks, and at least so many
# of each, and of open reviews, that every page is full.
TASKS_FOR_EACH, LEAST_OF_EACH = 100, 150
# The pages that a person has open most: on PostgreSQL only these, so that the benches stay quick.
ON_POSTGRES = ("/", "/tasks", "/tasks/{task}", "/failures", "/reviews", "/campaigns/{campaign}", "/agents")
# A name in the address of a page: {task}, or {session:path}.
NAMED = re.compile(r"\{(\w+)(?::\w+)?\}")
REPEATS = 10
# How many dashboards are open at once, and for how long the cost of the gateway is taken.
OPEN = 20
IDLE_S = 20.0


class Visited:
    """One gateway with a large or a small ledger, and a browser that has signed in there."""

    def __init__(self, one: Gateway) -> None:
        self.gateway = one
        base = f"http://127.0.0.1:{one.port}"
        self.http = httpx.Client(
            base_url=base, headers={"origin": base, "hx-request": "true"}, timeout=120, trust_env=False
        )
        code = make_code(one.home, SystemClock().now())
        self.http.post("/dashboard/sign-in", data={"code": code}).raise_for_status()
        self.ids = {
            "task": self._first("/dashboard/tasks", r"/dashboard/tasks/(task_\w+)"),
            "campaign": self._first("/dashboard/campaigns", r"/dashboard/campaigns/(camp_\w+)"),
            "item": ITEM,
            "agent": self._first(
                "/dashboard/agents?view=table", r"/dashboard/agents/(repo-\d+-\w+\?campaign=\w+)"
            ),
            "effect": self._first("/dashboard/reviews", r"/dashboard/reviews/(eff_\w+)"),
            "flow": self._first("/dashboard/flows", r"/dashboard/flows/(flow_\w+)"),
            "session": SESSION,
            "schedule": SCHEDULE,
            "restart": self._first("/dashboard/restarts", r"/dashboard/restarts/(rst_\w+)"),
        }

    def _first(self, path: str, pattern: str) -> str:
        found = re.search(pattern, self.http.get(path).text)
        assert found is not None, path
        return found[1]

    def address(self, page: Page) -> str:
        path = NAMED.sub(lambda found: self.ids[found[1]], page.path)
        return path if path == "/" else f"/dashboard{path}"

    def page_ms(self, page: Page) -> float:
        address = self.address(page)
        self.http.get(address).raise_for_status()
        seconds = timed(lambda: [self.http.get(address).raise_for_status() for _ in range(REPEATS)])
        return 1000 * seconds / REPEATS

    def close(self) -> None:
        self.http.close()


def fill_records(store: Store, count: int) -> None:
    """So many flows and restarts, messages of one session and firings of one schedule; and open reviews."""
    now = SystemClock().now()
    yearly = ScheduleSpec(at=now + timedelta(days=365), task="bench")

    def fill(tx: Tx) -> None:
        tx.sessions.create(a_session(key=SESSION, agent="main", last_position=count))
        made = Schedule(
            name=SCHEDULE,
            source=ScheduleSource.RUNTIME,
            owner="bench",
            spec=yearly,
            created_at=now,
            updated_at=now,
        )
        tx.schedules.create(placed(made, now))
        # What waits for a person is work in flight: as much of it in each ledger.
        for _ in range(LEAST_OF_EACH):
            task = a_task(status=TaskStatus.NEEDS_REVIEW)
            run = a_run(task, status=RunStatus.WAITING)
            put(tx, task, run)
            tx.effects.create(an_effect(task_id=task.id, run_id=run.id, status=EffectStatus.UNKNOWN))
        for number in range(count):
            at = now - timedelta(minutes=1 + number)
            tx.flows.create(a_flow(status=FlowStatus.SUCCEEDED))
            id_ = new_id("rst", at)
            tx.restarts.create(
                a_restart(
                    id=id_,
                    requested_at=at,
                    updated_at=at,
                    status=RestartStatus.RECOVERED,
                    outcome=RestartOutcome(),
                )
            )
            tx.messages.create(
                a_message(session_key=SESSION, position=number + 1, status=MessageStatus.ANSWERED)
            )
            # A week and a month have as many of them in each ledger.
            fired_at = now - timedelta(hours=12 * (1 + number))
            tx.firings.create(
                a_firing(
                    schedule=SCHEDULE, schedule_made_at=now, occurrence_at=fired_at, status=FiringStatus.DONE
                )
            )

    store.write_now(fill)


class Ledger(NamedTuple):
    """A ledger to fill, and the home of its gateway."""

    home: Path
    url: str
    open: Callable[[], Store]
    fill_tasks: Callable[[int], None]


@contextlib.contextmanager
def _visited(ledger: Ledger, *, finished: int, items: int) -> Iterator[Visited]:
    with contextlib.closing(ledger.open()) as store:
        campaigns.fill(store, items)
    ledger.fill_tasks(finished)
    with contextlib.closing(ledger.open()) as store:
        fill_records(store, max(LEAST_OF_EACH, finished // TASKS_FOR_EACH))
    with gateway(ledger.home, ledger.url, SETTINGS) as one:
        one.start()
        one.until(one.is_ready)
        visited = Visited(one)
        try:
            yield visited
        finally:
            visited.close()


def bench_sqlite(
    report: Report, directory: Path, open_store: Callable[[Path], Store], *, finished: int, items: int
) -> None:
    costs = f"SQLite: dashboard, processor time of a gateway with {OPEN} open overviews / with none"

    def ledger(name: str) -> Ledger:
        home = directory / f"dashboard-{name}"
        path = home / "ledger.db"

        def fill(finished: int) -> None:
            # Each ledger has the thousand failures that the page of failures groups at most.
            fill_sqlite(path, finished, SystemClock().now(), failed=FEW if finished == FEW else None)

        return Ledger(home, f"sqlite:///{path}", lambda: open_store(path), fill)

    def idle(small: Visited) -> None:
        cost = partial(_idle_ms_per_s, small)
        report.times(costs, partial(cost, OPEN), partial(cost, 0), target=None, rounds=1, unit="ms")

    _bench(report, "SQLite", ledger, PAGES, finished=finished, items=items, also={costs: idle})


def bench_postgres(
    report: Report,
    directory: Path,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    finished: int,
    items: int,
) -> None:
    def ledger(name: str) -> Ledger:
        url = create_database()

        def fill(finished: int) -> None:
            fill_postgres(url, finished, SystemClock().now(), failed=FEW if finished == FEW else None)

        return Ledger(directory / f"dashboard-pg-{name}", url, lambda: open_store(url), fill)

    pages = [page for page in PAGES if page.path in ON_POSTGRES]
    _bench(report, "PostgreSQL", ledger, pages, finished=finished, items=items)


def _bench(
    report: Report,
    kind: str,
    ledger: Callable[[str], Ledger],
    pages: Sequence[Page],
    *,
    finished: int,
    items: int,
    also: Mapping[str, Callable[[Visited], None]] | None = None,
) -> None:
    """Each page of a large ledger beside the same page of a small one; and what else the small one is for."""
    shared = f"{kind}: dashboard, {finished:,} tasks and {items:,} items / {FEW:,} of each:"
    rows = {f"{shared} {page.path}": page for page in pages}
    others = also or {}
    if not any(report.wants(name) for name in (shared, *rows, *others)):
        return
    with (
        _visited(ledger("large"), finished=finished, items=items) as large,
        _visited(ledger("small"), finished=FEW, items=FEW) as small,
    ):
        for name, page in rows.items():
            report.times(
                name,
                partial(large.page_ms, page),
                partial(small.page_ms, page),
                target=1.5,
                rounds=5,
                unit="ms",
            )
        for act in others.values():
            act(small)


def _idle_ms_per_s(visited: Visited, dashboards: int) -> float:
    """Milliseconds of processor time for each second, while so many pages are open and nothing happens."""
    opened = threading.Barrier(dashboards + 1)
    stop = threading.Event()
    readers = [threading.Thread(target=_follow, args=(visited, opened, stop)) for _ in range(dashboards)]
    for one in readers:
        one.start()
    opened.wait(60)
    before, began_at = visited.gateway.processor_s(), time.perf_counter()
    time.sleep(IDLE_S)
    spent = visited.gateway.processor_s() - before
    seconds = time.perf_counter() - began_at
    stop.set()
    for one in readers:
        one.join()
    return 1000 * spent / seconds


def _follow(visited: Visited, opened: threading.Barrier, stop: threading.Event) -> None:
    """As an open page does: listen, and read the page again now and then."""
    client = httpx.Client(
        base_url=visited.http.base_url, cookies=visited.http.cookies, timeout=60, trust_env=False
    )
    with client, client.stream("GET", "/dashboard/live") as changes:
        lines = changes.iter_lines()
        for line in itertools.islice(lines, 3):
            del line
        opened.wait(60)
        page = next(page for page in PAGES if page.path == "/")
        while not stop.wait(page.every_s):
            client.get("/").raise_for_status()
