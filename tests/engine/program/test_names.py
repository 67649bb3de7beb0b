"""What a program did under a name or an id is found again, whatever the next process takes for a secret."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.redaction import keep_secret, without_known_secrets
from holdfast.store import Store
from tests.engine.workers import carrying, soon, until
from tests.shared_ledgers import SharedLedger

WORD = "harbour2024"


class CountedPayments:
    """Counts what was done outside."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def tool(self) -> Any:
        @hf.opaque
        async def pay(what: str) -> str:
            self.paid.append(what)
            return what

        return pay


@contextlib.contextmanager
def knowing(*secrets: str) -> Iterator[None]:
    """A process whose own secrets these are."""
    with without_known_secrets():
        for secret in secrets:
            keep_secret(secret)
        yield


def works_with(pay: Any) -> Any:
    @hf.task(name="works")
    async def works(run: hf.Run, word: str) -> Any:
        items = run.list(f"items {word}", ["first"])
        cell: hf.DurableValue[int] = run.value(f"value {word}", 1)
        async for turn in run.turns(f"loop {word}", max=2):
            await turn.tool(pay, {"what": "turn"}, id=f"order {word}")
            items += ["turned"]
            cell.set(cell.get() + 1)
        async for item in run.plan([f"item {word}", "last"]):
            await item.tool(pay, {"what": item.title}, id=f"order {word}")
        await run.tool(pay, {"what": "at last"}, id=f"order {word}")
        answers = []
        async for _turn in run.turns(f"open {word}", max=1):
            await run.tool(pay, {"what": "open"}, id=f"order {word}")
            answers = [await run.ask("which?", id=f"ask {word}")]
        return [list(items), cell.get(), answers]

    return works


def is_asked(store: Store) -> bool:
    return bool(store.read_now(lambda tx: tx.questions.open_page(limit=9, after="")))


@pytest.mark.parametrize(
    ("shared_ledger", "before", "after"),
    [
        *[("sqlite", (WORD,), ()), ("sqlite", (), (WORD,)), ("sqlite", (), ())],
        pytest.param("postgres", (WORD,), (), marks=pytest.mark.slow),
    ],
    ids=["a secret then", "a secret now", "never", "a secret then, on PostgreSQL"],
    indirect=["shared_ledger"],
)
async def test_what_was_done_is_not_done_again_by_a_process_that_knows_other_secrets(
    shared_ledger: SharedLedger, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    payments = CountedPayments()
    works = works_with(payments.tool())
    with knowing(*before):
        async with carrying(shared_ledger.open(), shared_ledger.clock, works) as process:
            handle = await process.holdfast.start(works(WORD), key=f"key {WORD}")
            await until(lambda: is_asked(process.holdfast.store))
        shared_ledger.close()
    paid = list(payments.paid)

    with knowing(*after):
        async with carrying(shared_ledger.open(), shared_ledger.clock, works) as process:
            again = await process.holdfast.start(works(WORD), key=f"key {WORD}")
            (question,) = await process.holdfast.questions()
            await process.holdfast.answer(question.id, "that one")
            result = await soon(process.holdfast.handle(handle.id).result())
            page = await process.holdfast.questions()
            events = await process.holdfast.store.read(lambda tx: tx.events.of_task(handle.id, limit=500))

    assert again.id == handle.id
    assert result == [["first", "turned", "turned"], 3, ["that one"]]
    assert payments.paid == paid == ["turn", "turn", f"item {WORD}", "last", "at last", "open"]
    assert page == []
    assert EventKind.STEP_DRIFTED not in [event.kind for event in events]


async def test_an_id_made_of_a_secret_that_a_step_resolved_is_found_after_a_restart(
    shared_ledger: SharedLedger,
) -> None:
    """The step is remembered and not called again, so that the next process never resolves the secret."""
    payments = CountedPayments()
    pay = payments.tool()

    async def log_in(password: str) -> str:
        return f"session of {password}"

    @hf.task(name="logs in")
    async def logs_in(run: hf.Run) -> str:
        session = await run.step(log_in, hf.secret("WORD"))
        await run.tool(pay, {"what": "once"}, id=f"order {session}")
        await run.receive("go")
        return session

    for life in range(2):
        with knowing():
            async with carrying(
                shared_ledger.open(),
                shared_ledger.clock,
                logs_in,
                secrets=lambda name: WORD if name == "WORD" else None,
            ) as process:
                handle = await process.holdfast.start(logs_in(), key="k")
                if life == 1:
                    await process.holdfast.send(handle.id, "go")
                    result = await soon(handle.result())
                else:
                    await until(lambda: bool(payments.paid))
                    store = process.holdfast.store
                    await until(
                        lambda: store.read_now(lambda tx: tx.tasks.look(handle.id)).status.value == "waiting"  # noqa: B023
                    )
            shared_ledger.close()

    assert result == f"session of {WORD}"
    assert payments.paid == ["once"]


async def test_a_task_is_carried_although_a_secret_is_a_part_of_its_name(shared_ledger: SharedLedger) -> None:
    """A password may be a word that stands in code."""

    @hf.task(name="harbour")
    async def harbour(run: hf.Run) -> str:
        return await run.step(quay)

    async def quay() -> str:
        return "moored"

    with knowing("quay"):
        keep_secret("harbour", is_own=False)
        async with carrying(shared_ledger.open(), shared_ledger.clock, harbour) as process:
            handle = await process.holdfast.start(harbour())

            assert await soon(handle.result()) == "moored"

    with knowing("harbour"):
        async with carrying(shared_ledger.open(), shared_ledger.clock, harbour) as process:
            with pytest.raises(hf.BadInput, match="a secret of this process"):
                await process.holdfast.start(harbour())
