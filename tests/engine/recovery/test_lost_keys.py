"""A key is lost: what was sealed with it is never made up, its tasks end and say so, all others go on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.api import deliveries, questions, reviews, sessions
from holdfast.api import tasks as doors
from holdfast.core.effect import EffectRequest
from holdfast.core.errors import KeyLost
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.store.blobs import INLINE_BYTES
from holdfast.store.rekey import start_over
from holdfast.store.sealing import MemoryKey, NoKey, OuterKey, Vault
from holdfast.store.sqlite_reader import SqliteReader
from tests.builders import START, a_delivery, a_flow, a_message, a_session, an_effect, plan_of, running_run
from tests.engine.workers import Process, carrying, soon, until
from tests.shared_ledgers import SharedLedger, shared_sqlite_ledger
from tests.store.program_records import a_question, a_summary, a_turn, a_value, send

SECRET = {"password": "behind the " + "third stone"}
LARGE = {**SECRET, "pad": "tide " * INLINE_BYTES}


async def echo(value: Any) -> Any:
    return value


@hf.opaque
async def charge(value: Any) -> Any:
    return value


async def give(which: str) -> Any:
    """What the world says: the arguments of the step hold no secret."""
    return {"hidden": SECRET, "large": LARGE, "plain": "tides"}[which]


@hf.opaque
async def buy(which: str) -> Any:
    return {"hidden": SECRET, "plain": "tides"}[which]


@hf.task(name="given")
async def given(run: hf.Run, value: Any) -> Any:
    await run.receive("go")
    return value


@hf.task(name="steps")
async def steps(run: hf.Run, which: str) -> Any:
    found = await run.step(give, which)
    await run.receive("go")
    return found


@hf.task(name="effects")
async def effects(run: hf.Run, which: str) -> Any:
    found = await run.step(buy, which)
    await run.receive("go")
    return found


@hf.task(name="lists")
async def lists(run: hf.Run, which: str) -> Any:
    items: list[Any] = run.list("items", [])
    async for _turn in run.turns(max=1):
        items += [SECRET if which == "hidden" else which]
    await run.receive("go")
    return list(items)


@hf.task(name="values")
async def values(run: hf.Run, which: str) -> Any:
    cell: hf.DurableValue[Any] = run.value("cell", None)
    async for _turn in run.turns(max=1):
        cell.set(SECRET if which == "hidden" else which)
    await run.receive("go")
    return cell.get()


@hf.task(name="mail")
async def mail(run: hf.Run, _which: str) -> Any:
    return await run.receive("go")


@hf.task(name="asks")
async def asks(run: hf.Run, which: str) -> Any:
    await run.receive("go")
    return await run.ask(f"which {which}?")


@hf.task(name="child")
async def child(_run: hf.Run, which: str) -> Any:
    return SECRET if which == "hidden" else which


@hf.task(name="parent")
async def parent(run: hf.Run, which: str) -> Any:
    one = await run.spawn(child(which))
    await run.receive("go")
    return await one


TASKS = (given, steps, effects, lists, values, mail, asks, child, parent)
# With what each is begun: one whose values are sealed, one whose are not.
HARMED = {
    "arguments": given(SECRET),
    "large arguments": given(LARGE),
    "step": steps("hidden"),
    "large step": steps("large"),
    "effect": effects("hidden"),
    "list": lists("hidden"),
    "value": values("hidden"),
    "mail": mail("hidden"),
    "child": parent("hidden"),
}
UNHARMED = {
    "arguments": given("plain"),
    "step": steps("plain"),
    "effect": effects("plain"),
    "list": lists("plain"),
    "value": values("plain"),
    "mail": mail("plain"),
    "child": parent("plain"),
}


@contextlib.asynccontextmanager
async def living(shared_ledger: SharedLedger) -> AsyncIterator[Process]:
    async with carrying(shared_ledger.open(), shared_ledger.clock, *TASKS) as process:
        yield process


def waits(store: Store, task_id: str) -> bool:
    return store.read_now(lambda tx: tx.tasks.look(task_id)).status is TaskStatus.WAITING


def has_its_result(store: Store, parent_id: str) -> bool:
    """Whether the child of this task has ended."""
    (one,) = store.read_now(lambda tx: tx.tasks.children(parent_id))
    return one.has_ended


def lose_key(shared_ledger: SharedLedger) -> None:
    """As `holdfast store rekey --lost` does: the ledger begins another key."""
    outer = MemoryKey()
    assert start_over(shared_ledger.open(), outer) is not None
    shared_ledger.close()
    shared_ledger.outer = outer


async def begin(shared_ledger: SharedLedger) -> tuple[dict[str, str], dict[str, str]]:
    """All of them wait, in no process; their values are in the ledger only."""
    async with living(shared_ledger) as process:
        start = process.holdfast.start
        harmed = {name: (await start(call, key=name)).id for name, call in HARMED.items()}
        unharmed = {name: (await start(call, key=f"no {name}")).id for name, call in UNHARMED.items()}
        for task_id in (*harmed.values(), *unharmed.values()):
            await until(lambda: waits(process.holdfast.store, task_id))  # noqa: B023 - it is waited for at once
        for task_id in (harmed["child"], unharmed["child"]):
            # Its result is sealed with the key that is lost next, and not made with the one after it.
            await until(lambda: has_its_result(process.holdfast.store, task_id))  # noqa: B023 - the same
    shared_ledger.close()
    return harmed, unharmed


async def test_a_task_whose_values_are_lost_ends_and_says_so_and_all_others_go_on(
    shared_ledger: SharedLedger,
) -> None:
    harmed, unharmed = await begin(shared_ledger)
    # Sent while there was a key.
    async with carrying(shared_ledger.open(), shared_ledger.clock) as process:
        await process.holdfast.send(harmed["mail"], "go", SECRET)
    shared_ledger.close()
    lose_key(shared_ledger)

    async with living(shared_ledger) as process:
        for task_id in (*harmed.values(), *unharmed.values()):
            with contextlib.suppress(hf.Conflict, KeyLost):  # one that has ended takes no message
                await process.holdfast.send(task_id, "go", "plain")
        for task_id in unharmed.values():
            assert await soon(process.holdfast.handle(task_id).result()) in ("plain", "tides", ["plain"])
        store = process.holdfast.store
        for task_id in harmed.values():
            await until(lambda: store.read_now(lambda tx: tx.tasks.look(task_id)).has_ended)  # noqa: B023
        ended = {name: store.read_now(lambda tx: tx.tasks.look(one)) for name, one in harmed.items()}  # noqa: B023
        views = {
            name: store.read_now(lambda tx: doors.read_detail(tx, one, START))  # noqa: B023
            for name, one in harmed.items()
        }

    assert {name: task.status for name, task in ended.items()} == dict.fromkeys(HARMED, TaskStatus.FAILED)
    assert {name: task.failure and task.failure.kind for name, task in ended.items()} == dict.fromkeys(
        HARMED, "key_lost"
    )
    assert "third stone" not in repr(ended) + repr(views)
    assert "[sealed]" in repr(views["arguments"].arguments)


@pytest.mark.parametrize("shared_ledger", ["sqlite"], indirect=True)
async def test_a_key_is_told_from_that_of_other_arguments_as_far_as_that_is_possible(
    shared_ledger: SharedLedger,
) -> None:
    harmed, unharmed = await begin(shared_ledger)
    lose_key(shared_ledger)

    async with carrying(shared_ledger.open(), shared_ledger.clock) as process:
        start = process.holdfast.start
        assert (await start(given("plain"), key="no arguments")).id == unharmed["arguments"]
        with pytest.raises(hf.KeyConflict):
            await start(given("other"), key="no arguments")
        with pytest.raises(KeyLost, match=harmed["arguments"]):
            await start(given(SECRET), key="arguments")


@pytest.mark.parametrize("shared_ledger", ["sqlite"], indirect=True)
async def test_a_step_that_was_given_a_lost_secret_is_not_taken_for_one_with_other_arguments(
    shared_ledger: SharedLedger,
) -> None:
    """Its own result is readable; whether the program gives it the same again, no process can tell."""
    done: list[str] = []

    async def log_in(password: str) -> str:
        done.append(password)
        return "let in"

    @hf.task(name="login")
    async def login(run: hf.Run) -> str:
        found = await run.step(log_in, "4711")
        await run.receive("go")
        return found

    async with carrying(shared_ledger.open(), shared_ledger.clock, login) as process:
        handle = await process.holdfast.start(login())
        await until(lambda: waits(process.holdfast.store, handle.id))
    shared_ledger.close()
    lose_key(shared_ledger)

    async with carrying(shared_ledger.open(), shared_ledger.clock, login) as process:
        await process.holdfast.send(handle.id, "go")
        with pytest.raises(hf.TaskFailed) as failed:
            await soon(process.holdfast.handle(handle.id).result())

    assert failed.value.failure is not None
    assert failed.value.failure.kind == "key_lost"
    assert done == ["4711"]


@pytest.mark.parametrize("shared_ledger", ["sqlite"], indirect=True)
async def test_an_answer_that_was_lost_ends_the_task_that_asked(shared_ledger: SharedLedger) -> None:
    async with living(shared_ledger) as process:
        handle = await process.holdfast.start(asks("hidden"))
        await process.holdfast.send(handle.id, "go")
        store = process.holdfast.store
        await until(lambda: bool(store.read_now(lambda tx: tx.questions.open_page(limit=9, after=""))))
        await until(lambda: waits(store, handle.id))
    async with carrying(store, shared_ledger.clock) as process:
        (question,) = await process.holdfast.questions()
        await process.holdfast.answer(question.id, SECRET)
    shared_ledger.close()
    lose_key(shared_ledger)

    async with living(shared_ledger) as process:
        with pytest.raises(hf.TaskFailed) as failed:
            await soon(process.holdfast.handle(handle.id).result())

    assert failed.value.failure is not None
    assert failed.value.failure.kind == "key_lost"


@hf.task(name="plans")
async def plans(run: hf.Run, which: str) -> Any:
    async for _item in run.plan([f"look: password: {which}-4711-stone"]):
        pass
    return "planned"


CUT_SHORT = {
    "arguments": given(SECRET),
    "step": steps("hidden"),
    "large step": steps("large"),
    "list": lists("hidden"),
    "value": values("hidden"),
}


async def test_a_run_that_was_cut_short_and_whose_values_are_lost_is_a_failed_resume(
    shared_ledger: SharedLedger,
) -> None:
    """Its process died in the middle; the next one has another key."""
    stage = shared_ledger.stage()
    await stage.open(*TASKS)
    handles = {name: await stage.start(call) for name, call in CUT_SHORT.items()}
    others = {name: await stage.start(UNHARMED[name]) for name in ("arguments", "step", "list", "value")}
    await stage.settle()  # all of them have stored what they have, and wait
    for handle in (*handles.values(), *others.values()):
        await stage.holdfast.send(handle.id, "go")
    assert len(await stage._claims.take(20)) == len(handles) + len(others)
    shared_ledger.close()
    lose_key(shared_ledger)

    stage = shared_ledger.stage()
    await stage.open(*TASKS)
    await stage.settle()
    ended = stage.store.read_now(lambda tx: {n: tx.tasks.look(one.id) for n, one in handles.items()})
    runs = stage.store.read_now(lambda tx: {n: tx.runs.of_task(one.id) for n, one in handles.items()})

    for handle in others.values():
        assert await stage.result(stage.holdfast.handle(handle.id)) in ("plain", "tides", ["plain"])
    assert {name: len(found) for name, found in runs.items()} == dict.fromkeys(CUT_SHORT, 1)
    assert {name: found[0].status for name, found in runs.items()} == dict.fromkeys(
        CUT_SHORT, RunStatus.FAILED_RESUME
    )
    failures = {name: task.failure for name, task in ended.items()}
    assert {name: one and (one.kind, one.facts["why"]) for name, one in failures.items()} == dict.fromkeys(
        CUT_SHORT, ("failed_resume", "key_lost")
    )


@pytest.mark.parametrize("shared_ledger", ["sqlite"], indirect=True)
async def test_a_run_whose_plan_is_lost_is_a_failed_resume(shared_ledger: SharedLedger) -> None:
    stage = shared_ledger.stage()
    await stage.open(plans)
    handle = await stage.start(plans("hidden"))
    (claimed,) = await stage._claims.take(1)
    plan = plan_of("look: password: hidden-4711-stone")
    await stage.store.write(
        lambda tx: tx.journal.save_plan(claimed.claim, plan, now=shared_ledger.clock.now())
    )
    shared_ledger.close()
    lose_key(shared_ledger)

    stage = shared_ledger.stage()
    await stage.open(plans)
    await stage.settle()
    task = stage.store.read_now(lambda tx: tx.tasks.look(handle.id))

    assert task.failure is not None
    assert (task.failure.kind, task.failure.facts["why"]) == ("failed_resume", "key_lost")


async def test_a_reader_without_a_key_sees_what_is_sealed_and_all_else() -> None:
    with shared_sqlite_ledger() as shared_ledger:
        harmed, unharmed = await begin(shared_ledger)
        with contextlib.closing(SqliteReader(shared_ledger.home / "ledger.db")) as reader:
            views = {
                one: reader.read_now(lambda tx: doors.read_detail(tx, one, START))  # noqa: B023
                for one in (*harmed.values(), *unharmed.values())
            }
        with contextlib.closing(
            SqliteReader(shared_ledger.home / "ledger.db", vault=Vault(MemoryKey(), is_lenient=True))
        ) as reader:
            others = {one: reader.read_now(lambda tx: doors.read_detail(tx, one, START)) for one in views}  # noqa: B023

    assert {one: view.problems for one, view in views.items() if view.problems} == {}
    assert {one: view.problems for one, view in others.items() if view.problems} == {}
    assert "third stone" not in repr(views)
    sealed = {name for name, one in harmed.items() if "[sealed]" in repr(views[one])}
    # A list shows its length only, a parent the id of its child, and mail is not there yet.
    assert sealed >= {"arguments", "large arguments", "step", "large step", "value"}
    # By chance the id of a child may look like a secret, and is sealed then.
    del unharmed["child"]
    assert not any("[sealed]" in repr(views[one]) for one in unharmed.values())


def leave_one_of_each(store: Store) -> tuple[str, str]:
    """Of what people look at beside tasks, with a secret in each; the ids of the task and of its effect."""
    run, claim = running_run(store)
    payload = msgspec.json.encode(SECRET)
    request = EffectRequest(boot="boot_1", shown=payload.decode())
    effect = an_effect(
        task_id=run.task_id,
        run_id=run.id,
        request=msgspec.json.encode(request),
        outcome=msgspec.json.encode(Failure(kind="Lost", message=payload.decode())),
        status=EffectStatus.UNKNOWN,
    )
    choices = (payload.decode(), "none")
    turn = a_turn(run, steps=(a_summary(preview=payload.decode()),))

    def leave(tx: Tx) -> None:
        tx.effects.create(effect)
        tx.questions.create(a_question(run, choices=choices, default_answer=payload))
        tx.sessions.create(a_session(key="agent:scholar:main"))
        tx.messages.create(a_message(body=msgspec.json.encode(payload.decode()), position=1))
        tx.deliveries.create(a_delivery(message=payload, task_id=run.task_id))
        tx.flows.create(a_flow(id="flow_1", contents=payload))
        tx.lists.set_value(a_value(run, value=payload))
        tx.turns.commit(turn, "main:1", is_over=False)
        tx.journal.save_plan(claim, plan_of(payload.decode()), now=START)
        send(tx, run.task_id, body=payload)

    store.write_now(leave)
    return run.task_id, effect.id


@pytest.mark.parametrize("key", [NoKey, MemoryKey], ids=["none", "another"])
def test_every_door_shows_what_is_sealed_to_a_reader_without_its_key(key: Callable[[], OuterKey]) -> None:
    with shared_sqlite_ledger() as shared_ledger:
        task_id, effect_id = leave_one_of_each(shared_ledger.open())
        shared_ledger.close()
        vault = Vault(key(), is_lenient=True)
        with contextlib.closing(SqliteReader(shared_ledger.home / "ledger.db", vault=vault)) as reader:
            views: dict[str, Any] = reader.read_now(
                lambda tx: {
                    "task": doors.read_detail(tx, task_id, START),
                    "reviews": reviews.read_page(tx, after="", limit=9),
                    "review": reviews.read_detail(tx, effect_id),
                    "questions": questions.read_page(tx, after="", limit=9),
                    "transcript": sessions.read_transcript(tx, "agent:scholar:main", None, 9),
                    "deliveries": deliveries.read_page(tx, which="owed", after="", limit=9),
                    "flow": tx.flows.get("flow_1"),
                    "turns": tx.turns.finished(task_id, "main", limit=9),
                    "mail": tx.mail.of_task(task_id),
                }
            )
            problems = reader.verify()

    assert "third stone" not in repr(views)
    shown = {name for name, view in views.items() if "[sealed]" in repr(view)}
    assert shown >= {"task", "reviews", "review", "questions", "transcript", "flow", "mail"}
    assert views["task"].problems == []
    assert problems == []
