"""One process of the demo: starts tasks, or continues those that a killed process left, until all have ended.

`python -m holdfast.demo.process OWNER CREATE` reads the settings from the environment and reports on stdout,
one JSON object in each line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import msgspec

import holdfast as hf
from holdfast.store.tasks import LAST
from holdfast.store.transaction import Tx

TASK_NAME = "demo"
STEPS = ("read", "outline", "draft", "check", "revise", "publish")
# The only step that changes the outside world. It is declared as a keyed effect, the others are plain steps.
EFFECT = "publish"
# Each call of a step sends its task a message with this topic first. The proof counts these messages: they
# show which steps were begun, how often, and when.
BEGUN = "begun"
LONGEST_STEP_S = 0.4
BATCH = 500
# At least as many as `holdfast demo --tasks` allows, so that all tasks are in flight at once.
CAPACITY = 20_000


class DemoReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line that the process prints about its own progress."""

    what: str
    number: int = 0


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a message that says which step was begun, and by which process."""

    step: str
    pid: int


Print = Callable[[DemoReport], None]


class DemoSteps:
    """The work of every step: send the message, then sleep. The result is the id of the process."""

    def __init__(self) -> None:
        # Set after `hf.open` has returned; by then a resumed task may already run.
        self.opened: asyncio.Future[hf.Holdfast] = asyncio.get_running_loop().create_future()

    async def work(self, step: str, task_id: str) -> int:
        holdfast = await self.opened
        begun = Begun(step=step, pid=os.getpid())
        await holdfast.send(task_id, BEGUN, msgspec.to_builtins(begun), sender=TASK_NAME)
        await asyncio.sleep(random.uniform(0, LONGEST_STEP_S))  # noqa: S311 - the work itself
        return os.getpid()


def page_task(steps: DemoSteps, report: Print) -> hf.TaskDefinition[..., Any]:
    """The task that the demo runs: write a page in six steps."""
    calls = {name: hf.step(steps.work, name=name) for name in STEPS}
    calls[EFFECT] = hf.keyed("1d")(calls[EFFECT])

    @hf.task(name=TASK_NAME)
    async def write_page(run: hf.Run, page: int) -> int:
        for name, call in calls.items():
            pid = await run.step(call, name, run.task_id)
            if pid == os.getpid():  # else the result was in the journal, and the step was not called
                report(DemoReport(what="step"))
        return page

    return write_page


async def work(settings: hf.Settings, *, owner: str, create: int, report: Print) -> None:
    """Start `create` tasks, then wait until every task of the owner has ended."""
    steps = DemoSteps()
    task = page_task(steps, report)
    async with hf.open(
        settings.store.url,
        tasks=[task],
        home=settings.home,
        owner=owner,
        capacity=CAPACITY,
        role=TASK_NAME,
    ) as holdfast:
        open_ids = await holdfast.store.read(lambda tx: open_tasks(tx, owner))
        report(DemoReport(what="resumed", number=len(open_ids)))
        steps.opened.set_result(holdfast)
        handles = [holdfast.handle(task_id) for task_id in open_ids]
        for first in range(0, create, BATCH):
            pages = range(first, min(first + BATCH, create))
            handles += await holdfast.start_many(
                [task(page) for page in pages], keys=[f"page-{page}" for page in pages]
            )
        async with asyncio.TaskGroup() as group:
            for handle in handles:
                group.create_task(_until_ended(handle))


async def _until_ended(handle: hf.Handle[Any]) -> None:
    with contextlib.suppress(hf.TaskFailed):  # the proof finds every task that failed
        await handle.result()


def open_tasks(tx: Tx, owner: str) -> list[str]:
    """The ids of the owner's tasks that have not ended."""
    found: list[str] = []
    before = LAST
    while page := tx.tasks.page(owner=owner, before=before, limit=BATCH):
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
    owner, create = sys.argv[1], int(sys.argv[2])
    asyncio.run(work(hf.read_settings(os.environ), owner=owner, create=create, report=_print))


if __name__ == "__main__":
    main()
