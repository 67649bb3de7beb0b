"""Transactional effects: a program's own tables change together with its step, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

import holdfast as hf
from holdfast.core.effect import EffectClass
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.store import Store, Tx, Write
from holdfast.store.contract import Execute
from holdfast.store.user_sql import check_statement, numbered_for_user, our_tables
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, memory_store, name_of
from holdfast.testing.stores import RecordedWrite, WrappingStore
from tests.engine.tables import execute, query
from tests.engine.workers import carrying, soon

T = TypeVar("T")


@pytest.fixture(autouse=True)
def orders(store: Store) -> Any:
    """The program's own table, in the database that holds the ledger."""
    execute(store, f"DROP TABLE IF EXISTS {table_in(store)}")
    execute(store, f"CREATE TABLE {table_in(store)} (id TEXT PRIMARY KEY, amount BIGINT)")
    yield
    execute(store, f"DROP TABLE {table_in(store)}")


def table_in(store: Store) -> str:
    return "orders" if hasattr(store, "path") else "public.orders"


def rows_of(store: Store) -> list[tuple[Any, ...]]:
    return query(store, f"SELECT id, amount FROM {table_in(store)} ORDER BY id")


@hf.transactional
def order(tx: hf.Transaction, order_id: str, amount: int) -> int:
    tx.execute("INSERT INTO orders (id, amount) VALUES (:id, :amount)", {"id": order_id, "amount": amount})
    ((count,),) = tx.execute("SELECT COUNT(*) FROM orders")
    return int(count)


@hf.task
async def shop(run: hf.Run, order_id: str) -> int:
    return await run.step(order, order_id, 3)


async def test_the_rows_and_the_result_are_there_together(store: Store, clock: FakeClock) -> None:
    async with carrying(store, clock, shop) as process:
        handle = await process.holdfast.start(shop("a"))

        assert await soon(handle.result()) == 1
    (effect,) = store.read_now(lambda tx: tx.effects.of_task(handle.id))
    assert rows_of(store) == [("a", 3)]
    assert (effect.effect_class, effect.status) == (EffectClass.TRANSACTIONAL, EffectStatus.DONE)


async def test_it_is_remembered_like_any_step(store: Store, clock: FakeClock) -> None:
    entered, door = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        await door.wait()

    @hf.task
    async def twice(run: hf.Run) -> int:
        count = await run.step(order, "a", 3)
        await run.step(wait)
        return count

    async with carrying(store, clock, twice, step_patience=0.0) as process:
        handle = await process.holdfast.start(twice())
        await soon(entered.wait())
    door.set()
    async with carrying(store, clock, twice) as process:
        assert await soon(process.holdfast.handle(handle.id).result()) == 1

    assert rows_of(store) == [("a", 3)]


async def test_what_it_raises_leaves_nothing_behind(store: Store, clock: FakeClock) -> None:
    @hf.transactional
    def halfway(tx: hf.Transaction) -> None:
        tx.execute("INSERT INTO orders (id) VALUES ('a')")
        raise LookupError("no such customer")

    @hf.task(attempts=1)
    async def sell(run: hf.Run) -> str:
        try:
            await run.step(halfway)
        except LookupError as error:
            return str(error)
        return "sold"

    async with carrying(store, clock, sell) as process:
        result = await soon((await process.holdfast.start(sell())).result())

    assert "no such customer" in result
    assert rows_of(store) == []


async def test_a_failure_is_tried_again_as_its_retry_says(store: Store, clock: FakeClock) -> None:
    attempts: list[int] = []

    @hf.tool(retry=hf.retry(3, backoff="0s"))
    @hf.transactional
    def flaky(tx: hf.Transaction) -> str:
        attempts.append(1)
        tx.execute("INSERT INTO orders (id) VALUES (:id)", {"id": f"try {len(attempts)}"})
        if len(attempts) < 3:
            raise ConnectionError("not yet")
        return "done"

    @hf.task
    async def sell(run: hf.Run) -> str:
        return await run.step(flaky)

    async with carrying(store, clock, sell) as process:
        assert await soon((await process.holdfast.start(sell())).result()) == "done"

    assert rows_of(store) == [("try 3", None)]


