"""Agents that change the world lose and double nothing: killed, drained, frozen, their server crashed.

HOLDFAST_KILLS=20000 kills so many in all; HOLDFAST_SEED=… has the same kills again (as far as two processes
that race against each other can do the same again).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.claim import DEFAULT_LEASE
from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.core.events import EventKind
from holdfast.core.step import Step
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.program.definitions import by_name
from holdfast.engine.worker.worker import Worker
from holdfast.store import write_groups
from tests.crash import invariants
from tests.crash.agents import (
    AGENTS,
    EFFECTS,
    AgentsLife,
    Blow,
    Happening,
    HappeningsFile,
    Kind,
    Report,
    be_killed_when_stuck,
    check,
    review,
    until_nothing_moves,
    world_path,
)
from tests.crash.invariants import Contents, assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork, killed_in_the_end
from tests.crash.test_freeze import BOOKKEEPING, Ahead, freeze, move_the_servers_clock
from tests.engine.tables import dump
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# In all: for each kind so much of it on each database. A server takes longer to be opened.
KILLS = int(os.environ.get("HOLDFAST_KILLS") or 100)
SHARE = {"sqlite": 0.35, "postgresql": 0.15}
DRAINS = 5


def report_of(place: LedgerAddress, seed: int, blows: int, kind: Kind, blow: Blow) -> Report:
    """What a warm parent of its own has seen."""
    command = [sys.executable, "-m", "tests.crash.agents", place.url, str(place.home)]
    command += [str(seed), str(blows), kind, blow]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0, "something was lost or doubled, or is stuck; see the output"
    report = msgspec.json.decode(done.stdout, type=Report)
    print(f"{_database_of(place)}: {report}")
    return report


def _database_of(place: LedgerAddress) -> str:
    return place.url.partition(":")[0]


def kills_on(place: LedgerAddress) -> int:
    return round(KILLS * SHARE[_database_of(place)])


def test_agents_that_are_killed_all_finish_and_double_nothing_when_the_world_can_be_asked(
    place: LedgerAddress, seed: int
) -> None:
    report = report_of(place, seed, kills_on(place), "verified", "kill")

    assert report.duplicates == 0
    assert report.reviews == 0
    assert report.finished % AGENTS == 0
    assert report.effects == report.finished * EFFECTS
    assert report.hit_runs > report.blows / 2
    assert report.hit_effects > report.blows / 3


def test_agents_that_are_killed_leave_every_effect_that_cannot_be_asked_about_to_a_person(
    place: LedgerAddress, seed: int
) -> None:
    report = report_of(place, seed, kills_on(place), "opaque", "kill")

    assert report.duplicates == 0
    assert report.verified == 0
    assert report.effects == report.finished * EFFECTS
    assert report.hit_runs > report.blows / 2
    assert report.hit_effects > report.blows / 3
    assert report.reviews >= report.hit_effects


def test_agents_that_are_drained_leave_nothing_to_review(place: LedgerAddress, seed: int) -> None:
    report = report_of(place, seed, DRAINS, "opaque", "drain")

    assert report.duplicates == 0
    assert report.reviews == 0
    assert report.effects == report.finished * EFFECTS
    assert report.hit_runs > report.blows / 2


# --- frozen past its lease

# Where in its second turn a program is when its process freezes.
MOMENTS = (
    "before a step",
    "in a step",
    "before an intent",
    "before the world changes",
    "after the world changed",
    "after a world that can be asked changed",
    "before the turn ends",
    "before the end",
)
# These leave an effect whose outcome only the frozen process knows; no other can ask about the first two.
IN_REVIEW = ("before the world changes", "after the world changed")
SEEN_LATE = (*IN_REVIEW, "after a world that can be asked changed")
# So short that it has mostly lapsed by the sleeper's own clock, too, when it wakes.
SHORT_LEASE = timedelta(seconds=0.5)
TOOL_S = 1.0


def program_of(
    moment: str,
    world: HappeningsFile,
    *,
    who: str,
    gate: Callable[[], object] = lambda: None,
    told: Callable[[str], object] = lambda _line: None,
) -> hf.TaskDefinition[[], list[str]]:
    """Two turns with a step and an effect each; the gate is where it freezes."""

    def reach(place: str, turn: int) -> None:
        if (place, turn) == (moment, 2):
            gate()

    async def think(turn: int) -> str:
        reach("in a step", turn)
        return who

    async def act(turn: int) -> str:
        reach("before the world changes", turn)
        world.change(Happening(hf.idempotency_key(), MOMENTS.index(moment), str(turn)))
        reach("after the world changed", turn)
        reach("after a world that can be asked changed", turn)
        return who

    def look(turn: int) -> hf.Happened | hf.DidNotHappen:
        found = world.find(hf.idempotency_key())
        return hf.DidNotHappen() if found is None else hf.Happened(f"found in turn {turn}")

    can_be_asked = moment == "after a world that can be asked changed"
    # Another process waits as long, by a clock that does not jump, before it settles what was begun.
    tool = hf.tool(act, effect=hf.verifiable(look) if can_be_asked else hf.opaque, timeout=TOOL_S)

    @hf.task(name=moment)
    async def program(run: hf.Run) -> list[str]:
        done: hf.DurableList[str] = run.list("done", of=str)
        try:
            async for turn in run.turns(max=2):
                done.append(f"turn {turn.number}")
                reach("before a step", turn.number)
                done.append(await turn.step(think, turn.number))
                reach("before an intent", turn.number)
                done.append(await turn.tool(tool, {"turn": turn.number}))
                reach("before the turn ends", turn.number)
            reach("before the end", 2)
        except BaseException as error:
            told(type(error).__name__)
            raise
        return list(done)

    return program


@contextlib.asynccontextmanager
async def carrying(
    place: LedgerAddress, clock: Clock, tasks: Sequence[hf.TaskDefinition[..., Any]], *, lease: timedelta
) -> AsyncIterator[hf.Holdfast]:
    """What `hf.open` does, with a clock and a lease of our own."""
    store, known = place.open(clock), by_name(tasks)
    life = await hf.Life.begin(store, clock, locks=place.locks)
    worker = Worker(store, clock, life, known, lease=lease)
    await worker.take_over()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        yield hf.Holdfast(store, clock, known)
        worker.stop()
    await life.end()
    store.close()


async def freeze_in_the_middle(place: LedgerAddress, moment: str, out: Pipe, thaw: Pipe) -> None:
    """The process that freezes. It stands still at the gate, its heart and all, and goes on from there."""
    be_killed_when_stuck()
    has_passed = asyncio.Event()

    def gate() -> None:
        writing: Any = holdfast.store
        with contextlib.ExitStack() as held:
            # Between two commits. (Inside one it would keep everybody else from its rows until the server
            # or the kernel loses patience; that is the database's affair, and not ours.)
            for lock in writing._writer._locks:
                held.enter_context(lock)
            out.say("frozen")
            thaw.hear()
        has_passed.set()

    world = HappeningsFile(world_path(place, 1))
    task = program_of(moment, world, who="the sleeper", gate=gate, told=out.say)
    async with carrying(place, SystemClock(), [task], lease=SHORT_LEASE) as holdfast:
        await holdfast.start(task(), key=moment)
        await has_passed.wait()
    out.say("woken")


# A process that has just started spares those that hold their locks for the length of its own leases.
SPARED = timedelta(seconds=3)


async def take_over(place: LedgerAddress, out: Pipe) -> None:
    """Another process carries everything as far as it can be carried without a person."""
    be_killed_when_stuck()
    world = HappeningsFile(world_path(place, 1))
    tasks = [program_of(moment, world, who="another") for moment in MOMENTS]
    async with carrying(place, Ahead(), tasks, lease=SPARED) as holdfast:
        await until_nothing_moves(holdfast, "waiting")
        for task in tasks:
            handle = await holdfast.start(task(), key=task.name)
            if await handle.status() is TaskStatus.NEEDS_REVIEW:
                out.say(task.name)


async def review_everything(place: LedgerAddress, out: Pipe) -> None:
    """A person looks at the world, and all of them finish."""
    be_killed_when_stuck()
    world = HappeningsFile(world_path(place, 1))
    tasks = [program_of(moment, world, who="another") for moment in MOMENTS]
    async with carrying(place, Ahead(), tasks, lease=DEFAULT_LEASE) as holdfast:
        handles = [await holdfast.start(task(), key=task.name) for task in tasks]
        async with asyncio.TaskGroup() as group:
            person = group.create_task(review(holdfast, world))
            for handle in handles:
                out.say(msgspec.json.encode(await handle.result()).decode())
            person.cancel()


def look(place: LedgerAddress, out: Pipe) -> None:
    store = place.open()
    contents = assert_ledger_is_whole(store)
    tables = {name: rows for name, rows in dump(store).items() if name not in BOOKKEEPING | {"boots"}}
    store.close()
    seen = [one.facts["effect_id"] for one in contents.events if one.kind is EventKind.EFFECT_SEEN_LATE]
    late = [contents.tasks[contents.effects[str(effect_id)].task_id].name for effect_id in seen]
    for line in (hashlib.sha256(repr(tables).encode()).hexdigest(), *sorted(late, key=MOMENTS.index)):
        out.say(line)


def lines_of(act: Callable[[Pipe], object]) -> list[str]:
    """Everything that another process says until it ends."""
    out = Pipe()
    pid = fork(lambda: act(out))
    lines = list(iter(out.only_hear().hear, ""))
    assert_ended_well(pid)
    out.close()
    return lines


class Sleeper:
    """A process that is frozen at one moment of its program."""

    def __init__(self, place: LedgerAddress, moment: str) -> None:
        self._out, self._thaw = Pipe(), Pipe()
        self.pid = fork(lambda: asyncio.run(freeze_in_the_middle(place, moment, self._out, self._thaw)))
        self._out.only_hear()

    def freeze(self) -> None:
        assert self._out.hear() == "frozen"
        freeze(self.pid)

    def wake(self) -> str:
        """It goes on where it was; what its program was told at its next call, if anything."""
        os.kill(self.pid, signal.SIGCONT)
        self._thaw.say("go on")
        told = "nothing"
        while (line := self._out.hear()) != "woken":
            assert line, "it died instead"
            told = line
        return told


def test_a_process_that_slept_through_its_lease_changes_nothing_but_tells_what_it_saw(
    place: LedgerAddress,
) -> None:
    with contextlib.ExitStack() as in_the_end:
        sleepers = {moment: Sleeper(place, moment) for moment in MOMENTS}
        for sleeper in sleepers.values():
            in_the_end.enter_context(killed_in_the_end(sleeper.pid))
            sleeper.freeze()
        move_the_servers_clock(place)
        in_review = lines_of(lambda out: asyncio.run(take_over(place, out)))
        rows_before, *late_before = lines_of(partial(look, place))
        told = {moment: sleeper.wake() for moment, sleeper in sleepers.items()}
        rows_after, *late_after = lines_of(partial(look, place))
    results = lines_of(lambda out: asyncio.run(review_everything(place, out)))
    happened = Counter((one.agent, one.effect) for one in HappeningsFile(world_path(place, 1)).happenings())

    assert in_review == list(IN_REVIEW)
    # Who has nothing left to write but the end is not even told that it came too late.
    assert told.pop("before the end") == "nothing"
    assert set(told.values()) <= {"ClaimLost", "Stopping", "CancelledError"}
    assert rows_after == rows_before
    assert (late_before, late_after) == ([], list(SEEN_LATE))
    assert happened == Counter({(place, turn): 1 for place in range(len(MOMENTS)) for turn in "12"})
    assert len(results) == len(MOMENTS)
    assert all(result.startswith('["turn 1","the sleeper","the sleeper","turn 2"') for result in results)


# --- the server crashes

RESTARTS = 2
BEGUN_BETWEEN = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer.start(tmp_path / "postgres") as server:
        yield server


def carry_agents(place: LedgerAddress, kind: Kind, retry_for_s: float, out: Pipe) -> None:
    write_groups.RETRY_FOR_S = retry_for_s
    asyncio.run(AgentsLife(place, 1, kind).live(say=out.say))


@pytest.mark.parametrize(("kind", "retry_for_s"), [("opaque", 30.0), ("verified", 0.01)])
def test_agents_finish_and_double_nothing_when_their_server_crashes_again_and_again(
    server: PostgresServer, quick_path: Path, kind: Kind, retry_for_s: float
) -> None:
    place = LedgerAddress(url=server.create_database(), home=quick_path)
    out = Pipe()
    child = fork(lambda: carry_agents(place, kind, retry_for_s, out))
    out.only_hear()

    for _ in range(RESTARTS):
        begun = 0
        while begun < BEGUN_BETWEEN:
            line = out.hear()
            assert line
            begun += line == "begun"
        server.stop("immediate")
        server.start_again()
    lines = list(iter(out.hear, ""))

    assert_ended_well(child)
    assert lines[-1] == "finished"
    assert lines_of(lambda out: out.say(str(check(place, 1, kind)[1]))) == ["0"]


# --- the checks themselves


@hf.task
async def child(run: hf.Run) -> str:
    return f"{await run.receive('news')}, {await run.receive('news')}"


@hf.task
async def family(run: hf.Run) -> list[str]:
    heard: hf.DurableList[str] = run.list("heard", of=str)
    one = await run.spawn(child())
    async for turn in run.turns(max=2):
        heard.append(await turn.tool(hf.tool(sail, name="sail"), {"turn": turn.number}))
        await run.send(one, "news", turn.number)
    heard.append(await one)
    return list(heard)


async def sail(turn: int) -> str:
    return f"tide {turn}"


async def contents_of_a_family(path: Path) -> Contents:
    """A ledger with a bit of everything in it, and nothing wrong."""
    place = LedgerAddress.of_file(path)
    async with hf.open(place.url, tasks=[family, child], home=place.home) as holdfast:
        handle = await holdfast.start(family())
        assert await handle.result() == ["tide 1", "tide 2", "1, 2"]
        return assert_ledger_is_whole(holdfast.store)


def with_one(contents: Contents, field: str, record_id: str, **changes: Any) -> Contents:
    """The same, but for one record of which something has changed."""
    records = dict(getattr(contents, field))
    records[record_id] = msgspec.structs.replace(records[record_id], **changes)
    return msgspec.structs.replace(contents, **{field: records})


async def test_a_ledger_in_which_something_is_wrong_is_found_wrong(quick_path: Path) -> None:
    good = await contents_of_a_family(quick_path)
    effect, *_ = good.effects.values()
    again = msgspec.structs.replace(effect, id="again", generation=2)
    parent = next(task for task in good.tasks.values() if task.name == "family")
    (younger,) = [task for task in good.tasks.values() if task.parent_task_id == parent.id]
    run, delta, mail = good.runs[effect.run_id], good.deltas[0], good.mail[0]
    step = Step(
        task_id=parent.id,
        scope=f"{good.turns[0].loop}:1",
        name="late",
        occurrence="1",
        run_id=run.id,
        seq=1,
        result=b"1",
        started_us=to_micros(parent.created_at),
        ended_us=to_micros(parent.created_at),
    )

    def waiting(waits_on: str) -> Contents:
        return with_one(
            good, "runs", run.id, status=RunStatus.WAITING, waits_on=waits_on, due_at=NEVER, ended_at=None
        )

    def replaced(**fields: Any) -> Contents:
        return msgspec.structs.replace(good, **fields)

    wrong: list[tuple[Callable[[Contents], None], Contents]] = [
        (
            invariants.assert_an_effect_is_tried_again_only_after_it_failed_for_certain,
            replaced(effects={**good.effects, again.id: again}),
        ),
        (
            invariants.assert_no_task_ends_with_an_effect_in_the_air,
            with_one(good, "effects", effect.id, status=EffectStatus.INTENT, fence=run.fence),
        ),
        (invariants.assert_what_happened_is_remembered, replaced(finished_scopes=set())),
        (invariants.assert_every_loop_has_each_of_its_turns_once, replaced(turns=good.turns[1:])),
        (invariants.assert_finished_turns_have_left_nothing_open, replaced(steps=[*good.steps, step])),
        (
            invariants.assert_every_list_is_one_unbroken_chain,
            replaced(deltas=[msgspec.structs.replace(delta, items=b'["ebb"]'), *good.deltas[1:]]),
        ),
        (invariants.assert_every_list_is_one_unbroken_chain, replaced(deltas=good.deltas[1:])),
        (
            invariants.assert_mail_is_taken_once_and_in_order,
            replaced(
                mail=[
                    msgspec.structs.replace(mail, taken_at=None),
                    msgspec.structs.replace(mail, seq=99, taken_at=mail.sent_at),
                ]
            ),
        ),
        (
            invariants.assert_every_success_has_waited_for_its_children,
            with_one(good, "tasks", younger.id, status=TaskStatus.RUNNING),
        ),
        (invariants.assert_nothing_is_stuck, waiting(f"review:{effect.id}")),
        (invariants.assert_nothing_is_stuck, waiting(f"child:{younger.id}")),
        (invariants.assert_nothing_is_stuck, waiting("children")),
        (invariants.assert_nothing_is_stuck, waiting("sleep")),
    ]

    for check_it, contents in wrong:
        check_it(good)
        with pytest.raises(AssertionError):
            check_it(contents)
