"""Forty agents call a server that misbehaves; their workers are killed and frozen, and their clocks jump.

This is the warm parent: it has no store, no loop and no thread, so a fork of it is a new worker in
milliseconds. `python -m tests.crash.chaos URL HOME SEED BLOWS` deals so many blows, lets the agents of the
last round end, holds the ledger against the server's journal, and prints a report.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import mmap
import os
import random
import select
import signal
import struct
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
import msgspec

import holdfast as hf
from holdfast.core.clock import SystemClock, to_micros
from holdfast.core.effect import EffectClass
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.worker import worker as worker_module
from holdfast.engine.worker.worker import Worker
from holdfast.store import Tx
from tests.crash.agents import ASK_AGAIN_S, be_patient, let_the_dead_go, persist
from tests.crash.facts import Log, read_facts
from tests.crash.invariants import Contents, assert_ledger_is_whole, contents_of
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork
from tests.crash.provider import KEY_HEADER, LOOPBACK, Journal, provide
from tests.crash.verdict import FAILED, Ended, Evidence, Judge, Told

AGENTS, TURNS = 40, 2
# Every fourth lets a failed step end it.
BRITTLE_EVERY = 4
WORKERS, CAPACITY = 4, 14
# Whose clock is whose: the person's is the first.
PERSON, FIRST_WORKER = 0, 1
# How long an agent thinks before it does something.
THINK_S = 0.02
# How long a client waits for an answer; what the server stalls takes longer.
CALL_S = 0.4
# So short that a freeze soon outlasts it.
LEASE = timedelta(seconds=1)
# How long a tool may take. The worker that finds its effect open waits as long after the lease.
TOOL_S = 2.5
# Until then a key is used again, by a clock that jumps; after that a person is asked.
WINDOW = "1h"
# Past the lease, but not past the time at which others settle what was begun.
FREEZE_S = (1.1, 1.6)
# Past that, too. No process can tell one that wakes between its last look at the lease and the call; so
# these freeze between two callbacks of the loop, and between two commits.
LONG_FREEZE_S = (LEASE.total_seconds() + TOOL_S + 0.5, LEASE.total_seconds() + TOOL_S + 1.0)
# Between two blows.
GAP_S = (0.05, 0.3)
# At most so many of the workers are frozen at a time: the others have their work to do.
MOST_FROZEN = 2
# By how much a clock jumps. All processes that share a file share its machine's clock, and its due times; so
# there it hardly goes back. The workers on a server are on machines of their own.
FORWARD_S, BACK_S = 3600.0, 1.5
SKEW_S = 30.0
# Of all steps that book something: these fail after they have.
FICKLE = 0.05
# What has not ended after so long, although nothing strikes it, is stuck.
STUCK_AFTER_S = 60.0
# How often the warm parent looks at its children.
LOOK_S = 0.01

Blow = Literal["kill", "freeze", "long freeze", "jump"]
WEIGHTS: dict[Blow, float] = {"kill": 0.35, "freeze": 0.3, "long freeze": 0.05, "jump": 0.3}

# What an agent does in a turn: each of these once, in an order of its own, the last two at once.
SLOTS: dict[str, EffectClass] = {
    "read": EffectClass.READ,
    "idempotent": EffectClass.IDEMPOTENT,
    "keyed": EffectClass.KEYED,
    "verifiable": EffectClass.VERIFIABLE,
    "transactional": EffectClass.TRANSACTIONAL,
    "opaque": EffectClass.OPAQUE,
    # One that says of a refusal that nothing was done, and one that is called in a thread.
    "careful": EffectClass.OPAQUE,
    "threaded": EffectClass.OPAQUE,
}


# --- clocks that jump


class Clocks:
    """By how much each process's wall clock is wrong, in memory that a parent and its children share."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._shared = mmap.mmap(-1, 8 * count)

    def get(self, number: int) -> float:
        (offset_s,) = struct.unpack_from("d", self._shared, 8 * number)
        return float(offset_s)

    def set(self, number: int, offset_s: float) -> None:
        struct.pack_into("d", self._shared, 8 * number, offset_s)

    def wear(self, number: int) -> None:
        """From now on this process has that clock, wherever it looks: it is a machine whose clock is set.

        What has passed is still known to it, by the clocks that cannot be set.
        """
        now = SystemClock.now

        def wrong_now() -> datetime:
            return now() + timedelta(seconds=self.get(number))

        vars(time)["time_ns"] = lambda: to_micros(wrong_now()) * 1000
        SystemClock.now = staticmethod(wrong_now)


