"""Programs whose code changes between two lives: done work stays done, and what does not fit is told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.testing import Crashed
from tests.engine.stage import Stage


class CountedSteps:
    """What steps do, counted; and where a process dies."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.dies_at: str | None = None

    def reach(self, where: str) -> None:
        if where == self.dies_at:
            self.dies_at = None
            raise Crashed
        self.done[where] += 1


@pytest.fixture
def steps() -> CountedSteps:
    return CountedSteps()


async def drifts(stage: Stage, handle: Handle[Any]) -> list[tuple[Any, Any]]:
    told = await stage.events(handle, EventKind.STEP_DRIFTED)
    return [(event.facts["step"], event.facts["why"]) for event in told]


def agent(steps: CountedSteps, *, is_edited: bool) -> Any:
    """An agent that is killed in turn 2; then a step is added, one renamed, a local variable changed."""

    async def think(turn: int, notes: int) -> str:
        steps.reach(f"think {turn}")
        return f"thought {turn} with {notes}"

    async def search(turn: int) -> str:
        steps.reach(f"search {turn}")
        return f"found {turn}"

    async def look_up(turn: int) -> str:
        steps.reach(f"look up {turn}")
        return f"looked up {turn}"

    async def check(text: str) -> str:
        steps.reach("check")
        return f"checked {text}"

    @hf.tool
    async def send(text: str) -> str:
        steps.reach(f"send {text}")
        return f"sent {text}"

    @hf.task(name="agent")
    async def before(run: hf.Run) -> list[str]:
        notes = run.list("notes")
        async for turn in run.turns(max=3):
            notes.append(await turn.step(think, turn.number, len(notes)))
            notes.append(await turn.step(search, turn.number))
            notes.append(await turn.tool(send, {"text": f"{turn.number}"}, id="a"))
            await turn.step(check, f"{turn.number}")
        return list(notes)

    @hf.task(name="agent")
    async def after(run: hf.Run) -> list[str]:
        notes = run.list("notes")
        style = "terse"
        async for turn in run.turns(max=3):
            notes.append(await turn.step(think, turn.number, len(notes)))
            notes.append(await turn.step(look_up, turn.number))  # renamed
            notes.append(await turn.tool(send, {"text": f"{turn.number}"}, id="a"))
            await turn.step(hf.step(check, name="new"), style)  # added
            await turn.step(check, f"{turn.number}")
        return list(notes)

    return after if is_edited else before


async def test_a_task_whose_code_was_edited_does_not_repeat_what_was_done(
    stage: Stage, steps: CountedSteps
) -> None:
    steps.dies_at = "send 2"
    await stage.open(agent(steps, is_edited=False))
    handle = await stage.start(agent(steps, is_edited=False)())
    await stage.settle()
    done = dict(steps.done)
    await stage.open(agent(steps, is_edited=True))
    await stage.settle()
    # It died inside an opaque tool: only a person knows whether that happened.
    await stage.holdfast.resolve((await stage.review()).id, "retry", by="ada")
    await stage.settle()

    assert await stage.result(handle) == [
        *("thought 1 with 0", "found 1", "sent 1"),
        *("thought 2 with 3", "looked up 2", "sent 2"),
        *("thought 3 with 6", "looked up 3", "sent 3"),
    ]
    assert all(steps.done[what] == times for what, times in done.items() if what != "check")
    assert steps.done["look up 2"] == 1
    assert await drifts(stage, handle) == []


async def test_a_step_with_other_arguments_is_done_again_and_told(stage: Stage, steps: CountedSteps) -> None:
    async def read(what: str) -> str:
        steps.reach(f"read {what}")
        return f"read {what}"

    async def die() -> None:
        steps.reach("die")

    def reads(what: str) -> Any:
        @hf.task
        async def reader(run: hf.Run) -> str:
            found = await run.step(read, what)
            await run.step(die)
            return found

        return reader

    steps.dies_at = "die"
    await stage.open(reads("one"))
    handle = await stage.start(reads("one")())
    await stage.settle()
    await stage.open(reads("two"))
    await stage.settle()

    assert await stage.result(handle) == "read two"
    assert await drifts(stage, handle) == [("read", "it was done before with other arguments")]
    assert steps.done == {"read one": 1, "read two": 1, "die": 1}


