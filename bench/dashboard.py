"""The pages of the dashboard: as quick with a million tasks as with a thousand; what open ones cost."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from bench import campaigns
from bench.gateway import Gateway, gateway
from bench.measure import Report, timed
from bench.operators import FEW, fill_sqlite
from holdfast.config.sign_in import make_code
from holdfast.core.clock import SystemClock
from holdfast.store import Store
from holdfast.web.page_kinds import Page
from holdfast.web.tables import PAGES

SETTINGS: dict[str, Any] = {"gateway": {"rate_limit_per_s": 1e6}}
# What fills the names in the addresses of pages; pages of records that the bench does not make are left out.
IDS = ("task", "campaign")
ITEM = "repo-0000007"
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
        }

    def _first(self, path: str, pattern: str) -> str:
        found = re.search(pattern, self.http.get(path).text)
        assert found is not None, path
        return found[1]

    def address(self, page: Page) -> str:
        path = NAMED.sub(lambda found: self.ids.get(found[1], ITEM), page.path)
        return path if path == "/" else f"/dashboard{path}"

    def page_ms(self, page: Page) -> float:
        address = self.address(page)
        self.http.get(address).raise_for_status()
        seconds = timed(lambda: [self.http.get(address).raise_for_status() for _ in range(REPEATS)])
        return 1000 * seconds / REPEATS

    def close(self) -> None:
        self.http.close()


def _is_filled(page: Page) -> bool:
    """Whether the bench makes the records of this page."""
    names = NAMED.findall(page.path)
    return all(name in IDS for name in names) or (names == ["campaign", "item"])


@contextlib.contextmanager
def _visited(
    home: Path, open_store: Callable[[Path], Store], *, finished: int, items: int
) -> Iterator[Visited]:
    with contextlib.closing(open_store(home / "ledger.db")) as store:
        campaigns.fill(store, items)
    # Each ledger has the thousand failures that the page of failures groups at most.
    failed = FEW if finished == FEW else None
    fill_sqlite(home / "ledger.db", finished, SystemClock().now(), failed=failed)
    with gateway(home, f"sqlite:///{home / 'ledger.db'}", SETTINGS) as one:
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
    shared = f"SQLite: dashboard, {finished:,} tasks and {items:,} items / {FEW:,} of each:"
    costs = f"SQLite: dashboard, processor time of a gateway with {OPEN} open overviews / with none"
    if not (report.wants(shared) or report.wants(costs)):
        return
    with (
        _visited(directory / "dashboard-large", open_store, finished=finished, items=items) as large,
        _visited(directory / "dashboard-small", open_store, finished=FEW, items=FEW) as small,
    ):
        for page in PAGES:
            if _is_filled(page):
                report.times(
                    f"{shared} {page.path}",
                    partial(large.page_ms, page),
                    partial(small.page_ms, page),
                    target=1.5,
                    rounds=5,
                    unit="ms",
                )
        report.times(
            costs,
            partial(_idle_ms_per_s, small, OPEN),
            partial(_idle_ms_per_s, small, 0),
            target=None,
            rounds=1,
            unit="ms",
        )


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
