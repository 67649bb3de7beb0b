"""Forty agents change the world, twelve times each, while the process that carries them is killed or drained.

The world is a file outside the ledger, so that everything that happens twice is seen. This is the warm
parent: it has no store, no loop and no thread, so a fork of it is a new process in milliseconds.
`python -m tests.crash.agents URL HOME SEED BLOWS verified|opaque kill|drain` deals so many blows, lets a last
life work everything to its end, holds the ledger against the world, and prints a report.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

import holdfast as hf
from holdfast.app import stores
from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.effect import Effect, decode_request
from holdfast.core.events import EventKind
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.recovery import resume
from holdfast.engine.worker import worker as worker_module
from holdfast.store import Store
from holdfast.testing import FailingStore, Failpoint
from tests.crash.invariants import Contents, assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork

T = TypeVar("T")

Kind = Literal["verified", "opaque"]
Blow = Literal["kill", "drain"]

AGENTS, TURNS, EFFECTS_PER_TURN = 40, 4, 3
EFFECTS = TURNS * EFFECTS_PER_TURN
# How long a program takes to begin, a model to answer and an outside call to be made: most agents wait or
# think, and few are in the middle of an effect.
START_S, MODEL_S, CALL_S = 0.05, 0.02, 0.001
# A life ends when it has begun so many effects and a moment more, however quick the machine is.
MOST_BEGUN, MOMENT_S = 20, 0.003
# Each seventh is struck earlier, while it opens the ledger and recovers; and when that has surely ended.
EARLY_OF_SEVEN, EARLY_S = 3, {"sqlite": 0.05, "postgresql": 0.15}
# Of ten, these kill themselves at a statement; the others are killed from outside, at a moment.
FROM_INSIDE_OF_TEN = (0, 4, 7)
MAX_CALL, MAX_STATEMENT = 120, 6
# Kills here are not the fault of a run, so runs may be interrupted as often as it pleases us.
PATIENCE = 1_000_000
# What has not ended after so long is stuck.
STUCK_AFTER_S = 120
ASK_AGAIN_S = 0.05


class Happening(NamedTuple):
    """One thing that was really done."""

    key: str
    agent: int
    effect: str


class HappeningsFile:
    """Everything that ever happened, in the order it did; nothing is undone and nothing is refused."""

    # A record never crosses a page, so that no kill can cut one in two.
    RECORD_BYTES = 128

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def change(self, happening: Happening) -> None:
        record = msgspec.json.encode(happening).ljust(self.RECORD_BYTES - 1) + b"\n"
        assert os.write(self._descriptor, record) == self.RECORD_BYTES
        os.fsync(self._descriptor)

    def happenings(self) -> list[Happening]:
        records = self._path.read_bytes().splitlines(keepends=True)
        assert all(len(record) == self.RECORD_BYTES for record in records)
        return [msgspec.json.decode(record, type=Happening) for record in records]

    def find(self, key: str) -> Happening | None:
        return next((one for one in self.happenings() if one.key == key), None)


def agent_in(
    world: HappeningsFile, kind: Kind, chance: random.Random, begun: Callable[[], object] = lambda: None
) -> hf.TaskDefinition[[int], list[str]]:
    """The task of one agent: it thinks, does one thing, then two at once; and again."""

    async def think(agent: int, turn: int) -> str:
        await asyncio.sleep(chance.uniform(0, MODEL_S))
        return f"agent {agent} has an idea for turn {turn}"

    async def act(agent: int, effect: str) -> str:
        begun()
        await asyncio.sleep(chance.uniform(0, CALL_S))
        world.change(Happening(hf.idempotency_key(), agent, effect))
        await asyncio.sleep(chance.uniform(0, CALL_S))
        return f"{agent}: {effect}"

    def look(agent: int, effect: str) -> hf.Happened | hf.DidNotHappen:
        found = world.find(hf.idempotency_key())
        assert found is None or found[1:] == (agent, effect)
        return hf.DidNotHappen() if found is None else hf.Happened(f"{agent}: {effect}")

    tool = hf.tool(act, effect=hf.verifiable(look)) if kind == "verified" else act

    @hf.task(name="agent")
    async def agent(run: hf.Run, number: int) -> list[str]:
        await asyncio.sleep(chance.uniform(0, START_S))
        done: hf.DurableList[str] = run.list("done", of=str)
        async for turn in run.turns(max=TURNS):
            await turn.step(think, number, turn.number)
            done.append(await turn.tool(tool, {"agent": number, "effect": f"{turn.number} alone"}))

            async def at_once(side: str, turn: hf.Turn = turn) -> str:
                arguments = {"agent": number, "effect": f"{turn.number} {side}"}
                return await turn.tool(tool, arguments, id=side)

            async with asyncio.TaskGroup() as group:
                sides = [group.create_task(at_once(side)) for side in ("left", "right")]
            done.extend(side.result() for side in sides)
        return list(done)

    return agent


def expected_of(agent: int) -> list[str]:
    return [
        f"{agent}: {turn} {which}" for turn in range(1, TURNS + 1) for which in ("alone", "left", "right")
    ]


class AgentsLife:
    """One process: it opens the ledger, which resumes what was in flight, and works until all has ended."""

    def __init__(self, place: LedgerAddress, round_number: int, kind: Kind, seed: int = 0) -> None:
        self._place = place
        self._round = round_number
        self._kind = kind
        self._chance = random.Random(seed)
        self._world = HappeningsFile(world_path(place, round_number))

    async def live(
        self,
        *,
        say: Callable[[str], object] = lambda _line: None,
        wrapped: Callable[[Store], Store] = lambda store: store,
        has_person: bool = True,
    ) -> None:
        """Until everything has ended, or a SIGTERM asks us to stop; without a person: until nothing moves."""
        be_killed_when_stuck()
        be_patient()
        open_place = stores.open_place
        stores.open_place = lambda *args, **kwargs: wrapped(open_place(*args, **kwargs))
        is_asked_to_stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_asked_to_stop.set)
        say("began")
        task = agent_in(self._world, self._kind, self._chance, begun=lambda: say("begun"))
        async with hf.open(self._place.url, tasks=[task], home=self._place.home) as holdfast:
            keys: list[str | None] = [f"{self._round}-{number}" for number in range(AGENTS)]
            handles = await holdfast.start_many([task(number) for number in range(AGENTS)], keys=keys)
            say("working")
            if not has_person:
                await until_nothing_moves(holdfast)
                return
            stopping = is_asked_to_stop.wait()
            await _first_of(stopping, self._finish(handles), review(holdfast, self._world))
        say("stopped" if is_asked_to_stop.is_set() else "finished")

    async def _finish(self, handles: list[hf.Handle[list[str]]]) -> None:
        for number, handle in enumerate(handles):
            assert await persist(handle.result) == expected_of(number)


async def persist(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The answer, once the store is there to give it."""
    while True:
        try:
            return await call()
        except hf.StoreUnavailable:
            await asyncio.sleep(ASK_AGAIN_S)


