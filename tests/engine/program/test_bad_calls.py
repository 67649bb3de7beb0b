"""Bad input on every call of a run: the program gets a named error, and nothing has changed in any table."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import HoldfastError
from holdfast.core.payload import MAX_TEXT_BYTES
from holdfast.core.step import ArtifactKind
from tests.engine.bad_values import NAMES, PAYLOADS, TEXTS
from tests.engine.stage import Stage
from tests.engine.tables import dump

Call = Callable[[hf.Run, Any], Awaitable[object]]


async def one() -> int:
    return 1


async def give(value: Any) -> Any:
    return value


CALLS: dict[str, tuple[Call, dict[str, object]]] = {
    "step id": (
        lambda run, value: run.step(hf.step(one, id=value)),
        {kind: value for kind, value in NAMES.items() if value is not None},
    ),
    # A number as a key of an object is stored as its text.
    "step argument": (
        lambda run, value: run.step(give, value),
        {kind: value for kind, value in PAYLOADS.items() if kind != "number as a key"},
    ),
    "decision": (lambda run, value: run.decide(value), TEXTS | {"too large": "d" * (MAX_TEXT_BYTES + 1)}),
    "reference": (lambda run, value: run.refer("browser", value), TEXTS),
    "output": (lambda run, value: run.output(value, "calm"), NAMES),
    "content": (
        lambda run, value: run.output("report", value),
        {kind: value for kind, value in TEXTS.items() if kind not in {"empty", "blank"}}
        | {"too large": "c" * (64 * 1024 + 1)},
    ),
    "output kind": (
        lambda run, value: run.output("report", "calm", kind=value),
        {"file": ArtifactKind.FILE, "text": "painting", "none": None},
    ),
    "file": (
        lambda run, value: run.artifact(value),
        {"missing": Path("/nowhere/report"), "directory": Path("/"), "NUL": Path("/tmp/\x00"), "none": None},
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_bad_input_is_refused_by_name_and_changes_nothing(quick: Stage, name: str) -> None:
    call, values = CALLS[name]
    answers: dict[str, object] = {}
    tables: list[Any] = []

    @hf.task
    async def misuse(run: hf.Run) -> None:
        tables.append(dump(quick.store))
        for kind, value in values.items():
            try:
                answers[kind] = await call(run, value)
            except Exception as error:  # noqa: BLE001 - which kind it is, the test asks
                answers[kind] = error
        tables.append(dump(quick.store))

    await quick.open(misuse)
    await quick.run(misuse())

    assert {kind: one for kind, one in answers.items() if not isinstance(one, HoldfastError)} == {}
    assert tables[0] == tables[1]


async def test_random_text_comes_back_from_a_step_as_it_was_or_is_refused(quick: Stage) -> None:
    chance = random.Random(20260101)
    texts = [
        "".join(chr(chance.choice([chance.randrange(0x80), chance.randrange(0x110000)])) for _ in range(20))
        for _ in range(200)
    ]
    refused: set[int] = set()
    calls: list[int] = []

    async def text_of(number: int) -> str:
        calls.append(number)
        return texts[number]

    @hf.task
    async def keep(run: hf.Run) -> list[int]:
        """The sleep ends the run's first attempt, so that the second one reads every result back."""
        changed = []
        for number, text in enumerate(texts):
            try:
                if await run.step(text_of, number) != text:
                    changed.append(number)
            except HoldfastError:
                refused.add(number)
        await run.sleep("1h")
        return changed

    await quick.open(keep)

    assert await quick.run(keep()) == []
    assert {number for number in calls if calls.count(number) > 1} <= refused
    assert 0 < len(refused) < len(texts)
