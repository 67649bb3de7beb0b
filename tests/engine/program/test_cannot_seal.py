"""A secret is to be stored while the key is away: the run waits, and its program has not failed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import CannotSeal, KeyProblem
from holdfast.core.transitions import TaskStatus
from holdfast.store.sealing import MemoryKey
from tests.backends import first_on_both
from tests.engine.workers import carrying, soon, until
from tests.shared_ledgers import SharedLedger

SECRET = {"password": "behind the " + "third stone"}
LARGE = {**SECRET, "pad": "tide " * 200_000}


class AwayKey(MemoryKey):
    """Its service does not answer a few times."""

    where = "the service"

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def load(self, wanted: str | None = None) -> bytes:
        if self.failures:
            self.failures -= 1
            raise KeyProblem("the service is away")
        return super().load(wanted)

    def make(self) -> bytes:
        return self.load()


@hf.task(name="fetches", attempts=1)
async def fetches(run: hf.Run, which: str) -> Any:
    async def give() -> Any:
        return SECRET if which == "small" else LARGE

    found: list[Any] = []
    try:
        if which == "argument":
            await run.step(take, SECRET)
        elif which == "list":
            kept = run.list("kept", [SECRET])
            await run.step(take, "plain")
            found = list(kept)
        else:
            found = [await run.step(give)]
    except Exception as error:  # noqa: BLE001 - as programs do
        return repr(error)
    return found or SECRET


async def take(_given: Any) -> None:
    """Something that a step is called with."""


EXPECTED: dict[str, Any] = {"small": [SECRET], "large": [LARGE], "argument": SECRET, "list": [SECRET]}


@first_on_both("which", list(EXPECTED), ledger="shared_ledger")
async def test_a_run_waits_for_a_key_that_is_away_and_its_program_hears_nothing_of_it(
    shared_ledger: SharedLedger, caplog: pytest.LogCaptureFixture, which: str
) -> None:
    shared_ledger.outer = AwayKey(1)

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        async with carrying(shared_ledger.open(), shared_ledger.clock, fetches) as process:
            handle = await process.holdfast.start(fetches(which))

            assert await soon(handle.result()) == EXPECTED[which]

    assert "a value that holds a secret cannot be stored: the service is away" in caplog.text


async def test_a_task_with_a_secret_is_not_taken_while_the_key_is_away(shared_ledger: SharedLedger) -> None:
    shared_ledger.outer = AwayKey(2)
    async with carrying(shared_ledger.open(), shared_ledger.clock, fetches) as process:
        with pytest.raises(CannotSeal, match="the service is away"):
            await process.holdfast.start(fetches(SECRET["password"] + " password: x4711x"), key="k")
        # Nothing was stored, so that the same may be tried again.
        assert await process.holdfast.store.read(lambda tx: tx.tasks.page()) == []


async def test_an_opaque_effect_whose_outcome_could_not_be_sealed_is_reviewed_and_not_repeated(
    shared_ledger: SharedLedger,
) -> None:
    called: list[str] = []

    @hf.opaque
    async def charge() -> Any:
        called.append("once")
        return SECRET

    @hf.task(name="charges")
    async def charges(run: hf.Run) -> Any:
        return await run.step(charge)

    shared_ledger.outer = AwayKey(1)
    async with carrying(shared_ledger.open(), shared_ledger.clock, charges) as process:
        handle = await process.holdfast.start(charges())
        store = process.holdfast.store
        await until(
            lambda: store.read_now(lambda tx: tx.tasks.look(handle.id)).status is TaskStatus.NEEDS_REVIEW
        )

    assert called == ["once"]