async def test_a_constraint_of_its_own_table_is_an_error_that_it_can_tell(
    store: Store, clock: FakeClock
) -> None:
    @hf.tool(raises=hf.SqlFailed)
    @hf.transactional
    def insert(tx: hf.Transaction) -> None:
        tx.execute("INSERT INTO orders (id) VALUES ('a')")

    @hf.task(attempts=1)
    async def sell(run: hf.Run) -> str:
        await run.step(hf.step(insert, id="1"))
        try:
            await run.step(hf.step(insert, id="2"))
        except hf.SqlFailed:
            return "taken"
        return "sold"

    async with carrying(store, clock, sell) as process:
        assert await soon((await process.holdfast.start(sell())).result()) == "taken"

    assert rows_of(store) == [("a", None)]


async def test_many_at_once_share_commits_and_each_is_there_once(store: Store, clock: FakeClock) -> None:
    async with carrying(store, clock, shop) as process:
        handles = await process.holdfast.start_many([shop(f"order {number}") for number in range(40)])
        for handle in handles:
            await soon(handle.result())

    assert [row[0] for row in rows_of(store)] == sorted(f"order {number}" for number in range(40))


class Changing:
    """A program whose arguments change between two lives: what it did before does not fit any more."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.amounts = [3]
        self.undone: list[int] = []
        self._around = (store, clock)
        entered = asyncio.Event()

        async def wait() -> None:
            entered.set()
            await asyncio.sleep(0 if len(self.amounts) > 1 else 3600)

        def undo(order_id: str, amount: int) -> None:
            self.undone.append(amount)

        @hf.task(attempts=1)
        async def changing(run: hf.Run) -> int | None:
            orders = hf.tool(order, effect=hf.transactional, compensate=undo)
            count = await run.step(orders, f"order of {self.amounts[-1]}", self.amounts[-1])
            await run.step(wait)
            return count

        self.task, self.entered = changing, entered

    async def drift(self) -> hf.Handle[int | None]:
        async with carrying(*self._around, self.task, step_patience=0.0) as process:
            handle = await process.holdfast.start(self.task())
            await soon(self.entered.wait())
        self.amounts.append(4)
        return handle

    async def until_parked(self, process: Any, handle: hf.Handle[int | None]) -> Any:
        async def parked() -> None:
            waiting = process.holdfast.handle(handle.id)
            while await waiting.status() is not TaskStatus.NEEDS_REVIEW:  # noqa: ASYNC110 - no hint tells it
                await asyncio.sleep(0)

        await soon(parked())
        (effect,) = await process.holdfast.reviews()
        return effect


@pytest.mark.parametrize(
    ("decision", "result", "rows"),
    [
        ("done", 7, [("order of 3", 3)]),
        ("retry", 2, [("order of 3", 3), ("order of 4", 4)]),
        ("skip", None, [("order of 3", 3)]),
    ],
)
async def test_the_same_key_with_other_arguments_is_drift_and_a_person_decides(
    store: Store, clock: FakeClock, decision: Any, result: object, rows: list[tuple[Any, ...]]
) -> None:
    program = Changing(store, clock)
    handle = await program.drift()
    async with carrying(store, clock, program.task) as process:
        effect = await program.until_parked(process, handle)
        task = await process.holdfast.handle(handle.id).task()
        before = rows_of(store)
        given: dict[str, Any] = {"result": result} if decision == "done" else {}
        await process.holdfast.resolve(effect.id, decision, **given, by="ada")

        assert await soon(process.holdfast.handle(handle.id).result()) == result
    assert (task.status, task.waits_on) == (TaskStatus.NEEDS_REVIEW, f"review:{effect.id}")
    assert effect.outcome is not None
    assert b"it was done before with other arguments" in effect.outcome
    assert before == [("order of 3", 3)]
    assert rows_of(store) == rows


async def test_a_drifted_one_that_a_person_has_undone_fails(store: Store, clock: FakeClock) -> None:
    program = Changing(store, clock)
    handle = await program.drift()
    async with carrying(store, clock, program.task) as process:
        effect = await program.until_parked(process, handle)
        await process.holdfast.resolve(effect.id, "compensate", by="ada")

        with pytest.raises(hf.TaskFailed, match="compensated"):
            await soon(process.holdfast.handle(handle.id).result())
    assert program.undone == [4]
    assert rows_of(store) == [("order of 3", 3)]


async def test_a_drifted_one_is_put_before_a_person_once_however_often_it_is_replayed(
    store: Store, clock: FakeClock
) -> None:
    program = Changing(store, clock)
    handle = await program.drift()
    async with carrying(store, clock, program.task) as process:
        first = await program.until_parked(process, handle)
    async with carrying(store, clock, program.task) as process:
        second = await program.until_parked(process, handle)
        await process.holdfast.resolve(second.id, "retry", by="ada")

        assert await soon(process.holdfast.handle(handle.id).result()) == 2
    assert first.id == second.id
    assert [row[0] for row in rows_of(store)] == ["order of 3", "order of 4"]


async def test_it_is_refused_when_it_cannot_run_inside_a_write(store: Store, clock: FakeClock) -> None:
    with pytest.raises(hf.BadInput, match="cannot await"):

        @hf.transactional
        async def charge(tx: hf.Transaction) -> None: ...


# --- crashes


def is_the_step(write: Write[Any]) -> bool:
    return name_of(write).startswith("Transactions.")


class DyingInStep(FailingStore):
    """The process dies at a point of the step's own write, whichever call that is."""

    def __init__(self, inner: Store, point: Failpoint) -> None:
        super().__init__(inner)
        self._point = point

    def _begin(self, write: Write[Any]) -> RecordedWrite:
        if is_the_step(write):
            self._plan = frozenset({msgspec.structs.replace(self._point, call=len(self.calls) + 1)})
        return super()._begin(write)


