"""One process of the demo: analyses a folder as a campaign, or goes on with what a killed process left.

`python -m holdfast.demo.process OWNER FOLDER MOST PAUSE_S` reads the settings from the environment and
reports on stdout, one JSON object in each line. The owner is also the name of the campaign, which exists
already if MOST is 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import holdfast as hf
from holdfast.analysis.discovery import find_items
from holdfast.analysis.progress import PhaseCounts, phase_counts
from holdfast.analysis.tasks import COUNTED, Step, analysis_spec, analysis_tasks
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import CampaignStatus
from holdfast.store.tasks import LAST
from holdfast.store.transaction import Tx

# Each call of a step sends its task a message with this topic first. The proof counts these messages: they
# show which steps were begun, how often, and when.
BEGUN = "begun"
SENDER = "demo"
PAGE = 500
# So many items are worked on at once.
CONCURRENCY = 24
LOOK_EVERY_S = 0.2


class DemoReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line that the process prints about its own progress."""

    what: str
    number: int = 0
    phases: tuple[PhaseCounts, ...] = ()


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a message that says which step was begun, and by which process."""

    step: str
    pid: int
    # Of a step that each part of an item has: which part, and of how many.
    number: int = 1
    parts: int = 1


Print = Callable[[DemoReport], None]


class StepWatcher:
    """Around every step: send the message before it, and pause after it, so that people can watch."""

    def __init__(self, report: Print, pause_s: float) -> None:
        self._report = report
        self._pause_s = pause_s
        # Set after `hf.open` has returned; by then a resumed task may already run.
        self.opened: asyncio.Future[hf.Holdfast] = asyncio.get_running_loop().create_future()

    def watch(self, run: hf.Run, fn: Step) -> Step:
        @functools.wraps(fn)
        async def watched(*arguments: Any) -> Any:
            holdfast = await self.opened
            begun = Begun(step=fn.__name__, pid=os.getpid())
            if fn.__name__ == COUNTED:
                _, part, parts = arguments
                begun = msgspec.structs.replace(begun, number=part + 1, parts=parts)
            await holdfast.send(run.task_id, BEGUN, msgspec.to_builtins(begun), sender=SENDER)
            if inspect.iscoroutinefunction(fn):
                result = await fn(*arguments)
            else:
                result = await asyncio.to_thread(fn, *arguments)
            await asyncio.sleep(random.uniform(0, self._pause_s))  # noqa: S311 - for the eye
            self._report(DemoReport(what="step"))
            return result

        return watched


async def work(
    settings: hf.Settings, *, owner: str, folder: Path, most: int, pause_s: float, report: Print
) -> None:
    """Create the campaign with at most so many items if there is none yet, and wait for its end."""
    steps = StepWatcher(report, pause_s)
    tasks = analysis_tasks(steps.watch)
    async with hf.open(
        settings.store.url, tasks=tasks, home=settings.home, owner=owner, role=SENDER
    ) as holdfast:
        campaigns = holdfast.campaigns(owner=owner)
        if most:
            items = find_items(folder, artifacts=settings.home / "artifacts", now=SystemClock().now())[:most]
            spec = analysis_spec(tasks=tasks, concurrency=CONCURRENCY)
            await campaigns.create(owner, spec, items)
            await campaigns.start(owner)
        else:
            open_ids = await holdfast.store.read(lambda tx: open_tasks(tx, owner))
            report(DemoReport(what="resumed", number=len(open_ids)))
        steps.opened.set_result(holdfast)
        ended = asyncio.ensure_future(campaigns.wait(owner))
        while not ended.done():
            await _tell(campaigns, owner, report)
            await asyncio.wait({ended}, timeout=LOOK_EVERY_S)
        if (await ended).status not in (CampaignStatus.DONE, CampaignStatus.FAILED):
            sys.exit(1)
        await _tell(campaigns, owner, report)


async def _tell(campaigns: hf.Campaigns, name: str, report: Print) -> None:
    report(DemoReport(what="counts", phases=phase_counts(await campaigns.progress(name))))


def open_tasks(tx: Tx, owner: str) -> list[str]:
    """The ids of the owner's tasks that have not ended."""
    found: list[str] = []
    before = LAST
    while page := tx.tasks.page(owner=owner, before=before, limit=PAGE):
        found += [task.id for task in page if not task.has_ended]
        before = page[-1].id
    return found


def _print(report: DemoReport) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)  # the parent has died; stop working


def main() -> None:
    owner, folder, most, pause_s = sys.argv[1:]
    settings = hf.read_settings(os.environ)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            work(
                settings,
                owner=owner,
                folder=Path(folder),
                most=int(most),
                pause_s=float(pause_s),
                report=_print,
            )
        )


if __name__ == "__main__":
    main()