def be_killed_when_stuck() -> None:
    """By the kernel, whatever the process is doing; the process that waits for it sees that, and fails."""
    signal.alarm(STUCK_AFTER_S)


def be_patient() -> None:
    """Suspect no run: otherwise so many kills would soon have every run in quarantine."""
    resume.SUSPECT_AFTER = resume.MAX_RESUME_ATTEMPTS = PATIENCE

    def patient(*args: Any, **options: Any) -> resume.Resumer:
        return resume.Resumer(*args, **options | {"max_idle_attempts": PATIENCE})

    vars(worker_module)["Resumer"] = patient


async def _first_of(*acts: Coroutine[Any, Any, object]) -> None:
    async with asyncio.TaskGroup() as group:
        children = [group.create_task(act) for act in acts]
        done, _ = await asyncio.wait(children, return_when=asyncio.FIRST_COMPLETED)
        for child in children:
            child.cancel()
    assert [child for child in done if not child.cancelled()]


async def review(holdfast: hf.Holdfast, world: HappeningsFile) -> None:
    """A person who looks at the world: what is there is done, what is not is to be tried again."""
    while True:
        for effect in await persist(holdfast.reviews):
            found = world.find(effect.idempotency_key)
            decision = "retry" if found is None else "done"
            result = None if found is None else f"{found.agent}: {found.effect}"
            await persist(partial(holdfast.resolve, effect.id, decision, result=result, by="ada"))
        await holdfast.store.wait_for("events", ASK_AGAIN_S)


async def until_nothing_moves(holdfast: hf.Holdfast, *also: str) -> None:
    give_up_at = time.monotonic() + STUCK_AFTER_S
    while time.monotonic() < give_up_at:
        counts = await holdfast.store.read(lambda tx: tx.events.counts("task"))
        if not any(counts.get(status) for status in ("queued", "running", "paused", *also)):
            return
        await holdfast.store.wait_for("events", ASK_AGAIN_S)
    raise AssertionError(f"after {STUCK_AFTER_S} s there is still something to do: {counts}")