async def carry(store: Store, clock: FakeClock, name: str) -> int:
    async with carrying(store, clock, shop) as process:
        return await soon((await process.holdfast.start(shop(name), key=name)).result())


async def test_killed_at_every_point_of_its_write_it_is_done_exactly_once(
    store: Store, clock: FakeClock
) -> None:
    recorded = FailingStore(store)
    await carry(recorded, clock, "recorded")
    points = [
        point
        for call in recorded.calls
        if call.name.startswith("Transactions.")
        for point in call.failpoints()
    ]
    assert [point.where for point in points].count("inside") >= 5
    for place, point in enumerate(points):
        execute(store, f"DELETE FROM {table_in(store)}")
        name = f"order {place}"
        with pytest.raises(Crashed):
            await carry(DyingInStep(store, point), clock, name)
        clock.advance(minutes=5)

        assert await carry(store, clock, name) == 1
        assert rows_of(store) == [(name, 3)], str(point)


class AskingAgain(WrappingStore):
    """The answer to the step's own write is lost once, so that it is asked for again."""

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        if is_the_step(write):
            assert await self.inner.write(write) == answer
        return answer


async def test_when_the_answer_is_lost_the_same_write_finds_what_it_did(
    store: Store, clock: FakeClock
) -> None:
    assert await carry(AskingAgain(store), clock, "a") == 1

    assert rows_of(store) == [("a", 3)]


# --- what it may say


def say(store: Store, sql: str, params: dict[str, object] | None = None) -> Any:
    def act(execute: Execute) -> Any:
        return execute(sql, params)

    return store.write_now(lambda tx: tx.statements.lend(act))


def test_values_come_and_go_as_they_are(store: Store) -> None:
    say(store, "INSERT INTO orders VALUES (:id, :amount)", {"id": "a:b ':c -- d", "amount": 2**40})

    found = say(
        store, "SELECT id, amount, ':no' FROM orders /* :no */ WHERE id = :id -- :no", {"id": "a:b ':c -- d"}
    )

    assert [tuple(row) for row in found] == [("a:b ':c -- d", 2**40, ":no")]


@pytest.mark.parametrize(
    "sql",
    [
        *(f"SELECT * FROM {table}" for table in sorted(our_tables("sqlite"))),
        "SELECT * FROM main.runs",
        "SELECT * FROM holdfast.runs",
        'SELECT * FROM "holdfast" . "runs"',
        "SELECT * FROM HOLDFAST.runs",
        "DELETE FROM tasks",
        "UPDATE runs SET fence = 0",
        "INSERT INTO boots VALUES ('x')",
        "WITH gone AS (SELECT id FROM tasks) SELECT * FROM gone",
        "INSERT INTO orders SELECT id, 1 FROM tasks",
        "DROP TABLE runs",
        "DROP INDEX runs_alive",
        "ALTER TABLE runs RENAME TO others",
        "CREATE INDEX mine ON runs (id)",
        "CREATE TEMP TABLE runs AS SELECT 1",
        "BEGIN",
        "COMMIT",
        "/* a comment */ -- another\n ROLLBACK",
        "SAVEPOINT member",
        "RELEASE member",
        "ROLLBACK TO member",
        "PRAGMA user_version = 3",
        "SELECT * FROM pragma_user_version",
        "ATTACH '/tmp/other.db' AS other",
        "SET search_path = holdfast",
        "SELECT set_config('search_path', 'holdfast', false)",
        "SELECT 1; SELECT 2",
        "UPDATE sqlite_sequence SET seq = 0",
        "SELECT * FROM dbstat",
        "VACUUM",
        "ANALYZE",
        "",
    ],
)
def test_what_is_not_a_program_s_is_refused_and_changes_nothing(store: Store, sql: str) -> None:
    before = store.read_now(lambda tx: tx.boots.fact("ledger_id"))
    # PostgreSQL looks for temporary tables last, so one of them does no harm.
    is_harmless = "TEMP" in sql and not hasattr(store, "path")

    with contextlib.nullcontext() if is_harmless else pytest.raises((hf.BadInput, hf.SqlFailed)):
        say(store, sql)

    assert store.read_now(lambda tx: tx.boots.fact("ledger_id")) == before
    assert store.verify() == []