async def test_a_result_that_no_longer_fits_its_annotation_is_found_again(
    stage: Stage, steps: CountedSteps
) -> None:
    async def count() -> str:
        steps.reach("old")
        return "seven"

    async def count_now() -> int:
        steps.reach("new")
        return 7

    async def die() -> None:
        steps.reach("die")

    def counts(step: Any) -> Any:
        @hf.task
        async def counter(run: hf.Run) -> Any:
            found = await run.step(hf.step(step, name="count"))
            await run.step(die)
            return found

        return counter

    steps.dies_at = "die"
    await stage.open(counts(count))
    handle = await stage.start(counts(count)())
    await stage.settle()
    await stage.open(counts(count_now))
    await stage.settle()

    assert await stage.result(handle) == 7
    ((step, why),) = await drifts(stage, handle)
    assert step == "count"
    assert "its saved result is no int any more" in why


# --- effects


def sender(steps: CountedSteps, text: str, *, dies_in: str = "") -> Any:
    @hf.opaque
    async def send(text: str) -> str:
        steps.reach(f"send {text}")
        return f"sent {text}"

    async def die() -> None:
        steps.reach("die")

    @hf.task(attempts=1)
    async def sends(run: hf.Run) -> str:
        found = await run.step(send, text)
        await run.step(die)
        return found

    steps.dies_at = dies_in or steps.dies_at
    return sends


@pytest.mark.parametrize(
    ("decision", "result", "sent"),
    [("done", "by hand", {"send one": 1}), ("retry", "sent two", {"send one": 1, "send two": 1})],
)
async def test_an_effect_that_was_done_with_other_arguments_is_parked(
    stage: Stage, steps: CountedSteps, decision: str, result: str, sent: dict[str, int]
) -> None:
    await stage.open(sender(steps, "one", dies_in="die"))
    handle = await stage.start(sender(steps, "one")())
    await stage.settle()
    await stage.open(sender(steps, "two"))
    await stage.settle()

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert await drifts(stage, handle) == [("send", "it was done before with other arguments")]
    effect = await stage.review()
    await stage.holdfast.resolve(effect.id, decision, result="by hand", by="ada")
    await stage.open(sender(steps, "two", dies_in="die"))
    await stage.settle()
    await stage.open(sender(steps, "two"))
    await stage.settle()
    assert await stage.result(handle) == result
    assert {what: times for what, times in steps.done.items() if what.startswith("send")} == sent
    assert len(await drifts(stage, handle)) == 1  # told once, also when a worker comes by again


def payer(steps: CountedSteps, amount: int, *, is_effect: bool, dies_in: str = "") -> Any:
    """A task whose one tool is an effect that can be verified, or in another version a plain step."""

    def has_paid(_amount: int) -> hf.Happened | hf.DidNotHappen:
        return hf.Happened("seen") if steps.done["pay"] else hf.DidNotHappen()

    async def pay(amount: int) -> str:
        if dies_in == "step":
            raise Crashed
        steps.done["pay" if is_effect else "look"] += 1
        if dies_in == "effect":
            raise Crashed
        return f"paid {amount}"

    tool = hf.verifiable(has_paid)(pay) if is_effect else pay

    @hf.task(name="pays")
    async def pays(run: hf.Run) -> Any:
        paid = await run.step(tool, amount)
        if dies_in == "task":
            raise Crashed
        return paid

    return pays


