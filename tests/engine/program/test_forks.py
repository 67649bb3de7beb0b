"""Forks: another task goes on from the end of a turn, with the past of then; no effect is passed silently."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.core.errors import EffectsInTheWay
from holdfast.core.events import EventKind
from holdfast.core.program_records import TurnMarks
from holdfast.core.transitions import TaskStatus
from holdfast.engine.program.forks import forking, kept_of, look_at
from holdfast.store import Store
from holdfast.store.blobs import INLINE_BYTES
from holdfast.store.sealing import CLOSED
from holdfast.testing import FakeClock, RepeatingStore
from tests.engine.tables import dump
from tests.engine.workers import Process, carrying, soon

LARGE = "tide " * INLINE_BYTES


class CodeOfToday:
    """What the programs of one test share with it: what was done, and what the code of today says."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.suffix = ""
        self.turns = 5


@pytest.fixture
def code() -> CodeOfToday:
    return CodeOfToday()


@pytest.fixture(autouse=True)
def ticking(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes with every look at the clock, as it does outside of tests."""
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: clock.advance(milliseconds=1) or now())


def agent_of(code: CodeOfToday) -> hf.TaskDefinition[..., str]:
    """An agent with a list, steps before the loop, and one step a turn."""

    async def think(words: list[str]) -> str:
        code.done.append(f"think {len(words)}{code.suffix}")
        return f"thought {len(words)}{code.suffix}"

    async def prepare(topic: str) -> str:
        code.done.append(f"prepare {topic}")
        return f"about {topic}"

    async def sum_up(words: list[str]) -> str:
        code.done.append("sum up")
        return " / ".join(words)

    @hf.task(name="agent")
    async def agent(run: hf.Run, topic: str) -> str:
        words = run.list("words", [await run.step(prepare, topic)])
        async for turn in run.turns(max=code.turns):
            words.append(await turn.step(think, words))
        summary = run.list("summary", ["in short"])
        summary.append(await run.step(sum_up, words))
        return " | ".join(summary)

    return agent


async def result_of(process: Process, handle: hf.Handle[Any]) -> Any:
    return await soon(handle.result())


# --- what a fork begins with


async def test_a_fork_goes_on_after_the_turn_with_what_was_there_then(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        original = await result_of(process, first)
        before = {name: rows for name, rows in dump(store).items() if name not in GROWING}
        code.done.clear()
        code.suffix = "!"
        forked = await process.holdfast.fork(first, at="turn:3")
        again = await result_of(process, forked)

    assert original == ("in short | about tides / thought 1 / thought 2 / thought 3 / thought 4 / thought 5")
    assert again == "in short | about tides / thought 1 / thought 2 / thought 3 / thought 4! / thought 5!"
    assert code.done == ["think 4!", "think 5!", "sum up"]
    after = dump(store)
    assert {name: [row for row in after[name] if row in rows] for name, rows in before.items()} == before


# Tables to which the fork itself, and the worker that carries it, adds rows; and those that count.
GROWING = {"counters", "ledger_events", "ledger_facts", "boots", "runs", "commit_receipts"}


async def test_a_fork_from_the_start_has_no_past_and_the_same_arguments(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"), goal="know the sea")
        await result_of(process, first)
        code.done.clear()
        forked = await process.holdfast.fork(first, at="start")

        assert await result_of(process, forked) == await result_of(process, first)
        assert (await forked.task()).goal == "know the sea"
    assert code.done[0] == "prepare tides"


async def test_a_fork_says_where_it_came_from(store: Store, clock: FakeClock, code: CodeOfToday) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turns:2")
        await result_of(process, forked)
        events = await forked.events()

    (event,) = [event for event in events if event.kind is EventKind.TASK_FORKED]
    assert event.facts == {"source": first.id, "place": "turns:2", "effects": "refuse", "passed": []}


async def test_the_same_key_forks_once(store: Store, clock: FakeClock, code: CodeOfToday) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        await result_of(process, first)
        forks = [await process.holdfast.fork(first, at="turn:2", key="again") for _ in range(2)]

        assert forks[0].id == forks[1].id
        await result_of(process, forks[0])


async def test_a_fork_of_a_fork_can_go_back_further(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        await result_of(process, first)
        second = await process.holdfast.fork(first, at="turn:4")
        await result_of(process, second)
        code.done.clear()
        third = await process.holdfast.fork(second, at="turn:1")
        await result_of(process, third)

    assert [note for note in code.done if note.startswith("think")] == [f"think {n}" for n in (2, 3, 4, 5)]


async def test_large_items_are_shared_and_outlive_the_source(store: Store, clock: FakeClock) -> None:
    @hf.task
    async def heavy(run: hf.Run) -> int:
        pages: hf.DurableList[str] = run.list("pages")
        async for turn in run.turns(max=3):
            pages.append(await turn.step(hf.step(large, id=str(turn.number)), turn.number))
        return sum(map(len, pages))

    async def large(number: int) -> str:
        return LARGE + str(number)

    async with carrying(store, clock, heavy) as process:
        first = await process.holdfast.start(heavy())
        length = await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turn:2")

        assert await result_of(process, forked) == length
    assert store.verify() == []


async def test_a_running_task_can_be_forked_and_goes_on_itself(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    reached, door = asyncio.Event(), asyncio.Event()

    async def wait(number: int) -> int:
        if number == 3:
            reached.set()
            await door.wait()
        return number

    @hf.task
    async def counter(run: hf.Run) -> list[int]:
        seen: hf.DurableList[int] = run.list("seen")
        async for turn in run.turns(max=4):
            seen.append(await turn.step(wait, turn.number))
        return list(seen)

    async with carrying(store, clock, counter) as process:
        first = await process.holdfast.start(counter())
        await soon(reached.wait())
        forked = await process.holdfast.fork(first, at="turn:2")
        door.set()

        assert await result_of(process, first) == [1, 2, 3, 4]
        assert await result_of(process, forked) == [1, 2, 3, 4]


async def test_the_items_of_a_plan_that_were_not_done_then_are_not_done_in_the_fork(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    async def do(item: str) -> None:
        code.done.append(item)

    @hf.task
    async def build(run: hf.Run) -> list[str]:
        async for item in run.plan(["dig", "pour", "raise"]):
            await item.step(do, item.id)
        return list(code.done)

    async with carrying(store, clock, build) as process:
        first = await process.holdfast.start(build())
        await result_of(process, first)
        code.done.clear()
        forked = await process.holdfast.fork(first, at="plan:dig")

        assert await result_of(process, forked) == ["pour", "raise"]


def builder_of(code: CodeOfToday, *, after: str) -> hf.TaskDefinition[..., list[str]]:
    """A plan of three items that changes at one of them; then a loop beside the plan."""

    async def do(item: str) -> str:
        code.done.append(item)
        return item

    @hf.task(name="build")
    async def build(run: hf.Run) -> list[str]:
        plan = run.plan(["dig", "pour", "raise"])
        async for item in plan:
            await item.step(do, item.id)
            if item.id == after == "dig":
                plan.replan(["drain", "fill"])
            if item.id == after == "pour":
                item.decompose(["stir", "smooth"])
        async for turn in run.turns(max=2):
            await turn.step(do, f"look {turn.number}")
        return [item.id for item in plan.items]

    return build


@pytest.mark.parametrize(
    ("after", "at", "done", "planned"),
    [
        # Changed at `pour`, forked before: the fork comes to the change by itself.
        ("pour", "plan:dig", ["pour", "stir", "smooth", "raise"], ["dig", "pour", "stir", "smooth", "raise"]),
        # Changed at `dig`, forked right after it: the change belongs to that turn.
        ("dig", "plan:dig", ["drain", "fill"], ["dig", "drain", "fill"]),
        ("pour", "plan:stir", ["smooth", "raise"], ["dig", "pour", "stir", "smooth", "raise"]),
        # At a turn of another loop the plan is as that loop found it.
        ("pour", "turns:1", [], ["dig", "pour", "stir", "smooth", "raise"]),
    ],
)
async def test_a_plan_is_taken_as_it_was_then(
    store: Store,
    clock: FakeClock,
    code: CodeOfToday,
    after: str,
    at: str,
    done: list[str],
    planned: list[str],
) -> None:
    build = builder_of(code, after=after)
    async with carrying(store, clock, build) as process:
        first = await process.holdfast.start(build())
        await result_of(process, first)
        code.done.clear()
        forked = await process.holdfast.fork(first, at=at)

        assert await result_of(process, forked) == planned
    looks = ["look 2"] if at == "turns:1" else ["look 1", "look 2"]
    assert code.done == [*done, *looks]


async def test_what_was_planned_anew_after_that_turn_does_not_show_in_the_fork(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    changing, calm = builder_of(code, after="pour"), builder_of(code, after="never")
    async with carrying(store, clock, changing) as process:
        first = await process.holdfast.start(changing())
        await result_of(process, first)
    code.done.clear()
    async with carrying(store, clock, calm) as process:
        forked = await process.holdfast.fork(first.id, at="plan:dig")

        assert await result_of(process, forked) == ["dig", "pour", "raise"]
        of_fork = await process.holdfast.fork(forked, at="plan:dig")
        assert await result_of(process, of_fork) == ["dig", "pour", "raise"]


async def test_a_plan_that_is_not_known_any_more_is_refused(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    build = builder_of(code, after="pour")
    async with carrying(store, clock, build) as process:
        first = await process.holdfast.start(build())
        await result_of(process, first)
    source = store.read_now(lambda tx: look_at(tx, first.id, "plan:dig"))

    with pytest.raises(hf.Refused, match="it is no longer known what it was then; fork at a later turn"):
        kept_of(msgspec.structs.replace(source, plan=None), CLOSED)


async def test_loops_before_and_after_the_turn_are_told_apart(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    async def work(name: str) -> str:
        code.done.append(name)
        return name

    @hf.task
    async def phases(run: hf.Run) -> list[str]:
        notes: hf.DurableList[str] = run.list("notes")
        async for turn in run.turns("gather", max=2):
            notes.append(await turn.step(work, f"gather {turn.number}"))
        extra = run.list("extra", ["between"])
        async for turn in run.turns("write", max=3):
            extra.append(await turn.step(work, f"write {turn.number}"))
        return [*notes, *extra]

    async with carrying(store, clock, phases) as process:
        first = await process.holdfast.start(phases())
        whole = await result_of(process, first)
        code.done.clear()
        in_second = await process.holdfast.fork(first, at="write:1")
        second = await result_of(process, in_second)
        done_in_second = list(code.done)
        code.done.clear()
        in_first = await process.holdfast.fork(first, at="gather:1")

        assert whole == second == await result_of(process, in_first)
    assert done_in_second == ["write 2", "write 3"]
    assert code.done == ["gather 2", "write 1", "write 2", "write 3"]


async def test_mail_that_lay_in_the_box_then_lies_in_the_fork_s(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    @hf.task
    async def reader(run: hf.Run) -> list[str]:
        read: hf.DurableList[str] = run.list("read")
        async for _turn in run.turns(max=3):
            read.append(await run.receive("news"))
        return list(read)

    async with carrying(store, clock, reader) as process:
        first = await process.holdfast.start(reader())
        for text in ("one", "two", "three"):
            await first.send("news", text)
        await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turn:1")
        await forked.send("news", "four")

        assert await result_of(process, forked) in (["one", "two", "three"], ["one", "two", "four"])


async def test_a_value_that_was_not_changed_since_is_taken_along(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    counted = counting(change_until=2)
    async with carrying(store, clock, counted) as process:
        first = await process.holdfast.start(counted())
        await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turn:3")

        assert await result_of(process, forked) == "2 with 4 turns"


async def test_a_value_that_was_changed_since_cannot_be_known(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    counted = counting(change_until=4)
    async with carrying(store, clock, counted) as process:
        first = await process.holdfast.start(counted())
        await result_of(process, first)

        with pytest.raises(hf.Refused, match="value best was changed after turn 2"):
            await process.holdfast.fork(first, at="turn:2")


def counting(*, change_until: int) -> hf.TaskDefinition[[], str]:
    @hf.task(name="counting")
    async def counted(run: hf.Run) -> str:
        best = run.value("best", 0)
        turns: hf.DurableList[int] = run.list("turns")
        async for turn in run.turns(max=4):
            turns.append(turn.number)
            if turn.number <= change_until:
                best.set(turn.number)
        return f"{best.get()} with {len(turns)} turns"

    return counted


async def test_the_write_of_a_fork_may_run_a_second_time_after_its_own_commit(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        await result_of(process, first)
    source = store.read_now(lambda tx: look_at(tx, first.id, "turn:2"))
    write = forking(
        source, kept_of(source, CLOSED), at="turn:2", way="refuse", passed=[], key=None, now=clock.now()
    )

    task = await RepeatingStore(store).write(write)

    assert task.status is TaskStatus.QUEUED


# --- what is refused


@pytest.mark.parametrize("at", ["turn:9", "nowhere:1", "turn", "", "turns:1/inner:2", None, 12])
async def test_a_turn_that_is_not_there_is_refused_with_those_that_are(
    store: Store, clock: FakeClock, code: CodeOfToday, at: Any
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        await result_of(process, first)

        with pytest.raises(hf.BadInput, match="at: "):
            await process.holdfast.fork(first, at=at)


async def test_a_task_that_is_not_there_is_not_found(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    async with carrying(store, clock, agent_of(code)) as process:
        with pytest.raises(hf.NotFound):
            await process.holdfast.fork("task_0123456789abcdefghjkmnpqrs", at="start")


async def test_the_last_turn_of_a_loop_that_was_left_has_nothing_after_it(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    @hf.task
    async def leaver(run: hf.Run) -> int:
        async for turn in run.turns():
            if turn.number == 3:
                return turn.number
        return 0

    async with carrying(store, clock, leaver) as process:
        first = await process.holdfast.start(leaver())
        await result_of(process, first)

        with pytest.raises(hf.Refused, match="nothing comes after it"):
            await process.holdfast.fork(first, at="turn:3")
        assert await result_of(process, await process.holdfast.fork(first, at="turn:2")) == 3


async def test_a_child_that_is_still_at_work_keeps_its_parent_from_being_forked(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    door, reached = asyncio.Event(), asyncio.Event()

    @hf.task
    async def child(run: hf.Run) -> str:
        await door.wait()
        return "grown"

    @hf.task
    async def parent(run: hf.Run) -> str:
        one = await run.spawn(child())
        async for _turn in run.turns(max=2):
            pass
        reached.set()
        return await one

    async with carrying(store, clock, parent, child) as process:
        first = await process.holdfast.start(parent())
        await soon(reached.wait())
        with pytest.raises(hf.Refused, match="has not ended"):
            await process.holdfast.fork(first, at="turn:1")
        door.set()
        await result_of(process, first)

        assert await result_of(process, await process.holdfast.fork(first, at="turn:1")) == "grown"


async def test_a_clock_that_went_backwards_is_no_reason_to_guess(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))
        await result_of(process, first)
    (turn,) = store.read_now(lambda tx: tx.turns.finished(first.id, "turns", after=1, limit=1))
    assert turn.marks == TurnMarks(lists={"words": 3}, loops={"turns": (2, False)}, ops=1, steps=1)
    source = store.read_now(lambda tx: look_at(tx, first.id, "turn:2"))
    (early, *_) = source.steps
    late = msgspec.structs.replace(early, name="later", ended_us=early.started_us)

    with pytest.raises(hf.Refused, match="clock went backwards"):
        kept_of(msgspec.structs.replace(source, steps=[*source.steps, late]), CLOSED)


# --- effects


def shopping(code: CodeOfToday) -> hf.TaskDefinition[[], list[str]]:
    @hf.opaque
    async def pay(what: str) -> str:
        code.done.append(f"pay {what}")
        return f"receipt for {what}"

    @hf.task(name="shopping")
    async def shop(run: hf.Run) -> list[str]:
        receipts: hf.DurableList[str] = run.list("receipts")
        async for turn in run.turns(max=3):
            receipts.append(await turn.step(pay, f"thing {turn.number}"))
        return list(receipts)

    return shop


async def test_a_fork_that_would_pass_effects_is_refused_and_names_them(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    shop = shopping(code)
    async with carrying(store, clock, shop) as process:
        first = await process.holdfast.start(shop())
        await result_of(process, first)
        before = await process.holdfast.store.read(lambda tx: tx.tasks.page(statuses=(), owner=None))

        with pytest.raises(EffectsInTheWay) as refused:
            await process.holdfast.fork(first, at="turn:1")

        assert before == await process.holdfast.store.read(lambda tx: tx.tasks.page(statuses=(), owner=None))
    assert isinstance(refused.value, hf.Refused)
    assert [text.split(" (")[0] for text in refused.value.effects] == ["pay in turns:2", "pay in turns:3"]


async def test_effects_that_are_kept_are_not_done_again(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    shop = shopping(code)
    async with carrying(store, clock, shop) as process:
        first = await process.holdfast.start(shop())
        receipts = await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turn:1", effects="keep")

        assert await result_of(process, forked) == receipts
    assert code.done == ["pay thing 1", "pay thing 2", "pay thing 3"]


async def test_effects_that_are_acknowledged_are_done_once_more(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    shop = shopping(code)
    async with carrying(store, clock, shop) as process:
        first = await process.holdfast.start(shop())
        await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turn:2", effects="acknowledge")
        await result_of(process, forked)
        (event,) = [one for one in await forked.events() if one.kind is EventKind.TASK_FORKED]
        effects = await store.read(lambda tx: tx.effects.of_task(first.id))

    assert code.done == ["pay thing 1", "pay thing 2", "pay thing 3", "pay thing 3"]
    assert event.facts["passed"] == [effects[-1].id]


async def test_effects_are_compensated_newest_first_under_a_key_of_their_own(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    shop = shopping(code)
    undone: list[tuple[str, Any, str]] = []

    async def undo(effect: Effect, result: Any) -> None:
        undone.append((effect.scope, result, hf.idempotency_key()))

    async with carrying(store, clock, shop) as process:
        first = await process.holdfast.start(shop())
        await result_of(process, first)
        forked = await process.holdfast.fork(first, at="turn:1", effects="compensate", compensate=undo)
        await result_of(process, forked)
        effects = await store.read(lambda tx: tx.effects.of_task(first.id))

    assert undone == [
        ("turns:3", "receipt for thing 3", f"{effects[2].idempotency_key}-compensation"),
        ("turns:2", "receipt for thing 2", f"{effects[1].idempotency_key}-compensation"),
    ]
    assert code.done[3:] == ["pay thing 2", "pay thing 3"]


async def test_a_compensation_that_fails_makes_no_fork(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    def fail(_effect: Effect, _result: Any) -> None:
        raise ConnectionError("the shop is closed")

    shop = shopping(code)
    async with carrying(store, clock, shop) as process:
        first = await process.holdfast.start(shop())
        await result_of(process, first)
        with pytest.raises(ConnectionError):
            await process.holdfast.fork(first, at="turn:1", effects="compensate", compensate=fail)

        assert len(await store.read(lambda tx: tx.tasks.page(statuses=(), owner=None))) == 1


async def test_an_effect_in_doubt_is_only_passed_by_who_says_so(
    store: Store, clock: FakeClock, code: CodeOfToday
) -> None:
    @hf.opaque
    async def pay(number: int) -> int:
        if number == 3:
            raise TimeoutError("no answer")
        return number

    @hf.task
    async def shop(run: hf.Run) -> None:
        async for turn in run.turns(max=3):
            await turn.step(pay, turn.number)

    async with carrying(store, clock, shop) as process:
        first = await process.holdfast.start(shop())
        while await first.status() is not TaskStatus.NEEDS_REVIEW:  # noqa: ASYNC110 - it is in the database
            await asyncio.sleep(0.005)

        with pytest.raises(EffectsInTheWay, match="the outcome is unknown"):
            await process.holdfast.fork(first, at="turn:2", effects="keep")
        assert await process.holdfast.fork(first, at="turn:2", effects="acknowledge")


def paying(paid: list[str], *, ends: bool) -> hf.TaskDefinition[..., None]:
    """It pays outside turns and in each of two, and every payment raises after the money has gone."""

    @hf.opaque
    async def pay(what: str) -> None:
        paid.append(what)
        raise ValueError("not json")

    @hf.task(name="pays", attempts=2, backoff="0s")
    async def pays(run: hf.Run) -> None:
        caught: list[Exception] = []
        try:
            await run.tool(pay, {"what": "before"}, id="before")
        except hf.StepFailed as error:
            caught.append(error)
        async for turn in run.turns(max=2):
            try:
                await turn.tool(pay, {"what": f"turn {turn.number}"})
            except hf.StepFailed as error:
                caught.append(error)
        if ends:
            raise RuntimeError("not paid") from caught[0]

    return pays


async def test_a_fork_does_not_pass_an_effect_that_raised_in_silence(store: Store, clock: FakeClock) -> None:
    paid: list[str] = []
    pays = paying(paid, ends=False)
    async with carrying(store, clock, pays) as process:
        first = await process.holdfast.start(pays())
        await result_of(process, first)
        with pytest.raises(hf.EffectsInTheWay, match="acknowledge"):
            await process.holdfast.fork(first, at="turn:1")
        await result_of(process, await process.holdfast.fork(first, at="turn:1", effects="acknowledge"))

    assert paid == ["before", "turn 1", "turn 2", "turn 2"]


async def test_what_raised_before_the_turn_is_not_called_again_because_the_fork_ends_with_it(
    store: Store, clock: FakeClock
) -> None:
    paid: list[str] = []
    pays, fails = paying(paid, ends=False), paying(paid, ends=True)
    async with carrying(store, clock, pays) as process:
        first = await process.holdfast.start(pays())
        await result_of(process, first)
    async with carrying(store, clock) as process:  # it knows no task, so it does not carry the fork
        forked = await process.holdfast.fork(first, at="turn:2")
    async with carrying(store, clock, fails) as process:
        with pytest.raises(hf.TaskFailed, match="not paid"):
            await soon(process.holdfast.handle(forked.id).result())

    assert paid == ["before", "turn 1", "turn 2"]


@pytest.mark.parametrize(
    "options",
    [{"effects": "forget"}, {"effects": "compensate"}, {"effects": "keep", "compensate": print}],
)
async def test_what_makes_no_sense_together_is_refused(
    store: Store, clock: FakeClock, code: CodeOfToday, options: dict[str, Any]
) -> None:
    agent = agent_of(code)
    async with carrying(store, clock, agent) as process:
        first = await process.holdfast.start(agent("tides"))

        with pytest.raises(hf.BadInput):
            await process.holdfast.fork(first, at="start", **options)
        await result_of(process, first)