# --- the agents and their tools


def key_of(round_number: int, number: int) -> str:
    return f"{round_number}-{number}"


def ops_of(key: str) -> list[str]:
    """In the order in which the agent of that key notes them."""
    return [f"{key}-{turn}-{slot}" for turn in range(1, TURNS + 1) for slot in slots_of(key, turn)]


def slots_of(key: str, turn: int) -> list[str]:
    slots = list(SLOTS)
    random.Random(f"{key} {turn}").shuffle(slots)
    return slots


def is_brittle(key: str) -> bool:
    return int(key.partition("-")[2]) % BRITTLE_EVERY == 0


class Tools:
    """What agents call the server with. What the clients raise, they let fly."""

    def __init__(self, port: int, client: httpx.AsyncClient, seed: int) -> None:
        self._base = f"http://{LOOPBACK}:{port}"
        self._seed = seed
        self._client = client
        # Calls that have begun and are not on their way to the server yet.
        self.sending = 0
        # Whatever the environment says: loopback is not behind a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def all(self) -> dict[str, Callable[..., Any]]:
        again, once_more = hf.retry(8, "20ms", "200ms"), hf.retry(1, "20ms")
        tool = partial(hf.tool, timeout=TOOL_S)
        return {
            "read": tool(self.read, name="read", effect=hf.read, retry=again),
            "idempotent": tool(self.put, name="put", effect=hf.idempotent, retry=again),
            "keyed": tool(self.pay, name="pay", effect=hf.keyed(WINDOW), retry=once_more),
            "verifiable": tool(
                self.mail, name="mail", effect=hf.verifiable(self.was_mailed), retry=once_more
            ),
            "transactional": tool(self.book, name="book", effect=hf.transactional),
            "opaque": tool(self.post, name="post"),
            "careful": tool(self.post_carefully, name="post_carefully"),
            "threaded": tool(self.post_in_a_thread, name="post_in_a_thread"),
        }

    async def read(self, op: str) -> str:
        return await self._call("GET", "read", op)

    async def put(self, op: str) -> str:
        return await self._call("PUT", "idempotent", op)

    async def pay(self, op: str) -> str:
        return await self._call("POST", "keyed", op, hf.idempotency_key(), is_careful=True)

    async def mail(self, op: str) -> str:
        return await self._call("POST", "verifiable", op, hf.idempotency_key())

    async def was_mailed(self, op: str) -> hf.Happened | hf.DidNotHappen:
        return hf.Happened(f"mailed {op}") if await self.truth(op) else hf.DidNotHappen()

    async def post(self, op: str) -> str:
        return await self._call("POST", "opaque", op, hf.idempotency_key())

    async def post_carefully(self, op: str) -> str:
        return await self._call("POST", "opaque", op, hf.idempotency_key(), is_careful=True)

    def post_in_a_thread(self, op: str) -> str:
        request = urllib.request.Request(
            f"{self._base}/opaque/{op}", data=b"", headers={KEY_HEADER: hf.idempotency_key()}, method="POST"
        )
        with self._opener.open(request, timeout=CALL_S) as answer:
            return str(json.load(answer)["did"])

    def book(self, tx: hf.Transaction, op: str) -> str:
        tx.execute("INSERT INTO bookings (op) VALUES (:op)", {"op": op})
        if random.Random(f"{self._seed} {op}").random() < FICKLE:
            raise ValueError("it has changed its mind")
        return f"booked {op}"

    async def truth(self, op: str) -> int:
        """How often it was performed, says the server, which does not misbehave here."""
        answer = await self._client.get(f"{self._base}/truth/{op}", timeout=STUCK_AFTER_S)
        return int(answer.json()["performed"])

    async def _call(
        self, method: str, route: str, op: str, key: str = "", *, is_careful: bool = False
    ) -> str:
        headers = {KEY_HEADER: key} if key else {}
        answer = await self._request(method, f"{self._base}/{route}/{op}", headers)
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise hf.RetryAfter(float(answer.headers["retry-after"]))
        if is_careful and answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise hf.NotDone("the server has refused it")
        answer.raise_for_status()
        return str(answer.json()["did"])

    async def _request(self, method: str, url: str, headers: dict[str, str]) -> httpx.Response:
        is_sent = False

        async def trace(event: str, _facts: object) -> None:
            nonlocal is_sent
            if event == "http11.send_request_body.complete" and not is_sent:
                is_sent = True
                self.sending -= 1

        self.sending += 1
        try:
            return await self._client.request(method, url, headers=headers, extensions={"trace": trace})
        finally:
            if not is_sent:
                self.sending -= 1


