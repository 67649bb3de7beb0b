"""A program is killed in its second turn, its file is edited, and a new process goes on with it.

Real files, real processes: each version of the program is a script, as a user has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.effect import Decision
from holdfast.core.events import Event, EventKind
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.effect_reviews import resolving
from tests.crash.invariants import Contents, assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress

pytestmark = pytest.mark.slow

# What both versions have in common. Whatever is really done is written down, with who did it.
COMMON = """
import asyncio, json, signal, sys
import holdfast as hf

signal.alarm(120)  # the test that waits for a process that is stuck shall see it end
url, home, diary = sys.argv[1:]

def note(*what):
    with open(diary, "a") as file:
        print(VERSION, *what, file=file)

async def main():
    async with hf.open(url, tasks=[research], home=home) as holdfast:
        handle = await holdfast.start(research("tides"), key="tides")
        async for event in handle.watch():
            print(event.kind, flush=True)
        print(json.dumps(await handle.result()))
"""

BEFORE = """
VERSION = "before:"

async def gather(topic, turn, depth):
    note("gather", turn)
    return f"{topic} {turn} from {depth} sources"

async def summarise(text):
    note("summarise", text.split()[1])
    return text + ", in short"

async def publish(turn):
    note("publish", turn)
    return f"page {turn}"

async def rest(turn):
    print("in turn", turn, flush=True)
    if turn == 2:
        await asyncio.Event().wait()

@hf.task
async def research(run, topic: str) -> list[str]:
    found = run.list("found", of=str)
    async for turn in run.turns(max=3):
        depth = 1
        text = await turn.step(gather, topic, turn.number, depth)
        short = await turn.step(summarise, text)
        page = await turn.tool(publish, {"turn": turn.number})
        await turn.step(rest, turn.number)
        found.append(f"{short}: {page}")
    return list(found)

asyncio.run(main())
"""

# A local variable has another value, one step has another name, one is new; no step rests any more.
AFTER = """
VERSION = "after:"

async def gather(topic, turn, depth):
    note("gather", turn)
    return f"{topic} {turn} from {depth} sources"

async def condense(text):
    note("condense", text.split()[1])
    return text + ", condensed"

async def translate(text):
    note("translate", text.split()[1])
    return text + ", translated"

async def publish(turn):
    note("publish", turn)
    return f"page {turn}"

@hf.task
async def research(run, topic: str) -> list[str]:
    found = run.list("found", of=str)
    async for turn in run.turns(max=3):
        depth = 2
        text = await turn.step(gather, topic, turn.number, depth)
        short = await turn.step(translate, await turn.step(condense, text))
        page = await turn.tool(publish, {"turn": turn.number})
        found.append(f"{short}: {page}")
    return list(found)

asyncio.run(main())
"""


class Script:
    """One file that is a program, and is edited."""

    def __init__(self, place: LedgerAddress, directory: Path) -> None:
        self._path = directory / "research.py"
        self._diary = directory / "diary"
        self._command = [sys.executable, str(self._path), place.url, str(place.home), str(self._diary)]

    def write(self, text: str) -> None:
        self._path.write_text(COMMON + text)
        # Whatever Python has compiled of an older version is never taken for this one.
        os.utime(self._path, ns=(0, 0))

    def run_until(self, line: str) -> None:
        """Killed when it says so."""
        with subprocess.Popen(self._command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while (said := process.stdout.readline().decode()) != f"{line}\n":
                assert said, "it ended before"
            process.kill()

    def run(self) -> list[str]:
        done = subprocess.run(self._command, stdout=subprocess.PIPE, check=False, timeout=60)
        assert done.returncode == 0, "see the output"
        result: list[str] = json.loads(done.stdout.splitlines()[-1])
        return result

    def diary(self) -> list[str]:
        return self._diary.read_text().splitlines()


def contents_of(place: LedgerAddress) -> Contents:
    store = place.open()
    contents = assert_ledger_is_whole(store)
    store.close()
    return contents


def skip_the_review(place: LedgerAddress) -> None:
    store = place.open()
    (effect,) = store.read_now(lambda tx: tx.effects.reviews())
    now = SystemClock().now()
    store.write_now(resolving(effect.id, Decision.SKIP, result="no page", by="ada", now=now))
    store.close()


def only_task(contents: Contents) -> Task:
    (task,) = contents.tasks.values()
    return task


def drifts(contents: Contents) -> list[Event]:
    return [event for event in contents.events if event.kind is EventKind.STEP_DRIFTED]


def test_a_program_that_was_edited_goes_on_in_its_open_turn_and_repeats_nothing_that_is_done(
    place: LedgerAddress, tmp_path: Path
) -> None:
    script = Script(place, tmp_path)

    script.write(BEFORE)
    script.run_until("in turn 2")
    script.write(AFTER)
    result = script.run()
    contents = contents_of(place)

    assert result == [
        "tides 1 from 1 sources, in short: page 1",
        "tides 2 from 2 sources, condensed, translated: page 2",
        "tides 3 from 2 sources, condensed, translated: page 3",
    ]
    assert script.diary() == [
        *("before: gather 1", "before: summarise 1", "before: publish 1"),
        *("before: gather 2", "before: summarise 2", "before: publish 2"),
        # In the turn that was open: asked with other input, so done again; under another name, so done; new;
        # and the page is out already.
        *("after: gather 2", "after: condense 2", "after: translate 2"),
        *("after: gather 3", "after: condense 3", "after: translate 3", "after: publish 3"),
    ]
    (drift,) = drifts(contents)
    assert (drift.facts["step"], drift.facts["scope"]) == ("gather", "turns:2")
    assert only_task(contents).has_ended


def test_an_effect_that_is_asked_for_with_other_input_is_not_done_a_second_time_unless_a_person_says_so(
    place: LedgerAddress, tmp_path: Path
) -> None:
    script = Script(place, tmp_path)
    edited = AFTER.replace("async def publish(turn):", "async def publish(turn, loud):")
    edited = edited.replace('{"turn": turn.number}', '{"turn": turn.number, "loud": True}')

    script.write(BEFORE)
    script.run_until("in turn 2")
    script.write(edited)
    script.run_until(EventKind.RUN_WAITED.value)
    published = [line for line in script.diary() if "publish" in line]
    contents = contents_of(place)
    skip_the_review(place)
    result = script.run()

    assert published == ["before: publish 1", "before: publish 2"]
    assert only_task(contents).status is TaskStatus.NEEDS_REVIEW
    assert [event.facts["step"] for event in drifts(contents)] == ["gather", "publish"]
    assert [line for line in script.diary() if "publish" in line] == [*published, "after: publish 3"]
    assert result[1:] == [
        "tides 2 from 2 sources, condensed, translated: no page",
        "tides 3 from 2 sources, condensed, translated: page 3",
    ]