def world_path(place: LedgerAddress, round_number: int) -> Path:
    return place.home / f"world-{round_number}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop did, and what the ledger says about it."""

    kind: Kind
    blow: Blow
    blows: int
    finished: int
    effects: int
    # Blows that interrupted a run at least, and those that hit the middle of an effect.
    hit_runs: int
    hit_effects: int
    # Effects whose outcome was unknown: those that the world answered for, and those that a person did.
    verified: int
    reviews: int
    duplicates: int
    seconds: float

    def __str__(self) -> str:
        per_1000, per_blow = 1000 * self.reviews / self.effects, self.reviews / self.blows
        return (
            f"{self.kind}, {self.blows} {self.blow}s ({self.hit_runs} hit runs, {self.hit_effects} effects), "
            f"{self.finished} agents finished {self.effects} effects: {self.duplicates} duplicates, "
            f"{self.verified} verified, {self.reviews} reviews = {per_1000:.0f} per 1,000 effects "
            f"or {per_blow:.1f} a {self.blow} ({self.seconds:g} s)"
        )


class Loop:
    """Deals blows to one life after another. When the agents of a round have finished, others begin."""

    def __init__(self, place: LedgerAddress, kind: Kind, blow: Blow, seed: int) -> None:
        self.blows = 0
        self.round = 1
        self._place = place
        self._kind: Kind = kind
        self._blow = blow
        self._lives = 0
        self._chance = random.Random(seed)
        self._early_s = EARLY_S[place.url.partition(":")[0]]

    def strike(self) -> None:
        pipe, seed, wrapped = Pipe(), self._chance.getrandbits(32), self._wrapping()
        life = partial(AgentsLife, self._place, self.round, self._kind, seed)
        pid = fork(lambda: asyncio.run(life().live(say=pipe.say, wrapped=wrapped)))
        pipe.only_hear()
        heard = self._let_it_live(pipe)
        self._lives += 1
        os.kill(pid, signal.SIGKILL if self._blow == "kill" else signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if "finished" in (*heard, *iter(pipe.hear, "")):
            assert doubled_in(self._place, self.round) == 0
            self.round += 1
        else:
            expected = -signal.SIGKILL if self._blow == "kill" else 0
            assert code == expected, f"a process ended with {code} and not with {expected}"
            self.blows += 1
        pipe.close()

    def _let_it_live(self, pipe: Pipe) -> list[str]:
        """Up to a moment while it recovers, or a moment after it has begun so many effects; what it said."""
        is_early, begun = self._lives % 7 == EARLY_OF_SEVEN, self._chance.randint(1, MOST_BEGUN)
        moment = self._chance.uniform(0, self._early_s if is_early else MOMENT_S)
        heard = [pipe.hear()]
        assert heard == ["began"]
        while not is_early and heard.count("begun") < begun and (line := pipe.hear()):
            heard.append(line)
        select.select([], [], [], moment)
        return heard

    def _wrapping(self) -> Callable[[Store], Store]:
        """Some lives carry their death in them: before, inside or after one of their writes."""
        if self._blow == "drain" or self._lives % 10 not in FROM_INSIDE_OF_TEN:
            return lambda store: store
        where = self._chance.choice(["before", "inside", "after"])
        point = Failpoint(
            call=self._chance.randint(1, MAX_CALL),
            where=where,  # type: ignore[arg-type] # one of them
            statement=self._chance.randint(1, MAX_STATEMENT) if where == "inside" else 0,
        )
        return lambda store: FailingStore(store, [point], act=_kill_oneself)


def _kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work_to_the_end(place: LedgerAddress, round_number: int, kind: Kind) -> None:
    assert_ended_well(fork(lambda: asyncio.run(AgentsLife(place, round_number, kind).live())))


def look_for_reviews(place: LedgerAddress, round_number: int, kind: Kind) -> None:
    """No person reviews, and nothing moves any more: what a kill left open is in review, and only that."""

    def inspect(look: Callable[[Contents], object]) -> None:
        def open_and_look() -> None:
            let_the_dead_go(place)
            store = place.open()
            look(assert_ledger_is_whole(store))
            store.close()

        assert_ended_well(fork(open_and_look))

    def wait_for_a_person() -> None:
        asyncio.run(AgentsLife(place, round_number, kind).live(has_person=False))

    left_open = place.home / "left-open"
    inspect(lambda contents: left_open.write_text("\n".join(_open_effects(contents))))
    assert_ended_well(fork(wait_for_a_person))
    inspect(lambda contents: _assert_in_review(contents, left_open.read_text().split()))


def let_the_dead_go(place: LedgerAddress) -> None:
    """A server may still be at the last commit of a process that was killed a moment ago."""
    if place.is_file:
        return
    import psycopg

    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    give_up_at = time.monotonic() + STUCK_AFTER_S
    connection: psycopg.Connection[Any]
    with psycopg.connect(place.url, autocommit=True) as connection:
        while connection.execute(others).fetchall():
            assert time.monotonic() < give_up_at, "a client is still connected"
            connection.execute("SELECT pg_sleep(0.01)")


def _open_effects(contents: Contents) -> list[str]:
    return [one.id for one in contents.effects.values() if one.status is EffectStatus.INTENT]


def _assert_in_review(contents: Contents, left_open: list[str]) -> None:
    for task in contents.tasks.values():
        assert task.status in {TaskStatus.SUCCEEDED, TaskStatus.NEEDS_REVIEW}, f"{task.id} is {task.status}"
    for effect_id in left_open:
        effect = contents.effects[effect_id]
        # Of two that were done at once, the one that was looked at first may hide the other.
        assert contents.tasks[effect.task_id].status is TaskStatus.NEEDS_REVIEW
        assert effect.status in {EffectStatus.UNKNOWN, EffectStatus.INTENT}
    in_review = {one.task_id for one in contents.effects.values() if one.status is EffectStatus.UNKNOWN}
    assert in_review == {
        task.id for task in contents.tasks.values() if task.status is TaskStatus.NEEDS_REVIEW
    }


def check(place: LedgerAddress, rounds: int, kind: Kind) -> tuple[Contents, int]:
    """All have finished, nothing that is known to the ledger is a guess; and how much was done twice."""
    store = place.open()
    contents = assert_ledger_is_whole(store, is_at_rest=True)
    store.close()
    assert contents.living_boots == set()
    assert {task.status for task in contents.tasks.values()} == {TaskStatus.SUCCEEDED}
    assert len(contents.tasks) == rounds * AGENTS
    doubted = {one.subject_id for one in contents.events if one.kind is EventKind.EFFECT_IN_DOUBT}
    for effect in contents.effects.values():
        # Whatever a dead process did not tell is settled by the world or by a person, and by nothing else.
        is_told = effect.status is EffectStatus.DONE or was_taken_back(effect)
        if kind == "opaque":
            assert is_told or (effect.review is not None and effect.id in doubted), f"{effect.id} was guessed"
        else:
            assert effect.review is None
            assert effect.id not in doubted
    keys = {one.idempotency_key: one for one in contents.effects.values()}
    for number in range(1, rounds + 1):
        for happening in HappeningsFile(world_path(place, number)).happenings():
            assert keys[happening.key].status in {EffectStatus.DONE, EffectStatus.CONFIRMED}
    return contents, sum(doubled_in(place, number) for number in range(1, rounds + 1))


def doubled_in(place: LedgerAddress, round_number: int) -> int:
    """How much of what the agents of a round did was done once too often; none of it may be missing."""
    happenings = HappeningsFile(world_path(place, round_number)).happenings()
    done = {(one.agent, one.effect) for one in happenings}
    assert len(done) == AGENTS * EFFECTS, "an effect that was saved never happened"
    return len(happenings) - len(done)


def was_taken_back(effect: Effect) -> bool:
    """A process that was told to stop said itself that it had not begun it."""
    if effect.status is not EffectStatus.FAILED or effect.outcome is None:
        return False
    return msgspec.json.decode(effect.outcome, type=Failure).kind == "not_begun"


def boots_of(effects: list[Effect]) -> set[str]:
    return {decode_request(effect.request).boot for effect in effects}


def main(url: str, home: str, seed: str, blows: str, *how: str) -> None:
    started = time.monotonic()
    kind, blow = msgspec.convert(how, tuple[Kind, Blow])
    place = LedgerAddress(url=url, home=Path(home))
    if not place.is_file:
        import holdfast.store.postgres  # noqa: F401 - a quarter of a second that no child shall pay again
    loop = Loop(place, kind, blow, int(seed))
    while loop.blows < int(blows):
        loop.strike()
    if (kind, blow) == ("opaque", "kill"):
        look_for_reviews(place, loop.round, kind)
    work_to_the_end(place, loop.round, kind)
    contents, duplicates = check(place, loop.round, kind)
    unsure = [
        one
        for one in contents.effects.values()
        if one.status is not EffectStatus.DONE and not was_taken_back(one)
    ]
    wanted = CheckpointKind.CRASH if blow == "kill" else CheckpointKind.RESTART
    report = Report(
        kind=kind,
        blow=blow,
        blows=loop.blows,
        finished=len(contents.tasks),
        effects=len(contents.tasks) * EFFECTS,
        hit_runs=len(
            {one.read_document().boot_id for one in contents.checkpoints.values() if one.kind is wanted}
        ),
        hit_effects=len(boots_of(unsure)),
        verified=sum(one.review is None for one in unsure),
        reviews=sum(one.review is not None for one in unsure),
        duplicates=duplicates,
        seconds=round(time.monotonic() - started, 1),
    )
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