@hf.transactional
def make_table(tx: hf.Transaction) -> None:
    tx.execute("CREATE TABLE bookings (op TEXT)")


@hf.task(name="prepare")
async def prepare(run: hf.Run) -> None:
    await run.step(make_table)


def agent_with(
    tools: Mapping[str, Callable[..., Any]],
    *,
    acknowledge: Callable[[Told], object],
    chance: random.Random,
) -> hf.TaskDefinition[[str], int]:
    """One task for each agent. As a model would, most of them note a failure and go on."""

    @hf.task(name="agent", attempts=3, backoff="10ms")
    async def agent(run: hf.Run, key: str) -> int:
        told: hf.DurableList[Told] = run.list("told", of=Told)

        async def do(turn: hf.Turn, slot: str) -> Told:
            await asyncio.sleep(chance.uniform(0, THINK_S))
            op = f"{key}-{turn.number}-{slot}"
            try:
                outcome = str(await turn.tool(tools[slot], {"op": op}, id=op))
            except hf.StepFailed as failed:
                if is_brittle(key):
                    raise
                outcome = f"{FAILED}{failed.kind}"
            acknowledge(Told(op, outcome))
            return Told(op, outcome)

        async for turn in run.turns(max=TURNS):
            *alone, left, right = slots_of(key, turn.number)
            for slot in alone:
                told.append(await do(turn, slot))
            async with asyncio.TaskGroup() as group:
                sides = [group.create_task(do(turn, slot)) for slot in (left, right)]
            told.extend(side.result() for side in sides)
        return len(told)

    return agent


# --- the processes


class Scene(NamedTuple):
    """What every process is given."""

    place: LedgerAddress
    clocks: Clocks
    port: int
    seed: int

    @property
    def facts(self) -> Path:
        return self.place.home / "facts"

    @contextlib.asynccontextmanager
    async def tools(self) -> AsyncIterator[Tools]:
        async with httpx.AsyncClient(timeout=CALL_S, verify=False, trust_env=False) as client:
            yield Tools(self.port, client, self.seed)


async def work(scene: Scene, number: int, seed: int) -> None:
    """A worker: it carries agents until a SIGTERM; on a SIGUSR1 it freezes, as soon as it may."""
    be_patient()
    workers = have_short_leases()
    scene.clocks.wear(number)
    # That an agent failed, a lease lapsed or a clock is wrong is what all of this is for.
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    loop, log, is_asked_to_stop = asyncio.get_running_loop(), Log(scene.facts), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, is_asked_to_stop.set)
    async with scene.tools() as tools:
        task = agent_with(
            tools.all(),
            acknowledge=lambda told: log.write("told", name=told.op, value=told.outcome),
            chance=random.Random(seed),
        )
        async with hf.open(
            scene.place.url, tasks=[task], home=scene.place.home, capacity=CAPACITY
        ) as holdfast:
            loop.add_signal_handler(signal.SIGUSR1, freeze_when_calm, holdfast.store, workers[0], tools)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            await is_asked_to_stop.wait()


def have_short_leases() -> list[Worker]:
    """Whatever `hf.open` carries with in this process, which is in the list afterwards."""
    made: list[Worker] = []

    def carrying(*args: Any, **options: Any) -> Worker:
        made.append(Worker(*args, **options | {"lease": LEASE}))
        return made[-1]

    vars(worker_module)["Worker"] = carrying
    return made


def freeze_when_calm(store: Any, worker: Any, tools: Tools) -> None:
    """Nothing is being sent, and nothing committed. A worker that is frozen inside a call, before its request
    is on its way, sends it when it wakes: no class of effects can do anything about that, says the guide."""
    if worker._threads.busy or tools.sending:
        asyncio.get_running_loop().call_later(LOOK_S, freeze_when_calm, store, worker, tools)
        return
    with contextlib.ExitStack() as held:
        for lock in store._writer._locks:
            held.enter_context(lock)
        os.kill(os.getpid(), signal.SIGSTOP)