async def test_what_became_of_an_effect_that_is_a_plain_step_now_is_told_once(
    stage: Stage, steps: CountedSteps
) -> None:
    await stage.open(payer(steps, 1, is_effect=True, dies_in="task"))
    handle = await stage.start(payer(steps, 1, is_effect=True)())
    await stage.settle()
    for _ in range(2):
        await stage.open(payer(steps, 2, is_effect=False, dies_in="step"))
        await stage.settle()
    await stage.open(payer(steps, 2, is_effect=False))
    await stage.settle()

    assert await stage.result(handle) == "paid 2"
    assert await drifts(stage, handle) == [("pay", "it was done before with other arguments")]
    head = stage.store.read_now(lambda tx: tx.journal.heads([handle.id]))[handle.id]
    # The step counts, and the note that its drift was told; not the effect under the same key.
    assert head.steps_saved == len(stage.store.read_now(lambda tx: tx.journal.steps(handle.id))) == 2


@pytest.mark.parametrize("dies_in", ["task", "effect"], ids=["done", "confirmed"])
async def test_an_effect_is_not_repeated_after_a_version_that_called_it_a_plain_step(
    stage: Stage, steps: CountedSteps, dies_in: str
) -> None:
    await stage.open(payer(steps, 1, is_effect=True, dies_in=dies_in))
    handle = await stage.start(payer(steps, 1, is_effect=True)())
    await stage.settle()
    await stage.open(payer(steps, 1, is_effect=True, dies_in="task"))
    await stage.settle()
    await stage.open(payer(steps, 2, is_effect=False, dies_in="step"))
    await stage.settle()
    await stage.open(payer(steps, 1, is_effect=True))
    await stage.settle()

    assert await stage.result(handle) == ("paid 1" if dies_in == "task" else "seen")
    assert steps.done == {"pay": 1}


async def test_an_effect_that_was_cut_short_and_has_other_arguments_now_is_in_review(
    stage: Stage, steps: CountedSteps
) -> None:
    def verify(text: str) -> hf.DidNotHappen:
        raise AssertionError(f"no service can be asked about {text}")

    def publisher(text: str) -> Any:
        @hf.verifiable(verify)
        async def publish(text: str) -> str:
            steps.reach(f"publish {text}")
            return f"published {text}"

        @hf.task
        async def publishes(run: hf.Run) -> Any:
            return await run.step(publish, text)

        return publishes

    steps.dies_at = "publish one"
    await stage.open(publisher("one"))
    handle = await stage.start(publisher("one")())
    await stage.settle()
    await stage.open(publisher("two"))
    await stage.settle()
    effect = await stage.review()
    await stage.holdfast.resolve(effect.id, "skip", by="ada")
    await stage.settle()

    assert effect.outcome is not None
    assert b"now it is called with other arguments" in effect.outcome
    assert await stage.result(handle) is None
    assert steps.done == {}


async def test_an_effect_that_the_program_has_forgotten_is_in_review_when_the_task_ends(
    stage: Stage, steps: CountedSteps
) -> None:
    def publisher(*, is_edited: bool) -> Any:
        @hf.opaque
        async def publish() -> str:
            steps.reach("publish")
            return "published"

        @hf.task(name="publisher")
        async def publishes(run: hf.Run) -> str:
            return "nothing to do" if is_edited else await run.step(publish)

        return publishes

    steps.dies_at = "publish"
    await stage.open(publisher(is_edited=False))
    handle = await stage.start(publisher(is_edited=False)())
    await stage.settle()
    await stage.open(publisher(is_edited=True))
    await stage.settle()

    assert await stage.result(handle) == "nothing to do"
    assert (await stage.review()).status is EffectStatus.UNKNOWN
    assert len(await stage.events(handle, EventKind.EFFECT_IN_DOUBT)) == 1


# --- lists and values