def test_a_trigger_or_a_view_is_no_way_around(clock: FakeClock) -> None:
    """On SQLite. Triggers of PostgreSQL are functions, which only its roles can forbid."""
    store = memory_store(clock)
    say(store, "CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)")
    say(store, "CREATE VIEW spy AS SELECT * FROM runs")
    say(store, "CREATE TRIGGER spies AFTER INSERT ON orders BEGIN DELETE FROM tasks; END")

    with pytest.raises(hf.BadInput):
        say(store, "SELECT * FROM spy")
    with pytest.raises(hf.BadInput):
        say(store, "INSERT INTO orders VALUES ('a', 1)")
    store.close()


def test_a_failure_that_is_swallowed_fails_the_write_when_it_broke_the_transaction(store: Store) -> None:
    sql = "INSERT OR ROLLBACK INTO orders VALUES ('a', 1)"
    if not hasattr(store, "path"):
        sql = "INSERT INTO orders VALUES ('a', 1)"

    def swallow(execute: Execute) -> None:
        execute("INSERT INTO orders VALUES ('a', 0)", None)
        try:
            execute(sql, None)
        except hf.SqlFailed:
            return

    with pytest.raises(hf.SqlFailed):
        store.write_now(lambda tx: tx.statements.lend(swallow))

    assert rows_of(store) == []


def test_others_in_the_same_commit_are_not_harmed(store: Store, clock: FakeClock) -> None:
    async def together() -> list[Any]:
        def bad(tx: Tx) -> None:
            tx.statements.lend(lambda execute: execute("SELECT * FROM nowhere", None))

        def good(tx: Tx) -> str:
            tx.boots.set_fact("good", "yes")
            return "good"

        writes: list[Callable[[Tx], Any]] = [good, bad] * 10
        return await asyncio.gather(*(store.write(write) for write in writes), return_exceptions=True)

    answers = asyncio.run(together())

    assert answers[::2] == ["good"] * 10
    assert {type(answer) for answer in answers[1::2]} == {hf.SqlFailed}


def test_the_right_ends_with_the_function(store: Store) -> None:
    kept: list[Execute] = []
    store.write_now(lambda tx: tx.statements.lend(kept.append))

    with pytest.raises(hf.BadInput, match="the transaction has ended"):
        kept[0]("SELECT 1", None)


def test_a_parameter_without_a_value_is_named(store: Store) -> None:
    with pytest.raises(hf.BadInput, match=":amount"):
        say(store, "SELECT :amount", {"id": 1})


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT :a, :b, :a", ("SELECT $1, $2, $1", ("a", "b"))),
        ("SELECT ':a', \":a\", :a", ("SELECT ':a', \":a\", $1", ("a",))),
        ("SELECT x::int, :a::text", ("SELECT x::int, $1::text", ("a",))),
        ("SELECT 'it''s :a' -- :a\n, :a /* :a */", ("SELECT 'it''s :a' -- :a\n, $1 /* :a */", ("a",))),
        ("SELECT $$ :a $$, $x$ :a $x$, :a", ("SELECT $$ :a $$, $x$ :a $x$, $1", ("a",))),
    ],
)
def test_parameters_are_found_where_they_are_parameters(sql: str, expected: object) -> None:
    assert numbered_for_user(sql) == expected


@pytest.mark.parametrize(
    "sql", ["select 1", "  -- first\n/* then */ Insert into x values (1)", "WITH x AS (SELECT 1)"]
)
def test_a_statement_is_known_by_its_first_word(sql: str) -> None:
    assert check_statement(sql) == sql


def test_text_is_needed() -> None:
    with pytest.raises(hf.BadInput):
        check_statement(b"SELECT 1")