async def begin_and_review(scene: Scene, say: Callable[[str], object], hear: Callable[[], str]) -> None:
    """The person: starts the agents of one round after another, and decides what no program can tell.

    What the server has performed is done; what it has not is to be tried again, or is left out.
    """
    scene.clocks.wear(PERSON)
    log, round_number = Log(scene.facts), 0
    task = agent_with({}, acknowledge=lambda _told: None, chance=random.Random())
    async with scene.tools() as tools, hf.open(scene.place.url, home=scene.place.home) as holdfast:
        while hear() == "more":
            round_number += 1
            names = [key_of(round_number, number) for number in range(AGENTS)]
            keys: list[str | None] = [*names]
            await persist(partial(holdfast.start_many, [task(key) for key in names], keys=keys))
            log.write("started", value=round_number)
            while not await persist(partial(have_all_ended, holdfast)):
                for effect in await persist(holdfast.reviews):
                    await decide(holdfast, effect, tools, log, scene.seed)
                await holdfast.store.wait_for("events", ASK_AGAIN_S)
            say("ended")


async def have_all_ended(holdfast: hf.Holdfast) -> bool:
    """Also nothing is in review."""

    def look(tx: Tx) -> bool:
        counts = tx.events.counts("task")
        return sum(counts.values()) == sum(counts.get(status, 0) for status in ("succeeded", "failed"))

    return await holdfast.store.read(look) and not await holdfast.reviews()


async def decide(holdfast: hf.Holdfast, effect: Any, tools: Tools, log: Log, seed: int) -> None:
    op = effect.occurrence.removeprefix("id:")
    if await tools.truth(op):
        decision, result = "done", f"found {op}"
    else:
        is_left_out = random.Random(f"{seed} {op}").random() < 0.2
        decision, result = "skip" if is_left_out else "retry", None
    await persist(partial(holdfast.resolve, effect.id, decision, result=result, by="ada"))
    log.write("decided", name=effect.id, value=decision)


class WorkerProcess:
    """One worker as its parent sees it."""

    def __init__(self, scene: Scene, number: int, seed: int) -> None:
        self.number = number
        self.pid = fork(lambda: asyncio.run(work(scene, number, seed)))
        # How long it shall stay frozen once it is; and until when it does.
        self.freeze_s: float | None = None
        self._thaw_at: float | None = None

    def look(self) -> None:
        """Whether it stands still, and long enough. One that ended by itself has found something wrong."""
        pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
        if pid and os.WIFSTOPPED(status):
            assert self.freeze_s is not None
            self._thaw_at = time.monotonic() + self.freeze_s
        elif pid:
            raise AssertionError(f"a worker ended by itself, with {os.waitstatus_to_exitcode(status)}")
        if self._thaw_at is not None and time.monotonic() >= self._thaw_at:
            self.freeze_s = self._thaw_at = None
            os.kill(self.pid, signal.SIGCONT)

    def freeze(self, seconds: float, *, is_gentle: bool) -> None:
        self.freeze_s = seconds
        os.kill(self.pid, signal.SIGUSR1 if is_gentle else signal.SIGSTOP)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGTERM)
        assert_ended_well(self.pid)


class AgentsStuck(Exception):
    """Nothing strikes the agents any more, and yet they do not end."""