async def test_a_program_that_changes_something_else_than_it_did_is_told_of(
    stage: Stage, steps: CountedSteps
) -> None:
    async def die() -> None:
        steps.reach("die")

    def changer(*, is_edited: bool) -> Any:
        @hf.task(name="changer")
        async def changes(run: hf.Run) -> str:
            notes: hf.DurableList[Any] = run.list("notes", ["first"])
            if not is_edited:
                run.value("count", 1)
            names = run.list("names")
            names.append("ada")
            async for turn in run.turns(max=2):
                notes.append(turn.number)
                await turn.step(die)
            names.append("grace")
            return f"{notes[:]} {names[:]}"

        return changes

    steps.dies_at = "die"
    await stage.open(changer(is_edited=False))
    handle = await stage.start(changer(is_edited=False)())
    await stage.settle()  # dies in turn 1, before anything was durable
    steps.done.clear()
    await stage.open(changer(is_edited=False))
    steps.dies_at = None
    await stage.settle()

    assert await stage.result(handle) == "['first', 1, 2] ['ada', 'grace']"

    async def die_in_turn_2(number: int) -> None:
        steps.reach(f"turn {number}")

    def later(*, is_edited: bool) -> Any:
        @hf.task(name="later")
        async def changes(run: hf.Run) -> str:
            notes: hf.DurableList[Any] = run.list("notes", ["first"])
            if not is_edited:
                run.value("count", 1)
            names = run.list("names")
            names.append("ada")
            async for turn in run.turns(max=2):
                notes.append(turn.number)
                await turn.step(die_in_turn_2, turn.number)
            names.append("grace")
            return f"{notes[:]} {names[:]}"

        return changes

    steps.dies_at = "turn 2"
    await stage.open(later(is_edited=False))
    handle = await stage.start(later(is_edited=False)())
    await stage.settle()
    await stage.open(later(is_edited=True))
    await stage.settle()

    # What had been appended stays; what the changed program does from there on comes after it.
    assert await stage.result(handle) == "['first', 1, 2] ['ada', 'ada', 'grace']"
    assert await drifts(stage, handle) == [
        ("the task", "changed value count where it now changes list names")
    ]


# --- the plan


def planner(steps: CountedSteps, items: list[str], *, replans: bool = False) -> Any:
    async def do(item: str) -> str:
        steps.reach(item)
        return item

    @hf.task(name="planner")
    async def plans(run: hf.Run) -> list[str]:
        done = run.list("done")
        plan = run.plan(items)
        async for item in plan:
            done.append(await item.step(do, item.id))
            if replans and item.id == "a":
                plan.replan(["x", "y"])
        return list(done)

    return plans


async def test_items_that_have_not_begun_follow_a_program_whose_plan_has_changed(
    stage: Stage, steps: CountedSteps
) -> None:
    steps.dies_at = "b"
    await stage.open(planner(steps, ["a", "b", "c"]))
    handle = await stage.start(planner(steps, ["a", "b", "c"])())
    await stage.settle()
    await stage.open(planner(steps, ["new", "a", "c", "d"]))
    await stage.settle()

    assert await stage.result(handle) == ["a", "new", "c", "d"]
    ((where, why),) = await drifts(stage, handle)
    assert where == "plan"
    assert why == "was a, b, c, and the program says new, a, c, d; what had not begun follows the program"
    plan = stage.store.read_now(lambda tx: tx.journal.plans([handle.id]))[handle.id][1]
    assert [(item.id, item.is_done) for item in plan.items] == [
        ("a", True),
        ("new", True),
        ("c", True),
        ("d", True),
    ]


async def test_a_plan_that_the_program_has_planned_anew_holds(stage: Stage, steps: CountedSteps) -> None:
    steps.dies_at = "y"
    await stage.open(planner(steps, ["a", "b"], replans=True))
    handle = await stage.start(planner(steps, ["a", "b"], replans=True)())
    await stage.settle()
    await stage.open(planner(steps, ["a", "b", "c"], replans=True))
    await stage.settle()

    assert await stage.result(handle) == ["a", "x", "y"]
    ((_, why),) = await drifts(stage, handle)
    assert (
        why == "was a, b, and the program says a, b, c; it was planned anew since, so the stored plan holds"
    )


async def test_a_task_has_one_plan(quick: Stage, steps: CountedSteps) -> None:
    @hf.task
    async def plans(run: hf.Run) -> None:
        run.plan(["a", "b"])
        run.plan(["a", "b"])
        run.plan(["a"])

    await quick.open(plans)
    handle = await quick.start(plans())
    await quick.settle()

    task = await handle.task()
    assert task.failure is not None
    assert task.failure.message == "plan: a task has one plan; change it with plan.replan([…])"
