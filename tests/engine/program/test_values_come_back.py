"""What a program stores comes back as it was: any value, with and without secrets, in every place."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.core.message import Role
from holdfast.core.payload import decode_payload
from holdfast.engine.conversation.transcripts import new_message, post
from holdfast.engine.journal.scopes import load_pasts
from holdfast.engine.ledger.ledger import opened
from holdfast.store import Store, Tx
from holdfast.store.blobs import INLINE_BYTES
from holdfast.store.sealing import MARK
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import crash_everywhere
from tests.canaries import CANARIES, VALUES
from tests.engine.stage import Stage
from tests.engine.tables import query
from tests.engine.value_places import PLACES, QUESTION, TASKS, TOPIC, TURNS, everywhere, go_on, pass_through
from tests.shared_ledgers import SharedLedger, shared_sqlite_ledger

pytestmark = pytest.mark.slow

LARGE = "tide " * INLINE_BYTES
# One of each shape: few enough to stand in their rows.
FEW = list({canary.shape: canary.value for canary in CANARIES if len(canary.secret) < 100}.values())

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(["", "\x00", "\x7f\x80", "\u2028\u202e", "\ufeff", "\U0010ffff", "\\u0000", "[sealed]"])
    | st.sampled_from(["[redacted:assignment]", '{"password":"x"}', "\x01", "\x00zstd:", "!", "$secret"])
)
canaries = st.sampled_from(CANARIES).map(lambda canary: canary.value)
trees = st.recursive(
    scalars | canaries,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.sampled_from(["password", "token", "secret"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def deep(depth: int = 60) -> Any:
    value: Any = {"password": "at the bottom of it"}
    for _ in range(depth):
        value = [value]
    return value


def as_bytes(value: object) -> bytes:
    """To compare: in Python 1 equals True and 1.0, and an order of keys is no difference."""
    return msgspec.json.encode(value)


def assert_same(got: dict[str, Any], values: list[Any]) -> None:
    assert got.keys() == set(PLACES)
    assert {place: value for place, value in got.items() if as_bytes(value) != as_bytes(values)} == {}


async def assert_all_came_back(shared_ledger: SharedLedger, values: list[Any], *, pad: str = "") -> None:
    stage = shared_ledger.stage()
    handle = await pass_through(stage, values, pad=pad)

    assert_same(await stage.result(handle), values)


def holds_sealed(store: Store, table: str, column: str) -> bool:
    """Whether a value in that column is sealed: otherwise a test would show nothing about sealed values."""
    return any(
        bytes(value)[:1] == MARK for (value,) in query(store, f"SELECT {column} FROM {table}") if value
    )


# --- every place


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(trees, max_size=6))
def test_any_value_comes_back_as_it_was_from_every_place(values: list[Any]) -> None:
    with shared_sqlite_ledger() as shared_ledger:
        asyncio.run(assert_all_came_back(shared_ledger, values))


@pytest.mark.parametrize("pad", ["", LARGE], ids=["small", "large"])
async def test_secrets_of_every_shape_come_back_as_they_were_from_every_place(
    shared_ledger: SharedLedger, pad: str
) -> None:
    # Large: the values themselves become blobs, in every place.
    values = [*(FEW if not pad else VALUES), deep(), pad]

    await assert_all_came_back(shared_ledger, values, pad=pad)

    store = shared_ledger.open()
    places = SEALED_COLUMNS if not pad else [("blobs", "body")]
    assert [place for place in places if not holds_sealed(store, *place)] == []


# Where values of the program stand.
SEALED_COLUMNS = [
    *(("tasks", "arguments"), ("tasks", "result"), ("steps", "result"), ("list_deltas", "items")),
    *(("durable_values", "value"), ("scope_ops", "ops"), ("mail", "body"), ("questions", "answer")),
    *(("questions", "default_answer"), ("effects", "outcome")),
]


async def test_what_one_process_stored_another_one_with_the_same_key_goes_on_with(
    shared_ledger: SharedLedger,
) -> None:
    first = shared_ledger.stage()
    await first.open(*TASKS)
    handle = await first.start(everywhere(VALUES), key="only")
    await first.settle()
    first.kill()

    # Another store, which has to find the ledger's key itself.
    second = shared_ledger.stage()
    await second.open(*TASKS)
    again = second.holdfast.handle(handle.id)
    await go_on(second, again, VALUES)

    assert_same(await second.result(again), VALUES)


async def test_the_same_arguments_with_the_same_key_are_the_same_task_in_every_process(
    shared_ledger: SharedLedger,
) -> None:
    first = shared_ledger.stage()
    await first.open(*TASKS)
    handle = await first.start(everywhere(VALUES), key="only")
    second = shared_ledger.stage()
    await second.open(*TASKS)

    assert (await second.start(everywhere(VALUES), key="only")).id == handle.id
    with pytest.raises(hf.KeyConflict):
        await second.start(everywhere([*VALUES, 1]), key="only")


# --- crashes


@pytest.mark.slow
async def test_a_program_with_secrets_in_every_place_is_killed_at_every_point() -> None:
    values, tasks = FEW[:3], TASKS[1:]
    # Large: so that blobs are among what is stored.
    report = await crash_everywhere(
        everywhere(values, pad=LARGE, turns=1),
        tasks=tasks,
        answers={QUESTION: values},
        mail=[(TOPIC, values)],
        twice=True,
    )

    assert_same(report.result, values)
    # Each opaque effect that was cut short is in doubt, and nothing else is.
    assert {name for point in report.points for name in point.reviews} == {"opaque", "looks_outside"}


# --- forks


@pytest.mark.parametrize(
    ("shared_ledger", "pad"),
    [("sqlite", LARGE), ("postgres", "")],
    ids=["sqlite-large", "postgres-small"],
    indirect=["shared_ledger"],
)
async def test_a_fork_has_the_values_of_its_source(shared_ledger: SharedLedger, pad: str) -> None:
    values = [*VALUES, pad]
    stage = shared_ledger.stage()
    source = await pass_through(stage, values, pad=pad)
    # Another process, which has opened nothing yet.
    stage = shared_ledger.stage()
    await stage.open(*TASKS)

    fork = await stage.holdfast.fork(source.id, at=f"turn:{TURNS}", effects="keep")
    before = {name: past_of(stage.store, fork.id, name) for name in ("arguments", "list", "value", "steps")}
    await go_on(stage, fork, values)

    assert_same(await stage.result(fork), values)
    assert as_bytes(before["arguments"]) == as_bytes({"values": values, "pad": pad})
    assert as_bytes(before["list"][: len(values)]) == as_bytes(values)
    assert as_bytes(before["list"][len(values)]) == as_bytes([values, values, values])
    assert as_bytes(before["value"]) == as_bytes([TURNS, values])
    assert as_bytes(before["steps"]["echo"]) == as_bytes(values)
    assert as_bytes(before["steps"]["opaque"]) == as_bytes(values)


def past_of(store: Store, task_id: str, what: str) -> Any:
    """What a task that no worker has carried yet was given."""

    def look(tx: Tx) -> Any:
        past = load_pasts(tx, [task_id])[task_id]
        match what:
            case "arguments":
                return decode_payload(opened(tx, tx.tasks.get(task_id)).arguments)
            case "list":
                return [item for delta in past.deltas for item in msgspec.json.decode(delta.items)]
            case "value":
                return decode_payload(past.values["cell"].value)
            case _:
                # The first of each name.
                steps = [step for steps in reversed(past.steps.values()) for step in reversed(steps.values())]
                return {step.name: decode_payload(step.result) for step in steps if step.result[:1] != b"!"}

    return store.read_now(look)


# --- backup and restore


async def test_a_backup_that_is_opened_has_every_value(quick_path: Path) -> None:
    values = [*VALUES, LARGE]
    with shared_sqlite_ledger() as shared_ledger:
        stage = shared_ledger.stage()
        await stage.open(*TASKS)
        handle = await stage.start(everywhere(values), key="only")
        await stage.settle()
        stage.store.backup(str(quick_path / "backup.db"))
        outer = shared_ledger.outer

    # It goes on from the backup, in the place of the ledger.
    restored = SharedLedger(
        quick_path, lambda clock, vault: SqliteStore(quick_path / "backup.db", clock=clock, vault=vault)
    )
    restored.outer = outer
    with contextlib.closing(restored):
        stage = restored.stage()
        await stage.open(*TASKS)
        again = stage.holdfast.handle(handle.id)
        await go_on(stage, again, values)

        assert_same(await stage.result(again), values)


# --- what people read elsewhere


SECRET = next(canary.secret for canary in CANARIES if canary.shape == "github")


async def test_the_choices_of_a_question_come_back_as_they_were(quick: Stage) -> None:
    @hf.task(name="asks")
    async def asks(run: hf.Run) -> Any:
        return await run.ask("which?", [SECRET, "none"])

    await quick.open(asks)
    handle = await quick.start(asks())
    await quick.settle()
    (question,) = await quick.holdfast.questions()
    await quick.holdfast.answer(question.id, SECRET)
    await quick.settle()

    assert question.choices == (SECRET, "none")
    assert await quick.result(handle) == SECRET


async def test_the_titles_of_a_plan_come_back_as_they_were(quick: Stage) -> None:
    title = f"log in with {SECRET}"

    @hf.task(name="plans")
    async def plans(run: hf.Run) -> list[str]:
        seen: list[str] = run.list("seen", [])
        async for item in run.plan([hf.PlanItem(id="a", title=title), hf.PlanItem(id="b", title="b")]):
            seen.append(item.title)
            await run.sleep("1h")
        return list(seen)

    await quick.open(plans)

    assert await quick.run(plans()) == [title, "b"]


async def test_the_text_of_a_message_comes_back_as_it_was(quick: Stage) -> None:
    text = f"use {SECRET} for it"
    message = new_message(
        "agent:main:main", text, None, channel_message_id="m1", role=Role.USER, now=quick.clock.now()
    )
    posted = await quick.store.write(lambda tx: post(tx, message))
    found = quick.store.read_now(lambda tx: tx.messages.get(posted.message.id))

    assert decode_payload(found.body) == text