class Storm:
    """Deals blows to workers, one after another, while agents work; then lets all of them end."""

    def __init__(self, place: LedgerAddress, seed: int) -> None:
        self.rounds = 0
        self.dealt: Counter[Blow] = Counter()
        self._chance = random.Random(seed)
        self._clocks = Clocks(FIRST_WORKER + WORKERS)
        if not place.is_file:
            for number in range(self._clocks.count):
                self._clocks.set(number, self._chance.uniform(-SKEW_S, SKEW_S))
        journal, port = journal_of(place), Pipe()
        self._provider = fork(lambda: provide(journal, seed, lambda number: port.say(str(number))))
        self._scene = Scene(place, self._clocks, int(port.only_hear().hear()), seed)
        port.close()
        assert_ended_well(fork(lambda: asyncio.run(make_ready(place))))
        self._said, self._asked = Pipe(), Pipe()
        self._person = fork(
            lambda: asyncio.run(begin_and_review(self._scene, self._said.say, self._asked.hear))
        )
        self._said.only_hear()
        self._workers = [self._begin(FIRST_WORKER + number) for number in range(WORKERS)]

    def _begin(self, number: int) -> WorkerProcess:
        return WorkerProcess(self._scene, number, self._chance.getrandbits(32))

    def rage(self, blows: int) -> None:
        """Until so many were dealt, and the agents that were at it then have ended."""
        self._asked.say("more")
        strike_at = calm_since = time.monotonic()
        while True:
            for worker in self._workers:
                worker.look()
            if self._has_ended():
                self.rounds += 1
                if self.dealt.total() >= blows:
                    break
                self._asked.say("more")
            now = time.monotonic()
            if self.dealt.total() < blows:
                calm_since = now
                if now >= strike_at:
                    self._strike()
                    strike_at = now + self._chance.uniform(*GAP_S)
            if now > calm_since + STUCK_AFTER_S:
                raise AgentsStuck

    def _has_ended(self) -> bool:
        """Waits a moment for the person's word."""
        if not select.select([self._said.reading], [], [], LOOK_S)[0]:
            return False
        assert self._said.hear() == "ended", "the person is gone"
        return True

    def _strike(self) -> None:
        # Each kind has been dealt once before one is dealt again, so that no storm is without one.
        kinds = [blow for blow in WEIGHTS if not self.dealt[blow]] or list(WEIGHTS)
        (blow,) = self._chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])
        worker = self._chance.choice(self._workers)
        match blow:
            case "kill":
                worker.kill()
                self._workers[worker.number - FIRST_WORKER] = self._begin(worker.number)
            case "jump":
                self._jump(worker)
            case "freeze" | "long freeze":
                is_frozen = [one.freeze_s is not None for one in self._workers]
                if worker.freeze_s is not None or sum(is_frozen) >= MOST_FROZEN:
                    return
                is_long = blow == "long freeze"
                seconds = self._chance.uniform(*(LONG_FREEZE_S if is_long else FREEZE_S))
                worker.freeze(seconds, is_gentle=is_long)
        self.dealt[blow] += 1

    def _jump(self, worker: WorkerProcess) -> None:
        # As many jumps by a second as by an hour.
        far = FORWARD_S ** self._chance.random()
        if self._scene.place.is_file:
            by_s = far if self._chance.random() < 0.7 else -self._chance.uniform(0, BACK_S)
            for number in range(self._clocks.count):
                self._clocks.set(number, self._clocks.get(number) + by_s)
        else:
            self._clocks.set(worker.number, self._chance.choice([1, -1]) * far)

    def calm(self) -> None:
        """Everything ends well, and nothing is left running."""
        self._asked.say("enough")
        assert_ended_well(self._person)
        for worker in self._workers:
            worker.end()
        os.kill(self._provider, signal.SIGKILL)
        os.waitpid(self._provider, 0)


async def make_ready(place: LedgerAddress) -> None:
    async with hf.open(place.url, tasks=[prepare], home=place.home) as holdfast:
        await (await holdfast.start(prepare())).result()


def journal_of(place: LedgerAddress) -> Journal:
    return Journal(place.home / "arrivals")


# --- afterwards


class ByClass(msgspec.Struct, frozen=True, kw_only=True):
    effects: int
    performed: int
    reviews: int

    @property
    def per_1000(self) -> float:
        return 1000 * self.reviews / self.effects


class StormReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a storm did, and what the ledger says about it."""

    blows: dict[str, int]
    agents: int
    failed_agents: int
    seconds: float
    by_class: dict[str, ByClass]

    def __str__(self) -> str:
        blows = ", ".join(f"{count} {blow}s" for blow, count in sorted(self.blows.items()))
        effects = sum(one.effects for one in self.by_class.values())
        did = f"{self.agents} agents ended ({self.failed_agents} by a failure) with {effects} effects"
        lines = [
            f"{blows}; {did} in {self.seconds:g} s: silent repeats 0, lost 0",
            f"{'class':<14}{'effects':>9}{'performed':>11}{'reviews':>9}{'per 1,000':>11}",
        ]
        for name, one in self.by_class.items():
            lines.append(
                f"{name:<14}{one.effects:>9,}{one.performed:>11,}{one.reviews:>9,}{one.per_1000:>11.1f}"
            )
        return "\n".join(lines)


def evidence_of(
    place: LedgerAddress, seed: int, rounds: int, contents: Contents, bookings: Counter[str]
) -> Evidence:
    keys = [key_of(number, agent) for number in range(1, rounds + 1) for agent in range(AGENTS)]
    facts = read_facts(place.home / "facts")
    assert [fact.value for fact in facts if fact.kind == "started"] == list(range(1, rounds + 1))
    tasks = {task.dedup_key: task for task in contents.tasks.values()}
    lists: dict[str, list[Told]] = {}
    for delta in sorted(contents.deltas, key=lambda one: one.start):
        lists.setdefault(delta.task_id, []).extend(msgspec.json.decode(delta.items, type=list[Told]))
    return Evidence(
        seed=seed,
        classes={op: SLOTS[op.rpartition("-")[2]] for key in keys for op in ops_of(key)},
        arrivals=journal_of(place).arrivals(),
        effects=[one for one in contents.effects.values() if one.occurrence.startswith("id:")],
        bookings=bookings,
        agents={
            key: Ended(
                status=tasks[key].status,
                is_brittle=is_brittle(key),
                ops=ops_of(key),
                told=lists.get(tasks[key].id, []),
                failure=str(tasks[key].failure),
            )
            for key in keys
        },
        acknowledged=[Told(fact.name, str(fact.value)) for fact in facts if fact.kind == "told"],
        decided={fact.name: str(fact.value) for fact in facts if fact.kind == "decided"},
    )


def what_is_stuck(seed: int, contents: Contents) -> str:
    """The tasks that have not ended, their last runs, and the effects that are open."""
    lines = [f"HOLDFAST_SEED={seed}: these do not end, by a clock that says {SystemClock.now()}"]
    for task in contents.tasks.values():
        if task.has_ended:
            continue
        *_, run = contents.runs_of(task.id)
        lines.append(
            f"{task.dedup_key} ({task.id}) is {task.status}; {run.id} is {run.status} in {run.queue}, waits "
            f"on {run.waits_on}, due {run.due_at}, held by {run.claimed_by} until {run.lease_until}"
        )
        for effect in contents.effects.values():
            if effect.task_id == task.id and effect.status in {EffectStatus.INTENT, EffectStatus.UNKNOWN}:
                after = effect.settle_after
                lines.append(
                    f"    {effect.occurrence} ({effect.id}) is {effect.status}, settle after {after}"
                )
    return "\n".join(lines)


def booked(tx: Tx) -> Counter[str]:
    rows = tx.statements.lend(lambda execute: list(execute("SELECT op FROM bookings", None)))
    return Counter(op for (op,) in rows)


def report_of(evidence: Evidence, judge: Judge, dealt: Mapping[Blow, int], seconds: float) -> StormReport:
    ops: Counter[EffectClass] = Counter(evidence.classes.values())
    reviews = Counter(one.effect_class for one in evidence.effects if one.review is not None)
    performed: Counter[EffectClass] = Counter()
    for op, effect_class in evidence.classes.items():
        performed[effect_class] += judge.performed(op)
    return StormReport(
        blows={str(blow): count for blow, count in dealt.items()},
        agents=len(evidence.agents),
        failed_agents=sum(one.status is TaskStatus.FAILED for one in evidence.agents.values()),
        seconds=round(seconds, 1),
        by_class={
            str(one): ByClass(effects=ops[one], performed=performed[one], reviews=reviews[one])
            for one in EffectClass
        },
    )


def main(url: str, home: str, seed: str, blows: str) -> None:
    started = time.monotonic()
    place = LedgerAddress(url=url, home=Path(home))
    if not place.is_file:
        import holdfast.store.postgres  # noqa: F401 - a quarter of a second that no child shall pay again
    # Blocked in all our children, until they know what to do about it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    storm = Storm(place, int(seed))
    try:
        storm.rage(int(blows))
    except AgentsStuck:
        sys.exit(what_is_stuck(int(seed), contents_of(place.open())))
    storm.calm()
    let_the_dead_go(place)
    store = place.open()
    evidence = evidence_of(place, int(seed), storm.rounds, contents_of(store), store.write_now(booked))
    judge = Judge(evidence)
    wrongs = judge.wrongs()
    if wrongs:
        sys.exit(judge.story(wrongs))
    contents = assert_ledger_is_whole(store, is_at_rest=True)
    store.close()
    assert contents.living_boots == set()
    report = report_of(evidence, judge, storm.dealt, time.monotonic() - started)
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
